"""What a scan reads from: locations or a list of signed URLs, and what is given beside them.

Each is a store, in which segments are plain Kafka files, and the partitions in it. The metadata topic, a broker's log
directory and the lineage of the live log may be elsewhere than the segments: a partition's listing and what these know
of it are one ``SourceLog``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from threading import Lock
from typing import Any, Protocol
from weakref import finalize

from segreader.catalog.layouts import local_tiered, log_directory, pinterest
from segreader.catalog.layouts.base import Layout, PartitionPlace
from segreader.catalog.layouts.registry import choose_layouts, location_of, open_view
from segreader.catalog.listing import (
    EVERYTHING,
    NEWEST,
    PartitionLog,
    Wanted,
    find_all,
    find_listed_segments,
    find_sets_without_log,
    ids_by_topic,
    list_places,
    missing_error,
    read_place,
    refuse_two_topics,
)
from segreader.catalog.metadata_log import RemoteLogMetadata, from_metadata, join
from segreader.catalog.metadata_topic import read_remote_log_metadata
from segreader.errors import FormatError, ObjectNotFoundError, OptionError, UnknownLayoutError
from segreader.format.checkpoints import LeaderEpochs, parse_leader_epochs, parse_partition_metadata
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ListedOnce, MountedStores, ObjectStore, range_size_of, read_whole
from segreader.storage.location import open_store
from segreader.storage.options import options_without_secrets
from segreader.storage.signed_url import redact
from segreader.stored.topic_ids import NewestIds, newest_ids, note_of_ids
from segreader.values import dataclass

_PLAIN = ("http://", "https://")

_LOCAL = "log-directory:"
"""Names of objects in the log directory begin so, in the store that has those of the location, too."""

_CHECKPOINT = "leader-epoch-checkpoint"
_PARTITION_METADATA = "partition.metadata"

OpenPlace = Callable[[str], tuple[ObjectStore, str]]
"""The store of a place, and what names begin with there."""

Wants = Callable[[TopicIdPartition], bool]
"""Whether to list a partition."""


@dataclass(frozen=True, slots=True)
class SourceLog:
    """One partition, and what was given beside it.

    Args:
        log: what the location has of it.
        local: what the broker's log directory has of it.
        leader_epochs: the lineage of the live log.
    """

    log: PartitionLog
    local: PartitionLog | None = None
    leader_epochs: LeaderEpochs | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Those of the location, then those of the log directory."""
        return self.log.segments + (() if self.local is None else self.local.segments)

    def whole(self) -> SourceLog:
        """The same with all that can be read of the segments, where they are known by their names alone."""
        if self.log.read_segments is None:
            return self
        read = self.log.read_segments([one.files.log for one in self.log.segments])
        notes = tuple(dict.fromkeys((*self.log.notes, *read.notes)))  # some are about the topic
        return replace(self, log=replace(read, notes=notes))

    @property
    def has_segments(self) -> bool:
        """Whether any segment of it is there, in the location or in the log directory."""
        return bool(self.segments)

    @property
    def is_present(self) -> bool:
        """Whether a segment of it exists, or is known to be missing."""
        return self.has_segments or bool(self.log.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """How to find segments at a location, and what is known besides.

    Args:
        layout: which layout to see there; by default the names decide.
        rsm_config: the broker's properties file, of a plugin that needs keys or has a key prefix.
        metadata: a place with the ``__remote_log_metadata-<n>`` log directories of a broker.
        segments_from: ``listing``, ``metadata``, or ``both``, which is the default where ``metadata`` is given.
        log_directory: a broker's log directory, or a copy of one, that goes on where the remote tier ends.
        leader_epochs: a ``leader-epoch-checkpoint`` of the live log, or a place with partition directories that have
            one.
    """

    layout: str | None = None
    rsm_config: str | os.PathLike[str] | None = None
    metadata: str | os.PathLike[str] | None = None
    segments_from: str | None = None
    log_directory: str | os.PathLike[str] | None = None
    leader_epochs: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.segments_from not in (None, "listing", "metadata", "both"):
            raise OptionError("unknown catalog", found=self.segments_from, expected="listing, metadata or both")
        if self.segments_from in ("metadata", "both") and self.metadata is None:
            raise OptionError(
                f"the catalog {self.segments_from!r} needs the metadata topic",
                hint="Give the directory of its log directories: metadata (--metadata)",
            )


@dataclass(frozen=True, slots=True)
class Known:
    """The metadata topic and the lineages, as they were when they were read.

    Args:
        metadata: ``None`` if it is not given, or not to be asked.
        leader_epochs: of each partition whose checkpoint is given.
        recreated: names of topics of which several ids are read.
        notes: for people, by the topic that they are about.
    """

    metadata: RemoteLogMetadata | None = None
    leader_epochs: Mapping[TopicIdPartition, LeaderEpochs] = field(default_factory=dict)
    recreated: Collection[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """A store, its name for people, and the partitions in it."""

    store: ObjectStore
    shown: str

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        """The partitions asked for and not refused by ``wants``, by topic, partition and id; raises as ``list_places``.

        Args:
            wanted: its id ``newest`` is the one that the topic's name has now. Without an id every id of a topic is
                read that was created again, unless the topic is named.
        """


class SourceAddress:
    """What ``open_source`` was given, as it travels to other processes: they open its store when they first need it.

    A pickle holds no secret: credentials are those that the environment and the files of the other process give.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | None,
        storage_options: Mapping[str, object] | None,
        catalog: Catalog,
    ) -> None:
        self._location, self._storage_options, self._catalog = location, storage_options, catalog
        self._lock = Lock()
        self._store: ObjectStore | None = None

    @property
    def store(self) -> ObjectStore:
        """The store that segments are read from; raises as ``open_source``. It is closed when this is garbage."""
        with self._lock:
            if self._store is None:
                self._store = open_source(
                    self._location, storage_options=self._storage_options, catalog=self._catalog
                ).store
                finalize(self, self._store.close).atexit = False
            return self._store

    def __reduce__(self) -> tuple[Any, ...]:
        """Raises ``OptionError`` where a secret was given."""
        catalog, location = self._catalog, "" if self._location is None else os.fspath(self._location)
        places = {name: getattr(catalog, name) for name in ("rsm_config", "metadata", "log_directory", "leader_epochs")}
        refuse_credentials({"location": location, **places})
        here = {name: None if place is None else _absolute(place) for name, place in places.items()}
        options = options_without_secrets(location, self._storage_options or {})
        return SourceAddress, (_absolute(location) if location else None, options, replace(catalog, **here))


def _absolute(place: str | os.PathLike[str]) -> str:
    """The name of a place from any directory."""
    text = os.fspath(place)
    return text if "://" in text or text.startswith("file:") else os.path.abspath(text)


def refuse_credentials(places: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """Raise if the text of a place holds a credential.

    Args:
        places: by the names of the arguments that give them.

    Raises:
        OptionError: one does.
    """
    for name, place in places.items():
        if place is not None and redact(os.fspath(place)) != os.fspath(place):
            raise OptionError(
                f"{name} holds a credential",
                found=redact(os.fspath(place)),
                hint="Give credentials as storage_options, on each machine: what travels names places only",
            )


class OpenLocations:
    """Locations that are read as one, with what the catalog names beside them; ``store`` has the objects of all.

    Names of objects in the first location are its own; those of the others begin with ``<number>:/``.

    Args:
        layouts: which to see there.
        opened: the store of each location, as the layouts see it, and what names begin with there.
        open_place: opens a directory or a bucket in this process, for what is given beside them.
        local: the log directory, where it is open already.
    """

    def __init__(
        self,
        catalog: Catalog,
        layouts: Sequence[Layout],
        opened: Sequence[tuple[ObjectStore, str]],
        open_place: OpenPlace,
        *,
        local: tuple[ObjectStore, str] | None = None,
    ) -> None:
        self.catalog, self.layouts, self._open_place = catalog, layouts, open_place
        self.prefixes = tuple(_mount(at) + prefix for at, (_, prefix) in enumerate(opened))
        self.shown = ", ".join(store.url(prefix) for store, prefix in opened)
        self._beside: dict[str, tuple[ObjectStore, str]] = {}
        self._local_prefix: str | None = None
        mounts = {_mount(at): store for at, (store, _) in enumerate(opened)}
        if catalog.log_directory is not None:
            mounts[_LOCAL], self._local_prefix = local or open_place(os.fspath(catalog.log_directory))
        self.store: ObjectStore = opened[0][0] if len(mounts) == 1 else MountedStores(mounts)

    def read_metadata(self, wanted: Wanted = EVERYTHING) -> RemoteLogMetadata | None:
        """What the metadata topic says of these partitions; ``None`` if it is not given, or not to be asked."""
        if self.catalog.metadata is None or self.catalog.segments_from == "listing":
            return None
        store, prefix = self._open(self.catalog.metadata)
        wanted = wanted.of_every_id
        return read_remote_log_metadata(
            store, prefix, topic=wanted.topic, topic_id=wanted.topic_id, partitions=wanted.partitions
        )

    def newest(
        self,
        places: Sequence[PartitionPlace],
        metadata: RemoteLogMetadata | None = None,
        known: Collection[TopicIdPartition] = (),
    ) -> NewestIds:
        """The newest id of each topic among these places that has several; see ``newest_ids``."""

        def read(place: PartitionPlace) -> PartitionLog:
            return read_place(self.store, place, self.layouts)

        return newest_ids(self.store, places, read, known=known, metadata=metadata, source=self.shown)

    def read_leader_epochs(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, LeaderEpochs]:
        """The lineage of each of these partitions whose checkpoint is given.

        Raises:
            OptionError: one checkpoint is given, and several partitions.
            ObjectNotFoundError: there is none of any of them.
            FormatError: one is damaged.
        """
        given = self.catalog.leader_epochs
        if given is None:
            return {}
        text = os.fspath(given)
        if "://" not in text and os.path.isfile(text):
            if len(partitions) != 1:
                raise OptionError(
                    "one leader-epoch-checkpoint is given for several partitions",
                    found=", ".join(map(str, partitions[:8])),
                    hint="Choose one partition, or give the directory that holds <topic>-<partition> directories",
                )
            with open(text, "rb") as file:
                return {partitions[0]: _parsed(file.read(), text)}
        store, prefix = self._open(text)
        recreated = ids_by_topic(partitions)
        found = {}
        for partition in partitions:
            path = prefix if prefix.removesuffix("/") == str(partition) else f"{prefix}{partition}/"
            name = f"{path}{_CHECKPOINT}"
            try:
                data = read_whole(store, name)
            except ObjectNotFoundError:
                continue
            if not _is_of_another_topic(store, path, partition, recreated):
                found[partition] = _parsed(data, store.url(name))
        if not found:
            raise ObjectNotFoundError(
                f"no {_CHECKPOINT} of these partitions",
                source=store.url(prefix),
                expected=f"<topic>-<partition>/{_CHECKPOINT}",
            )
        return found

    def read(
        self,
        places: Sequence[PartitionPlace],
        known: Known,
        listed: ObjectStore | None = None,
        *,
        by_name: bool = False,
    ) -> SourceLog:
        """One partition: its listing, and what is known of it beside that.

        Args:
            places: of the partition; one without a directory has only what the metadata topic knows.
            listed: the store by which these places were found, if it may know their listing.
            by_name: see ``Wanted``; only a listing that stands alone is by names.

        Raises:
            CatalogError, StorageError: as ``read_place``.
        """
        partition, metadata = places[0].partition, known.metadata
        there = [place for place in places if place.prefixes]
        if there and metadata is not None and self.catalog.segments_from == "metadata":
            log = from_metadata(there[0], metadata)
        else:
            by_name &= len(there) == 1 and metadata is None and self._local_prefix is None
            store = listed or self.store
            log = _as_one(partition, [read_place(store, one, self.layouts, by_name=by_name) for one in there])
            if metadata is not None and log.layout != log_directory.NAME:  # that one knows no remote segments
                log = join(log, metadata)
        if (note := known.notes.get(partition.topic)) is not None:
            log = replace(log, notes=(note, *log.notes))
        local = self._local_log(partition, known.recreated)
        return SourceLog(log, local, known.leader_epochs.get(partition))

    def require_local(self, partitions: Sequence[TopicIdPartition], *, has_local: bool) -> None:
        """Refuse a log directory that has none of the partitions that are read.

        Raises:
            ObjectNotFoundError: it names the directory.
        """
        if self._local_prefix is None or has_local or not partitions:
            return
        partition = partitions[0]
        raise ObjectNotFoundError(
            "the log directory has none of these partitions",
            source=self.store.url(_LOCAL + self._local_prefix),
            expected=f"{partition}/ with segments"
            + (f" of topic id {partition.topic_id}" if partition.topic_id is not None else ""),
            hint="Give a broker's log.dirs directory, or a copy of it",
        )

    def close_beside(self) -> None:
        """Give back what reading the metadata topic and lineages took; the log directory is part of ``store``."""
        while self._beside:
            self._beside.popitem()[1][0].close()

    def _open(self, location: str | os.PathLike[str]) -> tuple[ObjectStore, str]:
        text = os.fspath(location)
        if text not in self._beside:
            self._beside[text] = self._open_place(text)
        return self._beside[text]

    def _local_log(self, partition: TopicIdPartition, recreated: Collection[str]) -> PartitionLog | None:
        if self._local_prefix is None:
            return None
        name = str(partition)
        here = f"{_LOCAL}{self._local_prefix}"
        path = here if self._local_prefix.removesuffix("/") == name else f"{here}{name}/"
        place = PartitionPlace(TopicIdPartition(partition.topic, partition.partition), (path,), log_directory.NAME)
        log = read_place(self.store, place, (log_directory.LogDirectoryLayout(),))
        if not log.segments or _is_of_another_topic(self.store, path, partition, recreated):
            return None
        return log


class LocationSource(OpenLocations):
    """A directory, bucket or prefix; its layout says which objects are segments.

    Args:
        opened: what ``open_store`` gave for the location; by default it is opened here.
        address: what other processes open; ``None`` where they cannot.
    """

    def __init__(
        self,
        location: str,
        storage_options: Mapping[str, object] | None = None,
        *,
        catalog: Catalog | None = None,
        opened: tuple[ObjectStore, str] | None = None,
        address: SourceAddress | None = None,
    ) -> None:
        catalog = catalog or Catalog()
        layouts = choose_layouts(catalog.layout, rsm_config=catalog.rsm_config)
        store, self.prefix = opened or open_store(location, storage_options=storage_options)

        def open_beside(place: str) -> tuple[ObjectStore, str]:
            return open_store(place, storage_options=storage_options if "://" in place else None)

        super().__init__(catalog, layouts, [(open_view(store, layouts), self.prefix)], open_beside)
        self.address = address

    def places(self, wanted: Wanted = EVERYTHING, metadata: RemoteLogMetadata | None = None) -> list[PartitionPlace]:
        """The places of the requested partitions; see ``Source.logs``."""
        places = self._places(self.store, wanted, metadata)
        if wanted.topic_id != NEWEST:
            return places
        there = [one.partition for one in places]
        chosen = self.newest(places, metadata).chosen(there, wanted.partitions, self.shown)
        return [place for place in places if place.partition in chosen]

    def _places(self, store: ObjectStore, wanted: Wanted, metadata: RemoteLogMetadata | None) -> list[PartitionPlace]:
        """The same; of every id and every partition where the newest id is wanted."""
        return list_places(
            store,
            self.prefix,
            self.layouts,
            wanted.of_every_id,
            is_live=lambda one: is_live(metadata, one),
            may_have_ids=wanted.topic_id == NEWEST,
        )

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        """By listing, by the metadata topic or both, a partition at a time."""
        metadata = self.read_metadata(wanted)
        is_newest = wanted.topic_id == NEWEST
        finished = [] if metadata is None else metadata.partitions(wanted.topic, wanted.of_every_id.topic_id)
        store = ListedOnce(self.store) if range_size_of(self.store) else self.store
        try:
            places = self._places(store, wanted, metadata)
        except (ObjectNotFoundError, UnknownLayoutError):
            if not finished:
                raise
            places = []  # all of it is gone
        if is_newest:
            newest = self.newest(places, metadata, finished)
            there = newest.chosen([*(place.partition for place in places), *finished], wanted.partitions, self.shown)
            places = [place for place in places if place.partition in there]
            finished = [one for one in finished if one in there]
        here = [place.partition for place in places]
        recreated = ids_by_topic(here)
        notes = dict(newest.notes) if is_newest else {name: note_of_ids(name, ids) for name, ids in recreated.items()}
        known = Known(metadata, self.read_leader_epochs(here), recreated, notes)
        self.close_beside()
        has_local = False
        chosen = [place for place in places if wants is None or wants(place.partition)]
        for place in chosen:
            one = self.read([place], known, store, by_name=wanted.by_name)
            notes.pop(place.partition.topic, None)  # each is given once
            has_local |= one.local is not None
            yield one
        if len(chosen) == len(places):
            self.require_local(here, has_local=has_local)
        there, of_gone = set(here), replace(known, notes={})
        for partition in finished:
            if partition not in there and (wants is None or wants(partition)):
                yield self.read([PartitionPlace(partition, (), "")], of_gone)


class UrlSource:
    """Objects named by URLs one by one.

    Args:
        urls: of segments and their indexes, in any order.
        is_trusted: whether the user typed them: then the hosts they name are allowed.
        renew: called with an expired URL, gives another one for the same object.
        rsm_config: the broker's properties file, where segments are encrypted.
    """

    def __init__(
        self,
        urls: Sequence[str],
        storage_options: Mapping[str, object] | None,
        *,
        is_trusted: bool = False,
        renew: Callable[[str], str] | None = None,
        rsm_config: str | os.PathLike[str] | None = None,
    ) -> None:
        from segreader.storage.http.settings import HttpSettings
        from segreader.storage.http.store import UrlList, UrlListStore, split_url
        from segreader.storage.options import address_policy, find_storage_options

        options = find_storage_options("https://", storage_options)
        policy = address_policy(options)
        if is_trusted:
            hosts = {"{0.scheme}://{0.netloc}".format(split_url(url)) for url in urls}
            policy = policy.with_hosts(sorted(host for host in hosts if "@" not in host))
        settings = HttpSettings(policy=policy).with_options(options)
        store = UrlListStore(UrlList(urls, renew), settings=settings)
        self.layouts = tuple(
            layout
            for layout in choose_layouts(None, rsm_config=rsm_config)
            if layout.name not in (local_tiered.NAME, log_directory.NAME, pinterest.NAME)  # those of loose files
        )
        self.store = open_view(store, self.layouts)
        self._listed = store
        self.shown = f"{len(urls)} URLs"

    @property
    def keeps_all(self) -> bool:
        """Whether planning keeps all that it reads of the logs that were listed."""
        return self._listed.keeps_all

    def logs(self, wanted: Wanted = EVERYTHING, wants: Wants | None = None) -> Iterator[SourceLog]:
        """By the names in the URLs' paths, and by the first batch where a name says nothing."""
        is_newest = wanted.topic_id == NEWEST
        loose: dict[TopicIdPartition, PartitionLog] = {}
        if find_all(self.store, "", self.layouts):
            places = list_places(self.store, "", self.layouts, wanted.of_every_id, may_have_ids=is_newest)
        else:
            loose = self._loose(wanted)
            places = [PartitionPlace(one, ("",), "urls") for one in loose]
            refuse_two_topics(places, self.shown, is_named=wanted.topic is not None and not is_newest)

        def read(place: PartitionPlace) -> PartitionLog:
            return loose[place.partition] if loose else read_place(self.store, place, self.layouts)

        ids = ids_by_topic(place.partition for place in places)
        notes = {name: note_of_ids(name, some) for name, some in ids.items()}
        if is_newest:
            newest = newest_ids(self.store, places, read, source=self.shown)
            chosen = newest.chosen((place.partition for place in places), wanted.partitions, self.shown)
            places = [place for place in places if place.partition in chosen]
            notes = dict(newest.notes)
        for place in places:
            if wants is None or wants(place.partition):
                log = read(place)
                if (note := notes.pop(place.partition.topic, None)) is not None:
                    log = replace(log, notes=(note, *log.notes))
                yield SourceLog(log)

    def _loose(self, asked: Wanted) -> dict[TopicIdPartition, PartitionLog]:
        """The partitions of a list that no layout explains, those that are asked for.

        If one partition is asked for, logs without a name are taken for that one.
        """
        only = next(iter(asked.partitions)) if asked.partitions is not None and len(asked.partitions) == 1 else None
        segments = find_listed_segments(self.store, topic=asked.topic, partition=only)
        if not segments:
            raise UnknownLayoutError(
                "no URL of the list names a segment",
                source=self.shown,
                expected="paths that end in .log, and their indexes in .index, .txnindex and so on",
            )
        groups: dict[TopicIdPartition, list[Segment]] = defaultdict(list)
        for segment in sorted(segments, key=lambda segment: segment.base_offset):
            groups[segment.partition].append(segment)
        there = sorted(groups, key=lambda one: one.order)
        wanted = asked.of_every_id
        chosen = [one for one in there if wanted.admits(one) and wanted.topic_id in (None, one.topic_id)]
        have = {one.partition for one in chosen}
        if not have or not have.issuperset(wanted.partitions or ()):
            error = missing_error(there, have, self.shown, wanted)
            raise error or ObjectNotFoundError("what is asked for is not here", source=self.shown)
        lacking = find_sets_without_log(self.store, segments, topic=asked.topic, partition=only)
        return {
            one: PartitionLog(one, tuple(groups[one]), "urls", tuple(lost for whose, lost in lacking if whose == one))
            for one in chosen
        }


def open_source(
    location: str | os.PathLike[str] | None,
    *,
    urls: Sequence[str] | None = None,
    renew: Callable[[str], str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    catalog: Catalog | None = None,
) -> LocationSource | UrlSource:
    """The source that a location or a list of URLs names.

    Raises:
        OptionError: neither or both are given, or a storage option is wrong.
        ObjectNotFoundError: the directory is not there.
    """
    address = SourceAddress(location, storage_options, catalog or Catalog())
    if location is None and urls is None and catalog is not None and catalog.rsm_config is not None:
        location, found = location_of(catalog.rsm_config)
        storage_options = {**found, **(storage_options or {})}
    if (location is None) == (urls is None):
        raise OptionError("give a place to read: a location, or urls=[…]", hint="Give one of the two")
    if isinstance(urls, str):
        raise OptionError("urls are a list", found="a text", hint="Give one URL as the location")
    catalog = catalog or Catalog()
    is_listed = urls is not None or _is_url(location)
    if is_listed and catalog != Catalog(rsm_config=catalog.rsm_config):
        raise OptionError(
            "layout, metadata, log_directory and leader_epochs cannot be used with URLs",
            hint="Leave them out: the layout is recognised by the names in the URLs",
        )
    if urls is not None:
        return UrlSource(urls, storage_options, renew=renew, rsm_config=catalog.rsm_config)
    text = os.fspath(location) if location is not None else ""
    if _is_url(location):
        return UrlSource([text], storage_options, is_trusted=True, renew=renew, rsm_config=catalog.rsm_config)
    return LocationSource(text, storage_options, catalog=catalog, address=address)


def _is_url(location: str | os.PathLike[str] | None) -> bool:
    return location is not None and os.fspath(location).lower().startswith(_PLAIN)


def _mount(at: int) -> str:
    return f"{at}:/" if at else ""


def _as_one(partition: TopicIdPartition, logs: Sequence[PartitionLog]) -> PartitionLog:
    """Several places as one listing."""
    if len(logs) < 2:
        return logs[0] if logs else PartitionLog(partition, ())
    return replace(
        logs[0],
        segments=tuple(
            sorted((one for log in logs for one in log.segments), key=lambda one: (one.base_offset, one.version))
        ),
        incomplete=tuple(one for log in logs for one in log.incomplete),
        notes=tuple(note for log in logs for note in log.notes),
    )


def is_live(metadata: RemoteLogMetadata | None, partition: TopicIdPartition) -> bool:
    """Whether a partition counts: the metadata topic has live segments of it, or has never heard of it."""
    return (
        metadata is None
        or bool(metadata.segments(partition))
        or partition not in metadata.partitions(with_deleted=True)
    )


def _is_of_another_topic(
    store: ObjectStore, path: str, partition: TopicIdPartition, recreated: Collection[str]
) -> bool:
    """Whether a broker's partition directory is of another topic of the same name, by its ``partition.metadata``.

    Args:
        recreated: names of topics of which several ids are read: a directory that names no id is then of none of them.
    """
    if partition.topic_id is None:
        return False
    name = path + _PARTITION_METADATA
    try:
        data = read_whole(store, name)
    except ObjectNotFoundError:
        return partition.topic in recreated
    try:
        return parse_partition_metadata(data).topic_id != partition.topic_id
    except FormatError as error:
        raise error.located(source=store.url(name)) from error


def _parsed(data: bytes, source: str) -> LeaderEpochs:
    try:
        return parse_leader_epochs(data)
    except FormatError as error:
        raise error.located(source=source) from error
