"""The whole path: what is produced to a broker, and tiered by it, is what is listed, planned and printed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from kafka_kit.clients import Headers, Received, Sent, consume, producer, send
from kafka_kit.cluster import Cluster

from segreader.cli.main import main

pytestmark = pytest.mark.xdist_group("broker")

PARTITIONS = 2
START_MS = 1_700_000_000_000
HEADERS: tuple[Headers, ...] = ((), (("a", b"1"), ("a", None), ("b", b"")))


@pytest.fixture(scope="module")
def topic(kafka: Cluster) -> str:
    """Segments of two partitions, with all of transactions, nulls and headers, all of them uploaded."""
    kafka.create_topic("path", PARTITIONS, segment_bytes=10_000)
    for codec in ("none", "zstd"):
        with producer(kafka.bootstrap, codec=codec, batch_size=2000) as plain:
            send(plain, "path", records(500))
        with producer(kafka.bootstrap, codec=codec, transactional_id=f"path-{codec}") as transactions:
            for is_kept in (True, False, True):
                transactions.begin_transaction()
                send(transactions, "path", records(50))
                transactions.commit_transaction() if is_kept else transactions.abort_transaction()
    kafka.upload("path")
    return "path"


def records(count: int) -> list[Sent]:
    return [
        Sent(
            value=None if number % 7 == 0 else b"value-%d" % number * 5,
            key=None if number % 3 == 0 else b"key-%d" % number,
            partition=number % PARTITIONS,
            timestamp_ms=START_MS + number * 1000,
            headers=HEADERS[number % 5 == 0],
        )
        for number in range(count)
    ]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """The objects that a command prints."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def received(row: dict[str, Any]) -> Received:
    """A line of ``segreader cat`` as a consumer would give it."""
    return Received(
        partition=row["partition"],
        offset=row["offset"],
        key=decoded(row["key"]),
        value=decoded(row["value"]),
        timestamp_ms=row["timestamp"],
        is_log_append_time=row["timestamp_type"] == "LogAppendTime",
        headers=tuple((one["key"], decoded(one["value"])) for one in row["headers"]),
    )


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_cat_prints_what_a_consumer_is_given(
    kafka: Cluster, topic: str, isolation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    encodings = ("--key-encoding", "base64", "--value-encoding", "base64")
    found = run(capsys, "cat", kafka.location, topic, "--isolation", isolation, *encodings, "-o", "ndjson")
    expected = consume(kafka.bootstrap, topic, PARTITIONS, isolation=isolation)

    assert [received(row) for row in found] == expected
    assert len(expected) == 1000 + (200 if isolation == "read_committed" else 300)


def test_ls_and_plan_say_where_the_broker_begins_and_ends(
    kafka: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (listed,) = [row for row in run(capsys, "ls", kafka.location, "-o", "ndjson") if row["topic"] == topic]
    (planned,) = run(capsys, "plan", kafka.location, topic, "-o", "ndjson")
    bounds = {one["partition"]: (one["start_offset"], one["stop_offset"]) for one in planned["partitions"]}

    assert listed["partitions"] == PARTITIONS
    assert listed["segments"] > 2 * PARTITIONS
    assert bounds == {number: (one.earliest, one.latest) for number, one in kafka.offsets(topic).items()}
    assert [(one["end_reason"], one["gaps"]) for one in planned["partitions"]] == [("end-of-data", [])] * PARTITIONS


def test_kafkas_own_tool_says_that_all_is_in_the_remote_tier(kafka: Cluster, topic: str) -> None:
    printed = kafka.tool(
        "org.apache.kafka.tools.GetOffsetShell",
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--time", "latest-tiered"),
    )
    last = {number: one.latest - 1 for number, one in kafka.offsets(topic).items()}

    assert sorted(printed.split()) == [f"{topic}:{number}:{offset}" for number, offset in last.items()]
