"""What a layout is: it recognises segments among the objects of a bucket, and gives them as plain Kafka files.

The patterns are the names that Kafka itself gives to directories and files, which most layouts keep. Source:
``LogFileUtils`` (4.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore

LOG_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})")
LOG_FILE: Final = re.compile(r"(?P<base>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)")
REMOTE_DIRECTORY: Final = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d{0,9})-(?P<topic_id>[A-Za-z0-9_-]{22})"
)
REMOTE_KINDS: Final = frozenset(("log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"))
REMOTE_FILE: Final = re.compile(
    rf"(?P<base>\d{{20}})-(?P<segment_id>[A-Za-z0-9_-]{{22}})\.(?P<kind>{'|'.join(sorted(REMOTE_KINDS))})"
)


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


class Layout(Protocol):
    """One way to lay out segments in a store. A layout is a value: it may hold settings, never a client."""

    @property
    def name(self) -> str:
        """Its name for ``--layout``."""

    @property
    def is_experimental(self) -> bool:
        """Whether it was built from documents only, and no real bucket has confirmed it."""

    def partition_of(self, path: str) -> TopicIdPartition | None:
        """The partition whose directory this is, judged by the path alone; ``None`` if that is not enough.

        Lets a search for one topic pass over the others without a request.
        """

    def places(self, directory: Directory) -> Sequence[PartitionPlace]:
        """The partitions whose objects are directly in this directory; none if it is not of this layout."""

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """List a partition, and read what must be read to know its segments.

        Raises:
            CatalogError: a manifest contradicts itself, with its name.
            StorageError: as the store raises.
        """


@runtime_checkable
class TranslatedLayout(Layout, Protocol):
    """A layout whose objects are not Kafka's own files: chunks, ciphers, or other batch headers."""

    def view(self, store: ObjectStore) -> ObjectStore:
        """A store in which the segments of this layout are plain Kafka files under the names that ``find`` gives.

        Every other name means in it what it means in ``store``.
        """


def is_offset(text: str) -> bool:
    """Whether 20 digits of a name can be an offset, which has 63 bits."""
    return int(text) < 1 << 63


def last_directory(path: str) -> str:
    """The last element of a directory's path, which ends in ``/``."""
    return path.removesuffix("/").rpartition("/")[2]
