# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False

"""The decoder for speed: the twin of ``_columns.py``, function by function and buffer by buffer.

One rule keeps it safe: the body is only read through ``take()``, which checks the bound first, and the buffers are
only written after their room was checked. The record loop runs without the interpreter lock and touches no Python
object; header keys that are not ASCII go back to Python for a moment.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from segreader.format import columns as layout
from segreader.format.java_utf8 import decode_java_utf8

NAME = "native"

# The numbers of columns.py, as C constants. tests/format/test_kernels.py holds that they agree.
cdef enum:
    OFFSET = 0
    TIMESTAMP = 1
    TIMESTAMP_TYPE = 2
    KEY_OFFSETS = 3
    KEY_DATA = 4
    KEY_VALIDITY = 5
    VALUE_OFFSETS = 6
    VALUE_DATA = 7
    VALUE_VALIDITY = 8
    HEADER_OFFSETS = 9
    HEADER_KEY_OFFSETS = 10
    HEADER_KEY_DATA = 11
    HEADER_VALUE_OFFSETS = 12
    HEADER_VALUE_DATA = 13
    HEADER_VALUE_VALIDITY = 14
    LEADER_EPOCH = 15
    PRODUCER_ID = 16
    PRODUCER_EPOCH = 17
    SEQUENCE = 18
    ATTRIBUTES = 19
    BATCH_BASE_OFFSET = 20
    POSITION = 21
    BUFFERS = 22

cdef enum:
    S_ROWS = 0
    S_KEY_BYTES = 1
    S_VALUE_BYTES = 2
    S_HEADERS = 3
    S_HEADER_KEY_BYTES = 4
    S_HEADER_VALUE_BYTES = 5
    S_KEY_NULLS = 6
    S_VALUE_NULLS = 7
    S_HEADER_VALUE_NULLS = 8
    S_MAX_ROWS = 9
    S_MAX_BYTES = 10
    S_NEXT_OFFSET = 11
    S_STOP_OFFSET = 12
    S_TIMESTAMP_SCALE = 13
    S_BATCH_ROW = 14
    S_BODY_POSITION = 15
    S_RECORDS_LEFT = 16
    S_NEED_BUFFER = 17
    S_NEED_SIZE = 18
    S_DAMAGE = 19
    S_DAMAGE_POSITION = 20
    S_DAMAGE_FOUND = 21
    S_DAMAGE_EXPECTED = 22
    S_DECODED_BATCHES = 23
    S_BODY_BYTES = 24
    S_DROPPED_RECORDS = 25
    S_CURSOR_MOVES = 26

cdef enum:
    T_POSITION = 0
    T_SIZE = 1
    T_BASE_OFFSET = 2
    T_LAST_OFFSET = 3
    T_LEADER_EPOCH = 4
    T_MAGIC = 5
    T_CRC = 6
    T_ATTRIBUTES = 7
    T_BASE_TIMESTAMP = 8
    T_MAX_TIMESTAMP = 9
    T_PRODUCER_ID = 10
    T_PRODUCER_EPOCH = 11
    T_BASE_SEQUENCE = 12
    T_RECORD_COUNT = 13
    T_DECISION = 14
    WIDTH = 16

cdef enum Outcome:
    DONE = 0
    FULL = 1
    GROW = 2
    LEGACY = 3
    STOPPED = 4
    DAMAGED = 5
    GOOD = 6  # inside this module only: the record is written

cdef enum Damage:
    D_CRC = 1
    D_RECORD_COUNT = 2
    D_BODY_ENDS = 3
    D_RECORD_LENGTH = 4
    D_VARINT = 5
    D_RECORD_OVERRUN = 6
    D_RECORD_UNDERRUN = 7
    D_HEADER_COUNT = 8
    D_HEADER_KEY_LENGTH = 9
    D_RECORDS_REMAIN = 10
    D_TIMESTAMP = 11

cdef enum:
    SKIP = 1
    DROP = 2
    LOG_OVERHEAD = 12
    COMMON_SIZE = 17
    CRC_START = 21
    HEADER_SIZE = 61
    LOG_APPEND_TIME_FLAG = 0x08

cdef int64_t MAX_BASE_OFFSET = 0x7FFFFFFFFFFFFFFF - 0x80000000LL
cdef int64_t MAX_MICROSECONDS_MS = 9223372036854775

# What the enums above say, for the test that compares them with columns.py.
LAYOUT = {
    "Buffer": BUFFERS, "State": S_CURSOR_MOVES + 1, "Table": T_DECISION + 1, "Damage": D_TIMESTAMP,
    "TABLE_WIDTH": WIDTH,
}


def allocate(Py_ssize_t size):
    """A buffer for ``BufferPool`` whose bytes are whatever was there: what is not written is never shown."""
    return PyByteArray_FromStringAndSize(NULL, size)


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* stop
    const uint8_t* start  # of the body: for positions in errors
    int64_t* state


cdef struct Room:
    uint8_t* data[22]
    int64_t size[22]


cdef inline int64_t damage(Cursor* c, int64_t kind, const uint8_t* where, int64_t found, int64_t expected) noexcept nogil:
    c.state[S_DAMAGE] = kind
    c.state[S_DAMAGE_POSITION] = where - c.start
    c.state[S_DAMAGE_FOUND] = found
    c.state[S_DAMAGE_EXPECTED] = expected
    return DAMAGED


cdef inline const uint8_t* take(Cursor* c, int64_t size) noexcept nogil:
    """Step over ``size`` bytes; NULL, with the damage noted, if they are not there. Every read goes through here."""
    if size < 0 or size > c.stop - c.at:
        damage(c, D_RECORD_OVERRUN, c.at, size, c.stop - c.at)
        return NULL
    c.at += size
    return c.at - size


cdef inline bint zigzag(Cursor* c, int most, uint64_t mask, int64_t* out) noexcept nogil:
    cdef const uint8_t* start = c.at
    cdef const uint8_t* byte
    cdef uint64_t value = 0
    cdef int shift = 0
    while shift < 7 * most:
        byte = take(c, 1)
        if byte == NULL:
            return False
        value |= <uint64_t>(byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            value &= mask
            out[0] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            return True
        shift += 7
    damage(c, D_VARINT, start, most + 1, most)
    return False


cdef inline bint varint(Cursor* c, int64_t* out) noexcept nogil:
    """A zigzag int32 of at most 5 bytes."""
    cdef const uint8_t* byte
    if c.stop - c.at >= 2:  # one and two bytes without a loop: nearly every length there is
        byte = take(c, 1)
        if byte[0] < 0x80:
            out[0] = <int64_t>(byte[0] >> 1) ^ -<int64_t>(byte[0] & 1)
            return True
        if c.at[0] < 0x80:
            out[0] = (byte[0] & 0x7F) | (<int64_t>take(c, 1)[0] << 7)
            out[0] = (out[0] >> 1) ^ -(out[0] & 1)
            return True
        c.at -= 1
    return zigzag(c, 5, 0xFFFFFFFF, out)


cdef inline bint varlong(Cursor* c, int64_t* out) noexcept nogil:
    """A zigzag int64 of at most 10 bytes."""
    return zigzag(c, 10, 0xFFFFFFFFFFFFFFFF, out)


cdef inline uint16_t be16(const uint8_t* p) noexcept nogil:
    return (<uint16_t>p[0] << 8) | p[1]


cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t be64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>be32(p) << 32) | be32(p + 4)


def scan_batches(const uint8_t[::1] data, Py_ssize_t at, int64_t data_position, array table, int64_t max_size):
    """Write the headers of the whole batches in ``data[at:]`` into ``table``; see ``_columns.scan_batches``."""
    cdef int64_t rows = 0, size, offset, total = data.shape[0]
    cdef int magic
    cdef const uint8_t* p
    cdef int64_t* row
    cdef int64_t room = len(table) // WIDTH
    while rows < room and total - at >= COMMON_SIZE:
        p = &data[at]
        offset = <int64_t>be64(p)
        size = <int32_t>be32(p + 8)
        magic = <int8_t>p[16]
        if (
            magic < 0 or magic > 2 or offset < 0 or offset > MAX_BASE_OFFSET
            or size < (49 if magic == 2 else 22 if magic == 1 else 14)
        ):
            break
        size += LOG_OVERHEAD
        if size > max_size or size > total - at:
            break
        row = <int64_t*>table.data.as_longlongs + rows * WIDTH
        row[T_POSITION] = data_position + at
        row[T_SIZE] = size
        row[T_BASE_OFFSET] = offset
        row[T_MAGIC] = magic
        row[T_DECISION] = 0
        if magic == 2:
            row[T_LAST_OFFSET] = offset + <int32_t>be32(p + 23)
            row[T_LEADER_EPOCH] = <int32_t>be32(p + 12)
            row[T_CRC] = be32(p + 17)
            row[T_ATTRIBUTES] = <int16_t>be16(p + 21)
            row[T_BASE_TIMESTAMP] = <int64_t>be64(p + 27)
            row[T_MAX_TIMESTAMP] = <int64_t>be64(p + 35)
            row[T_PRODUCER_ID] = <int64_t>be64(p + 43)
            row[T_PRODUCER_EPOCH] = <int16_t>be16(p + 51)
            row[T_BASE_SEQUENCE] = <int32_t>be32(p + 53)
            row[T_RECORD_COUNT] = <int32_t>be32(p + 57)
        else:
            row[T_LAST_OFFSET] = offset
            row[T_LEADER_EPOCH] = -1
            row[T_CRC] = be32(p + 12)
            row[T_ATTRIBUTES] = p[17]
            row[T_BASE_TIMESTAMP] = row[T_MAX_TIMESTAMP] = <int64_t>be64(p + 18) if magic == 1 else -1
            row[T_PRODUCER_ID] = row[T_PRODUCER_EPOCH] = -1
            row[T_BASE_SEQUENCE] = row[T_RECORD_COUNT] = -1
        rows += 1
        at += size
    return rows, at


def decode_batches(columns, data, int64_t data_position, array table, int64_t rows, checksum, decompress):
    """Write the records of the table's batches into ``columns``; see ``_columns.decode_batches``."""
    cdef array state_array = columns.state
    cdef int64_t* state = <int64_t*>state_array.data.as_longlongs
    cdef list buffers = columns.buffers
    cdef Room room
    cdef Cursor c
    cdef Py_buffer view, body_view
    cdef int64_t row, start, size, codec
    cdef int64_t* batch
    cdef int64_t outcome = DONE
    if len(state_array) <= S_CURSOR_MOVES or len(table) < rows * WIDTH or rows < 0:
        raise ValueError("the state or the batch table is too small")
    find_room(&room, buffers)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        row = state[S_BATCH_ROW]
        c.state = state
        while row < rows:
            batch = <int64_t*>table.data.as_longlongs + row * WIDTH
            if state[S_RECORDS_LEFT] < 0 and batch[T_DECISION] == DROP:
                state[S_RECORDS_LEFT] = 0
            if state[S_RECORDS_LEFT] < 0:
                if batch[T_MAGIC] < 2:
                    return LEGACY
                if batch[T_BASE_OFFSET] >= state[S_STOP_OFFSET]:
                    return STOPPED
                start = batch[T_POSITION] - data_position
                size = batch[T_SIZE]
                if start < 0 or size < HEADER_SIZE or size > view.len - start:
                    raise ValueError("the batch table does not describe these bytes")
                c.start = <const uint8_t*>view.buf + start
                if checksum is not None:
                    crc = checksum(data[start + CRC_START : start + size])
                    if crc != batch[T_CRC]:
                        return damage(&c, D_CRC, c.start, crc, batch[T_CRC])
                if is_below(batch, row + 1 == rows, state[S_NEXT_OFFSET]):  # only now: its fields are under the CRC
                    state[S_RECORDS_LEFT] = 0
                elif batch[T_DECISION] == SKIP:
                    if batch[T_LAST_OFFSET] + 1 > state[S_NEXT_OFFSET]:
                        state[S_NEXT_OFFSET] = batch[T_LAST_OFFSET] + 1
                    state[S_RECORDS_LEFT] = 0
                elif batch[T_RECORD_COUNT] < 0:
                    return damage(&c, D_RECORD_COUNT, c.start, batch[T_RECORD_COUNT], 0)
                else:
                    if batch[T_RECORD_COUNT] > 0:
                        columns.body = data[start + HEADER_SIZE : start + size]
                        codec = batch[T_ATTRIBUTES] & 7
                        if codec:
                            columns.body = decompress(codec, columns.body)
                        state[S_BODY_BYTES] += len(columns.body)
                    state[S_DECODED_BATCHES] += 1
                    state[S_BODY_POSITION] = 0
                    state[S_RECORDS_LEFT] = batch[T_RECORD_COUNT]
            if state[S_RECORDS_LEFT] > 0:
                PyObject_GetBuffer(columns.body, &body_view, PyBUF_SIMPLE)
                try:
                    c.start = <const uint8_t*>body_view.buf
                    if not 0 <= state[S_BODY_POSITION] <= body_view.len:
                        raise ValueError("the state does not describe this body")
                    c.at = c.start + state[S_BODY_POSITION]
                    c.stop = c.start + body_view.len
                    with nogil:
                        outcome = decode_body(&c, &room, batch, body_view.len)
                finally:
                    PyBuffer_Release(&body_view)
                if outcome != GOOD:
                    return outcome
            state[S_RECORDS_LEFT] = -1
            row += 1
            state[S_BATCH_ROW] = row
        return DONE
    finally:
        PyBuffer_Release(&view)


cdef inline bint is_below(const int64_t* batch, bint is_last, int64_t next_offset) noexcept nogil:
    """See ``_columns._is_below``."""
    if batch[T_LAST_OFFSET] >= next_offset:
        return False
    if batch[T_DECISION] == SKIP or batch[T_RECORD_COUNT] <= 0 or batch[T_ATTRIBUTES] & 7:
        return True
    return not is_last and (batch + WIDTH)[T_LAST_OFFSET] < next_offset


def count_rising(array values, bint strictly):
    """How many leading values are not negative and rise; see ``_columns.count_rising``."""
    cdef Py_ssize_t count = 1, size = len(values)
    cdef int64_t least = 1 if strictly else 0
    cdef const int32_t* ints = <const int32_t*>values.data.as_ints
    cdef const int64_t* longs = <const int64_t*>values.data.as_longlongs
    if values.itemsize not in (4, 8):
        raise ValueError("not values of 4 or 8 bytes")
    if not size or (ints[0] if values.itemsize == 4 else longs[0]) < 0:
        return 0
    if values.itemsize == 4:
        while count < size and <int64_t>ints[count] - ints[count - 1] >= least:
            count += 1
    else:
        while count < size and longs[count] >= longs[count - 1] and longs[count] - longs[count - 1] >= least:
            count += 1
    return count


cdef int find_room(Room* room, list buffers) except -1:
    """Where each wanted buffer lies and how much it holds."""
    cdef int index
    if len(buffers) != BUFFERS:
        raise ValueError("not the buffers of a ColumnBuffers")
    for index in range(BUFFERS):
        buffer = buffers[index]
        if buffer is None:
            room.data[index] = NULL
            room.size[index] = 0
        else:
            room.data[index] = <uint8_t*>PyByteArray_AS_STRING(buffer)
            room.size[index] = PyByteArray_GET_SIZE(buffer)
    return 0


cdef int64_t decode_body(Cursor* c, Room* room, const int64_t* batch, int64_t body_size) noexcept nogil:
    """Records until the batch is done (GOOD), full, in need of room, or damaged."""
    cdef int64_t* state = c.state
    cdef int64_t outcome
    while state[S_RECORDS_LEFT] > 0:
        if (
            state[S_ROWS] >= state[S_MAX_ROWS]
            or state[S_KEY_BYTES] + state[S_VALUE_BYTES] + state[S_HEADER_KEY_BYTES] + state[S_HEADER_VALUE_BYTES]
            >= state[S_MAX_BYTES]
        ):
            return FULL
        outcome = decode_record(c, room, batch, body_size)
        if outcome != GOOD:
            return outcome
        state[S_RECORDS_LEFT] -= 1
    return GOOD


cdef int64_t decode_record(Cursor* body, Room* room, const int64_t* batch, int64_t body_size) noexcept nogil:
    """Write one record; counters move only once the whole record is good."""
    cdef int64_t* state = body.state
    cdef const uint8_t* start = body.at
    cdef Cursor c
    cdef int64_t length, timestamp, delta, offset, key_size, value_size, outcome
    cdef int64_t rows = state[S_ROWS], key_end = state[S_KEY_BYTES], value_end = state[S_VALUE_BYTES]
    cdef int64_t header_state[4]
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef bint is_wanted, is_log_append = (batch[T_ATTRIBUTES] & LOG_APPEND_TIME_FLAG) != 0
    c.at, c.stop, c.start, c.state = body.at, body.stop, body.start, state
    if c.at >= c.stop:
        return damage(&c, D_BODY_ENDS, c.at, state[S_RECORDS_LEFT], 0)
    if not varint(&c, &length):
        return DAMAGED
    if length < 0 or length > c.stop - c.at:
        return damage(&c, D_RECORD_LENGTH, start, length, c.stop - c.at)
    c.stop = c.at + length
    if take(&c, 1) == NULL or not varlong(&c, &timestamp) or not varint(&c, &delta):
        return DAMAGED
    timestamp = <int64_t>(<uint64_t>batch[T_BASE_TIMESTAMP] + <uint64_t>timestamp)
    offset = batch[T_BASE_OFFSET] + delta
    is_wanted = state[S_NEXT_OFFSET] <= offset and offset < state[S_STOP_OFFSET]
    if is_log_append:
        timestamp = batch[T_MAX_TIMESTAMP]
    if (
        room.data[TIMESTAMP] != NULL and state[S_TIMESTAMP_SCALE] != 1 and is_wanted
        and (timestamp > MAX_MICROSECONDS_MS or timestamp < -MAX_MICROSECONDS_MS)
    ):
        return damage(&c, D_TIMESTAMP, start, timestamp, MAX_MICROSECONDS_MS)

    if not varint(&c, &key_size):
        return DAMAGED
    key = take(&c, key_size if key_size > 0 else 0)
    if key == NULL or not varint(&c, &value_size):
        return DAMAGED
    value = take(&c, value_size if value_size > 0 else 0)
    if value == NULL:
        return DAMAGED
    if is_wanted:
        if room.data[KEY_DATA] != NULL and key_size > 0:
            if key_size > room.size[KEY_DATA] - key_end:
                return need(state, KEY_DATA, key_end + key_size)
            memcpy(room.data[KEY_DATA] + key_end, key, key_size)
            key_end += key_size
        if room.data[VALUE_DATA] != NULL and value_size > 0:
            if value_size > room.size[VALUE_DATA] - value_end:
                return need(state, VALUE_DATA, value_end + value_size)
            memcpy(room.data[VALUE_DATA] + value_end, value, value_size)
            value_end += value_size
    header_state[0] = state[S_HEADERS]
    header_state[1] = state[S_HEADER_KEY_BYTES]
    header_state[2] = state[S_HEADER_VALUE_BYTES]
    header_state[3] = state[S_HEADER_VALUE_NULLS]
    outcome = decode_headers(&c, room, is_wanted and room.data[HEADER_OFFSETS] != NULL, header_state)
    if outcome != GOOD:
        return outcome
    if c.at != c.stop:
        return damage(&c, D_RECORD_UNDERRUN, c.at, c.stop - c.at, 0)
    if state[S_RECORDS_LEFT] == 1 and c.stop != body.stop:
        return damage(&c, D_RECORDS_REMAIN, c.stop, body.stop - c.stop, 0)

    body.at = c.stop
    state[S_BODY_POSITION] = c.stop - c.start
    if not is_wanted:
        if batch[T_LAST_OFFSET] >= state[S_NEXT_OFFSET]:
            state[S_DROPPED_RECORDS] += 1
        if state[S_CURSOR_MOVES] and offset >= state[S_NEXT_OFFSET]:
            state[S_NEXT_OFFSET] = offset + 1
        return GOOD
    if room.data[KEY_DATA] != NULL:
        state[S_KEY_BYTES] = key_end
        (<int32_t*>room.data[KEY_OFFSETS])[rows + 1] = <int32_t>key_end
        if key_size < 0:
            put_null(room, KEY_VALIDITY, &state[S_KEY_NULLS], rows)
    if room.data[VALUE_DATA] != NULL:
        state[S_VALUE_BYTES] = value_end
        (<int32_t*>room.data[VALUE_OFFSETS])[rows + 1] = <int32_t>value_end
        if value_size < 0:
            put_null(room, VALUE_VALIDITY, &state[S_VALUE_NULLS], rows)
    if room.data[HEADER_OFFSETS] != NULL:
        state[S_HEADERS] = header_state[0]
        state[S_HEADER_KEY_BYTES] = header_state[1]
        state[S_HEADER_VALUE_BYTES] = header_state[2]
        state[S_HEADER_VALUE_NULLS] = header_state[3]
        (<int32_t*>room.data[HEADER_OFFSETS])[rows + 1] = <int32_t>header_state[0]
    put_facts(room, batch, rows, offset, timestamp * state[S_TIMESTAMP_SCALE] if room.data[TIMESTAMP] != NULL else 0,
              is_log_append, delta)
    state[S_ROWS] = rows + 1
    if state[S_CURSOR_MOVES]:
        state[S_NEXT_OFFSET] = offset + 1
    return GOOD


cdef inline void put_facts(
    Room* room, const int64_t* batch, int64_t row, int64_t offset, int64_t timestamp, bint is_log_append, int64_t delta
) noexcept nogil:
    """The fixed-width columns of one row."""
    if room.data[OFFSET] != NULL:
        (<int64_t*>room.data[OFFSET])[row] = offset
    if room.data[TIMESTAMP] != NULL:
        (<int64_t*>room.data[TIMESTAMP])[row] = timestamp
    if room.data[TIMESTAMP_TYPE] != NULL:
        (<int32_t*>room.data[TIMESTAMP_TYPE])[row] = is_log_append
    if room.data[LEADER_EPOCH] != NULL:
        (<int32_t*>room.data[LEADER_EPOCH])[row] = <int32_t>batch[T_LEADER_EPOCH]
    if room.data[PRODUCER_ID] != NULL:
        (<int64_t*>room.data[PRODUCER_ID])[row] = batch[T_PRODUCER_ID]
    if room.data[PRODUCER_EPOCH] != NULL:
        (<int32_t*>room.data[PRODUCER_EPOCH])[row] = <int32_t>batch[T_PRODUCER_EPOCH]
    if room.data[SEQUENCE] != NULL:
        (<int32_t*>room.data[SEQUENCE])[row] = (
            -1 if batch[T_BASE_SEQUENCE] < 0 else <int32_t>((batch[T_BASE_SEQUENCE] + delta) & 0x7FFFFFFF)
        )
    if room.data[ATTRIBUTES] != NULL:
        room.data[ATTRIBUTES][row] = <uint8_t>batch[T_ATTRIBUTES]
    if room.data[BATCH_BASE_OFFSET] != NULL:
        (<int64_t*>room.data[BATCH_BASE_OFFSET])[row] = batch[T_BASE_OFFSET]
    if room.data[POSITION] != NULL:
        (<int64_t*>room.data[POSITION])[row] = batch[T_POSITION]


cdef int64_t decode_headers(Cursor* c, Room* room, bint is_wanted, int64_t* ends) noexcept nogil:
    """Write the headers behind the counters; ``ends`` are count, key bytes, value bytes and nulls."""
    cdef const uint8_t* start = c.at
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int64_t count, key_size, value_size, written
    if not varint(c, &count):
        return DAMAGED
    if count < 0 or count > c.stop - c.at:
        return damage(c, D_HEADER_COUNT, start, count, c.stop - c.at)
    if is_wanted and count > 0:
        if 4 * (ends[0] + count + 1) > room.size[HEADER_KEY_OFFSETS]:
            return need(c.state, HEADER_KEY_OFFSETS, 4 * (ends[0] + count + 1))
        if 4 * (ends[0] + count + 1) > room.size[HEADER_VALUE_OFFSETS]:
            return need(c.state, HEADER_VALUE_OFFSETS, 4 * (ends[0] + count + 1))
        if (ends[0] + count + 7) // 8 > room.size[HEADER_VALUE_VALIDITY]:
            return need(c.state, HEADER_VALUE_VALIDITY, (ends[0] + count + 7) // 8)
        if ends[3] > 0:  # bits behind the counter may be left from a record that did not fit
            set_valid(room.data[HEADER_VALUE_VALIDITY], ends[0], count)
    while count > 0:
        count -= 1
        start = c.at
        if not varint(c, &key_size):
            return DAMAGED
        if key_size < 0:
            return damage(c, D_HEADER_KEY_LENGTH, start, key_size, 0)
        key = take(c, key_size)
        if key == NULL or not varint(c, &value_size):
            return DAMAGED
        value = take(c, value_size if value_size > 0 else 0)
        if value == NULL:
            return DAMAGED
        if not is_wanted:
            continue
        if is_ascii(key, key_size):
            if key_size > room.size[HEADER_KEY_DATA] - ends[1]:
                return need(c.state, HEADER_KEY_DATA, ends[1] + key_size)
            memcpy(room.data[HEADER_KEY_DATA] + ends[1], key, key_size)
            ends[1] += key_size
        else:
            with gil:
                written = put_text(room, ends[1], key, key_size)
            if written < 0:
                return need(c.state, HEADER_KEY_DATA, ends[1] - written)
            ends[1] += written
        if value_size > 0:
            if value_size > room.size[HEADER_VALUE_DATA] - ends[2]:
                return need(c.state, HEADER_VALUE_DATA, ends[2] + value_size)
            memcpy(room.data[HEADER_VALUE_DATA] + ends[2], value, value_size)
            ends[2] += value_size
        elif value_size < 0:
            put_null(room, HEADER_VALUE_VALIDITY, &ends[3], ends[0])
        ends[0] += 1
        (<int32_t*>room.data[HEADER_KEY_OFFSETS])[ends[0]] = <int32_t>ends[1]
        (<int32_t*>room.data[HEADER_VALUE_OFFSETS])[ends[0]] = <int32_t>ends[2]
    return GOOD


cdef int64_t put_text(Room* room, int64_t used, const uint8_t* key, int64_t size) noexcept:
    """Append a header key as valid UTF-8; returns its bytes, or minus that if they do not fit."""
    cdef bytes text
    cdef int64_t length
    try:
        text = decode_java_utf8(key[:size]).encode()
    except MemoryError:  # nothing can be raised here: ask for more room than there is, which ends in a typed error
        return -(<int64_t>1 << 40)
    length = len(text)
    if length > room.size[HEADER_KEY_DATA] - used:
        return -length
    memcpy(room.data[HEADER_KEY_DATA] + used, <const char*>text, length)
    return length


cdef inline bint is_ascii(const uint8_t* text, int64_t size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int64_t index
    for index in range(size):
        seen |= text[index]
    return seen < 0x80


cdef inline int64_t need(int64_t* state, int64_t buffer, int64_t size) noexcept nogil:
    state[S_NEED_BUFFER] = buffer
    state[S_NEED_SIZE] = size
    return GROW


cdef inline void put_null(Room* room, int index, int64_t* nulls, int64_t row) noexcept nogil:
    """Clear a validity bit; the bitmap comes to life, all valid, with the first null."""
    if nulls[0] == 0:
        memset(room.data[index], 0xFF, room.size[index])
    nulls[0] += 1
    room.data[index][row >> 3] &= <uint8_t>(~(1 << (row & 7)))


cdef inline void set_valid(uint8_t* bits, int64_t first, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(first, first + count):
        bits[index >> 3] |= <uint8_t>(1 << (index & 7))
