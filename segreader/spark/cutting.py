"""Splits cut smaller than the planner cuts them: by stored bytes at batch boundaries, or by offsets.

A cut by offsets may go through a batch: both sides decode it, and each keeps its own records. Where a log is stored in
chunks that can only be had whole, pieces by bytes share one chunk with the next, or none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.side_files.offset_index import OffsetIndex, parse_offset_index
from segreader.plan.planner import begins_chunk, offset_at, piece_size
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_each, read_whole

UNCUT = 1 << 62
"""Of stored bytes: more than any segment has."""

_INDEXES_AT_ONCE: Final = 32
_SMALLEST_REST: Final = 4
"""What is left of a segment goes with the split before it, where it is less than this part of a split."""


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


def cut_exactly(store: ObjectStore, parts: Sequence[Split], split_bytes: int) -> dict[int, list[Split]]:
    """The pieces of each part, by its ``id``, each with offsets of its own; a few indexes at a time are read and held.

    A part is cut behind the offset of an index entry. That is the last one of what was appended there, so the records
    below the cut end before the next entry, and those above it begin at or after this one. Both neighbours read the
    bytes between the two entries, a few kilobytes, and each delivers its own part.

    Args:
        parts: splits of whole segments, each with an end.
        split_bytes: stored bytes of a piece to aim at.
    """
    pieces: dict[int, list[Split]] = {}
    for first in range(0, len(parts), _INDEXES_AT_ONCE):
        some = parts[first : first + _INDEXES_AT_ONCE]
        large = [part for part in some if part.positions.size > split_bytes]
        indexes = dict(zip(map(id, large), read_each(lambda part: _read_index(store, part), large), strict=True))
        for part in some:
            pieces[id(part)] = list(_cut_at_entries(part, indexes.get(id(part)), split_bytes))
    return pieces


def _cut_at_entries(part: Split, index: OffsetIndex | None, split_bytes: int) -> Iterator[Split]:
    """The part in pieces of about ``split_bytes``, each with its own offsets."""
    stop = part.offsets.stop
    assert stop is not None
    positions = index.entry_positions if index is not None else ()
    split_bytes = piece_size(split_bytes, part.chunk_size)
    first, offset, bound = part.positions.start, part.offsets.start, part.first_bound
    at = bisect_right(positions, first)
    while index is not None:
        at = bisect_right(positions, first + split_bytes - 1, lo=at)
        while at < len(positions) and not begins_chunk(positions, at, part.chunk_size):
            at += 1
        if at >= len(positions) or positions[at] + split_bytes // _SMALLEST_REST > part.positions.stop:
            break
        cut = index.base_offset + index.relative_offsets[at] + 1
        if cut >= stop:
            break
        end = min(positions[at + 1] if at + 1 < len(positions) else part.positions.stop, part.positions.stop)
        if cut > offset:
            yield _piece(part, ByteRange(first, end), OffsetRange(offset, cut), bound)
            first, offset, bound = positions[at], cut, cut - 1
        at += 1
    yield _piece(part, ByteRange(first, part.positions.stop), OffsetRange(offset, stop), bound)


def _piece(part: Split, positions: ByteRange, offsets: OffsetRange, first_bound: int | None) -> Split:
    assert offsets.stop is not None
    return replace(
        part,
        positions=positions,
        offsets=offsets,
        aborted=part.aborted.within(offsets.start, offsets.stop) if len(part.aborted) else part.aborted,
        offset_bound=part.offset_bound if positions.stop == part.positions.stop else None,
        first_bound=first_bound,
        chunk_size=None,
        following=part.following_from(positions.stop),
    )


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
    """The offset index; ``None`` where it is missing or damaged, which the planner has told of."""
    if split.offset_index is None:
        return None
    try:
        return parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
    except (FormatError, ObjectNotFoundError):
        return None
