"""The index files of a segment: offset index, time index and transaction index. Byte tables: docs/reference/formats.md.

The first two are aids: they may be sparse, short or empty, and position 0 of the log always begins a batch.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from segreader.errors import CorruptIndexError
from segreader.format.kernel import load_kernel
from segreader.values import dataclass

_TYPECODES = {4: "i", 8: "q"}

MOST_OF_INDEX: Final = 256 << 20
"""Bytes of an offset index or a time index: in a log of 2 GiB, the largest, an entry for every 64 or 96 bytes of it."""

MOST_OF_TRANSACTION_INDEX: Final = 128 << 20
"""Bytes of a transaction index: 3.9 million transactions that are aborted in one segment."""


def written_size(data: bytes, entry_size: int) -> int:
    """Bytes from the start to the end of the last entry that is not all zeros.

    A broker preallocates the index of its active segment; the zeros that follow the entries are room, not
    entries. Source: ``AbstractIndex`` (4.0).
    """
    return -(-len(data.rstrip(b"\0")) // entry_size) * entry_size


def column(data: bytes, entry_size: int, first: int, width: int) -> array[int]:
    """One big-endian signed field of every entry, in the order of the file.

    Args:
        data: whole entries.
        entry_size: bytes of one entry.
        first: where the field begins in its entry, in bytes.
        width: bytes of the field, 4 or 8.
    """
    packed = bytearray(len(data) // entry_size * width)
    for byte in range(width):
        packed[byte::width] = data[first + byte :: entry_size]
    values = array(_TYPECODES[width], bytes(packed))
    if sys.byteorder == "little":
        values.byteswap()
    return values


def count_rising(values: array[int], *, strictly: bool = True) -> int:
    """How many leading values are not negative and rise; if not ``strictly``, equal neighbours do as well."""
    return load_kernel().count_rising(values, strictly)


_ENTRY_SIZES = (8, 12)


@dataclass(frozen=True, slots=True, order=True)
class OffsetPosition:
    """A batch begins at ``position`` (bytes into the ``.log``); ``offset`` is a record's place in the log."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """The entries of one ``.index``, from offsets to positions, as two arrays: a real one has up to a million.

    Iterating gives ``OffsetPosition`` in rising order. The position of an entry is always the start of a
    batch. Its offset is the last one of what was appended there, which may be several batches.

    ``entry_size`` 12 is a deduction, since nothing in the file states it: check whether one of ``positions()``
    really begins a batch before trusting it. ``trailing_bytes`` counts what follows the last entry that
    rises, where that is not zeros: left over from a truncation, or damage. ``zero_tail`` counts
    preallocated zeros after all else.

    Source: ``OffsetIndex``, ``AbstractIndex`` (4.0); 12-byte entries KIP-1333.
    """

    base_offset: int
    relative_offsets: array[int]
    entry_positions: array[int]
    entry_size: int = 8
    trailing_bytes: int = 0
    zero_tail: int = 0

    def __len__(self) -> int:
        return len(self.relative_offsets)

    def __iter__(self) -> Iterator[OffsetPosition]:
        return map(self._entry, range(len(self)))

    def lookup(self, offset: int) -> OffsetPosition:
        """Where to start reading for ``offset``: the last entry at or below it, or the start of the log.

        Scan on from there to the first batch whose last offset is not below ``offset``; the batch at the
        position need not hold it.
        """
        index = bisect_right(self.relative_offsets, offset - self.base_offset) - 1
        return self._entry(index) if index >= 0 else OffsetPosition(self.base_offset, 0)

    def end_below(self, stop: int) -> int | None:
        """The byte before which all batches with offsets below ``stop`` are; ``None`` for the end of the log."""
        after = bisect_left(self.relative_offsets, stop - 1 - self.base_offset) + 1
        return self.entry_positions[after] if after < len(self) else None

    def end_of(self, position: int) -> int | None:
        """The first indexed batch start at or behind a byte of the log; ``None`` for the end of the log."""
        after = bisect_left(self.entry_positions, position)
        return self.entry_positions[after] if after < len(self) else None

    def around(self, offset: int, log_size: int) -> tuple[int, int]:
        """The byte range of the log, start and stop, that contains the batch of ``offset``.

        An entry names the last offset of what was appended at its position, so the batch may be the next entry's.
        """
        index = bisect_right(self.relative_offsets, offset - self.base_offset) - 1
        start = self.entry_positions[index] if index >= 0 else 0
        return start, self.entry_positions[index + 2] if index + 2 < len(self) else log_size

    def positions(self) -> Sequence[int]:
        """Where a split may begin: 0 and every indexed batch start, rising, in bytes."""
        if self.entry_positions and self.entry_positions[0] == 0:
            return self.entry_positions
        return array(self.entry_positions.typecode, [0]) + self.entry_positions

    def _entry(self, index: int) -> OffsetPosition:
        return OffsetPosition(self.base_offset + self.relative_offsets[index], self.entry_positions[index])


def parse_offset_index(
    data: bytes | bytearray | memoryview, base_offset: int, *, log_size: int | None = None
) -> OffsetIndex:
    """Read a whole ``.index``.

    Entries are read as 8 bytes. Where that reading does not rise to the end of the file, or leaves the log,
    and 12-byte entries do neither, they are taken.

    Args:
        data: the whole file.
        base_offset: base offset of the segment, which the file name holds.
        log_size: bytes of the ``.log``. For a segment still written to, ask for it after reading the index.

    Raises:
        CorruptIndexError: the length is no multiple of an entry, or an entry is outside the log.

    Source: ``OffsetIndex``, ``AbstractIndex`` (4.0); 12-byte entries KIP-1333.
    """
    raw = bytes(data)
    readings = []
    for size in _ENTRY_SIZES:
        if len(raw) % size == 0:
            index = _read_offset_index(raw, base_offset, size)
            if not index.trailing_bytes and _lies_in_log(index, log_size):
                return index
            readings.append(index)
    if len(raw) % _ENTRY_SIZES[0]:
        raise CorruptIndexError(
            "an offset index is cut",
            found=f"{len(raw)} bytes",
            expected="a multiple of 8",
            position=len(raw) - len(raw) % _ENTRY_SIZES[0],
            base_offset=base_offset,
        )
    index = readings[0]
    if not _lies_in_log(index, log_size):
        outside = bisect_left(index.entry_positions, log_size or 0)
        raise CorruptIndexError(
            "an index entry is outside its log",
            found=f"position {index.entry_positions[outside]}",
            expected=f"below {log_size}",
            position=outside * index.entry_size,
            base_offset=base_offset,
        )
    return index


def _read_offset_index(raw: bytes, base_offset: int, entry_size: int) -> OffsetIndex:
    written = written_size(raw, entry_size)
    offsets = column(raw[:written], entry_size, 0, 4)
    positions = column(raw[:written], entry_size, 4, entry_size - 4)
    count = min(count_rising(offsets), count_rising(positions))
    return OffsetIndex(
        base_offset=base_offset,
        relative_offsets=offsets[:count],
        entry_positions=positions[:count],
        entry_size=entry_size,
        trailing_bytes=written - count * entry_size,
        zero_tail=len(raw) - written,
    )


def _lies_in_log(index: OffsetIndex, log_size: int | None) -> bool:
    return log_size is None or not len(index) or index.entry_positions[-1] < log_size


TIME_ENTRY_SIZE = 12


@dataclass(frozen=True, slots=True, order=True)
class TimestampOffset:
    """The largest time up to here is ``timestamp_ms``, reached by the batch that ends at ``offset``."""

    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """The entries of one ``.timeindex``, from times to offsets, as two arrays.

    Iterating gives ``TimestampOffset``, times strictly rising.

    Transaction markers and aborted records count like any other. ``trailing_bytes`` counts what follows the
    last entry that rises, where that is not zeros; ``zero_tail`` counts preallocated zeros after all else.

    Source: ``TimeIndex`` (4.0).
    """

    base_offset: int
    timestamps_ms: array[int]
    relative_offsets: array[int]
    trailing_bytes: int = 0
    zero_tail: int = 0

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def __iter__(self) -> Iterator[TimestampOffset]:
        return map(self._entry, range(len(self)))

    @property
    def max_timestamp_ms(self) -> int | None:
        """Time of the last entry; ``None`` where no batch has a time.

        That is the segment's largest time once the segment is rolled: rolling adds an entry for it. While the
        broker still writes to the segment (``zero_tail`` is not 0), later batches may be newer.
        """
        return self.timestamps_ms[-1] if self.timestamps_ms else None

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The last entry at or before a time, or (-1, base offset).

        Batches that end before its offset hold earlier times only: look that offset up in the offset index
        and scan on.
        """
        index = bisect_right(self.timestamps_ms, timestamp_ms) - 1
        return self._entry(index) if index >= 0 else TimestampOffset(-1, self.base_offset)

    def _entry(self, index: int) -> TimestampOffset:
        return TimestampOffset(self.timestamps_ms[index], self.base_offset + self.relative_offsets[index])


def parse_time_index(data: bytes | bytearray | memoryview, base_offset: int) -> TimeIndex:
    """Read a whole ``.timeindex``.

    Args:
        data: the whole file.
        base_offset: base offset of the segment, which the file name holds.

    Raises:
        CorruptIndexError: the length is no multiple of 12.

    Source: ``TimeIndex``, ``AbstractIndex`` (4.0).
    """
    raw = bytes(data)
    if cut := len(raw) % TIME_ENTRY_SIZE:
        raise CorruptIndexError(
            "a time index is cut",
            found=f"{len(raw)} bytes",
            expected="a multiple of 12",
            position=len(raw) - cut,
            base_offset=base_offset,
        )
    written = written_size(raw, TIME_ENTRY_SIZE)
    timestamps = column(raw[:written], TIME_ENTRY_SIZE, 0, 8)
    offsets = column(raw[:written], TIME_ENTRY_SIZE, 8, 4)
    count = min(count_rising(timestamps), count_rising(offsets, strictly=False))
    return TimeIndex(
        base_offset=base_offset,
        timestamps_ms=timestamps[:count],
        relative_offsets=offsets[:count],
        trailing_bytes=written - count * TIME_ENTRY_SIZE,
        zero_tail=len(raw) - written,
    )


def is_beside(named: int, base_offset: int, last_offset: int, before: int) -> bool:
    """Whether a batch contradicts that one of its log has an offset, which is above ``before`` and not above its last.

    Offsets jump only where the cleaner was at work, and it writes indexes anew: these name the last offset of a batch.

    Args:
        named: by a time index.
        base_offset, last_offset: of the batch, of magic 2.
        before: the last offset ahead of the batch.
    """
    return base_offset > named or (base_offset > before + 1 and last_offset != named)


_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """One aborted transaction of one producer in one partition.

    ``first_offset`` is the base offset of its first batch and may be in an earlier segment;
    ``last_offset`` is its ABORT marker. ``last_stable_offset`` is the first offset that was undecided right
    after the abort.

    Source: ``AbortedTxn`` (4.0).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """The aborted transactions whose ABORT marker is in this segment, by rising ``last_offset``.

    It does not show which data *in* this segment was aborted: the marker of that data may be segments later. A
    segment without aborts has no such file.
    ``trailing_bytes`` counts a last entry that is cut, which Kafka ignores.
    """

    entries: tuple[AbortedTransaction, ...] = ()
    trailing_bytes: int = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self.entries)

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch offsets ``start <= offset < upper``, and whether these are all.

        Returns:
            The transactions in the order of the file; and ``False`` where the next segment's index must be
            asked as well. It is ``True`` once an abort found everything below ``upper`` decided: whatever
            else was aborted there comes before it.

        Source: ``TransactionIndex.collectAbortedTxns`` (4.0).
        """
        collected = []
        for entry in self.entries:
            if entry.last_offset >= start and entry.first_offset < upper:
                collected.append(entry)
            if entry.last_stable_offset >= upper:
                return collected, True
        return collected, False


def parse_transaction_index(data: bytes | bytearray | memoryview, base_offset: int = 0) -> TransactionIndex:
    """Read a whole ``.txnindex``.

    The file has no checksum and a wrong entry shows aborted records as committed, so an entry that no
    broker can have written is refused.

    Args:
        data: the whole file.
        base_offset: base offset of the segment; no marker in it is below.

    Raises:
        CorruptIndexError: an unknown version, offsets that cannot be, or markers out of order.

    Source: ``TransactionIndex``, ``AbortedTxn`` (4.0), which look at the first byte of the version only.
    """
    raw = bytes(data)
    size = _ENTRY.size
    trailing = len(raw) % size
    entries: list[AbortedTransaction] = []
    previous = base_offset - 1
    for position in range(0, len(raw) - trailing, size):
        if raw[position]:
            raise CorruptIndexError(
                "a transaction index has an unknown version",
                found=f"version {raw[position]}",
                expected="version 0",
                position=position,
                base_offset=base_offset,
            )
        _, *fields = _ENTRY.unpack_from(raw, position)
        entry = AbortedTransaction(*fields)
        if not (
            entry.producer_id >= 0
            and 0 <= entry.first_offset < entry.last_offset
            and 0 <= entry.last_stable_offset <= entry.last_offset + 1
            and previous < entry.last_offset
        ):
            raise CorruptIndexError(
                "an aborted transaction contradicts itself or the one before",
                found=entry,
                expected=f"first < last > {previous}, and a last stable offset up to last + 1",
                position=position,
                base_offset=base_offset,
            )
        previous = entry.last_offset
        entries.append(entry)
    return TransactionIndex(tuple(entries), trailing)
