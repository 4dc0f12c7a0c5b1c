"""The offset index (``.index``): from an offset to a position in the ``.log``. Byte table: docs/reference/formats.md.

An index is an aid. It may be sparse, short or empty, and a reader must work without it: position 0 always
begins the first batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from segreader.errors import CorruptIndexError
from segreader.format.side_files.index_entries import column, count_rising, written_size

_ENTRY_SIZES = (8, 12)


@dataclass(frozen=True, slots=True, order=True)
class OffsetPosition:
    """A batch begins at ``position`` (bytes into the ``.log``); ``offset`` is a record's place in the log."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """The entries of one ``.index``, held as two arrays: a real index has up to a million entries.

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
            index = _read(raw, base_offset, size)
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


def _read(raw: bytes, base_offset: int, entry_size: int) -> OffsetIndex:
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
