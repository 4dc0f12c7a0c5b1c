"""The locations of one read as one store, and the partitions in them: as the driver and every task see them.

Where the credentials of a store may run out, it is opened again with others, and goes on where it was.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import zip_longest
from threading import Lock
from typing import TypeVar

from segreader.catalog.layouts import log_directory
from segreader.catalog.layouts.base import PartitionPlace
from segreader.catalog.layouts.registry import choose_layouts, open_view
from segreader.catalog.listing import (
    EVERYTHING,
    NEWEST,
    Wanted,
    find_all,
    find_places,
    number_ranges,
    refuse_two_topics,
    some_of,
)
from segreader.catalog.metadata_log import RemoteLogMetadata
from segreader.errors import (
    AccessDeniedError,
    AmbiguousTopicError,
    LocationExpiredError,
    ObjectNotFoundError,
    OptionError,
    UnknownLayoutError,
    nearest_hint,
)
from segreader.plan.lineage import ResolvedLog
from segreader.ranges import ByteRange
from segreader.segment import TopicIdPartition
from segreader.spark.credentials import can_renew, resolve_storage
from segreader.spark.options import SparkOptions, TopicChoice
from segreader.spark.worker import this_worker
from segreader.storage.base import ObjectInfo, ObjectStore, read_listed
from segreader.storage.location import open_store
from segreader.stored.log import StoredLog
from segreader.stored.source import Known, OpenLocations, is_live

_Result = TypeVar("_Result")
_REFUSED = (AccessDeniedError, LocationExpiredError)
_OPTIONS = {
    "topic_id (--topic-id)": "topicId",
    "layout (--layout)": "layout",
    "log_directory (--log-directory)": "logDirectory",
}
"""What errors of the catalog call an argument, and what it is called here."""


class Locations(OpenLocations):
    """Where a read finds its segments. Opened in each process that reads; closing it closes the stores.

    ``wanted`` is what to read of the metadata topic: the one chosen topic, or everything.

    Args:
        opened: the store of each of its locations, and what names begin with there; by default they are opened here.
        opened_local: the log directory that is given beside them; likewise.
    """

    def __init__(
        self,
        options: SparkOptions,
        opened: Sequence[tuple[ObjectStore, str]] = (),
        *,
        opened_local: tuple[ObjectStore, str] | None = None,
    ) -> None:
        catalog = options.catalog
        layouts = choose_layouts(catalog.layout, rsm_config=catalog.rsm_config)

        def view(location: str, opened: tuple[ObjectStore, str] | None) -> tuple[ObjectStore, str]:
            def reopen() -> ObjectStore:
                return open_view(open_location(options, location)[0], layouts)

            store, prefix = opened or open_location(options, location)
            return _renewing(options, open_view(store, layouts), reopen), prefix

        def open_beside(place: str) -> tuple[ObjectStore, str]:
            store, prefix = _open_beside(options, place)
            return _renewing(options, store, lambda: _open_beside(options, place)[0]), prefix

        views = [view(*one) for one in zip_longest(options.locations, opened)]
        super().__init__(catalog, layouts, views, open_beside, local=opened_local)
        self._options = options
        self._notes: Mapping[str, str] = {}
        names = options.choice.names
        self.wanted = Wanted(names[0]) if len(names) == 1 else EVERYTHING

    def find(self, metadata: RemoteLogMetadata | None = None) -> list[list[PartitionPlace]]:
        """The place of each chosen partition, by topic and partition; some have a place in several locations.

        Args:
            metadata: what it calls deleted is left out; what only it knows has a place without a directory.

        Raises:
            ObjectNotFoundError: a topic or a partition is not there, or no topic matches.
            UnknownLayoutError: nothing at a location looks like a segment.
            AmbiguousTopicError: one name has two topic ids, and no option selects one.
            OptionError: one of several locations is a broker's log directory.
        """
        choice = self._options.choice
        known = [] if metadata is None else [one for one in metadata.partitions() if choice.matches(one.topic)]
        found: dict[TopicIdPartition, list[PartitionPlace]] = defaultdict(list)
        for prefix in self.prefixes:
            try:
                here = self._find_in(prefix, choice)
            except (ObjectNotFoundError, UnknownLayoutError):
                if not known:
                    raise
                continue  # all of it is gone
            here = [place for place in here if is_live(metadata, place.partition)]
            self._refuse_two_topics(here, self.store.url(prefix), is_named=False)
            for place in here:
                found[place.partition].append(place)
        self._refuse_log_directory(found)
        for partition in known:
            if partition not in found:
                found[partition] = [PartitionPlace(partition, (), "")]
        found = self._of_chosen_ids(found, metadata)
        self._refuse_two_topics(
            [replace(places[0], prefixes=("",), layout="") for places in found.values()], self.shown
        )
        self._require_all({(one.topic, one.partition) for one in found})
        return [found[one] for one in sorted(found, key=lambda one: one.order) if self._is_chosen(one)]

    def known(self, places: Sequence[Sequence[PartitionPlace]], metadata: RemoteLogMetadata | None) -> Known:
        """What is known beside these places; the lineages as they are now.

        Raises:
            OptionError, ObjectNotFoundError, FormatError: as ``read_leader_epochs``.
        """
        epochs = self.read_leader_epochs([one[0].partition for one in places])
        return Known(metadata, epochs, notes=self._notes)

    def places_of(self, topic: str) -> list[list[PartitionPlace]]:
        """The places of each partition of a topic, of every topic id that had the name."""
        found: dict[TopicIdPartition, list[PartitionPlace]] = defaultdict(list)
        for prefix in self.prefixes:
            for place in self._find_in(prefix, TopicChoice(topics=(topic,))):
                found[place.partition].append(place)
        return [found[one] for one in sorted(found, key=lambda one: one.order)]

    def resolve(self, partition: TopicIdPartition) -> ResolvedLog:
        """Which segment delivers which offset of a partition, found anew from its listing."""
        here = [one for one in self.places_of(partition.topic) if one[0].partition == partition]
        if not here:
            raise ObjectNotFoundError(f"{partition} is not here any more", source=self.shown)
        return StoredLog(self.store, self.read(here[0], self.known(here, self.read_metadata(self.wanted)))).resolved

    def close(self) -> None:
        """Close connections and threads."""
        self.close_beside()
        self.store.close()

    def _find_in(self, prefix: str, choice: TopicChoice) -> list[PartitionPlace]:
        """The places of some topics in one location. By name only directories that can be theirs are visited."""
        if choice.pattern is not None:
            places = find_places(self.store, prefix, self.layouts)
        else:
            by_topic = [find_places(self.store, prefix, self.layouts, Wanted(topic)) for topic in choice.names]
            if all(by_topic):
                places = [place for of_topic in by_topic for place in of_topic]
            else:  # a directory above may bear a name as a partition's
                places = find_all(self.store, prefix, self.layouts)
        return [place for place in places if choice.matches(place.partition.topic)]

    def _of_chosen_ids(
        self, found: dict[TopicIdPartition, list[PartitionPlace]], metadata: RemoteLogMetadata | None
    ) -> dict[TopicIdPartition, list[PartitionPlace]]:
        """Of topics that were created again the id that is wanted: that of ``topicId``, or the newest for a pattern.

        Raises:
            ObjectNotFoundError: nothing has an id that ``topicId`` names.
            AmbiguousTopicError: nothing decides which id is the newest.
        """
        wanted = set(self._options.topic_ids) - {NEWEST}
        there = {str(one.topic_id) for one in found if one.topic_id is not None}
        if missing := sorted(wanted - there):
            raise ObjectNotFoundError(
                f"topic id {', '.join(missing)} is not here",
                source=self.shown,
                found=some_of(sorted(there)) or "no topic ids",
            )
        named = {one.topic for one in found if one.topic_id in wanted}
        found = {one: places for one, places in found.items() if one.topic not in named or one.topic_id in wanted}
        if NEWEST not in self._options.topic_ids and self._options.choice.pattern is None:
            return found
        rest = [place for one, places in found.items() if one.topic not in named for place in places]
        newest = self.newest(
            [place for place in rest if place.prefixes],
            metadata,
            [place.partition for place in rest if not place.prefixes],
        )
        self._notes = newest.notes
        return {one: places for one, places in found.items() if newest.ids.get(one.topic, one.topic_id) == one.topic_id}

    def _is_chosen(self, partition: TopicIdPartition) -> bool:
        assigned = self._options.choice.assigned
        return assigned is None or partition.partition in assigned[partition.topic]

    def _require_all(self, there: set[tuple[str, int]]) -> None:
        """Raise if a topic, or an assigned partition, is in none of the locations."""
        choice = self._options.choice
        topics = {topic for topic, _ in there}
        if choice.pattern is not None and not topics:
            raise ObjectNotFoundError(
                f"no topic matches {choice.pattern!r}", source=self.shown, found=some_of(self._all_topics())
            )
        for topic in choice.names:
            if topic not in topics:
                known = self._all_topics()
                raise ObjectNotFoundError(
                    f"topic {topic!r} is not here",
                    source=self.shown,
                    found=some_of(known) or "no topic",
                    hint=nearest_hint(topic, known),
                )
        for topic, partitions in (choice.assigned or {}).items():
            missing = [
                one for one in partitions if (topic, one) not in there and not self._options.may_lack(topic, one)
            ]
            if missing:
                have = number_ranges(partition for name, partition in there if name == topic)
                raise ObjectNotFoundError(
                    f"partition {', '.join(map(str, missing))} of {topic} is not here",
                    source=self.shown,
                    found=f"partitions {have}",
                )

    def _all_topics(self) -> list[str]:
        """The names of the topics that are there instead, for an error."""
        places = (place for prefix in self.prefixes for place in find_places(self.store, prefix, self.layouts))
        return sorted({place.partition.topic for place in places})

    def _refuse_log_directory(self, found: Mapping[TopicIdPartition, Sequence[PartitionPlace]]) -> None:
        """Raise if a topic is in a broker's log directory in one location and in another layout elsewhere."""
        layouts: dict[str, dict[str, PartitionPlace]] = defaultdict(dict)
        for places in found.values():
            for place in places:
                layouts[place.partition.topic].setdefault(place.layout, place)
        for topic, by_layout in layouts.items():
            local = by_layout.get(log_directory.NAME)
            if local is not None and len(by_layout) > 1:
                name = local.prefixes[0].removesuffix("/")
                raise OptionError(
                    f"{self.store.url(name)} is of a broker's log directory, and topic {topic!r} is in the remote "
                    "tier, too",
                    hint="Leave that directory out of location, and give it as logDirectory: its segments go on where "
                    "the remote tier ends",
                )

    def _refuse_two_topics(self, places: Sequence[PartitionPlace], source: str, *, is_named: bool = True) -> None:
        try:
            refuse_two_topics(places, source, is_named=is_named)
        except AmbiguousTopicError as error:
            for name, option in _OPTIONS.items():
                error.hint = (error.hint or "").replace(name, option)
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
            opened.append(stack.enter_context(this_worker().store(location, storage)))
        local = None
        if options.catalog.log_directory is not None:
            local = _enter_local(stack, options, os.fspath(options.catalog.log_directory))
        locations = Locations(options, opened, opened_local=local)
        stack.callback(locations.close)
        yield locations


def open_location(options: SparkOptions, location: str) -> tuple[ObjectStore, str]:
    """The store of one location of a read, with the credentials that this process has."""
    return open_store(location, storage_options=resolve_storage(options.credentials, location, options.storage))


def _enter_local(stack: ExitStack, options: SparkOptions, place: str) -> tuple[ObjectStore, str]:
    """The log directory as a task sees it."""
    try:
        return stack.enter_context(this_worker().store(place, _storage_beside(options, place)))
    except ObjectNotFoundError as error:
        error.hint = "Tasks read the log directory, too: mount it on every executor under this name, or copy it to a "
        error.hint += "bucket"
        raise


def _open_beside(options: SparkOptions, place: str) -> tuple[ObjectStore, str]:
    return open_store(place, storage_options=_storage_beside(options, place))


def _storage_beside(options: SparkOptions, place: str) -> Mapping[str, object]:
    """Storage options of the files beside the locations: none of a directory."""
    return resolve_storage(options.credentials, place, options.storage) if "://" in place else {}


def _renewing(options: SparkOptions, store: ObjectStore, reopen: Callable[[], ObjectStore]) -> ObjectStore:
    return RenewingStore(store, reopen) if can_renew(options.credentials) else store


class RenewingStore:
    """A store that is opened again when it refuses, once for each request: who is refused twice is refused.

    Args:
        store: the first one.
        reopen: gives another one with fresh credentials.
    """

    def __init__(self, store: ObjectStore, reopen: Callable[[], ObjectStore]) -> None:
        self._store = store
        self._reopen = reopen
        self._replaced: list[ObjectStore] = []
        self._lock = Lock()

    def __repr__(self) -> str:
        return "RenewingStore()"

    def url(self, name: str) -> str:
        """As the store."""
        return self._store.url(name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store; what was listed before a refusal is not given again."""
        yield from self._listed(lambda store: store.list(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As the store; what was listed before a refusal is not given again."""
        yield from self._listed(lambda store: store.list_level(prefix))

    def size(self, name: str) -> int:
        """Bytes of the object."""
        return self._twice(lambda store: store.size(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        return self._twice(lambda store: store.read_ranges(name, ranges))

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        self._twice(lambda store: store.read_into(name, start, buffer))

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces; after a refusal from the next one on."""
        at, refused_at = wanted.start, -1
        while at < wanted.stop:
            store = self._store
            try:
                rest = ByteRange(at, wanted.stop)
                with closing(read_listed(store, name, rest, size=expected_size, tag=expected_tag)) as pieces:
                    for piece in pieces:
                        at += len(piece)
                        yield piece
                return
            except _REFUSED:
                if at == refused_at:
                    raise
                refused_at = at
                self._renew(store)

    def close(self) -> None:
        """Close the store, and those before it."""
        for store in (*self._replaced, self._store):
            store.close()

    def _twice(self, ask: Callable[[ObjectStore], _Result]) -> _Result:
        store = self._store
        try:
            return ask(store)
        except _REFUSED:
            self._renew(store)
            return ask(self._store)

    def _listed(self, ask: Callable[[ObjectStore], Iterator[ObjectInfo]]) -> Iterator[ObjectInfo]:
        given, store = 0, self._store
        try:
            for info in ask(store):
                given += 1
                yield info
        except _REFUSED:
            self._renew(store)
            for number, info in enumerate(ask(self._store)):
                if number >= given:
                    yield info

    def _renew(self, refused: ObjectStore) -> None:
        """Open it again, unless another thread has done so."""
        with self._lock:
            if self._store is refused:
                fresh = self._reopen()
                self._replaced.append(refused)
                self._store = fresh
