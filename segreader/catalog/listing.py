"""What a listing of a location says: which partitions, and which segments of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from segreader.catalog.layouts import local_tiered, log_directory
from segreader.errors import (
    AmbiguousLineageError,
    AmbiguousTopicError,
    ObjectNotFoundError,
    PlanError,
    UnknownLayoutError,
)
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectStore

_LAYOUTS = {layout.NAME: layout.find_segments for layout in (local_tiered, log_directory)}


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The segments of one partition, by base offset, each offset claimed by one of them."""

    partition: TopicIdPartition
    segments: tuple[Segment, ...]


def list_partitions(
    store: ObjectStore,
    prefix: str = "",
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
) -> list[PartitionLog]:
    """The partitions at a location, ordered by topic and partition.

    Args:
        store: where to look.
        prefix: only objects whose name begins so.
        topic, topic_id, partitions: what is wanted; everything by default.

    Raises:
        UnknownLayoutError: no file there looks like a segment, or two layouts are mixed.
        ObjectNotFoundError: the topic or partition asked for is not there.
        AmbiguousTopicError: one name stands for two topic ids and ``topic_id`` does not choose.
        AmbiguousLineageError: two segments have the same base offset.
    """
    return choose_partitions(
        find_segments(store, prefix), store.url(prefix), topic=topic, topic_id=topic_id, partitions=partitions
    )


def choose_partitions(
    segments: Iterable[Segment],
    source: str,
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
) -> list[PartitionLog]:
    """Those of the segments that are asked for, by partition; ``source`` stands in errors. As ``list_partitions``."""
    logs = _group(segments, source)
    chosen = [
        log
        for log in logs
        if (topic is None or log.partition.topic == topic)
        and (topic_id is None or log.partition.topic_id == topic_id)
        and (partitions is None or log.partition.partition in partitions)
    ]
    if not chosen or partitions is not None:
        _require(logs, chosen, source, topic, topic_id, partitions)
    _refuse_two_ids(chosen, source)
    return chosen


def find_segments(store: ObjectStore, prefix: str = "") -> list[Segment]:
    """Every segment at a location, as the names of its files tell: nothing is chosen, ordered or refused.

    Raises:
        UnknownLayoutError: no file there looks like a segment, or two layouts are mixed.
    """
    source = store.url(prefix)
    objects = list(store.list(prefix))
    found = {name: find(objects) for name, find in _LAYOUTS.items()}
    found = {name: segments for name, segments in found.items() if segments}
    if len(found) > 1:
        places = ", ".join(f"{name} ({len(segments)} segments)" for name, segments in found.items())
        raise UnknownLayoutError(
            "two layouts are mixed here",
            source=source,
            found=places,
            expected="one",
            hint="Name the directory of one of them",
        )
    if not found:
        seen = ", ".join(info.name for info in objects[:3]) or "no files"
        raise UnknownLayoutError(
            "no segments here",
            source=source,
            found=f"{len(objects)} files: {seen}" if objects else seen,
            expected=f"one of the layouts {', '.join(_LAYOUTS)}",
            hint="Give the directory that holds <topic>-<partition>… directories, or one of those",
        )
    return next(iter(found.values()))


def _group(segments: Iterable[Segment], source: str) -> list[PartitionLog]:
    groups: dict[TopicIdPartition, list[Segment]] = defaultdict(list)
    for segment in segments:
        groups[segment.partition].append(segment)
    logs = []
    for partition in sorted(groups, key=lambda key: key.order):
        ordered = sorted(groups[partition], key=lambda segment: segment.base_offset)
        for one, two in pairwise(ordered):
            if one.base_offset == two.base_offset:
                raise AmbiguousLineageError(
                    f"two segments of {partition} begin at offset {one.base_offset}",
                    source=source,
                    found=f"{one.files.log} and {two.files.log}",
                    expected="one",
                    hint="Leader epochs would have to decide between them; read a directory that holds one of them",
                )
        logs.append(PartitionLog(partition, tuple(ordered)))
    return logs


def _require(
    logs: list[PartitionLog],
    chosen: list[PartitionLog],
    source: str,
    topic: str | None,
    topic_id: str | None,
    partitions: Collection[int] | None,
) -> None:
    there = sorted({log.partition.topic for log in logs})
    if topic is not None and topic not in there:
        shown = ", ".join(there[:8]) + (f" and {len(there) - 8} more" if len(there) > 8 else "")
        raise ObjectNotFoundError(f"topic {topic!r} is not here", source=source, found=shown)
    of_topic = [log for log in logs if topic is None or log.partition.topic == topic]
    ids = sorted({log.partition.topic_id or "none" for log in of_topic})
    if topic_id is not None and topic_id not in ids:
        raise ObjectNotFoundError(f"topic id {topic_id} is not here", source=source, found=", ".join(ids))
    if partitions is not None:
        if not partitions:
            raise PlanError("an empty set of partitions was asked for", source=source)
        have = {log.partition.partition for log in chosen}
        if missing := sorted(set(partitions) - have):
            raise ObjectNotFoundError(
                f"partition {', '.join(map(str, missing))} is not here",
                source=source,
                found="partitions " + ", ".join(str(log.partition.partition) for log in of_topic),
            )


def _refuse_two_ids(logs: list[PartitionLog], source: str) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for log in logs:
        ids[log.partition.topic].add(log.partition.topic_id or "none")
    for topic, of_topic in ids.items():
        if len(of_topic) > 1:
            raise AmbiguousTopicError(
                f"topic {topic!r} was deleted and created again: one name, {len(of_topic)} topic ids",
                source=source,
                found=" and ".join(sorted(of_topic)),
                hint="Choose one with topic_id (--topic-id)",
            )
