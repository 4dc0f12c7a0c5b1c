"""Times of records and segments: which offset a time has, and how new a segment is.

``offset_for_time`` finds the first record not older than a time, as a broker's ``ListOffsets`` gives it. Times may be
out of order inside a batch, between batches and between segments: the answer is the first record in order of offset.
Source: ``RemoteLogManager.findOffsetByTimestamp``, ``FileRecords.searchForTimestamp`` (Kafka 4.0). A broker looks into
one segment only. This goes on where no record of a segment will do though its largest time would: the cleaner has left
none, or the time is in a tail of another history.

``certain_newest_ms`` proves a segment's newest time, so that a filter may leave the segment unread. ``times_of_log``
gives times as indexes and catalogues state them: markers count, and no log is read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from segreader.catalog.listing import read_file
from segreader.errors import (
    AccessDeniedError,
    CatalogError,
    CorruptBatchError,
    CorruptIndexError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
)
from segreader.format.batch import RecordBatchHeader
from segreader.format.checkpoints import LeaderEpochs
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.index_files import OffsetPosition, parse_offset_index, parse_time_index
from segreader.format.message_set import MessageHeader
from segreader.format.scanner import BatchReady, Done, NeedData, SegmentScanner
from segreader.plan.lineage import Part, ResolvedLog
from segreader.plan.request import TimeRange
from segreader.ranges import ByteRange, OffsetRange
from segreader.read.batch_order import require_whole
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each, read_listed, read_whole
from segreader.stored.segment_ends import iter_batches, read_end_of_index, read_log_end
from segreader.values import dataclass

UNREADABLE: Final = (FormatError, CatalogError, ObjectNotFoundError, ObjectChangedError, AccessDeniedError)
"""What keeps one partition or one small file from being read, and nothing else."""

_AT_ONCE: Final = 16
_FIRST_PIECE: Final = 64 << 10
_LARGEST_PIECE: Final = 16 << 20
_TIME_ENTRY: Final = Struct(">qi")
_MOST_SEGMENTS: Final = 256
_MOST_PROOF: Final = 1 << 20
"""Bytes of a log that are read to prove its newest time; a maximum further back is not worth it."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A record found by its time. ``leader_epoch`` is ``None`` where its format has none (magic 0 and 1)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


def offset_for_time(
    store: ObjectStore,
    log: ResolvedLog,
    timestamp_ms: int,
    *,
    counts_markers: bool,
    start: int = 0,
    max_batch_bytes: int = DEFAULT_LIMIT,
) -> OffsetAndTimestamp | None:
    """The first record at or after ``start`` whose time is ``timestamp_ms`` or later; ``None`` if there is none.

    Records of aborted transactions count. Of a segment only its time index is read if that says that all is older;
    where an index is missing or damaged, or still being written, the segment is searched.

    Args:
        log: of one partition; only what the live history holds is searched.
        counts_markers: whether control records count, as they do for a broker. Their time is the coordinator's clock,
            so its answer may be an offset that no consumer is given; leave them out for people who want records.
        start: lowest offset to consider.
        max_batch_bytes: largest batch to hold.

    Raises:
        FormatError: damage keeps the record from being found.
        StorageError: bytes cannot be had.
    """
    search = _Search(store, log.lineage, timestamp_ms, counts_markers, start, Decompressor(max_batch_bytes))
    parts = [part for part in log.parts if part.stop > start and search.may_hold(part.segment)]
    for first in range(0, len(parts), _AT_ONCE):
        some = parts[first : first + _AT_ONCE]
        for part, newest_ms in zip(some, read_each(search.newest_ms, some), strict=True):
            if newest_ms is not None and newest_ms < timestamp_ms:
                continue
            if (found := search.in_part(part)) is not None:
                return found
    return None


def offsets_between(
    store: ObjectStore,
    log: ResolvedLog,
    times: TimeRange,
    offsets: OffsetRange,
    *,
    max_batch_bytes: int = DEFAULT_LIMIT,
) -> OffsetRange:
    """The offsets of ``offsets`` from the first record not older than ``times.since_ms`` on, and below the first not
    older than ``times.until_ms``.

    Both are looked up in the whole log, whatever ``offsets`` are: ranges of offsets that follow each other give
    together what one range over all of them gives. Control records do not count. Where nothing is as new as
    ``since_ms`` the range is empty, at the end of the log.

    Raises:
        as ``offset_for_time``.
    """

    def first_at(timestamp_ms: int, start: int) -> int | None:
        found = offset_for_time(
            store, log, timestamp_ms, counts_markers=False, start=start, max_batch_bytes=max_batch_bytes
        )
        return None if found is None else found.offset

    since, stop = 0, offsets.stop
    if times.since_ms is not None:
        found = first_at(times.since_ms, 0)
        if found is None:
            end = read_log_end(store, log, max_batch_bytes)
            found = log.stop if end is None else end
            stop = max(offsets.start, found) if stop is None else stop
        since = found
    if times.until_ms is not None and (stop is None or since < stop):
        rises = times.since_ms is not None and times.since_ms <= times.until_ms
        until = first_at(times.until_ms, since if rises else 0)
        stop = stop if until is None else until if stop is None else min(stop, until)
    start = max(offsets.start, since)
    if stop is not None and start > stop:
        start = stop = max(offsets.start, stop)
    return OffsetRange(start, stop)


def newest_indexed_ms(store: ObjectStore, segment: Segment, last_offset: int) -> int | None:
    """The largest time in a segment, of its time index's last entry; ``None`` where that cannot be relied on.

    A segment that is no longer written to has an entry for it, and no zeros behind.
    """
    if segment.is_active:
        return None
    try:
        entries = _read_ends(store, segment)
    except ObjectNotFoundError:
        return None
    for timestamp_ms, relative_offset in entries:
        if timestamp_ms > 0 and 0 <= relative_offset <= last_offset - segment.base_offset:
            return timestamp_ms
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    """One look-up: what is looked for, and where."""

    store: ObjectStore
    lineage: LeaderEpochs | None
    timestamp_ms: int
    counts_markers: bool
    start: int
    decompressor: Decompressor

    def may_hold(self, segment: Segment) -> bool:
        """Whether the catalogue leaves it open that something in the segment is new enough."""
        if not segment.log_size:
            return False
        newest_ms = segment.max_timestamp_ms
        return segment.is_active or newest_ms is None or newest_ms >= self.timestamp_ms

    def newest_ms(self, part: Part) -> int | None:
        """The largest time in the segment; see ``newest_indexed_ms``."""
        segment = part.segment
        last_offset = part.stop - 1 if segment.last_offset is None else segment.last_offset
        return None if segment.max_timestamp_ms is not None else newest_indexed_ms(self.store, segment, last_offset)

    def in_part(self, part: Part) -> OffsetAndTimestamp | None:
        """The first record of the part that will do. An index that misleads costs reading from the segment's start."""
        first = max(self.start, part.start)
        at = self._indexed(part.segment, first)
        try:
            try:
                return self._from(part, first, at)
            except FormatError:
                if not at.position:
                    raise
                return self._from(part, first, OffsetPosition(part.segment.base_offset, 0))
        except FormatError as error:
            error.located(source=self.store.url(part.segment.files.log))
            raise

    def _indexed(self, segment: Segment, first: int) -> OffsetPosition:
        """Where to begin: no batch before holds a time that will do at ``first`` or later."""
        beginning = OffsetPosition(segment.base_offset, 0)
        times, offsets = segment.files.time_index, segment.files.offset_index
        if offsets is None:
            return beginning
        if times is not None:
            try:
                index = parse_time_index(read_file(self.store, segment, times), segment.base_offset)
                if not index.trailing_bytes:
                    first = max(first, index.lookup(self.timestamp_ms).offset)
            except (FormatError, ObjectNotFoundError):
                pass  # then the times say nothing, and the offsets still do
        if first <= segment.base_offset:
            return beginning
        try:
            data = read_file(self.store, segment, offsets)
            return parse_offset_index(data, segment.base_offset, log_size=segment.log_size).lookup(first)
        except (FormatError, ObjectNotFoundError):
            return beginning

    def _from(self, part: Part, first: int, at: OffsetPosition) -> OffsetAndTimestamp | None:
        found = None
        before = None if at.position else part.segment.base_offset - 1
        with closing(self._batches(part.segment, at)) as batches:
            for batch in batches:
                if batch is None:
                    if found is not None:
                        break
                    continue
                header = batch.header
                if isinstance(header, RecordBatchHeader):
                    _require_order(header, before, part, batch.position)
                if found is not None:  # and the batch behind it shows that its offsets can be
                    break
                last = header.last_offset if isinstance(header, RecordBatchHeader) else header.offset
                if last >= first and self._is_wanted(header):
                    self._require_epoch(batch, OffsetRange(first, part.stop))
                    found = self._in_batch(batch, OffsetRange(first, part.stop))
                if last >= part.stop - 1:
                    break
                before = last if before is None else max(before, last)
        return found

    def _is_wanted(self, header: RecordBatchHeader | MessageHeader) -> bool:
        """Whether a batch may hold the record: new enough, and no marker where these do not count."""
        if isinstance(header, RecordBatchHeader):
            is_new = header.max_timestamp >= self.timestamp_ms
            return is_new and (self.counts_markers or not header.is_control)
        return header.timestamp_ms >= self.timestamp_ms

    def _require_epoch(self, batch: BatchReady, wanted: OffsetRange) -> None:
        """Raise if another leader epoch wrote the batch than the live log has there.

        Asked at its first offset wanted: after DeleteRecords a lineage may begin inside a batch.
        """
        header = batch.header
        if not isinstance(header, RecordBatchHeader) or self.lineage is None or header.partition_leader_epoch < 0:
            return
        at = max(header.base_offset, wanted.start)
        epoch = self.lineage.epoch_for(at)
        if at in wanted and epoch not in (None, header.partition_leader_epoch):
            raise CorruptBatchError(
                "a batch's leader epoch cannot be",
                position=batch.position,
                base_offset=header.base_offset,
                found=f"epoch {header.partition_leader_epoch}",
                expected=f"epoch {epoch}, by the leader-epoch checkpoints here",
                hint="A leader epoch is not under the CRC: read another copy of this segment",
            )

    def _in_batch(self, batch: BatchReady, wanted: OffsetRange) -> OffsetAndTimestamp | None:
        from segreader.format.records import iter_records

        epoch = batch.header.partition_leader_epoch if isinstance(batch.header, RecordBatchHeader) else -1
        try:
            for record in iter_records(batch.data, self.decompressor):
                if record.timestamp_ms >= self.timestamp_ms and record.offset in wanted:
                    return OffsetAndTimestamp(record.offset, record.timestamp_ms, epoch if epoch >= 0 else None)
        except FormatError as error:
            error.located(position_shift=batch.position)
            raise
        return None

    def _batches(self, segment: Segment, at: OffsetPosition) -> Generator[BatchReady | None, None, None]:
        """The batches from an index entry on; ``None`` each time before bytes are asked for."""
        scanner = SegmentScanner(start=at.position, stop=segment.log_size, max_batch_size=self.decompressor.limit)
        is_checked = at.position == 0
        with closing(self._pieces(segment, at.position)) as pieces:
            while True:
                answer = scanner.next()
                if isinstance(answer, NeedData):
                    yield None
                    scanner.feed(next(pieces, b""))
                    continue
                if not is_checked:
                    _require_indexed(answer, at, segment.base_offset)
                    is_checked = True
                if isinstance(answer, Done):
                    require_whole(answer, segment)
                    return
                yield answer

    def _pieces(self, segment: Segment, position: int) -> Generator[memoryview, None, None]:
        """The log from a position on, in requests that grow: the record is near an index entry."""
        size = _FIRST_PIECE
        log_size, tag = (None, None) if segment.is_active else (segment.log_size, segment.log_tag)
        while position < segment.log_size:
            wanted = ByteRange(position, min(position + size, segment.log_size))
            with closing(read_listed(self.store, segment.files.log, wanted, size=log_size, tag=tag)) as pieces:
                yield from pieces
            position, size = wanted.stop, min(4 * size, _LARGEST_PIECE)


def _require_order(header: RecordBatchHeader, before: int | None, part: Part, position: int) -> None:
    """Raise where a batch begins below the last offset ahead of it, or jumps out of its segment.

    Args:
        before: the last offset ahead of it, where that is known.
    """
    if before is None:
        return
    last_offset = part.segment.last_offset
    is_outside = last_offset is not None and last_offset < part.stop <= header.last_offset
    if header.base_offset <= before or (is_outside and header.base_offset > before + 1):
        raise CorruptBatchError(
            "a batch's offsets cannot be",
            position=position,
            base_offset=header.base_offset,
            found=f"offsets {header.base_offset} to {header.last_offset} after {before}",
            expected=f"offsets that rise, below {part.stop}",
            hint="A base offset is not under the CRC: read another copy of this segment",
        )


def _require_indexed(answer: BatchReady | Done, at: OffsetPosition, base_offset: int) -> None:
    """Compare the batch at an index entry with the entry, which has the last offset of what was appended there."""
    if isinstance(answer, BatchReady):
        header = answer.header
        first = header.base_offset if isinstance(header, RecordBatchHeader) else header.offset
        if base_offset <= first <= at.offset:
            return
    raise CorruptIndexError(
        "an index entry does not point to its batch",
        position=at.position,
        found=f"offset {first}" if isinstance(answer, BatchReady) else "no batch",
        expected=f"offset {at.offset}, or less",
    )


def certain_newest_ms(store: ObjectStore, part: Part, max_batch_bytes: int = DEFAULT_LIMIT) -> int | None:
    """A time that no record of the part is newer than, in ms; ``None`` where nothing here proves one.

    A time index has no checksum, and a copy of it may be cut. So its last entry is held against the log: the batch that
    it names must have just that time, and no batch behind it a newer one. Before it nothing is newer, for a broker adds
    an entry for each new maximum that it meets at an index interval, and one at the end for the maximum of all.

    Args:
        part: of one segment. One that a broker may still write to proves nothing.
    """
    segment = part.segment
    if segment.is_active or not segment.log_size:
        return None
    if segment.max_timestamp_ms is not None:  # as the broker stated it, under a CRC or in a manifest
        return segment.max_timestamp_ms if segment.max_timestamp_ms > 0 else None
    try:
        for newest_ms, relative_offset in _read_ends(store, segment):
            offset = segment.base_offset + relative_offset
            if newest_ms > 0 <= relative_offset and _is_proved(store, segment, newest_ms, offset, max_batch_bytes):
                return newest_ms
    except (FormatError, StorageError):
        pass
    return None


def _is_proved(store: ObjectStore, segment: Segment, newest_ms: int, offset: int, max_batch_bytes: int) -> bool:
    """Whether the batches from the one with ``offset`` on say that ``newest_ms`` is the maximum."""
    start = 0
    if segment.log_size > _MOST_PROOF:
        if segment.files.offset_index is None:
            return False
        index = read_end_of_index(store, segment.files.offset_index, segment)
        before = [entry for entry in index if entry.offset < offset]  # an entry's own batch may begin the search
        if not before or segment.log_size - before[-1].position > _MOST_PROOF:
            return False
        start = before[-1].position
    is_found = False
    for batch in iter_batches(store, segment, start, max_batch_bytes):
        if batch.magic < 2 or batch.max_timestamp > newest_ms:
            return False
        is_found |= batch.base_offset <= offset <= batch.last_offset and batch.max_timestamp == newest_ms
    return is_found


def times_of_log(store: ObjectStore, segments: Sequence[Segment]) -> tuple[int | None, int | None]:
    """The earliest time that the first segment's index has, and the largest one of all segments, in ms.

    Args:
        segments: of one partition, by base offset.
    """
    if not segments:
        return None, None
    first_ms = times_of_segment(store, segments[0])[0]
    known = [segment.max_timestamp_ms for segment in segments if segment.max_timestamp_ms is not None]
    if segments[-1].max_timestamp_ms is None:
        last_ms = times_of_segment(store, segments[-1])[1]
        return first_ms, None if last_ms is None else max([last_ms, *known])
    return first_ms, max(known)


def note_if_older(
    store: ObjectStore, logs: Iterable[Sequence[Segment]], times: TimeRange, offsets: OffsetRange
) -> str | None:
    """A note for people, with the newest time, where a read has no record because all are older than it asks for.

    Args:
        logs: the segments of each partition that is read, by base offset.
        times, offsets: asked for.

    Returns:
        ``None`` also where records may be as new and lie outside of the offsets, or at ``until`` or later.
    """
    since_ms = times.since_ms
    if since_ms is None:
        return None
    newest = _newest_time(store, logs)
    is_bounded = offsets != OffsetRange() or times.until_ms is not None
    if is_bounded and (newest is None or newest[0] >= since_ms):
        return None
    note = f"no record that can be read is as new as {_shown(since_ms)}"
    if newest is None:
        return note
    newest_ms, partition = newest
    note += f": the newest time there is {_shown(newest_ms)}, in {partition}"
    return note if newest_ms < since_ms else f"{note}, of a transaction marker or an open transaction"


def _newest_time(store: ObjectStore, logs: Iterable[Sequence[Segment]]) -> tuple[int, str] | None:
    """The newest time of some partitions, in ms, and the partition that has it; ``None`` where none is known.

    Args:
        logs: the segments of each partition, by base offset.
    """
    segments = [segment for log in logs for segment in log[-_MOST_SEGMENTS:]]
    times = read_each(lambda one: one.max_timestamp_ms or times_of_segment(store, one)[1] or -1, segments)
    found = max(zip(times, (str(one.partition) for one in segments), strict=True), default=(-1, ""))
    return found if found[0] > 0 else None


def _shown(time_ms: int) -> str:
    """In UTC, to the millisecond; times that no calendar has as numbers."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat("T", "milliseconds").removesuffix("+00:00") + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def times_of_segment(store: ObjectStore, segment: Segment) -> tuple[int | None, int | None]:
    """Times of the first and the last entry of a segment's time index, in ms.

    Only these two entries are read, unless a broker still writes to the segment.
    """
    name = segment.files.time_index
    if name is None or not segment.log_size:
        return None, None
    try:
        if segment.is_active:
            times_ms = parse_time_index(read_whole(store, name), segment.base_offset).timestamps_ms
            return (times_ms[0], times_ms[-1]) if len(times_ms) else (None, None)
        found = [time_ms for time_ms, _ in _read_ends(store, segment, with_first=True)]
    except UNREADABLE:
        return None, None
    return (found[0], found[-1]) if min(found, default=0) > 0 else (None, None)


def _read_ends(store: ObjectStore, segment: Segment, *, with_first: bool = False) -> list[tuple[int, int]]:
    """Time and relative offset of the last entry of a segment's time index, after the first one where that is wanted;
    nothing of an index that is empty or cut."""
    name = segment.files.time_index
    if name is None:
        return []
    size = segment.files.sizes.get(name)
    size = store.size(name) if size is None else size
    if size < _TIME_ENTRY.size or size % _TIME_ENTRY.size:
        return []
    ends = [ByteRange(size - _TIME_ENTRY.size, size)]
    if with_first and size > _TIME_ENTRY.size:
        ends.insert(0, ByteRange(0, _TIME_ENTRY.size))
    return [_TIME_ENTRY.unpack(data) for data in store.read_ranges(name, ends)]
