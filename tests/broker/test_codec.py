"""Requests as they are written, and the tables that messages are encoded and decoded by, against Kafka's schemas."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from codecs_of_others import kafka_python_answer, kafka_python_class, kafka_python_request, kio_answer, kio_request
from frames import body, plain
from random_messages import as_values, includes, random_values

import segreader
from segreader.broker import api as wire
from segreader.broker import protocol
from segreader.broker.codec import Field, StructCodec, encode_request, fields_of, is_flexible, response_header_version
from segreader.broker.messages import FetchPartition, FetchRequest, OffsetWanted
from segreader.broker.primitives import Reader, Writer
from segreader.broker.protocol import ANSWERS, ANSWERS_IN_PARTS, REQUESTS, SUPPORTED, Api
from segreader.errors import OptionError
from segreader.isolation import IsolationLevel

PACKAGE = Path(segreader.__file__).parent
SECRET = "canary-5ecret"
NAMES: dict[str, Any] = {"correlation_id": 1, "client_id": "segreader"}


def run(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for what is imported once."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
    )


def test_the_password_is_in_no_log_though_everything_is_at_debug() -> None:
    done = run(
        f"""
        import logging, sys
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
        from segreader.broker import api as wire
        frame = wire.encode_sasl_authenticate(2, b"\\0alice\\0{SECRET}", correlation_id=1, client_id="segreader")
        assert b"{SECRET}" in frame
        wire.decode_sasl_authenticate(2, b"\\0\\0\\0\\1\\0" + b"\\0\\0\\0" + b"\\x0e{SECRET}" + bytes(9))
        logging.getLogger("segreader").info("but this is shown")
        """
    )

    assert done.returncode == 0, done.stderr
    assert "but this is shown" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_a_step_of_an_authentication_is_not_shown() -> None:
    answer = wire.decode_sasl_authenticate(1, b"\0\0\0\1" + b"\0\0" + b"\xff\xff" + b"\0\0\0\2hi" + bytes(8))

    assert (answer.data, answer.error_message, answer.session_lifetime_ms) == (b"hi", None, 0)
    assert "hi" not in repr(answer)


def test_brokers_are_read_without_kafka_python() -> None:
    done = run(
        """
        import sys
        sys.modules["kafka"] = None
        from segreader.broker import api, client
        from segreader.gateway import server
        print(api.encode_sasl_handshake(1, "PLAIN", correlation_id=1, client_id="x").hex())
        """
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "00000012" + "0011" + "0001" + "00000001" + "000178" + "0005504c41494e"


def test_no_module_knows_kafka_python() -> None:
    importers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "kafka" for name in names):
                importers.add(path.relative_to(PACKAGE).as_posix())

    assert importers == set()


def test_a_long_client_id_is_written_whole() -> None:
    names: dict[str, Any] = {"correlation_id": 1, "client_id": "x" * 32_767}

    for version in (1, 11):
        frame = wire.encode_list_offsets(
            version, [OffsetWanted("t" * 200, 0, -1)] * 2_000, IsolationLevel.READ_COMMITTED, **names
        )
        assert frame[14 : 14 + 32_767] == b"x" * 32_767
        assert len(body(frame)) > 32_767 + 2_000


@pytest.mark.parametrize("client_id", ["x" * 32_768, "\udcff"])
def test_what_no_field_can_hold_is_an_option_error(client_id: str) -> None:
    with pytest.raises(OptionError, match="cannot be asked by Metadata 12"):
        wire.encode_metadata(12, ["t"], correlation_id=1, client_id=client_id)


def test_an_offset_beyond_64_bits_is_an_option_error() -> None:
    request = FetchRequest((FetchPartition("t", "P2wqEH1LTg6belocji9NYA", 0, 1 << 63),))

    with pytest.raises(OptionError, match="cannot be asked by Fetch 17"):
        wire.encode_fetch(17, request, **NAMES)


def test_a_fetch_by_id_without_an_id_is_refused_before_it_is_sent() -> None:
    request = FetchRequest((FetchPartition("orders", None, 0, 0),))

    assert b"orders" in wire.encode_fetch(12, request, **NAMES)
    with pytest.raises(ValueError, match="Fetch 13 asks by topic id, and that of orders is not given"):
        wire.encode_fetch(13, request, **NAMES)


def test_topics_are_asked_for_by_id_only_where_that_is_known() -> None:
    with pytest.raises(ValueError, match="Metadata 11 does not ask by topic id"):
        wire.encode_metadata(11, topic_ids=["P2wqEH1LTg6belocji9NYA"], **NAMES)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("0.1.0", b"0.1.0"),
        ("0.2.0.dev1+g12ab", b"0.2.0.dev1-g12ab"),
        ("-.x.-", b"x"),
        ("", b"unknown"),
        ("é", b"unknown"),
    ],
)
def test_a_version_is_told_in_characters_that_a_broker_does_not_refuse(given: str, told: bytes) -> None:
    frame = wire.encode_api_versions(3, "segreader", given, **NAMES)

    assert frame.endswith(bytes([len(told) + 1]) + told + b"\0")


def kafka_fields(schema: list[dict[str, Any]], version: int, fields: tuple[Field, ...]) -> list[tuple[Any, ...]]:
    """Kafka's own fields of a version, those tagged ones alone that ``fields`` has, too."""
    tags = {field.tag for field in fields}
    by_tag = {field.tag: field for field in fields}
    by_name = {field.name: field for field in fields if field.is_in(version)}
    found: list[tuple[Any, ...]] = []
    for one in schema:
        if not includes(one["versions"], version) or ("tag" in one and one["tag"] not in tags):
            continue
        name, kind = REAL_NAMES.get((one["name"], one["versions"]), one["name"]), one["type"]
        ours = by_tag[one["tag"]] if "tag" in one else by_name.get(name)
        nested = kafka_fields(one["fields"], version, ours.fields) if ours and "fields" in one else []
        array = "[]" if kind.startswith("[]") else ""
        kind = kind.removeprefix("[]")
        kind = "int32" if kind == "bitfield" else "struct" if "fields" in one else kind
        found.append((name, array + kind, includes(one.get("nullableVersions"), version), one.get("tag"), nested))
    return sorted(found, key=is_tagged)


def our_fields(fields: tuple[Field, ...], version: int) -> list[tuple[Any, ...]]:
    found = [
        (
            field.name,
            ("[]" if field.is_array else "") + field.kind,
            field.nullable[0] <= version <= field.nullable[1],
            field.tag,
            our_fields(field.fields, version),
        )
        for field in fields
        if field.is_in(version)
    ]
    return sorted(found, key=is_tagged)


def is_tagged(found: tuple[Any, ...]) -> bool:
    return found[3] is not None


REAL_NAMES = {
    ("authorized_operations", "8+"): "TopicAuthorizedOperations",
    ("authorized_operations", "8-10"): "ClusterAuthorizedOperations",
    ("authorized_operations", "0+"): "ClusterAuthorizedOperations",
}


def array_of(name: str, *fields: Field) -> Field:
    return replace(fields_of(f"{name} []struct")[0], fields=fields)


RECORDS = {Api.FETCH: fields_of("Records records?"), Api.SHARE_FETCH: fields_of("Records records")}
"""Null is allowed in both; kio does not read it in one."""


def put_together(api: Api, parts: protocol.Parts) -> tuple[Field, ...]:
    partition = (*fields_of(parts.partition), *RECORDS[api], *fields_of(parts.after_records))
    topic = (*fields_of(parts.topic), array_of("Partitions", *partition))
    return (*fields_of(parts.top), array_of("Responses", *topic), *fields_of(parts.end))


IN_PARTS = {api: put_together(api, parts) for api, parts in ANSWERS_IN_PARTS.items()}
SPOKEN = {api: range(one.first, one.last + 1) for api, one in SUPPORTED.items()} | {Api.LIST_OFFSETS: range(1, 12)}
LOOKED_INTO = SPOKEN | {
    Api.PRODUCE: range(10, 14),
    Api.METADATA: range(14),
    Api.FIND_COORDINATOR: range(7),
    Api.DESCRIBE_CLUSTER: range(3),
    Api.SHARE_FETCH: range(1, 3),
    Api.SHARE_ACKNOWLEDGE: range(1, 3),
}
"""Those of a client, and those that a gateway puts its addresses into."""
KIO_ALONE = (Api.SHARE_FETCH, Api.SHARE_ACKNOWLEDGE)
"""kafka-python does not know them."""

TABLES = [
    pytest.param(api, kind, version, id=f"{api.label}{kind}-{version}")
    for kind, tables, versions in (
        ("Request", REQUESTS, SPOKEN),
        ("Response", [*IN_PARTS, *ANSWERS], LOOKED_INTO),
    )
    for api in tables
    for version in versions[api]
]


def table(api: Api, kind: str) -> tuple[Field, ...]:
    if api in IN_PARTS and kind == "Response":
        return IN_PARTS[api]
    return fields_of((REQUESTS if kind == "Request" else ANSWERS)[api])


@pytest.mark.parametrize(("api", "kind", "version"), [one for one in TABLES if one.values[0] not in KIO_ALONE])
def test_a_table_has_the_fields_of_kafkas_own_schema(api: Api, kind: str, version: int) -> None:
    theirs = kafka_python_class(api.label, kind).json

    assert our_fields(table(api, kind), version) == kafka_fields(theirs["fields"], version, table(api, kind))
    assert is_flexible(api, version) == includes(theirs["flexibleVersions"], version)


@pytest.mark.parametrize(("api", "kind", "version"), TABLES)
def test_two_other_codecs_read_the_random_values_that_we_wrote(api: Api, kind: str, version: int) -> None:
    fields, flexible = table(api, kind), is_flexible(api, version)
    codec = StructCodec(fields, version, flexible)
    for seed in range(12):
        values = random_values(fields, version, Random(f"{api} {kind} {version} {seed}"))
        if api is Api.API_VERSIONS and kind == "Response":
            values["error_code"] = 0  # else it has the layout of version 0
        if kind == "Request":
            frame = body(encode_request(api, version, values, **NAMES))
            _, _, theirs = kafka_python_request(api.label, version, frame)
            judges = [theirs, kio_request(api, version, frame)]
        else:
            header = b"\0\0\0\7" + b"\0" * response_header_version(api, version)
            (writer := Writer(flexible=flexible)).raw(header)
            codec.write(writer, values)
            frame = memoryview(bytes(writer.data))
            judges = [kio_answer(api, version, frame)]
            if api not in KIO_ALONE:
                judges.append(kafka_python_answer(api.label, version, frame))
            reader = Reader(frame, flexible=flexible, what="ours", start=len(header))
            assert as_values(fields, version, codec.read(reader)) == values
            reader.finish()
        for judge in judges:
            assert common(plain(judge), plain(values)) == plain(values)


def common(theirs: Any, ours: Any) -> Any:
    """Their values of the fields that we wrote."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        # kafka-python has both of Metadata's under one name, as sets: kio alone judges these.
        return {
            name: common(theirs.get(name, value if name.endswith("authorized_operations") else None), value)
            for name, value in ours.items()
        }
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [common(each, value) for each, value in zip(theirs, ours, strict=True)]
    return theirs


def test_a_line_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match="'Name: string' is no field"):
        fields_of("Name: string")


def test_an_unknown_tag_is_kept_and_written_again() -> None:
    codec = StructCodec(fields_of("Name string\nMore struct tag 3\n  Number int32"), 0, True)
    (writer := Writer(flexible=True)).string("t")
    writer.tags([(3, b"\0\0\0\5" + b"\0"), (9, b"other")])

    read = codec.read(Reader(bytes(writer.data), flexible=True, what="Some 0 answer"))

    assert (read.name, read.more.number, [tag for tag, _ in read.tags]) == ("t", 5, [9])
    again = Writer(flexible=True)
    codec.write(again, {"name": "t", "more": {"number": 5}, "tags": [(9, b"other")]})
    assert again.data == writer.data


def test_null_where_the_schema_has_none_is_not_written() -> None:
    with pytest.raises(ValueError, match="Mechanism must not be null"):
        encode_request(Api.SASL_HANDSHAKE, 1, {"mechanism": None}, **NAMES)
