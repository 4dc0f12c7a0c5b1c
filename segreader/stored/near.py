"""The segments around a range of offsets, where it is certain that the others decide nothing of it.

A plan of everything reads the small objects of every segment. For a range that is wanted, these matter: the leader
epochs of the live log, the segments that hold the range, and the one behind it. That is enough only if no other segment
can tell of another history. So the listing must prove that all checkpoints say the same, or that a leader uploaded each
segment after the one before it; else the plan reads everything, as it does if anything near the range is unusual.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from segreader.catalog.layouts import log_directory
from segreader.catalog.listing import PartitionLog
from segreader.format.checkpoints import LeaderEpochs
from segreader.plan.lineage import ResolvedLog
from segreader.plan.request import TimeRange
from segreader.ranges import OffsetRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each
from segreader.stored.lineage import digest_of, read_checkpoints
from segreader.stored.segment_ends import OPEN_END, bears_epochs
from segreader.stored.source import SourceLog
from segreader.stored.times import newest_indexed_ms, times_of_segment
from segreader.values import dataclass

LEAST_SEGMENTS: Final = 16
"""A partition of fewer is read whole."""

LARGEST_SHARE: Final = 0.5
"""Of a partition: a range in more of its segments is planned by all of them."""

_MOST_CHECKPOINTS: Final = 8
"""Different ones that are read to prove that all say the same."""

_ONE_ENTRY: Final = 11
"""Bytes of a checkpoint that cannot have two entries: ``0\\n2\\n0 0\\n1 1\\n`` has 12."""

_MOST_MS: Final = 1 << 48
_LEAST_SPAN_MS: Final = 10 * 60 * 1000
"""From the first upload to the last: copies of small buckets take less."""

_ALL: Final = OffsetRange()
_WIDTHS: Final = (1, 4, 16)
"""Segments behind the range: the first one that proves its transactions decided is enough."""


@dataclass(frozen=True, slots=True)
class Near:
    """Some segments of a partition that follow each other.

    Args:
        source: the partition with no others.
        wanted: the offsets around which they are.
        next_base: where the segment behind them begins; ``None`` if there is none.
        is_first: no segment is before them.
    """

    source: SourceLog
    wanted: OffsetRange
    next_base: int | None
    is_first: bool

    def is_whole(self, log: ResolvedLog) -> bool:
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
        return self.next_base is None or self.wanted.start < log.stop


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
        if (some := _read(log, segments[first:after])) is None:
            return
        if any(not one.log_size or one.is_active for one in some):
            return
        if lineage is None and (lineage := _lineage(store, log, some, max_batch_bytes)) is None:
            return
        snapshot = None if first else log.start_snapshot
        yield Near(
            SourceLog(replace(log, segments=tuple(some), start_snapshot=snapshot, read_segments=None), None, lineage),
            wanted,
            segments[after].base_offset if after < len(segments) else None,
            not first,
        )
        if after == len(segments):
            return


def _read(log: PartitionLog, some: Sequence[Segment]) -> Sequence[Segment] | None:
    """Segments with all that can be read of them, where names are all that is known; ``None`` if one has gone, or is
    of another topic than its name says."""
    if log.read_segments is None:
        return some
    read = log.read_segments([one.files.log for one in some]).segments
    is_same = [(one.partition, one.files.log) for one in read] == [(one.partition, one.files.log) for one in some]
    return read if is_same else None


def range_of_times(
    store: ObjectStore, source: SourceLog, times: TimeRange, offsets: OffsetRange = _ALL
) -> OffsetRange | None:
    """The offsets of the segments that hold the first record of a range of times and the one behind its last.

    Any segment may hold the newest record, whatever was uploaded before or after it: the end of each time index is
    read, 12 bytes.

    Args:
        offsets: where the times have no start or no end, that of these.

    Returns:
        ``None`` where all segments must be read.
    """
    segments = source.log.segments
    since_ms, until_ms = times.since_ms, times.until_ms
    if since_ms is None and not offsets.start:
        return None
    if since_ms is not None and until_ms is not None and until_ms < since_ms:
        return None
    if len(segments) < LEAST_SEGMENTS or not _is_plain(source):
        return None
    ends = [*(one.base_offset for one in segments[1:]), OPEN_END]

    def newest_ms(at: int) -> int | None:
        segment = segments[at]
        return segment.max_timestamp_ms or newest_indexed_ms(store, segment, ends[at] - 1)

    newest = read_each(newest_ms, range(len(segments)))

    def first_at(time_ms: int, start: int) -> int | None:
        numbers = range(start, len(segments))
        return next((at for at in numbers if (known := newest[at]) is None or known >= time_ms), None)

    start, stop, first = offsets.start, offsets.stop, 0
    if since_ms is not None:
        if (found := first_at(since_ms, 0)) is None:
            return None
        first, start = found, segments[found].base_offset
    if until_ms is not None:
        last = first_at(until_ms, first)
        stop = None if last is None else segments[last].base_offset + 1
    return None if stop is not None and stop <= start else OffsetRange(start, stop)


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
    store: ObjectStore, log: PartitionLog, some: Sequence[Segment], max_batch_bytes: int
) -> LeaderEpochs | None:
    """The lineage that a plan of all segments would choose; ``None`` if only reading all of them shows it."""
    segments = log.segments
    if any(one.files.leader_epochs is None or one.epochs is not None for one in segments):
        return None
    newest = segments[-1]
    latest = max(reversed(segments), key=lambda one: one.version)
    read = {one.files.log: one for one in (newest, latest, *some)}
    if (witnesses := _witnesses(store, segments)) is None:
        return None
    read |= {one.files.log: one for one in witnesses.segments}
    found = read_checkpoints(store, read.values())
    if witnesses.needs_digests and not all(one.is_proven for one in found.values()):
        return None
    checkpoints = [one.epochs for one in found.values() if one.epochs]
    lineage = found[newest.files.leader_epochs or ""].epochs
    if not lineage or len(checkpoints) < len(found):
        return None
    first = max(one.entries[0].start_offset for one in checkpoints)
    if first > some[0].base_offset or not all(_is_beginning_of(one, lineage) for one in checkpoints):
        return None
    if (ends := _read(log, [latest, newest] if latest.version > newest.version else [newest])) is None:
        return None
    for one in ends:
        epochs = found[one.files.leader_epochs or ""].epochs
        if epochs is None or not bears_epochs(store, one, epochs, max_batch_bytes):
            return None
    return lineage


@dataclass(frozen=True, slots=True)
class _Witnesses:
    """The segments whose checkpoints, if they agree, show that all do; they must have the digests that were listed."""

    segments: Sequence[Segment]
    needs_digests: bool = False


def _witnesses(store: ObjectStore, segments: Sequence[Segment]) -> _Witnesses | None:
    """Whom to ask whether there is another history; ``None`` if a listing cannot tell."""
    sizes = [one.files.sizes.get(one.files.leader_epochs or "", -1) for one in segments]
    if all(0 < size <= _ONE_ENTRY for size in sizes):
        return _Witnesses(())  # one leader wrote all that there ever was
    different: dict[str, Segment] = {}
    for one in segments:
        if (digest := digest_of(one)) is not None:
            different[digest] = one
        if digest is None or len(different) > _MOST_CHECKPOINTS:
            return _Witnesses(segments[-3:-1]) if _were_uploaded_in_order(store, segments) else None
    return _Witnesses(list(different.values()), needs_digests=True)


def _were_uploaded_in_order(store: ObjectStore, segments: Sequence[Segment]) -> bool:
    """Whether each segment was written to the store after the one before it, by leaders and not by a copy.

    A leader that has lost an unclean election has uploaded offsets that the survivor uploads again, later, from a lower
    base offset on. A copy of a bucket may give its objects new times, in order of name: then these span less than the
    records do.
    """
    times = [one.version for one in segments]
    if times[0] <= 0 or times[-1] >= _MOST_MS or any(two < one for one, two in pairwise(times)):
        return False
    first_ms, last_ms = (times_of_segment(store, one)[1] for one in (segments[0], segments[-1]))
    if first_ms is None or last_ms is None:
        return False
    return times[-1] - times[0] >= max(_LEAST_SPAN_MS, (last_ms - first_ms) // 2)


def _is_beginning_of(one: LeaderEpochs, lineage: LeaderEpochs) -> bool:
    """Whether two checkpoints agree from where both begin to where the first one ends."""
    start = max(one.entries[0].start_offset, lineage.entries[0].start_offset)
    own = [entry for entry in one.entries if entry.start_offset > start]
    of_all = [entry for entry in lineage.entries if entry.start_offset > start]
    return own == of_all[: len(own)] and one.epoch_for(start) == lineage.epoch_for(start)
