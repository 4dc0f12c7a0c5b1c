"""A stream where Spark does not say how far the query is: before 4.2 it asks for an end, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from growing_log import GrowingLog

from segreader.errors import ObjectNotFoundError, OffsetOutOfRangeError
from segreader.spark.options import parse_stream_options
from segreader.spark.stream import SegmentStreamReader


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    log = GrowingLog(tmp_path / "tier")
    log.upload("orders", 0, 10)
    log.upload("orders", 1, 10)
    return log


def reader(log: GrowingLog, **options: str) -> SegmentStreamReader:
    """Without a look so far, as after a restart."""
    given = {"location": str(log.root), "subscribe": "orders"} | options
    return SegmentStreamReader(parse_stream_options(given), ("partition", "offset"), wait=lambda _: None)


def offsets(*ends: int) -> dict[str, dict[str, int]]:
    return {"orders": {str(partition): end for partition, end in enumerate(ends)}}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_that_is_further_than_the_uploads_fails_and_delivers_nothing_again(log: GrowingLog, fails: str) -> None:
    stream = reader(log, failOnDataLoss=fails)
    end = stream.latestOffset()
    assert end == offsets(10, 10)

    with pytest.raises(OffsetOutOfRangeError, match=r"orders-1 ends before .* end at offset 10, expected offset 15"):
        stream.partitions(offsets(10, 15), end)


def test_an_end_is_never_before_the_last_one(log: GrowingLog) -> None:
    waiting = reader(log, failOnDataLoss="false")
    waiting.partitions(offsets(0, 0), offsets(10, 10))
    log.delete("orders", 1)
    assert waiting.latestOffset() == offsets(10, 10)
    log.upload("orders", 0, 10)
    assert waiting.latestOffset() == offsets(20, 10)

    fails = reader(log)
    fails.partitions(offsets(0), offsets(20))
    log.delete("orders", 0)
    with pytest.raises(ObjectNotFoundError, match="orders"):
        fails.latestOffset()


def test_a_partition_without_an_end_is_a_data_loss(log: GrowingLog) -> None:
    with pytest.raises(ObjectNotFoundError, match="orders-1 is not here any more"):
        reader(log).partitions(offsets(0, 10), offsets(10))
    assert reader(log, failOnDataLoss="false").partitions(offsets(0, 10), offsets(10))
