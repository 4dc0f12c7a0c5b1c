"""Which segment delivers which offset: overlapping and diverged copies, resolved by leader epochs.

An epoch and an offset name one record, in every upload. The lineage says which epoch wrote each offset of the
history that survived, so a segment counts only where its own epochs say the same. Where several do, one delivers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import nlargest
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from segreader.format.checkpoints import LeaderEpoch, LeaderEpochs
from segreader.segment import Segment, TopicIdPartition
from segreader.values import dataclass

_Run = tuple[int, int, int, str, int]
"""Offsets that the lineage confirms: start, -stop, -version, name and number of the segment. The best sorts first."""

_START_OFFSET = attrgetter("start_offset")


class DropReason(StrEnum):
    """Why offsets of a segment are not delivered from it."""

    DUPLICATE = "duplicate"
    DIVERGED = "diverged"
    BELOW_LOG_START = "below-log-start"

    @property
    def text(self) -> str:
        """The reason as half a sentence about the offsets."""
        match self:
            case DropReason.DUPLICATE:
                return "another copy holds these offsets"
            case DropReason.DIVERGED:
                return "its leader epoch did not write these offsets in the lineage"
            case DropReason.BELOW_LOG_START:
                return "these offsets are below the log start offset"


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets ``start <= offset < stop`` are delivered from ``segment``."""

    segment: Segment
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Offsets ``start <= offset < stop`` of ``segment`` are not delivered from it."""

    segment: Segment
    start: int
    stop: int
    reason: DropReason

    @property
    def text(self) -> str:
        """Which offsets, and what decided; the segment is not named."""
        what = f"offsets {self.start}-{self.stop - 1}: {self.reason.text}"
        if self.reason is DropReason.DIVERGED and self.segment.epochs:
            own = epochs_within(self.segment.epochs, self.start, self.stop)
            what += f" (its epochs here: {own[0][0]}" + (f" to {own[-1][0]})" if len(own) > 1 else ")")
        return what

    @property
    def deciding_offsets(self) -> tuple[int, ...]:
        """Where the batches must bear the epochs that the segment claims, for these offsets to be dropped justly.

        Epochs do not fall in a log: where the first and the last batch of an epoch bear it, so does every other one.
        """
        own = epochs_within(self.segment.epochs or LeaderEpochs(), self.start, self.stop)
        borders = [offset for _, offset in own if offset > self.start]
        return tuple(sorted({self.start, self.stop - 1, *borders, *(offset - 1 for offset in borders)}))


@dataclass(frozen=True, slots=True)
class OffsetHole:
    """Offsets ``start <= offset < stop`` are in no segment that counts, but some before and after are."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ResolvedLog:
    """One history of a partition: every offset at most once, and what became of all others.

    Args:
        lineage: normalised; ``None`` where leader epochs were not looked at.
        parts: by offset, none overlapping.
        holes: between the parts. What is missing before the first was deleted, after the last not yet uploaded.
        dropped: by offset. Each offset of each segment is in one part or in one of these.
        is_assumed: the lineage was put together from the segments' own epochs: no leader ever stated it.
    """

    partition: TopicIdPartition
    lineage: LeaderEpochs | None
    parts: tuple[Part, ...]
    holes: tuple[OffsetHole, ...]
    dropped: tuple[Dropped, ...]
    is_assumed: bool

    @property
    def start(self) -> int:
        """The first offset delivered; 0, as ``stop``, where none is."""
        return self.parts[0].start if self.parts else 0

    @property
    def first(self) -> int:
        """The first offset that is delivered, or that a segment which is missing should deliver."""
        return min([*(part.start for part in self.parts[:1]), *(hole.start for hole in self.holes[:1])], default=0)

    @property
    def stop(self) -> int:
        """One more than the last offset delivered."""
        return self.parts[-1].stop if self.parts else 0


def newest_first(segments: Iterable[Segment], most: int | None = None) -> list[Segment]:
    """The segments in the order in which their leader-epoch files should be tried as the lineage.

    Each has the whole lineage of its uploader, and the leader of the highest epoch knows of all truncations before.
    It is wrong after an unclean election as long as the surviving leader has uploaded nothing.

    Args:
        most: how many to give; all of them, unless given.
    """
    return sorted(segments, key=_newness, reverse=True) if most is None else nlargest(most, segments, key=_newness)


def _newness(segment: Segment) -> tuple[int, int, int]:
    highest = segment.epochs.entries[-1].epoch if segment.epochs else -1
    last = segment.base_offset if segment.last_offset is None else segment.last_offset
    return (highest, last, segment.version)


def assumed_lineage(segments: Iterable[Segment], known: LeaderEpochs | None = None) -> LeaderEpochs:
    """A lineage made of the segments' own epochs, each from where it begins first: for want of a leader's own.

    It is followed down from the highest epoch: to the one before it in a segment that holds both, else to the next
    lower one that begins earlier. So an epoch of a history that was given up may be in it, if no segment shows that
    it was passed over. Empty where no segment knows its epochs.

    Args:
        known: what a leader stated. It is continued by the epochs above its own, and cut where these leave it.
    """
    first: dict[int, int] = {}
    before: dict[int, int] = {}
    for segment in segments:
        previous = -1
        for entry in segment.epochs or ():
            if first.get(entry.epoch, entry.start_offset) >= entry.start_offset:
                first[entry.epoch] = entry.start_offset
            before[entry.epoch] = max(before.get(entry.epoch, -1), previous)
            previous = entry.epoch
    stated = known.entries if known else ()
    newest = stated[-1].epoch if stated else -1
    above: list[LeaderEpoch] = []
    for epoch in sorted((epoch for epoch in first if epoch > newest), reverse=True):
        after = above[-1] if above else None
        if after is not None and (first[epoch] >= after.start_offset or epoch > before[after.epoch] >= 0):
            continue  # the one after it began on a log that did not have it
        above.append(LeaderEpoch(epoch, first[epoch]))
    if not above:
        return known or LeaderEpochs()
    least = above[-1]
    limit = before[least.epoch] if before[least.epoch] >= 0 else newest
    below = [one for one in stated if one.epoch <= limit and one.start_offset < least.start_offset]
    return LeaderEpochs(_writers([*below, *reversed(above)]))


class EpochSpan(NamedTuple):
    """The batches of a log from ``first_offset`` to ``last_offset`` (inclusive) all bear ``epoch``."""

    epoch: int
    first_offset: int
    last_offset: int


def epochs_of_batches(
    spans: Sequence[EpochSpan], base_offset: int, last_offset: int, lineage: LeaderEpochs | None
) -> LeaderEpochs:
    """The epochs of one segment, of what its batches bear: as ``clip`` gives them of its checkpoint.

    The cleaner may have left no batch where an epoch began: the lineage tells what it wrote between two batches that
    are of the lineage.

    Args:
        spans: rising.
        base_offset, last_offset: of the segment.
    """
    entries: list[LeaderEpoch] = []
    at, is_of_lineage = base_offset, True
    for span in spans:
        was_of_lineage = is_of_lineage
        is_of_lineage = lineage is not None and lineage.epoch_for(span.first_offset) == span.epoch
        if lineage is not None and was_of_lineage and is_of_lineage:
            _append(entries, clip(lineage, at, span.first_offset))
        else:
            _append(entries, [LeaderEpoch(span.epoch, max(span.first_offset, base_offset) if entries else base_offset)])
        at = span.last_offset
        is_of_lineage = lineage is not None and lineage.epoch_for(at) == span.epoch
    if lineage is not None and entries and is_of_lineage and at < last_offset:
        _append(entries, clip(lineage, at, last_offset))
    return LeaderEpochs(tuple(entries))


def _append(entries: list[LeaderEpoch], more: Iterable[LeaderEpoch]) -> None:
    """Add the epochs above those that are there."""
    entries.extend(one for one in more if not entries or one.epoch > entries[-1].epoch)


def normalised(lineage: LeaderEpochs) -> LeaderEpochs:
    """The lineage without the epochs that wrote nothing."""
    return LeaderEpochs(_writers(lineage))


def _writers(entries: Iterable[LeaderEpoch]) -> tuple[LeaderEpoch, ...]:
    """The entries, given by epoch, without those that do not begin before all later ones."""
    kept: list[LeaderEpoch] = []
    for entry in entries:
        while kept and kept[-1].start_offset >= entry.start_offset:
            kept.pop()
        kept.append(entry)
    return tuple(kept)


def clip(lineage: LeaderEpochs, base_offset: int, last_offset: int) -> LeaderEpochs:
    """The epochs of one segment, of the leader-epoch file that was uploaded with it.

    Args:
        lineage: of the uploader; what it says beyond the segment is left out, and so are epochs without records.
        base_offset: first offset of the segment; the epoch that wrote it begins here.
        last_offset: last offset of the segment (inclusive).
    """
    entries = lineage.entries
    if len(entries) == 1 and entries[0].start_offset <= base_offset <= last_offset:  # as nearly always
        return LeaderEpochs((LeaderEpoch(entries[0].epoch, base_offset),))
    entries = _entries_within(lineage, base_offset, last_offset + 1)
    if entries and entries[0].start_offset < base_offset:
        entries = (LeaderEpoch(entries[0].epoch, base_offset), *entries[1:])
    return LeaderEpochs(entries)


def epochs_within(lineage: LeaderEpochs, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Each epoch that wrote some of ``start <= offset < stop``, and its first offset, which may be below ``start``.

    A reader holds a batch's ``partitionLeaderEpoch`` against the last entry that does not begin after
    ``max(batch.base_offset, start)``: after a delete of records the lineage may begin inside a batch.
    """
    return tuple([(entry.epoch, entry.start_offset) for entry in _entries_within(lineage, start, stop)])


def _entries_within(lineage: LeaderEpochs, start: int, stop: int) -> tuple[LeaderEpoch, ...]:
    if start >= stop:
        return ()
    entries = lineage.entries
    if len(entries) == 1:  # as nearly always
        return entries if entries[0].start_offset < stop else ()
    first = max(0, bisect_right(entries, start, key=_START_OFFSET) - 1)
    some = entries[first : bisect_left(entries, stop, lo=first, key=_START_OFFSET)]
    return _writers(some) if len(some) > 1 else some


class EpochStarts:
    """Remembers where each epoch of a partition begins by its checkpoints."""

    def __init__(self) -> None:
        self._starts: dict[int, dict[int, tuple[int, str]]] = defaultdict(dict)

    def add(self, checkpoint: LeaderEpochs, name: str) -> None:
        """Take a segment's checkpoint, which is the object ``name``."""
        for entry in checkpoint.entries[1:]:  # the first one moves with the log start
            starts = self._starts[entry.epoch]
            count, first = starts.get(entry.start_offset, (0, name))
            starts[entry.start_offset] = (count + 1, first)

    def differing(self) -> list[tuple[int, int, str, int, int]]:
        """Each other start of an epoch than most checkpoints have.

        Returns:
            The epoch, the start, the first checkpoint that has it, the start that most have, and how many these are.
        """
        found = []
        for epoch, starts in self._starts.items():
            most = max(starts, key=lambda start: starts[start][0])
            found += [(epoch, one, starts[one][1], most, starts[most][0]) for one in sorted(starts.keys() - {most})]
        return found


def resolve(
    partition: TopicIdPartition,
    segments: Sequence[Segment],
    lineage: LeaderEpochs | None,
    *,
    log_start: int | None = None,
    is_assumed: bool = False,
) -> ResolvedLog:
    """Decide for each offset of a partition which segment delivers it. Pure; the order of segments does not matter.

    Of the copies that the lineage confirms at an offset the one that reaches farthest is taken, and used to its end:
    the fewest segments. Among equals the one with the largest ``version`` wins.

    Args:
        segments: finished ones, with their ``last_offset``; it may lie above the last record, and below
            ``base_offset`` for a segment that stands for nothing. Without ``epochs`` a segment is believed everywhere.
        lineage: of the history wanted; ``None``, or an empty one, if leader epochs should decide nothing.
        log_start: the first offset that is not deleted, where it is known; the lineage's own start counts as well.
        is_assumed: what to say of the lineage.

    Raises:
        ValueError: a segment without a ``last_offset``.

    Source: ``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`` (4.3), but offset by offset.
    """
    lineage = normalised(lineage) if lineage else None
    log_start = max(log_start or 0, lineage.entries[0].start_offset if lineage else 0)
    wrote = None if lineage is None else _epoch_ranges(lineage, segments)
    runs: list[_Run] = []
    dropped: list[Dropped] = []
    for number, segment in enumerate(segments):
        at, stop = segment.base_offset, _stop_of(segment)
        for run_start, run_stop in _live_runs(segment, stop, wrote, log_start):
            if at < run_start:
                dropped += _dead(segment, at, run_start, log_start)
            at = run_stop
            runs.append((run_start, -run_stop, -segment.version, segment.segment_id or segment.files.log, number))
        if at < stop:
            dropped += _dead(segment, at, stop, log_start)
    runs.sort()
    parts = _cover(runs, segments, dropped)
    dropped.sort(key=attrgetter("start", "stop"))
    holes = tuple(OffsetHole(one.stop, two.start) for one, two in pairwise(parts) if one.stop < two.start)
    return ResolvedLog(partition, lineage, tuple(parts), holes, tuple(dropped), is_assumed)


def _stop_of(segment: Segment) -> int:
    if segment.last_offset is None:
        raise ValueError(f"{segment.files.log}: the last offset of a segment must be known to resolve it")
    return segment.last_offset + 1


def _epoch_ranges(lineage: LeaderEpochs, segments: Sequence[Segment]) -> dict[int, tuple[int, int]]:
    """Start and stop of each epoch; the last one ends with the segments."""
    entries = lineage.entries
    starts = [entry.start_offset for entry in entries]
    end = max(map(_stop_of, segments), default=0)
    return {entry.epoch: (entry.start_offset, stop) for entry, stop in zip(entries, [*starts[1:], end], strict=True)}


def _live_runs(
    segment: Segment, stop: int, wrote: Mapping[int, tuple[int, int]] | None, log_start: int
) -> list[tuple[int, int]]:
    """The offsets of a segment where its own epochs and the lineage agree, joined where they touch."""
    start = max(segment.base_offset, log_start)
    if start >= stop:
        return []
    entries = segment.epochs.entries if segment.epochs is not None else ()
    if wrote is None or not entries:
        return [(start, stop)]
    runs: list[tuple[int, int]] = []
    for index, entry in enumerate(entries, start=1):
        if (live := wrote.get(entry.epoch)) is None:
            continue
        own_stop = entries[index].start_offset if index < len(entries) else stop
        first, after = max(start, entry.start_offset, live[0]), min(stop, own_stop, live[1])
        if first >= after:
            continue
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], after)
        else:
            runs.append((first, after))
    return runs


def _dead(segment: Segment, start: int, stop: int, log_start: int) -> Iterator[Dropped]:
    """Offsets that no lineage confirms. Where a segment's own epochs begin inside it, its uploader's log did, too."""
    if segment.epochs:
        log_start = max(log_start, segment.epochs.entries[0].start_offset)
    if start < log_start:
        yield Dropped(segment, start, min(stop, log_start), DropReason.BELOW_LOG_START)
    if stop > log_start:
        yield Dropped(segment, max(start, log_start), stop, DropReason.DIVERGED)


def _cover(runs: Iterable[_Run], segments: Sequence[Segment], dropped: list[Dropped]) -> list[Part]:
    """The fewest parts that deliver every offset of the runs; what they leave over goes to ``dropped``.

    ``held`` is the best of the runs that begin where the parts end or before. A run that loses against it ends no
    later: others deliver all of it.
    """
    parts: list[Part] = []
    held: _Run | None = None
    end = 0

    def settle(run: _Run) -> int:
        """Deliver what the run has beyond the end of the parts. Returns their new end."""
        start, stop, segment = run[0], -run[1], segments[run[4]]
        if start < end:
            dropped.append(Dropped(segment, start, min(end, stop), DropReason.DUPLICATE))
            start = end
        if start < stop:
            parts.append(Part(segment, start, stop))
        return max(end, stop)

    for run in runs:
        if held is None:
            held = run
        elif run[0] > end:
            end = settle(held)
            held = run
        else:
            if run[1:3] < held[1:3]:
                held, run = run, held
            dropped.append(Dropped(segments[run[4]], run[0], -run[1], DropReason.DUPLICATE))
    if held is not None:
        settle(held)
    return parts
