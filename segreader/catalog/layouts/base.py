"""What a layout is: it recognises segments among the objects of a bucket, and gives them as plain Kafka files.

The patterns are the names that Kafka itself gives to directories and files, which most layouts keep. Source:
``LogFileUtils`` (4.0).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from sys import intern
from typing import ClassVar, Final

from segreader.segment import Segment, SegmentFiles, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore, StoreView
from segreader.values import dataclass

LOG_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})")
LOG_FILE: Final = re.compile(r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)")
REMOTE_DIRECTORY: Final = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})-(?P<topic_id>[A-Za-z0-9_-]{22})"
)
REMOTE_KINDS: Final = frozenset(("log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"))
REMOTE_FILE: Final = re.compile(
    rf"(?P<base>\d{{20}})-(?P<segment_id>[A-Za-z0-9_-]{{22}})\.(?P<kind>{'|'.join(sorted(REMOTE_KINDS))})"
)
PARTITION_PATH: Final = re.compile(rf"(?:.*/)?{LOG_DIRECTORY.pattern}/", re.DOTALL)
REMOTE_PARTITION_PATH: Final = re.compile(rf"(?:.*/)?{REMOTE_DIRECTORY.pattern}/", re.DOTALL)

_MAX_INT32: Final = (1 << 31) - 1
_MAX_INT64: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Directory:
    """One level of a location: the objects and directories directly below ``path``.

    Args:
        path: ends in ``/``, or is empty for the store's root.
        files: objects directly in it; of a directory with very many only the first ones.
        directories: names of the directories in it, each from the store's root on and ending in ``/``.
    """

    path: str
    files: tuple[ObjectInfo, ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def file_names(self) -> list[str]:
        """Names of ``files`` without the path."""
        return [info.name.rpartition("/")[2] for info in self.files]


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """Where a partition is: the name of each of its objects begins with one of ``prefixes``."""

    partition: TopicIdPartition
    prefixes: tuple[str, ...]
    layout: str


@dataclass(frozen=True, slots=True)
class IncompleteSegment:
    """A set of objects that is no whole segment: an upload in progress or given up, or a delete that was cut short.

    Args:
        name: of one of its objects.
        missing: the kinds of objects that are not there, such as ``log``.
        segment: what could be read of it, where its log is there.
        leader_epochs: name of its leader-epoch checkpoint, where that is there.
    """

    base_offset: int
    name: str
    missing: tuple[str, ...]
    segment_id: str | None = None
    segment: Segment | None = field(default=None, repr=False)
    leader_epochs: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """What a listing of a partition holds.

    ``segments`` are the complete ones, in any order, overlapping ones too. ``foreign`` are objects that belong to no
    segment and to no other file that the layout knows. ``log_start`` is the first offset that is not deleted, where the
    layout records it. ``start_snapshot`` is a producer snapshot of where the first segment begins.
    """

    segments: Sequence[Segment]
    incomplete: Sequence[IncompleteSegment] = ()
    foreign: Sequence[str] = ()
    notes: Sequence[str] = field(default=())
    log_start: int | None = None
    start_snapshot: str | None = None


ReadFiles = Callable[[Iterable[str]], PartitionFiles]
"""Reads the segments with logs of these names."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names by which a directory is recognised, as data: a layout runs code of its own only where they occur.

    Each pattern must match to the end; ``None`` excludes nothing.

    Args:
        directory: the path of a partition's directory, with the groups ``topic``, ``partition`` and ``topic_id``.
        file: the name of a file; one in the directory is enough.
        child: the path of a directory that lets the one above it be searched for partitions.
    """

    directory: re.Pattern[str] | None = None
    file: re.Pattern[str] | None = None
    child: re.Pattern[str] | None = None

    def show_partition(self, directory: Directory) -> bool:
        """Whether a directory's names can be those of a partition's own."""
        if self.directory is not None and not self.directory.fullmatch(directory.path):
            return False
        return self.file is None or any(map(self.file.fullmatch, directory.file_names))

    def show_above(self, directory: Directory) -> bool:
        """Whether a directory's names can be those of one above the partitions."""
        return self.child is not None and any(map(self.child.fullmatch, directory.directories))


@dataclass(frozen=True)
class Layout(ABC):
    """How a plugin names and stores segments. A layout is a value: it may hold settings, never a client.

    ``name`` is for ``--layout``. ``is_experimental``: it was built from documents only, and no real bucket has
    confirmed it. ``plain_files`` are the names in its view of files that are stored in another form: chunks, ciphers,
    other batch headers.
    """

    name: ClassVar[str]
    names: ClassVar[Names]
    is_experimental: ClassVar[bool] = False
    plain_files: ClassVar[re.Pattern[str] | None] = None

    def partition_of(self, path: str) -> TopicIdPartition | None:
        """The partition whose directory this is, judged by the path alone; ``None`` if that is not enough.

        Lets a search for one topic pass over the others without a request.
        """
        match = self.names.directory.fullmatch(path) if self.names.directory is not None else None
        return self.partition(match) if match is not None else None

    def partition(self, match: re.Match[str]) -> TopicIdPartition | None:
        """The partition by a match of ``names.directory``."""
        number = parse_partition(match["partition"])
        return None if number is None else TopicIdPartition(match["topic"], number, match.groupdict().get("topic_id"))

    def places(self, directory: Directory, store: ObjectStore | None = None) -> Sequence[PartitionPlace]:
        """The partitions whose objects are in this directory, or also below it; none if it is not of this layout.

        Args:
            store: asked where names are not enough; without it the answer is what the names prove.
        """
        if store is not None and self.names.show_above(directory):
            return self.claim_below(directory, store)
        return self.claim(directory, store) if self.names.show_partition(directory) else ()

    def claim(self, directory: Directory, store: ObjectStore | None) -> Sequence[PartitionPlace]:
        """As ``places``, for a directory that can be a partition's own by its names."""
        partition = self.partition_of(directory.path)
        return () if partition is None else (PartitionPlace(partition, (directory.path,), self.name),)

    def claim_below(self, directory: Directory, store: ObjectStore) -> Sequence[PartitionPlace]:
        """As ``places``, for a directory that has a ``names.child``."""
        return ()

    @abstractmethod
    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """List a partition, and read what must be read to know its segments.

        Raises:
            CatalogError: a manifest contradicts itself, with its name.
            StorageError: as the store raises.
        """

    def find_by_name(self, store: ObjectStore, place: PartitionPlace) -> tuple[PartitionFiles, ReadFiles | None] | None:
        """As ``find``, where that reads a file of each segment: by names alone, with a function that reads these files.

        Returns:
            ``None`` if ``find`` reads no such files; nothing that reads them if they had to be read.
        """
        return None

    def view(self, store: ObjectStore) -> StoreView:
        """A store in which ``plain_files`` are plain Kafka files; every other name means what it means in ``store``."""
        return StoreView(store)


def segment_files(files: Mapping[str, ObjectInfo]) -> SegmentFiles:
    """The objects of one segment by their kinds, a log among them."""
    get = files.get
    index, times, aborts = get("index"), get("timeindex"), get("txnindex")
    snapshot, epochs = get("snapshot"), get("leader_epoch_checkpoint")
    tag = None if epochs is None else epochs.tag
    return SegmentFiles(
        files["log"].name,
        None if index is None else index.name,
        None if times is None else times.name,
        None if aborts is None else aborts.name,
        None if snapshot is None else snapshot.name,
        None if epochs is None else epochs.name,
        {info.name: info.size for info in files.values() if info.size >= 0},
        None if tag is None else intern(tag),  # often the same
    )


def is_offset(text: str) -> bool:
    """Whether 20 digits of a name can be an offset, which has 63 bits."""
    return int(text) < 1 << 63


def last_directory(path: str) -> str:
    """The last element of a directory's path, which ends in ``/``."""
    return path.removesuffix("/").rpartition("/")[2]


def parse_partition(text: str, *, is_padded: bool = False) -> int | None:
    """The number of a partition; ``None`` if it is none. Kafka writes no zeros before it, other people may."""
    number = _decimal(text, _MAX_INT32)
    return number if is_padded or str(number) == text else None


def parse_offset(text: str) -> int | None:
    """An offset in decimal digits, with zeros before it or not; ``None`` if it is none."""
    return _decimal(text, _MAX_INT64)


def _decimal(text: str, limit: int) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= 40):
        return None
    value = int(text)
    return value if value <= limit else None
