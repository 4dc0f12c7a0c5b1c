"""Splits cut smaller than the planner cuts them: by stored bytes at batch boundaries, or by offsets.

A cut by offsets may go through a batch: both sides decode it, and each keeps its own records. Where a log is stored in
chunks that can only be had whole, pieces by bytes share one chunk with the next, or none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.offset_index import OffsetIndex, parse_offset_index
from segreader.plan.planner import begins_chunk, offset_at, piece_size
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_whole

UNCUT = 1 << 62
"""Of stored bytes: more than any segment has."""


def cut_split(store: ObjectStore, split: Split, *, split_bytes: int, most_offsets: int | None = None) -> list[Split]:
    """The split in pieces, in offset order: together they read what it reads.

    Without an offset index it is not cut by bytes, and every piece of offsets begins to read at its beginning.

    Args:
        store: has the segment's offset index.
        split: if ``most_offsets`` is given, of all bytes that hold its offsets, and with an end.
        split_bytes: stored bytes of a piece to aim at.
        most_offsets: how many offsets a piece may have.
    """
    if split.positions.size <= split_bytes and most_offsets is None:
        return [split]
    index = _read_index(store, split)
    pieces = []
    for wanted in _ranges(split.offsets, most_offsets):
        positions = split.positions if index is None else _positions_of(index, split, wanted)
        if positions is None:
            continue
        for some in _cut(index, positions, piece_size(split_bytes, split.chunk_size), split.chunk_size):
            pieces.append(
                replace(
                    split,
                    positions=some,
                    offsets=wanted,
                    first_bound=split.first_bound
                    if some.start == split.positions.start
                    else offset_at(index, some.start),
                    offset_bound=split.offset_bound
                    if some.stop == split.positions.stop
                    else offset_at(index, some.stop),
                    following=split.following_from(some.stop),
                )
            )
    return pieces


def _ranges(offsets: OffsetRange, most: int | None) -> Iterator[OffsetRange]:
    if most is None or offsets.stop is None:
        yield offsets
        return
    for start in range(offsets.start, offsets.stop, most):
        yield OffsetRange(start, min(start + most, offsets.stop))


def _positions_of(index: OffsetIndex, split: Split, wanted: OffsetRange) -> ByteRange | None:
    """The bytes of the split that hold these offsets, from an index entry at or before them to one behind."""
    start, stop = split.positions.start, split.positions.stop
    if wanted.start > split.base_offset:
        start = max(start, index.lookup(wanted.start - 1).position)  # as ``cut_segment`` does
    if wanted.stop is not None:
        after = bisect_left(index.relative_offsets, wanted.stop - 1 - index.base_offset) + 1
        if after < len(index):
            stop = min(stop, index.entry_positions[after])
    return ByteRange(start, stop) if start < stop else None


def _cut(
    index: OffsetIndex | None, positions: ByteRange, split_bytes: int, chunk_size: int | None
) -> Iterator[ByteRange]:
    start = positions.start
    while index is not None and len(index):
        at = bisect_left(index.entry_positions, start + split_bytes)
        while at < len(index) and not begins_chunk(index.entry_positions, at, chunk_size):
            at += 1
        if at == len(index) or index.entry_positions[at] >= positions.stop:
            break
        yield ByteRange(start, index.entry_positions[at])
        start = index.entry_positions[at]
    yield ByteRange(start, positions.stop)


def _read_index(store: ObjectStore, split: Split) -> OffsetIndex | None:
    if split.offset_index is None:
        return None
    try:
        return parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
    except (FormatError, ObjectNotFoundError):
        return None  # the planner has told of it
