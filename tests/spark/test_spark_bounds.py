"""Where a read starts and ends: offsets and times held against what is there, as Spark's kafka source does."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_rows import read_offsets

from segreader.errors import ObjectNotFoundError, OffsetOutOfRangeError, OptionError, SegmentGapError
from segreader.spark.options import parse_options
from segreader.spark.planning import plan_splits
from segreader.testing.builder import SegmentBuilder
from segreader.testing.directory import write_local_tiered
from segreader.testing.records import FIRST_TIMESTAMP_MS as T0


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Topic ``orders``: offsets 100 to 159 in three segments of two batches, offset n at ``T0 + n`` ms."""
    segments = []
    segment = SegmentBuilder(100)
    for _ in range(3):
        segment.batch([b"v"] * 10).batch([b"v"] * 10)
        segments.append(segment)
        segment = segment.roll()
    write_local_tiered(tmp_path, "orders", segments)
    return tmp_path


def read(location: Path, **options: str) -> list[int]:
    return read_offsets(location, subscribe="orders", **options)


def each(number: int) -> str:
    return f'{{"orders":{{"0":{number}}}}}'


def test_a_time_is_the_first_record_that_is_not_older_and_an_end_is_exclusive(orders: Path) -> None:
    assert read(orders, startingTimestamp=str(T0 + 137)) == list(range(137, 160))
    assert read(orders, endingTimestamp=str(T0 + 137)) == list(range(100, 137))
    assert read(orders, startingTimestamp=str(T0 + 110), endingTimestamp=str(T0 + 150)) == list(range(110, 150))


def test_times_of_partitions_are_looked_up_one_by_one(orders: Path) -> None:
    segment = SegmentBuilder().batch([b"v"] * 200)
    write_local_tiered(orders, "orders", [segment], partition=1)
    times = f'{{"orders":{{"0":{T0 + 155},"1":{T0 + 3}}}}}'
    ends = f'{{"orders":{{"0":{T0 + 158},"1":{T0 + 5}}}}}'

    assert read(orders, startingOffsetsByTimestamp=times, endingOffsetsByTimestamp=ends) == [3, 4, 155, 156, 157]


def test_times_of_partitions_must_name_every_partition(orders: Path) -> None:
    write_local_tiered(orders, "orders", [SegmentBuilder().batch([b"v"])], partition=1)
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp must name every partition.*lacks orders-1"):
        read(orders, startingOffsetsByTimestamp=each(T0))


def test_a_time_in_the_future_is_an_error_or_the_end_by_the_strategy(orders: Path) -> None:
    future = str(T0 + 10**9)
    with pytest.raises(OffsetOutOfRangeError, match=f"nothing in orders-0 is as new as {future}.*Strategy=latest"):
        read(orders, startingTimestamp=future)
    assert read(orders, startingTimestamp=future, startingOffsetsByTimestampStrategy="latest") == []
    assert read(orders, endingTimestamp=future) == list(range(100, 160))


def test_a_timestamp_weighs_more_than_offsets_when_it_is_read(orders: Path) -> None:
    chosen = read(
        orders, startingOffsets=each(150), startingOffsetsByTimestamp=each(T0 + 140), startingTimestamp=str(T0 + 158)
    )
    assert chosen == [158, 159]


def test_a_marker_counts_where_a_broker_counts_it(tmp_path: Path) -> None:
    segment = SegmentBuilder().batch([b"v"], producer_id=7, producer_epoch=0, transactional=True)
    segment.marker(7, timestamp_ms=T0 + 50).batch([b"v"]).batch([b"v"])
    write_local_tiered(tmp_path, "orders", [segment])

    assert read(tmp_path, endingTimestamp=str(T0 + 40)) == [0]  # the marker at offset 1 is the first not older
    assert read(tmp_path, startingTimestamp=str(T0 + 40)) == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": each(99)}, "startingOffsets of orders-0 is before the first segment.*found 99, .*100"),
        ({"startingOffsets": each(0)}, "startingOffsets of orders-0 is before the first segment"),
        ({"endingOffsets": each(161)}, "endingOffsets of orders-0 is beyond the end of the data.*found 161, .*160"),
    ],
)
def test_offsets_that_are_gone_are_an_error_or_passed_over(
    orders: Path, options: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=message):
        read(orders, **options)
    assert read(orders, **options, failOnDataLoss="false") == list(range(100, 160))
    assert "continuing with the data that exists" in caplog.text


def test_a_start_beyond_the_end_of_what_is_there_is_an_error(orders: Path) -> None:
    with pytest.raises(
        OptionError, match=r"startingOffsets of orders-0 is beyond the end.*found 161, expected at most 160"
    ):
        read(orders, startingOffsets=each(161))
    assert read(orders, startingOffsets=each(160)) == []


def test_a_start_beyond_its_end_is_an_error_however_they_are_said(orders: Path) -> None:
    with pytest.raises(OptionError, match=r"start of orders-0 is beyond its end.*start 150, end 120"):
        read(orders, startingTimestamp=str(T0 + 150), endingOffsets=each(120))


def test_a_hole_between_segments_is_an_error_or_counted(orders: Path, caplog: pytest.LogCaptureFixture) -> None:
    for file in orders.rglob(f"{120:020d}-*"):
        file.unlink()
    with pytest.raises(SegmentGapError, match=r"120 to 139.*failOnDataLoss=false"):
        read(orders)
    assert read(orders, failOnDataLoss="false") == [*range(100, 120), *range(140, 160)]
    assert "20 offsets are in no segment" in caplog.text
    assert "no segment has offsets 120 to 139: passed over" in caplog.text


def test_a_partition_that_is_gone_is_an_error_or_passed_over(orders: Path) -> None:
    assigned = {"assign": '{"orders":[0,3]}'}
    with pytest.raises(ObjectNotFoundError, match="partition 3 of orders is not here; found partitions 0"):
        plan_splits(parse_options({"location": str(orders)} | assigned))
    assert len(read_offsets(orders, **assigned, failOnDataLoss="false")) == 60


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_isolation_level_chooses_the_records(tmp_path: Path, isolation: str) -> None:
    segment = SegmentBuilder().batch([b"v"], producer_id=7, producer_epoch=0, transactional=True)
    segment.marker(7, abort=True).batch([b"v"])
    write_local_tiered(tmp_path, "orders", [segment])
    wanted = [2] if isolation == "read_committed" else [0, 2]

    assert read(tmp_path, isolationLevel=isolation) == wanted
    assert read(tmp_path, **{"kafka.isolation.level": isolation}) == wanted
