"""Types and columns as Arrow has them. Columns are wrapped without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from segreader.errors import OptionError
from segreader.typed.ops import Column, ColumnLayout
from segreader.typed.types import Type, TypeField, ValueKind

_PLAIN: Final = {
    ValueKind.BOOL: pa.bool_(),
    ValueKind.INT32: pa.int32(),
    ValueKind.INT64: pa.int64(),
    ValueKind.UINT32: pa.uint32(),
    ValueKind.UINT64: pa.uint64(),
    ValueKind.FLOAT: pa.float32(),
    ValueKind.DOUBLE: pa.float64(),
    ValueKind.STRING: pa.string(),
    ValueKind.BINARY: pa.binary(),
    ValueKind.DATE: pa.date32(),
    ValueKind.TIME_MS: pa.time32("ms"),
    ValueKind.TIME_US: pa.time64("us"),
    ValueKind.INTERVAL: pa.month_day_nano_interval(),
    ValueKind.ENUM: pa.dictionary(pa.int32(), pa.string()),
    ValueKind.NULL: pa.null(),
}
_MOST_DIGITS_OF_128: Final = 38


def arrow_type(type_: Type) -> pa.DataType:
    """The type as Arrow's. Fields within it are nullable as they are; whether the column itself is, a field says.

    Raises:
        OptionError: a field contains its own type.
    """
    return _arrow_type(type_, "")


def _arrow_type(type_: Type, path: str) -> pa.DataType:
    match type_.kind:
        case ValueKind.STRUCT:
            return pa.struct([_arrow_field(one, one.name, path) for one in type_.fields])
        case ValueKind.LIST:
            return pa.list_(_arrow_field(type_.fields[0], "item", path))
        case ValueKind.MAP:
            key, value = type_.fields
            return pa.map_(_arrow_type(key.type, path), _arrow_field(value, "value", path))
        case ValueKind.FIXED:
            return pa.binary(type_.size)
        case ValueKind.DECIMAL:
            make = pa.decimal128 if type_.precision <= _MOST_DIGITS_OF_128 else pa.decimal256
            return make(type_.precision, type_.scale)
        case ValueKind.TIMESTAMP:
            return pa.timestamp(type_.unit, tz="UTC" if type_.is_utc else None)
        case ValueKind.DURATION:
            return pa.duration(type_.unit)
        case ValueKind.RECURSIVE:
            raise OptionError(
                f"a field contains its own type, so it cannot be a column: {path}",
                found=type_.name,
                hint="Leave it out: name the other fields with columns=",
            )
    return _PLAIN[type_.kind]


def _arrow_field(field: TypeField, name: str, path: str) -> pa.Field:
    below = f"{path}.{name}" if path and name == field.name else name if name == field.name else path
    return pa.field(name, _arrow_type(field.type, below), nullable=field.type.is_nullable)


class FilledColumn(NamedTuple):
    """One column of a layout as the native executor has filled it.

    Args:
        length: entries.
        nulls: of them.
        validity: a bit an entry; not looked at without nulls.
        values: entries, or offsets, one more.
        data: what the offsets divide, of strings and bytes: ``size`` bytes of it.
        symbols: of an enum, those of its type and more.
    """

    length: int
    nulls: int = 0
    validity: bytearray | None = None
    values: bytearray | None = None
    data: bytearray | None = None
    size: int = 0
    symbols: pa.Array | None = None


def array_of(
    layout: ColumnLayout, types: Sequence[pa.DataType], widths: Sequence[int], filled: Sequence[Any]
) -> pa.Array:
    """The root column of a layout, over the buffers of all of them.

    Args:
        types: of the columns.
        widths: bytes of an entry in the buffer of values; 0: bits, or no buffer.
        filled: a ``FilledColumn`` for each.
    """
    return _array(layout, types, widths, filled, layout.columns[0])


def _array(
    layout: ColumnLayout,
    types: Sequence[pa.DataType],
    widths: Sequence[int],
    filled: Sequence[FilledColumn],
    column: Column,
) -> pa.Array:
    one, kind, type_ = filled[column.index], column.type.kind, types[column.index]
    length = one.length
    if kind is ValueKind.NULL:
        return pa.nulls(length)
    buffers = [_part(one.validity, (length + 7) // 8) if one.nulls else None]
    children = [_array(layout, types, widths, filled, layout.columns[index]) for index in column.children]
    if kind is ValueKind.STRUCT:
        return pa.Array.from_buffers(type_, length, buffers, one.nulls, 0, children)
    if kind is ValueKind.BOOL:
        buffers.append(_part(one.values, (length + 7) // 8))
        return pa.Array.from_buffers(type_, length, buffers, one.nulls)
    has_offsets = kind in (ValueKind.STRING, ValueKind.BINARY, ValueKind.LIST, ValueKind.MAP)
    buffers.append(_part(one.values, (length + has_offsets) * widths[column.index]))
    if kind is ValueKind.LIST:
        return pa.Array.from_buffers(type_, length, buffers, one.nulls, 0, children)
    if kind is ValueKind.MAP:
        entries = pa.struct([type_.key_field, type_.item_field])
        pairs = pa.Array.from_buffers(entries, len(children[0]), [None], 0, 0, children)
        return pa.Array.from_buffers(type_, length, buffers, one.nulls, 0, [pairs])
    if kind is ValueKind.ENUM:
        return pa.DictionaryArray.from_buffers(type_, length, buffers, one.symbols, one.nulls)
    if has_offsets:
        buffers.append(_part(one.data, one.size))
    return pa.Array.from_buffers(type_, length, buffers, one.nulls)


def _part(buffer: bytearray | None, size: int) -> pa.Buffer:
    return pa.py_buffer(memoryview(buffer if buffer is not None else b"")[:size])


def array_of_values(type_: Type, values: Sequence[Any]) -> pa.Array:
    """Python values, as ``reference`` gives them, as a column of the type: the same array that ``array_of`` makes."""
    return _encoded(type_, pa.array(values, _decoded_type(type_)), may_be_null=True)


def _decoded_type(type_: Type) -> pa.DataType:
    """The type with text in place of enums: Arrow numbers their symbols as they come."""
    if type_.kind is ValueKind.ENUM:
        return pa.string()
    below = [pa.field(one.name, _decoded_type(one.type)) for one in type_.fields]
    match type_.kind:
        case ValueKind.STRUCT:
            return pa.struct(below)
        case ValueKind.LIST:
            return pa.list_(below[0])
        case ValueKind.MAP:
            return pa.map_(below[0].type, below[1].type)
    return arrow_type(type_)


def _encoded(type_: Type, array: pa.Array, *, may_be_null: bool = False) -> pa.Array:
    wanted = arrow_type(type_)
    match type_.kind:
        case ValueKind.ENUM:
            texts = array.to_pylist()
            symbols = list(dict.fromkeys((*type_.symbols, *(one for one in texts if one is not None))))
            numbers = {symbol: number for number, symbol in enumerate(symbols)}
            missing = None if may_be_null or type_.is_nullable else 0  # in a struct that is null
            indices = pa.array([missing if one is None else numbers[one] for one in texts], pa.int32())
            return pa.DictionaryArray.from_arrays(indices, pa.array(symbols, pa.string()))
        case ValueKind.STRUCT:
            parts = array.flatten()  # what is in a struct that is null becomes null
            children = [_encoded(one.type, part) for one, part in zip(type_.fields, parts, strict=True)]
        case ValueKind.LIST:
            children = [_encoded(type_.fields[0].type, array.values)]
        case ValueKind.MAP:
            pairs = [
                _encoded(one.type, part) for one, part in zip(type_.fields, (array.keys, array.items), strict=True)
            ]
            entries = pa.struct([wanted.key_field, wanted.item_field])
            children = [pa.Array.from_buffers(entries, len(pairs[0]), [None], 0, 0, pairs)]
        case _:
            return array
    count = 1 if type_.kind is ValueKind.STRUCT else 2
    return pa.Array.from_buffers(wanted, len(array), array.buffers()[:count], array.null_count, array.offset, children)
