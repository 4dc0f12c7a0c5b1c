"""Message sets, the log before Kafka 0.11 (magic 0 and 1): one entry in, its records out.

An entry is one message, or a wrapper whose value is a compressed run of messages. Its offset field is the last
offset it holds: where a wrapper begins is known after decompression only. Byte tables: docs/reference/formats.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct

from isal import isal_zlib

from segreader.errors import (
    CorruptBatchError,
    CorruptRecordError,
    FormatError,
    LimitExceededError,
    TruncatedError,
    UnsupportedMagicError,
)
from segreader.format._columns import MAX_MICROSECONDS_MS, FullError, fits_timestamp, put_record
from segreader.format.batch import (
    CODEC_MASK,
    COMMON_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    Record,
    TimestampType,
    check_common,
)
from segreader.format.columns import ColumnBuffers, Outcome, State, Table
from segreader.format.compression import Decompressor
from segreader.values import dataclass

_CRC_START = 16
_TIMESTAMP_START = 18
_FIELDS_START = {0: 18, 1: 26}
_MAX_OFFSET = (1 << 63) - 1
_RECORD_COST = 256  # bytes that a record takes beyond its key and value, as a Python object

_HEADER = Struct(">qiIbb").unpack_from
_OFFSET_AND_SIZE = Struct(">qi").unpack_from
_INT32 = Struct(">i").unpack_from
_INT64 = Struct(">q").unpack_from


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """The fields before key and value of one message, as they are on the wire.

    Units: ``offset`` in records, for a wrapper that of its last record; ``message_size`` in bytes after that
    field; ``timestamp_ms`` in ms since 1970 UTC, -1 in magic 0. Source: ``LegacyRecord`` (4.0).
    """

    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int

    @property
    def size(self) -> int:
        """Bytes of the whole entry, offset and size field included."""
        return self.message_size + LOG_OVERHEAD

    @property
    def codec(self) -> int:
        """Codec id 0..7; 0 is a plain message, 4 to 7 name no codec of this format."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the time; magic 0 has none."""
        return _timestamp_type(self.magic, self.attributes)


@dataclass(frozen=True, slots=True)
class Message:
    """One record and how it is stored: ``crc`` and ``magic`` are its own, not its wrapper's."""

    record: Record
    magic: int
    crc: int
    is_crc_valid: bool


def parse_message_header(data: bytes | bytearray | memoryview, position: int = 0) -> MessageHeader:
    """Decode the header of the message or wrapper that starts at ``position``.

    Args:
        data: any part of a segment.
        position: first byte of the entry within ``data``.

    Raises:
        TruncatedError: too few bytes remain after ``position``.
        UnsupportedMagicError: the magic byte is not 0 or 1.
        CorruptBatchError: size or offset are impossible.

    Source: ``LegacyRecord`` (4.0).
    """
    left = len(data) - position
    magic = data[position + COMMON_SIZE - 1] if left >= COMMON_SIZE else 0
    if magic not in _FIELDS_START:
        raise UnsupportedMagicError(
            "not a message of the old formats",
            found=f"magic {magic}",
            expected="magic 0 or 1",
            position=position + COMMON_SIZE - 1,
        )
    if left < _FIELDS_START[magic]:
        raise TruncatedError(
            "a message header is cut",
            found=f"{max(left, 0)} bytes",
            expected=f"{_FIELDS_START[magic]} bytes",
            position=position,
        )
    check_common(data, position)
    offset, message_size, crc, magic, attributes = _HEADER(data, position)
    timestamp_ms = _INT64(data, position + _TIMESTAMP_START)[0] if magic else -1
    return MessageHeader(offset, message_size, crc, magic, attributes, timestamp_ms)


def parse_message_set_entry(
    data: bytes | bytearray | memoryview, decompressor: Decompressor, *, check_crcs: bool = True
) -> list[Record]:
    """The records of one entry: one if it is plain, those it wraps if it is compressed.

    Args:
        data: the entry's bytes, from its offset field to its end.
        decompressor: its limit bounds the inner bytes, and the records as Python holds them.
        check_crcs: whether the CRC-32 of the entry and of each inner message must be right.

    Returns:
        Records in the order they are stored, with copies of their keys and values.

    Raises:
        TruncatedError: the entry is longer than ``data``.
        UnsupportedMagicError: the magic byte of the entry or of an inner message is not 0 or 1.
        UnsupportedCodecError: the codec is zstd or unknown.
        CorruptBatchError: a CRC, a size or an offset is wrong; the inner bytes cannot be decompressed or hold
            no whole message.
        CorruptRecordError: a key or value runs past its message, or an inner message is compressed.
        LimitExceededError: the inner messages need more than the decompressor's limit.

    Source: ``AbstractLegacyRecordBatch.DeepRecordsIterator`` (4.0).
    """
    return [message.record for message in iter_messages(data, decompressor, check_crcs=check_crcs)]


def iter_messages(
    data: bytes | bytearray | memoryview, decompressor: Decompressor, *, check_crcs: bool = False
) -> Iterator[Message]:
    """The records of one entry, each with its own checksum; see ``parse_message_set_entry``.

    The decompressor must do nothing else before the iterator is done.
    """
    entry = memoryview(data)
    header = parse_message_header(entry)
    try:
        if len(entry) != header.size:
            raise (TruncatedError if len(entry) < header.size else CorruptBatchError)(
                "an entry is not as long as its size says",
                found=f"{len(entry)} bytes",
                expected=f"{header.size} bytes",
                position=0,
            )
        if header.codec == 0:
            yield _parse_message(entry, 0, header.size, header.offset, None, check_crc=check_crcs)
            return
        body = _decompress(entry, header, decompressor, check_crc=check_crcs)
    except FormatError as damage:
        damage.located(base_offset=header.offset)
        raise
    try:
        first_offset = _first_offset(body, header, decompressor.limit)
        for inner_offset, start, stop in _inner_entries(body):
            yield _parse_message(body, start, stop, first_offset + inner_offset, header, check_crc=check_crcs)
    except FormatError as damage:
        if damage.position is not None:
            damage.message += f" (byte {damage.position} of the inner messages)"
            damage.position = 0
        damage.located(base_offset=header.offset)
        raise


def _decompress(entry: memoryview, header: MessageHeader, decompressor: Decompressor, *, check_crc: bool) -> memoryview:
    """The inner messages of a wrapper."""
    if check_crc and isal_zlib.crc32(entry[_CRC_START:]) != header.crc:
        raise _wrong_crc(entry, 0, header.size)
    _, value = _fields(entry, 0, header.size)
    if value is None:
        raise CorruptBatchError("a compressed message has no value", found="null", position=0)
    try:
        return decompressor.decompress(header.codec, entry[value], header.magic)
    except FormatError as damage:
        damage.located(position_shift=value.start)
        raise


def _inner_entries(body: memoryview) -> Iterator[tuple[int, int, int]]:
    """Offset, start and stop of each whole inner entry. A cut one at the end is dropped, as Java does."""
    start, end = 0, len(body)
    while start + LOG_OVERHEAD <= end:
        offset, size = _OFFSET_AND_SIZE(body, start)
        if size < MINIMUM_SIZE[0]:
            raise CorruptBatchError(
                "an inner message has an impossible size",
                found=f"size {size}",
                expected=f"at least {MINIMUM_SIZE[0]}",
                position=start + 8,
            )
        stop = start + LOG_OVERHEAD + size
        if stop > end:
            return
        yield offset, start, stop
        start = stop


def _first_offset(body: memoryview, header: MessageHeader, limit: int) -> int:
    """What to add to an inner offset. In magic 1 these are relative, and the wrapper has the last one's place.

    Older librdkafka wrote wrappers with offset 0: then there is nothing to add.
    """
    count = last_offset = 0
    for offset, _, stop in _inner_entries(body):
        last_offset = offset
        count += 1
        if stop + count * _RECORD_COST > limit:
            raise LimitExceededError(
                "the inner messages need too much memory as records",
                found=f"{count} messages in the first {stop} bytes of {len(body)}",
                expected=f"at most {limit} bytes, with {_RECORD_COST} more for each",
                hint="Raise the limit if this data can be trusted",
            )
    if not count:
        raise CorruptBatchError("a compressed message wraps no message", found=f"{len(body)} bytes inside")
    if header.magic == 0 or header.offset == 0:
        return 0
    if header.offset < last_offset:
        raise CorruptBatchError(
            "a wrapper's offset is lower than that of its last message",
            found=header.offset,
            expected=f"0, or at least {last_offset}",
        )
    return header.offset - last_offset


def _parse_message(
    data: memoryview, start: int, stop: int, offset: int, wrapper: MessageHeader | None, *, check_crc: bool
) -> Message:
    """The message at ``data[start:stop]``; 14 bytes or more follow its size field."""
    _, _, crc, magic, attributes = _HEADER(data, start)
    if magic not in _FIELDS_START:
        raise UnsupportedMagicError(
            "a message has an unknown format version",
            found=f"magic {magic}",
            expected="magic 0 or 1",
            position=start + COMMON_SIZE - 1,
        )
    is_crc_valid = isal_zlib.crc32(data[start + _CRC_START : stop]) == crc
    if check_crc and not is_crc_valid:
        raise _wrong_crc(data, start, stop)
    if wrapper is not None and attributes & CODEC_MASK:
        raise CorruptRecordError(
            "an inner message is itself compressed", found=f"attributes {attributes:#x}", position=start + 17
        )
    if not 0 <= offset <= _MAX_OFFSET:
        raise CorruptRecordError("a message has an impossible offset", found=offset, position=start)
    key, value = _fields(data, start, stop)
    timestamp_type, timestamp_ms = TimestampType.NO_TIMESTAMP_TYPE, -1
    if magic == 1:
        timestamp_type = _timestamp_type(magic, attributes) if wrapper is None else wrapper.timestamp_type
        if wrapper is not None and timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp_ms = wrapper.timestamp_ms
        else:
            (timestamp_ms,) = _INT64(data, start + _TIMESTAMP_START)
    record = Record(
        offset,
        timestamp_ms,
        timestamp_type,
        None if key is None else bytes(data[key]),
        None if value is None else bytes(data[value]),
    )
    return Message(record, magic, crc, is_crc_valid)


def _timestamp_type(magic: int, attributes: int) -> TimestampType:
    if magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    return TimestampType.LOG_APPEND_TIME if attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME


def _fields(data: memoryview, start: int, stop: int) -> tuple[slice | None, slice | None]:
    """The places of key and value in the message, ``None`` if null. Bytes behind the value are ignored, as in Java."""
    key, position = _field(data, start + _FIELDS_START[data[start + COMMON_SIZE - 1]], stop)
    value, _ = _field(data, position, stop)
    return key, value


def _field(data: memoryview, position: int, stop: int) -> tuple[slice | None, int]:
    """The place of the field whose length is at ``position``, and its end."""
    left = stop - position - 4
    if left < 0:
        raise CorruptRecordError(
            "a message ends before its key and value", found=f"{left + 4} bytes left", position=position
        )
    (length,) = _INT32(data, position)
    if length < 0:
        return None, position + 4
    if length > left:
        raise CorruptRecordError(
            "a key or value runs past its message",
            found=f"length {length}",
            expected=f"at most {left}",
            position=position,
        )
    return slice(position + 4, position + 4 + length), position + 4 + length


def _wrong_crc(data: memoryview, start: int, stop: int) -> CorruptBatchError:
    computed = isal_zlib.crc32(data[start + _CRC_START : stop])
    (_, _, stored, _, _) = _HEADER(data, start)
    return CorruptBatchError(
        "a message fails its CRC-32",
        found=f"{computed:08x} computed over bytes {_CRC_START} to its end",
        expected=f"{stored:08x} as its header says",
        position=start,
    )


def append_records(columns: ColumnBuffers, records: Sequence[Record], batch: array[int]) -> Outcome:
    """Write the last ``State.RECORDS_LEFT`` of ``records`` into ``columns``.

    Args:
        batch: the row of the batch table they come from.

    Returns:
        ``DONE``; or ``FULL`` or ``GROW``, then flush or make room and call again.

    Raises:
        LimitExceededError: a timestamp does not fit ``timestamp[us]``.
    """
    state = columns.state
    while state[State.RECORDS_LEFT] > 0:
        record = records[-state[State.RECORDS_LEFT]]
        if state[State.NEXT_OFFSET] <= record.offset < state[State.STOP_OFFSET]:
            if columns.is_full:
                return Outcome.FULL
            if not fits_timestamp(columns, record.timestamp_ms):
                raise LimitExceededError(
                    "a record's timestamp does not fit timestamp[us]",
                    found=f"{record.timestamp_ms} ms",
                    expected=f"at most {MAX_MICROSECONDS_MS} ms",
                    offset=record.offset,
                    base_offset=batch[Table.BASE_OFFSET],
                    hint="Ask for the column timestamp_ms (int64) in place of timestamp",
                )
            try:
                put_record(columns, record, batch)
            except FullError as full:
                state[State.NEED_BUFFER], state[State.NEED_SIZE] = full.buffer, full.need
                return Outcome.GROW
        else:
            state[State.DROPPED_RECORDS] += 1
        state[State.RECORDS_LEFT] -= 1
    return Outcome.DONE
