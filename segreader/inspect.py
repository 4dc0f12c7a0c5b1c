"""What a location holds, from listings and small files: topics, partitions of a topic, segments of a partition.

Of most layouts nothing but names and manifests is read; of a log at most the headers at its end, where no catalogue
says its last offset.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple

from segreader.catalog.layouts.base import IncompleteSegment, PartitionPlace
from segreader.catalog.listing import NEWEST, PartitionLog, Wanted, find_places, find_wanted, missing_error, read_place
from segreader.catalog.metadata_log import RemoteLogMetadata, RemoteLogSegmentMetadata, from_metadata
from segreader.errors import ObjectNotFoundError
from segreader.format.checkpoints import LeaderEpochs
from segreader.plan.lineage import Dropped
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView, read_each
from segreader.stored.log import StoredLog
from segreader.stored.segment_ends import OPEN_END, read_last_offset
from segreader.stored.source import LocationSource, UrlSource
from segreader.stored.times import UNREADABLE, times_of_log, times_of_segment
from segreader.values import dataclass

_COUNTED_BY_NAME: Final[Mapping[str, re.Pattern[str]]] = {
    "aiven": re.compile(r"\.log$"),
    "linkedin-azure": re.compile(r"\.SEGMENT$"),
    "uber": re.compile(r"/[A-Za-z0-9_-]{22}$"),
}
"""Layouts that read something of every segment to know it, and the names of their logs: enough for counting them."""


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """One topic id at a location, or one name where the layout has no ids.

    Args:
        partitions: how many there are.
        segments: how many logs; ``None`` where some partition could not be looked at.
        size: bytes of the logs as they are stored; ``None`` as ``segments``, or where listings do not tell sizes.
        layouts: the layouts that its partitions lie in; none where only the metadata topic knows it.
        is_experimental: no real bucket has confirmed one of these layouts.
        states: how many segments are in each state by the metadata topic; ``None`` if that is not given.
        errors: why partitions could not be looked at.
        first_indexed_ms, max_timestamp_ms: of all its partitions, as in ``PartitionOverview``; ``None`` where they
            were not asked for, or no partition tells.
    """

    topic: str
    topic_id: str | None
    partitions: int
    segments: int | None
    size: int | None
    layouts: tuple[str, ...]
    is_experimental: bool = False
    states: Mapping[SegmentState, int] | None = None
    errors: tuple[str, ...] = ()
    first_indexed_ms: int | None = None
    max_timestamp_ms: int | None = None


def read_topics(source: AnySource, *, timed_partitions: int = 0) -> list[TopicOverview]:
    """The topics at a location, by name and id, from listings; of most layouts nothing else is read.

    A partition that cannot be looked at is named in its topic's ``errors``.

    Args:
        timed_partitions: times are read, too, two small objects a partition, where there are at most so many.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
    """
    if isinstance(source, UrlSource):
        logs = [known.log for known in source.logs()]
        is_timed = len(logs) <= timed_partitions
        return _grouped((log.partition, log.layout, _counted(source.store, log, is_timed)) for log in logs)
    metadata = source.read_metadata()
    places = find_places(source.store, source.prefix, source.layouts)
    is_timed = len(places) <= timed_partitions
    if metadata is not None and source.catalog.segments_from == "metadata":
        counts: list[_Count | str] = [
            _counted(source.store, read_log(source, place, metadata), is_timed) for place in places
        ]
    else:
        counts = read_each(lambda place: _count(source, place, is_timed), places)
    experimental = {layout.name for layout in source.layouts if layout.is_experimental}
    rows = [
        replace(row, is_experimental=bool(experimental.intersection(row.layouts)))
        for row in _grouped((place.partition, place.layout, count) for place, count in zip(places, counts, strict=True))
    ]
    return rows if metadata is None else _with_states(rows, metadata)


class _Count(NamedTuple):
    """What a partition holds: segments, bytes, and its times in ms where they are known."""

    segments: int
    size: int | None
    first_ms: int | None = None
    last_ms: int | None = None


def _counted(store: ObjectStore, log: PartitionLog, is_timed: bool) -> _Count:
    sizes = [segment.log_size for segment in log.segments]
    size = None if any(size < 0 for size in sizes) else sum(sizes)
    return _Count(len(sizes), size, *(times_of_log(store, log.segments) if is_timed else (None, None)))


def _count(source: LocationSource, place: PartitionPlace, is_timed: bool) -> _Count | str:
    """What a partition holds, or why that is not known."""
    pattern = _COUNTED_BY_NAME.get(place.layout)
    try:
        if pattern is None:
            return _counted(source.store, read_log(source, place, None), is_timed)
        segments, size, is_told, bases = 0, 0, True, set[str]()
        for info in (info for prefix in place.prefixes for info in source.store.list(prefix)):
            if pattern.search(info.name):
                segments, size, is_told = segments + 1, size + info.size, is_told and info.size >= 0
                bases |= set(_BASE_OFFSET.findall(info.name)[-1:])
        times = _times_at_the_ends(source, place, bases) if is_timed and bases else (None, None)
        return _Count(segments, size if is_told else None, *times)
    except UNREADABLE as error:
        return str(error)


_BASE_OFFSET: Final = re.compile(r"(?<!\d)\d{20}(?!\d)")


class _EndsOfLog(StoreView):
    """A store that lists of a partition only the objects of some segments, known by the base offsets in their names."""

    def __init__(self, store: ObjectStore, bases: Collection[str]) -> None:
        super().__init__(store)
        self._bases = bases

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (
            info
            for info in self.inner.list(prefix)
            if any(base in self._bases for base in _BASE_OFFSET.findall(info.name))
        )


def _times_at_the_ends(
    source: LocationSource, place: PartitionPlace, bases: Collection[str]
) -> tuple[int | None, int | None]:
    """The times of a partition by its first and its last segment: of the others not even a manifest is read."""
    ends = _EndsOfLog(source.store, {min(bases), max(bases)})
    try:
        return times_of_log(ends, read_place(ends, place, source.layouts).segments)
    except UNREADABLE:
        return None, None  # the listing alone tells what was asked for


def _grouped(counts: Iterable[tuple[TopicIdPartition, str, _Count | str]]) -> list[TopicOverview]:
    """Partitions and what was counted in each, as topics."""
    of_topic: dict[tuple[str, str | None], list[tuple[TopicIdPartition, str, _Count | str]]] = defaultdict(list)
    for one in counts:
        of_topic[one[0].topic, one[0].topic_id].append(one)
    rows = []
    for (topic, topic_id), group in sorted(of_topic.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        known = [count for _, _, count in group if not isinstance(count, str)]
        sizes = [count.size for count in known]
        is_whole = len(known) == len(group)
        rows.append(
            TopicOverview(
                topic,
                topic_id,
                len({partition.partition for partition, _, _ in group}),
                sum(count.segments for count in known) if is_whole else None,
                sum(size or 0 for size in sizes) if is_whole and None not in sizes else None,
                tuple(sorted({layout for _, layout, _ in group})),
                errors=tuple(count for _, _, count in group if isinstance(count, str)),
                first_indexed_ms=min((one.first_ms for one in known if one.first_ms is not None), default=None),
                max_timestamp_ms=max((one.last_ms for one in known if one.last_ms is not None), default=None),
            )
        )
    return rows


def _with_states(rows: Sequence[TopicOverview], metadata: RemoteLogMetadata) -> list[TopicOverview]:
    """The rows with what the metadata topic says of them, and those that only it knows."""
    told = {}
    for summary in metadata.topics():
        states = dict(summary.segments)
        if summary.deleted:
            states[SegmentState.DELETE_SEGMENT_FINISHED] = summary.deleted
        told[summary.topic, summary.topic_id] = (len(summary.partitions), states)
    out = [replace(row, states=told.pop((row.topic, row.topic_id or ""), (0, {}))[1]) for row in rows]
    for (topic, topic_id), (partitions, states) in told.items():
        out.append(TopicOverview(topic, topic_id, partitions, 0, 0, (), states=states))
    return sorted(out, key=lambda row: (row.topic, row.topic_id or ""))


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


def read_partitions(source: AnySource, wanted: Wanted) -> Iterator[PartitionOverview]:
    """The partitions of a topic, of every id that bears its name, one after another.

    One that cannot be looked at says so in ``error``.

    Raises:
        ObjectNotFoundError: the topic is not there.
    """
    if isinstance(source, UrlSource):
        for known in source.logs(wanted):
            yield _partition(source.store, known.log, None, is_experimental=False)
        return
    metadata = source.read_metadata(wanted)
    experimental = {layout.name for layout in source.layouts if layout.is_experimental}

    def look_at(place: PartitionPlace) -> PartitionOverview:
        is_experimental = place.layout in experimental
        try:
            log = read_log(source, place, metadata)
            return _partition(source.store, log, metadata, is_experimental=is_experimental)
        except UNREADABLE as error:
            return PartitionOverview(place.partition, place.layout, is_experimental, error=str(error))

    places = places_of(source, wanted, metadata)
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
        return source.places(wanted, metadata)
    places, everything = find_wanted(source.store, source.prefix, source.layouts, wanted)
    missing = set(wanted.partitions or ()) - {place.partition.partition for place in places}
    if not places or missing:
        have = {place.partition.partition for place in places}
        error = missing_error((place.partition for place in everything), have, source.shown, wanted)
        raise error or ObjectNotFoundError("what is asked for is not here", source=source.shown)
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


@dataclass(frozen=True, slots=True)
class SegmentOverview:
    """One segment of a partition: an incomplete one, or one that only the metadata topic knows, too.

    Args:
        source: URL of its log, or of any of its objects; ``None`` where none is listed.
        base_offset: ``None`` if it is not known.
        last_offset: inclusive, ``base_offset - 1`` where no batch is in it; ``None`` if it is not known.
        size: bytes of its log, plain; ``None`` where there is none.
        max_timestamp_ms: by the catalogue, or its time index.
        missing: the kinds of objects that a whole segment would have besides.
        state: by the metadata topic; ``None`` where that is not given or does not know it.
        dropped: the offsets that are not read from it, and why.
    """

    partition: TopicIdPartition
    source: str | None
    base_offset: int | None
    last_offset: int | None = None
    size: int | None = None
    max_timestamp_ms: int | None = None
    epochs: LeaderEpochs | None = None
    segment_id: str | None = None
    is_active: bool = False
    missing: tuple[str, ...] = ()
    state: SegmentState | None = None
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentsOverview:
    """The segments of one partition by base offset, and the objects that belong to none."""

    partition: TopicIdPartition
    layout: str
    segments: tuple[SegmentOverview, ...]
    foreign: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_segments(source: AnySource, wanted: Wanted) -> Iterator[SegmentsOverview]:
    """The segments of some partitions, one partition after another, and what leader epochs make of them.

    Raises:
        ObjectNotFoundError: a topic or partition is not there.
        CatalogError: a manifest contradicts itself.
    """
    if isinstance(source, UrlSource):
        for known in source.logs(wanted):
            yield _segments(source.store, known.log, None, *_dropped(source, known.log.partition))
        return
    metadata = source.read_metadata(wanted)
    for place in places_of(source, wanted, metadata):
        log = read_log(source, place, metadata)
        yield _segments(source.store, log, metadata, *_dropped(source, place.partition))


def _dropped(
    source: AnySource, partition: TopicIdPartition
) -> tuple[dict[str, Segment], dict[str, list[Dropped]], tuple[str, ...]]:
    """By name of the log: the segments with all that could be found out, what is not read of each; and notes."""
    known: dict[str, Segment] = {}
    dropped: dict[str, list[Dropped]] = defaultdict(list)
    notes: list[str] = []
    try:
        for log in source.logs(Wanted(partition.topic, partition.topic_id, [partition.partition])):
            notes += log.log.notes
            readable = StoredLog(source.store, log).readable
            notes += readable.notes
            known |= {part.segment.files.log: part.segment for part in readable.resolved.parts}
            for one in readable.resolved.dropped:
                known[one.segment.files.log] = one.segment
                dropped[one.segment.files.log].append(one)
    except UNREADABLE as error:
        notes.append(f"{partition}: the live parts of the segments cannot be determined by leader epochs: {error}")
    return known, dropped, tuple(notes)


def _segments(
    store: ObjectStore,
    log: PartitionLog,
    metadata: RemoteLogMetadata | None,
    known: Mapping[str, Segment],
    dropped: Mapping[str, Sequence[Dropped]],
    notes: tuple[str, ...],
) -> SegmentsOverview:
    partition = log.partition
    told: dict[str, RemoteLogSegmentMetadata] = {}
    deleted: frozenset[str] = frozenset()
    if metadata is not None:
        told = {one.segment_id: one for one in metadata.segments(partition, tuple(SegmentState))}
        deleted = metadata.deleted(partition)

    def state(segment_id: str | None) -> SegmentState | None:
        if segment_id in deleted:
            return SegmentState.DELETE_SEGMENT_FINISHED
        found = told.pop(segment_id or "", None)
        return found.state if found is not None else None

    segments = [known.get(segment.files.log, segment) for segment in log.segments]
    listed = {segment.files.log for segment in segments}
    segments += [segment for name, segment in known.items() if name not in listed]  # of a broker's log directory
    times_ms = read_each(
        lambda one: one.max_timestamp_ms if one.max_timestamp_ms is not None else times_of_segment(store, one)[1],
        segments,
    )
    missing = {_set_of(one): one for one in log.incomplete}
    rows = []
    for segment, max_ms in zip(segments, times_ms, strict=True):
        lacking = missing.pop((segment.base_offset, segment.segment_id), None)
        last = segment.last_offset
        if last is None or last >= OPEN_END:
            last = _last_offset(store, segment)
        rows.append(
            SegmentOverview(
                partition,
                store.url(segment.files.log),
                segment.base_offset,
                last,
                segment.log_size if segment.log_size >= 0 else None,
                max_ms,
                segment.epochs,
                segment.segment_id,
                segment.is_active,
                lacking.missing if lacking is not None else (),
                state(segment.segment_id),
                tuple(dropped.get(segment.files.log, ())),
            )
        )
    for one in missing.values():
        base = one.base_offset if one.base_offset >= 0 else None
        rows.append(
            SegmentOverview(
                partition,
                store.url(one.name),
                base,
                segment_id=one.segment_id,
                missing=one.missing,
                state=state(one.segment_id),
            )
        )
    for only in told.values():
        rows.append(
            SegmentOverview(
                partition,
                None,
                only.base_offset,
                only.last_offset,
                only.log_size,
                only.max_timestamp_ms,
                only.epochs,
                only.segment_id,
                missing=("log",),
                state=only.state,
            )
        )
    rows.sort(key=lambda row: (-1 if row.base_offset is None else row.base_offset, row.source or ""))
    foreign = tuple(store.url(name) for name in log.foreign)
    unique = tuple(dict.fromkeys([*log.notes, *notes]))
    return SegmentsOverview(partition, log.layout, tuple(rows), foreign, unique)


def _last_offset(store: ObjectStore, segment: Segment) -> int | None:
    try:
        return read_last_offset(store, segment)
    except UNREADABLE:
        return None


def _set_of(one: IncompleteSegment) -> tuple[int, str | None]:
    return (one.base_offset, one.segment_id)
