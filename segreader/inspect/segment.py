"""The segments of one partition: which are there, which lack something, and what leader epochs make of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from segreader.catalog.layouts.base import IncompleteSegment
from segreader.catalog.listing import PartitionLog, Wanted
from segreader.catalog.metadata_log import RemoteLogMetadata, RemoteLogSegmentMetadata
from segreader.format.checkpoints import LeaderEpochs
from segreader.inspect.partition import AnySource, places_of, read_log
from segreader.plan.lineage import Dropped
from segreader.segment import Segment, SegmentState, TopicIdPartition
from segreader.storage.base import ObjectStore, read_each
from segreader.stored.indexed_times import UNREADABLE, times_of_segment
from segreader.stored.lineage import read_lineage
from segreader.stored.segment_ends import OPEN_END, read_last_offset
from segreader.stored.source import UrlSource


@dataclass(frozen=True, slots=True)
class SegmentOverview:
    """One segment of a partition: an incomplete one, or one that only the metadata topic knows, too.

    Args:
        source: URL of its log, or of any of its objects; ``None`` where none is listed.
        base_offset: ``None`` where nothing tells it.
        last_offset: inclusive, ``base_offset - 1`` where no batch is in it; ``None`` where nothing tells it.
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


def read_segments(
    source: AnySource, *, topic: str | None, topic_id: str | None = None, partitions: Collection[int] | None = None
) -> Iterator[SegmentsOverview]:
    """The segments of some partitions, one partition after another, and what leader epochs make of them.

    Raises:
        ObjectNotFoundError: a topic or partition is not there.
        CatalogError: a manifest contradicts itself.
    """
    if isinstance(source, UrlSource):
        for known in source.logs(topic=topic, topic_id=topic_id, partitions=partitions):
            yield _segments(source.store, known.log, None, *_dropped(source, known.log.partition))
        return
    metadata = source.read_metadata(topic=topic, topic_id=topic_id, partitions=partitions)
    for place in places_of(source, Wanted(topic, topic_id, partitions), metadata):
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
        for log in source.logs(topic=partition.topic, topic_id=partition.topic_id, partitions=[partition.partition]):
            notes += log.log.notes
            readable = read_lineage(source.store, log.log, local=log.local, given=log.leader_epochs)
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
