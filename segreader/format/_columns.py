"""The decoder in plain Python: the specification that ``_kernel.pyx`` repeats for speed.

Three functions are the face of a kernel, with the same names and the same buffers on both sides:
``scan_batches`` writes the headers of the batches in a piece of a segment into a table, and ``decode_batches``
writes the records of those batches into column buffers. Neither allocates by what a header claims, and neither
raises for damaged bytes: they come back with an ``Outcome`` and leave what they found in ``State``.
``count_rising`` is for a column of an index: a large one has a million entries.

Source: ``DefaultRecordBatch``, ``DefaultRecord``, ``ByteUtils`` (Kafka 4.0); KIP-98.
"""

from __future__ import annotations

import operator
import struct
from array import array
from itertools import islice

from segreader.format.batch import (
    COMMON_SIZE,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAX_BASE_OFFSET,
    MINIMUM_SIZE,
    Headers,
    Record,
    TimestampType,
    crc32c,
    decode_java_utf8,
)
from segreader.format.columns import (
    MANY_EPOCHS,
    TABLE_WIDTH,
    Buffer,
    ColumnBuffers,
    Damage,
    Decision,
    Outcome,
    RunSummary,
    Spent,
    State,
    Table,
)
from segreader.format.compression import Decompressor


class DamagedError(Exception):
    """A record cannot be read: which damage, where in the body, and the two numbers that disagree."""

    def __init__(self, damage: Damage, position: int, found: int = 0, expected: int = 0) -> None:
        self.facts = (damage, position, found, expected)


class RecordCursor:
    """A place in the body, and the end it must not pass."""

    __slots__ = ("at", "body", "stop")

    def __init__(self, body: memoryview | bytes, at: int, stop: int) -> None:
        self.body, self.at, self.stop = body, at, stop

    def take(self, size: int) -> int:
        """Step over ``size`` bytes and say where they begin. Every read goes through here."""
        if size < 0 or size > self.stop - self.at:
            raise DamagedError(Damage.RECORD_OVERRUN, self.at, size, self.stop - self.at)
        self.at += size
        return self.at - size

    def varint(self) -> int:
        """A zigzag int32 of at most 5 bytes; bits past the 32nd fall off, as in ``ByteUtils.readVarint``."""
        return self._zigzag(5, 0xFFFFFFFF)

    def varlong(self) -> int:
        """A zigzag int64 of at most 10 bytes."""
        return self._zigzag(10, 0xFFFFFFFFFFFFFFFF)

    def _zigzag(self, most: int, mask: int) -> int:
        start, value = self.at, 0
        for index in range(most):
            byte = self.body[self.take(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= mask
                return (value >> 1) ^ -(value & 1)
        raise DamagedError(Damage.VARINT, start, most + 1, most)


NAME = "reference"


def allocate(size: int) -> bytearray:
    """A buffer for ``BufferPool``."""
    return bytearray(size)


_COMMON = struct.Struct(">qiib")
_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC = 2
MAX_MICROSECONDS_MS = ((1 << 63) - 1) // 1000
"""Largest time in ms that fits ``timestamp[us]``."""


class FullError(Exception):
    """A buffer is too small for the next piece of this record."""

    def __init__(self, buffer: Buffer, need: int) -> None:
        self.buffer, self.need = buffer, need


def scan_batches(data: memoryview, at: int, data_position: int, table: array[int], max_size: int) -> tuple[int, int]:
    """Write the headers of the whole batches in ``data[at:]`` into ``table``.

    Args:
        data: a piece of a segment; ``at`` is the first byte of a batch in it.
        data_position: where ``data`` begins in the segment, in bytes.
        max_size: largest whole batch to accept, in bytes.

    Returns:
        How many rows were written, and where in ``data`` the next batch begins. The scan stops before a batch that
        is cut or impossible, and when the table is full; the caller looks at the bytes there.
    """
    rows, room = 0, len(table) // TABLE_WIDTH
    while rows < room and len(data) - at >= COMMON_SIZE:
        offset, size, word, magic = _COMMON.unpack_from(data, at)
        if magic not in MINIMUM_SIZE or size < MINIMUM_SIZE[magic] or not 0 <= offset <= MAX_BASE_OFFSET:
            break
        size += LOG_OVERHEAD
        if size > max_size or size > len(data) - at:
            break
        row = rows * TABLE_WIDTH
        table[row + Table.POSITION] = data_position + at
        table[row + Table.SIZE] = size
        table[row + Table.BASE_OFFSET] = offset
        table[row + Table.MAGIC] = magic
        table[row + Table.DECISION] = Decision.DECODE
        if magic == 2:
            fields = _HEADER.unpack_from(data, at)
            table[row + Table.LAST_OFFSET] = offset + fields[6]
            table[row + Table.LEADER_EPOCH] = word
            table[row + Table.CRC] = fields[4]
            table[row + Table.ATTRIBUTES] = fields[5]
            for index, value in enumerate(fields[7:]):
                table[row + Table.BASE_TIMESTAMP + index] = value
        else:
            table[row + Table.LAST_OFFSET] = offset
            table[row + Table.LEADER_EPOCH] = -1
            table[row + Table.CRC] = word & 0xFFFFFFFF
            table[row + Table.ATTRIBUTES] = data[at + COMMON_SIZE]
            time = int.from_bytes(data[at + 18 : at + 26], "big", signed=True) if magic == 1 else -1
            table[row + Table.BASE_TIMESTAMP] = table[row + Table.MAX_TIMESTAMP] = time
            table[row + Table.PRODUCER_ID] = table[row + Table.PRODUCER_EPOCH] = -1
            table[row + Table.BASE_SEQUENCE] = table[row + Table.RECORD_COUNT] = -1
        rows += 1
        at += size
    return rows, at


def summarise(table: array[int], rows: int) -> RunSummary:
    """What is true of the first rows of a table together; there is at least one."""
    stop = rows * TABLE_WIDTH
    magics = table[Table.MAGIC : stop : TABLE_WIDTH]
    bases, lasts = table[Table.BASE_OFFSET : stop : TABLE_WIDTH], table[Table.LAST_OFFSET : stop : TABLE_WIDTH]
    flags = 0
    for magic, attributes in zip(magics, table[Table.ATTRIBUTES : stop : TABLE_WIDTH], strict=True):
        flags |= attributes if magic >= _MAGIC else 0
    epochs = set(table[Table.LEADER_EPOCH : stop : TABLE_WIDTH])
    return RunSummary(
        rises=all(map(operator.le, bases, lasts)) and all(map(operator.lt, lasts, islice(bases, 1, None))),
        flags=flags,
        leader_epoch=epochs.pop() if len(epochs) == 1 else MANY_EPOCHS,
        first_offset=bases[0],
        last_offset=lasts[-1],
        record_count=sum(table[Table.RECORD_COUNT : stop : TABLE_WIDTH]),
        offset_count=sum(lasts) - sum(bases) + rows,
    )


def decode_batches(
    columns: ColumnBuffers,
    data: memoryview,
    data_position: int,
    table: array[int],
    rows: int,
    check_crcs: bool,
    decompressor: Decompressor,
) -> int:
    """Write the records of the table's batches into ``columns``, from ``State.BATCH_ROW`` on.

    Args:
        columns: where to write; its state says which offsets are wanted and where the last call stopped.
        data: the piece of the segment that the table describes, beginning at ``data_position``.
        table: as ``scan_batches`` wrote it, with ``Table.DECISION`` set by the caller.
        rows: how many rows of the table are filled.
        check_crcs: whether the CRC-32C of each batch must be right.
        decompressor: for the bodies; used by nothing else until the last batch begun is done.

    Returns:
        An ``Outcome``. Records before a damage are in the buffers.

    Raises:
        FormatError: what ``decompressor`` raises, with the state as before that batch.
    """
    began = columns.clock()
    try:
        return _decode_run(columns, data, data_position, table, rows, check_crcs, decompressor)
    finally:
        columns.spent[Spent.ALL] += columns.clock() - began


def _decode_run(
    columns: ColumnBuffers,
    data: memoryview,
    data_position: int,
    table: array[int],
    rows: int,
    check_crcs: bool,
    decompressor: Decompressor,
) -> int:
    state = columns.state
    row = state[State.BATCH_ROW]
    while row < rows:
        batch = table[row * TABLE_WIDTH : (row + 1) * TABLE_WIDTH]
        if state[State.RECORDS_LEFT] < 0:
            following = table[(row + 1) * TABLE_WIDTH + Table.LAST_OFFSET] if row + 1 < rows else None
            outcome = _begin_batch(columns, data, data_position, batch, following, check_crcs, decompressor)
            if outcome is not None:
                return outcome
        try:
            while state[State.RECORDS_LEFT] > 0:
                if columns.is_full:
                    return Outcome.FULL
                _decode_record(columns, batch)
                state[State.RECORDS_LEFT] -= 1
        except FullError as full:
            state[State.NEED_BUFFER], state[State.NEED_SIZE] = full.buffer, full.need
            return Outcome.GROW
        except DamagedError as damaged:
            for index, fact in enumerate(damaged.facts):
                state[State.DAMAGE + index] = fact
            return Outcome.DAMAGED
        state[State.RECORDS_LEFT] = -1
        row += 1
        state[State.BATCH_ROW] = row
    return Outcome.DONE


def count_rising(values: array[int], strictly: bool) -> int:
    """How many leading values are not negative and rise.

    Args:
        values: of 4 or 8 bytes.
        strictly: whether of equal neighbours the second one rises no more.
    """
    if not values or values[0] < 0:
        return 0
    rises = operator.lt if strictly else operator.le
    if all(map(rises, values, islice(values, 1, None))):  # of a sound index: a fifth of the time of counting
        return len(values)
    for count, rising in enumerate(map(rises, values, islice(values, 1, None)), start=1):
        if not rising:
            return count
    return len(values)


def _begin_batch(
    columns: ColumnBuffers,
    data: memoryview,
    data_position: int,
    batch: array[int],
    following: int | None,
    check_crcs: bool,
    decompressor: Decompressor,
) -> Outcome | None:
    """Check the next batch and lay its body ready; ``RECORDS_LEFT`` is 0 if there is nothing to deliver in it.

    Args:
        following: last offset of the batch behind it, where that is in the table.
    """
    state = columns.state
    if batch[Table.DECISION] == Decision.DROP:
        state[State.RECORDS_LEFT] = 0
        return None
    if batch[Table.MAGIC] < 2:
        return Outcome.LEGACY
    if batch[Table.BASE_OFFSET] >= state[State.STOP_OFFSET]:
        return Outcome.STOPPED
    start = batch[Table.POSITION] - data_position
    whole = data[start : start + batch[Table.SIZE]]
    if check_crcs:
        began = columns.clock()
        crc = crc32c(whole[CRC_START:])
        columns.spent[Spent.CRC] += columns.clock() - began
        if crc != batch[Table.CRC]:
            _note(state, Damage.CRC, 0, crc, batch[Table.CRC])
            return Outcome.DAMAGED
    if _is_below(batch, following, state[State.NEXT_OFFSET]):  # only now: its fields are under the CRC
        state[State.RECORDS_LEFT] = 0
        return None
    if batch[Table.DECISION] == Decision.SKIP:
        state[State.NEXT_OFFSET] = batch[Table.LAST_OFFSET] + 1
        state[State.RECORDS_LEFT] = 0
        return None
    if batch[Table.RECORD_COUNT] < 0:
        _note(state, Damage.RECORD_COUNT, 0, batch[Table.RECORD_COUNT], 0)
        return Outcome.DAMAGED
    if batch[Table.RECORD_COUNT] > 0:
        codec = batch[Table.ATTRIBUTES] & 7
        body: memoryview | bytes = whole[HEADER_SIZE:]
        if codec:
            began = columns.clock()
            body = decompressor.decompress(codec, whole[HEADER_SIZE:])
            columns.spent[Spent.BODY] += columns.clock() - began
        columns.body = body
        state[State.BODY_BYTES] += len(columns.body)
    state[State.DECODED_BATCHES] += 1
    state[State.BODY_POSITION] = 0
    state[State.RECORDS_LEFT] = batch[Table.RECORD_COUNT]
    return None


def _is_below(batch: array[int], following: int | None, next_offset: int) -> bool:
    """Whether nothing of a batch can bear on the records from ``next_offset`` on.

    A producer may give a record of an uncompressed batch an offset of the batch behind: then a consumer gets that one,
    and drops the one that follows. So the last batch below is looked into.
    """
    if batch[Table.LAST_OFFSET] >= next_offset:
        return False
    if batch[Table.DECISION] == Decision.SKIP or batch[Table.RECORD_COUNT] <= 0 or batch[Table.ATTRIBUTES] & 7:
        return True
    return following is not None and following < next_offset


def _note(state: array[int], damage: Damage, position: int, found: int, expected: int) -> None:
    state[State.DAMAGE], state[State.DAMAGE_POSITION] = damage, position
    state[State.DAMAGE_FOUND], state[State.DAMAGE_EXPECTED] = found, expected


def _decode_record(columns: ColumnBuffers, batch: array[int]) -> None:
    """Write the record at ``State.BODY_POSITION``; nothing changes unless the whole record is good."""
    state, body = columns.state, columns.body
    start = state[State.BODY_POSITION]
    if start >= len(body):
        raise DamagedError(Damage.BODY_ENDS, start, state[State.RECORDS_LEFT], 0)
    cursor = RecordCursor(body, start, len(body))
    length = cursor.varint()
    if length < 0 or length > len(body) - cursor.at:
        raise DamagedError(Damage.RECORD_LENGTH, start, length, len(body) - cursor.at)
    cursor.stop = stop = cursor.at + length
    cursor.take(1)
    timestamp = _int64(batch[Table.BASE_TIMESTAMP] + cursor.varlong())
    offset = batch[Table.BASE_OFFSET] + cursor.varint()
    is_log_append = bool(batch[Table.ATTRIBUTES] & LOG_APPEND_TIME_FLAG)
    if is_log_append:
        timestamp = batch[Table.MAX_TIMESTAMP]
    is_wanted = state[State.NEXT_OFFSET] <= offset < state[State.STOP_OFFSET]
    if is_wanted and not fits_timestamp(columns, timestamp):
        raise DamagedError(Damage.TIMESTAMP, start, timestamp, MAX_MICROSECONDS_MS)
    key, value = _read_bytes(cursor), _read_bytes(cursor)
    headers = _read_headers(cursor)
    if cursor.at != stop:
        raise DamagedError(Damage.RECORD_UNDERRUN, cursor.at, stop - cursor.at, 0)
    if state[State.RECORDS_LEFT] == 1 and stop != len(body):
        raise DamagedError(Damage.RECORDS_REMAIN, stop, len(body) - stop, 0)
    if is_wanted:
        put_record(columns, Record(offset, timestamp, TimestampType(is_log_append), key, value, headers), batch)
    else:
        if batch[Table.LAST_OFFSET] >= state[State.NEXT_OFFSET]:
            state[State.DROPPED_RECORDS] += 1
        if state[State.CURSOR_MOVES] and offset >= state[State.NEXT_OFFSET]:  # beyond the end: later ones step back
            state[State.NEXT_OFFSET] = offset + 1
    state[State.BODY_POSITION] = stop


def _read_bytes(cursor: RecordCursor) -> bytes | None:
    """A length and that many bytes; any negative length is null."""
    length = cursor.varint()
    if length < 0:
        return None
    at = cursor.take(length)
    return bytes(cursor.body[at : at + length])


def _read_headers(cursor: RecordCursor) -> Headers:
    start = cursor.at
    count = cursor.varint()
    if count < 0 or count > cursor.stop - cursor.at:
        raise DamagedError(Damage.HEADER_COUNT, start, count, cursor.stop - cursor.at)
    headers = []
    for _ in range(count):
        start = cursor.at
        length = cursor.varint()
        if length < 0:
            raise DamagedError(Damage.HEADER_KEY_LENGTH, start, length, 0)
        at = cursor.take(length)
        headers.append((decode_java_utf8(bytes(cursor.body[at : at + length])), _read_bytes(cursor)))
    return tuple(headers)


def fits_timestamp(columns: ColumnBuffers, timestamp_ms: int) -> bool:
    """Whether the time can be written as the column wants it: as microseconds it may pass int64."""
    is_exact = columns.buffers[Buffer.TIMESTAMP] is None or columns.state[State.TIMESTAMP_SCALE] == 1
    return is_exact or -MAX_MICROSECONDS_MS <= timestamp_ms <= MAX_MICROSECONDS_MS


def put_record(columns: ColumnBuffers, record: Record, batch: array[int]) -> None:
    """Write one record as the next row, with the facts of its batch.

    Raises:
        FullError: a buffer is too small; nothing was written.
    """
    state, row = columns.state, columns.state[State.ROWS]
    headers = [(key.encode(), value) for key, value in record.headers]
    count = state[State.HEADERS] + len(headers)
    _reserve(columns, Buffer.KEY_DATA, state[State.KEY_BYTES] + len(record.key or b""))
    _reserve(columns, Buffer.VALUE_DATA, state[State.VALUE_BYTES] + len(record.value or b""))
    if headers:
        _reserve(columns, Buffer.HEADER_KEY_OFFSETS, 4 * (count + 1))
        _reserve(columns, Buffer.HEADER_VALUE_OFFSETS, 4 * (count + 1))
        _reserve(columns, Buffer.HEADER_VALUE_VALIDITY, (count + 7) // 8)
        _reserve(
            columns,
            Buffer.HEADER_KEY_DATA,
            state[State.HEADER_KEY_BYTES] + sum(len(key) for key, _ in headers),
        )
        values = sum(len(value or b"") for _, value in headers)
        _reserve(columns, Buffer.HEADER_VALUE_DATA, state[State.HEADER_VALUE_BYTES] + values)

    _put_bytes(columns, Buffer.KEY_OFFSETS, State.KEY_BYTES, row, record.key, State.KEY_NULLS)
    _put_bytes(columns, Buffer.VALUE_OFFSETS, State.VALUE_BYTES, row, record.value, State.VALUE_NULLS)
    if columns.buffers[Buffer.HEADER_OFFSETS] is not None:
        for index, (key, value) in enumerate(headers, state[State.HEADERS]):
            _put_bytes(columns, Buffer.HEADER_KEY_OFFSETS, State.HEADER_KEY_BYTES, index, key, None)
            _put_bytes(
                columns,
                Buffer.HEADER_VALUE_OFFSETS,
                State.HEADER_VALUE_BYTES,
                index,
                value,
                State.HEADER_VALUE_NULLS,
            )
        state[State.HEADERS] = count
        _put_int(columns, Buffer.HEADER_OFFSETS, "=i", row + 1, count)
    sequence = batch[Table.BASE_SEQUENCE]
    delta = record.offset - batch[Table.BASE_OFFSET]
    _put_int(columns, Buffer.OFFSET, "=q", row, record.offset)
    if columns.buffers[Buffer.TIMESTAMP] is not None:
        _put_int(columns, Buffer.TIMESTAMP, "=q", row, record.timestamp_ms * state[State.TIMESTAMP_SCALE])
    _put_int(columns, Buffer.TIMESTAMP_TYPE, "=i", row, record.timestamp_type)
    _put_int(columns, Buffer.LEADER_EPOCH, "=i", row, batch[Table.LEADER_EPOCH])
    _put_int(columns, Buffer.PRODUCER_ID, "=q", row, batch[Table.PRODUCER_ID])
    _put_int(columns, Buffer.PRODUCER_EPOCH, "=i", row, batch[Table.PRODUCER_EPOCH])
    _put_int(columns, Buffer.SEQUENCE, "=i", row, -1 if sequence < 0 else (sequence + delta) & 0x7FFFFFFF)
    _put_int(columns, Buffer.ATTRIBUTES, "=B", row, batch[Table.ATTRIBUTES] & 0xFF)
    _put_int(columns, Buffer.BATCH_BASE_OFFSET, "=q", row, batch[Table.BASE_OFFSET])
    _put_int(columns, Buffer.POSITION, "=q", row, batch[Table.POSITION])
    state[State.ROWS] = row + 1
    if state[State.CURSOR_MOVES]:
        state[State.NEXT_OFFSET] = record.offset + 1


def _reserve(columns: ColumnBuffers, index: Buffer, need: int) -> None:
    buffer = columns.buffers[index]
    if buffer is not None and need > len(buffer):
        raise FullError(index, need)


def _put_bytes(
    columns: ColumnBuffers, offsets: Buffer, used: State, row: int, data: bytes | None, nulls: State | None
) -> None:
    """Append bytes to the data buffer behind ``offsets``; a null takes none and clears its validity bit.

    The bitmap behind that comes to life, all valid, with the first null.
    """
    buffer = columns.buffers[offsets + 1]
    if buffer is None:
        return
    state, start = columns.state, columns.state[used]
    end = start + len(data or b"")
    buffer[start:end] = data or b""
    state[used] = end
    _put_int(columns, offsets, "=i", row + 1, end)
    validity = columns.buffers[offsets + 2]
    if data is None and nulls is not None and validity is not None:
        if state[nulls] == 0:
            validity[:] = b"\xff" * len(validity)
        state[nulls] += 1
        validity[row >> 3] &= ~(1 << (row & 7)) & 0xFF


def _put_int(columns: ColumnBuffers, index: Buffer, form: str, row: int, value: int) -> None:
    buffer = columns.buffers[index]
    if buffer is not None:
        struct.pack_into(form, buffer, row * struct.calcsize(form), value)


def _int64(value: int) -> int:
    """The low 64 bits as a signed number: Java's addition."""
    return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
