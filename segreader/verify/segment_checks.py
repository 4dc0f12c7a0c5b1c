"""One segment and its files: a first look that reads no records, and the whole audit."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final, cast

from segreader.catalog.listing import read_file
from segreader.errors import CorruptBatchError, FormatError, LimitExceededError, ObjectNotFoundError, SegreaderError
from segreader.evidence.findings import Findings
from segreader.evidence.lineage_checks import SegmentFacts, check_epochs, epoch_spans
from segreader.evidence.log_checks import (
    LogFacts,
    OffsetIndexAudit,
    TimeIndexAudit,
    check_jumps,
    check_offset_index,
    check_tail,
    check_time_index,
    check_time_index_bounds,
    look_at_log,
)
from segreader.evidence.rules import Code
from segreader.evidence.transaction_checks import (
    MarkerAudit,
    TransactionLog,
    check_has_rows,
    check_snapshot,
    check_transaction_index,
)
from segreader.format.batch import crc32c
from segreader.format.checkpoints import LeaderEpochs, ProducerSnapshot, parse_leader_epochs
from segreader.format.index_files import AbortedTransaction, OffsetIndex, TimeIndex
from segreader.format.scanner import (
    LARGEST_RELATIVE_OFFSET,
    Batch,
    BatchReady,
    Done,
    NeedData,
    SegmentScanner,
    Tail,
    batch_of_header,
)
from segreader.plan.lineage import DropReason, Part, ResolvedLog
from segreader.plan.request import Policy
from segreader.ranges import ByteRange
from segreader.read.ahead import ReadAhead, in_order
from segreader.segment import Segment, StemFiles
from segreader.storage.base import ObjectStore
from segreader.values import dataclass
from segreader.verify.batch_checks import AuditEnd, Audits, SeenEnd, SeenRun, audit_runs, read_runs

_NO_STOP: Final = 1 << 63
_MOST_BEHIND: Final = 16 << 20
"""Bytes of batches behind the last index entry in which the end of a log is looked for."""

_TOO_SHORT: Final = {Code.TRUNCATED_LOG, Code.EMPTY_LOG, Code.LOG_TOO_SHORT}
_BEYOND_THE_END: Final = {
    Code.TIME_INDEX_OUTSIDE_SEGMENT,
    Code.TRANSACTION_INDEX_OUTSIDE_SEGMENT,
    Code.SNAPSHOT_CONTRADICTS_LOG,
}


def read_checkpoint(found: Findings, store: ObjectStore, segment: Segment) -> LeaderEpochs | None:
    """A segment's leader-epoch checkpoint; ``None``, and a note, if it cannot be read."""
    name = segment.files.leader_epochs
    data = _read(found, store, segment, name)
    if data is None or name is None:
        return None
    try:
        return parse_leader_epochs(data)
    except FormatError as error:
        found.add_error(error, name, code=Code.BAD_LEADER_EPOCHS)
        return None


def look_at_segment(
    found: Findings, store: ObjectStore, segment: Segment, checkpoint: LeaderEpochs | None, following: int | None
) -> SegmentFacts:
    """What a segment's files and some headers of its log show.

    Args:
        checkpoint: of the segment, if it can be read.
        following: base offset of the next segment.
    """
    side, log = _SideFiles(), LogFacts()
    side.read_indexes(found, store, segment)
    try:
        log = look_at_log(found, store, segment, side.offset_index)
    except SegreaderError as error:
        found.add_error(error, segment.files.log)
    if log.tail is None and log.seen and side.offset_index is not None and not (segment.is_active or segment.is_padded):
        _look_behind(store, segment, log)
    last = segment.last_offset
    if last is None and following is not None:
        last = following - 1
    check_tail(found, segment, log, last, side.last_offset)
    limit = None if log.end is None else max(log.end, -1 if last is None else last)
    side.read_producer_state(found, store, segment, limit)
    if side.time_index is not None:
        first = log.first.base_offset if log.first is not None and log.first.magic == 2 else None
        check_time_index_bounds(found, side.time_index, segment.files.time_index or "", segment, first, limit)
        if not segment.is_active and len(side.time_index):
            named = segment.base_offset + side.time_index.relative_offsets[-1]
            check_jumps(found, log, named, segment.files.time_index or "")
    if checkpoint is not None and not check_epochs(found, segment, checkpoint, log.seen):
        checkpoint = None  # the segment is of another history, or its checkpoint is
    if segment.last_offset is not None and log.end is not None and log.end > segment.last_offset:
        text = f"its last batch ends with offset {log.end}, and the catalogue has {segment.last_offset}"
        found.add(Code.BATCH_OUTSIDE_SEGMENT, segment.files.log, text, offset=log.end)
    elif log.end is not None and log.end - segment.base_offset > LARGEST_RELATIVE_OFFSET:
        text = f"its last batch ends with offset {log.end}, and no segment reaches that far from {segment.base_offset}"
        found.add(Code.BATCH_OUTSIDE_SEGMENT, segment.files.log, text, offset=log.end)
    _check_end(found, segment, log, last, side.last_offset)
    if Code.TRUNCATED_LOG in found.codes and not segment.log_size:
        log.was_cleaned = False  # an empty log is what the cleaner leaves, but with empty indexes
        log.was_rewritten = False
    return SegmentFacts(
        segment,
        first=log.first,
        end=log.end,
        was_cleaned=log.was_cleaned,
        was_rewritten=log.was_rewritten,
        spans=epoch_spans(log.seen),
        checkpoint=checkpoint,
        rows=side.rows,
        opened=None if side.snapshot is None else side.snapshot.open_transactions(),
        last=log.seen[-1] if log.seen and log.seen[-1].last_offset == log.end else None,
        newest_ms=_newest_ms(segment, side, log),
    )


def _look_behind(store: ObjectStore, segment: Segment, log: LogFacts) -> None:
    """Find the end of a log of which too much is behind its last index entry: no broker leaves as much unindexed."""
    last, start = log.seen[-1], log.seen[-1].position
    scanner = SegmentScanner(start=start, stop=segment.log_size)
    try:
        with closing(store.read_pieces(segment.files.log, ByteRange(start, segment.log_size))) as pieces:
            while last.position - start <= _MOST_BEHIND:
                answer = scanner.next()
                if isinstance(answer, NeedData):
                    scanner.feed(next(pieces, b""))
                elif isinstance(answer, BatchReady):
                    last = batch_of_header(answer.header, answer.position)
                else:
                    log.end, log.tail = last.last_offset, answer
                    break
    except FormatError as error:
        log.end, log.tail = last.last_offset, error
    except SegreaderError:
        return  # deep verification says what cannot be read
    log.seen.append(last)


def _newest_ms(segment: Segment, side: _SideFiles, log: LogFacts) -> int | None:
    if segment.max_timestamp_ms is not None:
        return segment.max_timestamp_ms
    if side.time_index is not None and len(side.time_index):
        return side.time_index.timestamps_ms[-1]
    return max((batch.max_timestamp for batch in log.seen if batch.max_timestamp >= 0), default=None)


def _check_end(found: Findings, segment: Segment, log: LogFacts, expected: int | None, indexed_to: int | None) -> None:
    """Note a log that ends too early, though with a whole batch: several files say so, or the next segment does."""
    if log.end is None or segment.is_active or Code.TRUNCATED_LOG in found.codes:
        return
    is_too_short = (expected is not None and log.end < expected) or bool(found.codes & _BEYOND_THE_END)
    is_emptied = not segment.log_size and indexed_to is not None
    if is_emptied or (is_too_short and Code.INDEX_BEYOND_LOG in found.codes):
        text = f"it ends with offset {log.end}, and the files beside it have later offsets"
        found.add(Code.TRUNCATED_LOG, segment.files.log, text, position=segment.log_size, offset=log.end)


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """What a segment's files beside its log hold, as far as they can be read; the first look reports what is wrong."""

    side: _SideFiles
    checkpoint: LeaderEpochs | None


Seen = SeenFiles | SeenRun | SeenEnd
"""What is read of one segment: first its files, at last the end of its log."""


def read_segment(store: ObjectStore, segment: Segment) -> Iterator[Seen]:
    """Everything that a segment shows by itself. Segments may be read at once, and are audited in order."""
    unheard, side = Findings(store), _SideFiles()
    side.read_indexes(unheard, store, segment)
    side.read_producer_state(unheard, store, segment, None)
    yield SeenFiles(side, read_checkpoint(unheard, store, segment))
    del side
    yield from read_runs(store, segment)


def read_segments(store: ObjectStore, segments: Sequence[Segment], ahead: ReadAhead) -> Generator[Seen, None, None]:
    """What ``read_segment`` gives of several, in their order."""
    return in_order(
        segments,
        lambda: partial(read_segment, store),
        name="segreader-verify",
        threads=ahead.threads,
        most_bytes=ahead.most_waiting,
        size_of=lambda seen: seen.memory_bytes if isinstance(seen, SeenRun) else 0,
        fetched_of=lambda segment: ahead.held_by(segment.log_size),
        most_fetched=ahead.most_fetched,
    )


class SegmentAudit:
    """Audits segments of one partition, by base offset, and remembers what leads from one to the next.

    Args:
        tell: called with the number of bytes that were read.
    """

    def __init__(self, copies: Copies, tell: Callable[[int], None]) -> None:
        self._copies, self._tell = copies, tell
        self._transactions = TransactionLog()

    def audit(
        self, found: Findings, facts: SegmentFacts, seen: Iterator[Seen], parts: Sequence[Part], limit: int | None
    ) -> None:
        """Audit one segment.

        Args:
            seen: what ``read_segment`` gives; it is taken up to the end of the segment.
            parts: which of its offsets are of the live history.
            limit: the last offset that it may have, where that is known.
        """
        segment = facts.segment
        files = next(seen)
        assert isinstance(files, SeenFiles), "a segment begins with its files"
        side, checkpoint = files.side, files.checkpoint
        transactions = self._transactions
        transactions.is_cleaned |= facts.was_rewritten
        history = _History(found, side, segment, transactions, parts)
        audits = Audits([history.batch], [history.marker], [history.end], [history.damaged])
        if side.offset_index is not None:
            of_offsets = OffsetIndexAudit(found, side.offset_index, segment.files.offset_index or "")
            audits.batch.append(of_offsets.batch)
            audits.end.append(of_offsets.end)
        if side.time_index is not None:
            name = segment.files.time_index or ""
            of_times = TimeIndexAudit(found, side.time_index, name, is_active=segment.is_active)
            audits.batch.append(of_times.batch)
            audits.end.append(of_times.end)
        if checkpoint is not None and not facts.codes & {Code.EPOCH_MISMATCH, Code.BAD_LEADER_EPOCHS}:
            audits.batch.append(_EpochAudit(found, segment, checkpoint).batch)
        log = segment.files.log
        if self._copies.is_compared(log):
            audits.batch.append(lambda batch: self._copies.add(log, batch))
        end = audit_runs(found, segment, cast(Iterator[SeenRun | SeenEnd], seen), audits, limit=limit, tell=self._tell)
        self._conclude(found, facts, end, history, side.snapshot)

    def _conclude(
        self,
        found: Findings,
        facts: SegmentFacts,
        end: AuditEnd | None,
        history: _History,
        snapshot: ProducerSnapshot | None,
    ) -> None:
        segment, log = facts.segment, facts.segment.files.log
        is_whole = end is not None and end.is_sound and isinstance(end.tail, Done) and end.tail.tail is Tail.END
        is_whole &= not facts.codes & _TOO_SHORT
        if end is not None and (facts.end is None or end.end < facts.end):
            check_tail(found, segment, LogFacts(end=end.end, tail=_inside(end.tail)), facts.end)
        if not is_whole:
            self._copies.leave_out(found, log)
        elif self._transactions.is_cleaned:
            self._copies.forget(log)
        else:
            self._copies.check(found, log)
        if not is_whole:
            self._transactions.restart(None)
        elif snapshot is not None and history.reaches_the_end:
            history.markers.compare_snapshot(snapshot, segment.files.producer_snapshot or "")
            if not self._transactions.is_complete:
                self._transactions.restart(snapshot.open_transactions())


def _inside(tail: Done | FormatError) -> Done | FormatError:
    """How a log ends for a reader who knows that there are batches behind: not with a cut batch."""
    if isinstance(tail, FormatError) or tail.tail is Tail.END:
        return tail
    return CorruptBatchError(
        "a batch claims more bytes than the log has, or there are zeros in its place, and others follow",
        position=tail.position,
        base_offset=tail.base_offset,
    )


class _SideFiles:
    """What could be read of the files beside a log."""

    def __init__(self) -> None:
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.rows: Sequence[AbortedTransaction] = ()
        self.snapshot: ProducerSnapshot | None = None

    @property
    def last_offset(self) -> int | None:
        """The largest offset that an index names."""
        offsets = [index.relative_offsets[-1] for index in (self.offset_index, self.time_index) if index]
        bases = [index.base_offset for index in (self.offset_index, self.time_index) if index]
        return max(map(sum, zip(bases, offsets, strict=True)), default=None)

    def read_indexes(self, found: Findings, store: ObjectStore, segment: Segment) -> None:
        """Read and check the offset index and the time index."""
        files = segment.files
        if (data := _read(found, store, segment, files.offset_index)) is not None:
            self.offset_index = check_offset_index(found, data, files.offset_index or "", segment)
        if (data := _read(found, store, segment, files.time_index)) is not None:
            self.time_index = check_time_index(found, data, files.time_index or "", segment)

    def read_producer_state(self, found: Findings, store: ObjectStore, segment: Segment, limit: int | None) -> None:
        """Read and check the other two; ``limit`` is the last offset that the segment can have, where it is known."""
        files = segment.files
        data = _read(found, store, segment, files.transaction_index)
        check_has_rows(found, segment, len(data or b""))
        if data is not None:
            name = files.transaction_index or ""
            self.rows = check_transaction_index(found, data, name, segment.base_offset, limit, Policy.SKIP)
        if (data := _read(found, store, segment, files.producer_snapshot)) is not None:
            self.snapshot = check_snapshot(found, data, files.producer_snapshot or "", limit)


def _read(found: Findings, store: ObjectStore, segment: Segment, name: str | None) -> bytes | None:
    """A small file of a segment; ``None`` if it is not there, with a note if it should be, or cannot be read."""
    if name is None:
        return None
    try:
        return read_file(store, segment, name)
    except ObjectNotFoundError as error:
        may_be_absent = isinstance(segment.files, StemFiles) or name == segment.files.transaction_index
        if not may_be_absent or name in segment.files.sizes:
            found.add_error(error, name)
    except LimitExceededError as error:
        found.add_error(error, name, code=Code.OVERSIZED_FILE)
    except SegreaderError as error:
        found.add_error(error, name)
    return None


class _EpochAudit:
    """Holds the epoch of every batch against a checkpoint, until one does not agree."""

    def __init__(self, found: Findings, segment: Segment, checkpoint: LeaderEpochs) -> None:
        self._found, self._segment, self._checkpoint = found, segment, checkpoint
        self._epoch, self._stop = -1, 0
        self._is_done = False

    def batch(self, batch: Batch) -> None:
        """Take the next batch."""
        if self._is_done or (batch.leader_epoch == self._epoch and batch.base_offset < self._stop):
            return
        if not check_epochs(self._found, self._segment, self._checkpoint, [batch]):
            self._is_done = True
            return
        known = self._checkpoint.offsets_of(batch.leader_epoch) if batch.leader_epoch >= 0 else None
        if known is not None:
            self._epoch, self._stop = batch.leader_epoch, _NO_STOP if known.stop is None else known.stop


class _History:
    """The batches of a segment as part of the partition's transactions."""

    def __init__(
        self,
        found: Findings,
        side: _SideFiles,
        segment: Segment,
        transactions: TransactionLog,
        parts: Sequence[Part],
    ) -> None:
        name = segment.files.transaction_index or segment.files.log
        self.markers = MarkerAudit(found, side.rows, name, transactions)
        self._transactions, self._parts, self._segment = transactions, list(parts), segment
        self._part: Part | None = None
        self._last: int | None = None
        self._next_offset = segment.base_offset

    @property
    def reaches_the_end(self) -> bool:
        """Whether the last offset of the segment is of the live history."""
        last = self._segment.last_offset if self._segment.last_offset is not None else self._last
        return bool(self._parts) and last is not None and self._parts[-1].stop > last

    def batch(self, batch: Batch) -> None:
        """Take the next batch."""
        expected, self._next_offset = self._next_offset, batch.last_offset + 1
        self._transactions.is_cleaned |= batch.was_cleaned
        self._last = batch.last_offset
        part = next((part for part in self._parts if part.start <= batch.base_offset < part.stop), None)
        if part is not self._part:
            self._leave()
            if part is not None:
                self._transactions.go_on_at(part.start)
            self._part = part
        if batch.magic == 2 and batch.base_offset > expected:
            self.markers.skip(expected, batch.base_offset, is_live=part is not None)
        if part is not None and batch.is_transactional and not batch.is_control:
            self._transactions.data(batch)

    def marker(self, batch: Batch, is_abort: bool) -> None:
        """Take a batch that ends a transaction, after ``batch`` took it."""
        self.markers.marker(batch, is_abort, is_live=self._part is not None)

    def damaged(self, batch: Batch) -> None:
        """A batch that ``batch`` took cannot be decoded: what it did to a transaction is not known."""
        if batch.producer_id >= 0:
            self.markers.skip(batch.base_offset, batch.last_offset + 1, is_live=self._part is not None)

    def end(self) -> None:
        """The log has ended with its last batch."""
        self._leave()
        if self._last is None and self._parts and self._parts[0].start == self._transactions.stop:
            self._transactions.stop = self._parts[-1].stop
        self.markers.end()

    def _leave(self) -> None:
        if self._part is not None:
            self._transactions.stop = self._part.stop


_BATCH: Final = struct.Struct(">qqI")


@dataclass(slots=True)
class _Overlap:
    """Offsets ``start <= offset < stop`` that two logs hold, and of each how many of them are in batches; a digest."""

    copy: str
    delivered: str
    start: int
    stop: int
    seen: dict[str, tuple[int, int]]


class Copies:
    """Remembers a digest of the batches in every overlap, never the batches.

    An epoch and an offset name one record, in every upload (``LeaderEpochFileCache``), and replicas copy batches as
    they are; only what the cleaner rewrote may differ.
    """

    def __init__(self, resolved: ResolvedLog) -> None:
        self._overlaps: dict[str, list[_Overlap]] = defaultdict(list)
        for dropped in resolved.dropped:
            if dropped.reason is not DropReason.DUPLICATE:
                continue
            for part in resolved.parts:
                start, stop = max(part.start, dropped.start), min(part.stop, dropped.stop)
                if start < stop and part.segment is not dropped.segment:
                    copy, delivered = dropped.segment.files.log, part.segment.files.log
                    overlap = _Overlap(copy, delivered, start, stop, {copy: (0, 0), delivered: (0, 0)})
                    self._overlaps[copy].append(overlap)
                    self._overlaps[delivered].append(overlap)

    def is_compared(self, log: str) -> bool:
        """Whether another log holds offsets of this one."""
        return log in self._overlaps

    def add(self, log: str, batch: Batch) -> None:
        """Take the next batch of a log."""
        for overlap in self._overlaps[log]:
            if batch.magic == 2 and overlap.start <= batch.base_offset and batch.last_offset < overlap.stop:
                count, digest = overlap.seen[log]
                facts = _BATCH.pack(batch.base_offset, batch.last_offset, batch.crc & 0xFFFFFFFF)
                count += batch.last_offset - batch.base_offset + 1
                overlap.seen[log] = (count, crc32c(facts, digest))

    def check(self, found: Findings, log: str) -> None:
        """A log was read to its end: note what differs from those that were read before."""
        for overlap in self._overlaps.pop(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            if other in self._overlaps or overlap.seen[log] == overlap.seen[other]:
                continue
            text = f"at offsets {overlap.start}-{overlap.stop - 1} it holds other batches than {other}"
            if (count := overlap.seen[log][0]) != (of_other := overlap.seen[other][0]):
                fuller = log if count > of_other else other
                text += f": {count} of these offsets, and that one {of_other}; the fuller copy is {fuller}"
            found.add(Code.CONFLICTING_COPIES, log, text, offset=overlap.start)

    def leave_out(self, found: Findings, log: str) -> None:
        """A log could not be read whole: note which others hold its offsets, and compare it with none."""
        for overlap in self._overlaps.get(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            text = f"offsets {overlap.start}-{overlap.stop - 1} cannot be compared with {other}, which has them, too"
            found.add(Code.UNCHECKED, log, text, offset=overlap.start)
        self.forget(log)

    def forget(self, log: str) -> None:
        """The cleaner was at work, or a log could not be read whole: it is compared with none."""
        for overlap in self._overlaps.pop(log, ()):
            other = overlap.delivered if log == overlap.copy else overlap.copy
            if overlap in self._overlaps.get(other, ()):
                self._overlaps[other].remove(overlap)
