"""JSON Schema (drafts 4, 6, 7, 2019-09 and 2020-12): the type that its values have, and the steps that read them.

``type_of`` makes columns as far as a schema says what a value is:

==================================================  =================================================================
``integer``, ``number``, ``boolean``, ``string``    int64, double, bool, string
``string``, ``format: date``                        date32
``string``, ``format: date-time``                   timestamp[us, UTC]
``string``, ``format: time``                        time64[us]
``string`` with ``contentEncoding: base64``         binary
``enum`` or ``const`` of strings                    dictionary of its strings
``object`` with ``properties``                      struct; members beyond the properties are not kept
``object`` with ``additionalProperties`` alone      map of string to its schema (and with one of ``patternProperties``)
``array`` with one schema of items                  list
``null`` alone                                      null
all else: untyped, mixed, tuples                    the JSON text of the value itself, as string (``unit="json"``)
==================================================  =================================================================

A column may be null where its schema admits ``null``; a property also where it is not ``required``. Several types other
than ``null``, in ``type``, ``oneOf`` or ``anyOf``, are mixed, unless all are numbers (double), all strings (string or
dictionary), or objects that differ only in what they require. ``allOf`` is merged. Bounds, patterns, ``not`` and
``if`` do not change a type, and nothing is validated beyond it. Hints of Kafka Connect are followed: ``connect.type``,
``connect.index`` (order of fields), and its logical types Decimal, Date, Time and Timestamp.

Dates and times are those of RFC 3339. A ``date-time`` without an offset is an error: which instant it is depends on who
wrote it. A ``time`` with an offset becomes UTC's, one without stays as it is. Digits past microseconds are dropped.

JSON carries names, so values are read by the reader's type. The writer's schema only says how a member is written (text
or number, base64 or not), and whether it can be there:

- A member that the value lacks becomes the reader's default, else null if the column may be null, else an error.
- A field that the writer's schema does not name is read by the reader's type if the schema allows other members, as it
  does by default. It may have been written all the same; if it is of another type, the value is undecodable.
- If the writer's schema is closed (``additionalProperties: false``), such a field counts as missing.
- If the writer's schema rules out the reader's type, ``compile_schema`` raises ``OptionError``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import unquote, urljoin

from segreader.errors import OptionError
from segreader.typed.ops import JSON_BASE64, JSON_RAW_NAME, ColumnLayout, Op, OpCode, Program
from segreader.typed.schema import Reference, Schema
from segreader.typed.types import Type, TypeField, ValueKind
from segreader.values import dataclass

MOST_SHAPES: Final = 20_000
"""Schemas within a schema, after its references are followed: a short one can have billions."""

_EVERY: Final = frozenset({"object", "array", "string", "number", "boolean", "null"})
_NULL: Final = frozenset({"null"})
_NUMBERS: Final = frozenset({"integer", "number"})
_OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
_NOT_SCHEMAS: Final = ("enum", "const", "default", "examples")
_HINTS: Final = (
    "format",
    "contentEncoding",
    "title",
    "connect.type",
    "connect.index",
    "connect.parameters",
    "default",
)
_CONNECT: Final = "org.apache.kafka.connect.data."
_JSON_TEXT: Final = Type(kind=ValueKind.STRING, unit="json")
_INTEGERS: Final = {"int8": ValueKind.INT32, "int16": ValueKind.INT32, "int32": ValueKind.INT32}
_FORMATS: Final = {
    "date": Type(kind=ValueKind.DATE),
    "time": Type(kind=ValueKind.TIME_US),
    "date-time": Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True),
}
_CONNECT_INTEGERS: Final = {
    "Date": Type(kind=ValueKind.DATE),
    "Time": Type(kind=ValueKind.TIME_MS),
    "Timestamp": Type(kind=ValueKind.TIMESTAMP, unit="ms", is_utc=True),
}


def type_of(schema: Schema) -> Type:
    """The type of the values of a schema, as the module says.

    Raises:
        OptionError: it is no JSON Schema, a ``$ref`` leads nowhere or to itself, or no value can be valid.
    """
    shapes = _Shapes()
    try:
        return shapes.type_of((_root(schema),), "", frozenset())
    except RecursionError:
        raise _too_deep() from None


def compile_schema(schema: Schema, layout: ColumnLayout) -> Op:
    """The steps that read the values of a writer's schema into the columns of the reader's type.

    Raises:
        OptionError: as ``type_of``; or the writer's schema says of a field that it is never what the column holds.
    """
    try:
        return _Compiler(layout).value(0, (_root(schema),), "")
    except RecursionError:
        raise _too_deep() from None


# Documents and references


@dataclass(frozen=True, slots=True)
class _SchemaNode:
    """A schema within a document. ``base``: the URI that its references start from."""

    value: Any
    document: _SchemaDocument
    base: str


class _SchemaDocument:
    """One document of JSON Schema, with the schemas in it that have a URI or an anchor of their own."""

    def __init__(
        self, schema: Schema, name: str, known: tuple[Reference, ...], documents: dict[tuple[int, str], _SchemaDocument]
    ) -> None:
        try:
            self.root = json.loads(schema.text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise OptionError("not a JSON Schema: not JSON", found=str(error) or type(error).__name__) from None
        self.references = (*schema.references, *known)
        own = self.root if isinstance(self.root, dict) else {}
        self.is_old = any(draft in str(own.get("$schema", "")) for draft in _OLD_DRAFTS)
        self.base = _joined(name, _id_of(own) or "")
        self.named: dict[str, Any] = {name: self.root, self.base: self.root}
        self._documents = documents
        documents[id(schema), name] = self  # first of all, for those that refer to each other
        self._find_names(self.root, self.base)

    def _find_names(self, root: Any, base: str) -> None:
        waiting = [(root, base)]
        while waiting:
            value, base = waiting.pop()
            if isinstance(value, list):
                waiting.extend((one, base) for one in value)
            if not isinstance(value, dict):
                continue
            own = _id_of(value)
            if own is not None:
                base = _joined(base, own)
                self.named.setdefault(base, value)
            for word in ("$anchor", "$dynamicAnchor", "$id", "id"):
                anchor = value.get(word)
                if isinstance(anchor, str) and (word.endswith("nchor") or anchor.startswith("#")):
                    self.named.setdefault(f"{base}#{anchor.removeprefix('#')}", value)
            waiting.extend((one, base) for word, one in value.items() if word not in _NOT_SCHEMAS)

    def node(self) -> _SchemaNode:
        """The whole document."""
        return _SchemaNode(self.root, self, self.base)

    def resolve(self, base: str, ref: str, where: str) -> _SchemaNode:
        """The schema that a ``$ref`` names."""
        uri, _, fragment = (base.partition("#")[0] + ref if ref.startswith("#") else _joined(base, ref)).partition("#")
        fragment = unquote(fragment)
        document = self if uri in self.named else self._document(base, uri, ref.partition("#")[0])
        if document is None:
            raise _error(
                where,
                "a $ref names a schema that is not there",
                found=ref,
                hint="References are given with the schema that has them, each under the name that it uses",
            )
        if document is not self:
            uri = document.base
        if not fragment or fragment.startswith("/"):
            value, base = document._walk(document.named[uri], uri, fragment, where, ref)
        elif (anchor := f"{uri}#{fragment}") in document.named:
            value, base = document.named[anchor], uri
        else:
            raise _error(where, "a $ref leads nowhere", found=ref)
        return _SchemaNode(value, document, base)

    def _walk(self, value: Any, base: str, pointer: str, where: str, ref: str) -> tuple[Any, str]:
        """What a JSON pointer names. Source: RFC 6901."""
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _error(where, "a $ref leads nowhere", found=ref) from None
            if isinstance(value, dict) and (own := _id_of(value)) is not None:
                base = _joined(base, own)
        return value, base

    def _document(self, base: str, uri: str, ref: str) -> _SchemaDocument | None:
        for one in _all_references(self.references):
            if one.name in (uri, ref) or _joined(base, one.name) == uri or _declares(one.schema, uri):
                known = self._documents.get((id(one.schema), uri))
                return known or _SchemaDocument(one.schema, uri, self.references, self._documents)
        return None


def _joined(base: str, ref: str) -> str:
    try:
        return urljoin(base, ref)
    except ValueError:  # no URI, but perhaps a name all the same
        return ref


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _id_of(value: dict[str, Any]) -> str | None:
    """The URI that a schema gives itself: ``$id``, ``id`` in draft 4; one that begins with # is an anchor."""
    own = value.get("$id", value.get("id"))
    if not isinstance(own, str) or own.startswith("#"):
        return None
    return own.partition("#")[0] or None


def _declares(schema: Schema, uri: str) -> bool:
    try:
        value = json.loads(schema.text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _id_of(value) == uri


def _all_references(references: Sequence[Reference]) -> Iterator[Reference]:
    """References, then those of their schemas: registries resolve them into one list."""
    yield from references
    for one in references:
        yield from _all_references(one.schema.references)


def _root(schema: Schema) -> _SchemaNode:
    return _SchemaDocument(schema, "", (), {}).node()


# What a schema says


class _RecursiveSchema(Exception):
    """A schema within itself."""


class _SchemaShape:
    """What schemas that hold for the same value say together of its type."""

    def __init__(self) -> None:
        self.types: frozenset[str] = _EVERY
        self.is_nullable = False  # by OpenAPI's word, which no `type` takes back
        self.is_mixed = False
        self.is_tuple = False
        self.is_closed = False
        self.properties: dict[str, tuple[_SchemaNode, ...]] = {}
        self.patterns: tuple[tuple[str, _SchemaNode], ...] = ()
        self.additional: tuple[_SchemaNode, ...] = ()
        self.items: tuple[_SchemaNode, ...] = ()
        self.required: frozenset[str] = frozenset()
        self.symbols: tuple[str, ...] | None = None
        self.hints: dict[str, Any] = {}
        self.choices: tuple[tuple[tuple[_SchemaNode, ...], frozenset[int]], ...] = ()
        self.entered: frozenset[int] = frozenset()

    def copy(self) -> _SchemaShape:
        """The same, to add to."""
        other = _SchemaShape()
        vars(other).update(vars(self))
        other.properties = dict(self.properties)
        other.hints = dict(self.hints)
        return other

    @property
    def plain(self) -> frozenset[str]:
        """The types other than null."""
        return self.types - _NULL

    def admits(self, *types: str) -> bool:
        """Whether a value can be of one of these types."""
        return bool(_common(self.types, frozenset(types)))

    def member(self, name: str) -> tuple[_SchemaNode, ...] | None:
        """The schemas of a member; ``None``: there can be none."""
        nodes = self.properties.get(name, ())
        nodes += tuple(node for pattern, node in self.patterns if _matches(pattern, name))
        if not nodes:
            if self.is_closed:
                return None
            nodes = self.additional
        return None if any(one.value is False for one in nodes) else nodes

    def other_members(self) -> tuple[_SchemaNode, ...] | None:
        """The schemas of the members of an object that has no properties of its own; ``None``: there is not one."""
        if self.properties:
            return None
        if len({pattern for pattern, _ in self.patterns}) == 1 and not self.additional:
            return tuple(node for _, node in self.patterns)
        return self.additional if self.additional and not self.patterns else None


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # an expression of ECMAScript alone
        return False


def _common(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """The types that both have: integers are numbers, too."""
    both = (one | {"integer"} if "number" in one else one) & (other | {"integer"} if "number" in other else other)
    return both - {"integer"} if "number" in both else both


class _Shapes:
    """Shapes of schemas, and their types."""

    def __init__(self) -> None:
        self._made = 0

    def shape(self, nodes: tuple[_SchemaNode, ...], where: str, above: frozenset[int]) -> _SchemaShape:
        """What these schemas say together.

        Args:
            above: the schemas around these, by identity.

        Raises:
            _RecursiveSchema: it is one of those.
        """
        self._count(where)
        shape = _SchemaShape()
        for node in nodes:
            self._add(shape, node, where, above, frozenset())
        return self._chosen(shape, where, above)

    def _count(self, where: str) -> None:
        self._made += 1
        if self._made > MOST_SHAPES:
            raise _error(where, f"the schema has more than {MOST_SHAPES:,} schemas within it")

    def _add(
        self, shape: _SchemaShape, node: _SchemaNode, where: str, above: frozenset[int], open_: frozenset[int]
    ) -> None:
        value = node.value
        if isinstance(value, bool):
            if not value:
                shape.types = frozenset()
            return
        if not isinstance(value, dict):
            raise _error(where, "no JSON Schema", found=_json_type(value), expected="an object, true or false")
        if id(value) in open_:
            raise _error(where, "a $ref leads to itself")
        if id(value) in above:
            raise _RecursiveSchema
        open_ |= {id(value)}
        shape.entered |= {id(value)}
        base = node.base
        if (own := _id_of(value)) is not None and node.document.named.get(base) is not value:
            base = _joined(base, own)
        inner = _SchemaNode(value, node.document, base)
        for target in _targets(inner, where):
            self._add(shape, target, where, above, open_)
            if node.document.is_old:
                return  # what is beside a $ref does not count
        self._add_types(shape, value, where)
        _Members(shape, inner, where).add()
        for hint in _HINTS:
            if hint in value:
                shape.hints.setdefault(hint, value[hint])
        for one in _listed(inner, "allOf", where):
            self._add(shape, one, where, above, open_)
        shape.choices += tuple((_listed(inner, word, where), open_) for word in ("oneOf", "anyOf") if word in value)

    def _add_types(self, shape: _SchemaShape, value: dict[str, Any], where: str) -> None:
        types = _types_of(value, where)
        allowed = value["enum"] if "enum" in value else [value["const"]] if "const" in value else None
        if allowed is not None:
            if not isinstance(allowed, list):
                raise _error(where, "enum is no list", found=_json_type(allowed))
            listed = frozenset(_json_type(one) for one in allowed)
            types = _common(types, listed) | (types & _NULL if "type" in value else frozenset())
            symbols = tuple(dict.fromkeys(one for one in allowed if isinstance(one, str)))
            if shape.symbols is not None:
                symbols = tuple(one for one in shape.symbols if one in symbols)
            shape.symbols = symbols
        shape.types = _common(shape.types, types)
        shape.is_nullable |= value.get("nullable") is True

    # oneOf and anyOf

    def _chosen(self, shape: _SchemaShape, where: str, above: frozenset[int]) -> _SchemaShape:
        """The shape with each of its choices taken: the only one that is not null, or what all have in common."""
        choices, shape.choices = shape.choices, ()
        for branches, open_ in choices:
            kept: list[_SchemaShape] = []
            nulls: frozenset[str] = frozenset()
            for node in branches:
                self._count(where)
                one = shape.copy()
                self._add(one, node, where, above, open_)
                one = self._chosen(one, where, above)
                nulls |= one.types & _NULL
                if one.plain or one.is_nullable:
                    kept.append(one)
            if not kept:
                shape.types = nulls
                continue
            shape = kept[0] if len(kept) == 1 else self._united(shape, kept, where, above)
            shape.types |= nulls
        return shape

    def _united(self, base: _SchemaShape, kept: list[_SchemaShape], where: str, above: frozenset[int]) -> _SchemaShape:
        types = frozenset().union(*(one.types for one in kept))
        if "number" in types:
            types -= {"integer"}
        entered = frozenset().union(*(one.entered for one in kept))
        plain = frozenset().union(*(one.plain for one in kept))
        forms = [_form(self._type(one, where, above)) for one in kept]
        if all(one == forms[0] for one in forms) and forms[0] != _JSON_TEXT:
            united = kept[0].copy()
            united.required = frozenset.intersection(*(one.required for one in kept))
            united.is_closed = all(one.is_closed for one in kept)
            if united.symbols is not None:
                united.symbols = tuple(dict.fromkeys(symbol for one in kept for symbol in one.symbols or ()))
        else:
            united = base.copy()
            united.is_mixed = not (plain <= {"string"} or plain <= _NUMBERS)
            united.symbols = None
            for hint in ("format", "contentEncoding", "title", "connect.type"):
                united.hints.pop(hint, None)
        united.types = types
        united.entered |= entered
        united.is_nullable = any(one.is_nullable for one in kept)
        return united

    # types

    def type_of(self, nodes: tuple[_SchemaNode, ...], where: str, above: frozenset[int]) -> Type:
        """The type of the values for which these schemas hold."""
        return self._type(self.shape(nodes, where, above), where, above)

    def _type(self, shape: _SchemaShape, where: str, above: frozenset[int]) -> Type:
        if not shape.types and not shape.is_nullable:
            raise _error(where, "no value can be valid: what the schema asks for contradicts itself")
        is_nullable = "null" in shape.types or shape.is_nullable
        return replace(self._plain_type(shape, where, above | shape.entered), is_nullable=is_nullable)

    def _plain_type(self, shape: _SchemaShape, where: str, above: frozenset[int]) -> Type:
        plain = shape.plain
        if not plain:
            return Type(kind=ValueKind.NULL)
        if shape.is_mixed:
            return _JSON_TEXT
        if plain == {"string"} and shape.symbols is not None:
            return Type(kind=ValueKind.ENUM, symbols=shape.symbols)
        if plain <= {"string", "number", "integer"} and (decimal := _decimal(shape)) is not None:
            return decimal
        if len(plain) > 1:
            return _JSON_TEXT
        (one,) = plain
        if one == "object":
            return self._object(shape, where, above)
        if one == "array":
            return self._array(shape, where, above)
        return _scalar(one, shape)

    def _object(self, shape: _SchemaShape, where: str, above: frozenset[int]) -> Type:
        if (others := shape.other_members()) is not None:
            key = TypeField("key", Type(kind=ValueKind.STRING))
            return Type(kind=ValueKind.MAP, fields=(key, TypeField("value", self._below(others, where, above))))
        fields: list[tuple[Any, TypeField]] = []
        for name in shape.properties:
            nodes = shape.member(name)
            if nodes is None:
                continue
            place = f"{where}.{name}" if where else name
            try:
                member = self.shape(nodes, place, above)
                type_ = self._type(member, place, above)
            except _RecursiveSchema:
                fields.append((None, TypeField(name, Type(kind=ValueKind.RECURSIVE, is_nullable=True))))
                continue
            default = None
            if name not in shape.required:
                type_ = replace(type_, is_nullable=True)
            elif "default" in member.hints:
                default = _default(type_, member.hints["default"])
            fields.append((member.hints.get("connect.index"), TypeField(name, type_, default=default)))
        if not fields:
            return _JSON_TEXT
        if all(isinstance(index, int) for index, _ in fields):
            fields.sort(key=lambda one: one[0])
        return Type(kind=ValueKind.STRUCT, fields=tuple(one for _, one in fields))

    def _array(self, shape: _SchemaShape, where: str, above: frozenset[int]) -> Type:
        if shape.is_tuple:
            return _JSON_TEXT
        if any(one.value is False for one in shape.items):
            item = replace(_JSON_TEXT, is_nullable=True)  # of an array that is always empty
        else:
            item = self._below(shape.items, where, above)
        return Type(kind=ValueKind.LIST, fields=(TypeField("item", item),))

    def _below(self, nodes: tuple[_SchemaNode, ...], where: str, above: frozenset[int]) -> Type:
        try:
            return self.type_of(nodes, where, above)
        except _RecursiveSchema:
            return Type(kind=ValueKind.RECURSIVE, is_nullable=True)


class _Members:
    """What one schema says of an object's members and an array's items, added to a shape."""

    def __init__(self, shape: _SchemaShape, node: _SchemaNode, where: str) -> None:
        self._shape = shape
        self._self = node
        self._value: dict[str, Any] = node.value
        self._where = where

    def add(self) -> None:
        shape, value = self._shape, self._value
        for name, one in self._named("properties"):
            shape.properties[name] = (*shape.properties.get(name, ()), one)
        shape.patterns += tuple(self._named("patternProperties"))
        required = value.get("required", [])
        if isinstance(required, list):  # draft 3 has a boolean
            shape.required |= {one for one in required if isinstance(one, str)}
        additional = value.get("additionalProperties", True)
        if additional is False:
            shape.is_closed = True
        elif _says_something(additional) or (additional is not True and value.get("connect.type") == "map"):
            shape.additional += (self._node(additional),)
        items = value.get("items", True)
        shape.is_tuple |= "prefixItems" in value or isinstance(items, list)
        if not isinstance(items, list) and items is not True:
            shape.items += (self._node(items),)
        if "type" not in value and "enum" not in value and "const" not in value:
            # Strictly, such a schema admits all other types. Those who write it mean an object, or an array.
            if "properties" in value or shape.additional:
                shape.types = _common(shape.types, frozenset({"object", "null"}))
            elif "items" in value or "prefixItems" in value:
                shape.types = _common(shape.types, frozenset({"array", "null"}))

    def _named(self, word: str) -> Iterator[tuple[str, _SchemaNode]]:
        schemas = self._value.get(word, {})
        if not isinstance(schemas, dict):
            raise _error(self._where, f"{word} is no object", found=_json_type(schemas))
        return ((name, self._node(one)) for name, one in schemas.items())

    def _node(self, value: Any) -> _SchemaNode:
        return _SchemaNode(value, self._self.document, self._self.base)


def _says_something(schema: Any) -> bool:
    return schema is not True and schema != {}


def _listed(node: _SchemaNode, word: str, where: str) -> tuple[_SchemaNode, ...]:
    schemas = node.value.get(word, [])
    if not isinstance(schemas, list):
        raise _error(where, f"{word} is no list", found=_json_type(schemas))
    return tuple(_SchemaNode(one, node.document, node.base) for one in schemas)


def _targets(node: _SchemaNode, where: str) -> Iterator[_SchemaNode]:
    """The schemas that a schema refers to, for the same value."""
    for word in ("$ref", "$dynamicRef", "$recursiveRef"):
        ref = node.value.get(word, "")
        if not isinstance(ref, str):
            raise _error(where, f"{word} is no text", found=_json_type(ref))
        if word in node.value:
            yield node.document.resolve(node.base, ref, where)


def _types_of(value: dict[str, Any], where: str) -> frozenset[str]:
    if "type" not in value:
        return _EVERY
    given = value["type"]
    types = given if isinstance(given, list) else [given]
    for one in types:
        if not isinstance(one, str) or one not in _EVERY | _NUMBERS:
            raise _error(
                where, "no type of JSON Schema", found=json.dumps(one), expected=", ".join(sorted(_EVERY | _NUMBERS))
            )
    return frozenset(types) - ({"integer"} if "number" in types else set())


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names: dict[type, str] = {float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _form(one: Type) -> Type:
    """A type without what several choices may differ in: nulls, also in fields right below, and symbols."""
    fields = tuple(replace(field, type=replace(field.type, is_nullable=True), default=None) for field in one.fields)
    return replace(one, is_nullable=False, symbols=(), fields=fields)


def _scalar(one: str, shape: _SchemaShape) -> Type:
    hint = shape.hints.get("connect.type")
    if one == "string":
        if _is_base64(shape):
            return Type(kind=ValueKind.BINARY)
        return _FORMATS.get(str(shape.hints.get("format")), Type(kind=ValueKind.STRING))
    if one == "integer":
        logical = _connect_name(shape)
        if logical in _CONNECT_INTEGERS:
            return _CONNECT_INTEGERS[logical]
        return Type(kind=_INTEGERS.get(str(hint), ValueKind.INT64))
    if one == "number":
        return Type(kind=ValueKind.FLOAT if hint == "float32" else ValueKind.DOUBLE)
    return Type(kind=ValueKind.BOOL)


def _is_base64(shape: _SchemaShape) -> bool:
    return shape.hints.get("connect.type") == "bytes" or shape.hints.get("contentEncoding") == "base64"


def _said(shape: _SchemaShape) -> str:
    """What a schema says beyond the types, for an error."""
    words = ("format", "contentEncoding", "title", "connect.type")
    return ", ".join(f"{word} {shape.hints[word]}" for word in words if isinstance(shape.hints.get(word), str))


def _connect_name(shape: _SchemaShape) -> str:
    title = shape.hints.get("title")
    return title.removeprefix(_CONNECT) if isinstance(title, str) and title.startswith(_CONNECT) else ""


def _decimal(shape: _SchemaShape) -> Type | None:
    """Connect's Decimal: base64 of its digits, or a number, while the schema says number of both.

    Source: Confluent Platform 7.7, ``JsonSchemaData``; Connect's ``Decimal``.
    """
    parameters = shape.hints.get("connect.parameters")
    if _connect_name(shape) != "Decimal" or not isinstance(parameters, dict):
        return None
    scale, precision = _integer(parameters.get("scale")), _integer(parameters.get("connect.decimal.precision"))
    if scale is None or abs(scale) > 76:
        return None
    if precision is None or not 1 <= precision <= 76:
        precision = 38
    return Type(kind=ValueKind.DECIMAL, precision=max(precision, scale), scale=scale)


def _integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _default(type_: Type, value: Any) -> str | None:
    """A default as JSON text; ``None`` where the type has no such value: no rule says that a default is valid."""
    from segreader.typed.reference import execute

    if type_.kind is ValueKind.DATE and isinstance(value, int):  # Connect's: days
        try:
            value = (date(1970, 1, 1) + timedelta(value)).isoformat()
        except OverflowError:
            return None
    text = json.dumps(value)
    data = text.encode()
    layout = ColumnLayout.of(_without_recursion(type_))
    root = _Compiler(layout).value(0, None, "")
    return None if execute(Program(layout, (root,)), data, [0], [len(data)], [0]).bad else text


def _without_recursion(type_: Type) -> Type:
    """The type without its recursive fields; what holds nothing but one is JSON text here."""
    fields = []
    for field in type_.fields:
        if field.type.kind is not ValueKind.RECURSIVE:
            fields.append(replace(field, type=_without_recursion(field.type)))
        elif type_.kind is not ValueKind.STRUCT:
            return _JSON_TEXT
    return replace(type_, fields=tuple(fields))


# Steps


class _Compiler:
    """Makes the steps that read values into a layout."""

    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        self._shapes = _Shapes()

    def value(self, column: int, nodes: tuple[_SchemaNode, ...] | None, where: str) -> Op:
        """What reads a value into a column.

        Args:
            nodes: what the writer's schema says of the value; ``None``: nothing.
        """
        type_ = self._layout.columns[column].type
        shape = _SchemaShape() if nodes is None else self._shapes.shape(nodes, where, frozenset())
        op = self._steps(column, type_, shape, where)
        return Op(code=OpCode.JSON_OR_NULL, column=column, children=(op,)) if type_.is_nullable else op

    def _steps(self, column: int, type_: Type, shape: _SchemaShape, where: str) -> Op:
        kind = type_.kind
        if kind is ValueKind.RECURSIVE:
            raise _error(where, "a recursive field cannot be a column", hint="Leave it out with columns=")
        if kind is ValueKind.STRING and type_.unit == "json":
            return Op(code=OpCode.JSON_ANY, column=column)
        if kind is ValueKind.NULL:
            return Op(code=OpCode.JSON_CHOICE, column=column, table=(-1,) * 6)
        admitted = _JSON_TYPES.get(kind, ())
        if admitted and not shape.admits(*admitted) and (shape.is_nullable or "null" in shape.types):
            return Op(code=OpCode.JSON_CHOICE, column=column, table=(-1,) * 6)  # nothing but nulls
        op = self._nested(column, type_, shape, where) if kind in _NESTED else _scalar_steps(column, type_, shape)
        if op is None or not shape.admits(*admitted):
            raise _error(
                where,
                "the writer's schema says another type than the reader's",
                found=" or ".join(sorted(shape.types)) + (f" ({said})" if (said := _said(shape)) else ""),
                expected=kind.value if admitted else f"no {kind.value}, which JSON does not have",
                hint="Choose another schema_version=, or leave the field out with columns=",
            )
        return op

    def _nested(self, column: int, type_: Type, shape: _SchemaShape, where: str) -> Op | None:
        if not shape.admits(*_JSON_TYPES[type_.kind]):
            return None
        if type_.kind is ValueKind.STRUCT:
            return self._object(column, type_, shape, where)
        if type_.kind is ValueKind.LIST:
            item = self.value(self._layout.item(column), None if shape.is_tuple else _of_items(shape), where)
            return Op(code=OpCode.JSON_ARRAY, column=column, children=(item,))
        key, value = self._layout.entry(column)
        name = Op(code=OpCode.JSON_STRING, column=key)
        return Op(code=OpCode.JSON_MAP, column=column, children=(name, self.value(value, _of_map(shape), where)))

    def _object(self, column: int, type_: Type, shape: _SchemaShape, where: str) -> Op:
        steps = []
        for field, below in zip(type_.fields, self._layout.columns[column].children, strict=True):
            place = f"{where}.{field.name}" if where else field.name
            missing = self._missing(below, field)
            nodes = None if shape.is_mixed else shape.member(field.name)
            if nodes is None and not shape.is_mixed:
                if missing is None:
                    raise _error(
                        place,
                        "the writer's schema has no such field, and the reader's needs it",
                        hint="Choose another schema_version=, or leave the field out with columns=",
                    )
                steps.append(missing)
                continue
            value = self.value(below, nodes, place)
            name = field.name.encode("utf-8", "surrogatepass")
            is_raw = not any(byte < 0x20 or byte in b'"\\' for byte in name)
            steps.append(
                Op(
                    code=OpCode.JSON_FIELD,
                    column=below,
                    children=(value,) if missing is None else (value, missing),
                    flags=JSON_RAW_NAME if is_raw else 0,
                    text=name,
                    name=field.name,
                )
            )
        named = [(len(one.text), one.text, at) for at, one in enumerate(steps) if one.code is OpCode.JSON_FIELD]
        order = tuple(at for _, _, at in sorted(named))
        return Op(code=OpCode.JSON_OBJECT, column=column, children=tuple(steps), table=order)

    def _missing(self, column: int, field: TypeField) -> Op | None:
        """What a record without the field has."""
        if field.default is not None:
            value = self.value(column, None, field.name)
            return Op(code=OpCode.CONSTANT, column=column, children=(value,), text=field.default.encode())
        return Op(code=OpCode.SET_NULL, column=column) if field.type.is_nullable else None


_JSON_TYPES: Final[dict[ValueKind, tuple[str, ...]]] = {
    ValueKind.BOOL: ("boolean",),
    ValueKind.INT32: ("integer",),
    ValueKind.INT64: ("integer",),
    ValueKind.UINT64: ("integer",),
    ValueKind.FLOAT: ("number",),
    ValueKind.DOUBLE: ("number",),
    ValueKind.DECIMAL: ("number", "string"),
    ValueKind.STRING: ("string",),
    ValueKind.BINARY: ("string",),
    ValueKind.ENUM: ("string",),
    ValueKind.DATE: ("string", "integer"),
    ValueKind.TIME_MS: ("integer",),
    ValueKind.TIME_US: ("string", "integer"),
    ValueKind.TIMESTAMP: ("string", "integer"),
    ValueKind.STRUCT: ("object",),
    ValueKind.LIST: ("array",),
    ValueKind.MAP: ("object",),
}
"""What JSON has to be to fill a column."""

_NESTED: Final = (ValueKind.STRUCT, ValueKind.LIST, ValueKind.MAP)
_CODES: Final = {
    ValueKind.BOOL: OpCode.JSON_BOOL,
    ValueKind.INT32: OpCode.JSON_INTEGER,
    ValueKind.INT64: OpCode.JSON_INTEGER,
    ValueKind.UINT64: OpCode.JSON_INTEGER,
    ValueKind.FLOAT: OpCode.JSON_NUMBER,
    ValueKind.DOUBLE: OpCode.JSON_NUMBER,
    ValueKind.STRING: OpCode.JSON_STRING,
    ValueKind.BINARY: OpCode.JSON_STRING,
}
_LOGICAL: Final = {
    ValueKind.DATE: "Date",
    ValueKind.TIME_MS: "Time",
    ValueKind.TIME_US: "Time",
    ValueKind.TIMESTAMP: "Timestamp",
}
"""Connect's names of what it writes as a number."""


def _of_items(shape: _SchemaShape) -> tuple[_SchemaNode, ...] | None:
    return None if any(one.value is False for one in shape.items) else shape.items


def _of_map(shape: _SchemaShape) -> tuple[_SchemaNode, ...] | None:
    others = shape.other_members()
    return None if others is None or any(one.value is False for one in others) else others


def _decimal_steps(column: int, type_: Type, shape: _SchemaShape) -> Op:
    number = Op(code=OpCode.JSON_NUMBER, column=column, a=type_.scale)
    if _decimal(shape) is None and not shape.admits("string"):
        return number
    text = Op(code=OpCode.JSON_STRING, column=column, a=type_.scale, flags=JSON_BASE64)
    return Op(code=OpCode.JSON_CHOICE, column=column, children=(text, number), table=(-1, -1, 0, 1, -1, -1))


def _scalar_steps(column: int, type_: Type, shape: _SchemaShape) -> Op | None:
    kind = type_.kind
    if kind in _LOGICAL:
        return _time_steps(column, type_, shape)
    if kind is ValueKind.DECIMAL:
        return _decimal_steps(column, type_, shape)
    if kind is ValueKind.ENUM:
        return _enum_steps(column, type_)
    if kind is ValueKind.BINARY and shape.types != _EVERY and not _is_base64(shape):
        return None
    code = _CODES.get(kind)
    return None if code is None else Op(code=code, column=column)


def _time_steps(column: int, type_: Type, shape: _SchemaShape) -> Op | None:
    """Text, or what Connect writes: days, or milliseconds."""
    kind = type_.kind
    is_text = kind in (ValueKind.DATE, ValueKind.TIME_US) or (kind is ValueKind.TIMESTAMP and type_.unit == "us")
    is_ms = kind is ValueKind.TIME_MS or type_.unit == "ms"
    if _connect_name(shape) == _LOGICAL[kind] or (is_ms and shape.types == _EVERY):
        if type_.unit == "ns":
            return None
        factor = 1000 if kind is not ValueKind.DATE and not is_ms else 0
        return Op(code=OpCode.JSON_INTEGER, column=column, a=factor)
    return Op(code=OpCode.JSON_STRING, column=column) if is_text and shape.admits("string") else None


def _enum_steps(column: int, type_: Type) -> Op:
    symbols = sorted((one.encode("utf-8", "surrogatepass"), at) for at, one in enumerate(type_.symbols))
    symbols.sort(key=lambda one: len(one[0]))
    table: list[int] = []
    end = 0
    for symbol, at in symbols:
        end += len(symbol)
        table += (at, end)
    text = b"".join(symbol for symbol, _ in symbols)
    return Op(code=OpCode.JSON_STRING, column=column, text=text, table=tuple(table))


# Errors


def _error(
    where: str, message: str, *, found: object = None, expected: object = None, hint: str | None = None
) -> OptionError:
    place = f"{where}: " if where else ""
    return OptionError(f"{place}{message}", found=found, expected=expected, hint=hint)


def _too_deep() -> OptionError:
    return OptionError("the JSON Schema is nested too deeply")
