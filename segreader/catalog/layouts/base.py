"""What a layout is: how the objects of a bucket are told to be segments, whose, and read as plain Kafka files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from segreader.segment import Segment, TopicIdPartition
from segreader.storage.base import ObjectInfo, ObjectStore


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
    """Where a partition lies: each of its objects has a name that begins with one of ``prefixes``."""

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
    """

    base_offset: int
    name: str
    missing: tuple[str, ...]
    segment_id: str | None = None
    segment: Segment | None = field(default=None, repr=False)


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
        """As ``--layout`` says it."""

    @property
    def is_experimental(self) -> bool:
        """Whether it was built from documents only, and no real bucket has confirmed it."""

    def partition_of(self, path: str) -> TopicIdPartition | None:
        """The partition whose directory this is, judged by the path alone; ``None`` if it says nothing.

        Lets a search for one topic pass over the others without a request.
        """

    def places(self, directory: Directory) -> Sequence[PartitionPlace]:
        """The partitions whose objects lie directly in this directory; none if it is not of this layout."""

    def find(self, store: ObjectStore, place: PartitionPlace) -> PartitionFiles:
        """List a partition, and read what must be read to know its segments.

        Raises:
            CatalogError: a manifest contradicts itself, with its name.
            StorageError: as the store raises.
        """

    def view(self, store: ObjectStore) -> ObjectStore:
        """A store in which the segments of this layout are plain Kafka files under the names that ``find`` gives.

        Every other name means in it what it means in ``store``. A layout of plain files returns ``store``.
        """
