"""The steps of JSON, for a text that ``json_text`` has checked as a whole. Source: RFC 8259."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from segreader.typed.ops import DROPPED, JSON_BASE64, Bad, Op, OpCode
from segreader.typed.reference.json_text import (
    check_document,
    find_items,
    find_members,
    is_number,
    parse_base64,
    parse_date,
    parse_instant,
    parse_scaled,
    parse_string,
    parse_time,
    skip_space,
    value_end,
)
from segreader.typed.reference.reader import BadValueError, ReadStep, ValueReader, as_decimal, as_number
from segreader.typed.types import ValueKind


def read_document(reader: ValueReader, op: Op) -> Any:
    """The value that all bytes are."""
    reader.ends = check_document(reader.data)
    reader.at = skip_space(reader.data, 0)
    return reader.read(op)


def _value(reader: ValueReader, op: Op) -> Any:
    """The value at the cursor, or nothing where it is dropped: where it ends is known without it."""
    while op.column != DROPPED:
        first = chr(reader.data[reader.at])
        if op.code is OpCode.JSON_OR_NULL:
            if first == "n":
                return None
            op = op.children[0]
        elif op.code is OpCode.JSON_CHOICE:
            choice = op.table[_CHOICES[first]]
            _expect_type(reader, choice >= 0)
            op = op.children[choice]
        else:
            return _OWN_STEPS[op.code](reader, op)
    return None


_CHOICES: Final = {"{": 0, "[": 1, '"': 2, **dict.fromkeys("-0123456789", 3), "t": 4, "f": 4, "n": 5}


def _object(reader: ValueReader, op: Op) -> dict[str, Any]:
    start = reader.at
    _expect(reader, "{")
    members = find_members(reader.data, start, reader.ends)
    last = dict(members)
    places = reader.known(_places_of_names, op)
    found: dict[int, Any] = {}
    for name, at in members:
        if name in places and last[name] == at:
            reader.at = at
            found[places[name]] = reader.read(op.children[places[name]].children[0])
    reader.at = start
    value = {}
    for place, child in enumerate(op.children):
        if place in found:
            one = found[place]
        elif child.code is not OpCode.JSON_FIELD:
            one = reader.read(child)
        elif len(child.children) < 2:
            raise BadValueError(Bad.MISSING, start)
        else:
            one = reader.read(child.children[1])
        if child.column != DROPPED:
            value[reader.names[child.column]] = one
    return value


def _places_of_names(op: Op) -> dict[str, int]:
    return {one.text.decode(): place for place, one in enumerate(op.children) if one.code is OpCode.JSON_FIELD}


def _array(reader: ValueReader, op: Op) -> list[Any]:
    _expect(reader, "[")
    found = []
    for at in find_items(reader.data, reader.at, reader.ends):
        reader.at = at
        found.append(reader.read(op.children[0]))
    return found


def _map(reader: ValueReader, op: Op) -> list[tuple[str, Any]]:
    start = reader.at
    _expect(reader, "{")
    places = {}
    for name, at in find_members(reader.data, start, reader.ends):
        _check_surrogates(name, start)
        places[name] = at
    found = []
    for name, at in places.items():
        reader.at = at
        found.append((name, reader.read(op.children[1])))
    return found


def _string(reader: ValueReader, op: Op) -> Any:
    _expect(reader, '"')
    text = parse_string(reader.data, reader.at)
    _check_surrogates(text, reader.at)
    type_ = reader.type(op)
    if type_.kind is ValueKind.ENUM:
        if text not in type_.symbols:
            raise BadValueError(Bad.SYMBOL, reader.at)
        return text
    if type_.kind is ValueKind.DECIMAL:
        if not op.flags & JSON_BASE64:
            _expect_type(reader, is_number(text))
            return _decimal(reader, op, text)
        data = parse_base64(text)
        _expect_type(reader, bool(data))
        return as_decimal(reader, op, int.from_bytes(data or b"", signed=True), reader.at)
    value = _MEANINGS[type_.kind](text)
    _expect_type(reader, value is not None)
    return value


_MEANINGS: Final[dict[ValueKind, Callable[[str], Any]]] = {
    ValueKind.STRING: str,
    ValueKind.BINARY: parse_base64,
    ValueKind.DATE: parse_date,
    ValueKind.TIME_US: parse_time,
    ValueKind.TIMESTAMP: parse_instant,
}


def _integer(reader: ValueReader, op: Op) -> Any:
    _expect(reader, "-0123456789")
    text = _own_text(reader)
    if reader.kind(op) is ValueKind.DECIMAL:
        return _decimal(reader, op, text, is_integer=True)
    value = parse_scaled(text, 0, is_integer=True)
    if isinstance(value, Bad):
        raise BadValueError(value, reader.at)
    return as_number(reader, op, value, reader.at)


def _number(reader: ValueReader, op: Op) -> Any:
    _expect(reader, "-0123456789")
    text = _own_text(reader)
    if reader.kind(op) is ValueKind.DECIMAL:
        return _decimal(reader, op, text)
    value = float(text)
    if reader.kind(op) is ValueKind.FLOAT:
        try:
            value = float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            raise BadValueError(Bad.RANGE, reader.at) from None
    if abs(value) == float("inf"):
        raise BadValueError(Bad.RANGE, reader.at)
    return value


def _decimal(reader: ValueReader, op: Op, text: str, *, is_integer: bool = False) -> Decimal:
    value = parse_scaled(text, reader.type(op).scale, is_integer=is_integer)
    if isinstance(value, Bad):
        raise BadValueError(value, reader.at)
    return as_decimal(reader, op, value, reader.at)


def _bool(reader: ValueReader, op: Op) -> bool:
    _expect(reader, "tf")
    return reader.data[reader.at] == ord("t")


def _any(reader: ValueReader, op: Op) -> str:
    return _own_text(reader)


def _own_text(reader: ValueReader) -> str:
    """The text of the value at the cursor."""
    return reader.data[reader.at : value_end(reader.data, reader.at, reader.ends)].decode()


def _expect(reader: ValueReader, first: str) -> None:
    _expect_type(reader, chr(reader.data[reader.at]) in first)


def _expect_type(reader: ValueReader, is_right: bool) -> None:
    if not is_right:
        raise BadValueError(Bad.TYPE, reader.at)


def _check_surrogates(text: str, at: int) -> None:
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise BadValueError(Bad.UTF8, at)


_OWN_STEPS: Final[dict[OpCode, ReadStep]] = {
    OpCode.JSON_OBJECT: _object,
    OpCode.JSON_ARRAY: _array,
    OpCode.JSON_MAP: _map,
    OpCode.JSON_STRING: _string,
    OpCode.JSON_INTEGER: _integer,
    OpCode.JSON_NUMBER: _number,
    OpCode.JSON_BOOL: _bool,
    OpCode.JSON_ANY: _any,
}

STEPS: Final[dict[OpCode, ReadStep]] = dict.fromkeys((*_OWN_STEPS, OpCode.JSON_OR_NULL, OpCode.JSON_CHOICE), _value)
