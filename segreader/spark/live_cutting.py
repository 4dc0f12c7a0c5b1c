"""Parts of a live plan cut for tasks: each piece has offsets of its own, so that no record is read twice.

Segments in the store are cut by bytes, at entries of its offset index; a located segment, whose index is not at hand,
and what a broker has are cut by offsets: a request for an offset returns its location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from segreader.errors import FormatError, ObjectNotFoundError
from segreader.format.index_files import OffsetIndex, parse_offset_index
from segreader.plan.cut import UNCUT, Cutting, SplitOffsets, cut
from segreader.plan.live import LivePart, ReadFrom, epochs_after
from segreader.plan.split import Split
from segreader.ranges import OffsetRange
from segreader.storage.base import ObjectStore, read_each, read_whole

_INDEXES_AT_ONCE: Final = 32


def narrowed(part: LivePart, offsets: OffsetRange) -> LivePart:
    """The part with fewer offsets; its splits are left as they are."""
    if offsets == part.offsets:
        return part
    epoch = part.position_epoch
    if offsets.start > part.offsets.start:
        epoch = max((one for one, start in part.epochs if start < offsets.start), default=epoch)
    aborted = None if part.aborted is None else part.aborted.within(offsets.start, offsets.stop or offsets.start)
    return replace(
        part,
        offsets=offsets,
        epochs=epochs_after(part.epochs, offsets.start),
        position_epoch=epoch,
        aborted=aborted,
    )


def joined(parts: Iterable[LivePart]) -> list[LivePart]:
    """The parts in order, those of a broker that follow each other as one."""
    found: list[LivePart] = []
    for part in sorted(parts, key=lambda part: (part.partition.order, part.offsets.start)):
        last = found[-1] if found and found[-1].read_from is part.read_from is ReadFrom.BROKER else None
        if last is not None and (last.partition, last.stop) == (part.partition, part.offsets.start):
            offsets = OffsetRange(last.offsets.start, part.stop)
            found[-1] = replace(last, offsets=offsets, hole=last.hole or part.hole)
        else:
            found.append(part)
    return found


def cut_parts(store: ObjectStore | None, parts: Sequence[LivePart], cutting: Cutting) -> list[LivePart]:
    """The parts in pieces, in the same order; each from the store has one split.

    Args:
        store: where parts from the store lie, each of them splits of one whole segment.
        cutting: how; where it says how many offsets a piece may have, bytes do not count.
    """
    most = cutting.most_offsets
    if most is not None:
        cutting = replace(cutting, split_bytes=UNCUT)
    cutting = replace(cutting, offsets=SplitOffsets.INDEXED)
    indexes: dict[int, OffsetIndex | None] = {}
    pieces: list[LivePart] = []
    for number, part in enumerate(parts):
        if number % _INDEXES_AT_ONCE == 0 and store is not None:
            indexes = _read_indexes(store, parts[number : number + _INDEXES_AT_ONCE], cutting)
        if part.read_from is ReadFrom.STORE and store is not None:
            for split in part.splits:
                for one in cut(split, indexes.get(id(split)), cutting):
                    pieces.append(replace(narrowed(part, one.offsets), splits=(one,), size=one.positions.size))
        elif most is None and part.size is not None and part.size > cutting.split_bytes:
            count = part.stop - part.offsets.start
            pieces += cut_by_offsets(part, max(1, count // -(-part.size // cutting.split_bytes)))
        else:
            pieces += cut_by_offsets(part, most)
    return pieces


def _read_indexes(store: ObjectStore, parts: Sequence[LivePart], cutting: Cutting) -> dict[int, OffsetIndex | None]:
    """The offset indexes of the splits that may be cut, by the ``id`` of these; ``None`` where one is missing or
    damaged, which the planner has noted."""

    def read(split: Split) -> OffsetIndex | None:
        if split.offset_index is None:
            return None
        try:
            return parse_offset_index(read_whole(store, split.offset_index), split.base_offset, log_size=split.log_size)
        except (FormatError, ObjectNotFoundError):
            return None

    large = [
        split
        for part in parts
        for split in part.splits
        if split.positions.size > cutting.split_bytes
        or (cutting.most_offsets is not None and part.stop - part.offsets.start > cutting.most_offsets)
    ]
    return dict(zip(map(id, large), read_each(read, large), strict=True))


def cut_by_offsets(part: LivePart, most: int | None) -> Iterator[LivePart]:
    """The part in pieces of so many offsets at most, in order; whole for ``None``. Not for parts from the store."""
    count = part.stop - part.offsets.start
    if most is None or count <= most:
        yield part
        return
    for start in range(part.offsets.start, part.stop, most):
        stop = min(start + most, part.stop)
        size = None if part.size is None else part.size * (stop - start) // count
        yield replace(narrowed(part, OffsetRange(start, stop)), size=size)
