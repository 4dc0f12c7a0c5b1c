"""What to read of a log that a broker still serves: which offsets from where. Pure: marks in, parts out.

A tiered partition is in two places that overlap. Below the *seam* its records come from the object store, from there
on from the broker. A plan is a snapshot: the end is requested once, and nothing after it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from segreader.errors import OffsetOutOfRangeError, shown_count
from segreader.format.checkpoints import LeaderEpochs
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.cut import Cutting, SplitOffsets
from segreader.plan.lineage import ResolvedLog, epochs_within
from segreader.plan.split import ReadPlan, Split
from segreader.ranges import OffsetRange
from segreader.segment import TopicIdPartition
from segreader.values import dataclass

BEYOND = (1 << 63) - 1
"""The last offset of an aborted transaction whose marker is after everything that is read."""


class ReadFrom(StrEnum):
    """Where the bytes of some offsets come from."""

    STORE = "store"
    LOCATION = "location"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class LogMarks:
    """The ends of a partition, requested one after another: no snapshot, and clamped where they are used.

    Args:
        log_start: the first offset that is retained, in whichever tier.
        end: the first offset that a reader of the wanted isolation level may not read.
        local_start: the first offset on the broker's own disk; ``None`` from a broker that does not tell.
        last_tiered: the last offset in the object store, inclusive; -1 where nothing is, or a new leader does not know.
        leader_epoch: of the leader that told the end; -1 if it is not told. Nothing below the end is of a later one.

    Source: KIP-405, KIP-1005.
    """

    log_start: int
    end: int
    local_start: int | None = None
    last_tiered: int | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Seam:
    """Offsets ``start <= offset < seam`` from the object store, ``seam <= offset < stop`` from the broker.

    ``lost`` are offsets that were asked for and are deleted.
    """

    start: int
    seam: int
    stop: int
    lost: OffsetRange | None = None


def place_seam(
    marks: LogMarks,
    partition: TopicIdPartition,
    *,
    start: int | None = None,
    stop: int | None = None,
    prefers_store: bool = False,
    may_have_lost: bool = False,
) -> Seam:
    """Which of the offsets asked for come from which side.

    Args:
        start: the first one wanted; by default the first there is.
        stop: the first one not wanted any more; by default where the log ends.
        prefers_store: whether to read what both tiers have from the object store, to spare brokers.
        may_have_lost: whether to begin at what is left where the first offsets are deleted.

    Raises:
        OffsetOutOfRangeError: offsets are deleted, or the first one is beyond the end.
    """
    end = max(marks.end, marks.log_start)
    first = marks.log_start if start is None else start
    lost = None
    if first < marks.log_start:
        gone = marks.log_start if stop is None else min(stop, marks.log_start)
        if not may_have_lost and first < gone:
            raise OffsetOutOfRangeError(
                f"the first offsets requested of {partition} are deleted",
                offset=first,
                found=f"the log begins at {marks.log_start}",
                hint="Begin there, or read what is left with on_gap='skip' (--on-gap skip)",
            )
        lost = OffsetRange(first, gone) if first < gone else None
        first = gone
    if first > end:
        raise OffsetOutOfRangeError(
            f"the first offset requested of {partition} is beyond the end",
            offset=first,
            found=f"the log can be read up to {end}",
            hint="Ask for a lower offset; of a lost branch nothing is there any more",
        )
    last = max(first, end if stop is None else min(stop, end))
    return Seam(first, min(max(_remote_stop(marks, prefers_store), first), last), last, lost)


def _remote_stop(marks: LogMarks, prefers_store: bool) -> int:
    if marks.local_start is None:
        return max(marks.end, marks.log_start)
    local = max(marks.local_start, marks.log_start)
    if prefers_store and marks.last_tiered is not None and marks.last_tiered >= 0:
        return max(local, marks.last_tiered + 1)
    return local


@dataclass(frozen=True, slots=True)
class LivePart:
    """Offsets of one partition and where to read them: the work of one worker. It has no client and no secret.

    Args:
        offsets: the ones wanted, both ends known.
        epochs: leader epochs of the live log and the first offset of each, starting with the epoch of
            ``offsets.start``.
        position_epoch: the epoch of the record before the first offset, to detect truncation; -1: unknown.
        splits: of a part from the store: those of one segment, whose offsets are the part's.
        aborted: of a part by location: the aborted transactions that overlap it, with their ends; ``None``: as in the
            response with the location.
        segment_id: of a part by location, as it was when it was planned.
        size: stored bytes, where they are known.
        hole: of a part by the broker: what the store lacks, as text.
    """

    partition: TopicIdPartition
    offsets: OffsetRange
    read_from: ReadFrom
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    epochs: tuple[tuple[int, int], ...] = ()
    position_epoch: int = -1
    splits: tuple[Split, ...] = ()
    aborted: AbortedTransactions | None = None
    segment_id: str | None = None
    size: int | None = None
    hole: str | None = None

    @property
    def stop(self) -> int:
        """The first offset after the part."""
        if self.offsets.stop is None:
            raise ValueError("a part of a live log has an end")
        return self.offsets.stop


@dataclass(frozen=True, slots=True)
class LivePartition:
    """The plan of one partition.

    Args:
        marks: as its leader returned them.
        seam: which offsets come from which side.
        leader_epochs: the lineage from the first offset wanted on.
    """

    partition: TopicIdPartition
    marks: LogMarks
    seam: Seam
    leader_epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LivePlan(ReadPlan):
    """Everything a read of a live log will do: ``parts`` in the order of records; ``splits`` are those of the store."""

    parts: tuple[LivePart, ...] = ()
    partitions_asked: tuple[LivePartition, ...] = ()

    @property
    def size(self) -> int:
        """Stored bytes of the parts whose bytes are known."""
        return sum(part.size or 0 for part in self.parts)

    def __str__(self) -> str:
        """What is read of each partition and from where, and where it ends, a line each."""
        lines = [f"{self.location}: {shown_count(len(self.parts), 'part')}"]
        ends = {end.partition: end for end in self.ends}
        for one in self.partitions_asked:
            seam = one.seam
            lines.append(
                f"  {one.partition}: {seam.start} to {seam.seam} from the object store, to {seam.stop} from the broker"
            )
            if one.partition in ends:
                lines.append(f"  {ends[one.partition].text}")
        lines += [f"  missing: {gap.text}" for gap in self.gaps]
        return "\n".join(lines)


def epochs_from(lineage: LeaderEpochs, start: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a lineage from the one on that holds ``start``."""
    return epochs_within(lineage, start, BEYOND)


def epoch_before(lineage: LeaderEpochs, offset: int) -> int:
    """The epoch of the record before ``offset``; -1 where the lineage does not tell."""
    epoch = lineage.epoch_for(offset - 1) if offset else None
    return -1 if epoch is None else epoch


def narrowed(part: LivePart, offsets: OffsetRange) -> LivePart:
    """The part with fewer offsets; its splits and its size are left as they are."""
    if offsets == part.offsets:
        return part
    epoch = part.position_epoch
    if offsets.start > part.offsets.start:
        epoch = max((one for one, start in part.epochs if start < offsets.start), default=epoch)
    first = max((at for at, (_, start) in enumerate(part.epochs) if start <= offsets.start), default=0)
    aborted = None if part.aborted is None else part.aborted.within(offsets.start, offsets.stop or offsets.start)
    return replace(part, offsets=offsets, epochs=part.epochs[first:], position_epoch=epoch, aborted=aborted)


def joined(parts: Iterable[LivePart]) -> list[LivePart]:
    """The parts of one partition, in order; those of the broker that follow each other as one."""
    found: list[LivePart] = []
    for part in parts:
        last = found[-1] if found and found[-1].read_from is part.read_from is ReadFrom.BROKER else None
        if last is not None and last.stop == part.offsets.start:
            offsets = OffsetRange(last.offsets.start, part.stop)
            found[-1] = replace(last, offsets=offsets, hole=last.hole or part.hole)
        else:
            found.append(part)
    return found


def cut_by_offsets(part: LivePart, cutting: Cutting) -> Iterator[LivePart]:
    """A part of the broker or by location in pieces, in order: its index is not at hand, but a request for any of its
    offsets returns the broker's records or the location. Whole where splits share the offsets of their segment."""
    count, most = part.stop - part.offsets.start, cutting.most_offsets
    if cutting.offsets is not SplitOffsets.SHARED:
        due = (
            cutting.most_unsized if part.size is None else max(1, count // max(1, -(-part.size // cutting.split_bytes)))
        )
        most = min((one for one in (most, due) if one is not None), default=None)
    if most is None or count <= most:
        yield part
        return
    for start in range(part.offsets.start, part.stop, most):
        stop = min(start + most, part.stop)
        size = None if part.size is None else part.size * (stop - start) // count
        yield replace(narrowed(part, OffsetRange(start, stop)), size=size)


def covered(log: ResolvedLog, wanted: OffsetRange) -> list[OffsetRange]:
    """The offsets wanted that the store has, in runs without a hole."""
    runs: list[OffsetRange] = []
    for part in log.parts:
        start = max(part.start, wanted.start)
        stop = part.stop if wanted.stop is None else min(part.stop, wanted.stop)
        if start >= stop:
            continue
        if runs and runs[-1].stop == start:
            runs[-1] = OffsetRange(runs[-1].start, stop)
        else:
            runs.append(OffsetRange(start, stop))
    return runs


def uncovered(wanted: OffsetRange, runs: Sequence[OffsetRange]) -> list[OffsetRange]:
    """What is left of the offsets wanted (with an end) when the runs, in order, are taken out."""
    rest, at = [], wanted.start
    for run in runs:
        if at < run.start:
            rest.append(OffsetRange(at, run.start))
        at = run.stop or at
    if wanted.stop is not None and at < wanted.stop:
        rest.append(OffsetRange(at, wanted.stop))
    return rest
