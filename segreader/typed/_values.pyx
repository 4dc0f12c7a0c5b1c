# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False

"""Values decoded into columns, for speed: what ``reference`` does in plain Python, packed by ``packed.py``.

Rows are decoded by ``_values.h`` without the interpreter lock. Python gets it back where a buffer lacks room, where an
enum needs a symbol, and at the end. Each buffer that a column is written into is held until the next ``begin``.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

NAME = "native"

cdef extern from "_values.h" nogil:
    enum:
        OUT_DONE
        OUT_BAD
        OUT_ROOM
        OUT_SYMBOL
        OUT_SCRATCH
        OUT_BADS
        OUT_MISFIT
        ROOM_ENTRIES
        ROOM_DATA
        KIND_BOOL
        KIND_STRING
        KIND_BINARY
        KIND_ENUM
        KIND_STRUCT
        KIND_LIST
        KIND_MAP
        KIND_NULL
        X_ENUM
        JSON_CHOICE
        BAD_PARTS
        MOST_DEPTH
        FREE_ITEMS
    ctypedef struct Symbol:
        int64_t number
        int64_t index
    ctypedef struct Column:
        int64_t length
        int64_t size
        int64_t room
        int64_t data_room
        uint8_t *values
        uint8_t *data
        uint8_t *validity
        const uint64_t *bound
        Symbol *symbols
        int64_t symbol_count
        int64_t symbol_room
        int64_t first_symbol
        int64_t peak
        int64_t peak_size
        int32_t kind
        int32_t width
        int32_t unit
        int32_t parent
        int32_t below
        int32_t below_count
        int32_t first_child
        int32_t child_count
    ctypedef struct Step:
        int32_t code
        int32_t column
        int32_t first
        int32_t count
        int64_t a
        int64_t b
        int32_t flags
        int32_t kind
        int32_t table
        int32_t table_size
        int32_t text
        int32_t text_size
    ctypedef struct Machine:
        const Step *steps
        const int64_t *table
        const uint8_t *text
        int64_t text_size
        Column *columns
        const int32_t *numbers
        int64_t column_count
        int64_t *scratch
        int64_t scratch_size
        int64_t most_symbols
        int32_t outcome
        int32_t need_column
        int32_t need_what
        int64_t need
    ctypedef struct Batch:
        const uint8_t *data
        int64_t size
        const int64_t *starts
        const int64_t *stops
        const int32_t *roots
        const int32_t *root_steps
        int64_t root_count
        int64_t row
        int64_t rows
        int64_t *bads
        int64_t bad_count
        int64_t bad_room
        int stops_at_first
    int run_rows(Machine *m, Batch *b)
    int64_t count_zeros(const uint8_t *bits, int64_t count)

cdef extern from "_values_frames.h" nogil:
    enum:
        FRAMES_DONE
        FRAMES_UNKNOWN
        FRAMES_MISFIT
    ctypedef struct Frame:
        int64_t start
        int64_t size
        uint64_t first
        uint64_t mask
        int32_t root
    ctypedef struct FrameTable:
        const uint8_t *text
        const Frame *frames
        const int32_t *slots
        int64_t slot_mask
        int64_t key_size
        int64_t last
    ctypedef struct Cells:
        const int32_t *offsets
        const uint8_t *data
        int64_t size
        const uint8_t *validity
        int64_t first_bit
    ctypedef struct Framed:
        Cells values
        const int32_t *header_offsets
        int64_t headers
        Cells header_keys
        Cells header_values
        const uint8_t *header_name
        int64_t header_name_size
    uint64_t hash_frame(const uint8_t *data, int64_t size)
    int find_frames(FrameTable *table, FrameTable *headers, const Framed *f, int64_t *row, int64_t rows,
                    int32_t *roots, int64_t *starts, int64_t *stops)

cdef enum:
    VALUES = 0  # which buffer of a column
    DATA = 1
    VALIDITY = 2
    BADS = 1024

cdef enum:
    COLUMN_WIDTH = 11  # of ColumnNumber in packed.py
    STEP_WIDTH = 12  # of StepNumber

# What the enums of _values.h end with, for the test that compares them with ops.py and packed.py.
LAYOUT = {
    "KINDS": KIND_NULL + 1, "AvroStep": X_ENUM, "OpCode": JSON_CHOICE, "Bad": BAD_PARTS,
    "COLUMN_WIDTH": COLUMN_WIDTH, "STEP_WIDTH": STEP_WIDTH, "MOST_DEPTH": MOST_DEPTH, "FREE_ITEMS": FREE_ITEMS,
}

DONE, BAD, ROOM, SYMBOL, SCRATCH, MORE = OUT_DONE, OUT_BAD, OUT_ROOM, OUT_SYMBOL, OUT_SCRATCH, OUT_BADS
ENTRIES = ROOM_ENTRIES


cdef enum:
    ALIGNED = 64  # where each column's buffers begin in one that they share
    FIRST_ENTRIES = 1 << 16
    FIRST_DATA = 1 << 20
    MOST_DATA = 0x7FFFFFFF
    WIDE = 64
    MOST_OF_WIDE = 16 << 20


cdef struct Plan:
    double entries_a_row  # what rows needed the last times
    double data_a_row
    int64_t most_entries  # room to begin with, however many rows
    int64_t most_data
    int64_t entries  # room that is planned
    int64_t data
    bint is_repeated
    bint has_validity


cdef void *_resized(void *old, int64_t size) except NULL:
    cdef void *made = PyMem_Realloc(old, size if size else 1)
    if made == NULL:
        raise MemoryError
    return made


cdef inline int64_t _aligned(int64_t size) noexcept:
    return (size + ALIGNED - 1) & ~<int64_t>(ALIGNED - 1)


cdef inline bint _has_offsets(int32_t kind) noexcept:
    return kind == KIND_STRING or kind == KIND_BINARY or kind == KIND_LIST or kind == KIND_MAP


cdef inline int64_t _size_of_values(const Column *c, int64_t entries) noexcept:
    """Bytes of so many entries in the buffer of values or offsets."""
    if c.kind == KIND_BOOL:
        return (entries + 7) // 8
    return (entries + _has_offsets(c.kind)) * c.width


cdef class NativeExecutor:
    """The columns of a layout, and the steps that fill them.

    The buffers of all columns are parts of one, ``begin``; what more a column needs later is one of its own, ``grow``.
    How much is needed is known from the rows before.

    Args:
        program: a ``PackedProgram``; what is added to it later is seen by ``extend``.
    """

    cdef Machine machine
    cdef Batch batch
    cdef Step *steps
    cdef int64_t step_count
    cdef int64_t *table
    cdef int64_t table_size
    cdef uint8_t *text
    cdef int64_t text_size
    cdef Column *columns
    cdef int64_t column_count
    cdef int32_t *lists
    cdef uint64_t *bounds
    cdef int64_t *scratch
    cdef int32_t *root_steps
    cdef int64_t root_count
    cdef int64_t *bads
    cdef Plan *plans
    cdef list owners  # of the buffers of each column: of values, data and validity

    def __cinit__(self, program):
        cdef const int64_t[::1] numbers = program.layout.columns
        cdef const int32_t[::1] lists = program.layout.lists
        cdef const uint64_t[::1] bounds = program.layout.bounds
        cdef int64_t width = COLUMN_WIDTH, k, parent
        cdef Column *column
        cdef Plan *plan
        self.column_count = numbers.shape[0] // width
        self.columns = <Column *>_resized(NULL, self.column_count * sizeof(Column))
        memset(self.columns, 0, self.column_count * sizeof(Column))
        self.lists = <int32_t *>_resized(NULL, lists.shape[0] * 4)
        for k in range(lists.shape[0]):
            if not 0 <= lists[k] < self.column_count:
                raise ValueError(f"no column {lists[k]}")
            self.lists[k] = lists[k]
        self.bounds = <uint64_t *>_resized(NULL, bounds.shape[0] * 8)
        for k in range(bounds.shape[0]):
            self.bounds[k] = bounds[k]
        for k in range(self.column_count):
            column = self.columns + k
            column.kind = numbers[k * width]
            column.width = numbers[k * width + 1]
            column.unit = numbers[k * width + 2]
            column.parent = numbers[k * width + 3]
            column.below = numbers[k * width + 5]
            column.below_count = numbers[k * width + 6]
            column.first_child = numbers[k * width + 7]
            column.child_count = numbers[k * width + 8]
            if column.below + column.below_count > lists.shape[0]:
                raise ValueError(f"column {k} has columns below it that are not there")
            if column.first_child + column.child_count > lists.shape[0]:
                raise ValueError(f"column {k} has children that are not there")
            if column.kind in (KIND_LIST, KIND_MAP) and column.child_count < 1:
                raise ValueError(f"column {k} has no items")
            column.first_symbol = numbers[k * width + 10]
            if numbers[k * width + 9] >= 0:
                if numbers[k * width + 9] + 4 > bounds.shape[0]:
                    raise ValueError(f"column {k} has no bound")
                column.bound = self.bounds + numbers[k * width + 9]
        self.plans = <Plan *>_resized(NULL, self.column_count * sizeof(Plan))
        for k in range(self.column_count):
            column, plan = self.columns + k, self.plans + k
            if column.parent >= k:
                raise ValueError(f"column {k} is above its parent")
            parent = column.parent
            plan.is_repeated = parent >= 0 and (
                self.plans[parent].is_repeated or self.columns[parent].kind in (KIND_LIST, KIND_MAP)
            )
            plan.has_validity = numbers[k * width + 4]
            plan.entries_a_row, plan.data_a_row = 2.0 if plan.is_repeated else 1.0, 16.0
            plan.most_entries, plan.most_data = FIRST_ENTRIES, FIRST_DATA
        self.bads = <int64_t *>_resized(NULL, 3 * BADS * sizeof(int64_t))
        self.owners = [None] * (3 * self.column_count)
        self.machine.columns = self.columns
        self.machine.column_count = self.column_count
        self.machine.numbers = self.lists
        self.grow_scratch(64)  # at once: a step that needs none must not be given NULL
        self.extend(program)

    def __dealloc__(self):
        if self.columns != NULL:
            for k in range(self.column_count):
                free(self.columns[k].symbols)
        PyMem_Free(self.steps)
        PyMem_Free(self.table)
        PyMem_Free(self.text)
        PyMem_Free(self.columns)
        PyMem_Free(self.lists)
        PyMem_Free(self.bounds)
        PyMem_Free(self.scratch)
        PyMem_Free(self.root_steps)
        PyMem_Free(self.bads)
        PyMem_Free(self.plans)

    def extend(self, program):
        """Take over the steps that were added to the program since the last time."""
        cdef const int64_t[::1] numbers = program.steps
        cdef const int64_t[::1] table = program.table
        cdef const uint8_t[::1] text = program.text
        cdef int64_t width = STEP_WIDTH, k, count = numbers.shape[0] // width
        cdef Step *step
        self.steps = <Step *>_resized(self.steps, count * sizeof(Step))
        self.table = <int64_t *>_resized(self.table, table.shape[0] * 8)
        self.text = <uint8_t *>_resized(self.text, text.shape[0])
        for k in range(self.table_size, table.shape[0]):
            self.table[k] = table[k]
        for k in range(self.text_size, text.shape[0]):
            self.text[k] = text[k]
        self.table_size, self.text_size = table.shape[0], text.shape[0]
        for k in range(self.step_count, count):
            step = self.steps + k
            step.code = numbers[k * width]
            step.column = numbers[k * width + 1]
            step.first = numbers[k * width + 2]
            step.count = numbers[k * width + 3]
            step.a = numbers[k * width + 4]
            step.b = numbers[k * width + 5]
            step.flags = numbers[k * width + 6]
            step.kind = numbers[k * width + 7]
            step.table = numbers[k * width + 8]
            step.table_size = numbers[k * width + 9]
            step.text = numbers[k * width + 10]
            step.text_size = numbers[k * width + 11]
            if not (
                -1 <= step.column < self.column_count
                and 0 <= step.first and 0 <= step.count and <int64_t>step.first + step.count <= count
                and 0 <= step.table and 0 <= step.table_size and <int64_t>step.table + step.table_size <= table.shape[0]
                and 0 <= step.text and 0 <= step.text_size and <int64_t>step.text + step.text_size <= text.shape[0]
            ):
                raise ValueError(f"step {k} leaves the program")
        self.step_count = count
        self.machine.steps = self.steps
        self.machine.table = self.table
        self.machine.text = self.text
        self.machine.text_size = self.text_size

    def add_root(self, int64_t step):
        """A tree that rows may be decoded by, by the number of its first step: its index among the roots."""
        if not 0 <= step < self.step_count:
            raise ValueError(f"no step {step}")
        self.root_steps = <int32_t *>_resized(self.root_steps, (self.root_count + 1) * 4)
        self.root_steps[self.root_count] = step
        self.root_count += 1
        return self.root_count - 1

    def plan(self, int64_t rows):
        """Bytes of a buffer for all columns of so many rows."""
        cdef int64_t k, total = 0
        cdef const Column *c
        cdef Plan *p
        for k in range(self.column_count):
            c, p = self.columns + k, self.plans + k
            p.entries = min(<int64_t>(p.entries_a_row * rows * 1.1) + 16, p.most_entries) if p.is_repeated else rows
            if c.width > WIDE:  # nulls are as wide
                p.entries = min(p.entries, MOST_OF_WIDE // c.width)
            total += _aligned(_size_of_values(c, p.entries))
            p.data = 0
            if c.kind == KIND_STRING or c.kind == KIND_BINARY:
                p.data = min(<int64_t>(p.data_a_row * rows * 1.1) + 64, p.most_data)
                total += _aligned(p.data)
            if p.has_validity:
                total += _aligned((p.entries + 7) // 8)
        return total

    def begin(self, bytearray buffer):
        """Begin with empty columns in a buffer of the size that was planned. The one before belongs to its taker."""
        cdef int64_t k, at = 0
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(buffer)
        cdef Column *c
        cdef Plan *p
        self.owners = [buffer] * (3 * self.column_count)
        for k in range(self.column_count):
            c, p = self.columns + k, self.plans + k
            c.length = c.size = c.symbol_count = 0
            c.values = c.data = c.validity = NULL
            c.room, c.data_room = p.entries, p.data
            if _size_of_values(c, 1):
                c.values = start + at
                at += _aligned(_size_of_values(c, p.entries))
            elif not p.has_validity:
                c.room = INT64_MAX
            if c.kind == KIND_STRING or c.kind == KIND_BINARY:
                c.data = start + at
                at += _aligned(p.data)
            if p.has_validity:
                c.validity = start + at
                at += _aligned((p.entries + 7) // 8)
            if at > PyByteArray_GET_SIZE(buffer):
                self.let_go()
                raise ValueError(f"a buffer of {len(buffer)} bytes is too small for the columns")
            if _has_offsets(c.kind):
                (<int32_t *>c.values)[0] = 0

    def let_go(self):
        """Keep no buffer; nothing may be decoded before the next ``begin``."""
        cdef int64_t k
        self.owners = []
        for k in range(self.column_count):
            self.columns[k].room = self.columns[k].data_room = 0
            self.columns[k].length = self.columns[k].size = 0

    def size_of(self, int64_t column, int what, int64_t room):
        """Bytes of a buffer of its own for so many entries, or so many bytes of data, of a column; -1: impossible."""
        cdef const Column *c = self.columns + column
        if what == ROOM_DATA:
            return room if (c.kind == KIND_STRING or c.kind == KIND_BINARY) and room <= MOST_DATA else -1
        return _aligned(_size_of_values(c, room)) + (room + 7) // 8

    def grow(self, int64_t column, int what, int64_t room, bytearray buffer):
        """Go on in a buffer of the size that ``size_of`` gives, with what the column holds."""
        cdef Column *c = self.columns + column
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(buffer)
        if not 0 <= column < self.column_count or len(self.owners) != 3 * self.column_count:
            raise ValueError(f"no column {column}")
        if PyByteArray_GET_SIZE(buffer) < self.size_of(column, what, room):
            raise ValueError(f"a buffer of {len(buffer)} bytes is too small for column {column}")
        if what == ROOM_DATA:
            memcpy(start, c.data, c.size)
            c.data, c.data_room = start, room
            self.owners[3 * column + DATA] = buffer
            return
        if c.values != NULL:
            memcpy(start, c.values, _size_of_values(c, c.length))
            c.values = start
            self.owners[3 * column + VALUES] = buffer
        if c.validity != NULL:
            start += _aligned(_size_of_values(c, room))
            memcpy(start, c.validity, (c.length + 7) // 8)
            c.validity = start
            self.owners[3 * column + VALIDITY] = buffer
        c.room = room

    def filled(self):
        """What each column holds: (entries, nulls, bits of validity or None, values or None, data or None)."""
        cdef int64_t k, rows = self.columns[0].length, nulls
        cdef const Column *c
        cdef Plan *p
        found = []
        for k in range(self.column_count):
            c, p = self.columns + k, self.plans + k
            if rows:
                p.entries_a_row = max(<double>c.length / rows, p.entries_a_row * 0.9)
                p.data_a_row = max(<double>c.size / rows, p.data_a_row * 0.9)
                p.most_entries, p.most_data = max(2 * c.length, FIRST_ENTRIES), max(2 * c.size, FIRST_DATA)
            nulls = count_zeros(c.validity, c.length) if c.validity != NULL else 0
            found.append((
                c.length,
                nulls,
                self._part(k, VALIDITY, c.validity, (c.length + 7) // 8) if nulls else None,
                self._part(k, VALUES, c.values, _size_of_values(c, c.length)) if c.values != NULL else None,
                self._part(k, DATA, c.data, c.size) if c.data != NULL else None,
            ))
        return found

    cdef _part(self, int64_t column, int which, const uint8_t *data, int64_t size):
        owner = self.owners[3 * column + which]
        cdef int64_t start = data - <const uint8_t *>PyByteArray_AS_STRING(owner)
        return memoryview(owner)[start : start + size]

    def run(
        self, data, const int64_t[::1] starts, const int64_t[::1] stops, const int32_t[::1] roots,
        int64_t row, int64_t rows, bint stops_at_first, int64_t most_symbols, list bads
    ):
        """Decode rows from ``row`` on until something is to be done: (what, the next row).

        Undecodable rows are added to ``bads``: (row, bad, position in the payload).
        """
        cdef Py_buffer view
        cdef int outcome
        cdef int64_t k
        if not 0 <= row <= rows <= min(starts.shape[0], stops.shape[0], roots.shape[0]):
            raise ValueError(f"no rows {row} to {rows}")
        if row != self.columns[0].length:
            raise ValueError(f"row {row} follows {self.columns[0].length} rows")
        if rows:
            self.batch.starts, self.batch.stops, self.batch.roots = &starts[0], &stops[0], &roots[0]
        self.batch.root_steps, self.batch.root_count = self.root_steps, self.root_count
        self.batch.row, self.batch.rows = row, rows
        self.batch.bads, self.batch.bad_count, self.batch.bad_room = self.bads, 0, BADS
        self.batch.stops_at_first = stops_at_first
        self.machine.most_symbols = most_symbols
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.batch.data, self.batch.size = <const uint8_t *>view.buf, view.len
        with nogil:
            outcome = run_rows(&self.machine, &self.batch)
        PyBuffer_Release(&view)
        for k in range(self.batch.bad_count):
            bads.append((self.bads[3 * k], self.bads[3 * k + 1], self.bads[3 * k + 2]))
        if outcome == OUT_MISFIT:
            raise ValueError(f"row {self.batch.row} leaves the buffer, or has no such root")
        return outcome, self.batch.row

    @property
    def need(self):
        """After ``ROOM``: (column, ENTRIES or DATA, how many); after ``SCRATCH`` the last of them."""
        return self.machine.need_column, self.machine.need_what, self.machine.need

    def crowded(self):
        """After ``ROOM``: (column, ENTRIES or DATA, how many it had) of what was full by half: it will be next."""
        cdef int64_t k
        cdef const Column *c
        found = []
        for k in range(self.column_count):
            c = self.columns + k
            if self.plans[k].is_repeated and c.peak > c.room // 2:
                found.append((k, ROOM_ENTRIES, c.peak))
            if c.peak_size > c.data_room // 2:
                found.append((k, ROOM_DATA, c.peak_size))
        return found

    def grow_scratch(self, int64_t size):
        """Room for so many numbers of a step's own."""
        self.scratch = <int64_t *>_resized(self.scratch, 8 * size)
        self.machine.scratch, self.machine.scratch_size = self.scratch, size

    def new_symbols(self, int64_t column):
        """The numbers that became symbols of an enum, in the order of their indices."""
        cdef const Column *c = self.columns + column
        if not 0 <= column < self.column_count:
            raise ValueError(f"no column {column}")
        pairs = sorted((c.symbols[k].index, c.symbols[k].number) for k in range(c.symbol_count))
        return [number for _, number in pairs]


cdef class NativeFrames:
    """Frames that are known, and the root of what is behind each.

    Args:
        key_size: bytes at the start of a frame that tell most of them apart; no frame is shorter.
    """

    cdef FrameTable table
    cdef Frame *frames
    cdef int32_t *slots
    cdef int64_t count
    cdef bytearray text
    cdef int64_t key_size

    def __cinit__(self, int64_t key_size=-1):
        self.key_size = key_size
        self.text = bytearray()
        self._clear()

    def __dealloc__(self):
        PyMem_Free(self.frames)
        PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    def clear(self):
        """Forget all."""
        self._clear()

    cdef int _clear(self) except -1:
        self.count = 0
        self.text = bytearray()
        self.slots = <int32_t *>_resized(self.slots, 4 * 4)
        memset(self.slots, 0xFF, 4 * 4)
        self.table.slots, self.table.slot_mask = self.slots, 3
        self.table.key_size, self.table.last = self.key_size, -1
        return 0

    def add(self, bytes frame, int32_t root):
        """Know one more. Its root is that of ``NativeExecutor``, or -2 minus why what it begins is undecodable."""
        cdef Frame *made
        cdef int64_t slots = 4, k
        self.frames = <Frame *>_resized(self.frames, (self.count + 1) * sizeof(Frame))
        made = self.frames + self.count
        made.start, made.size, made.root = len(self.text), len(frame), root
        made.first = made.mask = 0
        memcpy(&made.first, <const uint8_t *>frame, min(8, len(frame)))
        memset(&made.mask, 0xFF, min(8, len(frame)))
        self.text += frame
        self.count += 1
        while slots <= 2 * self.count:
            slots *= 2
        self.slots = <int32_t *>_resized(self.slots, slots * 4)
        memset(self.slots, 0xFF, slots * 4)
        self.table.text = <const uint8_t *>PyByteArray_AS_STRING(self.text)
        self.table.frames, self.table.slots, self.table.slot_mask = self.frames, self.slots, slots - 1
        for k in range(self.count):
            self._place(k)

    cdef void _place(self, int64_t frame) noexcept:
        cdef const Frame *one = self.frames + frame
        cdef int64_t size = one.size if self.key_size < 0 else self.key_size
        cdef int64_t slot = <int64_t>hash_frame(self.table.text + one.start, size)
        while self.slots[slot & self.table.slot_mask] >= 0:
            slot += 1
        self.slots[slot & self.table.slot_mask] = frame


cdef class _Cells:
    """A column of bytes, its buffers held and checked to be as long as its rows need."""

    cdef Cells cells
    cdef Py_buffer held[3]
    cdef int count

    def __cinit__(self, validity, offsets, data, int64_t first, int64_t rows):
        self.cells.first_bit = first
        if validity is not None:
            self.cells.validity = self.hold(validity, (first + rows + 7) // 8)
        self.cells.offsets = (<const int32_t *>self.hold(offsets, 4 * (first + rows + 1))) + first
        if data is None:
            self.cells.data, self.cells.size = <const uint8_t *>b"", 0
        else:
            self.cells.data = self.hold(data, 0)
            self.cells.size = self.held[self.count - 1].len

    def __dealloc__(self):
        for k in range(self.count):
            PyBuffer_Release(&self.held[k])

    cdef const uint8_t *hold(self, data, int64_t size) except? NULL:
        PyObject_GetBuffer(data, &self.held[self.count], PyBUF_SIMPLE)
        self.count += 1
        if self.held[self.count - 1].len < size:
            raise ValueError(f"a column has {self.held[self.count - 1].len} bytes, its rows need {size}")
        return <const uint8_t *>self.held[self.count - 1].buf


cdef class FramedValues:
    """Values and, where they may name schemas, their headers.

    Args:
        values: (validity or None, offsets, data or None, first row) of the column, as Arrow's buffers have it.
        headers: the same of (list offsets, first row), their number, and the buffers of keys and of values; or None.
        name: of the header that names a schema.
    """

    cdef Framed framed
    cdef _Cells values, keys, header_values, lists
    cdef bytes name
    cdef int64_t rows

    def __cinit__(self, int64_t rows, values, headers, bytes name):
        cdef int64_t count
        self.rows, self.name = rows, name
        self.values = _Cells(*values, rows)
        self.framed.values = self.values.cells
        if headers is not None:
            lists, count, keys, header_values = headers
            self.lists = _Cells(None, lists[0], None, lists[1], rows)
            self.keys, self.header_values = _Cells(*keys, count), _Cells(*header_values, count)
            self.framed.header_offsets, self.framed.headers = self.lists.cells.offsets, count
            self.framed.header_keys, self.framed.header_values = self.keys.cells, self.header_values.cells
            self.framed.header_name, self.framed.header_name_size = self.name, len(self.name)

    def find(self, NativeFrames frames, NativeFrames headers, int64_t row, int32_t[::1] roots, int64_t[::1] starts,
             int64_t[::1] stops):
        """Find the root and the payload of rows from ``row`` on: the first row whose frame is not known, else all."""
        cdef int outcome
        if not 0 <= row <= self.rows <= min(roots.shape[0], starts.shape[0], stops.shape[0]):
            raise ValueError(f"no rows {row} to {self.rows}")
        if row == self.rows:
            return row
        with nogil:
            outcome = find_frames(&frames.table, &headers.table, &self.framed, &row, self.rows, &roots[0], &starts[0],
                                  &stops[0])
        if outcome == FRAMES_MISFIT:
            raise ValueError(f"row {row} has offsets that leave its buffers")
        return row
