/* Rows of records as text: what _rows.pyx calls without the interpreter lock.

   Input is only read through cell(), which checks offsets against the buffer. Output whose length depends on the input
   is only written after room() for it, which leaves SPARE bytes more: for all that follows until the next room().
   A failed allocation ends the row with NO_MEMORY. Bytes become text as rows.py has it: `auto` refuses what is not
   UTF-8 or holds control characters, `utf8` replaces broken sequences as Python does. */

#ifndef SEGREADER_ROWS_H
#define SEGREADER_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__) && !defined(SEGREADER_NO_SSE2)
#include <emmintrin.h>
#endif

enum { AUTO, UTF8, BASE64, HEX };                /* the order of ENCODINGS in rows.py */
enum { NO_MEMORY = -1, BAD_OFFSETS = -2, BAD_TYPE = -3 };
enum { BLOCK = 16, PIECE_BYTES = 256 << 10 };
enum { SPARE = 512 };  /* names, marks and numbers of a row take about 300 bytes, those of a header 50 */

typedef struct {
    uint8_t *data;
    size_t at, size;
} Out;

typedef struct {  /* a column of bytes or text */
    const int32_t *offsets;
    const uint8_t *data;
    int64_t size;
    const uint8_t *validity;  /* NULL: no nulls */
    int64_t first_bit;
} Texts;

typedef struct {
    int64_t rows;
    Texts topic, key, value, header_key, header_value;
    const int32_t *partition, *timestamp_type, *leader_epoch, *header_offsets;
    const int64_t *offset, *timestamp_ms;
    const uint8_t *epoch_validity;
    int64_t epoch_first_bit, headers;
} Columns;

typedef struct {
    int key_encoding, value_encoding;
    const char *end;
    size_t end_size;
} Style;

static int grow(Out *out, size_t wanted)
{
    size_t size = out->size ? out->size : PIECE_BYTES + (PIECE_BYTES >> 2);
    uint8_t *data;
    while (size - out->at < wanted) size += size / 2;
    data = (uint8_t *)realloc(out->data, size);
    if (!data) return 0;
    out->data = data;
    out->size = size;
    return 1;
}

static inline int room(Out *out, size_t wanted)
{
    wanted += SPARE;
    return out->size - out->at >= wanted || grow(out, wanted);
}

/* These write what room() was asked for before. */
static inline void put(Out *out, uint8_t byte) { out->data[out->at++] = byte; }

static inline void put_all(Out *out, const void *data, size_t size)
{
    memcpy(out->data + out->at, data, size);
    out->at += size;
}

#define PUT_TEXT(out, text) put_all(out, text, sizeof(text) - 1)

static inline void put_number(Out *out, int64_t value)
{
    uint8_t digits[20];
    int at = sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (uint8_t)('0' + left % 10);
        left /= 10;
    } while (left);
    if (value < 0) digits[--at] = '-';
    put_all(out, digits + at, sizeof digits - at);
}

static inline int is_set(const uint8_t *bits, int64_t at) { return bits[at >> 3] >> (at & 7) & 1; }

/* 1 and the bytes, 0 for a null, or BAD_OFFSETS. */
static inline int cell(const Texts *column, int64_t row, const uint8_t **data, size_t *size)
{
    int64_t start, stop;
    if (column->validity && !is_set(column->validity, column->first_bit + row)) return 0;
    start = column->offsets[row];
    stop = column->offsets[row + 1];
    if (start < 0 || stop < start || stop > column->size) return BAD_OFFSETS;
    *data = column->data + start;
    *size = (size_t)(stop - start);
    return 1;
}

/* Bit k is set where byte k needs a look: a control character, DEL, beyond ASCII, '"', and `other`. */
static inline unsigned unusual(const uint8_t *data, uint8_t other)
{
#if defined(__SSE2__) && !defined(SEGREADER_NO_SSE2)
    __m128i bytes = _mm_loadu_si128((const __m128i *)data);
    __m128i low = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));  /* signed: 0x80 and above, too */
    __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                 _mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)other)));
    __m128i del = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(low, del), marks));
#else
    unsigned found = 0;
    int k;
    for (k = 0; k < BLOCK; k++) {
        uint8_t byte = data[k];
        found |= (unsigned)((uint8_t)(byte - 0x20) >= 0x5f || byte == '"' || byte == other) << k;
    }
    return found;
#endif
}

static inline int lowest(unsigned bits)
{
#if defined(__GNUC__)
    return __builtin_ctz(bits);
#else
    int k = 0;
    while (!(bits >> k & 1)) k++;
    return k;
#endif
}

static inline int continues(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* The length of the character at `data`, whose first byte is beyond ASCII; or, negative, how many bytes become one
   U+FFFD: the longest start of a character, or one byte. Source: Unicode 15, 3.9, table 3-7; CPython's decoder. */
static int character(const uint8_t *data, size_t left)
{
    uint8_t first = data[0], low = 0x80, high = 0xbf;
    int size;
    if (first < 0xc2 || first > 0xf4) return -1;
    size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    if (left < 2 || data[1] < low || data[1] > high) return -1;
    if (size == 2) return 2;
    if (left < 3 || !continues(data[2])) return -2;
    if (size == 3) return 3;
    return left < 4 || !continues(data[3]) ? -3 : 4;
}

/* Write characters beyond ASCII from `data` on, as many as room() was asked for; `strict` refuses broken ones and
   U+0080 to U+009F. Returns where it stopped, or NULL where it refuses. */
static const uint8_t *put_characters(Out *out, const uint8_t *data, const uint8_t *stop, int strict)
{
    int k, size;
    for (k = 0; k < BLOCK && data < stop && *data >= 0x80; k++) {
        size = character(data, (size_t)(stop - data));
        if (size > 0) {
            if (strict && data[0] == 0xc2 && data[1] < 0xa0) return NULL;
            put_all(out, data, (size_t)size);
            data += size;
        } else {
            if (strict) return NULL;
            PUT_TEXT(out, "\xef\xbf\xbd");
            data -= size;
        }
    }
    return data;
}

static void put_escaped(Out *out, uint8_t byte)
{
    static const char hex[] = "0123456789abcdef";
    put(out, '\\');
    switch (byte) {
        case '\b': put(out, 'b'); return;
        case '\t': put(out, 't'); return;
        case '\n': put(out, 'n'); return;
        case '\f': put(out, 'f'); return;
        case '\r': put(out, 'r'); return;
        case '"':
        case '\\': put(out, byte); return;
    }
    PUT_TEXT(out, "u00");
    put(out, (uint8_t)hex[byte >> 4]);
    put(out, (uint8_t)hex[byte & 15]);
}

/* Text with the marks of JSON escaped, or for CSV with quotes doubled.

   Returns 1; 0 where `strict` refuses, with a part written; or NO_MEMORY. `*marked` is set where CSV needs quotes. */
static inline int put_text(Out *out, const uint8_t *data, size_t size, int strict, int csv, int *marked)
{
    const uint8_t *stop = data + size;
    const uint8_t other = csv ? ',' : '\\';
    uint8_t rest[BLOCK], byte;
    unsigned found;
    while (data < stop) {
        size_t left = (size_t)(stop - data), plain;
        if (!room(out, 6 * BLOCK)) return NO_MEMORY;
        if (left >= BLOCK) {
            left = BLOCK;
            found = unusual(data, other);
            memcpy(out->data + out->at, data, BLOCK);
        } else {
            memset(rest, ' ', BLOCK);
            memcpy(rest, data, left);
            found = unusual(rest, other);
            memcpy(out->data + out->at, rest, BLOCK);
        }
        plain = found ? (size_t)lowest(found) : left;
        out->at += plain;
        data += plain;
        if (!found) continue;
        byte = *data;
        if (byte >= 0x80) {
            data = put_characters(out, data, stop, strict);
            if (!data) return 0;
            continue;
        }
        data++;
        if (strict && (byte == 0x7f || (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r'))) return 0;
        if (csv) {
            *marked |= byte == '"' || byte == ',' || byte == '\n' || byte == '\r';
            if (byte == '"') put(out, '"');
            put(out, byte);
        } else if (byte == 0x7f) {
            put(out, byte);
        } else {
            put_escaped(out, byte);
        }
    }
    return 1;
}

static int put_base64(Out *out, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *to;
    if (!room(out, size / 3 * 4 + 4)) return NO_MEMORY;
    to = out->data + out->at;
    for (; size >= 3; size -= 3, data += 3, to += 4) {
        uint32_t three = (uint32_t)data[0] << 16 | (uint32_t)data[1] << 8 | data[2];
        to[0] = (uint8_t)digits[three >> 18];
        to[1] = (uint8_t)digits[three >> 12 & 63];
        to[2] = (uint8_t)digits[three >> 6 & 63];
        to[3] = (uint8_t)digits[three & 63];
    }
    if (size) {
        uint32_t three = (uint32_t)data[0] << 16 | (size == 2 ? (uint32_t)data[1] << 8 : 0);
        to[0] = (uint8_t)digits[three >> 18];
        to[1] = (uint8_t)digits[three >> 12 & 63];
        to[2] = size == 2 ? (uint8_t)digits[three >> 6 & 63] : '=';
        to[3] = '=';
        to += 4;
    }
    out->at = (size_t)(to - out->data);
    return 1;
}

static int put_hex(Out *out, const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t *to;
    size_t k;
    if (!room(out, 2 * size)) return NO_MEMORY;
    to = out->data + out->at;
    for (k = 0; k < size; k++) {
        to[2 * k] = (uint8_t)digits[data[k] >> 4];
        to[2 * k + 1] = (uint8_t)digits[data[k] & 15];
    }
    out->at += 2 * size;
    return 1;
}

/* Some bytes in quotes, which a cell of CSV has only where it needs them. Returns the encoding that was used, or
   NO_MEMORY. */
static int put_bytes(Out *out, const uint8_t *data, size_t size, int encoding, int csv)
{
    size_t start = out->at + 1;
    int done = 1, marked = 0;
    put(out, '"');
    if (encoding == AUTO || encoding == UTF8) {
        /* two calls, for the compiler to make put_text once for each form */
        done = csv ? put_text(out, data, size, encoding == AUTO, 1, &marked)
                   : put_text(out, data, size, encoding == AUTO, 0, &marked);
        encoding = UTF8;
        if (!done) {
            out->at = start;
            marked = 0;
            encoding = BASE64;
        }
    }
    if (encoding == BASE64) done = put_base64(out, data, size);
    if (encoding == HEX) done = put_hex(out, data, size);
    if (done == NO_MEMORY) return NO_MEMORY;
    if (csv && size && !marked) {
        memmove(out->data + start - 1, out->data + start, out->at - start);
        out->at--;
    } else {
        put(out, '"');
    }
    return encoding;
}

/* A cell of CSV, and the name of its encoding in the next one; both are empty for a null. Returns 1 or what is wrong. */
static int put_csv_cells(Out *out, const Texts *column, int64_t row, int encoding)
{
    const uint8_t *data;
    size_t size;
    int found = cell(column, row, &data, &size);
    if (found == BAD_OFFSETS) return BAD_OFFSETS;
    if (found) found = put_bytes(out, data, size, encoding, 1);
    put(out, ',');
    switch (found) {
        case UTF8: PUT_TEXT(out, "utf8"); break;
        case BASE64: PUT_TEXT(out, "base64"); break;
        case HEX: PUT_TEXT(out, "hex"); break;
        case NO_MEMORY: return NO_MEMORY;
    }
    put(out, ',');
    return 1;
}

/* A string of JSON, or null. Returns 1 or what is wrong; `*noted` is set where its encoding is named beside it. */
static int put_json_string(Out *out, const Texts *column, int64_t row, int encoding, int *noted)
{
    const uint8_t *data;
    size_t size;
    int found = cell(column, row, &data, &size);
    *noted = 0;
    if (found == BAD_OFFSETS) return BAD_OFFSETS;
    if (!found) {
        PUT_TEXT(out, "null");
        return 1;
    }
    found = put_bytes(out, data, size, encoding, 0);
    *noted = found == BASE64 && encoding == AUTO;
    return found == NO_MEMORY ? NO_MEMORY : 1;
}

/* A list of objects. Returns 1 or what is wrong. */
static int put_json_headers(Out *out, const Columns *columns, const Style *style, int64_t row)
{
    int64_t header = columns->header_offsets[row], stop = columns->header_offsets[row + 1];
    const uint8_t *data;
    size_t size;
    int done, is_noted;
    if (header < 0 || stop < header || stop > columns->headers) return BAD_OFFSETS;
    put(out, '[');
    for (; header < stop; header++) {
        if (!room(out, 0)) return NO_MEMORY;
        if (cell(&columns->header_key, header, &data, &size) != 1) return BAD_OFFSETS;
        PUT_TEXT(out, "{\"key\":");
        if (put_bytes(out, data, size, UTF8, 0) == NO_MEMORY) return NO_MEMORY;
        PUT_TEXT(out, ",\"value\":");
        done = put_json_string(out, &columns->header_value, header, style->value_encoding, &is_noted);
        if (done != 1) return done;
        if (is_noted) PUT_TEXT(out, ",\"value_encoding\":\"base64\"");
        PUT_TEXT(out, "},");
    }
    if (out->data[out->at - 1] == ',') out->at--;
    put(out, ']');
    return 1;
}

static int put_type(Out *out, int32_t type)
{
    switch (type) {
        case -1: PUT_TEXT(out, "NoTimestampType"); return 1;
        case 0: PUT_TEXT(out, "CreateTime"); return 1;
        case 1: PUT_TEXT(out, "LogAppendTime"); return 1;
    }
    return BAD_TYPE;
}

static int has_epoch(const Columns *columns, int64_t row)
{
    return !columns->epoch_validity || is_set(columns->epoch_validity, columns->epoch_first_bit + row);
}

/* One row as an object with its end. Returns 1 or what is wrong. */
static int put_json_row(Out *out, const Columns *columns, const Style *style, int64_t row)
{
    const uint8_t *data;
    size_t size;
    int done, is_key_noted, is_value_noted;
    if (cell(&columns->topic, row, &data, &size) != 1) return BAD_OFFSETS;
    if (!room(out, size)) return NO_MEMORY;
    PUT_TEXT(out, "{\"topic\":\"");
    put_all(out, data, size);
    PUT_TEXT(out, "\",\"partition\":");
    put_number(out, columns->partition[row]);
    PUT_TEXT(out, ",\"offset\":");
    put_number(out, columns->offset[row]);
    PUT_TEXT(out, ",\"timestamp\":");
    put_number(out, columns->timestamp_ms[row]);
    PUT_TEXT(out, ",\"timestamp_type\":\"");
    if ((done = put_type(out, columns->timestamp_type[row])) != 1) return done;
    PUT_TEXT(out, "\",\"leader_epoch\":");
    if (has_epoch(columns, row)) put_number(out, columns->leader_epoch[row]);
    else PUT_TEXT(out, "null");
    PUT_TEXT(out, ",\"key\":");
    done = put_json_string(out, &columns->key, row, style->key_encoding, &is_key_noted);
    if (done != 1) return done;
    PUT_TEXT(out, ",\"value\":");
    done = put_json_string(out, &columns->value, row, style->value_encoding, &is_value_noted);
    if (done != 1) return done;
    PUT_TEXT(out, ",\"headers\":");
    if ((done = put_json_headers(out, columns, style, row)) != 1) return done;
    if (is_key_noted) PUT_TEXT(out, ",\"key_encoding\":\"base64\"");
    if (is_value_noted) PUT_TEXT(out, ",\"value_encoding\":\"base64\"");
    put(out, '}');
    if (!room(out, style->end_size)) return NO_MEMORY;
    put_all(out, style->end, style->end_size);
    return 1;
}

/* One row as a line of CSV with its end; `scratch` holds the headers. Returns 1 or what is wrong. */
static int put_csv_row(Out *out, Out *scratch, const Columns *columns, const Style *style, int64_t row)
{
    const uint8_t *data;
    size_t size;
    int done;
    if (cell(&columns->topic, row, &data, &size) != 1) return BAD_OFFSETS;
    if (!room(out, size)) return NO_MEMORY;
    put_all(out, data, size);
    put(out, ',');
    put_number(out, columns->partition[row]);
    put(out, ',');
    put_number(out, columns->offset[row]);
    put(out, ',');
    put_number(out, columns->timestamp_ms[row]);
    put(out, ',');
    if ((done = put_type(out, columns->timestamp_type[row])) != 1) return done;
    put(out, ',');
    if (has_epoch(columns, row)) put_number(out, columns->leader_epoch[row]);
    put(out, ',');
    if ((done = put_csv_cells(out, &columns->key, row, style->key_encoding)) != 1) return done;
    if ((done = put_csv_cells(out, &columns->value, row, style->value_encoding)) != 1) return done;
    scratch->at = 0;
    if (!room(scratch, 0)) return NO_MEMORY;
    if ((done = put_json_headers(scratch, columns, style, row)) != 1) return done;
    if (put_bytes(out, scratch->data, scratch->at, UTF8, 1) == NO_MEMORY) return NO_MEMORY;
    put(out, '\n');
    return 1;
}

/* Rows from `*row` on until a piece is full. Returns 1 or what is wrong with `*row`. */
static int put_rows(Out *out, Out *scratch, const Columns *columns, const Style *style, int is_csv, int64_t *row)
{
    int done;
    while (*row < columns->rows && out->at < PIECE_BYTES) {
        done = is_csv ? put_csv_row(out, scratch, columns, style, *row) : put_json_row(out, columns, style, *row);
        if (done != 1) return done;
        ++*row;
    }
    return 1;
}

#endif
