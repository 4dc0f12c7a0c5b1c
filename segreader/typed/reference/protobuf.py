"""The steps of Protobuf's wire format, as upb reads it: each occurrence of a field is checked when it comes.

Source: Protobuf's "Encoding"; upb, which decides what that leaves open.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from segreader.typed.ops import DROPPED, PROTO_GROUP, PROTO_PACKABLE, PROTO_REPEATED, Bad, Op, OpCode
from segreader.typed.reference.reader import INT, LONG, BadValueError, ReadStep, ValueReader, as_text, unzigzag

_MessageState = dict[int, Any]
"""What came of a message until now, by the place of the field among the children: of a message within it such a state,
of a repeated field a list, of a map a dict. A state can go on with more bytes of the same message."""

_UNKNOWN_ENUM: Final = -1
"""In a state: an enum had a number that it does not know."""

_VARINTS: Final[dict[OpCode, Callable[[int], int]]] = {
    OpCode.PROTO_INT32: lambda value: (value + INT) % (2 * INT) - INT,
    OpCode.PROTO_INT64: lambda value: (value + LONG) % (2 * LONG) - LONG,
    OpCode.PROTO_UINT32: lambda value: value % (2 * INT),
    OpCode.PROTO_UINT64: lambda value: value,
    OpCode.PROTO_SINT32: lambda value: unzigzag(value % (2 * INT)),
    OpCode.PROTO_SINT64: lambda value: unzigzag(value),
    OpCode.PROTO_BOOL: lambda value: value != 0,
}
_FIXED: Final = {
    OpCode.PROTO_FIXED32: struct.Struct("<I"),
    OpCode.PROTO_FIXED64: struct.Struct("<Q"),
    OpCode.PROTO_SFIXED32: struct.Struct("<i"),
    OpCode.PROTO_SFIXED64: struct.Struct("<q"),
    OpCode.PROTO_FLOAT: struct.Struct("<f"),
    OpCode.PROTO_DOUBLE: struct.Struct("<d"),
}
_VARINT, _WIDE, _DELIMITED, _GROUP, _GROUP_END, _NARROW = range(6)

_TIME_OP: Final = Op(
    code=OpCode.PROTO_MESSAGE,
    children=(
        Op(code=OpCode.PROTO_FIELD, a=1, b=-1, column=0, children=(Op(code=OpCode.PROTO_INT64, column=0),)),
        Op(code=OpCode.PROTO_FIELD, a=2, b=-1, column=0, children=(Op(code=OpCode.PROTO_INT32, column=0),)),
    ),
)
"""Timestamp and Duration: seconds and nanoseconds."""


def _message(reader: ValueReader, op: Op) -> Any:
    state: _MessageState = {}
    _merge(reader, op, state, reader.stop)
    return _finish(reader, op, state)


def _merge(reader: ValueReader, op: Op, state: _MessageState, stop: int) -> None:
    """Read a message from the cursor to ``stop`` into its state."""
    outside, reader.stop = reader.stop, stop
    places = reader.known(_places_of_fields, op)
    while reader.at < stop:
        start = reader.at
        number, wire_type = _tag(reader)
        place = places.get(number)
        if place is None or not _read_field(reader, op, state, place, wire_type):
            _skip_field(reader, start, number, wire_type)
    reader.stop = outside


def _places_of_fields(op: Op) -> dict[int, int]:
    return {child.a: place for place, child in enumerate(op.children) if child.code is OpCode.PROTO_FIELD}


def _tag(reader: ValueReader) -> tuple[int, int]:
    start = reader.at
    tag = _short_varint(reader)
    number, wire_type = tag >> 3, tag & 7
    if number == 0 or wire_type > _NARROW:
        raise BadValueError(Bad.TAG, start)
    return number, wire_type


def _length(reader: ValueReader) -> int:
    """Where the bytes of a field end whose length is at the cursor."""
    start = reader.at
    size = _short_varint(reader)
    if size > reader.stop - reader.at:
        raise BadValueError(Bad.SHORT, start)
    return reader.at + size


def _short_varint(reader: ValueReader) -> int:
    start = reader.at
    value = reader.varint(5)
    if value >> 32:
        raise BadValueError(Bad.VARINT, start)
    return value


def _varint(reader: ValueReader) -> int:
    return reader.varint(10) % (2 * LONG)


def _skip_field(reader: ValueReader, start: int, number: int, wire_type: int) -> int:
    """Step over what comes behind a tag; gives where the content of a group ends."""
    if wire_type == _VARINT:
        _varint(reader)
    elif wire_type == _DELIMITED:
        reader.at = _length(reader)
    elif wire_type in (_WIDE, _NARROW):
        reader.take(8 if wire_type == _WIDE else 4, reader.at)
    elif wire_type == _GROUP_END:
        raise BadValueError(Bad.TAG, start)
    else:
        reader.enter(start)
        while True:
            inner_start = reader.at
            inner, wire_type = _tag(reader)
            if wire_type == _GROUP_END and inner == number:
                reader.depth -= 1
                return inner_start
            _skip_field(reader, inner_start, inner, wire_type)
    return reader.at


def _read_field(reader: ValueReader, op: Op, state: _MessageState, place: int, wire_type: int) -> bool:
    """Read one occurrence of a field behind its tag, or a run of them; false: it cannot have this wire type."""
    field = op.children[place]
    child = field.children[0]
    own_type = _GROUP if field.flags & PROTO_GROUP else _wire_type(child.code)
    is_packed = bool(field.flags & PROTO_PACKABLE) and wire_type == _DELIMITED
    if wire_type != own_type and not is_packed:
        return False
    start = reader.at
    if own_type in (_DELIMITED, _GROUP):
        stop = after = _length(reader) if own_type == _DELIMITED else _skip_field(reader, start, field.a, _GROUP)
        if own_type == _GROUP:
            after, reader.at = reader.at, start
        _clear_oneof(op, state, place)
        if reader.known(_fills_column, child):
            _read_content(reader, field, state, place, stop)
        reader.at = after
    elif is_packed:
        outside, reader.stop = reader.stop, _length(reader)
        while reader.at < reader.stop:
            _read_number(reader, op, state, place)
        reader.stop = outside
    else:
        _read_number(reader, op, state, place)
    return True


def _wire_type(code: OpCode) -> int:
    if code in _VARINTS or code is OpCode.PROTO_ENUM:
        return _VARINT
    if code in _FIXED:
        return _NARROW if _FIXED[code].size == 4 else _WIDE
    return _DELIMITED


def _fills_column(op: Op) -> bool:
    """Whether anything that a step of Protobuf reads is kept."""
    return op.column != DROPPED or any(_fills_column(child) for child in op.children)


def _clear_oneof(op: Op, state: _MessageState, place: int) -> None:
    """One member of a oneof came: the others did not."""
    oneof = op.children[place].b
    if oneof >= 0:
        for other, field in enumerate(op.children):
            if other != place and field.code is OpCode.PROTO_FIELD and field.b == oneof:
                state.pop(other, None)


def _read_number(reader: ValueReader, op: Op, state: _MessageState, place: int) -> None:
    field = op.children[place]
    child = field.children[0]
    value: Any
    if child.code in _FIXED:
        value = _FIXED[child.code].unpack(reader.take(_FIXED[child.code].size, reader.at))[0]
    elif child.code is OpCode.PROTO_ENUM:
        value = _enum_symbol(reader, child, _VARINTS[OpCode.PROTO_INT32](_varint(reader)))
        if value is None:
            state[_UNKNOWN_ENUM] = True
            return
    else:
        value = _VARINTS[child.code](_varint(reader))
    _clear_oneof(op, state, place)
    if field.flags & PROTO_REPEATED:
        state.setdefault(place, []).append(value)
    else:
        state[place] = value


def _enum_symbol(reader: ValueReader, op: Op, number: int) -> str | None:
    """The symbol of a number; ``None``: there is none, in an enum that is closed."""
    numbers = op.table[::2]
    if number not in numbers:
        return None if op.a else str(number)
    index = op.table[2 * numbers.index(number) + 1]
    return "" if op.column == DROPPED else reader.type(op).symbols[index]


def _read_content(reader: ValueReader, field: Op, state: _MessageState, place: int, stop: int) -> None:
    """Read the bytes from the cursor to ``stop`` into a field of strings, bytes or messages."""
    child, start = field.children[0], reader.at
    if child.code in (OpCode.PROTO_STRING, OpCode.PROTO_BYTES):
        data = reader.data[start:stop]
        value = as_text(data, start) if child.code is OpCode.PROTO_STRING else data
        _put(field, state, place, value)
        return
    is_repeated = bool(field.flags & PROTO_REPEATED)
    if child.code is OpCode.PROTO_JSON:
        if place in state and not is_repeated:
            raise BadValueError(Bad.PARTS, start)
        _put(field, state, place, _within(reader, start, stop, _JSON_READERS[child.a]))
        return
    inner: _MessageState = {} if is_repeated else state.setdefault(place, {})
    is_time = child.code in (OpCode.PROTO_TIMESTAMP, OpCode.PROTO_DURATION)
    reader.enter(start)
    _merge(reader, _TIME_OP if is_time else child, inner, stop)
    reader.depth -= 1
    if is_time:
        _microseconds(child, inner, start)
    if child.code is OpCode.PROTO_MAP_ENTRY:
        if _UNKNOWN_ENUM not in inner:
            key, value = (_finish_field(reader, child, inner, k) for k in (0, 1))
            state.setdefault(place, {})[key] = value
    elif is_repeated:
        state.setdefault(place, []).append(_finish_content(reader, child, inner))


def _within(reader: ValueReader, start: int, stop: int, read: Callable[[ValueReader], str]) -> str:
    """What ``read`` makes of the bytes of a message within another one."""
    outside = reader.at, reader.stop
    reader.at, reader.stop = start, stop
    reader.enter(start)
    text = read(reader)
    reader.depth -= 1
    reader.at, reader.stop = outside
    return text


def _fields_of(reader: ValueReader) -> Iterator[tuple[int, int]]:
    """Each field of a message up to ``stop``: its tag, with the cursor behind it, and where what has a length ends."""
    while reader.at < reader.stop:
        start = reader.at
        number, wire_type = _tag(reader)
        at = reader.at
        _skip_field(reader, start, number, wire_type)
        after = reader.at
        reader.at = at
        if wire_type == _DELIMITED:
            _length(reader)
        yield number << 3 | wire_type, after
        reader.at = after


def _struct_text(reader: ValueReader) -> str:
    base = reader.at
    entries: list[tuple[str | None, tuple[int, int]]] = []
    places: dict[str, int] = {}
    for tag, end in _fields_of(reader):
        if tag != 1 << 3 | _DELIMITED:
            continue
        outside, reader.stop = reader.stop, end
        reader.enter(reader.at)
        key, value = "", None
        for inner, inner_end in _fields_of(reader):
            if inner == 1 << 3 | _DELIMITED:
                key = as_text(reader.data[reader.at : inner_end], reader.at)
            elif inner == 2 << 3 | _DELIMITED:
                if value is not None:
                    raise BadValueError(Bad.PARTS, reader.at)
                value = reader.at, inner_end
        entry: tuple[str | None, tuple[int, int]] = key, value or (base, base)
        if (place := places.setdefault(key, len(entries))) < len(entries):  # the first gets the value of the last
            entries[place], entry = entry, (None, entries[place][1])
        entries.append(entry)
        reader.depth -= 1
        reader.stop = outside
    reader.depth += 1  # within an entry
    texts = [(key, _within(reader, *value, _value_text)) for key, value in entries]  # those replaced must be sound, too
    members = [f"{_quoted(key)}:{text}" for key, text in texts if key is not None]
    reader.depth -= 1
    return f"{{{','.join(members)}}}"


def _list_text(reader: ValueReader) -> str:
    items = [
        _within(reader, reader.at, end, _value_text) for tag, end in _fields_of(reader) if tag == 1 << 3 | _DELIMITED
    ]
    return f"[{','.join(items)}]"


_CONTENTS = {5: _struct_text, 6: _list_text}
"""What reads the content of a value, by the number of its member."""


def _value_text(reader: ValueReader) -> str:
    kind, text, content = 0, "null", (0, 0)
    for tag, end in _fields_of(reader):
        former = kind, content
        data = reader.data[reader.at : end]
        match tag >> 3, tag & 7:
            case (1, 0):
                text = "null"
            case (2, 1):
                value = _FIXED[OpCode.PROTO_DOUBLE].unpack(data)[0]
                if value - value != 0:
                    raise BadValueError(Bad.RANGE, reader.at)
                text = _digits(value)
            case (3, 2):
                text = _quoted(as_text(data, reader.at))
            case (4, 0):
                text = "true" if _varint(reader) else "false"
            case (5 | 6, 2):
                if tag >> 3 == kind:
                    raise BadValueError(Bad.PARTS, reader.at)
                content = reader.at, end
            case _:
                continue
        kind = tag >> 3
        if former[0] in _CONTENTS:  # it is replaced, but part of the message
            _within(reader, *former[1], _CONTENTS[former[0]])
    return _within(reader, *content, _CONTENTS[kind]) if kind in _CONTENTS else text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _digits(value: float) -> str:
    """The shortest digits that are read as the same number: 15, or more where it needs them."""
    least = 1 if abs(value) < 1e-300 else 15
    return next(text for digits in range(least, 18) if float(text := f"{value:.{digits}g}") == value)


_JSON_READERS: Final = (_struct_text, _value_text, _list_text)


def _put(field: Op, state: _MessageState, place: int, value: Any) -> None:
    if field.flags & PROTO_REPEATED:
        state.setdefault(place, []).append(value)
    else:
        state[place] = value


def _microseconds(op: Op, state: _MessageState, at: int) -> int:
    seconds, nanos = state.get(0, 0), state.get(1, 0)
    is_down = op.code is OpCode.PROTO_TIMESTAMP or nanos >= 0
    value: int = seconds * 1_000_000 + (nanos // 1000 if is_down else -(-nanos // 1000))
    if not -LONG <= value < LONG:
        raise BadValueError(Bad.RANGE, at)
    return value


def _finish(reader: ValueReader, op: Op, state: _MessageState) -> Any:
    """The value of a message of which all came."""
    found = {}
    for place, child in enumerate(op.children):
        column = reader.known(_column, child)
        if column != DROPPED:
            is_field = child.code is OpCode.PROTO_FIELD
            value = _finish_field(reader, op, state, place) if is_field else reader.read(child)
            if op.column == DROPPED:
                return value  # a message around one value
            found[reader.names[column]] = value
    return found


def _column(op: Op) -> int:
    """The column that a step of Protobuf fills, itself or by the one step below it that is kept."""
    if op.column != DROPPED or op.code not in (OpCode.PROTO_FIELD, OpCode.PROTO_MESSAGE):
        return op.column
    return max((_column(child) for child in op.children), default=DROPPED)


def _finish_field(reader: ValueReader, op: Op, state: _MessageState, place: int) -> Any:
    field = op.children[place]
    value = state.get(place)
    if field.flags & PROTO_REPEATED:
        return list(value.items()) if isinstance(value, dict) else value or []
    if place in state:
        return _finish_content(reader, field.children[0], value)
    if len(field.children) < 2:
        raise BadValueError(Bad.MISSING, reader.at)
    return reader.read(field.children[1])


def _finish_content(reader: ValueReader, child: Op, value: Any) -> Any:
    if child.code is OpCode.PROTO_MESSAGE:
        return _finish(reader, child, value)
    if child.code in (OpCode.PROTO_TIMESTAMP, OpCode.PROTO_DURATION):
        return _microseconds(child, value, reader.at)
    return value


def _value_alone(reader: ValueReader, op: Op) -> Any:
    """A value of a field without a field: all bytes up to the end, or a number. It is the default of one."""
    field = Op(code=OpCode.PROTO_FIELD, a=1, b=-1, column=op.column, children=(op,))
    state: _MessageState = {}
    if _wire_type(op.code) != _DELIMITED:
        _read_number(reader, Op(code=OpCode.PROTO_MESSAGE, children=(field,)), state, 0)
        return state.get(0)
    _read_content(reader, field, state, 0, reader.stop)
    reader.at = reader.stop
    return _finish_content(reader, op, state[0])


STEPS: Final[dict[OpCode, ReadStep]] = {
    OpCode.PROTO_MESSAGE: _message,
    **{code: _value_alone for code in OpCode if OpCode.PROTO_INT32 <= code <= OpCode.PROTO_DURATION},
    OpCode.PROTO_JSON: _value_alone,
}
