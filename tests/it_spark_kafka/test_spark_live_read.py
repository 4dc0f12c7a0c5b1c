"""The data source over history and live data of a broker is what a consumer is given; tasks run without Spark."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from kafka_kit.clients import Received, Sent, consume, producer, send
from kafka_kit.cluster import Cluster

from segreader.plan.live import ReadFrom
from segreader.spark.batch import SegmentReader, SplitPartition
from segreader.spark.options import parse_options

pytestmark = pytest.mark.xdist_group("broker")

TOPIC = "spark-live"
PARTITIONS = 2
START_MS = 1_700_000_000_000
COLUMNS = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


def _records(count: int, first: int = 0) -> list[Sent]:
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


@pytest.fixture(scope="module")
def topic(kafka: Cluster) -> str:
    """Two partitions whose first segments are in the store alone; transactions, some aborted, lie over the seam."""
    kafka.create_topic(TOPIC, PARTITIONS, segment_bytes=4_000)
    with (
        producer(kafka.bootstrap, transactional_id=f"{TOPIC}-1", batch_size=600) as one,
        producer(kafka.bootstrap, transactional_id=f"{TOPIC}-2", codec="zstd", batch_size=600) as two,
        producer(kafka.bootstrap, batch_size=600) as plain,
    ):
        for turn in range(8):
            one.begin_transaction()
            two.begin_transaction()
            for part in range(3):
                for out in (one, two, plain):
                    send(out, TOPIC, _records(20, turn * 100 + part * 20))
            one.commit_transaction() if turn % 2 else one.abort_transaction()
            two.abort_transaction() if turn % 2 else two.commit_transaction()
            if turn == 5:
                kafka.upload_closed(TOPIC)
                kafka.configure(TOPIC, {"local.retention.bytes": "-2", "segment.bytes": "1073741824"})
    kafka.settle(TOPIC)
    for offsets in kafka.offsets(TOPIC).values():
        assert 0 < offsets.earliest_local < offsets.latest
    return TOPIC


@dataclass(frozen=True, slots=True)
class Read:
    """What a read gave, and where each part of it came from."""

    rows: list[Received]
    sources: dict[ReadFrom, int]
    parts: int


def read(kafka: Cluster, *, stored: bool, **options: str) -> Read:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC, "includeHeaders": "true"} | options
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    if stored:
        given["location"] = kafka.location
    reader = SegmentReader(parse_options(given), COLUMNS)
    rows: list[Received] = []
    sources: dict[ReadFrom, int] = {}
    planned = pickle.loads(pickle.dumps(reader.partitions()))
    for one in planned:
        assert isinstance(one, SplitPartition)
        assert one.part is not None
        count = 0
        for batch in pickle.loads(pickle.dumps(reader)).read(one):
            rows += [received(row) for row in batch.to_pylist()]
            count += len(batch)
        where = one.part.read_from
        sources[where] = sources.get(where, 0) + count
    return Read(sorted(rows, key=lambda row: (row.partition, row.offset)), sources, len(planned))


def received(row: dict[str, Any]) -> Received:
    return Received(
        partition=row["partition"],
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        is_log_append_time=row["timestampType"] == 1,
        headers=tuple((one["key"], one["value"]) for one in row["headers"] or ()),
    )


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("stored", [True, False])
def test_history_and_live_data_are_what_a_consumer_is_given(
    kafka: Cluster, topic: str, isolation: str, stored: bool
) -> None:
    found = read(kafka, stored=stored, **{"kafka.isolation.level": isolation})

    assert found.rows == consume(kafka.bootstrap, topic, PARTITIONS, isolation=isolation)
    assert set(found.sources) == ({ReadFrom.STORE, ReadFrom.BROKER} if stored else {ReadFrom.BROKER})
    assert all(found.sources.values())
