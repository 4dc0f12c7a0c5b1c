"""Parts of a live plan cut for tasks: each piece has offsets of its own, so that no record is read twice.

What lies in the store is cut by bytes, at entries of its offset index; a located segment, whose index is not at hand,
and what a broker has are cut by offsets: whoever asks for an offset is told where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from segreader.plan.cut import UNCUT
from segreader.plan.live import LivePart, ReadFrom, epochs_after
from segreader.ranges import OffsetRange
from segreader.spark.cutting import cut_exactly, cut_split
from segreader.storage.base import ObjectStore


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


def cut_parts(
    store: ObjectStore | None, parts: Sequence[LivePart], *, split_bytes: int, most_offsets: int | None = None
) -> list[LivePart]:
    """The parts in pieces, in the same order; each from the store has one split.

    Args:
        store: where parts from the store lie, each of them one split of a whole segment.
        split_bytes: stored bytes of a piece to aim at, where they are known.
        most_offsets: how many offsets a piece may have; then bytes do not count.
    """
    by_bytes = {}
    if store is not None and most_offsets is None:
        by_bytes = cut_exactly(store, [split for part in parts for split in part.splits], split_bytes)
    pieces: list[LivePart] = []
    for part in parts:
        if part.read_from is ReadFrom.STORE and store is not None:
            for split in part.splits:
                some = by_bytes.get(id(split))
                if some is None:
                    some = cut_split(store, split, split_bytes=UNCUT, most_offsets=most_offsets)
                for one in some:
                    pieces.append(replace(narrowed(part, one.offsets), splits=(one,), size=one.positions.size))
            continue
        most = most_offsets
        if most is None and part.size is not None and part.size > split_bytes:
            count = part.stop - part.offsets.start
            most = max(1, count // -(-part.size // split_bytes))
        pieces += cut_by_offsets(part, most)
    return pieces


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
