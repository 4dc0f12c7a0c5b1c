"""Bytes that are at hand already, as a store: the records of Fetch answers, which readers take like any object."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from segreader.errors import ObjectNotFoundError, ShortReadError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo


class FetchedStore:
    """Names and memory. What was read is dropped: a frame's memory must not outlive its records.

    Args:
        shown: what people call the place that the bytes came from.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._held: dict[str, memoryview] = {}

    def put(self, name: str, data: memoryview) -> None:
        """Hold these bytes until ``drop``."""
        self._held[name] = data

    def drop(self, name: str) -> None:
        """Let go of them."""
        self._held.pop(name, None)

    def url(self, name: str) -> str:
        """The cluster and the name."""
        return f"{self._shown}/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """What is held."""
        return (ObjectInfo(name, len(self._held[name])) for name in sorted(self._held) if name.startswith(prefix))

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """What is held; there are no directories."""
        return self.list(prefix)

    def size(self, name: str) -> int:
        """Bytes held under this name."""
        return len(self._bytes(name))

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range."""
        return [bytes(self._part(name, wanted)) for wanted in ranges]

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        if len(buffer):
            buffer[:] = self._part(name, ByteRange(start, start + len(buffer)))

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The range in one piece, without a copy."""
        yield self._part(name, wanted)

    def close(self) -> None:
        """Let go of everything."""
        self._held.clear()

    def _bytes(self, name: str) -> memoryview:
        try:
            return self._held[name]
        except KeyError:
            raise ObjectNotFoundError("this answer was dropped", source=self.url(name)) from None

    def _part(self, name: str, wanted: ByteRange) -> memoryview:
        data = self._bytes(name)
        if wanted.stop > len(data):
            raise ShortReadError("the answer ends before the range does", source=self.url(name), position=len(data))
        return data[wanted.start : wanted.stop]
