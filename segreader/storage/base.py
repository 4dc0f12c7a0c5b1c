"""Object stores: named objects, their sizes, and ranges of their bytes. Nothing of Kafka."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from segreader.errors import ObjectChangedError
from segreader.ranges import ByteRange

_LONGEST_TAG = 100


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object: its name in the store and its size in bytes; -1 where a listing has none.

    ``modified_ms`` is the store's time of the last write, where it has one. A name that ends in ``/`` is a
    directory (of ``list_level`` only). ``tag`` identifies this version of the object among those of the same name,
    where the listing has such a thing: ``etag:…``, ``generation:…``, or the time of the last change. It is no secret.
    """

    name: str
    size: int
    modified_ms: int | None = None
    tag: str | None = None


class ObjectStore(Protocol):
    """Ranges to bytes. Stores hold no data between calls and may be shared by threads."""

    def url(self, name: str) -> str:
        """The object's name for people: never with a credential or a query string."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose name begins with ``prefix``, in order of name; a page at a time where there are pages."""

    def list_level(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects and directories whose name begins with ``prefix`` and has no ``/`` after it but at its end.

        ``list_level("a/")`` gives what is directly in ``a``; ``list_level("a/b-")`` what begins with ``b-`` there.
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
        self, name: str, wanted: ByteRange, *, expected_size: int | None = None, expected_tag: str | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of one range in consecutive pieces of the store's own size.

        A piece is valid until the next one is asked for. A store may fetch ahead; closing the generator ends that.

        Args:
            expected_size: bytes of the whole object as it was listed; another size means that it was replaced.
            expected_tag: ``ObjectInfo.tag`` as it was listed; another version means that it was replaced.

        Raises:
            as ``read_ranges``; ObjectChangedError: the object is not the one that was listed, or changes meanwhile.
        """

    def close(self) -> None:
        """Give back connections and threads; the store cannot be used afterwards."""


def read_listed(
    store: ObjectStore, name: str, wanted: ByteRange, *, size: int | None, tag: str | None
) -> Generator[memoryview, None, None]:
    """``store.read_pieces`` of an object as it was listed. A store that lists no tags is not given any."""
    if tag is None:
        return store.read_pieces(name, wanted, expected_size=size)
    return store.read_pieces(name, wanted, expected_size=size, expected_tag=tag)


def tag_of(kind: str, value: object) -> str | None:
    """``kind:value`` as ``ObjectInfo.tag`` has it; ``None`` for an empty value.

    An ETag loses its quotes and the mark of weak ones: Azure lists tags without quotes and answers with them.
    """
    text = str(value or "")
    if kind == "etag":
        text = text.strip().removeprefix("W/").strip('"')
    return f"{kind}:{text[:_LONGEST_TAG]}" if text else None


def find_listed(listed: Iterable[ObjectInfo], name: str, tag: str) -> ObjectInfo | None:
    """The object, if a listing still gives it this tag.

    Call it when an answer lacks the tag that was listed: some stores list other tags than they answer with, and only
    a listing that has changed as well proves that the object was replaced.
    """
    return next((info for info in listed if info.name == name and info.tag == tag), None)


def replaced(source: str, *, found: object, expected: object) -> ObjectChangedError:
    """The error for an object that is not the one that was listed."""
    return ObjectChangedError(
        "the object is not the one that was listed",
        source=source,
        found=found,
        expected=expected,
        hint="It was replaced since it was planned, as by another upload or by compaction: plan again",
    )


def level_of(listed: Iterable[ObjectInfo], prefix: str) -> Iterator[ObjectInfo]:
    """Objects and directories of ``list_level(prefix)``, from every object that begins with the prefix.

    Args:
        listed: objects in order of name, all of which begin with ``prefix``; they may be directories.
        prefix: of the level: ``"a/"``, or ``"a/b-"`` for a part of it.
    """
    last, begins = None, len(prefix)
    for info in listed:
        slash = info.name.find("/", begins)
        if slash < 0:
            yield info
        elif (directory := info.name[: slash + 1]) != last:
            last = directory
            yield ObjectInfo(directory, -1)
