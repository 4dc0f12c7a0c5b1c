"""The partitions of a topic as a listing shows them: offsets, times, bytes, and how many segments.

Logs are not read, but for the headers at the end of the last segment, where no catalogue says its last offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog, Wanted, find_all, find_places, read_place
from segreader.catalog.metadata_log import RemoteLogMetadata, from_metadata
from segreader.errors import ObjectNotFoundError
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectStore, read_each
from segreader.stored.indexed_times import UNREADABLE, times_of_log
from segreader.stored.segment_ends import read_last_offset
from segreader.stored.source import LocationSource, UrlSource
from segreader.stored.topic_ids import NEWEST

AnySource = LocationSource | UrlSource

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

    places = places_of(source, Wanted(topic, topic_id, partitions), metadata)
    for first in range(0, len(places), _AT_ONCE):
        yield from read_each(look_at, places[first : first + _AT_ONCE])


def read_log(source: LocationSource, place: PartitionPlace, metadata: RemoteLogMetadata | None) -> PartitionLog:
    """The segments of one partition as they lie there, or as the metadata topic names them if only that is wanted."""
    if metadata is not None and source.catalog.segments_from == "metadata":
        return from_metadata(place, metadata)
    return read_place(source.store, place, source.layouts)


def places_of(
    source: LocationSource, wanted: Wanted, metadata: RemoteLogMetadata | None = None
) -> list[PartitionPlace]:
    """The partitions asked for; of a topic that was created again those of every id, if none is chosen."""
    if wanted.topic_id == NEWEST:
        return source.places(topic=wanted.topic, topic_id=NEWEST, partitions=wanted.partitions, metadata=metadata)
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
    first_ms, max_ms = times_of_log(store, log.segments)
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
