"""The steps of Avro's binary encoding. Source: Avro 1.12, "Binary Encoding"."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

from segreader.typed.ops import DROPPED, FREE_ITEMS, Bad, Op, OpCode
from segreader.typed.reference.reader import (
    INT,
    BadValueError,
    ReadStep,
    ValueReader,
    as_decimal,
    as_number,
    as_text,
)
from segreader.typed.types import ValueKind


def _bool(reader: ValueReader, op: Op) -> bool:
    at = reader.at
    byte = reader.take(1, at)[0]
    if byte > 1 and op.column != DROPPED:
        raise BadValueError(Bad.BOOL, at)
    return byte == 1


def _number(reader: ValueReader, op: Op) -> float:
    at = reader.at
    if op.column == DROPPED:
        return reader.zigzag()
    return as_number(reader, op, reader.zigzag(32 if op.code is OpCode.AVRO_INT else 64), at)


def _float(reader: ValueReader, op: Op) -> float:
    return float(struct.unpack("<f", reader.take(4, reader.at))[0])


def _double(reader: ValueReader, op: Op) -> float:
    return float(struct.unpack("<d", reader.take(8, reader.at))[0])


def _bytes(reader: ValueReader, op: Op) -> str | bytes | Decimal | None:
    at = reader.at
    size = reader.zigzag()
    if size < 0:
        raise BadValueError(Bad.COUNT, at)
    data = reader.take(size, at)
    if op.column == DROPPED:
        return None
    kind = reader.kind(op)
    if kind is ValueKind.STRING:
        return as_text(data, at)
    return as_decimal(reader, op, int.from_bytes(data, signed=True), at) if kind is ValueKind.DECIMAL else data


def _fixed(reader: ValueReader, op: Op) -> Any:
    at = reader.at
    data = reader.take(op.a, at)
    kind = ValueKind.FIXED if op.column == DROPPED else reader.kind(op)
    if kind is ValueKind.DECIMAL:
        return as_decimal(reader, op, int.from_bytes(data, signed=True), at)
    if kind is ValueKind.INTERVAL:
        months, days, millis = struct.unpack("<III", data)
        if max(months, days) >= INT:
            raise BadValueError(Bad.RANGE, at)
        return months, days, millis * 1_000_000
    if kind is ValueKind.STRING:
        text = data.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return data


def _enum(reader: ValueReader, op: Op) -> str | None:
    at = reader.at
    symbol = reader.zigzag(64 if op.column == DROPPED else 32)
    if op.column == DROPPED:
        return None
    if not 0 <= symbol < len(op.table) or op.table[symbol] < 0:
        raise BadValueError(Bad.SYMBOL, at)
    return reader.type(op).symbols[op.table[symbol]]


def _array(reader: ValueReader, op: Op) -> list[Any]:
    reader.enter(reader.at)
    found = []
    while count := _block(reader, op, reader.known(_takes_nothing, op.children[0])):
        for _ in range(count):
            value = reader.read(op.children[0])
            if op.column != DROPPED:
                found.append(value)
    reader.depth -= 1
    return found


def _map(reader: ValueReader, op: Op) -> list[tuple[Any, Any]]:
    reader.enter(reader.at)
    found = []
    while count := _block(reader, op, False):
        for _ in range(count):
            key, value = reader.read(op.children[0]), reader.read(op.children[1])
            if op.column != DROPPED:
                found.append((key, value))
    reader.depth -= 1
    return found


def _block(reader: ValueReader, op: Op, items_are_free: bool) -> int:
    """How many items the next block has that must be read; 0: there is no block any more."""
    while True:
        at = reader.at
        count = reader.zigzag()
        if count < 0:
            size = reader.zigzag()
            if op.column == DROPPED:
                if size < 0:
                    raise BadValueError(Bad.COUNT, at)
                reader.take(size, at)
                continue
            count = -count
        if items_are_free:
            reader.free_items += count
            is_possible = reader.free_items <= FREE_ITEMS
        else:
            is_possible = count <= reader.stop - reader.at
        if not is_possible:
            raise BadValueError(Bad.COUNT, at)
        return count


def _takes_nothing(op: Op) -> bool:
    """Whether what a step reads has no bytes, whatever it is."""
    answers: dict[int, bool] = {}

    def visit(one: Op) -> bool:
        if one.code in (OpCode.SET_NULL, OpCode.CONSTANT):
            return True
        if one.code is not OpCode.AVRO_RECORD:
            return one.code is OpCode.AVRO_FIXED and one.a == 0
        if id(one) not in answers:
            answers[id(one)] = False  # of one within itself without a union between: it has no end, reading it fails
            answers[id(one)] = all(visit(child) for child in one.children)
        return answers[id(one)]

    return visit(op)


def _record(reader: ValueReader, op: Op) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if op.column == DROPPED and reader.known(_takes_nothing, op):
        return found  # records share what they are made of: one of nothing may have billions of others in it
    reader.enter(reader.at)
    for child in op.children:
        value = reader.read(child)
        if child.column != DROPPED:
            found[reader.names[child.column]] = value
    reader.depth -= 1
    return found


def _union(reader: ValueReader, op: Op) -> Any:
    at = reader.at
    branch = reader.zigzag()
    table = op.table or range(len(op.children))
    if not 0 <= branch < len(table) or table[branch] < 0:
        raise BadValueError(Bad.BRANCH, at)
    return reader.read(op.children[table[branch]])


STEPS: Final[dict[OpCode, ReadStep]] = {
    OpCode.AVRO_BOOL: _bool,
    OpCode.AVRO_INT: _number,
    OpCode.AVRO_LONG: _number,
    OpCode.AVRO_FLOAT: _float,
    OpCode.AVRO_DOUBLE: _double,
    OpCode.AVRO_BYTES: _bytes,
    OpCode.AVRO_STRING: _bytes,
    OpCode.AVRO_FIXED: _fixed,
    OpCode.AVRO_ENUM: _enum,
    OpCode.AVRO_ARRAY: _array,
    OpCode.AVRO_MAP: _map,
    OpCode.AVRO_RECORD: _record,
    OpCode.AVRO_UNION: _union,
}
