"""A live scan that is followed: what comes after its snapshot, once, as the isolation level lets a reader see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from fake_cluster import FakeCluster, ServedLog, served

from segreader.errors import OffsetOutOfRangeError, OptionError, TruncatedLogError
from segreader.isolation import IsolationLevel
from segreader.live.follow import LiveEnds
from segreader.live.scan import LiveScan
from segreader.plan.request import Bounds, LiveEnd, Policy, ReadOptions, RecordFilter, Request, TimeRange
from segreader.read.metrics import LiveMetrics
from segreader.testing.builder import SegmentBuilder
from segreader.testing.records import ProducerRecord

TOPIC = "orders"


class Growing:
    """Partitions to which batches are added while they are followed."""

    def __init__(self, *partitions: SegmentBuilder) -> None:
        self.built = list(partitions)
        self.logs = [ServedLog(served(one.to_bytes()), [(0, 0)]) for one in partitions]
        self.cluster = FakeCluster({TOPIC: dict(enumerate(self.logs))})

    def grown(self, partition: int = 0) -> None:
        """The cluster has what was built since."""
        self.logs[partition].batches[:] = served(self.built[partition].to_bytes())

    def scan(self, level: str = "read_committed", *, where: RecordFilter | None = None, **asked: Any) -> LiveScan:
        request = Request(topic=TOPIC, isolation_level=IsolationLevel(level), **asked)
        return LiveScan(lambda: self.cluster, request, options=ReadOptions(where=where))


def rows(batch: pa.RecordBatch) -> list[tuple[int, int, bytes]]:
    return list(
        zip(*(batch.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True),
    )


def test_what_is_appended_comes_once_behind_the_snapshot() -> None:
    log = Growing(SegmentBuilder().batch([b"a", b"b"]), SegmentBuilder())
    followed = log.scan().follow(every_s=0)
    assert rows(next(followed)) == [(0, 0, b"a"), (0, 1, b"b")]
    log.built[1].batch([b"x"])
    log.grown(1)
    assert rows(next(followed)) == [(1, 0, b"x")]
    log.built[0].batch([b"c"])
    log.built[1].batch([b"y"])
    log.grown(0)
    log.grown(1)
    assert rows(next(followed)) == [(0, 2, b"c")]
    assert rows(next(followed)) == [(1, 1, b"y")]


def test_a_transaction_comes_when_it_is_committed_and_an_aborted_one_never() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]))
    followed = log.scan().follow(every_s=0)
    eager = log.scan("read_uncommitted").follow(every_s=0)
    assert rows(next(followed)) == rows(next(eager)) == [(0, 0, b"a")]
    log.built[0].batch([b"gone"], producer_id=7, transactional=True).batch([b"kept"], producer_id=8, transactional=True)
    log.grown()
    assert rows(next(eager)) == [(0, 1, b"gone"), (0, 2, b"kept")]
    log.built[0].marker(7, abort=True).marker(8).batch([b"b"])
    log.grown()
    assert rows(next(followed)) == [(0, 2, b"kept"), (0, 5, b"b")]
    assert rows(next(eager)) == [(0, 5, b"b")]


def test_the_last_records_and_a_filter_go_on_at_the_end() -> None:
    log = Growing(SegmentBuilder().batch([ProducerRecord(b"%d" % at, b"k%d" % (at % 2)) for at in range(10)]))
    last = log.scan(last=2).follow(every_s=0)
    keyed = log.scan(where=RecordFilter(key=b"k1")).follow(every_s=0)
    assert rows(next(last)) == [(0, 8, b"8"), (0, 9, b"9")]
    assert [row[1] for row in rows(next(keyed))] == [1, 3, 5, 7, 9]
    log.built[0].batch([ProducerRecord(b"10", b"k0"), ProducerRecord(b"11", b"k1")])
    log.grown()
    assert [row[1] for row in rows(next(last))] == [10, 11]
    assert [row[1] for row in rows(next(keyed))] == [11]


def test_an_election_that_takes_away_what_was_read_is_an_error() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]).batch([b"b"]).batch([b"c"]))
    followed = log.scan().follow(every_s=0)
    next(followed)
    other = SegmentBuilder().batch([b"a"]).new_leader(1)
    log.logs[0].batches[:] = served(other.batch([b"B"]).batch([b"C"]).batch([b"D"]).to_bytes())
    log.logs[0].lineage[:] = [(0, 0), (1, 1)]
    with pytest.raises(TruncatedLogError, match="no longer in the log"):
        next(followed)


def test_an_end_that_is_lower_for_a_moment_is_waited_for() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]).batch([b"b"]))
    followed = log.scan().follow(every_s=0)
    assert len(rows(next(followed))) == 2
    log.logs[0].high_watermark = 1
    asked = len(log.cluster.requests)
    later: Iterator[pa.RecordBatch] = followed

    def list_offsets(wanted: Any, level: Any) -> Any:
        if len(log.cluster.requests) > asked + 5 and log.logs[0].high_watermark is not None:
            log.logs[0].high_watermark = None
            log.built[0].batch([b"c"])
            log.grown()
        return FakeCluster.list_offsets(log.cluster, wanted, level)

    log.cluster.list_offsets = list_offsets  # type: ignore[method-assign, assignment]
    assert rows(next(later)) == [(0, 2, b"c")]


def test_what_retention_deletes_before_it_is_read_is_an_error_or_a_note() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]))
    strict, lax = log.scan(), log.scan()
    lax.options = replace(lax.options, on_gap=Policy.SKIP)
    strictly, laxly = strict.follow(every_s=0), lax.follow(every_s=0)
    next(strictly), next(laxly)
    log.built[0].batch([b"b"]).batch([b"c"])
    log.grown()
    log.logs[0].log_start = log.logs[0].local_start = 2
    with pytest.raises(OffsetOutOfRangeError):
        next(strictly)
    assert rows(next(laxly)) == [(0, 2, b"c")]
    assert any("offsets 1 to 1" in note for note in lax.metrics.notes)


def test_partitions_that_are_added_are_found() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]))
    scan = log.scan()
    now = [0.0]
    ends = LiveEnds(
        log.cluster, scan.request, ReadOptions(), scan.plan(), every_s=1, metrics=LiveMetrics(),
        sleep=lambda s: now.__setitem__(0, now[0] + s), clock=lambda: now[0],
    )  # fmt: skip
    log.cluster.logs[TOPIC][1] = ServedLog(served(SegmentBuilder().batch([b"new"]).to_bytes()), [(0, 0)])
    plan = next(ends.plans())
    assert [(one.partition.partition, one.seam.start, one.seam.stop) for one in plan.partitions_asked] == [(1, 0, 1)]
    assert 30 <= now[0] <= 31


@pytest.mark.parametrize(
    "bounds", [Bounds(stop=5), Bounds(times=TimeRange(None, 5))], ids=["offsets", "until"]
)  # fmt: skip
def test_what_has_an_end_is_not_followed(bounds: Bounds) -> None:
    with pytest.raises(OptionError, match="cannot be followed"):
        Growing(SegmentBuilder()).scan(bounds=bounds).follow()


def test_latest_stable_holds_for_a_reader_of_everything_too() -> None:
    log = Growing(SegmentBuilder().batch([b"a"]).batch([b"open"], producer_id=7, transactional=True))
    followed = log.scan("read_uncommitted", bounds=Bounds(end=LiveEnd.LATEST_STABLE)).follow(every_s=0)
    assert rows(next(followed)) == [(0, 0, b"a")]
    log.built[0].marker(7, abort=True)
    log.grown()
    assert rows(next(followed)) == [(0, 1, b"open")]
