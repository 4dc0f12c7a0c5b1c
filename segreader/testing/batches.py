"""Values into the bytes of magic 2 batches: the encoder that the library itself does not need.

Written apart from ``segreader.format`` on purpose, so that a mistake there is not repeated here.
Source: KIP-98; ``DefaultRecordBatch``, ``DefaultRecord`` (4.0).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from segreader.format.batch import Record
from segreader.format.compression import Codec
from segreader.testing.compressors import JAVA_COMPRESSORS, Compressor
from segreader.values import dataclass

ABORT, COMMIT = 0, 1
"""Types of the control records that end a transaction. Source: ``ControlRecordType`` (4.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lies:
    """Fields of a batch to set to false values; ``None`` keeps the true value.

    The CRC is computed over the false values, so that readers find these and not a CRC error, unless ``crc`` is one of
    them. ``body`` replaces the encoded records (before compression), for records that no encoder would write.
    """

    batch_length: int | None = None
    magic: int | None = None
    crc: int | None = None
    attributes: int | None = None
    last_offset_delta: int | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    record_count: int | None = None
    body: bytes | None = None


TRUTH = Lies()


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int = 0,
    codec: int = Codec.NONE,
    compressor: Compressor | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    lies: Lies = TRUTH,
) -> bytes:
    """One magic 2 batch.

    Args:
        records: with absolute offsets and the times that producers gave; none makes a retained empty batch.
        base_offset, last_offset: what the batch covers, which may be more than its records (compaction).
        compressor: how the records are compressed; as Java's producer does it, unless given.
        log_append_time_ms: the broker's clock; the deltas keep the records' own times, as on a broker.
        delete_horizon_ms: replaces the base timestamp.
        max_timestamp_ms: for empty batches, which keep the time of the records they had.
    """
    times = [record.timestamp_ms for record in records]
    base_timestamp = times[0] if times else -1
    max_timestamp = max(times, default=-1) if max_timestamp_ms is None else max_timestamp_ms
    attributes = codec | transactional << 4 | control << 5
    if log_append_time_ms is not None:
        attributes |= 0x08
        max_timestamp = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= 0x40
        base_timestamp = delete_horizon_ms
    body = b"".join(encode_record(record, base_offset, base_timestamp) for record in records)
    if lies.body is not None:
        body = lies.body
    if body:
        body = (compressor or JAVA_COMPRESSORS[codec])(body)
    covered = (
        struct.pack(
            ">hiqqqhii",
            _first(lies.attributes, attributes),
            _first(lies.last_offset_delta, last_offset - base_offset),
            _first(lies.base_timestamp, base_timestamp),
            _first(lies.max_timestamp, max_timestamp),
            producer_id,
            producer_epoch,
            base_sequence,
            _first(lies.record_count, len(records)),
        )
        + body
    )
    uncovered = struct.pack(
        ">qiibI",
        base_offset,
        _first(lies.batch_length, len(covered) + 9),
        leader_epoch,
        _first(lies.magic, 2),
        _first(lies.crc, crc32c(covered)),
    )
    return uncovered + covered


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record of a magic 2 batch, its length first.

    Header keys may hold lone surrogates (``surrogateescape``) for bytes that are not UTF-8.
    """
    parts = [
        b"\0",
        encode_varint(record.timestamp_ms - base_timestamp),
        encode_varint(record.offset - base_offset),
        _nullable(record.key),
        _nullable(record.value),
        encode_varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += [_nullable(name.encode("utf-8", "surrogateescape")), _nullable(value)]
    content = b"".join(parts)
    return encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """A zigzag varint of any width. Source: ``ByteUtils.writeVarlong`` (4.0)."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def control_key(control_type: int) -> bytes:
    """Key of a control record, version 0."""
    return struct.pack(">hh", 0, control_type)


def end_marker_value(coordinator_epoch: int) -> bytes:
    """Value of an ABORT or COMMIT record, version 0."""
    return struct.pack(">hi", 0, coordinator_epoch)


def _nullable(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _first(lie: int | None, truth: int) -> int:
    return truth if lie is None else lie
