"""A record batch (magic 2): its header of 61 bytes, its checksum, its header keys, and one record as values.

Byte table: docs/reference/formats.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, cast

from segreader.errors import CorruptBatchError, TruncatedError, UnsupportedMagicError
from segreader.values import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Who set a record's time. Source: ``org.apache.kafka.common.record.TimestampType`` (4.0)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def java_name(self) -> str:
        """The name that Kafka's tools and consumers print."""
        return _JAVA_NAMES[self]


_JAVA_NAMES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of any message format.

    A null key or value is ``None``, an empty one ``b""``. ``headers`` keep order and repeats; keys are decoded as
    UTF-8 with replacement, as the Java client does. ``timestamp_ms`` is -1 where the format has no time (magic 0).
    """

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


HEADER_SIZE = 61
"""Bytes of a magic 2 header; what follows is the records section."""

LOG_OVERHEAD = 12
"""Bytes of offset and size, which the size field does not count (every magic)."""

COMMON_SIZE = 17
"""Bytes that have the same place in every magic: offset, size, epoch or CRC, magic."""

CRC_START = 21
"""First byte under the CRC-32C of a magic 2 batch."""

MINIMUM_SIZE = {0: 14, 1: 22, 2: 49}
"""Smallest legal size field for each magic. Source: ``Records``, ``LegacyRecord``, ``DefaultRecordBatch`` (4.0)."""

MAX_BASE_OFFSET = (1 << 63) - 1 - (1 << 31)
"""Largest base offset at which no record's offset can leave int64."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_Checksum = Callable[..., int]
_REPLACEMENT = "\ufffd"
HEADER = struct.Struct(">qiibIhiqqqhii")
_COMMON = struct.Struct(">qiib")


@dataclass(frozen=True, slots=True)
class RecordBatchHeader:
    """The header of one magic 2 batch, every field as it is on the wire.

    Units: offsets in records, ``batch_length`` in bytes after that field, times in ms since 1970 UTC.
    Source: KIP-98; ``DefaultRecordBatch`` (4.0).
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch was written with (compaction may have removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where a reader goes on: never "last record seen + 1"."""
        return self.last_offset + 1

    @property
    def codec(self) -> int:
        """Codec id 0..7; 5 to 7 name no codec."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether records carry their own times or all take ``max_timestamp``."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (its marker does, too)."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which no consumer is given."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop tombstones; then ``base_timestamp`` is no record's time."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; wraps from 2**31-1 to 0, and -1 stays -1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_batch_header(data: bytes | bytearray | memoryview, position: int = 0) -> RecordBatchHeader:
    """Decode the 61-byte header of the batch that starts at ``position``.

    Args:
        data: any part of a segment.
        position: first byte of the batch within ``data``.

    Raises:
        TruncatedError: fewer than 61 bytes remain after ``position``.
        UnsupportedMagicError: the magic byte is not 2.
        CorruptBatchError: the size field is below 49, or the base offset is impossible.

    Source: KIP-98; ``DefaultRecordBatch`` (4.0).
    """
    if (left := len(data) - position) < HEADER_SIZE:
        raise TruncatedError(
            "a batch header is cut",
            found=f"{max(left, 0)} bytes",
            expected=f"{HEADER_SIZE} bytes",
            position=position,
        )
    header = RecordBatchHeader(*HEADER.unpack_from(data, position))
    if header.magic != 2:
        raise UnsupportedMagicError(
            "not a magic 2 batch", found=f"magic {header.magic}", expected="magic 2", position=position + 16
        )
    check_common(data, position)
    return header


def check_common(
    data: bytes | bytearray | memoryview, position: int, *, shift: int = 0, max_size: int = 0x7FFFFFFF
) -> tuple[int, int, int]:
    """The offset, whole size and magic of the batch at ``position``, once they are possible.

    Args:
        data: at least 17 bytes from ``position`` on.
        shift: added to positions in errors (where ``data`` begins in its segment).
        max_size: largest whole batch the caller will hold, in bytes.

    Raises:
        CorruptBatchError: size or offset are impossible. UnsupportedMagicError: magic is not 0, 1 or 2.
    """
    offset, size, _, magic = _COMMON.unpack_from(data, position)
    at = shift + position
    if size < MINIMUM_SIZE[0]:
        raise CorruptBatchError(
            "a batch has an impossible size",
            found=f"size {size}",
            expected=f"at least {MINIMUM_SIZE[0]}",
            position=at + 8,
            base_offset=offset,
            hint="What follows cannot be located: a batch's size is the only way to the next one",
        )
    if magic not in MINIMUM_SIZE:
        raise UnsupportedMagicError(
            "a batch has an unknown format version",
            found=f"magic {magic}",
            expected="magic 0, 1 or 2",
            position=at + 16,
            base_offset=offset,
        )
    if size < MINIMUM_SIZE[magic]:
        raise CorruptBatchError(
            f"a magic {magic} batch is smaller than its header",
            found=f"size {size}",
            expected=f"at least {MINIMUM_SIZE[magic]}",
            position=at + 8,
            base_offset=offset,
        )
    if not 0 <= offset <= MAX_BASE_OFFSET:
        raise CorruptBatchError(
            "a batch has an impossible offset",
            found=offset,
            expected=f"0 to {MAX_BASE_OFFSET}: from there on the offset of a record could pass 2^63 - 1",
            position=at,
            base_offset=offset,
        )
    if size + LOG_OVERHEAD > max_size:
        raise CorruptBatchError(
            "a batch is larger than the limit allows",
            found=f"{size + LOG_OVERHEAD} bytes",
            expected=f"at most {max_size} bytes",
            position=at + 8,
            base_offset=offset,
            hint="Raise the limit if a batch of this size is real",
        )
    return offset, size + LOG_OVERHEAD, magic


def decode_java_utf8(data: bytes) -> str:
    """The text that Java's ``new String(bytes, UTF_8)`` makes of a header key.

    Java and Python agree on valid text and differ in how many U+FFFD a broken sequence becomes: Java gives one for a
    whole surrogate (``ED A0 80``) where Python gives three. A header key must equal what the Java consumer shows.
    Source: ``java.lang.String`` (OpenJDK 17), its UTF-8 decoder with replacement.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _decode_with_replacement(data)


def _decode_with_replacement(data: bytes) -> str:
    out: list[str] = []
    at = 0
    while at < len(data):
        size = _broken_length(data, at)
        if size == 0:
            size = 1 if data[at] < 0x80 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
            out.append(data[at : at + size].decode("utf-8"))
        else:
            out.append(_REPLACEMENT)
        at += size
    return "".join(out)


def _broken_length(data: bytes, at: int) -> int:
    """How many bytes from ``at`` become one replacement; 0 if there is a whole character."""
    first = data[at]
    rest = data[at + 1 : at + 4]
    if first < 0x80:
        return 0
    if 0xC2 <= first <= 0xDF:
        return 0 if _continues(rest, 1) else 1
    if 0xE0 <= first <= 0xEF:
        if not _continues(rest, 1) or (first == 0xE0 and rest[0] < 0xA0):
            return 1
        if not _continues(rest, 2):
            return 2
        return 3 if first == 0xED and rest[0] >= 0xA0 else 0
    if 0xF0 <= first <= 0xF4:
        if not _continues(rest, 1) or (first == 0xF0 and rest[0] < 0x90) or (first == 0xF4 and rest[0] > 0x8F):
            return 1
        if not _continues(rest, 2):
            return 2
        return 0 if _continues(rest, 3) else 3
    return 1


def _continues(rest: bytes, count: int) -> bool:
    return len(rest) >= count and all(0x80 <= byte < 0xC0 for byte in rest[:count])


def _load_crc32c() -> _Checksum:
    """The function of the package's extension module, loaded by itself: what the package imports besides (its version's
    metadata, e-mail, argparse) takes 20 ms of CPU.
    """
    package = PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        from crc32c import crc32c as of_package

        return cast(_Checksum, of_package)
    module: Any = module_from_spec(found)
    found.loader.exec_module(module)
    return cast(_Checksum, module.crc32c)


crc32c = _load_crc32c()
"""The CRC-32C of some bytes, continued from that of the bytes before where it is given."""
