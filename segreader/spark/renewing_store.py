"""A store whose credentials may run out: it is opened again with others, and goes on where it stood."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from threading import Lock
from typing import TypeVar

from segreader.errors import AccessDeniedError, LocationExpiredError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore, read_listed

_Result = TypeVar("_Result")
_REFUSED = (AccessDeniedError, LocationExpiredError)


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
