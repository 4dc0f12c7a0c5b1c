from __future__ import annotations

import json
import tracemalloc
from typing import Any

import fastavro
import fastavro.schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import OptionError
from segreader.typed.formats.avro import canonical_form, compile_schema, fingerprint64, type_of
from segreader.typed.ops import DROPPED, ColumnLayout, Op, OpCode
from segreader.typed.schema import Reference, Schema, SchemaFormat
from segreader.typed.types import Type, TypeField, ValueKind, select


def avro(schema: Any, *references: tuple[str, Schema]) -> Schema:
    text = schema if isinstance(schema, str) and schema[:1] in ('"', "{", "[", " ") else json.dumps(schema)
    return Schema(SchemaFormat.AVRO, text, tuple(Reference(*one) for one in references))


def record(name: str, *fields: Any, **rest: Any) -> dict[str, Any]:
    named = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": named, **rest}


def column(schema: Any) -> Type:
    """The type of a field with this schema."""
    return type_of(avro(record("R", ("f", schema)))).fields[0].type


FINGERPRINTS = {  # of Avro's own share/test/data/schema-tests.txt
    '"null"': 7195948357588979594,
    '{"type":"boolean"}': -6970731678124411036,
    '"int"': 8247732601305521295,
    '{"type":"long"}': -3434872931120570953,
    '"float"': 5583340709985441680,
    '"double"': -8181574048448539266,
    '"bytes"': 5746618253357095269,
    '"string"': -8142146995180207161,
    "[  ]": -1241056759729112623,
    '[ "int"  ]': -5232228896498058493,
    '[ "int" , {"type":"boolean"} ]': 5392556393470105090,
    '{"fields":[], "type":"record", "name":"foo"}': -4824392279771201922,
    '{"fields":[], "type":"record", "name":"foo", "namespace":"x.y"}': 5916914534497305771,
    '{"fields":[], "type":"record", "name":"a.b.foo", "namespace":"x.y"}': -4616218487480524110,
    '{"fields":[], "type":"record", "name":"foo", "doc":"Useful", "aliases":["foo","bar"]}': -4824392279771201922,
    '{"fields":[{"type":{"type":"boolean"}, "name":"f1"}], "type":"record", "name":"foo"}': 7843277075252814651,
    '{"fields":[{"type":"boolean", "aliases":[], "name":"f1", "default":"true"}, {"order":"descending","name":"f2",'
    '"doc":"Hello","type":"int"}], "type":"record", "name":"foo"}': -4860222112080293046,
    '{"type":"enum", "name":"foo", "symbols":["A1"]}': -6342190197741309591,
    '{"namespace":"x.y.z", "type":"enum", "name":"foo", "doc":"foo bar", "symbols":["A1", "A2"]}': -4448647247586288245,
    '{"name":"foo","type":"fixed","size":15}': 1756455273707447556,
    '{"namespace":"x.y.z", "type":"fixed", "name":"foo", "doc":"foo bar", "size":32}': -3064184465700546786,
    '{ "items":{"type":"null"}, "type":"array"}': -589620603366471059,
    '{ "values":"string", "type":"map"}': -8732877298790414990,
    '{"name":"PigValue","type":"record", "fields":[{"name":"value", "type":["null", "int", "long", "PigValue"]}]}': (
        -1759257747318642341
    ),
}


def test_fingerprints_are_those_that_avro_itself_gives() -> None:
    made = {text: int.from_bytes(fingerprint64(avro(text)), "little", signed=True) for text in FINGERPRINTS}
    assert made == FINGERPRINTS


def test_the_canonical_form_has_full_names_and_nothing_that_readers_ignore() -> None:
    inner = {"type": "fixed", "name": "Hash", "size": 16, "logicalType": "uuid"}
    schema = record(
        "Order",
        ("a", {"type": "string", "avro.java.string": "String"}, {"default": "x", "doc": "…"}),
        ("b", ["null", inner], {"default": None}),
        ("c", "Hash"),
        ("d", {"type": "map", "values": {"type": "enum", "name": "y.E", "symbols": ["Ä"], "default": "Ä"}}),
        namespace="shop",
    )
    assert canonical_form(avro(schema)) == (
        '{"name":"shop.Order","type":"record","fields":[{"name":"a","type":"string"},{"name":"b","type":["null",'
        '{"name":"shop.Hash","type":"fixed","size":16}]},{"name":"c","type":"shop.Hash"},{"name":"d","type":'
        '{"type":"map","values":{"name":"y.E","type":"enum","symbols":["Ä"]}}}]}'
    )


def test_a_fingerprint_of_a_schema_with_references_is_that_of_the_whole() -> None:
    inner = record("shop.Item", ("price", "double"))
    apart = avro(record("shop.Order", ("first", "Item"), ("rest", {"type": "array", "items": "shop.Item"})),
                 ("shop.Item", avro(inner)))  # fmt: skip
    whole = avro(record("shop.Order", ("first", inner), ("rest", {"type": "array", "items": "Item"})))
    assert fingerprint64(apart) == fingerprint64(whole)
    assert type_of(apart) == type_of(whole)


_NAMES = st.sampled_from(["a", "b", "x.a", "y.z.b", "Order", "_1"])


@st.composite
def _schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """A schema whose names are not unique, so it may be invalid."""
    kinds = ["primitive", "enum", "fixed", "reference"] + ["record", "array", "map", "union"] * (depth > 0)
    below = _schemas(depth - 1)
    match draw(st.sampled_from(kinds)):
        case "primitive":
            name = draw(st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]))
            return draw(st.sampled_from([name, {"type": name, "doc": "x"}]))
        case "enum":
            return {"type": "enum", "name": draw(_NAMES), "symbols": draw(st.sampled_from([["A"], ["A", "B"], []]))}
        case "fixed":
            return {"type": "fixed", "name": draw(_NAMES), "size": draw(st.integers(0, 20)), "namespace": "n.m"}
        case "reference":
            return draw(_NAMES)
        case "array":
            return {"type": "array", "items": draw(below), "connect.name": "x"}
        case "map":
            return {"type": "map", "values": draw(below)}
        case "union":
            return draw(st.lists(below, max_size=3))
        case _:
            types = draw(st.lists(below, max_size=3))
            fields = [{"name": f"f{index}", "type": one, "order": "ignore"} for index, one in enumerate(types)]
            return {"type": "record", "name": draw(_NAMES), "fields": fields}


@settings(max_examples=tries(300))
@given(_schemas())
def test_schemas_that_fastavro_reads_have_the_fingerprint_it_gives(schema: Any) -> None:
    try:
        form = fastavro.schema.to_parsing_canonical_form(schema)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
        return
    try:
        made = canonical_form(avro(schema))
    except OptionError as error:
        # What the specification forbids, and fastavro does not look for.
        assert "union" in str(error) or "twice" in str(error)
        return
    assert made == form
    assert fingerprint64(avro(schema))[::-1].hex() == _big_endian(form)


def _big_endian(form: str) -> str:
    return bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))[::-1].hex()


def test_each_type_of_avro_is_a_column_of_its_own_kind() -> None:
    kinds = {
        "null": Type(kind=ValueKind.NULL, is_nullable=True),
        "boolean": Type(kind=ValueKind.BOOL),
        "int": Type(kind=ValueKind.INT32),
        "long": Type(kind=ValueKind.INT64),
        "float": Type(kind=ValueKind.FLOAT),
        "double": Type(kind=ValueKind.DOUBLE),
        "bytes": Type(kind=ValueKind.BINARY),
        "string": Type(kind=ValueKind.STRING),
    }
    assert {name: type_of(avro(name)) for name in kinds} == kinds
    assert {name: type_of(avro({"type": {"type": name}})) for name in kinds} == kinds
    assert column({"type": "fixed", "name": "x.F", "size": 3}) == Type(kind=ValueKind.FIXED, size=3, name="x.F")
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B"}
    assert column(enum) == Type(kind=ValueKind.ENUM, symbols=("A", "B"), default_symbol="B", name="E")
    item, text = TypeField("item", Type(kind=ValueKind.INT32)), TypeField("key", Type(kind=ValueKind.STRING))
    assert column({"type": "array", "items": "int"}) == Type(kind=ValueKind.LIST, fields=(item,))
    value = TypeField("value", Type(kind=ValueKind.INT32))
    assert column({"type": "map", "values": "int"}) == Type(kind=ValueKind.MAP, fields=(text, value))
    error = {**record("x.Failed", ("f", "int", {"aliases": ["g"]})), "type": "error"}
    field = TypeField("f", Type(kind=ValueKind.INT32), ("g",))
    assert type_of(avro(error)) == Type(kind=ValueKind.STRUCT, fields=(field,), name="x.Failed")


def test_logical_types_are_columns_of_their_meaning() -> None:
    utc, local = {"kind": ValueKind.TIMESTAMP, "is_utc": True}, {"kind": ValueKind.TIMESTAMP}
    made: list[tuple[str, str, dict[str, Any]]] = [
        ("int", "date", {"kind": ValueKind.DATE}),
        ("int", "time-millis", {"kind": ValueKind.TIME_MS}),
        ("long", "time-micros", {"kind": ValueKind.TIME_US}),
        ("long", "timestamp-millis", {**utc, "unit": "ms"}),
        ("long", "timestamp-micros", {**utc, "unit": "us"}),
        ("long", "timestamp-nanos", {**utc, "unit": "ns"}),
        ("long", "local-timestamp-millis", {**local, "unit": "ms"}),
        ("long", "local-timestamp-micros", {**local, "unit": "us"}),
        ("long", "local-timestamp-nanos", {**local, "unit": "ns"}),
        ("string", "uuid", {"kind": ValueKind.STRING}),
    ]
    for name, logical, type_ in made:
        assert column({"type": name, "logicalType": logical}) == Type(**type_), logical
    fixed: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
        (16, {"logicalType": "uuid"}, {"kind": ValueKind.STRING}),
        (12, {"logicalType": "duration"}, {"kind": ValueKind.INTERVAL}),
        (9, {"logicalType": "decimal", "precision": 20, "scale": 3}, {"precision": 20, "scale": 3}),
    ]
    for size, rest, type_ in fixed:
        expected = Type(**{"kind": ValueKind.DECIMAL, "name": "F", **type_})
        assert column({"type": "fixed", "name": "F", "size": size, **rest}) == expected, rest
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 76}
    assert column(decimal) == Type(kind=ValueKind.DECIMAL, precision=76)


def test_logical_types_that_are_invalid_or_unknown_count_as_none() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal"}
    four: dict[str, Any] = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal"}
    wrong: list[tuple[Any, ValueKind]] = [
        (decimal, ValueKind.BINARY),
        ({**decimal, "precision": 0}, ValueKind.BINARY),
        ({**decimal, "precision": 77}, ValueKind.BINARY),  # no column holds it
        ({**decimal, "precision": "4"}, ValueKind.BINARY),
        ({**decimal, "precision": True}, ValueKind.BINARY),
        ({**decimal, "precision": 4, "scale": 5}, ValueKind.BINARY),
        ({**decimal, "precision": 4, "scale": -1}, ValueKind.BINARY),
        ({**decimal, "type": "string", "precision": 4}, ValueKind.STRING),
        ({**four, "precision": 10}, ValueKind.FIXED),
        ({**four, "size": 0, "precision": 1}, ValueKind.FIXED),
        ({**four, "logicalType": "uuid"}, ValueKind.FIXED),
        ({**four, "logicalType": "duration"}, ValueKind.FIXED),
        ({"type": "int", "logicalType": "timestamp-millis"}, ValueKind.INT32),
        ({"type": "long", "logicalType": "date"}, ValueKind.INT64),
        ({"type": "long", "logicalType": "Timestamp-Millis"}, ValueKind.INT64),
        ({"type": "bytes", "logicalType": "big-decimal"}, ValueKind.BINARY),
        ({"type": "string", "logicalType": ["uuid"]}, ValueKind.STRING),
        ({"type": "string", "logicalType": "iso-country"}, ValueKind.STRING),
    ]
    assert [(schema, column(schema).kind) for schema, _ in wrong] == wrong
    assert column({**four, "precision": 9}).kind is ValueKind.DECIMAL
    misplaced = record("R", ("f", "long", {"logicalType": "timestamp-millis"}))
    assert type_of(avro(misplaced)).fields[0].type.kind is ValueKind.INT64


def test_a_union_with_null_is_nullable_and_one_of_several_has_a_field_for_each() -> None:
    assert column(["null", "int"]) == column(["int", "null"]) == Type(kind=ValueKind.INT32, is_nullable=True)
    assert column(["int"]) == Type(kind=ValueKind.INT32)
    assert column(["null"]) == column([]) == Type(kind=ValueKind.NULL, is_nullable=True)
    several = column(
        [
            "int",
            "null",
            {"type": "array", "items": "int"},
            {"type": "bytes", "logicalType": "decimal", "precision": 3},
            record("x.A", aliases=["Z", "q.Y"]),
            {"type": "fixed", "name": "x.F", "size": 2},
        ]
    )
    assert (several.kind, several.is_union, several.is_nullable) == (ValueKind.STRUCT, True, True)
    assert [(one.name, one.type.kind.value, one.aliases) for one in several.fields] == [
        ("int", "int32", ()),
        ("array", "list", ()),
        ("bytes", "decimal", ()),
        ("A", "struct", ("x.A", "x.Z", "q.Y")),
        ("F", "fixed_size_binary", ("x.F",)),
    ]
    assert all(one.type.is_nullable for one in several.fields)
    assert not column(["int", "string"]).is_nullable


def test_branches_of_a_union_have_full_names_only_where_short_ones_clash() -> None:
    union = column([record("x.A"), record("y.A"), record("z.B"), "string"])
    assert [one.name for one in union.fields] == ["x.A", "y.A", "B", "string"]
    assert [one.aliases for one in union.fields] == [(), (), ("z.B",), ()]


def test_names_are_found_in_the_namespace_around_them() -> None:
    schema = record(
        "a.full.Name",
        ("one", {"type": "enum", "name": "Understanding", "symbols": ["d"]}),
        ("two", record("Inner", ("x", "Understanding"), ("y", "Outer"), namespace="")),
        ("three", {"type": "fixed", "name": "Fixed", "namespace": "explicit", "size": 1}),
        ("four", "explicit.Fixed"),
        ("five", {"type": "a.full.Understanding"}),
        namespace="ignored",
    )
    outer = avro(record("Outer", ("z", "int")))
    refused = avro(schema, ("Outer", outer))
    with pytest.raises(OptionError, match=r'a\.full\.Name\.two\.x: .*found "Understanding"'):
        type_of(refused)  # its namespace is that of Inner, which has none
    schema["fields"][1]["type"]["fields"][0]["type"] = "a.full.Understanding"
    made = type_of(avro(schema, ("Outer", outer)))
    assert [one.type.name for one in made.fields] == [
        "a.full.Understanding",
        "Inner",
        "explicit.Fixed",
        "explicit.Fixed",
        "a.full.Understanding",
    ]
    assert [one.type.name for one in made.fields[1].type.fields] == ["a.full.Understanding", "Outer"]


def test_several_schemas_may_name_the_same_one() -> None:
    base = avro({"type": "enum", "name": "E", "symbols": ["A"]})
    left = avro(record("L", ("e", "E")), ("E", base))
    right = avro(record("M", ("e", "E")), ("E", base))
    whole = type_of(avro(record("R", ("l", "L"), ("m", "M"), ("e", "E")), ("L", left), ("M", right)))
    assert [one.type.name for one in whole.fields] == ["L", "M", "E"]
    assert type_of(avro("M", ("L", left), ("M", right))).name == "M"


def test_a_type_within_itself_is_recursive_where_it_begins_again() -> None:
    lists = record("LongList", ("value", "long"), ("next", ["null", "LongList"], {"default": None}))
    made = type_of(avro(lists))
    assert made.fields[1].type == Type(kind=ValueKind.RECURSIVE, is_nullable=True, name="LongList")
    assert made.fields[1].default == "null"
    tree = record(
        "Tree", ("left", {"type": "map", "values": "Tree"}), ("other", record("Side", ("up", ["int", "Tree"])))
    )
    made = type_of(avro(tree))
    assert made.fields[0].type.fields[1].type.kind is ValueKind.RECURSIVE
    assert made.fields[1].type.fields[0].type.fields[1].type.kind is ValueKind.RECURSIVE
    twice = record("R", ("a", record("I", ("x", "int"))), ("b", "I"))  # the same again is not within itself
    assert type_of(avro(twice)).fields[0].type == type_of(avro(twice)).fields[1].type


def test_a_recursive_column_is_refused_and_named_unless_it_is_left_out() -> None:
    schema = avro(record("LongList", ("value", "long"), ("in", record("I", ("next", ["null", "LongList"])))))
    whole = type_of(schema)
    with pytest.raises(OptionError, match=r"own type.*: in\.next; found LongList\. Leave it out.*columns="):
        compile_schema(schema, ColumnLayout.of(whole))
    root = compile_schema(schema, ColumnLayout.of(select(whole, ("value",))))
    dropped = root.children[1].children[0].children[1]
    assert dropped.column == DROPPED
    assert dropped.children[1].children[0].children[1] is dropped


def test_defaults_are_json_of_what_the_type_holds() -> None:
    inner = record("I", ("a", "int"), ("b", "string", {"default": "x"}), ("c", ["null", "int"], {"default": None}))
    fixed = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    given: list[tuple[Any, Any, str | None]] = [
        ("int", 5, "5"),
        ("double", 5, "5"),
        ("bytes", "\xff", '"\\u00ff"'),
        (inner, {"a": 1}, '{"a":1,"b":"x","c":null}'),
        ({"type": "array", "items": inner}, [{"a": 1, "b": "y"}], '[{"a":1,"b":"y","c":null}]'),
        ({"type": "map", "values": ["null", "int"]}, {"k": None, "l": 3}, '{"k":null,"l":3}'),
        (["null", "int"], None, "null"),
        (["int", "null"], 7, "7"),
        (["int", "null"], None, "null"),  # since 1.12 it need not be the first branch
        (["string", "int"], 7, '{"int":7}'),
        (["null", "string", "int"], "x", '{"string":"x"}'),
        (fixed, "\x00" * 15 + "\xff", '"00000000-0000-0000-0000-0000000000ff"'),
    ]
    for schema, default, expected in given:
        made = type_of(avro(record("R", ("f", schema, {"default": default}))))
        assert made.fields[0].default == expected, (schema, default)
    assert type_of(avro(record("R", ("f", "int")))).fields[0].default is None


def test_a_default_that_does_not_fit_counts_as_none() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2}
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    empty = record("I", ("a", "int"))
    endless = record("A", ("f", "R", {"default": {}}))
    wrong: list[tuple[Any, Any]] = [
        ("int", "5"), ("int", 1 << 31), ("int", 1.0), ("int", True), ("int", None), ("long", 1 << 63), ("boolean", 0),
        ("double", "NaN"), ("double", 10**400), ("string", 5), ("bytes", "€"), ("null", 0), (fixed, "a"),
        (fixed, "abc"), (enum, "B"), (enum, 0), (empty, {}), (empty, []), ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "map", "values": "int"}, []), (["null", "int"], "null"), ("string", "\ud800"), (endless, {}),
    ]  # fmt: skip
    for schema, default in wrong:
        made = type_of(avro(record("R", ("f", schema, {"default": default}))))
        assert made.fields[0].default is None, (schema, default)


INVALID: dict[str, Any] = {
    "the root: a type that is not defined before": "Order",
    'the root: not a type; found 5': 5,
    'the root: the object has no "type"': {"name": "R"},
    'the root: not a type; found 7': {"type": 7},
    "the root: the record has no name": {"type": "record", "fields": []},
    "the root: the record has no name; found \"\\.\"": {"type": "record", "name": ".", "fields": []},
    'R: "fields" is not an array': {"type": "record", "name": "R"},
    "R: field 1 is not an object": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, 5]},
    "R: field 0 has no name": {"type": "record", "name": "R", "fields": [{"type": "int"}]},
    'x.R.a: no "type"': {"type": "record", "name": "x.R", "fields": [{"name": "a"}]},
    "R: two fields have the same name; found \"a\"": record("R", ("a", "int"), ("a", "int")),
    "R.a: aliases that are not a list": record("R", ("a", "int", {"aliases": "b"})),
    "R: aliases that are not a list": record("R", aliases=[1]),
    "R.a.b[]: a type that is not defined": record("R", ("a", record("I", ("b", {"type": "array", "items": "X"})))),
    "R.a{}: a type that is not defined": record("R", ("a", {"type": "map", "values": "X"})),
    'R.a: no "items"': record("R", ("a", {"type": "array"})),
    'R.a: no "values"': record("R", ("a", {"type": "map"})),
    "R.a: a name is defined twice; found \"R\"": record("R", ("a", record("R"))),
    "R.b: a name is defined twice": record("R", ("a", {"type": "fixed", "name": "F", "size": 1}),
                                          ("b", {"type": "fixed", "name": "F", "size": 1})),
    "R.a: a union has the same type twice; found \"int\"": record("R", ("a", ["int", {"type": "int"}])),
    "R.a: a union has the same type twice; found \"array\"": record(
        "R", ("a", [{"type": "array", "items": "int"}, {"type": "array", "items": "long"}])),
    "R.a: branch 1 of a union is a union": record("R", ("a", ["null", ["int"]])),
    "R.a: a union has two branches with the same name": record(
        "R", ("a", [record("map"), {"type": "map", "values": "int"}])),
    "the root: the fixed has the name of a type of Avro": {"type": "fixed", "name": "int", "size": 1},
    "F: the size of a fixed type; found -1": {"type": "fixed", "name": "F", "size": -1},
    "F: the size of a fixed type; found null": {"type": "fixed", "name": "F"},
    "F: the size of a fixed type; found true": {"type": "fixed", "name": "F", "size": True},
    "R.a: a fixed type is too large": record("R", ("a", {"type": "fixed", "name": "F", "size": 1 << 20})),
    'E: "symbols" is not an array': {"type": "enum", "name": "E"},
    "E: a symbol is not text": {"type": "enum", "name": "E", "symbols": ["A", 5]},
    "E: two symbols are the same": {"type": "enum", "name": "E", "symbols": ["A", "A"]},
    "R.a: a type that is not defined before; found \"B\"": record("R", ("a", "B"), ("b", record("B"))),
}  # fmt: skip


def test_an_invalid_schema_is_an_error_that_names_the_place() -> None:
    for message, schema in INVALID.items():
        with pytest.raises(OptionError) as caught:
            type_of(avro(schema))
        assert str(caught.value).startswith("not a valid Avro schema: " + message.replace("\\", "")), message


def test_text_that_is_not_json_is_an_error_with_its_line() -> None:
    with pytest.raises(OptionError, match="not JSON, line 2, column 3"):
        type_of(avro('{"type":\n  nothing}'))
    for text in ("", "{", '{"size": ' + "9" * 5000 + "}"):
        with pytest.raises(OptionError, match="not JSON"):
            fingerprint64(Schema(SchemaFormat.AVRO, text))


def test_names_that_the_specification_forbids_are_read_all_the_same() -> None:
    schema = record("my-company.Order", ("größe", "int"), ("a b", {"type": "enum", "name": "E", "symbols": ["1-2"]}))
    made = type_of(avro(schema))
    assert [one.name for one in made.fields] == ["größe", "a b"]
    assert made.fields[1].type.symbols == ("1-2",)


def test_a_default_is_a_constant_step_and_a_null_one_takes_no_bytes() -> None:
    reader = type_of(
        avro(record("R", ("a", ["null", "int"], {"default": None}), ("b", ["int", "null"], {"default": 5})))
    )
    first, second = compile_schema(avro(record("R")), ColumnLayout.of(reader)).children
    assert first == Op(code=OpCode.SET_NULL, column=1)
    assert (second.code, second.column, second.text) == (OpCode.CONSTANT, 2, b"\x02\x0a")


def test_a_schema_of_a_thousand_fields_is_read() -> None:
    wide = avro(record("R", *((f"f{index}", ["null", "int", "string"]) for index in range(1000))))
    made = type_of(wide)
    assert len(made.fields) == 1000
    assert len(compile_schema(wide, ColumnLayout.of(made)).children) == 1000


def test_a_schema_of_ninety_levels_is_read() -> None:
    schema: Any = "int"
    for level in range(90):
        schema = record(f"R{level}", ("f", ["null", schema] if level else schema))
    made = type_of(avro(schema))
    depth, one = 0, made
    while one.fields:
        depth, one = depth + 1, one.fields[0].type
    assert depth == 90
    assert _depth(compile_schema(avro(schema), ColumnLayout.of(made))) == 90 + 89 + 1
    assert len(fingerprint64(avro(schema))) == 8


def _depth(op: Op) -> int:
    return 1 + max(map(_depth, op.children), default=0)


def _chain(levels: int) -> tuple[tuple[str, Schema], ...]:
    """Records that name each other, none within another."""
    schemas = [avro(record("R0", ("f", "int")))]
    for level in range(1, levels):
        schemas.append(avro(record(f"R{level}", ("f", f"R{level - 1}"))))
    return tuple((f"R{level}", one) for level, one in enumerate(schemas))


def _doubling(levels: int) -> Any:
    """Records with 2 ** levels columns."""
    first = record("R0", ("a", "int", {"default": 0}), ("b", "int", {"default": 0}))
    empty: dict[str, Any] = {"default": {}}
    others = [
        record(f"R{level}", ("a", f"R{level - 1}", empty), ("b", f"R{level - 1}", empty)) for level in range(1, levels)
    ]
    return avro(others[-1], *((one["name"], avro(one)) for one in [first, *others[:-1]]))


def test_hostile_schemas_are_errors_in_bounded_time_and_memory() -> None:
    deep = 100_000
    below = _doubling(15)
    many = {"type": "array", "items": "R14"}
    hostile = [
        avro('{"type":"array","items":' * deep + '"int"' + "}" * deep),
        avro("[" * deep + "]" * deep),
        avro('{"type":' * deep + '"int"' + "}" * deep),
        avro('{"type":' * 150 + '"int"' + "}" * 150),
        avro('{"type":"array","items":' * 101 + '"int"' + "}" * 101),
        avro('"' + "x" * (1 << 24) + '"'),
        avro("R199", *_chain(200)),
        avro("R4999", *_chain(5000)),
        _doubling(60),
        avro(record("R", ("f", many, {"default": [{}] * 100})), ("R14", below)),
    ]
    tracemalloc.start()
    try:
        for schema in hostile:
            with pytest.raises(OptionError):
                type_of(schema)
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


def test_what_is_dropped_is_compiled_once_however_often_it_is_named() -> None:
    schema = _doubling(16)
    narrow = Type(kind=ValueKind.STRUCT, fields=(TypeField("c", Type(kind=ValueKind.NULL, is_nullable=True)),))
    root = compile_schema(schema, ColumnLayout.of(narrow))
    seen: set[int] = set()

    def count(op: Op) -> None:
        if id(op) not in seen:
            seen.add(id(op))
            for child in op.children:
                count(child)

    count(root)
    assert len(seen) < 50
    assert root.children[0] is root.children[1]
    assert root.children[2] == Op(code=OpCode.SET_NULL, column=1)


@settings(max_examples=tries(300))
@given(
    st.recursive(
        st.one_of(
            st.sampled_from(["record", "int", "null", "array", "map", "enum", "fixed", "decimal", "R"]),
            st.integers(-5, 5),
            st.none(),
        ),
        lambda below: (
            st.lists(below, max_size=4)
            | st.dictionaries(
                st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases"]),
                below,
            )
        ),
    )
)
def test_any_json_is_a_schema_or_an_error_of_the_library(document: Any) -> None:
    try:
        schema = avro(document)
        made = type_of(schema)
        if not any(one.type.kind is ValueKind.RECURSIVE for one in ColumnLayout.of(made).columns):
            compile_schema(schema, ColumnLayout.of(made))
        assert Type.from_json(made.to_json()) == made
        assert len(fingerprint64(schema)) == 8
    except OptionError:
        pass
