"""The topics at a location as listings show them; of most layouts nothing but names and manifests is looked at."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog, find_places
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.inspect.partition import AnySource, read_log
from segreader.segment import SegmentState, TopicIdPartition
from segreader.storage.base import read_each
from segreader.stored.indexed_times import UNREADABLE
from segreader.stored.source import LocationSource, UrlSource

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


def read_topics(source: AnySource) -> list[TopicOverview]:
    """The topics at a location, by name and id, from listings; of most layouts nothing else is read.

    A partition that cannot be looked at is named in its topic's ``errors``.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
    """
    if isinstance(source, UrlSource):
        logs = [known.log for known in source.logs(topic=None, topic_id=None, partitions=None)]
        return _grouped((log.partition, log.layout, _counted(log)) for log in logs)
    metadata = source.read_metadata(topic=None, topic_id=None, partitions=None)
    places = find_places(source.store, source.prefix, source.layouts)
    if metadata is not None and source.catalog.segments_from == "metadata":
        counts: list[_Count] = [_counted(read_log(source, place, metadata)) for place in places]
    else:
        counts = read_each(lambda place: _count(source, place), places)
    experimental = {layout.name for layout in source.layouts if layout.is_experimental}
    rows = [
        replace(row, is_experimental=bool(experimental.intersection(row.layouts)))
        for row in _grouped((place.partition, place.layout, count) for place, count in zip(places, counts, strict=True))
    ]
    return rows if metadata is None else _with_states(rows, metadata)


_Count = tuple[int, int | None] | str
"""How many segments and bytes, or why that is not known."""


def _counted(log: PartitionLog) -> _Count:
    sizes = [segment.log_size for segment in log.segments]
    return len(sizes), None if any(size < 0 for size in sizes) else sum(sizes)


def _count(source: LocationSource, place: PartitionPlace) -> _Count:
    pattern = _COUNTED_BY_NAME.get(place.layout)
    try:
        if pattern is None:
            return _counted(read_log(source, place, None))
        segments, size, is_told = 0, 0, True
        for info in (info for prefix in place.prefixes for info in source.store.list(prefix)):
            if pattern.search(info.name):
                segments, size, is_told = segments + 1, size + info.size, is_told and info.size >= 0
        return segments, size if is_told else None
    except UNREADABLE as error:
        return str(error)


def _grouped(counts: Iterable[tuple[TopicIdPartition, str, _Count]]) -> list[TopicOverview]:
    """Partitions and what was counted in each, as topics."""
    of_topic: dict[tuple[str, str | None], list[tuple[TopicIdPartition, str, _Count]]] = defaultdict(list)
    for one in counts:
        of_topic[one[0].topic, one[0].topic_id].append(one)
    rows = []
    for (topic, topic_id), group in sorted(of_topic.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        known = [count for _, _, count in group if not isinstance(count, str)]
        sizes = [size for _, size in known]
        is_whole = len(known) == len(group)
        rows.append(
            TopicOverview(
                topic,
                topic_id,
                len({partition.partition for partition, _, _ in group}),
                sum(segments for segments, _ in known) if is_whole else None,
                sum(size or 0 for size in sizes) if is_whole and None not in sizes else None,
                tuple(sorted({layout for _, layout, _ in group})),
                errors=tuple(count for _, _, count in group if isinstance(count, str)),
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
