"""Redpanda's batches: Kafka's records behind a header of its own, and its own offsets, in which Kafka's are hidden.

A log of Redpanda also holds batches that only Redpanda reads. Some kinds take no offset of Kafka's, so the two offsets
drift apart; the others leave gaps. Size and CRC of a data batch are those of Kafka's batch: with another header before
it the records section is Kafka's byte for byte. Byte table: docs/reference/layouts/redpanda.md.

Source: Redpanda 24.3 ``model/record``, ``record_batch_types``, ``remote_segment_batch_consumer``.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from segreader.errors import CorruptBatchError, TruncatedError
from segreader.format.batch import CONTROL_FLAG, HEADER_SIZE, LOG_OVERHEAD, MAX_BASE_OFFSET, TRANSACTIONAL_FLAG

RAFT_DATA: Final = 1
"""What clients wrote, and the markers of transactions: everything that a Kafka consumer may be given."""

_IN_CLOUD_TOPIC: Final = 36
_LAST_KNOWN_TYPE: Final = 42
_WITHOUT_OFFSET: Final = frozenset({2, 19, 23, 25, 34, 37, 38, 40})
"""Kinds that take no offset of Kafka's, up to Redpanda 25.3."""

_STORED: Final = struct.Struct("<IiqbIhiqqqhii")
_KAFKA: Final = struct.Struct(">qiibIhiqqqhii")
_OUTPUT_SIZE: Final = 1 << 20


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
