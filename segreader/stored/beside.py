"""Locations that are read as one, and what is given beside them: the metadata topic, a log directory, a lineage.

Each may be elsewhere than the segments. A partition's listing and what these know of it are one ``SourceLog``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from segreader.catalog.layouts import log_directory
from segreader.catalog.layouts.base import Layout, PartitionPlace
from segreader.catalog.listing import EVERYTHING, PartitionLog, Wanted, read_place
from segreader.catalog.metadata_log import RemoteLogMetadata, from_metadata, join
from segreader.catalog.metadata_topic import read_remote_log_metadata
from segreader.errors import FormatError, ObjectNotFoundError, OptionError
from segreader.format.checkpoints import LeaderEpochs, parse_leader_epochs, parse_partition_metadata
from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import MountedStores, ObjectStore, read_whole
from segreader.stored.topic_ids import NewestIds, ids_by_topic, newest_ids, of_every_id

LOCAL = "log-directory:"
"""Names of objects in the log directory begin so, in the store that has those of the location, too."""

_CHECKPOINT = "leader-epoch-checkpoint"
_PARTITION_METADATA = "partition.metadata"

OpenPlace = Callable[[str], tuple[ObjectStore, str]]
"""The store of a place, and what names begin with there."""


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
            mounts[LOCAL], self._local_prefix = local or open_place(os.fspath(catalog.log_directory))
        self.store: ObjectStore = opened[0][0] if len(mounts) == 1 else MountedStores(mounts)

    def read_metadata(self, wanted: Wanted = EVERYTHING) -> RemoteLogMetadata | None:
        """What the metadata topic says of these partitions; ``None`` if it is not given, or not to be asked."""
        if self.catalog.metadata is None or self.catalog.segments_from == "listing":
            return None
        store, prefix = self._open(self.catalog.metadata)
        wanted = of_every_id(wanted)
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

    def read(self, places: Sequence[PartitionPlace], known: Known) -> SourceLog:
        """One partition: its listing, and what is known of it beside that.

        Args:
            places: of the partition; one without a directory has only what the metadata topic knows.

        Raises:
            CatalogError, StorageError: as ``read_place``.
        """
        partition, metadata = places[0].partition, known.metadata
        there = [place for place in places if place.prefixes]
        if there and metadata is not None and self.catalog.segments_from == "metadata":
            log = from_metadata(there[0], metadata)
        else:
            log = _as_one(partition, [read_place(self.store, place, self.layouts) for place in there])
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
            source=self.store.url(LOCAL + self._local_prefix),
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
        here = f"{LOCAL}{self._local_prefix}"
        path = here if self._local_prefix.removesuffix("/") == name else f"{here}{name}/"
        place = PartitionPlace(TopicIdPartition(partition.topic, partition.partition), (path,), log_directory.NAME)
        log = read_place(self.store, place, (log_directory.LogDirectoryLayout(),))
        if not log.segments or _is_of_another_topic(self.store, path, partition, recreated):
            return None
        return log


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
