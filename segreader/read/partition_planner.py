"""From the segments of partitions to a plan: the one place where listings, indexes and rules are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from segreader.catalog.collector import collector_at_rest
from segreader.errors import FormatError, ObjectNotFoundError, SegmentGapError, TruncatedError
from segreader.format.compression import DEFAULT_LIMIT
from segreader.format.offset_index import OffsetIndex, parse_offset_index
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.lineage import DropReason, Part, ResolvedLog, epochs_within
from segreader.plan.planner import DEFAULT_SPLIT_BYTES, cut_segment, needs_index, offset_at, overlapping
from segreader.plan.split import EndReason, Gap, PlannedDrop, ReadEnd, ReadPlan, Split
from segreader.ranges import OffsetRange
from segreader.read.lineage import ReadableLog, read_lineage
from segreader.read.segment_ends import OPEN_END, read_last_offset
from segreader.read.small_objects import read_each, read_whole
from segreader.read.source import SourceLog
from segreader.read.time_offsets import offsets_between
from segreader.read.times import TimeRange
from segreader.read.transactions import TransactionState, read_transaction_state
from segreader.segment import Segment
from segreader.storage.base import ObjectStore

_AT_ONCE: Final = 16


class PartitionPlanner:
    """Plans one partition after another and keeps what it found; ``plan`` gives it all."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        split_bytes: int = DEFAULT_SPLIT_BYTES,
        on_gap: str = "fail",
        on_corrupt: str = "fail",
        max_batch_bytes: int = DEFAULT_LIMIT,
    ) -> None:
        self._store = store
        self._isolation_level = isolation_level
        self._split_bytes = split_bytes
        self._on_gap = on_gap
        self._on_corrupt = on_corrupt
        self._max_batch_bytes = max_batch_bytes
        self._splits: list[Split] = []
        self._ends: list[ReadEnd] = []
        self._gaps: list[Gap] = []
        self._dropped: list[PlannedDrop] = []
        self._notes: list[str] = []

    def plan(self, location: str) -> ReadPlan:
        """What was added, as one plan."""
        return ReadPlan(
            location,
            tuple(self._splits),
            tuple(self._ends),
            tuple(self._gaps),
            tuple(self._dropped),
            tuple(self._notes),
        )

    def resolve(self, source: SourceLog) -> ReadableLog:
        """Which segment delivers which offset of one partition, for those who choose offsets by it before they add."""
        return read_lineage(
            self._store,
            source.log,
            local=source.local,
            given=source.leader_epochs,
            max_batch_bytes=self._max_batch_bytes,
        )

    def add(
        self,
        source: SourceLog,
        offsets: OffsetRange,
        times: TimeRange | None = None,
        *,
        readable: ReadableLog | None = None,
    ) -> None:
        """Plan one partition. ``readable`` is what ``resolve`` gave for it, if it was asked.

        Raises:
            SegmentGapError: offsets between two segments are in none, and ``on_gap`` is ``fail``.
            FormatError: a transaction index contradicts itself, or a finished log is shorter than its index says.
        """
        readable = readable or self.resolve(source)
        log = readable.resolved
        self._notes += [*source.log.notes, *readable.notes]
        self._dropped += [
            PlannedDrop(log.partition, one.segment.files.log, one.start, one.stop, one.reason, one.text)
            for one in log.dropped
            if source.local is None or one.reason is not DropReason.DUPLICATE  # both tiers hold the same
        ]
        if times is not None:
            offsets = offsets_between(self._store, log, times, offsets, max_batch_bytes=self._max_batch_bytes)
        state = None
        if self._isolation_level is IsolationLevel.READ_COMMITTED:
            state = read_transaction_state(self._store, log, offsets, max_batch_bytes=self._max_batch_bytes)
        end = self._end(log, offsets, state)
        self._ends.append(end)
        wanted = offsets
        if end.reason.is_early:
            wanted = OffsetRange(offsets.start, max(offsets.start, end.offset or 0))
        gaps = self._find_gaps(log, wanted, state)
        with collector_at_rest():
            chosen = [
                (part, some)
                for part, part_offsets in overlapping(log.parts, wanted)
                for some in _without(part_offsets, gaps)
            ]
        self._add_splits(log, chosen, state.aborted if state is not None else AbortedTransactions())

    def _end(self, log: ResolvedLog, offsets: OffsetRange, state: TransactionState | None) -> ReadEnd:
        """Where the records asked for end, and why."""
        if state is not None:
            ends = [(*state.first_open, EndReason.OPEN_TRANSACTION)] if state.first_open is not None else []
            damaged = state.unread_from
            if damaged is not None and (offsets.start > damaged or self._on_corrupt == "skip"):
                ends.append((damaged, -1, EndReason.DAMAGE))  # otherwise reading meets the damage itself
            if ends and (offsets.stop is None or offsets.stop > min(ends)[0]):
                offset, producer_id, reason = min(ends)
                producer = producer_id if producer_id >= 0 else None
                return ReadEnd(log.partition, max(offset, offsets.start), reason, producer)
        known = log.stop if log.stop <= OPEN_END else None
        if offsets.stop is not None and (known is None or offsets.stop < known):
            return ReadEnd(log.partition, offsets.stop, EndReason.REQUESTED)
        return ReadEnd(log.partition, known, EndReason.END_OF_DATA)

    def _beside(self, log: ResolvedLog, gap: Gap) -> str | None:
        """The log before a gap, or the one behind it; none where all is gone."""
        before = [part for part in log.parts if part.stop <= gap.start][-1:] or log.parts[:1]
        return self._store.url(before[0].segment.files.log) if before else None

    def _find_gaps(self, log: ResolvedLog, wanted: OffsetRange, state: TransactionState | None) -> list[Gap]:
        gaps = [
            Gap(log.partition, hole.start, hole.stop, state.held_back.get(hole.start) if state is not None else None)
            for hole in log.holes
            if hole.stop > wanted.start and (wanted.stop is None or hole.start < wanted.stop)
        ]
        if gaps and self._on_gap == "fail":
            raise SegmentGapError(
                f"offsets of {log.partition} are missing between two segments",
                source=self._beside(log, gaps[0]),
                offset=gaps[0].start,
                found=", ".join(f"no segment with {gap.start} to {gap.stop - 1}" for gap in gaps[:4]),
                expected="segments that follow each other",
                hint="Read what is there with on_gap='report' (--on-gap report), or ask for the offsets before it",
            )
        self._gaps += gaps
        return gaps

    def _add_splits(
        self, log: ResolvedLog, chosen: Sequence[tuple[Part, OffsetRange]], aborted: AbortedTransactions
    ) -> None:
        """Cut the parts, each with the offsets wanted of it; a few indexes at a time are read and held."""
        needing = [at for at, (part, wanted) in enumerate(chosen) if needs_index(part, wanted, self._split_bytes)]
        start = 0
        for first in range(0, max(1, len(needing)), _AT_ONCE):
            some = needing[first : first + _AT_ONCE]
            answers = read_each(lambda at: self._read_index(chosen[at][0].segment), some)
            self._notes += [answer for answer in answers if isinstance(answer, str)]
            indexes = {at: answer for at, answer in zip(some, answers, strict=True) if isinstance(answer, OffsetIndex)}
            stop = needing[first + _AT_ONCE] if first + _AT_ONCE < len(needing) else len(chosen)
            with collector_at_rest():
                for at in range(start, stop):
                    self._split(log, *chosen[at], indexes.get(at), aborted)
            start = stop

    def _split(
        self, log: ResolvedLog, part: Part, wanted: OffsetRange, index: OffsetIndex | None, aborted: AbortedTransactions
    ) -> None:
        segment, files = part.segment, part.segment.files
        is_open = wanted.stop is None or wanted.stop > OPEN_END
        stop = OPEN_END + 1 if wanted.stop is None else wanted.stop
        mine = aborted.within(max(segment.base_offset, wanted.start), stop) if len(aborted) else aborted
        epochs = epochs_within(log.lineage, wanted.start, stop) if log.lineage and segment.epochs else ()
        if self._splits and self._splits[-1].epochs == epochs:
            epochs = self._splits[-1].epochs  # one value for a hundred thousand splits
        for positions in cut_segment(segment, index, wanted, self._split_bytes):
            self._splits.append(
                Split(
                    log.partition,
                    files.log,
                    segment.log_size,
                    positions,
                    OffsetRange(wanted.start) if is_open else wanted,
                    self._isolation_level,
                    mine,
                    segment.is_active,
                    segment.base_offset,
                    files.offset_index,
                    offset_at(index, positions.stop),
                    epochs,
                    segment.is_padded,
                    part.stop if part.stop <= OPEN_END else None,
                    offset_at(index, positions.start),
                )
            )

    def _read_index(self, segment: Segment) -> OffsetIndex | str | None:
        """The segment's offset index; a missing or damaged one costs reading, not records: a note of the damage."""
        name = segment.files.offset_index
        if name is None or segment.log_size == 0:
            return None
        try:
            data = read_whole(self._store, name, segment.files.sizes.get(name))
        except ObjectNotFoundError:
            return None
        try:
            return parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
        except FormatError as error:
            if not segment.is_active and self._on_corrupt == "fail":
                self._refuse_short_log(segment, data)
            return f"{error.located(source=self._store.url(name))}; read without it"

    def _refuse_short_log(self, segment: Segment, data: bytes) -> None:
        """Raise if a finished log ends before the last offset that its index names."""
        try:
            index = parse_offset_index(data, segment.base_offset)
        except FormatError:
            return
        if not len(index) or index.trailing_bytes:
            return
        named = index.base_offset + index.relative_offsets[-1]
        last = read_last_offset(self._store, segment, self._max_batch_bytes)
        if last is not None and last < named:
            raise TruncatedError(
                "the log is shorter than its offset index says",
                source=self._store.url(segment.files.log),
                base_offset=segment.base_offset,
                offset=last + 1,
                found=f"{segment.log_size} bytes, with offsets up to {last}",
                expected=f"offset {named}, at byte {index.entry_positions[-1]}",
                hint="The copy is incomplete: fetch the segment again, or read what is there with on_corrupt='skip'",
            )


def _without(offsets: OffsetRange, gaps: list[Gap]) -> list[OffsetRange]:
    """The offsets that no gap holds back, in order."""
    if not gaps:
        return [offsets]
    start, stop = offsets.start, offsets.stop
    left = []
    for gap in gaps:
        if gap.held_back is None or gap.held_back >= gap.start or gap.start <= start:
            continue
        if stop is not None and stop <= gap.held_back:
            break
        if gap.held_back > start:
            left.append(OffsetRange(start, gap.held_back))
        start = gap.start
    if stop is None or start < stop:
        left.append(OffsetRange(start, stop))
    return left
