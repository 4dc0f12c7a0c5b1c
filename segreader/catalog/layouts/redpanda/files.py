"""A store of Redpanda's objects, seen as plain Kafka files.

The names hold all that reading needs: ``<key of the segment>@<bytes>@<delta>.<kind>``, where the key has the term and
the delta is how far Kafka's offsets are behind at the segment's start. There are three kinds: ``log``; ``txnindex``,
made of the list of aborted transactions and of the batches; and ``snapshot``, which states that no transaction is open,
for Redpanda uploads nothing that is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from segreader.catalog.layouts.redpanda.batches import RedpandaSegment, StoredBatch, iter_batches, to_kafka
from segreader.catalog.layouts.redpanda.transactions import (
    aborted_in_segment,
    encode_entries,
    parse_transaction_ranges,
)
from segreader.errors import FormatError, ManifestError
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore
from segreader.storage.view import StoreView, VirtualFile

FILE: Final = re.compile(
    r"(?P<key>(?:.*/)?(?P<base>\d{1,19})-(?:(?P<last>\d{1,19})-\d{1,19}-)?(?P<term>\d{1,19})-v1\.log(?:\.\d{1,19})?)"
    r"@(?P<size>\d{1,19})@(?P<delta>\d{1,19})\.(?P<kind>log|txnindex|snapshot)",
    re.ASCII | re.DOTALL,
)
_NOTHING_OPEN: Final = bytes.fromhex("0001 48674bc7 00000000")
"""A producer snapshot without an entry: version 1, the CRC-32C of the count, the count."""

_ZEROS: Final = bytes(1 << 16)
_MAX_LIST: Final = 64 << 20
_MAX_TERM: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The parts of a virtual file's name; ``key`` names the stored object."""

    key: str
    term: int
    stored: RedpandaSegment

    def file(self, kind: str) -> str:
        """Name of the ``log``, ``txnindex`` or ``snapshot``."""
        return f"{self.key}@{self.stored.size}@{self.stored.delta}.{kind}"


def parse_name(name: str) -> tuple[SegmentName, str] | None:
    """The segment and the kind of file that a name means; ``None`` if it is no name of this view."""
    match = FILE.fullmatch(name)
    if match is None or int(match["term"]) > _MAX_TERM:
        return None
    last = None if match["last"] is None else int(match["last"])
    stored = RedpandaSegment(int(match["size"]), int(match["base"]), int(match["delta"]), last)
    return SegmentName(match["key"], int(match["term"]), stored), match["kind"]


class RedpandaFiles(StoreView):
    """The view. It remembers the last transaction index it made: its size is asked for before its bytes."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._made: tuple[str, bytes] = ("", b"")

    def open(self, name: str) -> VirtualFile | None:
        """The file of this name."""
        parsed = parse_name(name)
        if parsed is None:
            return None
        segment, kind = parsed
        if kind == "log":
            return _VisibleLog(self.inner, segment)
        if kind == "snapshot":
            return _Bytes(_NOTHING_OPEN)
        made = self._made
        if made[0] != name:
            made = self._made = (name, _make_transaction_index(self.inner, segment))
        return _Bytes(made[1])

    def url(self, name: str) -> str:
        """How people find the stored object: virtual files have no place of their own."""
        parsed = parse_name(name)
        return self.inner.url(name if parsed is None else parsed[0].key)


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        yield memoryview(self.data)[wanted.start : wanted.stop]


@dataclass(frozen=True, slots=True)
class _VisibleLog:
    """The batches that a Kafka consumer may see, then zeros up to the stored size. Every read begins at the start."""

    store: ObjectStore
    segment: SegmentName

    @property
    def size(self) -> int:
        return self.segment.stored.size

    def pieces(self, wanted: ByteRange, *, expected_tag: str | None = None) -> Generator[memoryview, None, None]:
        position = 0
        with (
            closing(_stored_pieces(self.store, self.segment)) as stored,
            closing(to_kafka(stored, self.segment.stored, self.segment.term)) as converted,
        ):
            try:
                for piece in converted:
                    part = piece[max(0, wanted.start - position) : max(0, wanted.stop - position)]
                    position += len(piece)
                    if len(part):
                        yield part
                    if position >= wanted.stop:
                        return
            except FormatError as error:
                raise error.located(source=self.store.url(self.segment.key)) from error
        position = max(position, wanted.start)
        while position < wanted.stop:
            zeros = memoryview(_ZEROS)[: wanted.stop - position]
            yield zeros
            position += len(zeros)


def _stored_pieces(store: ObjectStore, segment: SegmentName) -> Generator[memoryview, None, None]:
    size = segment.stored.size
    if size:
        yield from store.read_pieces(segment.key, ByteRange(0, size), expected_size=size)


def _make_transaction_index(store: ObjectStore, segment: SegmentName) -> bytes:
    """Kafka's index for the batches of a segment. Reads the whole segment if transactions in it were aborted.

    Raises:
        ObjectNotFoundError: there is no list of aborted transactions beside it.
        ManifestError: the list contradicts itself.
    """
    name = segment.key + ".tx"
    size = store.size(name)
    if size > _MAX_LIST:
        raise ManifestError(
            "a list of aborted transactions is too large",
            source=store.url(name),
            found=f"{size} bytes",
            expected=f"at most {_MAX_LIST}",
        )
    data = store.read_ranges(name, [ByteRange(0, size)])[0] if size else b""
    ranges = parse_transaction_ranges(data, source=store.url(name))
    if not ranges:
        return b""
    with closing(_stored_pieces(store, segment)) as stored:
        try:
            return encode_entries(aborted_in_segment(_until_damage(stored, segment), ranges))
        except ManifestError as error:
            raise error.located(source=store.url(name)) from error


def _until_damage(pieces: Iterator[memoryview], segment: SegmentName) -> Iterator[StoredBatch | memoryview]:
    """The batches before the first damage: those behind it cannot be read, and reading the log raises."""
    try:
        yield from iter_batches(pieces, segment.stored)
    except FormatError:
        return
