"""Which bytes of which segments hold the offsets asked for. Pure: indexes in, ranges out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from segreader.format.offset_index import OffsetIndex
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment

DEFAULT_SPLIT_BYTES = 128 << 20
"""Stored bytes of a split to aim at: half a second to two of work for one task."""


def overlapping(segments: Sequence[Segment], offsets: OffsetRange) -> list[tuple[Segment, int | None]]:
    """The segments that can hold some of the offsets, each with the base offset of the next one.

    Args:
        segments: of one partition, by base offset.
        offsets: what is wanted.
    """
    chosen = []
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if following is not None and following <= offsets.start:
            continue
        if offsets.stop is not None and segment.base_offset >= offsets.stop:
            break
        chosen.append((segment, following))
    return chosen


def needs_index(segment: Segment, following: int | None, offsets: OffsetRange, split_bytes: int) -> bool:
    """Whether a cut inside the segment would save reading: it holds an edge of the range, or is too large."""
    return (
        segment.log_size > split_bytes
        or offsets.start > segment.base_offset
        or (offsets.stop is not None and (following is None or offsets.stop < following))
    )


def cut_segment(segment: Segment, index: OffsetIndex | None, offsets: OffsetRange, split_bytes: int) -> list[ByteRange]:
    """The bytes of one segment that hold the offsets, cut at batch boundaries into pieces of about ``split_bytes``.

    Without an index the segment is one piece. An entry of the index names a batch's start, and as its offset the
    *last* one of what was appended there (``OffsetIndex``, Kafka 4.0): the batch there may hold smaller offsets.
    """
    start, stop = 0, segment.log_size
    boundaries: Sequence[int] = ()
    if index is not None and len(index):
        boundaries = [position for position in index.positions() if position < segment.log_size]
        if offsets.start > segment.base_offset:
            start = min(index.lookup(offsets.start).position, segment.log_size)
        if offsets.stop is not None:
            stop = _stop_position(index, offsets.stop, segment.log_size)
    if start >= stop:
        return []
    cuts = [start]
    for position in boundaries:
        if cuts[-1] + split_bytes <= position < stop:
            cuts.append(position)
    cuts.append(stop)
    return [ByteRange(one, two) for one, two in pairwise(cuts)]


def offset_at(index: OffsetIndex | None, position: int) -> int | None:
    """An offset that every batch before ``position`` lies below: that of the index entry there, if there is one."""
    if index is None:
        return None
    return next((entry.offset for entry in index if entry.position == position), None)


def _stop_position(index: OffsetIndex, stop: int, log_size: int) -> int:
    """Where the first batch begins that certainly lies at or past ``stop``."""
    is_past = False
    for entry in index:
        if is_past:
            return min(entry.position, log_size)
        is_past = entry.offset >= stop - 1
    return log_size
