"""The partitions of a topic as a listing shows them: offsets, times, bytes, and how many segments.

Logs are not read, but for the headers at the end of the last segment, where no catalogue says its last offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from segreader.catalog.joined import from_metadata
from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog, read_place
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.catalog.walk import Wanted, find_all, find_places
from segreader.errors import (
    AccessDeniedError,
    CatalogError,
    FormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from segreader.format.time_index import parse_time_index
from segreader.ranges import ByteRange
from segreader.read.segment_ends import read_last_offset
from segreader.read.small_objects import read_each, read_whole
from segreader.read.source import LocationSource, UrlSource
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectStore

AnySource = LocationSource | UrlSource

UNREADABLE: Final = (FormatError, CatalogError, ObjectNotFoundError, ObjectChangedError, AccessDeniedError)
"""What keeps one partition or one small file from being read, and nothing else."""

_TIME_ENTRY: Final = Struct(">qi")
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """One partition.

    Args:
        segments: how many are there, those that leader epochs will drop included.
        size: bytes of their logs, plain; ``None`` where a listing does not tell.
        start_offset: the smallest one of all segments; ``None`` without segments.
        stop_offset: one more than the largest; ``None`` where that cannot be told.
        first_indexed_ms: the earliest time that a time index has: that of the newest record up to its first entry.
        max_timestamp_ms: the largest time, by the catalogue or the last time index; while a broker writes to the
            last segment, that of what it has indexed.
        incomplete, foreign: how many sets lack something, how many objects belong to nothing.
        states: as in ``TopicOverview``.
        error: why nothing but its place is known.
    """

    partition: TopicIdPartition
    layout: str
    is_experimental: bool = False
    segments: int = 0
    size: int | None = None
    start_offset: int | None = None
    stop_offset: int | None = None
    first_indexed_ms: int | None = None
    max_timestamp_ms: int | None = None
    incomplete: int = 0
    foreign: int = 0
    states: Mapping[SegmentState, int] | None = None
    notes: tuple[str, ...] = field(default=(), repr=False)
    error: str | None = None


def read_partitions(
    source: AnySource, *, topic: str | None, topic_id: str | None = None, partitions: Collection[int] | None = None
) -> Iterator[PartitionOverview]:
    """The partitions of a topic, of every id that bears its name, one after another.

    One that cannot be looked at says so in ``error``.

    Raises:
        ObjectNotFoundError: the topic is not there.
    """
    if isinstance(source, UrlSource):
        for known in source.logs(topic=topic, topic_id=topic_id, partitions=partitions):
            yield _partition(source.store, known.log, None, is_experimental=False)
        return
    metadata = source.read_metadata(topic=topic, topic_id=topic_id, partitions=partitions)
    experimental = {layout.name for layout in source.layouts if layout.is_experimental}

    def look_at(place: PartitionPlace) -> PartitionOverview:
        is_experimental = place.layout in experimental
        try:
            log = read_log(source, place, metadata)
            return _partition(source.store, log, metadata, is_experimental=is_experimental)
        except UNREADABLE as error:
            return PartitionOverview(place.partition, place.layout, is_experimental, error=str(error))

    places = places_of(source, Wanted(topic, topic_id, partitions))
    for first in range(0, len(places), _AT_ONCE):
        yield from read_each(look_at, places[first : first + _AT_ONCE])


def read_log(source: LocationSource, place: PartitionPlace, metadata: RemoteLogMetadata | None) -> PartitionLog:
    """The segments of one partition as they lie there, or as the metadata topic names them if only that is wanted."""
    if metadata is not None and source.catalog.segments_from == "metadata":
        return from_metadata(place, metadata)
    return read_place(source.store, place, source.layouts)


def places_of(source: LocationSource, wanted: Wanted) -> list[PartitionPlace]:
    """The partitions asked for; of one name with two ids those of both."""
    places = find_places(source.store, source.prefix, source.layouts, wanted)
    missing = set(wanted.partitions or ()) - {place.partition.partition for place in places}
    if not places or missing:
        everything = find_all(source.store, source.prefix, source.layouts)
        places = [place for place in everything if wanted.admits(place.partition)]
        missing = set(wanted.partitions or ()) - {place.partition.partition for place in places}
        if not places or missing:
            there = dict.fromkeys(str(place.partition) for place in everything)
            what = f"topic {wanted.topic!r}" if wanted.topic is not None else "what is asked for"
            if missing:
                what = f"partition {', '.join(map(str, sorted(missing)))}" + (f" of {what}" if wanted.topic else "")
            shown = ", ".join(list(there)[:8]) + (f" and {len(there) - 8} more" if len(there) > 8 else "")
            raise ObjectNotFoundError(f"{what} is not here", source=source.shown, found=shown)
    return places


def _partition(
    store: ObjectStore, log: PartitionLog, metadata: RemoteLogMetadata | None, *, is_experimental: bool
) -> PartitionOverview:
    sizes = [segment.log_size for segment in log.segments]
    states = None
    if metadata is not None:
        states = Counter(known.state for known in metadata.segments(log.partition, tuple(SegmentState)))
        if deleted := len(metadata.deleted(log.partition)):
            states[SegmentState.DELETE_SEGMENT_FINISHED] = deleted
    first_ms, max_ms = _times(store, log.segments)
    return PartitionOverview(
        log.partition,
        log.layout,
        is_experimental,
        segments=len(sizes),
        size=None if any(size < 0 for size in sizes) else sum(sizes),
        start_offset=min((segment.base_offset for segment in log.segments), default=None),
        stop_offset=_stop_offset(store, log.segments),
        first_indexed_ms=first_ms,
        max_timestamp_ms=max_ms,
        incomplete=len(log.incomplete),
        foreign=len(log.foreign),
        states=states,
        notes=log.notes,
    )


def _stop_offset(store: ObjectStore, segments: Sequence[Segment]) -> int | None:
    """One more than the largest offset: by the catalogue, or by the ends of the segments that begin last."""
    if not segments:
        return None
    last_base = max(segment.base_offset for segment in segments)
    lasts = [segment.last_offset for segment in segments if segment.last_offset is not None]
    for segment in segments:
        if segment.last_offset is None and segment.base_offset == last_base:
            try:
                last = read_last_offset(store, segment)
            except UNREADABLE:
                return None
            if last is None:
                return None
            lasts.append(last)
    return max(lasts) + 1


def _times(store: ObjectStore, segments: Sequence[Segment]) -> tuple[int | None, int | None]:
    """The earliest time in an index, and the largest one."""
    if not segments:
        return None, None
    first_ms = indexed_times(store, segments[0])[0]
    known = [segment.max_timestamp_ms for segment in segments if segment.max_timestamp_ms is not None]
    if segments[-1].max_timestamp_ms is None:
        last_ms = indexed_times(store, segments[-1])[1]
        return first_ms, None if last_ms is None else max([last_ms, *known])
    return first_ms, max(known)


def indexed_times(store: ObjectStore, segment: Segment) -> tuple[int | None, int | None]:
    """Times of the first and the last entry of a segment's time index; of one that is no longer written only these
    are read."""
    name = segment.files.time_index
    if name is None or not segment.log_size:
        return None, None
    try:
        if segment.is_active:
            times_ms = parse_time_index(read_whole(store, name), segment.base_offset).timestamps_ms
            return (times_ms[0], times_ms[-1]) if len(times_ms) else (None, None)
        size = segment.files.sizes.get(name)
        size = store.size(name) if size is None else size
        if size < _TIME_ENTRY.size or size % _TIME_ENTRY.size:
            return None, None
        ends = [ByteRange(0, _TIME_ENTRY.size)]
        if size > _TIME_ENTRY.size:
            ends.append(ByteRange(size - _TIME_ENTRY.size, size))
        found = [int(_TIME_ENTRY.unpack(data)[0]) for data in store.read_ranges(name, ends)]
    except UNREADABLE:
        return None, None
    return (found[0], found[-1]) if min(found) > 0 else (None, None)
