"""Stores for tests: objects in memory with a log of requests, and any store with faults of your choice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from hashlib import md5
from threading import Lock

from segreader.errors import ObjectChangedError, ObjectNotFoundError, ShortReadError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore, level_of


class MemoryStore:
    """An ``ObjectStore`` of names and their bytes, which records every request.

    Args:
        objects: name -> bytes.
        modified_ms: when an object was written, for those where the store tells.
        tells_sizes: whether listings say how large objects are.
        tells_tags: whether listings have tags as S3 makes them, and reads hold objects against them.

    ``requests`` are what was asked, in the order in which it came: ``LIST a/``, ``LEVEL a/``, ``SIZE a``,
    ``GET a bytes=0-60``.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes],
        modified_ms: Mapping[str, int] | None = None,
        *,
        tells_sizes: bool = True,
        tells_tags: bool = False,
    ) -> None:
        self.objects = dict(objects)
        self.modified_ms = dict(modified_ms or {})
        self.tells_sizes = tells_sizes
        self.tells_tags = tells_tags
        self.requests: list[str] = []
        self._lock = Lock()

    def url(self, name: str) -> str:
        return f"memory://bucket/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._note(f"LIST {prefix}")
        return self._listed(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._note(f"LEVEL {prefix}")
        return level_of(self._listed(prefix), prefix)

    def size(self, name: str) -> int:
        self._note(f"SIZE {name}")
        return len(self._bytes(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        return [self._read(name, wanted) for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        if len(buffer):
            buffer[:] = self._read(name, ByteRange(start, start + len(buffer)))

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        if expected_size not in (None, len(self._bytes(name))):
            raise ObjectChangedError("replaced", source=self.url(name))
        if self.tells_tags and expected_tag not in (None, found := self._tag(name)):
            raise ObjectChangedError("replaced", source=self.url(name), found=found, expected=expected_tag)
        data = memoryview(self._read(name, wanted))
        half = (len(data) + 1) // 2
        yield from (piece for piece in (data[:half], data[half:]) if piece)

    def has_tag(self, name: str, tag: str) -> bool:
        return self.tells_tags and tag == self._tag(name)

    def close(self) -> None:
        pass

    def _read(self, name: str, wanted: ByteRange) -> bytes:
        self._note(f"GET {name} {wanted.http_header()}")
        data = self._bytes(name)
        if wanted.stop > len(data):
            raise ShortReadError("the object ends before the range does", source=self.url(name))
        return data[wanted.start : wanted.stop]

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        for name in sorted(self.objects):
            if name.startswith(prefix):
                size = len(self.objects[name]) if self.tells_sizes else -1
                yield ObjectInfo(name, size, self.modified_ms.get(name), self._tag(name) if self.tells_tags else None)

    def _tag(self, name: str) -> str:
        return f"etag:{md5(self._bytes(name), usedforsecurity=False).hexdigest()}"

    def _bytes(self, name: str) -> bytes:
        try:
            return self.objects[name]
        except KeyError:
            raise ObjectNotFoundError("no such object", source=self.url(name)) from None

    def _note(self, request: str) -> None:
        with self._lock:
            self.requests.append(request)


class FaultyStore:
    """Another store, whose requests fail where a test wants it.

    Args:
        store: has the objects.
        fault: called with every request before it is made, written as ``MemoryStore.requests`` are. It raises what the
            reader is to get, waits, or does nothing.
    """

    def __init__(self, store: ObjectStore, fault: Callable[[str], None]) -> None:
        self._store, self._fault = store, fault

    def url(self, name: str) -> str:
        return self._store.url(name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._fault(f"LIST {prefix}")
        return self._store.list(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._fault(f"LEVEL {prefix}")
        return self._store.list_level(prefix)

    def size(self, name: str) -> int:
        self._fault(f"SIZE {name}")
        return self._store.size(name)

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        for wanted in ranges:
            self._fault(f"GET {name} {wanted.http_header()}")
        return self._store.read_ranges(name, ranges)

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        if len(buffer):
            self._fault(f"GET {name} {ByteRange(start, start + len(buffer)).http_header()}")
        self._store.read_into(name, start, buffer)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        self._fault(f"GET {name} {wanted.http_header()}")
        yield from self._store.read_pieces(name, wanted, expected_size=expected_size, expected_tag=expected_tag)

    def close(self) -> None:
        self._store.close()
