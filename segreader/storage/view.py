"""A store seen through a layout: some of its names are files that are stored in another form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Protocol

from segreader.errors import ShortReadError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectInfo, ObjectStore, read_listed, replaced


class VirtualFile(Protocol):
    """A plain file that is made from the bytes of stored objects."""

    @property
    def size(self) -> int:
        """Bytes of the plain file."""

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        """Consecutive pieces of the range, which is within the file; each is valid until the next is asked for.

        Args:
            expected_tag: of the stored object that a log is made from.
        """


class StoreView(ABC):
    """A store whose names are those of another one, but for those that ``open`` explains.

    Subclasses say which; everything else goes to the store below. As any store it may be shared by threads.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.inner = store

    @abstractmethod
    def open(self, name: str) -> VirtualFile | None:
        """The file of this name; ``None`` if the store below knows the name itself.

        Raises:
            ObjectNotFoundError: it would be a file of this view, and is not there.
        """

    def url(self, name: str) -> str:
        """As the store below."""
        return self.inner.url(name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The stored objects, not the files of the view."""
        return self.inner.list(prefix)

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The stored objects, not the files of the view."""
        return self.inner.list_level(prefix)

    def size(self, name: str) -> int:
        """Bytes of the plain file."""
        file = self.open(name)
        return self.inner.size(name) if file is None else file.size

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for."""
        file = self.open(name)
        if file is None:
            return self.inner.read_ranges(name, ranges)
        out = []
        for wanted in ranges:
            self._require_inside(name, wanted, file.size)
            out.append(b"".join(bytes(piece) for piece in file.pieces(wanted)))  # a piece lives until the next
        return out

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on."""
        file = self.open(name)
        if file is None:
            self.inner.read_into(name, start, buffer)
        elif len(buffer):
            wanted = ByteRange(start, start + len(buffer))
            self._require_inside(name, wanted, file.size)
            done = 0
            for piece in file.pieces(wanted):
                buffer[done : done + len(piece)] = piece
                done += len(piece)

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces; a tag is that of the stored object."""
        file = self.open(name)
        if file is None:
            yield from read_listed(self.inner, name, wanted, size=expected_size, tag=expected_tag)
            return
        if expected_size is not None and file.size != expected_size:
            raise replaced(self.url(name), found=f"{file.size} bytes", expected=f"{expected_size} bytes")
        self._require_inside(name, wanted, file.size)
        yield from file.pieces(wanted, expected_tag=expected_tag)

    def close(self) -> None:
        """Close the store below."""
        self.inner.close()

    def _require_inside(self, name: str, wanted: ByteRange, size: int) -> None:
        if wanted.stop > size:
            raise ShortReadError(
                "the file ends before the range does",
                source=self.url(name),
                position=size,
                found=f"{max(0, size - wanted.start)} bytes",
                expected=f"{wanted.size} bytes from byte {wanted.start}",
                hint="List the location again",
            )
