from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from servers.schema_registry import SchemaRegistryServer
from typed_orders import HERE, SAVED

from segreader.errors import ObjectNotFoundError, OptionError, SchemaNotFoundError
from segreader.schemas import descriptors, files, load, open_schemas, registry
from segreader.typed.decoding import ANY_ID, Side
from segreader.typed.reader_schema import plan_decoding, type_of
from segreader.typed.schema import Framing, Schema, SchemaFormat, SchemaSet, Version
from segreader.typed.sources import LARGEST_FILE, KnownSchemas, narrowed

ORDER = HERE / "avro" / "order-v1.avsc"
PROTO = HERE / "protobuf" / "v1" / "example" / "orders.proto"


def avro(name: str) -> Schema:
    """Any schema, another one for another name."""
    return Schema(SchemaFormat.AVRO, json.dumps({"type": "record", "name": name, "fields": []}))


# Files


@pytest.mark.parametrize(
    ("path", "format"),
    [
        ("avro/order-v1.avsc", SchemaFormat.AVRO),
        ("json/order-v1.json", SchemaFormat.JSON),
        ("protobuf/v1/example/orders.proto", SchemaFormat.PROTOBUF),
        ("protobuf/orders-v1.desc", SchemaFormat.PROTOBUF),
    ],
)
def test_one_file_is_the_schema_of_values_without_a_frame(path: str, format: SchemaFormat) -> None:
    known = files(HERE / path).learn("orders")
    assert known.bare is not None
    assert known.bare.format is format
    assert (known.framing, known.ids) == (Framing.BARE, ())
    assert {"id", "customer", "items"} <= {one.name for one in type_of(known.bare).fields}


def test_one_file_can_be_the_schema_of_whatever_a_frame_names() -> None:
    known = files(ORDER, framing="confluent").learn(None)
    assert known.framing is Framing.CONFLUENT
    assert [id for id, _ in known.ids] == [ANY_ID]


def test_files_by_their_ids() -> None:
    guid = "E2208427-4903-5A05-8CD7-C4B2A53DF5D4"
    known = files({3: ORDER, "4": HERE / "avro" / "order-v2.avsc", guid: ORDER, "*": ORDER}).learn("orders")
    assert [id for id, _ in known.ids] == ["3", "4", "e220842749035a058cd7c4b2a53df5d4", ANY_ID]
    assert known.schema(3) == known.schema(ANY_ID) != known.schema(4)


def test_a_single_object_is_known_by_the_fingerprint_of_its_schema() -> None:
    ((id, schema),) = files(ORDER, framing="single-object").known.ids
    assert len(bytes.fromhex(id)) == 8
    assert schema.format is SchemaFormat.AVRO


@pytest.mark.parametrize(
    ("given", "framing", "said"),
    [
        ({1: ORDER}, "bare", "name no ids"),
        ({"one": ORDER}, None, "not the id of a schema"),
        ({1: ORDER}, "other", "unknown framing"),
        (HERE / "json" / "order-v1.json", "single-object", "single objects are Avro"),
        (SAVED, None, "saved schemas, not one schema"),
        (HERE / "README.md", None, "does not say what schema"),
    ],
)
def test_files_that_go_with_no_framing_are_refused(given: Any, framing: str | None, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        files(given, framing=framing)


class GivesFive:
    def learn(self, topic: str | None) -> int:
        return 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "value is not a source of schemas; found int, expected a source of segreader.schemas, a URL or a path"),
        (b"x", "value is not a source of schemas; found bytes"),
        (Schema, "value is not a source of schemas; found type"),
        (GivesFive(), "value: its learn.. gives no SchemaSet; found int"),
    ],
)
def test_what_gives_no_schemas_is_refused_when_a_read_is_planned(given: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        plan_decoding(given, Side.VALUE, "orders")


def test_a_schema_takes_its_format_as_text() -> None:
    assert Schema("avro", "{}") == Schema(SchemaFormat.AVRO, "{}")  # type: ignore[arg-type]
    assert Schema("avro", "{}").fingerprint == Schema(SchemaFormat.AVRO, "{}").fingerprint  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("thrift", "{}", "unknown format of a schema; found 'thrift', expected avro, protobuf, json"),
        (None, "{}", "unknown format of a schema; found None"),
        ("avro", b"{}", "a schema must be text; found bytes"),
        ("avro", {}, "a schema must be text; found dict"),
    ],
)
def test_what_is_no_schema_is_refused_when_it_is_made(form: Any, text: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Schema(form, text)


def test_an_avro_schema_may_be_in_a_file_of_json(tmp_path: Path) -> None:
    for number, text in enumerate([ORDER.read_text(), '"string"', '["null", "long"]']):
        (tmp_path / f"{number}.json").write_text(text)
        found = files(tmp_path / f"{number}.json").known.bare
        assert found == Schema(SchemaFormat.AVRO, text)


def test_a_proto_file_comes_with_what_it_imports() -> None:
    of_text, of_descriptors = files(PROTO).known.bare, descriptors(HERE / "protobuf" / "orders-v1.desc").known.bare
    assert of_text is not None
    assert of_descriptors is not None
    assert of_text.references == ()
    assert type_of(of_text) == type_of(of_descriptors)
    assert "street" in {one.name for one in type_of(of_text, "example.Address").fields}


def test_a_message_can_be_named() -> None:
    known = files(PROTO, message="example.Audit").known
    assert known.bare is not None
    assert [one.name for one in type_of(known.bare, known.message).fields] == ["by"]
    assert descriptors(HERE / "protobuf" / "orders-v1.desc", message="example.Audit").known.message == known.message


def test_an_import_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3";\n// import "c.proto";\nimport "b.proto";\nmessage A {}\n')
    with pytest.raises(OptionError, match=r"a file that is imported is not there; found b\.proto") as caught:
        files(tmp_path / "a.proto")
    assert "--include_imports" in str(caught.value)
    (tmp_path / "b.proto").write_text('syntax = "proto3"; message B {}')
    assert files(tmp_path / "a.proto").known.bare is not None


def test_files_that_import_each_other_are_refused(tmp_path: Path) -> None:
    for name, other in ("ab", "ba"):
        (tmp_path / f"{name}.proto").write_text(f'syntax = "proto3";\nimport "{other}.proto";\n')
    with pytest.raises(OptionError, match="in a circle"):
        files(tmp_path / "a.proto")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b"[" * 100_000])
def test_a_file_that_is_no_schema_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.avsc").write_bytes(data)
    with pytest.raises(OptionError, match=r"broken\.avsc"):
        files(tmp_path / "broken.avsc")


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for read in (files, load, descriptors, open_schemas):
        with pytest.raises(ObjectNotFoundError, match=r"none\.json"):
            read(tmp_path / "none.json")
    with pytest.raises(OptionError, match="cannot be read"):
        load(tmp_path)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "large.avsc").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(OptionError, match="too large"):
        files(tmp_path / "large.avsc")


# Saved schemas


def test_what_was_saved_is_what_is_loaded() -> None:
    saved = SchemaSet.from_json(SAVED.read_text())
    assert load(SAVED).learn(None) == saved
    assert pickle.loads(pickle.dumps(load(SAVED))) == load(SAVED)


def test_a_topic_gets_its_own_schemas_of_a_file_with_many() -> None:
    saved, known = load(SAVED), load(SAVED).learn("orders-avro")
    assert {name for name, _ in known.subjects} == {"orders-avro-value", "orders-avro-key"}
    assert {id for id, _ in known.ids if id.isdecimal()} == {
        str(one.id) for _, versions in known.subjects for one in versions
    }
    assert len(known.to_json()) < len(saved.learn(None).to_json()) / 2


def test_narrowing_keeps_what_belongs_to_no_other_topic() -> None:
    a, b, c, d = map(avro, "abcd")
    whole = SchemaSet(
        ids=(("1", a), ("2", b), ("3", c), ("4", b), ("aa" * 16, a), ("bb" * 16, b), ("cc" * 16, c), ("*", d)),
        subjects=(("t-value", (Version(1, 1),)), ("u-value", (Version(1, 2), Version(2, 3))), ("other", ())),
    )
    # 4 was asked for by its id alone: its schema stays, with the GUID, though u has it, too.
    assert [id for id, _ in narrowed(whole, "t").ids] == ["1", "4", "aa" * 16, "bb" * 16, "*"]
    assert [id for id, _ in narrowed(whole, "u").ids] == ["2", "3", "4", "bb" * 16, "cc" * 16, "*"]
    assert narrowed(whole, "v") == whole
    of_glue = SchemaSet(
        framing=Framing.GLUE,
        ids=(("aa" * 16, a), ("bb" * 16, b)),
        subjects=(("t", (Version(1, "aa" * 16),)), ("u", (Version(1, "bb" * 16),))),
    )
    assert narrowed(of_glue, "t").ids == of_glue.ids[:1]


def test_a_file_of_something_else_holds_no_saved_schemas(tmp_path: Path) -> None:
    for text in ("{}", "[]", '"a"', "{", '{"kind": "schemas"}', '{"kind": "schemas", "version": 99, "ids": {}}'):
        (tmp_path / "some.json").write_text(text)
        with pytest.raises(OptionError, match=r"some\.json: "):
            load(tmp_path / "some.json")


# What a text names


def test_a_text_names_a_registry_a_file_or_what_was_saved(server: SchemaRegistryServer, tmp_path: Path) -> None:
    asked = open_schemas(server.url).learn("orders-bad")
    assert asked == registry(server.url).learn("orders-bad")
    assert open_schemas(ORDER) == files(ORDER)
    assert open_schemas(str(ORDER), framing="confluent") == files(str(ORDER), framing="confluent")
    assert open_schemas(SAVED) == load(SAVED)
    (tmp_path / "saved").write_text(SAVED.read_text())
    assert open_schemas(tmp_path / "saved").learn(None) == load(SAVED).known


def test_saved_schemas_can_be_read_with_another_framing() -> None:
    found = open_schemas(SAVED, framing="apicurio", message="example.Audit")
    assert isinstance(found, KnownSchemas)
    assert (found.known.framing, found.known.message) == (Framing.APICURIO, "example.Audit")
    assert found.known.ids == load(SAVED).known.ids


def test_a_bucket_has_no_schemas_and_its_name_is_not_shown_whole() -> None:
    with pytest.raises(OptionError, match="registry or a local file; found s3://…"):
        open_schemas("s3://bucket/schemas.json?sig=abc")


def test_secrets_of_a_registry_that_a_text_names_come_from_variables(
    server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.user = ("reader", "pa:ss")
    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_AUTH", "reader:pa:ss")
    source = open_schemas(server.url)
    assert source.learn("orders-bad").ids
    assert b"pa:ss" not in pickle.dumps(source)

    (tmp_path / "secret").write_text("reader:pa:ss\n")
    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_AUTH", f"@{tmp_path / 'secret'}")
    assert open_schemas(server.url).learn("orders-bad").ids

    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_AUTH", "someone:else")
    assert open_schemas(server.url.replace("//", "//reader:pa%3Ass@")).learn("orders-bad").ids

    server.user, server.token = None, "t0ken"
    monkeypatch.delenv("SEGREADER_SCHEMA_REGISTRY_AUTH")
    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_TOKEN", "t0ken")
    assert open_schemas(server.url).learn("orders-bad").ids
    with pytest.raises(SchemaNotFoundError):
        open_schemas(server.url).learn("nothing")


def test_a_variable_of_a_registry_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_USER", "reader")
    with pytest.raises(OptionError, match="unknown variable; found SEGREADER_SCHEMA_REGISTRY_USER"):
        open_schemas("http://127.0.0.1:1")
