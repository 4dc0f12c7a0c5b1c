"""The offset index and the time index of a segment: against themselves, and against the batches of the log."""

from __future__ import annotations

from segreader.errors import CorruptIndexError
from segreader.evidence.findings import Findings
from segreader.evidence.rules import Code
from segreader.format.index_files import OffsetIndex, TimeIndex, parse_offset_index, parse_time_index
from segreader.format.scanner import Batch
from segreader.segment import Segment

_TIME_ENTRY = 12
_OFFSET_ENTRY = 8


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
            f"{index.trailing_bytes} bytes follow {len(index)} entries that rise, in offset and position",
            position=len(index) * index.entry_size,
        )
    elif index.zero_tail and not segment.is_active:
        found.add(
            Code.OFFSET_INDEX_ZERO_TAIL,
            name,
            f"{index.zero_tail} bytes of zeros follow {len(index)} entries",
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


def check_time_index(found: Findings, data: bytes, name: str, segment: Segment) -> TimeIndex:
    """Note what the file itself shows; returns the entries that rise."""
    if extra := len(data) % _TIME_ENTRY:
        found.add(
            Code.CUT_TIME_INDEX,
            name,
            f"found {len(data)} bytes, expected a multiple of {_TIME_ENTRY}",
            position=len(data) - extra,
        )
        data = data[: len(data) - extra]
    index = parse_time_index(data, segment.base_offset)
    position = len(index) * _TIME_ENTRY
    if index.trailing_bytes:
        text = f"{index.trailing_bytes} bytes follow {len(index)} entries that rise, in time and offset"
        found.add(Code.TIME_INDEX_NOT_RISING, name, text, position=position)
    elif index.zero_tail and not segment.is_active:
        text = f"{index.zero_tail} bytes of zeros follow {len(index)} entries"
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
    position = (len(index) - 1) * _TIME_ENTRY
    if (limit is not None and last > limit) or (first is not None and last < first):
        span = f"{segment.base_offset if first is None else first} to {'its end' if limit is None else limit}"
        text = f"the last entry names offset {last}, and the segment has offsets {span}"
        found.add(Code.TIME_INDEX_OUTSIDE_SEGMENT, name, text, position=position, offset=last)
    told = segment.max_timestamp_ms
    if told is not None and not segment.is_active and index.max_timestamp_ms != told:
        text = f"the last entry has timestamp {index.max_timestamp_ms}, and the catalogue has {told}"
        found.add(Code.TIME_INDEX_WRONG_END, name, text, position=position)


def is_beside(named: int, base_offset: int, last_offset: int, before: int) -> bool:
    """Whether a batch contradicts that one of its log has an offset, which is above ``before`` and not above its last.

    Offsets jump only where the cleaner was at work, and it writes indexes anew: these name the last offset of a batch.

    Args:
        named: by a time index.
        base_offset, last_offset: of the batch, of magic 2.
        before: the last offset ahead of the batch.
    """
    return base_offset > named or (base_offset > before + 1 and last_offset != named)


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
            code, self._name, f"entry {entry} (offset {offset}): {text}", position=entry * _TIME_ENTRY, offset=offset
        )
