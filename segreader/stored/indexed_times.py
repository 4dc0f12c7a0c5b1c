"""Times of segments as time indexes and catalogues state them: markers count, and no log is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from segreader.errors import (
    AccessDeniedError,
    CatalogError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from segreader.format.index_files import parse_time_index
from segreader.plan.request import TimeRange
from segreader.ranges import ByteRange, OffsetRange
from segreader.segment import Segment
from segreader.storage.base import ObjectStore, read_each, read_whole

UNREADABLE: Final = (FormatError, CatalogError, ObjectNotFoundError, ObjectChangedError, AccessDeniedError)
"""What keeps one partition or one small file from being read, and nothing else."""

_MOST_SEGMENTS: Final = 256
_ENTRY: Final = Struct(">qi")


def times_of_log(store: ObjectStore, segments: Sequence[Segment]) -> tuple[int | None, int | None]:
    """The earliest time that the first segment's index has, and the largest one of all segments, in ms.

    Args:
        segments: of one partition, by base offset.
    """
    if not segments:
        return None, None
    first_ms = times_of_segment(store, segments[0])[0]
    known = [segment.max_timestamp_ms for segment in segments if segment.max_timestamp_ms is not None]
    if segments[-1].max_timestamp_ms is None:
        last_ms = times_of_segment(store, segments[-1])[1]
        return first_ms, None if last_ms is None else max([last_ms, *known])
    return first_ms, max(known)


def note_if_older(
    store: ObjectStore, logs: Iterable[Sequence[Segment]], times: TimeRange, offsets: OffsetRange
) -> str | None:
    """A note for people, with the newest time, where a read has no record because all are older than it asks for.

    Args:
        logs: the segments of each partition that is read, by base offset.
        times, offsets: asked for.

    Returns:
        ``None`` also where records may be as new and lie outside of the offsets, or at ``until`` or later.
    """
    since_ms = times.since_ms
    if since_ms is None:
        return None
    newest = _newest_time(store, logs)
    is_bounded = offsets != OffsetRange() or times.until_ms is not None
    if is_bounded and (newest is None or newest[0] >= since_ms):
        return None
    note = f"no record that can be read is as new as {_shown(since_ms)}"
    if newest is None:
        return note
    newest_ms, partition = newest
    note += f": the newest time there is {_shown(newest_ms)}, in {partition}"
    return note if newest_ms < since_ms else f"{note}, of a transaction marker or an open transaction"


def _newest_time(store: ObjectStore, logs: Iterable[Sequence[Segment]]) -> tuple[int, str] | None:
    """The newest time of some partitions, in ms, and the partition that has it; ``None`` where none is known.

    Args:
        logs: the segments of each partition, by base offset.
    """
    segments = [segment for log in logs for segment in log[-_MOST_SEGMENTS:]]
    times = read_each(lambda one: one.max_timestamp_ms or times_of_segment(store, one)[1] or -1, segments)
    found = max(zip(times, (str(one.partition) for one in segments), strict=True), default=(-1, ""))
    return found if found[0] > 0 else None


def _shown(time_ms: int) -> str:
    """In UTC, to the millisecond; times that no calendar has as numbers."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00") + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def times_of_segment(store: ObjectStore, segment: Segment) -> tuple[int | None, int | None]:
    """Times of the first and the last entry of a segment's time index, in ms.

    Only these two entries are read, unless a broker still writes to the segment.
    """
    name = segment.files.time_index
    if name is None or not segment.log_size:
        return None, None
    try:
        if segment.is_active:
            times_ms = parse_time_index(read_whole(store, name), segment.base_offset).timestamps_ms
            return (times_ms[0], times_ms[-1]) if len(times_ms) else (None, None)
        size = segment.files.sizes.get(name)
        size = store.size(name) if size is None else size
        if size < _ENTRY.size or size % _ENTRY.size:
            return None, None
        ends = [ByteRange(0, _ENTRY.size)]
        if size > _ENTRY.size:
            ends.append(ByteRange(size - _ENTRY.size, size))
        found = [int(_ENTRY.unpack(data)[0]) for data in store.read_ranges(name, ends)]
    except UNREADABLE:
        return None, None
    return (found[0], found[-1]) if min(found) > 0 else (None, None)
