"""The locations of one read as one store, and the partitions in them: as the driver and every task see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.listing import PartitionLog, read_place, refuse_two_topics
from segreader.catalog.walk import Wanted, find_all, find_places
from segreader.errors import AmbiguousTopicError, ObjectNotFoundError
from segreader.plan.lineage import ResolvedLog
from segreader.read.lineage import read_lineage
from segreader.read.source import Catalog, LocationSource
from segreader.segment import TopicIdPartition
from segreader.spark.credentials import can_renew, resolve_storage
from segreader.spark.options import SparkOptions
from segreader.spark.renewing_store import RenewingStore
from segreader.spark.worker import this_worker
from segreader.storage.base import ObjectStore
from segreader.storage.mounts import MountedStores

_AT_MOST_NAMED = 8


class Locations:
    """Where a read finds its segments. Opened in each process that reads; closing it closes the stores.

    Names of objects in the first location are its own; those of the others begin with ``<number>:/``.

    Args:
        opened: each of its locations; by default they are opened here.
    """

    def __init__(self, options: SparkOptions, opened: Sequence[LocationSource] | None = None) -> None:
        self.sources = tuple(opened or (open_source(options, location) for location in options.locations))
        stores = [
            _store_of(options, location, one) for location, one in zip(options.locations, self.sources, strict=True)
        ]
        mounts = {_mount(at): store for at, store in enumerate(stores)}
        self.store: ObjectStore = stores[0] if len(stores) == 1 else MountedStores(mounts)
        self.shown = ", ".join(source.shown for source in self.sources)
        self._options = options

    def find(self) -> list[list[PartitionPlace]]:
        """Where each of the chosen partitions lies, by topic and partition; some have a place in several locations.

        Raises:
            ObjectNotFoundError: a topic or a partition is not there, or no topic matches.
            UnknownLayoutError: nothing at a location looks like a segment.
            AmbiguousTopicError: one name stands for two topic ids.
        """
        found: dict[TopicIdPartition, list[PartitionPlace]] = defaultdict(list)
        for at, source in enumerate(self.sources):
            here = self._find_in(source, _mount(at) + source.prefix)
            self._refuse_two_topics(here, source.shown)
            for place in here:
                found[place.partition].append(place)
        self._refuse_two_topics(
            [replace(places[0], prefixes=("",), layout="") for places in found.values()], self.shown
        )
        self._require_all({(one.topic, one.partition) for one in found})
        return [found[one] for one in sorted(found, key=lambda one: one.order) if self._is_chosen(one)]

    def places_of(self, topic: str) -> list[list[PartitionPlace]]:
        """Where each partition of a topic lies, of every topic id that bore the name; none where nothing of it lies."""
        found: dict[TopicIdPartition, list[PartitionPlace]] = defaultdict(list)
        for at, source in enumerate(self.sources):
            prefix = _mount(at) + source.prefix
            places = find_places(self.store, prefix, source.layouts, Wanted(topic))
            if not places:  # a directory above may bear a name as a partition's
                places = find_all(self.store, prefix, source.layouts)
            for place in places:
                if place.partition.topic == topic:
                    found[place.partition].append(place)
        return [found[one] for one in sorted(found, key=lambda one: one.order)]

    def read(self, places: Sequence[PartitionPlace]) -> PartitionLog:
        """List the segments of one partition, in all its places; see ``read_place``."""
        logs = [read_place(self.store, place, self.sources[0].layouts) for place in places]
        if len(logs) == 1:
            return logs[0]
        return replace(
            logs[0],
            segments=tuple(
                sorted((one for log in logs for one in log.segments), key=lambda one: (one.base_offset, one.version))
            ),
            incomplete=tuple(one for log in logs for one in log.incomplete),
            notes=tuple(note for log in logs for note in log.notes),
        )

    def resolve(self, partition: TopicIdPartition) -> ResolvedLog:
        """Which segment delivers which offset of a partition, found anew from its listing."""
        places = [one for one in self.find() if one[0].partition == partition]
        if not places:
            raise ObjectNotFoundError(f"{partition} is not here any more", source=self.shown)
        return read_lineage(self.store, self.read(places[0])).resolved

    def close(self) -> None:
        """Give back connections and threads."""
        self.store.close()

    def _find_in(self, source: LocationSource, prefix: str) -> list[PartitionPlace]:
        """The places of the chosen topics in one location. By name only directories that can be theirs are visited."""
        choice, store = self._options.choice, self.store
        if choice.pattern is not None:
            everything = find_places(store, prefix, source.layouts)
            return [place for place in everything if choice.matches(place.partition.topic)]
        by_topic = {topic: find_places(store, prefix, source.layouts, Wanted(topic)) for topic in choice.names}
        if not all(by_topic.values()):  # a directory above may bear a name as a partition's
            everything = find_all(store, prefix, source.layouts)
            return [place for place in everything if choice.matches(place.partition.topic)]
        return [place for places in by_topic.values() for place in places]

    def _is_chosen(self, partition: TopicIdPartition) -> bool:
        assigned = self._options.choice.assigned
        return assigned is None or partition.partition in assigned[partition.topic]

    def _require_all(self, there: set[tuple[str, int]]) -> None:
        """Raise if a topic, or an assigned partition, is in none of the locations."""
        choice = self._options.choice
        topics = {topic for topic, _ in there}
        if choice.pattern is not None and not topics:
            raise ObjectNotFoundError(
                f"no topic matches {choice.pattern!r}", source=self.shown, found=self._some_topics()
            )
        for topic in choice.names:
            if topic not in topics:
                raise ObjectNotFoundError(f"topic {topic!r} is not here", source=self.shown, found=self._some_topics())
        if not self._options.fail_on_data_loss:
            return
        for topic, partitions in (choice.assigned or {}).items():
            if missing := [one for one in partitions if (topic, one) not in there]:
                have = sorted(partition for name, partition in there if name == topic)
                raise ObjectNotFoundError(
                    f"partition {', '.join(map(str, missing))} of {topic} is not here",
                    source=self.shown,
                    found=f"partitions {', '.join(map(str, have))}",
                )

    def _some_topics(self) -> str:
        """What is there instead, for an error."""
        names: set[str] = set()
        for at, source in enumerate(self.sources):
            places = find_places(self.store, _mount(at) + source.prefix, source.layouts)
            names |= {place.partition.topic for place in places}
        shown = sorted(names)
        rest = len(shown) - _AT_MOST_NAMED
        return ", ".join(shown[:_AT_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")

    def _refuse_two_topics(self, places: Sequence[PartitionPlace], source: str) -> None:
        try:
            refuse_two_topics(places, source)
        except AmbiguousTopicError as error:
            error.hint = "Leave it out, or set location to the directory of one of its partitions"
            raise


@contextmanager
def kept_locations(options: SparkOptions) -> Iterator[Locations]:
    """The locations as a task sees them, for the time of the block: over clients that its worker keeps.

    The provider of credentials is asked all the same: where it gives others, clients are opened anew.
    """
    with ExitStack() as stack:
        opened = []
        for location in options.locations:
            storage = resolve_storage(options.credentials, location, options.storage)
            store = stack.enter_context(this_worker().store(location, storage))
            opened.append(LocationSource(location, storage, catalog=_catalog(options), opened=store))
        locations = Locations(options, opened)
        stack.callback(locations.close)
        yield locations


def open_source(options: SparkOptions, location: str) -> LocationSource:
    """One location of a read, with the credentials that this process has."""
    storage = resolve_storage(options.credentials, location, options.storage)
    return LocationSource(location, storage, catalog=_catalog(options))


def _catalog(options: SparkOptions) -> Catalog:
    return Catalog(layout=options.layout, rsm_config=options.keys)


def _store_of(options: SparkOptions, location: str, source: LocationSource) -> ObjectStore:
    if not can_renew(options.credentials):
        return source.store

    def reopen() -> Any:
        return open_source(options, location).store

    return RenewingStore(source.store, reopen)


def _mount(at: int) -> str:
    return f"{at}:/" if at else ""
