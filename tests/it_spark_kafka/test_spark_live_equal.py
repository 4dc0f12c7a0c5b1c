"""History and live data in one DataFrame are what Spark's own kafka source reads from the broker, byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka_kit.clients import Sent, consume, producer, send, transaction
from kafka_kit.cluster import Cluster
from kafka_kit.judge import Checksum, Judge, checksum
from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("broker")]

TOPIC = "judged-live"
PARTITIONS = 2
START_MS = 1_700_000_000_000


def records(count: int, first: int = 0) -> list[Sent]:
    return [
        Sent(
            value=None if number % 11 == 0 else b"value-%d" % number,
            key=b"%d" % (number % 7) if number % 3 else None,
            partition=number % PARTITIONS,
            timestamp_ms=START_MS + number,
            headers=(("a", b"1"), ("a", None)) if number % 5 == 0 else (),
        )
        for number in range(first, first + count)
    ]


def grow(kafka: Cluster, topic: str, turns: range) -> None:
    """Transactions of two producers that interleave, half of them aborted, and records of none."""
    with (
        producer(kafka.bootstrap, transactional_id=f"{topic}-1", batch_size=600) as one,
        producer(kafka.bootstrap, transactional_id=f"{topic}-2", codec="zstd", batch_size=600) as two,
        producer(kafka.bootstrap, batch_size=600) as plain,
    ):
        for turn in turns:
            one.begin_transaction()
            two.begin_transaction()
            for part in range(3):
                for out in (one, two, plain):
                    send(out, topic, records(20, turn * 100 + part * 20))
            one.commit_transaction() if turn % 2 else one.abort_transaction()
            two.abort_transaction() if turn % 2 else two.commit_transaction()


def ours(judge: Judge, *, stored: bool = True, isolation: str = "read_committed", **options: str) -> DataFrame:
    place = {"location": judge.kafka.location} if stored else {}
    given = {"kafka.bootstrap.servers": judge.kafka.bootstrap, "kafka.isolation.level": isolation}
    return judge.spark.read.format("segreader").options(**place, **given, **options).load()


def agreed(judge: Judge, **options: str) -> Checksum:
    """What both give, with the store and without it."""
    theirs = judge.theirs(**options)
    expected = checksum(theirs)
    for stored in (True, False):
        found = ours(judge, stored=stored, **options)
        assert [(one.name, one.dataType) for one in found.schema] == [(one.name, one.dataType) for one in theirs.schema]
        assert checksum(found) == expected
    return expected


@pytest.fixture(scope="module")
def tiered(judge: Judge) -> Judge:
    """First segments in the store alone, last ones on the broker's disk alone; a transaction lies over the seam."""
    kafka = judge.kafka
    kafka.create_topic(TOPIC, PARTITIONS, segment_bytes=4_000)
    grow(kafka, TOPIC, range(5))
    over = transaction(kafka.bootstrap, TOPIC, records(40, 900), name=f"{TOPIC}-over", is_kept=False)
    with over as write:
        grow(kafka, TOPIC, range(5, 6))
        kafka.upload_closed(TOPIC)
        kafka.configure(TOPIC, {"local.retention.bytes": "-2", "segment.bytes": "1073741824"})
        write(records(40, 940))
    grow(kafka, TOPIC, range(6, 8))
    kafka.settle(TOPIC)
    for offsets in kafka.offsets(TOPIC).values():
        assert 0 < offsets.earliest_local < offsets.latest
    return judge


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_history_and_live_data_are_the_same(tiered: Judge, isolation: str) -> None:
    found = agreed(tiered, subscribe=TOPIC, includeHeaders="true", isolation=isolation)
    assert found.records == len(consume(tiered.kafka.bootstrap, TOPIC, PARTITIONS, isolation=isolation))


def around_the_seam(judge: Judge, before: int, behind: int) -> dict[str, str]:
    ends = judge.kafka.offsets(TOPIC)
    starts, stops = (
        {TOPIC: {str(number): one.earliest_local + by for number, one in ends.items()}} for by in (before, behind)
    )
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(stops)}


@pytest.mark.parametrize(("before", "behind"), [(-30, 30), (-1, 1), (0, 12), (-12, 0), (3, 3)])
def test_offsets_around_the_seam_are_the_same(tiered: Judge, before: int, behind: int) -> None:
    agreed(tiered, subscribe=TOPIC, **around_the_seam(tiered, before, behind))


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": str(START_MS + 330)},
        {"endingTimestamp": str(START_MS + 330)},
        {"startingOffsetsByTimestamp": json.dumps({TOPIC: {"0": START_MS + 100, "1": START_MS + 710}})},
        {"minPartitions": "7"},
    ],
)
def test_times_and_partitions_are_the_same(tiered: Judge, options: dict[str, str]) -> None:
    assert agreed(tiered, subscribePattern="judged-l.*", **options).records


def test_an_open_transaction_ends_both_at_the_last_stable_offset(judge: Judge) -> None:
    kafka, topic = judge.kafka, "judged-open"
    kafka.create_topic(topic, PARTITIONS, segment_bytes=4_000)
    grow(kafka, topic, range(3))
    kafka.settle(topic)
    before = agreed(judge, subscribe=topic)
    with transaction(kafka.bootstrap, topic, records(10), name=topic, is_kept=True):
        with producer(kafka.bootstrap) as plain:
            send(plain, topic, records(10))
        assert agreed(judge, subscribe=topic) == before
    kafka.settle(topic)
    assert checksum(ours(judge, subscribe=topic)).records == before.records + 20


def test_a_query_moves_between_both_sources_over_a_live_log(judge: Judge, tmp_path: Path) -> None:
    kafka, topic = judge.kafka, f"judged-query-{tmp_path.name.lower()}"
    kafka.create_topic(topic, PARTITIONS, segment_bytes=4_000)

    def run(source: str) -> None:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        given["kafka.isolation.level"] = "read_committed"
        if source == "segreader":
            given["location"] = kafka.location
        reader = judge.spark.readStream.format(source).options(**given).load()
        writer = reader.select("partition", "offset").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).option("path", str(tmp_path / "o")).start()
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    for turn, source in enumerate(("segreader", "kafka", "segreader", "segreader")):
        grow(kafka, topic, range(2 * turn, 2 * turn + 2))
        kafka.settle(topic)
        if turn < 2:
            kafka.upload_closed(topic)
        run(source)
    rows = judge.spark.read.schema("partition int, offset bigint").parquet(str(tmp_path / "o")).collect()

    delivered = Counter((row["partition"], row["offset"]) for row in rows)
    assert delivered == Counter((one.partition, one.offset) for one in consume(kafka.bootstrap, topic, PARTITIONS))
