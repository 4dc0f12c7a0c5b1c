from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import duckdb
import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding, Framing, Side, Undecodable
from segreader.typed.formats.json_schema import type_of
from segreader.typed.ops import MOST_DEPTH, Bad
from segreader.typed.schema import Schema, SchemaFormat, SchemaSet
from segreader.typed.types import Type, ValueKind

KERNELS = ["native", "reference"]
SYNTAX = {Bad.SHORT, Bad.SYNTAX, Bad.UTF8, Bad.DEPTH, Bad.LEFT_OVER}
ORDER = {
    "type": "object",
    "required": ["id", "customer", "items", "total"],
    "properties": {
        "id": {"type": "integer"},
        "customer": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "vip": {"type": ["boolean", "null"]}},
        },
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sku", "price"],
                "properties": {"sku": {"type": "string"}, "price": {"type": "number"}, "count": {"type": "integer"}},
            },
        },
        "total": {"type": "number"},
        "status": {"enum": ["NEW", "PAID"]},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "more": {},
    },
}
TEXT = (
    '{"id": 42, "customer": {"name": "Zo\\u00eb \\"é\\" 😀", "vip": null}, "items": [{"sku": "a/\\/b", "price": 1.5e1},'
    ' {"price": -0.25, "sku": "", "count": 10e-1}], "total": 12345678901234567890.5, "status": "PAID",'
    ' "day": "2024-02-29", "at": "2024-02-29T23:59:59.1234567+01:30", "tags": {"k": "v", "l": "w"},'
    ' "more": [1, {"x": [null, true]}], "unknown": {"a": [false, "\\ud83d\\ude00"]}}'
)


class Decoded(NamedTuple):
    values: pa.Array
    bad: dict[int, tuple[Bad, int]]


def decode(
    document: Any, payloads: Sequence[bytes | str | None], kernel: str | None = None, paths: tuple[str, ...] = ("",)
) -> Decoded:
    """Payloads of a schema, as one column; what is undecodable, by row."""
    schema = Schema(SchemaFormat.JSON, json.dumps(document))
    known = SchemaSet(framing=Framing.BARE, bare=schema)
    decoding = Decoding(
        side=Side.VALUE, schemas=known, type=type_of(schema), paths=paths, on_undecodable=Undecodable.NULL
    )
    decoder = ValueDecoder(decoding, kernel=kernel)
    rest = pa.array([one.encode() if isinstance(one, str) else one for one in payloads], pa.binary())
    parts: list[pa.Array] = []
    bad: dict[int, tuple[Bad, int]] = {}
    done = 0
    while done < len(payloads):
        found = decoder.decode(rest.slice(done))
        found.array.validate(full=True)
        parts.append(found.array)
        bad |= {done + one.row: (one.bad, one.position) for one in found.undecodable}
        done += len(found.array)
    return Decoded(pa.concat_arrays(parts) if parts else pa.array([], decoder.type), bad)


def one(document: Any, payload: bytes | str, kernel: str) -> Any:
    """The value of a payload, or what is wrong with it and where."""
    found = decode(document, [payload], kernel)
    return found.bad.get(0) or found.values.to_pylist()[0]


def a(document: Any) -> Any:
    return {"type": "object", "required": ["a"], "properties": {"a": document}}


# A judge: what Python's json reads, by the type of the column.


class NotOfTypeError(Exception):
    pass


def judged(payload: bytes) -> Any:
    """The document with its numbers as decimals, their text kept; ``ValueError``: it is no JSON."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(payload.decode(), parse_constant=refuse, parse_int=Decimal, parse_float=Decimal)


def meaning(type_: Type, value: Any) -> Any:
    """The value as Arrow's ``to_pylist`` gives it, of a column of the type."""
    if value is None and type_.is_nullable:
        return None
    if type_.unit == "json":
        return value
    return MEANINGS[type_.kind](type_, value)


def checked(wanted: type, give: Callable[[Type, Any], Any]) -> Callable[[Type, Any], Any]:
    def meaning_of(type_: Type, value: Any) -> Any:
        if not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool):
            raise NotOfTypeError
        return give(type_, value)

    return meaning_of


def integer(type_: Type, value: Decimal) -> int:
    if abs(value.adjusted()) > 30 and value:
        raise NotOfTypeError
    if value != value.to_integral_value() or not -(1 << 63) <= value < 1 << 63:
        raise NotOfTypeError
    return int(value)


def number(type_: Type, value: Decimal) -> float:
    found = float(value)
    if found in (float("inf"), float("-inf")):
        raise NotOfTypeError
    return found


def text(type_: Type, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotOfTypeError from None
    return value


def symbol(type_: Type, value: str) -> str:
    if value not in type_.symbols:
        raise NotOfTypeError
    return value


def day(type_: Type, value: str) -> date:
    try:
        found = date.fromisoformat(value)
    except ValueError:
        raise NotOfTypeError from None
    if str(found) != value:
        raise NotOfTypeError
    return found


def instant(type_: Type, value: str) -> datetime:
    head, separator, rest = value[:10], value[10:11], value[11:]
    clock, offset = rest[:8], rest[8:]
    if separator not in ("T", "t", " ") or not value.isascii():
        raise NotOfTypeError
    fraction = ""
    if offset[:1] == ".":
        fraction = offset[1:].rstrip("Zz") if offset[-1:] in "Zz" else offset[1:-6]
        if not fraction.isdigit():
            raise NotOfTypeError
        offset = offset[1 + len(fraction) :]
    zone = "+00:00" if offset in ("Z", "z") else offset
    if len(zone) != 6 or zone[0] not in "+-" or zone[3] != ":" or not (zone[1:3] + zone[4:]).isdigit() or zone[4] > "5":
        raise NotOfTypeError
    try:
        moment = datetime.fromisoformat(f"{day(type_, head)}T{time.fromisoformat(clock)}")
    except ValueError:
        raise NotOfTypeError from None
    if len(clock) != 8 or clock[2] != ":" or clock[5] != ":" or zone[1:3] > "23":
        raise NotOfTypeError
    shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
    moment += timedelta(microseconds=int(fraction[:6].ljust(6, "0"))) - (shift if zone[0] == "+" else -shift)
    return moment.replace(tzinfo=UTC)


def record(type_: Type, value: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for field in type_.fields:
        if field.name in value:
            found[field.name] = meaning(field.type, value[field.name])
        elif field.type.is_nullable:
            found[field.name] = None
        else:
            raise NotOfTypeError
    return found


MEANINGS: dict[ValueKind, Callable[[Type, Any], Any]] = {
    ValueKind.BOOL: checked(bool, lambda type_, value: value),
    ValueKind.INT64: checked(Decimal, integer),
    ValueKind.DOUBLE: checked(Decimal, number),
    ValueKind.STRING: checked(str, text),
    ValueKind.ENUM: checked(str, symbol),
    ValueKind.DATE: checked(str, day),
    ValueKind.TIMESTAMP: checked(str, instant),
    ValueKind.STRUCT: checked(dict, record),
    ValueKind.LIST: checked(list, lambda type_, value: [meaning(type_.fields[0].type, item) for item in value]),
    ValueKind.MAP: checked(
        dict,
        lambda type_, value: [(text(type_, name), meaning(type_.fields[1].type, item)) for name, item in value.items()],
    ),
}


def same(type_: Type, found: Any, expected: Any) -> bool:
    """Whether a column has the expected value; JSON text has it where it reads the same."""
    if found is None or expected is None:
        return found is expected
    if type_.unit == "json":
        return bool(judged(found.encode()) == expected)
    if type_.kind is ValueKind.DOUBLE:
        return struct.pack("<d", found) == struct.pack("<d", expected)
    if type_.kind is ValueKind.STRUCT:
        return all(same(field.type, found[field.name], expected[field.name]) for field in type_.fields)
    if type_.kind is ValueKind.LIST:
        return len(found) == len(expected) and all(map(same, [type_.fields[0].type] * len(found), found, expected))
    return bool(found == expected)


def assert_as_judged(document: Any, payloads: Sequence[bytes], kernel: str) -> None:
    """Fail where a value, or whether there is one, is not as Python's json reads the payload."""
    type_ = type_of(Schema(SchemaFormat.JSON, json.dumps(document)))
    found = decode(document, payloads, kernel)
    for row, value in enumerate(found.values.to_pylist()):
        payload, bad = payloads[row], found.bad.get(row, (None, 0))[0]
        try:
            expected = judged(payload)
        except ValueError:
            assert bad in SYNTAX, (payload, bad, "no JSON")
            continue
        try:
            expected = meaning(type_, expected)
        except NotOfTypeError:
            assert bad is not None, (payload, value, "not of the type")
            assert bad not in SYNTAX - {Bad.UTF8}, (payload, bad)
            continue
        assert bad is None, (payload, bad, expected)
        assert same(type_, value, expected), (payload, value, expected)


# Whole values


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_value_of_every_type_is_read(kernel: str) -> None:
    assert one(ORDER, f" \r\n\t{TEXT}\n", kernel) == {
        "id": 42,
        "customer": {"name": 'Zoë "é" 😀', "vip": None},
        "items": [{"sku": "a//b", "price": 15.0, "count": None}, {"sku": "", "price": -0.25, "count": 1}],
        "total": 12345678901234567890.5,
        "status": "PAID",
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 22, 29, 59, 123456, tzinfo=UTC),
        "tags": [("k", "v"), ("l", "w")],
        "more": '[1, {"x": [null, true]}]',
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_only_the_fields_that_are_asked_for_are_read(kernel: str) -> None:
    paths = ("items.price", "total", "customer.vip")
    found = decode(ORDER, [TEXT, None, TEXT.replace("42", '"42"'), TEXT.replace("true]", "tru]")], kernel, paths)
    expected = {
        "customer": {"vip": None},
        "items": [{"price": 15.0}, {"price": -0.25}],
        "total": 12345678901234567890.5,
    }
    assert found.values.to_pylist() == [expected, None, expected, None]
    assert found.bad == {3: (Bad.SYNTAX, TEXT.encode().index(b"true]") + 3)}, (
        "what is skipped must be JSON all the same"
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_null_is_no_value_and_not_an_empty_one(kernel: str) -> None:
    document = {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"]}, "b": {}}}
    payloads = [None, "null", "{}", '{"a": null, "b": null}', '{"a": "", "b": ""}', '{"a": "null"}', ""]
    found = decode(document, payloads, kernel)
    empty = {"a": None, "b": None}
    assert found.values.to_pylist() == [None, None, empty, empty, {"a": "", "b": '""'}, {"a": "null", "b": None}, None]
    assert found.bad == {6: (Bad.SHORT, 0)}
    assert one(a({"type": "string"}), "null", kernel) == (Bad.TYPE, 0)
    assert one(a({"type": "string"}), '{"a": null}', kernel) == (Bad.TYPE, 6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_of_equal_names_the_last_member_counts(kernel: str) -> None:
    document = {
        "type": "object",
        "required": ["n"],
        "properties": {
            "n": {"type": "integer"},
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            "in": a({"type": "string"}),
        },
    }
    payloads = [
        b'{"n": 1, "n": 2}',
        b'{"n": "not a number", "n": 2}',
        b'{"n": 2, "n": "not a number"}',
        b'{"n": 1, "list": [1, 2, 3], "in": {"a": "x", "\\u0061": "y"}, "list": [4], "\\u006e": 3}',
        b'{"n": 1, "map": {"x": [1], "y": [2], "x": [3], "z": [], "\\u0079": [4, 5]}, "in": {"a": "x"}}',
        b'{"n": 1, "map": {"x": ["not a number"], "x": [3]}}',
        b'{"list": [1], "list": [2]}',
        b'{"n": 1, "unknown": 1, "unknown": {"unknown": 1, "unknown": 2}}',
        b'{"n": 1, "map": {%b, "k7": [0]}}' % b", ".join(b'"k%d": [%d]' % (k, k) for k in range(40)),
    ]
    assert_as_judged(document, payloads, kernel)
    assert one(document, payloads[4], kernel)["map"] == [("x", [3]), ("y", [4, 5]), ("z", [])]


@pytest.mark.parametrize("kernel", KERNELS)
def test_objects_with_many_fields_and_members_in_any_order_are_read(kernel: str) -> None:
    random = Random(1)
    names = [f"field {k}" for k in range(150)]
    document = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names[:10]}
    payloads = []
    for row in range(20):
        members = names[: 150 - row] + [f"other {k}" for k in range(row)]
        random.shuffle(members)
        payloads.append(json.dumps({name: k for k, name in enumerate(members)}).encode())
    payloads.append(b'{"field 149": 1, "field 3": 1, "field 149": 2}')
    assert_as_judged(document, payloads, kernel)


# Syntax


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_no_json_is_said_with_the_byte(kernel: str) -> None:
    cases: list[tuple[bytes, Bad, int]] = [
        (b"", Bad.SHORT, 0),
        (b"  ", Bad.SHORT, 2),
        (b"{", Bad.SHORT, 1),
        (b'{"a', Bad.SHORT, 3),
        (b'{"a": tru', Bad.SHORT, 9),
        (b'{"a": -', Bad.SHORT, 7),
        (b'{"a": 1.', Bad.SHORT, 8),
        (b'{"a": "\\u12', Bad.SHORT, 11),
        (b'{"a": "\xc3', Bad.SHORT, 8),
        (b"{a: 1}", Bad.SYNTAX, 1),
        (b"{'a': 1}", Bad.SYNTAX, 1),
        (b'{"a" 1}', Bad.SYNTAX, 5),
        (b'{"a": 1,}', Bad.SYNTAX, 8),
        (b'{"a": [1,]}', Bad.SYNTAX, 9),
        (b'{"a": [1 2]}', Bad.SYNTAX, 9),
        (b'{"a": [1}', Bad.SYNTAX, 8),
        (b'{"a": 01}', Bad.SYNTAX, 7),
        (b'{"a": +1}', Bad.SYNTAX, 6),
        (b'{"a": .5}', Bad.SYNTAX, 6),
        (b'{"a": 1.e5}', Bad.SYNTAX, 8),
        (b'{"a": 1e}', Bad.SYNTAX, 8),
        (b'{"a": NaN}', Bad.SYNTAX, 6),
        (b'{"a": -Infinity}', Bad.SYNTAX, 7),
        (b'{"a": nul}', Bad.SYNTAX, 9),
        (b'{"a": "\\x41"}', Bad.SYNTAX, 8),
        (b'{"a": "\\u12g4"}', Bad.SYNTAX, 11),
        (b'{"a": "\n"}', Bad.SYNTAX, 7),
        (b'{"a": "0123456789abcdef\x00"}', Bad.SYNTAX, 23),
        (b"\xef\xbb\xbf{}", Bad.SYNTAX, 0),
        (b"\xa0{}", Bad.SYNTAX, 0),
        (b'{"a": "\xff"}', Bad.UTF8, 7),
        (b'{"a": "0123456789abcdef\xed\xa0\x80"}', Bad.UTF8, 23),
        (b'{"\xc0\xae": 1}', Bad.UTF8, 2),
        (b'{"a": 1} {}', Bad.LEFT_OVER, 9),
        (b'{"a": 1}\x00', Bad.LEFT_OVER, 8),
    ]
    for document in ({"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}):
        found = decode(document, [payload for payload, _, _ in cases], kernel)
        assert found.bad == {row: (bad, at) for row, (_, bad, at) in enumerate(cases)}
    first = b'{"a": "not a number"} x'
    assert one(a({"type": "integer"}), first, kernel) == (Bad.LEFT_OVER, 22), "that it is no JSON is said first"


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_within_values_have_a_limit(kernel: str) -> None:
    within = MOST_DEPTH - 1
    for open_, close in (("[", "]"), ('{"k":', "}")):
        inner = open_ * within + "1" + close * within
        deeper = open_ * (within + 1) + "1" + close * (within + 1)
        for document in (a({}), {"type": "object", "properties": {"b": {}}}):
            found = decode(document, [f'{{"a": {inner}}}', f'{{"a": {deeper}}}'], kernel)
            assert found.bad == {1: (Bad.DEPTH, 6 + len(open_) * within)}
    many = "[" * 1_000_000
    assert one(a({}), f'{{"a": {many}', kernel) == (Bad.DEPTH, 6 + within)
    assert one({"type": "array", "items": {}}, many, kernel) == (Bad.DEPTH, MOST_DEPTH)


@pytest.mark.parametrize("kernel", KERNELS)
def test_any_byte_at_any_place_gives_what_json_reads_or_an_error(kernel: str) -> None:
    data = TEXT.encode()
    every = kernel == "native"
    payloads = []
    for at in range(len(data)) if every else range(0, len(data), 5):
        bytes_ = range(256) if every else b'"\\{}[],:0-e. \n\xc3\x80n'
        payloads += [data[:at] + bytes([byte]) + data[at + 1 :] for byte in bytes_ if byte % 7 == at % 7 or byte < 128]
        payloads += [data[:at], data[:at] + data[at + 1 :], data[:at] + b'"' + data[at:], data[:at] + b"," + data[at:]]
    step = 4 if every else 1
    assert_as_judged(ORDER, payloads[::step], kernel)


@settings(max_examples=tries(100))
@given(st.data())
def test_other_bytes_at_other_places_give_what_json_reads_or_an_error(data: st.DataObject) -> None:
    payload = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    for kernel in KERNELS:
        assert_as_judged(ORDER, [bytes(payload)], kernel)


# Numbers


@pytest.mark.parametrize("kernel", KERNELS)
def test_integers_are_exact_or_refused(kernel: str) -> None:
    cases: list[tuple[str, int | Bad]] = [
        ("0", 0),
        ("-0", 0),
        ("1.0", 1),
        ("1e3", 1000),
        ("-12.50e1", -125),
        ("10e-1", 1),
        ("0e999999999999999999999", 0),
        ("0.000e-5", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807000e-3", 2**63 - 1),
        ("0.9223372036854775807e19", 2**63 - 1),
        ("9223372036854775808", Bad.RANGE),
        ("-9223372036854775809", Bad.RANGE),
        ("18446744073709551616", Bad.RANGE),
        ("1e999999999999999999999", Bad.RANGE),
        ("1e19", Bad.RANGE),
        ("1.5", Bad.TYPE),
        ("1e-1", Bad.TYPE),
        ("1e-999999999999999999999", Bad.TYPE),
        ("9223372036854775808.5", Bad.TYPE),
        ('"1"', Bad.TYPE),
        ("true", Bad.TYPE),
        ("[1]", Bad.TYPE),
        (f"1{'0' * 500}e-500", 1),
        (f"0.{'0' * 500}1e501", 1),
    ]
    found = decode({"type": "integer"}, [payload for payload, _ in cases], kernel)
    expected = [value if not isinstance(value, Bad) else None for _, value in cases]
    assert found.values.to_pylist() == expected
    assert found.bad == {row: (bad, 0) for row, (_, bad) in enumerate(cases) if isinstance(bad, Bad)}
    small = decode({"type": "integer", "connect.type": "int32"}, ["2147483647", "2147483648", "-2147483648"], kernel)
    assert (small.values.to_pylist(), small.bad) == ([2**31 - 1, None, -(2**31)], {1: (Bad.RANGE, 0)})


def numbers(random: Random) -> Iterator[str]:
    """Numbers that are hard to round: of many digits, near the middle of two doubles, tiny and huge."""
    digits = "0123456789"
    while True:
        bits = struct.unpack("<d", random.randbytes(8))[0]
        if bits != bits or bits in (float("inf"), float("-inf")):
            continue
        near = abs(bits)
        (after,) = struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", near))[0] + 1))
        yield repr(bits)
        if after != float("inf"):
            middle = format(Decimal(near) / 2 + Decimal(after) / 2, "e")
            head, power = middle.split("e")
            yield middle
            yield f"{head}{'' if '.' in head else '.'}{'0' * random.randrange(40)}1e{power}"
            yield f"{middle[: random.randrange(2, len(head))].rstrip('.')}e{power}"
        yield f"{random.randrange(10 ** random.randrange(1, 25))}e{random.randrange(-350, 330)}"
        yield f"{random.randrange(10 ** random.randrange(1, 20))}.{random.randrange(10 ** random.randrange(1, 25))}"
        yield f"{random.getrandbits(64)}e{random.randrange(-30, 30)}"
        yield f"0.{'0' * random.randrange(30)}{random.randrange(1, 10**18)}e{random.randrange(-20, 20)}"
        many = "".join(random.choices(digits, k=random.randrange(1, 1200)))
        yield f"-{many.lstrip('0') or '0'}.{many}e{random.choice((0, -300, -700, -1500, 10))}"


@pytest.mark.parametrize("kernel", KERNELS)
def test_doubles_are_rounded_as_python_rounds_them(kernel: str) -> None:
    source = numbers(Random(7))
    texts = [next(source) for _ in range(20_000 if kernel == "native" else 500)]
    texts += ["1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "-1e309", "1e99999999999"]
    texts += ["4.9e-324", "2.4703282292062328e-324", "2.4703282292062327e-324", "1e-99999999999", "-0", "-0.0e5"]
    texts += ["2.2250738585072011e-308", "2.2250738585072014e-308", "9007199254740993", "1e22", "1e23", "8.5e-324"]
    found = decode({"type": "number"}, texts, kernel)
    for row, value in enumerate(found.values.to_pylist()):
        expected = float(texts[row])
        if abs(expected) == float("inf"):
            assert found.bad[row] == (Bad.RANGE, 0), texts[row]
        else:
            assert value is not None, texts[row]
            assert struct.pack("<d", value) == struct.pack("<d", expected), texts[row]


@settings(max_examples=tries(200))
@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?\Z"))
def test_other_numbers_are_what_json_reads(number: str) -> None:
    for kernel in KERNELS:
        assert_as_judged({"type": "number"}, [number.encode()], kernel)
        assert_as_judged({"type": "integer"}, [number.encode()], kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_floats_are_rounded_from_doubles_and_never_infinite(kernel: str) -> None:
    texts = ["0.1", "16777217", "3.4028235e38", "3.4028235677973366e38", "-3.5e38", "1e-46", "1e300"]
    found = decode({"type": "number", "connect.type": "float32"}, texts, kernel)
    for row, value in enumerate(found.values.to_pylist()):
        try:
            expected = struct.unpack("<f", struct.pack("<f", float(texts[row])))[0]
        except OverflowError:
            assert found.bad[row] == (Bad.RANGE, 0), texts[row]
        else:
            assert value == expected, texts[row]


@pytest.mark.parametrize("kernel", KERNELS)
def test_decimals_are_exact_or_refused(kernel: str) -> None:
    hints = {"title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes"}

    def decimals(precision: int, scale: int, texts: Sequence[str]) -> list[str]:
        parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        found = decode({"type": "number", **hints, "connect.parameters": parameters}, texts, kernel)
        return [
            found.bad[row][0].name if row in found.bad else str(one) for row, one in enumerate(found.values.to_pylist())
        ]

    assert decimals(5, 2, ["1", "-1.25", "999.99", "1e2", "1000", "0.001", "1.250", "1e-2", "-0"]) == [
        *("1.00", "-1.25", "999.99", "100.00", "RANGE", "RANGE", "1.25", "0.01", "0.00")
    ]
    assert decimals(5, 2, ['"AA=="', '"/4M="', '"//////////////+D"', '"AYaf"', '"AYag"', '""', '"A"', '"1.25"']) == [
        *("0.00", "-1.25", "-1.25", "999.99", "RANGE", "TYPE", "TYPE", "TYPE")
    ]
    large = "9" * 76
    assert decimals(76, 0, [large, f"-{large}", f"{large}0", f"{large}.0", "1e76", "1e75"]) == [
        *(large, f"-{large}", "RANGE", large, "RANGE", str(10**75))
    ]


# Strings


@settings(max_examples=tries(200))
@given(st.text(st.characters(), max_size=40), st.booleans())
def test_texts_are_what_json_reads(value: str, is_ascii: bool) -> None:
    payload = json.dumps({"a": value}, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    for kernel in KERNELS:
        assert_as_judged(a({"type": "string"}), [payload], kernel)
        assert_as_judged({"type": "object", "additionalProperties": {"type": "string"}}, [payload], kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_surrogate_alone_is_refused_only_where_it_is_read(kernel: str) -> None:
    for escape in ("\\ud800", "\\udc00", "\\ud800x", "\\ud800\\u0041", "\\udc00\\ud800", "\\ud800\\ud800\\udc00"):
        payload = f'{{"a": "x{escape}", "{escape}": 1}}'
        assert one(a({"type": "string"}), payload, kernel) == (Bad.UTF8, 6)
        assert one(a({"enum": ["x"]}), payload, kernel) == (Bad.UTF8, 6)
        assert one({"type": "object", "properties": {"b": {}}}, payload, kernel) == {"b": None}
        assert one(a({}), payload, kernel) == {"a": f'"x{escape}"'}
        assert one({"type": "object", "additionalProperties": {}, "connect.type": "map"}, payload, kernel) == (
            Bad.UTF8,
            0,
        )
    assert one(a({"type": "string"}), '{"a": "\\ud83d\\uDE00 \\u00e9\\u0000\\/"}', kernel) == {"a": "😀 é\0/"}


@pytest.mark.parametrize("kernel", KERNELS)
def test_base64_is_read_in_either_alphabet_padded_or_not(kernel: str) -> None:
    cases: list[tuple[str, bytes | Bad]] = [
        ("", b""),
        ("AA==", b"\0"),
        ("AA", b"\0"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("-_-_", b"\xfb\xff\xbf"),
        ("AAE=", b"\0\1"),
        ("AAE", b"\0\1"),
        ("A", Bad.TYPE),
        ("AA=", Bad.TYPE),
        ("AA===", Bad.TYPE),
        ("AAAA=", Bad.TYPE),
        ("=", Bad.TYPE),
        ("====", Bad.TYPE),
        ("AB==", Bad.TYPE),
        ("AAF", Bad.TYPE),
        ("A A=", Bad.TYPE),
        ("AA\n=", Bad.TYPE),
        ("AÄ==", Bad.TYPE),
    ]
    found = decode({"type": "string", "contentEncoding": "base64"}, [json.dumps(text) for text, _ in cases], kernel)
    assert found.values.to_pylist() == [None if isinstance(value, Bad) else value for _, value in cases]
    assert found.bad == {row: (bad, 0) for row, (_, bad) in enumerate(cases) if isinstance(bad, Bad)}
    assert one({"type": "string", "contentEncoding": "base64"}, '"\\u002b\\/+/"', kernel) == b"\xfb\xff\xbf"


# Dates and times


@pytest.mark.parametrize("kernel", KERNELS)
def test_instants_are_those_of_rfc_3339(kernel: str) -> None:
    cases: list[tuple[str, int | None]] = [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00+00:00", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00.0000009Z", 0),
        ("1970-01-01T01:00:00.5+01:00", 500_000),
        ("1970-01-01T00:00:00.123456789123Z", 123_456),
        ("1970-01-01T00:00:00-23:59", 86_340_000_000),
        ("1985-04-12T23:20:50.52Z", 482_196_050_520_000),
        ("2000-02-29T00:00:00Z", 951_782_400_000_000),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("0000-01-01T00:00:00Z", -62_167_219_200_000_000),
    ]
    cases += [
        (text, None)
        for text in (
            "1990-12-31T23:59:60Z",  # a leap second
            "1990-12-31T24:00:00Z",
            "1990-12-31T23:60:00Z",
            "1990-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "1990-13-01T00:00:00Z",
            "1990-00-01T00:00:00Z",
            "1990-01-00T00:00:00Z",
            "1990-01-01T00:00:00",
            "1990-01-01T00:00Z",
            "1990-01-01",
            "1990-01-01_00:00:00Z",
            "1990-01-01T00:00:00.Z",
            "1990-01-01T00:00:00,5Z",
            "1990-01-01T00:00:00+24:00",
            "1990-01-01T00:00:00+00:60",
            "1990-01-01T00:00:00+0000",
            "1990-01-01T00:00:00+00:00:00",
            "1990-01-01T00:00:00ZZ",
            " 1990-01-01T00:00:00Z",
            "1990-01-01T00:00:00Z ",
            "19900-01-01T00:00:00Z",
            "-199-01-01T00:00:00Z",
            "1990-01-01T00:00:00\u0660Z",
            "",
        )
    ]
    found = decode({"type": "string", "format": "date-time"}, [json.dumps(text) for text, _ in cases], kernel)
    assert found.values.cast(pa.int64()).to_pylist() == [value for _, value in cases]
    assert found.bad == {row: (Bad.TYPE, 0) for row, (_, value) in enumerate(cases) if value is None}


@pytest.mark.parametrize("kernel", KERNELS)
def test_days_and_times_are_those_of_the_calendar(kernel: str) -> None:
    days = [date.fromordinal(ordinal) for ordinal in range(1, date.max.toordinal(), 997)]
    days += [date(year, 2, 28) + timedelta(1) for year in range(1, 2500)]
    found = decode({"type": "string", "format": "date"}, [json.dumps(str(one)) for one in days], kernel)
    assert found.values.to_pylist() == days
    wrong = ["2023-02-29", "2024-2-29", "2024-02-30", "24-02-29", "2024/02/29", "2024-02-29T", "20240229", ""]
    refused = decode({"type": "string", "format": "date"}, [json.dumps(text) for text in wrong], kernel)
    assert set(refused.bad) == set(range(len(wrong)))

    times = {
        "00:00:00": time(),
        "23:59:59.999999": time(23, 59, 59, 999999),
        "12:00:00Z": time(12),
        "00:30:00+01:00": time(23, 30),
        "23:30:00.5-01:00": time(0, 30, 0, 500000),
    }
    found = decode({"type": "string", "format": "time"}, [json.dumps(text) for text in times], kernel)
    assert found.values.to_pylist() == list(times.values())
    wrong = ["24:00:00", "23:59:60", "1:00:00", "01:00", "01:00:00+1:00", "01:00:00z0", "01:00:00.", ""]
    refused = decode({"type": "string", "format": "time"}, [json.dumps(text) for text in wrong], kernel)
    assert set(refused.bad) == set(range(len(wrong)))
    of_day = {"type": "integer", "title": "org.apache.kafka.connect.data.Time"}
    found = decode(of_day, ["0", "86399999", "86400000", "-1"], kernel)
    assert set(found.bad) == {2, 3}


# Other judges, over random schemas and values


NAMES = ["id", "name", "é", 'q"', "total", "a_longer_name_than_others", "x"]


def random_schema(random: Random, depth: int) -> dict[str, Any]:
    """A schema of which jsonschema and columns say the same: what is required may not be null."""
    plain: list[dict[str, Any]] = [{"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"}]
    kind = random.randrange(8 if depth else 5)
    if kind < 4:
        found = plain[kind]
    elif kind == 4:
        return {"enum": ["A", "B", "é"]}
    elif kind == 5:
        found = {"type": "array", "items": random_schema(random, depth - 1)}
    elif kind == 6:
        found = {"type": "object", "additionalProperties": random_schema(random, depth - 1)}
    else:
        return random_record(random, depth)
    if random.random() < 0.3:
        found["type"] = [found["type"], "null"]
    return found


def random_record(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(NAMES, random.randrange(1, 6))
    properties = {}
    required = []
    for name in names:
        properties[name] = random_schema(random, depth - 1)
        if "null" not in properties[name].get("type", ()) and random.random() < 0.5:
            required.append(name)
        elif isinstance(properties[name].get("type"), str):
            properties[name]["type"] = [properties[name]["type"], "null"]
        elif "enum" in properties[name]:
            properties[name]["enum"].append(None)
    return {"type": "object", "properties": properties, "required": required}


def random_value(random: Random, document: dict[str, Any], wrong: float) -> Any:
    """A value of the schema, with a share of parts that are not."""
    if random.random() < wrong:
        return random.choice((None, 1, 1.5, True, "A", [], [1], {}, {"id": 1}, 10**25))
    if "enum" in document:
        return random.choice(document["enum"])
    types = document["type"] if isinstance(document["type"], list) else [document["type"]]
    match random.choice(types):
        case "integer":
            return random.choice((random.randrange(-(2**63), 2**63), random.randrange(100), 5.0))
        case "number":
            return random.choice(
                (random.random(), random.randrange(10**6) / 100, random.randrange(2**53), -0.0, 1e-300)
            )
        case "string":
            return "".join(random.choices('aé日😀"\\/\n\0 0', k=random.choice((0, 1, 5, 40))))
        case "boolean":
            return random.random() < 0.5
        case "array":
            return [random_value(random, document["items"], wrong) for _ in range(random.randrange(4))]
        case "object" if "properties" in document:
            return random_object(random, document, wrong)
        case "object":
            names = random.sample(NAMES, random.randrange(4))
            return {name: random_value(random, document["additionalProperties"], wrong) for name in names}
    return None


def random_object(random: Random, document: dict[str, Any], wrong: float) -> dict[str, Any]:
    found = {
        name: random_value(random, below, wrong)
        for name, below in document["properties"].items()
        if random.random() < (1 - wrong if name in document["required"] else 0.7)
    }
    if random.random() < 0.3:
        found[random.choice(("other", "id "))] = random.choice((None, [1, {"id": "x"}], "y"))
    members = list(found.items())
    random.shuffle(members)
    return dict(members)


def written(random: Random, value: Any) -> bytes:
    return json.dumps(
        value,
        ensure_ascii=random.random() < 0.5,
        indent=random.choice((None, None, 1)),
        separators=random.choice((None, (",", ":"))),
    ).encode()


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_that_jsonschema_finds_valid_are_read_and_no_others(kernel: str) -> None:
    random = Random(3)
    for _ in range(40 if kernel == "native" else 15):
        document = random_record(random, 3)
        validator = jsonschema.Draft202012Validator(document)
        values = [random_value(random, document, random.choice((0, 0.02, 0.2))) for _ in range(40)]
        payloads = [written(random, value) for value in values]
        assert_as_judged(document, payloads, kernel)
        found = decode(document, payloads, kernel)
        for row, value in enumerate(values):
            is_large = "10000000000000000000000000" in payloads[row].decode()
            assert is_large or (row not in found.bad) == validator.is_valid(value), (
                document,
                value,
                found.bad.get(row),
            )


def duckdb_type(type_: Type) -> str:
    match type_.kind:
        case ValueKind.STRUCT:
            members = (f'"{one.name.replace(chr(34), chr(34) * 2)}" {duckdb_type(one.type)}' for one in type_.fields)
            return f"STRUCT({', '.join(members)})"
        case ValueKind.LIST:
            return f"{duckdb_type(type_.fields[0].type)}[]"
        case ValueKind.MAP:
            return f"MAP(VARCHAR, {duckdb_type(type_.fields[1].type)})"
    return {ValueKind.INT64: "BIGINT", ValueKind.DOUBLE: "DOUBLE", ValueKind.BOOL: "BOOLEAN"}.get(type_.kind, "VARCHAR")


def test_records_are_what_duckdb_reads() -> None:
    random = Random(4)
    with duckdb.connect() as judge:
        for _ in range(15):
            document = random_record(random, 3)
            type_ = type_of(Schema(SchemaFormat.JSON, json.dumps(document)))
            payloads = [written(random, random_value(random, document, 0)) for _ in range(50)]
            found = decode(document, payloads)
            assert not found.bad
            judge.register("payloads", pa.table({"payload": [payload.decode() for payload in payloads]}))
            structure = {one.name: duckdb_type(one.type) for one in type_.fields}
            query = "select from_json(payload, $structure) from payloads"
            expected = judge.execute(query, {"structure": json.dumps(structure)}).fetchall()
            for row, value in enumerate(found.values.to_pylist()):
                assert same(type_, value, as_arrow(type_, expected[row][0])), payloads[row]


def as_arrow(type_: Type, value: Any) -> Any:
    """What DuckDB gives, as Arrow gives it: maps as pairs."""
    if value is None:
        return None
    match type_.kind:
        case ValueKind.STRUCT:
            return {one.name: as_arrow(one.type, value[one.name]) for one in type_.fields}
        case ValueKind.LIST:
            return [as_arrow(type_.fields[0].type, item) for item in value]
        case ValueKind.MAP:
            return [(name, as_arrow(type_.fields[1].type, item)) for name, item in value.items()]
    return value
