from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import numpy
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_programs import (
    AvroParts,
    JsonParts,
    comparable,
    damaged,
    encode_long,
    encode_varint,
    json_enum,
    json_field,
    json_object,
)
from random_protobuf import BROKEN, UNLIKE, ProtobufParts
from twins import assert_twins_agree, rows_of, run_reference

from segreader.typed.arrow import array_of_values, arrow_type
from segreader.typed.ops import (
    DROPPED,
    FREE_ITEMS,
    JSON_BASE64,
    PROTO_GROUP,
    PROTO_PACKABLE,
    PROTO_REPEATED,
    Bad,
    ColumnLayout,
    Op,
    OpCode,
    Program,
)
from segreader.typed.reference import Executed, execute
from segreader.typed.reference.json_text import check_document, parse_date, parse_instant, parse_time
from segreader.typed.reference.reader import BadValueError
from segreader.typed.types import Type, TypeField, ValueKind

INT = Type(kind=ValueKind.INT32)
LONG = Type(kind=ValueKind.INT64)
TEXT = Type(kind=ValueKind.STRING)
JSON_TEXT = Type(kind=ValueKind.STRING, unit="json", is_nullable=True)
MANY = 300
"""Random programs for each seed of a loop; ``make test-rest`` and Hypothesis try others."""


def struct(**fields: Type) -> Type:
    return Type(kind=ValueKind.STRUCT, fields=tuple(TypeField(name, one) for name, one in fields.items()))


def nullable(type_: Type) -> Type:
    return replace(type_, is_nullable=True)


def listed(item: Type) -> Type:
    return Type(kind=ValueKind.LIST, fields=(TypeField("item", item),))


def mapped(key: Type, value: Type) -> Type:
    return Type(kind=ValueKind.MAP, fields=(TypeField("key", key), TypeField("value", value)))


def run(type_: Type, op: Op, *payloads: bytes) -> Executed:
    """What the reference gives; the native executor must give the same where it was built."""
    program, rows = Program(ColumnLayout.of(type_), [op]), rows_of(payloads)
    executed = run_reference(program, rows)
    assert_twins_agree(program, rows, executed)
    return executed


def read_all(type_: Type, op: Op, *payloads: bytes) -> list[Any]:
    """The values; in place of one that there is not why, and where."""
    executed = run(type_, op, *payloads)
    found = executed.values
    for row, bad, position in executed.bad:
        found[row] = (bad, position)
    return found


def read(type_: Type, op: Op, payload: bytes) -> Any:
    """The value, or why and where there is none."""
    return read_all(type_, op, payload)[0]


def step(code: OpCode, column: int = 0, *children: Op, **given: Any) -> Op:
    return Op(code=code, column=column, children=children, **given)


# Rows ---------------------------------------------------------------------------------------------------------------


def test_rows_are_null_undecodable_or_read_by_the_tree_of_their_root() -> None:
    program = Program(ColumnLayout.of(LONG), [step(OpCode.AVRO_LONG), step(OpCode.AVRO_INT)])
    data = b"\x02\x80\x80\x80\x80\x80\x01"
    starts, stops, roots = [0, 1, 0, 0, 1], [1, 7, 0, 1, 7], [1, 0, -1, -2 - Bad.NO_FRAME, 1]

    found = execute(program, memoryview(data), starts, stops, roots)
    ended = execute(program, data, starts, stops, roots, stop_at_first=True)

    assert found.values == [1, 2**34, None, None, None]
    assert found.bad == [(3, Bad.NO_FRAME, 0), (4, Bad.VARINT, 0)]
    assert (ended.values, ended.bad) == ([1, 2**34, None], [(3, Bad.NO_FRAME, 0)])


def test_values_make_arrow_arrays_of_their_types() -> None:
    for seed in range(MANY):
        random = Random(seed)
        part = AvroParts(random).record() if seed % 2 else JsonParts(random).document()
        samples = [part.draw() for _ in range(3)]

        values = run(part.type, part.program().roots[0], *(one.data for one in samples)).values

        array = array_of_values(part.type, values)
        array.validate(full=True)
        assert len(array) == 3
        assert array.null_count == values.count(None), seed


# Avro ---------------------------------------------------------------------------------------------------------------


def check_avro(random: Random, depth: int) -> None:
    part = AvroParts(random).record(depth)
    schema = fastavro.parse_schema(part.schema)
    samples = [part.draw() for _ in range(3)]

    executed = run(part.type, part.program().roots[0], *(one.data for one in samples))

    assert executed.bad == []
    for sample, value in zip(samples, executed.values, strict=True):
        by_fastavro = fastavro.schemaless_reader(io.BytesIO(sample.data), schema, None)
        assert repr(by_fastavro) == repr(sample.plain)
        assert comparable(value, part.type) == comparable(sample.expected, part.type)


def test_avro_values_are_those_that_fastavro_reads() -> None:
    for seed in range(MANY):
        check_avro(Random(seed), 4)


@settings(max_examples=tries(100))
@given(random=st.randoms(use_true_random=False))
def test_small_avro_values_are_those_that_fastavro_reads(random: Random) -> None:
    check_avro(random, 2)


def test_what_fastavro_writes_is_read() -> None:
    fields = {"id": "long", "name": "string", "tags": {"type": "array", "items": "string"}, "note": ["null", "bytes"]}
    schema = fastavro.parse_schema(
        {"type": "record", "name": "Order", "fields": [{"name": name, "type": one} for name, one in fields.items()]}
    )
    note = Type(kind=ValueKind.BINARY, is_nullable=True)
    op = step(
        OpCode.AVRO_RECORD,
        0,
        step(OpCode.AVRO_LONG, 1),
        step(OpCode.AVRO_STRING, 2),
        step(OpCode.AVRO_ARRAY, 3, step(OpCode.AVRO_STRING, 4)),
        step(OpCode.AVRO_UNION, 5, step(OpCode.SET_NULL, 5), step(OpCode.AVRO_BYTES, 5)),
    )
    for seed in range(MANY):
        random = Random(seed)
        value = {
            "id": random.randrange(-(2**63), 2**63),
            "name": random.choice(("", "naïve", "x" * 200)),
            "tags": random.choices(("a", "", "\U0001d542"), k=random.randrange(4)),
            "note": random.choice((None, b"", b"\xff\0")),
        }
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, value)

        assert read(struct(id=LONG, name=TEXT, tags=listed(TEXT), note=note), op, written.getvalue()) == value


def test_integers_are_rounded_once_into_floats() -> None:
    op, type_ = step(OpCode.AVRO_LONG), Type(kind=ValueKind.FLOAT)
    random = Random(7)
    edges = [
        s * (2**k + a * 2 ** max(k - 24, 0) + b) for s in (1, -1) for k in range(63) for a in (0, 1) for b in (0, 1)
    ]
    for value in (*edges, *(random.randrange(-(2**63), 2**63) for _ in range(3000))):
        assert read(type_, op, encode_long(value)) == float(numpy.int64(value).astype(numpy.float32)), value


def test_avro_errors_say_what_is_wrong_and_where() -> None:
    enum = Type(kind=ValueKind.ENUM, symbols=("A", "B"))
    one_digit = Type(kind=ValueKind.DECIMAL, precision=1)
    union = step(OpCode.AVRO_UNION, 0, step(OpCode.AVRO_INT), step(OpCode.AVRO_INT))
    lossy = step(OpCode.AVRO_UNION, 0, step(OpCode.AVRO_INT), table=(-1, 0))
    array = step(OpCode.AVRO_ARRAY, 0, step(OpCode.AVRO_INT, 1))
    map_ = step(OpCode.AVRO_MAP, 0, step(OpCode.AVRO_STRING, 1), step(OpCode.AVRO_INT, 2))
    pair = step(OpCode.AVRO_RECORD, 0, step(OpCode.AVRO_INT, 1), step(OpCode.AVRO_STRING, 2))
    times_1000 = step(OpCode.AVRO_LONG, a=1000)
    cases: list[tuple[Type, Op, bytes, Bad, int]] = [
        (Type(kind=ValueKind.BOOL), step(OpCode.AVRO_BOOL), b"\x02", Bad.BOOL, 0),
        (Type(kind=ValueKind.BOOL), step(OpCode.AVRO_BOOL), b"", Bad.SHORT, 0),
        (INT, step(OpCode.AVRO_INT), b"\x80\x80\x80\x80\x10", Bad.VARINT, 0),
        (INT, step(OpCode.AVRO_INT), b"\x80\x80\x80\x80\x80\x00", Bad.VARINT, 0),
        (INT, step(OpCode.AVRO_INT), b"\x80\x80", Bad.SHORT, 0),
        (INT, step(OpCode.AVRO_INT), b"\x02\x02", Bad.LEFT_OVER, 1),
        (LONG, step(OpCode.AVRO_LONG), b"\x80" * 9 + b"\x02", Bad.VARINT, 0),
        (LONG, step(OpCode.AVRO_LONG), b"\x80" * 10 + b"\x00", Bad.VARINT, 0),
        (Type(kind=ValueKind.TIME_MS), step(OpCode.AVRO_INT), encode_long(86_400_000), Bad.RANGE, 0),
        (Type(kind=ValueKind.TIME_US), step(OpCode.AVRO_LONG), encode_long(-1), Bad.RANGE, 0),
        (Type(kind=ValueKind.TIMESTAMP, unit="us"), times_1000, encode_long(2**60), Bad.RANGE, 0),
        (TEXT, step(OpCode.AVRO_STRING), b"\x01a", Bad.COUNT, 0),
        (TEXT, step(OpCode.AVRO_STRING), b"\x06ab", Bad.SHORT, 0),
        (TEXT, step(OpCode.AVRO_BYTES), b"\x04\xc3(", Bad.UTF8, 0),
        (TEXT, step(OpCode.AVRO_STRING), b"\x06\xed\xa0\x80", Bad.UTF8, 0),
        (one_digit, step(OpCode.AVRO_BYTES), b"\x02\x0a", Bad.RANGE, 0),
        (one_digit, step(OpCode.AVRO_FIXED, a=2), b"\xff\xf6", Bad.RANGE, 0),
        (Type(kind=ValueKind.INTERVAL), step(OpCode.AVRO_FIXED, a=12), bytes(7) + b"\x80" + bytes(4), Bad.RANGE, 0),
        (enum, step(OpCode.AVRO_ENUM, table=(1, -1)), b"\x02", Bad.SYMBOL, 0),
        (enum, step(OpCode.AVRO_ENUM, table=(1, -1)), b"\x04", Bad.SYMBOL, 0),
        (enum, step(OpCode.AVRO_ENUM, table=(1, -1)), b"\x01", Bad.SYMBOL, 0),
        (INT, union, b"\x04\x02", Bad.BRANCH, 0),
        (INT, union, b"\x01\x02", Bad.BRANCH, 0),
        (INT, lossy, b"\x00\x02", Bad.BRANCH, 0),
        (listed(INT), array, b"\x06\x02\x02", Bad.COUNT, 0),
        (listed(INT), array, encode_long(2**31), Bad.COUNT, 0),
        (listed(INT), array, encode_long(-(2**63)) + b"\x00", Bad.COUNT, 0),
        (listed(INT), array, b"\x02\x02", Bad.SHORT, 2),
        (listed(INT), array, b"\x04\x02\x80", Bad.SHORT, 2),
        (mapped(TEXT, INT), map_, b"\x02\x02a\x80", Bad.SHORT, 3),
        (struct(a=INT, b=TEXT), pair, b"\x02\x04a", Bad.SHORT, 1),
    ]
    for type_, op, payload, bad, position in cases:
        assert read(type_, op, payload) == (bad, position), (type_.to_json(), payload)


def test_avro_logical_types_fill_their_columns() -> None:
    money = Type(kind=ValueKind.DECIMAL, precision=5, scale=2)
    cases: list[tuple[Type, Op, bytes, Any]] = [
        (money, step(OpCode.AVRO_BYTES), b"\x04\xff\x38", Decimal("-2.00")),
        (money, step(OpCode.AVRO_BYTES), b"\x00", Decimal("0.00")),
        (money, step(OpCode.AVRO_FIXED, a=9), bytes(7) + b"\x30\x39", Decimal("123.45")),
        (Type(kind=ValueKind.DATE), step(OpCode.AVRO_INT), b"\x01", -1),
        (Type(kind=ValueKind.TIME_US), step(OpCode.AVRO_INT, a=1000), b"\x02", 1000),
        (Type(kind=ValueKind.TIMESTAMP, unit="ms"), step(OpCode.AVRO_LONG), b"\x01", -1),
        (
            Type(kind=ValueKind.INTERVAL),
            step(OpCode.AVRO_FIXED, a=12),
            b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
            (1, 2, 4294967295000000),
        ),
        (TEXT, step(OpCode.AVRO_FIXED, a=16), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ]
    for type_, op, payload, value in cases:
        assert read(type_, op, payload) == value
        pa.array([value], arrow_type(type_)).validate(full=True)


def test_dropped_avro_is_read_only_to_its_end() -> None:
    record = step(
        OpCode.AVRO_RECORD,
        0,
        step(OpCode.AVRO_STRING, DROPPED),
        step(OpCode.AVRO_BOOL, DROPPED),
        step(OpCode.AVRO_ENUM, DROPPED, table=(-1,)),
        step(OpCode.AVRO_INT, DROPPED),
        step(OpCode.AVRO_ARRAY, DROPPED, step(OpCode.AVRO_STRING, DROPPED)),
        step(OpCode.AVRO_UNION, DROPPED, step(OpCode.SET_NULL, DROPPED), step(OpCode.AVRO_DOUBLE, DROPPED)),
        step(OpCode.AVRO_INT, 1),
    )
    before = b"\x02\xff" + b"\x07" + encode_long(9) + encode_long(2**62)
    sized_block = encode_long(-7) + b"\x04\xff\xff" + b"\x00"

    assert read(struct(a=INT), record, before + sized_block + b"\x00" + b"\x54") == {"a": 42}
    assert read(struct(a=INT), record, before + encode_long(-7) + b"\x01" + b"\x00\x00\x54") == (Bad.COUNT, len(before))
    assert read(struct(a=INT), record, before + encode_long(-7) + b"\x54" + b"\x00\x00\x54") == (Bad.SHORT, len(before))
    assert read(struct(a=INT), record, before + b"\x00\x04\x54") == (Bad.BRANCH, len(before) + 1)


def test_items_without_bytes_are_bounded_in_one_value() -> None:
    nothing = Type(kind=ValueKind.NULL, is_nullable=True)
    array = step(OpCode.AVRO_ARRAY, 1, step(OpCode.SET_NULL, 2))
    twice = step(OpCode.AVRO_RECORD, 0, array, step(OpCode.AVRO_ARRAY, 3, step(OpCode.SET_NULL, 4)))
    type_ = struct(a=listed(nothing), b=listed(nothing))
    most, one = encode_long(FREE_ITEMS) + b"\0", encode_long(1) + b"\0"

    assert read(type_, twice, most + b"\0") == {"a": [None] * FREE_ITEMS, "b": []}
    assert read(type_, twice, most + one) == (Bad.COUNT, len(most))
    assert read(type_, twice, encode_long(2**62) + b"\0\0") == (Bad.COUNT, 0)
    assert [len(one["a"]) for one in run(type_, twice, most + b"\0", most + b"\0").values] == [FREE_ITEMS] * 2


def linked_list() -> Op:
    """A record with a dropped field that has the same record in it."""
    node = Op(code=OpCode.AVRO_RECORD)
    next_ = Op(code=OpCode.AVRO_UNION, children=(Op(code=OpCode.SET_NULL), node))
    node.close_cycle((Op(code=OpCode.AVRO_INT), next_))
    return step(OpCode.AVRO_RECORD, 0, node, step(OpCode.AVRO_INT, 1))


def test_dropped_recursion_is_read_as_deep_as_the_limit() -> None:
    def payload(nodes: int) -> bytes:
        return b"\x02\x02" * (nodes - 1) + b"\x02\x00" + b"\x54"

    assert read(struct(a=INT), linked_list(), payload(99)) == {"a": 42}
    assert read(struct(a=INT), linked_list(), payload(100)) == (Bad.DEPTH, 198)
    assert read(struct(a=INT), linked_list(), payload(100_000)) == (Bad.DEPTH, 198)


def test_a_record_in_itself_without_bytes_has_no_end_and_is_refused() -> None:
    endless = Op(code=OpCode.AVRO_RECORD)
    endless.close_cycle((endless,))
    union = Op(code=OpCode.AVRO_UNION)
    union.close_cycle((union,))
    array = Op(code=OpCode.AVRO_ARRAY, children=(endless,))

    assert read(struct(), step(OpCode.AVRO_RECORD, 0, endless), b"") == (Bad.DEPTH, 0)
    assert read(struct(), step(OpCode.AVRO_RECORD, 0, array), b"\x02\x02\x02")[0] is Bad.DEPTH
    program = Program(ColumnLayout.of(struct()), [step(OpCode.AVRO_RECORD, 0, union)])  # none that can be packed
    assert run_reference(program, rows_of([bytes(100_000)])).bad[0][1] is Bad.DEPTH


def test_records_of_records_without_bytes_are_dropped_at_once() -> None:
    nothing = Op(code=OpCode.AVRO_RECORD)
    for _ in range(60):
        nothing = Op(code=OpCode.AVRO_RECORD, children=(nothing, nothing))
    array = Op(code=OpCode.AVRO_ARRAY, children=(nothing,))
    record = step(OpCode.AVRO_RECORD, 0, nothing, array, step(OpCode.AVRO_INT, 1))

    assert read(struct(a=INT), record, encode_long(FREE_ITEMS) + b"\0\x54") == {"a": 42}
    assert read(struct(a=INT), record, encode_long(FREE_ITEMS + 1) + b"\0\x54") == (Bad.COUNT, 0)


def test_a_constant_that_cannot_be_read_is_an_error_where_the_value_is() -> None:
    constant = step(OpCode.CONSTANT, 2, step(OpCode.AVRO_INT, 2), text=b"\x80")
    record = step(OpCode.AVRO_RECORD, 0, step(OpCode.AVRO_INT, 1), constant)

    assert read(struct(a=INT, b=INT), record, b"\x02") == (Bad.SHORT, 1)


# Protobuf -----------------------------------------------------------------------------------------------------------


def is_field_zero(payload: bytes, at: int) -> bool:
    """upb skips a field 0 in messages that have no fields, and nowhere else."""
    value = shift = 0
    while payload[at] & 0x80:
        value |= (payload[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | payload[at] << shift < 8


def check_protobuf(random: Random, depth: int) -> Iterator[object]:
    case = ProtobufParts(random, drops=False).case(depth)
    type_ = case.program.layout.columns[0].type
    payloads = [case.draw() if k < 3 else damaged(random, case.draw()) for k in range(8)]

    for payload, found in zip(payloads, read_all(type_, case.program.roots[0], *payloads), strict=True):
        judged = case.judge(payload)

        if judged is BROKEN:
            assert isinstance(found, tuple), payload
        elif isinstance(found, tuple):
            is_ours = found[0] in (Bad.RANGE, Bad.PARTS)
            assert is_ours or (found[0] is Bad.TAG and is_field_zero(payload, found[1])), payload
        elif judged is not UNLIKE:
            assert comparable(found, type_) == comparable(judged, type_), payload
        yield judged


def test_protobuf_values_and_errors_are_those_of_upb() -> None:
    seen = [one for seed in range(MANY) for one in check_protobuf(Random(seed), 3)]

    assert 0.2 < seen.count(BROKEN) / len(seen) < 0.8
    assert seen.count(UNLIKE) < 20


@settings(max_examples=tries(100))
@given(seed=st.integers(0, 2**64))
def test_other_protobuf_values_and_errors_are_those_of_upb(seed: int) -> None:
    for _ in check_protobuf(Random(seed), 2):
        pass


def field(number: int, *steps: Op, column: int | None = None, flags: int = 0, oneof: int = -1) -> Op:
    column = steps[0].column if column is None else column
    return Op(code=OpCode.PROTO_FIELD, column=column, a=number, b=oneof, flags=flags, children=steps)


def tagged(number: int, wire_type: int, payload: bytes = b"") -> bytes:
    size = encode_varint(len(payload)) if wire_type == 2 else b""
    return encode_varint(number << 3 | wire_type) + size + payload


def plain(number: int, code: OpCode, column: int, zero: bytes = b"\0", **given: Any) -> Op:
    own = step(code, column)
    return field(number, own, step(OpCode.CONSTANT, column, own, text=zero), **given)


def test_what_a_later_member_or_entry_replaces_has_to_be_sound() -> None:
    value = Op(code=OpCode.PROTO_JSON, column=1, a=1)
    message = step(OpCode.PROTO_MESSAGE, 0, field(1, value, step(OpCode.SET_NULL, 1)))
    broken, one = tagged(6, 2, b"\x0a\x05"), tagged(2, 1, b"\0\0\0\0\0\0\xf0\x3f")

    def entry(content: bytes) -> bytes:
        return tagged(1, 2, tagged(1, 2, b"k") + tagged(2, 2, content))

    sound = tagged(1, 2, tagged(6, 2) + one)
    assert read(struct(a=JSON_TEXT), message, sound) == {"a": "1"}
    for content in (broken + one, tagged(5, 2, entry(broken) + entry(one)), tagged(5, 2, entry(broken)) + one):
        found = read(struct(a=JSON_TEXT), message, tagged(1, 2, content))
        assert isinstance(found, tuple)
        assert found[0] is Bad.SHORT
    assert read(struct(a=JSON_TEXT), message, tagged(1, 2, tagged(5, 2, entry(broken[:0]) + entry(one)))) == {
        "a": '{"k":1}'
    }


def test_protobuf_errors_say_what_is_wrong_and_where() -> None:
    text = plain(1, OpCode.PROTO_STRING, 1, b"")
    numbers = field(2, step(OpCode.PROTO_SINT32, 3), column=2, flags=PROTO_REPEATED | PROTO_PACKABLE)
    time_ = field(3, step(OpCode.PROTO_TIMESTAMP, 4), step(OpCode.SET_NULL, 4))
    message = step(OpCode.PROTO_MESSAGE, 0, text, numbers, time_)
    when = Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True, is_nullable=True)
    type_ = struct(a=TEXT, b=listed(INT), c=when)
    cases = [
        (b"\x80", Bad.SHORT, 0),
        (b"\x80\x80\x80\x80\x10", Bad.VARINT, 0),
        (b"\x80\x80\x80\x80\x80\x00", Bad.VARINT, 0),
        (b"\x00\x01", Bad.TAG, 0),
        (tagged(9, 6), Bad.TAG, 0),
        (tagged(9, 0, b"\1") + tagged(9, 4), Bad.TAG, 2),
        (tagged(9, 3) + tagged(8, 4), Bad.TAG, 1),
        (tagged(9, 3) + tagged(9, 3) + tagged(9, 4), Bad.SHORT, 3),
        (tagged(9, 0) + b"\x80" * 10 + b"\0", Bad.VARINT, 1),
        (tagged(9, 1) + bytes(7), Bad.SHORT, 1),
        (tagged(9, 5) + bytes(3), Bad.SHORT, 1),
        (b"\x4a\x03ab", Bad.SHORT, 1),
        (b"\x0a\x03ab", Bad.SHORT, 1),
        (b"\x0a\x83\x80\x80\x80\x80\x00abc", Bad.VARINT, 1),
        (tagged(1, 2, b"\xff") + tagged(1, 2, b"a"), Bad.UTF8, 2),
        (tagged(2, 2, b"\x02\x80"), Bad.SHORT, 3),
        (tagged(2, 0), Bad.SHORT, 1),
        (tagged(3, 2, tagged(1, 0, encode_varint(2**62))), Bad.RANGE, 2),
        (tagged(3, 2, tagged(1, 0, b"\x80")), Bad.SHORT, 3),
    ]
    for payload, bad, position in cases:
        assert read(type_, message, payload) == (bad, position), payload


def test_protobuf_fields_merge_and_the_last_of_a_oneof_counts() -> None:
    number = Type(kind=ValueKind.INT32, is_nullable=True)
    inner_type = nullable(struct(x=INT, y=INT))
    inner = step(OpCode.PROTO_MESSAGE, 2, plain(1, OpCode.PROTO_INT32, 3), plain(2, OpCode.PROTO_INT32, 4))
    message = step(
        OpCode.PROTO_MESSAGE,
        0,
        field(1, step(OpCode.PROTO_INT32, 1), step(OpCode.SET_NULL, 1), oneof=0),
        field(2, inner, step(OpCode.SET_NULL, 2), oneof=0),
        field(3, step(OpCode.PROTO_BYTES, DROPPED), oneof=0),
        field(4, step(OpCode.PROTO_ENUM, DROPPED, table=(0, 0), a=1), oneof=0),
    )
    type_ = struct(a=number, m=inner_type)
    x, y, a = tagged(2, 2, tagged(1, 0, b"\x05")), tagged(2, 2, tagged(2, 0, b"\x06")), tagged(1, 0, b"\x07")

    assert read(type_, message, x + y) == {"a": None, "m": {"x": 5, "y": 6}}
    assert read(type_, message, x + a + y) == {"a": None, "m": {"x": 0, "y": 6}}
    assert read(type_, message, x + a) == {"a": 7, "m": None}
    assert read(type_, message, a + tagged(3, 2, b"\xff")) == {"a": None, "m": None}
    assert read(type_, message, a + tagged(3, 0, b"\0")) == {"a": 7, "m": None}
    assert read(type_, message, a + tagged(4, 0, b"\x01")) == {"a": 7, "m": None}
    assert read(type_, message, a + tagged(4, 0, b"\0")) == {"a": None, "m": None}


def test_map_entries_take_defaults_and_the_last_of_equal_keys_counts() -> None:
    enum = Type(kind=ValueKind.ENUM, symbols=("A", "B"))
    value = step(OpCode.PROTO_ENUM, 3, table=(0, 0, 5, 1), a=1)
    entry = step(
        OpCode.PROTO_MAP_ENTRY,
        1,
        plain(1, OpCode.PROTO_INT32, 2),
        field(2, value, step(OpCode.CONSTANT, 3, value, text=b"\0")),
    )
    message = step(OpCode.PROTO_MESSAGE, 0, field(8, entry, column=1, flags=PROTO_REPEATED))
    type_ = struct(m=mapped(INT, enum))

    def entries(*payloads: bytes) -> Any:
        return read(type_, message, b"".join(tagged(8, 2, one) for one in payloads))["m"]

    one, two = tagged(1, 0, b"\1"), tagged(1, 0, b"\2")
    assert entries() == []
    assert entries(b"") == [(0, "A")]
    assert entries(one + tagged(2, 0, b"\5"), two, one) == [(1, "A"), (2, "A")]
    assert entries(one + tagged(2, 0, b"\7")) == []
    assert entries(one + tagged(9, 0, b"\7")) == [(1, "A")]


def test_numbers_of_protobuf_lose_the_bits_that_upb_drops() -> None:
    cases = [
        (OpCode.PROTO_INT32, ValueKind.INT32, 2**31, -(2**31)),
        (OpCode.PROTO_INT32, ValueKind.INT32, 2**64 - 1, -1),
        (OpCode.PROTO_UINT32, ValueKind.UINT32, 2**32 + 7, 7),
        (OpCode.PROTO_SINT32, ValueKind.INT32, 2**32 + 3, -2),
        (OpCode.PROTO_UINT64, ValueKind.UINT64, 2**70 - 1, 2**64 - 1),
        (OpCode.PROTO_INT64, ValueKind.INT64, 2**64, 0),
        (OpCode.PROTO_BOOL, ValueKind.BOOL, 2**32, True),
        (OpCode.PROTO_BOOL, ValueKind.BOOL, 2**64, False),
    ]
    for code, kind, number, value in cases:
        message = step(OpCode.PROTO_MESSAGE, 0, plain(1, code, 1))
        assert read(struct(a=Type(kind=kind)), message, tagged(1, 0, encode_varint(number))) == {"a": value}


def nested_types(depth: int) -> tuple[Type, Op]:
    """Messages in messages, by field 1."""
    type_, op = struct(), step(OpCode.PROTO_MESSAGE, depth)
    for level in reversed(range(depth)):
        type_ = struct(m=nullable(type_))
        op = step(OpCode.PROTO_MESSAGE, level, field(1, op, step(OpCode.SET_NULL, level + 1)))
    return type_, op


def test_messages_and_groups_are_read_as_deep_as_upb_does() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="deep.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(name="m", number=1, type=11, label=1, type_name=".M")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    judge = message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))
    type_, op = nested_types(110)
    for depth in (99, 100, 101, 10_000):
        nested = b""
        for _ in range(depth):
            nested = tagged(1, 2, nested)
        for payload in (nested, b"\x13" * depth + b"\x14" * depth):
            if depth <= 100:
                judge.FromString(payload)
                assert isinstance(read(type_, op, payload), dict)
            else:
                with pytest.raises(DecodeError):
                    judge.FromString(payload)
                assert read(type_, op, payload)[0] is Bad.DEPTH


def test_a_group_is_a_message_only_where_the_schema_says_so() -> None:
    inner = step(OpCode.PROTO_MESSAGE, 1, plain(1, OpCode.PROTO_INT32, 2))
    type_ = struct(g=nullable(struct(x=INT)))
    group, message = tagged(7, 3) + b"\x08\x05" + tagged(7, 4), tagged(7, 2, b"\x08\x05")
    for flags, wanted, other in ((PROTO_GROUP, group, message), (0, message, group)):
        op = step(OpCode.PROTO_MESSAGE, 0, field(7, inner, step(OpCode.SET_NULL, 1), flags=flags))

        assert read(type_, op, wanted) == {"g": {"x": 5}}
        assert read(type_, op, other) == {"g": None}


# JSON ---------------------------------------------------------------------------------------------------------------


def check_json(random: Random, depth: int) -> None:
    part = JsonParts(random).document(depth)
    samples = [part.draw() for _ in range(3)]

    executed = run(part.type, part.program().roots[0], *(one.data for one in samples))

    assert executed.bad == []
    for sample, value in zip(samples, executed.values, strict=True):
        assert comparable(value, part.type) == comparable(sample.expected, part.type), sample.data


def test_json_values_are_those_that_were_written() -> None:
    for seed in range(MANY):
        check_json(Random(seed), 4)


@settings(max_examples=tries(100))
@given(random=st.randoms(use_true_random=False))
def test_small_json_values_are_those_that_were_written(random: Random) -> None:
    check_json(random, 2)


def is_json(data: bytes) -> bool:
    def refuse(_: str) -> None:
        raise ValueError

    try:
        json.loads(data.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


def test_texts_are_json_where_python_says_so() -> None:
    found = set()
    for seed in range(8 * MANY):
        random = Random(seed)
        data = damaged(random, JsonParts(random).anything(3).data)
        try:
            check_document(data)
        except BadValueError as error:
            assert not is_json(data), (data, error.bad)
            assert 0 <= error.at <= len(data)
            found.add(error.bad)
        else:
            assert is_json(data), data
    assert found == {Bad.SHORT, Bad.SYNTAX, Bad.UTF8, Bad.LEFT_OVER}


def test_json_errors_say_what_is_wrong_and_where() -> None:
    name = step(OpCode.JSON_STRING, 1)
    number = step(OpCode.JSON_INTEGER, 2)
    pair = json_object([json_field("n", 1, [name]), json_field("k", 2, [number])], 0)
    type_ = struct(n=TEXT, k=INT)
    good = b'{"n":"", "k":1, "x":'
    cases = [
        (b"", Bad.SHORT, 0),
        (b"  ", Bad.SHORT, 2),
        (b'{"n":"a', Bad.SHORT, 7),
        (b'{"n":"\xc3', Bad.SHORT, 7),
        (b'{"n":"\\u12', Bad.SHORT, 10),
        (b"{n:1}", Bad.SYNTAX, 1),
        (b'{"n":"\n"}', Bad.SYNTAX, 6),
        (b'{"n":"\\x"}', Bad.SYNTAX, 7),
        (b'{"n":"","k":01}', Bad.SYNTAX, 13),
        (b'{"n":"","k":1,}', Bad.SYNTAX, 14),
        (b'{"n":"","k":+1}', Bad.SYNTAX, 12),
        (good + b"NaN}", Bad.SYNTAX, 20),
        (good + b"nul}", Bad.SYNTAX, 23),
        (good + b"\xef\xbb\xbf1}", Bad.SYNTAX, 20),
        (b"\xef\xbb\xbf{}", Bad.SYNTAX, 0),
        (b'{"n":"a\xff"}', Bad.UTF8, 7),
        (good + b'"\xed\xa0\x80"}', Bad.UTF8, 21),
        (b'{"n":"\\ud800","k":1}', Bad.UTF8, 5),
        (good + b"1} x", Bad.LEFT_OVER, 23),
        (good + b"[" * 100, Bad.DEPTH, 20 + 99),
        (good + b"[" * 10_000, Bad.DEPTH, 20 + 99),
        (b'{"n":1,"k":1}', Bad.TYPE, 5),
        (b'{"n":null,"k":1}', Bad.TYPE, 5),
        (b'{"n":"","k":1.5}', Bad.TYPE, 12),
        (b'{"n":"","k":1e99}', Bad.RANGE, 12),
        (b'{"n":"","k":1e999999999999999999999}', Bad.RANGE, 12),
        (b'{"n":"","k":1e-99999999999999999999}', Bad.TYPE, 12),
        (b'{"n":"","k":' + b"1" * 5000 + b"}", Bad.RANGE, 12),
        (b' {"n":""}', Bad.MISSING, 1),
        (b"[]", Bad.TYPE, 0),
    ]
    for payload, bad, position in cases:
        assert read(type_, pair, payload) == (bad, position), payload
    assert read(type_, pair, good + b'"\\ud800"}') == {"n": "", "k": 1}
    assert read(type_, pair, b'{"k":"x","n":"a","k":10e-1,"k":0.0e77}') == {"n": "a", "k": 0}
    assert read(type_, pair, good + b"[" * 99 + b"]" * 99 + b"}") == {"n": "", "k": 1}


def test_json_strings_fill_their_columns_or_are_refused() -> None:
    money = Type(kind=ValueKind.DECIMAL, precision=5, scale=2)
    text = step(OpCode.JSON_STRING, a=2)
    of_bytes = step(OpCode.JSON_STRING, a=2, flags=JSON_BASE64)
    enum = Type(kind=ValueKind.ENUM, symbols=("A", "B"))
    binary = Type(kind=ValueKind.BINARY)
    cases: list[tuple[Type, Op, str, Any]] = [
        (money, text, "-12.5", Decimal("-12.50")),
        (money, text, "1e2", Decimal("100.00")),
        (money, text, "12.345", Bad.RANGE),
        (money, text, "1000", Bad.RANGE),
        (money, text, "+1", Bad.TYPE),
        (money, text, " 1", Bad.TYPE),
        (money, text, "\u0661", Bad.TYPE),
        (money, text, "", Bad.TYPE),
        (money, of_bytes, "/w==", Decimal("-0.01")),
        (money, of_bytes, "", Bad.TYPE),
        (enum, json_enum(("A", "B"))(ColumnLayout.of(enum), 0), "B", "B"),
        (enum, json_enum(("A", "B"))(ColumnLayout.of(enum), 0), "C", Bad.SYMBOL),
        (binary, text, "-_8", b"\xfb\xff"),
        (binary, text, "+/8=", b"\xfb\xff"),
        (binary, text, "", b""),
        (binary, text, "A", Bad.TYPE),
        (binary, text, "AB", Bad.TYPE),
        (binary, text, "AA=", Bad.TYPE),
        (binary, text, "AAAA=", Bad.TYPE),
        (binary, text, "AA A", Bad.TYPE),
    ]
    for type_, op, value, expected in cases:
        found = read(type_, op, json.dumps(value).encode())
        assert found == ((expected, 0) if isinstance(expected, Bad) else expected), value


def test_json_numbers_fill_their_columns_or_are_refused() -> None:
    money = Type(kind=ValueKind.DECIMAL, precision=5, scale=2)
    unsigned = Type(kind=ValueKind.UINT64)
    single, double = Type(kind=ValueKind.FLOAT), Type(kind=ValueKind.DOUBLE)
    number, integer = step(OpCode.JSON_NUMBER), step(OpCode.JSON_INTEGER)
    decimal, whole = step(OpCode.JSON_NUMBER, a=2), step(OpCode.JSON_INTEGER, a=2)
    cases: list[tuple[Type, Op, str, Any]] = [
        (unsigned, integer, "18446744073709551615", 2**64 - 1),
        (unsigned, integer, "-1", Bad.RANGE),
        (unsigned, integer, "-0", 0),
        (LONG, integer, "-9223372036854775808", -(2**63)),
        (LONG, integer, "9223372036854775808", Bad.RANGE),
        (LONG, integer, "0.000e-5", 0),
        (money, whole, "7", Decimal("7.00")),
        (money, whole, "7.5", Bad.TYPE),
        (money, decimal, "7.5", Decimal("7.50")),
        (money, decimal, "7.505", Bad.RANGE),
        (double, number, "1e308", 1e308),
        (double, number, "1e309", Bad.RANGE),
        (double, number, "1e-400", 0.0),
        (single, number, "3.4028235e38", 3.4028234663852886e38),
        (single, number, "3.4028236e38", Bad.RANGE),
        (single, number, "1e308", Bad.RANGE),
        (Type(kind=ValueKind.TIMESTAMP, unit="us"), step(OpCode.JSON_INTEGER, a=1000), "-1", -1000),
        (Type(kind=ValueKind.TIME_MS), integer, "86400000", Bad.RANGE),
    ]
    for type_, op, value, expected in cases:
        found = read(type_, op, value.encode())
        assert found == ((expected, 0) if isinstance(expected, Bad) else expected), value


def test_of_equal_names_the_last_counts_behind_an_empty_map() -> None:
    map_ = step(OpCode.JSON_MAP, 1, step(OpCode.JSON_STRING, 2), step(OpCode.JSON_ANY, 3))
    array = step(OpCode.JSON_ARRAY, 0, map_)

    assert read(listed(mapped(TEXT, TEXT)), array, b'[{},{"a":9,"b":0,"\\u0061":1}]') == [[], [("a", "1"), ("b", "0")]]


def test_days_and_times_are_those_of_datetime() -> None:
    random = Random(3)
    for _ in range(3000):
        text = "".join(
            (f"{random.choice((1, 4, 1900, 1970, 2000, 2023, 2100, 9999)):04}-", "01-12"[: random.choice((5, 5, 4))])
        )
        text = text.replace("01-12", f"{random.randrange(14):02}-{random.randrange(33):02}")
        try:
            days: int | None = (datetime.strptime(text, "%Y-%m-%d") - datetime(1970, 1, 1)).days
        except ValueError:
            days = None
        assert parse_date(text) == (days if len(text) == 10 else None), text
    assert parse_date("0000-02-29") == -719_469
    assert parse_date("0000-01-01") == -719_528


def test_times_need_a_real_hour_and_instants_an_offset() -> None:
    assert parse_time("23:59:59.9999999") == 86_399_999_999
    assert parse_time("00:30:00+01:00") == 84_600_000_000
    assert parse_time("12:00:00z") == parse_time("12:00:00-00:00") == parse_time("12:00:00") == 43_200_000_000
    for text in (
        "24:00:00",
        "12:60:00",
        "23:59:60",
        "1:00:00",
        "12:00",
        "12:00:00.",
        "12:00:00+1:00",
        "12:00:00+24:00",
        "12:00:00+01:60",
    ):
        assert parse_time(text) is None, text
    assert parse_instant("1970-01-01T00:00:00.000001Z") == 1
    assert parse_instant("1969-12-31 19:00:00-05:00") == 0
    for text in (
        "1970-01-01T00:00:00",
        "1970-01-01",
        "1970-01-01X00:00:00Z",
        "1970-13-01T00:00:00Z",
        "1970-01-01T24:00:00Z",
        "",
    ):
        assert parse_instant(text) is None, text


# All ----------------------------------------------------------------------------------------------------------------


def test_cut_values_are_errors_within_their_bytes() -> None:
    for seed in range(40):
        random = Random(seed)
        part = AvroParts(random).record() if seed % 2 else JsonParts(random).document()
        payload = part.draw().data[:400]
        cuts = [payload[:size] for size in range(len(payload))]
        for size, found in enumerate(read_all(part.type, part.program().roots[0], *cuts)):
            assert not isinstance(found, tuple) or 0 <= found[1] <= size, (seed, size)


def test_bombs_are_refused_at_once() -> None:
    array = step(OpCode.AVRO_ARRAY, 0, step(OpCode.AVRO_STRING, 1))
    started = time.process_time()

    assert read(listed(TEXT), array, encode_long(2**31 - 1) + bytes(4))[0] is Bad.COUNT
    assert read(listed(TEXT), array, encode_long(1) + encode_long(2**62))[0] is Bad.SHORT
    assert read(listed(TEXT), step(OpCode.JSON_ARRAY, 0, step(OpCode.JSON_STRING, 1)), b"[" * 100_000)[0] is Bad.DEPTH
    assert read(LONG, step(OpCode.JSON_INTEGER), b"9" * 1_000_000)[0] is Bad.RANGE
    assert read(TEXT, step(OpCode.AVRO_STRING), b"\xff" * 1_000_000)[0] is Bad.VARINT
    assert time.process_time() - started < 2
