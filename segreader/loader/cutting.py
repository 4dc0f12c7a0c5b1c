"""Splits with the offsets that are really theirs.

The pieces that the planner cuts a segment into share the segment's offsets: the index tells where a batch begins, and
of its offsets only the last. Its header tells the first one. With it a split has bounds that need no bytes to be
understood: positions in it, and what is left of it, can be planned again elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from segreader.errors import FormatError
from segreader.format.batch import HEADER_SIZE, parse_batch_header
from segreader.loader.splits import LoaderSplit
from segreader.plan.split import Split
from segreader.ranges import ByteRange, OffsetRange
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_each


def with_own_offsets(store: ObjectStore, splits: Sequence[Split]) -> list[LoaderSplit]:
    """The splits in the same order, each with bounds of its own; where a cut cannot be told, or leaves
    nothing on one side, two are made one.

    Costs one request for each segment that is cut, of a batch header for each cut.

    Args:
        splits: of a plan; all have an end.

    Raises:
        StorageError: a header cannot be had.
    """
    groups = [list(group) for _, group in groupby(splits, lambda one: (one.partition, one.log, one.offsets))]
    return [
        LoaderSplit(split) for some in read_each(lambda group: list(_bounded(store, group)), groups) for split in some
    ]


def _bounded(store: ObjectStore, pieces: Sequence[Split]) -> Iterator[Split]:
    """The pieces of one segment."""
    first, stop = pieces[0], pieces[-1].offsets.stop
    starts = _base_offsets(store, pieces[1:])
    for piece, start in zip(pieces[1:], starts, strict=True):
        if start is None or start <= first.offsets.start or (stop is not None and start >= stop):
            first = _joined(first, piece)
            continue
        yield _within(first, first.offsets.start, start)
        first = replace(piece, offsets=OffsetRange(start, stop))
    yield _within(first, first.offsets.start, stop)


def _joined(one: Split, two: Split) -> Split:
    return replace(
        one,
        positions=ByteRange(one.positions.start, two.positions.stop),
        offset_bound=two.offset_bound,
        reaches=two.reaches,
        following=two.following,
    )


def _within(split: Split, start: int, stop: int | None) -> Split:
    aborted = split.aborted.within(start, start if stop is None else stop) if len(split.aborted) else split.aborted
    return replace(split, offsets=OffsetRange(start, stop), aborted=aborted)


def _base_offsets(store: ObjectStore, pieces: Sequence[Split]) -> list[int | None]:
    """The base offset of the first batch of each; ``None`` where its header does not tell it."""
    if not pieces:
        return []
    ranges = [ByteRange(one.positions.start, min(one.positions.start + HEADER_SIZE, one.log_size)) for one in pieces]
    return [_base_offset(data) for data in store.read_ranges(pieces[0].log, ranges)]


def _base_offset(data: bytes) -> int | None:
    try:
        return parse_batch_header(memoryview(data)).base_offset
    except FormatError:  # an old format, which tells the last offset; or damage, which the reader will tell of
        return None
