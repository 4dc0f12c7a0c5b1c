"""Avro schemas and values at random, and fastavro as the judge of what they are read as by another schema.

Run it to compare many more than the tests do: ``python tests/support/avro_pairs.py FIRST_SEED SEEDS``.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import uuid
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa

from segreader.errors import OptionError
from segreader.typed.decoder import ValueDecoder
from segreader.typed.decoding import Decoding, Side, Undecodable
from segreader.typed.formats.avro import type_of
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


def check(writer: Any, reader: Any, payloads: Sequence[bytes], paths: Sequence[str] = ("",)) -> int:
    """Compare what is read with the judge's; the number of values. What the one refuses the other refuses."""
    if not paths:
        return 0
    paths = tuple(paths)
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
        self._open: list[str] = []
        self._count = 0
        self._depth = 0

    def _name(self) -> str:
        self._count += 1
        return f"N{self._count}"

    def record(self, depth: int = 3) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "record", "name": self._name(), "fields": []}
        self.names[made["name"]] = made
        self._open.append(made["name"])
        for index in range(self.random.randint(1 if depth == 3 else 0, 4)):
            made["fields"].append({"name": f"f{index}", "type": self.schema(depth - 1)})
        self._open.pop()
        return made

    def schema(self, depth: int) -> Any:
        kinds = ["primitive", "primitive", "logical", "enum", "fixed", "nullable", "again"]
        kinds += ["record", "array", "map", "union"] * (depth > 0)
        match "within" if self.random.random() < 0.02 else self.random.choice(kinds):
            case "within":
                return ["null", self.random.choice(self._open)]
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
            one = random.choice(schema if self._depth < 6 or "null" not in schema else ["null"])
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
                return [
                    self.value(schema["items"]) for _ in range(random.choice([0, 1, 2, 5 if self._depth < 3 else 0]))
                ]
            case "map":
                return {f"k{index}é": self.value(schema["values"]) for index in range(random.choice([0, 1, 3]))}
        self._depth += 1
        made = {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        self._depth -= 1
        return made

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
                self._open.append(made["name"])
                made["fields"] = self._evolved_fields(made["fields"], renamed, depth)
                self._open.pop()
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
            names = dict(self.names)
            type_ = self.schema(min(2, depth))
            try:
                value = self._json(type_)
            except (RecursionError, TypeError):  # of a record that must contain itself, or that is not evolved yet
                self.names = names
                continue
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
                if schema["name"] in self._open:  # its fields are still those of before
                    raise RecursionError(schema["name"])
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


def readable(type_: Type, prefix: str = "") -> list[str]:
    """The paths of all that is not recursive."""
    if not _is_recursive(type_):
        return [prefix]
    below = type_.fields[0].type if type_.kind is ValueKind.LIST else type_
    found: list[str] = []
    for one in below.fields if below.kind is ValueKind.STRUCT else ():
        found += readable(one.type, f"{prefix}.{one.name}".lstrip("."))
    return found


def _is_recursive(type_: Type) -> bool:
    return type_.kind is ValueKind.RECURSIVE or any(_is_recursive(one.type) for one in type_.fields)


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
    if not _is_recursive(whole):
        for value, one in zip(values, read_as(whole, writer, *payloads), strict=True):
            exact(writer, names, value, one, whole)
    count = check(writer, writer, payloads, readable(whole))
    reader = maker.evolved(writer)
    type_ = type_of(avro(reader))
    every = readable(type_)
    count += check(writer, reader, payloads, every)
    return count + check(writer, reader, payloads, _some(type_, every, random))


def _some(type_: Type, every: list[str], random: Random) -> list[str]:
    """Some of the paths that can be read, down to single fields."""
    return random.sample(every, random.randint(0, len(every))) if every != [""] else paths_of(type_, random)


if __name__ == "__main__":
    first, seeds = map(int, sys.argv[1:])
    compared = 0
    for seed in range(first, first + seeds):
        try:
            compared += run(Random(seed), 20)
        except Exception as error:
            raise SystemExit(f"seed {seed}, after {compared:,} values: {error!r}") from error
    print(f"{compared:,} values, none differs")
