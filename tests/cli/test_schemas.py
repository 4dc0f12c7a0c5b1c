from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, leaks
from pages import documented, names
from servers.schema_registry import SchemaRegistryServer, schema_registry
from typed_orders import HERE, REMOTE, SAVED, TOPICS

from segreader.cli.exit_codes import ExitCode
from segreader.cli.main import main
from segreader.schemas import SchemaSet, load, registry
from segreader.testing import ProducerRecord, SegmentBuilder
from segreader.testing.directory import write_local_tiered

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs ``segreader schemas …``: exit code, stdout, stderr."""

    def called(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["schemas", *map(str, arguments)])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return called


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    """A registry with the schemas of the fixtures."""
    with schema_registry() as made:
        yield made


def rows(out: str) -> list[dict[str, Any]]:
    """The objects of ndjson."""
    return [json.loads(line) for line in out.splitlines()]


# pull


def test_what_is_pulled_of_the_topics_is_the_file_of_the_fixtures(
    server: SchemaRegistryServer, run: Run, tmp_path: Path
) -> None:
    topics = ["orders-avro", "orders-headers", "orders-protobuf", "orders-json", "orders-bad"]
    assert set(topics) == set(TOPICS)
    code, out, err = run("pull", server.url, *topics, "-o", tmp_path / "schemas.json")
    assert (code, out) == (ExitCode.OK, "")
    assert err == f"{tmp_path / 'schemas.json'}: 6 subjects, 8 schemas\n"
    assert (tmp_path / "schemas.json").read_text() == SAVED.read_text()


def test_without_a_topic_every_schema_is_pulled_and_printed(server: SchemaRegistryServer, run: Run) -> None:
    code, out, _ = run("pull", server.url)
    assert code == ExitCode.OK
    assert SchemaSet.from_json(out) == registry(server.url).learn(None)


def test_subjects_ids_and_headers_are_what_the_registry_is_asked(server: SchemaRegistryServer, run: Run) -> None:
    options = ["--subject", "address", "--id", "2", "--header", "X-Registry-GroupId=shop", "--framing", "apicurio"]
    code, out, _ = run("pull", server.url, "orders-avro", *options)
    known = SchemaSet.from_json(out)
    assert code == ExitCode.OK
    assert [name for name, _ in known.subjects] == ["address"]
    assert known.schema(2) is not None
    assert known.framing == "apicurio"
    assert {one.headers["x-registry-groupid"] for one in server.requests} == {"shop"}


def test_a_log_directory_and_a_file_are_sources_too(run: Run, tmp_path: Path) -> None:
    of_topic, of_log = (run("pull", HERE / name, "orders-json") for name in ("log", "log/_schemas-0"))
    assert of_topic[:2] == of_log[:2]
    assert {name for name, _ in SchemaSet.from_json(of_topic[1]).subjects} == {"orders-json-value"}
    _, out, _ = run("pull", SAVED, "orders-json")
    assert SchemaSet.from_json(out) == load(SAVED).learn("orders-json")
    shutil.copytree(HERE / "log" / "_schemas-0", tmp_path / "renamed-0")
    assert run("pull", tmp_path, "orders-json", "--schemas-topic", "renamed")[:2] == of_topic[:2]


def test_the_user_of_a_registry_comes_from_a_variable_and_is_in_no_file(
    server: SchemaRegistryServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.user = ("reader", CANARIES["password"])
    code, _, err = run("pull", server.url, "orders-avro")
    assert code == ExitCode.NOT_FOUND
    assert "SEGREADER_SCHEMA_REGISTRY_AUTH" in err
    monkeypatch.setenv("SEGREADER_SCHEMA_REGISTRY_AUTH", f"reader:{CANARIES['password']}")
    code, out, err = run("pull", server.url, "orders-avro")
    assert code == ExitCode.OK
    monkeypatch.delenv("SEGREADER_SCHEMA_REGISTRY_AUTH")
    place = server.url.replace("//", f"//reader:{CANARIES['password']}@")
    again = run("pull", place, "orders-avro")
    gone = run("pull", place, "nothing", "--debug")
    assert (again[0], gone[0]) == (ExitCode.OK, ExitCode.NOT_FOUND)
    assert leaks(out + err + again[1] + again[2] + gone[2]) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pull", "http://127.0.0.1:1?token=abc"), ExitCode.USAGE, "has no query"),
        (("pull", str(HERE / "log"), "--id", "1"), ExitCode.USAGE, "--id and --header are of registries"),
        (("pull", "glue:shop", "orders", "--framing", "confluent"), ExitCode.USAGE, "leave --framing out"),
        (("pull", str(HERE / "nothing"), "orders"), ExitCode.NOT_FOUND, ""),
        (("pull", str(HERE / "log"), "payments"), ExitCode.NOT_FOUND, "none of payments-value, payments-key"),
        (("pull", str(HERE / "README.md")), ExitCode.USAGE, "does not say what schema"),
        (("ls", str(REMOTE)), ExitCode.USAGE, "Name a topic"),
        (("ls", str(REMOTE), "orders-avro", "--schemas", "a", "--schema-registry", "b"), ExitCode.USAGE, "Leave one"),
        (("ls", str(REMOTE), "orders-avro", "--schemas", "nothing.json"), ExitCode.NOT_FOUND, "nothing.json"),
        (("ls", str(REMOTE), "nothing"), ExitCode.NOT_FOUND, "nothing"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: tuple[str, ...], code: ExitCode, said: str, run: Run) -> None:
    left, out, err = run(*arguments)
    assert (left, out) == (code, "")
    assert said in err
    assert "abc" not in err


# ls


def test_the_fields_of_a_row_are_those_that_the_page_documents(run: Run) -> None:
    _, out, _ = run("ls", REMOTE, "orders-avro", "--schemas", SAVED)
    assert {name for row in rows(out) for name in names(row)} == set(documented("## `segreader schemas ls`"))


def test_rows_say_which_schema_records_name_and_where(run: Run) -> None:
    code, out, err = run("ls", REMOTE, "orders-avro", "--schemas", SAVED)
    first, second, third, nulls = rows(out)
    assert (code, err) == (ExitCode.OK, "")
    assert [(one["kind"], one["id"], one["version"], one["records"]) for one in (first, second, third, nulls)] == [
        ("schema", "3", 1, 38),
        ("schema", "4", 2, 38),
        ("schema", "5", 3, 37),
        ("null", None, None, 7),
    ]
    assert first["changes"] is None
    assert {
        "change": "added",
        "field": "currency",
        "before": None,
        "after": "string",
        "text": "+ currency: string",
    } in second["changes"]
    assert (third["partitions"][0]["first_offset"], third["partitions"][0]["last_offset"]) == (40, 58)


def test_the_table_shows_changes_beside_the_ids(run: Run) -> None:
    code, out, _ = run("ls", REMOTE, "orders-json", "--schemas", SAVED, "-o", "table")
    assert code == ExitCode.OK
    assert "orders-json-value v2" in out
    assert "- note: string or null" in out
    assert "(null)" in out


def test_a_table_names_the_first_partitions_of_many(tmp_path: Path, run: Run) -> None:
    for partition in range(6):
        segment = SegmentBuilder().batch([ProducerRecord(value=b"\0\0\0\0\1")])
        write_local_tiered(tmp_path, "t", [segment], partition=partition)
    _, out, _ = run("ls", tmp_path, "t", "-o", "table")
    assert "3: 0 to 0" in out
    assert "and 2 more" in out


def test_values_of_no_known_schema_are_findings(server: SchemaRegistryServer, run: Run) -> None:
    code, out, _ = run("ls", REMOTE, "orders-bad")
    assert code == ExitCode.FINDINGS
    assert {one["kind"] for one in rows(out)} == {"schema", "unframed"}
    assert run("ls", REMOTE, "orders-headers")[0] == ExitCode.OK
    assert run("ls", REMOTE, "orders-headers", "--schema-registry", server.url)[0] == ExitCode.OK
    server.versions = []
    assert run("ls", REMOTE, "orders-headers", "--schema-registry", server.url)[0] == ExitCode.FINDINGS


def test_keys_have_schemas_of_their_own(run: Run) -> None:
    code, out, _ = run("ls", REMOTE, "orders-avro/1", "--keys", "--schemas", SAVED)
    (row,) = rows(out)
    assert (code, row["subject"], row["records"]) == (ExitCode.OK, "orders-avro-key", 60)


def test_a_part_of_the_topic_is_looked_at_on_request(run: Run) -> None:
    _, out, _ = run("ls", REMOTE, "orders-avro", "--since", "2026-06-01T00:00Z", "--schemas", SAVED)
    assert [one["id"] for one in rows(out)] == ["5", None]
    _, out, err = run("ls", REMOTE, "orders-protobuf", "--schemas", SAVED, "--message", "example.Audit")
    assert ([one["changes"] for one in rows(out)], err) == ([None, [], None], "")
    _, _, err = run("ls", REMOTE, "orders-avro", "--schemas", SAVED, "--message", "example.Audit")
    assert err == "note: --message has no effect: no schema that is known of these values is Protobuf\n"
