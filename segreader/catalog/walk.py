"""From a location to the partitions in it: directories are visited from the top and shown to the layouts.

A search for one topic asks for the directories that begin with its name first, so that a bucket with very many others
costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from segreader.catalog.layouts.base import Directory, Layout, PartitionPlace
from segreader.errors import UnknownLayoutError
from segreader.segment import TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

_DEEPEST: Final = 12
_AT_ONCE: Final = 16
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which partitions are wanted; everything by default."""

    topic: str | None = None
    topic_id: str | None = None
    partitions: Collection[int] | None = None

    def admits(self, partition: TopicIdPartition) -> bool:
        """Whether this is one of them."""
        return (
            (self.topic is None or partition.topic == self.topic)
            and (self.topic_id is None or partition.topic_id in (None, self.topic_id))
            and (self.partitions is None or partition.partition in self.partitions)
        )


@dataclass(slots=True)
class _Seen:
    """What a walk met, for the text of an error."""

    files: int = 0
    directories: int = 0
    names: list[str] = field(default_factory=list)
    passed_over: set[str] = field(default_factory=set)


def find_places(
    store: ObjectStore, prefix: str, layouts: Sequence[Layout], wanted: Wanted = Wanted()
) -> list[PartitionPlace]:
    """The wanted partitions below ``prefix``, in order; none if there are others but not those.

    Args:
        layouts: which to try; of several that know a directory the first one has it.

    Raises:
        UnknownLayoutError: no layout knows anything there.
    """
    places, seen = _walk(store, prefix, layouts, wanted)
    if not places and not seen.passed_over:
        raise _unknown(store.url(prefix), seen, layouts)
    return sorted(places, key=lambda place: (place.partition.order, place.prefixes))


def find_all(store: ObjectStore, prefix: str, layouts: Sequence[Layout]) -> list[PartitionPlace]:
    """Every partition below ``prefix``, whatever its name; none if there is nothing."""
    places, _ = _walk(store, prefix, layouts, Wanted())
    return sorted(places, key=lambda place: (place.partition.order, place.prefixes))


def _walk(
    store: ObjectStore, prefix: str, layouts: Sequence[Layout], wanted: Wanted
) -> tuple[list[PartitionPlace], _Seen]:
    places: list[PartitionPlace] = []
    seen = _Seen()
    pending = [prefix]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="segreader-list") as workers:
        for _ in range(_DEEPEST):
            visits = (
                [_visit(store, path, layouts, wanted) for path in pending]
                if len(pending) < 4
                else workers.map(lambda path: _visit(store, path, layouts, wanted), pending)
            )
            following: list[str] = []
            for visit in visits:
                places.extend(visit.places)
                following.extend(visit.following)
                seen.files += visit.files
                seen.directories += 1
                seen.names.extend(visit.names[: max(0, _SAMPLE - len(seen.names))])
                seen.passed_over |= visit.passed_over
            pending = following
            if not pending:
                break
    return places, seen


@dataclass(slots=True)
class _Visit:
    """What was found in one directory."""

    places: list[PartitionPlace] = field(default_factory=list)
    following: list[str] = field(default_factory=list)
    files: int = 0
    names: list[str] = field(default_factory=list)
    passed_over: set[str] = field(default_factory=set)


def _visit(store: ObjectStore, path: str, layouts: Sequence[Layout], wanted: Wanted) -> _Visit:
    visit = _Visit()
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
    store: ObjectStore, directory: Directory, layouts: Sequence[Layout], wanted: Wanted, visit: _Visit
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
    near = next((name for name, trace in _TRACES if any(map(trace.search, seen.names))), None)
    return UnknownLayoutError(
        "no segments here",
        source=source,
        found=f"{seen.files} files in {seen.directories} directories: {shown}" if seen.names else "no files",
        expected=f"one of the layouts {tried}",
        hint=(
            f"The names are nearest to {near}: see docs/reference/layouts/{near}.md for where it expects them"
            if near
            else "Give the directory that holds <topic>-<partition>… directories, or one of those"
        )
        if seen.names
        else "Nothing was uploaded, retention removed it, or the location is another one",
    )
