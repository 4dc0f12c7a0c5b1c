"""Which of its ids a topic's name has now, where it was deleted and created again.

Kafka draws topic ids at random, so an id does not tell its age. But a name is free for the next topic only once the
topic before is deleted: everything that brokers did for the one, they did before everything that they did for the
other. So times decide, and only where those of one id all come after those of every other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import NEWEST, PartitionLog, ids_by_topic
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError
from segreader.segment import SegmentState, TopicIdPartition
from segreader.storage.base import ObjectStore
from segreader.stored.times import UNREADABLE, times_of_log
from segreader.values import dataclass

_SHOWN_IDS: Final = 8

_Span = tuple[int, int] | None
"""The earliest and the latest of some times, in ms; ``None`` where there is none."""


@dataclass(frozen=True, slots=True)
class NewestIds:
    """The newest id of each topic that was created again, and by topic a note for people that says by what evidence."""

    ids: Mapping[str, str]
    notes: Mapping[str, str]

    def chosen(
        self, there: Iterable[TopicIdPartition], partitions: Collection[int] | None, source: str
    ) -> set[TopicIdPartition]:
        """The partitions of the newest ids, and of topics with one id.

        Args:
            there: all partitions.
            partitions: keep only these numbers; all by default.
            source: the location, for the error.

        Raises:
            ObjectNotFoundError: a number is missing.
        """
        newest = {one for one in there if self.ids.get(one.topic, one.topic_id) == one.topic_id}
        if partitions is None:
            return newest
        if missing := sorted(set(partitions) - {one.partition for one in newest}):
            raise ObjectNotFoundError(
                f"partition {', '.join(map(str, missing))} is not here",
                source=source,
                found="partitions "
                + ", ".join(str(one.partition) for one in sorted(newest, key=lambda one: one.order))
                + (f" of id {', '.join(self.ids.values())}, the newest" if self.ids else ""),
            )
        return {one for one in newest if one.partition in partitions}


def note_of_ids(topic: str, ids: Sequence[str]) -> str:
    """A note for people: a topic that was not named is read under each of its ids."""
    shown = ", ".join(ids[:_SHOWN_IDS]) + (f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else "")
    return (
        f"topic {topic!r} was deleted and created again: each of its {len(ids)} ids is read, with offsets of its own "
        f"({shown}); topic_id (--topic-id) takes one of them, or {NEWEST}"
    )


def newest_ids(
    store: ObjectStore,
    places: Sequence[PartitionPlace],
    read: Callable[[PartitionPlace], PartitionLog],
    *,
    known: Collection[TopicIdPartition] = (),
    metadata: RemoteLogMetadata | None = None,
    source: str,
) -> NewestIds:
    """The newest id of each topic that has several; nothing is read of topics that have one.

    What the metadata topic says of uploads decides alone, as do Redpanda's revisions. Without these, the objects'
    times in the store and the times of records must not contradict each other: a copy of a bucket has other times of
    objects, and a producer may write any time into a record.

    Args:
        store: where the partitions are.
        places: all partitions there that count.
        read: lists the segments of one.
        known: partitions besides, of which only the metadata topic knows.
        metadata: the metadata topic, where it is given.
        source: the location, for the error.

    Raises:
        AmbiguousTopicError: the evidence does not decide.
    """
    newest: dict[str, str] = {}
    notes: dict[str, str] = {}
    for topic, ids in ids_by_topic([*(place.partition for place in places), *known]).items():
        mine: dict[str, list[PartitionPlace]] = {topic_id: [] for topic_id in ids}
        for place in places:
            if place.partition.topic == topic:
                mine[str(place.partition.topic_id)].append(place)
        newest[topic], evidence = _newest_of(store, read, topic, mine, metadata, source)
        notes[topic] = (
            f"topic {topic!r} was deleted and created again: {newest[topic]} is its newest id by {evidence}; not read: "
            f"{', '.join(one for one in ids if one != newest[topic])}"
        )
    return NewestIds(newest, notes)


def _newest_of(
    store: ObjectStore,
    read: Callable[[PartitionPlace], PartitionLog],
    topic: str,
    places: Mapping[str, Sequence[PartitionPlace]],
    metadata: RemoteLogMetadata | None,
    source: str,
) -> tuple[str, str]:
    """The newest id, and the evidence."""
    if metadata is not None and (one := _latest({id: _uploads(metadata, topic, id) for id in places})) is not None:
        return one, "the metadata topic's times of uploads"
    if (one := _latest({id: _revision(id, places[id], places) for id in places})) is not None:
        return one, "its revision"
    written = {id: _written(store, places[id]) for id in places}
    recorded = {id: _recorded(store, read, places[id]) for id in places}
    verdicts = [
        (one, what)
        for spans, what in ((written, "the times of its objects in the store"), (recorded, "the times of its records"))
        if (one := _latest(spans)) is not None
    ]
    if len({one for one, _ in verdicts}) != 1:
        raise AmbiguousTopicError(
            f"nothing decides which id of topic {topic!r} is the newest",
            source=source,
            found="; ".join(
                f"{id}: objects of {_shown(written[id])}, records of {_shown(recorded[id])}" for id in places
            ),
            expected="an id whose objects and records all have later times than those of every other",
            hint="Name the id with topic_id (--topic-id), or give the metadata topic (--metadata)",
        )
    return verdicts[0][0], " and ".join(what for _, what in verdicts)


def _latest(spans: Mapping[str, _Span]) -> str | None:
    """The id whose times all come after those of every other; ``None`` where there is none such."""
    known = {id: span for id, span in spans.items() if span is not None}
    if len(known) < len(spans):
        return None
    last = max(known, key=lambda id: known[id])
    return last if all(known[id][1] < known[last][0] for id in known if id != last) else None


def _span(times_ms: Iterable[int | None]) -> _Span:
    known = [time for time in times_ms if time is not None]
    return (min(known), max(known)) if known else None


def _uploads(metadata: RemoteLogMetadata, topic: str, topic_id: str) -> _Span:
    """When brokers began to copy segments, by their clocks."""
    return _span(
        segment.started.event_timestamp_ms
        for partition in metadata.partitions(topic, topic_id)
        for segment in metadata.segments(partition, tuple(SegmentState))
    )


def _revision(topic_id: str, places: Sequence[PartitionPlace], all_ids: Iterable[str]) -> _Span:
    """Redpanda's id of a topic: a number that rises, behind the cluster's."""
    cluster, _, revision = topic_id.rpartition("_")
    if not places or any(place.layout != "redpanda" for place in places) or not revision.isdecimal():
        return None
    if any(other.rpartition("_")[0] != cluster for other in all_ids):
        return None
    return int(revision), int(revision)


def _written(store: ObjectStore, places: Iterable[PartitionPlace]) -> _Span:
    """In whole seconds, for stores that know no others."""
    infos = (info for place in places for prefix in place.prefixes for info in store.list(prefix))
    return _span(None if info.modified_ms is None else info.modified_ms // 1000 * 1000 for info in infos)


def _recorded(
    store: ObjectStore, read: Callable[[PartitionPlace], PartitionLog], places: Iterable[PartitionPlace]
) -> _Span:
    try:
        return _span(time for place in places for time in times_of_log(store, read(place).segments))
    except UNREADABLE:
        return None


def _shown(span: _Span) -> str:
    if span is None:
        return "unknown times"
    first, last = (
        datetime.fromtimestamp(time / 1000, UTC).isoformat("T", "seconds").replace("+00:00", "Z") for time in span
    )
    return first if first == last else f"{first} to {last}"
