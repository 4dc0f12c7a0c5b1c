/* CRC-32C, and batch bodies decompressed without the interpreter, for the record loop of _kernel.pyx.
 *
 * Nothing is linked: lz4, zstd and gzip are functions whose addresses native_codecs.py looks up in the packages that
 * segreader depends on; snappy is here. Only ordinary bodies are decompressed here. Whatever is not ordinary, damage
 * included, is OTHER_WAY: compression.py does it, and knows the errors.
 */

#ifndef SEGREADER_CODECS_H
#define SEGREADER_CODECS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* The time in nanoseconds from an arbitrary start, without a system call where the system can do so. */
static inline int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline uint32_t little32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

/* CRC-32C (Castagnoli). By hardware three streams at a time, for one instruction takes three cycles; the results are
 * joined by tables that shift a CRC over so many zero bytes. */

#define CRC_POLYNOMIAL 0x82F63B78u
enum { CRC_LONG = 4096, CRC_SHORT = 256 };

static uint32_t crc_table[8][256];
static uint32_t crc_over_long[4][256];
static uint32_t crc_over_short[4][256];
static int crc_by_hardware;

static uint32_t crc_over_zeros(uint32_t crc, size_t zeros) {
    while (zeros--) crc = crc_table[0][crc & 0xFF] ^ crc >> 8;
    return crc;
}

static void crc_fill_shift(uint32_t shift[4][256], size_t zeros) {
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) bits[bit] = crc_over_zeros((uint32_t)1 << bit, zeros);
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) crc ^= bits[8 * byte + bit];
            shift[byte][value] = crc;
        }
}

static inline uint32_t crc_shifted(uint32_t shift[4][256], uint32_t crc) {
    return shift[0][crc & 0xFF] ^ shift[1][crc >> 8 & 0xFF] ^ shift[2][crc >> 16 & 0xFF] ^ shift[3][crc >> 24];
}

/* The instructions of x86-64 (SSE4.2) and ARMv8 (optional before 8.1): whether this machine has them is asked when the
 * module is loaded, so that one wheel runs anywhere. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_HARDWARE __attribute__((target("sse4.2")))
#define CRC_STEP8(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define CRC_STEP1(crc, byte) _mm_crc32_u8(crc, byte)
static int machine_has_crc(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CRC_HARDWARE
/* In assembly: compilers differ in where their intrinsics can be used, and in how a function asks for them. */
static inline uint32_t CRC_STEP8(uint32_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint32_t CRC_STEP1(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}
static int machine_has_crc(void) {
#if defined(__ARM_FEATURE_CRC32) || defined(__APPLE__) /* Apple's have it, all of them */
    return 1;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & (1 << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 0;
#endif
}
#endif

/* Once, before the first checksum. */
static void crc_begin(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (CRC_POLYNOMIAL & (0 - (crc & 1)));
        crc_table[0][value] = crc;
    }
    for (int value = 0; value < 256; value++)
        for (int next = 1; next < 8; next++)
            crc_table[next][value] = crc_over_zeros(crc_table[next - 1][value], 1);
#if defined(CRC_HARDWARE)
    crc_by_hardware = machine_has_crc();
#endif
    if (crc_by_hardware) {
        crc_fill_shift(crc_over_long, CRC_LONG);
        crc_fill_shift(crc_over_short, CRC_SHORT);
    }
}

static uint32_t crc_by_tables(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
        uint32_t low = crc ^ little32(p), high = little32(p + 4);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
              crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
              crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
    }
    while (size--) crc = crc_table[0][(crc ^ *p++) & 0xFF] ^ crc >> 8;
    return crc;
}

#if defined(CRC_HARDWARE)
static inline uint64_t crc_word(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

CRC_HARDWARE static uint32_t crc_in_hardware(uint32_t crc, const uint8_t *p, size_t size) {
    for (int round = 0; round < 2; round++) {
        size_t part = round == 0 ? CRC_LONG : CRC_SHORT;
        while (size >= 3 * part) {
            uint32_t second = 0, third = 0;
            for (size_t at = 0; at < part; at += 8) {
                crc = CRC_STEP8(crc, crc_word(p + at));
                second = CRC_STEP8(second, crc_word(p + part + at));
                third = CRC_STEP8(third, crc_word(p + 2 * part + at));
            }
            if (round == 0)
                crc = crc_shifted(crc_over_long, crc_shifted(crc_over_long, crc) ^ second) ^ third;
            else
                crc = crc_shifted(crc_over_short, crc_shifted(crc_over_short, crc) ^ second) ^ third;
            p += 3 * part;
            size -= 3 * part;
        }
    }
    for (; size >= 8; p += 8, size -= 8) crc = CRC_STEP8(crc, crc_word(p));
    while (size--) crc = CRC_STEP1(crc, *p++);
    return crc;
}
#endif

static uint32_t crc32c_by_tables(const uint8_t *p, size_t size) {
    return ~crc_by_tables(~(uint32_t)0, p, size);
}

static uint32_t crc32c_of(const uint8_t *p, size_t size) {
#if defined(CRC_HARDWARE)
    if (crc_by_hardware) return ~crc_in_hardware(~(uint32_t)0, p, size);
#endif
    return crc32c_by_tables(p, size);
}

/* Bodies. */

enum {
    CODEC_GZIP = 1,
    CODEC_SNAPPY = 2,
    CODEC_LZ4 = 3,
    CODEC_ZSTD = 4,
    OTHER_WAY = -1, /* compression.py must do it */
    MORE_ROOM = -2, /* the scratch must hold `needed` bytes: call again */
    SLACK = 128,    /* bytes behind the scratch that may be written: whole words are copied there */
    ISAL_STATE_SIZE = 256 << 10, /* an inflate_state takes 85 KiB; what is not touched costs nothing */
    FIRST_SCRATCH = 64 << 10,
    ZSTD_MOST = 128 << 10, /* bytes of a block, or its window if that is less */
    LARGEST_SCRATCH = 2 << 20 /* longer bodies are decompressed in pieces, by compression.py */
};

/* The first fields of isal's inflate_state, the same since its 2.16; the rest is its own. */
typedef struct {
    uint8_t *next_out;
    uint32_t avail_out;
    uint32_t total_out;
    const uint8_t *next_in;
    uint64_t read_in;
    uint32_t avail_in;
} isal_state;

typedef int (*lz4_function)(const char *, char *, int, int);
typedef size_t (*zstd_function)(void *, void *, size_t, const void *, size_t);
typedef void *(*zstd_create_function)(void);
typedef size_t (*zstd_state_function)(void *);
typedef int (*isal_function)(isal_state *);
typedef uint32_t (*crc32_function)(uint32_t, const uint8_t *, uint64_t);

/* What one thread decompresses with. */
typedef struct {
    unsigned known;   /* bits of the codecs that were looked up */
    unsigned present; /* bits of those that can be used */
    lz4_function lz4;
    zstd_function zstd;
    zstd_function zstd_block;
    zstd_state_function zstd_begin;
    zstd_state_function zstd_next;
    zstd_state_function zstd_free;
    void *zstd_context;
    isal_function inflate;
    crc32_function crc32;
    isal_state *inflate_state;
    uint8_t *scratch;
    int64_t capacity; /* of the scratch, without its slack */
    int64_t needed;
    int64_t limit;
} body_codecs;

static inline int64_t ask_for_room(body_codecs *codecs, int64_t needed) {
    int64_t twice = 2 * codecs->capacity; /* or a body of many small blocks would begin anew for each */
    if (needed > LARGEST_SCRATCH || needed > codecs->limit) return OTHER_WAY;
    if (needed < twice) needed = twice < LARGEST_SCRATCH ? twice : LARGEST_SCRATCH;
    codecs->needed = needed;
    return MORE_ROOM;
}

/* Frames of independent blocks without block checksums, as Java, librdkafka and Go write them. Kafka does not check
 * the content's checksum. Their headers, with their checksums: flags 60 and 64, blocks of 64 KiB to 4 MiB. */
static int is_plain_lz4_header(const uint8_t *p) {
    static const uint8_t plain[4] = {0x82, 0xFB, 0x51, 0x73}, with_content[4] = {0xA7, 0x08, 0x85, 0xB9};
    int code = (p[5] >> 4) - 4;
    if (little32(p) != 0x184D2204 || p[5] & 0x8F || code < 0) return 0;
    return (p[4] == 0x60 && p[6] == plain[code]) || (p[4] == 0x64 && p[6] == with_content[code]);
}

static int64_t lz4_body(body_codecs *codecs, const uint8_t *p, int64_t size) {
    const uint8_t *stop = p + size;
    int64_t used = 0, most;
    int after;
    if (size < 11 || !is_plain_lz4_header(p)) return OTHER_WAY;
    most = (int64_t)1 << (2 * (p[5] >> 4) + 8);
    after = p[4] == 0x64 ? 4 : 0;
    p += 7;
    while (stop - p >= 4) {
        uint32_t word = little32(p);
        int64_t length = word & 0x7FFFFFFF, made, room = codecs->capacity - used;
        p += 4;
        if (!length) return stop - p >= after && used <= codecs->limit ? used : OTHER_WAY;
        if (length > most || length > stop - p) return OTHER_WAY;
        if (word >> 31) {
            if (length > room) return ask_for_room(codecs, used + length);
            memcpy(codecs->scratch + used, p, (size_t)length);
            made = length;
        } else {
            int64_t given = room < most ? room : most;
            made = codecs->lz4((const char *)p, (char *)codecs->scratch + used, (int)length, (int)given);
            if (made < 0) /* it is damaged, or longer than the room */
                return room >= most ? OTHER_WAY : ask_for_room(codecs, codecs->capacity + 1);
            if (made > given) return OTHER_WAY; /* not the function that was looked for */
        }
        used += made;
        p += length;
    }
    return OTHER_WAY;
}

/* A frame block by block: unlike ZSTD_decompressDCtx this refuses blocks that are too long, as a stream does. */
static size_t zstd_blocks(body_codecs *codecs, const uint8_t *p, size_t left) {
    size_t room = (size_t)codecs->capacity, made = codecs->zstd_begin(codecs->zstd_context), next;
    uint8_t *to = codecs->scratch;
    while (!made && (next = codecs->zstd_next(codecs->zstd_context)) != 0) {
        if (next > left) return (size_t)-1;
        made = codecs->zstd_block(codecs->zstd_context, to, room, p, next);
        if (made > room) return made;
        to += made;
        room -= made;
        p += next;
        left -= next;
        made = 0;
    }
    return made || left ? (size_t)-1 : (size_t)(to - codecs->scratch);
}

/* One frame whose body is not longer than its window: then it does not matter whether it is read whole or as a stream,
 * where references may not reach behind the window. Source: RFC 8878, section 3.1. */
static int64_t zstd_body(body_codecs *codecs, const uint8_t *p, int64_t size) {
    static const int content_sizes[4] = {0, 2, 4, 8};
    int64_t window, content = -1, at = 5, most, length;
    int flags, single, field, blocks = 0;
    size_t made;
    if (size < 9 || little32(p) != 0xFD2FB528) return OTHER_WAY;
    flags = p[4];
    single = flags >> 5 & 1;
    field = content_sizes[flags >> 6];
    if (single && !field) field = 1;
    if (flags & 0x0B) return OTHER_WAY; /* a dictionary, or the reserved bit */
    window = ((int64_t)8 + (p[5] & 7)) << ((p[5] >> 3) + 7); /* of a single segment it is the content's size */
    at += !single;
    if (size - at < field + 3) return OTHER_WAY;
    if (field) {
        content = field == 1 ? p[at] : field == 2 ? 256 + p[at] + ((int64_t)p[at + 1] << 8) : (int64_t)little32(p + at);
        if (field == 8 && little32(p + at + 4)) return OTHER_WAY;
        if (single) window = content;
        if (content > window) return OTHER_WAY;
        if (content > codecs->capacity) return ask_for_room(codecs, content);
        at += field;
    }
    if (window > (int64_t)32 << 20) return OTHER_WAY;
    most = window < ZSTD_MOST ? window : ZSTD_MOST;
    for (;;) { /* its blocks, to know that nothing follows it */
        uint32_t header;
        if (size - at < 3) return OTHER_WAY;
        header = (uint32_t)p[at] | (uint32_t)p[at + 1] << 8 | (uint32_t)p[at + 2] << 16;
        length = (int64_t)(header >> 3);
        if (length > most) return OTHER_WAY;
        at += 3 + ((header & 6) == 2 ? 1 : length);
        blocks++;
        if (header & 1) break;
    }
    if (at + (flags & 4) != size) return OTHER_WAY;
    if (blocks == 1)
        made = codecs->zstd(codecs->zstd_context, codecs->scratch, (size_t)codecs->capacity, p, (size_t)size);
    else
        made = zstd_blocks(codecs, p, (size_t)size);
    if (made == (size_t)-70) return ask_for_room(codecs, codecs->capacity + 1); /* ZSTD_error_dstSize_tooSmall */
    if (made > (size_t)codecs->capacity || (int64_t)made > window || (int64_t)made > codecs->limit) return OTHER_WAY;
    if (blocks == 1 && (int64_t)made > most) return OTHER_WAY;
    return (int64_t)made;
}

/* One member without names or comments, and nothing behind it. */
static int64_t gzip_body(body_codecs *codecs, const uint8_t *p, int64_t size) {
    isal_state *state = codecs->inflate_state;
    int64_t length;
    if (size < 18 || little32(p) != 0x00088B1F) return OTHER_WAY;
    length = little32(p + size - 4);
    if (length > codecs->limit) return OTHER_WAY;
    if (length > codecs->capacity) return ask_for_room(codecs, length);
    state->next_in = p + 10;
    state->avail_in = (uint32_t)(size - 10);
    state->next_out = codecs->scratch;
    state->avail_out = (uint32_t)codecs->capacity;
    if (codecs->inflate(state) != 0) return OTHER_WAY;
    if (state->avail_in != 8 || (int64_t)state->total_out != length) return OTHER_WAY;
    return codecs->crc32(0, codecs->scratch, (uint64_t)length) == little32(p + size - 8) ? length : OTHER_WAY;
}

/* `length` bytes, at most 64, from `offset` bytes before `out`; up to 63 bytes more are written, into the slack. */
static inline void snappy_copy(uint8_t *out, int64_t offset, int64_t length) {
    const uint8_t *from = out - offset;
    if (offset >= 16) {
        memcpy(out, from, 16);
        if (length > 16) {
            memcpy(out + 16, from + 16, 16);
            if (length > 32) {
                memcpy(out + 32, from + 32, 16);
                memcpy(out + 48, from + 48, 16);
            }
        }
        return;
    }
    if (offset < 8) { /* eight bytes one by one; then the pattern repeats at a distance of eight or more */
        for (int at = 0; at < 8; at++) out[at] = from[at];
        while (offset < 8) offset += out - from;
        out += 8;
        length -= 8;
        from = out - offset;
    }
    for (; length > 0; length -= 8, out += 8, from += 8) memcpy(out, from, 8);
}

/* Of each tag, what it takes to follow it without asking whether it is a literal or a copy. */
static struct {
    uint8_t length;  /* 0: a long literal */
    uint8_t advance; /* in the input, behind the tag */
    uint16_t base;   /* of the offset; of a literal 16, which passes every check */
} snappy_tags[256];

static void snappy_begin(void) {
    static const uint8_t steps[4] = {0, 1, 2, 4};
    for (int tag = 0; tag < 256; tag++) {
        int kind = tag & 3, length = (tag >> 2) + 1;
        if (!kind && length > 60) length = 0;
        if (kind == 1) length = 4 + (tag >> 2 & 7);
        snappy_tags[tag].length = (uint8_t)length;
        snappy_tags[tag].advance = kind ? steps[kind] : (uint8_t)length;
        snappy_tags[tag].base = kind ? (kind == 1 ? (uint16_t)((tag & 0xE0) << 3) : 0) : 16;
    }
}

/* One raw block: its length, or OTHER_WAY. Source: snappy's format_description.txt. */
static int64_t snappy_block(body_codecs *codecs, uint8_t *out, int64_t room, const uint8_t *p, const uint8_t *stop) {
    static const uint32_t masks[4] = {0, 0xFF, 0xFFFF, 0xFFFFFFFF};
    static const uint8_t steps[4] = {0, 1, 2, 4};
    const uint8_t *const start = out;
    uint8_t *end;
    uint64_t size = 0;
    int shift = 0;
    for (;; shift += 7) {
        if (p >= stop || shift > 28) return OTHER_WAY;
        size |= (uint64_t)(*p & 0x7F) << shift;
        if (*p++ < 0x80) break;
    }
    if ((int64_t)size > room) return ask_for_room(codecs, (int64_t)size + (out - codecs->scratch));
    end = out + size;
    while (p < stop) {
        int tag, kind;
        int64_t length, offset;
        if (out - start >= 16) {
            while (stop - p > 64 && end - out >= 64) { /* most tags, one like the other */
                uintptr_t is_copy = 0 - (uintptr_t)((*p & 3) != 0);
                const uint8_t *from;
                length = snappy_tags[*p].length;
                offset = snappy_tags[*p].base + (little32(p + 1) & masks[*p & 3]);
                if ((uint64_t)offset - 16 > (uint64_t)(out - start - 16) || !length) break;
                from = (const uint8_t *)(((uintptr_t)(p + 1) & ~is_copy) | ((uintptr_t)(out - offset) & is_copy));
                p += 1 + snappy_tags[*p].advance;
                memcpy(out, from, 16);
                memcpy(out + 16, from + 16, 16);
                if (length > 32) {
                    memcpy(out + 32, from + 32, 16);
                    memcpy(out + 48, from + 48, 16);
                }
                out += length;
            }
        }
        tag = *p++;
        kind = tag & 3;
        length = (tag >> 2) + 1;
        if (!kind) {
            if (length <= 60 && stop - p >= 64 && end - out >= length) { /* the slack takes what is too much */
                memcpy(out, p, 16);
                if (length > 16) {
                    memcpy(out + 16, p + 16, 16);
                    if (length > 32) memcpy(out + 32, p + 32, 32);
                }
            } else {
                if (length > 60) {
                    int more = (int)length - 60;
                    if (stop - p < more) return OTHER_WAY;
                    for (length = 0, shift = 0; shift < 8 * more; shift += 8) length |= (int64_t)*p++ << shift;
                    length += 1;
                }
                if (length > stop - p || length > end - out) return OTHER_WAY;
                memcpy(out, p, (size_t)length);
            }
            p += length;
            out += length;
            continue;
        }
        if (stop - p >= 4) {
            offset = little32(p) & masks[kind];
        } else {
            if (stop - p < steps[kind]) return OTHER_WAY;
            offset = p[0] | (kind > 1 ? p[1] << 8 : 0);
        }
        p += steps[kind];
        if (kind == 1) {
            length = 4 + (tag >> 2 & 7);
            offset |= (tag & 0xE0) << 3;
        }
        if (!offset || offset > out - start || length > end - out) return OTHER_WAY;
        snappy_copy(out, offset, length);
        out += length;
    }
    return out == end ? (int64_t)size : OTHER_WAY;
}

/* Xerial's blocks, as Java writes them, or one raw block, as librdkafka does. */
static int64_t snappy_body(body_codecs *codecs, const uint8_t *p, int64_t size) {
    static const uint8_t magic[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    const uint8_t *stop = p + size;
    int64_t used = 0;
    if (size < 16 || memcmp(p, magic, 8)) {
        used = snappy_block(codecs, codecs->scratch, codecs->capacity, p, stop);
        return used <= codecs->limit ? used : OTHER_WAY;
    }
    if (memcmp(p, magic, 16)) return OTHER_WAY;
    p += 16;
    while (stop - p >= 4) {
        int64_t length = big32(p), made;
        p += 4;
        if (length > stop - p) return OTHER_WAY;
        made = snappy_block(codecs, codecs->scratch + used, codecs->capacity - used, p, p + length);
        if (made < 0) return made;
        used += made;
        p += length;
    }
    return used <= codecs->limit ? used : OTHER_WAY;
}

/* The length of the body, now in the scratch; OTHER_WAY or MORE_ROOM. */
static int64_t decompress_body(body_codecs *codecs, int codec, const uint8_t *p, int64_t size) {
    if (!codecs->capacity) {
        codecs->needed = FIRST_SCRATCH;
        return MORE_ROOM;
    }
    switch (codec) {
        case CODEC_GZIP: return gzip_body(codecs, p, size);
        case CODEC_SNAPPY: return snappy_body(codecs, p, size);
        case CODEC_LZ4: return lz4_body(codecs, p, size);
        case CODEC_ZSTD: return zstd_body(codecs, p, size);
        default: return OTHER_WAY;
    }
}

/* Fields. */

/* Copy a field in whole vectors, where both sides have the room for it. Long ones, too: about 1 KiB takes longer by
 * libc's memcpy. */
static inline void put_field(uint8_t *to, int64_t to_left, const uint8_t *from, int64_t from_left, int64_t size) {
    if (size <= 32 && to_left >= 32 && from_left >= 32)
        memcpy(to, from, 32);
    else if (to_left - size >= 64 && from_left - size >= 64)
        for (const uint8_t *stop = from + size; from < stop; from += 64, to += 64) memcpy(to, from, 64);
    else
        memcpy(to, from, (size_t)size);
}

static inline int is_ascii_field(const uint8_t *text, int64_t size) {
    uint64_t seen = 0, word;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&word, text, 8);
        seen |= word;
    }
    while (size-- > 0) seen |= *text++;
    return (seen & UINT64_C(0x8080808080808080)) == 0;
}

/* The length of the character at `p`; or, negative, how many bytes become one U+FFFD. See decode_java_utf8. */
static inline int java_character(const uint8_t *p, int64_t left) {
    int first = p[0], size, next, held = 1;
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4) return -1;
    size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    next = left > 1 ? p[1] : 0;
    if ((first == 0xE0 && next < 0xA0) || (first == 0xF0 && next < 0x90) || (first == 0xF4 && next > 0x8F)) return -1;
    while (held < size && held < left && (p[held] & 0xC0) == 0x80) held++;
    if (held < size) return -held;
    return first == 0xED && next > 0x9F ? -3 : size;
}

/* The text of some bytes as valid UTF-8, at `to`; its size, which is all that is found out where `to` is NULL. */
static int64_t put_java_text(uint8_t *to, const uint8_t *from, int64_t size) {
    int64_t made = 0;
    while (size > 0) {
        int step = java_character(from, size), is_broken = step < 0;
        if (is_broken) step = -step;
        if (to) memcpy(to + made, is_broken ? (const uint8_t *)"\xEF\xBF\xBD" : from, is_broken ? 3 : (size_t)step);
        made += is_broken ? 3 : step;
        from += step;
        size -= step;
    }
    return made;
}

/* A zigzag number of at most 4 bytes; false if it is longer or runs past `stop`. */
static inline int short_number(const uint8_t **at, const uint8_t *stop, int64_t *out) {
    const uint8_t *p = *at;
    uint32_t value;
    if (p >= stop) return 0;
    value = *p++;
    if (value >= 0x80) {
        if (p >= stop) return 0;
        value = (value & 0x7F) | (uint32_t)*p << 7;
        if (*p++ >= 0x80) {
            if (p >= stop) return 0;
            value = (value & 0x3FFF) | (uint32_t)*p << 14;
            if (*p++ >= 0x80) {
                if (p >= stop || *p >= 0x80) return 0;
                value = (value & 0x1FFFFF) | (uint32_t)*p++ << 21;
            }
        }
    }
    *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    *at = p;
    return 1;
}

/* The same of at most 10 bytes. */
static inline int long_number(const uint8_t **at, const uint8_t *stop, int64_t *out) {
    const uint8_t *p = *at;
    uint64_t value = 0;
    int shift = 0;
    for (; p < stop && shift < 70; shift += 7) {
        value |= (uint64_t)(*p & 0x7F) << shift;
        if (*p++ < 0x80) {
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            *at = p;
            return 1;
        }
    }
    return 0;
}

#endif
