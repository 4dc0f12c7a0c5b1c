"""Splits whose offsets follow each other without a gap and without an overlap, so that coverage can be proved.

The planner gives each split offsets of its own. Here those between two splits belong to one of them or are lost, and
the last one of a partition has an end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from segreader.backfill.lost import LostOffsets, lost_between, lost_outside
from segreader.plan.live import LivePart
from segreader.plan.split import EndReason, Gap, ReadEnd, ReadPlan, Split
from segreader.ranges import OffsetRange
from segreader.read.options import ReadOptions
from segreader.read.split_reader import SplitReader
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.segment_ends import read_last_offset

_WHY_LOST: Final = "no segment has them"


@dataclass(frozen=True, slots=True)
class JobSplit:
    """One unit of work that is done once: offsets ``start <= offset < stop``, and how to read their records.

    ``read.offsets`` may be narrower: offsets before or behind that hold nothing belong to the split, too. What is read
    is a piece of a segment, or, where brokers are asked, a part of a live log.
    """

    start: int
    stop: int
    read: Split | LivePart

    def __post_init__(self) -> None:
        wanted = self.read.offsets
        if wanted.stop is None or not self.start <= wanted.start < wanted.stop <= self.stop:
            raise ValueError(f"not the offsets of a split: {self.start} to {self.stop} around {wanted}")

    @property
    def partition(self) -> TopicIdPartition:
        """Whose records."""
        return self.read.partition

    @property
    def id(self) -> str:
        """A name for it that is the same in every run of the plan."""
        return f"{self.partition}-{self.start:020d}-{self.stop:020d}"

    @property
    def size(self) -> int:
        """Stored bytes; none where brokers have it, who do not tell."""
        return self.read.positions.size if isinstance(self.read, Split) else self.read.size or 0


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What is planned of one partition: offsets ``start <= offset < stop``, the same where there is nothing.

    Args:
        end: why it ends there, as a sentence.
        is_early: whether there is more that cannot be returned yet.
        lost: offsets that were asked for and that no segment has; those between splits belong to none of them.
    """

    topic: str
    partition: int
    start: int
    stop: int
    size: int = 0
    splits: int = 0
    end: str = ""
    is_early: bool = False
    lost: tuple[LostOffsets, ...] = ()


def job_splits(
    plan: ReadPlan, store: ObjectStore, lost: Sequence[Gap] = ()
) -> tuple[tuple[JobSplit, ...], tuple[PartitionRange, ...]]:
    """The splits of a read plan as units of work, and what they cover of each partition.

    Args:
        plan: made with ``SplitOffsets.INDEXED``.
        store: the one that the plan was made from.
        lost: what was asked for and is in no segment.

    Raises:
        FormatError: damage hides where a partition ends.
        StorageError: the end of a log cannot be read.
    """
    parts: dict[TopicIdPartition, list[Split]] = defaultdict(list)
    for split in plan.splits:
        parts[split.partition].append(split)
    splits: list[JobSplit] = []
    ranges = []
    for end in plan.ends:
        read = _closed(parts.get(end.partition, []), store)
        gone = [LostOffsets(gap.start, gap.stop, _WHY_LOST) for gap in lost if gap.partition == end.partition]
        mine = list(_adjoining(read, end, gone))
        splits += mine
        start = mine[0].start if mine else (end.offset or 0)
        stop = mine[-1].stop if mine else start
        ranges.append(
            PartitionRange(
                end.partition.topic,
                end.partition.partition,
                start,
                stop,
                sum(split.size for split in mine),
                len(mine),
                replace(end, offset=stop).text,
                end.reason.is_early,
                _lost_of(mine, lost_outside(start, stop, gone), gone),
            )
        )
    return tuple(splits), tuple(ranges)


def _closed(splits: Sequence[Split], store: ObjectStore) -> list[Split]:
    """The splits of a partition, the last one with an end; without those that hold nothing that is wanted."""
    closed = list(splits)
    if closed and closed[-1].stop_of_part is None:  # only its last batch tells where the log ends
        last = closed.pop()
        stop = _read_stop(store, last)
        if last.offsets.stop is not None:
            stop = min(stop, last.offsets.stop)
        if last.offsets.start < stop:
            aborted = last.aborted.within(last.offsets.start, stop) if len(last.aborted) else last.aborted
            closed.append(replace(last, offsets=OffsetRange(last.offsets.start, stop), aborted=aborted))
    return [one for one in closed if one.offsets.start != one.offsets.stop]


def _read_stop(store: ObjectStore, part: Split) -> int:
    """The offset after the last one of the log that a split ends with."""
    segment = Segment(
        part.partition,
        part.base_offset,
        part.log_size,
        SegmentFiles(part.log, offset_index=part.offset_index),
        is_active=part.is_active,
        is_padded=part.is_padded,
    )
    last = read_last_offset(store, segment)
    if last is not None:
        return last + 1
    reader = SplitReader(store, ReadOptions(columns=("offset",)))
    for _ in reader.read(part):  # raises where the damage is
        pass
    return reader.next_offset


def _adjoining(pieces: Sequence[Split], end: ReadEnd, lost: Sequence[LostOffsets]) -> Iterator[JobSplit]:
    """The pieces as splits that follow each other: offsets in between hold no record, or are lost."""
    start = pieces[0].offsets.start if pieces else 0
    for number, piece in enumerate(pieces):
        stop = piece.offsets.stop
        assert stop is not None
        following = stop
        if number + 1 < len(pieces):
            following = pieces[number + 1].offsets.start
            gap = lost_between(stop, following, lost)
            stop, following = (following, following) if gap is None else (gap.start, gap.stop)
        elif end.offset is not None and end.reason is EndReason.END_OF_DATA:
            stop = max(stop, end.offset)
        yield JobSplit(start, stop, piece)
        start = following


def _lost_of(
    splits: Sequence[JobSplit], outside: Sequence[LostOffsets], lost: Sequence[LostOffsets]
) -> tuple[LostOffsets, ...]:
    """What is lost beside the splits of a partition and between them, by offset."""
    between = [lost_between(before.stop, after.start, lost) for before, after in pairwise(splits)]
    return tuple(sorted([*outside, *filter(None, between)]))
