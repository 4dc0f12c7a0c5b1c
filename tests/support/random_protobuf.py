"""Random Protobuf messages: descriptors that upb takes, trees of steps for the same bytes, and what upb reads there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    unknown_fields,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message
from random_programs import DOUBLES, FLOATS, INTS, LONGS, TEXTS, as_float, encode_varint

from segreader.typed.ops import (
    DROPPED,
    PROTO_GROUP,
    PROTO_PACKABLE,
    PROTO_REPEATED,
    ColumnLayout,
    Op,
    OpCode,
    Program,
)
from segreader.typed.types import Type, TypeField, ValueKind

Described = descriptor_pb2.FieldDescriptorProto

_SCALARS = {
    OpCode.PROTO_INT32: (Described.TYPE_INT32, ValueKind.INT32),
    OpCode.PROTO_INT64: (Described.TYPE_INT64, ValueKind.INT64),
    OpCode.PROTO_UINT32: (Described.TYPE_UINT32, ValueKind.UINT32),
    OpCode.PROTO_UINT64: (Described.TYPE_UINT64, ValueKind.UINT64),
    OpCode.PROTO_SINT32: (Described.TYPE_SINT32, ValueKind.INT32),
    OpCode.PROTO_SINT64: (Described.TYPE_SINT64, ValueKind.INT64),
    OpCode.PROTO_FIXED32: (Described.TYPE_FIXED32, ValueKind.UINT32),
    OpCode.PROTO_FIXED64: (Described.TYPE_FIXED64, ValueKind.UINT64),
    OpCode.PROTO_SFIXED32: (Described.TYPE_SFIXED32, ValueKind.INT32),
    OpCode.PROTO_SFIXED64: (Described.TYPE_SFIXED64, ValueKind.INT64),
    OpCode.PROTO_FLOAT: (Described.TYPE_FLOAT, ValueKind.FLOAT),
    OpCode.PROTO_DOUBLE: (Described.TYPE_DOUBLE, ValueKind.DOUBLE),
    OpCode.PROTO_BOOL: (Described.TYPE_BOOL, ValueKind.BOOL),
    OpCode.PROTO_STRING: (Described.TYPE_STRING, ValueKind.STRING),
    OpCode.PROTO_BYTES: (Described.TYPE_BYTES, ValueKind.BINARY),
}
_DELIMITED = (OpCode.PROTO_STRING, OpCode.PROTO_BYTES)
_KEYS = tuple(one for one in _SCALARS if one not in (OpCode.PROTO_FLOAT, OpCode.PROTO_DOUBLE, OpCode.PROTO_BYTES))
_ZEROS = {
    **dict.fromkeys((OpCode.PROTO_FIXED32, OpCode.PROTO_SFIXED32, OpCode.PROTO_FLOAT), bytes(4)),
    **dict.fromkeys((OpCode.PROTO_FIXED64, OpCode.PROTO_SFIXED64, OpCode.PROTO_DOUBLE), bytes(8)),
    **dict.fromkeys(_DELIMITED, b""),
}
_WRAPPERS = {
    OpCode.PROTO_INT64: "Int64Value",
    OpCode.PROTO_STRING: "StringValue",
    OpCode.PROTO_BOOL: "BoolValue",
    OpCode.PROTO_DOUBLE: "DoubleValue",
    OpCode.PROTO_BYTES: "BytesValue",
    OpCode.PROTO_UINT32: "UInt32Value",
}

Fill = Callable[[], Any]
"""Draws a value as the Python of Protobuf takes it; a message of its own kind is filled by the function it gives."""


class Content(NamedTuple):
    """What a field holds, once: how it is described, read, drawn and looked at."""

    described: int
    name: str  # of the message or enum, "" of a scalar
    type: Type
    build: Callable[[ColumnLayout, int], Op]
    draw: Callable[[Any], Any]  # a scalar, or fills the message that it gets
    value: Callable[[Any], Any]  # what an executor gives for what upb gives
    zero: bytes  # what children[1] reads where the field has no presence
    is_message: bool = False
    is_packable: bool = False


class MessageField(NamedTuple):
    """A field of a message."""

    described: Any
    type: Type
    build: Callable[[ColumnLayout, int], Op]
    fill: Callable[[Any], None]
    value: Callable[[Any], Any]
    is_kept: bool
    oneof: int = -1


class ProtobufCase(NamedTuple):
    """A message: the program that reads it, and upb's classes for it."""

    program: Program
    message: type[Message]
    draw: Callable[[], bytes]
    value: Callable[[Any], Any]

    def judge(self, data: bytes) -> Any:
        """What upb says of any bytes: a value, ``BROKEN``, or ``UNLIKE`` where it is known to differ from us."""
        try:
            message = self.message.FromString(data)
        except DecodeError:
            return BROKEN
        if _has_unknown_entries(message):
            return UNLIKE
        return self.value(message)


BROKEN, UNLIKE = object(), object()


def _has_unknown_entries(message: Any) -> bool:
    """Whether upb put an entry of a map among what it does not know, for a field that it did not know in there."""
    maps = {one.number for one in message.DESCRIPTOR.fields if _is_map(one)}
    if any(one.field_number in maps and one.wire_type == 2 for one in unknown_fields.UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value.values() if _is_map(field) else value if field.is_repeated else (value,)
            if any(isinstance(one, Message) and _has_unknown_entries(one) for one in values):
                return True
    return False


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class ProtobufParts:
    """Draws messages of one file.

    Args:
        drops: whether some fields have no column; upb looks at what is in them, an executor does not.
    """

    def __init__(self, random: Random, *, drops: bool) -> None:
        self._random, self._drops = random, drops
        self._is_old = random.random() < 0.4
        self._file = descriptor_pb2.FileDescriptorProto(name="random.proto", package="r")
        self._file.syntax = "proto2" if self._is_old else "proto3"
        known = ("timestamp", "duration", "wrappers", "struct")
        self._file.dependency.extend(f"google/protobuf/{one}.proto" for one in known)
        self._names = 0

    def case(self, depth: int = 3) -> ProtobufCase:
        """A program and what upb makes of its bytes."""
        content = self._message(depth)
        layout = ColumnLayout.of(content.type)
        classes = [self._class(content.name, is_packed) for is_packed in (True, False)]

        def draw() -> bytes:
            found = []
            for _ in range(self._random.choice((1, 1, 1, 2, 3))):
                message = self._random.choice(classes)()
                content.draw(message)
                found += [*split_fields(message.SerializeToString())]
            while self._random.random() < 0.4:
                found.append(self._random.choice((self._unknown_field, self._odd_field))())
            if self._random.random() < 0.4:
                self._random.shuffle(found)
            return b"".join(found)

        return ProtobufCase(Program(layout, [content.build(layout, 0)]), classes[0], draw, content.value)

    def _class(self, name: str, is_packed: bool) -> type[Message]:
        file = descriptor_pb2.FileDescriptorProto.FromString(self._file.SerializeToString())
        for message in file.message_type:
            for field in message.field:
                if field.label == Described.LABEL_REPEATED and _is_packable(field.type):
                    field.options.packed = is_packed
        pool = descriptor_pool.DescriptorPool()
        for one in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
            pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
        pool.Add(file)
        made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name[1:]))
        return made

    def _unknown_field(self) -> bytes:
        number = self._random.choice((100, 2**29 - 1, 16))
        kind = self._random.randrange(4)
        tag = encode_varint(number << 3 | (0, 1, 2, 3)[kind])
        if kind == 3:
            inner = b"".join(self._unknown_field() for _ in range(self._random.randrange(2)))
            return tag + inner + encode_varint(number << 3 | 4)
        return tag + (b"\x96\x01", bytes(8), b"\x03abc")[kind]

    def _odd_field(self, depth: int = 3) -> bytes:
        """A field with a number that a message may have, and any wire type and content that are well formed."""
        random = self._random
        number, wire_type = random.choice((*range(1, 16), 17, 99)), random.choice((0, 0, 1, 2, 2, 2, 3, 5))
        tag = encode_varint(number << 3 | wire_type)
        if wire_type in (1, 5):
            return tag + random.randbytes(8 if wire_type == 1 else 4)
        numbers = [encode_varint(one % 2**64) for one in random.choices((*LONGS, 2, 5, 7), k=random.randrange(1, 4))]
        if wire_type == 0:
            return tag + numbers[0]
        fields = b"".join(self._odd_field(depth - 1) for _ in range(random.randrange(3))) if depth else b""
        if wire_type == 3:
            return tag + fields + encode_varint(number << 3 | 4)
        content = random.choice((fields, fields, b"".join(numbers), b"", "naïve".encode(), random.randbytes(8)))
        return tag + encode_varint(len(content)) + content

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    # What fields hold

    def _scalar(self, codes: Sequence[OpCode] = tuple(_SCALARS)) -> Content:
        random = self._random
        if self._is_old:  # upb does not look at UTF-8 there, an executor does
            codes = [one for one in codes if one is not OpCode.PROTO_STRING]
        code = random.choice(codes)
        described, kind = _SCALARS[code]

        def draw(_: Any) -> Any:
            return _draw_scalar(random, kind)

        def build(_: ColumnLayout, column: int) -> Op:
            return Op(code=code, column=column)

        zero = _ZEROS.get(code, b"\0")
        return Content(
            described, "", Type(kind=kind), build, draw, lambda one: one, zero, is_packable=code not in _DELIMITED
        )

    def _enum(self) -> Content:
        random = self._random
        numbers = [0, *random.sample((1, 2, 5, 127, 128, -1, 2**31 - 1, -(2**31)), random.randrange(4))]
        name = self._name("Enum")
        described = self._file.enum_type.add(name=name)
        for k, number in enumerate(numbers):
            described.value.add(name=f"{name}_{k}", number=number)
        symbols = tuple(f"{name}_{k}" for k in range(len(numbers)))
        table = tuple(
            one for number, k in sorted(zip(numbers, range(len(numbers)), strict=True)) for one in (number, k)
        )
        known = dict(zip(numbers, symbols, strict=True))

        def build(_: ColumnLayout, column: int) -> Op:
            return Op(code=OpCode.PROTO_ENUM, column=column, table=table, a=int(self._is_old))

        def draw(_: Any) -> int:
            if not self._is_old and random.random() < 0.2:
                return random.choice(INTS)
            return random.choice(numbers)

        type_ = Type(kind=ValueKind.ENUM, symbols=symbols)
        return Content(
            Described.TYPE_ENUM,
            f".r.{name}",
            type_,
            build,
            draw,
            lambda one: known.get(one, str(one)),
            b"\0",
            is_packable=True,
        )

    def _time(self) -> Content:
        random = self._random
        is_instant = random.random() < 0.5
        name = "Timestamp" if is_instant else "Duration"
        code = OpCode.PROTO_TIMESTAMP if is_instant else OpCode.PROTO_DURATION
        kind = ValueKind.TIMESTAMP if is_instant else ValueKind.DURATION

        def draw(message: Any) -> None:
            message.seconds = random.choice((0, 1, -1, 253402300799, -62135596800, random.randrange(-(10**9), 10**9)))
            message.nanos = random.choice((0, 1, 999, 1000, 999_999_999, -1, -1999))

        def value(message: Any) -> int:
            return microseconds(message, is_instant)

        def build(_: ColumnLayout, column: int) -> Op:
            return Op(code=code, column=column)

        type_ = Type(kind=kind, unit="us", is_utc=is_instant)
        return Content(Described.TYPE_MESSAGE, f".google.protobuf.{name}", type_, build, draw, value, b"", True)

    def _wrapper(self) -> Content:
        random = self._random
        code = random.choice(tuple(_WRAPPERS))
        kind = _SCALARS[code][1]

        def draw(message: Any) -> None:
            message.value = _draw_scalar(random, kind)

        def build(_: ColumnLayout, column: int) -> Op:
            if column == DROPPED:
                return Op(code=OpCode.PROTO_BYTES)
            steps = (Op(code=code, column=column), _constant(Op(code=code, column=column), _ZEROS.get(code, b"\0")))
            return Op(code=OpCode.PROTO_MESSAGE, children=(_field_step(1, column, steps),))

        name = f".google.protobuf.{_WRAPPERS[code]}"
        return Content(Described.TYPE_MESSAGE, name, Type(kind=kind), build, draw, lambda one: one.value, b"", True)

    def _json(self) -> Content:
        """Any JSON: as the text of it."""
        random = self._random
        form = random.randrange(3)

        def draw(message: Any) -> None:
            if form == 0:
                message.update({random.choice(TEXTS): _draw_json(random, 2) for _ in range(random.randrange(4))})
            elif form == 1:
                message.MergeFromString(_json_value(_draw_json(random, 3)).SerializeToString())
            else:
                message.extend([_draw_json(random, 2) for _ in range(random.randrange(4))])

        def value(message: Any) -> str:
            return json.dumps((_struct_of, _value_of, _list_of)[form](message))

        def build(_: ColumnLayout, column: int) -> Op:
            return (
                Op(code=OpCode.PROTO_BYTES) if column == DROPPED else Op(code=OpCode.PROTO_JSON, column=column, a=form)
            )

        name = ("Struct", "Value", "ListValue")[form]
        type_ = Type(kind=ValueKind.STRING, unit="json")
        return Content(Described.TYPE_MESSAGE, f".google.protobuf.{name}", type_, build, draw, value, b"", True)

    def _content(self, depth: int) -> Content:
        makers: list[Callable[[], Content]] = [self._scalar, self._scalar, self._scalar, self._enum, self._time]
        makers += [self._wrapper, self._json]
        if depth > 0 and self._random.random() < 0.4:
            return self._message(depth - 1)
        return self._random.choice(makers)()

    def _message(self, depth: int) -> Content:
        name = self._name("Message")
        described = self._file.message_type.add(name=name)
        numbers = self._random.sample((*range(1, 16), 17, 99, 2**28), 6)
        fields: list[MessageField] = []
        if self._random.random() < 0.3:  # before the oneofs of optional fields, as descriptors must have them
            fields += self._oneof(described, numbers[4:], depth)
        for number in numbers[: self._random.choice((0, 1, 2, 3, 4))]:
            makers = (self._singular, self._singular, self._repeated, self._map)
            fields.append(self._random.choice(makers)(described, number, depth))
        kept = [one for one in fields if one.is_kept]
        lost = {one.oneof for one in fields if one.oneof >= 0 and any(other.oneof == one.oneof for other in kept)}
        order = [*fields]
        self._random.shuffle(kept)

        def build(layout: ColumnLayout, column: int) -> Op:
            if column == DROPPED:
                return Op(code=OpCode.PROTO_BYTES)
            children = [
                one.build(layout, layout.child(column, one.described.name))
                for one in order
                if one.is_kept or one.oneof in lost
            ]
            return Op(code=OpCode.PROTO_MESSAGE, column=column, children=tuple(children))

        def draw(message: Any) -> None:
            for one in fields:
                if self._random.random() < 0.8:
                    one.fill(message)

        def value(message: Any) -> dict[str, Any]:
            return {one.described.name: one.value(message) for one in kept}

        type_ = Type(kind=ValueKind.STRUCT, fields=tuple(TypeField(one.described.name, one.type) for one in kept))
        return Content(Described.TYPE_MESSAGE, f".r.{name}", type_, build, draw, value, b"", True)

    # Fields

    def _describe(self, message: Any, number: int, content: Content, label: int = Described.LABEL_OPTIONAL) -> Any:
        field = message.field.add(name=f"f{number}", number=number, type=content.described, label=label)
        if content.name:
            field.type_name = content.name
        return field

    def _is_kept(self) -> bool:
        return not self._drops or self._random.random() < 0.7

    def _singular(self, message: Any, number: int, depth: int) -> MessageField:
        content = self._content(depth)
        has_presence = content.is_message or self._is_old or self._random.random() < 0.5
        is_group = self._is_old and content.is_message and self._random.random() < 0.3
        if is_group:
            content = content._replace(described=Described.TYPE_GROUP)
        field = self._describe(message, number, content)
        if has_presence and not content.is_message and not self._is_old:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_f{number}")
        return self._one(field, content, has_presence, flags=PROTO_GROUP if is_group else 0)

    def _one(
        self, field: Any, content: Content, has_presence: bool, *, flags: int = 0, oneof: int = -1
    ) -> MessageField:
        name, number = field.name, field.number

        def build(layout: ColumnLayout, column: int) -> Op:
            child = content.build(layout, column)
            missing = Op(code=OpCode.SET_NULL, column=column) if has_presence else _constant(child, content.zero)
            return _field_step(number, column, (child, missing), flags=flags, oneof=oneof)

        def fill(one: Any) -> None:
            if content.is_message:
                getattr(one, name).SetInParent()
                content.draw(getattr(one, name))
            else:
                setattr(one, name, content.draw(None))

        def value(one: Any) -> Any:
            return content.value(getattr(one, name)) if not has_presence or one.HasField(name) else None

        type_ = _as_nullable(content.type) if has_presence else content.type
        return MessageField(field, type_, build, fill, value, self._is_kept(), oneof)

    def _repeated(self, message: Any, number: int, depth: int) -> MessageField:
        content = self._content(depth)
        field = self._describe(message, number, content, Described.LABEL_REPEATED)
        flags = PROTO_REPEATED | (PROTO_PACKABLE if content.is_packable else 0)

        def build(layout: ColumnLayout, column: int) -> Op:
            return _field_step(number, column, (content.build(layout, layout.item(column)),), flags=flags)

        def fill(one: Any) -> None:
            values = getattr(one, field.name)
            for _ in range(self._random.randrange(4)):
                if content.is_message:
                    content.draw(values.add())
                else:
                    values.append(content.draw(None))

        def value(one: Any) -> list[Any]:
            return [content.value(item) for item in getattr(one, field.name)]

        type_ = Type(kind=ValueKind.LIST, fields=(TypeField("item", content.type),))
        return MessageField(field, type_, build, fill, value, self._is_kept())

    def _map(self, message: Any, number: int, depth: int) -> MessageField:
        key, content = self._scalar(_KEYS), self._content(depth)
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        for k, (name, one) in enumerate((("key", key), ("value", content))):
            self._describe(entry, k + 1, one).name = name
        field = message.field.add(name=f"f{number}", number=number, type=Described.TYPE_MESSAGE)
        field.label, field.type_name = Described.LABEL_REPEATED, f".r.{message.name}.F{number}Entry"

        def build(layout: ColumnLayout, column: int) -> Op:
            if column == DROPPED:
                return _field_step(number, column, (Op(code=OpCode.PROTO_BYTES),), flags=PROTO_REPEATED)
            fields = []
            for k, (below, one) in enumerate(zip(layout.entry(column), (key, content), strict=True)):
                child = one.build(layout, below)
                fields.append(_field_step(k + 1, below, (child, _constant(child, one.zero))))
            step = Op(code=OpCode.PROTO_MAP_ENTRY, column=column, children=tuple(fields))
            return _field_step(number, column, (step,), flags=PROTO_REPEATED)

        def fill(one: Any) -> None:
            values = getattr(one, field.name)
            for _ in range(self._random.randrange(4)):
                if content.is_message:
                    content.draw(values[key.draw(None)])
                else:
                    values[key.draw(None)] = content.draw(None)

        def value(one: Any) -> list[tuple[Any, Any]]:
            return [(name, content.value(item)) for name, item in getattr(one, field.name).items()]

        fields = (TypeField("key", key.type), TypeField("value", content.type))
        return MessageField(field, Type(kind=ValueKind.MAP, fields=fields), build, fill, value, self._is_kept())

    def _oneof(self, message: Any, numbers: Sequence[int], depth: int) -> Iterator[MessageField]:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name="choice")
        for number in numbers:
            content = self._content(depth)
            field = self._describe(message, number, content)
            field.oneof_index = index
            yield self._one(field, content, True, oneof=index)


def _draw_json(random: Random, depth: int) -> Any:
    if depth and random.random() < 0.4:
        items = [_draw_json(random, depth - 1) for _ in range(random.randrange(4))]
        return items if random.random() < 0.5 else {random.choice(TEXTS): one for one in items}
    finite = [one for one in DOUBLES if math.isfinite(one)]
    return random.choice((None, True, False, random.choice(TEXTS), random.choice(finite), float(random.choice(LONGS))))


def _json_value(plain: Any) -> Any:
    whole = struct_pb2.ListValue()
    whole.extend([plain])
    return whole.values[0]


def _struct_of(message: Any) -> dict[str, Any]:
    return {name: _value_of(one) for name, one in message.fields.items()}


def _list_of(message: Any) -> list[Any]:
    return [_value_of(one) for one in message.values]


def _value_of(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "struct_value":
        return _struct_of(message.struct_value)
    if kind == "list_value":
        return _list_of(message.list_value)
    return None if kind in (None, "null_value") else getattr(message, kind)


def microseconds(message: Any, is_instant: bool) -> int:
    """Of a Timestamp or a Duration."""
    nanos: int = message.nanos
    micros = nanos // 1000 if is_instant or nanos >= 0 else -(-nanos // 1000)
    return int(message.seconds) * 1_000_000 + micros


def split_fields(data: bytes) -> Iterator[bytes]:
    """The fields of a message that a serializer wrote, each with its tag."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        at = _after(data, at, tag)
        yield data[start:at]


def _after(data: bytes, at: int, tag: int) -> int:
    wire_type = tag & 7
    if wire_type == 0:
        return _varint(data, at)[1]
    if wire_type == 2:
        size, at = _varint(data, at)
        return at + size
    if wire_type == 3:
        while True:
            inner, at = _varint(data, at)
            if inner == tag + 1:
                return at
            at = _after(data, at, inner)
    return at + (8 if wire_type == 1 else 4)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _draw_scalar(random: Random, kind: ValueKind) -> Any:
    if kind is ValueKind.BOOL:
        return random.random() < 0.5
    if kind is ValueKind.STRING:
        return random.choice(TEXTS)
    if kind is ValueKind.BINARY:
        return random.choice((b"", b"\xff\0", random.randbytes(20)))
    if kind in (ValueKind.FLOAT, ValueKind.DOUBLE):
        value = random.choice((*(FLOATS if kind is ValueKind.FLOAT else DOUBLES), random.uniform(-1e6, 1e6)))
        return as_float(value) if kind is ValueKind.FLOAT else value
    value = random.choice(INTS if kind in (ValueKind.INT32, ValueKind.UINT32) else LONGS)
    bits = 32 if kind is ValueKind.UINT32 else 64
    return value % 2**bits if kind in (ValueKind.UINT32, ValueKind.UINT64) else value


def _as_nullable(type_: Type) -> Type:
    return replace(type_, is_nullable=True)


def _is_packable(described: int) -> bool:
    return described not in (
        Described.TYPE_STRING,
        Described.TYPE_BYTES,
        Described.TYPE_MESSAGE,
        Described.TYPE_GROUP,
    )


def _constant(child: Op, text: bytes) -> Op:
    """The default of a field, of a wrapper the empty message."""
    column = child.column if child.column != DROPPED or not child.children else child.children[0].column
    return Op(code=OpCode.CONSTANT, column=column, children=(child,), text=text)


def _field_step(number: int, column: int, steps: Sequence[Op], *, flags: int = 0, oneof: int = -1) -> Op:
    return Op(code=OpCode.PROTO_FIELD, column=column, a=number, b=oneof, flags=flags, children=tuple(steps))
