"""History from the store and the rest from brokers in one read, against a broker on loopback; no session is needed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from canaries import CANARIES, leaks
from fake_cluster import ServedLog, served
from live_topic import COMMITTED, PRODUCER, TOPIC, segments
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.errors import (
    AuthorizationError,
    BrokerError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    SegmentGapError,
)
from segreader.plan.live import ReadFrom
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.live import plan_live_read
from segreader.spark.option_values import EARLIEST
from segreader.spark.options import parse_options
from segreader.spark.worker import this_worker
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster and what it has uploaded; partition 0 has four segments and partition 1 one that is not uploaded."""

    cluster: ServedCluster
    root: Path

    @property
    def log(self) -> ServedLog:
        return self.cluster.cluster.logs[TOPIC][0]

    def reader(self, columns: tuple[str, ...] = ("partition", "offset"), **options: Any) -> SegmentReader:
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap, "subscribe": TOPIC, "location": str(self.root)}
        given |= options
        if "assign" in options or "subscribePattern" in options:
            del given["subscribe"]
        return SegmentReader(parse_options({name: text for name, text in given.items() if text}), columns)

    def parts(self, **options: Any) -> list[SplitPartition]:
        planned = pickle.loads(pickle.dumps(self.reader(**options).partitions()))
        return [one for one in planned if isinstance(one, SplitPartition)]

    def read(self, **options: Any) -> list[tuple[int, int]]:
        """Partition and offset of all rows, in order."""
        reader = self.reader(**options)
        rows = [
            (row["partition"], row["offset"])
            for one in pickle.loads(pickle.dumps(reader.partitions()))
            for batch in reader.read(one)
            for row in batch.to_pylist()
        ]
        return sorted(rows)

    def offsets(self, **options: str) -> list[int]:
        """The offsets of partition 0."""
        return [offset for partition, offset in self.read(**options) if partition == 0]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    first = tiered_log(tmp_path, TOPIC, segments(), uploaded=2, local_from=1)
    second = ServedLog(served(SegmentBuilder().batch([b"w"] * 5).to_bytes()), [(0, 0)])
    with served_cluster({TOPIC: {0: first, 1: second}}) as cluster:
        yield Place(cluster, tmp_path)
        this_worker().clusters._drop(cluster.bootstrap)


def both(first: object, second: object) -> str:
    return json.dumps({TOPIC: {"0": first, "1": second}})


@pytest.mark.parametrize("location", [None, ""])
@pytest.mark.parametrize("split", ["1m", "200"])
def test_history_and_the_rest_are_read_as_one_log(place: Place, location: str | None, split: str) -> None:
    options = {"splitBytes": split} | ({} if location is None else {"location": location})

    assert place.read(**options) == [(0, offset) for offset in COMMITTED] + [(1, offset) for offset in range(5)]
    assert place.offsets(**options, isolationLevel="read_uncommitted") == [n for n in range(80) if n != 50]


def test_what_is_in_the_store_is_read_there_and_what_is_not_by_the_broker(place: Place) -> None:
    parts = [one.part for one in place.parts() if one.part is not None]
    found = {(one.partition.partition, one.read_from): one.offsets for one in parts}

    assert {key: (one.start, one.stop) for key, one in found.items()} == {
        (0, ReadFrom.STORE): (20, 40),  # the last of its two segments
        (0, ReadFrom.BROKER): (40, 80),
        (1, ReadFrom.BROKER): (0, 5),
    }
    assert sum(one.read_from is ReadFrom.STORE for one in parts) == 2
    assert {one.read_from for part in place.parts(location="") if (one := part.part)} == {ReadFrom.BROKER}


def test_splits_are_cut_by_bytes_in_the_store_and_by_offsets_where_asked_for(place: Place) -> None:
    small = place.parts(splitBytes="200")
    assert len(small) > len(place.parts()) == 4
    for wanted in (3, 7, 20):
        assert len(place.parts(minPartitions=str(wanted))) >= wanted
        assert place.offsets(minPartitions=str(wanted)) == COMMITTED
    pieces = [one.part.offsets for one in place.parts(maxRecordsPerPartition="7") if one.part]
    assert max((one.stop or 0) - one.start for one in pieces) == 7
    assert place.offsets(maxRecordsPerPartition="7") == COMMITTED


def test_starting_offsets_may_name_some_partitions_where_the_others_have_a_default(place: Place) -> None:
    some = json.dumps({TOPIC: {"1": 3}})

    assert place.read(startingOffsets=some, startingOffsetsDefault="earliest") == [
        *((0, offset) for offset in COMMITTED),
        (1, 3),
        (1, 4),
    ]
    with pytest.raises(OptionError, match="startingOffsetsDefault=earliest reads"):
        place.read(startingOffsets=some)


def test_a_job_that_goes_on_passes_over_a_partition_that_brokers_do_not_have(place: Place) -> None:
    options = place.reader().options
    starts = {TOPIC: {1: 3, 7: 3}}
    going_on = replace(options, starting_offsets=starts, starting_offsets_default=EARLIEST, skips_unknown=True)

    assert f"{TOPIC}-7: no segment is left; nothing is read" in plan_live_read(going_on).plan.notes
    with pytest.raises(OptionError, match=f"not read: {TOPIC}-7"):
        plan_live_read(replace(going_on, skips_unknown=False))


def test_a_plan_ends_where_the_log_did_when_it_was_made(place: Place) -> None:
    reader = place.reader()
    planned = reader.partitions()
    more = segments()[-1].roll().batch([b"v"] * 10)
    place.log.batches += served(more.to_bytes())

    assert sum(batch.num_rows for one in planned for batch in reader.read(one)) == len(COMMITTED) + 5
    assert place.offsets() == [*COMMITTED, *range(80, 90)]


def test_an_open_transaction_ends_a_read_that_is_committed_only(place: Place) -> None:
    more = segments()[-1].roll().batch([b"v"] * 5)
    more.batch([b"o"] * 5, producer_id=PRODUCER, transactional=True).batch([b"v"] * 5)
    place.log.batches += served(more.to_bytes())

    assert place.offsets() == [*COMMITTED, *range(80, 85)]
    assert place.offsets(isolationLevel="read_uncommitted")[-15:] == list(range(80, 95))


QUICK: dict[str, Any] = {"kafka.retry.backoff.ms": "1", "kafka.retry.backoff.max.ms": "1"}


def lose_the_first_log(place: Place) -> Path:
    (lost,) = place.root.glob(f"{TOPIC}-0-*/{0:020d}-*.log")
    lost.unlink()
    place.cluster.cluster.lost.add("segment-0")
    return lost


def test_a_lost_object_fails_its_task_by_name_and_no_plan(place: Place) -> None:
    lost = lose_the_first_log(place)
    reader = place.reader(**QUICK)
    first = min(place.parts(**QUICK), key=lambda one: one.part.offsets.start if one.part else 0)
    with pytest.raises(SegmentGapError, match=rf"{lost.stem}.*UNKNOWN_SERVER_ERROR \(-1\)"):
        list(reader.read(first))


def test_a_read_that_may_lose_data_goes_on_behind_a_lost_object(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    lose_the_first_log(place)

    assert place.offsets(**QUICK, failOnDataLoss="false") == [offset for offset in COMMITTED if offset >= 20]
    assert "offsets 0 to 19 are passed over" in caplog.text


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": both(25, -2), "endingOffsets": both(55, 2)}, [25, 26, 27, 28, 29, 51, 52, 53, 54]),
        ({"startingOffsets": both(70, 0), "endingOffsets": both(-1, -1)}, list(range(70, 80))),
        ({"startingOffsets": both(-2, 0), "endingOffsets": both(3, -1)}, [0, 1, 2]),
        ({"startingOffsets": both(80, 5)}, []),
        ({"startingTimestamp": str(T0 + 78), "startingOffsetsByTimestampStrategy": "latest"}, [78, 79]),
        ({"startingOffsetsByTimestamp": both(T0 + 78, T0)}, [78, 79]),
        ({"endingTimestamp": str(T0 + 2)}, [0, 1]),
        ({"endingOffsetsByTimestamp": both(T0 + 2, T0 + 99)}, [0, 1]),
    ],
)
def test_starts_and_ends_mean_what_they_mean_to_the_kafka_source(
    place: Place, options: dict[str, str], wanted: list[int]
) -> None:
    assert place.offsets(**options) == wanted
    assert place.offsets(**options, location="") == wanted


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"startingOffsets": '{"orders":{"0":1}}'}, OptionError, "must name every partition that is read; it lacks"),
        ({"startingOffsets": '{"orders":{"0":1,"1":0,"2":0}}'}, OptionError, "names partitions that are not read"),
        ({"startingOffsets": both(81, 0)}, OffsetOutOfRangeError, "found the log can be read up to 80"),
        (
            {"endingOffsets": both(81, 5)},
            OffsetOutOfRangeError,
            "endingOffsets of orders-0 is beyond the end of the data",
        ),
        ({"startingTimestamp": str(T0 + 99)}, OffsetOutOfRangeError, "nothing in orders-0 is as new"),
        ({"startingOffsetsByTimestamp": both(T0 + 30, T0), "endingOffsets": both(9, 5)}, OptionError, "beyond its end"),
        ({"subscribe": "nobody"}, ObjectNotFoundError, "the cluster has no topic nobody"),
        ({"subscribePattern": "nob.*"}, ObjectNotFoundError, "no topic matches 'nob"),
        ({"assign": '{"orders":[0,7]}'}, ObjectNotFoundError, "partition 7 of orders is not there"),
    ],
)
def test_what_cannot_be_read_is_refused_when_it_is_planned(
    place: Place, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        place.reader(**({"startingOffsetsByTimestampStrategy": "error"} | options)).partitions()


def test_partitions_and_topics_are_chosen_as_without_brokers(place: Place) -> None:
    assert {partition for partition, _ in place.read(assign='{"orders":[1]}')} == {1}
    assert place.offsets(subscribePattern="ord.*") == COMMITTED
    assert place.offsets(assign='{"orders":[0,7]}', failOnDataLoss="false") == COMMITTED


def test_offsets_that_retention_took_are_lost_or_passed_over(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.log.log_start = 25
    with pytest.raises(OffsetOutOfRangeError, match=r"first offsets requested.*failOnDataLoss=false"):
        place.reader(startingOffsets=both(3, 0)).partitions()

    assert place.offsets(startingOffsets=both(3, 0), failOnDataLoss="false") == [o for o in COMMITTED if o >= 25]
    assert "offsets 3 to 24" in caplog.text
    assert place.offsets(endingOffsets=both(99, 5), failOnDataLoss="false")[-1] == 79
    assert "endingOffsets of orders-0 is beyond the end of the data: 99" in caplog.text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_offsets_that_vanish_after_the_plan_are_an_error_of_the_task_or_are_counted(
    place: Place, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader = place.reader(failOnDataLoss=fails, assign='{"orders":[0]}', location="")
    (planned,) = reader.partitions()
    place.log.log_start = place.log.local_start = 60
    if fails == "true":
        with pytest.raises(OffsetOutOfRangeError, match=r"Deleted after the plan was made"):
            list(reader.read(planned))
        return
    rows = [row["offset"] for batch in reader.read(planned) for row in batch.to_pylist()]
    assert rows == list(range(60, 80))
    assert "orders-0: offsets 0 to 59 are passed over" in caplog.text.replace("T", "")


def test_a_segment_that_vanishes_from_the_store_is_had_from_the_broker(place: Place) -> None:
    reader = place.reader()
    planned = reader.partitions()
    for file in place.root.rglob("*.log"):
        file.unlink()

    assert sum(batch.num_rows for one in planned for batch in reader.read(one)) == len(COMMITTED) + 5


def test_a_location_without_uploads_leaves_all_to_the_broker(place: Place, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert place.offsets(location=str(empty)) == COMMITTED


def test_a_worker_keeps_one_client_for_all_its_tasks(place: Place) -> None:
    reader = place.reader(location="", minPartitions="10")
    planned = reader.partitions()
    before = place.cluster.asked("Metadata")
    for one in planned:
        list(reader.read(one))

    assert len(planned) >= 10
    assert place.cluster.asked("Metadata") == before + 1
    assert not this_worker().clusters._kept[place.cluster.bootstrap].users


def test_raw_columns_are_those_of_the_batch_and_no_place_in_a_file_is_told(place: Place) -> None:
    columns = ("offset", "baseOffset", "leaderEpoch", "isTransactional", "position")
    reader = place.reader(columns, rawColumns="true", assign='{"orders":[0]}')
    rows = [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
    found = {row["offset"]: row for row in rows}

    assert {row["position"] for row in rows} == {None}
    assert {row["leaderEpoch"] for row in rows} == {0}
    assert [found[offset]["baseOffset"] for offset in (3, 25, 55, 79)] == [2, 20, 51, 70]


def test_a_part_is_small_and_says_what_it_is(place: Place) -> None:
    for one in place.parts(splitBytes="200"):
        assert len(pickle.dumps(one)) < 2048


def test_a_broker_that_is_not_there_is_told_with_its_address() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TOPIC, "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        SegmentReader(parse_options(given), ("offset",)).partitions()


def test_a_topic_that_may_not_be_read_is_told_with_the_right_that_lacks(place: Place) -> None:
    place.cluster.errors[TOPIC] = 29
    with pytest.raises(AuthorizationError, match=r"orders"):
        place.reader().partitions()


def test_the_source_takes_brokers_without_kafka_python() -> None:
    code = (
        "import sys; sys.modules['kafka'] = None; from segreader.spark.source import parse_options\n"
        "parse_options({'location': '/x', 'subscribe': 't'})\n"
        "parse_options({'kafka.bootstrap.servers': 'b:9092', 'subscribe': 't'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def options_of(**more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "b:9092", "subscribe": TOPIC} | more


SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.username": "reader",
}


def test_secrets_are_looked_up_where_they_are_needed_and_travel_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = CANARIES["secret"]
    monkeypatch.setenv("BROKER_SECRET_SASL_PASSWORD", secret)
    for more in (
        {"kafka.sasl.password": "env:BROKER_SECRET_SASL_PASSWORD"},
        {"brokerCredentials": "env:BROKER_SECRET"},
    ):
        options = parse_options(options_of(**SASL, **more))
        assert options.brokers is not None
        found = options.brokers.resolve()
        assert found["sasl.password"].reveal() == secret  # type: ignore[attr-defined]
        for shown in (repr(options), str(found), pickle.dumps(options).decode("latin-1")):
            assert not leaks(shown.encode())
        with closing(options.brokers.connect()) as cluster:
            assert not leaks(repr(vars(cluster)).encode())


def give(location: str) -> dict[str, object]:
    """A provider of this module's."""
    assert location == "kafka://b:9092"
    return {"sasl.password": CANARIES["secret"]}


def fails(location: str) -> Any:
    raise RuntimeError(CANARIES["secret"])


def test_a_provider_gives_the_secrets_of_a_client() -> None:
    options = parse_options(options_of(**SASL, brokerCredentials=f"{__name__}:give"))
    assert options.brokers is not None
    assert options.brokers.resolve()["sasl.password"].reveal() == CANARIES["secret"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"kafka.sasl.password": "hunter2"}, r"kafka\.sasl\.password is a secret.*expected env:VARIABLE"),
        ({"kafka.sasl.jaas.config": 'x required password="hunter2";'}, r"kafka\.sasl\.jaas\.config is a secret"),
        ({"kafka.securty.protocol": "SSL"}, r"kafka\.securty\.protocol is no setting.*kafka\.security\.protocol"),
        ({"kafka.security.protocol": "hunter2"}, r"security\.protocol has a value that cannot be used"),
        ({"kafka.oauth_cb": "hunter2"}, r"kafka\.oauth_cb is no text"),
        ({"kafka.bootstrap.servers": "hunter2@b:9092"}, r"a broker's address holds no user"),
        ({"kafka.bootstrap.servers": "b:port"}, "not a valid address"),
        ({"maxBytesPerTrigger": "1m"}, r"maxBytesPerTrigger and kafka\.bootstrap\.servers exclude each other"),
        ({"layout": "aiven"}, "layout has no effect without a location"),
        ({"storage.region": "eu"}, "region"),
    ],
)
def test_what_makes_no_sense_with_brokers_is_refused_and_not_shown(more: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        parse_options(options_of() | more)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        ("env:NOBODY_HAS", "brokerCredentials=env:NOBODY_HAS finds no variable"),
        ("nobody:knows", "brokerCredentials=nobody:knows cannot be imported"),
        (f"{__name__}:fails", "failed: RuntimeError"),
        ("builtins:len", "gives no settings of a Kafka client"),
    ],
)
def test_a_provider_that_gives_nothing_is_told_without_what_it_said(provider: str, text: str) -> None:
    options = parse_options(options_of(brokerCredentials=provider))
    assert options.brokers is not None
    with pytest.raises(OptionError, match=text) as caught:
        options.brokers.connect()
    assert not leaks(str(caught.value).encode())


def test_settings_of_javas_consumer_that_change_nothing_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    given = {"kafka.group.id": "g", "kafka.max.poll.records": "5", "kafka.metrics.num.samples": "3"}
    options = parse_options(
        options_of(**given, **{"kafka.client.rack": "r1", "kafka.isolation.level": "read_committed"})
    )

    assert options.brokers is not None
    assert options.brokers.settings == {"client.rack": "r1"}
    assert "no Java consumer runs: kafka.group.id, kafka.max.poll.records, kafka.metrics.num.samples" in caplog.text
