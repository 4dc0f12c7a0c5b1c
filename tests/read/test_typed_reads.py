"""Scans with schemas: typed columns, only the fields that are asked for, and what becomes of undecodable values."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from typed_orders import REMOTE, SAVED, truth

import segreader
from segreader.errors import OptionError, UndecodableValueError
from segreader.read.base_scan import BaseScan
from segreader.typed.decoding import Decoding
from segreader.typed.schema import SchemaSet


def scan(topic: str, **arguments: Any) -> BaseScan:
    return segreader.scan(REMOTE, topic=topic, **{"value": SAVED, **arguments})


def objects(column: pa.ChunkedArray) -> list[Any]:
    """Values with maps as dicts, as the truth has them."""
    return [_plain(one) for one in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return dict(value)
        return [_plain(one) for one in value]
    return value


def agrees(found: Any, true: Any) -> bool:
    """Whether a value has all that the writer's has: the reader's schema may have more fields, and renamed ones."""
    if isinstance(true, dict) and isinstance(found, dict):
        shared = true.keys() & found.keys()
        return all(agrees(found[name], true[name]) for name in shared) and (bool(shared) or not true)
    if isinstance(found, str) and found != true:
        return bool(json.loads(found) == true)  # JSON of any type
    if isinstance(found, datetime) and isinstance(true, str):
        return bool(found == datetime.fromisoformat(true))
    if isinstance(found, date) and isinstance(true, str):
        return bool(found == date.fromisoformat(true))
    if isinstance(true, dict) and found == []:
        return not true  # a map without entries
    if isinstance(true, list):
        return len(found) == len(true) and all(map(agrees, found, true))
    return bool(found == true)


@pytest.mark.parametrize("topic", ["orders-avro", "orders-json", "orders-headers"])
@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_values_are_those_that_the_serializers_were_given(topic: str, kernel: str) -> None:
    true = truth(topic)
    table = scan(topic, kernel=kernel).to_arrow().combine_chunks()
    places = list(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))

    assert places == [(one.partition, one.offset) for one in true]
    wrong = [
        one.offset
        for one, found in zip(true, objects(table.column("value")), strict=True)
        if not agrees(found, one.value)
    ]
    assert wrong == []
    assert [one.value is None for one in true] == [one is None for one in table.column("value").to_pylist()]


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("message", ["example.Order", "example.Audit.Change"])
def test_of_a_topic_with_several_messages_one_is_read(message: str, kernel: str) -> None:
    known = replace(SchemaSet.from_json(SAVED.read_bytes()), message=message)
    true = truth("orders-protobuf")
    read = scan("orders-protobuf", value=known, on_undecodable="keep", kernel=kernel)
    table = read.to_arrow()

    for one, found, reason in zip(
        true, objects(table.column("value")), table.column("value_error").to_pylist(), strict=True
    ):
        if one.value is not None and one.message == message:
            assert agrees(found, one.value), one.offset
        else:
            assert found is None
            assert (reason is not None) == (one.value is not None)


def test_a_field_that_a_later_writer_renamed_has_the_values_of_both() -> None:
    true = truth("orders-avro")
    found = scan("orders-avro", columns=["value.buyer"]).to_arrow().column("value").to_pylist()

    names = [one.value and (one.value.get("buyer") or one.value.get("customer")) for one in true]
    assert [value and value["buyer"] for value in found] == names


def test_only_the_fields_that_are_asked_for_are_in_the_column() -> None:
    table = scan("orders-avro", columns=["offset", "value.items.price", "value.id"]).to_arrow()

    assert table.schema.names == ["offset", "value"]
    kind = table.schema.field("value").type
    assert [kind.field(at).name for at in range(kind.num_fields)] == ["id", "items"]
    assert str(kind.field("items").type.value_type) == "struct<price: double not null>"
    whole = objects(scan("orders-avro").to_arrow().column("value"))
    pruned = objects(table.column("value"))
    assert pruned == [
        None if one is None else {"id": one["id"], "items": [{"price": item["price"]} for item in one["items"]]}
        for one in whole
    ]


def test_a_field_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(OptionError, match=r"no such field: value\.custmer.*value\.id, value\.buyer"):
        scan("orders-avro", columns=["value.custmer"])
    with pytest.raises(OptionError, match="Fields need a source of schemas: value="):
        segreader.scan(REMOTE, topic="orders-avro", columns=["value.id"])


def fields_of(read: BaseScan) -> list[str]:
    kind = read.schema.field("value").type
    return [kind.field(at).name for at in range(kind.num_fields)]


def test_a_version_gives_its_own_fields() -> None:
    assert "customer" in fields_of(scan("orders-avro", schema_version=1))
    assert "buyer" not in fields_of(scan("orders-avro", schema_version=1))
    assert scan("orders-avro", schema_version="latest").to_arrow().num_rows == len(truth("orders-avro"))
    with pytest.raises(OptionError, match=r"no such version.*found 9, expected 1, 2, 3"):
        scan("orders-avro", schema_version=9)


@pytest.mark.parametrize("columns", [["value_error"], ["value_raw", "offset"], ["key", "value_error"]])
def test_what_is_kept_of_bad_values_can_be_asked_for_without_the_values(columns: list[str]) -> None:
    whole = scan("orders-bad", on_undecodable="keep").to_arrow()
    some = scan("orders-bad", on_undecodable="keep", columns=columns).to_arrow()
    assert some.equals(whole.select(columns))
    assert some.column(columns[-1]).null_count < some.num_rows


def test_schemas_of_other_topics_are_not_taken_for_those_of_this_one() -> None:
    with pytest.raises(OptionError, match=r"no subject multi-value.*found avro, json, protobuf.*schemas ls"):
        scan("multi")


def test_a_version_that_cannot_read_a_later_writer_says_so_at_its_first_value() -> None:
    with pytest.raises(UndecodableValueError, match=r"items\.quantity; found long, expected int32.*schema id"):
        scan("orders-avro", schema_version=1).to_arrow()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_an_undecodable_value_ends_the_read_after_the_records_before_it(threads: int, split_bytes: int) -> None:
    true = truth("orders-bad")
    first = next(at for at, one in enumerate(true) if one.bad is not None)
    found: list[int] = []
    with pytest.raises(UndecodableValueError) as caught:
        for batch in scan("orders-bad", threads=threads, split_bytes=split_bytes).to_batches():
            found += batch.column("offset").to_pylist()

    assert found == [one.offset for one in true[:first]]
    assert (caught.value.source, caught.value.offset) == ("orders-bad-0", true[first].offset)


def test_the_error_names_the_offset_whatever_columns_are_asked_for() -> None:
    first = next(one for one in truth("orders-bad") if one.bad is not None)
    with pytest.raises(UndecodableValueError, match=f"offset {first.offset}"):
        scan("orders-bad", columns=["value.id"]).to_arrow()


def test_undecodable_values_can_be_null_and_are_counted() -> None:
    true = truth("orders-bad")
    read = scan("orders-bad", on_undecodable="null")
    table = read.to_arrow()

    assert "value_raw" not in table.schema.names
    assert [value is None for value in table.column("value").to_pylist()] == [one.value is None for one in true]
    assert read.metrics.undecodable == sum(one.bad is not None for one in true) > 3
    assert sum("undecodable value" in note for note in read.metrics.notes) == 3


def test_undecodable_values_can_be_kept_beside_the_reason() -> None:
    true = truth("orders-bad")
    table = scan("orders-bad", on_undecodable="keep").to_arrow()
    raw = segreader.scan(REMOTE, topic="orders-bad").to_arrow().column("value").to_pylist()

    assert table.schema.names[1:4] == ["value", "value_raw", "value_error"]
    bad = [one.bad is not None for one in true]
    assert table.column("value_raw").to_pylist() == [
        data if is_bad else None for data, is_bad in zip(raw, bad, strict=True)
    ]
    assert [reason is not None for reason in table.column("value_error").to_pylist()] == bad


def test_columns_of_kept_values_need_that_policy() -> None:
    with pytest.raises(OptionError, match="on_undecodable='keep' gives it"):
        scan("orders-avro", columns=["value_raw"])
    with pytest.raises(OptionError, match="are of typed keys and values"):
        segreader.scan(REMOTE, topic="orders-avro", on_undecodable="null")


def test_keys_are_decoded_as_values_are() -> None:
    table = scan("orders-avro", key=SAVED).to_arrow()

    assert table.column("key").to_pylist() == [one.key for one in truth("orders-avro")]


def test_records_have_objects_for_typed_values() -> None:
    records = list(scan("orders-avro", key=SAVED).records())
    true = truth("orders-avro")

    assert [record.key for record in records] == [one.key for one in true]
    assert [record.value and record.value["id"] for record in records] == [
        one.value and one.value["id"] for one in true
    ]


def test_counting_records_decodes_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from segreader.typed.decoder import ValueDecoder

    monkeypatch.setattr(ValueDecoder, "decode", lambda *_, **__: pytest.fail("a value was decoded"))
    assert scan("orders-bad", columns=["offset"]).to_arrow().num_rows == len(truth("orders-bad"))


def test_a_decoding_survives_being_saved() -> None:
    decoding = scan("orders-avro", columns=["value.id", "value.items.sku"], on_undecodable="null").options.value
    assert decoding is not None

    restored = Decoding.from_json(decoding.to_json())
    assert restored == decoding
    assert restored.selected == decoding.selected


def test_batches_of_few_rows_give_the_same_values() -> None:
    whole = scan("orders-avro").to_arrow().combine_chunks()
    small = scan("orders-avro", batch_rows=7).to_arrow().combine_chunks()

    assert small.column("value").to_pylist() == whole.column("value").to_pylist()
