"""The time index (``.timeindex``): from a time to an offset. Byte table: docs/reference/formats.md."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from segreader.errors import CorruptIndexError
from segreader.format.side_files.index_entries import column, count_rising, written_size

_ENTRY_SIZE = 12


@dataclass(frozen=True, slots=True, order=True)
class TimestampOffset:
    """The largest time up to here is ``timestamp_ms``, reached by the batch that ends at ``offset``."""

    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """The entries of one ``.timeindex``, held as two arrays. Iterating gives ``TimestampOffset``, times strictly
    rising.

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
    if cut := len(raw) % _ENTRY_SIZE:
        raise CorruptIndexError(
            "a time index is cut",
            found=f"{len(raw)} bytes",
            expected="a multiple of 12",
            position=len(raw) - cut,
            base_offset=base_offset,
        )
    written = written_size(raw, _ENTRY_SIZE)
    timestamps = column(raw[:written], _ENTRY_SIZE, 0, 8)
    offsets = column(raw[:written], _ENTRY_SIZE, 8, 4)
    count = min(count_rising(timestamps), count_rising(offsets, strictly=False))
    return TimeIndex(
        base_offset=base_offset,
        timestamps_ms=timestamps[:count],
        relative_offsets=offsets[:count],
        trailing_bytes=written - count * _ENTRY_SIZE,
        zero_tail=len(raw) - written,
    )
