"""Types and columns as Arrow has them. Columns are wrapped without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from segreader.errors import OptionError
from segreader.typed.ops import ColumnLayout
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


Filled = tuple[int, int, memoryview | None, memoryview | None, memoryview | None]
"""A column that the native executor has filled: entries, nulls of them, bits of validity, values or offsets, data."""


def array_of(
    layout: ColumnLayout,
    types: Sequence[pa.DataType],
    filled: Sequence[Filled],
    symbols: Mapping[int, pa.Array],
) -> pa.Array:
    """The root column of a layout, over the buffers of all of them.

    Args:
        types: of the columns.
        filled: what is in each.
        symbols: of those that are enums.
    """
    arrays: list[pa.Array] = [None] * len(filled)
    for column in reversed(layout.columns):  # those below it come before a column
        kind, type_ = column.type.kind, types[column.index]
        length, nulls, validity, values, data = filled[column.index]
        buffers = [None if validity is None else pa.py_buffer(validity)]
        if values is not None or kind is ValueKind.FIXED:  # one of no bytes has an empty buffer
            buffers.append(pa.py_buffer(b"" if values is None else values))
        if data is not None:
            buffers.append(pa.py_buffer(data))
        if kind is ValueKind.ENUM:
            array = pa.DictionaryArray.from_buffers(type_, length, buffers, symbols[column.index], nulls)
        elif kind is ValueKind.NULL:
            array = pa.nulls(length)
        else:
            children = [arrays[index] for index in column.children]
            if kind is ValueKind.MAP:
                entries = pa.struct([type_.key_field, type_.item_field])
                children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, 0, children)]
            array = pa.Array.from_buffers(type_, length, buffers, nulls, 0, children or None)
        arrays[column.index] = array
    return arrays[0]


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
    """The array with numbers in place of symbols; where there may be no nulls, without those below a null struct."""
    wanted = arrow_type(type_)
    may_be_null |= type_.is_nullable
    children: list[pa.Array] | None = None
    match type_.kind:
        case ValueKind.ENUM:
            texts = array.to_pylist()
            symbols = list(dict.fromkeys((*type_.symbols, *(one for one in texts if one is not None))))
            numbers = {symbol: number for number, symbol in enumerate(symbols)}
            missing = None if may_be_null else 0
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
        case ValueKind.NULL:
            return array
    buffers = array.buffers()[: array.type.num_buffers]
    nulls = array.null_count
    if not may_be_null:
        buffers[0], nulls = None, 0
    return pa.Array.from_buffers(wanted, len(array), buffers, nulls, array.offset, children)
