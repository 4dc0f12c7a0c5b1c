/* The least that reading a segment costs: read, check every CRC-32C, decompress into one buffer, look at nothing.
 *
 * Compiled by limit.py, which gives the codecs' own functions. Formats that the inputs here do not have are refused,
 * so nothing falls back to a slower way unnoticed.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define HEADER 61
#define READ_SIZE (1 << 20)

struct codecs {
    int (*lz4)(const char *from, char *to, int size, int room);
    size_t (*zstd)(void *context, void *to, size_t room, const void *from, size_t size);
    void *zstd_context;
    int (*inflate)(void *state);
    uint32_t (*gzip_crc)(uint32_t crc, const uint8_t *from, uint64_t size);
    int (*snappy)(const char *from, size_t size, char *to, size_t *room);
};

/* The first fields of ISA-L's struct inflate_state, and room for the rest of it. */
struct inflate {
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    uint8_t *next_in;
    uint64_t read_in;
    uint32_t avail_in;
    int32_t read_in_length;
};
static union { struct inflate at; uint64_t room[32768]; } inflate_state;

static uint32_t le32(const uint8_t *at) { uint32_t n; memcpy(&n, at, 4); return n; }
static uint32_t be32(const uint8_t *at) { return __builtin_bswap32(le32(at)); }
static uint64_t le64(const uint8_t *at) { uint64_t n; memcpy(&n, at, 8); return n; }

/* CRC-32C by the processor's instruction: one stream waits three cycles for each result, three at once do not. */

#if defined(__x86_64__)
#include <nmmintrin.h>
#define CRC8(crc, byte) _mm_crc32_u8(crc, byte)
#define CRC64(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#else
#include <arm_acle.h>
#define CRC8(crc, byte) __crc32cb(crc, byte)
#define CRC64(crc, word) __crc32cd(crc, word)
#endif

#define LONG 1024
#define SHORT 128
static uint32_t past_long[4][256], past_short[4][256];

static uint32_t times(const uint32_t *matrix, uint32_t vector) {
    uint32_t sum = 0;
    for (; vector; vector >>= 1, matrix++)
        if (vector & 1) sum ^= *matrix;
    return sum;
}

/* Tables that give a CRC as if `size` zero bytes came after it; `size` is a power of two. */
static void zeros(uint32_t table[4][256], size_t size) {
    uint32_t one[32], two[32];
    one[0] = 0x82f63b78;
    for (int n = 1; n < 32; n++) one[n] = 1u << (n - 1);
    for (size_t bits = 1; bits < 8 * size; bits *= 2) {
        for (int n = 0; n < 32; n++) two[n] = times(one, one[n]);
        memcpy(one, two, sizeof one);
    }
    for (int n = 0; n < 4; n++)
        for (uint32_t byte = 0; byte < 256; byte++) table[n][byte] = times(one, byte << (8 * n));
}

static uint32_t shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

#define THREE(part, table)                                        \
    while (size >= 3 * (part)) {                                  \
        uint32_t second = 0, third = 0;                           \
        for (const uint8_t *stop = at + (part); at < stop; at += 8) { \
            crc = CRC64(crc, le64(at));                           \
            second = CRC64(second, le64(at + (part)));            \
            third = CRC64(third, le64(at + 2 * (part)));          \
        }                                                         \
        crc = shift(table, shift(table, crc) ^ second) ^ third;   \
        at += 2 * (part);                                         \
        size -= 3 * (part);                                       \
    }

static uint32_t crc32c(const uint8_t *at, size_t size, int streams) {
    uint32_t crc = ~0u;
    if (streams == 3) {
        THREE(LONG, past_long)
        THREE(SHORT, past_short)
    }
    for (; size >= 8; at += 8, size -= 8) crc = CRC64(crc, le64(at));
    for (; size; at++, size--) crc = CRC8(crc, *at);
    return ~crc;
}

/* Each decompresses one body and returns its size, or -1. */

static long lz4(const struct codecs *use, const uint8_t *at, const uint8_t *stop, uint8_t *out, long room) {
    if (stop - at < 7 || le32(at) != 0x184d2204) return -1;
    int has_size = at[4] >> 3 & 1, has_checksums = at[4] >> 4 & 1;
    long done = 0;
    if (!(at[4] & 0x20)) return -1; /* blocks that need the one before */
    at += 7 + 8 * has_size;
    while (stop - at >= 4) {
        uint32_t mark = le32(at), size = mark & 0x7fffffff;
        at += 4;
        if (mark == 0) return done;
        if (size > (size_t)(stop - at)) return -1;
        if (mark >> 31) {
            if (size > room - done) return -1;
            memcpy(out + done, at, size);
            done += size;
        } else {
            int got = use->lz4((const char *)at, (char *)out + done, (int)size, (int)(room - done));
            if (got < 0) return -1;
            done += got;
        }
        at += size + 4 * has_checksums;
    }
    return -1;
}

static long gzip(const struct codecs *use, const uint8_t *at, const uint8_t *stop, uint8_t *out, long room) {
    struct inflate *state = &inflate_state.at;
    if (stop - at < 18 || at[0] != 0x1f || at[1] != 0x8b || at[3]) return -1; /* no optional fields */
    state->next_in = (uint8_t *)at + 10;
    state->avail_in = (uint32_t)(stop - at - 18);
    state->next_out = out;
    state->avail_out = (uint32_t)room;
    if (use->inflate(state) || use->gzip_crc(0, out, state->total_out) != le32(stop - 8)) return -1;
    return state->total_out;
}

static long snappy(const struct codecs *use, const uint8_t *at, const uint8_t *stop, uint8_t *out, long room) {
    long done = 0;
    if (stop - at < 16 || memcmp(at, "\x82SNAPPY", 7)) return -1;
    for (at += 16; stop - at >= 4;) {
        size_t size = be32(at), got = (size_t)(room - done);
        at += 4;
        if (size > (size_t)(stop - at) || use->snappy((const char *)at, size, (char *)out + done, &got)) return -1;
        done += (long)got;
        at += size;
    }
    return at == stop ? done : -1;
}

static long body(const struct codecs *use, int codec, const uint8_t *at, const uint8_t *stop, uint8_t *out, long room) {
    size_t size;
    switch (codec) {
    case 0: return stop - at;
    case 1: return gzip(use, at, stop, out, room);
    case 2: return snappy(use, at, stop, out, room);
    case 3: return lz4(use, at, stop, out, room);
    case 4:
        size = use->zstd(use->zstd_context, out, (size_t)room, at, (size_t)(stop - at));
        return size > (size_t)room ? -1 : (long)size;
    }
    return -1;
}

void prepare(void) {
    zeros(past_long, LONG);
    zeros(past_short, SHORT);
}

/* Bytes of all bodies after decompression; below 0 where the file is not one of ours, whole. */
long read_log(int file, const struct codecs *use, int streams, uint8_t *buffer, long buffer_room, uint8_t *out,
              long room) {
    long held = 0, total = 0;
    for (;;) {
        if (buffer_room - held < READ_SIZE) return -2;
        ssize_t got = read(file, buffer + held, READ_SIZE);
        if (got < 0) return -3;
        if (got == 0) return held ? -4 : total;
        long at = 0, end = held + got;
        while (end - at >= HEADER) {
            long stop = at + 12 + be32(buffer + at + 8);
            if (stop > end) break;
            if (crc32c(buffer + at + 21, (size_t)(stop - at - 21), streams) != be32(buffer + at + 17)) return -5;
            long size = body(use, buffer[at + 22] & 7, buffer + at + HEADER, buffer + stop, out, room);
            if (size < 0) return -6;
            total += size;
            at = stop;
        }
        held = end - at;
        memmove(buffer, buffer + at, (size_t)held);
    }
}
