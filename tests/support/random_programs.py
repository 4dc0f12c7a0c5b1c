"""Random trees of steps, with the columns that they fill and values that fit them, of each format.

What draws is any ``Random``, one of Hypothesis or one with a seed. A part knows the schema that a foreign codec takes
(``schema``), so that fastavro, upb or ``json`` can say what bytes mean.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import numpy

from segreader.typed.ops import (
    DROPPED,
    JSON_BASE64,
    JSON_RAW_NAME,
    ColumnLayout,
    Op,
    OpCode,
    Program,
)
from segreader.typed.types import Type, TypeField, ValueKind

INTS = (0, 1, -1, 63, 64, -65, 127, 128, 2**31 - 1, -(2**31))
LONGS = (*INTS, 2**53 + 1, -(2**53) - 1, 2**62 + 2**38 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, 3.4028234663852886e38, 1e-45, math.nan)
DOUBLES = (*FLOATS, 0.1, 1e308, 5e-324)
TEXTS = ("", "a", "order", "naïve", "\U0001d542" * 3, "x" * 70, 'q"\\/', "\t\n\x00\x1f", "é" * 20)

Build = Callable[[ColumnLayout, int], Op]
"""Makes the step that fills a column of a layout, or drops what it reads."""


class Sample(NamedTuple):
    """A value: its bytes, what a foreign codec reads there, and what an executor gives."""

    data: bytes
    plain: Any
    expected: Any


class Part(NamedTuple):
    """A type with the step that reads it, and values of it."""

    schema: Any
    type: Type
    build: Build
    draw: Callable[[], Sample]

    def program(self) -> Program:
        """The program whose root this is."""
        layout = ColumnLayout.of(self.type)
        return Program(layout, [self.build(layout, 0)])


def leaf(code: OpCode, **given: Any) -> Build:
    """A step without others below it."""
    return lambda layout, column: Op(code=code, column=column, **given)


def damaged(random: Random, data: bytes) -> bytes:
    """The bytes with one or two of them changed, left out or put in, or cut."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        at, way = random.randrange(len(found) + 1), random.randrange(5)
        if way == 0:
            del found[at:]
        elif way == 1:
            del found[at : at + random.randrange(1, 4)]
        elif way == 2:
            found[at:at] = random.randbytes(random.randrange(1, 4))
        elif at < len(found):
            edges = (
                0,
                1,
                2,
                0x7F,
                0x80,
                0xFF,
                found[at] ^ 1,
                found[at] ^ 0x80,
                ord('"'),
                ord("{"),
                ord("}"),
                ord("\\"),
            )
            found[at] = random.choice(edges) if way == 3 else random.randrange(256)
    return bytes(found)


def comparable(value: Any, type_: Type) -> Any:
    """The value so that equal ones are equal: floats by their bits, fields and entries of maps in one order."""
    if isinstance(value, float):
        return struct.pack("<d", value) if value == value else "nan"
    if isinstance(value, dict):
        return [comparable(value[field.name], field.type) for field in type_.fields]
    if isinstance(value, list) and type_.kind is ValueKind.MAP:
        key, item = type_.fields
        return sorted((repr(comparable(one, key.type)), comparable(other, item.type)) for one, other in value)
    if isinstance(value, list):
        return [comparable(one, type_.fields[0].type) for one in value]
    if type_.unit == "json" and value is not None:
        return json.dumps(json.loads(value, parse_int=float), sort_keys=True)
    return value


def _nullable(type_: Type) -> Type:
    return replace(type_, is_nullable=True)


def _list(item: Type) -> Type:
    return Type(kind=ValueKind.LIST, fields=(TypeField("item", item),))


def _map(value: Type, key: Type | None = None) -> Type:
    key = Type(kind=ValueKind.STRING) if key is None else key
    return Type(kind=ValueKind.MAP, fields=(TypeField("key", key), TypeField("value", value)))


def _plain(kind: ValueKind, **given: Any) -> Type:
    return Type(kind=kind, **given)


def as_float(value: float) -> float:
    """A number as 32 bits hold it, by a cast of C."""
    with numpy.errstate(over="ignore"):
        source = numpy.int64(value) if isinstance(value, int) else numpy.float64(value)
        return float(source.astype(numpy.float32))


def _text(random: Random) -> str:
    return random.choice(TEXTS) if random.random() < 0.8 else "".join(random.choices("abcé\U0001f600 ", k=9))


def _integer(random: Random, bits: int) -> int:
    if random.random() < 0.5:
        return random.choice(INTS if bits == 32 else LONGS)
    return random.randrange(-(1 << (size := random.randrange(1, bits)) - 1), 1 << size - 1)


def _count(random: Random) -> int:
    return random.choice((0, 0, 1, 1, 2, 3, 5))


# Avro ---------------------------------------------------------------------------------------------------------------


def encode_long(value: int) -> bytes:
    """Avro's long."""
    return encode_varint(value << 1 ^ value >> 63 if value >= 0 else (-value << 1) - 1)


def encode_varint(value: int) -> bytes:
    """7 bits in each byte, lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class AvroParts:
    """Draws parts of Avro; names of records and the like are used once."""

    def __init__(self, random: Random) -> None:
        self._random, self._names = random, 0

    def record(self, depth: int = 3) -> Part:
        """A record: of some fields only dropped, with some that the writer does not have."""
        random, name = self._random, self._name("Record")
        parts = {f"f{k}": self.part(depth - 1) for k in range(_count(random))}
        kept = [field for field in parts if random.random() < 0.7]
        extra = {f"x{k}": self._default(depth - 1) for k in range(random.choice((0, 0, 1, 2)))}
        fields = [TypeField(field, parts[field].type) for field in kept]
        fields += [TypeField(field, part.type) for field, (part, _) in extra.items()]
        random.shuffle(fields)
        order = [*parts]
        for field in extra:
            order.insert(random.randrange(len(order) + 1), field)

        def build(layout: ColumnLayout, column: int) -> Op:
            children = []
            for field in order:
                below = layout.child(column, field)
                if field in parts:
                    children.append(parts[field].build(layout, below))
                else:
                    part, sample = extra[field]
                    children.append(_fixed_step(part, sample, layout, below))
            return Op(code=OpCode.AVRO_RECORD, column=column, children=tuple(children))

        def draw() -> Sample:
            samples = {field: part.draw() for field, part in parts.items()}
            expected = {field: samples[field].expected for field in kept}
            expected |= {field: None if sample is None else sample.expected for field, (_, sample) in extra.items()}
            return Sample(
                b"".join(one.data for one in samples.values()),
                {field: one.plain for field, one in samples.items()},
                expected,
            )

        schema = {"type": "record", "name": name, "fields": [{"name": f, "type": p.schema} for f, p in parts.items()]}
        return Part(schema, Type(kind=ValueKind.STRUCT, fields=tuple(fields)), build, draw)

    def part(self, depth: int) -> Part:
        """A part of any kind."""
        nested = (self.record, self._array, self._map, self._optional, self._union)
        if depth > 0 and self._random.random() < 0.6:
            return self._random.choice(nested)(depth)
        return self._random.choice((self._number, self._float, self._bytes, self._fixed, self._enum, self._bool))()

    def _default(self, depth: int) -> tuple[Part, Sample | None]:
        """A field that only the reader has: a constant, or null."""
        part = self.part(min(depth, 1))
        if self._random.random() < 0.5:
            return part, part.draw()
        return part._replace(type=_nullable(part.type)), None

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def _bool(self) -> Part:
        def draw() -> Sample:
            value = self._random.random() < 0.5
            return Sample(bytes([value]), value, value)

        return Part("boolean", _plain(ValueKind.BOOL), leaf(OpCode.AVRO_BOOL), draw)

    def _number(self) -> Part:
        random = self._random
        is_long = random.random() < 0.5
        kinds = [ValueKind.INT64, ValueKind.FLOAT, ValueKind.DOUBLE, ValueKind.TIME_US, ValueKind.TIMESTAMP]
        kind = random.choice(kinds if is_long else [*kinds, ValueKind.INT32, ValueKind.DATE, ValueKind.TIME_MS])
        times = 1000 if kind in (ValueKind.TIME_US, ValueKind.TIMESTAMP) and random.random() < 0.3 else 0

        def draw() -> Sample:
            value = _integer(random, 64 if is_long else 32)
            if kind in (ValueKind.TIME_MS, ValueKind.TIME_US):
                value = abs(value) % (86_400 * (1000 if kind is ValueKind.TIME_MS or times else 1_000_000))
            elif times:
                value %= 2**50
            if not is_long:
                value = (value + 2**31) % 2**32 - 2**31
                value = abs(value) % 86_400_000 if kind is ValueKind.TIME_US else value
            expected: float = value * (times or 1)
            if kind in (ValueKind.FLOAT, ValueKind.DOUBLE):
                expected = as_float(value) if kind is ValueKind.FLOAT else float(value)
            return Sample(encode_long(value), value, expected)

        given: dict[str, Any] = {"unit": "us", "is_utc": True} if kind is ValueKind.TIMESTAMP else {}
        code = OpCode.AVRO_LONG if is_long else OpCode.AVRO_INT
        return Part("long" if is_long else "int", _plain(kind, **given), leaf(code, a=times), draw)

    def _float(self) -> Part:
        random = self._random
        is_double = random.random() < 0.5
        kind = ValueKind.DOUBLE if is_double or random.random() < 0.5 else ValueKind.FLOAT

        def draw() -> Sample:
            value = random.choice(DOUBLES if is_double else FLOATS)
            if random.random() < 0.5:
                value = random.uniform(-1e6, 1e6)
            value = value if is_double else as_float(value)
            return Sample(struct.pack("<d" if is_double else "<f", value), value, value)

        code = OpCode.AVRO_DOUBLE if is_double else OpCode.AVRO_FLOAT
        return Part("double" if is_double else "float", _plain(kind), leaf(code), draw)

    def _bytes(self) -> Part:
        random = self._random
        is_text = random.random() < 0.5
        code = OpCode.AVRO_STRING if is_text else OpCode.AVRO_BYTES
        schema = "string" if is_text else "bytes"
        type_ = random.choice((_plain(ValueKind.STRING), _plain(ValueKind.BINARY), self._decimal()))
        if type_.kind is ValueKind.DECIMAL:
            schema, code = "bytes", OpCode.AVRO_BYTES

        def draw() -> Sample:
            if type_.kind is ValueKind.DECIMAL:
                unscaled, expected = _random_decimal(random, type_)
                data = unscaled.to_bytes(unscaled.bit_length() // 8 + random.choice((1, 1, 3, 40)), signed=True)
                return Sample(encode_long(len(data)) + data, data, expected)
            text = _text(random)
            data = text.encode()
            plain = text if schema == "string" else data
            return Sample(encode_long(len(data)) + data, plain, text if type_.kind is ValueKind.STRING else data)

        return Part(schema, type_, leaf(code), draw)

    def _decimal(self) -> Type:
        precision = self._random.choice((1, 9, 18, 19, 38, 39, 76))
        return _plain(ValueKind.DECIMAL, precision=precision, scale=self._random.randrange(precision + 1))

    def _fixed(self) -> Part:
        random = self._random
        kind = random.choice(
            (ValueKind.FIXED, ValueKind.FIXED, ValueKind.DECIMAL, ValueKind.INTERVAL, ValueKind.STRING)
        )
        size = {ValueKind.INTERVAL: 12, ValueKind.STRING: 16, ValueKind.DECIMAL: 40}.get(
            kind, random.choice((1, 4, 33))
        )
        type_ = _plain(kind, size=size if kind is ValueKind.FIXED else 0)
        if kind is ValueKind.DECIMAL:
            type_ = self._decimal()

        def draw() -> Sample:
            data = random.randbytes(size)
            expected: Any = data
            if kind is ValueKind.DECIMAL:
                unscaled, expected = _random_decimal(random, type_)
                data = unscaled.to_bytes(size, signed=True)
            elif kind is ValueKind.INTERVAL:
                months, days, millis = random.randrange(2**31), random.randrange(400), random.randrange(2**32)
                data = struct.pack("<III", months, days, millis)
                expected = (months, days, millis * 1_000_000)
            elif kind is ValueKind.STRING:
                expected = str(UUID(bytes=data))
            return Sample(data, data, expected)

        schema = {"type": "fixed", "name": self._name("Fixed"), "size": size}
        return Part(schema, type_, leaf(OpCode.AVRO_FIXED, a=size), draw)

    def _enum(self) -> Part:
        random = self._random
        written = [f"S{k}" for k in range(random.randrange(1, 5))]
        symbols = [*random.sample(written, random.randrange(1, len(written) + 1)), "R"]
        random.shuffle(symbols)
        table = tuple(symbols.index(one) if one in symbols else -1 for one in written)

        def draw() -> Sample:
            symbol = random.choice([one for one in written if one in symbols])
            return Sample(encode_long(written.index(symbol)), symbol, symbol)

        schema = {"type": "enum", "name": self._name("Enum"), "symbols": written}
        return Part(schema, _plain(ValueKind.ENUM, symbols=tuple(symbols)), leaf(OpCode.AVRO_ENUM, table=table), draw)

    def _blocks(self, items: Sequence[bytes]) -> bytes:
        """The items in blocks, with their sizes or without."""
        found, at = [], 0
        while at < len(items):
            some = items[at : at + self._random.randrange(1, 4)]
            data = b"".join(some)
            has_size = self._random.random() < 0.4
            count = encode_long(-len(some)) + encode_long(len(data)) if has_size else encode_long(len(some))
            found.append(count + data)
            at += len(some)
        return b"".join(found) + b"\0"

    def _array(self, depth: int) -> Part:
        item = self.part(depth - 1)

        def build(layout: ColumnLayout, column: int) -> Op:
            child = item.build(layout, layout.item(column))
            return Op(code=OpCode.AVRO_ARRAY, column=column, children=(child,))

        def draw() -> Sample:
            items = [item.draw() for _ in range(_count(self._random))]
            data = self._blocks([one.data for one in items])
            return Sample(data, [one.plain for one in items], [one.expected for one in items])

        return Part({"type": "array", "items": item.schema}, _list(item.type), build, draw)

    def _map(self, depth: int) -> Part:
        value = self.part(depth - 1)

        def build(layout: ColumnLayout, column: int) -> Op:
            below = layout.entry(column)
            children = Op(code=OpCode.AVRO_STRING, column=below[0]), value.build(layout, below[1])
            return Op(code=OpCode.AVRO_MAP, column=column, children=children)

        def draw() -> Sample:
            values = {_text(self._random): value.draw() for _ in range(_count(self._random))}
            items = [encode_long(len(key.encode())) + key.encode() + one.data for key, one in values.items()]
            plain = {key: one.plain for key, one in values.items()}
            return Sample(self._blocks(items), plain, [(key, one.expected) for key, one in values.items()])

        return Part({"type": "map", "values": value.schema}, _map(value.type), build, draw)

    def _optional(self, depth: int) -> Part:
        value = self.record(depth - 1) if depth > 1 and self._random.random() < 0.5 else self._number()
        is_first = self._random.random() < 0.5

        def build(layout: ColumnLayout, column: int) -> Op:
            children = [Op(code=OpCode.SET_NULL, column=column), value.build(layout, column)]
            return Op(code=OpCode.AVRO_UNION, column=column, children=tuple(children if is_first else children[::-1]))

        def draw() -> Sample:
            if self._random.random() < 0.4:
                return Sample(encode_long(0 if is_first else 1), None, None)
            one = value.draw()
            return Sample(encode_long(1 if is_first else 0) + one.data, one.plain, one.expected)

        schema = ["null", value.schema] if is_first else [value.schema, "null"]
        return Part(schema, _nullable(value.type), build, draw)

    def _union(self, depth: int) -> Part:
        """A union of several, in a struct with a member for each; the reader's may lack one."""
        random = self._random
        makers = random.sample(
            (self._number, self._enum, self._fixed, self.record, self._array), random.randrange(2, 5)
        )
        parts = [maker(depth - 1) if maker in (self.record, self._array) else maker() for maker in makers]  # type: ignore[operator]
        lost = random.randrange(len(parts)) if random.random() < 0.3 else -1
        kept = [k for k in range(len(parts)) if k != lost]
        fields = tuple(TypeField(f"m{k}", _nullable(parts[k].type)) for k in kept)

        def build(layout: ColumnLayout, column: int) -> Op:
            if column == DROPPED:
                return Op(code=OpCode.AVRO_UNION, children=tuple(part.build(layout, DROPPED) for part in parts))
            children = []
            for branch in kept:
                members = []
                for k in kept:
                    below = layout.child(column, f"m{k}")
                    is_own = k == branch
                    members.append(parts[k].build(layout, below) if is_own else Op(code=OpCode.SET_NULL, column=below))
                children.append(Op(code=OpCode.AVRO_RECORD, column=column, children=tuple(members)))
            table = tuple(kept.index(k) if k in kept else -1 for k in range(len(parts))) if lost >= 0 else ()
            return Op(code=OpCode.AVRO_UNION, column=column, children=tuple(children), table=table)

        def draw() -> Sample:
            branch = random.choice(kept)
            one = parts[branch].draw()
            expected = {f"m{k}": one.expected if k == branch else None for k in kept}
            return Sample(encode_long(branch) + one.data, one.plain, expected)

        return Part([part.schema for part in parts], _plain(ValueKind.STRUCT, fields=fields), build, draw)


def _fixed_step(part: Part, sample: Sample | None, layout: ColumnLayout, column: int) -> Op:
    """What fills a field that the writer does not have: a null, or a constant."""
    if sample is None:
        return Op(code=OpCode.SET_NULL, column=column)
    children = (part.build(layout, column),)
    return Op(code=OpCode.CONSTANT, column=column, text=sample.data, children=children)


def _random_decimal(random: Random, type_: Type) -> tuple[int, Decimal]:
    digits = "".join(random.choices("0123456789", k=random.randrange(1, type_.precision + 1)))
    unscaled = int(digits) * random.choice((1, -1))
    return unscaled, Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -type_.scale))


# JSON ---------------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "order", "é", "", 'q"', "\\", "\n", "ab", "longer name", "\U0001f600", "a" * 40)


class JsonParts:
    """Draws parts of JSON. The bytes of a sample are text with white space and escapes as they come.

    Args:
        wrong: the share of values that are of another type, or nearly right: what is expected of those is not known.
    """

    def __init__(self, random: Random, *, wrong: float = 0.0) -> None:
        self._random, self._wrong = random, wrong

    def document(self, depth: int = 3) -> Part:
        """A part that may be the root: a value with white space around it."""
        part = self.part(depth) if self._random.random() < 0.2 else self._object(depth)

        def draw() -> Sample:
            one = part.draw()
            return one._replace(data=self._space() + one.data + self._space())

        return part._replace(draw=draw)

    def part(self, depth: int) -> Part:
        """A part of any kind."""
        part = self._right_part(depth)
        if not self._wrong:
            return part

        def draw() -> Sample:
            one = part.draw()
            if self._random.random() >= self._wrong:
                return one
            return self.anything(1) if self._random.random() < 0.3 else one._replace(data=self._nearly(one.data))

        return part._replace(draw=draw)

    def _right_part(self, depth: int) -> Part:
        nested = (self._object, self._array, self._map, self._optional, self._choice)
        if depth > 0 and self._random.random() < 0.6:
            return self._random.choice(nested)(depth)
        texts = (self._string, self._time, self._time, self._binary, self._decimal_text, self._enum)
        others = (self._integer, self._number, self._decimal, self._bool, self._any)
        return self._random.choice(texts if self._random.random() < 0.5 else others)()

    def _nearly(self, data: bytes) -> bytes:
        """A string with other characters, a number with other digits, or the value as it is."""
        random = self._random
        if data[:1] == b'"':
            letters = list(json.loads(data))
            at = random.randrange(len(letters) + 1)
            letters[at : at + random.randrange(2)] = random.choice(
                ("", "0", "9", "-", "=", "Z", ":", ".", "e", "\ud800", "é")
            )
            return self._quote("".join(letters))
        if data[:1] not in b"-0123456789":
            return data
        text = data.decode()
        ways = (
            f"-{text}".replace("--", ""),
            f"{text.partition('e')[0]}e{random.choice((-3, 3, 19, 300, 400, 10**20))}",
        )
        found = random.choice((*ways, "9" * 20 + text.lstrip("-"), text.partition(".")[0] + ".5", "9" * 500))
        return found.encode()

    def _space(self) -> bytes:
        return self._random.choice((b"", b"", b"", b" ", b"\n\t\r "))

    def _quote(self, text: str) -> bytes:
        """A JSON string: each character as it is or escaped, as it comes."""
        found = []
        for one in text:
            plain = json.dumps(one, ensure_ascii=False)[1:-1]
            escaped = "".join(f"\\u{unit:04x}" for unit in _units(one))
            is_surrogate = "\ud800" <= one <= "\udfff"
            found.append(escaped if is_surrogate or self._random.random() < 0.1 else plain)
        return f'"{"".join(found)}"'.replace("/", self._random.choice(("/", "\\/"))).encode()

    def _put(self, items: Sequence[bytes], open_: bytes, close: bytes) -> bytes:
        spaced = [self._space() + one + self._space() for one in items]
        return open_ + (b",".join(spaced) or self._space()) + close

    def anything(self, depth: int = 2) -> Sample:
        """Any JSON value; what it means is its text."""
        random = self._random
        if depth and random.random() < 0.4:
            items = [self.anything(depth - 1) for _ in range(_count(random))]
            if random.random() < 0.5:
                data = self._put([one.data for one in items], b"[", b"]")
            else:
                members = [self._member(random.choice(NAMES), one.data) for one in items]
                data = self._put(members, b"{", b"}")
        else:
            number = random.choice(("0", "-0", "1e5", "-1.25E-3", "123456789012345678901234567890"))
            data = random.choice(
                (b"null", b"true", b"false", number.encode(), self._quote(_text(random)), b'"\\ud800"')
            )
        return Sample(data, json.loads(data), data.decode())

    def _member(self, name: str, value: bytes) -> bytes:
        return self._quote(name) + self._space() + b":" + self._space() + value

    def _object(self, depth: int) -> Part:
        random = self._random
        names = random.sample(NAMES, _count(random))
        parts = {f"f{k}": self.part(depth - 1) for k in range(len(names))}
        name_of = dict(zip(parts, names, strict=True))
        defaults: dict[str, Sample | None] = {}
        for field in parts:
            fate = random.randrange(3)
            if fate == 0:
                parts[field] = parts[field]._replace(type=_nullable(parts[field].type))
                defaults[field] = None
            elif fate == 1:
                wrong, self._wrong = self._wrong, 0.0
                defaults[field] = parts[field].draw()
                self._wrong = wrong
        fields = [TypeField(field, part.type) for field, part in parts.items() if random.random() < 0.8]
        random.shuffle(fields)
        kept = [one.name for one in fields]

        def build(layout: ColumnLayout, column: int) -> Op:
            children = []
            for field in kept:
                below = layout.child(column, field)
                steps = [parts[field].build(layout, below)]
                if field in defaults:
                    steps.append(_fixed_step(parts[field], defaults[field], layout, below))
                children.append(json_field(name_of[field], below, steps))
            return json_object(children, column)

        def draw() -> Sample:
            samples = {}
            for field, part in parts.items():
                if field not in defaults or random.random() < 0.7:
                    samples[field] = part.draw()
            members = [(name_of[field], one) for field, one in samples.items()]
            members += [(name, self.anything(1)) for name in random.sample(NAMES, 2) if name not in names]
            random.shuffle(members)
            for name, _ in members[:]:
                if random.random() < 0.1:
                    last = next(k for k, member in enumerate(members) if member[0] == name)
                    members.insert(random.randrange(last + 1), (name, self.anything(1)))
            data = self._put([self._member(name, one.data) for name, one in members], b"{", b"}")
            expected = {}
            for field in kept:
                default = defaults.get(field)
                one = samples.get(field, default)
                expected[field] = None if one is None else one.expected
            return Sample(data, {name: one.plain for name, one in members}, expected)

        return Part(None, Type(kind=ValueKind.STRUCT, fields=tuple(fields)), build, draw)

    def _array(self, depth: int) -> Part:
        item = self.part(depth - 1)

        def build(layout: ColumnLayout, column: int) -> Op:
            return Op(code=OpCode.JSON_ARRAY, column=column, children=(item.build(layout, layout.item(column)),))

        def draw() -> Sample:
            items = [item.draw() for _ in range(_count(self._random))]
            data = self._put([one.data for one in items], b"[", b"]")
            return Sample(data, [one.plain for one in items], [one.expected for one in items])

        return Part(None, _list(item.type), build, draw)

    def _map(self, depth: int) -> Part:
        value = self.part(depth - 1)

        def build(layout: ColumnLayout, column: int) -> Op:
            below = layout.entry(column)
            children = Op(code=OpCode.JSON_STRING, column=below[0]), value.build(layout, below[1])
            return Op(code=OpCode.JSON_MAP, column=column, children=children)

        def draw() -> Sample:
            members = [(self._random.choice(NAMES), value.draw()) for _ in range(_count(self._random))]
            last = dict(members)
            data = self._put([self._member(name, one.data) for name, one in members], b"{", b"}")
            plain = {name: one.plain for name, one in members}
            return Sample(data, plain, [(name, one.expected) for name, one in last.items()])

        return Part(None, _map(value.type), build, draw)

    def _optional(self, depth: int) -> Part:
        value = self.part(depth - 1)

        def build(layout: ColumnLayout, column: int) -> Op:
            return Op(code=OpCode.JSON_OR_NULL, column=column, children=(value.build(layout, column),))

        def draw() -> Sample:
            one = value.draw()
            return Sample(b"null", None, None) if one.data == b"null" or self._random.random() < 0.3 else one

        return Part(None, _nullable(value.type), build, draw)

    def _choice(self, _: int) -> Part:
        """By the first character: a string is its text, another value its JSON, null and perhaps objects none."""
        string, other = self._string(), self._any()
        has_objects = self._random.random() < 0.5
        table = (1 if has_objects else -1, 1, 0, 1, 1, -1)

        def build(layout: ColumnLayout, column: int) -> Op:
            children = string.build(layout, column), other.build(layout, column)
            return Op(code=OpCode.JSON_CHOICE, column=column, children=children, table=table)

        def draw() -> Sample:
            one = other.draw()
            is_refused = one.data[:1] in (b"n", b'"') or (one.data[:1] == b"{" and not has_objects)
            return string.draw() if is_refused else one

        return Part(None, _plain(ValueKind.STRING), build, draw)

    def _quote_sample(self, text: str) -> Sample:
        return Sample(self._quote(text), text, text)

    def _string(self) -> Part:
        def draw() -> Sample:
            return self._quote_sample(_text(self._random))

        return Part(None, _plain(ValueKind.STRING), leaf(OpCode.JSON_STRING), draw)

    def _time(self) -> Part:
        random = self._random
        kind = random.choice((ValueKind.DATE, ValueKind.TIME_US, ValueKind.TIMESTAMP))
        given: dict[str, Any] = {"unit": "us", "is_utc": True} if kind is ValueKind.TIMESTAMP else {}

        def draw() -> Sample:
            zone = timezone(timedelta(minutes=random.choice((0, 0, 60, -90, 14 * 60))))
            local = datetime(2000, 1, 1) + timedelta(
                days=random.randrange(-700_000, 2_900_000), seconds=5 * _count(random)
            )
            local += timedelta(microseconds=random.choice((0, 1, 999_999, 120_000)), minutes=random.randrange(1440))
            when = local.replace(tzinfo=zone)
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            expected: int
            if kind is ValueKind.DATE:
                text, expected = when.date().isoformat(), (when.date() - date(1970, 1, 1)).days
            elif kind is ValueKind.TIMESTAMP:
                text = when.isoformat().replace("+00:00", random.choice("Zz")).replace("T", random.choice("Tt "))
                expected = (when - epoch) // timedelta(microseconds=1)
            else:
                text = when.timetz().isoformat()
                expected = (when - epoch) // timedelta(microseconds=1) % 86_400_000_000
            if "." in text and random.random() < 0.5:
                text = text.replace(".", "#", 1)
                at = text.index("#") + 7
                text = (text[:at] + "987654321" + text[at:]).replace("#", ".")
            return Sample(self._quote(text), text, expected)

        return Part(None, _plain(kind, **given), leaf(OpCode.JSON_STRING), draw)

    def _binary(self) -> Part:
        def draw() -> Sample:
            data = self._random.randbytes(self._random.randrange(12))
            text = self._random.choice((base64.b64encode, base64.urlsafe_b64encode))(data).decode()
            text = text if self._random.random() < 0.5 else text.rstrip("=")
            return Sample(self._quote(text), text, data)

        return Part(None, _plain(ValueKind.BINARY), leaf(OpCode.JSON_STRING), draw)

    def _decimal_type(self) -> Type:
        precision = self._random.choice((1, 9, 18, 19, 38, 39, 76))
        return _plain(ValueKind.DECIMAL, precision=precision, scale=self._random.randrange(precision + 1))

    def _decimal_text(self) -> Part:
        """A decimal in a string: in decimal, or as base64 of its bytes."""
        random, type_ = self._random, self._decimal_type()
        is_base64 = random.random() < 0.5

        def draw() -> Sample:
            unscaled, expected = _random_decimal(random, type_)
            data = unscaled.to_bytes(unscaled.bit_length() // 8 + random.choice((1, 2)), signed=True)
            text = base64.b64encode(data).decode() if is_base64 else self._spell(expected)
            return Sample(self._quote(text), text, expected)

        step = leaf(OpCode.JSON_STRING, a=type_.scale, flags=JSON_BASE64 if is_base64 else 0)
        return Part(None, type_, step, draw)

    def _decimal(self) -> Part:
        random, type_ = self._random, self._decimal_type()

        def draw() -> Sample:
            _, expected = _random_decimal(random, type_)
            text = self._spell(expected)
            return Sample(text.encode(), float(text), expected)

        return Part(None, type_, leaf(OpCode.JSON_NUMBER, a=type_.scale), draw)

    def _spell(self, value: Decimal) -> str:
        """A number in one of the ways that JSON has."""
        way = self._random.randrange(4)
        if way == 0:
            return f"{value:f}"
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        text = "-" * sign + "".join(map(str, digits)).lstrip("0")
        if text.strip("-") == "":
            return "-0.000e7"
        if way == 1:
            return f"{text}{'e' if self._random.random() < 0.5 else 'E'}{exponent:+}"
        if way == 2:
            return f"{text}.000e{exponent:03}".replace("e-", "e-00")
        return f"{'-' * sign}0.00{text.strip('-')}e{exponent + len(text.strip('-')) + 2}"

    def _enum(self) -> Part:
        symbols = tuple(
            self._random.sample(("A", "B", "é", "", "AB", 'q"', "\U0001f600"), self._random.randrange(1, 5))
        )

        def draw() -> Sample:
            return self._quote_sample(self._random.choice(symbols))

        return Part(None, _plain(ValueKind.ENUM, symbols=symbols), json_enum(symbols), draw)

    def _integer(self) -> Part:
        random = self._random
        kinds = (ValueKind.INT32, ValueKind.INT64, ValueKind.UINT64, ValueKind.DATE, ValueKind.TIME_MS)
        kind = random.choice((*kinds, ValueKind.TIMESTAMP, ValueKind.TIME_US, ValueKind.DECIMAL))
        times = random.choice((0, 1000)) if kind in (ValueKind.TIMESTAMP, ValueKind.TIME_US) else 0
        type_ = _plain(kind, unit="us" if kind is ValueKind.TIMESTAMP else "", is_utc=kind is ValueKind.TIMESTAMP)
        if kind is ValueKind.DECIMAL:
            type_ = _plain(kind, precision=38, scale=2)

        def draw() -> Sample:
            value = _integer(random, 64 if kind in (ValueKind.INT64, ValueKind.UINT64) else 32)
            if kind in (ValueKind.UINT64, ValueKind.TIME_MS, ValueKind.TIME_US):
                value = abs(value) % (86_400_000 if kind is not ValueKind.UINT64 else 2**64)
            text = self._spell(Decimal(value)) if random.random() < 0.7 else str(value)
            expected = Decimal(value * 100).scaleb(-2) if kind is ValueKind.DECIMAL else value * (times or 1)
            return Sample(text.encode(), value, expected)

        return Part(None, type_, leaf(OpCode.JSON_INTEGER, a=times or type_.scale), draw)

    def _number(self) -> Part:
        random = self._random
        kind = ValueKind.DOUBLE if random.random() < 0.7 else ValueKind.FLOAT

        def draw() -> Sample:
            value = random.choice(
                (0.0, -0.0, 0.1, 1.5, 5e-324, 1e300, random.uniform(-1e9, 1e9), random.random() * 1e-300)
            )
            value = as_float(random.uniform(-1e6, 1e6)) if kind is ValueKind.FLOAT else value
            digits = random.choice((repr(value), f"{value:.25e}", f"{value:.17E}"))
            value = as_float(float(digits)) if kind is ValueKind.FLOAT else float(digits)
            return Sample(digits.encode(), float(digits), value)

        return Part(None, _plain(kind), leaf(OpCode.JSON_NUMBER), draw)

    def _bool(self) -> Part:
        def draw() -> Sample:
            value = self._random.random() < 0.5
            return Sample(b"true" if value else b"false", value, value)

        return Part(None, _plain(ValueKind.BOOL), leaf(OpCode.JSON_BOOL), draw)

    def _any(self) -> Part:
        return Part(None, _plain(ValueKind.STRING), leaf(OpCode.JSON_ANY), self.anything)


def _units(text: str) -> list[int]:
    """Its UTF-16."""
    data = text.encode("utf-16-le", "surrogatepass")
    return list(struct.unpack(f"<{len(data) // 2}H", data))


def json_field(name: str, column: int, steps: Sequence[Op]) -> Op:
    """A member, as ``json_schema.py`` makes it."""
    is_raw = not any(one in '"\\' or one < " " for one in name)
    flags = JSON_RAW_NAME if is_raw else 0
    return Op(code=OpCode.JSON_FIELD, column=column, text=name.encode(), flags=flags, children=tuple(steps))


def json_object(children: Sequence[Op], column: int) -> Op:
    """An object of members, with the table that finds them."""
    names = [(len(one.text), one.text, k) for k, one in enumerate(children) if one.code is OpCode.JSON_FIELD]
    table = tuple(k for _, _, k in sorted(names))
    return Op(code=OpCode.JSON_OBJECT, column=column, children=tuple(children), table=table)


def json_enum(symbols: Sequence[str]) -> Build:
    """A string that is a symbol, with the table that finds it."""
    known = sorted((one.encode() for one in symbols), key=lambda one: (len(one), one))
    table, text = [], b""
    for one in known:
        text += one
        table += [symbols.index(one.decode()), len(text)]
    return leaf(OpCode.JSON_STRING, text=text, table=tuple(table))
