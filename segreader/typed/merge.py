"""The union of the types of several schemas: the reader's schema, where no version is chosen.

Every writer's values fit the columns of the union: by Avro's rules of schema resolution, and by what Protobuf and JSON
Schema call compatible. The newest type comes first in whatever has an order or a choice: names, fields, symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Final, NoReturn

from segreader.errors import OptionError
from segreader.typed.types import UNITS, Type, TypeField, ValueKind

_SIGNED: Final = (ValueKind.INT32, ValueKind.INT64)
_UNSIGNED: Final = (ValueKind.UINT32, ValueKind.UINT64)
_FLOATING: Final = (ValueKind.FLOAT, ValueKind.DOUBLE)
_NUMBERS: Final = (*_SIGNED, *_UNSIGNED, *_FLOATING)

_STORED: Final = {
    ValueKind.DATE: (ValueKind.INT32,),
    ValueKind.TIME_MS: (ValueKind.INT32,),
    ValueKind.TIME_US: (ValueKind.INT64, ValueKind.INT32),
    ValueKind.TIMESTAMP: (ValueKind.INT64, ValueKind.INT32),
    ValueKind.DECIMAL: (ValueKind.BINARY, ValueKind.FIXED),
    ValueKind.INTERVAL: (ValueKind.FIXED,),
    ValueKind.STRING: (ValueKind.FIXED,),
}
"""What Avro's logical types are without their name: a schema may add or remove it, and the values stay the same."""

_AS_TEXT: Final = (ValueKind.ENUM, ValueKind.DATE, ValueKind.TIME_US, ValueKind.TIMESTAMP)
"""What is text with a format, or out of a list, in JSON."""

_BRANCHES: Final = {
    ValueKind.BOOL: "boolean",
    ValueKind.INT32: "int",
    ValueKind.DATE: "int",
    ValueKind.TIME_MS: "int",
    ValueKind.INT64: "long",
    ValueKind.TIME_US: "long",
    ValueKind.TIMESTAMP: "long",
    ValueKind.FLOAT: "float",
    ValueKind.DOUBLE: "double",
    ValueKind.BINARY: "bytes",
    ValueKind.DECIMAL: "bytes",
    ValueKind.STRING: "string",
    ValueKind.LIST: "array",
    ValueKind.MAP: "map",
}
_WIDER: Final = {"int": ("long", "double"), "float": ("double",), "string": ("bytes",)}
"""Branches of Avro's unions that take the values of another one, each as it is."""


def merge_types(types: Sequence[Type]) -> Type:
    """The type that values of all these types can be read as.

    Fields keep the newest order, with those that only older types have behind. A field that one of them lacks is
    nullable unless it has a default. Numbers widen, text and bytes give bytes, enums have the symbols of all.

    Args:
        types: newest last.

    Raises:
        OptionError: there is no such type; the message names the field.
    """
    if not types:
        raise OptionError("there is no schema to read with")
    return reduce(lambda newer, older: _merged(newer, older, ""), reversed(types))


def _merged(newer: Type, older: Type, path: str) -> Type:
    if newer == older:
        return newer
    is_nullable = newer.is_nullable or older.is_nullable
    newer, older = replace(newer, is_nullable=False), replace(older, is_nullable=False)
    if newer == older:
        found = newer
    elif ValueKind.RECURSIVE in (newer.kind, older.kind):
        found = newer if newer.kind is ValueKind.RECURSIVE else older
    elif ValueKind.NULL in (newer.kind, older.kind):
        found, is_nullable = (older if newer.kind is ValueKind.NULL else newer), True
    elif newer.is_union or older.is_union:
        found = _union(newer, older, path)
    elif newer.kind is older.kind:
        found = _alike(newer, older, path)
    else:
        found = _unlike(newer, older, path)
    return replace(found, is_nullable=is_nullable)


def _refuse(newer: Type, older: Type, path: str) -> NoReturn:
    raise OptionError(
        f"the schemas do not agree on a type: {path or 'the value itself'}",
        found=f"{older}, later {newer}",
        expected="types that one column can hold",
        hint="Choose one of the schemas with schema_version=",
    )


def _alike(newer: Type, older: Type, path: str) -> Type:
    """The union of two types of the same kind."""
    match newer.kind:
        case ValueKind.STRUCT:
            return replace(newer, fields=_fields(newer.fields, older.fields, path), name=newer.name or older.name)
        case ValueKind.LIST | ValueKind.MAP:
            fields = tuple(
                replace(mine, type=_merged(mine.type, other.type, path), default=None)
                for mine, other in zip(newer.fields, older.fields, strict=True)
            )
            return replace(newer, fields=fields)
        case ValueKind.ENUM:
            symbols = tuple(dict.fromkeys((*newer.symbols, *older.symbols)))
            return replace(newer, symbols=symbols, default_symbol=newer.default_symbol or older.default_symbol)
        case ValueKind.DECIMAL if newer.scale == older.scale:
            return replace(newer, precision=max(newer.precision, older.precision))
        case ValueKind.TIMESTAMP | ValueKind.DURATION if newer.is_utc is older.is_utc:
            return replace(newer, unit=max(newer.unit, older.unit, key=UNITS.index))
        case ValueKind.STRING if newer.unit != older.unit:
            return newer if newer.unit else replace(older, name=newer.name)  # one is JSON text, so both are
    if replace(newer, name="") != replace(older, name=""):
        _refuse(newer, older, path)
    return newer


def _unlike(newer: Type, older: Type, path: str) -> Type:
    """The union of two types of different kinds."""
    kinds = {newer.kind, older.kind}
    if kinds <= set(_NUMBERS):
        if (number := _number(newer.kind, older.kind)) is not None:
            return replace(newer, kind=number)
    elif kinds == {ValueKind.TIME_MS, ValueKind.TIME_US}:
        return replace(newer, kind=ValueKind.TIME_US)
    elif kinds == {ValueKind.STRING, ValueKind.BINARY} and not newer.unit and not older.unit:
        return newer if newer.kind is ValueKind.BINARY else older  # not all bytes are text
    elif older.kind in _STORED.get(newer.kind, ()) and _holds(newer, older):
        return newer
    elif newer.kind in _STORED.get(older.kind, ()) and _holds(older, newer):
        return (
            newer if newer.kind is not ValueKind.INT32 or older.kind in (ValueKind.DATE, ValueKind.TIME_MS) else older
        )
    elif ValueKind.STRING in kinds and kinds & set(_AS_TEXT):
        return newer if newer.kind is ValueKind.STRING else older
    _refuse(newer, older, path)


def _holds(logical: Type, stored: Type) -> bool:
    """Whether a logical type is stored as another one: an interval in 12 bytes, a UUID that is no text in 16."""
    if logical.kind is ValueKind.STRING:
        return bool(logical.name) and stored.size == 16
    return logical.kind is not ValueKind.INTERVAL or stored.size == 12


def _number(newer: ValueKind, older: ValueKind) -> ValueKind | None:
    """The number type that has all values of two, or the nearest ones."""
    kinds = {newer, older}
    if kinds & set(_FLOATING):
        return ValueKind.DOUBLE
    if kinds <= set(_UNSIGNED):
        return ValueKind.UINT64
    return None if ValueKind.UINT64 in kinds else ValueKind.INT64


def _fields(newer: Sequence[TypeField], older: Sequence[TypeField], path: str) -> tuple[TypeField, ...]:
    """The fields of two structs, each field of one with the field of the other that is the same."""
    pairs = _pairs(newer, older)
    taken = {id(one) for one in pairs.values()}
    fields = []
    for mine in newer:
        other = pairs.get(mine.name)
        fields.append(_lacked(mine) if other is None else _field(mine, other, f"{path}.{mine.name}".lstrip(".")))
    names = {one.name for one in fields}
    for other in older:
        if id(other) not in taken:
            if other.name in names:
                raise OptionError(
                    f"two fields of the schemas have the same name: {f'{path}.{other.name}'.lstrip('.')}",
                    hint="Choose one of the schemas with schema_version=",
                )
            fields.append(_lacked(other))
    return tuple(fields)


def _pairs(newer: Sequence[TypeField], older: Sequence[TypeField]) -> dict[str, TypeField]:
    """The older field of each newer one's name: with its Protobuf number, else its name, else one's alias."""
    rest = {one.name: one for one in older}
    pairs: dict[str, TypeField] = {}

    def pair(mine: TypeField, name: str | None) -> None:
        if mine.name not in pairs and name in rest:
            pairs[mine.name] = rest.pop(name)

    by_number = {one.number: one.name for one in older if one.number}
    for mine in newer:
        pair(mine, by_number.get(mine.number))
    for mine in newer:
        pair(mine, mine.name)
    for mine in newer:
        pair(mine, next((alias for alias in mine.aliases if alias in rest), None))
    by_alias = {alias: one.name for one in older for alias in one.aliases}
    for mine in newer:
        pair(mine, by_alias.get(mine.name))
    return pairs


def _field(newer: TypeField, older: TypeField, path: str) -> TypeField:
    """A field that both have."""
    type_ = _merged(newer.type, older.type, path)
    names = dict.fromkeys((*newer.aliases, older.name, *older.aliases))
    given = newer if newer.default is not None else older
    default = given.default if _is_kept(given.type, type_) else None
    if given.default is not None and default is None:
        type_ = replace(type_, is_nullable=True)
    return TypeField(newer.name, type_, tuple(one for one in names if one != newer.name), newer.number, default)


def _lacked(one: TypeField) -> TypeField:
    """A field that only one of them has."""
    return one if one.default is not None else replace(one, type=replace(one.type, is_nullable=True))


def _is_kept(own: Type, merged: Type) -> bool:
    """Whether the JSON of a default means the same for the merged type as for its own."""
    if own.is_union is not merged.is_union:
        return False
    if own.kind is not merged.kind:
        return own.kind in _NUMBERS and merged.kind in _NUMBERS
    if own.unit != merged.unit:
        return False
    below = {one.name: one.type for one in merged.fields}
    return all(one.name in below and _is_kept(one.type, below[one.name]) for one in own.fields)


def _union(newer: Type, older: Type, path: str) -> Type:
    """The union of two types of which one is a union, or both are."""
    mine = newer if newer.is_union else _as_union(newer, path)
    fields = list(mine.fields)
    for other in (older if older.is_union else _as_union(older, path)).fields:
        at = _place(fields, other)
        if at is None:
            fields.append(other)
        elif (one := fields[at]).name == other.name or one.type.name:
            fields[at] = _field(one, other, f"{path}.{one.name}".lstrip("."))
    if len({one.name for one in fields}) < len(fields):
        _refuse(newer, older, path)
    return replace(mine, fields=tuple(fields))


def _as_union(one: Type, path: str) -> Type:
    """A union of one branch."""
    name = _BRANCHES.get(one.kind, "") if not one.name else one.name.rpartition(".")[2]
    if not name:
        _refuse(one, Type(kind=ValueKind.STRUCT, is_union=True), path)
    aliases = (one.name,) if one.name and one.name != name else ()
    field = TypeField(name, replace(one, is_nullable=True), aliases)
    return Type(kind=ValueKind.STRUCT, fields=(field,), is_union=True)


def _place(fields: Sequence[TypeField], other: TypeField) -> int | None:
    """Which branch of a newer union takes the values of an older branch, as ``avro`` chooses it."""
    if other.type.name:
        names = {other.name, *other.aliases}
        for at, one in enumerate(fields):
            if one.type.name and names & {one.name, *one.aliases}:
                return at
        return None
    wider = _WIDER.get(other.name, ())
    exact = [at for at, one in enumerate(fields) if not one.type.name and one.name == other.name]
    promoted = [at for at, one in enumerate(fields) if not one.type.name and one.name in wider]
    return next(iter(exact + promoted), None)
