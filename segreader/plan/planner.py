"""Which bytes of which segments hold the offsets asked for. Pure: indexes in, ranges out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from segreader.format.side_files.offset_index import OffsetIndex
from segreader.plan.lineage import Part
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment

DEFAULT_SPLIT_BYTES = 128 << 20
"""Stored bytes of a split to aim at: half a second to two of work for one task."""


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

    Without an index the segment is one piece. An entry of the index names a batch's start, and as its offset the
    *last* one of what was appended there (``OffsetIndex``, Kafka 4.0): the batch there may hold smaller offsets.
    Of a log in chunks that can only be had whole, a chunk is in two pieces at most: see ``piece_size``.
    """
    split_bytes = piece_size(split_bytes, segment.chunk_size)
    start, stop = 0, segment.log_size
    if index is None:
        return [ByteRange(start, stop)] if stop else []
    boundaries: Sequence[int] = ()
    if len(index):
        boundaries = index.positions()
        if offsets.start > segment.base_offset:
            start = min(index.lookup(offsets.start - 1).position, segment.log_size)  # see _columns._is_below
        if offsets.stop is not None:
            stop = _stop_position(index, offsets.stop, segment.log_size)
    if start >= stop:
        return []
    cuts = [start]
    at = bisect_left(boundaries, start + split_bytes)
    while at < len(boundaries) and boundaries[at] < stop:
        if begins_chunk(boundaries, at, segment.chunk_size):
            cuts.append(boundaries[at])
            at = bisect_left(boundaries, boundaries[at] + split_bytes, lo=at)
        else:
            at += 1
    cuts.append(stop)
    return [ByteRange(one, two) for one, two in pairwise(cuts)]


def piece_size(split_bytes: int, chunk_size: int | None) -> int:
    """Bytes of a piece to aim at, where a log is stored in chunks that can only be had whole.

    Batches know nothing of chunks: the one that a piece ends in is the one that the next piece begins in, unless a
    batch begins just there. So both have it, and of pieces as small as chunks more than two would have one.
    """
    return split_bytes if chunk_size is None else max(split_bytes, 2 * chunk_size)


def begins_chunk(positions: Sequence[int], at: int, chunk_size: int | None) -> bool:
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


def _stop_position(index: OffsetIndex, stop: int, log_size: int) -> int:
    """Where the first batch begins that certainly lies at or past ``stop``."""
    after = bisect_left(index.relative_offsets, stop - 1 - index.base_offset) + 1
    return min(index.entry_positions[after], log_size) if after < len(index) else log_size
