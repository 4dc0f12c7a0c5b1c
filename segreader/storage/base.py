"""What a store is: named objects, their sizes, and ranges of their bytes. Nothing of Kafka."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from segreader.ranges import ByteRange


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object: its name in the store and its size in bytes; -1 where a listing does not tell.

    ``modified_ms`` is when the store says it was last written, where it says it. A name that ends in ``/`` is a
    directory (of ``list_level`` only).
    """

    name: str
    size: int
    modified_ms: int | None = None


class ObjectStore(Protocol):
    """Ranges to bytes. Stores hold no data between calls and may be shared by threads."""

    def url(self, name: str) -> str:
        """How the object is named to people: never with a credential or a query string."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins with ``prefix``, in order of name; a page at a time where there are pages."""

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories whose name begins with ``prefix`` and has no ``/`` after it but at its end.

        ``list_level("a/")`` gives what lies directly in ``a``; ``list_level("a/b-")`` what begins with ``b-`` there.
        In order of name within each page of the store.
        """

    def size(self, name: str) -> int:
        """Bytes of the object.

        Raises:
            ObjectNotFoundError: there is none of that name.
        """

    def read_ranges(self, name: str, ranges: Sequence[ByteRange]) -> Sequence[bytes]:
        """The bytes of each range, in the order asked for.

        Raises:
            ObjectNotFoundError, AccessDeniedError: as named.
            ShortReadError: the object ends inside a range.
        """

    def read_into(self, name: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``start`` on; raises as ``read_ranges``."""

    def read_pieces(
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces of the store's own size.

        A piece is valid until the next one is asked for. A store may fetch ahead; closing the generator ends that.

        Args:
            expected_size: bytes of the whole object as it was listed; another size means that it was replaced.

        Raises:
            as ``read_ranges``; ObjectChangedError: the object is not the one that was listed, or changes meanwhile.
        """

    def close(self) -> None:
        """Give back connections and threads; the store cannot be used afterwards."""
