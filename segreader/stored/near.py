"""The segments around a range of offsets, where it is certain that the others decide nothing of it.

A plan of everything reads the small objects of every segment. For a range that is wanted, these matter: the leader
epochs of the live log, the segments that hold the range, and the one behind it. That is enough only if no other segment
can tell of another history. So the listing must prove that all checkpoints say the same, or that a leader uploaded each
segment after the one before it; else the plan reads everything, as it does if anything near the range is unusual.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from segreader.catalog.layouts import log_directory
from segreader.format.checkpoints import LeaderEpochs
from segreader.plan.lineage import ResolvedLog
from segreader.ranges import OffsetRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.stored.checkpoints import digest_of, read_checkpoints
from segreader.stored.segment_ends import OPEN_END, bears_epochs
from segreader.stored.source import SourceLog

LEAST_SEGMENTS: Final = 16
"""A partition of fewer is read whole."""

LARGEST_SHARE: Final = 0.5
"""Of a partition: a range in more of its segments is planned by all of them."""

_MOST_CHECKPOINTS: Final = 8
"""Different ones that are read to prove that all say the same."""

_ONE_ENTRY: Final = 11
"""Bytes of a checkpoint that cannot have two entries: ``0\\n2\\n0 0\\n1 1\\n`` has 12."""

_WIDTHS: Final = (1, 4, 16)
"""Segments behind the range: the first one that proves its transactions decided is enough."""


@dataclass(frozen=True, slots=True)
class Near:
    """Some segments of a partition that follow each other.

    Args:
        source: the partition with no others.
        next_base: where the segment behind them begins; ``None`` if there is none.
        is_first: no segment is before them.
    """

    source: SourceLog
    next_base: int | None
    is_first: bool

    def is_whole(self, log: ResolvedLog, wanted: OffsetRange) -> bool:
        """Whether each segment delivers its offsets up to the next one's first, and nothing else was found."""
        segments = self.source.log.segments
        if log.holes or log.dropped or len(log.parts) != len(segments):
            return False
        for part, segment, following in zip(log.parts, segments, [*segments[1:], None], strict=True):
            behind = self.next_base if following is None else following.base_offset
            if part.segment.files.log != segment.files.log or part.start != segment.base_offset:
                return False
            if part.stop > OPEN_END or (behind is not None and part.stop != behind):
                return False
        return self.next_base is None or wanted.start < log.stop


def neighbourhoods(store: ObjectStore, source: SourceLog, wanted: OffsetRange, max_batch_bytes: int) -> Iterator[Near]:
    """The segments around a range, with more and more behind it; nothing where all segments must be read.

    Args:
        store: has the objects.
        source: the listing of a partition.
        wanted: some of its offsets.
        max_batch_bytes: largest batch to hold.
    """
    log, segments = source.log, source.log.segments
    if len(segments) < LEAST_SEGMENTS or not _is_plain(source) or wanted.start == wanted.stop:
        return
    bases = [segment.base_offset for segment in segments]
    first = max(0, bisect_right(bases, wanted.start) - 1)
    stop = len(bases) if wanted.stop is None else bisect_left(bases, wanted.stop)
    if LARGEST_SHARE * len(segments) < max(stop, first + 1) - first:
        return
    lineage = source.leader_epochs
    for width in _WIDTHS:
        after = min(max(stop, first + 1) + width, len(segments))
        some = segments[first:after]
        if any(not one.log_size or one.is_active for one in some):
            return
        if lineage is None and (lineage := _lineage(store, segments, some, max_batch_bytes)) is None:
            return
        snapshot = None if first else log.start_snapshot
        yield Near(
            SourceLog(replace(log, segments=some, start_snapshot=snapshot), None, lineage),
            segments[after].base_offset if after < len(segments) else None,
            not first,
        )
        if after == len(segments):
            return


def _is_plain(source: SourceLog) -> bool:
    """Whether a listing alone names the segments, each with its own first offset, and their ends must be read."""
    log = source.log
    if source.local is not None or log.layout == log_directory.NAME or log.missing or log.too_short or log.incomplete:
        return False
    segments = log.segments
    return all(one.base_offset < two.base_offset for one, two in pairwise(segments)) and any(
        one.last_offset is None for one in segments
    )


def _lineage(
    store: ObjectStore, segments: Sequence[Segment], some: Sequence[Segment], max_batch_bytes: int
) -> LeaderEpochs | None:
    """The lineage that a plan of all segments would choose; ``None`` if only reading all of them shows it."""
    if any(one.files.leader_epochs is None or one.epochs is not None for one in segments):
        return None
    newest = segments[-1]
    latest = max(reversed(segments), key=lambda one: one.version)
    read = {one.files.log: one for one in (newest, latest, *some)}
    if (others := _of_other_checkpoints(segments)) is None:
        return None
    read |= {one.files.log: one for one in others}
    found = read_checkpoints(store, read.values())
    if others and not all(one.is_proven for one in found.values()):
        return None
    checkpoints = [one.epochs for one in found.values() if one.epochs]
    lineage = found[newest.files.leader_epochs or ""].epochs
    if not lineage or len(checkpoints) < len(found):
        return None
    first = max(one.entries[0].start_offset for one in checkpoints)
    if first > some[0].base_offset or not all(_is_beginning_of(one, lineage) for one in checkpoints):
        return None
    for one in (newest, latest) if latest.version > newest.version else (newest,):
        epochs = found[one.files.leader_epochs or ""].epochs
        if epochs is None or not bears_epochs(store, one, epochs, max_batch_bytes):
            return None
    return lineage


def _of_other_checkpoints(segments: Sequence[Segment]) -> list[Segment] | None:
    """A segment for each different checkpoint; ``None`` if the listing does not tell which are different."""
    sizes = [one.files.sizes.get(one.files.leader_epochs or "", -1) for one in segments]
    if all(0 < size <= _ONE_ENTRY for size in sizes):
        return []  # one leader wrote all that there ever was
    different: dict[str, Segment] = {}
    for one in segments:
        if (digest := digest_of(one)) is None:
            return None
        different[digest] = one
        if len(different) > _MOST_CHECKPOINTS:
            return None
    return list(different.values())


def _is_beginning_of(one: LeaderEpochs, lineage: LeaderEpochs) -> bool:
    """Whether two checkpoints agree from where both begin to where the first one ends."""
    start = max(one.entries[0].start_offset, lineage.entries[0].start_offset)
    own = [entry for entry in one.entries if entry.start_offset > start]
    of_all = [entry for entry in lineage.entries if entry.start_offset > start]
    return own == of_all[: len(own)] and one.epoch_for(start) == lineage.epoch_for(start)
