from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.schema_registry import SchemaRegistryServer, schema_registry
from typed_orders import REMOTE, SAVED, TrueRecord, truth

from segreader.errors import ObjectNotFoundError, OptionError, SchemaNotFoundError
from segreader.schemas import SchemaSet, load, registry, survey
from segreader.schemas.schema_uses import (
    ChangeKind,
    FieldChange,
    PartitionUse,
    SchemaCounter,
    SchemaUse,
    UseKind,
    changes,
    heads_of,
)
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.typed.framing import read_frame
from segreader.typed.ops import Bad
from segreader.typed.reader_schema import type_of
from segreader.typed.schema import Framing, Schema, SchemaFormat, Version


def record(*fields: dict[str, Any], name: str = "R") -> Schema:
    """An Avro schema of a record with these fields."""
    return Schema(SchemaFormat.AVRO, json.dumps({"type": "record", "name": name, "fields": list(fields)}))


def told(before: Schema, after: Schema, message: str | None = None) -> list[str]:
    """What changed, in words."""
    return [str(one) for one in changes(type_of(before, message), type_of(after, message))]


def of_kind(uses: Sequence[SchemaUse], kind: UseKind) -> list[SchemaUse]:
    """Those of one kind."""
    return [one for one in uses if one.kind is kind]


def counted(records: Sequence[TrueRecord]) -> list[tuple[int, int, int, int, int, int]]:
    """Of each partition: its number, records, first and last offset, oldest and newest time."""
    found = []
    for partition in sorted({one.partition for one in records}):
        of_it = [one for one in records if one.partition == partition]
        offsets, times = [one.offset for one in of_it], [one.timestamp_ms for one in of_it]
        found.append((partition, len(of_it), min(offsets), max(offsets), min(times), max(times)))
    return found


def shown(partitions: Sequence[PartitionUse]) -> list[tuple[int, int, int, int | None, int | None, int | None]]:
    """The same of what a survey says."""
    return [
        (
            one.partition,
            one.records,
            one.offsets.start,
            (one.offsets.stop or 0) - 1,
            one.first_timestamp_ms,
            one.last_timestamp_ms,
        )
        for one in partitions
    ]


# Topics


@pytest.mark.parametrize("topic", ["orders-avro", "orders-protobuf", "orders-json", "orders-headers"])
def test_each_schema_is_counted_where_records_name_it(topic: str) -> None:
    found = survey(REMOTE, topic=topic, schemas=load(SAVED))
    written = truth(topic)

    versions = dict(load(SAVED).known.subjects)[f"{topic}-value"]
    schemas = of_kind(found.uses, UseKind.SCHEMA)
    assert [(one.subject, one.version) for one in schemas] == [(f"{topic}-value", one.version) for one in versions]
    for use, version in zip(schemas, versions, strict=True):
        assert use.schema == load(SAVED).known.schema(version.id)
        assert shown(use.partitions) == counted([one for one in written if one.schema_id == version.id])
        assert use.records == sum(one.schema_id == version.id for one in written)
    nulls = of_kind(found.uses, UseKind.NULL)
    assert shown([part for one in nulls for part in one.partitions]) == counted(
        [one for one in written if one.value is None]
    )
    assert not of_kind(found.uses, UseKind.UNFRAMED)
    assert found.notes == ()


def test_what_changed_in_avro_is_told_from_one_version_to_the_next() -> None:
    first, second, third, _ = survey(REMOTE, topic="orders-avro", schemas=SAVED).uses
    assert first.changes is None
    assert second.changes is not None
    assert second.changes[1:] == (
        FieldChange(ChangeKind.ADDED, "currency", after="string"),
        FieldChange(ChangeKind.RETYPED, "items.quantity", "int32", "int64"),
    )
    assert "enum(OPEN, PAID, SHIPPED) is now enum(OPEN, PAID, SHIPPED, RETURNED)" in str(second.changes[0])
    assert third.changes == (
        FieldChange(ChangeKind.RENAMED, "buyer", "customer", "buyer"),
        FieldChange(ChangeKind.REMOVED, "note", before="string or null"),
    )


def test_what_changed_in_protobuf_and_json_is_told_too() -> None:
    for topic, more in (("orders-protobuf", ["~ customer is now buyer"]), ("orders-json", [])):
        _, second, _ = survey(REMOTE, topic=topic, schemas=SAVED).uses
        told_of_it = [str(one) for one in second.changes or ()]
        assert set(more) <= set(told_of_it)
        assert [one for one in told_of_it if one.startswith("- ")] == ["- note: string or null"]
        assert next(one for one in told_of_it if one.startswith("+ ")).startswith("+ currency: string")
    _, second, _ = survey(REMOTE, topic="orders-protobuf", schemas=SAVED, message="example.Audit").uses
    assert second.changes == ()


def test_without_schemas_ids_are_counted_and_nothing_else_is_said() -> None:
    found = survey(REMOTE, topic="orders-avro")
    known = survey(REMOTE, topic="orders-avro", schemas=SAVED)
    assert [(one.kind, one.id, one.partitions) for one in found.uses] == [
        (one.kind, one.id, one.partitions) for one in known.uses
    ]
    assert {(one.subject, one.version, one.schema, one.changes) for one in found.uses} == {(None, None, None, None)}


def test_keys_are_counted_by_their_own_schemas() -> None:
    (use,) = survey(REMOTE, topic="orders-avro", schemas=SAVED, side="key").uses
    assert (use.subject, use.version, use.records) == ("orders-avro-key", 1, 120)


def test_values_that_name_no_schema_are_counted_apart() -> None:
    found = survey(REMOTE, topic="orders-bad", schemas=SAVED)
    by_reason: dict[str | None, list[TrueRecord]] = {}
    for one in truth("orders-bad"):
        by_reason.setdefault(one.bad, []).append(one)
    (unframed,) = of_kind(found.uses, UseKind.UNFRAMED)
    assert shown(unframed.partitions) == counted(by_reason["NO_FRAME"])
    known, *unknown = of_kind(found.uses, UseKind.SCHEMA)
    assert known.schema is not None
    assert [one.schema for one in unknown] == [None, None]
    assert sum(one.records for one in unknown) == len(by_reason["UNKNOWN_SCHEMA"])
    assert unknown[-1].id == "99999"


def test_only_the_records_that_are_asked_for_are_counted() -> None:
    found = survey(REMOTE, topic="orders-avro", partitions=[1], offsets="5:25")
    assert [(one.id, one.partitions[0].offsets.start, one.partitions[0].offsets.stop) for one in found.uses] == [
        ("3", 5, 20),
        ("4", 20, 25),
        (None, 16, 17),
    ]


def test_a_registry_is_asked_for_ids_that_no_subject_of_the_topic_has(server: SchemaRegistryServer) -> None:
    server.versions = [one for one in server.versions if one["subject"] != "orders-bad-value"] + [
        one | {"subject": "com.example.Order"} for one in server.versions if one["subject"] == "orders-bad-value"
    ]
    found = survey(REMOTE, topic="orders-bad", schemas=registry(server.url))
    assert [(one.id, one.schema is not None) for one in found.uses if one.kind is UseKind.SCHEMA and one.id] == [
        ("6", True),
        ("00000006-8c92-f401-0c43-686c6fc3a904", False),
        ("99999", False),
    ]
    with pytest.raises(SchemaNotFoundError):
        registry(server.url).learn("orders-bad")


def write(tmp_path: Path, *values: bytes | None, **more: Any) -> Path:
    """A location with one topic, ``t``, of these values."""
    records = [ProducerRecord(value=value, **more) for value in values]
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch(records)])
    return tmp_path


def test_records_without_a_timestamp_have_no_first_and_last_time(tmp_path: Path) -> None:
    (use,) = survey(write(tmp_path, b"\0\0\0\0\1", timestamp_ms=-1), topic="t").uses
    assert (use.first_timestamp_ms, use.last_timestamp_ms, use.records) == (None, None, 1)


def test_more_ids_than_any_topic_has_are_bytes_that_look_like_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segreader.schemas.schema_uses.MOST_IDS", 3)
    found = survey(write(tmp_path, *(struct.pack(">bi", 0, id) for id in range(10))), topic="t")
    assert len(of_kind(found.uses, UseKind.SCHEMA)) == 3
    assert of_kind(found.uses, UseKind.UNFRAMED)[0].records == 7


def test_schemas_that_cannot_be_compared_are_counted_with_a_note(tmp_path: Path) -> None:
    broken = Schema(SchemaFormat.AVRO, '{"type": "what"}')
    known = SchemaSet(ids=(("1", record()), ("2", broken)), subjects=(("t-value", (Version(1, 1), Version(2, 2))),))
    found = survey(write(tmp_path, b"\0\0\0\0\1", b"\0\0\0\0\2"), topic="t", schemas=known)
    assert [one.changes for one in found.uses] == [None, None]
    assert found.notes[0].startswith("schemas 1 and 2 cannot be compared: ")


def test_a_topic_that_is_not_there_is_not_found() -> None:
    with pytest.raises(ObjectNotFoundError):
        survey(REMOTE, topic="nothing")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"side": "header"}, "unknown side"),
        ({"framing": "other"}, "unknown framing"),
        ({"framing": "bare"}, "name no schema"),
    ],
)
def test_what_cannot_be_counted_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        survey(REMOTE, topic="orders-avro", **given)


# Frames


@given(
    values=st.lists(
        st.none()
        | st.binary(max_size=20)
        | st.tuples(st.sampled_from([b"\0", b"\1", b"\3\0", b"\3\5", b"\xc3\1"]), st.binary(max_size=18)).map(b"".join)
    )
)
def test_heads_name_what_the_frames_of_whole_values_do(values: list[bytes | None]) -> None:
    for framing in Framing:
        if framing is Framing.BARE:
            continue
        for value, head in zip(values, heads_of(pa.array(values, pa.binary()), framing).to_pylist(), strict=True):
            if value is None:
                assert head == b"\xff"
                continue
            frame = read_frame(value, framing)
            assert (head == b"") == isinstance(frame, Bad)
            if not isinstance(frame, Bad):
                assert read_frame(head, framing) == frame


@pytest.mark.parametrize("framing", [Framing.APICURIO, Framing.GLUE, Framing.SINGLE_OBJECT])
def test_other_framings_are_counted(framing: Framing, tmp_path: Path) -> None:
    guid = uuid.UUID(int=7)
    value, id = {
        Framing.APICURIO: (b"\0" + struct.pack(">q", 1 << 40), str(1 << 40)),
        Framing.GLUE: (b"\3\0" + guid.bytes, str(guid)),
        Framing.SINGLE_OBJECT: (b"\xc3\1" + bytes(range(8)), "0706050403020100"),
    }[framing]
    compressed = b"\3\5" + value[2:] if framing is Framing.GLUE else value
    found = survey(write(tmp_path, value, compressed, b"\1" + value), topic="t", framing=framing.value)
    assert [(one.kind, one.id, one.records) for one in found.uses] == [
        (UseKind.SCHEMA, id, 2),
        (UseKind.UNFRAMED, None, 1),
    ]


def test_a_header_counts_before_the_value(tmp_path: Path) -> None:
    guid = uuid.UUID(int=9)
    name = "__value_schema_id"
    frame = b"\0" + struct.pack(">i", 5)
    rows = [
        (frame, ()),
        (frame, ((name, b"\1" + guid.bytes),)),
        (b"payload", (("other", b"x"), (name, b"\0\0\0\0\6"), (name, b"\0\0\0\0\7"))),
        (None, ((name, b"\0\0\0\0\6"),)),
        (frame, ((name, None),)),
        (b"payload", ((name, b"no frame"),)),
    ]
    records = [ProducerRecord(value=value, headers=headers) for value, headers in rows]
    write_local_tiered(tmp_path, "t", [SegmentBuilder().batch(records)])
    found = survey(tmp_path, topic="t")
    assert {(one.kind, one.id): one.records for one in found.uses} == {
        (UseKind.SCHEMA, "5"): 2,
        (UseKind.SCHEMA, str(guid)): 1,
        (UseKind.SCHEMA, "6"): 1,
        (UseKind.NULL, None): 1,
        (UseKind.UNFRAMED, None): 1,
    }


def test_batches_of_one_partition_are_counted_together(tmp_path: Path) -> None:
    counter = SchemaCounter("t")
    for first in (10, 0):
        counter.add(
            pa.record_batch(
                {
                    "topic": ["t"] * 2,
                    "partition": [0] * 2,
                    "offset": pa.array([first, first + 1], pa.int64()),
                    "timestamp_ms": pa.array([first, -1], pa.int64()),
                    "value": pa.array([b"\0\0\0\0\1"] * 2, pa.binary()),
                }
            )
        )
    (use,) = counter.survey().uses
    assert shown(use.partitions) == [(0, 4, 0, 11, 0, 10)]


# Changes


def test_equal_schemas_have_no_changes() -> None:
    one = record({"name": "a", "type": ["null", "string"]})
    assert told(one, one) == []


def test_a_field_that_may_be_null_now_is_retyped() -> None:
    before = record({"name": "a", "type": "string"}, {"name": "b", "type": "int"})
    after = record(
        {"name": "a", "type": ["null", "string"]}, {"name": "b", "type": {"type": "int", "logicalType": "date"}}
    )
    assert told(before, after) == ["~ a: string is now string or null", "~ b: int32 is now date32"]


def test_what_is_below_lists_and_maps_is_compared() -> None:
    def around(inner: str) -> Schema:
        item = {"type": "record", "name": "I", "fields": [{"name": "x", "type": inner}]}
        return record(
            {"name": "l", "type": {"type": "array", "items": item}},
            {"name": "m", "type": {"type": "map", "values": "I"}},
        )

    assert told(around("int"), around("string")) == [
        "~ l.x: int32 is now string",
        "~ m.value.x: int32 is now string",
    ]


def test_a_struct_that_became_text_is_one_change() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    assert told(record({"name": "a", "type": inner}), record({"name": "a", "type": "string"})) == [
        "~ a: struct is now string"
    ]
    assert told(Schema(SchemaFormat.AVRO, '"int"'), Schema(SchemaFormat.AVRO, '"long"')) == [
        "~ the value: int32 is now int64"
    ]


def test_an_alias_that_is_a_field_of_its_own_renames_nothing() -> None:
    before = record({"name": "a", "type": "int"})
    after = record({"name": "b", "type": "int", "aliases": ["a"]}, {"name": "a", "type": "int"})
    assert told(before, after) == ["+ b: int32"]


def test_protobuf_fields_are_the_same_by_their_numbers() -> None:
    before = Schema(SchemaFormat.PROTOBUF, 'syntax = "proto3"; message M { string a = 1; int32 b = 2; }')
    after = Schema(SchemaFormat.PROTOBUF, 'syntax = "proto3"; message M { string a = 2; string c = 1; }')
    assert told(before, after) == [
        "~ b is now a",
        "~ a: int32 is now string",
        "~ a is now c",
    ]


def test_a_registry_that_does_not_answer_is_no_topic_without_subjects() -> None:
    with schema_registry([]) as server:
        server.user = ("reader", "pass")
        with pytest.raises(Exception, match="refuses the request"):
            survey(REMOTE, topic="orders-avro", schemas=registry(server.url))
