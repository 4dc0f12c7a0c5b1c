"""The last records of a partition: which offsets they have, found from its end backwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from segreader.errors import FormatError
from segreader.ranges import OffsetRange

_FEW: Final = 4096
"""Offsets between two records that are read in one go, and looked at first where few records match a filter."""


def last_offsets(
    read: Callable[[OffsetRange], Iterable[pa.RecordBatch]],
    wanted: OffsetRange,
    count: int,
    *,
    is_filtered: bool = False,
    surely: int | None = None,
    on_damage: Callable[[FormatError], object] | None = None,
) -> list[int]:
    """The offsets of the last records; fewer than ``count`` if there are no more.

    A stretch at the end is read first, and then, as long as records are lacking, each time one before it that is twice
    as long: offsets may have no record, where a topic is compacted or transactions were aborted. At most the stretch
    that has the first of the records is read in vain.

    Args:
        read: gives the records of some offsets, with their column ``offset``.
        wanted: the offsets to look at; they have an end.
        count: how many records.
        is_filtered: whether ``read`` leaves out records by what they hold.
        surely: the first stretch reaches to before this offset, if damage hides where the records end.
        on_damage: called with damage behind the records that were found.

    Raises:
        FormatError: there is damage, fewer were found, and ``on_damage`` is not given.
    """
    found: list[int] = []
    kept: deque[int] = deque()
    damage: FormatError | None = None
    high = wanted.start if wanted.stop is None else wanted.stop
    low = high if surely is None else min(high, surely)
    width = max(count, _FEW) if is_filtered else count
    is_more = high > wanted.start
    while is_more and len(kept) + len(found) < count:
        low, damage = max(wanted.start, low - width), None
        kept = deque(maxlen=count - len(found))
        try:
            for batch in read(OffsetRange(low, high)):
                offsets = batch.column("offset")
                kept.extend(offsets.slice(max(0, len(offsets) - count)).to_pylist())
        except FormatError as error:
            damage = error
        else:
            found, high = [*kept, *found], low
            kept.clear()
        width *= 2
        is_more = low > wanted.start
    found = [*kept, *found]
    if damage is not None and on_damage is not None:
        on_damage(damage)
    elif damage is not None and len(found) < count:
        raise damage
    return found


def ranges_around(offsets: Sequence[int]) -> list[OffsetRange]:
    """Ranges that hold all of these offsets, which rise, and not much else."""
    ranges: list[OffsetRange] = []
    for offset in offsets:
        if ranges and offset - (ranges[-1].stop or 0) < _FEW:
            ranges[-1] = OffsetRange(ranges[-1].start, offset + 1)
        else:
            ranges.append(OffsetRange(offset, offset + 1))
    return ranges
