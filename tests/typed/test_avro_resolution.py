"""Avro values read as another schema: fastavro, given both schemas, is the judge."""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import OptionError
from segreader.typed.avro import type_of
from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding, Side, Undecodable
from segreader.typed.ops import Bad
from segreader.typed.schema import Schema, SchemaFormat, SchemaSet
from segreader.typed.types import Type, ValueKind, select


def avro(schema: Any) -> Schema:
    return Schema(SchemaFormat.AVRO, json.dumps(schema))


def record(name: str, *fields: Any, **rest: Any) -> dict[str, Any]:
    named = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": named, **rest}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, plain(schema), value)
    return stream.getvalue()


def read(writer: Any, reader: Any, *payloads: bytes, paths: tuple[str, ...] = ("",)) -> list[Any]:
    """What each payload is by the two schemas, or why it is undecodable."""
    return read_as(type_of(avro(reader)), writer, *payloads, paths=paths)


def read_as(whole: Type, writer: Any, *payloads: bytes, paths: tuple[str, ...] = ("",)) -> list[Any]:
    """As ``read``, for a reader's type; both executors must agree."""
    schemas = SchemaSet(ids=(("7", avro(writer)),))
    decoding = Decoding(side=Side.VALUE, schemas=schemas, type=whole, paths=paths, on_undecodable=Undecodable.NULL)
    framed = pa.array([b"\0\0\0\0\7" + one for one in payloads], pa.binary())
    both = []
    for kernel in KERNELS:
        made = ValueDecoder(decoding, kernel=kernel).decode(framed)
        made.array.validate(full=True)
        values = plain_values(made.array)
        for one in made.undecodable:
            if one.bad is Bad.MISMATCH:
                raise OptionError(one.detail)
            assert values[one.row] is None
            values[one.row] = one.bad
        both.append((values, [(one.row, one.position) for one in made.undecodable]))
    assert repr(both[0]) == repr(both[-1])
    return both[0][0]


def plain_values(array: pa.Array) -> list[Any]:
    """Values of an array, dates and times as numbers: Python has not all of them."""
    type_ = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        columns = [plain_values(array.field(index)) for index in range(type_.num_fields)]
        names = [field.name for field in type_]
        rows = (
            [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if names else [{}] * len(array)
        )
        return [row if one else None for row, one in zip(rows, valid, strict=True)]
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        if pa.types.is_list(type_):
            items = plain_values(array.values)
        else:
            items = list(zip(plain_values(array.keys), plain_values(array.items), strict=True))
        offsets = array.offsets.to_pylist()
        return [items[offsets[at] : offsets[at + 1]] if one else None for at, one in enumerate(valid)]
    if pa.types.is_dictionary(type_):
        return list(array.dictionary_decode().to_pylist())
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return list(array.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist())
    return list(array.to_pylist())


def resolved(writer: Any, reader: Any, value: Any) -> Any:
    """A value written with one schema and read with another, in a record of one field."""
    outer, inner = record("R", ("f", writer)), record("R", ("f", reader))
    (found,) = read(outer, inner, written(outer, {"f": value}))
    return found if isinstance(found, Bad) else found["f"]


KERNELS = ("reference", "native")


# The judge


def plain(schema: Any) -> Any:
    """A schema without logical types: fastavro gives what they are stored as, also where Python has no such value."""
    if isinstance(schema, dict):
        return {name: plain(one) for name, one in schema.items() if name not in ("logicalType", "precision", "scale")}
    return [plain(one) for one in schema] if isinstance(schema, list) else schema


def judged(writer: Any, reader: Any, payload: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(payload), plain(writer), plain(reader), return_named_type=True)


def named_types(schema: Any) -> dict[str, Any]:
    """The types that a schema names; none of these tests has a namespace."""
    found: dict[str, Any] = {}

    def visit(one: Any) -> None:
        if isinstance(one, list):
            for each in one:
                visit(each)
        elif isinstance(one, dict):
            if "name" in one and one["type"] in ("record", "enum", "fixed"):
                found[one["name"]] = one
            for each in one.get("fields", []):
                visit(each["type"])
            for name in ("items", "values"):
                visit(one.get(name))

    visit(schema)
    return found


class Difference(AssertionError):
    """What was read is not what the judge says."""


def compare(schema: Any, names: dict[str, Any], expected: Any, found: Any, type_: Type) -> None:
    """Raise unless ``found`` has, of the columns of ``type_``, what the judge read: its values carry no branches."""
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, list):
        compare_union(schema, names, expected, found, type_)
        return
    if isinstance(expected, tuple):
        expected = expected[1]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        if not isinstance(found, dict) or found.keys() != {one.name for one in type_.fields}:
            raise Difference(schema, expected, found)
        for field in schema["fields"]:
            if (below := type_.field(field["name"])) is not None:
                value = expected[field["name"]] if field["name"] in expected else field["default"]
                compare(field["type"], names, value, found[field["name"]], below.type)
    elif kind == "array":
        if len(expected) != len(found):
            raise Difference(schema, expected, found)
        for one, other in zip(expected, found, strict=True):
            compare(schema["items"], names, one, other, type_.fields[0].type)
    elif kind == "map":
        if [key for key, _ in found] != list(expected):
            raise Difference(schema, expected, found)
        for key, other in found:
            compare(schema["values"], names, expected[key], other, type_.fields[1].type)
    elif not is_same(meaning(schema, kind, expected), found):
        raise Difference(schema, expected, found)


def compare_union(schema: list[Any], names: dict[str, Any], expected: Any, found: Any, type_: Type) -> None:
    branches = [one for one in schema if one != "null"]
    if expected is None or found is None:
        if expected is not None or found is not None or len(branches) == len(schema):
            raise Difference(schema, expected, found)
    elif len(branches) == 1:
        compare(branches[0], names, expected, found, type_)
    else:
        filled = {name: one for name, one in found.items() if one is not None}
        if not filled and len(type_.fields) < len(branches):
            return  # its branch was not asked for
        if len(filled) != 1:
            raise Difference(schema, expected, found)
        ((name, value),) = filled.items()
        if isinstance(expected, tuple) and expected[0] != name:
            raise Difference(schema, expected, found)
        below = type_.field(name)
        branch = next(one for one in branches if name in (one, isinstance(one, dict) and one.get("name", one["type"])))
        assert below is not None
        compare(branch, names, expected, value, below.type)


def meaning(schema: Any, kind: str, stored: Any) -> Any:
    """What a stored value means by its logical type; defaults are as JSON has them."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if kind in ("bytes", "fixed") and isinstance(stored, str):
        stored = stored.encode("latin-1")
    if logical == "decimal":
        return Decimal(f"{int.from_bytes(stored, signed=True)}e-{schema.get('scale', 0)}")
    if logical == "uuid" and kind == "fixed":
        return str(uuid.UUID(bytes=stored))
    if logical == "duration":
        months, days, millis = struct.unpack("<III", stored)
        return (months, days, millis * 1_000_000)
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", stored))[0]
    return stored


def is_same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float) and expected != expected:
        return found != found
    if isinstance(expected, float) and isinstance(
        found, int
    ):  # fastavro takes a union's first branch that is wide enough
        return expected == float(found)
    return bool(expected == found) and isinstance(expected, bool) is isinstance(found, bool)


def check(writer: Any, reader: Any, payloads: Sequence[bytes], paths: tuple[str, ...] = ("",)) -> int:
    """Compare what is read with the judge's; the number of values. What the one refuses the other refuses."""
    names, whole = named_types(reader), type_of(avro(reader))
    type_ = select(whole, paths)
    try:
        found = read_as(whole, writer, *payloads, paths=paths)
    except OptionError:
        found = [Bad.BRANCH] * len(payloads)
    for payload, one in zip(payloads, found, strict=True):
        try:
            expected = judged(writer, reader, payload)
        except Exception as error:  # fastavro raises whatever its C code meets
            if not isinstance(one, Bad) and paths == ("",):
                raise Difference(writer, reader, payload, error, one) from None
            continue
        if isinstance(one, Bad):
            raise Difference(writer, reader, payload, expected, one)
        compare(reader, names, expected, one, type_)
    return len(payloads)


# Random schemas and values

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTED = {"int": "number", "long": "number", "float": "number", "double": "number", "string": "text", "bytes": "text"}
LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 20},
    {"type": "string", "logicalType": "unheard-of"},
]
FIXED: list[dict[str, Any]] = [
    {"size": 0},
    {"size": 5},
    {"size": 16, "logicalType": "uuid"},
    {"size": 12, "logicalType": "duration"},
    {"size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
]
WIDER = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


class Maker:
    """Makes schemas, values of them, and schemas that read what others have written."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: dict[str, Any] = {}
        self._open: set[str] = set()
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"N{self._count}"

    def record(self, depth: int = 3) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "record", "name": self._name(), "fields": []}
        self.names[made["name"]] = made
        self._open.add(made["name"])
        for index in range(self.random.randint(1 if depth == 3 else 0, 4)):
            made["fields"].append({"name": f"f{index}", "type": self.schema(depth - 1)})
        self._open.discard(made["name"])
        return made

    def schema(self, depth: int) -> Any:
        kinds = ["primitive", "primitive", "logical", "enum", "fixed", "nullable", "again"]
        match self.random.choice(kinds + ["record", "array", "map", "union"] * (depth > 0)):
            case "primitive":
                return self.random.choice(PRIMITIVES)
            case "logical":
                return dict(self.random.choice(LOGICAL))
            case "enum":
                symbols = [f"S{index}" for index in range(self.random.randint(1, 4))]
                return self._named({"type": "enum", "symbols": symbols})
            case "fixed":
                return self._named({"type": "fixed", **self.random.choice(FIXED)})
            case "again":
                known = [name for name in self.names if name not in self._open]
                return self.random.choice(known) if known else "int"
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case "record":
                return self.record(depth)
            case "nullable":
                return self._union(["null"], 1, depth)
        return self._union(self.random.choice([[], ["null"]]), self.random.randint(2, 4), depth)

    def _named(self, made: dict[str, Any]) -> dict[str, Any]:
        made["name"] = self._name()
        self.names[made["name"]] = made
        return made

    def _union(self, branches: list[Any], count: int, depth: int) -> list[Any]:
        """One number, and text or bytes: the judge takes the first that is wide enough, and not the same type."""
        seen = {"null"}
        for _ in range(count):
            names = dict(self.names)
            one = self.schema(depth - 1)
            key = self._branch(one)
            if key not in seen and key != "union":
                seen.add(key)
                branches.append(one)
            else:
                self.names = names
        return self._shuffled(branches) or ["null"]

    def _shuffled(self, types: list[Any]) -> list[Any]:
        """In another order, unless one defines a name, which must come before its uses."""
        return types if named_types(types) else self.random.sample(types, len(types))

    def _branch(self, schema: Any) -> str:
        if isinstance(schema, list):
            return "union"
        kind = schema if isinstance(schema, str) else schema.get("name", schema["type"])
        return PROMOTED.get(kind, kind)

    def value(self, schema: Any) -> Any:
        """A value as ``schemaless_writer`` takes it, with the names of branches."""
        random = self.random
        if isinstance(schema, list):
            one = random.choice(schema)
            return (one if isinstance(one, str) else one.get("name", one["type"]), self.value(one))
        schema = self.names.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        match kind:
            case "null":
                return None
            case "boolean":
                return random.random() < 0.5
            case "int" | "long":
                return self._integer(kind, logical)
            case "float" | "double":
                number = random.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), random.uniform(-1e30, 1e30)])
                return struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
            case "string":
                return "".join(random.choices("ab\0éß漢🙂", k=random.choice([0, 1, 3, 70])))
            case "bytes":
                digits = schema["precision"] if logical == "decimal" else 0
                return self._decimal(digits, None) if digits else random.randbytes(random.choice([0, 1, 9, 80]))
            case "fixed":
                if logical == "decimal":
                    return self._decimal(schema["precision"], schema["size"])
                if logical == "duration":
                    return struct.pack("<III", *(random.randrange(1 << 31) for _ in range(3)))
                return random.randbytes(schema["size"])
            case "enum":
                return random.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(random.choice([0, 1, 2, 5]))]
            case "map":
                return {f"k{index}é": self.value(schema["values"]) for index in range(random.choice([0, 1, 3]))}
        return {one["name"]: self.value(one["type"]) for one in schema["fields"]}

    def _integer(self, kind: str, logical: str | None) -> int:
        if logical in ("time-millis", "time-micros"):
            return self.random.randrange(86_400 * (1_000 if logical == "time-millis" else 1_000_000))
        bits = self.random.choice([1, 7, 14, 31 if kind == "int" else 63])
        return self.random.choice([self.random.randrange(-(1 << bits), 1 << bits), -(1 << bits), (1 << bits) - 1])

    def _decimal(self, digits: int, size: int | None) -> bytes:
        number = self.random.randrange(-(10**digits) + 1, 10**digits) // 10 ** self.random.randrange(digits)
        return int(number).to_bytes(size or (number.bit_length() + 8) // 8, signed=True)

    # Evolution

    def evolved(self, schema: Any) -> Any:
        """A reader's schema: what the specification allows, and now and then what it does not."""
        renamed: dict[str, str] = {}
        self.names = {}
        return self._evolved(schema, renamed, 4)

    def _evolved(self, schema: Any, renamed: dict[str, str], depth: int) -> Any:
        random = self.random
        if isinstance(schema, list):
            return self._evolved_union(schema, renamed, depth)
        if isinstance(schema, str) and schema in renamed:
            return renamed[schema]
        made = self._evolved_alone(schema, renamed, depth)
        if random.random() < 0.1 and self._branch(made) != "null":
            branches = [one for one in ("null", "boolean", "string") if self._branch(one) != self._branch(made)]
            others = random.sample(branches, random.randint(1, 2))
            made = random.sample([*others, made], len(others) + 1)  # others define no names
        return made

    def _evolved_union(self, schema: list[Any], renamed: dict[str, str], depth: int) -> Any:
        branches: list[Any] = [self._evolved_alone(one, renamed, depth) for one in schema]
        if len({self._branch(one) for one in branches}) < len(branches):
            branches = [one if isinstance(one, str) and one in PRIMITIVES else new
                        for one, new in zip(schema, branches, strict=True)]  # fmt: skip
        if self.random.random() < 0.3:
            branches = self._shuffled(branches)
        if len(branches) == 1 and self.random.random() < 0.3:
            return branches[0]
        if self.random.random() < 0.1 and not isinstance(branches[-1], dict):
            branches = branches[:-1] or branches
        return branches

    def _evolved_alone(self, schema: Any, renamed: dict[str, str], depth: int) -> Any:
        random = self.random
        if isinstance(schema, str):
            if schema in renamed:
                return renamed[schema]
            return random.choice(WIDER[schema]) if schema in WIDER and random.random() < 0.2 else schema
        made = dict(schema)
        if "name" in made:
            renamed[made["name"]] = made["name"]
            if random.random() < 0.1:
                made["aliases"] = [made["name"]]
                renamed[made["name"]] = made["name"] = self._name()
            self.names[made["name"]] = made
        match made["type"]:
            case "record":
                self._open.add(made["name"])
                made["fields"] = self._evolved_fields(made["fields"], renamed, depth)
                self._open.discard(made["name"])
            case "array":
                made["items"] = self._evolved(made["items"], renamed, depth - 1)
            case "map":
                made["values"] = self._evolved(made["values"], renamed, depth - 1)
            case "enum":
                if random.random() < 0.3:
                    made["symbols"] = random.sample([*made["symbols"], "New"], len(made["symbols"]))
                    if random.random() < 0.8:
                        made["default"] = made["symbols"][0]
        return made

    def _evolved_fields(self, fields: list[Any], renamed: dict[str, str], depth: int) -> list[Any]:
        random = self.random
        made = []
        for field in fields:
            one = dict(field)
            one["type"] = self._evolved(one["type"], renamed, depth)
            if random.random() < 0.1:
                one["aliases"] = ["never", one["name"]]
                one["name"] = f"renamed_{one['name']}"
            made.append(one)
        if not named_types([one["type"] for one in made]):
            made = random.sample(made, random.randint(0, len(made)) if random.random() < 0.2 else len(made))
        while random.random() < 0.3:
            type_ = self.schema(min(2, depth))
            value = self._json(type_)
            name = f"new{len(made)}"
            # Without a default it is an error at once, and with the judge when a value has the record.
            has_default = random.random() < 0.97 or len(self._open) > 1 or isinstance(type_, list) or type_ == "null"
            made.append({"name": name, "type": type_, **({"default": value} if has_default else {})})
        return made

    def _json(self, schema: Any) -> Any:
        """A default: JSON of the first branch, as every implementation takes it."""
        if isinstance(schema, list):
            return self._json(schema[0])
        schema = self.names.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "bytes" | "fixed":
                return self.value(schema).decode("latin-1")
            case "float" | "double":
                return self.random.choice([0.5, -2.0, 1e10])
            case "array":
                return [self._json(schema["items"]) for _ in range(self.random.randint(0, 2))]
            case "map":
                return {f"d{index}": self._json(schema["values"]) for index in range(self.random.randint(0, 2))}
            case "record":
                return {
                    one["name"]: self._json(one["type"])
                    for one in schema["fields"]
                    if "default" not in one or self.random.random() < 0.5
                }
        return self.value(schema)


def paths_of(type_: Type, random: Random, prefix: str = "") -> list[str]:
    """Some of the fields of a type."""
    found: list[str] = []
    for one in type_.fields if type_.kind is ValueKind.STRUCT else ():
        path = f"{prefix}.{one.name}".lstrip(".")
        below = one.type.fields[0].type if one.type.kind is ValueKind.LIST else one.type
        if random.random() < 0.5:
            found.append(path)
        elif random.random() < 0.5:
            found += paths_of(below, random, path)
    return found


def exact(schema: Any, names: dict[str, Any], value: Any, found: Any, type_: Type) -> None:
    """Raise unless what was read is what was written, with the very branch of each union."""
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, list):
        name, inner = value
        if isinstance(inner, dict | list | str | bytes | int | float | bool):
            branches = [one for one in schema if one != "null"]
            branch = next(
                one for one in schema if name in (one, isinstance(one, dict) and one.get("name", one["type"]))
            )
            if len(branches) > 1:
                assert {key for key, one in found.items() if one is not None} == {name}, (schema, value, found)
                below = type_.field(name)
                assert below is not None
                exact(branch, names, inner, found[name], below.type)
            else:
                exact(branch, names, inner, found, type_)
        else:
            assert found is None
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        for field, below in zip(schema["fields"], type_.fields, strict=True):
            exact(field["type"], names, value[field["name"]], found[field["name"]], below.type)
    elif kind == "array":
        for one, other in zip(value, found, strict=True):
            exact(schema["items"], names, one, other, type_.fields[0].type)
    elif kind == "map":
        assert list(value) == [key for key, _ in found]
        for key, other in found:
            exact(schema["values"], names, value[key], other, type_.fields[1].type)
    else:
        assert is_same(meaning(schema, kind, value), found), (schema, value, found)


def run(random: Random, records: int) -> int:
    """Records of one random schema, read as itself, as another one, and in part; how many were compared."""
    maker = Maker(random)
    writer = maker.record()
    values = [maker.value(writer) for _ in range(records)]
    payloads = [written(writer, one) for one in values]
    whole = type_of(avro(writer))
    names = named_types(writer)
    for value, one in zip(values, read_as(whole, writer, *payloads), strict=True):
        exact(writer, names, value, one, whole)
    count = check(writer, writer, payloads)
    reader = maker.evolved(writer)
    count += check(writer, reader, payloads)
    if paths := paths_of(type_of(avro(reader)), random):
        count += check(writer, reader, payloads, tuple(paths))
    return count


@settings(max_examples=tries(300), suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large])
@given(st.randoms(use_true_random=False))
def test_random_records_are_what_fastavro_reads_with_both_schemas(random: Random) -> None:
    run(random, 4)


# "Schema Resolution", rule by rule


def agrees(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """What the values of a field are when read, after the judge has said the same of each."""
    outer, inner = record("R", ("f", writer)), record("R", ("f", reader))
    payloads = [written(outer, {"f": one}) for one in values]
    check(outer, inner, payloads)
    return [one if isinstance(one, Bad) else one["f"] for one in read(outer, inner, *payloads)]


def refuses(writer: Any, reader: Any, value: Any) -> str:
    """The error of a schema that no value can be read by; the judge refuses the value."""
    outer, inner = record("R", ("f", writer)), record("R", ("f", reader))
    payload = written(outer, {"f": value})
    with pytest.raises(Exception):  # noqa: B017, PT011  fastavro raises whatever its C code meets
        judged(outer, inner, payload)
    with pytest.raises(OptionError) as caught:
        read(outer, inner, payload)
    return str(caught.value)


def test_a_primitive_type_is_read_as_itself_and_what_it_is_promotable_to() -> None:
    values = {
        "null": None,
        "boolean": True,
        "int": 7,
        "long": 7,
        "float": 7.5,
        "double": 7.5,
        "bytes": b"x",
        "string": "x",
    }
    for writer in PRIMITIVES:
        for reader in PRIMITIVES:
            if reader == writer or reader in WIDER.get(writer, ()):
                assert agrees(writer, reader, values[writer])[0] in (values[writer], b"x", "x")
            else:
                assert "cannot be read as the reader's: f; found" in refuses(writer, reader, values[writer])


def test_promoted_numbers_are_the_nearest_ones() -> None:
    assert agrees("int", "float", 16_777_217, -(1 << 31)) == [16_777_216.0, -2147483648.0]
    assert agrees("long", "double", (1 << 53) + 1, -(1 << 63)) == [9007199254740992.0, -9223372036854775808.0]
    assert agrees("float", "double", 0.10000000149011612) == [0.10000000149011612]
    assert agrees("bytes", "string", "é".encode(), b"\xff") == ["é", Bad.UTF8]
    assert agrees("string", "bytes", "é") == ["é".encode()]


def test_fields_are_matched_by_name_whatever_their_order() -> None:
    writer = record("A", ("x", "int"), ("y", "string"), ("z", "double"))
    reader = record("A", ("z", "double"), ("x", "long"), ("y", "string"))
    assert agrees(writer, reader, {"x": 1, "y": "a", "z": 2.5}) == [{"z": 2.5, "x": 1, "y": "a"}]


def test_fields_that_the_reader_does_not_have_are_skipped() -> None:
    every = [*PRIMITIVES, {"type": "array", "items": "string"}, {"type": "map", "values": ["null", "long"]},
             {"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "fixed", "name": "F", "size": 3},
             record("S", ("a", "string"), ("b", ["null", "string"]))]  # fmt: skip
    value = [None, False, -5, 1 << 40, 1.5, 2.5, b"xy", "zé", ["p", "q"], {"k": ("long", 5), "l": ("null", None)}, "B",
             b"abc", {"a": "s", "b": ("string", "t")}]  # fmt: skip
    for one, kept in zip(every, value, strict=True):
        again = one["name"] if isinstance(one, dict) and "name" in one else one
        writer = record("A", ("before", one), ("x", "int"), ("after", again))
        assert agrees(writer, record("A", ("x", "int")), {"before": kept, "x": 300, "after": kept}) == [{"x": 300}]


def test_a_field_that_the_writer_does_not_have_has_its_default() -> None:
    inner = record("I", ("a", "int"), ("b", ["null", "string"], {"default": None}), ("c", "long", {"default": 9}))
    lists = {"type": "array", "items": inner}
    defaults: list[tuple[Any, Any, Any]] = [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -3, -3),
        ("long", 1 << 50, 1 << 50),
        ("float", 0.1, 0.10000000149011612),
        ("double", 3, 3.0),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ("string", "é\0", "é\0"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u0001", b"\xfe\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": ["null", "int"]}, [None, 1], [None, 1]),
        ({"type": "map", "values": "double"}, {"x": 1.5, "é": 2}, [("x", 1.5), ("é", 2.0)]),
        (inner, {"a": 1}, {"a": 1, "b": None, "c": 9}),
        (lists, [{"a": 1}, {"a": 2, "c": 3}], [{"a": 1, "b": None, "c": 9}, {"a": 2, "b": None, "c": 3}]),
        ({"type": "map", "values": lists}, {"k": [{"a": 5}]}, [("k", [{"a": 5, "b": None, "c": 9}])]),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["string", "int", "null"], "x", {"string": "x", "int": None}),
        (["int", "string"], "x", {"string": "x", "int": None}),
        ([inner, "null", "int"], {"a": 1}, {"I": {"a": 1, "b": None, "c": 9}, "int": None}),
    ]
    for schema, default, expected in defaults:
        writer, reader = record("A", ("x", "int")), record("A", ("new", schema, {"default": default}), ("x", "int"))
        assert agrees(writer, reader, {"x": 5}) == [{"new": expected, "x": 5}], schema


def test_a_default_of_a_logical_type_has_its_meaning() -> None:
    defaults: list[tuple[dict[str, Any], Any, Any]] = [
        ({"type": "int", "logicalType": "date"}, 19_000, 19_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, -5, -5),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u00ff\u0085", Decimal("-1.23")),
        ({"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4}, "\u0000\u0005",
         Decimal(5)),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "\u0000" * 15 + "\u00ab",
         "00000000-0000-0000-0000-0000000000ab"),
        ({"type": "fixed", "name": "P", "size": 12, "logicalType": "duration"}, "\u0001" + "\u0000" * 11, (1, 0, 0)),
    ]  # fmt: skip
    for schema, default, expected in defaults:
        reader = record("A", ("new", schema, {"default": default}))
        assert agrees(record("A"), reader, {}) == [{"new": expected}], schema


def test_a_field_without_a_default_is_null_if_it_may_be_and_else_an_error() -> None:
    writer = record("A", ("x", "int"))
    assert resolved(writer, record("A", ("x", "int"), ("new", ["null", "int"])), {"x": 1}) == {"x": 1, "new": None}
    assert resolved(writer, record("A", ("x", "int"), ("new", ["int", "string", "null"])), {"x": 1})["new"] is None
    message = refuses(writer, record("A", ("x", "int"), ("new", "int")), {"x": 1})
    assert "f.new; found no such field, and no default for it, expected int32" in message
    assert "schema_version=" in message


def test_symbols_are_matched_by_name_and_unknown_ones_are_the_default() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    reader = {"type": "enum", "name": "E", "symbols": ["C", "X", "A"]}
    assert agrees(writer, reader, "A", "B", "C") == ["A", Bad.SYMBOL, "C"]
    assert agrees(writer, {**reader, "default": "X"}, "A", "B", "C") == ["A", "X", "C"]
    assert agrees({**writer, "default": "A"}, reader, "B") == [Bad.SYMBOL]  # the writer's default is no matter here


def test_items_and_values_are_resolved_too() -> None:
    assert agrees({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2]) == [
        [1.0, 2.0]
    ]
    writer = {"type": "map", "values": record("V", ("a", "int"), ("b", "int"))}
    reader = {"type": "map", "values": record("V", ("c", "int", {"default": 7}), ("b", "long"))}
    assert agrees(writer, reader, {"k": {"a": 1, "b": 2}}) == [[("k", {"c": 7, "b": 2})]]
    assert "f; found string, expected int32" in refuses(
        {"type": "array", "items": "string"}, {"type": "array", "items": "int"}, ["x"]
    )
    assert "found map, expected list" in refuses(
        {"type": "map", "values": "int"}, {"type": "array", "items": "int"}, {"k": 1}
    )


def test_fixed_types_of_other_sizes_are_refused() -> None:
    writer = {"type": "fixed", "name": "F", "size": 4}
    assert agrees(writer, writer, b"abcd") == [b"abcd"]
    assert "found fixed F, expected fixed_size_binary[5]" in refuses(writer, {**writer, "size": 5}, b"abcd")
    assert "found fixed F, expected binary" in refuses(writer, "bytes", b"abcd")


def test_of_two_unions_each_branch_is_read_as_the_first_that_matches_it() -> None:
    writer = ["null", "int", "string", {"type": "array", "items": "int"}]
    reader = ["string", {"type": "array", "items": "long"}, "null", "long"]
    values: list[Any] = [("null", None), ("int", 5), ("string", "x"), ("array", [1])]
    nothing: dict[str, Any] = {"string": None, "array": None, "long": None}
    assert agrees(writer, reader, *values) == [
        None,
        {**nothing, "long": 5},
        {**nothing, "string": "x"},
        {**nothing, "array": [1]},
    ]
    assert agrees(writer, ["null", "string"], *values) == [None, Bad.BRANCH, "x", Bad.BRANCH]
    assert agrees(writer, ["null", "double"], *values) == [None, 5.0, Bad.BRANCH, Bad.BRANCH]


def test_a_branch_is_read_as_its_own_type_before_one_it_is_promotable_to() -> None:
    """As Java does: else the same schema would move a value into another branch."""
    schema = ["double", "int", "bytes", "string", "null"]
    nothing: dict[str, Any] = dict.fromkeys(("double", "int", "bytes", "string"))
    assert resolved(schema, schema, ("int", 5)) == {**nothing, "int": 5}
    assert resolved(schema, schema, ("string", "x")) == {**nothing, "string": "x"}
    assert resolved(["int", "string"], ["float", "long", "bytes"], ("int", 5)) == {
        "float": 5.0,
        "long": None,
        "bytes": None,
    }


def test_a_reader_with_a_union_reads_what_was_none() -> None:
    assert agrees("int", ["null", "int"], 5) == [5]
    assert agrees("int", ["string", "long", "null"], 5) == [{"string": None, "long": 5}]
    assert agrees("null", ["string", "null"], None) == [None]
    assert agrees(record("A", ("x", "int")), ["string", record("A", ("x", "int"))], {"x": 1}) == [
        {"string": None, "A": {"x": 1}}
    ]
    assert "found boolean, expected int, string" in refuses("boolean", ["int", "string"], True)
    assert "found null, expected union" in refuses("null", ["int", "string"], None)


def test_a_reader_without_a_union_reads_the_branches_that_match() -> None:
    assert agrees(["null", "int", "string"], "long", ("int", 5), ("null", None), ("string", "x")) == [
        5,
        Bad.BRANCH,
        Bad.BRANCH,
    ]
    assert agrees(["int"], "int", ("int", 5)) == [5]
    assert "found string, expected int32" in refuses(["boolean", "string"], "int", ("string", "x"))


def test_records_of_a_union_are_told_apart_by_their_names() -> None:
    a, b = record("A", ("x", "int")), record("B", ("x", "int"))
    assert agrees(["null", a, b], ["null", a], ("A", {"x": 1}), ("B", {"x": 2})) == [{"x": 1}, Bad.BRANCH]
    assert agrees([a, b], a, ("A", {"x": 1}), ("B", {"x": 2})) == [{"x": 1}, Bad.BRANCH]
    assert agrees([a, b], [b, a], ("A", {"x": 1}), ("B", {"x": 2})) == [
        {"B": None, "A": {"x": 1}},
        {"B": {"x": 2}, "A": None},
    ]
    assert agrees([a, b], [b, "null", "int"], ("A", {"x": 1}), ("B", {"x": 2})) == [
        Bad.BRANCH,
        {"B": {"x": 2}, "int": None},
    ]
    first, second = record("x.A", ("x", "int")), record("y.A", ("x", "int"))
    made = [resolved([first, second], [second, first], ("x.A", {"x": 1}))]
    assert made == [{"y.A": None, "x.A": {"x": 1}}]
    assert resolved(record("z.A", ("x", "int")), [second, "int"], {"x": 1}) == {"A": {"x": 1}, "int": None}


def test_a_field_is_found_by_the_readers_alias() -> None:
    writer = record("A", ("old", "int"), ("other", "int"))
    reader = record("A", ("new", "long", {"aliases": ["older", "old"]}), ("other", "int"))
    assert agrees(writer, reader, {"old": 1, "other": 2}) == [{"new": 1, "other": 2}]
    both = record("A", ("new", "int", {"aliases": ["old"], "default": 0}), ("old", "int"), ("other", "int"))
    assert agrees(writer, both, {"old": 1, "other": 2}) == [{"new": 0, "old": 1, "other": 2}]
    twice = record("A", ("a", "int", {"aliases": ["old", "other"]}), ("b", "int", {"aliases": ["old"], "default": 3}))
    assert resolved(writer, twice, {"old": 1, "other": 2}) == {"a": 1, "b": 3}


def test_records_enums_and_fixed_types_are_found_by_the_readers_alias() -> None:
    record_ = (record("A", ("x", "int")), record("New", ("x", "int"), aliases=["A"]), {"x": 1})
    enum = {"type": "enum", "name": "A", "symbols": ["S"]}
    fixed = {"type": "fixed", "name": "A", "size": 1}
    for old, new, value in [
        record_,
        (enum, {**enum, "name": "New", "aliases": ["A"]}, "S"),
        (fixed, {**fixed, "name": "New", "aliases": ["A"]}, b"x"),
    ]:
        assert agrees(old, new, value) == [value]
        assert agrees(old, ["null", new], value) == [value]
        assert agrees(old, ["int", new], value) == [{"int": None, "New": value}]
        assert agrees(["null", old], ["int", "null", new], ("A", value)) == [{"int": None, "New": value}]
        # Without the alias it is another type.
        assert agrees(["null", old], ["int", "null", {**new, "aliases": []}], ("A", value)) == [Bad.BRANCH]


def logical(name: str, kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **rest}


def test_a_logical_type_may_come_and_go() -> None:
    millis, date = logical("timestamp-millis", "long"), logical("date", "int")
    assert agrees("long", millis, 5) == agrees(millis, "long", 5) == agrees("int", millis, 5) == [5]
    assert agrees("int", date, 5) == agrees(date, "int", 5) == agrees(date, "long", 5) == [5]
    assert agrees("long", logical("local-timestamp-nanos", "long"), -1) == [-1]
    decimal = logical("decimal", "bytes", precision=4, scale=2)
    assert agrees("bytes", decimal, b"\x01\x00") == [Decimal("2.56")]
    assert agrees(decimal, "bytes", b"\x01\x00") == [b"\x01\x00"]
    fixed = {"type": "fixed", "name": "F", "size": 16}
    assert agrees(fixed, {**fixed, "logicalType": "uuid"}, bytes(16)) == ["00000000-0000-0000-0000-000000000000"]
    assert agrees({**fixed, "logicalType": "uuid"}, fixed, bytes(16)) == [bytes(16)]
    assert "found fixed F, expected string" in refuses(fixed, "string", bytes(16))


def test_a_finer_unit_of_the_readers_is_converted_to() -> None:
    millis, micros, nanos = (logical(f"timestamp-{one}", "long") for one in ("millis", "micros", "nanos"))
    assert resolved(millis, micros, -5) == -5_000
    assert resolved(millis, nanos, 7) == 7_000_000
    assert resolved(["null", micros], nanos, ("long", 7)) == 7_000
    assert resolved(millis, nanos, 1 << 60) is Bad.RANGE
    assert resolved(logical("time-millis", "int"), logical("time-micros", "long"), 86_399_999) == 86_399_999_000
    for writer, reader in [(micros, millis), (millis, logical("date", "int")), (logical("date", "int"), millis)]:
        with pytest.raises(OptionError, match="cannot be read as the reader's: f; found"):
            resolved(writer, reader, 0)


def test_decimals_of_another_scale_are_refused_and_of_another_precision_read() -> None:
    two, wide = logical("decimal", "bytes", precision=4, scale=2), logical("decimal", "bytes", precision=9, scale=2)
    assert agrees(two, wide, b"\x01\x00") == [Decimal("2.56")]
    assert resolved(wide, two, (99_999).to_bytes(4)) is Bad.RANGE
    with pytest.raises(OptionError, match=r"found bytes \(decimal\(4, 2\)\), expected decimal\(9, 3\)"):
        resolved(two, logical("decimal", "bytes", precision=9, scale=3), b"\x01")


LISTS = record("LongList", ("value", "long"), ("next", ["null", "LongList"], {"default": None}))


def linked(*values: int) -> dict[str, Any]:
    made: dict[str, Any] | None = None
    for one in reversed(values):
        made = {"value": one, "next": ("null", None) if made is None else ("LongList", made)}
    assert made is not None
    return made


def test_a_recursive_field_that_is_left_out_is_skipped() -> None:
    payloads = [written(LISTS, linked(*range(count))) for count in (1, 2, 90)]
    assert read(LISTS, LISTS, *payloads, paths=("value",)) == [{"value": 0}] * 3
    assert (
        read(LISTS, record("LongList", ("value", "int")) | {"fields": LISTS["fields"][:1]}, *payloads)
        == [{"value": 0}] * 3
    )
    tree = record(
        "Tree", ("kids", {"type": "array", "items": "Tree"}), ("by", {"type": "map", "values": "Tree"}), ("x", "int")
    )
    leaf: dict[str, Any] = {"kids": [], "by": {}, "x": 1}
    value = {"kids": [leaf, {"kids": [leaf], "by": {"k": leaf}, "x": 2}], "by": {"l": leaf}, "x": 77}
    assert read(tree, tree, written(tree, value), paths=("x",)) == [{"x": 77}]


def test_recursion_beyond_the_most_levels_is_an_error_of_the_value() -> None:
    deep = b"\x02\x02" * 10_000 + b"\x02\x00"
    endless = record("Loop", ("again", "Loop"))
    assert read(LISTS, LISTS, deep, paths=("value",)) == [Bad.DEPTH]
    assert read(record("R", ("l", endless), ("x", "int")), record("R", ("x", "int")), b"\x02") == [Bad.DEPTH]


def test_of_a_union_in_part_the_other_branches_are_dropped() -> None:
    a, b = record("A", ("x", "int"), ("y", "string")), record("B", ("z", "int"))
    schema = record("R", ("u", ["null", a, b, "int"]), ("after", "int"))
    values: list[Any] = [("null", None), ("A", {"x": 1, "y": "é"}), ("B", {"z": 2}), ("int", 3)]
    payloads = [written(schema, {"u": one, "after": 9}) for one in values]
    assert read(schema, schema, *payloads, paths=("u.A.x", "after")) == [
        {"u": None, "after": 9},
        {"u": {"A": {"x": 1}}, "after": 9},
        {"u": {"A": None}, "after": 9},
        {"u": {"A": None}, "after": 9},
    ]
    assert read(schema, schema, *payloads, paths=("after",)) == [{"after": 9}] * 4


def test_a_value_that_is_no_record_is_a_column_by_itself() -> None:
    assert read("string", "string", b"\x02x") == ["x"]
    assert read("int", ["null", "double"], b"\x0a") == [5.0]
    assert read(["null", "int"], ["null", "int"], b"\0", b"\x02\x0a", b"\x04") == [None, 5, Bad.BRANCH]
    assert read({"type": "array", "items": "int"}, {"type": "array", "items": "int"}, b"\x02\x0a\0") == [[5]]
    assert read(["int", "string"], ["string", "int"], b"\x02\x02x") == [{"string": "x", "int": None}]
    assert read([], [], b"\0") == [Bad.BRANCH]
    assert read("null", "null", b"", b"\0") == [None, Bad.LEFT_OVER]


def test_a_thousand_fields_and_ninety_levels_are_read() -> None:
    wide = record("R", *((f"f{index}", ["null", "int"]) for index in range(1000)))
    payload = written(wide, {f"f{index}": ("int", index) if index % 3 else ("null", None) for index in range(1000)})
    assert read(wide, wide, payload) == [{f"f{index}": index if index % 3 else None for index in range(1000)}]
    deep: Any = "int"
    value: Any = 5
    for level in range(90):
        deep = record(f"R{level}", ("f", ["null", deep] if level else deep))
        value = {"f": (f"R{level - 1}", value) if level else value}
    (found,) = read(deep, deep, written(deep, value))
    for _ in range(90):
        found = found["f"]
    assert found == 5


def test_any_bytes_are_a_value_or_undecodable() -> None:
    """Each byte of a record changed, and each cut of it: both executors must say the same."""
    random = Random(5)
    maker = Maker(random)
    writer = maker.record()
    for value in [maker.value(writer) for _ in range(3)]:
        payload = written(writer, value)[:60]
        hostile = [payload[:stop] for stop in range(len(payload))]
        for at in range(len(payload)):
            for other in (0, 1, 0x7F, 0x80, 0xFF, payload[at] ^ 0x10):
                hostile.append(payload[:at] + bytes([other]) + payload[at + 1 :])
        assert len(read(writer, maker.evolved(writer), *hostile)) == len(hostile)
