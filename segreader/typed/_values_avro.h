/* Avro's binary encoding, and what steps of any format share. packed.py writes these steps. */

/* AvroStep in packed.py */
enum {
    X_CALL = 100, X_DEPTH, X_STRUCT, X_OPTION, X_UNION, X_BRANCH, X_ARRAY, X_SKIP_BLOCKS, X_SKIP, X_SKIP_NUMBERS,
    X_SKIP_BYTES, X_BOOL, X_INT32, X_INT64, X_INT_FLOAT, X_INT_DOUBLE, X_LONG64, X_LONG_FLOAT, X_LONG_DOUBLE, X_TIMES,
    X_TIME_MS, X_TIME_US, X_FLOAT, X_FLOAT_DOUBLE, X_DOUBLE, X_BYTES, X_TEXT, X_BYTES_DECIMAL, X_FIXED,
    X_FIXED_DECIMAL, X_FIXED_INTERVAL, X_FIXED_UUID, X_ENUM,
};

#define DAY_MS INT64_C(86400000)

static const uint8_t *run_steps(Machine *m, const Step *first, const Step *end, int64_t times, const uint8_t *at,
                                const uint8_t *stop);

static inline int64_t unzigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

static inline const uint8_t *read_long(Machine *m, const uint8_t *at, const uint8_t *stop, int64_t *value)
{
    uint64_t found = 0;
    at = read_varint(m, at, stop, &found);
    *value = unzigzag(found);
    return at;
}

static inline const uint8_t *read_int(Machine *m, const uint8_t *at, const uint8_t *stop, int64_t *value)
{
    uint64_t found = 0;
    at = read_varint32(m, at, stop, &found);
    *value = unzigzag(found);
    return at;
}

/* The length in front of bytes or text, which are there: `*size` bytes from what it returns. */
static inline const uint8_t *read_length(Machine *m, const uint8_t *at, const uint8_t *stop, int64_t *size)
{
    const uint8_t *start = at;
    at = read_long(m, at, stop, size);
    if (UNLIKELY(!at)) return NULL;
    if (UNLIKELY((uint64_t)*size > (uint64_t)(stop - at))) return fail(m, *size < 0 ? BAD_COUNT : BAD_SHORT, start);
    return at;
}

static NOINLINE const uint8_t *skip_numbers(Machine *m, int64_t count, const uint8_t *at, const uint8_t *stop)
{
    for (; count > 0; count--) {
        const uint8_t *start = at;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (LIKELY(stop - at >= 8)) {
            uint64_t eight, ends;
            memcpy(&eight, at, 8);
            ends = ~eight & UINT64_C(0x8080808080808080);
            if (LIKELY(ends)) {
                at += (__builtin_ctzll(ends) >> 3) + 1;
                continue;
            }
        }
#endif
        while (at < stop && at - start < 10 && *at >= 0x80) at++;
        if (at - start >= 10) return fail(m, BAD_VARINT, start);
        if (at >= stop) return fail(m, BAD_SHORT, start);
        if (at - start == 9 && *at > 1) return fail(m, BAD_VARINT, start);
        at++;
    }
    return at;
}

static inline const uint8_t *skip_bytes(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    int64_t size;
    if (LIKELY(at < stop && at[0] < 0x80 && !(at[0] & 1) && (at[0] >> 1) < stop - at)) return at + 1 + (at[0] >> 1);
    at = read_length(m, at, stop, &size);
    return at ? at + size : NULL;
}

/* SHORT, at the one of several dropped values that is not whole. */
static NOINLINE const uint8_t *fail_in_values(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    int32_t k;
    for (k = 0; k < step->table_size - 1 && m->table[step->table + k] <= stop - at; k++) at += m->table[step->table + k];
    return fail(m, BAD_SHORT, at);
}

static inline int go_deeper(Machine *m, int64_t levels, const uint8_t *at)
{
    if (UNLIKELY(m->depth + levels > MOST_DEPTH)) {
        fail(m, BAD_DEPTH, at);
        return 0;
    }
    m->depth += (int32_t)levels;
    return 1;
}

/* Blocks of items, up to the empty one. Dropped blocks that say how many bytes they have are jumped over. */
static const uint8_t *run_blocks(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const Step *first = m->steps + step->first, *end = first + step->count;
    const uint8_t *start;
    int64_t given, size;
    uint64_t count;
    for (;;) {
        start = at;
        at = read_long(m, at, stop, &given);
        if (UNLIKELY(!at)) return NULL;
        if (given == 0) return at;
        count = (uint64_t)given;
        if (given < 0) {
            count = 0 - count;
            at = read_long(m, at, stop, &size);
            if (UNLIKELY(!at)) return NULL;
            if (step->code == X_SKIP_BLOCKS) {
                if (UNLIKELY(size < 0)) return fail(m, BAD_COUNT, start);
                if (UNLIKELY(size > stop - at)) return fail(m, BAD_SHORT, start);
                at += size;
                continue;
            }
        }
        if (UNLIKELY(count > (uint64_t)(step->flags ? m->free_items : stop - at))) return fail(m, BAD_COUNT, start);
        if (step->flags) m->free_items -= (int64_t)count;
        at = run_steps(m, first, end, (int64_t)count, at, stop);
        if (UNLIKELY(!at)) return NULL;
    }
}

/* Big-endian two's complement of any length. */
static NOINLINE int append_big_endian(Machine *m, int column, const uint8_t *data, int64_t size, const uint8_t *at)
{
    uint64_t limbs[4];
    uint8_t bytes[32], sign = size && data[0] >= 0x80 ? 0xff : 0;
    int64_t k;
    for (; size > 32; size--, data++)
        if (data[0] != sign || (data[1] ^ sign) >= 0x80) {
            fail(m, BAD_RANGE, at);
            return 0;
        }
    memset(bytes, sign, sizeof bytes);
    for (k = 0; k < size; k++) bytes[k] = data[size - 1 - k];
    for (k = 0; k < 4; k++) {
        int j;
        limbs[k] = 0;
        for (j = 7; j >= 0; j--) limbs[k] = limbs[k] << 8 | bytes[8 * k + j];
    }
    return append_decimal(m, column, limbs, at);
}

static NOINLINE int append_interval(Machine *m, int column, const uint8_t *at)
{
    struct {
        int32_t months, days;
        int64_t nanoseconds;
    } value;
    uint32_t parts[3];
    int k;
    for (k = 0; k < 3; k++, at += 4)
        parts[k] = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    if (parts[0] > INT32_MAX || parts[1] > INT32_MAX) {
        fail(m, BAD_RANGE, at - 12);
        return 0;
    }
    value.months = (int32_t)parts[0];
    value.days = (int32_t)parts[1];
    value.nanoseconds = (int64_t)parts[2] * 1000000;
    return append_wide(m, column, &value, sizeof value);
}

static NOINLINE int append_uuid(Machine *m, int column, const uint8_t *data)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t *to = reserve_bytes(m, column, 36);
    int k;
    if (!to) return 0;
    for (k = 0; k < 16; k++) {
        if (k == 4 || k == 6 || k == 8 || k == 10) *to++ = '-';
        *to++ = (uint8_t)hex[data[k] >> 4];
        *to++ = (uint8_t)hex[data[k] & 15];
    }
    close_bytes(m, column, 36);
    return 1;
}

static inline int times(int64_t value, int64_t factor, int64_t *product)
{
#if defined(__GNUC__)
    return !__builtin_mul_overflow(value, factor, product);
#else
    if (value > INT64_MAX / factor || value < INT64_MIN / factor) return 0;
    *product = value * factor;
    return 1;
#endif
}

/* Any number as two, four or eight bytes of a column. */
static NOINLINE const uint8_t *run_rare_number(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const uint8_t *start = at;
    int64_t value;
    int is_int = step->code == X_TIME_MS || step->code == X_INT_FLOAT || step->code == X_INT_DOUBLE || step->flags;
    int done = 0;
    at = is_int ? read_int(m, at, stop, &value) : read_long(m, at, stop, &value);
    if (!at) return NULL;
    switch (step->code) {
        case X_INT_FLOAT:
        case X_LONG_FLOAT: done = append_float(m, step->column, (float)value); break;
        case X_INT_DOUBLE:
        case X_LONG_DOUBLE: done = append_double(m, step->column, (double)value); break;
        case X_TIME_MS:
            if (value < 0 || value >= DAY_MS) return fail(m, BAD_RANGE, start);
            done = append_int32(m, step->column, (int32_t)value);
            break;
        default:  /* TIMES, TIME_US */
            if (step->a && !times(value, step->a, &value)) return fail(m, BAD_RANGE, start);
            if (step->code == X_TIME_US && (value < 0 || value >= 1000 * DAY_MS)) return fail(m, BAD_RANGE, start);
            done = append_int64(m, step->column, value);
    }
    return done ? at : NULL;
}

static NOINLINE const uint8_t *run_constant(Machine *m, const Step *step, const uint8_t *at)
{
    const Step *first = m->steps + step->first;
    const uint8_t *text = m->text + step->text, *outside = m->outside, *readable = m->readable;
    if (!outside) m->outside = at;
    m->readable = m->text + m->text_size;
    if (!run_steps(m, first, first + step->count, 1, text, text + step->text_size)) return NULL;
    m->outside = outside;
    m->readable = readable;
    return at;
}

static NOINLINE const uint8_t *run_call(Machine *m, const Step *step, int64_t levels, const uint8_t *at,
                                        const uint8_t *stop)
{
    const Step *first = m->steps + step->first;
    m->depth += (int32_t)levels;
    at = run_steps(m, first, first + step->count, 1, at, stop);
    m->depth -= (int32_t)levels;
    return at;
}

#define NEED(size) \
    if (UNLIKELY((int64_t)(size) > stop - at)) return fail(m, BAD_SHORT, at)
#define DONE(appended) \
    if (UNLIKELY(!(appended))) return NULL

/* Run some steps one after another, several times. */
static const uint8_t *run_steps(Machine *m, const Step *first, const Step *end, int64_t count, const uint8_t *at,
                                const uint8_t *stop)
{
    const Step *step;
    const uint8_t *start;
    int64_t value;
    for (; count > 0; count--)
        for (step = first; step < end; step++) {
            switch (step->code) {
                case SET_NULL:
                    if (step->column != DROPPED) DONE(append_null(m, step->column));
                    break;
                case CONSTANT:
                    at = run_constant(m, step, at);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_CALL:
                    at = run_call(m, step, step->b, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_DEPTH:
                    if (UNLIKELY(m->depth + step->a > MOST_DEPTH)) return fail(m, BAD_DEPTH, at);
                    break;
                case X_STRUCT: DONE(append_struct(m, step->column)); break;
                case X_OPTION:
                    NEED(1);
                    start = at;
                    value = *at++;
                    if (UNLIKELY(value & ~2)) {
                        at = read_long(m, start, stop, &value);
                        if (!at) return NULL;
                        if (value != 0 && value != 1) return fail(m, BAD_BRANCH, start);
                    } else {
                        value >>= 1;
                    }
                    if (value == step->a) {
                        if (step->column != DROPPED) DONE(append_null(m, step->column));
                        step += step->b;
                    }
                    break;
                case X_UNION:
                    start = at;
                    at = read_long(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    if (UNLIKELY((uint64_t)value >= (uint64_t)step->count)) return fail(m, BAD_BRANCH, start);
                    if (UNLIKELY(CHILD(m, step, value)->code != X_CALL)) return fail(m, BAD_BRANCH, start);
                    at = run_call(m, CHILD(m, step, value), step->b, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_ARRAY:
                    DONE(go_deeper(m, step->b, at));
                    at = run_blocks(m, step, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    m->depth -= (int32_t)step->b;
                    DONE(close_list(m, step->column));
                    break;
                case X_SKIP_BLOCKS:
                    DONE(go_deeper(m, step->b, at));
                    at = run_blocks(m, step, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    m->depth -= (int32_t)step->b;
                    break;
                case X_SKIP:
                    if (UNLIKELY(step->a > stop - at)) return fail_in_values(m, step, at, stop);
                    at += step->a;
                    break;
                case X_SKIP_NUMBERS:
                    for (value = step->a; value && at < stop && *at < 0x80; value--) at++;
                    if (value) at = skip_numbers(m, value, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_SKIP_BYTES:
                    at = skip_bytes(m, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_BOOL:
                    NEED(1);
                    if (UNLIKELY(*at > 1)) return fail(m, BAD_BOOL, at);
                    DONE(append_bool(m, step->column, *at));
                    at++;
                    break;
                case X_INT32:
                    at = read_int(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_int32(m, step->column, (int32_t)value));
                    break;
                case X_INT64:
                    at = read_int(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_int64(m, step->column, value));
                    break;
                case X_LONG64:
                    at = read_long(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_int64(m, step->column, value));
                    break;
                case X_INT_FLOAT:
                case X_INT_DOUBLE:
                case X_LONG_FLOAT:
                case X_LONG_DOUBLE:
                case X_TIMES:
                case X_TIME_MS:
                case X_TIME_US:
                    at = run_rare_number(m, step, at, stop);
                    if (UNLIKELY(!at)) return NULL;
                    break;
                case X_FLOAT:
                    NEED(4);
                    DONE(append_int32(m, step->column, little_int32(at)));
                    at += 4;
                    break;
                case X_FLOAT_DOUBLE:
                    NEED(4);
                    DONE(append_double(m, step->column, (double)little_float(at)));
                    at += 4;
                    break;
                case X_DOUBLE:
                    NEED(8);
                    DONE(append_int64(m, step->column, little_int64(at)));
                    at += 8;
                    break;
                case X_BYTES:
                    at = read_length(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_bytes(m, step->column, at, value));
                    at += value;
                    break;
                case X_TEXT:
                    start = at;
                    at = read_length(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_text(m, step->column, at, value, start));
                    at += value;
                    break;
                case X_BYTES_DECIMAL:
                    start = at;
                    at = read_length(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    DONE(append_big_endian(m, step->column, at, value, start));
                    at += value;
                    break;
                case X_FIXED:
                    NEED(step->a);
                    DONE(append_wide(m, step->column, at, step->a));
                    at += step->a;
                    break;
                case X_FIXED_DECIMAL:
                    NEED(step->a);
                    DONE(append_big_endian(m, step->column, at, step->a, at));
                    at += step->a;
                    break;
                case X_FIXED_INTERVAL:
                    NEED(12);
                    DONE(append_interval(m, step->column, at));
                    at += 12;
                    break;
                case X_FIXED_UUID:
                    NEED(16);
                    DONE(append_uuid(m, step->column, at));
                    at += 16;
                    break;
                case X_ENUM:
                    start = at;
                    at = read_int(m, at, stop, &value);
                    if (UNLIKELY(!at)) return NULL;
                    if (UNLIKELY((uint64_t)value >= (uint64_t)step->table_size)) return fail(m, BAD_SYMBOL, start);
                    value = m->table[step->table + value];
                    if (UNLIKELY(value < 0)) return fail(m, BAD_SYMBOL, start);
                    DONE(append_index(m, step->column, (int32_t)value));
                    break;
                default:
                    at = step->code < JSON_OBJECT ? run_proto(m, step, at, stop) : run_json(m, step, at, stop);
                    if (UNLIKELY(!at)) return NULL;
            }
        }
    return at;
}

#undef NEED
#undef DONE

static const uint8_t *run(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    if (step->code >= PROTO_MESSAGE && step->code < JSON_OBJECT) return run_proto(m, step, at, stop);
    if (step->code >= JSON_OBJECT && step->code < X_CALL) return run_json(m, step, at, stop);
    return run_steps(m, step, step + 1, 1, at, stop);
}
