from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from avro_pairs import Maker, avro, is_same, named_types, read_as, record, written
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import OptionError
from segreader.typed.formats.avro import compile_schema, type_of
from segreader.typed.merge import merge_types
from segreader.typed.ops import ColumnLayout
from segreader.typed.types import Type, TypeField, ValueKind

BOOL, INT, LONG = Type(kind=ValueKind.BOOL), Type(kind=ValueKind.INT32), Type(kind=ValueKind.INT64)
FLOAT, DOUBLE = Type(kind=ValueKind.FLOAT), Type(kind=ValueKind.DOUBLE)
TEXT, BYTES = Type(kind=ValueKind.STRING), Type(kind=ValueKind.BINARY)
UINT, ULONG = Type(kind=ValueKind.UINT32), Type(kind=ValueKind.UINT64)
DATE, TIME_MS, TIME_US = Type(kind=ValueKind.DATE), Type(kind=ValueKind.TIME_MS), Type(kind=ValueKind.TIME_US)
NULL = Type(kind=ValueKind.NULL, is_nullable=True)
JSON_TEXT = Type(kind=ValueKind.STRING, unit="json")
ENUM = Type(kind=ValueKind.ENUM, symbols=("A", "B"))
UUID = Type(kind=ValueKind.STRING, name="x.Id")


def timestamp(unit: str, *, is_utc: bool = True) -> Type:
    return Type(kind=ValueKind.TIMESTAMP, unit=unit, is_utc=is_utc)


def decimal(precision: int, scale: int) -> Type:
    return Type(kind=ValueKind.DECIMAL, precision=precision, scale=scale)


def fixed(size: int) -> Type:
    return Type(kind=ValueKind.FIXED, size=size)


def struct(*fields: TypeField | tuple[str, Type], name: str = "") -> Type:
    made = tuple(one if isinstance(one, TypeField) else TypeField(*one) for one in fields)
    return Type(kind=ValueKind.STRUCT, fields=made, name=name)


def listed(item: Type) -> Type:
    return Type(kind=ValueKind.LIST, fields=(TypeField("item", item),))


def mapped(value: Type) -> Type:
    return Type(kind=ValueKind.MAP, fields=(TypeField("key", TEXT), TypeField("value", value)))


def nullable(one: Type) -> Type:
    return Type.from_json(json.dumps({**json.loads(one.to_json()), "is_nullable": True}))


def merged(*schemas: Any) -> Type:
    """Of records with a field of each schema, the type of the field; every schema must compile against it."""
    records = [avro(record("R", ("f", one))) for one in schemas]
    whole = merge_types([type_of(one) for one in records])
    for one in records:
        compile_schema(one, ColumnLayout.of(whole))
    return whole.fields[0].type


def test_one_type_is_its_own_union_and_none_is_an_error() -> None:
    assert merge_types([INT]) is INT
    assert merge_types([TEXT, TEXT, TEXT]) == TEXT
    with pytest.raises(OptionError, match="no schema"):
        merge_types([])


def test_two_types_have_the_union_that_holds_the_values_of_both() -> None:
    pairs: list[tuple[Type, Type, Type]] = [  # in either order
        (INT, LONG, LONG), (INT, FLOAT, DOUBLE), (LONG, FLOAT, DOUBLE), (FLOAT, DOUBLE, DOUBLE), (LONG, DOUBLE, DOUBLE),
        (UINT, ULONG, ULONG), (INT, UINT, LONG), (UINT, LONG, LONG), (ULONG, DOUBLE, DOUBLE),
        (TEXT, BYTES, BYTES), (TEXT, JSON_TEXT, JSON_TEXT),
        (NULL, INT, nullable(INT)), (nullable(INT), LONG, nullable(LONG)), (NULL, NULL, NULL),
        (TIME_MS, TIME_US, TIME_US), (timestamp("ms"), timestamp("us"), timestamp("us")),
        (timestamp("us", is_utc=False), timestamp("ns", is_utc=False), timestamp("ns", is_utc=False)),
        (decimal(4, 2), decimal(9, 2), decimal(9, 2)),
        (DATE, TEXT, TEXT), (timestamp("us"), TEXT, TEXT), (ENUM, TEXT, TEXT),
        (listed(INT), listed(nullable(LONG)), listed(nullable(LONG))), (mapped(INT), mapped(DOUBLE), mapped(DOUBLE)),
        (INT, timestamp("ms"), timestamp("ms")),
        (fixed(4), fixed(4), fixed(4)),
    ]  # fmt: skip
    for one, other, union in pairs:
        assert merge_types([one, other]) == union, (one, other)
        assert merge_types([other, one]) == union, (other, one)


def test_of_a_logical_type_and_what_it_is_stored_as_the_newer_one_stays() -> None:
    interval = Type(kind=ValueKind.INTERVAL, name="x.D")
    for logical, stored in [
        (DATE, INT), (TIME_MS, INT), (TIME_US, LONG), (timestamp("ms"), LONG), (decimal(4, 2), BYTES),
        (decimal(4, 2), fixed(4)), (interval, fixed(12)), (UUID, fixed(16)),
    ]:  # fmt: skip
        assert merge_types([stored, logical]) == logical
        assert merge_types([logical, stored]) == stored


def test_types_that_no_column_can_hold_are_refused_with_the_field_and_a_way_out() -> None:
    pairs = [
        (INT, TEXT), (BOOL, INT), (ULONG, LONG), (ULONG, INT), (DATE, timestamp("ms")), (decimal(4, 2), decimal(4, 3)),
        (timestamp("ms"), timestamp("ms", is_utc=False)), (fixed(4), fixed(5)), (fixed(4), BYTES),
        (listed(INT), mapped(INT)),
        (struct(("a", INT)), listed(INT)), (struct(("a", INT)), TEXT), (TIME_MS, DATE), (ENUM, INT), (JSON_TEXT, BYTES),
        (fixed(16), TEXT), (Type(kind=ValueKind.INTERVAL), fixed(11)), (JSON_TEXT, INT),
    ]  # fmt: skip
    for one, other in pairs:
        for older, newer in ((one, other), (other, one)):
            nested = [struct(("a", listed(struct(("b", each))))) for each in (older, newer)]
            with pytest.raises(OptionError) as caught:
                merge_types(nested)
            assert str(caught.value) == (
                f"the schemas do not agree on a type: a.b; found {older}, later {newer}, "
                "expected types that one column can hold. Choose one of the schemas with schema_version="
            )
    with pytest.raises(OptionError, match="the value itself; found string, later int32"):
        merge_types([TEXT, INT])


def test_fields_keep_the_newest_order_with_the_older_ones_behind() -> None:
    oldest = struct(("gone", TEXT), ("a", INT), ("b", INT))
    older = struct(("b", INT), ("lost", BOOL), ("a", INT))
    newest = struct(("b", LONG), ("new", DOUBLE), ("a", INT), name="R")
    assert merge_types([oldest, older, newest]) == struct(
        ("b", LONG),
        ("new", nullable(DOUBLE)),
        ("a", INT),
        ("lost", nullable(BOOL)),
        ("gone", nullable(TEXT)),
        name="R",
    )


def test_a_field_that_a_schema_lacks_is_nullable_unless_it_has_a_default() -> None:
    older = struct(TypeField("old", INT, default="5"), ("x", INT))
    newer = struct(TypeField("new", TEXT, default='"y"'), ("x", INT))
    whole = merge_types([older, newer])
    assert whole == struct(TypeField("new", TEXT, default='"y"'), ("x", INT), TypeField("old", INT, default="5"))
    both = merge_types([struct(TypeField("a", INT, default="1")), struct(TypeField("a", INT, default="2"))])
    assert both.fields[0].default == "2"
    kept = merge_types([struct(TypeField("a", INT, default="1")), struct(("a", INT))])
    assert kept.fields[0].default == "1"


def test_a_default_that_means_something_else_for_the_union_is_dropped() -> None:
    number = merge_types([struct(("a", LONG)), struct(TypeField("a", INT, default="1"))])
    assert number.fields[0] == TypeField("a", LONG, default="1")
    for older, newer, default in [
        (timestamp("us"), timestamp("ms"), "7"),
        (BYTES, TEXT, '"é"'),
        (struct(("x", BYTES)), struct(("x", TEXT)), '{"x":"é"}'),
        (listed(timestamp("us")), listed(timestamp("ms")), "[7]"),
    ]:
        (field,) = merge_types([struct(("a", older)), struct(TypeField("a", newer, default=default))]).fields
        assert field.default is None
        assert field.type.is_nullable


def test_aliases_unify_fields_under_the_newest_name() -> None:
    first, second = struct(("a", INT)), struct(TypeField("b", INT, ("a",)))
    third = struct(TypeField("c", LONG, ("b",)))
    assert merge_types([first, second, third]) == struct(TypeField("c", LONG, ("b", "a")))
    assert merge_types([second, first]) == struct(TypeField("a", INT, ("b",)))
    other = struct(("a", TEXT), TypeField("b", INT, ("a",)))  # names come before aliases
    assert [one.name for one in merge_types([struct(("a", TEXT)), other]).fields] == ["a", "b"]


def test_fields_of_protobuf_are_the_same_by_number_before_name() -> None:
    older = struct(TypeField("total", INT, number=1), TypeField("note", TEXT, number=2))
    newer = struct(TypeField("sum", LONG, number=1), TypeField("total", BOOL, number=3))
    assert merge_types([older, newer]) == struct(
        TypeField("sum", LONG, ("total",), number=1),
        TypeField("total", nullable(BOOL), number=3),
        TypeField("note", nullable(TEXT), number=2),
    )
    moved = merge_types([struct(TypeField("a", INT, number=1)), struct(TypeField("a", INT, number=5))])
    assert moved == struct(TypeField("a", INT, number=5))
    swapped = [
        struct(TypeField("a", INT, number=1), TypeField("b", TEXT, number=2)),
        struct(TypeField("b", INT, number=1)),
    ]
    with pytest.raises(OptionError, match="two fields of the schemas have the same name: b"):
        merge_types(swapped)


def test_enums_have_the_symbols_of_all_the_newest_first() -> None:
    older = Type(kind=ValueKind.ENUM, symbols=("A", "B", "OLD"), default_symbol="A", name="x.E")
    newer = Type(kind=ValueKind.ENUM, symbols=("NEW", "B"), name="y.E")
    union = Type(kind=ValueKind.ENUM, symbols=("NEW", "B", "A", "OLD"), default_symbol="A", name="y.E")
    assert merge_types([older, newer]) == union


def test_a_recursive_type_stays_one() -> None:
    recursive = Type(kind=ValueKind.RECURSIVE, name="R")
    assert merge_types([struct(("a", nullable(recursive))), struct(("a", nullable(recursive)))]) == struct(
        ("a", nullable(recursive))
    )
    assert merge_types([struct(("a", recursive)), struct(("a", struct(("b", INT))))]) == struct(("a", recursive))


def test_unions_of_avro_have_the_branches_of_both() -> None:
    a, b, c = (record(f"x.{name}", (name.lower(), "int")) for name in "ABC")
    made = merged(["null", a, b], [b, c, "string"])
    assert made.is_nullable
    assert [one.name for one in made.fields] == ["B", "C", "string", "A"]
    assert [one.name for one in merged("string", ["int", "string"]).fields] == ["int", "string"]
    assert [one.name for one in merged(["int", "string"], ["null", "bytes", "boolean"]).fields] == [
        "bytes",
        "boolean",
        "int",
    ]
    grown = merged(a, ["null", record("x.A", ("a", "long"), ("more", "int", {"default": 0})), b])
    assert [(one.name, len(one.type.fields)) for one in grown.fields] == [("A", 2), ("B", 1)]
    assert merged(["null", "int"], "long") == nullable(LONG)


def test_a_branch_with_an_alias_is_the_branch_it_names() -> None:
    old, new = record("Old", ("x", "int")), record("New", ("x", "long"), aliases=["Old"])
    made = merged(["null", old, "int"], ["null", new, "string"])
    assert [one.name for one in made.fields] == ["New", "string", "int"]
    assert made.fields[0].aliases == ("Old",)


def test_a_smaller_number_goes_into_the_wider_branch_that_is_there() -> None:
    assert [one.name for one in merged(["int", "string"], ["long", "string"]).fields] == ["long", "string"]
    assert [one.name for one in merged(["long", "string"], ["int", "string"]).fields] == ["int", "string", "long"]
    assert [one.name for one in merged(["long", "string"], ["float", "string"]).fields] == ["float", "string", "long"]


def test_a_type_without_a_name_fits_no_union_of_records() -> None:
    union = type_of(avro(["int", record("A", ("x", "int"))]))
    with pytest.raises(OptionError, match="do not agree on a type"):
        merge_types([struct(("x", INT)), union])


# Versions of one schema


DEFAULT = -7
SIMPLE = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class Versions:
    """Makes schemas, and later versions of them that are compatible most of the time; names are never used twice."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._count = 0

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def fresh(self, depth: int) -> Any:
        random = self.random
        match random.choice(
            ["simple", "simple", "nullable", "enum", *["record", "array", "map", "union"] * (depth > 0)]
        ):
            case "simple":
                return random.choice(SIMPLE)
            case "nullable":
                return ["null", random.choice(SIMPLE[1:])]
            case "enum":
                return {"type": "enum", "name": self._name("E"), "symbols": random.sample("ABCD", 2)}
            case "array":
                return {"type": "array", "items": self.fresh(depth - 1)}
            case "map":
                return {"type": "map", "values": self.fresh(depth - 1)}
            case "union":
                return random.sample([*SIMPLE, record(self._name("U"), ("x", "int"))], 3)
        return record(self._name("R"), *((f"f{at}", self.fresh(depth - 1)) for at in range(random.randint(0, 3))))

    def next(self, schema: Any, depth: int) -> Any:
        random = self.random
        if isinstance(schema, list):
            return random.sample(schema, len(schema))
        if isinstance(schema, str):
            wider = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}
            return random.choice([schema, *wider.get(schema, []), *([["null", schema]] if schema != "null" else [])])
        made = dict(schema)
        match made["type"]:
            case "record":
                made["fields"] = self._fields(schema["fields"], depth)
            case "array":
                made["items"] = self.next(made["items"], depth - 1)
            case "map":
                made["values"] = self.next(made["values"], depth - 1)
            case "enum":
                made["symbols"] = random.sample("ABCDEF", 3)
        return made

    def _fields(self, fields: list[dict[str, Any]], depth: int) -> list[dict[str, Any]]:
        random = self.random
        made = [{**one, "type": self.next(one["type"], depth - 1)} for one in fields if random.random() < 0.8]
        if random.random() < 0.4:
            made.append({"name": self._name("n"), "type": self.fresh(depth - 1)})
        if random.random() < 0.2:
            made.append({"name": self._name("d"), "type": "int", "default": DEFAULT})
        return made


def only_branch(value: Any) -> Any:
    """The value of a union, whichever branch it has."""
    return next((one for one in value.values() if one is not None), None)


def holds(own: Type, value: Any, union: Type, found: Any) -> bool:
    """Whether a value read by the union is what it is by its own schema: numbers wider, text as bytes, fields more."""
    if value is None or found is None:
        return value is found
    if own.is_union or union.is_union:
        if own.is_union:
            (name,) = [name for name, one in value.items() if one is not None] or [""]
            own, value = next((one.type for one in own.fields if one.name == name), own), only_branch(value)
        if union.is_union:
            (name,) = [name for name, one in found.items() if one is not None] or [""]
            union, found = next((one.type for one in union.fields if one.name == name), union), only_branch(found)
        return own.is_union is union.is_union and holds(own, value, union, found)
    match own.kind:
        case ValueKind.STRUCT:
            types = {one.name: one.type for one in union.fields}
            rest = [found[name] for name in types if name not in value]
            return all(one in (None, DEFAULT) for one in rest) and all(
                holds(one.type, value[one.name], types[one.name], found[one.name]) for one in own.fields
            )
        case ValueKind.LIST:
            below = own.fields[0].type, union.fields[0].type
            return len(value) == len(found) and all(
                holds(below[0], one, below[1], other) for one, other in zip(value, found, strict=True)
            )
        case ValueKind.MAP:
            below = own.fields[1].type, union.fields[1].type
            return [key for key, _ in value] == [key for key, _ in found] and all(
                holds(below[0], one, below[1], other) for (_, one), (_, other) in zip(value, found, strict=True)
            )
        case ValueKind.STRING if union.kind is ValueKind.BINARY:
            return bool(value.encode() == found)
    return is_same(value, found) or (isinstance(found, float) and float(value) == found)


@settings(max_examples=tries(300))
@given(st.integers(0, 1 << 40))
def test_every_writers_values_are_the_same_by_the_union_of_all(seed: int) -> None:
    random = Random(seed)
    versions = Versions(random)
    writers = [record("Root", *((f"f{index}", versions.fresh(3)) for index in range(3)))]
    for _ in range(random.randint(1, 4)):
        writers.append(versions.next(writers[-1], 3))
    types = [type_of(avro(one)) for one in writers]
    whole = merge_types(types)
    assert Type.from_json(whole.to_json()) == whole
    assert merge_types([whole, whole]) == merge_types([whole, types[-1], whole]) == whole
    for writer, own in zip(writers, types, strict=True):
        maker = Maker(random)
        maker.names = named_types(writer)
        payloads = [written(writer, maker.value(writer)) for _ in range(3)]
        expected, found = read_as(own, writer, *payloads), read_as(whole, writer, *payloads)
        for one, other in zip(expected, found, strict=True):
            assert holds(own, one, whole, other), (writer, one, other)
