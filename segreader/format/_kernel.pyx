# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False

"""The decoder for speed: the twin of ``_columns.py``, function by function and buffer by buffer.

A run of batches is decoded in one stretch without the interpreter lock: CRCs, bodies (``_codecs.h``) and records. Python
gets the lock back, between two batches, for a body that ``_codecs.h`` leaves to ``compression.py``. Nothing of Python runs
while a record is written: what a signal handler raises there could only be lost.

Records are decoded twice over: ``decode_ordinary`` steps over as many as are whole, wanted and fit, and stops in front of
the first that is not; ``decode_record`` decodes that one, or says what is wrong with it. The second alone is the
specification. It reads the body only through ``take()``, which checks the bound first; the first checks every field
against the end of its record. Both write only after the room was checked.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from segreader.format import native_codecs
from segreader.format.columns import MANY_EPOCHS, RunSummary

cdef extern from "_codecs.h" nogil:
    enum:
        CODEC_GZIP
        CODEC_SNAPPY
        CODEC_LZ4
        CODEC_ZSTD
        OTHER_WAY
        MORE_ROOM
        SLACK
        ISAL_STATE_SIZE

    ctypedef int (*lz4_function)(const char*, char*, int, int)
    ctypedef size_t (*zstd_function)(void*, void*, size_t, const void*, size_t)
    ctypedef void* (*zstd_create_function)()
    ctypedef size_t (*zstd_state_function)(void*)
    ctypedef struct isal_state:
        pass
    ctypedef int (*isal_function)(isal_state*)
    ctypedef uint32_t (*crc32_function)(uint32_t, const uint8_t*, uint64_t)

    ctypedef struct body_codecs:
        unsigned known
        unsigned present
        lz4_function lz4
        zstd_function zstd
        zstd_function zstd_block
        zstd_state_function zstd_begin
        zstd_state_function zstd_next
        zstd_state_function zstd_free
        void* zstd_context
        isal_function inflate
        crc32_function crc32
        isal_state* inflate_state
        uint8_t* scratch
        int64_t capacity
        int64_t needed
        int64_t limit

    int64_t clock_ns()
    void crc_begin()
    void snappy_begin()
    uint32_t crc32c_of(const uint8_t*, size_t)
    uint32_t crc32c_by_tables(const uint8_t*, size_t)
    int64_t decompress_body(body_codecs*, int, const uint8_t*, int64_t)
    void put_field(uint8_t*, int64_t, const uint8_t*, int64_t, int64_t)
    bint is_ascii_field(const uint8_t*, int64_t)
    int64_t put_java_text(uint8_t*, const uint8_t*, int64_t)
    bint short_number(const uint8_t**, const uint8_t*, int64_t*)
    bint long_number(const uint8_t**, const uint8_t*, int64_t*)

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
    # Inside this module only:
    GOOD = 6  # the record is written
    PLAIN_BODY = 7  # Python must decompress the body of the row
    UNKNOWN_CODEC = 8  # and look up its codec first
    NO_SCRATCH = 9  # and make more room for it
    MISFIT = 10  # the table does not describe the bytes

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
    IN_CRC = 0
    IN_BODY = 1
    IN_ALL = 2
    TIMED_ROWS = 8  # of so many batches of a run one is timed, and counts for all of them

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
    "Spent": IN_ALL + 1, "TABLE_WIDTH": WIDTH,
}


def allocate(Py_ssize_t size):
    """A buffer for ``BufferPool`` whose bytes are whatever was there: what is not written is never shown."""
    return PyByteArray_FromStringAndSize(NULL, size)


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* stop
    const uint8_t* start  # of the body: for positions in errors
    int64_t* state
    int64_t one_by_one  # see Codecs


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


def summarise(array table, int64_t rows):
    """What is true of the first rows of a table together; see ``_columns.summarise``."""
    cdef const int64_t* first = <const int64_t*>table.data.as_longlongs
    cdef const int64_t* batch = first
    cdef int64_t row, flags = 0, records = 0, offsets = 0
    cdef bint rises = True, is_one_epoch = True
    if rows < 1 or len(table) < rows * WIDTH:
        raise ValueError("the batch table is too small")
    for row in range(rows):
        batch = first + row * WIDTH
        if batch[T_LAST_OFFSET] < batch[T_BASE_OFFSET] or (
            row and batch[T_BASE_OFFSET] <= (batch - WIDTH)[T_LAST_OFFSET]
        ):
            rises = False
        if batch[T_MAGIC] >= 2:
            flags |= batch[T_ATTRIBUTES]
        if batch[T_LEADER_EPOCH] != first[T_LEADER_EPOCH]:
            is_one_epoch = False
        records += batch[T_RECORD_COUNT]
        offsets += batch[T_LAST_OFFSET] - batch[T_BASE_OFFSET] + 1
    return RunSummary(
        rises, flags, first[T_LEADER_EPOCH] if is_one_epoch else MANY_EPOCHS, first[T_BASE_OFFSET],
        batch[T_LAST_OFFSET], records, offsets,
    )


cdef class Codecs:
    """What one thread decompresses bodies with while it does not hold the interpreter lock.

    Args:
        limit: bytes that one body may hold.
        find: what ``native_codecs.find`` does: a codec to the addresses of its functions, ``None`` to do without.
    """

    cdef body_codecs c
    cdef object find
    cdef bytearray scratch
    cdef object shown  # the part of the scratch that a ``ColumnBuffers`` looks into
    cdef bint is_busy
    cdef readonly int64_t one_by_one
    """Records that ``decode_ordinary`` left to ``decode_record``."""

    def __cinit__(self, int64_t limit, find=native_codecs.find):
        memset(&self.c, 0, sizeof(body_codecs))
        self.c.limit = limit
        self.find = find

    def __dealloc__(self):
        if self.c.zstd_context != NULL:
            self.c.zstd_free(self.c.zstd_context)
        free(self.c.inflate_state)

    @property
    def capacity(self):
        """The longest body that is decompressed without more memory."""
        return self.c.capacity

    def decompress(self, int codec, const uint8_t[::1] data):
        """The body that ``data`` holds; ``None`` if it is not ordinary."""
        cdef int64_t size = MORE_ROOM
        if not self.c.known >> codec & 1:
            self.look_up(codec)
        if not self.c.present >> codec & 1:
            return None
        while size == MORE_ROOM:
            size = decompress_body(&self.c, codec, &data[0], data.shape[0])
            if size == MORE_ROOM:
                self.grow()
        return None if size < 0 else (<const char*>self.c.scratch)[:size]

    cdef int look_up(self, int codec) except -1:
        """Whether a codec is here from now on."""
        cdef void* context
        addresses = self.find(codec)
        self.c.known |= 1 << codec
        if addresses is None:
            return 0
        if codec == CODEC_LZ4:
            self.c.lz4 = <lz4_function><uintptr_t>addresses[0]
        elif codec == CODEC_ZSTD:
            context = (<zstd_create_function><uintptr_t>addresses[0])()
            if context == NULL:
                return 0
            self.c.zstd_context = context
            self.c.zstd_free = <zstd_state_function><uintptr_t>addresses[1]
            self.c.zstd = <zstd_function><uintptr_t>addresses[2]
            self.c.zstd_begin = <zstd_state_function><uintptr_t>addresses[3]
            self.c.zstd_next = <zstd_state_function><uintptr_t>addresses[4]
            self.c.zstd_block = <zstd_function><uintptr_t>addresses[5]
        elif codec == CODEC_GZIP:
            self.c.inflate_state = <isal_state*>calloc(1, ISAL_STATE_SIZE)
            if self.c.inflate_state == NULL:
                return 0
            self.c.inflate = <isal_function><uintptr_t>addresses[0]
            self.c.crc32 = <crc32_function><uintptr_t>addresses[1]
        elif codec != CODEC_SNAPPY:
            return 0
        self.c.present |= 1 << codec
        return 0

    cdef int grow(self) except -1:
        """A larger scratch, with any content."""
        self.hide()
        self.scratch = None
        self.c.scratch, self.c.capacity = NULL, 0
        self.scratch = PyByteArray_FromStringAndSize(NULL, self.c.needed + SLACK)
        self.c.scratch = <uint8_t*>PyByteArray_AS_STRING(self.scratch)
        self.c.capacity = self.c.needed
        return 0

    cdef int hide(self) except -1:
        """End the view of the body before: its bytes are about to change."""
        if self.shown is not None:
            self.shown.release()
            self.shown = None
        return 0

    cdef object show(self, int64_t size):
        self.shown = memoryview(self.scratch)[:size]
        return self.shown


def checksum(const uint8_t[::1] data):
    """The CRC-32C of some bytes, as batches are checked."""
    return crc32c_of(&data[0], data.shape[0])


def checksum_by_tables(const uint8_t[::1] data):
    """The same on a machine without instructions for it."""
    return crc32c_by_tables(&data[0], data.shape[0])


def decode_batches(
    columns, data, int64_t data_position, array table, int64_t rows, bint check_crcs, decompressor
):
    """Write the records of the table's batches into ``columns``; see ``_columns.decode_batches``."""
    cdef array state_array = columns.state, spent = columns.spent
    cdef int64_t* state = <int64_t*>state_array.data.as_longlongs
    cdef Codecs codecs = decompressor.codecs
    cdef Room room
    cdef Run run
    cdef Py_buffer view, body_view
    cdef bint has_body
    cdef int64_t outcome, start, began
    cdef int64_t* batch
    if len(state_array) <= S_CURSOR_MOVES or len(spent) <= IN_ALL or len(table) < rows * WIDTH or rows < 0:
        raise ValueError("the state or the batch table is too small")
    if codecs is None or codecs.is_busy:
        codecs = decompressor.codecs = Codecs(decompressor.limit)
    find_room(&room, columns.buffers)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    codecs.is_busy = True
    run.cursor.one_by_one = 0
    try:
        run.cursor.state, run.spent = state, <int64_t*>spent.data.as_longlongs
        run.data, run.size, run.position = <const uint8_t*>view.buf, view.len, data_position
        run.table, run.rows, run.check_crcs, run.codecs = <int64_t*>table.data.as_longlongs, rows, check_crcs, &codecs.c
        while True:
            has_body = state[S_RECORDS_LEFT] > 0
            if columns.body is not codecs.shown:
                codecs.hide()
            run.body_size = 0
            if has_body:
                PyObject_GetBuffer(columns.body, &body_view, PyBUF_SIMPLE)
                run.cursor.start, run.body_size = <const uint8_t*>body_view.buf, body_view.len
            run.body_of = GIVEN
            with nogil:
                began = clock_ns()
                outcome = decode_run(&run, &room)
                run.spent[IN_ALL] += clock_ns() - began
            if has_body:
                PyBuffer_Release(&body_view)
            batch = run.table + state[S_BATCH_ROW] * WIDTH
            if outcome == MISFIT:
                raise ValueError("the table or the state does not describe these bytes")
            elif outcome == UNKNOWN_CODEC:
                codecs.look_up(batch[T_ATTRIBUTES] & 7)
            elif outcome == NO_SCRATCH:
                codecs.grow()
            elif outcome == PLAIN_BODY:
                start, began = batch[T_POSITION] - data_position, clock_ns()
                columns.body = decompressor.decompress(
                    batch[T_ATTRIBUTES] & 7, data[start + HEADER_SIZE : start + batch[T_SIZE]]
                )
                began = clock_ns() - began
                run.spent[IN_BODY] += began
                run.spent[IN_ALL] += began
                begin_body(state, batch, len(columns.body))
            else:
                if state[S_RECORDS_LEFT] > 0 and run.body_of == DATA:
                    start = batch[T_POSITION] - data_position
                    columns.body = data[start + HEADER_SIZE : start + batch[T_SIZE]]
                elif state[S_RECORDS_LEFT] > 0 and run.body_of == SCRATCH:
                    columns.body = codecs.show(run.body_size)
                return outcome
    finally:
        codecs.is_busy = False
        codecs.one_by_one += run.cursor.one_by_one
        PyBuffer_Release(&view)


cdef enum BodyOf:
    """Which memory holds the body whose records are decoded."""
    GIVEN = 0  # in ``ColumnBuffers.body``
    DATA = 1
    SCRATCH = 2


cdef struct Run:
    Cursor cursor
    const uint8_t* data
    int64_t size
    int64_t position
    int64_t* table
    int64_t rows
    bint check_crcs
    body_codecs* codecs
    BodyOf body_of
    int64_t body_size
    int64_t* spent


cdef int64_t decode_run(Run* run, Room* room) noexcept nogil:
    """Batches until the run is done, or something must be done that needs the interpreter or the caller."""
    cdef Cursor* c = &run.cursor
    cdef int64_t* state = c.state
    cdef const int64_t* batch
    cdef const uint8_t* whole
    cdef int64_t row = state[S_BATCH_ROW], start, size, body_size, outcome, began = 0, weight
    cdef uint32_t crc
    cdef int codec
    if row < 0:
        return MISFIT
    while row < run.rows:
        batch = run.table + row * WIDTH
        if state[S_RECORDS_LEFT] < 0 and batch[T_DECISION] == DROP:
            state[S_RECORDS_LEFT] = 0
        if state[S_RECORDS_LEFT] < 0:
            if batch[T_MAGIC] < 2:
                return LEGACY
            if batch[T_BASE_OFFSET] >= state[S_STOP_OFFSET]:
                return STOPPED
            start = batch[T_POSITION] - run.position
            size = batch[T_SIZE]
            if start < 0 or size < HEADER_SIZE or size > run.size - start:
                return MISFIT
            whole = run.data + start
            weight = 0 if row % TIMED_ROWS else min(<int64_t>TIMED_ROWS, run.rows - row)
            if weight:
                began = clock_ns()
            if run.check_crcs:
                crc = crc32c_of(whole + CRC_START, size - CRC_START)
                if weight:
                    run.spent[IN_CRC] += weight * (clock_ns() - began)
                if crc != batch[T_CRC]:
                    c.start = whole
                    return damage(c, D_CRC, whole, crc, batch[T_CRC])
            if is_below(batch, row + 1 == run.rows, state[S_NEXT_OFFSET]):  # only now: its fields are under the CRC
                state[S_RECORDS_LEFT] = 0
            elif batch[T_DECISION] == SKIP:
                state[S_NEXT_OFFSET] = batch[T_LAST_OFFSET] + 1
                state[S_RECORDS_LEFT] = 0
            elif batch[T_RECORD_COUNT] < 0:
                c.start = whole
                return damage(c, D_RECORD_COUNT, whole, batch[T_RECORD_COUNT], 0)
            elif batch[T_RECORD_COUNT] == 0:
                begin_body(state, batch, 0)
            else:
                codec = batch[T_ATTRIBUTES] & 7
                if not codec:
                    run.body_of = DATA
                    c.start, body_size = whole + HEADER_SIZE, size - HEADER_SIZE
                else:
                    if not run.codecs.known >> codec & 1:
                        return UNKNOWN_CODEC
                    if not run.codecs.present >> codec & 1:
                        return PLAIN_BODY
                    if weight:
                        began = clock_ns()
                    body_size = decompress_body(run.codecs, codec, whole + HEADER_SIZE, size - HEADER_SIZE)
                    if weight:
                        run.spent[IN_BODY] += weight * (clock_ns() - began)
                    if body_size < 0:
                        return NO_SCRATCH if body_size == MORE_ROOM else PLAIN_BODY
                    run.body_of = SCRATCH
                    c.start = run.codecs.scratch
                run.body_size = body_size
                begin_body(state, batch, body_size)
        if state[S_RECORDS_LEFT] > 0:
            if not 0 <= state[S_BODY_POSITION] <= run.body_size:
                return MISFIT
            c.at = c.start + state[S_BODY_POSITION]
            c.stop = c.start + run.body_size
            outcome = decode_body(c, room, batch)
            if outcome != GOOD:
                return outcome
        state[S_RECORDS_LEFT] = -1
        row += 1
        state[S_BATCH_ROW] = row
    return DONE


cdef inline void begin_body(int64_t* state, const int64_t* batch, int64_t size) noexcept nogil:
    state[S_BODY_BYTES] += size
    state[S_DECODED_BATCHES] += 1
    state[S_BODY_POSITION] = 0
    state[S_RECORDS_LEFT] = batch[T_RECORD_COUNT]


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


cdef int64_t decode_body(Cursor* c, Room* room, const int64_t* batch) noexcept nogil:
    """Records until the batch is done (GOOD), full, in need of room, or damaged."""
    cdef int64_t* state = c.state
    cdef int64_t outcome
    while state[S_RECORDS_LEFT] > 0:
        decode_ordinary(c, room, batch)
        if state[S_RECORDS_LEFT] == 0:
            return GOOD
        if (
            state[S_ROWS] >= state[S_MAX_ROWS]
            or state[S_KEY_BYTES] + state[S_VALUE_BYTES] + state[S_HEADER_KEY_BYTES] + state[S_HEADER_VALUE_BYTES]
            >= state[S_MAX_BYTES]
        ):
            return FULL
        c.one_by_one += 1
        outcome = decode_record(c, room, batch)
        if outcome != GOOD:
            return outcome
        state[S_RECORDS_LEFT] -= 1
    return GOOD


cdef void decode_ordinary(Cursor* c, Room* room, const int64_t* batch) noexcept nogil:
    """As many records as are whole, wanted and fit, written as ``decode_record`` writes them; perhaps none."""
    cdef int64_t* state = c.state
    cdef const uint8_t* stop = c.stop
    cdef const uint8_t* at = c.at  # behind the last whole record
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int64_t first = state[S_ROWS], rows = first, most_rows = state[S_MAX_ROWS], left = state[S_RECORDS_LEFT]
    cdef int64_t next_offset = state[S_NEXT_OFFSET], stop_offset = state[S_STOP_OFFSET]
    cdef int64_t base_offset = batch[T_BASE_OFFSET], scale = state[S_TIMESTAMP_SCALE]
    cdef int64_t sequence = batch[T_BASE_SEQUENCE]
    cdef uint64_t base_timestamp = <uint64_t>batch[T_BASE_TIMESTAMP]
    cdef bint cursor_moves = state[S_CURSOR_MOVES] != 0
    cdef bint is_log_append = (batch[T_ATTRIBUTES] & LOG_APPEND_TIME_FLAG) != 0
    cdef int64_t* offsets = <int64_t*>room.data[OFFSET]
    cdef int64_t* timestamps = <int64_t*>room.data[TIMESTAMP]
    cdef int32_t* sequences = <int32_t*>room.data[SEQUENCE]
    cdef int32_t* key_ends = <int32_t*>room.data[KEY_OFFSETS]
    cdef int32_t* value_ends = <int32_t*>room.data[VALUE_OFFSETS]
    cdef int32_t* list_ends = <int32_t*>room.data[HEADER_OFFSETS]
    cdef int32_t* name_ends = <int32_t*>room.data[HEADER_KEY_OFFSETS]
    cdef int32_t* datum_ends = <int32_t*>room.data[HEADER_VALUE_OFFSETS]
    cdef uint8_t* keys = room.data[KEY_DATA]
    cdef uint8_t* values = room.data[VALUE_DATA]
    cdef uint8_t* names = room.data[HEADER_KEY_DATA]
    cdef uint8_t* data = room.data[HEADER_VALUE_DATA]
    cdef int64_t key_room = room.size[KEY_DATA], value_room = room.size[VALUE_DATA]
    cdef int64_t name_room = room.size[HEADER_KEY_DATA], datum_room = room.size[HEADER_VALUE_DATA]
    cdef int64_t headers_room = header_room(room)
    cdef int64_t key_end = state[S_KEY_BYTES], value_end = state[S_VALUE_BYTES], headers = state[S_HEADERS]
    cdef int64_t name_end = state[S_HEADER_KEY_BYTES], datum_end = state[S_HEADER_VALUE_BYTES]
    cdef int64_t key_nulls = state[S_KEY_NULLS], value_nulls = state[S_VALUE_NULLS]
    cdef int64_t datum_nulls = state[S_HEADER_VALUE_NULLS]
    cdef int64_t bytes_left = state[S_MAX_BYTES] - key_end - value_end - name_end - datum_end
    cdef int64_t length, timestamp, delta, offset, key_size, value_size, count, size, seen
    cdef int64_t new_name_end, new_datum_end, new_nulls
    while left > 0 and rows < most_rows and bytes_left > 0:
        p = at
        if not short_number(&p, stop, &length) or length < 1 or length > stop - p:
            break
        end = p + length
        p += 1
        if not short_number(&p, end, &timestamp) and not long_number(&p, end, &timestamp):
            break
        if not short_number(&p, end, &delta):
            break
        offset = base_offset + delta
        if offset < next_offset or offset >= stop_offset:
            break
        timestamp = batch[T_MAX_TIMESTAMP] if is_log_append else <int64_t>(base_timestamp + <uint64_t>timestamp)
        if timestamps != NULL and scale != 1 and (timestamp > MAX_MICROSECONDS_MS or timestamp < -MAX_MICROSECONDS_MS):
            break
        if not short_number(&p, end, &key_size) or key_size > end - p:
            break
        key = p
        if key_size > 0:
            p += key_size
        if not short_number(&p, end, &value_size) or value_size > end - p:
            break
        value = p
        if value_size > 0:
            p += value_size
        if not short_number(&p, end, &count) or count < 0 or count > end - p:
            break
        if (keys != NULL and key_size > key_room - key_end) or (values != NULL and value_size > value_room - value_end):
            break
        new_name_end, new_datum_end, new_nulls = name_end, datum_end, datum_nulls
        seen = 0
        if list_ends == NULL:
            while seen < count:
                if not short_number(&p, end, &size) or size < 0 or size > end - p:
                    break
                p += size
                if not short_number(&p, end, &size) or size > end - p:
                    break
                if size > 0:
                    p += size
                seen += 1
        elif count > 0 and headers + count <= headers_room:
            if new_nulls > 0:  # bits behind the counter may be left from a record that did not fit
                set_valid(room.data[HEADER_VALUE_VALIDITY], headers, count)
            while seen < count:
                if not short_number(&p, end, &size) or size < 0 or size > end - p or size > name_room - new_name_end:
                    break
                if not is_ascii_field(p, size):
                    break
                put_field(names + new_name_end, name_room - new_name_end, p, stop - p, size)
                p += size
                new_name_end += size
                if not short_number(&p, end, &size) or size > end - p:
                    break
                if size > 0:
                    if size > datum_room - new_datum_end:
                        break
                    put_field(data + new_datum_end, datum_room - new_datum_end, p, stop - p, size)
                    p += size
                    new_datum_end += size
                elif size < 0:
                    put_null(room, HEADER_VALUE_VALIDITY, &new_nulls, headers + seen)
                seen += 1
                name_ends[headers + seen] = <int32_t>new_name_end
                datum_ends[headers + seen] = <int32_t>new_datum_end
        if seen != count or p != end or (left == 1 and end != stop):
            break

        at = end  # it is whole, and there is room for it
        if keys != NULL:
            if key_size > 0:
                put_field(keys + key_end, key_room - key_end, key, stop - key, key_size)
                key_end += key_size
                bytes_left -= key_size
            elif key_size < 0:
                put_null(room, KEY_VALIDITY, &key_nulls, rows)
            key_ends[rows + 1] = <int32_t>key_end
        if values != NULL:
            if value_size > 0:
                put_field(values + value_end, value_room - value_end, value, stop - value, value_size)
                value_end += value_size
                bytes_left -= value_size
            elif value_size < 0:
                put_null(room, VALUE_VALIDITY, &value_nulls, rows)
            value_ends[rows + 1] = <int32_t>value_end
        if list_ends != NULL:
            headers += count
            bytes_left -= new_name_end - name_end + new_datum_end - datum_end
            name_end, datum_end, datum_nulls = new_name_end, new_datum_end, new_nulls
            list_ends[rows + 1] = <int32_t>headers
        if offsets != NULL:
            offsets[rows] = offset
        if timestamps != NULL:
            timestamps[rows] = timestamp * scale
        if sequences != NULL:
            sequences[rows] = -1 if sequence < 0 else <int32_t>((sequence + delta) & 0x7FFFFFFF)
        if cursor_moves:
            next_offset = offset + 1
        rows += 1
        left -= 1
    if rows == first:
        return
    c.at = at
    state[S_BODY_POSITION] = at - c.start
    state[S_RECORDS_LEFT] = left
    state[S_ROWS] = rows
    state[S_NEXT_OFFSET] = next_offset
    state[S_KEY_BYTES], state[S_VALUE_BYTES], state[S_HEADERS] = key_end, value_end, headers
    state[S_HEADER_KEY_BYTES], state[S_HEADER_VALUE_BYTES] = name_end, datum_end
    state[S_KEY_NULLS], state[S_VALUE_NULLS], state[S_HEADER_VALUE_NULLS] = key_nulls, value_nulls, datum_nulls
    put_facts(room, batch, first, rows, is_log_append)


cdef inline int64_t header_room(const Room* room) noexcept nogil:
    """For how many headers there are ends and bits."""
    cdef int64_t least = room.size[HEADER_KEY_OFFSETS] // 4 - 1
    if room.size[HEADER_VALUE_OFFSETS] // 4 - 1 < least:
        least = room.size[HEADER_VALUE_OFFSETS] // 4 - 1
    if room.size[HEADER_VALUE_VALIDITY] * 8 < least:
        least = room.size[HEADER_VALUE_VALIDITY] * 8
    return least


cdef int64_t decode_record(Cursor* body, Room* room, const int64_t* batch) noexcept nogil:
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
    if room.data[OFFSET] != NULL:
        (<int64_t*>room.data[OFFSET])[rows] = offset
    if room.data[TIMESTAMP] != NULL:
        (<int64_t*>room.data[TIMESTAMP])[rows] = timestamp * state[S_TIMESTAMP_SCALE]
    if room.data[SEQUENCE] != NULL:
        (<int32_t*>room.data[SEQUENCE])[rows] = (
            -1 if batch[T_BASE_SEQUENCE] < 0 else <int32_t>((batch[T_BASE_SEQUENCE] + delta) & 0x7FFFFFFF)
        )
    put_facts(room, batch, rows, rows + 1, is_log_append)
    state[S_ROWS] = rows + 1
    if state[S_CURSOR_MOVES]:
        state[S_NEXT_OFFSET] = offset + 1
    return GOOD


cdef void put_facts(Room* room, const int64_t* batch, int64_t first, int64_t stop, bint is_log_append) noexcept nogil:
    """The columns that are the same in all records of a batch, in the rows ``first <= row < stop``."""
    fill_int32(room.data[TIMESTAMP_TYPE], first, stop, is_log_append)
    fill_int32(room.data[LEADER_EPOCH], first, stop, <int32_t>batch[T_LEADER_EPOCH])
    fill_int64(room.data[PRODUCER_ID], first, stop, batch[T_PRODUCER_ID])
    fill_int32(room.data[PRODUCER_EPOCH], first, stop, <int32_t>batch[T_PRODUCER_EPOCH])
    if room.data[ATTRIBUTES] != NULL:
        memset(room.data[ATTRIBUTES] + first, <uint8_t>batch[T_ATTRIBUTES], stop - first)
    fill_int64(room.data[BATCH_BASE_OFFSET], first, stop, batch[T_BASE_OFFSET])
    fill_int64(room.data[POSITION], first, stop, batch[T_POSITION])


cdef inline void fill_int32(uint8_t* column, int64_t first, int64_t stop, int32_t value) noexcept nogil:
    cdef int64_t row
    if column != NULL:
        for row in range(first, stop):
            (<int32_t*>column)[row] = value


cdef inline void fill_int64(uint8_t* column, int64_t first, int64_t stop, int64_t value) noexcept nogil:
    cdef int64_t row
    if column != NULL:
        for row in range(first, stop):
            (<int64_t*>column)[row] = value


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
        if is_ascii_field(key, key_size):
            if key_size > room.size[HEADER_KEY_DATA] - ends[1]:
                return need(c.state, HEADER_KEY_DATA, ends[1] + key_size)
            memcpy(room.data[HEADER_KEY_DATA] + ends[1], key, key_size)
            ends[1] += key_size
        else:
            written = put_java_text(NULL, key, key_size)
            if written > room.size[HEADER_KEY_DATA] - ends[1]:
                return need(c.state, HEADER_KEY_DATA, ends[1] + written)
            put_java_text(room.data[HEADER_KEY_DATA] + ends[1], key, key_size)
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


crc_begin()
snappy_begin()
