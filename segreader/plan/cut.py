"""Which bytes of which segments hold the offsets asked for, and how they are cut. Pure: indexes in, ranges out.

An entry of an offset index names a batch's start, and as its offset the *last* one of what was appended there: the
batch there may hold smaller offsets. Where a log is stored in chunks that can only be had whole, a chunk is in two
pieces at most: see ``piece_size``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from segreader.format.side_files.offset_index import OffsetIndex
from segreader.plan.lineage import Part
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment

DEFAULT_SPLIT_BYTES = 128 << 20
"""Stored bytes of a split to aim at: half a second to two of work for one task."""

UNCUT: Final = 1 << 62
"""Of stored bytes: more than any segment has."""

_SMALLEST_REST: Final = 4
"""What is left of a segment goes with the split before it, where it is less than this part of a split."""


def overlapping(parts: Sequence[Part], offsets: OffsetRange) -> list[tuple[Part, OffsetRange]]:
    """The parts that can hold some of the offsets, each with those wanted of it.

    Args:
        parts: of one partition, by offset.
        offsets: what is wanted.
    """
    first = bisect_right(parts, offsets.start, key=lambda part: part.stop)
    chosen = []
    for part in parts[first:]:
        if offsets.stop is not None and part.start >= offsets.stop:
            break
        stop = part.stop if offsets.stop is None else min(part.stop, offsets.stop)
        chosen.append((part, OffsetRange(max(part.start, offsets.start), stop)))
    return chosen


def needs_index(part: Part, offsets: OffsetRange, split_bytes: int) -> bool:
    """Whether a cut inside the segment would save reading: it holds an edge of the range, or is too large.

    Args:
        offsets: those wanted of this part.
    """
    segment = part.segment
    return (
        segment.log_size > split_bytes
        or offsets.start > segment.base_offset
        or offsets.stop is None
        or segment.last_offset is None
        or offsets.stop <= segment.last_offset
    )


def cut_segment(segment: Segment, index: OffsetIndex | None, offsets: OffsetRange, split_bytes: int) -> list[ByteRange]:
    """The bytes of one segment that hold the offsets, cut at batch boundaries into pieces of about ``split_bytes``.

    Without an index the segment is one piece.
    """
    if not segment.log_size:
        return []
    if index is None:
        return [ByteRange(0, segment.log_size)]
    wanted = _bytes_of(index, ByteRange(0, segment.log_size), offsets)
    return [] if wanted is None else list(_cut_bytes(index, wanted, split_bytes, segment.chunk_size))


def cut_split(
    split: Split, index: OffsetIndex | None, *, split_bytes: int, most_offsets: int | None = None
) -> list[Split]:
    """The split in smaller pieces, in offset order: together they read what it reads.

    Pieces by bytes share its range of offsets. One by offsets may begin inside of a batch: both sides decode it, and
    each keeps its own records. Without an offset index it is not cut by bytes, and every piece of offsets begins to
    read at its beginning.

    Args:
        split: if ``most_offsets`` is given, of all bytes that hold its offsets, and with an end.
        split_bytes: stored bytes of a piece to aim at.
        most_offsets: how many offsets a piece may have.
    """
    pieces = []
    for offsets in _ranges(split.offsets, most_offsets):
        wanted = _bytes_of(index, split.positions, offsets)
        for some in () if wanted is None else _cut_bytes(index, wanted, split_bytes, split.chunk_size):
            begins, ends = some.start == split.positions.start, some.stop == split.positions.stop
            pieces.append(
                replace(
                    split,
                    positions=some,
                    offsets=offsets,
                    first_bound=split.first_bound if begins else offset_at(index, some.start),
                    offset_bound=split.offset_bound if ends else offset_at(index, some.stop),
                    reaches=split.reaches if ends else None,
                    following=split.following_from(some.stop),
                )
            )
    return pieces


def cut_exactly(split: Split, index: OffsetIndex | None, split_bytes: int) -> Iterator[Split]:
    """The split in pieces of about ``split_bytes``, each with offsets of its own that follow those of the one before.

    It is cut behind the offset of an index entry: the records below the cut end before the next entry, and those above
    it begin at or after this one. Both neighbours read the bytes between the two entries, a few kilobytes, and each
    delivers its own part.

    Args:
        split: with an end.
    """
    stop, positions = split.offsets.stop, split.positions
    assert stop is not None
    entries = index.entry_positions if index is not None else ()
    split_bytes = piece_size(split_bytes, split.chunk_size)
    first, offset, bound = positions.start, split.offsets.start, split.first_bound
    at = 0
    while index is not None:
        at = _next_cut(entries, first, split_bytes, split.chunk_size, at)
        if at >= len(entries) or entries[at] + max(1, split_bytes // _SMALLEST_REST) > positions.stop:
            break
        cut = index.base_offset + index.relative_offsets[at] + 1
        if cut >= stop:
            break
        end = min(entries[at + 1] if at + 1 < len(entries) else positions.stop, positions.stop)
        if cut > offset:
            yield _exact_piece(split, ByteRange(first, end), OffsetRange(offset, cut), bound)
            first, offset, bound = entries[at], cut, cut - 1
        at += 1
    yield _exact_piece(split, ByteRange(first, positions.stop), OffsetRange(offset, stop), bound)


def _exact_piece(split: Split, positions: ByteRange, offsets: OffsetRange, first_bound: int | None) -> Split:
    assert offsets.stop is not None
    if positions == split.positions and offsets == split.offsets and split.chunk_size is None and not split.aborted:
        return split
    return replace(
        split,
        positions=positions,
        offsets=offsets,
        aborted=split.aborted.within(offsets.start, offsets.stop) if len(split.aborted) else split.aborted,
        offset_bound=split.offset_bound if positions.stop == split.positions.stop else None,
        first_bound=first_bound,
        chunk_size=None,
        reaches=split.reaches if positions.stop == split.positions.stop else None,
        following=split.following_from(positions.stop),
    )


def _ranges(offsets: OffsetRange, most: int | None) -> Iterator[OffsetRange]:
    if most is None or offsets.stop is None:
        yield offsets
        return
    for start in range(offsets.start, offsets.stop, most):
        yield OffsetRange(start, min(start + most, offsets.stop))


def _bytes_of(index: OffsetIndex | None, positions: ByteRange, offsets: OffsetRange) -> ByteRange | None:
    """Which of these bytes hold the offsets, from an index entry at or before them to one behind; maybe none."""
    if index is None:
        return positions
    start, stop = positions.start, positions.stop
    if offsets.start > index.base_offset:
        start = max(start, index.lookup(offsets.start - 1).position)  # see _columns._is_below
    if offsets.stop is not None:
        after = bisect_left(index.relative_offsets, offsets.stop - 1 - index.base_offset) + 1
        if after < len(index):  # the first batch there certainly lies at or past the end
            stop = min(stop, index.entry_positions[after])
    return ByteRange(start, stop) if start < stop else None


def _cut_bytes(
    index: OffsetIndex | None, wanted: ByteRange, split_bytes: int, chunk_size: int | None
) -> Iterator[ByteRange]:
    """The bytes in pieces that begin and end at batches."""
    entries = index.entry_positions if index is not None else ()
    split_bytes = piece_size(split_bytes, chunk_size)
    start, at = wanted.start, 0
    while True:
        at = _next_cut(entries, start, split_bytes, chunk_size, at)
        if at == len(entries) or entries[at] >= wanted.stop:
            break
        yield ByteRange(start, entries[at])
        start = entries[at]
    yield ByteRange(start, wanted.stop)


def _next_cut(positions: Sequence[int], start: int, split_bytes: int, chunk_size: int | None, lo: int) -> int:
    """Which index entry ends a piece that begins at ``start``; behind the last one if none does.

    Args:
        positions: of the entries, rising.
        lo: the first entry to consider.
    """
    at = bisect_left(positions, start + split_bytes, lo=lo)
    while at < len(positions) and not _begins_chunk(positions, at, chunk_size):
        at += 1
    return at


def piece_size(split_bytes: int, chunk_size: int | None) -> int:
    """Bytes of a piece to aim at, where a log is stored in chunks that can only be had whole.

    Batches know nothing of chunks: the one that a piece ends in is the one that the next piece begins in, unless a
    batch begins just there. So both have it, and of pieces as small as chunks more than two would have one.
    """
    return split_bytes if chunk_size is None else max(split_bytes, 2 * chunk_size)


def _begins_chunk(positions: Sequence[int], at: int, chunk_size: int | None) -> bool:
    """Whether a position is the first one of its chunk: to cut there leaves a whole number of chunks, and a batch.

    Args:
        positions: of an offset index, rising.
        at: which of them.
        chunk_size: ``None`` where there are no chunks; then it does.
    """
    return chunk_size is None or at == 0 or positions[at - 1] // chunk_size < positions[at] // chunk_size


def offset_at(index: OffsetIndex | None, position: int) -> int | None:
    """That of the index entry there, if any: batches before lie below it, and the one there begins at or below it."""
    if index is None:
        return None
    at = bisect_left(index.entry_positions, position)
    if at == len(index) or index.entry_positions[at] != position:
        return None
    return index.base_offset + index.relative_offsets[at]


def last_of_range(index: OffsetIndex | None, positions: ByteRange, stop: int) -> int | None:
    """The offset that the index names last within these bytes, if it is the last one wanted or lies behind that.

    A batch before ``positions.stop`` must have it. ``None`` for pieces behind which other ones have offsets wanted.
    """
    at = bisect_left(index.entry_positions, positions.stop) - 1 if index is not None else -1
    if index is None or at < 0:
        return None
    named = index.base_offset + index.relative_offsets[at]
    return named if named >= stop - 1 else None
