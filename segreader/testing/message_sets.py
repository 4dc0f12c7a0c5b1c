"""Values into the bytes of the old formats, magic 0 and 1: single messages and compressed wrappers.

Source: ``LegacyRecord``, ``AbstractLegacyRecordBatch`` (4.0).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace

from segreader.format.batch import Record
from segreader.format.compression import Codec
from segreader.testing.compressors import JAVA_COMPRESSORS, Compressor, lz4_frame_with_old_checksum

_LOG_APPEND_TIME = 0x08


def encode_message(record: Record, magic: int, *, attributes: int = 0, crc: int | None = None) -> bytes:
    """One message with its offset and size. ``record.headers`` must be empty: the format has none.

    Args:
        attributes: codec in bits 0 to 2, append time in bit 3.
        crc: a false CRC-32; the right one when ``None``.
    """
    if record.headers:
        raise ValueError(f"magic {magic} has no headers")
    covered = struct.pack(">bb", magic, attributes)
    if magic > 0:
        covered += struct.pack(">q", record.timestamp_ms)
    for data in (record.key, record.value):
        covered += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    found = zlib.crc32(covered) if crc is None else crc
    return struct.pack(">qiI", record.offset, len(covered) + 4, found) + covered


def encode_message_set(
    records: Sequence[Record],
    magic: int,
    *,
    codec: int = Codec.NONE,
    compressor: Compressor | None = None,
    log_append_time_ms: int | None = None,
    wrapper_offset: int | None = None,
    crc: int | None = None,
) -> list[bytes]:
    """The entries of the log that hold ``records``: one for each record, or one wrapper when compressed.

    Args:
        records: with absolute offsets; at least one.
        compressor: how a wrapper's value is compressed; as Java's producer does it, unless given (for LZ4 in
            magic 0 that is the frame with the old header checksum).
        log_append_time_ms: magic 1 only: the broker's clock.
        wrapper_offset: offset field of the wrapper: the last offset, unless given.
        crc: a false CRC-32 for the last entry.
    """
    flag = 0 if log_append_time_ms is None else _LOG_APPEND_TIME
    if codec == Codec.NONE:
        stamped = [
            record if log_append_time_ms is None else replace(record, timestamp_ms=log_append_time_ms)
            for record in records
        ]
        return [
            encode_message(record, magic, attributes=flag, crc=crc if record is stamped[-1] else None)
            for record in stamped
        ]
    first = records[0].offset if magic > 0 else 0
    inner = b"".join(encode_message(replace(record, offset=record.offset - first), magic) for record in records)
    if compressor is None:
        broken = magic == 0 and codec == Codec.LZ4
        compressor = lz4_frame_with_old_checksum if broken else JAVA_COMPRESSORS[codec]
    wrapper = replace(
        records[-1],
        offset=records[-1].offset if wrapper_offset is None else wrapper_offset,
        timestamp_ms=max(record.timestamp_ms for record in records)
        if log_append_time_ms is None
        else log_append_time_ms,
        key=None,
        value=compressor(inner),
    )
    return [encode_message(wrapper, magic, attributes=codec | flag, crc=crc)]
