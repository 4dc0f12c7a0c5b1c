"""The partitions of a location and the segments of each, from listings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from segreader.catalog.layouts import log_directory
from segreader.catalog.layouts.base import Directory, IncompleteSegment, Layout, PartitionPlace
from segreader.catalog.walk import Wanted, find_all, find_places
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError, PlanError
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """Everything that is known of one partition before an offset of it is read.

    ``segments`` are by base offset and may overlap: leader epochs decide between them (``plan.lineage``). ``missing``
    are segments that the metadata topic calls finished, and that are not there; ``too_short`` are logs that have fewer
    bytes than it says, with the last offset by it. ``start_snapshot`` is a producer snapshot of where the first segment
    begins.
    """

    partition: TopicIdPartition
    segments: tuple[Segment, ...]
    layout: str = ""
    incomplete: tuple[IncompleteSegment, ...] = ()
    foreign: tuple[str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    log_start: int | None = None
    missing: tuple[Segment, ...] = ()
    start_snapshot: str | None = None
    too_short: Mapping[str, int] = field(default_factory=dict)


def list_places(
    store: ObjectStore,
    prefix: str,
    layouts: Sequence[Layout],
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partitions: Collection[int] | None = None,
    is_live: Callable[[TopicIdPartition], bool] = lambda _: True,
    may_have_ids: bool = False,
) -> list[PartitionPlace]:
    """The places of the requested partitions, ordered by topic, partition and id.

    Args:
        store: where to look.
        prefix: only objects whose name begins so.
        layouts: which to try.
        topic, topic_id, partitions: what is wanted; everything by default.
        is_live: whether a partition counts: the objects of a deleted one may still be there.
        may_have_ids: whether the topic may have several ids though it is named.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
        ObjectNotFoundError: the topic or partition asked for is not there.
        AmbiguousTopicError: the topic named has two ids, or the listing has it twice, and no option selects one.
    """
    source = store.url(prefix)
    if partitions is not None and not partitions:
        raise PlanError("an empty set of partitions was requested", source=source)
    wanted = Wanted(topic, topic_id, partitions)
    places = [place for place in find_places(store, prefix, layouts, wanted) if is_live(place.partition)]
    if _lacks_some(places, partitions):  # a directory above may be named like a partition's
        everything = [place for place in find_all(store, prefix, layouts) if is_live(place.partition)]
        places = [place for place in everything if wanted.admits(place.partition)]
        if _lacks_some(places, partitions):
            have = {place.partition.partition for place in places}
            _refuse_missing([place.partition for place in everything], have, source, wanted)
    refuse_two_topics(places, source, is_named=topic is not None and not may_have_ids)
    return places


def read_place(store: ObjectStore, place: PartitionPlace, layouts: Sequence[Layout]) -> PartitionLog:
    """List the segments of one partition.

    Raises:
        AmbiguousTopicError: among them are segments of another layout.
        CatalogError, StorageError: as ``Layout.find``.
    """
    layout = next(layout for layout in layouts if layout.name == place.layout)
    found = layout.find(store, place)
    _refuse_two_layouts(store, place, found.foreign, layouts)
    notes = list(found.notes)
    if layout.is_experimental:
        notes.insert(0, f"the layout {layout.name} is experimental: no real bucket has confirmed it")
    return PartitionLog(
        place.partition,
        tuple(sorted(found.segments, key=lambda segment: (segment.base_offset, segment.version))),
        layout.name,
        tuple(sorted(found.incomplete, key=lambda one: one.base_offset)),
        tuple(found.foreign),
        tuple(notes),
        found.log_start,
        start_snapshot=found.start_snapshot,
    )


def _lacks_some(places: Sequence[PartitionPlace], partitions: Collection[int] | None) -> bool:
    return not places or not {place.partition.partition for place in places}.issuperset(partitions or ())


def refuse_two_topics(places: Sequence[PartitionPlace], source: str, *, is_named: bool = True) -> None:
    """Raise if a topic that was asked for by name has two ids, or if one topic is in two places.

    Args:
        is_named: whether the topic was asked for by name; else each id of a name is a topic of its own.
    """
    ids: dict[str, set[str]] = defaultdict(set)
    spots: dict[TopicIdPartition, set[tuple[str, str]]] = defaultdict(set)
    for place in places:
        ids[place.partition.topic].add(place.partition.topic_id or "none")
        spots[place.partition].add((place.layout, place.prefixes[0]))
    for topic, of_topic in ids.items():
        if len(of_topic) < 2:
            continue
        layouts = sorted({place.layout for place in places if place.partition.topic == topic})
        if is_named or len(layouts) > 1 or "none" in of_topic:
            raise AmbiguousTopicError(
                f"topic {topic!r} was deleted and created again: one name, {len(of_topic)} topic ids"
                if len(layouts) == 1
                else f"topic {topic!r} is here in two layouts: {' and '.join(layouts)}",
                source=source,
                found=" and ".join(sorted(of_topic)),
                hint="Choose one with topic_id (--topic-id): one of them, or newest"
                if len(layouts) == 1
                else _hint_of_layouts(layouts),
            )
    for partition, where in spots.items():
        if len(where) > 1:
            raise AmbiguousTopicError(
                f"{partition} is here twice",
                source=source,
                found=" and ".join(f"{path} ({layout})" for layout, path in sorted(where)),
                hint=_hint_of_layouts({layout for layout, _ in where}),
            )


def _hint_of_layouts(layouts: Collection[str]) -> str:
    """What to do where one topic is in several layouts, or twice in one."""
    if log_directory.NAME in layouts and len(layouts) > 1:
        return (
            "Name the directory of the remote tier, and give the broker's log directory with log_directory "
            "(--log-directory): its segments continue where the remote tier ends; or choose one with layout (--layout)"
        )
    return "Choose one with layout (--layout), or name the directory of one"


def _refuse_two_layouts(
    store: ObjectStore, place: PartitionPlace, foreign: Sequence[str], layouts: Sequence[Layout]
) -> None:
    """Raise if another layout knows what is foreign to this one in the partition's own directory."""
    for path in place.prefixes:
        files = tuple(ObjectInfo(name, -1) for name in foreign if name.rpartition("/")[0] == path.removesuffix("/"))
        for other in layouts if files else ():
            if other.name != place.layout and other.places(Directory(path, files)):
                raise AmbiguousTopicError(
                    f"{place.partition} is in one directory in two layouts: {place.layout} and {other.name}",
                    source=store.url(path),
                    found=f"beside files of {place.layout}: {files[0].name.rpartition('/')[2]}",
                    hint="Choose one with layout (--layout)",
                )


def _refuse_missing(there: Sequence[TopicIdPartition], have: set[int], source: str, wanted: Wanted) -> None:
    topics = sorted({one.topic for one in there})
    if wanted.topic is not None and wanted.topic not in topics:
        shown = ", ".join(topics[:8]) + (f" and {len(topics) - 8} more" if len(topics) > 8 else "")
        raise ObjectNotFoundError(f"topic {wanted.topic!r} is not here", source=source, found=shown)
    of_topic = [one for one in there if wanted.topic is None or one.topic == wanted.topic]
    ids = sorted({one.topic_id or "none" for one in of_topic})
    if wanted.topic_id is not None and wanted.topic_id not in ids:
        raise ObjectNotFoundError(f"topic id {wanted.topic_id} is not here", source=source, found=", ".join(ids))
    missing = sorted(set(wanted.partitions or ()) - have)
    if not missing:
        raise ObjectNotFoundError(
            "nothing here is live: the metadata topic calls all of it deleted",
            source=source,
            hint="Read what is left of it without the metadata topic, by the listing alone",
        )
    raise ObjectNotFoundError(
        f"partition {', '.join(map(str, missing))} is not here",
        source=source,
        found="partitions " + ", ".join(str(one.partition) for one in of_topic),
    )
