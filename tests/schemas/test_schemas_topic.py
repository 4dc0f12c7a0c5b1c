from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, leaks
from servers.schema_registry import RECORDED, schema_registry
from typed_orders import HERE

from segreader.errors import ObjectNotFoundError, OptionError, SchemaNotFoundError, SchemaRegistryError
from segreader.schemas import registry, topic
from segreader.schemas.schemas_topic import RegistryRecords
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.directory import write_broker_log
from segreader.typed.schema import Schema, SchemaFormat

LOG = HERE / "log"
STRING = json.dumps("string")


def row(subject: str, version: int, id: int, schema: str = STRING, **more: Any) -> tuple[bytes, bytes]:
    """A record that states a version."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": id, "schema": schema, "deleted": False, **more}
    return json.dumps(key).encode(), json.dumps(value).encode()


def read(*records: tuple[bytes | None, bytes | None]) -> RegistryRecords:
    """What some records say together."""
    found = RegistryRecords()
    found.take((offset, key, value) for offset, (key, value) in enumerate(records))
    return found


def test_the_topic_gives_what_its_registry_does() -> None:
    recorded = json.loads(RECORDED.read_text())["versions"]
    for one in recorded:
        del one["guid"]  # this form of the records has none
    with schema_registry(recorded) as server:
        for name in ("orders-avro", "orders-protobuf", "orders-json", "orders-headers", "orders-bad"):
            assert topic(LOG).learn(name) == registry(server.url).learn(name), name


def test_deleted_schemas_are_still_known_by_their_ids() -> None:
    known = topic(LOG).learn(None)
    subjects = dict(known.subjects)

    assert [one.version for one in subjects["old-value"]] == [1, 2, 3]  # the subject was deleted, then written again
    assert [known.schema(id) for id in (901, 903, 910)] == [
        Schema(SchemaFormat.AVRO, '{"type":"record","name":"Old","fields":[]}'),
        Schema(SchemaFormat.AVRO, STRING),
        Schema(SchemaFormat.AVRO, '"long"'),
    ]
    assert "soft-value" in subjects
    assert "hard-value" not in subjects
    assert known.schema(920) == Schema(SchemaFormat.AVRO, '"int"')  # until the log is compacted


def test_a_directory_of_the_partition_alone_will_do(tmp_path: Path) -> None:
    copy = tmp_path / "_schemas-0"
    shutil.copytree(LOG / "_schemas-0", copy)
    assert topic(copy).learn("orders-json") == topic(LOG).learn("orders-json")


def test_subjects_can_be_named_and_the_topic_have_another_name(tmp_path: Path) -> None:
    records = [ProducerRecord(key=key, value=value) for key, value in (row("a", 1, 7), row("b", 1, 8))]
    write_broker_log(tmp_path, "registry", [SegmentBuilder().batch(records)])
    known = topic(tmp_path, topic="registry", subject="b").learn("orders")
    assert [id for id, _ in known.ids] == ["8"]
    with pytest.raises(SchemaNotFoundError, match="no such subject; found none of orders-value, orders-key"):
        topic(tmp_path, topic="registry").learn("orders")


def test_a_newer_record_replaces_an_older_one_and_the_old_id_stays_known() -> None:
    found = read(row("a", 1, 1), row("a", 1, 2, '"long"'), row("a", 1, 2, '"long"', deleted=True))
    assert [(one.id, found.has(one)) for one in found.everything()] == [(1, False), (2, True)]
    assert found.version("a", 1).text == '"long"'


def test_references_are_found_among_the_records() -> None:
    named = [{"name": "n", "subject": "b", "version": -1}]
    found = read(row("b", 1, 1), row("b", 2, 2, '"long"'), row("a", 1, 3, references=named))
    assert found.version("b", -1).version == 2
    with pytest.raises(SchemaNotFoundError, match="not there; found c 1"):
        found.version("c", 1)


def test_other_records_of_a_registry_are_passed_over() -> None:
    keys = ["NOOP", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT"]
    found = read(*((json.dumps({"keytype": name, "magic": 0}).encode(), b"{}") for name in keys), row("a", 1, 1))
    assert len(found.everything()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"key", b"{}"),
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype": "SCHEMA"}', b"{}"),
        (b'{"keytype": "SCHEMA", "subject": "a", "version": "1"}', b"{}"),
        (row("a", 1, 1)[0], b"{"),
        (row("a", 1, 1)[0], b"[" * 100_000),
        (row("a", 1, 1)[0], b"\xff"),
        (row("a", 1, 1)[0], b"{}"),
        (row("a", 1, 1)[0], b'{"id": "1", "schema": "x"}'),
        row("a", 1, 1, guid="no guid"),
        row("a", 1, 1, references=[{"name": 1}]),
    ],
)
def test_a_record_that_no_registry_wrote_is_named_by_its_offset(key: bytes | None, value: bytes) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        read(row("a", 1, 1), (key, value))
    assert caught.value.offset == 1


def test_a_log_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        topic(LOG, topic="_other").learn("orders")
    with pytest.raises(ObjectNotFoundError):
        topic(tmp_path / "nothing").learn("orders")
    with pytest.raises(OptionError, match="unknown framing"):
        topic(LOG, framing="other")


def test_its_secrets_are_not_shown() -> None:
    source = topic(
        "kafka://b1:9092",
        storage_options={"secret": CANARIES["secret"]},
        broker_options={"sasl.password": CANARIES["password"]},
    )
    assert leaks(repr(source)) == []
    assert "kafka://b1:9092" in repr(source)


@pytest.mark.parametrize("where", [{"bootstrap_servers": "user:canary@host:1"}, {"location": "s3://user:canary@b/p"}])
def test_what_names_a_password_is_not_shown(where: dict[str, Any]) -> None:
    source = topic(**where)
    assert "canary" not in repr(source)
    with pytest.raises(OptionError) as raised:
        source.learn("orders")
    assert "canary" not in str(raised.value)
