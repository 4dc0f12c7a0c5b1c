"""A store of Redpanda's objects, seen as plain Kafka files.

The names hold all that reading needs: ``<key of the segment>@<bytes>@<delta>.<kind>``, where the key has the term and
the delta is how far Kafka's offsets are behind at the segment's start. There are three kinds: ``log``; ``txnindex``,
made of the list of aborted transactions and of the batches; and ``snapshot``, which states that no transaction is open,
for Redpanda uploads nothing that is undecided.

A log of Redpanda holds Kafka's records behind a header of its own, and also batches that only Redpanda reads. Some
kinds take no offset of Kafka's, so the two offsets drift apart; the others leave gaps. Size and CRC of a data batch are
those of Kafka's batch: with another header before it the records section is Kafka's byte for byte.

Redpanda lists the aborted transactions that reach into a segment (``.tx``), from their first to their last batch, in
its own offsets. Kafka's index names the marker and belongs to the marker's segment. What is made here is in between: an
entry for each transaction *and segment*, which covers the batches in this one and ends at the marker, or at the last
batch if the marker is in a later segment. So each segment's entries decide all of its own batches.

Byte table: docs/reference/layouts/redpanda.md. Source: Redpanda 24.3 ``model/record``, ``record_batch_types``,
``remote_segment_batch_consumer``, ``tx_range_manifest``, ``producer_state::apply_transaction_end``; ``AbortedTxn``
(Kafka 4.0).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from segreader.catalog.layouts.redpanda.manifest import MAX_INT64, parse_json_object
from segreader.errors import CorruptBatchError, FormatError, ManifestError, TruncatedError
from segreader.format.batch import CONTROL_FLAG, HEADER_SIZE, LOG_OVERHEAD, MAX_BASE_OFFSET, TRANSACTIONAL_FLAG, crc32c
from segreader.format.index_files import AbortedTransaction
from segreader.ranges import ByteRange
from segreader.storage.base import ObjectStore, StoreView, VirtualFile, read_whole
from segreader.values import dataclass

FILE: Final = re.compile(
    r"(?=[^@]*@)"  # refuses the names of other layouts early
    r"(?P<key>(?:.*/)?(?P<base>\d{1,19})-(?:(?P<last>\d{1,19})-\d{1,19}-)?(?P<term>\d{1,19})-v1\.log(?:\.\d{1,19})?)"
    r"@(?P<size>\d{1,19})@(?P<delta>\d{1,19})\.(?P<kind>log|txnindex|snapshot)",
    re.ASCII | re.DOTALL,
)
_NOTHING_OPEN: Final = bytes.fromhex("0001 48674bc7 00000000")
"""A producer snapshot without an entry: version 1, the CRC-32C of the count, the count."""

_ZEROS: Final = bytes(1 << 16)
_MAX_LIST: Final = 64 << 20
MAX_TERM: Final = (1 << 31) - 1
RAFT_DATA: Final = 1
"""What clients wrote, and the markers of transactions: everything that a Kafka consumer may be given."""

_IN_CLOUD_TOPIC: Final = 36
_LAST_KNOWN_TYPE: Final = 42
_WITHOUT_OFFSET: Final = frozenset({2, 19, 23, 25, 34, 37, 38, 40})
"""Kinds that take no offset of Kafka's, up to Redpanda 25.3."""

_STORED: Final = struct.Struct("<IiqbIhiqqqhii")
_KAFKA: Final = struct.Struct(">qiibIhiqqqhii")
_OUTPUT_SIZE: Final = 1 << 20
_VERSION: Final = 1
_ENTRY: Final = struct.Struct(">hqqqq")


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
    if match is None or int(match["term"]) > MAX_TERM:
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
    ranges = parse_transaction_ranges(read_whole(store, name, size), source=store.url(name))
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


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The header of one stored batch.

    Args:
        position: of its first byte in the object.
        base_offset, kafka_offset: its first offset as Redpanda and as Kafka counts.
        fields: what follows the type: the CRC over the records, attributes and so on up to the record count.
    """

    position: int
    size: int
    base_offset: int
    kafka_offset: int
    type: int
    fields: tuple[int, ...]

    @property
    def last_offset_delta(self) -> int:
        """How far its last offset is from its first."""
        return self.fields[2]

    @property
    def last_offset(self) -> int:
        """Its last offset as Redpanda counts."""
        return self.base_offset + self.last_offset_delta

    @property
    def producer_id(self) -> int:
        """-1 where it has none."""
        return self.fields[5]

    @property
    def is_transactional_data(self) -> bool:
        """Whether it holds records of a transaction."""
        return self.type == RAFT_DATA and self.fields[1] & (CONTROL_FLAG | TRANSACTIONAL_FLAG) == TRANSACTIONAL_FLAG

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction."""
        return self.type == RAFT_DATA and bool(self.fields[1] & CONTROL_FLAG)

    def kafka_header(self, leader_epoch: int) -> bytes:
        """The 61 bytes with which it is a batch of Kafka's."""
        return _KAFKA.pack(self.kafka_offset, self.size - LOG_OVERHEAD, leader_epoch, 2, *self.fields)


@dataclass(frozen=True, slots=True)
class RedpandaSegment:
    """What must be known of a segment to read it.

    Args:
        size: bytes of the object.
        base_offset, last_offset: which offsets it may hold, as Redpanda counts; the last one where it is known.
        delta: how far Kafka's offsets are behind at ``base_offset``.
    """

    size: int
    base_offset: int
    delta: int
    last_offset: int | None = None


def iter_batches(pieces: Iterable[memoryview], segment: RedpandaSegment) -> Iterator[StoredBatch | memoryview]:
    """Every batch of a segment: its header, then its records section in one part or more.

    Args:
        pieces: the bytes of the object from its start, in pieces of any size, each valid until the next one.

    Raises:
        CorruptBatchError: a header fails its CRC or cannot be; the records before it have been given.
        TruncatedError: the object ends inside a batch.
    """
    held = bytearray()  # of a header that straddles pieces
    position, missing = 0, 0  # where the next header begins; bytes of the records section still to come
    delta, next_offset = segment.delta, segment.base_offset
    is_in_zeros = False
    for piece in pieces:
        at = 0
        if is_in_zeros:
            _require_zeros(piece, position)
            continue
        while at < len(piece):
            if missing:
                part = piece[at : at + missing]
                at += len(part)
                missing -= len(part)
                yield part
                continue
            if held or len(piece) - at < HEADER_SIZE:
                part = piece[at : at + HEADER_SIZE - len(held)]
                held += part
                at += len(part)
                if len(held) < HEADER_SIZE:
                    break
                raw = bytes(held)
                held.clear()
            else:
                raw = bytes(piece[at : at + HEADER_SIZE])
                at += HEADER_SIZE
            if not any(raw):  # a file that was not cut to its length before it was uploaded
                is_in_zeros = True
                _require_zeros(piece[at:], position)
                break
            batch = _parse(raw, position, segment, delta, next_offset)
            yield batch
            position, missing = position + batch.size, batch.size - HEADER_SIZE
            next_offset = batch.last_offset + 1
            if batch.type in _WITHOUT_OFFSET:
                delta += batch.last_offset_delta + 1
    if any(held):
        raise TruncatedError(
            "a segment ends inside a batch's header",
            position=position,
            found=f"{len(held)} bytes",
            expected=f"{HEADER_SIZE} bytes",
        )


def to_kafka(
    pieces: Iterable[memoryview], segment: RedpandaSegment, leader_epoch: int
) -> Generator[memoryview, None, None]:
    """The batches that a Kafka consumer may see, as Kafka stores them; shorter than the object by all others.

    Args:
        pieces: as for ``iter_batches``.
        leader_epoch: the segment's term.

    Raises:
        as ``iter_batches``, after everything before the damage.
    """
    out, is_data = bytearray(), False
    try:
        for item in iter_batches(pieces, segment):
            if isinstance(item, StoredBatch):
                is_data = item.type == RAFT_DATA
                if is_data:
                    out += item.kafka_header(leader_epoch)
            elif is_data:
                out += item
            if len(out) >= _OUTPUT_SIZE:
                yield memoryview(out)
                out = bytearray()
    except (CorruptBatchError, TruncatedError):
        if out:
            yield memoryview(out)
        raise
    if out:
        yield memoryview(out)


def _require_zeros(rest: memoryview, position: int) -> None:
    if bytes(rest).count(0) != len(rest):
        raise CorruptBatchError(
            "there are zeros between stored batches",
            found=f"zeros from byte {position} on, then other bytes",
            expected="a batch, or zeros to the end",
            position=position,
            hint="The object has a hole: read another copy of this segment",
        )


def _parse(raw: bytes, position: int, segment: RedpandaSegment, delta: int, next_offset: int) -> StoredBatch:
    """The batch that begins with these 61 bytes.

    Args:
        delta: how far Kafka's offsets are behind here.
        next_offset: no batch may begin below.
    """
    header_crc, size, base_offset, kind, *fields = _STORED.unpack(raw)
    if (computed := crc32c(raw[4:])) != header_crc:
        raise CorruptBatchError(
            "the header of a stored batch fails its CRC-32C",
            found=f"{computed:08x} computed over its bytes 4 to {HEADER_SIZE}",
            expected=f"{header_crc:08x}",
            position=position,
            hint="Read another copy of this segment",
        )
    batch = StoredBatch(position, size, base_offset, base_offset - delta, kind, tuple(fields))
    if size < HEADER_SIZE or fields[2] < 0:
        raise CorruptBatchError(
            "a stored batch has an impossible size or last offset",
            found=f"{size} bytes, last offset delta {fields[2]}",
            expected=f"at least {HEADER_SIZE} bytes and 0",
            position=position,
            base_offset=base_offset,
        )
    if position + size > segment.size:
        raise TruncatedError(
            "a segment ends inside a batch",
            position=position,
            base_offset=base_offset,
            found=f"{segment.size - position} bytes",
            expected=f"{size} bytes",
            hint="The object is cut: read another copy of this segment",
        )
    last = MAX_BASE_OFFSET if segment.last_offset is None else segment.last_offset
    if not next_offset <= base_offset <= batch.last_offset <= last or batch.kafka_offset < 0:
        raise CorruptBatchError(
            "a stored batch has offsets that cannot be here",
            found=f"Redpanda's offsets {base_offset} to {batch.last_offset}, {delta} before Kafka's",
            expected=f"offsets from {next_offset} to {last}",
            position=position,
            base_offset=base_offset,
            hint="The object's name or its manifest is wrong",
        )
    if kind == _IN_CLOUD_TOPIC or not 0 < kind <= _LAST_KNOWN_TYPE:
        raise CorruptBatchError(
            "a stored batch is of a kind that cannot be read",
            found=f"type {kind}",
            expected=f"type 1 to {_LAST_KNOWN_TYPE}, and not {_IN_CLOUD_TOPIC}: its records are in other objects",
            position=position,
            base_offset=base_offset,
            hint="Written by a newer Redpanda, or by a cloud topic: whether it takes offsets is not known",
        )
    return batch


@dataclass(frozen=True, slots=True, order=True)
class TransactionRange:
    """One aborted transaction, from its first to its last offset, as Redpanda counts; the marker comes later."""

    first_offset: int
    last_offset: int
    producer_id: int


@dataclass(slots=True)
class _Found:
    """Of one transaction in this segment, in Kafka's offsets: its batches, and its marker."""

    range: TransactionRange
    first: int = -1
    last: int = -1
    marker: int = -1


def parse_transaction_ranges(data: bytes, *, source: str | None = None) -> tuple[TransactionRange, ...]:
    """Read a ``.tx``; each transaction once, by first offset.

    Raises:
        ManifestError: it is no such list, or needs a newer reader.
    """
    fields = parse_json_object(data, source=source)
    if fields.get("version") != _VERSION or fields.get("compat_version") != _VERSION:
        raise ManifestError(
            "a list of aborted transactions has an unknown version",
            source=source,
            found=f"version {fields.get('version')!r}, readable from {fields.get('compat_version')!r} on",
            expected="version 1",
        )
    rows = fields.get("ranges") or []
    ranges: set[TransactionRange] = set()
    for row in rows if isinstance(rows, list) else [rows]:
        values = [row.get(name) for name in ("first", "last", "pid.id")] if isinstance(row, dict) else []
        numbers = [value for value in values if type(value) is int and 0 <= value <= MAX_INT64]
        if len(numbers) != 3 or numbers[0] > numbers[1]:
            raise ManifestError(
                "a list of aborted transactions holds an impossible one", source=source, found=repr(row)[:200]
            )
        ranges.add(TransactionRange(*numbers))
    return tuple(sorted(ranges))


def aborted_in_segment(
    batches: Iterable[StoredBatch | memoryview], ranges: Sequence[TransactionRange]
) -> list[AbortedTransaction]:
    """Kafka's entries for the batches of one segment, by rising last offset.

    Args:
        batches: all of the segment.
        ranges: what is listed beside it, by first offset.

    Raises:
        ManifestError: an entry for the only offset of a log, 0, would be needed: before it the transaction's begin
            must have taken one.
    """
    of_producer: dict[int, list[_Found]] = {}
    for one in ranges:
        of_producer.setdefault(one.producer_id, []).append(_Found(one))
    current = dict.fromkeys(of_producer, 0)
    last = 0
    for batch in batches:
        if isinstance(batch, StoredBatch) and batch.type == RAFT_DATA:
            last = batch.kafka_offset + batch.last_offset_delta
        if not isinstance(batch, StoredBatch) or (listed := of_producer.get(batch.producer_id)) is None:
            continue
        index = current[batch.producer_id]
        if batch.is_transactional_data:
            while index < len(listed) and listed[index].range.last_offset < batch.base_offset:
                index += 1
            current[batch.producer_id] = index
            if index < len(listed) and listed[index].range.first_offset <= batch.base_offset:
                found = listed[index]
                found.first = batch.kafka_offset if found.first < 0 else found.first
                found.last = batch.kafka_offset + batch.last_offset_delta
        elif batch.is_marker:
            while index < len(listed) and listed[index].range.last_offset < batch.base_offset:
                if listed[index].last >= 0:
                    listed[index].marker = batch.kafka_offset
                index += 1
            current[batch.producer_id] = index
    found_here = [one for listed in of_producer.values() for one in listed if one.last >= 0]
    if found_here and not last:
        raise ManifestError(
            "a transaction has records at offset 0, where its begin should be",
            found=found_here[0].range,
            hint="The list of aborted transactions is not that of this segment",
        )
    return _entries(found_here)


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The ``.txnindex`` with these entries. Source: ``AbortedTxn`` (4.0)."""
    return b"".join(
        _ENTRY.pack(0, one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset) for one in entries
    )


def _entries(found: list[_Found]) -> list[AbortedTransaction]:
    bounds = sorted((*_bounds(one), one.range.producer_id) for one in found)
    entries: list[AbortedTransaction] = []
    earliest_open = MAX_INT64
    for last, first, producer_id in reversed(bounds):
        entries.append(AbortedTransaction(producer_id, first, last, min(last + 1, earliest_open)))
        earliest_open = min(earliest_open, first)
    return entries[::-1]


def _bounds(one: _Found) -> tuple[int, int]:
    """Last and first offset of an entry, which must differ.

    The offset before a transaction's only offset here is no batch of another transaction of its producer: their
    markers are between them.
    """
    last = max(one.last, one.marker)
    if last > one.first:
        return last, one.first
    return (last, last - 1) if last else (1, 0)
