"""Read the indexes by which splits are cut smaller than the planner cuts them; ``plan.cut`` cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.side_files.offset_index import OffsetIndex, parse_offset_index
from segreader.plan import cut
from segreader.plan.split import Split
from segreader.storage.base import ObjectStore
from segreader.storage.read_all import read_each, read_whole

_INDEXES_AT_ONCE: Final = 32


def cut_split(store: ObjectStore, split: Split, *, split_bytes: int, most_offsets: int | None = None) -> list[Split]:
    """The pieces that ``plan.cut.cut_split`` makes of a split; its index is read only where it may be cut."""
    if split.positions.size <= split_bytes and most_offsets is None:
        return [split]
    return cut.cut_split(split, _read_index(store, split), split_bytes=split_bytes, most_offsets=most_offsets)


def cut_exactly(store: ObjectStore, parts: Sequence[Split], split_bytes: int) -> dict[int, list[Split]]:
    """The pieces that ``plan.cut.cut_exactly`` makes of each part, by its ``id``.

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
            pieces[id(part)] = list(cut.cut_exactly(part, indexes.get(id(part)), split_bytes))
    return pieces


def _read_index(store: ObjectStore, split: Split) -> OffsetIndex | None:
    """The offset index; ``None`` where it is missing or damaged, which the planner has told of."""
    if split.offset_index is None:
        return None
    try:
        return parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
    except (FormatError, ObjectNotFoundError):
        return None
