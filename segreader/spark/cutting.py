"""Read the indexes by which splits are cut smaller than the planner cuts them; ``plan.cut`` cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.side_files.offset_index import OffsetIndex, parse_offset_index
from segreader.plan.cut import Cutting, SplitOffsets, cut
from segreader.plan.split import Split
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_each, read_whole

_INDEXES_AT_ONCE: Final = 32


def cut_split(store: ObjectStore, split: Split, *, split_bytes: int, most_offsets: int | None = None) -> list[Split]:
    """The split in pieces; its index is read only where it may be cut."""
    if split.positions.size <= split_bytes and most_offsets is None:
        return [split]
    return list(cut(split, _read_index(store, split), Cutting(split_bytes=split_bytes, most_offsets=most_offsets)))


def cut_exactly(store: ObjectStore, parts: Sequence[Split], split_bytes: int) -> dict[int, list[Split]]:
    """Each part in pieces with offsets of their own, by its ``id``.

    Args:
        parts: splits of whole segments, each with an end.
        split_bytes: stored bytes of a piece to aim at.
    """
    pieces: dict[int, list[Split]] = {}
    exactly = Cutting(split_bytes=split_bytes, offsets=SplitOffsets.INDEXED)
    for first in range(0, len(parts), _INDEXES_AT_ONCE):
        some = parts[first : first + _INDEXES_AT_ONCE]
        large = [part for part in some if part.positions.size > split_bytes]
        indexes = dict(zip(map(id, large), read_each(lambda part: _read_index(store, part), large), strict=True))
        for part in some:
            pieces[id(part)] = list(cut(part, indexes.get(id(part)), exactly))
    return pieces


def _read_index(store: ObjectStore, split: Split) -> OffsetIndex | None:
    """The offset index; ``None`` where it is missing or damaged, which the planner has told of."""
    if split.offset_index is None:
        return None
    try:
        return parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
    except (FormatError, ObjectNotFoundError):
        return None
