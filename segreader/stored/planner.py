"""Makes a plan from the segments of partitions: the one place where listings, indexes and rules meet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, replace
from functools import partial
from itertools import pairwise, repeat
from typing import Final

from segreader.catalog.listing import read_file
from segreader.errors import (
    CatalogError,
    FormatError,
    LimitExceededError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    PlanError,
    SegmentGapError,
    StorageError,
)
from segreader.evidence.findings import Findings, notes_of_many
from segreader.evidence.log_checks import check_offset_index
from segreader.evidence.rules import Code
from segreader.format.batch import HEADER_SIZE, parse_batch_header
from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.isolation import AbortedTransactions, IsolationLevel
from segreader.plan.cut import (
    Cutting,
    SplitOffsets,
    cut,
    cut_positions,
    needs_index,
    offset_at,
    overlapping,
    wanted_size,
)
from segreader.plan.lineage import DropReason, OffsetHole, Part, ResolvedLog, epochs_within
from segreader.plan.request import Policy, ReadOptions, TimeRange
from segreader.plan.split import (
    END_OF_LOG,
    EndReason,
    Gap,
    LogsAhead,
    PlannedDrop,
    ReadEnd,
    ReadPlan,
    Split,
)
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.batch_order import ends_early
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, RememberingStore, range_size_of, read_each
from segreader.storage.cancellation import Cancellation, WaitEnded, result_of
from segreader.stored.lineage import ReadableLog
from segreader.stored.log import StoredLog
from segreader.stored.near import neighbourhoods, range_of_times
from segreader.stored.segment_ends import OPEN_END, last_timed_offset, read_last_offset, shows_cleaning
from segreader.stored.source import SourceLog
from segreader.stored.transactions import TransactionState, read_transaction_state
from segreader.values import dataclass

_AT_ONCE: Final = 16


_PARTITIONS_AT_ONCE: Final = 16
_SEGMENTS_AT_ONCE: Final = 20_000
"""Of the partitions that are planned at once, so that they take little more memory than their plan."""


def plan_each_log(
    logs: Iterable[SourceLog], plan: Callable[[SourceLog], ReadPlan], store: ObjectStore
) -> Iterator[tuple[SourceLog, Callable[[], ReadPlan]]]:
    """Each partition, in order, with a function that returns its plan or raises its error.

    Of a store on the network several are planned at once, in threads of their own. With local files planning is work
    for the processor, and threads would wait for each other.

    Args:
        logs: the partitions; what listing one of them raises is raised after those before it.
        plan: makes the plan of one partition.
        store: where the partitions are.
    """
    if not range_size_of(store):
        yield from ((log, partial(plan, log)) for log in logs)
        return
    ahead: deque[tuple[SourceLog, Future[ReadPlan]]] = deque()
    segments = 0
    ending = Cancellation()

    def plan_here(log: SourceLog) -> ReadPlan:
        with ending.covers():
            return plan(log)

    def outcome(planned: Future[ReadPlan]) -> ReadPlan:
        try:
            return result_of(planned)
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, WaitEnded):
                ending.cancel()  # the caller was interrupted
            raise

    with ThreadPoolExecutor(_PARTITIONS_AT_ONCE, thread_name_prefix="segreader-plan") as workers:
        try:
            for log in _until_error(logs):
                if isinstance(log, SourceLog):
                    ahead.append((log, workers.submit(plan_here, log)))
                    segments += len(log.segments)
                    if len(ahead) < _PARTITIONS_AT_ONCE and segments < _SEGMENTS_AT_ONCE:
                        continue
                while ahead:
                    first, planned = ahead.popleft()
                    segments -= len(first.segments)
                    yield first, partial(outcome, planned)
                    if isinstance(log, SourceLog):
                        break
                if isinstance(log, BaseException):
                    raise log
        finally:
            ending.cancel()
            workers.shutdown(wait=True, cancel_futures=True)


def _until_error(logs: Iterable[SourceLog]) -> Iterator[SourceLog | Exception | None]:
    """The items, and at the end the error that ended them, or ``None``."""
    try:
        yield from logs
    except Exception as error:
        yield error
    else:
        yield None


class PartitionPlanner:
    """Plans one partition after another; ``plan`` returns everything that was added.

    Args:
        ends_log: whether nothing follows the last segment of a partition; brokers may have more.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions | None = None,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        cutting: Cutting | None = None,
        ends_log: bool = True,
    ) -> None:
        self._store = store
        self._behind_last: Sequence[tuple[str, int, int]] = (END_OF_LOG,) if ends_log else ()
        self._options = options or ReadOptions()
        self._isolation_level = isolation_level
        self._cutting = cutting or Cutting(split_bytes=self._options.split_bytes)
        self._splits: list[Split] = []
        self._ends: list[ReadEnd] = []
        self._gaps: list[Gap] = []
        self._dropped: list[PlannedDrop] = []
        self._notes: list[str] = []
        self._uncut: list[_Uncut] = []
        self._total_size = 0

    @property
    def sizes(self) -> list[int]:
        """Stored bytes of each split, and of each segment that is not cut before all are known."""
        return [split.positions.size for split in self._splits] + self._uncut_sizes()

    def plan(self, location: str, cutting: Cutting | None = None) -> ReadPlan:
        """Everything that was added, as one plan. Raises as ``add`` for splits whose size depends on the total.

        Args:
            cutting: of what is not cut yet, where more than this was counted.
        """
        self._cutting = cutting or self._cutting
        self._cut_all()
        return ReadPlan(
            location,
            tuple(self._splits),
            tuple(self._ends),
            tuple(self._gaps),
            tuple(self._dropped),
            tuple(self._notes),
        )

    def log(self, source: SourceLog) -> StoredLog:
        """One partition, for callers that choose offsets by its ends before they add it."""
        return StoredLog(self._store, source, max_batch_bytes=self._options.max_batch_bytes)

    def add(
        self,
        source: SourceLog | StoredLog,
        offsets: OffsetRange,
        times: TimeRange | None = None,
        *,
        choose: Callable[[StoredLog], OffsetRange] | None = None,
        only: Sequence[OffsetRange] | None = None,
        to_end: bool = False,
        transactions: TransactionState | None = None,
    ) -> StoredLog:
        """Plan one partition.

        Args:
            source: its listing, or what was already read by it; of a log that is known by its end, the listing counts.
            choose: decides by the log which offsets are read: between ``offsets`` and, where ``times`` have a start or
                an end, between the first ones that are as new. It may be asked again.
            only: ranges within ``offsets`` that are of use, rising and apart; what lies between them is not read.
            to_end: the offsets stop only where the log was found to end.
            transactions: those of the offsets, if they are known.

        Returns:
            The log by which it was planned: of the segments around the offsets, where these are enough.

        Raises:
            SegmentGapError: ``on_gap`` is ``fail``, and offsets between two segments are in none, or those behind the
                ones asked for would say what became of a transaction in these.
            FormatError: a transaction index contradicts itself, or a finished log is shorter than its index says.
            ObjectNotFoundError, ObjectChangedError: ``on_missing`` is ``fail``, and a segment has vanished since it was
                listed.
        """
        if isinstance(source, StoredLog) and source.is_whole:
            stored = source
        else:
            near: StoredLog | None = None
            known = source.source if isinstance(source, StoredLog) else source
            if transactions is None:
                near = self.add_near(known, offsets, times, choose=choose, only=only, to_end=to_end)
            if near is not None:
                return near
            stored = source.whole if isinstance(source, StoredLog) else self.log(source.whole())
        chosen_offsets = None if choose is None else choose(stored)
        listed: Sequence[OffsetHole] | None = None
        while True:
            log, wanted = stored.resolved, offsets if chosen_offsets is None else chosen_offsets
            if times is not None and choose is None:
                wanted = stored.offsets_between(times, wanted)
            if listed is None:
                listed = log.holes
                self._refuse(stored.readable, _gaps(log, _of_use(wanted, only), {}))
            try:
                state = transactions or self.read_state(stored, wanted)
                break
            except (ObjectNotFoundError, ObjectChangedError) as error:
                gone = next((part.segment for part in log.parts if part.start == error.offset), None)
                if gone is None or self._options.on_missing is Policy.FAIL:
                    raise
                self._notes.append(f"{error.source}: {error.message}; read without its segment")
                stored = self.log(_without(stored.source, gone))
        self._notes += [*stored.source.log.notes, *stored.readable.notes, *state.notes]
        self._dropped += [
            PlannedDrop(log.partition, one.segment.files.log, one.start, one.stop, one.reason, one.text)
            for one in log.dropped
            if stored.source.local is None or one.reason is not DropReason.DUPLICATE  # both tiers hold the same
        ]
        named = self._newest(log, OffsetRange(wanted.start) if to_end else wanted, state)
        end = self._end(log, wanted, state)
        self._ends.append(end)
        if end.reason.is_early and named.reaches is not None and log.stop <= min(named.reaches, OPEN_END):
            newest = log.parts[-1].segment
            cut = ends_early(self._store.url(newest.files.log), newest.log_size, log.stop - 1, named.reaches)
            self._notes.append(str(cut))
        if end.reason.is_early:
            wanted = OffsetRange(wanted.start, max(wanted.start, end.offset or 0))
        gaps = _gaps(log, _of_use(wanted, only), state.held_back)
        self._refuse(
            stored.readable, [gap for gap in gaps if any(gap.start <= hole.start < gap.stop for hole in listed)]
        )
        self._gaps += gaps
        chosen = _within(_decided(overlapping(log.parts, wanted), gaps), only)
        if self._cutting.least_splits is None:
            self._add_splits(log, chosen, state.aborted, named, self._behind_last)
        else:
            self._uncut.append(_Uncut(log, chosen, state.aborted, named, self._behind_last))
            if not self._cutting.cuts_by_offsets and self._cutting.least_splits <= sum(
                len(one.chosen) for one in self._uncut
            ):
                self._cut_all()  # there are enough of them
        return stored

    def add_near(
        self,
        source: SourceLog,
        offsets: OffsetRange,
        times: TimeRange | None = None,
        *,
        choose: Callable[[StoredLog], OffsetRange] | None = None,
        only: Sequence[OffsetRange] | None = None,
        to_end: bool = False,
    ) -> StoredLog | None:
        """As ``add``, by the segments around a range alone.

        Returns:
            ``None`` if that was not enough, since something unusual was found there: then nothing was added.
        """
        store = RememberingStore(self._store)
        around: OffsetRange | None = offsets
        if times is not None and choose is not None:
            around = range_of_times(store, source, times, offsets)
        elif times is not None:
            around = range_of_times(store, source, times) if offsets == OffsetRange() else None
        if around is None:
            return None
        for near in neighbourhoods(store, source, around, self._options.max_batch_bytes):
            one = PartitionPlanner(
                store,
                self._options,
                isolation_level=self._isolation_level,
                cutting=self._cutting,
                ends_log=bool(self._behind_last) and near.next_base is None,
            )
            stored, wanted = one.log(near.source), offsets
            try:
                if stored.readable.notes or not near.is_whole(stored.resolved):
                    return None
                if choose is not None:
                    wanted = choose(stored)
                elif times is not None:
                    wanted = stored.offsets_between(times, offsets)
                end = stored.resolved.stop
                if near.next_base is not None and (wanted.stop is None or not wanted.start < end >= wanted.stop):
                    continue  # only a transaction marker is as new, and the record is farther behind
                if wanted.start < stored.resolved.start and not near.is_first:
                    return None
                state = one.read_state(stored, wanted)
                if state.is_from_start and not near.is_first:
                    return None
                if near.next_base is not None and state.open:
                    continue
                one.add(stored, wanted, only=only, to_end=to_end, transactions=state)
            except WaitEnded:
                raise
            except (FormatError, CatalogError, StorageError, PlanError, OptionError):
                return None  # a plan of everything raises it, or another one
            if one._notes != [*source.log.notes] or one._gaps or one._dropped:
                return None
            self._splits += one._splits
            self._uncut += one._uncut
            self._ends += one._ends
            self._notes += one._notes
            return stored
        return None

    def _cut_all(self) -> None:
        """Cut the parts whose splits depend on the total size."""
        sizes = self._uncut_sizes()
        uncut, self._uncut = self._uncut, []
        self._cutting, self._total_size = self._cutting.of_all(sizes), sum(sizes)
        for one in uncut:
            self._add_splits(one.log, one.chosen, one.aborted, one.of_newest, one.behind_last)

    def _uncut_sizes(self) -> list[int]:
        return [wanted_size(part, wanted) for one in self._uncut for part, wanted in one.chosen]

    def _cuttings(self, chosen: Sequence[tuple[Part, OffsetRange]]) -> Sequence[Cutting]:
        """How each part is cut, by its own size if that matters."""
        cutting = self._cutting
        if cutting.least_splits is None:
            return [cutting] * len(chosen)
        return [
            cutting.of_one(wanted, wanted_size(part, wanted), self._total_size)
            if wanted.stop is not None and wanted.stop < OPEN_END
            else cutting
            for part, wanted in chosen
        ]

    def _closed(self, part: Part, wanted: OffsetRange) -> OffsetRange:
        """The wanted offsets, up to the end of the log; without an end if damage hides it, which the reader reports."""
        if wanted.stop is not None and wanted.stop < OPEN_END:
            return wanted
        last = read_last_offset(self._store, part.segment, self._options.max_batch_bytes)
        return wanted if last is None else OffsetRange(wanted.start, max(last + 1, wanted.start))

    def read_state(
        self, log: StoredLog, wanted: OffsetRange, replay_from: tuple[str, int] | None = None
    ) -> TransactionState:
        """The state of transactions, see ``read_transaction_state``; empty for ``read_uncommitted``."""
        if self._isolation_level is not IsolationLevel.READ_COMMITTED:
            return TransactionState(AbortedTransactions())
        return read_transaction_state(
            self._store,
            log.resolved,
            wanted,
            start_snapshot=log.start_snapshot,
            last_batches=log.readable.last_batches,
            max_batch_bytes=self._options.max_batch_bytes,
            check_crcs=self._options.check_crcs,
            on_corrupt=self._options.on_corrupt,
            replay_from=replay_from,
        )

    def _newest(self, log: ResolvedLog, wanted: OffsetRange, state: TransactionState) -> _Named:
        """The offsets that the files beside the newest log name, if the read goes to its end.

        Raises:
            TruncatedError: nothing wanted is below the end of that log, and ``on_corrupt`` is ``fail``.
        """
        part = log.parts[-1] if log.parts else None
        if part is None or part.segment.is_active or (wanted.stop is not None and wanted.stop <= part.start):
            return _Named()
        segment, end = part.segment, part.stop - 1 if part.stop <= OPEN_END else None
        is_cut_by_another = end is not None and segment.last_offset is not None and segment.last_offset > end
        if is_cut_by_another or (wanted.stop is not None and end is not None and wanted.stop <= end):
            return _Named()
        timed = last_timed_offset(self._store, segment) if segment.max_timestamp_ms is None else None
        last = max(state.last_marker, -1 if timed is None else timed)
        if state.last_of_producers > last:  # the cleaner may have removed that
            known = read_last_offset(self._store, segment, self._options.max_batch_bytes) if end is None else end
            is_beyond = known is not None and state.last_of_producers > known
            if is_beyond and not shows_cleaning(self._store, segment, self._options.max_batch_bytes):
                last = state.last_of_producers
        last = last if wanted.stop is None else min(last, wanted.stop - 1)
        if last >= wanted.start and end is not None and wanted.start > end:
            error = ends_early(self._store.url(segment.files.log), segment.log_size, end, last)
            if self._options.on_corrupt is Policy.FAIL:
                raise error
            self._notes.append(str(error))
        return _Named(timed, last if last >= max(part.start, wanted.start) else None)

    def _end(self, log: ResolvedLog, offsets: OffsetRange, state: TransactionState) -> ReadEnd:
        """Where the records asked for end, and why."""
        ends = [] if state.first_open is None else [(*state.first_open, EndReason.OPEN_TRANSACTION)]
        if state.unread_from is not None:
            ends.append((state.unread_from, -1, EndReason.DAMAGE))
        if ends and (offsets.stop is None or offsets.stop > min(ends)[0]):
            offset, producer_id, reason = min(ends)
            is_open = reason is EndReason.OPEN_TRANSACTION
            return ReadEnd(
                log.partition,
                max(offset, offsets.start),
                reason,
                producer_id if is_open else None,
                None if is_open else state.damage,
            )
        known = log.stop if log.stop <= OPEN_END else None
        if offsets.stop is not None and (known is None or offsets.stop < known):
            return ReadEnd(log.partition, offsets.stop, EndReason.REQUESTED)
        return ReadEnd(log.partition, known, EndReason.END_OF_DATA)

    def _refuse(self, readable: ReadableLog, gaps: Sequence[Gap]) -> None:
        """Raise for offsets that are missing, unless they are to be skipped."""
        if not gaps or self._options.on_gap is Policy.SKIP:
            return
        log, gap = readable.resolved, gaps[0]
        lacking = [
            why for at, why in sorted(readable.lacking.items()) if any(one.start <= at < one.stop for one in gaps)
        ]
        before = [part for part in log.parts if part.stop <= gap.start][-1:] or log.parts[:1]
        raise SegmentGapError(
            f"offsets of {log.partition} are missing" + ("" if lacking else " between two segments"),
            source=self._store.url(before[0].segment.files.log) if before else None,
            offset=gap.start,
            found=", ".join(f"no segment with {gap.start} to {gap.stop - 1}" for gap in gaps[:4])
            + ("" if gap.held_back is None else f", and a transaction is open there since offset {gap.held_back}")
            + "".join(f"; {why}" for why in lacking[:4]),
            expected="segments that follow each other",
            hint="Read the rest with on_gap='skip' (--on-gap skip), or ask for the offsets before it"
            if gap.held_back is None
            else f"Read what is decided with on_gap='skip' (--on-gap skip), or offsets below {gap.held_back}",
        )

    def _add_splits(
        self,
        log: ResolvedLog,
        chosen: Sequence[tuple[Part, OffsetRange]],
        aborted: AbortedTransactions,
        of_newest: _Named,
        behind_last: Sequence[tuple[str, int, int]],
    ) -> None:
        """Cut the parts, each with the offsets wanted of it; a few indexes at a time are read and held."""
        if self._cutting.cuts_by_offsets:
            chosen = [(part, self._closed(part, wanted)) for part, wanted in chosen]
        logs_ahead = self._ahead(log, chosen, behind_last)
        cuttings = self._cuttings(chosen)
        needing = [at for at, (part, wanted) in enumerate(chosen) if needs_index(part, wanted, cuttings[at])]
        ending_early = {id(one) for one, two in pairwise(log.parts) if two.segment.base_offset < one.stop}
        start = 0
        for first in range(0, max(1, len(needing)), _AT_ONCE):
            some = needing[first : first + _AT_ONCE]
            indexes = dict(zip(some, read_each(lambda at: self._read_index(*chosen[at]), some), strict=True))
            for note in notes_of_many([one.found for one in indexes.values() if one.found is not None]):
                if note not in self._notes:  # its last entries may have been read before
                    self._notes.append(note)
            stop = needing[first + _AT_ONCE] if first + _AT_ONCE < len(needing) else len(chosen)
            for at, ahead in zip(range(start, stop), logs_ahead, strict=False):
                indexed, part = indexes.get(at, _UNREAD), chosen[at][0]
                named = _NOTHING if indexed.last_offset is None else _Named(reaches=indexed.last_offset)
                if part is log.parts[-1]:
                    named = of_newest.joined(named)
                elif id(part) in ending_early:  # the next segment is not read for offsets that this one has
                    named = named.joined(_Named(reaches=part.stop - 1))
                self._split(log, *chosen[at], cuttings[at], indexed, aborted, named, ahead)
            start = stop

    def _split(
        self,
        log: ResolvedLog,
        part: Part,
        wanted: OffsetRange,
        cutting: Cutting,
        indexed: _IndexRead,
        aborted: AbortedTransactions,
        named: _Named,
        ahead: LogsAhead | None,
    ) -> None:
        segment, files, index = part.segment, part.segment.files, indexed.index
        if not segment.log_size:
            return
        name, following = (files.log, ()) if ahead is None else (ahead.log, ahead.then)
        is_open = wanted.stop is None or wanted.stop >= OPEN_END
        stop = OPEN_END + 1 if wanted.stop is None else wanted.stop
        before = self._splits[-1].epochs if self._splits and self._splits[-1].partition is log.partition else ()
        is_newest = part is log.parts[-1] and part.stop == (segment.last_offset or 0) + 1 and not segment.is_active
        whole = Split(
            partition=log.partition,
            log=name,
            log_size=segment.log_size,
            positions=ByteRange(0, segment.log_size),
            offsets=OffsetRange(wanted.start) if is_open else wanted,
            isolation_level=self._isolation_level,
            aborted=aborted.within(max(segment.base_offset, wanted.start), stop) if len(aborted) else aborted,
            is_active=segment.is_active,
            base_offset=segment.base_offset,
            offset_index=files.offset_index,
            offset_bound=part.stop if is_newest and segment.max_timestamp_ms is not None else None,  # of the catalogue
            epochs=before if _is_of(segment, before) else _epochs_of(log, segment, wanted.start, stop),
            is_padded=segment.is_padded,
            stop_of_part=part.stop if part.stop <= OPEN_END else None,
            first_bound=None if index is None else offset_at(index, 0),
            chunk_size=segment.chunk_size,
            log_tag=None if segment.is_active else segment.log_tag,
            timed=named.timed,
            reaches=named.reaches,
            following=following,
        )
        if index is None and (is_open or cutting.most_offsets is None):
            self._splits.append(whole)
        else:
            self._splits += cut(whole, index, cutting, indexed.starts)

    def _ahead(
        self,
        log: ResolvedLog,
        chosen: Sequence[tuple[Part, OffsetRange]],
        behind_last: Sequence[tuple[str, int, int]],
    ) -> Iterator[LogsAhead | None]:
        """For each chosen part its log and those after it, up to the next hole: where its markers may be."""
        if self._isolation_level is not IsolationLevel.READ_COMMITTED:
            yield from repeat(None, len(chosen))
            return
        behind = behind_last
        ahead: list[LogsAhead] = []
        start: int | None = None
        for part in reversed(log.parts):
            if start is not None and part.stop != start:
                behind = ()
            behind = LogsAhead(part.segment.files.log, part.segment.log_size, part.stop, behind)
            ahead.append(behind)
            start = part.start
        rising = iter(log.parts)
        at: Part | None = None
        for part, _ in chosen:
            while at is not part:
                at, known = next(rising), ahead.pop()
            yield known

    def _read_index(self, part: Part, wanted: OffsetRange) -> _IndexRead:
        """The segment's offset index; a missing or damaged one costs reading, not records. And where its splits begin,
        if batch headers are to tell."""
        segment = part.segment
        name = segment.files.offset_index
        if name is None or segment.log_size == 0:
            return _UNREAD
        try:
            data = read_file(self._store, segment, name)
        except ObjectNotFoundError:
            return _UNREAD
        except LimitExceededError as error:
            found = Findings(self._store)
            found.add_error(error, name, code=Code.OVERSIZED_FILE)
            return _IndexRead(None, {}, found)
        index: OffsetIndex | None = None
        named: int | None = None
        try:
            index = parse_offset_index(data, segment.base_offset, log_size=segment.log_size)
            if segment.is_active or not index.trailing_bytes:
                return _IndexRead(index, self._read_starts(segment, wanted, index))
        except FormatError:
            named = None if segment.is_active else self._named_beyond(segment, data)
        found = Findings(self._store, most=1)
        check_offset_index(found, data, name, segment)
        return _IndexRead(index, self._read_starts(segment, wanted, index), found, named)

    def _read_starts(self, segment: Segment, wanted: OffsetRange, index: OffsetIndex | None) -> dict[int, int | None]:
        """The base offset of the batch at each cut, if splits begin with batches; ``None`` for a header that does not
        tell it: of an old format, or damaged, which the reader will tell of."""
        if self._cutting.offsets is not SplitOffsets.BATCHES or index is None:
            return {}
        at = cut_positions(index, wanted, self._cutting, segment)
        ranges = [ByteRange(one, min(one + HEADER_SIZE, segment.log_size)) for one in at]
        headers = self._store.read_ranges(segment.files.log, ranges) if ranges else ()
        return dict(zip(at, map(_base_offset, headers), strict=True))

    def _named_beyond(self, segment: Segment, data: bytes) -> int | None:
        """The last offset that an index names, if the log is complete to its end and lacks that offset."""
        try:
            index = parse_offset_index(data, segment.base_offset)
        except FormatError:
            return None
        if not len(index) or index.trailing_bytes:
            return None
        last = read_last_offset(self._store, segment, self._options.max_batch_bytes)
        named = index.base_offset + index.relative_offsets[-1]
        return named if last is not None and last < named else None


@dataclass(frozen=True, slots=True)
class _Named:
    """Offsets of a log that the files beside it name; see ``Split``."""

    timed: int | None = None
    reaches: int | None = None

    def joined(self, other: _Named) -> _Named:
        """Both together."""
        both = [one for one in (self.reaches, other.reaches) if one is not None]
        return _Named(self.timed, max(both, default=None))


_NOTHING: Final = _Named()


@dataclass(frozen=True, slots=True)
class _Uncut:
    """The wanted offsets of one partition by part, its aborted transactions, and what is known of its newest log and
    of what is behind it."""

    log: ResolvedLog
    chosen: Sequence[tuple[Part, OffsetRange]]
    aborted: AbortedTransactions
    of_newest: _Named
    behind_last: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class _IndexRead:
    """What was read to cut a segment.

    Args:
        index: what of it is of use.
        starts: the base offsets of the batches at which the segment is cut, by their positions.
        found: how the index contradicts itself or its log.
        last_offset: one that it names and the log lacks.
    """

    index: OffsetIndex | None = None
    starts: Mapping[int, int | None] = field(default_factory=dict)
    found: Findings | None = None
    last_offset: int | None = None


_UNREAD: Final = _IndexRead()


def _base_offset(header: bytes) -> int | None:
    try:
        return parse_batch_header(memoryview(header)).base_offset
    except FormatError:
        return None


def _is_of(segment: Segment, epochs: tuple[tuple[int, int], ...]) -> bool:
    """Whether one epoch, whose start is given, wrote all of the segment: as of the one before, nearly always."""
    own = segment.epochs
    return own is not None and len(own.entries) == len(epochs) == 1 and own.entries[0].epoch == epochs[0][0]


def _epochs_of(log: ResolvedLog, segment: Segment, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    return epochs_within(log.lineage, start, stop) if log.lineage else ()


def _without(source: SourceLog, gone: Segment) -> SourceLog:
    """The partition without a segment that has vanished; where nothing else has its offsets, they are missing."""
    log, local = source.log, source.local
    missing = log.missing
    if gone.last_offset is not None and gone.last_offset < OPEN_END:
        missing = (*missing, replace(gone, version=-1))

    def rest(segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return tuple(one for one in segments if one.files.log != gone.files.log)

    return replace(
        source,
        log=replace(log, segments=rest(log.segments), missing=missing),
        local=None if local is None else replace(local, segments=rest(local.segments)),
    )


def _of_use(wanted: OffsetRange, only: Sequence[OffsetRange] | None) -> Sequence[OffsetRange]:
    """The useful ranges within the wanted offsets."""
    return [wanted] if only is None else [both for one in only if (both := one.intersection(wanted)) is not None]


def _gaps(log: ResolvedLog, wanted: Sequence[OffsetRange], held_back: Mapping[int, int]) -> list[Gap]:
    """The holes in the wanted offsets, and those that leave some of them undecided."""
    return [
        Gap(log.partition, hole.start, hole.stop, held_back.get(hole.start))
        for hole in log.holes
        if any(
            hole.stop > one.start
            and (one.stop is None or min(hole.start, held_back.get(hole.start, hole.start)) < one.stop)
            for one in wanted
        )
    ]


def _within(
    chosen: Sequence[tuple[Part, OffsetRange]], only: Sequence[OffsetRange] | None
) -> Sequence[tuple[Part, OffsetRange]]:
    """The chosen parts within some ranges, in order."""
    if only is None:
        return chosen
    return [(part, both) for part, wanted in chosen for one in only if (both := wanted.intersection(one)) is not None]


def _decided(chosen: Sequence[tuple[Part, OffsetRange]], gaps: Sequence[Gap]) -> list[tuple[Part, OffsetRange]]:
    """The chosen parts without the offsets that a gap leaves undecided, in order."""
    undecided: list[tuple[int, int]] = []
    for gap in gaps:
        start = gap.start if gap.held_back is None else gap.held_back
        if start < gap.start:
            while undecided and undecided[-1][0] >= start:
                undecided.pop()
            start = max(start, undecided[-1][1] if undecided else 0)
            undecided.append((start, gap.start))
    if not undecided:
        return list(chosen)
    decided = []
    at = 0
    for part, wanted in chosen:
        start, stop = wanted.start, wanted.stop
        while at < len(undecided) and undecided[at][1] <= start:
            at += 1
        for at_this in range(at, len(undecided)):
            first, after = undecided[at_this]
            if stop is not None and stop <= first:
                break
            if start < first:
                decided.append((part, OffsetRange(start, first)))
            start = max(start, after)
        if stop is None or start < stop:
            decided.append((part, OffsetRange(start, stop)))
    return decided
