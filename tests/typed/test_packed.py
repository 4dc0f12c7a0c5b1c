from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from random_programs import AvroParts, JsonParts, damaged, encode_long, encode_varint
from random_protobuf import ProtobufParts

from segreader.errors import OptionError
from segreader.format.columns import BufferPool
from segreader.typed import decoder, ops, reference
from segreader.typed.decoder import NativeColumns, ReferenceColumns
from segreader.typed.framing import FramedRows
from segreader.typed.ops import MOST_DEPTH, Bad, ColumnLayout, Op, OpCode, Program
from segreader.typed.packed import COLUMN_WIDTH, KINDS, STEP_WIDTH, AvroStep, PackedProgram, StepNumber
from segreader.typed.types import Type, TypeField, ValueKind

_values = pytest.importorskip("segreader.typed._values")

LONG = Type(kind=ValueKind.INT64)
TEXT = Type(kind=ValueKind.STRING)
MAYBE_TEXT = Type(kind=ValueKind.STRING, is_nullable=True)
INT_STEP, TEXT_STEP, NOTHING = Op(code=OpCode.AVRO_INT), Op(code=OpCode.AVRO_STRING), Op(code=OpCode.SET_NULL)


def struct(**fields: Type) -> Type:
    return Type(kind=ValueKind.STRUCT, fields=tuple(TypeField(name, one) for name, one in fields.items()))


def record(*children: Op, column: int = ops.DROPPED) -> Op:
    return Op(code=OpCode.AVRO_RECORD, column=column, children=children)


def rows_of(payloads: Sequence[bytes | None]) -> FramedRows:
    """Rows of one root, as they are found behind frames; ``None`` is a null row."""
    data, starts, stops = bytearray(), array("q"), array("q")
    for payload in payloads:
        starts.append(len(data))
        data += payload or b""
        stops.append(len(data))
    roots = array("i", [-1 if payload is None else 0 for payload in payloads])
    return FramedRows(bytes(data), starts, stops, roots, len(payloads))


def native(program: Program) -> NativeColumns:
    columns = NativeColumns(program.layout, _values, BufferPool())
    for root in program.roots:
        columns.add_root(root)
    return columns


def check_twins(program: Program, payloads: Sequence[bytes | None], *, stop_at_first: bool = False) -> int:
    """How many rows are undecodable; the twins agree on which, why and where, and on all values."""
    columns, slow = native(program), ReferenceColumns(program.layout, reference)
    for root in program.roots:
        slow.add_root(root)
    found, bads = columns.execute(rows_of(payloads), stop_at_first=stop_at_first)
    expected, expected_bads = slow.execute(rows_of(payloads), stop_at_first=stop_at_first)
    found.validate(full=True)
    assert bads == [tuple(map(int, one)) for one in expected_bads]
    assert found.type == expected.type
    if not found.equals(expected):  # so it is where both have a NaN
        assert repr(plain(found).to_pylist()) == repr(plain(expected).to_pylist())
    return len(bads)


def plain(column: pa.Array) -> pa.Array:
    """The column with numbers in place of times: Python has no times before year 1 and after 9999."""
    type_ = column.type
    if pa.types.is_temporal(type_):
        number = pa.binary(16) if pa.types.is_interval(type_) else pa.int32() if type_.bit_width == 32 else pa.int64()
        return pa.Array.from_buffers(number, len(column), column.buffers(), offset=column.offset)
    if pa.types.is_struct(type_):
        parts = [plain(column.field(k)) for k in range(type_.num_fields)]
        fields = [pa.field(f"{k}", part.type) for k, part in enumerate(parts)]
        return pa.Array.from_buffers(pa.struct(fields), len(column), column.buffers()[:1], children=parts)
    if pa.types.is_map(type_):
        parts = [plain(column.keys), plain(column.items)]
        pairs = pa.Array.from_buffers(
            pa.struct([("key", parts[0].type), ("value", parts[1].type)]), len(parts[0]), [None], children=parts
        )
    elif pa.types.is_list(type_):
        pairs = plain(column.values)
    else:
        return column
    return pa.Array.from_buffers(pa.list_(pairs.type), len(column), column.buffers()[:2], children=[pairs])


def codes(root: Op, layout: ColumnLayout) -> list[int]:
    """The codes of all packed steps."""
    program = PackedProgram(layout)
    program.add(root)
    return program.steps[StepNumber.CODE :: STEP_WIDTH].tolist()


def test_the_numbers_of_the_native_executor_are_those_of_packed_steps() -> None:
    assert {
        "KINDS": len(KINDS),
        "AvroStep": max(AvroStep),
        "OpCode": OpCode.JSON_CHOICE,
        "Bad": max(Bad),
        "COLUMN_WIDTH": COLUMN_WIDTH,
        "STEP_WIDTH": STEP_WIDTH,
        "MOST_DEPTH": MOST_DEPTH,
        "FREE_ITEMS": ops.FREE_ITEMS,
    } == _values.LAYOUT
    assert [int(one) for one in AvroStep] == list(range(100, max(AvroStep) + 1))
    assert {*ValueKind} - {*KINDS} == {ValueKind.RECURSIVE}


def drawn(format_: str, random: Random) -> tuple[Program, list[bytes]]:
    """A random program, and values that fit it."""
    if format_ == "protobuf":
        case = ProtobufParts(random, drops=random.random() < 0.5).case(random.choice((2, 3)))
        return case.program, [case.draw() for _ in range(5)]
    part = AvroParts(random).record(random.choice((2, 3, 4))) if format_ == "avro" else JsonParts(random).document()
    return part.program(), [part.draw().data for _ in range(5)]


def check_random(format_: str, random: Random) -> int:
    program, whole = drawn(format_, random)
    payloads = [*whole, None, *(damaged(random, random.choice(whole)) for _ in range(10))]
    random.shuffle(payloads)
    return check_twins(program, payloads, stop_at_first=random.random() < 0.2)


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_the_twins_agree_on_values_whole_and_damaged(format_: str) -> None:
    assert sum(check_random(format_, Random(seed)) for seed in range(120)) > 300


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_the_twins_agree_on_values_cut_at_every_byte(format_: str) -> None:
    for seed in range(12):
        program, whole = drawn(format_, Random(seed))
        check_twins(program, [one[:stop] for one in whole for stop in range(len(one) + 1)][:400])


def test_records_within_records_are_one_sequence_of_steps() -> None:
    layout = ColumnLayout.of(struct(inner=struct(id=LONG, name=MAYBE_TEXT)))
    name = Op(
        code=OpCode.AVRO_UNION,
        column=3,
        children=(Op(code=OpCode.SET_NULL, column=3), Op(code=OpCode.AVRO_STRING, column=3)),
    )
    root = record(record(Op(code=OpCode.AVRO_LONG, column=2), name, column=1), column=0)

    assert codes(root, layout) == [
        AvroStep.CALL,
        AvroStep.STRUCT,
        AvroStep.STRUCT,
        AvroStep.LONG64,
        AvroStep.OPTION,
        AvroStep.TEXT,
    ]


def test_dropped_fields_side_by_side_are_one_step() -> None:
    layout = ColumnLayout.of(struct(id=LONG))
    double, text, enum = Op(code=OpCode.AVRO_DOUBLE), TEXT_STEP, Op(code=OpCode.AVRO_ENUM, table=(0,))
    inner = record(double, Op(code=OpCode.AVRO_FIXED, a=3), Op(code=OpCode.AVRO_FIXED, a=0))
    root = record(INT_STEP, enum, NOTHING, double, inner, Op(code=OpCode.AVRO_LONG, column=1), text, column=0)
    program = PackedProgram(layout)
    program.add(root)
    steps = [program.steps[k : k + STEP_WIDTH] for k in range(0, len(program.steps), STEP_WIDTH)]

    kept = [(one[StepNumber.CODE], one[StepNumber.A]) for one in steps if one[StepNumber.CODE] != AvroStep.CALL]

    assert kept[-5:] == [
        (AvroStep.STRUCT, 0),
        (AvroStep.SKIP_NUMBERS, 2),
        (AvroStep.SKIP, 19),
        (AvroStep.LONG64, 0),
        (AvroStep.SKIP_BYTES, 0),
    ]
    whole = b"\x02\x04" + bytes(19) + b"\x06" + b"\x02x"
    assert check_twins(Program(layout, [root]), [whole[:stop] for stop in range(len(whole) + 1)]) == len(whole)


def test_records_that_share_dropped_records_are_packed_once() -> None:
    below = record(TEXT_STEP, Op(code=OpCode.AVRO_ARRAY, children=(INT_STEP,)))
    for _ in range(60):  # as a tree these are 2 to the power of 60 records
        below = record(below, below)
    layout = ColumnLayout.of(struct(id=LONG))
    root = record(Op(code=OpCode.AVRO_LONG, column=1), record(below, *[TEXT_STEP] * 20), column=0)

    started = time.process_time()
    assert len(codes(root, layout)) < 5000
    assert time.process_time() - started < 2

    shared = record(TEXT_STEP, Op(code=OpCode.AVRO_DOUBLE))
    root = record(shared, Op(code=OpCode.AVRO_DOUBLE), shared, Op(code=OpCode.AVRO_LONG, column=1), shared, column=0)
    one = b"\x02x" + bytes(8)
    assert check_twins(Program(layout, [root]), [one + bytes(8) + one + b"\x02" + one]) == 0


def linked(depth: int) -> bytes:
    return b"\x02" * depth + b"\0"


def test_recursive_records_that_are_dropped_are_read_to_the_most_depth() -> None:
    node = record()
    node.close_cycle((Op(code=OpCode.AVRO_UNION, children=(NOTHING, node)),))
    for root in (record(node, column=0), record(record(record(node)), column=0)):
        around = 1 if root.children[0] is node else 3
        most = MOST_DEPTH - around - 1
        payloads = [linked(most), linked(most + 1), linked(5000), linked(most)[:-1]]

        assert check_twins(Program(ColumnLayout.of(struct()), [root]), payloads) == 3


def test_a_record_that_is_only_itself_is_no_value() -> None:
    node = record()
    node.close_cycle((node,))

    assert check_twins(Program(ColumnLayout.of(struct()), [record(node, column=0)]), [b"", b"\0"]) == 2


def test_deep_schemas_are_refused_or_read() -> None:
    layout = ColumnLayout.of(struct())
    below = INT_STEP
    for _ in range(99):
        below = Op(code=OpCode.AVRO_ARRAY, children=(below,))
    assert check_twins(Program(layout, [record(below, column=0)]), [b"\x02" * 99 + b"\x02" + b"\0" * 99]) == 0
    deeper = Op(code=OpCode.AVRO_ARRAY, children=(below,))
    assert check_twins(Program(layout, [record(deeper, column=0)]), [b"\x02" * 101 + b"\0" * 100]) == 1
    for _ in range(40):
        below = record(below)
    assert check_twins(Program(layout, [record(below, column=0)]), [b"\x02" * 100 + b"\0" * 99]) == 1
    for _ in range(20_000):
        below = record(below)
    with pytest.raises(OptionError, match="too many types within types"):
        PackedProgram(layout).add(record(below, column=0))


def test_items_that_take_no_bytes_are_bounded_in_all_of_a_value() -> None:
    empty = Type(kind=ValueKind.LIST, fields=(TypeField("item", struct()),))
    for type_, column in ((struct(a=empty, b=empty), (1, 3)), (struct(), (-1, -1))):
        arrays = [
            Op(code=OpCode.AVRO_ARRAY, column=at, children=(record(record(), column=at + (at > 0)),)) for at in column
        ]
        program = Program(ColumnLayout.of(type_), [record(*arrays, column=0)])
        half, more = encode_long(ops.FREE_ITEMS // 2), encode_long(ops.FREE_ITEMS // 2 + 1)
        payloads = [
            half + b"\0" + half + b"\0",
            half + b"\0" + more + b"\0",
            half + half + b"\0" + b"\2\0",
            encode_long(2**62) + b"\0\0",
            encode_long(-(2**63)) + b"\0\0\0",
        ]
        assert check_twins(program, payloads) == 3 + (column[0] > 0)


def test_programs_that_leave_their_arrays_are_refused() -> None:
    program = PackedProgram(ColumnLayout.of(struct(id=LONG)))
    first = program.add(record(Op(code=OpCode.AVRO_LONG, column=1), column=0))
    for number, wrong in (
        (StepNumber.COLUMN, 2),
        (StepNumber.COLUMN, -2),
        (StepNumber.FIRST, 100),
        (StepNumber.COUNT, 100),
        (StepNumber.COUNT, -1),
        (StepNumber.TABLE, 1),
        (StepNumber.TEXT_SIZE, 1),
    ):
        for step in range(len(program.steps) // STEP_WIDTH):
            at = step * STEP_WIDTH + number
            right, program.steps[at] = program.steps[at], wrong
            with pytest.raises(ValueError, match="leaves the program"):
                _values.NativeExecutor(program)
            program.steps[at] = right
    executor = _values.NativeExecutor(program)
    executor.add_root(first)
    with pytest.raises(ValueError, match="no step"):
        executor.add_root(99)
    with pytest.raises(ValueError, match="too small"):
        executor.begin(bytearray(executor.plan(1) - 1))


def test_rows_that_leave_their_buffer_are_refused() -> None:
    program = PackedProgram(ColumnLayout.of(struct(id=LONG)))
    executor = _values.NativeExecutor(program)
    executor.add_root(0) if program.steps else program.add(record(Op(code=OpCode.AVRO_LONG, column=1), column=0))
    executor.extend(program)
    executor.add_root(0)
    for start, stop, root in ((0, 3, 0), (-1, 2, 0), (2, 1, 0), (0, 2, 1)):
        executor.begin(bytearray(executor.plan(1)))
        rows: Any = array("q", [start]), array("q", [stop]), array("i", [root])
        with pytest.raises(ValueError, match="leaves the buffer"):
            executor.run(b"\2\2", *rows, 0, 1, False, 9, [])
    with pytest.raises(ValueError, match="no rows"):
        executor.run(b"", array("q"), array("q"), array("i"), 0, 1, False, 9, [])
    executor.let_go()
    with pytest.raises(ValueError, match="follows"):
        executor.run(b"\2", array("q", [0, 0]), array("q", [1, 1]), array("i", [0, 0]), 1, 2, False, 9, [])


# Enums that have more symbols than their schema says


def an_enum() -> tuple[NativeColumns, Op]:
    enum = Type(kind=ValueKind.ENUM, symbols=("ZERO", "ONE"))
    layout = ColumnLayout.of(Type(kind=ValueKind.LIST, fields=(TypeField("item", enum),)))
    item = Op(code=OpCode.PROTO_ENUM, column=1, table=(0, 0, 1, 1))
    field = Op(code=OpCode.PROTO_FIELD, column=0, a=1, b=-1, flags=3, children=(item,))
    return NativeColumns(layout, _values, BufferPool()), Op(code=OpCode.PROTO_MESSAGE, children=(field,))


def packed(numbers: Sequence[int]) -> bytes:
    inner = b"".join(encode_varint(one & 0xFFFF_FFFF) for one in numbers)
    return b"\x0a" + encode_varint(len(inner)) + inner


def test_numbers_without_a_symbol_become_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, root = an_enum()
    columns.add_root(root)
    rows = [[0, 7, 1], [9, 7, 2, 7], [], [2, 1]]
    names = {0: "ZERO", 1: "ONE"}
    expected = [[names.get(one, str(one)) for one in row] for row in rows]

    found, bads = columns.execute(rows_of([packed(row) for row in rows]), stop_at_first=False)
    found.validate(full=True)
    assert (found.to_pylist(), bads) == (expected, [])
    assert found.values.dictionary.to_pylist() == ["ZERO", "ONE", "7", "9", "2"]
    again, _ = columns.execute(rows_of([packed([5])]), stop_at_first=False)
    assert again.values.dictionary.to_pylist() == ["ZERO", "ONE", "5"]

    monkeypatch.setattr(decoder, "_MOST_SYMBOLS", 2)
    first, _ = columns.execute(rows_of([packed(row) for row in rows]), stop_at_first=False)
    assert first.to_pylist() == expected[:1]
    _, bads = columns.execute(rows_of([packed(range(10, 13))]), stop_at_first=False)
    assert bads == [(0, Bad.LIMIT, 0)]
