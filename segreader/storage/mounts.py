"""Several stores as one: each has its names under a prefix of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from heapq import merge
from operator import attrgetter

from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore, read_listed


class MountedStores:
    """Several stores as one, each under a prefix of names; closing it closes them all.

    Args:
        mounts: the stores by prefix. A name goes, without the prefix, to the store of the longest one that it begins
            with; the one of ``""`` has all others, and what it has under another one's prefix is not seen.

    Raises:
        ValueError: no store is mounted at ``""``.
    """

    def __init__(self, mounts: Mapping[str, ObjectStore]) -> None:
        if "" not in mounts:
            raise ValueError("one store must be mounted at the empty prefix")
        self._mounts = dict(sorted(mounts.items(), key=lambda mount: -len(mount[0])))

    def __repr__(self) -> str:
        return f"MountedStores({self._mounts!r})"

    @property
    def inner(self) -> ObjectStore:
        """The store of all names that are under no other one's prefix."""
        return self._mounts[""]

    def url(self, name: str) -> str:
        """The URL that the object's own store gives."""
        store, inner = self._find(name)
        return store.url(inner)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects of all stores whose names begin so, in order of name."""
        return merge(
            *(self._named(mount, store.list(prefix[len(mount) :])) for mount, store in self._under(prefix)),
            key=attrgetter("name"),
        )

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories of one level; a prefix with ``/`` is a directory there, whatever its store holds."""
        directories: set[str] = set()
        levels = []
        for mount, store in self._under(prefix):
            name, is_below, _ = mount[len(prefix) :].partition("/")
            if is_below:
                directories.add(f"{prefix}{name}/")
            else:
                levels.append(self._named(mount, store.list_level(prefix[len(mount) :])))
        mounted = [ObjectInfo(name, -1) for name in sorted(directories)]
        others = ((info for info in level if info.name not in directories) for level in levels)
        return merge(mounted, *others, key=attrgetter("name"))

    def size(self, name: str) -> int:
        """Bytes of the object."""
        store, inner = self._find(name)
        return store.size(inner)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        store, inner = self._find(name)
        return store.read_ranges(inner, ranges)

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        store, inner = self._find(name)
        store.read_into(inner, start, buffer)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces."""
        store, inner = self._find(name)
        return read_listed(store, inner, wanted, size=expected_size, tag=expected_tag)

    def close(self) -> None:
        """Close every store, also where one of them fails."""
        with ExitStack() as stack:
            for store in self._mounts.values():
                stack.callback(store.close)

    def _find(self, name: str) -> tuple[ObjectStore, str]:
        mount = next(mount for mount in self._mounts if name.startswith(mount))
        return self._mounts[mount], name[len(mount) :]

    def _under(self, prefix: str) -> Iterator[tuple[str, ObjectStore]]:
        """The stores that may have a name that begins so."""
        for mount, store in self._mounts.items():
            if mount.startswith(prefix) or prefix.startswith(mount):
                yield mount, store
            if prefix.startswith(mount):
                return  # every such name is this one's, or of a longer prefix

    def _named(self, mount: str, listed: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        """What a store lists, by its names here; without what another store hides."""
        longer = tuple(other for other in self._mounts if len(other) > len(mount) and other.startswith(mount))
        for info in listed:
            name = mount + info.name
            if not (longer and name.startswith(longer)):
                yield replace(info, name=name)
