from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from segreader.errors import OptionError
from segreader.typed.formats.json_schema import compile_schema, type_of
from segreader.typed.ops import ColumnLayout, Op, OpCode, Program
from segreader.typed.reference import execute
from segreader.typed.schema import Reference, Schema, SchemaFormat
from segreader.typed.types import Type, TypeField, ValueKind, select

CONNECT = "org.apache.kafka.connect.data."
TREE = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}


def schema_of(document: Any, **references: Any) -> Schema:
    text = document if isinstance(document, str) else json.dumps(document)
    known = (Reference(name, one if isinstance(one, Schema) else schema_of(one)) for name, one in references.items())
    return Schema(SchemaFormat.JSON, text, tuple(known))


def short(type_: Type) -> str:
    """A type in a line: ``struct<a int64, b string?>``, with ? where it may be null, = before a default."""
    text = "json" if type_.unit == "json" else str(type_)
    if type_.symbols:
        text += f"({' '.join(type_.symbols)})"
    if type_.kind is ValueKind.LIST:
        text += f"<{short(type_.fields[0].type)}>"
    elif type_.kind is ValueKind.MAP:
        text += f"<{short(type_.fields[1].type)}>"
    elif type_.fields:
        text += f"<{', '.join(short_field(one) for one in type_.fields)}>"
    return text + ("?" if type_.is_nullable else "")


def short_field(field: TypeField) -> str:
    default = "" if field.default is None else f"={field.default}"
    return f"{field.name} {short(field.type)}{default}"


def of(document: Any, **references: Any) -> str:
    return short(type_of(schema_of(document, **references)))


def one_property(document: Any, **others: Any) -> Any:
    return {"type": "object", "required": ["a"], "properties": {"a": document}, **others}


def refused(document: Any, **references: Any) -> str:
    with pytest.raises(OptionError) as caught:
        type_of(schema_of(document, **references))
    return str(caught.value)


def steps(writer: Any, reader: Type) -> Op:
    return compile_schema(schema_of(writer), ColumnLayout.of(reader))


def decode(writer: Any, reader: Any, payload: str) -> Any:
    """What a payload of the writer's schema is by the reader's, or the name of what is wrong with it."""
    type_ = reader if isinstance(reader, Type) else type_of(schema_of(reader))
    data = payload.encode()
    done = execute(Program(ColumnLayout.of(type_), (steps(writer, type_),)), data, [0], [len(data)], [0])
    return done.bad[0][1].name if done.bad else done.values[0]


# Types


def test_each_type_of_json_schema_has_its_column() -> None:
    cases: list[tuple[Any, str]] = [
        ({"type": "integer"}, "int64"),
        ({"type": "integer", "minimum": 0, "maximum": 10**30}, "int64"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "bool"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date32"),
        ({"type": "string", "format": "date-time"}, "timestamp[us, UTC]"),
        ({"type": "string", "format": "time"}, "time64[us]"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "integer", "format": "date-time"}, "int64"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "contentEncoding": "quoted-printable"}, "string"),
        ({"type": "string", "enum": ["B", "A", "B"]}, "dictionary(B A)"),
        ({"enum": ["A", None]}, "dictionary(A)?"),
        ({"const": "A"}, "dictionary(A)"),
        ({"enum": [1, 2]}, "int64"),
        ({"enum": [1, 2.5]}, "double"),
        ({"const": True}, "bool"),
        ({"enum": ["A", 1]}, "json"),
        ({"type": "string", "enum": ["A", 1]}, "dictionary(A)"),
        ({"type": "array", "items": {"type": "string"}}, "list<string>"),
        ({"type": "array"}, "list<json?>"),
        ({"type": "array", "items": False}, "list<json?>"),
        ({"items": {"type": "string"}}, "list<string>?"),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, "json"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, "json"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<int64>"),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, "map<int64>"),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "string"}}}, "json"),
        ({"type": "object", "additionalProperties": {}, "connect.type": "map"}, "map<json?>"),
        ({"type": "object", "additionalProperties": True}, "json"),
        ({"type": "object", "additionalProperties": False}, "json"),
        ({"type": "object"}, "json"),
        ({"type": "null"}, "null?"),
        ({}, "json?"),
        (True, "json?"),
        ({"type": ["string", "integer"]}, "json"),
        ({"type": ["object", "null", "array"]}, "json?"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "null"]}, "int64?"),
        ({"type": "integer", "nullable": True}, "int64?"),
    ]
    for document, expected in cases:
        assert of(document) == expected, document


def test_properties_may_be_null_unless_required_and_not_nullable() -> None:
    names = {
        "a": {"type": "integer"},
        "b": {"type": "integer"},
        "c": {"type": ["integer", "null"]},
        "d": {},
        "e": False,
    }
    assert (
        of({"type": "object", "properties": names, "required": ["a", "c", "gone"]})
        == "struct<a int64, b int64?, c int64?, d json?>"
    )
    assert of({"properties": names}) == "struct<a int64?, b int64?, c int64?, d json?>?", "a type is not needed"
    assert of({"required": ["a"], **one_property({"type": "string"}, additionalProperties={"type": "null"})}) == (
        "struct<a string>"
    )


def test_null_in_a_choice_makes_a_column_nullable() -> None:
    text = {"type": "string", "format": "date"}
    for word in ("oneOf", "anyOf"):
        assert of({word: [{"type": "null"}, text]}) == "date32?"
        assert of({word: [text, {"const": None}], "description": "a day"}) == "date32?"
        assert of({word: [{"type": "null"}]}) == "null?"
        assert of({word: [{"type": "null"}, {"type": "integer"}, {"type": "string"}]}) == "json?"
        assert of({word: [text]}) == "date32"
    assert of({"allOf": [{"type": "integer"}], "nullable": True}) == "int64?", "OpenAPI's way to say it of a $ref"


def test_choices_that_are_one_type_keep_it() -> None:
    cases: list[tuple[Any, str]] = [
        ({"oneOf": [{"const": "A", "title": "the first"}, {"const": "B"}]}, "dictionary(A B)"),
        ({"anyOf": [{"enum": ["A"]}, {"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}, "string"),
        ({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "pattern": "x"}]}, "string"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer", "connect.type": "int8"}]}, "int64"),
        ({"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": -1}]}, "int64"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"),
        ({"anyOf": [one_property({"type": "integer"}), one_property({"type": "string"})]}, "json"),
        ({"anyOf": [one_property({"type": "integer"}), {"properties": {"b": {}}}]}, "json?"),
    ]
    for document, expected in cases:
        assert of(document) == expected, document
    names = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    either = {"type": "object", "properties": names, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert of(either) == "struct<a int64?, b int64?>"
    assert of({**either, "required": ["a"]}) == "struct<a int64, b int64?>"


def test_all_of_is_merged() -> None:
    first = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "c": {"type": "number"}}}
    second = {"properties": {"b": {"type": "string"}, "c": {"type": "integer"}, "a": {}}, "required": ["b"]}
    assert of({"allOf": [first, second]}) == "struct<a int64, c int64?, b string>"
    assert of({**first, "allOf": [second]}) == "struct<a int64, c int64?, b string>"
    assert of({"allOf": [{"enum": ["A", "B", "C"]}, {"type": "string", "enum": ["C", "A"]}]}) == "dictionary(A C)"
    assert of({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}) == "string"


def test_hints_of_kafka_connect_are_followed() -> None:
    decimal = {"title": CONNECT + "Decimal", "connect.type": "bytes"}
    cases: list[tuple[Any, str]] = [
        ({"type": "integer", "connect.type": "int8"}, "int32"),
        ({"type": "integer", "connect.type": "int16"}, "int32"),
        ({"type": "integer", "connect.type": "int32"}, "int32"),
        ({"type": "integer", "connect.type": "int64"}, "int64"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "number", "connect.type": "float64"}, "double"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"type": "integer", "connect.type": "int32", "title": CONNECT + "Date"}, "date32"),
        ({"type": "integer", "connect.type": "int32", "title": CONNECT + "Time"}, "time32[ms]"),
        ({"type": "integer", "connect.type": "int64", "title": CONNECT + "Timestamp"}, "timestamp[ms, UTC]"),
        ({"type": "number", **decimal, "connect.parameters": {"scale": "2"}}, "decimal(38, 2)"),
        (
            {"type": "string", **decimal, "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}},
            "decimal(9, 2)",
        ),
        ({"type": "number", **decimal, "connect.parameters": {"scale": "60"}}, "decimal(60, 60)"),
        ({"type": "number", **decimal}, "double"),
        ({"type": "string", **decimal, "connect.parameters": {"scale": "x"}}, "binary"),
        ({"type": "number", "title": "Decimal", "connect.parameters": {"scale": "2"}}, "double"),
        ({"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int16"}], "connect.index": 1}, "int32?"),
    ]
    for document, expected in cases:
        assert of(document) == expected, document
    names = {"z": {"type": "string", "connect.index": 0}, "y": {"type": "string", "connect.index": 2}}
    x = {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1}
    assert of({"properties": {**names, "x": x}, "type": "object"}) == "struct<z string?, x string?, y string?>"
    unordered = {"type": "object", "properties": {**names, "x": {"type": "string"}}}
    assert of(unordered) == "struct<z string?, y string?, x string?>", "an index is missing"


def test_defaults_count_where_a_property_is_required_and_are_values_of_its_type() -> None:
    def default(document: Any) -> str | None:
        (field,) = type_of(schema_of(one_property(document))).fields
        return field.default

    assert default({"type": "integer", "default": 7}) == "7"
    assert default({"type": "integer", "default": 7.5}) is None
    assert default({"type": "integer", "default": 1 << 70}) is None
    assert default({"type": ["integer", "null"], "default": None}) == "null"
    assert default({"type": "integer", "default": None}) is None
    assert default({"enum": ["A"], "default": "A"}) == '"A"'
    assert default({"enum": ["A"], "default": "B"}) is None
    assert default({"type": "string", "default": "\ud800"}) is None
    assert default({"type": "integer", "title": CONNECT + "Date", "default": 19000}) == '"2022-01-08"'
    assert default({"type": "integer", "title": CONNECT + "Date", "default": 10**12}) is None
    assert default({"type": "array", "items": {"type": "integer"}, "default": []}) == "[]"
    assert default({**one_property({"type": "string"}), "default": {"b": 1}}) is None
    assert default({"default": {"b": [1]}}) == '{"b": [1]}'
    optional = {"type": "object", "properties": {"a": {"type": "integer", "default": 7}}}
    assert of(optional) == "struct<a int64?>", "who leaves out an optional property means none"
    names = {"n": {"type": "integer"}, "next": {"$ref": "#/definitions/T"}}
    tree = {"type": "object", "required": ["n"], "properties": names}
    holder = one_property({"$ref": "#/definitions/T", "default": {"n": 1}}, definitions={"T": tree})
    assert of(holder) == 'struct<a struct<n int64, next recursive?>={"n": 1}>'


# References


def test_references_within_a_schema_are_followed() -> None:
    integer = {"type": "integer"}
    cases: list[Any] = [
        {"$ref": "#/$defs/N", "$defs": {"N": integer}},
        {"$ref": "#/definitions/N", "definitions": {"N": {"$ref": "#/definitions/M"}, "M": integer}},
        {"$ref": "#/$defs/a~1b%20~0c", "$defs": {"a/b ~c": integer}},
        {"$ref": "#/$defs/list/1", "$defs": {"list": [True, integer]}},
        {"$ref": "#n", "$defs": {"N": {"$anchor": "n", **integer}}},
        {"$ref": "#n", "definitions": {"N": {"$id": "#n", **integer}}},
        {"$ref": "#n", "definitions": {"N": {"id": "#n", **integer}}},
        {"$id": "http://x.test/a/order.json", "$ref": "n.json", "$defs": {"N": {"$id": "n.json", **integer}}},
        {"$id": "http://x.test/a/order.json", "$ref": "/a/order.json#/$defs/N", "$defs": {"N": integer}},
        {"id": "http://x.test/order.json", "$ref": "#/definitions/N", "definitions": {"N": integer}},
        {"$id": "urn:order", "$ref": "#/$defs/N", "$defs": {"N": integer}},
        {"$id": "urn:order", "$ref": "urn:n", "$defs": {"N": {"$id": "urn:n", **integer}}},
        {"$dynamicRef": "#n", "$defs": {"N": {"$dynamicAnchor": "n", **integer}}},
    ]
    for document in cases:
        assert of(document) == "int64", document
    inner = {"$id": "deep/a.json", "$ref": "#/$defs/N", "$defs": {"N": {"$ref": "b.json"}}}
    nested = {"$id": "http://x.test/", "$ref": "deep/a.json"}
    assert of({**nested, "$defs": {"a": inner, "b": {"$id": "deep/b.json", **integer}}}) == "int64"


def test_what_is_beside_a_ref_counts_since_draft_2019() -> None:
    document = {"$ref": "#/definitions/T", "enum": ["A"], "definitions": {"T": {"type": ["string", "null"]}}}
    assert of(document) == "dictionary(A)"
    for draft, expected in (
        ("http://json-schema.org/draft-04/schema#", "string?"),
        ("http://json-schema.org/draft-06/schema#", "string?"),
        ("http://json-schema.org/draft-07/schema#", "string?"),
        ("https://json-schema.org/draft/2019-09/schema", "dictionary(A)"),
        ("https://json-schema.org/draft/2020-12/schema", "dictionary(A)"),
    ):
        assert of({"$schema": draft, **document}) == expected, draft


def test_references_to_other_schemas_are_followed() -> None:
    customer: dict[str, Any] = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"$ref": "#/definitions/Id"}},
    }
    customer["definitions"] = {"Id": {"type": "integer"}}
    name = "http://x.test/customer.json"
    expected = "struct<a struct<id int64>>"
    for ref in (name, f"{name}#", f"{name}#/properties/whole"):
        held = (
            customer
            if "whole" not in ref
            else {**customer, "properties": {**customer["properties"], "whole": customer}}
        )
        got = of(one_property({"$ref": ref}), **{name: held})
        assert got.startswith("struct<a struct<id int64"), ref
    assert of(one_property({"$ref": "customer.json"}), **{"customer.json": customer}) == expected
    assert (
        of({"$id": "http://x.test/a.json", **one_property({"$ref": "customer.json"})}, **{name: customer}) == expected
    )
    with_id = {"$id": name, **customer}
    assert of(one_property({"$ref": name}), **{"some other name": with_id}) == expected

    identity = schema_of({"type": "string"})
    by_name = schema_of(one_property({"$ref": "id.json"}), **{"id.json": identity})
    assert of(one_property({"$ref": "b.json"}), **{"b.json": by_name}) == "struct<a struct<a string>>"
    flat = {"b.json": schema_of(one_property({"$ref": "id.json"})), "id.json": identity}
    assert of(one_property({"$ref": "b.json"}), **flat) == "struct<a struct<a string>>", "registries may give one list"


def test_schemas_that_refer_to_each_other_end() -> None:
    pair = {"b.json": one_property({"$ref": "c.json"}), "c.json": one_property({"$ref": "b.json"})}
    assert of(one_property({"$ref": "b.json"}), **pair) == "struct<a struct<a struct<a recursive?>>>"
    own = {"b.json": {"type": "object", "properties": {"b": {"$ref": "b.json"}, "c": {"$ref": "#"}}}}
    assert of({"$ref": "b.json"}, **own) == "struct<b recursive?, c recursive?>"


def test_recursive_fields_are_marked_and_refused_only_where_they_are_asked_for() -> None:
    whole = type_of(schema_of(TREE))
    assert short(whole) == "struct<n int64, next recursive?>"
    with pytest.raises(OptionError, match=r"next: a recursive field cannot be a column.*columns="):
        steps(TREE, whole)
    assert decode(TREE, select(whole, ("n",)), '{"n": 1, "next": {"n": 2, "next": null}}') == {"n": 1}

    forest = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}
    assert of(forest) == "list<recursive?>"
    names = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "additionalProperties": {"$ref": "#/$defs/T"}}}}
    assert of(names) == "map<recursive?>"
    choice = {"anyOf": [{"type": "null"}, one_property({"oneOf": [{"type": "null"}, {"$ref": "#"}]})]}
    assert of(choice) == "struct<a recursive?>?"


# What is no schema


def test_what_is_no_json_schema_is_refused_with_the_place() -> None:
    cases: list[tuple[Any, str]] = [
        ("{", "not JSON"),
        ('{"maximum": NaN}', "NaN"),
        ([1], "found array"),
        ("7", "found integer"),
        ({"type": "long"}, 'found "long", expected array, boolean, integer'),
        ({"type": 1}, "no type of JSON Schema"),
        ({"type": "any"}, "no type of JSON Schema"),
        (one_property({"type": "object", "properties": []}), "a: properties is no object; found array"),
        (one_property({"allOf": {}}), "a: allOf is no list; found object"),
        (one_property({"enum": "A"}), "a: enum is no list"),
        (one_property({"$ref": 1}), "a: $ref is no text; found integer"),
        (one_property(one_property("integer")), "a.a: no JSON Schema; found string"),
        (one_property({"type": "array", "items": {"properties": {"b": 1}}}), "a.b: no JSON Schema"),
        (one_property({"$ref": "#/$defs/gone"}), "a: a $ref leads nowhere; found #/$defs/gone"),
        (one_property({"$ref": "#gone"}), "a: a $ref leads nowhere; found #gone"),
        (
            one_property(
                {
                    "$ref": "#/$defs/0/x",
                }
            ),
            "a: a $ref leads nowhere",
        ),
        (one_property({"$ref": "other.json"}), "a: a $ref names a schema that is not there; found other.json"),
        (one_property({"$ref": "http://[x"}), "a: a $ref names a schema that is not there; found http://[x"),
        ({"$ref": "#"}, "a $ref leads to itself"),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}}},
            "itself",
        ),
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "a $ref leads to itself"),
        (False, "no value can be valid"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value can be valid"),
        ({"oneOf": []}, "no value can be valid"),
        (one_property({"type": "string", "enum": [1]}), "a: no value can be valid"),
    ]
    for document, expected in cases:
        assert expected in refused(document), document
    assert "b.json" not in refused(one_property({"$ref": "b.json"}), **{"b.json": "{"}), "it is there, but not JSON"


def test_schemas_that_grow_without_end_are_refused() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(400):
        deep = one_property(deep)
    assert "nested too deeply" in refused(deep)
    assert "not JSON" in refused("[" * 100_000)
    twice = {
        f"D{k}": {"properties": {"a": {"$ref": f"#/$defs/D{k + 1}"}, "b": {"$ref": f"#/$defs/D{k + 1}"}}}
        for k in range(40)
    }
    many = {"$ref": "#/$defs/D0", "$defs": {**twice, "D40": {"type": "integer"}}}
    assert "more than 20,000 schemas" in refused(many)


WORDS = (
    *("type", "properties", "required", "items", "prefixItems", "allOf", "anyOf", "oneOf", "enum", "const", "default"),
    *("$ref", "$id", "id", "$anchor", "$defs", "definitions", "$schema", "additionalProperties", "patternProperties"),
    *(
        "nullable",
        "format",
        "contentEncoding",
        "title",
        "connect.type",
        "connect.index",
        "connect.parameters",
        "a",
        "b",
    ),
)
LEAVES = (
    *(None, True, False, 0, 1.5, "", "a", "b", "#", "#/$defs/a", "#a", "x.json", "http://[x", "(", "\ud800", ["a"]),
    *("object", "array", "string", "integer", "number", "null", "boolean", ["null", "object"], "date", "base64"),
    *(
        "bytes",
        "int32",
        CONNECT + "Decimal",
        CONNECT + "Date",
        {"scale": "2"},
        "http://json-schema.org/draft-07/schema#",
    ),
)


def documents(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(WORDS), below, max_size=5) | st.lists(below, max_size=3)


@settings(max_examples=tries(400))
@given(st.recursive(st.sampled_from(LEAVES), documents, max_leaves=25))
def test_anything_gives_a_type_or_is_refused(document: Any) -> None:
    schema = schema_of(document, **{"x.json": {"$ref": "x.json#/definitions/a", "definitions": {"a": {}}}})
    try:
        type_ = type_of(schema)
    except OptionError:
        return
    assert Type.from_json(type_.to_json()) == type_
    layout = ColumnLayout.of(type_)
    if all(column.type.kind is not ValueKind.RECURSIVE for column in layout.columns):
        compile_schema(schema, layout)


# The writer's schema and the reader's type


def test_steps_read_by_the_readers_type_what_the_writers_schema_admits() -> None:
    reader = one_property({"type": "number"})
    assert decode(one_property({"type": "integer"}), reader, '{"a": 1}') == {"a": 1.0}
    assert decode(one_property({"type": ["integer", "string"]}), reader, '{"a": 1}') == {"a": 1.0}
    assert decode(one_property({"type": ["integer", "string"]}), reader, '{"a": "1"}') == "TYPE"
    assert decode(one_property({}), reader, '{"a": 1.5}') == {"a": 1.5}
    assert decode({}, reader, '{"a": 1.5}') == {"a": 1.5}
    text = one_property({"type": ["string", "integer"]})
    assert decode(one_property({"type": "string"}), text, '{"a": "b"}') == {"a": '"b"'}, "JSON text keeps its quotes"
    plain, listed = one_property({"type": "string"}), one_property({"enum": ["A"]})
    assert decode(plain, listed, '{"a": "A"}') == {"a": "A"}
    assert decode(plain, listed, '{"a": "B"}') == "SYMBOL"
    assert decode(listed, plain, '{"a": "B"}') == {"a": "B"}


def test_fields_that_the_writers_schema_does_not_know_are_read_if_it_is_open() -> None:
    reader = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    older: Any = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert decode(older, reader, '{"a": 1, "b": "x"}') == {"a": 1, "b": "x"}
    assert decode(older, reader, '{"a": 1}') == {"a": 1, "b": None}
    assert decode(older, reader, '{"a": 1, "b": 2}') == "TYPE", "it is something else under that name"
    closed = {**older, "additionalProperties": False}
    assert decode(closed, reader, '{"a": 1, "b": "x"}') == {"a": 1, "b": None}
    assert decode({**older, "properties": {**older["properties"], "b": False}}, reader, '{"b": "x"}') == {
        "a": None,
        "b": None,
    }
    others = {**older, "additionalProperties": {"type": "string", "connect.type": "bytes"}}
    assert decode(others, reader, '{"a": 1, "b": "eA=="}') == {"a": 1, "b": "eA=="}
    patterns = {**closed, "patternProperties": {"^b$": {"type": "string"}, "(?<bad": {}}}
    assert decode(patterns, reader, '{"b": "x"}') == {"a": None, "b": "x"}


def test_missing_members_are_the_default_or_null_or_an_error() -> None:
    writer = {"type": "object", "properties": {"a": {"type": "integer"}}}
    required = one_property({"type": "integer"})
    assert decode(writer, required, "{}") == "MISSING"
    assert decode(required, writer, "{}") == {"a": None}
    assert decode(writer, one_property({"type": "integer", "default": 7}), "{}") == {"a": 7}
    assert decode(writer, one_property({"type": "integer", "default": 7}), '{"a": null}') == "TYPE"
    nested = one_property({**one_property({"type": "string"}), "default": {"a": "x", "b": 1}})
    assert decode({"type": "object"}, nested, "{}") == {"a": {"a": "x"}}
    closed = {"type": "object", "properties": {"b": {}}, "additionalProperties": False}
    assert decode(closed, one_property({"type": "integer", "default": 7}), '{"a": 1}') == {"a": 7}
    with pytest.raises(OptionError, match=r"a: the writer's schema has no such field.*schema_version="):
        decode(closed, required, "{}")


def test_maps_and_lists_are_read_from_what_their_writer_says_of_them() -> None:
    names = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert decode(names, names, '{"x": 1, "y": 2}') == [("x", 1), ("y", 2)]
    assert decode({**names, "properties": {"x": {"type": "integer"}}}, names, '{"x": 1}') == [("x", 1)]
    assert decode({"type": "object", "additionalProperties": False}, names, '{"x": 1}') == [("x", 1)]
    items = {"type": "array", "items": {"type": "integer"}}
    assert decode(items, items, "[1, 2]") == [1, 2]
    assert decode({"type": "array", "items": [{"type": "string"}]}, items, "[1, 2]") == [1, 2]
    assert decode({"type": "array", "items": False}, items, "[]") == []
    assert decode({"type": ["array", "object"]}, items, "{}") == "TYPE"


def test_times_and_bytes_are_read_as_their_writer_writes_them() -> None:
    day, days = {"type": "string", "format": "date"}, {"type": "integer", "title": CONNECT + "Date"}
    assert decode(day, day, '"1970-01-03"') == 2
    assert decode(days, day, "2") == 2
    assert decode(days, days, "2") == 2
    assert decode({"type": "string"}, day, '"1970-01-03"') == 2
    instant, ms = {"type": "string", "format": "date-time"}, {"type": "integer", "title": CONNECT + "Timestamp"}
    assert decode(instant, instant, '"1970-01-01T00:00:01Z"') == 1_000_000
    assert decode(ms, instant, "1") == 1000, "milliseconds in a column of microseconds"
    assert decode(ms, ms, "1") == 1
    time, of_day = {"type": "string", "format": "time"}, {"type": "integer", "title": CONNECT + "Time"}
    assert decode(of_day, time, "1") == 1000
    assert decode(of_day, of_day, "1") == 1
    assert decode({}, of_day, "1") == 1
    assert decode({}, time, '"00:00:01"') == 1_000_000
    for writer, reader in (
        ({"type": "integer"}, day),
        ({"type": "integer"}, instant),
        ({"type": "integer"}, ms),
        (instant, ms),
        (time, of_day),
        ({"type": "string"}, {"type": "string", "contentEncoding": "base64"}),
    ):
        with pytest.raises(OptionError, match="the writer's schema says another type"):
            decode(writer, reader, "1")
    assert decode({}, {"type": "string", "contentEncoding": "base64"}, '"AQ"') == b"\1"


def test_decimals_of_connect_are_read_as_numbers_and_as_bytes() -> None:
    decimal = {"type": "number", "title": CONNECT + "Decimal", "connect.parameters": {"scale": "2"}}
    assert str(decode(decimal, decimal, "12.5")) == "12.50"
    assert str(decode(decimal, decimal, '"BOI="')) == "12.50"
    assert str(decode({}, decimal, '"BOI="')) == "12.50"
    assert str(decode({"type": "number"}, decimal, "12.5")) == "12.50"
    assert decode({"type": "number"}, decimal, '"BOI="') == "TYPE"
    assert decode(decimal, decimal, "0.125") == "RANGE"
    assert decode(decimal, decimal, "true") == "TYPE"


def test_types_that_cannot_meet_are_refused_with_the_field() -> None:
    reader = one_property(one_property({"type": "integer"}))
    cases: list[tuple[Any, str]] = [
        (one_property(one_property({"type": "string", "format": "date"})), "a.a: .*found string .format date.*int64"),
        (one_property({"type": "array"}), "a: .*found array, expected struct"),
        ({"type": "string"}, "^the writer's schema says another type"),
    ]
    for writer, expected in cases:
        with pytest.raises(OptionError, match=expected):
            decode(writer, reader, "{}")
    for kind in (ValueKind.DURATION, ValueKind.FIXED, ValueKind.UINT32):
        with pytest.raises(OptionError, match="which JSON does not have"):
            steps({}, Type(kind=kind, size=1, unit="us"))


def test_a_column_of_nulls_takes_nothing_else() -> None:
    nothing = {"type": "null"}
    assert decode(nothing, nothing, "null") is None
    assert decode({}, nothing, "1") == "TYPE"
    optional = {"type": ["integer", "null"]}
    assert decode(nothing, optional, "null") is None
    assert decode(nothing, optional, "1") == "TYPE"


def test_names_that_need_a_backslash_are_found() -> None:
    names = ['q"t', "b\\s", "n\n", "é", "😀", "", "longer than all of the others"]
    document = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    value = {name: k for k, name in enumerate(names)}
    for is_ascii in (True, False):
        assert decode(document, document, json.dumps(value, ensure_ascii=is_ascii)) == value
    root = steps(document, type_of(schema_of(document)))
    assert [one.flags for one in root.children if one.code is OpCode.JSON_FIELD] == [0, 0, 0, 1, 1, 1, 1]
