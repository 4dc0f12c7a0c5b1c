"""Avro schemas: the columns that they mean, and the steps that read values of a writer's schema into them.

A schema is parsed into nodes, one for each type in it; a named type is one node however often it is named, so recursive
schemas give nodes with cycles. ``type_of`` unrolls them into a ``Type``, a tree. ``compile_schema`` walks the writer's
nodes beside the columns of a reader's type, by "Schema Resolution" of the specification, and gives steps.

More is accepted than the specification allows where the bytes do not depend on it: any text as a name, and defaults
that do not fit their type, which count as none. Names of types are compared only where they choose a branch of a union.
Source: Apache Avro 1.12.0, Specification.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Final, NoReturn, TypeGuard

from segreader.errors import OptionError
from segreader.typed.ops import DROPPED, MOST_DEPTH, ColumnLayout, Op, OpCode
from segreader.typed.schema import Schema
from segreader.typed.types import Type, TypeField, ValueKind
from segreader.values import dataclass

MOST_TEXT: Final = 1 << 24
"""Characters of a schema, at most."""

MOST_COLUMNS: Final = 1 << 16
"""Columns of a type, at most: named types that name each other several times double with each level."""

MOST_STEPS: Final = 1 << 20
"""Steps of a compiled schema, at most."""

MOST_DEFAULTS: Final = 1 << 16
"""Values in the defaults of a type, at most: that of a record has those of its fields."""

MOST_FIXED: Final = 1 << 16
"""Bytes of a fixed type that is a column, at most: nulls take as many."""

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


# Schemas as nodes


@dataclass(slots=True, eq=False)
class _AvroNode:
    """A type of a schema.

    Args:
        kind: its name in the specification; ``record`` also for errors.
        name: full name of a record, enum or fixed.
        below: the items of an array, the values of a map, the branches of a union.
        scalar: the column of what has nothing below it, logical types included.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[_AvroField] = field(default_factory=list)
    below: list[_AvroNode] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    size: int = 0
    scalar: Type | None = None

    def __str__(self) -> str:
        logical = f" ({self.scalar})" if self.scalar and _PLAIN.get(self.kind) not in (None, self.scalar.kind) else ""
        return f"{self.kind}{' ' if self.name else ''}{self.name}{logical}"


@dataclass(slots=True, eq=False)
class _AvroField:
    """A field of a record. ``default`` is its JSON value, if ``has_default``."""

    name: str
    type: _AvroNode
    aliases: tuple[str, ...]
    has_default: bool
    default: Any


_PLAIN: Final = {
    "null": ValueKind.NULL,
    "boolean": ValueKind.BOOL,
    "int": ValueKind.INT32,
    "long": ValueKind.INT64,
    "float": ValueKind.FLOAT,
    "double": ValueKind.DOUBLE,
    "bytes": ValueKind.BINARY,
    "string": ValueKind.STRING,
    "fixed": ValueKind.FIXED,
}

_LOGICAL: Final = {
    ("int", "date"): Type(kind=ValueKind.DATE),
    ("int", "time-millis"): Type(kind=ValueKind.TIME_MS),
    ("long", "time-micros"): Type(kind=ValueKind.TIME_US),
    ("long", "timestamp-millis"): Type(kind=ValueKind.TIMESTAMP, unit="ms", is_utc=True),
    ("long", "timestamp-micros"): Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True),
    ("long", "timestamp-nanos"): Type(kind=ValueKind.TIMESTAMP, unit="ns", is_utc=True),
    ("long", "local-timestamp-millis"): Type(kind=ValueKind.TIMESTAMP, unit="ms"),
    ("long", "local-timestamp-micros"): Type(kind=ValueKind.TIMESTAMP, unit="us"),
    ("long", "local-timestamp-nanos"): Type(kind=ValueKind.TIMESTAMP, unit="ns"),
    ("string", "uuid"): Type(kind=ValueKind.STRING),
}
_UUID_SIZE: Final = 16
_DURATION_SIZE: Final = 12
_MOST_DIGITS: Final = 76  # of a decimal256


def _parse(schema: Schema) -> _AvroNode:
    """The node of a schema, after those of the schemas that it names."""
    names: dict[str, _AvroNode] = {}
    parsed: set[str] = set()

    def parse(one: Schema) -> _AvroNode:
        for reference in one.references:
            if reference.schema.text not in parsed:  # several may name the same one
                parsed.add(reference.schema.text)
                parse(reference.schema)
        if len(one.text) > MOST_TEXT:
            raise OptionError(
                "an Avro schema is too long", found=f"{len(one.text):,} characters", expected=f"at most {MOST_TEXT:,}"
            )
        try:
            document = json.loads(one.text)
        except ValueError as error:
            place = f", line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            raise OptionError(
                f"an Avro schema is not JSON{place}", hint="A schema is JSON, as in a .avsc file"
            ) from None
        return _SchemaParser(names).node(document, "", "", 0)

    return parse(schema)


def _invalid(place: str, what: str, *, found: object = None, expected: object = None) -> NoReturn:
    raise OptionError(f"not a valid Avro schema: {_cut(place or 'the root')}: {what}", found=found, expected=expected)


def _cut(text: str) -> str:
    """The beginning of a text: names may be long."""
    return text if len(text) <= 200 else text[:199] + "…"


def _shown(value: object) -> str:
    """A part of a schema for a message: what it is, and its first characters."""
    text = (
        json.dumps(value) if not isinstance(value, dict | list) else {dict: "an object", list: "an array"}[type(value)]
    )
    return _cut(text)


class _SchemaParser:
    """Makes nodes of JSON values; keeps the types that were named so far."""

    def __init__(self, names: dict[str, _AvroNode]) -> None:
        self._names = names

    def node(self, value: Any, namespace: str, place: str, depth: int) -> _AvroNode:
        """The node of a schema within a schema.

        Args:
            namespace: of the type around it.
            place: where it is, for messages: fields with dots between, ``[]`` for items, ``{}`` for values of a map.
        """
        if depth > MOST_DEPTH:
            _invalid(place, "types are nested too deeply", expected=f"at most {MOST_DEPTH} levels")
        if isinstance(value, str):
            return self._named(value, namespace, place)
        if isinstance(value, list):
            return self._union(value, namespace, place, depth)
        if not isinstance(value, dict):
            _invalid(place, "not a type", found=_shown(value), expected="a name, an object or an array")
        kind = value.get("type")
        match kind:
            case "record" | "error":
                return self._record(value, namespace, place, depth)
            case "enum":
                return self._enum(value, namespace, place)
            case "fixed":
                return self._fixed(value, namespace, place)
            case "array":
                item = self.node(self._needed(value, "items", place), namespace, place + "[]", depth + 1)
                return _AvroNode("array", below=[item])
            case "map":
                item = self.node(self._needed(value, "values", place), namespace, place + "{}", depth + 1)
                return _AvroNode("map", below=[item])
            case str() if kind in _PRIMITIVES:
                return _AvroNode(kind, scalar=_scalar(kind, value))
            case str() | dict() | list():
                return self.node(kind, namespace, place, depth + 1)
        _invalid(
            place, 'the object has no "type"' if kind is None else "not a type", found=_shown(kind), expected="a name"
        )

    def _named(self, name: str, namespace: str, place: str) -> _AvroNode:
        if name in _PRIMITIVES:
            return _AvroNode(name, scalar=Type(kind=_PLAIN[name], is_nullable=name == "null"))
        # As Java does, a name without dots that is none of the namespace may be one without a namespace.
        for full in (_qualified(name, namespace), name):
            if full in self._names:
                return self._names[full]
        _invalid(
            place, "a type that is not defined before", found=_shown(name), expected="a type of Avro, or a known name"
        )

    def _union(self, branches: list[Any], namespace: str, place: str, depth: int) -> _AvroNode:
        union = _AvroNode("union")
        seen = set()
        for index, branch in enumerate(branches):
            one = self.node(branch, namespace, place, depth)
            if one.kind == "union":
                _invalid(place, f"branch {index} of a union is a union")
            if (one.kind, one.name) in seen:
                _invalid(place, "a union has the same type twice", found=_shown(one.name or one.kind))
            seen.add((one.kind, one.name))
            union.below.append(one)
        return union

    def _record(self, value: dict[str, Any], namespace: str, place: str, depth: int) -> _AvroNode:
        record = self._define("record", value, namespace, place)
        inner = record.name.rpartition(".")[0]
        place = place or record.name
        seen = set()
        for index, given in enumerate(self._list(value, "fields", place)):
            if not isinstance(given, dict):
                _invalid(place, f"field {index} is not an object", found=_shown(given))
            name = given.get("name")
            if not isinstance(name, str) or not _is_text(name):
                _invalid(place, f"field {index} has no name", found=_shown(name), expected="text")
            if name in seen:
                _invalid(place, "two fields have the same name", found=_shown(name))
            seen.add(name)
            within = f"{place}.{name}"
            type_ = self.node(self._needed(given, "type", within), inner, within, depth + 1)
            aliases = self._aliases(given, within)
            record.fields.append(_AvroField(name, type_, aliases, "default" in given, given.get("default")))
        return record

    def _enum(self, value: dict[str, Any], namespace: str, place: str) -> _AvroNode:
        enum = self._define("enum", value, namespace, place)
        place = place or enum.name
        symbols = self._list(value, "symbols", place)
        if not all(isinstance(one, str) and _is_text(one) for one in symbols):
            _invalid(place, "a symbol is not text")
        if len(set(symbols)) < len(symbols):
            _invalid(place, "two symbols are the same")
        enum.symbols = tuple(symbols)
        default = value.get("default")
        enum.scalar = Type(
            kind=ValueKind.ENUM,
            symbols=enum.symbols,
            default_symbol=default if default in symbols else None,
            name=enum.name,
        )
        return enum

    def _fixed(self, value: dict[str, Any], namespace: str, place: str) -> _AvroNode:
        fixed = self._define("fixed", value, namespace, place)
        size = value.get("size")
        if not _is_integer(size) or not 0 <= size < _INT32:
            _invalid(place or fixed.name, "the size of a fixed type", found=_shown(size), expected="a number of bytes")
        fixed.size = size
        fixed.scalar = replace(_scalar("fixed", value), name=fixed.name)
        return fixed

    def _define(self, kind: str, value: dict[str, Any], namespace: str, place: str) -> _AvroNode:
        """A node with its name, which can be used from here on."""
        name = value.get("name")
        if not isinstance(name, str) or not name.strip(".") or not _is_text(name):
            _invalid(place, f"the {kind} has no name", found=_shown(name), expected="text")
        if "." not in name and isinstance(given := value.get("namespace"), str):
            namespace = given
        full = _qualified(name, namespace)
        if full in _PRIMITIVES:
            _invalid(place, f"the {kind} has the name of a type of Avro", found=_shown(full))
        if full in self._names:
            _invalid(place, "a name is defined twice", found=_shown(full))
        node = _AvroNode(kind, full)
        namespace = full.rpartition(".")[0]
        node.aliases = tuple(_qualified(one, namespace) for one in self._aliases(value, place or full))
        self._names[full] = node
        return node

    @staticmethod
    def _aliases(value: dict[str, Any], place: str) -> tuple[str, ...]:
        aliases = value.get("aliases")
        if aliases is None:
            return ()
        if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
            _invalid(place, "aliases that are not a list of names", found=_shown(aliases))
        return tuple(aliases)

    @staticmethod
    def _needed(value: dict[str, Any], name: str, place: str) -> Any:
        if name not in value:
            _invalid(place, f'no "{name}"')
        return value[name]

    @staticmethod
    def _list(value: dict[str, Any], name: str, place: str) -> list[Any]:
        given = value.get(name)
        if not isinstance(given, list):
            _invalid(place, f'"{name}" is not an array', found=_shown(given))
        return given


def _short(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def _qualified(name: str, namespace: str) -> str:
    """The full name of a name in a namespace."""
    return f"{namespace}.{name}".lstrip(".") if "." not in name else name.lstrip(".")


def _is_text(value: str) -> bool:
    """Whether it is not empty, and can be written in UTF-8: JSON has escapes for halves of characters."""
    return bool(value) and not any("\ud800" <= one <= "\udfff" for one in value)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _scalar(kind: str, value: dict[str, Any]) -> Type:
    """The column of a primitive or fixed type; a logical type that is invalid or unknown counts as none."""
    size = value["size"] if kind == "fixed" else 0
    plain = Type(kind=_PLAIN[kind], is_nullable=kind == "null", size=size)
    logical = value.get("logicalType")
    if not isinstance(logical, str):
        return plain
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = value.get("precision"), value.get("scale", 0)
        most = _MOST_DIGITS if kind == "bytes" else min(_MOST_DIGITS, _digits(size))
        if _is_integer(precision) and _is_integer(scale) and 0 < precision <= most and 0 <= scale <= precision:
            return Type(kind=ValueKind.DECIMAL, precision=precision, scale=scale)
    elif kind == "fixed" and logical == "uuid" and size == _UUID_SIZE:
        return Type(kind=ValueKind.STRING)
    elif kind == "fixed" and logical == "duration" and size == _DURATION_SIZE:
        return Type(kind=ValueKind.INTERVAL)
    return _LOGICAL.get((kind, logical), plain)


def _digits(size: int) -> int:
    """How many decimal digits so many bytes of two's complement can always hold."""
    return math.floor(math.log10(2) * (8 * min(size, 64) - 1)) if size else 0


@contextmanager
def _bounded() -> Iterator[None]:
    """Turns recursion that Python refuses into an error about the schema."""
    try:
        yield
    except RecursionError:
        raise OptionError("an Avro schema is nested too deeply", expected=f"at most {MOST_DEPTH} levels") from None


# Fingerprints

_EMPTY: Final = 0xC15D213AA4D7A795


def _crc_table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = crc >> 1 ^ (_EMPTY if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def canonical_form(schema: Schema) -> str:
    """The parsing canonical form of a schema; that of the schemas that it names is inside.

    Raises:
        OptionError: the schema is invalid.
    """
    parts: list[str] = []
    written: set[str] = set()

    def write(node: _AvroNode) -> None:
        if node.kind in _PRIMITIVES or node.name in written:
            parts.append(f'"{node.name or node.kind}"')
            return
        if node.name:
            written.add(node.name)
        match node.kind:
            case "union":
                listed("[", node.below)
            case "array":
                parts.append('{"type":"array","items":')
                write(node.below[0])
                parts.append("}")
            case "map":
                parts.append('{"type":"map","values":')
                write(node.below[0])
                parts.append("}")
            case "enum":
                symbols = ",".join(f'"{one}"' for one in node.symbols)
                parts.append(f'{{"name":"{node.name}","type":"enum","symbols":[{symbols}]}}')
            case "fixed":
                parts.append(f'{{"name":"{node.name}","type":"fixed","size":{node.size}}}')
            case _:
                parts.append(f'{{"name":"{node.name}","type":"record","fields":[')
                for index, one in enumerate(node.fields):
                    parts.append(f'{"," if index else ""}{{"name":"{one.name}","type":')
                    write(one.type)
                    parts.append("}")
                parts.append("]}")

    def listed(start: str, nodes: list[_AvroNode]) -> None:
        parts.append(start)
        for index, one in enumerate(nodes):
            parts.append("," if index else "")
            write(one)
        parts.append("]")

    with _bounded():
        write(_parse(schema))
    return "".join(parts)


def fingerprint64(schema: Schema) -> bytes:
    """The 8 bytes that name a schema in the single-object encoding: CRC-64-AVRO of its canonical form, little-endian.

    Raises:
        OptionError: the schema is invalid.
    """
    table = _crc_table()
    crc = _EMPTY
    for byte in canonical_form(schema).encode():
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")


# Types


def type_of(schema: Schema) -> Type:
    """The type of the values that a schema describes.

    ``["null", T]`` is a nullable ``T``; any other union of several types is a struct with a nullable field for each
    branch. The field has the name of the branch's type, without its namespace unless two would have the same name.
    Where a type contains itself the inner one is ``RECURSIVE``.

    Raises:
        OptionError: the schema is invalid, or has what no column can hold.
    """
    with _bounded():
        return _TypeMaker().type(_parse(schema), "", 0)


class _NoFitError(Exception):
    """A default is not what its type says."""


class _TypeMaker:
    """Unrolls nodes into a type; counts what it makes, as named types may be in many places."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._columns = 0
        self._parts = 0

    def type(self, node: _AvroNode, place: str, depth: int) -> Type:
        """The type of a node, which may be null only if it is the node's own."""
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise OptionError("an Avro schema has too many columns", expected=f"at most {MOST_COLUMNS:,}")
        match node.kind:
            case "record":
                return self._struct(node, place, depth)
            case "array":
                item = TypeField("item", self._below(node.below[0], place + "[]", depth))
                return Type(kind=ValueKind.LIST, fields=(item,))
            case "map":
                value = TypeField("value", self._below(node.below[0], place + "{}", depth))
                return Type(kind=ValueKind.MAP, fields=(TypeField("key", Type(kind=ValueKind.STRING)), value))
            case "union":
                return self._union(node, place, depth)
        assert node.scalar is not None
        if node.scalar.kind is ValueKind.FIXED and node.size > MOST_FIXED:
            _invalid(
                place, "a fixed type is too large for a column", found=node.size, expected=f"at most {MOST_FIXED:,}"
            )
        return node.scalar

    def _below(self, node: _AvroNode, place: str, depth: int) -> Type:
        """The type of a node below one at that depth."""
        if depth >= MOST_DEPTH:
            _invalid(place, "types are nested too deeply", expected=f"at most {MOST_DEPTH} levels")
        return self.type(node, place, depth + 1)

    def _struct(self, node: _AvroNode, place: str, depth: int) -> Type:
        if node.name in self._open:
            return Type(kind=ValueKind.RECURSIVE, name=node.name)
        self._open.add(node.name)
        place = place or node.name
        fields = []
        for one in node.fields:
            type_ = self._below(one.type, f"{place}.{one.name}", depth)
            fields.append(TypeField(one.name, type_, one.aliases, 0, self._default(one)))
        self._open.discard(node.name)
        return Type(kind=ValueKind.STRUCT, fields=tuple(fields), name=node.name)

    def _union(self, node: _AvroNode, place: str, depth: int) -> Type:
        branches = [one for one in node.below if one.kind != "null"]
        is_nullable = len(branches) < len(node.below)
        if not branches:
            return Type(kind=ValueKind.NULL, is_nullable=True)
        if len(branches) == 1:
            self._columns -= 1
            only = self.type(branches[0], place, depth)
            return replace(only, is_nullable=is_nullable or only.is_nullable)
        fields = []
        for name, one in zip(_branch_names(branches, place), branches, strict=True):
            type_ = replace(self._below(one, f"{place}.{name}", depth), is_nullable=True)
            aliases = tuple(other for other in dict.fromkeys((one.name, *one.aliases)) if other not in ("", name))
            fields.append(TypeField(name, type_, aliases))
        return Type(kind=ValueKind.STRUCT, fields=tuple(fields), is_nullable=is_nullable, is_union=True)

    def _default(self, one: _AvroField) -> str | None:
        if not one.has_default:
            return None
        try:
            return json.dumps(self._value(one.type, one.default, 0), separators=(",", ":"))
        except (_NoFitError, RecursionError):
            return None

    def _value(self, node: _AvroNode, value: Any, depth: int) -> Any:
        """A default as JSON by which a ``Type`` can be filled: each record whole, each union's branch by its name."""
        self._parts += 1
        if self._parts > MOST_DEFAULTS:
            raise OptionError("an Avro schema has too many defaults", expected=f"at most {MOST_DEFAULTS:,} values")
        if depth > MOST_DEPTH:
            raise _NoFitError
        match node.kind:
            case "union":
                return self._branch_value(node, value, depth)
            case "record" if isinstance(value, dict):
                return {one.name: self._field_value(one, value, depth) for one in node.fields}
            case "array" if isinstance(value, list):
                return [self._value(node.below[0], one, depth + 1) for one in value]
            case "map" if isinstance(value, dict) and all(map(_is_utf8, value)):
                return {name: self._value(node.below[0], one, depth + 1) for name, one in value.items()}
        if node.kind not in ("record", "array", "map") and _fits(node, value):
            if node.kind == "fixed" and node.scalar is not None and node.scalar.kind is ValueKind.STRING:
                return str(uuid.UUID(bytes=value.encode("latin-1")))
            return value
        raise _NoFitError

    def _field_value(self, one: _AvroField, record: dict[str, Any], depth: int) -> Any:
        if one.name in record:
            return self._value(one.type, record[one.name], depth + 1)
        if not one.has_default:
            raise _NoFitError
        return self._value(one.type, one.default, depth + 1)

    def _branch_value(self, union: _AvroNode, value: Any, depth: int) -> Any:
        """The value of the first branch that it fits."""
        branches = [one for one in union.below if one.kind != "null"]
        for one in union.below:
            try:
                found = self._value(one, value, depth + 1)
            except _NoFitError:
                continue
            if one.kind == "null" or len(branches) == 1:
                return found
            return {_branch_names(branches, "")[branches.index(one)]: found}
        raise _NoFitError


def _branch_names(branches: list[_AvroNode], place: str) -> list[str]:
    """The names of a union's branches as fields of a struct: short ones, the full ones where those are the same."""
    short = [_short(one.name) or one.kind for one in branches]
    names = [
        one.name if one.name and short.count(name) > 1 else name for name, one in zip(short, branches, strict=True)
    ]
    if len(set(names)) < len(names):
        _invalid(place, "a union has two branches with the same name", found=", ".join(names))
    return names


def _is_utf8(value: object) -> bool:
    return isinstance(value, str) and (not value or _is_text(value))


def _fits(node: _AvroNode, value: Any) -> bool:
    """Whether a JSON value is one of a type that has nothing below it."""
    match node.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_integer(value) and -_INT32 <= value < _INT32
        case "long":
            return _is_integer(value) and -_INT64 <= value < _INT64
        case "float" | "double":
            return isinstance(value, float) or (_is_integer(value) and abs(value) < 1 << 1000)
        case "string":
            return _is_utf8(value)
        case "enum":
            return isinstance(value, str) and value in node.symbols
    return isinstance(value, str) and all(one <= "\xff" for one in value) and len(value) == (node.size or len(value))


# Resolution


def compile_schema(schema: Schema, layout: ColumnLayout, *, whole: Type | None = None) -> Op:
    """The steps that read what a writer with this schema has written into the columns of a reader's type.

    Where the specification decides by the value, only the value is undecodable: if it has a branch of the writer's
    union that the reader's type has no place for, or a symbol that it lacks. A branch of a reader's union is chosen as
    Java chooses it: the same type, else the first one that the writer's is promotable to. A writer's milliseconds are
    converted to a reader's microseconds.

    Args:
        whole: the reader's type, where the layout has only some fields of it: which branch of a union a value takes
            depends on all of them.

    Raises:
        OptionError: the schema is invalid, or cannot be read as the reader's type; the message names the field.
    """
    for column in layout.columns:
        if column.type.kind is ValueKind.RECURSIVE:
            raise OptionError(
                f"a field contains its own type, so it cannot be a column: {_path(layout, column.index)}",
                found=column.type.name,
                hint="Leave it out: name the other fields with columns=",
            )
    with _bounded():
        try:
            return _Resolver(layout, whole).step(_parse(schema), 0)
        except _NoMatchError as error:
            raise OptionError(
                f"a schema of the writers cannot be read as the reader's: {_path(layout, error.column)}",
                found=_cut(str(error.found)),
                expected=_cut(str(error.expected)),
                hint="Choose another version with schema_version=, or leave the field out with columns=",
            ) from None


def _path(layout: ColumnLayout, index: int) -> str:
    """The field that a column is, with dots between; ``the value itself`` for the root."""
    names: list[str] = []
    while index > 0:
        parent = layout.columns[layout.columns[index].parent]
        if parent.type.kind is ValueKind.STRUCT:
            names.append(parent.type.fields[parent.children.index(index)].name)
        index = parent.index
    return ".".join(reversed(names)) or "the value itself"


class _NoMatchError(Exception):
    """A writer's type and a reader's column do not match."""

    def __init__(self, column: int, found: object, expected: object) -> None:
        super().__init__()
        self.column = column
        self.found = found
        self.expected = expected


_INTS: Final = (ValueKind.INT32, ValueKind.INT64, ValueKind.FLOAT, ValueKind.DOUBLE)
_LONGS: Final = _INTS[1:]
_STEPS: Final = {
    "boolean": (OpCode.AVRO_BOOL, (ValueKind.BOOL,)),
    "int": (
        OpCode.AVRO_INT,
        (*_INTS, ValueKind.DATE, ValueKind.TIME_MS, ValueKind.TIME_US, ValueKind.TIMESTAMP),
    ),
    "long": (OpCode.AVRO_LONG, (*_LONGS, ValueKind.TIME_US, ValueKind.TIMESTAMP)),
    "float": (OpCode.AVRO_FLOAT, (ValueKind.FLOAT, ValueKind.DOUBLE)),
    "double": (OpCode.AVRO_DOUBLE, (ValueKind.DOUBLE,)),
    "bytes": (OpCode.AVRO_BYTES, (ValueKind.BINARY, ValueKind.STRING, ValueKind.DECIMAL)),
    "string": (OpCode.AVRO_STRING, (ValueKind.STRING, ValueKind.BINARY)),
    "fixed": (OpCode.AVRO_FIXED, (ValueKind.FIXED, ValueKind.DECIMAL, ValueKind.INTERVAL, ValueKind.STRING)),
}
"""The step of each type that has nothing below it, and the columns that it can fill."""

_WIDER: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What each type is promotable to."""

_TIMES: Final = (ValueKind.DATE, ValueKind.TIME_MS, ValueKind.TIME_US, ValueKind.TIMESTAMP)
_UNITS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class _Resolver:
    """Walks a writer's nodes beside a reader's columns; makes each step once for a node and a column."""

    def __init__(self, layout: ColumnLayout, whole: Type | None) -> None:
        self._layout = layout
        self._types: dict[int, Type] = {}
        self._made: dict[tuple[int, int], Op | _NoMatchError] = {}
        self._nulls: dict[int, Op] = {}
        self._own: dict[int, Op] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._branches: dict[int, dict[str, TypeField]] = {}
        self._steps = 0
        self._see(0, whole or layout.columns[0].type)

    def _see(self, index: int, whole: Type) -> None:
        """Take note of the reader's type of a column, and of those below it, as they are before any were left out."""
        self._types[index] = whole
        column = self._layout.columns[index]
        if whole.kind is ValueKind.STRUCT:
            by_name = {one.name: one.type for one in whole.fields}
            for child, field_ in zip(column.children, column.type.fields, strict=True):
                self._see(child, by_name.get(field_.name, field_.type))
        else:
            for child, field_ in zip(column.children, whole.fields, strict=True):
                self._see(child, field_.type)

    def step(self, node: _AvroNode, column: int) -> Op:
        """The step that reads a node's values into a column."""
        key = (id(node), column)
        made = self._made.get(key)
        if made is None:
            try:
                made = self._dropped(node) if column == DROPPED else self._resolved(node, column)
            except _NoMatchError as error:
                made = error
            self._made[key] = made
        if isinstance(made, _NoMatchError):
            raise made
        return made

    def _op(self, code: OpCode, column: int, children: tuple[Op, ...] = (), **rest: Any) -> Op:
        self._steps += 1 + len(children)
        if self._steps > MOST_STEPS:
            raise OptionError("an Avro schema is too large to be compiled", expected=f"at most {MOST_STEPS:,} steps")
        return Op(code=code, column=column, children=children, **rest)

    def _null(self, column: int) -> Op:
        if column not in self._nulls:
            self._nulls[column] = self._op(OpCode.SET_NULL, column)
        return self._nulls[column]

    def _dropped(self, node: _AvroNode) -> Op:
        """The step that reads a node's values and keeps nothing."""
        match node.kind:
            case "record":
                record = self._op(OpCode.AVRO_RECORD, DROPPED)
                self._made[id(node), DROPPED] = record  # it may be below itself
                record.close_cycle(tuple(self.step(one.type, DROPPED) for one in node.fields))
                self._steps += len(node.fields)
                return record
            case "array":
                return self._op(OpCode.AVRO_ARRAY, DROPPED, (self.step(node.below[0], DROPPED),))
            case "map":
                key = self._op(OpCode.AVRO_STRING, DROPPED)
                return self._op(OpCode.AVRO_MAP, DROPPED, (key, self.step(node.below[0], DROPPED)))
            case "union":
                return self._op(OpCode.AVRO_UNION, DROPPED, tuple(self.step(one, DROPPED) for one in node.below))
            case "enum":
                return self._op(OpCode.AVRO_ENUM, DROPPED, table=tuple(range(len(node.symbols))))
            case "null":
                return self._null(DROPPED)
        return self._op(_STEPS[node.kind][0], DROPPED, a=node.size)

    def _resolved(self, node: _AvroNode, column: int) -> Op:
        reader = self._types[column]
        if node.kind == "union":
            return self._union(node, column)
        if node.kind == "null":
            if reader.is_nullable:
                return self._null(column)
        elif reader.is_union:
            return self._branch(node, column)
        elif node.kind == "record" and reader.kind is ValueKind.STRUCT:
            return self._record(node, column)
        elif node.kind == "array" and reader.kind is ValueKind.LIST:
            return self._op(OpCode.AVRO_ARRAY, column, (self.step(node.below[0], self._layout.item(column)),))
        elif node.kind == "map" and reader.kind is ValueKind.MAP:
            key, value = self._layout.entry(column)
            children = (self._op(OpCode.AVRO_STRING, key), self.step(node.below[0], value))
            return self._op(OpCode.AVRO_MAP, column, children)
        elif node.kind == "enum" and reader.kind is ValueKind.ENUM:
            places = {symbol: index for index, symbol in enumerate(reader.symbols)}
            other = places.get(reader.default_symbol or "", -1)
            table = tuple(places.get(symbol, other) for symbol in node.symbols)
            return self._op(OpCode.AVRO_ENUM, column, table=table)
        elif node.kind in _STEPS and (factor := _factor(node, reader)) is not None:
            return self._op(_STEPS[node.kind][0], column, a=node.size or factor)
        raise _NoMatchError(column, node, reader)

    def _union(self, node: _AvroNode, column: int) -> Op:
        """Each branch by itself: one that the reader has no place for is an error of the values that have it."""
        reader = self._types[column]
        children: list[Op] = []
        table: list[int] = []
        failed: _NoMatchError | None = None
        name = _short(reader.name)
        is_named = bool(name) and name in (_short(one.name) for one in node.below)
        for one in node.below:
            try:
                if is_named and one.name and _short(one.name) != name:
                    raise _NoMatchError(column, one, reader.name)
                children.append(self.step(one, column))
                table.append(len(children) - 1)
            except _NoMatchError as error:
                failed = error
                table.append(-1)
        if failed and not children:
            raise failed
        return self._op(OpCode.AVRO_UNION, column, tuple(children), table=tuple(table) if failed else ())

    def _branch(self, node: _AvroNode, column: int) -> Op:
        """A struct in which one field has the value, and all others are null."""
        chosen = self._choose(node, column)
        if chosen is None:
            raise _NoMatchError(column, node, ", ".join(one.name for one in self._types[column].fields))
        child = self._child(column, chosen.name)
        others = tuple(self._null(one) for one in self._layout.columns[column].children if one != child)
        return self._op(OpCode.AVRO_RECORD, column, (self.step(node, child), *others))

    def _choose(self, node: _AvroNode, column: int) -> TypeField | None:
        """The field of a reader's union that takes a writer's type."""
        reader = self._types[column]
        if column not in self._branches:
            names: dict[str, TypeField] = {}
            for one in reader.fields:
                for name in (one.name, *one.aliases):
                    names.setdefault(name, one)
            for name, one in list(names.items()):
                names.setdefault(_short(name), one)
            self._branches[column] = names
        names = self._branches[column]
        if node.name:
            return names.get(node.name) or names.get(_short(node.name))
        if found := names.get(node.kind):
            return found
        wider = _WIDER.get(node.kind, ())
        return next((one for one in reader.fields if one.name in wider), None)

    def _child(self, column: int, name: str) -> int:
        """The column of a field; ``DROPPED`` where it was left out."""
        if column not in self._names:
            one = self._layout.columns[column]
            self._names[column] = {
                field_.name: child for field_, child in zip(one.type.fields, one.children, strict=True)
            }
        return self._names[column].get(name, DROPPED)

    def _record(self, node: _AvroNode, column: int) -> Op:
        """The writer's fields in their order, then those that only the reader has."""
        known = {one.name for one in self._types[column].fields}
        written = {one.name for one in node.fields}
        renamed: dict[str, str] = {}
        for mine in self._types[column].fields:
            if mine.name not in written:
                fitting = (alias for alias in mine.aliases if alias in written and alias not in known)
                if (alias := next((one for one in fitting if one not in renamed), None)) is not None:
                    renamed[alias] = mine.name
        children = []
        filled = set()
        for one in node.fields:
            name = renamed.get(one.name, one.name)
            filled.add(name)
            children.append(self.step(one.type, self._child(column, name)))
        for field_ in self._layout.columns[column].type.fields:
            if field_.name not in filled:
                children.append(self._absent(field_, self._child(column, field_.name)))
        return self._op(OpCode.AVRO_RECORD, column, tuple(children))

    def _absent(self, field_: TypeField, column: int) -> Op:
        """A field that the writer does not have."""
        if field_.default is not None:
            try:
                value = json.loads(field_.default)
                if value is not None or not field_.type.is_nullable:
                    text = _encoded(field_.type, value)
                    return self._op(OpCode.CONSTANT, column, (self._reading(column),), text=text)
            except (ValueError, TypeError, KeyError, AttributeError, struct.error):
                raise _NoMatchError(column, "a default that does not fit", field_.type) from None
        if field_.type.is_nullable:
            return self._null(column)
        raise _NoMatchError(column, "no such field, and no default for it", field_.type)

    def _reading(self, column: int) -> Op:
        """The step that reads what ``_encoded`` makes."""
        if column not in self._own:
            type_ = self._layout.columns[column].type
            children = self._layout.columns[column].children
            if type_.is_union:
                every = tuple(self._null(one) for one in children)
                read: tuple[Op, ...] = tuple(
                    self._op(OpCode.AVRO_RECORD, column, (*every[:at], self._reading(child), *every[at + 1 :]))
                    for at, child in enumerate(children)
                )
                read = (*read, self._op(OpCode.AVRO_RECORD, column, every))
            else:
                below = tuple(map(self._reading, children))
                table = tuple(range(len(type_.symbols)))
                size = _DURATION_SIZE if type_.kind is ValueKind.INTERVAL else type_.size
                read = (self._op(_OWN[type_.kind], column, below, table=table, a=size),)
            if type_.is_nullable:
                read = (self._null(column), *read)
            self._own[column] = read[0] if len(read) == 1 else self._op(OpCode.AVRO_UNION, column, read)
        return self._own[column]


def _factor(node: _AvroNode, reader: Type) -> int | None:
    """What a writer's number is multiplied by, 0 for nothing; ``None``: the column cannot have the writer's values."""
    writer = node.scalar
    if writer is None or reader.kind not in _STEPS[node.kind][1]:
        return None
    if writer.kind in _TIMES and reader.kind in _TIMES:
        kinds = {writer.kind, reader.kind}
        factor, rest = divmod(_resolution(reader), _resolution(writer))
        if rest or (len(kinds) > 1 and kinds != {ValueKind.TIME_MS, ValueKind.TIME_US}):
            return None
        return factor if factor > 1 else 0
    if writer.kind is ValueKind.DECIMAL and reader.kind is ValueKind.DECIMAL and writer.scale != reader.scale:
        return None
    sizes = {ValueKind.FIXED: reader.size, ValueKind.INTERVAL: _DURATION_SIZE, ValueKind.STRING: _UUID_SIZE}
    if node.kind == "fixed" and sizes.get(reader.kind, node.size) != node.size:
        return None
    if node.kind == "fixed" and reader.kind is ValueKind.STRING and not reader.name:
        return None  # it is text, not a UUID
    return 0


def _resolution(one: Type) -> int:
    """How many of a type's units are a millisecond; 1 for dates."""
    return _UNITS[one.unit or ("us" if one.kind is ValueKind.TIME_US else "ms")]


# Defaults, encoded for steps that read them

_OWN: Final = {
    ValueKind.BOOL: OpCode.AVRO_BOOL,
    ValueKind.INT32: OpCode.AVRO_INT,
    ValueKind.DATE: OpCode.AVRO_INT,
    ValueKind.TIME_MS: OpCode.AVRO_INT,
    ValueKind.INT64: OpCode.AVRO_LONG,
    ValueKind.TIME_US: OpCode.AVRO_LONG,
    ValueKind.TIMESTAMP: OpCode.AVRO_LONG,
    ValueKind.FLOAT: OpCode.AVRO_FLOAT,
    ValueKind.DOUBLE: OpCode.AVRO_DOUBLE,
    ValueKind.BINARY: OpCode.AVRO_BYTES,
    ValueKind.DECIMAL: OpCode.AVRO_BYTES,
    ValueKind.STRING: OpCode.AVRO_STRING,
    ValueKind.FIXED: OpCode.AVRO_FIXED,
    ValueKind.INTERVAL: OpCode.AVRO_FIXED,
    ValueKind.ENUM: OpCode.AVRO_ENUM,
    ValueKind.LIST: OpCode.AVRO_ARRAY,
    ValueKind.MAP: OpCode.AVRO_MAP,
    ValueKind.STRUCT: OpCode.AVRO_RECORD,
    ValueKind.NULL: OpCode.SET_NULL,
}


def _encoded(type_: Type, value: Any) -> bytes:
    """A default in Avro's encoding, as ``_Resolver._reading`` reads it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none of the type.
    """
    if type_.is_union:
        if value is None:
            return _varint(0)
        names = [one.name for one in type_.fields]
        ((name, inner),) = value.items()
        branch = names.index(name) if name in names else len(names)
        text = _encoded(replace(type_.fields[branch].type, is_nullable=False), inner) if name in names else b""
        return _varint(branch + type_.is_nullable) + (b"" if name not in names else _varint(1) + text)
    if type_.is_nullable:
        return _varint(0) if value is None else _varint(1) + _encoded(replace(type_, is_nullable=False), value)
    match _OWN[type_.kind]:
        case OpCode.AVRO_BOOL:
            return b"\1" if value else b"\0"
        case OpCode.AVRO_INT | OpCode.AVRO_LONG:
            return _varint(value)
        case OpCode.AVRO_FLOAT:
            return struct.pack("<f", _single(value))
        case OpCode.AVRO_DOUBLE:
            return struct.pack("<d", value)
        case OpCode.AVRO_FIXED:
            return bytes(value.encode("latin-1"))
        case OpCode.AVRO_ENUM:
            return _varint(type_.symbols.index(value))
        case OpCode.AVRO_ARRAY:
            return _block([_encoded(type_.fields[0].type, one) for one in value])
        case OpCode.AVRO_MAP:
            return _block([_sized(name.encode()) + _encoded(type_.fields[1].type, one) for name, one in value.items()])
        case OpCode.AVRO_RECORD:
            return b"".join(_encoded(one.type, _member(one, value)) for one in type_.fields)
    return _sized(value.encode("utf-8" if type_.kind is ValueKind.STRING else "latin-1"))


def _member(one: TypeField, record: dict[str, Any]) -> Any:
    """The value of a field in a default: merged types may have fields that the default of the record does not."""
    if one.name not in record and (one.default is not None or one.type.is_nullable):
        return json.loads(one.default or "null")
    return record[one.name]


def _varint(value: int) -> bytes:
    """A long of Avro."""
    rest = value << 1 ^ value >> 63
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _block(items: list[bytes]) -> bytes:
    """The items of an array or map: one block, and the empty one that ends it."""
    return (_varint(len(items)) + b"".join(items) if items else b"") + b"\0"


def _single(value: float) -> float:
    """A number that fits a float: too large ones are infinite, as in Java."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return value
