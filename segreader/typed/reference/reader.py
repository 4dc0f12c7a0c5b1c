"""The cursor that steps read from, and how numbers and texts become what a column takes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from segreader.typed.ops import MOST_DEPTH, Bad, Op, OpCode, Program
from segreader.typed.types import Type, ValueKind

DAY_US: Final = 86_400_000_000
INT: Final = 1 << 31
LONG: Final = 1 << 63
"""What a signed number of 32 or 64 bits stays below."""


class BadValueError(Exception):
    """A value cannot be read: why, and where in the bytes that are read."""

    def __init__(self, bad: Bad, at: int) -> None:
        self.bad, self.at = bad, at


ReadStep = Callable[["ValueReader", Op], Any]
"""A step: it reads one value at the cursor. Of a dropped step the value means nothing."""


class ValueReader:
    """A cursor in the payload of a row, and what steps ask of the program."""

    def __init__(self, program: Program, steps: Mapping[OpCode, ReadStep]) -> None:
        self._steps = steps
        self.columns = program.layout.columns
        self.names = {
            index: field.name
            for column in self.columns
            for index, field in zip(column.children, column.type.fields, strict=False)
        }
        self._trees: dict[int, Op] = {}
        self._known: dict[tuple[str, int], Any] = {}
        self.data, self.at, self.stop, self.depth, self.free_items = b"", 0, 0, 0, 0
        self.ends: dict[int, int] = {}  # JSON: of each array and object, where it ends

    def read(self, op: Op) -> Any:
        """The value that a step reads at the cursor."""
        return self._steps[op.code](self, op)

    def kind(self, op: Op) -> ValueKind:
        """What the column of a step that is not dropped holds."""
        return self.columns[op.column].type.kind

    def type(self, op: Op) -> Type:
        """The type of the column of a step that is not dropped."""
        return self.columns[op.column].type

    def known(self, what: Callable[[Op], Any], op: Op) -> Any:
        """``what(op)``, worked out once for each step."""
        key = (what.__name__, id(op))
        if key not in self._known:
            self._trees[id(op)] = op  # an id is of one object only while that lives
            self._known[key] = what(op)
        return self._known[key]

    def enter(self, at: int) -> None:
        """One level deeper: a value that has others within it begins."""
        if self.depth >= MOST_DEPTH:
            raise BadValueError(Bad.DEPTH, at)
        self.depth += 1

    def take(self, size: int, start: int) -> bytes:
        """The next bytes. Every read goes through here or ``varint``.

        Args:
            start: where what they are part of begins, for the error.
        """
        if size > self.stop - self.at:
            raise BadValueError(Bad.SHORT, start)
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, most: int) -> int:
        """An unsigned number of at most so many bytes, 7 bits in each, lowest first."""
        start, value = self.at, 0
        for shift in range(0, 7 * most, 7):
            byte = self.take(1, start)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadValueError(Bad.VARINT, start)

    def zigzag(self, bits: int = 64) -> int:
        """Avro's int (32 bits) or long."""
        start = self.at
        value = self.varint(5 if bits == 32 else 10)
        if value >> bits:
            raise BadValueError(Bad.VARINT, start)
        return unzigzag(value)


def as_number(reader: ValueReader, op: Op, value: int, at: int) -> float:
    """An integer as its column has it."""
    kind = reader.kind(op)
    if kind is ValueKind.DOUBLE:
        return float(value)
    if kind is ValueKind.FLOAT:
        return _nearest_float(value)
    if op.a and kind in (ValueKind.TIME_US, ValueKind.TIMESTAMP):
        value *= op.a
    if kind in _MOST:
        low, high = _MOST[kind]
        if not low <= value <= high:
            raise BadValueError(Bad.RANGE, at)
    return value


_MOST: Final = {
    ValueKind.INT32: (-INT, INT - 1),
    ValueKind.DATE: (-INT, INT - 1),
    ValueKind.UINT64: (0, 2 * LONG - 1),
    ValueKind.TIME_MS: (0, DAY_US // 1000 - 1),
    ValueKind.TIME_US: (0, DAY_US - 1),
    ValueKind.INT64: (-LONG, LONG - 1),
    ValueKind.TIMESTAMP: (-LONG, LONG - 1),
}


def _nearest_float(value: int) -> float:
    """An integer of 64 bits rounded to 24 bits, once: through a double it would be rounded twice."""
    if abs(value) >> 53:
        value = value >> 11 << 11 | (1 << 11 if value & 0x7FF else 0)
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def as_decimal(reader: ValueReader, op: Op, unscaled: int, at: int) -> Decimal:
    """A number as its column has it, from the integer that it is without its point."""
    type_ = reader.type(op)
    if abs(unscaled) >= 10**type_.precision:
        raise BadValueError(Bad.RANGE, at)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -type_.scale))


def as_text(data: bytes, at: int) -> str:
    """The text of bytes in UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadValueError(Bad.UTF8, at) from None


def unzigzag(value: int) -> int:
    """The signed number: 0, -1, 1, -2 for 0, 1, 2, 3."""
    return value >> 1 ^ -(value & 1)
