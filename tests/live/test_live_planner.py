"""One plan of several live topics: cut as one read, and what it asks of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_cluster import FakeCluster
from served_cluster import tiered_log

from segreader.live.planner import plan_live, plan_topics
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.live import LivePlan, ReadFrom
from segreader.plan.request import Bounds, Request
from segreader.ranges import ByteRange
from segreader.storage.local import LocalStore
from segreader.stored.source import LocationSource
from segreader.testing.builder import SegmentBuilder

BATCHES = 20
TOPICS = ["orders", "payments"]
ALL = Bounds()
ENDS = 4
"""Reads of offset indexes that find where segments end."""


class Reads(LocalStore):
    """Counts the objects that are read, by the ends of their names."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.counts: Counter[str] = Counter()

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        self.counts[name.rpartition(".")[2]] += 1
        return super().read_ranges(name, ranges)


@pytest.fixture
def place(tmp_path: Path) -> tuple[FakeCluster, Reads]:
    """Of each topic two segments in the store and one at the broker, 60 offsets in all."""
    logs = {}
    for topic in TOPICS:
        segments: list[SegmentBuilder] = []
        for _ in range(3):
            segments.append(segments[-1].roll() if segments else SegmentBuilder(index_interval_bytes=1))
            for _ in range(BATCHES):
                segments[-1].batch([b"v" * 100])
        logs[topic] = {0: tiered_log(tmp_path, topic, segments, uploaded=2, local_from=2)}
    return FakeCluster(logs), Reads(tmp_path)


def planned(
    place: tuple[FakeCluster, Reads],
    cutting: Cutting | None,
    *,
    topics: Sequence[str] = TOPICS,
    bounds: Bounds = ALL,
) -> LivePlan:
    cluster, store = place
    requests = [Request(topic=topic, bounds=bounds) for topic in topics]
    return plan_topics(cluster, requests, source=LocationSource("", opened=(store, "")), cutting=cutting)


def test_a_plan_of_one_topic_is_that_of_several_with_one(place: tuple[FakeCluster, Reads]) -> None:
    source = LocationSource("", opened=(place[1], ""))
    alone = plan_live(place[0], Request(topic="orders"), source=source)

    assert planned(place, None, topics=["orders"]) == alone
    assert [(part.read_from, part.offsets.start, part.stop) for part in alone.parts] == [
        (ReadFrom.STORE, 0, 20),
        (ReadFrom.STORE, 20, 40),
        (ReadFrom.BROKER, 40, 60),
    ]


@pytest.mark.parametrize(
    ("cutting", "indexes"),
    [
        (None, 2),  # of those in which the first offset is
        (Cutting(split_bytes=500, offsets=SplitOffsets.INDEXED), 4),
        (Cutting(most_offsets=7, offsets=SplitOffsets.INDEXED), 4),
        (Cutting(least_splits=50, offsets=SplitOffsets.INDEXED), 4),
        (Cutting(least_splits=50, small_bytes=500, offsets=SplitOffsets.INDEXED), 4),
        (Cutting(least_splits=2, small_bytes=500, offsets=SplitOffsets.INDEXED), 2),
    ],
)
def test_an_offset_index_is_read_once_and_only_to_cut(
    place: tuple[FakeCluster, Reads], cutting: Cutting | None, indexes: int
) -> None:
    plan = planned(place, cutting, bounds=Bounds(5))

    assert place[1].counts["index"] - ENDS == indexes
    for topic in TOPICS:
        parts = [part for part in plan.parts if part.partition.topic == topic]
        assert [part.offsets.start for part in parts] == [5, *(part.stop for part in parts[:-1])]
        assert parts[-1].stop == 60


def test_splits_due_are_counted_over_all_topics(place: tuple[FakeCluster, Reads]) -> None:
    plan = planned(place, Cutting(least_splits=12, offsets=SplitOffsets.INDEXED))

    assert {part.stop - part.offsets.start for part in plan.parts} == {10}
    assert len(plan.parts) == 12
    assert len(planned(place, Cutting(least_splits=6, small_bytes=500, offsets=SplitOffsets.INDEXED)).parts) == 6
