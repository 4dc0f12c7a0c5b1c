"""The stream reader, called as Spark calls it; no session is needed."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark.sql.streaming
import pytest
from growing_log import GrowingLog, LostMarker
from pyspark.sql.datasource import InputPartition

from segreader.errors import (
    AmbiguousTopicError,
    DivergedPositionError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    OptionError,
    SegmentGapError,
    TruncatedError,
)
from segreader.plan.split import Split
from segreader.spark import rate_limits
from segreader.spark.batch import SplitPartition
from segreader.spark.checkpoint import from_json, to_json
from segreader.spark.options import parse_options, parse_stream_options
from segreader.spark.rate_limits import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from segreader.spark.stream import SegmentStreamReader

ALL = ReadAllAvailable()


class Time:
    """A clock that only goes on when it is told to, or waited for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waited: list[float] = []

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "tier")


def reader(log: GrowingLog, time: Time | None = None, **options: str) -> SegmentStreamReader:
    given = {"location": str(log.root), "subscribe": "orders"} | options
    time = time or Time()
    parsed = parse_stream_options(given)
    return SegmentStreamReader(parsed, ("partition", "offset", "value"), clock=time.clock, wait=time.wait)


def rows(reader: SegmentStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """Partition and offset of what a batch between these two offsets holds, as another reader in a task reads it."""
    in_task = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in in_task.read(partition):
            found += list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    return sorted(found)


def splits_of(partitions: Sequence[InputPartition]) -> list[Split]:
    found = [one.split for one in partitions if isinstance(one, SplitPartition)]
    assert len(found) == len(partitions)
    return found


def offsets(*ends: int) -> dict[str, dict[str, int]]:
    return {"orders": {str(partition): end for partition, end in enumerate(ends)}}


def batches(reader: SegmentStreamReader, limit: Any) -> Iterator[tuple[Any, Any]]:
    """The pairs of offsets that Spark would journal with ``AvailableNow``."""
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        yield start, end
        start = end


def test_offsets_have_the_text_of_the_kafka_sources() -> None:
    document = to_json({("orders", 10): 3, ("orders", 2): 5, ("audit", 0): 0})

    assert json.dumps(document, separators=(",", ":")) == '{"audit":{"0":0},"orders":{"2":5,"10":3}}'
    assert from_json(document) == {("orders", 10): 3, ("orders", 2): 5, ("audit", 0): 0}


@pytest.mark.parametrize("document", [[], {"orders": [1]}, {"orders": {"a": 1}}, {"orders": {"0": -1}}, {"path": "x"}])
def test_a_checkpoint_of_another_source_is_refused(document: Any) -> None:
    with pytest.raises(OptionError, match=r"no offsets of .*partitions"):
        from_json(document)


def test_a_stream_starts_at_the_earliest_offset_and_ends_where_the_segments_do(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    log.upload("orders", 0, 30)
    log.upload("orders", 1, 20)
    log.delete_oldest("orders", 0)
    stream = reader(log)

    assert stream.initialOffset() == offsets(30, 0)
    assert stream.latestOffset(offsets(30, 0), ALL) == offsets(60, 20)
    assert rows(stream, offsets(30, 0), offsets(60, 20)) == [(0, n) for n in range(30, 60)] + [
        (1, n) for n in range(20)
    ]


@pytest.mark.parametrize("limit", [ReadMaxRows(7), ReadMaxBytes(1), ReadMaxBytes(1000), ALL])
def test_available_now_reads_all_that_is_there_once_and_nothing_that_comes_later(log: GrowingLog, limit: Any) -> None:
    for _ in range(3):
        log.upload("orders", 0, 20)
    log.upload("orders", 1, 15)
    stream = reader(log)
    found = []
    for number, (start, end) in enumerate(batches(stream, limit)):
        if number == 0:
            log.upload("orders", 1, 5)
            log.upload("orders", 2, 5)
        found += rows(stream, start, end)

    assert sorted(found) == [(0, n) for n in range(60)] + [(1, n) for n in range(15)]


def test_a_limit_of_rows_is_shared_between_partitions(log: GrowingLog) -> None:
    log.upload("orders", 0, 90)
    log.upload("orders", 1, 30)

    assert reader(log).latestOffset(offsets(0, 0), ReadMaxRows(12)) == offsets(9, 3)


def test_a_limit_of_bytes_ends_at_segments(log: GrowingLog) -> None:
    for _ in range(3):
        log.upload("orders", 0, 20)
    size = next(log.logs()).stat().st_size

    assert reader(log).latestOffset(offsets(0), ReadMaxBytes(1)) == offsets(20)
    assert reader(log).latestOffset(offsets(0), ReadMaxBytes(2 * size)) == offsets(40)
    assert reader(log).latestOffset(offsets(10), ReadMaxBytes(size)) == offsets(40)


def test_a_batch_is_the_same_for_every_reader_and_at_any_time(log: GrowingLog) -> None:
    log.upload("orders", 0, 50)
    before = rows(reader(log), offsets(13), offsets(37))
    log.upload("orders", 0, 50)

    assert before == [(0, n) for n in range(13, 37)]
    assert rows(reader(log), offsets(13), offsets(37)) == before


def test_segments_are_found_as_they_are_uploaded(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time)
    assert stream.latestOffset(offsets(0), ALL) == offsets(10)
    assert stream.latestOffset(offsets(10), ALL) == offsets(10)
    log.upload("orders", 0, 10)

    assert stream.latestOffset(offsets(10), ALL) == offsets(20)
    assert stream.reportLatestOffset() == offsets(20)


def test_the_store_is_asked_once_a_second_while_nothing_is_new(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time)
    for _ in range(5):
        stream.latestOffset(offsets(10), ALL)

    assert time.waited == [1.0] * 4


def test_a_partition_that_comes_later_begins_at_its_earliest_offset(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time)
    stream.latestOffset(offsets(0), ALL)
    log.upload("orders", 1, 5)
    time.now += 61

    assert stream.latestOffset(offsets(10), ALL) == offsets(10, 5)
    assert rows(stream, offsets(10), offsets(10, 5)) == [(1, n) for n in range(5)]
    assert rows(reader(log), offsets(10), offsets(10, 5)) == [(1, n) for n in range(5)]


def test_a_first_batch_that_comes_again_leaves_out_a_partition_that_came_since(log: GrowingLog) -> None:
    log.upload("orders", 0, 20)
    first = reader(log)
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(7))
    log.upload("orders", 1, 10)
    again = reader(log)

    assert rows(again, again.initialOffset(), end) == [(0, n) for n in range(7)]
    assert rows(again, end, offsets(8, 10)) == [(0, 7), *((1, n) for n in range(10))]


def test_a_topic_that_comes_later_is_found_by_a_pattern(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    given = {"location": str(log.root), "subscribePattern": "ord.*|new"}
    stream = SegmentStreamReader(parse_stream_options(given), ("offset",), clock=time.clock, wait=time.wait)
    assert stream.initialOffset() == offsets(0)
    log.upload("new", 0, 5)
    log.upload("other", 0, 5)
    time.now += 61

    assert stream.latestOffset(offsets(10), ALL) == {"new": {"0": 5}} | offsets(10)


def test_nothing_is_read_beyond_the_last_stable_offset(log: GrowingLog) -> None:
    log.upload("orders", 0, 30, open_transaction=True)
    stream = reader(log)
    assert stream.latestOffset(offsets(0), ALL) == offsets(20)
    assert reader(log, isolationLevel="read_uncommitted").latestOffset(offsets(0), ALL) == offsets(30)
    end = log.end_transaction("orders", 0)

    assert stream.latestOffset(offsets(20), ALL) == offsets(end)
    assert rows(stream, offsets(20), offsets(end)) == [(0, n) for n in range(20, 30)]


def test_a_query_that_starts_at_the_end_has_an_empty_first_batch(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    stream = reader(log, startingOffsets="latest")
    assert stream.initialOffset() == offsets(10)
    log.upload("orders", 0, 10)

    assert stream.initialOffset() == offsets(10)
    assert stream.latestOffset(offsets(10), ALL) == offsets(10)
    assert stream.latestOffset(offsets(10), ALL) == offsets(20)
    assert rows(reader(log, startingOffsets="latest"), offsets(20), offsets(10)) == []  # the first batch once more


def test_starting_offsets_are_those_of_the_option(log: GrowingLog) -> None:
    for partition in range(4):
        log.upload("orders", partition, 20)
        log.upload("orders", partition, 20)
    log.delete_oldest("orders", 3)
    text = json.dumps({"orders": {"0": 23, "1": -2, "2": -1, "3": -2}})

    assert reader(log, startingOffsets=text).initialOffset() == offsets(23, 0, 40, 20)


def test_partitions_that_starting_offsets_lacks_start_at_the_earliest_where_that_is_the_default(
    log: GrowingLog,
) -> None:
    log.upload("orders", 0, 30)
    log.upload("orders", 1, 20)
    some = '{"orders":{"0":23}}'
    given = reader(log, startingOffsets=some, startingOffsetsDefault="earliest")

    assert given.initialOffset() == offsets(23, 0)
    with pytest.raises(OptionError, match=r"it lacks orders-1\. startingOffsetsDefault=earliest reads"):
        reader(log, startingOffsets=some).initialOffset()


@pytest.mark.parametrize("text", ['{"orders":{"0":1}}', '{"orders":{"0":1,"1":1,"2":1}}'])
def test_starting_offsets_name_exactly_the_partitions_that_are_there(log: GrowingLog, text: str) -> None:
    log.upload("orders", 0, 20)
    log.upload("orders", 1, 20)

    with pytest.raises(OptionError, match=r"exactly the partitions that are read; it .* orders-[12]"):
        reader(log, startingOffsets=text).initialOffset()


def test_a_stream_starts_at_a_time(log: GrowingLog) -> None:
    log.upload("orders", 0, 20)
    log.upload("orders", 1, 20)
    value = 1_700_000_000_000
    stream = reader(log, startingTimestamp=str(value))
    first = stream.initialOffset()["orders"]["0"]
    late: dict[str, Any] = {"startingTimestamp": str(4 * 10**12)}

    assert first in (0, 20)
    with pytest.raises(OffsetOutOfRangeError, match="nothing of orders-0 is as new"):
        reader(log, **late).initialOffset()
    assert reader(log, **late, startingOffsetsByTimestampStrategy="latest").initialOffset() == offsets(20, 20)


def test_older_spark_calls_without_arguments(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    stream = reader(log)
    assert stream.latestOffset() == offsets(10)
    assert stream.initialOffset() == offsets(0)
    log.upload("orders", 0, 10)

    assert stream.latestOffset() == offsets(20)
    at_end = reader(log, startingOffsets="latest")
    assert at_end.latestOffset() == at_end.initialOffset() == offsets(20)


def test_older_spark_too_makes_the_store_list_no_more_than_once_a_second(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time)
    assert [stream.latestOffset() for _ in range(3)] == [offsets(10)] * 3
    assert time.waited == [1.0, 1.0]

    stream.partitions(offsets(0), offsets(10))
    assert stream.latestOffset() == offsets(10)
    assert time.waited == [1.0, 1.0, 1.0]


def test_offsets_that_retention_has_deleted_are_a_data_loss(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    log.upload("orders", 0, 10)
    log.delete_oldest("orders", 0)

    gone = r"orders-0 are gone.* from offset 10 on, expected offset 5"
    with pytest.raises(OffsetOutOfRangeError, match=gone):
        reader(log).latestOffset(offsets(5), ALL)
    with pytest.raises(OffsetOutOfRangeError, match=gone):
        reader(log).partitions(offsets(5), offsets(20))
    goes_on = reader(log, failOnDataLoss="false")
    assert goes_on.latestOffset(offsets(5), ALL) == offsets(20)
    assert rows(goes_on, offsets(5), offsets(20)) == [(0, n) for n in range(10, 20)]


def test_a_loss_is_told_once(log: GrowingLog, caplog: pytest.LogCaptureFixture) -> None:
    log.upload("orders", 0, 10)
    log.upload("orders", 0, 10)
    log.delete_oldest("orders", 0)
    stream = reader(log, failOnDataLoss="false")
    for _ in range(3):
        stream.latestOffset(offsets(5), ALL)

    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "offsets of orders-0 are gone" in told


def test_a_partition_that_is_gone_is_a_data_loss(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    log.upload("orders", 1, 10)
    log.delete("orders", 1)

    with pytest.raises(ObjectNotFoundError, match="orders-1 is not here any more"):
        reader(log).latestOffset(offsets(5, 5), ALL)
    with pytest.raises(ObjectNotFoundError, match="orders-1 is not here any more"):
        reader(log).partitions(offsets(5, 5), offsets(10, 10))
    goes_on = reader(log, failOnDataLoss="false")
    assert goes_on.latestOffset(offsets(5, 5), ALL) == offsets(10, 5)
    assert rows(goes_on, offsets(5, 5), offsets(10, 10)) == [(0, n) for n in range(5, 10)]


def test_a_stream_that_was_ahead_waits_or_fails(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)

    with pytest.raises(OffsetOutOfRangeError, match=r"ends before the offset that comes next.* end at offset 10"):
        reader(log).latestOffset(offsets(15), ALL)
    waiting = reader(log, failOnDataLoss="false")
    assert waiting.latestOffset(offsets(15), ALL) == offsets(15)
    log.upload("orders", 0, 10)
    assert waiting.latestOffset(offsets(15), ALL) == offsets(20)


def test_a_topic_made_anew_while_a_stream_reads_it_is_a_data_loss(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time)
    stream.latestOffset(offsets(0), ALL)
    (directory,) = log.root.iterdir()
    directory.rename(log.root / "orders-0-AAAAAAAAAAAAAAAAAAAAAA")
    time.now += 61

    with pytest.raises(AmbiguousTopicError, match="'orders' was deleted and created again"):
        stream.latestOffset(offsets(10), ALL)


def test_a_hole_between_segments_is_a_data_loss(log: GrowingLog) -> None:
    for _ in range(3):
        log.upload("orders", 0, 10)
    _, middle, _ = log.logs()
    for path in middle.parent.glob(middle.name[:20] + "*"):
        path.unlink()

    with pytest.raises(SegmentGapError, match="no segment with 10 to 19"):
        reader(log).partitions(offsets(0), offsets(30))
    goes_on = reader(log, failOnDataLoss="false")
    assert rows(goes_on, offsets(0), offsets(30)) == [(0, n) for n in (*range(10), *range(20, 30))]


def test_a_topic_that_is_not_there_is_an_error_at_the_start(log: GrowingLog) -> None:
    log.upload("other", 0, 10)

    with pytest.raises(ObjectNotFoundError, match="topic 'orders' is not here"):
        reader(log).initialOffset()


def test_few_offsets_wait_but_not_for_ever(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    time = Time()
    stream = reader(log, time, minOffsetsPerTrigger="15", maxTriggerDelay="10m")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(15)
    assert stream.latestOffset(offsets(0), limit) == offsets(10)
    log.upload("orders", 0, 10)
    time.now += 599

    assert stream.latestOffset(offsets(10), limit) == offsets(10)
    assert reader(log, minOffsetsPerTrigger="15").latestOffset(offsets(10), ALL) == offsets(20)
    time.now += 1
    assert stream.latestOffset(offsets(10), limit) == offsets(20)


def test_available_now_does_not_wait_for_more(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    stream = reader(log, minOffsetsPerTrigger="15")

    assert [end for _, end in batches(stream, stream.getDefaultReadLimit())] == [offsets(10)]


def test_limits_are_those_of_the_options(log: GrowingLog) -> None:
    assert reader(log, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMaxRows(5)
    assert reader(log, maxBytesPerTrigger="1m").getDefaultReadLimit() == ReadMaxBytes(1 << 20)
    assert reader(log).getDefaultReadLimit() == ALL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1m"}, "exclude each other"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "is more than maxOffsetsPerTrigger"),
        ({"endingOffsets": '{"orders":{"0":5}}'}, "have no meaning in a stream"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, "have no meaning in a stream"),
        ({"endingTimestamp": "1700000000000"}, "have no meaning in a stream"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_stream_options({"location": "/mnt", "subscribe": "orders"} | options)


def test_limits_are_refused_where_spark_would_leave_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options({"location": "/mnt", "subscribe": "orders", "maxBytesPerTrigger": "1m"})
    monkeypatch.setattr(rate_limits, "HAS_LIMITS", True)
    rate_limits.require_limits(options)
    monkeypatch.setattr(rate_limits, "HAS_LIMITS", False)

    with pytest.raises(OptionError, match=r"maxBytesPerTrigger needs Spark 4\.2"):
        rate_limits.require_limits(options)


def test_without_limits_in_spark_the_names_are_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)  # as in Spark 4.0 and 4.1
    monkeypatch.delattr(pyspark.sql.streaming, "datasource", raising=False)
    spec = importlib.util.spec_from_file_location("older_read_limits", rate_limits.__file__)
    assert spec is not None
    assert spec.loader is not None
    older = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, older)
    spec.loader.exec_module(older)

    assert not older.HAS_LIMITS
    assert all(hasattr(older, name) for name in rate_limits.__all__)
    assert older.ReadMaxRows(7) == older.ReadMaxRows(max_rows=7) != older.ReadMaxBytes(7)


def test_what_travels_is_small_and_holds_no_look(log: GrowingLog) -> None:
    for _ in range(5):
        log.upload("orders", 0, 20)
    stream = reader(log)
    planned = stream.partitions(stream.initialOffset(), stream.latestOffset(stream.initialOffset(), ALL))

    assert len(planned) == 5
    assert all(len(pickle.dumps(one)) < 2048 for one in planned)
    assert len(pickle.dumps(stream)) < 2048
    assert isinstance(planned[0], InputPartition)


def test_the_largest_splits_come_first(log: GrowingLog) -> None:
    for records in (10, 40, 20):
        log.upload("orders", 0, records)
    stream = reader(log)
    sizes = [split.positions.size for split in splits_of(stream.partitions(offsets(0), offsets(70)))]

    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("option", "least", "most"), [("minPartitions", 6, 100), ("maxRecordsPerPartition", 9, 6)], ids=str
)
def test_splits_of_a_batch_are_as_many_and_as_small_as_asked_for(
    log: GrowingLog, option: str, least: int, most: int
) -> None:
    log.upload("orders", 0, 40)
    log.upload("orders", 1, 20)
    given: dict[str, Any] = {option: "6"}
    stream = reader(log, **given)
    planned = [split.offsets for split in splits_of(stream.partitions(offsets(3, 0), offsets(40, 17)))]

    assert len(planned) >= least
    assert all((one.stop or 0) - one.start <= most for one in planned)
    assert rows(stream, offsets(3, 0), offsets(40, 17)) == [(0, n) for n in range(3, 40)] + [(1, n) for n in range(17)]


def test_partitions_that_lie_in_several_locations_are_one_log(log: GrowingLog, tmp_path: Path) -> None:
    log.upload("orders", 0, 10)
    log.upload("orders", 1, 10)
    (tmp_path / "other").mkdir()
    (moved,) = log.root.glob("orders-1-*")
    moved.rename(tmp_path / "other" / moved.name)
    both = json.dumps([str(log.root), str(tmp_path / "other")])
    stream = reader(log, location=both)

    assert stream.latestOffset(offsets(0, 0), ALL) == offsets(10, 10)
    assert rows(stream, offsets(0, 0), offsets(10, 10)) == [(p, n) for p in range(2) for n in range(10)]


def test_a_partition_that_vanishes_while_a_stream_reads_it_is_a_data_loss(log: GrowingLog) -> None:
    log.upload("orders", 0, 10)
    log.upload("orders", 1, 10)
    stream, goes_on = reader(log), reader(log, failOnDataLoss="false")
    for one in (stream, goes_on):
        one.latestOffset(offsets(0, 0), ALL)
    log.delete("orders", 1)
    log.upload("orders", 0, 10)

    with pytest.raises(ObjectNotFoundError, match="orders-1 is not here any more"):
        stream.latestOffset(offsets(10, 10), ALL)
    assert goes_on.latestOffset(offsets(10, 10), ALL) == offsets(20, 10)


def test_a_stream_ends_where_an_election_took_the_marker_that_decided_what_it_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LostMarker(tmp_path / "tier")
    time = Time()
    given = {"location": str(log.root), "subscribe": "orders"}
    streams = [
        SegmentStreamReader(
            parse_stream_options(given | more), ("partition", "offset"), clock=time.clock, wait=time.wait
        )
        for more in ({}, {"failOnDataLoss": "false"}, {"isolationLevel": "read_uncommitted"})
    ]
    ends = [stream.latestOffset(offsets(0), ALL) for stream in streams]
    assert ends == [offsets(5), offsets(5), offsets(11)]
    assert rows(streams[0], offsets(0), ends[0]) == [(0, n) for n in range(5)]
    log.elect()
    time.now += 10
    for _ in range(2):
        with pytest.raises(DivergedPositionError, match=r"certain.*new checkpoint") as caught:
            streams[0].latestOffset(ends[0], ALL)
        assert caught.value.offset == 0
    assert streams[1].latestOffset(ends[1], ALL) == offsets(14)
    assert "is not its history any more" in caplog.text
    assert rows(streams[1], ends[1], offsets(14)) == [(0, n) for n in range(10, 14)]
    with pytest.raises(DivergedPositionError) as caught:
        streams[2].latestOffset(ends[2], ALL)
    assert caught.value.offset == 8


def test_a_stream_goes_on_where_the_end_that_was_lost_decided_nothing_it_read(tmp_path: Path) -> None:
    log = LostMarker(tmp_path / "tier", decided=True)
    time = Time()
    options = parse_stream_options({"location": str(log.root), "subscribe": "orders"})
    stream = SegmentStreamReader(options, ("partition", "offset"), clock=time.clock, wait=time.wait)
    assert stream.latestOffset(offsets(0), ALL) == offsets(6)
    log.elect()
    time.now += 10
    assert stream.latestOffset(offsets(6), ALL) == offsets(15)
    assert rows(stream, offsets(6), offsets(15)) == [(0, n) for n in range(11, 15)]


def test_a_batch_fails_at_the_cut_of_a_newest_log(log: GrowingLog) -> None:
    log.upload("orders", 0, 30)
    log.upload("orders", 0, 30)
    newest = list(log.logs())[-1]
    newest.write_bytes(newest.read_bytes()[: len(newest.read_bytes()) // 3])
    stream = reader(log)
    end = stream.latestOffset(offsets(0), ALL)

    assert end == offsets(40)
    with pytest.raises(TruncatedError, match="the log ends before an offset that a file beside it names"):
        rows(stream, offsets(0), end)
    assert rows(stream, offsets(0), offsets(30)) == [(0, n) for n in range(30)]
