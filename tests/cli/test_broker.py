"""Commands about a cluster, and live topics on the command line: a simulated cluster answers in place of brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from corpus import Case, case, normal
from fake_broker import one_broker
from fake_cluster import FakeCluster, of_corpus
from located_store import CANARY, locations
from pages import documented, names

from segreader.broker.messages import OffsetWanted, TopicConfigs
from segreader.cli.main import main
from segreader.errors import AuthorizationError, ConnectionFailedError
from segreader.isolation import IsolationLevel

ONE = case("tv2", "txn-open")
BASE64 = ("--key-encoding", "base64", "--value-encoding", "base64")
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A tiered topic and one that is not."""
    remote = of_corpus(ONE)
    remote.local_start = remote.last_tiered + 1
    plain = of_corpus(case("tv2", "codec-none"))
    plain.segments, plain.local_start, plain.last_tiered = [], plain.log_start, -1
    found = FakeCluster({ONE.topic: {0: remote}, "plain": {0: plain}}, topic_ids={ONE.topic: ONE.topic_id})
    # The importing module first: imported behind the other line it would keep the fake for ever.
    monkeypatch.setattr("segreader.live.scan.KafkaCluster", lambda brokers, options=None: found)
    monkeypatch.setattr("segreader.live.cluster.KafkaCluster", lambda brokers, options=None: found)
    return found


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    def rows(*arguments: object) -> list[dict[str, Any]]:
        assert main([*map(str, arguments)]) == 0
        return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]

    return rows


def broker(verb: str, *arguments: object) -> list[object]:
    return ["broker", verb, "--bootstrap-servers", "b:9092", *arguments]


def test_describe_tells_every_mark_of_tiered_topics(cluster: FakeCluster, run: Run) -> None:
    (row,) = run(*broker("describe"))

    assert set(row) == set(documented("Describe:\n"))
    assert row == {
        "topic": "txn-open",
        "partition": 0,
        "topic_id": ONE.topic_id,
        "leader_id": 1,
        "leader_epoch": 0,
        "remote_storage": True,
        "log_start": 0,
        "local_start": 60,
        "last_tiered": 59,
        "end": 144,
        "last_stable": 60,
    }
    assert cluster.is_closed


def test_describe_shows_topics_that_are_named_and_all_of_them_if_asked(cluster: FakeCluster, run: Run) -> None:
    assert [row["topic"] for row in run(*broker("describe", "--all"))] == ["plain", "txn-open"]
    assert [(row["topic"], row["remote_storage"]) for row in run(*broker("describe", "plain"))] == [("plain", False)]


def test_describe_infers_remote_storage_where_configurations_may_not_be_seen(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "topic_configs", lambda topics, keys: [TopicConfigs(topic, 29) for topic in topics])

    assert {row["topic"]: row["remote_storage"] for row in run(*broker("describe"))} == {
        "plain": None,
        "txn-open": True,
    }


def test_describe_draws_a_table(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*map(str, broker("describe", "-o", "table"))]) == 0
    out = capsys.readouterr().out

    assert "last tiered" in out
    assert "1 (epoch 0)" in out


def test_locate_tells_the_segment_and_the_bytes_from_the_store(cluster: FakeCluster, run: Run) -> None:
    (row,) = run(*broker("locate", ONE.topic, 0, 30, "--location", ONE.root / "remote"))

    assert set(row) == set(documented("Locate:\n"))
    assert row["read_from"] == "store"
    assert row["segment"].endswith(".log")
    assert row["start_position"] < row["stop_position"] <= row["size"]


def test_locate_tells_what_the_cluster_says_without_its_signature(cluster: FakeCluster, run: Run) -> None:
    cluster.locate_one = locations()
    (row,) = run(*broker("locate", ONE.topic, 0, 30))

    assert row["read_from"] == "location"
    assert row["first_offset"] <= 30 <= row["last_offset"]
    assert CANARY not in json.dumps(row)


def test_locate_tells_where_only_the_broker_has_it(cluster: FakeCluster, run: Run) -> None:
    (row,) = run(*broker("locate", ONE.topic, 0, 30))
    assert (row["read_from"], row["segment"]) == ("broker", None)
    assert "no location" in row["note"]

    (local,) = run(*broker("locate", "plain", 0, 30, "--location", ONE.root / "remote"))
    assert (local["read_from"], local["note"]) == ("broker", None)


@pytest.mark.parametrize("offset", [60, 1000])
def test_locate_of_an_offset_that_is_not_there_is_a_usage_error(
    cluster: FakeCluster, offset: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*map(str, broker("locate", ONE.topic, 0, offset))]) == 2
    assert "60" in capsys.readouterr().err


def test_cat_of_a_live_topic_prints_what_a_consumer_is_given(cluster: FakeCluster, run: Run) -> None:
    for arguments in (["kafka://b:9092", ONE.topic], [ONE.root / "remote", ONE.topic, "--bootstrap-servers", "b:9092"]):
        assert [normal(row) for row in run("cat", *arguments, *BASE64)] == ONE.truth("committed")
    assert len(run("cat", "--bootstrap-servers", "b:9092", "--topic", ONE.topic, "--limit", 3)) == 3


def test_a_plan_of_a_live_topic_tells_its_parts(cluster: FakeCluster, run: Run) -> None:
    (plan,) = run("plan", ONE.root / "remote", ONE.topic, "--bootstrap-servers", "b:9092")
    (partition,) = plan["partitions"]

    live = set(documented("Of a live topic each partition has"))
    assert {name.partition(".")[2] for name in names(plan) if name.startswith("partitions[].")} >= live
    assert (partition["start_offset"], partition["seam_offset"], partition["stop_offset"]) == (0, 60, 60)
    assert partition["end_reason"] == "latest-stable"
    assert {part["read_from"] for part in partition["parts"]} == {"store"}


def test_a_plan_of_a_live_topic_draws_its_parts(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["kafka://b:9092", ONE.topic, "--isolation", "read_uncommitted", "-o", "table"]
    assert main(["plan", *arguments]) == 0
    out = capsys.readouterr().out

    assert "broker" in out
    assert "txn-open-0  broker      0   144" in out


def test_offsets_of_a_live_topic_have_the_fields_that_files_give(cluster: FakeCluster, run: Run) -> None:
    (row,) = run("offsets", "kafka://b:9092", ONE.topic, "--timestamp", "2020-01-01T00:00Z", "--timestamp", "now")

    assert set(names(row)) == set(documented("## `segreader offsets`"))
    assert (row["earliest"], row["latest"], row["stable_end"]) == (0, 144, 60)
    assert row["stable_end_reason"] == "open-transaction"
    assert [found["offset"] for found in row["timestamps"]] == [0, None]


def test_statistics_tell_where_records_came_from(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(ONE.root / "remote"), ONE.topic, "--bootstrap-servers", "b:9092", "--stats"]) == 0
    told = dict(line.split() for line in capsys.readouterr().err.splitlines() if len(line.split()) == 2)

    assert int(told["store_records"]) == len(ONE.truth("committed"))
    assert told["broker_records"] == "0"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AuthorizationError("no right to READ topic orders"), 3),
        (ConnectionFailedError("no broker answers", source="b:9092"), 4),
    ],
)
def test_what_a_cluster_refuses_has_its_exit_code(
    cluster: FakeCluster, error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(topics: object) -> None:
        raise error

    monkeypatch.setattr(cluster, "metadata", fail)

    assert main(["cat", "kafka://b:9092", ONE.topic]) == code


def times_of(one: Case) -> list[int]:
    times = sorted({record.timestamp_ms for record in one.truth("uncommitted")})
    return [times[0], times[len(times) // 2], times[-1] + 1]


@pytest.mark.parametrize("name", ["ts-unordered", "ts-append", "txn-span"])
def test_times_are_looked_up_by_the_brokers(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one = case("tv2", name)
    numbers = [int(path.name.rpartition("-")[2]) for path in one.local]
    found = FakeCluster({name: {number: of_corpus(one, number) for number in numbers}})
    monkeypatch.setattr("segreader.live.scan.KafkaCluster", lambda brokers, options=None: found)

    def first(number: int, time_ms: int) -> int:
        (listed,) = found.list_offsets([OffsetWanted(name, number, time_ms)], IsolationLevel.READ_COMMITTED)
        return listed.offset if listed.offset >= 0 else 1 << 40

    for since in times_of(one):
        for until in times_of(one):
            if since <= until:
                rows = run("cat", "kafka://b:9092", name, "--since", since, "--until", until, *BASE64)
                assert [normal(row) for row in rows] == [
                    record
                    for record in one.truth("committed")
                    if first(record.partition, since) <= record.offset < first(record.partition, until)
                ]


def test_an_offset_that_no_leader_knows_in_time_is_reported_by_kafkas_name(capsys: pytest.CaptureFixture[str]) -> None:
    with one_broker() as kafka:
        kafka.brokers[0].handlers["ListOffsets"] = lambda heard: {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": one.partition_index, "error_code": 78} for one in topic.partitions
                    ],
                }
                for topic in heard.message.topics
            ]
        }
        timeout = ("--broker-option", "default.api.timeout.ms=1000")
        assert main(["cat", "--topic", "t", "--bootstrap-servers", kafka.bootstrap, *timeout]) == 4

    assert "t-0: OFFSET_NOT_AVAILABLE (78)" in capsys.readouterr().err
