"""A walk over every directory of a store that asks one layout, as the catalogue does."""

from __future__ import annotations

from dataclasses import dataclass

from segreader.catalog.layouts.base import Directory, Layout, PartitionFiles, PartitionPlace
from segreader.segment import Segment
from segreader.storage.base import ObjectStore
from segreader.testing.builder import SegmentBuilder


def directory_at(store: ObjectStore, path: str = "") -> Directory:
    """One level, whole."""
    level = list(store.list_level(path))
    return Directory(
        path,
        tuple(info for info in level if not info.name.endswith("/")),
        tuple(info.name for info in level if info.name.endswith("/")),
    )


def places_below(store: ObjectStore, layout: Layout, path: str = "") -> list[PartitionPlace]:
    """The places of a layout, from the top."""
    directory = directory_at(store, path)
    known = layout.places(directory, store)
    if known:
        return list(known)
    return [place for child in directory.directories for place in places_below(store, layout, child)]


@dataclass(frozen=True, slots=True)
class Found:
    """One partition, and what a layout says of it."""

    place: PartitionPlace
    files: PartitionFiles

    @property
    def segments(self) -> list[Segment]:
        return sorted(self.files.segments, key=lambda one: (one.base_offset, one.version))

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]


def found_below(store: ObjectStore, layout: Layout) -> list[Found]:
    """Every partition of a store, by topic and number."""
    places = sorted(places_below(store, layout), key=lambda place: place.partition.order)
    return [Found(place, layout.find(store, place)) for place in places]


def stored_in(store: ObjectStore, name: str | None) -> bytes | None:
    """All bytes of a plain file."""
    if name is None:
        return None
    buffer = bytearray(store.size(name))
    store.read_into(name, 0, memoryview(buffer))
    return bytes(buffer)


def three_segments(base_offset: int = 100) -> list[SegmentBuilder]:
    """Segments with indexes, an aborted and an open transaction, and two leaders: 100, 143 and 185."""
    first = SegmentBuilder(base_offset, index_interval_bytes=200)
    for value in range(20):
        first.batch([b"%d" % value, b"x" * 40])
    first.batch([b"a"], producer_id=7, transactional=True).batch([b"b"]).marker(7, abort=True)
    second = first.roll().new_leader(3)
    for value in range(20):
        second.batch([b"%d" % value, b"y" * 40])
    second.batch([b"c"], producer_id=8, transactional=True).batch([b"d"])
    third = second.roll().batch([b"e", b"f"])
    return [first, second, third]
