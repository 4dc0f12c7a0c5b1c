from __future__ import annotations

import io
import json
import resource
import sys
import threading
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from random_programs import AvroParts, damaged, encode_long

from segreader.errors import OptionError
from segreader.format.columns import BufferPool
from segreader.typed import decoder
from segreader.typed.decoder import UndecodableRow, ValueDecoder, sentence
from segreader.typed.decoding import Decoding, Side
from segreader.typed.formats import avro, protobuf
from segreader.typed.ops import Bad
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet
from segreader.typed.types import Type

KERNELS = ["native", "reference"]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [{"name": "name", "type": "string"}, {"name": "email", "type": ["null", "string"]}],
            },
        },
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "double"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def schema_of(document: Any) -> Schema:
    return Schema(SchemaFormat.AVRO, json.dumps(document))


def decoding(schemas: SchemaSet | Schema, type_: Type | None = None, *paths: str) -> Decoding:
    if isinstance(schemas, Schema):
        schemas = SchemaSet(framing=Framing.BARE, bare=schemas)
    schema = schemas.bare or schemas.ids[-1][1]
    whole = type_ or (avro if schema.format is SchemaFormat.AVRO else protobuf).type_of(schema)
    return Decoding(side=Side.VALUE, schemas=schemas, type=whole, paths=paths or ("",))


def written(document: Any, value: Any, *, id: int | None = None) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(document), value)
    return (b"" if id is None else b"\0" + id.to_bytes(4, "big")) + stream.getvalue()


def an_order(random: Random, number: int) -> dict[str, Any]:
    return {
        "id": number * 7919,
        "created": 1_700_000_000_000 + number,
        "customer": {"name": random.choice(("Ann", "Bjørn")), "email": random.choice((None, "a@example.com"))},
        "status": random.choice(("NEW", "PAID", "SENT")),
        "items": [{"sku": f"sku-{k}" * k, "price": random.random()} for k in range(random.randrange(4))],
        "tags": {f"tag{k}": "x" * k for k in range(random.randrange(3))},
        "note": random.choice((None, "", "please ring twice, the bell is broken")),
    }


def as_python(value: dict[str, Any] | None) -> Any:
    """As pyarrow gives it."""
    return value and {**value, "tags": list(value["tags"].items())}


def decode(of: ValueDecoder, values: Sequence[bytes | None], **given: Any) -> Any:
    return of.decode(pa.array(values, pa.binary()), **given)


@pytest.mark.parametrize("kernel", KERNELS)
def test_records_are_what_fastavro_wrote(kernel: str) -> None:
    random = Random(3)
    orders = [None if k % 11 == 5 else an_order(random, k) for k in range(3000 if kernel == "native" else 300)]
    of = ValueDecoder(decoding(schema_of(ORDER)), kernel=kernel)
    for count in (len(orders), 7, 0):
        found = decode(of, [None if one is None else written(ORDER, one) for one in orders[:count]])

        found.array.validate(full=True)
        assert found.undecodable == []
        rows = found.array.to_pylist()
        for row in rows:
            if row:
                row["created"] = round(row["created"].timestamp() * 1000)
        assert rows == [as_python(one) for one in orders[:count]]
        assert found.array.type == of.type


@pytest.mark.parametrize("kernel", KERNELS)
def test_fields_that_are_asked_for_are_those_of_whole_records(kernel: str) -> None:
    random = Random(4)
    values = [written(ORDER, an_order(random, k)) for k in range(200)]
    whole = decode(ValueDecoder(decoding(schema_of(ORDER)), kernel=kernel), values).array.to_pylist()
    for paths in (("id",), ("note", "customer.email"), ("items.price", "status"), ("tags",), ("created", "items")):
        part = decode(ValueDecoder(decoding(schema_of(ORDER), None, *paths), kernel=kernel), values).array.to_pylist()
        for one, all_ in zip(part, whole, strict=True):
            if "customer" in one:
                all_ = {**all_, "customer": {"email": all_["customer"]["email"]}}
            if paths[0] == "items.price":
                all_ = {**all_, "items": [{"price": item["price"]} for item in all_["items"]]}
            assert one == {name: all_[name] for name in one}


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_of_several_schemas_fill_one_column(kernel: str) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": "string", "default": "none"}, {"name": "a", "type": "long"}],
    }
    schemas = SchemaSet(ids=(("1", schema_of(old)), ("2", schema_of(new)), ("3", schema_of("string"))))
    of = ValueDecoder(decoding(schemas, avro.type_of(schema_of(new))), kernel=kernel)
    first, second = {"a": 5, "gone": "x" * 40}, {"b": "here", "a": 2**40}
    values = [written(old, first, id=1), written(new, second, id=2), None, written("string", "s", id=3), b"\0\0\0\0\4"]

    found = decode(of, values * 50)

    assert found.array.to_pylist() == [{"b": "none", "a": 5}, second, None, None, None] * 50
    assert {(one.row % 5, one.bad, one.position, one.schema_id) for one in found.undecodable} == {
        (3, Bad.MISMATCH, 0, "3"),
        (4, Bad.UNKNOWN_SCHEMA, 0, "4"),
    }
    details = {one.bad: one.detail for one in found.undecodable}
    assert "string" in details[Bad.MISMATCH]
    assert details[Bad.UNKNOWN_SCHEMA] == ""


@pytest.mark.parametrize("kernel", KERNELS)
def test_undecodable_values_are_null_or_the_end(kernel: str) -> None:
    schemas = SchemaSet(ids=(("7", schema_of("long")),))
    of = ValueDecoder(decoding(schemas), kernel=kernel)
    frame = b"\0\0\0\0\7"
    values = [frame + b"\2", None, frame, b"x", frame + b"\2\0", frame + b"\4"]
    bad = [
        UndecodableRow(2, Bad.SHORT, 5, "7"),
        UndecodableRow(3, Bad.NO_FRAME, 0),
        UndecodableRow(4, Bad.LEFT_OVER, 6, "7"),
    ]

    found, ended = decode(of, values), decode(of, values, stop_at_first=True)

    assert (found.array.to_pylist(), found.undecodable) == ([1, None, None, None, None, 2], bad)
    assert (ended.array.to_pylist(), ended.undecodable) == ([1, None], bad[:1])
    assert decode(of, values[3:], stop_at_first=True).undecodable == [UndecodableRow(0, Bad.NO_FRAME, 0)]
    assert decode(of, values[:2], stop_at_first=True).array.to_pylist() == [1, None]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_batch_may_have_nothing_but_undecodable_values(kernel: str) -> None:
    of = ValueDecoder(decoding(schema_of(ORDER)), kernel=kernel)
    found = decode(of, [b"\2"] * 5000)
    assert found.array.null_count == 5000
    assert [one.row for one in found.undecodable] == list(range(5000))
    assert {(one.bad, one.position) for one in found.undecodable} == {(Bad.SHORT, 1)}


def test_parts_and_wider_types_of_binary_are_decoded_alike() -> None:
    values = [None if k % 5 == 2 else encode_long(k) for k in range(100)]
    of = ValueDecoder(decoding(schema_of("long")))
    numbers = [None if k % 5 == 2 else k for k in range(100)]
    for type_ in (pa.binary(), pa.large_binary()):
        column = pa.array(values, type_)
        for start, length in ((0, 100), (3, 50), (9, 8), (50, 0)):
            assert of.decode(column.slice(start, length)).array.to_pylist() == numbers[start : start + length]


def test_every_reason_has_a_sentence_of_its_own() -> None:
    sentences = [sentence(one) for one in Bad]
    assert len({*sentences}) == len(Bad)
    assert all(one[0].islower() and not one.endswith(".") for one in sentences)


# Schemas of any kind, and bytes of any kind


def random_schemas(seed: int) -> tuple[Schema, list[bytes]]:
    random = Random(seed)
    part = AvroParts(random).record(3)
    return schema_of(part.schema), [part.draw().data for _ in range(4)]


def test_both_kernels_give_the_same_of_any_schema_and_bytes() -> None:
    bad = 0
    for seed in range(150):
        schema, whole = random_schemas(seed)
        random = Random(seed)
        try:
            decoders = [ValueDecoder(decoding(schema), kernel=kernel) for kernel in KERNELS]
        except OptionError:  # a reader's type that no column can have
            continue
        values = [*whole, None, *(damaged(random, random.choice(whole)) for _ in range(12))]
        found, expected = (decode(one, values) for one in decoders)
        assert found.undecodable == expected.undecodable
        assert found.array.is_valid().equals(expected.array.is_valid())
        assert all(row.position >= 0 for row in found.undecodable)
        bad += len(found.undecodable)
    assert bad > 300


# Memory


def test_arrays_keep_what_they_hold_while_others_are_decoded() -> None:
    of = ValueDecoder(decoding(schema_of(ORDER)), kernel="native")
    random = Random(8)
    batches = [[written(ORDER, an_order(random, k)) for k in range(50)] for _ in range(6)]
    arrays = [decode(of, batch).array for batch in batches]
    rows = [one.to_pylist() for one in arrays]

    for batch in batches:
        decode(of, batch)

    assert [one.to_pylist() for one in arrays] == rows
    fresh = [decode(ValueDecoder(decoding(schema_of(ORDER)), kernel="reference"), one) for one in batches]
    assert rows == [one.array.to_pylist() for one in fresh]


def test_buffers_are_used_again_once_arrays_are_dropped() -> None:
    pool = BufferPool()
    of = ValueDecoder(decoding(schema_of(ORDER)), kernel="native", pool=pool)
    values = [written(ORDER, an_order(Random(9), k)) for k in range(500)]
    for _ in range(3):
        decode(of, values)
    held = pool.held_bytes
    for _ in range(20):
        decode(of, values)
    assert pool.held_bytes == held


def test_columns_grow_for_what_no_batch_had_before() -> None:
    of = ValueDecoder(decoding(schema_of({"type": "array", "items": ["null", "string"]})), kernel="native")
    for count, size in ((0, 0), (3, 2), (100_000, 1), (2, 5_000_000), (1, 1)):
        value = encode_long(count) + (b"\2" + encode_long(size) + b"x" * size) * count + b"\0" if count else b"\0"
        found = decode(of, [b"\2\0\0", value, None, value, b"\2\2"])
        assert [None if one is None else len(one) for one in found.array.to_pylist()] == [1, count, None, count, None]
        assert found.array[3].as_py() == ["x" * size] * count
        assert [one.row for one in found.undecodable] == [4]


def test_arrays_end_where_nulls_of_a_wide_column_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_FULL", 20 << 20)
    document = ["null", {"type": "fixed", "name": "F", "size": 65536}]
    of = ValueDecoder(decoding(schema_of(document)), kernel="native")
    values = pa.array([b"\2" + bytes(65536), *[b"\0"] * 600], pa.binary())
    rows = 0
    while rows < len(values):
        found = of.decode(values.slice(rows))
        assert found.array.nbytes < 24 << 20
        assert found.array.null_count == len(found.array) - (rows == 0)
        rows += len(found.array)


@pytest.mark.parametrize("kernel", KERNELS)
def test_fixed_values_of_no_bytes_are_values(kernel: str) -> None:
    document = {"type": "array", "items": ["null", {"type": "fixed", "name": "F", "size": 0}]}
    found = decode(ValueDecoder(decoding(schema_of(document)), kernel=kernel), [b"\6\2\0\2\0", b"\0"])
    found.array.validate(full=True)
    assert found.array.to_pylist() == [[b"", None, b""], []]


def test_an_array_ends_where_a_column_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_FULL", 4096)
    of = ValueDecoder(decoding(schema_of("string")), kernel="native")
    monkeypatch.setattr(of._executor, "_pool", BufferPool(0))
    texts = [chr(97 + k) * (2_000_000 if k % 2 else 10) for k in range(8)]
    values = pa.array([encode_long(len(one)) + one.encode() for one in texts], pa.binary())

    found: list[str] = []
    calls = 0
    while len(found) < len(texts):
        part = of.decode(values.slice(len(found)))
        assert len(part.array) > 0
        assert part.undecodable == []
        found += part.array.to_pylist()
        calls += 1

    assert found == texts
    assert calls > 1


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check_bomb(of: ValueDecoder, value: bytes, bad: Bad | None, *, most: int = 64 << 20) -> None:
    before, started = peak(), time.process_time()
    found = decode(of, [value, b""])
    assert [one.bad for one in found.undecodable if one.row == 0] == ([] if bad is None else [bad])
    assert time.process_time() - started < 5
    assert peak() - before < most


def test_avro_bombs_are_bounded() -> None:
    numbers = ValueDecoder(decoding(schema_of({"type": "array", "items": "long"})), kernel="native")
    nulls = ValueDecoder(decoding(schema_of({"type": "array", "items": "null"})), kernel="native")
    empty = {"type": "record", "name": "E", "fields": []}
    records = ValueDecoder(decoding(schema_of({"type": "array", "items": empty})), kernel="native")
    text = ValueDecoder(decoding(schema_of("string")), kernel="native")
    for count in (2**31, 2**31 - 1, 2**62, -(2**31), -(2**63)):
        size = b"\2" if count < 0 else b""
        check_bomb(numbers, encode_long(count) + size, Bad.COUNT)
        check_bomb(nulls, encode_long(count) + size + b"\0", Bad.COUNT)
        check_bomb(records, encode_long(count) + size + b"\0", Bad.COUNT)
        check_bomb(text, encode_long(count), Bad.SHORT if count > 0 else Bad.COUNT)
    check_bomb(nulls, encode_long(1 << 16) + b"\0", None)
    check_bomb(nulls, encode_long(1 << 15) * 200 + b"\0", Bad.COUNT)


def test_a_schema_whose_defaults_multiply_is_bounded() -> None:
    small = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    large = {**small, "fields": [*small["fields"], {"name": "b", "type": "string", "default": "x" * 10_000}]}
    writer, reader = schema_of({"type": "array", "items": small}), schema_of({"type": "array", "items": large})
    of = ValueDecoder(decoding(writer, avro.type_of(reader)), kernel="native")
    count = 1_000_000

    check_bomb(of, encode_long(count) + b"\2" * count + b"\0", Bad.LIMIT, most=400 << 20)
    assert decode(of, [encode_long(2) + b"\2\2\0"]).array.to_pylist() == [[{"a": 1, "b": "x" * 10_000}] * 2]


def test_many_columns_of_defaults_are_bounded_together() -> None:
    small = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    more = [{"name": f"b{k}", "type": "string", "default": "x" * 60} for k in range(200)]
    reader = schema_of({"type": "array", "items": {**small, "fields": [*small["fields"], *more]}})
    writer = schema_of({"type": "array", "items": small})
    of = ValueDecoder(decoding(writer, avro.type_of(reader)), kernel="native")
    count = 1_000_000

    check_bomb(of, encode_long(count) + b"\2" * count + b"\0", Bad.LIMIT, most=700 << 20)


def test_recursion_is_bounded_where_it_is_dropped() -> None:
    node = {
        "type": "record",
        "name": "N",
        "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "N"]}],
    }
    of = ValueDecoder(decoding(schema_of(node), None, "id"), kernel="native")
    check_bomb(of, b"\2\2" * 10_000 + b"\2\0", Bad.DEPTH)
    check_bomb(of, b"\2\2" * 99 + b"\2\0", None)
    with pytest.raises(OptionError, match="contains its own type"):
        ValueDecoder(decoding(schema_of(node)))


def test_rows_are_decoded_while_other_threads_run() -> None:
    of = ValueDecoder(decoding(schema_of({"type": "array", "items": "long"})), kernel="native")
    count = 20_000_000
    values = pa.array([encode_long(count) + b"\2" * count + b"\0"], pa.binary())

    def turns_beside() -> int:
        begun, ended = threading.Event(), threading.Event()

        def decode_all() -> None:
            begun.set()
            of.decode(values)
            ended.set()

        thread = threading.Thread(target=decode_all)
        thread.start()
        begun.wait()
        turns = 0
        while not ended.is_set():
            time.sleep(0.0001)
            turns += 1
        thread.join()
        return turns

    assert any(turns_beside() > 20 for _ in range(5))  # of a busy machine this thread may have little for once
