/* Which schema each value names: the frames that are known are found here, others by framing.py. */

#ifndef SEGREADER_VALUES_FRAMES_H
#define SEGREADER_VALUES_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FRAMES_DONE, FRAMES_UNKNOWN, FRAMES_MISFIT };

typedef struct {
    int64_t start, size;  /* in `text` of the table */
    uint64_t first, mask; /* its first 8 bytes, 0 behind its end */
    int32_t root;
} Frame;

typedef struct {
    const uint8_t *text;
    const Frame *frames;
    const int32_t *slots;  /* by hash: a frame, or -1; more than twice as many as frames, a power of two */
    int64_t slot_mask;
    int64_t key_size;      /* bytes that are hashed; no frame of a value is shorter */
    int64_t last;          /* the frame of the value before; -1: none */
} FrameTable;

typedef struct {  /* a column of bytes */
    const int32_t *offsets;
    const uint8_t *data;
    int64_t size;
    const uint8_t *validity;  /* NULL: no nulls */
    int64_t first_bit;
} Cells;

typedef struct {
    Cells values;
    const int32_t *header_offsets;  /* NULL: no headers */
    int64_t headers;
    Cells header_keys, header_values;
    const uint8_t *header_name;
    int64_t header_name_size;
} Framed;

static uint64_t hash_frame(const uint8_t *data, int64_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int64_t k;
    for (k = 0; k < size; k++) hash = (hash ^ data[k]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

static inline int is_cell(const Cells *cells, int64_t row)
{
    int64_t bit = cells->first_bit + row;
    return !cells->validity || (cells->validity[bit >> 3] >> (bit & 7) & 1);
}

static inline int begins_with(const FrameTable *table, const Frame *frame, const uint8_t *data, int64_t size)
{
    uint64_t first = 0;
    if (size < frame->size) return 0;
    if (size >= 8) memcpy(&first, data, 8);
    else memcpy(&first, data, (size_t)size);
    if ((first ^ frame->first) & frame->mask) return 0;
    return frame->size <= 8 || !memcmp(data + 8, table->text + frame->start + 8, (size_t)frame->size - 8);
}

/* The frame that the bytes begin with, or, of a header, are; NULL: it is not known. */
static inline const Frame *find_frame(FrameTable *table, const uint8_t *data, int64_t size, int is_header)
{
    const int64_t key_size = is_header ? size : table->key_size;
    int64_t slot;
    if (table->last >= 0) {
        const Frame *frame = table->frames + table->last;
        if ((!is_header || frame->size == size) && begins_with(table, frame, data, size)) return frame;
    }
    if (size < key_size) return NULL;
    for (slot = (int64_t)hash_frame(data, key_size);; slot++) {
        const int32_t found = table->slots[slot & table->slot_mask];
        if (found < 0) return NULL;
        if (is_header && table->frames[found].size != size) continue;
        if (begins_with(table, table->frames + found, data, size)) {
            table->last = found;
            return table->frames + found;
        }
    }
}

/* The header of the row that names a schema: the last one. 1: it is at `*header`, 0: there is none, -1: a misfit. */
static int find_header(const Framed *f, int64_t row, int64_t *header)
{
    int64_t first = f->header_offsets[row], at = f->header_offsets[row + 1];
    if (first < 0 || at < first || at > f->headers) return -1;
    while (at-- > first) {
        const int64_t start = f->header_keys.offsets[at], stop = f->header_keys.offsets[at + 1];
        if (start < 0 || stop < start || stop > f->header_keys.size) return -1;
        if (stop - start != f->header_name_size) continue;
        if (memcmp(f->header_keys.data + start, f->header_name, (size_t)f->header_name_size)) continue;
        *header = at;
        return is_cell(&f->header_values, at);
    }
    return 0;
}

/* Find the frames of rows from `*row` on, up to the first that is not known. The payload is what is behind a frame. */
static int find_frames(FrameTable *table, FrameTable *headers, const Framed *f, int64_t *row, int64_t rows,
                       int32_t *roots, int64_t *starts, int64_t *stops)
{
    for (; *row < rows; ++*row) {
        const int64_t k = *row;
        int64_t start = f->values.offsets[k], stop = f->values.offsets[k + 1], header;
        const Frame *frame;
        int has_header = 0;
        if (start < 0 || stop < start || stop > f->values.size) return FRAMES_MISFIT;
        if (!is_cell(&f->values, k)) {
            roots[k] = -1;
            starts[k] = stops[k] = 0;
            continue;
        }
        if (f->header_offsets && (has_header = find_header(f, k, &header)) != 0) {
            const Cells *cells = &f->header_values;
            int64_t from, to;
            if (has_header < 0) return FRAMES_MISFIT;
            from = cells->offsets[header];
            to = cells->offsets[header + 1];
            if (from < 0 || to < from || to > cells->size) return FRAMES_MISFIT;
            frame = find_frame(headers, cells->data + from, to - from, 1);
        } else {
            frame = find_frame(table, f->values.data + start, stop - start, 0);
        }
        if (!frame) return FRAMES_UNKNOWN;
        roots[k] = frame->root;
        starts[k] = start + (has_header ? 0 : frame->size);
        stops[k] = stop;
    }
    return FRAMES_DONE;
}

#endif
