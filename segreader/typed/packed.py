"""Trees of steps as numbers: what the native executor runs.

Every step is ``WIDTH`` numbers (``StepNumber``) in one array, its children are side by side, numbers of its own are in
a second array and bytes in a third. Protobuf's and JSON's steps are packed as they are. Avro's are rewritten, for an
Avro value has no tags: what a record does is the sequence of what its fields do, records in records included. Only
arrays, maps and unions begin a sequence of their own, nullable values (the union of null and one other) do not. What
is dropped shrinks to steps over so many bytes, or so many numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from segreader.errors import OptionError
from segreader.typed.ops import DROPPED, MOST_DEPTH, PROTO_GROUP, Column, ColumnLayout, Op, OpCode
from segreader.typed.types import Type, ValueKind

KINDS: Final = (
    ValueKind.BOOL,
    ValueKind.INT32,
    ValueKind.INT64,
    ValueKind.UINT32,
    ValueKind.UINT64,
    ValueKind.FLOAT,
    ValueKind.DOUBLE,
    ValueKind.STRING,
    ValueKind.BINARY,
    ValueKind.FIXED,
    ValueKind.DECIMAL,
    ValueKind.DATE,
    ValueKind.TIME_MS,
    ValueKind.TIME_US,
    ValueKind.TIMESTAMP,
    ValueKind.DURATION,
    ValueKind.INTERVAL,
    ValueKind.ENUM,
    ValueKind.STRUCT,
    ValueKind.LIST,
    ValueKind.MAP,
    ValueKind.NULL,
)
"""The numbers of kinds in ``_values.h``."""

_WIDTHS: Final = {
    ValueKind.BOOL: 0,
    ValueKind.STRUCT: 0,
    ValueKind.NULL: 0,
    ValueKind.INT32: 4,
    ValueKind.UINT32: 4,
    ValueKind.FLOAT: 4,
    ValueKind.DATE: 4,
    ValueKind.TIME_MS: 4,
    ValueKind.ENUM: 4,
    ValueKind.STRING: 4,
    ValueKind.BINARY: 4,
    ValueKind.LIST: 4,
    ValueKind.MAP: 4,
    ValueKind.INTERVAL: 16,
}

_UNITS: Final = {"ms": 1, "us": 2, "ns": 3}


class ColumnNumber(IntEnum):
    """Index of each number of a packed column."""

    KIND = 0
    WIDTH = 1  # bytes of an entry in the buffer of values; 0: none, or bits
    UNIT = 2
    PARENT = 3
    IS_NULLABLE = 4
    BELOW = 5  # where its list begins in ``PackedLayout.lists``: columns that get an entry with a null of this struct
    BELOW_COUNT = 6
    CHILDREN = 7  # the same for the columns right below
    CHILD_COUNT = 8
    BOUND = 9  # where 10 to the power of its precision begins in ``PackedLayout.bounds``, -1: nowhere
    FIRST_SYMBOL = 10  # of an enum: the index of the first symbol beyond those of its type


class StepNumber(IntEnum):
    """Index of each number of a packed step. A column's kind is that of the column, -1: dropped."""

    CODE = 0
    COLUMN = 1
    FIRST = 2  # number of the first child
    COUNT = 3  # of children
    A = 4
    B = 5
    FLAGS = 6
    KIND = 7
    TABLE = 8
    TABLE_SIZE = 9
    TEXT = 10
    TEXT_SIZE = 11


class AvroStep(IntEnum):
    """What Avro's steps, and some of any format, are packed into."""

    CALL = 100  # children, ``b`` levels deeper
    DEPTH = 101  # a record begins, ``a`` levels deeper
    STRUCT = 102  # an entry that is not null
    OPTION = 103  # branch ``a`` is null: then ``b`` steps are left out. Branch ``1 - a`` runs them
    UNION = 104  # one child for each branch, CALL or BRANCH, ``b`` levels deeper
    BRANCH = 105  # no place for the branch
    ARRAY = 106  # children for each item, ``b`` levels deeper; ``flags`` 1: they take no bytes
    SKIP_BLOCKS = 107  # the same, dropped
    SKIP = 108  # ``a`` bytes, which are values of the sizes in ``table``
    SKIP_NUMBERS = 109  # ``a`` of them
    SKIP_BYTES = 110  # a length, and so many bytes
    BOOL = 111
    INT32 = 112
    INT64 = 113
    INT_FLOAT = 114
    INT_DOUBLE = 115
    LONG64 = 116
    LONG_FLOAT = 117
    LONG_DOUBLE = 118
    TIMES = 119  # a long, or an int (``flags`` 1), times ``a``, if that is not 0
    TIME_MS = 120  # an int within a day
    TIME_US = 121  # as TIMES, within a day
    FLOAT = 122
    FLOAT_DOUBLE = 123
    DOUBLE = 124
    BYTES = 125
    TEXT = 126
    BYTES_DECIMAL = 127
    FIXED = 128
    FIXED_DECIMAL = 129
    FIXED_INTERVAL = 130
    FIXED_UUID = 131
    ENUM = 132


COLUMN_WIDTH: Final = len(ColumnNumber)
STEP_WIDTH: Final = len(StepNumber)
_INLINE: Final = 16  # steps of what is dropped are copied to each place up to here, and called above
_MOST_NUMBERS: Final = 1 << 28  # of steps, of what they have, and bytes of text


class PackedLayout:
    """A layout's columns as numbers."""

    def __init__(self, layout: ColumnLayout) -> None:
        self.columns = array("q")
        self.lists = array("i")
        self.bounds = array("Q")
        for column in layout.columns:
            below = tuple(_with_each_null(layout, column))
            bound = -1
            if column.type.kind is ValueKind.DECIMAL:
                bound = len(self.bounds)
                ten = 10**column.type.precision
                self.bounds.extend(ten >> shift & 0xFFFF_FFFF_FFFF_FFFF for shift in (0, 64, 128, 192))
            self.columns.extend(
                (
                    KINDS.index(column.type.kind),
                    width_of(column.type),
                    _UNITS.get(column.type.unit, 0),
                    column.parent,
                    may_be_null(column),
                    len(self.lists),
                    len(below),
                    len(self.lists) + len(below),
                    len(column.children),
                    bound,
                    max(len(column.type.symbols), 1),
                )
            )
            self.lists.extend(below + column.children)


def may_be_null(column: Column) -> bool:
    """Whether the column has a buffer of validity."""
    return column.parent < 0 or column.type.is_nullable


def width_of(one: Type) -> int:
    """Bytes of an entry in the buffer of values; 0: there is none, or one of bits."""
    if one.kind is ValueKind.FIXED:
        return one.size
    if one.kind is ValueKind.DECIMAL:
        return 16 if one.precision <= 38 else 32
    return _WIDTHS.get(one.kind, 8)


def _with_each_null(layout: ColumnLayout, column: Column) -> Iterator[int]:
    if column.type.kind is ValueKind.STRUCT:
        for index in column.children:
            yield index
            yield from _with_each_null(layout, layout.columns[index])


class _PackedStep:
    """A step before its children have a place.

    Args:
        sequence: index of theirs.
        inner: what an option leaves out.
    """

    __slots__ = ("a", "b", "code", "column", "flags", "inner", "sequence", "table", "text")

    def __init__(
        self,
        code: int,
        column: int = DROPPED,
        sequence: int = -1,
        *,
        a: int = 0,
        b: int = 0,
        flags: int = 0,
        table: Sequence[int] = (),
        text: bytes = b"",
        inner: Sequence[_PackedStep] = (),
    ) -> None:
        self.code, self.column, self.sequence = code, column, sequence
        self.a, self.b, self.flags, self.table, self.text = a, b, flags, table, text
        self.inner = inner

    def at_level(self, level: int) -> _PackedStep:
        """The same where so many more records of its sequence are around it."""
        if self.code == AvroStep.OPTION:
            return _PackedStep(self.code, self.column, a=self.a, inner=[one.at_level(level) for one in self.inner])
        if self.code not in _WITH_LEVEL:
            return self
        return _PackedStep(self.code, self.column, self.sequence, a=self.a, b=self.b + level, flags=self.flags)

    def in_order(self) -> Iterator[_PackedStep]:
        """It, and what it leaves out."""
        if self.code != AvroStep.OPTION:
            yield self
            return
        inner = [step for one in self.inner for step in one.in_order()]
        yield _PackedStep(self.code, self.column, a=self.a, b=len(inner))
        yield from inner


_WITH_LEVEL: Final = frozenset((AvroStep.CALL, AvroStep.UNION, AvroStep.ARRAY, AvroStep.SKIP_BLOCKS))


class PackedProgram:
    """The trees of one layout, packed. More may come at any time; numbers that were given stay.

    Args:
        layout: of the columns that the steps fill.
    """

    def __init__(self, layout: ColumnLayout) -> None:
        self.layout = PackedLayout(layout)
        self.steps = array("q")
        self.table = array("q")
        self.text = bytearray()
        self._kinds = [KINDS.index(column.type.kind) for column in layout.columns]

    def add(self, root: Op) -> int:
        """Pack a tree; the number of its first step.

        Raises:
            OptionError: it is too large to be packed.
        """
        try:
            made = _Packer(self._kinds).pack(root)
        except RecursionError:
            raise OptionError("a schema has too many types within types", expected="some hundreds") from None
        sequences = [[step for one in sequence for step in one.in_order()] for sequence in made]
        first: list[int] = []
        at = len(self.steps) // STEP_WIDTH
        for sequence in sequences:
            first.append(at)
            at += len(sequence)
        if max(at, len(self.table), len(self.text)) > _MOST_NUMBERS:
            raise OptionError("a schema is too large", found=f"{at} steps", expected="some millions")
        numbers = self.steps
        for sequence in sequences:
            for step in sequence:
                kind = -1 if step.column == DROPPED else self._kinds[step.column]
                start, count = (first[step.sequence], len(sequences[step.sequence])) if step.sequence >= 0 else (0, 0)
                numbers.extend((step.code, step.column, start, count, step.a, step.b, step.flags, kind))
                numbers.extend((len(self.table), len(step.table), len(self.text), len(step.text)))
                self.table.extend(step.table)
                self.text += step.text
        return first[0]


_BLOCKS: Final = frozenset((OpCode.AVRO_ARRAY, OpCode.AVRO_MAP))
_NUMBERS: Final = frozenset((OpCode.AVRO_INT, OpCode.AVRO_LONG, OpCode.AVRO_ENUM))
_DROPPED_SIZES: Final = {OpCode.AVRO_BOOL: 1, OpCode.AVRO_FLOAT: 4, OpCode.AVRO_DOUBLE: 8}
_OF_KIND: Final = {
    (OpCode.AVRO_BOOL, ValueKind.BOOL): AvroStep.BOOL,
    (OpCode.AVRO_INT, ValueKind.INT32): AvroStep.INT32,
    (OpCode.AVRO_INT, ValueKind.DATE): AvroStep.INT32,
    (OpCode.AVRO_INT, ValueKind.TIME_MS): AvroStep.TIME_MS,
    (OpCode.AVRO_INT, ValueKind.TIME_US): AvroStep.TIME_US,
    (OpCode.AVRO_INT, ValueKind.INT64): AvroStep.INT64,
    (OpCode.AVRO_INT, ValueKind.TIMESTAMP): AvroStep.INT64,
    (OpCode.AVRO_INT, ValueKind.FLOAT): AvroStep.INT_FLOAT,
    (OpCode.AVRO_INT, ValueKind.DOUBLE): AvroStep.INT_DOUBLE,
    (OpCode.AVRO_LONG, ValueKind.INT64): AvroStep.LONG64,
    (OpCode.AVRO_LONG, ValueKind.TIMESTAMP): AvroStep.LONG64,
    (OpCode.AVRO_LONG, ValueKind.TIME_US): AvroStep.TIME_US,
    (OpCode.AVRO_LONG, ValueKind.FLOAT): AvroStep.LONG_FLOAT,
    (OpCode.AVRO_LONG, ValueKind.DOUBLE): AvroStep.LONG_DOUBLE,
    (OpCode.AVRO_FLOAT, ValueKind.FLOAT): AvroStep.FLOAT,
    (OpCode.AVRO_FLOAT, ValueKind.DOUBLE): AvroStep.FLOAT_DOUBLE,
    (OpCode.AVRO_DOUBLE, ValueKind.DOUBLE): AvroStep.DOUBLE,
    (OpCode.AVRO_BYTES, ValueKind.BINARY): AvroStep.BYTES,
    (OpCode.AVRO_BYTES, ValueKind.STRING): AvroStep.TEXT,
    (OpCode.AVRO_BYTES, ValueKind.DECIMAL): AvroStep.BYTES_DECIMAL,
    (OpCode.AVRO_STRING, ValueKind.BINARY): AvroStep.BYTES,
    (OpCode.AVRO_STRING, ValueKind.STRING): AvroStep.TEXT,
    (OpCode.AVRO_FIXED, ValueKind.FIXED): AvroStep.FIXED,
    (OpCode.AVRO_FIXED, ValueKind.DECIMAL): AvroStep.FIXED_DECIMAL,
    (OpCode.AVRO_FIXED, ValueKind.INTERVAL): AvroStep.FIXED_INTERVAL,
    (OpCode.AVRO_FIXED, ValueKind.STRING): AvroStep.FIXED_UUID,
    (OpCode.AVRO_ENUM, ValueKind.ENUM): AvroStep.ENUM,
}


class _Packer:
    """Packs one tree: sequences of steps, of which the first is the whole tree's."""

    def __init__(self, kinds: Sequence[int]) -> None:
        self._kinds = kinds
        self._sequences: list[list[_PackedStep]] = []
        self._made: dict[tuple[int, bool], int] = {}  # by the identity of what is called
        self._kept: list[Op] = []  # so that no identity is used twice
        self._takes: dict[int, bool] = {}
        self._heights: dict[int, int] = {}

    def pack(self, root: Op) -> list[list[_PackedStep]]:
        self._sequences.append([])
        if _is_avro(root):
            first = _PackedStep(AvroStep.CALL, root.column, self._keep(_fused(self._flat(root, level=0, depth=0))))
        else:
            first = self._plain(root)
        self._sequences[0] = [first]
        return self._sequences

    def _keep(self, steps: list[_PackedStep]) -> int:
        self._sequences.append(steps)
        return len(self._sequences) - 1

    # Protobuf and JSON: as they are

    def _plain(self, op: Op) -> _PackedStep:
        """The step of one that is no Avro's."""
        if op.code is OpCode.SET_NULL or (op.code is OpCode.CONSTANT and op.column == DROPPED):
            return _PackedStep(OpCode.SET_NULL, op.column)
        if op.code is OpCode.CONSTANT:
            return self._constant(op)[0]
        if _is_avro(op):
            return _PackedStep(AvroStep.CALL, op.column, self._keep(self._flat(op, level=0, depth=MOST_DEPTH)))
        below = self._below(op) if op.children else -1
        step = _PackedStep(op.code, op.column, below, a=op.a, b=op.b, flags=op.flags)
        step.table, step.text = op.table, op.text
        if op.code in _MESSAGES:
            step.a, step.table = _places_of_numbers(op)
        elif op.code is OpCode.PROTO_FIELD:
            step.a, step.flags = _tag(op), op.flags | op.children[0].code << _CODE_SHIFT
        return step

    def _below(self, op: Op) -> int:
        key = id(op), False
        if key not in self._made:
            self._kept.append(op)
            index = self._made[key] = self._keep([])
            self._sequences[index] = [self._plain(child) for child in op.children]
        return self._made[key]

    # Avro: rewritten

    def _flat(self, op: Op, *, level: int, depth: int) -> list[_PackedStep]:
        """What an Avro step does.

        Args:
            level: how many records that are in this sequence are around it.
            depth: how many records, arrays and maps are around it at least. From ``MOST_DEPTH`` on, and below what is
                within itself, each one is counted as it begins.
        """
        code = op.code
        if code is OpCode.SET_NULL:
            return [] if op.column == DROPPED else [_PackedStep(code, op.column)]
        if code is OpCode.CONSTANT:
            return self._constant(op)
        if code is OpCode.AVRO_RECORD:
            return self._record(op, level, depth)
        if code is OpCode.AVRO_UNION:
            return self._union(op, level, depth)
        if code in _BLOCKS:
            return self._blocks(op, level, depth)
        if op.column == DROPPED:
            return _dropped(op)
        kind = KINDS[self._kinds[op.column]]
        is_int = code is OpCode.AVRO_INT
        step = AvroStep.TIMES if op.a and kind is ValueKind.TIMESTAMP else _OF_KIND[OpCode(code), kind]
        return [_PackedStep(step, op.column, a=op.a, flags=int(is_int), table=op.table)]

    def _constant(self, op: Op) -> list[_PackedStep]:
        if op.column == DROPPED:
            return []
        child = op.children[0]
        steps = self._flat(child, level=0, depth=0) if _is_avro(child) else [self._plain(child)]
        return [_PackedStep(op.code, op.column, self._keep(steps), text=op.text)]

    def _record(self, op: Op, level: int, depth: int) -> list[_PackedStep]:
        if op.column != DROPPED:
            return self._fields(op, level + 1, depth)
        is_counted = depth + self._height(op) > MOST_DEPTH
        key = id(op), is_counted
        if key not in self._made:
            self._kept.append(op)
            index = self._made[key] = self._keep([])
            self._sequences[index] = self._fields(op, 1, MOST_DEPTH if is_counted else 0)
        steps = self._sequences[self._made[key]]
        if is_counted or len(steps) > _INLINE:
            return [_PackedStep(AvroStep.CALL, DROPPED, self._made[key], b=level)]
        return [step.at_level(level) for step in steps]

    def _fields(self, op: Op, level: int, depth: int) -> list[_PackedStep]:
        steps: list[_PackedStep] = []
        if depth >= MOST_DEPTH:
            steps.append(_PackedStep(AvroStep.DEPTH, a=level))
        if op.column != DROPPED:
            steps.append(_PackedStep(AvroStep.STRUCT, op.column))
        below = min(depth + 1, MOST_DEPTH)
        return _fused(steps + [step for child in op.children for step in self._flat(child, level=level, depth=below)])

    def _union(self, op: Op, level: int, depth: int) -> list[_PackedStep]:
        branches = [op.children[k] if k >= 0 else None for k in op.table] if op.table else list(op.children)
        if len(branches) == 2:
            for null, other in ((0, branches[1]), (1, branches[0])):
                one = branches[null]
                if one is not None and other is not None and one.code is OpCode.SET_NULL:
                    inner = _fused(self._flat(other, level=level, depth=depth))
                    return [_PackedStep(AvroStep.OPTION, op.column, a=null, inner=inner)]
        calls = []
        for branch in branches:
            if branch is None:
                calls.append(_PackedStep(AvroStep.BRANCH))
            else:
                steps = _fused(self._flat(branch, level=0, depth=depth))
                calls.append(_PackedStep(AvroStep.CALL, branch.column, self._keep(steps)))
        return [_PackedStep(AvroStep.UNION, op.column, self._keep(calls), b=level)]

    def _blocks(self, op: Op, level: int, depth: int) -> list[_PackedStep]:
        below = min(depth + 1, MOST_DEPTH)
        steps = _fused([step for child in op.children for step in self._flat(child, level=0, depth=below)])
        takes_bytes = any(self._takes_bytes(child) for child in op.children)
        code = AvroStep.SKIP_BLOCKS if op.column == DROPPED else AvroStep.ARRAY
        return [_PackedStep(code, op.column, self._keep(steps), b=level + 1, flags=int(not takes_bytes))]

    def _height(self, op: Op) -> int:
        """How many records, arrays and maps are within each other in what is not below itself."""
        if id(op) not in self._heights:
            self._heights[id(op)] = MOST_DEPTH + 1  # what is below itself has no end
            self._kept.append(op)
            within = max((self._height(child) for child in op.children), default=0)
            self._heights[id(op)] = within + (op.code is OpCode.AVRO_RECORD or op.code in _BLOCKS)
        return self._heights[id(op)]

    def _takes_bytes(self, op: Op) -> bool:
        """Whether what an Avro step reads has a byte at least."""
        if op.code in (OpCode.SET_NULL, OpCode.CONSTANT):
            return False
        if op.code is OpCode.AVRO_FIXED:
            return op.a > 0
        if op.code is not OpCode.AVRO_RECORD:
            return True
        if id(op) not in self._takes:
            self._takes[id(op)] = True  # what it says of itself, if asked
            self._kept.append(op)
            self._takes[id(op)] = any(self._takes_bytes(child) for child in op.children)
        return self._takes[id(op)]


_MESSAGES: Final = frozenset((OpCode.PROTO_MESSAGE, OpCode.PROTO_MAP_ENTRY))


def _places_of_numbers(op: Op) -> tuple[int, list[int]]:
    """How a message's fields are found: (n, the places among the children of the numbers below n, -1 where there is
    none; then pairs of number and place of the others, sorted)."""
    places = {child.a: place for place, child in enumerate(op.children) if child.code is OpCode.PROTO_FIELD}
    dense = 1 + max((one for one in places if one < 4 * len(places) + 16), default=0)
    others = sorted((number, place) for number, place in places.items() if number >= dense)
    return dense, [*(places.get(number, -1) for number in range(dense)), *(one for pair in others for one in pair)]


_CODE_SHIFT: Final = 8
_WIRE_TYPES: Final = {
    **dict.fromkeys((OpCode.PROTO_FIXED64, OpCode.PROTO_SFIXED64, OpCode.PROTO_DOUBLE), 1),
    **dict.fromkeys((OpCode.PROTO_FIXED32, OpCode.PROTO_SFIXED32, OpCode.PROTO_FLOAT), 5),
    **dict.fromkeys((code for code in OpCode if OpCode.PROTO_INT32 <= code <= OpCode.PROTO_SINT64), 0),
    **dict.fromkeys((OpCode.PROTO_BOOL, OpCode.PROTO_ENUM), 0),
}


def _tag(op: Op) -> int:
    """The tag of a Protobuf field that is not packed."""
    return op.a << 3 | (3 if op.flags & PROTO_GROUP else _WIRE_TYPES.get(op.children[0].code, 2))


def _is_avro(op: Op) -> bool:
    return OpCode.AVRO_BOOL <= op.code <= OpCode.AVRO_UNION or op.code in (OpCode.SET_NULL, OpCode.CONSTANT)


def _dropped(op: Op) -> list[_PackedStep]:
    """Steps over a value that is no record, array, map or union."""
    if op.code in _NUMBERS:
        return [_PackedStep(AvroStep.SKIP_NUMBERS, a=1)]
    if op.code in (OpCode.AVRO_BYTES, OpCode.AVRO_STRING):
        return [_PackedStep(AvroStep.SKIP_BYTES)]
    size = op.a if op.code is OpCode.AVRO_FIXED else _DROPPED_SIZES[OpCode(op.code)]
    return [_PackedStep(AvroStep.SKIP, a=size, table=(size,))] if size else []


def _fused(steps: list[_PackedStep]) -> list[_PackedStep]:
    """The same with one step for those side by side that step over bytes, or over numbers."""
    fused: list[_PackedStep] = []
    sizes: list[int] = []  # of the last step, if it is of several: others may share those that are given
    for step in steps:
        if fused and step.code == fused[-1].code and step.code in (AvroStep.SKIP, AvroStep.SKIP_NUMBERS):
            if not sizes:
                sizes = list(fused[-1].table)
                fused[-1] = _PackedStep(step.code, a=fused[-1].a, table=sizes)
            fused[-1].a += step.a
            sizes += step.table
        else:
            fused.append(step)
            sizes = []
    return fused
