"""From a location to its partitions, and to the segments of each: directories are listed and shown to the layouts.

The walk goes from the top down. A search for one topic asks for the directories that begin with its name first, so that
a bucket with very many others costs nothing.

Segments outside any layout, files that were copied by hand or URLs that name objects one by one, are found by the
beginning of this work alone: what their names leave out comes from the request, or from the first batch of the log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Final

from segreader.catalog.layouts import local_tiered, log_directory
from segreader.catalog.layouts.base import (
    LOG_DIRECTORY,
    REMOTE_DIRECTORY,
    Directory,
    IncompleteSegment,
    Layout,
    PartitionFiles,
    PartitionPlace,
    parse_partition,
)
from segreader.errors import (
    AmbiguousTopicError,
    FormatError,
    ObjectNotFoundError,
    PlanError,
    UnknownLayoutError,
    nearest_hint,
    shown_count,
)
from segreader.format.batch import COMMON_SIZE, check_common
from segreader.format.checkpoints import MOST_OF_LEADER_EPOCHS, MOST_OF_SNAPSHOT
from segreader.format.compression import DEFAULT_LIMIT, Decompressor
from segreader.format.index_files import MOST_OF_INDEX, MOST_OF_TRANSACTION_INDEX
from segreader.format.message_set import parse_message_set_entry
from segreader.ranges import ByteRange
from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, read_each, read_whole
from segreader.values import dataclass

UNKNOWN_TOPIC: Final = "unknown"
"""The topic of logs whose names and request have none."""

_DEEPEST: Final = 12
_SAMPLE: Final = 64
"""Files of a directory that are looked at to recognise its layout: a partition may have a million."""

_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}/")

_TRACES: Final = (
    ("aiven", re.compile(r"\.(rsm-manifest|indexes)$")),
    ("local-tiered", re.compile(r"\d{20}-[A-Za-z0-9_-]{22}\.|\.leader_epoch_checkpoint$")),
    ("redpanda", re.compile(r"(^|/)(topic_|partition_)?manifest\.(bin|json)$|-v1\.log(\.\d+)?$")),
    ("linkedin-azure", re.compile(r"\.(SEGMENT|OFFSET|LEADER_EPOCH)$")),
    ("confluent", re.compile(r"_v\d+\.(segment|offset-index|epoch-state)$")),
    ("early-s3", re.compile(r"\d{20}\.log\.[A-Za-z0-9_-]{22}$")),
    ("pinterest", re.compile(r"(^|/)(offset\.wm|_metadata)$")),
    ("log-directory", re.compile(r"(^|/)\d{20}\.(log|index|timeindex|snapshot)$|leader-epoch-checkpoint$")),
)
_FILE = re.compile(r"(?P<stem>.+)\.(?P<kind>log|index|timeindex|txnindex)")
_BASE_OFFSET = re.compile(r"(\d{20})(?!\d)")


NEWEST: Final = "newest"
"""In place of a topic id: the one that the topic's name has now."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which partitions are wanted; everything by default.

    With ``by_name`` their segments may be known by names alone, for who reads some of them: see ``PartitionLog``.
    """

    topic: str | None = None
    topic_id: str | None = None
    partitions: Collection[int] | None = None
    by_name: bool = False

    @property
    def of_every_id(self) -> Wanted:
        """Where to look for them: to find the newest id, at every id of the topic and each partition of it."""
        return Wanted(self.topic) if self.topic_id == NEWEST else self

    def admits(self, partition: TopicIdPartition) -> bool:
        """Whether this is one of them."""
        return (
            (self.topic is None or partition.topic == self.topic)
            and (self.topic_id is None or partition.topic_id in (None, self.topic_id))
            and (self.partitions is None or partition.partition in self.partitions)
        )


EVERYTHING: Final = Wanted()


def ids_by_topic(partitions: Iterable[TopicIdPartition]) -> dict[str, list[str]]:
    """The topics that were deleted and created again, each with its ids."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for one in partitions:
        found[one.topic].add(one.topic_id)
    return {
        topic: sorted(one for one in ids if one is not None)
        for topic, ids in found.items()
        if len(ids) > 1 and None not in ids
    }


def find_places(
    store: ObjectStore, prefix: str, layouts: Sequence[Layout], wanted: Wanted = EVERYTHING
) -> list[PartitionPlace]:
    """The wanted partitions below ``prefix``, in order; none if there are others but not those.

    Args:
        layouts: which to try; of several that know a directory the first one has it.

    Raises:
        UnknownLayoutError: no layout knows anything there.
    """
    seen = _walk(store, prefix, layouts, wanted)
    if not seen.places and not seen.passed_over:
        raise _unknown(store.url(prefix), seen, layouts)
    return seen.places


def find_all(store: ObjectStore, prefix: str, layouts: Sequence[Layout]) -> list[PartitionPlace]:
    """Every partition below ``prefix``; none if there is nothing."""
    return _walk(store, prefix, layouts, EVERYTHING).places


def find_wanted(
    store: ObjectStore,
    prefix: str,
    layouts: Sequence[Layout],
    wanted: Wanted,
    is_live: Callable[[TopicIdPartition], bool] = lambda _: True,
) -> tuple[list[PartitionPlace], list[PartitionPlace]]:
    """The wanted partitions, and every partition there is if the names of directories did not lead to all of them.

    Raises:
        UnknownLayoutError: as ``find_places``.
    """
    places = [place for place in find_places(store, prefix, layouts, wanted) if is_live(place.partition)]
    if not _lackssome_of(places, wanted.partitions):
        return places, []
    # a directory above may be named like a partition's
    everything = [place for place in find_all(store, prefix, layouts) if is_live(place.partition)]
    return [place for place in everything if wanted.admits(place.partition)], everything


@dataclass(slots=True)
class _Seen:
    """What was found in one directory, or in all of a walk."""

    places: list[PartitionPlace] = field(default_factory=list)
    following: list[str] = field(default_factory=list)
    directories: int = 0
    files: int = 0
    names: list[str] = field(default_factory=list)
    passed_over: set[str] = field(default_factory=set)


def _walk(store: ObjectStore, prefix: str, layouts: Sequence[Layout], wanted: Wanted) -> _Seen:
    seen = _Seen()
    pending = [prefix]
    for _ in range(_DEEPEST):
        visits = read_each(lambda path: _visit(store, path, layouts, wanted), pending)
        for visit in visits:
            seen.places.extend(visit.places)
            seen.files += visit.files
            seen.directories += 1
            seen.names.extend(visit.names[: max(0, _SAMPLE - len(seen.names))])
            seen.passed_over |= visit.passed_over
        if not (pending := [path for visit in visits for path in visit.following]):
            break
    seen.places.sort(key=lambda place: (place.partition.order, place.prefixes))
    return seen


def _visit(store: ObjectStore, path: str, layouts: Sequence[Layout], wanted: Wanted) -> _Seen:
    visit = _Seen()
    if _partitions_named(path, layouts):
        directory = _read_directory(store.list_level(path), path, is_partition=True)
        visit.places, is_known = _places(store, directory, layouts, wanted, visit)
        if is_known or not directory.directories:
            return visit
        directory = _read_directory(store.list_level(path), path, is_partition=False)  # it only looks like one
    else:
        if wanted.topic is not None and (narrowed := _narrowed(store, path, layouts, wanted)):
            visit.following = narrowed
            return visit
        directory = _read_directory(store.list_level(path), path, is_partition=False)
    visit.places, is_known = _places(store, directory, layouts, wanted, visit)
    if is_known:
        return visit
    for child in directory.directories:
        named = _partitions_named(child, layouts)
        if named and not any(map(wanted.admits, named)):
            visit.passed_over.update(one.topic for one in named)
        else:
            visit.following.append(child)
    return visit


def _places(
    store: ObjectStore, directory: Directory, layouts: Sequence[Layout], wanted: Wanted, visit: _Seen
) -> tuple[list[PartitionPlace], bool]:
    """The partitions wanted of a directory, and whether any layout knows it."""
    visit.files, visit.names = len(directory.files), [info.name for info in directory.files]
    for layout in layouts:
        known = layout.places(directory, store)
        if known:
            places = [place for place in known if wanted.admits(place.partition)]
            if len(places) < len(known):
                visit.passed_over.update(place.partition.topic for place in known)
            return places, True
    return [], False


def _narrowed(store: ObjectStore, path: str, layouts: Sequence[Layout], wanted: Wanted) -> list[str]:
    """The directories at ``path`` that begin with the topic's name and can be its own: of all of it, or of a partition.

    Where some certainly are, the others are those of topics whose names only begin alike.
    """
    begin = f"{path}{wanted.topic}-"
    own, others = [], []
    for info in store.list_level(begin):
        if info.name.endswith("/"):
            named = _partitions_named(info.name, layouts)
            if any(map(wanted.admits, named)) or (not named and _TOPIC_ID.fullmatch(info.name, len(begin))):
                own.append(info.name)
            elif not named:
                others.append(info.name)
    return own or others


def _partitions_named(path: str, layouts: Sequence[Layout]) -> list[TopicIdPartition]:
    return [named for layout in layouts if (named := layout.partition_of(path)) is not None]


def _read_directory(level: Iterable[ObjectInfo], path: str, *, is_partition: bool) -> Directory:
    """What is in a directory; only the beginning where its name is that of a partition."""
    files: list[ObjectInfo] = []
    directories: list[str] = []
    for info in islice(level, 4 * _SAMPLE) if is_partition else level:
        if info.name.endswith("/"):
            directories.append(info.name)
        elif len(files) < _SAMPLE:
            files.append(info)
    return Directory(path, tuple(files), tuple(directories))


def _unknown(source: str, seen: _Seen, layouts: Sequence[Layout]) -> UnknownLayoutError:
    tried = ", ".join(layout.name for layout in layouts)
    shown = ", ".join(seen.names[:3])
    directories = shown_count(seen.directories, "directory", "directories")
    near = next((name for name, trace in _TRACES if any(map(trace.search, seen.names))), None)
    return UnknownLayoutError(
        "no segments here",
        source=source,
        found=f"{shown_count(seen.files, 'file')} in {directories}: {shown}" if seen.names else "no files",
        expected=f"one of the layouts {tried}",
        hint=(
            f"The names are nearest to {near}: see docs/reference/layouts/{near}.md for where it expects them"
            if near
            else "Give the directory that holds <topic>-<partition>… directories, or one of those"
        )
        if seen.names
        else "Nothing was uploaded, retention removed it, or the location is another one",
    )


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """Everything that is known of one partition before an offset of it is read.

    ``segments`` are by base offset and may overlap: leader epochs decide between them (``plan.lineage``). ``missing``
    are segments that the metadata topic calls finished, and that are not there; ``too_short`` are logs that have fewer
    bytes than it says, with the last offset by it. ``start_snapshot`` is a producer snapshot of where the first segment
    begins. With ``read_segments`` the segments are known by their names alone: it reads those whose logs have these
    names.
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
    read_segments: Callable[[Iterable[str]], PartitionLog] | None = field(default=None, compare=False, repr=False)


def list_places(
    store: ObjectStore,
    prefix: str,
    layouts: Sequence[Layout],
    wanted: Wanted = EVERYTHING,
    *,
    is_live: Callable[[TopicIdPartition], bool] = lambda _: True,
    may_have_ids: bool = False,
) -> list[PartitionPlace]:
    """The places of the requested partitions, ordered by topic, partition and id.

    Args:
        store: where to look.
        prefix: only objects whose name begins so.
        layouts: which to try.
        wanted: which partitions.
        is_live: whether a partition counts: the objects of a deleted one may still be there.
        may_have_ids: whether the topic may have several ids though it is named.

    Raises:
        UnknownLayoutError: nothing there looks like a segment.
        ObjectNotFoundError: the topic or partition asked for is not there.
        AmbiguousTopicError: the topic named has two ids, or the listing has it twice, and no option selects one.
    """
    source, partitions = store.url(prefix), wanted.partitions
    if partitions is not None and not partitions:
        raise PlanError("an empty set of partitions was requested", source=source)
    places, everything = find_wanted(store, prefix, layouts, wanted, is_live)
    if _lackssome_of(places, partitions):
        have = {place.partition.partition for place in places}
        raise _missing([place.partition for place in everything], have, source, wanted)
    refuse_two_topics(places, source, is_named=wanted.topic is not None and not may_have_ids)
    return places


def read_place(
    store: ObjectStore, place: PartitionPlace, layouts: Sequence[Layout], *, by_name: bool = False
) -> PartitionLog:
    """List the segments of one partition.

    Args:
        by_name: whether they may be known by their names alone, where a layout reads a file of each.

    Raises:
        AmbiguousTopicError: among them are segments of another layout.
        CatalogError, StorageError: as ``Layout.find``.
    """
    layout = next(layout for layout in layouts if layout.name == place.layout)
    found, read = (layout.find_by_name(store, place) if by_name else None) or (layout.find(store, place), None)
    _refuse_two_layouts(store, place, found.foreign, layouts)
    log = _log_of(place, layout, found)
    if read is not None:
        read_files = read
        log = replace(log, read_segments=lambda names: _log_of(place, layout, read_files(names)))
    return log


def _log_of(place: PartitionPlace, layout: Layout, found: PartitionFiles) -> PartitionLog:
    """What a layout has found of a partition."""
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


def read_file(store: ObjectStore, segment: Segment, name: str) -> bytes:
    """All bytes of an index, a snapshot or a checkpoint of a segment; a size that was listed is not asked for again.

    Raises:
        LimitExceededError: it is larger than any such file can be; none of it was read.
    """
    files = segment.files
    most = MOST_OF_INDEX
    if name == files.leader_epochs:
        most = MOST_OF_LEADER_EPOCHS
    elif name == files.transaction_index:
        most = MOST_OF_TRANSACTION_INDEX
    elif name == files.producer_snapshot:
        most = MOST_OF_SNAPSHOT
    return read_whole(store, name, files.sizes.get(name), most=most)


def _lackssome_of(places: Sequence[PartitionPlace], partitions: Collection[int] | None) -> bool:
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


def _missing(there: Sequence[TopicIdPartition], have: set[int], source: str, wanted: Wanted) -> ObjectNotFoundError:
    if (error := missing_error(there, have, source, wanted)) is not None:
        return error
    return ObjectNotFoundError(
        "nothing here is live: the metadata topic calls all of it deleted",
        source=source,
        hint="Read what is left of it without the metadata topic, by the listing alone",
    )


def missing_error(
    there: Iterable[TopicIdPartition], have: Collection[int], source: str, wanted: Wanted
) -> ObjectNotFoundError | None:
    """The error that says which topic, topic id or partition is not there, and which ones are; ``None`` where none of
    these is lacking.

    Args:
        there: every partition at the location.
        have: the numbers of those that were found of what is wanted.
        source: the location, as it may be shown.
    """
    partitions = list(there)
    topics = sorted({one.topic for one in partitions})
    if wanted.topic is not None and wanted.topic not in topics:
        return ObjectNotFoundError(
            f"topic {wanted.topic!r} is not here",
            source=source,
            found=some_of(topics) or "no topic",
            hint=nearest_hint(wanted.topic, topics),
        )
    of_topic = [one for one in partitions if wanted.topic is None or one.topic == wanted.topic]
    ids = sorted({one.topic_id or "none" for one in of_topic})
    if wanted.topic_id not in (None, NEWEST, *ids):
        return ObjectNotFoundError(f"topic id {wanted.topic_id} is not here", source=source, found=some_of(ids))
    if not (missing := sorted(set(wanted.partitions or ()) - set(have))):
        return None
    what = f"partition {', '.join(map(str, missing))}" + (f" of topic {wanted.topic!r}" if wanted.topic else "")
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in of_topic:
        numbers[one.topic].add(one.partition)
    shown = [
        f"{topic} has partition{'s' * (len(some) > 1)} {number_ranges(some)}" for topic, some in sorted(numbers.items())
    ]
    return ObjectNotFoundError(f"{what} is not here", source=source, hint=some_of(shown) or None)


def some_of(names: Sequence[str], most: int = 8) -> str:
    """The first of these names, and how many more there are, for an error."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def number_ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return some_of([str(first) if first == last else f"{first}-{last}" for first, last in runs])


def find_listed_segments(store: ObjectStore, *, topic: str | None, partition: int | None) -> list[Segment]:
    """The segments of a store that is only a list of objects: those a layout explains, and the loose ones."""
    objects = list(store.list())
    known = list(local_tiered.sort_files(objects).segments)
    stems = {segment.files.log.removesuffix("log") for segment in known}
    rest = [info for info in objects if info.name.rpartition(".")[0] + "." not in stems]
    return known + find_loose_segments(store, rest, topic=topic, partition=partition)


def find_loose_segments(
    store: ObjectStore, objects: Iterable[ObjectInfo], *, topic: str | None, partition: int | None
) -> list[Segment]:
    """One segment for each ``<stem>.log`` among the objects, with the indexes of the same stem.

    Producer snapshots are ignored: a name outside any layout does not show whether one is the state at a segment's
    start or at its end. Open transactions are found by replaying the logs instead.

    Args:
        store: where to look into a log whose name has no base offset.
        topic, partition: of logs whose directory does not name them.

    Raises:
        FormatError: a log's first batch is needed for its base offset, and it does not begin with one.
    """
    stems: dict[str, dict[str, ObjectInfo]] = defaultdict(dict)
    for info in objects:
        if match := _FILE.fullmatch(info.name):
            stems[match["stem"]][match["kind"]] = info
    segments = []
    for stem, files in stems.items():
        if "log" not in files:
            continue
        log = files["log"]
        names = {kind: info.name for kind, info in files.items()}
        named = _BASE_OFFSET.match(log.name.rpartition("/")[2])
        # offsets in indexes count from the segment's base, which may be below the first batch
        indexes = (names.get("index"), names.get("timeindex")) if named else (None, None)
        segments.append(
            Segment(
                partition=_partition(stem, topic, partition),
                base_offset=int(named[1]) if named else _first_offset(store, log),
                log_size=log.size,
                files=SegmentFiles(log.name, *indexes, names.get("txnindex")),
                log_tag=log.tag,
            )
        )
    return segments


def find_sets_without_log(
    store: ObjectStore, segments: Iterable[Segment], *, topic: str | None, partition: int | None
) -> list[tuple[TopicIdPartition, IncompleteSegment]]:
    """The indexes whose log is not in the list, one of each set, and whose they are; see ``find_loose_segments``."""
    stems = {segment.files.log.removesuffix(".log") for segment in segments}
    lacking: dict[str, IncompleteSegment] = {}
    for info in store.list():
        match = _FILE.fullmatch(info.name)
        named = _BASE_OFFSET.match(info.name.rpartition("/")[2])
        if match and named and match["kind"] != "log" and match["stem"] not in stems:
            lacking.setdefault(match["stem"], IncompleteSegment(int(named[1]), info.name, ("log",)))
    return [(_partition(stem, topic, partition), one) for stem, one in lacking.items()]


def _partition(stem: str, topic: str | None, partition: int | None) -> TopicIdPartition:
    directory = stem.rpartition("/")[0].rpartition("/")[2]
    for named in (REMOTE_DIRECTORY, LOG_DIRECTORY):
        match = named.fullmatch(directory)
        if match and (number := parse_partition(match["partition"])) is not None:
            return TopicIdPartition(match["topic"], number, match.groupdict().get("topic_id"))
    return TopicIdPartition(topic or UNKNOWN_TOPIC, partition or 0)


def _first_offset(store: ObjectStore, log: ObjectInfo) -> int:
    """Offset of the first record that a log can hold, read from its first batch."""
    if log.size < COMMON_SIZE:
        return 0
    try:
        offset, size, magic = check_common(store.read_ranges(log.name, [ByteRange(0, COMMON_SIZE)])[0], 0)
        if magic == 2 or size > min(log.size, DEFAULT_LIMIT):
            return offset
        entry = memoryview(store.read_ranges(log.name, [ByteRange(0, size)])[0])
        return parse_message_set_entry(entry, Decompressor())[0].offset  # a wrapper has its last offset
    except FormatError as error:
        raise error.located(source=store.url(log.name)) from None
