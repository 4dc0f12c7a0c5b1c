"""The stream reader over a live log, called as Spark calls it, against a broker on loopback; no session is needed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import ServedLog, served
from served_cluster import ServedCluster, served_cluster, tiered_log

from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, OffsetOutOfRangeError, OptionError
from segreader.spark.options import parse_stream_options
from segreader.spark.rate_limits import ReadAllAvailable, ReadMaxRows
from segreader.spark.stream import SegmentStreamReader
from segreader.spark.worker import this_worker
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import kafka_uuid
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0

ALL = ReadAllAvailable()
TOPIC = "orders"
PRODUCER = 7


def offsets(*ends: int) -> dict[str, dict[str, int]]:
    return {TOPIC: {str(partition): end for partition, end in enumerate(ends)}}


@dataclass(slots=True)
class Live:
    """A topic of two partitions that grows: the first has 40 offsets in the store and 20 on the broker, all by one."""

    cluster: ServedCluster
    root: Path
    last: dict[int, SegmentBuilder]
    readers: list[SegmentStreamReader] = field(default_factory=list)

    def log(self, partition: int = 0) -> ServedLog:
        return self.cluster.cluster.logs[TOPIC][partition]

    def produce(self, count: int, partition: int = 0, *, is_open: bool = False, ends: bool = False) -> None:
        """Write records, in a transaction if it stays open; ``ends`` commits it first."""
        segment = self.last[partition] = self.last[partition].roll()
        if ends:
            segment.marker(PRODUCER)
        if count:
            transaction = {"producer_id": PRODUCER, "transactional": True} if is_open else {}
            segment.batch([b"v"] * count, **transaction)  # type: ignore[arg-type]
        self.log(partition).batches += served(segment.to_bytes())

    def reader(self, **options: str) -> SegmentStreamReader:
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap, "subscribe": TOPIC, "location": str(self.root)}
        made = SegmentStreamReader(parse_stream_options(given | options), ("partition", "offset"), wait=lambda _: None)
        self.readers.append(made)
        return made


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    segments = [SegmentBuilder().batch([b"v"] * 20)]
    for _ in range(2):
        segments.append(segments[-1].roll().batch([b"v"] * 20))
    other = SegmentBuilder().batch([b"w"] * 5)
    first = tiered_log(tmp_path, TOPIC, segments, uploaded=2, local_from=2)
    with served_cluster({TOPIC: {0: first, 1: ServedLog(served(other.to_bytes()), [(0, 0)])}}) as cluster:
        made = Live(cluster, tmp_path, {0: segments[-1], 1: other})
        yield made
        for reader in made.readers:
            reader.stop()
        this_worker().clusters._drop(cluster.bootstrap)


def rows(reader: SegmentStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """Partition and offset of what a batch between these two offsets holds, as another reader in a task reads it."""
    in_task = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in in_task.read(partition):
            found += list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    return sorted(found)


def batches(reader: SegmentStreamReader, limit: Any) -> Iterator[tuple[Any, Any]]:
    """The pairs of offsets that Spark would journal with ``AvailableNow``."""
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        yield start, end
        start = end


def test_a_stream_goes_from_the_store_to_the_broker_and_follows_it(live: Live) -> None:
    stream = live.reader()
    assert stream.initialOffset() == offsets(0, 0)
    end = stream.latestOffset(offsets(0, 0), ALL)
    assert end == offsets(60, 5)
    assert rows(stream, offsets(0, 0), end) == [(0, n) for n in range(60)] + [(1, n) for n in range(5)]

    assert stream.latestOffset(end, ALL) == end
    live.produce(3, 1)
    assert stream.latestOffset(end, ALL) == offsets(60, 8)
    assert rows(stream, end, offsets(60, 8)) == [(1, 5), (1, 6), (1, 7)]
    assert stream.reportLatestOffset() == offsets(60, 8)


def test_a_stream_that_has_read_the_uploads_lists_them_no_more(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segreader.spark.locations.Locations.places_of", None)
    stream = live.reader(startingOffsets="latest")
    start = stream.initialOffset()
    live.produce(3, 1)
    assert rows(stream, start, stream.latestOffset(start, ALL)) == []  # an empty first batch holds the start
    assert rows(stream, start, stream.latestOffset(start, ALL)) == [(1, 5), (1, 6), (1, 7)]


def test_the_text_of_its_offsets_is_that_of_the_kafka_source(live: Live) -> None:
    end = live.reader().latestOffset(offsets(0, 0), ALL)
    assert json.dumps(end, separators=(",", ":")) == '{"orders":{"0":60,"1":5}}'


@pytest.mark.parametrize("limit", [7, 30, 1000])
def test_available_now_reads_in_batches_what_was_there_when_it_began(live: Live, limit: int) -> None:
    stream = live.reader()
    found = []
    for number, (start, end) in enumerate(batches(stream, ReadMaxRows(limit))):
        if number == 0:
            live.produce(10)
        found += rows(stream, start, end)

    assert sorted(found) == [(0, n) for n in range(60)] + [(1, n) for n in range(5)]
    assert len(found) == 65


def test_a_batch_that_comes_again_has_the_same_rows_though_the_log_has_moved(live: Live) -> None:
    stream = live.reader()
    before = rows(stream, offsets(30, 2), offsets(55, 4))
    live.produce(20)
    live.log().local_start = 60  # all of it is uploaded by now, and not yet listed anywhere

    assert rows(live.reader(), offsets(30, 2), offsets(55, 4)) == before
    assert before == [(0, n) for n in range(30, 55)] + [(1, 2), (1, 3)]


def test_an_open_transaction_holds_a_stream_back_until_it_ends(live: Live) -> None:
    stream = live.reader()
    live.produce(5, is_open=True)
    live.produce(5)
    assert stream.latestOffset(offsets(60, 5), ALL) == offsets(60, 5)
    assert live.reader(isolationLevel="read_uncommitted").latestOffset(offsets(60, 5), ALL) == offsets(70, 5)

    live.produce(0, ends=True)
    assert stream.latestOffset(offsets(60, 5), ALL) == offsets(71, 5)
    assert rows(stream, offsets(60, 5), offsets(71, 5)) == [(0, n) for n in range(60, 70)]


def test_a_query_that_was_ahead_of_the_last_stable_offset_waits_for_it(live: Live) -> None:
    live.produce(5, is_open=True)
    stream = live.reader()
    assert stream.latestOffset(offsets(65, 5), ALL) == offsets(65, 5)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, offsets(0, 0)),
        ({"startingOffsets": "latest"}, offsets(60, 5)),
        ({"startingOffsets": '{"orders":{"0":-1,"1":-2}}'}, offsets(60, 0)),
        ({"startingOffsets": '{"orders":{"0":45,"1":3}}'}, offsets(45, 3)),
        ({"startingTimestamp": str(T0 + 3)}, offsets(3, 3)),
        ({"startingTimestamp": str(T0 + 9), "startingOffsetsByTimestampStrategy": "latest"}, offsets(9, 5)),
    ],
)
def test_a_new_query_starts_where_the_option_says(live: Live, options: dict[str, str], start: Any) -> None:
    assert live.reader(**options).initialOffset() == start


def test_nothing_as_new_as_the_start_is_an_error(live: Live) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="nothing of orders-1 is as new"):
        live.reader(startingTimestamp=str(T0 + 9)).initialOffset()


def test_a_new_partition_is_read_from_its_first_offset(live: Live) -> None:
    stream = live.reader()
    start = stream.latestOffset(offsets(0, 0), ALL)
    live.cluster.cluster.logs[TOPIC][2] = ServedLog(served(SegmentBuilder().batch([b"n"] * 4).to_bytes()), [(0, 0)])
    end = stream.latestOffset(start, ALL)

    assert end == offsets(60, 5, 4)
    assert rows(stream, start, end) == [(2, n) for n in range(4)]


def test_offsets_that_retention_took_fail_the_stream_or_are_passed_over(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    live.log().log_start = 45
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets of orders-0 are gone"):
        live.reader().latestOffset(offsets(30, 5), ALL)

    stream = live.reader(failOnDataLoss="false")
    assert rows(stream, offsets(30, 5), stream.latestOffset(offsets(30, 5), ALL)) == [(0, n) for n in range(45, 60)]
    assert "offsets of orders-0 are gone" in caplog.text


def test_a_next_offset_behind_the_end_fails_the_stream_or_is_waited_for(live: Live) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 ends before the offset that comes next"):
        live.reader().latestOffset(offsets(61, 5), ALL)
    assert live.reader(failOnDataLoss="false").latestOffset(offsets(61, 5), ALL) == offsets(61, 5)


def test_a_topic_that_is_deleted_or_made_again_is_data_loss(live: Live) -> None:
    stream = live.reader()
    stream.latestOffset(offsets(60, 5), ALL)
    live.cluster.cluster.topic_ids[TOPIC] = kafka_uuid("another")
    with pytest.raises(AmbiguousTopicError, match="deleted and created again"):
        stream.latestOffset(offsets(60, 5), ALL)

    patient = live.reader(failOnDataLoss="false")
    patient.latestOffset(offsets(60, 5), ALL)
    del live.cluster.cluster.logs[TOPIC]
    assert patient.latestOffset(offsets(60, 5), ALL) == offsets(60, 5)
    with pytest.raises(ObjectNotFoundError, match="no topic orders"):
        live.reader().latestOffset(offsets(60, 5), ALL)


def test_limits_by_bytes_are_refused_for_a_broker_tells_none(live: Live) -> None:
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        live.reader(maxBytesPerTrigger="1m")
