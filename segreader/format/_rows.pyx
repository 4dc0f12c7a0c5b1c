# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False

"""Rows as text and as objects, for speed: the twin of ``rows.py``, function by function.

Text is written by ``_rows.h`` without the interpreter lock, a piece of about 256 KiB at a time.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp

from types import MemberDescriptorType

from segreader.format.batch import TimestampType
from segreader.format.rows import ENCODINGS, RECORD_COLUMNS, RECORDS_AT_ONCE

NAME = "native"

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        int type
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef extern from *:
    """
    /* A new object with empty slots, and a reference put into one of them. */
    static PyObject *new_object(PyObject *kind) { return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, 0); }
    static void set_slot(PyObject *object, Py_ssize_t at, PyObject *value)
    {
        Py_INCREF(value);
        *(PyObject **)((char *)object + at) = value;
    }
    """
    object new_object(object kind)
    void set_slot(object object, Py_ssize_t at, object value)

cdef extern from "_rows.h" nogil:
    enum:
        NO_MEMORY
        BAD_OFFSETS
        BAD_TYPE
        PIECE_BYTES
    ctypedef struct Out:
        uint8_t *data
        size_t at
        size_t size
    ctypedef struct Texts:
        const int32_t *offsets
        const uint8_t *data
        int64_t size
        const uint8_t *validity
        int64_t first_bit
    ctypedef struct Columns:
        int64_t rows
        Texts topic
        Texts key
        Texts value
        Texts header_key
        Texts header_value
        const int32_t *partition
        const int32_t *timestamp_type
        const int32_t *leader_epoch
        const int32_t *header_offsets
        const int64_t *offset
        const int64_t *timestamp_ms
        const uint8_t *epoch_validity
        int64_t epoch_first_bit
        int64_t headers
    ctypedef struct Style:
        int key_encoding
        int value_encoding
        const char *end
        size_t end_size
    int put_rows(Out *out, Out *scratch, const Columns *columns, const Style *style, int is_csv, int64_t *row)
    int cell(const Texts *column, int64_t row, const uint8_t **data, size_t *size)
    int has_epoch(const Columns *columns, int64_t row)


cdef enum:
    BUFFERS = 22  # five columns of text with three each, and seven others


cdef class _Columns:
    """The buffers of ``RowColumns``, held as long as this object, and checked to be as long as the rows need."""

    cdef Columns columns
    cdef Py_buffer held[BUFFERS]
    cdef int count

    def __cinit__(self, columns):
        cdef int64_t rows = columns.rows
        self.columns.rows = rows
        self.text(&self.columns.topic, columns.topic, rows)
        self.text(&self.columns.key, columns.key, rows)
        self.text(&self.columns.value, columns.value, rows)
        self.columns.partition = <const int32_t *>self.hold(columns.partition, 4 * rows)
        self.columns.offset = <const int64_t *>self.hold(columns.offset, 8 * rows)
        self.columns.timestamp_ms = <const int64_t *>self.hold(columns.timestamp_ms, 8 * rows)
        self.columns.timestamp_type = <const int32_t *>self.hold(columns.timestamp_type, 4 * rows)
        self.columns.leader_epoch = <const int32_t *>self.hold(columns.leader_epoch.values, 4 * rows)
        self.columns.epoch_first_bit = columns.leader_epoch.first_bit
        self.columns.epoch_validity = self.bits(columns.leader_epoch, rows)
        self.columns.headers = columns.headers
        self.columns.header_offsets = <const int32_t *>self.hold(columns.header_offsets, 4 * (rows + 1))
        self.text(&self.columns.header_key, columns.header_key, columns.headers)
        self.text(&self.columns.header_value, columns.header_value, columns.headers)

    def __dealloc__(self):
        for k in range(self.count):
            PyBuffer_Release(&self.held[k])

    cdef const uint8_t *hold(self, data, int64_t size) except? NULL:
        PyObject_GetBuffer(data, &self.held[self.count], PyBUF_SIMPLE)
        self.count += 1
        if self.held[self.count - 1].len < size:
            raise ValueError(f"a column has {self.held[self.count - 1].len} bytes, its rows need {size}")
        return <const uint8_t *>self.held[self.count - 1].buf

    cdef const uint8_t *bits(self, column, int64_t rows) except? NULL:
        if column.validity is None:
            return NULL
        return self.hold(column.validity, (column.first_bit + rows + 7) // 8)

    cdef int text(self, Texts *to, column, int64_t rows) except -1:
        to.offsets = <const int32_t *>self.hold(column.offsets, 4 * (rows + 1))
        to.data = self.hold(column.data, 0)
        to.size = self.held[self.count - 1].len
        to.first_bit = column.first_bit
        to.validity = self.bits(column, rows)
        return 0


cdef class _Buffer:
    """Memory that ``_rows.h`` grows."""

    cdef Out out

    def __dealloc__(self):
        free(self.out.data)

    cdef void shrink(self) noexcept:
        self.out.at = 0
        if self.out.size > 4 * PIECE_BYTES:
            free(self.out.data)
            self.out.data, self.out.size = NULL, 0


def json_rows(columns, key_encoding, value_encoding, bytes end):
    """See ``rows.json_rows``."""
    return _pieces(_Columns(columns), _number(key_encoding), _number(value_encoding), end, False)


def csv_rows(columns, key_encoding, value_encoding):
    """See ``rows.csv_rows``."""
    return _pieces(_Columns(columns), _number(key_encoding), _number(value_encoding), b"", True)


def _number(encoding):
    return list(ENCODINGS).index(encoding)


def _pieces(_Columns columns, int key_encoding, int value_encoding, bytes end, bint is_csv):
    cdef Style style
    cdef int64_t row = 0
    cdef int done
    cdef _Buffer buffer = _Buffer(), scratch = _Buffer()
    style.key_encoding, style.value_encoding = key_encoding, value_encoding
    style.end, style.end_size = end, len(end)
    while row < columns.columns.rows:
        with nogil:
            done = put_rows(&buffer.out, &scratch.out, &columns.columns, &style, is_csv, &row)
        if done == NO_MEMORY:
            raise MemoryError
        if done != 1:
            raise _damage(done, row)
        yield PyBytes_FromStringAndSize(<char *>buffer.out.data, buffer.out.at)
        buffer.shrink()


cdef _damage(int found, int64_t row):
    what = "an unknown timestamp type" if found == BAD_TYPE else "offsets that leave its buffers"
    return ValueError(f"row {row} has {what}")


_TYPES = (TimestampType.NO_TIMESTAMP_TYPE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


cdef Py_ssize_t _slot(kind, name) except -1:
    member = kind.__dict__[name]
    if type(member) is not MemberDescriptorType:
        raise TypeError(f"{kind.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject *><PyObject *>member).d_member.offset


cdef object _bytes(const Texts *column, int64_t row):
    cdef const uint8_t *data
    cdef size_t size
    cdef int found = cell(column, row, &data, &size)
    if found < 0:
        raise _damage(found, row)
    return PyBytes_FromStringAndSize(<const char *>data, size) if found else None


cdef object _text(const Texts *column, int64_t row):
    cdef const uint8_t *data
    cdef size_t size
    if cell(column, row, &data, &size) != 1:
        raise _damage(BAD_OFFSETS, row)
    return PyUnicode_DecodeUTF8(<const char *>data, size, NULL)


cdef tuple _headers(const Columns *columns, int64_t row):
    cdef int64_t start = columns.header_offsets[row], stop = columns.header_offsets[row + 1], k
    cdef tuple pairs, pair
    if start < 0 or stop < start or stop > columns.headers:
        raise _damage(BAD_OFFSETS, row)
    pairs = PyTuple_New(stop - start)
    for k in range(start, stop):
        pair = (_text(&columns.header_key, k), _bytes(&columns.header_value, k))
        Py_INCREF(pair)
        PyTuple_SET_ITEM(pairs, k - start, pair)
    return pairs


cdef object _record(kind, const Columns *columns, int64_t row, const Py_ssize_t *slots, object topic, object partition):
    record = new_object(kind)
    set_slot(record, slots[0], topic)
    set_slot(record, slots[1], partition)
    set_slot(record, slots[2], columns.offset[row])
    set_slot(record, slots[3], columns.timestamp_ms[row])
    if not -1 <= columns.timestamp_type[row] <= 1:
        raise _damage(BAD_TYPE, row)
    set_slot(record, slots[4], (<tuple>_TYPES)[columns.timestamp_type[row] + 1])
    set_slot(record, slots[5], columns.leader_epoch[row] if has_epoch(columns, row) else None)
    set_slot(record, slots[6], _bytes(&columns.key, row))
    set_slot(record, slots[7], _bytes(&columns.value, row))
    set_slot(record, slots[8], _headers(columns, row))
    return record


def make_records(columns, kind):
    """See ``rows.make_records``."""
    cdef _Columns held = _Columns(columns)
    cdef Py_ssize_t slots[9]
    cdef int64_t row, stop
    cdef int32_t last = 0
    cdef const uint8_t *data
    cdef const uint8_t *topic_data = NULL
    cdef size_t size, topic_size = <size_t>-1
    cdef list records
    cdef object topic = None, partition = 0
    for k, name in enumerate(RECORD_COLUMNS):
        slots[k] = _slot(kind, name)
    for start in range(0, held.columns.rows, RECORDS_AT_ONCE):
        stop = min(start + <int64_t>RECORDS_AT_ONCE, held.columns.rows)
        records = []
        for row in range(start, stop):
            if held.columns.partition[row] != last:
                last = held.columns.partition[row]
                partition = last
            if cell(&held.columns.topic, row, &data, &size) != 1:
                raise _damage(BAD_OFFSETS, row)
            if size != topic_size or memcmp(data, topic_data, size):
                topic_data, topic_size = data, size
                topic = PyUnicode_DecodeUTF8(<const char *>data, size, NULL)
            records.append(_record(kind, &held.columns, row, slots, topic, partition))
        yield records
