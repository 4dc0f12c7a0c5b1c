"""The type of a typed column: what every format's schemas map to, and what maps one to one to Arrow.

Nothing here knows Arrow: a plan, a split and a saved state carry types as JSON.
"""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from segreader.values import dataclass


class ValueKind(StrEnum):
    """What a column holds, by Arrow's names."""

    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    FIXED = "fixed_size_binary"  # of ``size`` bytes
    DECIMAL = "decimal"  # of ``precision`` digits, ``scale`` of them behind the point; decimal256 above 38
    DATE = "date32"
    TIME_MS = "time32[ms]"
    TIME_US = "time64[us]"
    TIMESTAMP = "timestamp"  # in ``unit``; ``is_utc``: an instant, else a local time
    DURATION = "duration"  # in ``unit``
    INTERVAL = "month_day_nano_interval"
    ENUM = "dictionary"  # text out of ``symbols``, with int32 indices
    STRUCT = "struct"  # of ``fields``
    LIST = "list"  # of ``fields[0]``
    MAP = "map"  # from ``fields[0]`` to ``fields[1]``
    NULL = "null"  # nothing but nulls
    RECURSIVE = "recursive"  # a type within itself: it can be left out of what is read, and not be a column


UNITS: Final = ("ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class TypeField:
    """A field of a struct; the item of a list; the key or the value of a map.

    Args:
        aliases: other names that writers may have for it (Avro).
        number: of a Protobuf field; 0 elsewhere.
        default: JSON text of the value that a record without the field has; ``None``: there is none (Avro, JSON).
    """

    name: str
    type: Type
    aliases: tuple[str, ...] = ()
    number: int = 0
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of a column, with those of the columns below it.

    Args:
        is_nullable: whether it may be null.
        fields: as ``ValueKind`` says.
        name: full name of an Avro record, enum or fixed: unions choose a branch by it.
        is_union: of a struct: it has a nullable field for each branch of an Avro union, and one of them has the value.
        symbols: of an enum, in the order of their indices.
        default_symbol: of an enum, what stands for a symbol that it does not have (Avro); ``None``: nothing does.
    """

    kind: ValueKind
    is_nullable: bool = False
    fields: tuple[TypeField, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    unit: str = ""
    is_utc: bool = False
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    name: str = ""
    is_union: bool = False

    def __str__(self) -> str:
        """The type in a word or two, for messages: ``decimal(10, 2)``, ``timestamp[us, UTC]``, ``struct``."""
        match self.kind:
            case ValueKind.DECIMAL:
                return f"decimal({self.precision}, {self.scale})"
            case ValueKind.TIMESTAMP | ValueKind.DURATION:
                return f"{self.kind.value}[{self.unit}{', UTC' if self.is_utc else ''}]"
            case ValueKind.FIXED:
                return f"{self.kind.value}[{self.size}]"
        return "union" if self.is_union else self.kind.value

    def field(self, name: str) -> TypeField | None:
        """The field of that name, if there is one."""
        return next((one for one in self.fields if one.name == name), None)

    def to_json(self) -> str:
        """The type as text, the same for equal types."""
        return json.dumps(_document(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Type:
        """The type that ``to_json`` gave.

        Raises:
            ValueError: it is none.
        """
        try:
            return _type_of(json.loads(text))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a type of a column: {type(error).__name__}") from error


_PLAIN: Final = ("is_nullable", "size", "precision", "scale", "unit", "is_utc", "default_symbol", "name", "is_union")


def _document(one: Type) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": one.kind.value}
    for name in _PLAIN:
        if value := getattr(one, name):
            document[name] = value
    if one.symbols:
        document["symbols"] = list(one.symbols)
    if one.fields:
        document["fields"] = [_field_document(field) for field in one.fields]
    return document


def _field_document(field: TypeField) -> dict[str, Any]:
    document: dict[str, Any] = {"name": field.name, "type": _document(field.type)}
    if field.aliases:
        document["aliases"] = list(field.aliases)
    if field.number:
        document["number"] = field.number
    if field.default is not None:
        document["default"] = field.default
    return document


def _type_of(document: dict[str, Any]) -> Type:
    given: dict[str, Any] = {name: document[name] for name in _PLAIN if name in document}
    return Type(
        kind=ValueKind(document["kind"]),
        fields=tuple(
            TypeField(
                one["name"],
                _type_of(one["type"]),
                tuple(one.get("aliases", ())),
                one.get("number", 0),
                one.get("default"),
            )
            for one in document.get("fields", ())
        ),
        symbols=tuple(document.get("symbols", ())),
        **given,
    )


def select(whole: Type, paths: tuple[str, ...]) -> Type:
    """The type with only the fields that ``paths`` name, in its own order; all of it where one path is empty.

    Args:
        paths: names of fields with dots between, below this type. Lists have no name of their own in a path:
            ``items.price`` is the price of each item. A map is taken whole.

    Raises:
        KeyError: a path names no field; its argument is the path.
    """
    if "" in paths or whole.kind not in (ValueKind.STRUCT, ValueKind.LIST):
        for path in paths:
            if path and whole.kind not in (ValueKind.STRUCT, ValueKind.LIST):
                raise KeyError(path)
        return whole
    if whole.kind is ValueKind.LIST:
        item = whole.fields[0]
        return _with_fields(whole, (_with_type(item, select(item.type, paths)),))
    below: dict[str, list[str]] = {}
    for path in paths:
        name = _first_name(whole, path)
        below.setdefault(name, []).append(path[len(name) + 1 :])
    kept = []
    for field in whole.fields:
        if field.name in below:
            try:
                kept.append(_with_type(field, select(field.type, tuple(below[field.name]))))
            except KeyError as error:
                raise KeyError(f"{field.name}.{error.args[0]}") from None
    return _with_fields(whole, tuple(kept))


def _first_name(whole: Type, path: str) -> str:
    """The field that a path begins with: names may have dots themselves."""
    names = [one.name for one in whole.fields if path == one.name or path.startswith(one.name + ".")]
    if not names:
        raise KeyError(path)
    return max(names, key=len)


def _with_fields(one: Type, fields: tuple[TypeField, ...]) -> Type:
    return replace(one, fields=fields)


def _with_type(field: TypeField, type_: Type) -> TypeField:
    return replace(field, type=type_)


Kind, Field = ValueKind, TypeField  # the names of the first hour: to be replaced by those above
