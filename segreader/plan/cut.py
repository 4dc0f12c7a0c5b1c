"""Which bytes of which segments hold the requested offsets, and how they are cut. Pure: indexes in, ranges out.

An entry of an offset index names a batch's start, and as its offset the *last* one of what was appended there: the
batch there may hold smaller offsets. So a cut at an entry is exact in bytes or in offsets, and in both only where the
batch is looked at: see ``SplitOffsets``. Where a log is stored in chunks that can only be had whole, a chunk is in two
pieces at most: see ``piece_size``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from segreader.format.index_files import OffsetIndex
from segreader.plan.lineage import Part
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment
from segreader.values import dataclass

DEFAULT_SPLIT_BYTES = 128 << 20
"""Stored bytes of a split to aim at: half a second to two of work for one task."""

_SMALLEST_REST: Final = 4
"""What is left of a segment goes with the split before it, where it is less than this part of a split."""

_LARGEST_OFFSET: Final = (1 << 63) - 1
_NO_STARTS: Final[Mapping[int, int | None]] = {}


class SplitOffsets(Enum):
    """Which offsets the splits have that a segment is cut into by bytes."""

    SHARED = "shared"
    """All of them the offsets wanted of the segment; their bytes adjoin."""
    INDEXED = "indexed"
    """Each its own, as the offset index names them; neighbours both read the bytes between two entries, a few KB."""
    BATCHES = "batches"
    """Each its own, from the header of its first batch on; bytes adjoin. Where it does not tell, there is no cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How a segment is cut into splits.

    Args:
        split_bytes: target size of a split, in stored bytes.
        most_offsets: how many offsets a split may have. It may begin inside of a batch then: both sides decode it, and
            each keeps its own records.
        keeps_batches: do not let it: ``most_offsets`` is exceeded where one step of the offset index has more, and a
            segment without an index is one split. No bytes are read twice then.
        offsets: which offsets a split has that is cut by bytes.
        least_splits: how many splits a plan should have; where there would be fewer, all segments are cut smaller.
        small_bytes: then stored bytes of a split to aim at; by default each segment is cut by offsets, into as many
            splits as are due to it by its size.
        most_unsized: how many offsets a part of a live log may have of which the stored bytes are not known.
    """

    split_bytes: int = DEFAULT_SPLIT_BYTES
    most_offsets: int | None = None
    keeps_batches: bool = False
    offsets: SplitOffsets = SplitOffsets.SHARED
    least_splits: int | None = None
    small_bytes: int | None = None
    most_unsized: int | None = None

    @property
    def cuts_by_offsets(self) -> bool:
        """Whether splits end at offsets that are counted, so that those of a segment must be known."""
        return self.most_offsets is not None or (self.least_splits is not None and self.small_bytes is None)

    def of_all(self, sizes: Sequence[int]) -> Cutting:
        """The cutting that is right where this many stored bytes are wanted of each segment."""
        if self.least_splits is None or self.small_bytes is None:
            return self
        is_few = sum(max(1, -(-size // self.split_bytes)) for size in sizes) < self.least_splits
        split_bytes = min(self.split_bytes, self.small_bytes) if is_few else self.split_bytes
        return replace(self, split_bytes=split_bytes, least_splits=None, small_bytes=None)

    def by_offsets(self, count: int) -> Cutting:
        """The cutting of so many offsets, of which brokers do not tell the stored bytes: splits of offsets alike."""
        if self.least_splits is None or self.small_bytes is not None:
            return self
        most = max(1, count // self.least_splits)
        return replace(self, most_offsets=min(most, self.most_offsets or most), least_splits=None)

    def of_one(self, offsets: OffsetRange, size: int, total: int) -> Cutting:
        """The cutting of one segment of which these offsets are wanted, so many stored bytes of all that are."""
        if self.least_splits is None or offsets.stop is None:
            return self
        count = offsets.stop - offsets.start
        due = max(1, -(-self.least_splits * size // max(1, total)))
        return replace(self, most_offsets=max(1, min(count // due, self.most_offsets or count)), least_splits=None)


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


def wanted_size(part: Part, offsets: OffsetRange, end: int | None = None) -> int:
    """Stored bytes of a part of which these offsets are wanted: as much of its segment as of its offsets.

    Args:
        end: one more than its last offset, where that is known better; all of a segment without a known end counts.
    """
    stop = part.stop if end is None else min(part.stop, end)
    until = stop if offsets.stop is None else min(offsets.stop, stop)
    size = part.segment.log_size
    return size * (until - offsets.start) // (stop - part.start) if part.start < stop <= _LARGEST_OFFSET else size


def needs_index(part: Part, offsets: OffsetRange, cutting: Cutting) -> bool:
    """Whether a cut inside the segment would save reading: it holds an edge of the range, or is too large.

    Args:
        offsets: those wanted of this part.
    """
    segment = part.segment
    return (
        segment.log_size > cutting.split_bytes
        or offsets.start > segment.base_offset
        or offsets.stop is None
        or segment.last_offset is None
        or offsets.stop <= segment.last_offset
        or (cutting.most_offsets is not None and offsets.stop - offsets.start > cutting.most_offsets)
    )


def cut(
    split: Split, index: OffsetIndex | None, cutting: Cutting, starts: Mapping[int, int | None] = _NO_STARTS
) -> Iterator[Split]:
    """The split in pieces, in offset order: together they read what it reads. Bytes without its offsets are left out.

    Without an offset index it is not cut by bytes, and every piece of offsets begins to read at its beginning, unless
    batches are kept.

    Args:
        split: if it is cut by offsets, of all bytes that hold its offsets, and with an end.
        starts: for ``SplitOffsets.BATCHES``: of the batch at each of ``cut_positions`` the base offset, if it is known.
    """
    for offsets in _ranges(split.offsets, cutting):
        wanted = _bytes_of(index, split.positions, offsets)
        if wanted is None:
            continue
        first, start = wanted.start, offsets.start
        for at in _cuts(index, wanted, offsets, cutting, split.chunk_size):
            assert index is not None
            end = position = index.entry_positions[at]
            stop: int | None = None
            if cutting.offsets is not SplitOffsets.SHARED:
                if cutting.offsets is SplitOffsets.INDEXED:
                    stop = index.base_offset + index.relative_offsets[at] + 1
                    end = min(index.entry_positions[at + 1], wanted.stop) if at + 1 < len(index) else wanted.stop
                else:
                    stop = starts.get(position)
                if stop is None or stop <= start or (offsets.stop is not None and stop >= offsets.stop):
                    continue
            yield _piece(split, index, ByteRange(first, end), OffsetRange(start, stop or offsets.stop), cutting)
            first, start = position, stop or start
        yield _piece(split, index, ByteRange(first, wanted.stop), OffsetRange(start, offsets.stop), cutting)


def cut_positions(index: OffsetIndex, wanted: OffsetRange, cutting: Cutting, segment: Segment) -> list[int]:
    """The first bytes of the batches at which ``cut`` may cut what is wanted of a segment."""
    whole = ByteRange(0, segment.log_size)
    places = ((offsets, _bytes_of(index, whole, offsets)) for offsets in _ranges(wanted, cutting))
    cuts = (_cuts(index, some, one, cutting, segment.chunk_size) for one, some in places if some is not None)
    return [index.entry_positions[at] for each in cuts for at in each]


def _piece(
    split: Split, index: OffsetIndex | None, positions: ByteRange, offsets: OffsetRange, cutting: Cutting
) -> Split:
    """Some of the split's bytes and offsets, with what the index says of both ends."""
    if positions == split.positions and offsets == split.offsets:
        return split
    aborted = split.aborted
    if len(aborted) and offsets.stop is not None and cutting.offsets is not SplitOffsets.SHARED:
        aborted = aborted.within(offsets.start, offsets.stop)
    begins, ends = positions.start == split.positions.start, positions.stop == split.positions.stop
    return replace(
        split,
        positions=positions,
        offsets=offsets,
        aborted=aborted,
        first_bound=split.first_bound if begins else offset_at(index, positions.start),
        offset_bound=split.offset_bound if ends else offset_at(index, positions.stop),
        reaches=split.reaches if ends else _last_of_range(index, positions, offsets.stop),
        following=split.following_from(positions.stop),
    )


def _ranges(offsets: OffsetRange, cutting: Cutting) -> Iterator[OffsetRange]:
    most = cutting.most_offsets
    if most is None or cutting.keeps_batches or offsets.stop is None:
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
    if offsets.stop is not None and (end := index.end_below(offsets.stop)) is not None:
        stop = min(stop, end)
    return ByteRange(start, stop) if start < stop else None


def _cuts(
    index: OffsetIndex | None, wanted: ByteRange, offsets: OffsetRange, cutting: Cutting, chunk_size: int | None
) -> Iterator[int]:
    """At which index entries the bytes are cut, which hold these offsets."""
    if index is None:
        return
    if cutting.most_offsets is not None and cutting.keeps_batches:
        yield from _cuts_by_count(index, wanted, offsets, cutting.most_offsets, cutting.split_bytes, chunk_size)
        return
    split_bytes = piece_size(cutting.split_bytes, chunk_size)
    smallest = max(1, split_bytes // _SMALLEST_REST) if cutting.offsets is SplitOffsets.INDEXED else 1
    start, at = wanted.start, 0
    while (at := _next_cut(index.entry_positions, start, split_bytes, chunk_size, at)) < len(index):
        if index.entry_positions[at] + smallest > wanted.stop:
            break
        yield at
        start = index.entry_positions[at]


def _cuts_by_count(
    index: OffsetIndex, wanted: ByteRange, offsets: OffsetRange, most: int, split_bytes: int, chunk_size: int | None
) -> Iterator[int]:
    """At which index entries the bytes are cut, so that a piece has at most so many offsets and so many bytes, but
    never less than one step of the index.

    A piece that begins at an entry has only offsets above the previous entry's; one that ends there, only offsets below
    its own.
    """
    positions, named, base = index.entry_positions, index.relative_offsets, index.base_offset
    least_bytes = 1 if chunk_size is None else piece_size(1, chunk_size)
    start, low = wanted.start, offsets.start - base
    at = bisect_right(positions, start)
    while offsets.stop is None or offsets.stop - base - low > most or wanted.stop - start > split_bytes:
        by_count = bisect_right(named, low + most) - 1
        at = max(at, min(by_count, bisect_right(positions, start + split_bytes) - 1))
        at = max(at, bisect_left(positions, start + least_bytes))
        while at < len(positions) and not _begins_chunk(positions, at, chunk_size):
            at += 1
        if at >= len(positions) or positions[at] >= wanted.stop:
            return
        yield at
        start, low = positions[at], max(low, named[at - 1] + 1 if at else low)
        at += 1


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


def _last_of_range(index: OffsetIndex | None, positions: ByteRange, stop: int | None) -> int | None:
    """The offset that the index names last within these bytes, if it is the last one wanted or lies behind that.

    A batch before ``positions.stop`` must have it. ``None`` for pieces behind which other ones have offsets wanted.
    """
    at = bisect_left(index.entry_positions, positions.stop) - 1 if index is not None else -1
    if index is None or at < 0 or stop is None:
        return None
    named = index.base_offset + index.relative_offsets[at]
    return named if named >= stop - 1 else None
