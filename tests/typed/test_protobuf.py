from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from segreader.errors import OptionError
from segreader.typed.formats import protobuf
from segreader.typed.formats.protobuf import compile_schema, described, message_names, type_of
from segreader.typed.ops import DROPPED, PROTO_GROUP, PROTO_PACKABLE, PROTO_REPEATED, ColumnLayout, Op, OpCode
from segreader.typed.schema import Reference, Schema, SchemaFormat
from segreader.typed.types import Type, TypeField, ValueKind, select

PROTO2, PROTO3, EDITION = 'syntax = "proto2"; ', 'syntax = "proto3"; ', 'edition = "2023"; '


def proto(text: str, **references: str | Schema) -> Schema:
    """A schema of this text; the names of references have __ for what names of arguments cannot have."""
    return Schema(
        SchemaFormat.PROTOBUF,
        text,
        tuple(
            Reference(name.replace("__", "/") + ".proto", proto(one) if isinstance(one, str) else one)
            for name, one in references.items()
        ),
    )


def text_as_descriptors(text: str) -> Schema:
    """The same compiled once, for a test that reads it often."""
    return described(proto(text))


def fields(schema: Schema | Type) -> dict[str, str]:
    """The fields of a type in words: ``?`` where they may be null."""
    type_ = type_of(schema) if isinstance(schema, Schema) else schema
    return {one.name: word(one.type) for one in type_.fields}


def word(type_: Type) -> str:
    below = f"<{', '.join(word(one.type) for one in type_.fields)}>" if type_.fields else ""
    return f"{type_.kind.name.lower()}{below}{'?' if type_.is_nullable else ''}"


def compiled(writer: Schema, reader: Type, *paths: str, message: Any = None) -> Op:
    return compile_schema(writer, ColumnLayout.of(select(reader, paths or ("",))), message)


def steps(op: Op) -> dict[str, Op]:
    return {one.name: one for one in op.children}


SCALARS = {
    **{one: one for one in ("double", "float", "int32", "int64", "uint32", "uint64", "bool", "string")},
    "sint32": "int32",
    "sint64": "int64",
    "fixed32": "uint32",
    "fixed64": "uint64",
    "sfixed32": "int32",
    "sfixed64": "int64",
    "bytes": "binary",
}


# Types


def test_scalars_have_the_kinds_of_their_values() -> None:
    lines = " ".join(f"{one} f_{one} = {k};" for k, one in enumerate(SCALARS, 1))

    assert list(fields(proto(f"{PROTO3} message M {{ {lines} }}")).values()) == [*SCALARS.values()]


def test_a_field_may_be_null_where_protobuf_tells_whether_it_is_there() -> None:
    lines = "int32 a = 1; optional int32 b = 2; oneof c { int32 d = 3; M e = 4; } N f = 5; repeated int32 g = 6;"
    found = fields(proto(f"{PROTO3} message M {{ {lines} }} message N {{ string x = 1; }}"))
    old = fields(
        proto(f"{PROTO2} message M {{ optional int32 a = 1; required int32 b = 2; repeated N c = 3; }} message N {{}}")
    )

    assert found == {
        "a": "int32",
        "b": "int32?",
        "d": "int32?",
        "e": "recursive?",
        "f": "struct<string>?",
        "g": "list<int32>",
    }
    assert old == {"a": "int32?", "b": "int32?", "c": "list<struct>"}


def test_features_of_an_edition_say_what_syntax_said() -> None:
    schema = text_as_descriptors(
        f"{EDITION} option features.field_presence = IMPLICIT;"
        "message M { int32 a = 1; int32 b = 2 [features.field_presence = EXPLICIT];"
        " E c = 3 [features.field_presence = EXPLICIT];"
        " N n = 4 [features.message_encoding = DELIMITED]; repeated int32 r = 5; O o = 6; }"
        "message N {} message O { enum F { option features.enum_type = CLOSED; V = 1; }"
        " F f = 1 [features.field_presence = EXPLICIT]; }"
        "enum E { option features.enum_type = CLOSED; X = 1; }"
    )
    type_ = type_of(schema)
    tree = compiled(schema, type_)
    one = steps(tree)

    assert fields(type_) == {
        "a": "int32",
        "b": "int32?",
        "c": "enum?",
        "n": "struct?",
        "r": "list<int32>",
        "o": "struct<enum?>?",
    }
    assert one["n"].flags == PROTO_GROUP
    assert one["c"].children[0].a == steps(one["o"].children[0])["f"].children[0].a == 1


def test_an_enum_has_the_first_name_of_each_number_and_knows_whether_it_is_closed() -> None:
    body = "{ option allow_alias = true; A = 0; B = 5; C = 5; D = -1; }"
    for syntax, is_closed in ((PROTO2, 1), (PROTO3, 0)):
        label = "optional " if syntax is PROTO2 else ""
        schema = text_as_descriptors(f"{syntax} message M {{ {label}E e = 1; enum E {body} }}")
        type_ = type_of(schema)
        step = compiled(schema, type_).children[0].children[0]

        assert type_.fields[0].type.symbols == ("A", "B", "D")
        assert (step.code, step.a, step.table) == (OpCode.PROTO_ENUM, is_closed, (-1, 2, 0, 0, 5, 1))


def test_maps_groups_and_extensions_are_read_as_what_they_are() -> None:
    schema = text_as_descriptors(
        f"{PROTO2} message M {{ map<string, N> m = 1; map<int32, E> e = 2;"
        " optional group G = 3 { optional int32 x = 1; }"
        " repeated group H = 4 { optional int32 y = 1; } extensions 100 to 199; }"
        " message N { optional int32 z = 1; } enum E { A = 0; } extend M { optional int32 ext = 100; }"
    )
    tree = steps(compiled(schema, type_of(schema)))

    assert fields(schema) == {
        "m": "map<string, struct<int32?>>",
        "e": "map<int32, enum>",
        "g": "struct<int32?>?",
        "h": "list<struct<int32?>>",
    }
    assert tree["g"].flags == PROTO_GROUP
    assert tree["h"].flags == PROTO_GROUP | PROTO_REPEATED
    assert tree["m"].children[0].code is OpCode.PROTO_MAP_ENTRY


def test_well_known_types_have_columns_of_their_own() -> None:
    names = ["Timestamp", "Duration", "Int32Value", "StringValue", "BytesValue", "Struct", "Value", "ListValue"]
    names += ["Any", "Empty", "FieldMask"]
    imports = "".join(
        f'import "google/protobuf/{one}.proto"; '
        for one in ("timestamp", "duration", "wrappers", "struct", "any", "empty", "field_mask")
    )
    lines = "".join(f"google.protobuf.{one} f{k} = {k + 1};" for k, one in enumerate(names))
    schema = proto(f"{PROTO3} {imports} message M {{ {lines} repeated google.protobuf.BoolValue r = 99; }}")
    found = [one.type for one in type_of(schema).fields]

    assert [str(one) for one in found[:2]] == ["timestamp[us, UTC]", "duration[us]"]
    assert [word(one) for one in found[2:5]] == ["int32?", "string?", "binary?"]
    assert [(one.kind, one.unit) for one in found[5:8]] == [(ValueKind.STRING, "json")] * 3
    assert [word(one) for one in found[8:]] == [
        "struct<string, binary>?",
        "struct?",
        "struct<list<string>>?",
        "list<bool>",
    ]


def test_files_that_registries_leave_out_are_known() -> None:
    text = (
        f'{PROTO3} import "google/type/money.proto"; import "confluent/meta.proto";'
        ' import "confluent/type/decimal.proto"; message M { option (confluent.message_meta).doc = "x";'
        " google.type.Money m = 1; confluent.type.Decimal d = 2; }"
    )
    imported = descriptor_pb2.FileDescriptorProto(
        name="m.proto", syntax="proto3", dependency=["google/type/money.proto"]
    )
    message = imported.message_type.add(name="M")
    message.field.add(name="m", number=1, label=1, type=11, type_name=".google.type.Money")
    message.field.add(name="d", number=2, label=1, type=11, type_name=".confluent.type.Decimal")
    expected = {"m": "struct<string, int64, int32>?", "d": "struct<binary, uint32, int32>?"}

    assert fields(proto(text)) == expected
    assert fields(proto(base64.b64encode(imported.SerializeToString()).decode())) == expected


def test_a_message_within_itself_is_recursive_and_can_be_left_out() -> None:
    schema = text_as_descriptors(
        f"{PROTO3} message Tree {{ int32 v = 1; repeated Tree kids = 2; map<string, Tree> named = 3; N n = 4; }}"
        " message N { Tree t = 1; N n = 2; string s = 3; }"
    )
    type_ = type_of(schema)

    assert fields(type_) == {
        "v": "int32",
        "kids": "list<recursive>",
        "named": "map<string, recursive>",
        "n": "struct<recursive?, recursive?, string>?",
    }
    assert [one.name for one in compiled(schema, type_, "v", "n.s").children] == ["v", "n"]
    with pytest.raises(OptionError, match=r"a field contains its own type, so it cannot be a column: n\.t") as error:
        compiled(schema, type_, "n")
    assert "columns=" in str(error.value)


def test_types_that_have_no_end_are_refused() -> None:
    doubling = " ".join(f"message M{k} {{ M{k + 1} a = 1; M{k + 1} b = 2; }}" for k in range(40))
    chain = " ".join(f"message M{k} {{ M{k + 1} a = 1; }}" for k in range(3000))

    with pytest.raises(OptionError, match="too many columns"):
        type_of(proto(f"{PROTO3} {doubling} message M40 {{ int32 x = 1; }}"))
    deepest = type_of(proto(f"{PROTO3} {chain} message M3000 {{ int32 x = 1; }}"))
    depth = 0
    while deepest.fields:
        deepest, depth = deepest.fields[0].type, depth + 1
    assert (depth, deepest.kind) == (100, ValueKind.RECURSIVE)


# Messages by name and by index


def test_messages_are_found_by_name_and_by_index() -> None:
    schema = text_as_descriptors(
        f"{PROTO3} package p.q; message A {{ map<string, B> m = 1;"
        " message C { int32 c = 1; message D { int32 d = 1; } } }"
        " message B { message E { int32 e = 1; } message F { int32 f = 1; } }"
    )

    assert message_names(schema) == {
        (0,): "p.q.A",
        (0, 0): "p.q.A.C",  # without the entry of the map
        (0, 0, 0): "p.q.A.C.D",
        (0, 1): "p.q.A.C",
        (0, 1, 0): "p.q.A.C.D",
        (1,): "p.q.B",
        (1, 0): "p.q.B.E",
        (1, 1): "p.q.B.F",
    }
    assert fields(type_of(schema, "p.q.B.F")) == {"f": "int32"}
    assert steps(compiled(schema, type_of(schema, "p.q.B.F"), message=(1, 1))).keys() == {"f"}
    assert steps(compiled(schema, type_of(schema, "p.q.B.F"), message="p.q.B.F")).keys() == {"f"}
    with pytest.raises(OptionError, match="no such message"):
        type_of(schema, "p.q.X")
    with pytest.raises(OptionError, match="no message at this index"):
        compiled(schema, type_of(schema), message=(2,))
    with pytest.raises(OptionError, match=r"another Protobuf message than the reader's schema; found p\.q\.B"):
        compiled(schema, type_of(schema), message=(1,))


def test_an_index_counts_the_entries_of_maps_where_that_gives_a_message() -> None:
    schema = proto(f"{PROTO3} message A {{ map<string, string> m = 1; message C {{}} message D {{}} }}")

    # Python, Go and C# write (0, 1) for C; what Java writes for D is the same
    assert message_names(schema) == {(0,): "A", (0, 0): "A.C", (0, 1): "A.C", (0, 2): "A.D"}


def test_a_file_that_only_passes_on_another_has_its_messages() -> None:
    schema = proto(f'{PROTO3} import public "x.proto";', x=f"{PROTO3} package x; message M {{ int32 a = 1; }}")

    assert message_names(schema) == {(0,): "x.M"}
    assert fields(schema) == {"a": "int32"}
    assert fields(described(schema)) == {"a": "int32"}


# Imports and descriptors


def test_imports_are_found_whatever_they_are_given_as() -> None:
    far = f"{PROTO3} package far; enum E {{ A = 0; B = 1; }}"
    near = (
        f'{PROTO3} package near; import "a/far.proto"; import "google/protobuf/timestamp.proto";'
        " message N { far.E e = 1; google.protobuf.Timestamp t = 2; }"
    )
    text = f'{PROTO3} import "b/near.proto"; message M {{ near.N n = 1; repeated near.N ns = 2; }}'
    expected = {"n": "struct<enum, timestamp?>?", "ns": "list<struct<enum, timestamp?>>"}

    def as_descriptors(schema: Schema, name: str) -> Schema:
        """As Python's client registers it: one file, named as the import."""
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(described(schema).text))
        files.file[-1].name = "named/otherwise.proto"
        return Schema(
            SchemaFormat.PROTOBUF,
            base64.b64encode(files.file[-1].SerializeToString()).decode(),
            schema.references,
        )

    for far_is_text in (True, False):
        for near_is_text in (True, False):
            for is_text in (True, False):
                far_ = proto(far)
                far_ = far_ if far_is_text else as_descriptors(far_, "a/far.proto")
                near_ = proto(near, a__far=far_)
                near_ = near_ if near_is_text else as_descriptors(near_, "b/near.proto")
                whole = proto(text, b__near=near_)
                whole = whole if is_text else as_descriptors(whole, "main.proto")
                assert fields(whole) == expected, (far_is_text, near_is_text, is_text)
                assert fields(described(whole)) == expected


def test_described_schemas_have_all_that_they_need_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = proto(
        f'{PROTO3} import "confluent/meta.proto"; import "used.proto"; import "unused.proto";'
        " message M { option (confluent.message_meta).doc = 'x'; Used u = 1; }",
        used=f"{PROTO3} message Used {{ int32 x = 1; }}",
        unused=f"{PROTO3} message Unused {{ int32 x = 1; }}",
    )
    found = described(schema)
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(found.text)).file
    monkeypatch.setattr(subprocess, "run", None)

    assert found.references == ()
    assert [one.name for one in files] == ["used.proto", "schema.proto"]
    assert described(found) is found
    assert fields(found) == {"u": "struct<int32>?"}


def test_a_set_of_files_and_a_file_alone_give_the_same_type() -> None:
    whole = described(proto(f"{PROTO3} message M {{ int32 a = 1; }}"))
    file = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(whole.text)).file[0].SerializeToString()
    spread = "\n ".join(whole.text[k : k + 7] for k in range(0, len(whole.text), 7))

    assert type_of(whole) == type_of(proto(base64.b64encode(file).decode())) == type_of(proto(spread))


def test_only_text_needs_protoc(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = described(proto(f"{PROTO3} message M {{ int32 a = 1; }}"))
    monkeypatch.setattr(protobuf, "find_spec", lambda _: None)

    assert fields(whole) == {"a": "int32"}
    with pytest.raises(OptionError, match="needs protoc, expected the package grpcio-tools") as error:
        type_of(proto(f"{PROTO3} message M {{ int32 a = 1; }}"))
    assert "pip install 'grpcio-tools" in str(error.value)


def test_relative_names_of_types_are_those_of_the_nearest_scope() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    outer = file.message_type.add(name="M")
    outer.field.add(name="a", number=1, label=1, type_name="N")  # neither resolved nor typed, as in files by hand
    outer.field.add(name="b", number=2, label=1, type_name="p.O")
    outer.nested_type.add(name="N").field.add(name="x", number=1, label=1, type=5)
    file.message_type.add(name="N")
    file.enum_type.add(name="O").value.add(name="A", number=0)
    schema = proto(base64.b64encode(file.SerializeToString()).decode())

    assert fields(schema) == {"a": "struct<int32>", "b": "enum"}
    assert steps(compiled(schema, type_of(schema)))["a"].children[0].code is OpCode.PROTO_MESSAGE


# Errors


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{PROTO3} message M {{ int32 x = ; }}", "line 1, column 43: Expected field number"),
        (f"{PROTO3}\nmessage M {{ Foo x = 1; }}", 'line 2, column 13: "Foo" is not defined'),
        (f'{PROTO3} import "a/b.proto"; message M {{}}', "a/b.proto: File not found"),
        ("message M { int32 x = 1; }", 'line 1, column 13: Expected "required", "optional", or "repeated"'),
        (f"{PROTO3} enum E {{ A = 0; }}", "the file has no message"),
        ("", "the file has no message"),
        ("not a schema", "line 1, column 1: Expected top-level statement"),
        ("AAAA", "neither the text of a .proto file nor descriptors in base64"),
        (f"{PROTO3} import 'schema.proto'; message M {{}}", "line 1, column 21: File recursively imports itself"),
        ("message M {" * 1000 + "}" * 1000, "Reached maximum recursion limit for nested messages"),
        (f'{PROTO3} import "../../../etc/passwd"; message M {{}}', 'Import "../../../etc/passwd" was not found'),
        (f'{PROTO3} import "/etc/passwd"; message M {{}}', 'Import "/etc/passwd" was not found'),
        (f"{PROTO3} message M {{ string \0 = 1; }}", "Invalid control characters"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_place(text: str, what: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match="not a valid Protobuf schema") as error:
        type_of(proto(text))

    assert what in str(error.value)
    assert "/tmp" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_warnings_of_protoc_are_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    schema = proto('import "google/protobuf/any.proto"; message M { optional int32 a = 1; }')  # no syntax, not used

    assert fields(schema) == {"a": "int32?"}
    assert capfd.readouterr() == ("", "")


def test_imports_may_have_any_path_and_be_empty() -> None:
    names = {"schema": f"{PROTO3} message N {{}}", "schema1": "", "x__schema": f"{PROTO3} message O {{}}"}
    imports = "".join(f'import "{one.replace("__", "/")}.proto"; ' for one in names)

    assert fields(proto(f"{PROTO3} {imports} message M {{ N n = 1; O o = 2; }}", **names)) == {
        "n": "struct?",
        "o": "struct?",
    }
    with pytest.raises(OptionError, match="protoc cannot be run"):
        type_of(proto(PROTO3, **{"a": "", "a.proto__b": ""}))


def test_an_error_in_an_import_names_it() -> None:
    with pytest.raises(OptionError, match=r"b/near\.proto, line 1, column \d+: Expected"):
        type_of(proto(f'{PROTO3} import "b/near.proto"; message M {{}}', b__near="message"))


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_imports_stay_where_they_are_put(name: str) -> None:
    reference = Reference(name, proto(f"{PROTO3} message N {{}}"))

    with pytest.raises(OptionError, match="the name of an import"):
        type_of(Schema(SchemaFormat.PROTOBUF, f"{PROTO3} message M {{}}", (reference,)))


def test_protoc_that_dies_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], -11, b"", b"Segmentation fault\n")

    def hang(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        raise subprocess.TimeoutExpired(command, 60)

    for what, message in ((die, "protoc stopped without saying why"), (hang, "protoc takes too long")):
        monkeypatch.setattr(subprocess, "run", what)
        with pytest.raises(OptionError, match=message):
            type_of(proto(f"{PROTO3} message M {{}}"))


def descriptors(**changes: Any) -> Schema:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax=changes.pop("syntax", "proto3"))
    message = file.message_type.add(name="M")
    message.field.add(**{"name": "f", "number": 1, "label": 1, "type": 5} | changes)
    return proto(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"syntax": "proto9"}, "unknown syntax; found proto9"),
        ({"number": 0}, "a field; found f = 0"),
        ({"name": ""}, "a field"),
        ({"oneof_index": 3}, "a field is a member of no oneof; found f"),
        ({"type_name": ".x.Y", "type": 11}, r"f: an unknown type; found x\.Y"),
        ({"type": 11}, "a field has no type: f"),
    ],
)
def test_descriptors_that_cannot_be_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        type_of(descriptors(**changes))


def test_any_bytes_are_descriptors_or_an_error() -> None:
    schema = described(
        proto(
            f"{PROTO2} package p; message M {{ map<string, N> m = 1; optional group G = 3 {{ optional E x = 1; }}"
            " oneof o { int32 a = 8; N b = 9; } message N { repeated sint64 z = 1; } } enum E { A = 0; B = 7; }"
        )
    )
    data = base64.b64decode(schema.text)
    random = Random(5)
    refused = 0
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(changed))
            way = random.randrange(3)
            if way == 0:
                changed[at] = random.randrange(256)
            elif way == 1:
                del changed[at : at + random.randrange(1, 5)]
            else:
                changed[at:at] = random.randbytes(random.randrange(1, 5))
        one = proto(base64.b64encode(changed).decode())
        try:
            type_ = type_of(one)
            message_names(one)
            compiled(one, type_)
        except OptionError:
            refused += 1
    assert 300 < refused < 2999


# Steps for a reader's type


def test_fields_are_matched_by_their_numbers() -> None:
    reader = type_of(
        proto(
            f"{PROTO3} message M {{ int32 now = 1; string gone = 2; int64 added = 3; N n = 4; repeated int32 r = 5; }}"
            " message N { int32 y = 1; }"
        )
    )
    writer = proto(
        f"{PROTO3} message M {{ int32 before = 1; N n = 4; int32 added = 9; bytes other = 7; }}"
        " message N { int32 x = 1; }"
    )
    found = compiled(writer, reader)

    assert [(one.code.name, one.a, one.column) for one in found.children] == [
        ("PROTO_FIELD", 1, 1),
        ("SET_NULL", 0, 2),
        ("PROTO_FIELD", 9, 3),  # another number, but the name that only it has: the types were merged by it
        ("PROTO_FIELD", 4, 4),
        ("SET_NULL", 0, 6),
    ]
    assert found.children[3].children[0].children[0].name == "x"


COMPATIBLE = [
    ("int32", "int64", OpCode.PROTO_INT64),
    ("int64", "int32", OpCode.PROTO_INT32),
    ("uint32", "int64", OpCode.PROTO_INT64),
    ("int32", "bool", OpCode.PROTO_BOOL),
    ("bool", "uint64", OpCode.PROTO_UINT64),
    ("X.E", "int32", OpCode.PROTO_INT32),
    ("sint32", "int64", OpCode.PROTO_SINT64),
    ("int32", "sint32", OpCode.PROTO_INT32),
    ("sint64", "int32", OpCode.PROTO_SINT32),
    ("fixed32", "sfixed32", OpCode.PROTO_SFIXED32),
    ("sfixed32", "int64", OpCode.PROTO_SFIXED32),
    ("fixed32", "uint64", OpCode.PROTO_FIXED32),
    ("sfixed64", "fixed64", OpCode.PROTO_FIXED64),
    ("float", "double", OpCode.PROTO_FLOAT),
    ("string", "bytes", OpCode.PROTO_BYTES),
    ("bytes", "string", OpCode.PROTO_STRING),
    ("X", "Y", OpCode.PROTO_MESSAGE),
    ("optional string", "string", OpCode.PROTO_STRING),
    ("repeated string", "string", OpCode.PROTO_STRING),
    ("Y.F", "X.E", OpCode.PROTO_ENUM),
]
LISTS = [("int32", "repeated int32", 3), ("string", "repeated string", 1), ("repeated X.E", "repeated X.E", 3)]
REFUSED = [
    ("int32", "double"),
    ("sint32", "uint32"),
    ("double", "float"),
    ("fixed64", "uint32"),
    ("string", "int32"),
    ("int32", "X.E"),
    ("X", "bytes"),
    ("string", "X"),
    ("repeated int32", "int32"),
    ("map<string, string>", "repeated X"),
    ("repeated X", "map<string, string>"),
    ("X.E", "string"),
]


def resolved(pairs: Sequence[Sequence[Any]]) -> tuple[Schema, Type]:
    """A writer's schema and a reader's type with a field for each pair of types: ``f0``, ``f1`` and so on."""
    schemas = [
        proto(
            f"{PROTO3} message M {{ {' '.join(f'{one[side]} f{k} = {k + 1};' for k, one in enumerate(pairs))} }}"
            " message X { int32 x = 1; enum E { A = 0; B = 1; } } message Y { int32 x = 1; enum F { C = 0; B = 2; } }"
        )
        for side in (0, 1)
    ]
    return described(schemas[0]), type_of(schemas[1])


def test_compatible_types_are_read_into_the_readers_column() -> None:
    found = compiled(*resolved(COMPATIBLE)).children

    assert [one.children[0].code for one in found] == [code for _, _, code in COMPATIBLE]
    assert not any(one.flags for one in found)
    assert found[-1].children[0].table == (2, 1)  # C is no symbol of the reader's: its number becomes one


def test_a_single_field_becomes_a_list_of_one() -> None:
    found = compiled(*resolved(LISTS)).children

    assert (PROTO_REPEATED, PROTO_PACKABLE) == (1, 2)
    assert [one.flags for one in found] == [flags for _, _, flags in LISTS]


def test_other_types_are_refused_by_the_name_of_the_field() -> None:
    writer, reader = resolved(REFUSED)
    for k in range(len(REFUSED)):
        with pytest.raises(OptionError, match=f"cannot be read as the reader's: f{k}; found") as error:
            compiled(writer, reader, f"f{k}")
        assert "schema_version=" in str(error.value)


def test_only_members_of_a_oneof_that_is_asked_for_are_looked_at() -> None:
    schema = text_as_descriptors(
        f"{PROTO3} message M {{ oneof o {{ int32 a = 1; M m = 2; E e = 3; }} int32 d = 6;"
        " oneof p { int32 b = 4; int32 c = 5; } } enum E { A = 0; }"
    )
    found = compiled(schema, type_of(schema), "a", "d")

    assert [(one.a, one.b, one.column, one.children[0].code.name) for one in found.children] == [
        (1, 0, 1, "PROTO_INT32"),
        (6, -1, 2, "PROTO_INT32"),
        (2, 0, DROPPED, "PROTO_BYTES"),
        (3, 0, DROPPED, "PROTO_ENUM"),
    ]


def test_what_is_absent_is_null_or_the_default_that_protobuf_says() -> None:
    names = ["double", "fixed32", "int64", "string", "bool", "E"]
    lines = "".join(f"{one} f{k} = {k + 1};" for k, one in enumerate(names))
    found = compiled(schema := proto(f"{PROTO3} message M {{ {lines} M m = 9; }} enum E {{ A = 0; }}"),
                     select(type_of(schema), tuple(f"f{k}" for k in range(len(names)))))  # fmt: skip
    old = proto(f"{PROTO2} message M {{ optional int32 a = 1 [default = 7]; required string b = 2; }}")

    assert [one.children[1].text for one in found.children] == [bytes(8), bytes(4), b"\0", b"", b"\0", b"\0"]
    assert [one.children[1].code for one in compiled(old, type_of(old)).children] == [OpCode.SET_NULL] * 2


def test_a_reader_may_name_the_same_message_in_another_package() -> None:
    reader = type_of(proto(f"{PROTO3} package new; message M {{ int32 a = 1; }}"))

    assert compiled(proto(f"{PROTO3} package old; message M {{ int32 a = 1; }}"), reader).children[0].a == 1


def test_a_type_without_numbers_is_matched_by_names() -> None:
    reader = Type(
        kind=ValueKind.STRUCT,
        fields=(TypeField("b", Type(kind=ValueKind.INT32)), TypeField("x", Type(kind=ValueKind.STRING))),
    )
    found = compiled(proto(f"{PROTO3} message M {{ int32 a = 1; int32 b = 2; }}"), reader)

    assert [(one.code.name, one.a) for one in found.children] == [("PROTO_FIELD", 2), ("SET_NULL", 0)]
