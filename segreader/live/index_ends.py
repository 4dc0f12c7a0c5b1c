"""At which byte of a located segment some of its offsets end, by a small range of the offset index that came with it.

An index has 8 bytes for each 4 KiB of a log or each batch, whichever is larger, and a segment's batches hold about
equally many offsets: the entry wanted is near its share of the index. What is found is never the only evidence: a
reader that misses offsets below its end reads on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from segreader.broker.messages import IndexLocation, RemoteLogSegmentLocation
from segreader.format.index_files import column, count_rising
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore

_ENTRY: Final = 8
_FIRST_WINDOW: Final = 1024
_WIDER: Final = 8
_MOST_READS: Final = 4


class _Window(NamedTuple):
    """Entries of an index from number ``first`` on: offsets relative to the segment's first one, and positions."""

    first: int
    offsets: Sequence[int]
    positions: Sequence[int]


def end_in_index(
    store: ObjectStore, name: str, index: IndexLocation, location: RemoteLogSegmentLocation, stop: int
) -> int | None:
    """A byte of the log, at the start of a batch or its end, before which all offsets below ``stop`` are.

    Args:
        store: has the index under ``name``.
        stop: within the segment.

    Returns:
        ``None`` if the index says nothing of it that could be believed.

    Raises:
        StorageError: as the store raises.
    """
    size = (store.size(name) if index.stop is None else index.stop) - index.start
    count, rest = divmod(size, _ENTRY)
    if rest:
        return None  # entries of another size
    last_wanted = stop - 1 - location.first_offset
    # All entries before ``low`` are below the last offset wanted; those from ``high`` on are not.
    low, high, width, found = 0, count, _FIRST_WINDOW, location.size
    below, above = 0, location.last_offset + 1 - location.first_offset
    for _ in range(_MOST_READS):
        if low >= high:
            return found
        share = (last_wanted - below) / max(above - below, 1)
        middle = low + int(min(max(share, 0.0), 1.0) * (high - low))
        first = max(low, min(middle - width // 2, high - width))
        window = _read(store, name, index, ByteRange(first, min(first + width + 1, count)), location.size)
        if window is None:
            return None
        at = bisect_left(window.offsets, last_wanted)
        if at + 1 < len(window.positions):  # the entry behind the one that names the last offset wanted
            found = window.positions[at + 1]
        if at == 0 and first > low:
            high, above = first, window.offsets[0]
        elif at + 1 < len(window.offsets) or first + at >= count - 1:
            return found
        else:
            low, below = first + at, window.offsets[at - 1]
        width *= _WIDER
    return found


def _read(store: ObjectStore, name: str, index: IndexLocation, entries: ByteRange, log_size: int) -> _Window | None:
    start = index.start + entries.start * _ENTRY
    data = bytes(store.read_ranges(name, [ByteRange(start, index.start + entries.stop * _ENTRY)])[0])
    count = len(data) // _ENTRY
    offsets, positions = column(data, _ENTRY, 0, 4), column(data, _ENTRY, 4, 4)
    is_sound = count and count_rising(offsets) == count_rising(positions) == count and positions[-1] < log_size
    return _Window(entries.start, offsets, positions) if is_sound else None
