/* Values decoded into columns: what _values.pyx calls without the interpreter lock.

   Input is only read between `at` and `stop`, but for append_text(), which looks up to m->readable; output is only
   written after has_room(), or reserve_bytes(), for it.

   A step's function reads one value from `at` on and appends exactly one entry to the step's column, or, where the
   column is DROPPED, none. It returns the first byte behind the value; or NULL after fail() or after an append that
   had no room: then the whole row is taken back, and what was appended before needs no undoing. (A row that
   lacked room is decoded once more, from its first byte, after the buffer has grown.)

     int  append_null(m, column)                  a null; in a column that has none, a placeholder (0, "", no items).
                                                  Of a struct also in all that is below it
     int  append_bool, append_int32, append_int64, append_float, append_double(m, column, value)
                                                  the caller knows the width of the column's kind (see WIDTHS)
     int  append_wide(m, column, data, width)     FIXED, INTERVAL: `width` bytes as they are
     int  append_decimal(m, column, limbs, at)    DECIMAL: two's complement, 4 limbs, lowest first; fails with RANGE at
                                                  `at` where it has more digits than the column
     int  append_bytes(m, column, data, size)     BINARY; STRING: the caller has checked is_utf8()
     int  append_text(m, column, data, size, at)  STRING: fails with UTF8 at `at`; `data` is within the value, or m->text
     uint8_t *reserve_bytes(m, column, most)      room for one entry of up to `most` bytes, NULL: there is none; then
     void close_bytes(m, column, size)            the entry has the first `size` of them
     int  append_struct(m, column)                a struct that is not null; its fields get their entries from
                                                  steps of their own
     int  close_list(m, column)                   a list or map that is not null: its items are those appended to the
                                                  columns below it since the last entry (null or not) of `column`
     int  append_index(m, column, index)          ENUM
     int64_t new_symbol(m, column, number)        ENUM: index of the symbol that is the number in decimal; -1: return NULL
     void take_back(m, column, length)            take back all entries of the column from `length` on, and those
                                                  below them; m->columns[column].length says how many there are

   The append functions give 1, or 0: return NULL at once. Reading:

     const uint8_t *fail(m, bad, at)              NULL, with why and where (a byte of the value)
     const uint8_t *read_varint(m, at, stop, &u)  unsigned, at most 10 bytes; NULL after fail() with SHORT or VARINT
     int  is_utf8(data, size)                     well-formed as Unicode says: no surrogates, nothing overlong
     int  enter(m, at)                            one level deeper (a message, object or array begins), 0: return NULL;
     void leave(m)                                and out again
     int64_t *take_scratch(m, count)              numbers for the function's own use, NULL: return NULL; they do not move.
     void give_scratch(m, count)                  Give back in reverse order (not needed before return NULL)
     const uint8_t *run(m, step, at, stop)        any step, of any format

   The parts of a step are those of Op in ops.py: CHILD(m, step, k), m->table + step->table, m->text + step->text. */

#ifndef SEGREADER_VALUES_H
#define SEGREADER_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__) && !defined(SEGREADER_NO_SSE2)
#include <emmintrin.h>
#endif

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define NOINLINE
#endif

/* ops.py */
enum { DROPPED = -1, MOST_DEPTH = 100, FREE_ITEMS = 1 << 16 };

enum {
    SET_NULL = 0, CONSTANT = 1,
    AVRO_BOOL = 10, AVRO_INT, AVRO_LONG, AVRO_FLOAT, AVRO_DOUBLE, AVRO_BYTES, AVRO_STRING, AVRO_FIXED, AVRO_ENUM,
    AVRO_ARRAY, AVRO_MAP, AVRO_RECORD, AVRO_UNION,
    PROTO_MESSAGE = 30, PROTO_FIELD, PROTO_INT32, PROTO_INT64, PROTO_UINT32, PROTO_UINT64, PROTO_SINT32, PROTO_SINT64,
    PROTO_FIXED32, PROTO_FIXED64, PROTO_SFIXED32, PROTO_SFIXED64, PROTO_FLOAT, PROTO_DOUBLE, PROTO_BOOL, PROTO_ENUM,
    PROTO_STRING, PROTO_BYTES, PROTO_TIMESTAMP, PROTO_DURATION, PROTO_MAP_ENTRY,
    PROTO_JSON = 52,
    JSON_OBJECT = 60, JSON_FIELD, JSON_ARRAY, JSON_MAP, JSON_STRING, JSON_INTEGER, JSON_NUMBER, JSON_BOOL, JSON_ANY,
    JSON_OR_NULL, JSON_CHOICE,
};

enum { PROTO_REPEATED = 1, PROTO_PACKABLE = 2, PROTO_GROUP = 4 };

enum {
    BAD_UNKNOWN_SCHEMA = 1, BAD_NO_FRAME, BAD_SHORT, BAD_LEFT_OVER, BAD_VARINT, BAD_RANGE, BAD_UTF8, BAD_SYMBOL,
    BAD_BRANCH, BAD_COUNT, BAD_DEPTH, BAD_TAG, BAD_SYNTAX, BAD_TYPE, BAD_MISSING, BAD_MESSAGE, BAD_LIMIT, BAD_BOOL,
    BAD_MISMATCH, BAD_COMPRESSION, BAD_PARTS,
};

/* The kinds of types.py, in its order. */
enum {
    KIND_BOOL, KIND_INT32, KIND_INT64, KIND_UINT32, KIND_UINT64, KIND_FLOAT, KIND_DOUBLE, KIND_STRING, KIND_BINARY,
    KIND_FIXED, KIND_DECIMAL, KIND_DATE, KIND_TIME_MS, KIND_TIME_US, KIND_TIMESTAMP, KIND_DURATION, KIND_INTERVAL,
    KIND_ENUM, KIND_STRUCT, KIND_LIST, KIND_MAP, KIND_NULL,
};

enum { UNIT_NONE, UNIT_MS, UNIT_US, UNIT_NS };

/* Why a row was left. */
enum { OUT_DONE, OUT_BAD, OUT_ROOM, OUT_SYMBOL, OUT_SCRATCH, OUT_BADS, OUT_MISFIT };

/* Which buffer of a column lacks room. */
enum { ROOM_ENTRIES, ROOM_DATA };

enum { MOST_BYTES = 0x7fffffff };  /* of a column's data: its offsets are int32 */

typedef struct {
    int64_t number, index;
    int64_t row;  /* that came up with it */
} Symbol;

typedef struct {
    int64_t length;     /* entries */
    int64_t size;       /* STRING, BINARY: bytes in `data` */
    int64_t room;       /* entries that the buffers hold */
    int64_t data_room;  /* bytes that `data` holds */
    uint8_t *values;    /* `width` bytes an entry; BOOL: a bit; STRING, BINARY, LIST, MAP: int32 offsets, one more */
    uint8_t *data;      /* STRING, BINARY */
    uint8_t *validity;  /* a bit an entry; NULL: never null */
    const uint64_t *bound;   /* DECIMAL: 4 limbs of 10 to the power of its precision */
    Symbol *symbols;         /* ENUM: those that new_symbol() made, by number */
    int64_t symbol_count, symbol_room;
    int64_t first_symbol;    /* ENUM: the index of the first of them */
    int64_t peak, peak_size; /* `length` and `size` as they were when a buffer lacked room */
    int64_t seconds, nanos;  /* Protobuf's TIMESTAMP, DURATION: of the last entry */
    int32_t kind, width, unit, parent;
    int32_t below, below_count;        /* in `numbers` of the machine: columns that get an entry with each null of a struct */
    int32_t first_child, child_count;  /* in `numbers`: the columns right below */
} Column;

typedef struct {
    int32_t code, column;
    int32_t first, count;      /* children, side by side */
    int64_t a, b;
    int32_t flags, kind;       /* kind of the column; -1: dropped */
    int32_t table, table_size; /* in `table` of the machine */
    int32_t text, text_size;   /* in `text` of the machine */
} Step;

typedef struct {
    const Step *steps;
    const int64_t *table;
    const uint8_t *text;
    int64_t text_size;
    Column *columns;
    const int32_t *numbers;
    int64_t column_count;
    const uint8_t *readable; /* where the buffer ends that the value, or the CONSTANT, is in: it has more behind `stop` */
    int64_t *scratch;
    int64_t scratch_at, scratch_size;
    const uint8_t *outside;  /* in a CONSTANT: where the value is read on */
    int64_t free_items;      /* that this value may still have */
    int64_t row, row_symbols; /* this row, and how many symbols it has come up with */
    int64_t most_symbols;     /* of an enum, beyond those of its type */
    int32_t depth;
    /* with NULL: */
    int32_t outcome, bad;
    const uint8_t *bad_at;
    int32_t need_column, need_what;
    int64_t need;            /* entries, bytes or scratch numbers */
} Machine;

static const uint8_t *run(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop);

#define CHILD(m, step, k) ((m)->steps + (step)->first + (k))

static NOINLINE const uint8_t *fail(Machine *m, int bad, const uint8_t *at)
{
    m->outcome = OUT_BAD;
    m->bad = bad;
    m->bad_at = m->outside ? m->outside : at;
    return NULL;
}

static NOINLINE int no_room(Machine *m, int column, int what, int64_t need)
{
    m->outcome = OUT_ROOM;
    m->need_column = column;
    m->need_what = what;
    m->need = need;
    return 0;
}

static inline int has_room(Machine *m, int column)
{
    const Column *c = m->columns + column;
    return LIKELY(c->length < c->room) ? 1 : no_room(m, column, ROOM_ENTRIES, c->length + 1);
}

/* Bits behind it in its byte become 0: they are of entries that were taken back. */
static inline void put_bit(uint8_t *bits, int64_t at, int is_set)
{
    unsigned k = (unsigned)at & 7;
    bits[at >> 3] = (uint8_t)((bits[at >> 3] & ((1u << k) - 1)) | (unsigned)(is_set != 0) << k);
}

static inline void put_valid(Column *c)
{
    if (c->validity) put_bit(c->validity, c->length, 1);
    c->length++;
}

static inline int append_int32(Machine *m, int column, int32_t value)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return 0;
    ((int32_t *)c->values)[c->length] = value;
    put_valid(c);
    return 1;
}

static inline int append_index(Machine *m, int column, int32_t index) { return append_int32(m, column, index); }

static inline int append_int64(Machine *m, int column, int64_t value)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return 0;
    ((int64_t *)c->values)[c->length] = value;
    put_valid(c);
    return 1;
}

static inline int append_float(Machine *m, int column, float value)
{
    int32_t bits;
    memcpy(&bits, &value, 4);
    return append_int32(m, column, bits);
}

static inline int append_double(Machine *m, int column, double value)
{
    int64_t bits;
    memcpy(&bits, &value, 8);
    return append_int64(m, column, bits);
}

static inline int append_bool(Machine *m, int column, int value)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return 0;
    put_bit(c->values, c->length, value);
    put_valid(c);
    return 1;
}

static inline int append_wide(Machine *m, int column, const void *data, int64_t width)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return 0;
    memcpy(c->values + c->length * width, data, (size_t)width);
    put_valid(c);
    return 1;
}

static inline int append_decimal(Machine *m, int column, const uint64_t limbs[4], const uint8_t *at)
{
    const Column *c = m->columns + column;
    uint64_t size[4], sign = (uint64_t)0 - (limbs[3] >> 63), carry = sign & 1;
    int k;
    for (k = 0; k < 4; k++) {
        size[k] = (limbs[k] ^ sign) + carry;
        carry = carry && !size[k];
    }
    for (k = 3; k >= 0 && size[k] == c->bound[k]; k--) {}
    if (k < 0 || size[k] > c->bound[k]) {
        fail(m, BAD_RANGE, at);
        return 0;
    }
    return append_wide(m, column, limbs, c->width);
}

static inline uint8_t *reserve_bytes(Machine *m, int column, int64_t most)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return NULL;
    if (UNLIKELY(most > c->data_room - c->size)) {
        no_room(m, column, ROOM_DATA, c->size + most);
        return NULL;
    }
    return c->data + c->size;
}

static inline void close_bytes(Machine *m, int column, int64_t size)
{
    Column *c = m->columns + column;
    c->size += size;
    ((int32_t *)c->values)[c->length + 1] = (int32_t)c->size;
    put_valid(c);
}

static inline int append_bytes(Machine *m, int column, const uint8_t *data, int64_t size)
{
    uint8_t *to = reserve_bytes(m, column, size);
    if (UNLIKELY(!to)) return 0;
    memcpy(to, data, (size_t)size);
    close_bytes(m, column, size);
    return 1;
}

static inline int append_struct(Machine *m, int column)
{
    if (UNLIKELY(!has_room(m, column))) return 0;
    put_valid(m->columns + column);
    return 1;
}

static inline int64_t item_count(const Machine *m, const Column *c)
{
    return m->columns[m->numbers[c->first_child]].length;
}

static inline int close_list(Machine *m, int column)
{
    Column *c = m->columns + column;
    int64_t items = item_count(m, c);
    if (UNLIKELY(!has_room(m, column))) return 0;
    if (UNLIKELY(items > MOST_BYTES)) return no_room(m, column, ROOM_DATA, items);
    ((int32_t *)c->values)[c->length + 1] = (int32_t)items;
    put_valid(c);
    return 1;
}

/* One entry that is null where the column can be, without those below it. */
static inline int append_blank(Machine *m, int column)
{
    Column *c = m->columns + column;
    if (UNLIKELY(!has_room(m, column))) return 0;
    switch (c->kind) {
        case KIND_STRUCT:
        case KIND_NULL: break;
        case KIND_BOOL: put_bit(c->values, c->length, 0); break;
        case KIND_STRING:
        case KIND_BINARY:
        case KIND_LIST:
        case KIND_MAP: ((int32_t *)c->values)[c->length + 1] = ((int32_t *)c->values)[c->length]; break;
        default: memset(c->values + c->length * c->width, 0, (size_t)c->width);
    }
    if (c->validity) put_bit(c->validity, c->length, 0);
    c->length++;
    return 1;
}

static inline int append_null(Machine *m, int column)
{
    const Column *c = m->columns + column;
    const int32_t *below = m->numbers + c->below;
    int k;
    if (UNLIKELY(!append_blank(m, column))) return 0;
    for (k = 0; k < c->below_count; k++)
        if (UNLIKELY(!append_blank(m, below[k]))) return 0;
    return 1;
}

static void take_back(Machine *m, int column, int64_t length)
{
    Column *c = m->columns + column;
    const int32_t *children = m->numbers + c->first_child;
    int k;
    if (c->length == length && c->kind != KIND_LIST && c->kind != KIND_MAP && c->kind != KIND_STRUCT) return;
    c->length = length;
    switch (c->kind) {
        case KIND_STRING:
        case KIND_BINARY: c->size = ((int32_t *)c->values)[length]; break;
        case KIND_LIST:
        case KIND_MAP: length = ((int32_t *)c->values)[length]; break;
    }
    for (k = 0; k < c->child_count; k++) take_back(m, children[k], length);
}

static int64_t new_symbol(Machine *m, int column, int64_t number)
{
    Column *c = m->columns + column;
    Symbol *symbols;
    int64_t low = 0, high = c->symbol_count, room;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (c->symbols[middle].number < number) low = middle + 1;
        else high = middle;
    }
    if (low < c->symbol_count && c->symbols[low].number == number) return c->symbols[low].index;
    m->outcome = OUT_SYMBOL;  /* if it does not work out */
    if (c->symbol_count >= m->most_symbols) return -1;
    if (c->symbol_count == c->symbol_room) {
        room = c->symbol_room ? 2 * c->symbol_room : 16;
        symbols = (Symbol *)realloc(c->symbols, (size_t)room * sizeof(Symbol));
        if (!symbols) return -1;
        c->symbols = symbols;
        c->symbol_room = room;
    }
    memmove(c->symbols + low + 1, c->symbols + low, (size_t)(c->symbol_count - low) * sizeof(Symbol));
    c->symbols[low].number = number;
    c->symbols[low].index = c->first_symbol + c->symbol_count++;
    c->symbols[low].row = m->row;
    m->row_symbols++;
    return c->symbols[low].index;
}

/* Take back the symbols that only this row has come up with: the last ones. */
static void take_back_symbols(Machine *m)
{
    int64_t k, at, kept;
    for (k = 0; k < m->column_count && m->row_symbols; k++) {
        Column *c = m->columns + k;
        for (at = kept = 0; at < c->symbol_count; at++)
            if (c->symbols[at].row != m->row) c->symbols[kept++] = c->symbols[at];
        c->symbol_count = kept;
    }
    m->row_symbols = 0;
}

static inline int enter(Machine *m, const uint8_t *at)
{
    if (UNLIKELY(m->depth >= MOST_DEPTH)) {
        fail(m, BAD_DEPTH, at);
        return 0;
    }
    m->depth++;
    return 1;
}

static inline void leave(Machine *m) { m->depth--; }

static inline int64_t *take_scratch(Machine *m, int64_t count)
{
    if (UNLIKELY(count > m->scratch_size - m->scratch_at)) {
        m->outcome = OUT_SCRATCH;
        m->need = m->scratch_at + count;
        return NULL;
    }
    m->scratch_at += count;
    return m->scratch + m->scratch_at - count;
}

static inline void give_scratch(Machine *m, int64_t count) { m->scratch_at -= count; }

static inline int32_t little_int32(const uint8_t *at)
{
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

static inline int64_t little_int64(const uint8_t *at)
{
    return (int64_t)((uint64_t)(uint32_t)little_int32(at) | (uint64_t)(uint32_t)little_int32(at + 4) << 32);
}

static inline float little_float(const uint8_t *at)
{
    int32_t bits = little_int32(at);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static NOINLINE const uint8_t *read_long_varint(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    const uint8_t *start = at;
    uint64_t found = 0;
    int shift;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (LIKELY(stop - at >= 8)) {
        uint64_t ends;
        memcpy(&found, at, 8);
        ends = ~found & UINT64_C(0x8080808080808080);
        if (LIKELY(ends)) {
            int last = __builtin_ctzll(ends);  /* bit 7 of the last byte */
            found &= ~UINT64_C(0) >> (63 - last);
            found = (found & UINT64_C(0x007f007f007f007f)) | (found & UINT64_C(0x7f007f007f007f00)) >> 1;
            found = (found & UINT64_C(0x00003fff00003fff)) | (found & UINT64_C(0x3fff00003fff0000)) >> 2;
            *value = (found & UINT64_C(0x000000000fffffff)) | (found & UINT64_C(0x0fffffff00000000)) >> 4;
            return at + (last >> 3) + 1;
        }
        found = 0;
    }
#endif
    for (shift = 0; shift < 70; shift += 7) {
        uint64_t byte;
        if (at >= stop) return fail(m, BAD_SHORT, start);
        byte = *at++;
        found |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (shift == 63 && byte > 1) break;
            *value = found;
            return at;
        }
    }
    return fail(m, BAD_VARINT, start);
}

static inline const uint8_t *read_varint(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    if (LIKELY(at < stop && at[0] < 0x80)) {
        *value = at[0];
        return at + 1;
    }
    if (LIKELY(stop - at >= 2 && at[1] < 0x80)) {
        *value = (uint64_t)(at[0] & 0x7f) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    return read_long_varint(m, at, stop, value);
}

/* A number of at most 5 bytes and 32 bits: Protobuf's tags and lengths, Avro's ints. */
static NOINLINE const uint8_t *read_long_varint32(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    const uint8_t *start = at;
    uint64_t found = 0;
    int shift;
    for (shift = 0; shift < 35; shift += 7) {
        if (at >= stop) return fail(m, BAD_SHORT, start);
        found |= (uint64_t)(*at & 0x7f) << shift;
        if (*at++ < 0x80) {
            if (found >> 32) break;
            *value = found;
            return at;
        }
    }
    return fail(m, BAD_VARINT, start);
}

static inline const uint8_t *read_varint32(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    if (LIKELY(at < stop && at[0] < 0x80)) {
        *value = at[0];
        return at + 1;
    }
    if (LIKELY(stop - at >= 2 && at[1] < 0x80)) {
        *value = (uint64_t)(at[0] & 0x7f) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    return read_long_varint32(m, at, stop, value);
}

/* Source: Unicode 15, 3.9, table 3-7. */
static NOINLINE int is_wide_utf8(const uint8_t *data, const uint8_t *stop)
{
    while (data < stop) {
        uint8_t first = *data, low = 0x80, high = 0xbf;
        int size, k;
        if (first < 0x80) {
            data++;
            continue;
        }
        if (first < 0xc2 || first > 0xf4) return 0;
        size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        if (stop - data < size) return 0;
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
        if (data[1] < low || data[1] > high) return 0;
        for (k = 2; k < size; k++)
            if ((data[k] & 0xc0) != 0x80) return 0;
        data += size;
    }
    return 1;
}

static inline int is_utf8(const uint8_t *data, int64_t size)
{
    const uint8_t *stop = data + size;
    uint64_t eight;
    for (; stop - data >= 8; data += 8) {
        memcpy(&eight, data, 8);
        if (UNLIKELY(eight & UINT64_C(0x8080808080808080))) return is_wide_utf8(data, stop);
    }
    for (; data < stop; data++)
        if (UNLIKELY(*data >= 0x80)) return is_wide_utf8(data, stop);
    return 1;
}

static inline int append_text(Machine *m, int column, const uint8_t *data, int64_t size, const uint8_t *at)
{
    const Column *c = m->columns + column;
    uint8_t *to = reserve_bytes(m, column, size);
    if (UNLIKELY(!to)) return 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (LIKELY(size <= 16 && m->readable - data >= 16 && c->data_room - c->size >= 16)) {
        uint64_t low, high, beyond;
        memcpy(&low, data, 8);
        memcpy(&high, data + 8, 8);
        memcpy(to, &low, 8);
        memcpy(to + 8, &high, 8);
        if (size <= 8) beyond = size ? low << (64 - 8 * size) : 0;
        else beyond = low | high << (128 - 8 * size);
        if (UNLIKELY(beyond & UINT64_C(0x8080808080808080)) && !is_wide_utf8(data, data + size)) {
            fail(m, BAD_UTF8, at);
            return 0;
        }
        close_bytes(m, column, size);
        return 1;
    }
#endif
    if (UNLIKELY(!is_utf8(data, size))) {
        fail(m, BAD_UTF8, at);
        return 0;
    }
    memcpy(to, data, (size_t)size);
    close_bytes(m, column, size);
    return 1;
}

#include "_values_proto.h"
#include "_values_json.h"
#include "_values_avro.h"

/* Some values, each with the number of its root, and what is undecodable of them. */
typedef struct {
    const uint8_t *data;
    int64_t size;
    const int64_t *starts, *stops;  /* of the payloads in `data` */
    const int32_t *roots;           /* index in `root_steps`; -1: null; -2 - bad: undecodable already */
    const int32_t *root_steps;
    int64_t root_count;
    int64_t row, rows;              /* `row` is the next one */
    int64_t *bads;                  /* row, bad, position of each undecodable value */
    int64_t bad_count, bad_room;
    int stops_at_first;
} Batch;

static const uint8_t *run_root(Machine *m, const Step *root, const uint8_t *at, const uint8_t *stop)
{
    m->depth = 0;
    m->outside = NULL;
    m->scratch_at = 0;
    m->free_items = FREE_ITEMS;
    if (root->code >= JSON_OBJECT && root->code < X_CALL) at = run_json_root(m, root, at, stop);
    else at = run(m, root, at, stop);
    return at && at != stop ? fail(m, BAD_LEFT_OVER, at) : at;
}

static void note_peaks(Machine *m)
{
    int64_t k;
    for (k = 0; k < m->column_count; k++) {
        m->columns[k].peak = m->columns[k].length;
        m->columns[k].peak_size = m->columns[k].size;
    }
}

static int add_bad(Machine *m, Batch *b, int64_t bad, int64_t position)
{
    int64_t *to = b->bads + 3 * b->bad_count;
    if (!b->stops_at_first && !append_null(m, 0)) {
        note_peaks(m);
        take_back(m, 0, b->row);
        return 0;
    }
    to[0] = b->row;
    to[1] = bad;
    to[2] = position;
    b->bad_count++;
    b->row += !b->stops_at_first;
    return 1;
}

/* Decode up to the end, to an undecodable value where that is the end, or to what Python has to do: OUT_*. */
static int run_rows(Machine *m, Batch *b)
{
    while (b->row < b->rows) {
        const int64_t row = b->row, start = b->starts[row], stop = b->stops[row];
        const int32_t root = b->roots[row];
        int64_t bad, position = 0;
        if (UNLIKELY(b->bad_count == b->bad_room)) return OUT_BADS;
        if (UNLIKELY(start < 0 || stop < start || stop > b->size || root >= b->root_count)) return OUT_MISFIT;
        if (root >= 0) {
            m->readable = b->data + b->size;
            m->row = row;
            if (LIKELY(run_root(m, m->steps + b->root_steps[root], b->data + start, b->data + stop) != NULL)) {
                b->row++;
                m->row_symbols = 0;
                continue;
            }
            if (m->outcome == OUT_ROOM) note_peaks(m);
            if (m->row_symbols) take_back_symbols(m);
            take_back(m, 0, row);
            if (m->outcome != OUT_BAD) return m->outcome;
            bad = m->bad;
            position = m->bad_at - (b->data + start);
        } else if (root == -1) {
            if (!append_null(m, 0)) {
                note_peaks(m);
                take_back(m, 0, row);
                return m->outcome;
            }
            b->row++;
            continue;
        } else {
            bad = -2 - (int64_t)root;
        }
        if (!add_bad(m, b, bad, position)) return m->outcome;
        if (b->stops_at_first) return OUT_BAD;
    }
    return OUT_DONE;
}

/* Bits that are 0 among the first ones. */
static int64_t count_zeros(const uint8_t *bits, int64_t count)
{
    int64_t ones = 0, k;
    for (k = 0; k + 64 <= count; k += 64) {
        uint64_t word;
        memcpy(&word, bits + (k >> 3), 8);
#if defined(__GNUC__)
        ones += __builtin_popcountll(word);
#else
        for (; word; word &= word - 1) ones++;
#endif
    }
    for (; k < count; k++) ones += bits[k >> 3] >> (k & 7) & 1;
    return count - ones;
}

#endif
