"""Protobuf schemas: the columns that they mean, and the steps that read values of a writer's schema into them.

Schemas are descriptors, as ``protoc`` makes them: a serialized ``FileDescriptorSet`` or ``FileDescriptorProto``, which
is read here, as a few messages of Protobuf's wire format. Text of a ``.proto`` file is compiled to descriptors by
``protoc`` itself, in a process of its own; only that needs a package (the extra ``protobuf``). ``described`` does it
once for all.

Source: protobuf.dev, "Encoding", "Language Specification", "Feature Settings for Editions"; ``descriptor.proto``.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from segreader.errors import OptionError, install_hint
from segreader.typed.ops import (
    DROPPED,
    MOST_DEPTH,
    PROTO_GROUP,
    PROTO_PACKABLE,
    PROTO_REPEATED,
    ColumnLayout,
    Op,
    OpCode,
)
from segreader.typed.schema import Reference, Schema
from segreader.typed.types import Type, TypeField, ValueKind
from segreader.values import dataclass

MOST_TEXT: Final = 1 << 24
"""Bytes of a schema and all that it imports, at most."""

MOST_COLUMNS: Final = 1 << 16
"""Columns of a type, at most: messages that have each other several times double with each level."""

_PROTOC_SECONDS: Final = 60

# Types of fields: FieldDescriptorProto.Type
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)

_WORDS: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)

_INTEGERS: Final = {
    ValueKind.INT32: OpCode.PROTO_INT32,
    ValueKind.INT64: OpCode.PROTO_INT64,
    ValueKind.UINT32: OpCode.PROTO_UINT32,
    ValueKind.UINT64: OpCode.PROTO_UINT64,
    ValueKind.BOOL: OpCode.PROTO_BOOL,
}
_ZIGZAG: Final = {ValueKind.INT32: OpCode.PROTO_SINT32, ValueKind.INT64: OpCode.PROTO_SINT64}
_WIDE: Final = {ValueKind.UINT64: OpCode.PROTO_FIXED64, ValueKind.INT64: OpCode.PROTO_SFIXED64}
_TEXT: Final = {ValueKind.STRING: OpCode.PROTO_STRING, ValueKind.BINARY: OpCode.PROTO_BYTES}
_READERS: Final[Mapping[int, Mapping[ValueKind, OpCode]]] = {
    _DOUBLE: {ValueKind.DOUBLE: OpCode.PROTO_DOUBLE},
    _FLOAT: {ValueKind.FLOAT: OpCode.PROTO_FLOAT, ValueKind.DOUBLE: OpCode.PROTO_FLOAT},
    _INT32: _INTEGERS,
    _INT64: _INTEGERS,
    _UINT32: _INTEGERS,
    _UINT64: _INTEGERS,
    _BOOL: _INTEGERS,
    _ENUM: _INTEGERS,
    _SINT32: _ZIGZAG,
    _SINT64: _ZIGZAG,
    _FIXED32: {
        ValueKind.UINT32: OpCode.PROTO_FIXED32,
        ValueKind.INT32: OpCode.PROTO_SFIXED32,
        ValueKind.UINT64: OpCode.PROTO_FIXED32,
        ValueKind.INT64: OpCode.PROTO_FIXED32,
    },
    _SFIXED32: {
        ValueKind.INT32: OpCode.PROTO_SFIXED32,
        ValueKind.UINT32: OpCode.PROTO_FIXED32,
        ValueKind.INT64: OpCode.PROTO_SFIXED32,
    },
    _FIXED64: _WIDE,
    _SFIXED64: _WIDE,
    _STRING: _TEXT,
    _BYTES: _TEXT,
}
"""How a field's type is read into a column: as protobuf reads the bytes of one type as another, and wider numbers."""

_KINDS: Final = {
    _DOUBLE: ValueKind.DOUBLE,
    _FLOAT: ValueKind.FLOAT,
    _INT64: ValueKind.INT64,
    _UINT64: ValueKind.UINT64,
    _INT32: ValueKind.INT32,
    _FIXED64: ValueKind.UINT64,
    _FIXED32: ValueKind.UINT32,
    _BOOL: ValueKind.BOOL,
    _STRING: ValueKind.STRING,
    _BYTES: ValueKind.BINARY,
    _UINT32: ValueKind.UINT32,
    _SFIXED32: ValueKind.INT32,
    _SFIXED64: ValueKind.INT64,
    _SINT32: ValueKind.INT32,
    _SINT64: ValueKind.INT64,
}
_EMPTY: Final = {
    **dict.fromkeys((_STRING, _BYTES, _MESSAGE, _GROUP), b""),
    **dict.fromkeys((_FLOAT, _FIXED32, _SFIXED32), bytes(4)),
    **dict.fromkeys((_DOUBLE, _FIXED64, _SFIXED64), bytes(8)),
}
"""What a field that is not there would read as; a zero of one byte for all others."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_TIMES: Final = {
    _TIMESTAMP: Type(kind=ValueKind.TIMESTAMP, unit="us", is_utc=True),
    _DURATION: Type(kind=ValueKind.DURATION, unit="us"),
}
_WRAPPED: Final = {
    f"google.protobuf.{name}Value": type_
    for name, type_ in (
        *(("Double", _DOUBLE), ("Float", _FLOAT), ("Int64", _INT64), ("UInt64", _UINT64), ("Int32", _INT32)),
        *(("UInt32", _UINT32), ("Bool", _BOOL), ("String", _STRING), ("Bytes", _BYTES)),
    )
}
_JSON: Final = {"google.protobuf.Struct": 0, "google.protobuf.Value": 1, "google.protobuf.ListValue": 2}
_JSON_TYPE: Final = Type(kind=ValueKind.STRING, unit="json")

_KNOWN: Final = {
    "google.protobuf.Any": (("type_url", _STRING, False), ("value", _BYTES, False)),
    "google.protobuf.Empty": (),
    "google.protobuf.FieldMask": (("paths", _STRING, True),),
    "google.protobuf.SourceContext": (("file_name", _STRING, False),),
    "confluent.type.Decimal": (("value", _BYTES, False), ("precision", _UINT32, False), ("scale", _INT32, False)),
    "confluent.type.Variant": (("metadata", _BYTES, False), ("value", _BYTES, False)),
}
"""Messages that registries do not keep, as every writer has them: fields with their types, numbered from 1."""

_CONFLUENT: Final = {
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";'
        " message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3;"
        " repeated Rule rules = 4; }"
        " message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }"
        " extend google.protobuf.FileOptions { Meta file_meta = 1088; }"
        " extend google.protobuf.MessageOptions { Meta message_meta = 1088; }"
        " extend google.protobuf.FieldOptions { Meta field_meta = 1088; }"
        " extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }"
        " extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"
    ),
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;'
        " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/type/variant.proto": (
        'syntax = "proto3"; package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }'
    ),
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}
"""Imports that Confluent's registry and clients have built in."""


def type_of(schema: Schema, message: str | None = None) -> Type:
    """The type of the values that a schema describes.

    A field may be null if Protobuf tells whether it is there: messages, ``optional``, members of a oneof, all of
    proto2. Where a message contains itself the inner one is ``RECURSIVE``.

    Args:
        message: full name of the message; by default the first one of the file.

    Raises:
        OptionError: the schema is invalid, has no such message, or has what no column can hold.
    """
    with _bounded():
        descriptors = _parse(schema)
        return _MessageTypes(descriptors).message(descriptors.root(message), "")


def message_names(schema: Schema) -> dict[tuple[int, ...], str]:
    """The full name of each message of a schema's file by its index, as frames have it: ``(1, 0)`` is the first
    message within the second one.

    Clients do not agree whether the entries of a map, which are messages to ``protoc``, count. Here they do, as for
    most clients; an index that means a message only without them is there, too.

    Raises:
        OptionError: the schema is invalid.
    """
    with _bounded():
        descriptors = _parse(schema)
        names = _indexed(descriptors, skip_entries=True)
        return names | _indexed(descriptors, skip_entries=False)


def compile_schema(schema: Schema, layout: ColumnLayout, message: str | Sequence[int] | None = None) -> Op:
    """The steps that read messages of a writer's schema into the columns of a reader's type.

    A column is read from the field with its number, whatever its name is. Types may differ as protobuf allows it.

    Args:
        message: the full name of the message, or its index as ``message_names`` has it; by default the first one.

    Raises:
        OptionError: the schema is invalid, has no such message, or it cannot be read as the reader's type; the text
            names the field.
    """
    with _bounded():
        descriptors = _parse(schema)
        if message is not None and not isinstance(message, str):
            names = _indexed(descriptors, skip_entries=True) | _indexed(descriptors, skip_entries=False)
            if (index := tuple(message)) not in names:
                raise OptionError(
                    "a Protobuf schema has no message at this index",
                    found="/".join(map(str, index)),
                    expected=f"one of its {len(names)} messages",
                )
            message = names[index]
        root = descriptors.root(message)
        wanted = layout.columns[0].type.name
        if wanted and wanted.rpartition(".")[2] != root.name.rpartition(".")[2]:
            raise OptionError(
                "values are of another Protobuf message than the reader's schema",
                found=root.name,
                expected=wanted,
                hint="Name the message that the values have",
            )
        return _MessageCompiler(descriptors, layout).content(_MESSAGE, root.name, "", 0, "")


def described(schema: Schema) -> Schema:
    """The same schema as descriptors, with all that it imports: reading it takes no ``protoc`` and no other file.

    A schema that is descriptors already is given back as it is.

    Raises:
        OptionError: the schema is invalid, or ``protoc`` is not installed.
    """
    if _descriptors_in(schema.text) is not None:
        return schema
    with _bounded():
        files = _needed(_files_in(_compiled(schema)))
    return Schema(schema.format, base64.b64encode(_set_of(files)).decode())


def _needed(files: Sequence[bytes]) -> list[bytes]:
    """The last of these files, and those before it whose types it has: imports may only be for options."""
    descriptors = _Descriptors()
    reader = _FileReader(descriptors)
    names = {}
    for one in files:
        known = descriptors.messages.keys() | descriptors.enums.keys()
        descriptors.main = reader.file(one)
        names[one] = (descriptors.messages.keys() | descriptors.enums.keys()) - known
    wanted = set(descriptors.first_messages()) | names[files[-1]]
    while (
        more := {
            descriptors.find(one, field.type_name)
            for one in wanted
            if one in descriptors.messages
            for field in descriptors.messages[one].fields
            if field.type_name
        }
        - wanted
    ):
        wanted |= more
    return [one for one in files if names[one] & wanted or one is files[-1]]


@contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        _invalid("messages are nested too deeply", expected=f"at most {MOST_DEPTH} levels")


def _invalid(what: str, *, found: object = None, expected: object = None, hint: str | None = None) -> NoReturn:
    raise OptionError(f"not a valid Protobuf schema: {what}", found=found, expected=expected, hint=hint)


# Descriptors


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProtoField:
    """A field of a message.

    Args:
        type: FieldDescriptorProto.Type; 0: a message or an enum, by what ``type_name`` is.
        oneof: index of the oneof that it is a member of; -1 without.
    """

    name: str
    number: int
    type: int
    type_name: str = ""
    is_repeated: bool = False
    has_presence: bool = False
    is_group: bool = False
    oneof: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProtoMessage:
    """A message. ``within``: full names of the messages in it, entries of maps among them."""

    name: str
    fields: tuple[_ProtoField, ...]
    within: tuple[str, ...] = ()
    is_map_entry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProtoEnum:
    """An enum: the first name of each number, in their order."""

    symbols: tuple[tuple[str, int], ...]
    is_closed: bool


class _Descriptors:
    """Messages and enums by their full names, and those of one file by their order in it."""

    def __init__(self) -> None:
        self.messages: dict[str, _ProtoMessage] = {}
        self.enums: dict[str, _ProtoEnum] = {}
        self.files: dict[str, tuple[str, ...]] = {}
        self.imports: dict[str, tuple[str, ...]] = {}
        self.passed_on: dict[str, tuple[str, ...]] = {}
        self.main = ""

    def first_messages(self) -> tuple[str, ...]:
        """The messages of the file; of the only one that it imports for all to see, if it has none itself."""
        found, passed_on = self.files[self.main], self.passed_on[self.main]
        return self.files.get(passed_on[0], ()) if not found and len(passed_on) == 1 else found

    def root(self, name: str | None) -> _ProtoMessage:
        """The message of this full name; the first one of the file."""
        if name is None:
            names = self.first_messages()
            if not names:
                _invalid("the file has no message")
            return self.messages[names[0]]
        if name not in self.messages:
            known = [one.name for one in self.messages.values() if not one.is_map_entry]
            shown = ", ".join(sorted(known)[:10])
            raise OptionError("a Protobuf schema has no such message", found=name, expected=shown or "none")
        return self.messages[name]

    def find(self, scope: str, name: str) -> str:
        """The full name of a type that a field of the message ``scope`` names."""
        if name.startswith("."):
            return name[1:]
        while True:
            full = f"{scope}.{name}".lstrip(".")
            if not scope or full in self.messages or full in self.enums:
                return full
            scope = scope.rpartition(".")[0]

    def lacks_types(self) -> bool:
        """Whether a field has a type that is not here."""
        known = self.messages.keys() | self.enums.keys() | _TIMES.keys() | _WRAPPED.keys() | _JSON.keys()
        return any(
            self.find(message.name, one.type_name) not in known
            for message in self.messages.values()
            for one in message.fields
            if one.type_name
        )


_Wire = dict[int, list[int | bytes]]
"""The fields of a message by number: numbers, and the bytes of all that has a length."""


def _read_wire(data: bytes) -> _Wire:
    """The fields of a serialized message.

    Raises:
        ValueError: it is none.
    """
    found: _Wire = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("varint")

    try:
        while at < len(data):
            tag = varint()
            value: int | bytes
            match tag & 7:
                case 0:
                    value = varint()
                case 1 | 5 as wire_type:
                    size = 8 if wire_type == 1 else 4
                    value = int.from_bytes(data[at : at + size], "little")
                    at += size
                case 2:
                    size = varint()
                    value = data[at : at + size]
                    at += size
                case _:
                    raise ValueError("wire type")
            if not tag >> 3 or at > len(data):
                raise ValueError("tag or length")
            found.setdefault(tag >> 3, []).append(value)
    except IndexError:
        raise ValueError("cut") from None
    return found


def _number(wire: _Wire, number: int, default: int = 0) -> int:
    value = wire.get(number, (default,))[-1]
    if not isinstance(value, int):
        raise ValueError("a number")
    return value


def _numbers(wire: _Wire, number: int) -> list[int]:
    return [one for one in wire.get(number, ()) if isinstance(one, int)]


def _bytes(wire: _Wire, number: int) -> list[bytes]:
    values = [one for one in wire.get(number, ()) if isinstance(one, bytes)]
    if len(values) < len(wire.get(number, ())):
        raise ValueError("bytes")
    return values


def _name(wire: _Wire, number: int = 1) -> str:
    values = _bytes(wire, number)
    return values[-1].decode() if values else ""


_PRESENCE, _ENUM_TYPE, _ENCODING = 1, 2, 5
_PROTO2: Final = {_PRESENCE: 1, _ENUM_TYPE: 2, _ENCODING: 1}
_PROTO3: Final = {_PRESENCE: 2, _ENUM_TYPE: 1, _ENCODING: 1}
_EDITION: Final = {_PRESENCE: 1, _ENUM_TYPE: 1, _ENCODING: 1}
"""Features by their numbers in ``FeatureSet``. Presence: 1 explicit, 2 implicit, 3 required; enums: 1 open, 2 closed;
encoding: 1 with a length, 2 delimited."""


class _FileReader:
    """Reads the descriptors of one file."""

    def __init__(self, into: _Descriptors) -> None:
        self._into = into

    def file(self, data: bytes, name: str | None = None) -> str:
        """Read a ``FileDescriptorProto``; gives the name of the file.

        Args:
            name: what other files import it as; by default its own.
        """
        wire = _read_wire(data)
        name = name or _name(wire)
        syntax = _name(wire, 12)
        features = {"": _PROTO2, "proto2": _PROTO2, "proto3": _PROTO3, "editions": _EDITION}.get(syntax)
        if features is None:
            _invalid("unknown syntax", found=syntax[:20], expected="proto2, proto3 or editions")
        features = self._with_options(features, wire, 8, 50)
        package = _name(wire, 2)
        for one in _bytes(wire, 5):
            self._enum(one, package, features)
        found = tuple(self._message(one, package, features, 0) for one in _bytes(wire, 4))
        self._into.files[name] = found
        imports = tuple(one.decode() for one in _bytes(wire, 3))
        self._into.imports[name] = imports
        self._into.passed_on[name] = tuple(imports[one] for one in _numbers(wire, 10) if one < len(imports))
        return name

    @staticmethod
    def _with_options(features: dict[int, int], wire: _Wire, options: int, number: int) -> dict[int, int]:
        """The features of something, given those of what is around it.

        Args:
            options: number of its options.
            number: of the features in them.
        """
        own: _Wire = {}
        for one in _bytes(wire, options):
            for feature in _bytes(_read_wire(one), number):
                own |= _read_wire(feature)
        return features | {one: _number(own, one) for one in features if own.get(one)}

    def _message(self, data: bytes, scope: str, features: dict[int, int], depth: int) -> str:
        if depth > MOST_DEPTH:
            _invalid("messages are nested too deeply", expected=f"at most {MOST_DEPTH} levels")
        wire = _read_wire(data)
        name = f"{scope}.{_name(wire)}".lstrip(".")
        features = self._with_options(features, wire, 7, 12)
        is_map_entry = any(_number(_read_wire(one), 7) for one in _bytes(wire, 7))
        for one in _bytes(wire, 4):
            self._enum(one, name, features)
        within = tuple(self._message(one, name, features, depth + 1) for one in _bytes(wire, 3))
        oneofs = [self._with_options(features, _read_wire(one), 2, 1) for one in _bytes(wire, 8)]
        fields = tuple(self._field(one, features, oneofs, is_map_entry) for one in _bytes(wire, 2))
        if len({one.number for one in fields}) < len(fields) or len({one.name for one in fields}) < len(fields):
            _invalid("two fields of a message have the same name or number", found=name)
        self._into.messages[name] = _ProtoMessage(name=name, fields=fields, within=within, is_map_entry=is_map_entry)
        return name

    def _field(
        self, data: bytes, features: dict[int, int], oneofs: Sequence[dict[int, int]], is_in_map: bool
    ) -> _ProtoField:
        wire = _read_wire(data)
        name, number, label, type_ = _name(wire), _number(wire, 3), _number(wire, 4), _number(wire, 5)
        if not name or not 0 < number < 1 << 29 or type_ >= len(_WORDS):
            _invalid("a field", found=f"{name[:80]} = {number}, of type {type_}")
        oneof = _number(wire, 9, -1)
        if oneof >= len(oneofs):
            _invalid("a field is a member of no oneof", found=name)
        features = self._with_options(oneofs[oneof] if oneof >= 0 else features, wire, 8, 21)
        is_message = type_ in (_MESSAGE, _GROUP)
        return _ProtoField(
            name=name,
            number=number,
            type=type_,
            type_name=_name(wire, 6),
            is_repeated=label == 3,
            has_presence=is_message or oneof >= 0 or label == 2 or features[_PRESENCE] != 2,
            is_group=type_ == _GROUP or (type_ == _MESSAGE and features[_ENCODING] == 2 and not is_in_map),
            oneof=-1 if _number(wire, 17) else oneof,
        )

    def _enum(self, data: bytes, scope: str, features: dict[int, int]) -> None:
        wire = _read_wire(data)
        symbols: dict[int, str] = {}
        for one in _bytes(wire, 2):
            value = _read_wire(one)
            number = (_number(value, 2) + (1 << 31)) % (1 << 32) - (1 << 31)
            symbols.setdefault(number, _name(value))
        if not symbols:
            _invalid("an enum has no values", found=_name(wire))
        features = self._with_options(features, wire, 3, 7)
        name = f"{scope}.{_name(wire)}".lstrip(".")
        self._into.enums[name] = _ProtoEnum(
            symbols=tuple((symbol, number) for number, symbol in symbols.items()), is_closed=features[_ENUM_TYPE] == 2
        )


def _parse(schema: Schema) -> _Descriptors:
    """The descriptors of a schema and of what it imports."""
    descriptors = _Descriptors()
    _add_schema(descriptors, schema, None, 0)
    if descriptors.lacks_types():
        for name, fields in _KNOWN.items():
            known = tuple(
                _ProtoField(name=one, number=number, type=type_, is_repeated=is_repeated)
                for number, (one, type_, is_repeated) in enumerate(fields, 1)
            )
            descriptors.messages.setdefault(name, _ProtoMessage(name=name, fields=known))
    if descriptors.lacks_types():
        _add_known_imports(descriptors)
    return descriptors


def _add_schema(descriptors: _Descriptors, schema: Schema, name: str | None, depth: int) -> None:
    """Read a schema, after those that it imports, so that the last file is its own.

    Args:
        name: that others import it by.
    """
    if depth > MOST_DEPTH:
        _invalid("imports are nested too deeply", expected=f"at most {MOST_DEPTH} levels")
    data = _descriptors_in(schema.text)
    if data is None:
        data = _compiled(schema)
    else:
        for one in schema.references:
            if one.name not in descriptors.files:
                _add_schema(descriptors, one.schema, one.name, depth + 1)
    try:
        files = _files_in(data)
        reader = _FileReader(descriptors)
        for file in files[:-1]:
            reader.file(file)
        descriptors.main = reader.file(files[-1], name)
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        _invalid("it is neither the text of a .proto file nor descriptors in base64")


def _add_known_imports(descriptors: _Descriptors) -> None:
    """Read the files that a schema imports, that come without a schema of their own, and that everyone has."""
    wanted = sorted(
        one
        for imports in descriptors.imports.values()
        for one in imports
        if one not in descriptors.files and one.startswith(("google/protobuf/", "google/type/", "confluent/"))
    )
    if not wanted:
        return
    text = "".join(f'import "{one}";' for one in dict.fromkeys(wanted))
    reader = _FileReader(descriptors)
    for file in _files_in(_run_protoc(f'syntax = "proto3"; {text}', {}, {})):
        reader.file(file)


def _descriptors_in(text: str) -> bytes | None:
    """The descriptors that a schema is; ``None``: it is the text of a ``.proto`` file."""
    if len(text) > MOST_TEXT:
        _invalid("it is too long", found=f"{len(text):,} characters", expected=f"at most {MOST_TEXT:,}")
    try:
        return base64.b64decode("".join(text.split()), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _files_in(data: bytes) -> list[bytes]:
    """Each ``FileDescriptorProto`` of what is one, or a set of them: a set has no field but these.

    Raises:
        ValueError: it is neither.
    """
    wire = _read_wire(data)
    return _bytes(wire, 1) if wire.keys() == {1} else [data]


def _indexed(descriptors: _Descriptors, *, skip_entries: bool) -> dict[tuple[int, ...], str]:
    found: dict[tuple[int, ...], str] = {}

    def add(names: Sequence[str], above: tuple[int, ...]) -> None:
        messages = [descriptors.messages[one] for one in names]
        for index, one in enumerate(one for one in messages if not (skip_entries and one.is_map_entry)):
            if not one.is_map_entry:
                found[*above, index] = one.name
                add(one.within, (*above, index))

    add(descriptors.first_messages(), ())
    return found


# Text


def _compiled(schema: Schema) -> bytes:
    """The ``FileDescriptorSet`` of a ``.proto`` file's text; its own file is the last one."""
    texts: dict[str, str] = {}
    files: dict[str, list[bytes]] = {}
    size = len(schema.text)

    def add(references: Sequence[Reference], depth: int) -> None:
        nonlocal size
        if depth > MOST_DEPTH:
            _invalid("imports are nested too deeply", expected=f"at most {MOST_DEPTH} levels")
        for one in references:
            if one.name in texts or one.name in files:
                continue
            path = PurePosixPath(one.name)
            if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in one.name:
                _invalid("the name of an import", found=one.name[:80], expected="a path, as in an import")
            size += len(one.schema.text)
            data = _descriptors_in(one.schema.text)
            if data is None:
                texts[one.name] = one.schema.text
            else:
                files[one.name] = _named_as(one.name, data)
            add(one.schema.references, depth + 1)

    add(schema.references, 0)
    if size > MOST_TEXT:
        _invalid("it and its imports are too long", found=f"{size:,} characters", expected=f"at most {MOST_TEXT:,}")
    return _run_protoc(schema.text, files, texts)


def _named_as(name: str, data: bytes) -> list[bytes]:
    """The files that descriptors are, the last of them with the name that others import it by."""
    try:
        *others, own = _files_in(data)
    except ValueError:
        _invalid("an import is neither text nor descriptors in base64", found=name[:80])
    encoded = name.encode(errors="replace")
    return [*others, own + b"\x0a" + _varint(len(encoded)) + encoded]  # of two names the last one counts


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*data, value))


def _run_protoc(text: str, files: Mapping[str, Sequence[bytes]], texts: Mapping[str, str]) -> bytes:
    """The ``FileDescriptorSet`` that ``protoc`` makes of a file and all that it imports.

    It runs in a process of its own: it may end that, print, or take too long, and leaves nothing behind.

    Args:
        files: descriptors that may be imported, by their paths: the file, behind those that it imports.
        texts: of files that may be imported, by their paths.
    """
    if find_spec("grpc_tools") is None or not sys.executable:
        raise OptionError(
            "compiling a .proto file needs protoc",
            expected="the package grpcio-tools",
            hint=f"{install_hint('protobuf')}, or give descriptors: protoc --include_imports --descriptor_set_out=FILE",
        )
    try:
        with tempfile.TemporaryDirectory(prefix="segreader-") as folder:
            root = Path(folder, "imports")
            main = next(name for k in range(len(texts) + len(files) + 1)
                        if (name := f"schema{k or ''}.proto") not in texts.keys() | files.keys())  # fmt: skip
            for name, one in {**_known_texts(text, *texts.values()), **texts, main: text}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(one, encoding="utf-8", errors="replace", newline="")
            out, known = Path(folder, "out"), Path(folder, "known")
            command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "-I", str(root), "--include_imports"]
            if files:
                known.write_bytes(_set_of([one for found in files.values() for one in found]))
                command.append(f"--descriptor_set_in={known}")
            done = subprocess.run(
                [*command, f"--descriptor_set_out={out}", main],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROTOC_SECONDS,
            )
            if done.returncode or not out.exists():
                what = _explained(done.stderr.decode(errors="replace"), root)
                _invalid(what, hint=install_hint("protobuf") if "google/type/" in what else None)
            return out.read_bytes()
    except subprocess.TimeoutExpired:
        _invalid("protoc takes too long", expected=f"at most {_PROTOC_SECONDS} seconds")
    except OSError as error:
        raise OptionError("protoc cannot be run", found=type(error).__name__) from error


def _set_of(files: Sequence[bytes]) -> bytes:
    """The ``FileDescriptorSet`` of these files."""
    return b"".join(b"\x0a" + _varint(len(one)) + one for one in files)


def _explained(output: str, root: Path) -> str:
    """What ``protoc`` says is wrong first, without paths of this machine."""
    lines = output.replace(f"{root}{os.sep}", "").splitlines()
    places = [found for one in lines if (found := re.match(r"(\S+\.proto):(?:(\d+):(\d+):)? (?!warning: )(.*)", one))]
    if not places:
        return "protoc stopped without saying why"
    file, line, column, what = places[0].groups()
    words = [] if re.fullmatch(r"schema\d*\.proto", file) else [file]
    words += [f"line {line}, column {column}"] if line else []
    return f"{', '.join(words)}{': ' if words else ''}{what}"[:300].rstrip(".")


def _known_texts(*texts: str) -> dict[str, str]:
    """Files that everyone has, for what these texts may import. ``protoc`` has google/protobuf itself."""
    found: dict[str, str] = {}
    if any("confluent/" in one for one in texts):
        found |= _CONFLUENT
    if any("google/type/" in one for one in texts) and find_spec("google") and (spec := find_spec("google.type")):
        for place in spec.submodule_search_locations or ():
            found |= {f"google/type/{one.name}": one.read_text() for one in Path(place).glob("*.proto")}
    return found


# Types


class _MessageTypes:
    """Unrolls messages into a type; counts its columns."""

    def __init__(self, descriptors: _Descriptors) -> None:
        self._descriptors = descriptors
        self._open: list[str] = []
        self._columns = 0

    def message(self, message: _ProtoMessage, place: str) -> Type:
        """The type of a message, as the value of a record, or within one at ``place``."""
        return self._named(message.name, place)

    def _named(self, name: str, place: str) -> Type:
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise OptionError("a Protobuf schema has too many columns", expected=f"at most {MOST_COLUMNS:,}")
        if name in _TIMES:
            return _TIMES[name]
        if name in _WRAPPED:
            return Type(kind=_KINDS[_WRAPPED[name]])
        if name in _JSON:
            return _JSON_TYPE
        if name in self._open or len(self._open) >= MOST_DEPTH:
            return Type(kind=ValueKind.RECURSIVE, name=name)
        if enum := self._descriptors.enums.get(name):
            return Type(kind=ValueKind.ENUM, symbols=tuple(dict.fromkeys(symbol for symbol, _ in enum.symbols)))
        message = _message(self._descriptors, name, place)
        self._open.append(name)
        fields = tuple(
            TypeField(one.name, self._field(one, name, f"{place}.{one.name}".lstrip(".")), number=one.number)
            for one in message.fields
        )
        self._open.pop()
        return Type(kind=ValueKind.STRUCT, fields=fields, name=name)

    def _field(self, field: _ProtoField, scope: str, place: str) -> Type:
        if not field.is_repeated:
            return replace(self._single(field, scope, place), is_nullable=field.has_presence)
        entry = _map_entry(self._descriptors, field, scope)
        if entry is None:
            return Type(kind=ValueKind.LIST, fields=(TypeField("item", self._single(field, scope, place)),))
        key, value = (TypeField(one.name, self._single(one, entry.name, place)) for one in entry.fields)
        return Type(kind=ValueKind.MAP, fields=(key, value))

    def _single(self, field: _ProtoField, scope: str, place: str) -> Type:
        if field.type_name:
            return self._named(self._descriptors.find(scope, field.type_name), place)
        self._columns += 1
        if field.type not in _KINDS:
            _invalid(f"a field has no type: {place}")
        return Type(kind=_KINDS[field.type])


def _message(descriptors: _Descriptors, name: str, place: str) -> _ProtoMessage:
    found = descriptors.messages.get(name)
    if found is None:
        files = ", ".join(
            one for imports in descriptors.imports.values() for one in imports if one not in descriptors.files
        )
        _invalid(
            f"{place or 'the root'}: an unknown type",
            found=name,
            expected=f"one of {files}" if files else "one of the schema or its references",
            hint="Give the files that the schema imports as its references",
        )
    return found


def _map_entry(descriptors: _Descriptors, field: _ProtoField, scope: str) -> _ProtoMessage | None:
    """The key and the value of a map, if a repeated field is one."""
    entry = descriptors.messages.get(descriptors.find(scope, field.type_name)) if field.type_name else None
    if entry is None or not entry.is_map_entry:
        return None
    if [one.number for one in entry.fields] != [1, 2] or any(one.is_repeated for one in entry.fields):
        _invalid("the entry of a map has not one key and one value", found=entry.name)
    return entry


# Resolution


class _MessageCompiler:
    """Makes the steps of a writer's messages for the columns of a layout."""

    def __init__(self, descriptors: _Descriptors, layout: ColumnLayout) -> None:
        self._descriptors = descriptors
        self._layout = layout

    def content(self, type_: int, type_name: str, scope: str, column: int, place: str) -> Op:
        """The step that reads one occurrence of a field, or of a root, without tag and length.

        Args:
            scope: full name of the message around it.
        """
        name = self._descriptors.find(scope, type_name) if type_name else ""
        target = self._layout.columns[column].type
        if target.kind is ValueKind.RECURSIVE:
            raise OptionError(
                f"a field contains its own type, so it cannot be a column: {place}",
                found=target.name,
                hint="Leave it out: name the other fields with columns=",
            )
        if name in self._descriptors.enums:
            return self._enum(name, target, column, place)
        if not name:
            code = _READERS.get(type_, {}).get(target.kind)
            if code is None or target.unit:
                self._refuse(_WORDS[type_], target, place)
            return Op(code=code, column=column)
        if name in _TIMES:
            if (target.kind, target.unit) != (_TIMES[name].kind, "us"):
                self._refuse(name, target, place)
            code = OpCode.PROTO_TIMESTAMP if name == _TIMESTAMP else OpCode.PROTO_DURATION
            return Op(code=code, column=column)
        if name in _WRAPPED:
            return self._wrapper(_WRAPPED[name], column, place)
        if name in _JSON:
            if target.kind is not ValueKind.STRING or target.unit != "json":
                self._refuse(name, target, place)
            return Op(code=OpCode.PROTO_JSON, column=column, a=_JSON[name])
        if target.kind is not ValueKind.STRUCT:
            self._refuse(name, target, place)
        return self._struct(_message(self._descriptors, name, place), column, place)

    @staticmethod
    def _refuse(found: str, expected: Type, place: str) -> NoReturn:
        raise OptionError(
            f"a schema of the writers cannot be read as the reader's: {place or 'the value itself'}",
            found=found,
            expected=str(expected),
            hint="Choose another version with schema_version=, or leave the field out with columns=",
        )

    def _enum(self, name: str, target: Type, column: int, place: str) -> Op:
        enum = self._descriptors.enums[name]
        if target.kind is not ValueKind.ENUM:
            code = _READERS[_ENUM].get(target.kind)
            if code is None:
                self._refuse(f"enum {name}", target, place)
            return Op(code=code, column=column)
        indices = {symbol: index for index, symbol in enumerate(target.symbols)}
        pairs = sorted((number, indices[symbol]) for symbol, number in enum.symbols if symbol in indices)
        table = tuple(one for pair in pairs for one in pair)
        return Op(code=OpCode.PROTO_ENUM, column=column, a=int(enum.is_closed), table=table)

    def _wrapper(self, type_: int, column: int, place: str) -> Op:
        child = self.content(type_, "", "", column, place)
        field = Op(
            code=OpCode.PROTO_FIELD, column=column, a=1, b=-1, children=(child, _constant(child, type_)), name="value"
        )
        return Op(code=OpCode.PROTO_MESSAGE, children=(field,))

    def _struct(self, message: _ProtoMessage, column: int, place: str) -> Op:
        by_number = {one.number: one for one in message.fields}
        by_name = {one.name: one for one in message.fields}
        target = self._layout.columns[column]
        numbers = {one.number for one in target.type.fields}
        children: list[Op] = []
        kept: list[_ProtoField] = []
        for index, wanted in zip(target.children, target.type.fields, strict=True):
            field = by_number.get(wanted.number)
            if field is None and (named := by_name.get(wanted.name)) and named.number not in numbers:
                field = named
            if field is None:
                children.append(Op(code=OpCode.SET_NULL, column=index, name=wanted.name))
            else:
                kept.append(field)
                children.append(self._field(field, message.name, index, f"{place}.{wanted.name}".lstrip(".")))
        oneofs = {one.oneof for one in kept} - {-1}
        children += [
            self._unseen(one, message.name) for one in message.fields if one.oneof in oneofs and one not in kept
        ]
        return Op(code=OpCode.PROTO_MESSAGE, column=column, children=tuple(children), name=message.name)

    def _unseen(self, field: _ProtoField, scope: str) -> Op:
        """A member of a oneof that is not asked for: where it comes, the others are not set."""
        name = self._descriptors.find(scope, field.type_name) if field.type_name else ""
        if enum := self._descriptors.enums.get(name):
            table = tuple(one for number in sorted(number for _, number in enum.symbols) for one in (number, 0))
            child = Op(code=OpCode.PROTO_ENUM, a=int(enum.is_closed), table=table)
        else:
            kind = ValueKind.BINARY if name else _KINDS[field.type]
            child = Op(code=_READERS[_BYTES if name else field.type][kind])
        flags = PROTO_GROUP if field.is_group else 0
        return Op(code=OpCode.PROTO_FIELD, a=field.number, b=field.oneof, flags=flags, children=(child,))

    def _field(self, field: _ProtoField, scope: str, column: int, place: str) -> Op:
        target = self._layout.columns[column]
        is_list = target.type.kind is ValueKind.LIST
        flags = PROTO_REPEATED if is_list else 0
        children: tuple[Op, ...]
        if field.is_repeated and (entry := _map_entry(self._descriptors, field, scope)) is not None:
            if target.type.kind is not ValueKind.MAP:
                self._refuse("map", target.type, place)
            children = (self._entry(entry, column, place),)
            flags = PROTO_REPEATED
        else:
            item = target.children[0] if is_list else column
            child = self.content(field.type, field.type_name, scope, item, place)
            if field.is_group:
                flags |= PROTO_GROUP
            if is_list:
                children = (child,)
                flags |= PROTO_PACKABLE if _is_packable(child) else 0
            elif field.is_repeated and _is_packable(child):  # packed, they are no occurrence of a single number
                self._refuse(f"repeated {_WORDS[field.type or _ENUM]}", target.type, place)
            elif field.has_presence or field.is_repeated:
                children = child, Op(code=OpCode.SET_NULL, column=column)
            else:
                children = child, _constant(child, field.type)
        return Op(
            code=OpCode.PROTO_FIELD,
            column=column,
            a=field.number,
            b=-1 if flags & PROTO_REPEATED else field.oneof,
            flags=flags,
            children=children,
            name=field.name,
        )

    def _entry(self, entry: _ProtoMessage, column: int, place: str) -> Op:
        children = []
        for index, one in zip(self._layout.entry(column), entry.fields, strict=True):
            child = self.content(one.type, one.type_name, entry.name, index, place)
            absent = _constant(child, one.type)
            children.append(
                Op(code=OpCode.PROTO_FIELD, column=index, a=one.number, b=-1, children=(child, absent), name=one.name)
            )
        return Op(code=OpCode.PROTO_MAP_ENTRY, column=column, children=tuple(children))


def _constant(child: Op, type_: int) -> Op:
    """The step for a field that is not there and whose value then is its default."""
    column = child.column if child.column != DROPPED else child.children[0].column
    text = _EMPTY.get(type_, b"\0") if child.code is not OpCode.PROTO_ENUM else b"\0"
    return Op(code=OpCode.CONSTANT, column=column, children=(child,), text=text)


def _is_packable(child: Op) -> bool:
    return OpCode.PROTO_INT32 <= child.code <= OpCode.PROTO_ENUM
