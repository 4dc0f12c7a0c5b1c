"""The splits of a job where brokers are asked: parts of a live plan, whose ends are pinned when the plan is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from segreader.backfill.exact import JobSplit, PartitionRange
from segreader.backfill.lost import LostOffsets
from segreader.plan.live import LivePart
from segreader.segment import TopicIdPartition
from segreader.spark.live_cutting import cut_by_offsets
from segreader.spark.live_planning import LiveRead

MOST_OFFSETS: Final = 1 << 22
"""Size of a split whose bytes are unknown: finished parts of a partition that brokers have are not repeated."""

_WHY_LOST: Final = "no broker and no segment has them"


def live_splits(read: LiveRead) -> tuple[tuple[JobSplit, ...], tuple[PartitionRange, ...]]:
    """The splits of a plan, and what they cover of each partition."""
    parts: dict[TopicIdPartition, list[LivePart]] = defaultdict(list)
    for part in sorted(read.parts, key=lambda part: part.offsets.start):
        known = part.size is not None
        parts[part.partition] += [part] if known else cut_by_offsets(part, MOST_OFFSETS)
    ends = {end.partition: end for end in read.plan.ends}
    splits: list[JobSplit] = []
    ranges = []
    for told in sorted(read.plan.partitions_asked, key=lambda one: one.partition.order):
        mine = [JobSplit(part.offsets.start, part.stop, part) for part in parts[told.partition]]
        splits += mine
        end = ends[told.partition]
        ranges.append(
            PartitionRange(
                told.partition.topic,
                told.partition.partition,
                told.seam.start,
                told.seam.stop,
                sum(split.size for split in mine),
                len(mine),
                replace(end, offset=told.seam.stop).text,
                end.reason.is_early,
                _lost_of(read, told.partition),
            )
        )
    return tuple(splits), tuple(ranges)


def _lost_of(read: LiveRead, partition: TopicIdPartition) -> tuple[LostOffsets, ...]:
    gaps: Sequence[LostOffsets] = [
        LostOffsets(gap.start, gap.stop, _WHY_LOST) for gap in read.lost if gap.partition == partition
    ]
    return tuple(sorted(gaps))
