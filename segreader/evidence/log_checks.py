"""A log and the indexes beside it: what each shows, and whether one contradicts another.

A log is looked at without being read whole: its first batch, those that its offset index names, and where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import field, replace
from typing import Final

from segreader.catalog.listing import read_file
from segreader.errors import CorruptIndexError, FormatError, ObjectNotFoundError, SegreaderError, shown_count
from segreader.evidence.findings import Findings
from segreader.evidence.rules import Code
from segreader.format.batch import COMMON_SIZE, HEADER_SIZE, check_common, parse_batch_header
from segreader.format.checkpoints import parse_producer_snapshot
from segreader.format.index_files import (
    TIME_ENTRY_SIZE,
    OffsetIndex,
    TimeIndex,
    is_beside,
    parse_offset_index,
    parse_time_index,
    parse_transaction_index,
)
from segreader.format.message_set import parse_message_header
from segreader.format.scanner import READ_SIZE, Batch, BatchReady, Done, NeedData, SegmentScanner, Tail, batch_of_header
from segreader.ranges import ByteRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.values import dataclass

_OFFSET_ENTRY: Final = 8
_MOST_OTHERS: Final = 16
_SAMPLES: Final = 16
_MOST_WALKED: Final = 16 << 20
_FARTHEST: Final = 1 << 31
"""How far above the batch before it a batch's offset may credibly be, where the log was compacted."""


def check_offset_index(found: Findings, data: bytes, name: str, segment: Segment) -> OffsetIndex:
    """Note what the file itself shows; returns the entries that rise and lie in the log."""
    base, log_size = segment.base_offset, None if segment.is_active else segment.log_size
    try:
        index = parse_offset_index(data, base, log_size=log_size)
    except CorruptIndexError as error:
        if extra := len(data) % _OFFSET_ENTRY:
            found.add_error(error, name, code=Code.CUT_OFFSET_INDEX)
            data = data[: len(data) - extra]
        index = parse_offset_index(data, base)
    if index.trailing_bytes:
        found.add(
            Code.OFFSET_INDEX_NOT_RISING,
            name,
            f"{index.trailing_bytes} bytes follow {_rising(index)}, in offset and position",
            position=len(index) * index.entry_size,
        )
    elif index.zero_tail and not segment.is_active:
        found.add(
            Code.OFFSET_INDEX_ZERO_TAIL,
            name,
            f"{index.zero_tail} bytes of zeros follow {shown_count(len(index), 'entry', 'entries')}",
            position=len(index) * index.entry_size,
        )
    inside = sum(position < segment.log_size for position in index.entry_positions)
    if inside < len(index) and not segment.is_active:
        found.add(
            Code.INDEX_BEYOND_LOG,
            name,
            f"entry {inside} points to byte {index.entry_positions[inside]} of a log of {segment.log_size} bytes",
            position=inside * index.entry_size,
            offset=base + index.relative_offsets[inside],
        )
    return OffsetIndex(
        base, index.relative_offsets[:inside], index.entry_positions[:inside], entry_size=index.entry_size
    )


def _rising(index: OffsetIndex | TimeIndex) -> str:
    return shown_count(len(index), "entry that rises", "entries that rise")


def check_time_index(found: Findings, data: bytes, name: str, segment: Segment) -> TimeIndex:
    """Note what the file itself shows; returns the entries that rise."""
    if extra := len(data) % TIME_ENTRY_SIZE:
        found.add(
            Code.CUT_TIME_INDEX,
            name,
            f"found {len(data)} bytes, expected a multiple of {TIME_ENTRY_SIZE}",
            position=len(data) - extra,
        )
        data = data[: len(data) - extra]
    index = parse_time_index(data, segment.base_offset)
    position = len(index) * TIME_ENTRY_SIZE
    if index.trailing_bytes:
        text = f"{index.trailing_bytes} bytes follow {_rising(index)}, in time and offset"
        found.add(Code.TIME_INDEX_NOT_RISING, name, text, position=position)
    elif index.zero_tail and not segment.is_active:
        text = f"{index.zero_tail} bytes of zeros follow {shown_count(len(index), 'entry', 'entries')}"
        found.add(Code.TIME_INDEX_ZERO_TAIL, name, text, position=position)
    return index


def check_time_index_bounds(
    found: Findings, index: TimeIndex, name: str, segment: Segment, first: int | None, limit: int | None
) -> None:
    """Hold the last entry of a time index against what is known of the segment.

    Args:
        first: base offset of the first batch, where it is known.
        limit: the last offset that the segment can have, where it is known.
    """
    if not len(index):
        return
    last = segment.base_offset + index.relative_offsets[-1]
    position = (len(index) - 1) * TIME_ENTRY_SIZE
    if (limit is not None and last > limit) or (first is not None and last < first):
        span = f"{segment.base_offset if first is None else first} to {'its end' if limit is None else limit}"
        text = f"the last entry names offset {last}, and the segment has offsets {span}"
        found.add(Code.TIME_INDEX_OUTSIDE_SEGMENT, name, text, position=position, offset=last)
    told = segment.max_timestamp_ms
    if told is not None and not segment.is_active and index.max_timestamp_ms != told:
        text = f"the last entry has timestamp {index.max_timestamp_ms}, and the catalogue has {told}"
        found.add(Code.TIME_INDEX_WRONG_END, name, text, position=position)


class OffsetIndexAudit:
    """Holds the entries of an offset index against every batch of the log, in order."""

    def __init__(self, found: Findings, index: OffsetIndex, name: str) -> None:
        self._found, self._index, self._name = found, index, name
        self._next = 0
        self._open: int | None = None  # an entry whose offset no batch has ended with yet

    def batch(self, batch: Batch) -> None:
        """Take the next batch."""
        index = self._index
        positions = index.entry_positions
        while self._next < len(positions) and positions[self._next] < batch.position:
            self._not_at_batch()
        if self._next < len(positions) and positions[self._next] == batch.position:
            if self._open is not None:
                self._wrong_offset(self._open, f"the next entry's batch begins with offset {batch.base_offset}")
            self._open = self._next
            self._next += 1
        if self._open is not None:
            offset = index.base_offset + index.relative_offsets[self._open]
            if batch.last_offset == offset:
                self._open = None
            elif batch.last_offset > offset:
                self._wrong_offset(self._open, f"no batch ends with it: one does with offset {batch.last_offset}")
                self._open = None

    def end(self) -> None:
        """The log has ended, with its last batch."""
        while self._next < len(self._index):
            self._not_at_batch()
        if self._open is not None:
            self._wrong_offset(self._open, "the log ends before it")

    def _not_at_batch(self) -> None:
        entry, self._next = self._next, self._next + 1
        note_not_at_batch(self._found, self._index, entry, self._name)

    def _wrong_offset(self, entry: int, why: str) -> None:
        note_wrong_offset(self._found, self._index, entry, self._name, why)


def note_not_at_batch(found: Findings, index: OffsetIndex, entry: int, name: str) -> None:
    """No batch begins where an entry says so."""
    found.add(
        Code.INDEX_NOT_AT_BATCH,
        name,
        f"entry {entry} points to byte {index.entry_positions[entry]} of the log, and no batch begins there",
        position=entry * index.entry_size,
        offset=index.base_offset + index.relative_offsets[entry],
    )


def note_wrong_offset(found: Findings, index: OffsetIndex, entry: int, name: str, why: str) -> None:
    """The batch at an entry's position ends with another offset."""
    offset = index.base_offset + index.relative_offsets[entry]
    found.add(
        Code.INDEX_WRONG_OFFSET,
        name,
        f"entry {entry} (byte {index.entry_positions[entry]} of the log) names offset {offset}: {why}",
        position=entry * index.entry_size,
        offset=offset,
    )


class TimeIndexAudit:
    """Holds the entries of a time index against every batch of the log, in order.

    An entry is the largest timestamp up to the batch that holds its offset. Source: ``TimeIndex``,
    ``LogSegment.append`` (4.0); older brokers name the record's offset in place of the batch's last.
    """

    def __init__(self, found: Findings, index: TimeIndex, name: str, *, is_active: bool) -> None:
        self._found, self._index, self._name = found, index, name
        self._is_active = is_active
        self._next = 0
        self._largest = -1
        self._before = index.base_offset - 1

    def batch(self, batch: Batch) -> None:
        """Take the next batch."""
        before, self._before = self._before, batch.last_offset
        self._largest = max(self._largest, batch.max_timestamp)
        index = self._index
        while self._next < len(index):
            offset = index.base_offset + index.relative_offsets[self._next]
            if offset > batch.last_offset:
                return
            time = index.timestamps_ms[self._next]
            if batch.magic == 2 and is_beside(offset, batch.base_offset, batch.last_offset, before):
                self._note(Code.TIME_INDEX_OUTSIDE_SEGMENT, offset, "no batch holds that offset")
            elif time != self._largest:
                what = f"its timestamp is {time}, and the largest up to there is {self._largest}"
                self._note(Code.TIME_INDEX_WRONG_TIMESTAMP, offset, what)
            self._next += 1

    def end(self) -> None:
        """The log has ended, with its last batch."""
        index = self._index
        while self._next < len(index):
            offset = index.base_offset + index.relative_offsets[self._next]
            self._note(Code.TIME_INDEX_OUTSIDE_SEGMENT, offset, "the log ends before that offset")
            self._next += 1
        last = -1 if index.max_timestamp_ms is None else index.max_timestamp_ms
        if last != self._largest and not self._is_active:
            text = f"its last timestamp is {last}, and the largest of the segment is {self._largest}"
            self._found.add(Code.TIME_INDEX_WRONG_END, self._name, text)

    def _note(self, code: Code, offset: int, text: str) -> None:
        entry = self._next
        self._found.add(
            code,
            self._name,
            f"entry {entry} (offset {offset}): {text}",
            position=entry * TIME_ENTRY_SIZE,
            offset=offset,
        )


@dataclass(slots=True)
class LogFacts:
    """What was seen of one log.

    Args:
        seen: the first batch, those that the offset index names, the last one: some of all, by position.
        first: the first batch.
        end: last offset of the last whole batch; ``None`` where it was not looked for.
        tail: how the log ends behind that batch: ``Done``, or the error that ended the search.
        was_cleaned: some batch shows that the log was compacted, or a gap between two does, or says that some are lost.
        was_rewritten: some batch shows it: the cleaner took records out of it.
        jumps: batches of magic 2 that do not follow the offset before them, and that offset.
    """

    seen: list[Batch] = field(default_factory=list)
    first: Batch | None = None
    end: int | None = None
    tail: Done | FormatError | None = None
    was_cleaned: bool = False
    was_rewritten: bool = False
    jumps: list[tuple[int, Batch]] = field(default_factory=list)


def look_at_log(found: Findings, store: ObjectStore, segment: Segment, index: OffsetIndex | None) -> LogFacts:
    """Read some headers of a log: the first, those that the offset index names, and all after the last of these.

    Raises:
        StorageError, CatalogError: bytes cannot be had.
    """
    facts = LogFacts()
    if not segment.log_size:
        facts.end, facts.tail = segment.base_offset - 1, Done(Tail.END, 0)
        return facts
    chosen = _chosen(len(index)) if index is not None else []
    named = [index.entry_positions[entry] for entry in chosen] if index is not None else []
    first, *headers = _read_headers(store, segment, [0, *named])
    if first is not None:
        facts.seen.append(first)
        facts.first = first
    for entry, header in zip(chosen, headers, strict=True):
        if index is None:
            break
        if not _is_credible(header, segment):
            header = _walk_to(store, segment, index.entry_positions[entry], facts)
            if facts.tail is not None:
                return facts
        if header is None:
            note_not_at_batch(found, index, entry, segment.files.offset_index or "")
        else:
            facts.seen.append(header)
            if header.last_offset > index.base_offset + index.relative_offsets[entry]:
                why = f"the batch there ends with offset {header.last_offset}"
                note_wrong_offset(found, index, entry, segment.files.offset_index or "", why)
    facts.was_rewritten |= any(batch.was_cleaned for batch in facts.seen)
    facts.was_cleaned |= facts.was_rewritten
    start = facts.seen[-1].position if facts.seen else 0
    if segment.log_size - start <= _MOST_WALKED:
        _walk(store, segment, start, facts)
    return facts


def check_base_offset(found: Findings, segment: Segment, first: Batch | None, covered_to: int | None) -> None:
    """Hold the offset in a segment's name against its first batch.

    A first batch may lie above it, where the cleaner removed what was before. But no segment begins inside another
    one of the same offsets and has its first batch behind that.

    Args:
        covered_to: the last offset of the segment before, where it is known.
    """
    base = segment.base_offset
    if first is None or first.base_offset == base:
        return
    is_above = first.magic == 2 and covered_to is not None and base <= covered_to < first.base_offset
    if first.base_offset < base or is_above:
        text = f"the name has offset {base}, and the first batch starts with {first.base_offset}"
        found.add(Code.WRONG_BASE_OFFSET, segment.files.log, text, position=0, offset=first.base_offset)


def check_tail(
    found: Findings, segment: Segment, facts: LogFacts, expected: int | None, at_least: int | None = None
) -> None:
    """Note what follows the last whole batch.

    Args:
        expected: the last offset that the segment should have, where it is known.
        at_least: an offset that it should reach, by a file beside it.
    """
    tail, end = facts.tail, facts.end
    if tail is None or end is None or (isinstance(tail, Done) and tail.tail is Tail.END):
        return
    is_whole = expected is not None and end >= expected
    if isinstance(tail, FormatError):
        is_foreign = tail.base_offset is not None and not _may_follow(tail.base_offset, end)
        if is_whole or (expected is None and is_foreign and (at_least is None or end >= at_least)):
            text = f"after the batch that ends with offset {end}: {tail.message}; found {tail.found}"
            found.add(Code.GARBAGE_TAIL, segment.files.log, text, position=tail.position, offset=end)
        else:
            found.add_error(tail, segment.files.log)
        return
    trailing = shown_count(tail.trailing_bytes, "byte follows", "bytes follow")
    text = f"{trailing} the last whole batch, which ends with offset {end}"
    if segment.is_active:
        code = Code.ACTIVE_TAIL
    elif tail.tail is Tail.ZERO and (is_whole or tail.trailing_bytes >= 8):  # fewer may begin an offset
        if segment.is_padded:
            return
        code, text = Code.ZERO_TAIL, f"{text}: all zeros"
    elif is_whole:
        code = Code.GARBAGE_TAIL
    elif tail.base_offset is not None and not _may_follow(tail.base_offset, end):
        is_known = expected is not None or (at_least is not None and end < at_least)
        code = Code.BROKEN_BATCH if is_known else Code.GARBAGE_TAIL
    else:
        code = Code.TRUNCATED_LOG
        if tail.missing_bytes is not None:
            text += f"; {tail.missing_bytes} more would make a batch"
    found.add(code, segment.files.log, text, position=tail.position, offset=end)


def check_jumps(found: Findings, facts: LogFacts, timed: int, name: str) -> None:
    """Note an offset that a time index names, and that batches jump over.

    Args:
        timed: the offset of an entry.
        name: of the time index.
    """
    for before, batch in facts.jumps:
        if before < timed <= batch.last_offset and is_beside(timed, batch.base_offset, batch.last_offset, before):
            text = f"it names offset {timed}, and a batch with offsets {batch.base_offset} to {batch.last_offset} "
            text += f"follows offset {before} in the log"
            found.add(Code.TIME_INDEX_OUTSIDE_SEGMENT, name, text, offset=timed)


def look_for_cleaning(store: ObjectStore, segment: Segment) -> bool:
    """Whether the first batches of a log show that it was compacted once."""
    facts = LogFacts()
    if segment.log_size:
        _walk(store, replace(segment, log_size=min(segment.log_size, READ_SIZE)), 0, facts)
    return facts.was_cleaned


def _may_follow(base_offset: int, end: int) -> bool:
    """Whether a batch with this base offset may stand behind the offset ``end``."""
    return end < base_offset < end + _FARTHEST


def _chosen(count: int) -> list[int]:
    """Some entries, the first and the last among them."""
    if count <= _SAMPLES:
        return list(range(count))
    return sorted({number * (count - 1) // (_SAMPLES - 1) for number in range(_SAMPLES)})


def _read_headers(store: ObjectStore, segment: Segment, positions: Sequence[int]) -> list[Batch | None]:
    """The headers at these bytes; ``None`` where there is none."""
    size = segment.log_size
    inside = [position for position in positions if position + COMMON_SIZE <= size]
    ranges = [ByteRange(position, min(position + HEADER_SIZE, size)) for position in inside]
    read = dict(zip(inside, store.read_ranges(segment.files.log, ranges) if ranges else (), strict=True))
    return [_parse(read[position], position) if position in read else None for position in positions]


def _parse(data: bytes, position: int) -> Batch | None:
    try:
        _, _, magic = check_common(data, 0)
        return batch_of_header(parse_batch_header(data) if magic == 2 else parse_message_header(data), position)
    except FormatError:
        return None


def _is_credible(header: Batch | None, segment: Segment) -> bool:
    """Whether bytes that look like a header are one: their size stays in the log, their offset near the segment's."""
    return (
        header is not None
        and header.position + header.size <= segment.log_size
        and header.base_offset <= header.last_offset
        and abs(header.base_offset - segment.base_offset) < _FARTHEST
    )


def _walk_to(store: ObjectStore, segment: Segment, position: int, facts: LogFacts) -> Batch | None:
    """The batch that begins at ``position``, by the batches before it; ``None`` if none does.

    If the log is damaged before or there, ``facts`` say so: then the index may be right.
    """
    start = facts.seen[-1].position if facts.seen else 0
    walked = LogFacts()
    if position - start <= _MOST_WALKED:
        _walk(store, segment, start, walked, up_to=position)
    if isinstance(walked.tail, FormatError):
        facts.end, facts.tail = walked.end, walked.tail
    last = walked.seen[-1] if walked.seen else None
    return last if last is not None and last.position == position else None


def _walk(store: ObjectStore, segment: Segment, start: int, facts: LogFacts, *, up_to: int | None = None) -> None:
    """Go over the batches from byte ``start`` on, header by header, to the end or the first batch from ``up_to`` on."""
    end, last = segment.base_offset - 1, None
    scanner = SegmentScanner(start=start, stop=segment.log_size)
    with closing(store.read_pieces(segment.files.log, ByteRange(start, segment.log_size))) as pieces:
        while up_to is None or last is None or last.position < up_to:
            try:
                answer = scanner.next()
            except FormatError as error:
                facts.end, facts.tail = end, error
                break
            if isinstance(answer, NeedData):
                scanner.feed(next(pieces, b""))
            elif isinstance(answer, BatchReady):
                batch = batch_of_header(answer.header, answer.position)
                is_gap = (last is not None or not start) and batch.magic == 2 and batch.base_offset > end + 1
                facts.was_rewritten |= batch.was_cleaned
                facts.was_cleaned |= facts.was_rewritten or (is_gap and last is not None)
                if is_gap:
                    facts.jumps.append((end, batch))
                end, last = max(end, batch.last_offset), batch
            else:
                facts.end, facts.tail = end, answer
                break
    if last is not None:
        facts.seen.append(last)


def why_not_emptied(store: ObjectStore, empty: Segment, others: Sequence[Segment], *, was_cleaned: bool) -> str | None:
    """What contradicts that the log cleaner left this log empty; ``None`` if nothing does.

    The cleaner leaves empty indexes, and traces in other segments. No other part of a broker leaves a finished segment
    without a batch.

    Args:
        others: the other segments of the partition.
        was_cleaned: a batch that was read shows that the log was compacted.
    """
    files = empty.files
    for name in (files.offset_index, files.time_index, files.transaction_index):
        if name is not None and any(_read(store, empty, name)):
            return f"{name.rpartition('/')[2]} beside it has entries"
    if was_cleaned:
        return None
    nearest = sorted((one for one in others if one.log_size), key=lambda one: abs(one.base_offset - empty.base_offset))
    for one in nearest[:_MOST_OTHERS]:
        try:
            if look_for_cleaning(store, one):
                return None
        except SegreaderError:
            continue  # reading it will say so
    return "no batch beside it shows that the log was compacted"


def largest_named(store: ObjectStore, segment: Segment) -> int | None:
    """The largest offset that the files beside a log name; ``None`` if they name none."""
    base, files = segment.base_offset, segment.files
    named: list[int] = []

    def look(name: str | None, offsets: Callable[[bytes], Sequence[int]]) -> None:
        try:
            if name is not None and (found := offsets(_read(store, segment, name))):
                named.append(max(found))
        except FormatError:
            pass  # what cannot be read names nothing

    look(files.offset_index, lambda data: [one.offset for one in parse_offset_index(data, base)])
    look(files.time_index, lambda data: [one.offset for one in parse_time_index(data, base)])
    look(files.transaction_index, lambda data: [row.last_offset for row in parse_transaction_index(data, base)])
    look(files.producer_snapshot, lambda data: [one.last_offset for one in parse_producer_snapshot(data)])
    return max((offset for offset in named if offset >= base), default=None)


def _read(store: ObjectStore, segment: Segment, name: str) -> bytes:
    try:
        return read_file(store, segment, name)
    except ObjectNotFoundError:
        return b""
