/* Protobuf's wire format: a message in, an entry for each of its columns out.

   A field is appended when it comes; columns of one struct may be filled in any order. `seen` has a bit for each child
   of the message: it has its entry. What comes again takes its entry back, or, a message, goes on with it. Lists are open
   until the message ends: then they are closed, and what did not come gets its entry. So a message is read once, from
   front to back, however often its parts are in it.

   A message goes on that is the last entry of its column, with all its columns: its numbers are there, and its lists
   are closed. Those are opened, and what is null is taken back, as if it had never been. */

enum { WIRE_VARINT, WIRE_WIDE, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_NARROW };

enum { NOT_THERE = -1, NO_SYMBOL = -2 };

/* packed.py: a field's `a` is its tag where it is not packed, its flags have the code of its value's step */
#define VALUE_CODE(field) ((field)->flags >> 8)

#define HAS(seen, k) ((seen)[(k) >> 6] >> ((k) & 63) & 1)
#define SET(seen, k) ((seen)[(k) >> 6] |= (uint64_t)1 << ((k) & 63))
#define UNSET(seen, k) ((seen)[(k) >> 6] &= ~((uint64_t)1 << ((k) & 63)))

static inline int64_t unzigzag(uint64_t value);
static const uint8_t *read_message(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop, int goes_on,
                                   int *is_unknown);

/* A number of any width. Bits past the 64th fall off. */
static NOINLINE const uint8_t *read_long_wire_number(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    const uint8_t *start = at;
    uint64_t found = 0;
    int shift;
    for (shift = 0; shift < 70; shift += 7) {
        if (UNLIKELY(at >= stop)) return fail(m, BAD_SHORT, start);
        found |= (uint64_t)(*at & 0x7f) << shift;
        if (*at++ < 0x80) {
            *value = found;
            return at;
        }
    }
    return fail(m, BAD_VARINT, start);
}

static inline const uint8_t *read_wire_number(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    if (LIKELY(at < stop && at[0] < 0x80)) {
        *value = at[0];
        return at + 1;
    }
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (LIKELY(m->readable - at >= 8)) {
        uint64_t eight, ends;
        memcpy(&eight, at, 8);
        ends = ~eight & UINT64_C(0x8080808080808080);
        if (LIKELY(ends && (__builtin_ctzll(ends) >> 3) < stop - at)) {
            at += (__builtin_ctzll(ends) >> 3) + 1;
            eight &= ends ^ (ends - 1);
            eight &= UINT64_C(0x7f7f7f7f7f7f7f7f);
            eight = (eight & UINT64_C(0x007f007f007f007f)) | (eight & UINT64_C(0x7f007f007f007f00)) >> 1;
            eight = (eight & UINT64_C(0x00003fff00003fff)) | (eight & UINT64_C(0x3fff00003fff0000)) >> 2;
            *value = (eight & UINT64_C(0x000000000fffffff)) | (eight & UINT64_C(0x0fffffff00000000)) >> 4;
            return at;
        }
    }
#endif
    return read_long_wire_number(m, at, stop, value);
}

/* Whether it has no number, or a wire type that there is not. */
static inline int is_no_tag(uint64_t tag) { return tag < 8 || (tag & 7) > WIRE_NARROW; }

static inline const uint8_t *read_tag(Machine *m, const uint8_t *at, const uint8_t *stop, uint64_t *tag)
{
    const uint8_t *start = at;
    at = read_varint32(m, at, stop, tag);
    if (LIKELY(at != NULL) && UNLIKELY(is_no_tag(*tag))) return fail(m, BAD_TAG, start);
    return at;
}

/* The first byte behind a length; `*end` is where what has that length ends. */
static inline const uint8_t *read_size(Machine *m, const uint8_t *at, const uint8_t *stop, const uint8_t **end)
{
    const uint8_t *start = at;
    uint64_t size = 0;
    at = read_varint32(m, at, stop, &size);
    if (UNLIKELY(!at)) return NULL;
    if (UNLIKELY(size > (uint64_t)(stop - at))) return fail(m, BAD_SHORT, start);
    *end = at + size;
    return at;
}

/* Step over what is behind a tag that begins at `start`. `*inner_end`: where the content of a group ends. */
static NOINLINE const uint8_t *skip_field(Machine *m, uint64_t tag, const uint8_t *start, const uint8_t *at,
                                          const uint8_t *stop, const uint8_t **inner_end)
{
    const uint8_t *end = NULL;
    uint64_t value;
    switch (tag & 7) {
        case WIRE_VARINT: return read_wire_number(m, at, stop, &value);
        case WIRE_WIDE: return stop - at < 8 ? fail(m, BAD_SHORT, at) : at + 8;
        case WIRE_NARROW: return stop - at < 4 ? fail(m, BAD_SHORT, at) : at + 4;
        case WIRE_BYTES: return read_size(m, at, stop, &end) ? end : NULL;
        case WIRE_GROUP: break;
        default: return fail(m, BAD_TAG, start);
    }
    if (!enter(m, start)) return NULL;
    for (;;) {
        uint64_t inner;
        *inner_end = start = at;
        at = read_tag(m, at, stop, &inner);
        if (!at) return NULL;
        if (inner == tag + 1) break;
        at = skip_field(m, inner, start, at, stop, &end);
        if (!at) return NULL;
    }
    leave(m);
    return at;
}

/* The child that has a number: `table` has those below `a`, then pairs of the others' numbers and places, sorted. */
static inline int field_place(const Machine *m, const Step *step, uint64_t number)
{
    const int64_t *table = m->table + step->table;
    int64_t low = 0, high;
    if (LIKELY((int64_t)number < step->a)) return (int)table[number];
    table += step->a;
    high = (step->table_size - step->a) / 2;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (table[2 * middle] < (int64_t)number) low = middle + 1;
        else high = middle;
    }
    return 2 * low < step->table_size - step->a && table[2 * low] == (int64_t)number ? (int)table[2 * low + 1] : NOT_THERE;
}

/* The index of an enum's number; NOT_THERE: of a closed one; NO_SYMBOL: return NULL. */
static inline int64_t enum_index(Machine *m, const Step *value, int32_t number)
{
    const int64_t *table = m->table + value->table;
    int64_t low = 0, count = value->table_size / 2, high = count;
    if (LIKELY((uint32_t)number < count && table[2 * number] == number)) return table[2 * number + 1];
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (table[2 * middle] < number) low = middle + 1;
        else high = middle;
    }
    if (low < count && table[2 * low] == number) return table[2 * low + 1];
    if (value->a) return NOT_THERE;
    if (value->column == DROPPED) return 0;
    low = new_symbol(m, value->column, number);
    return low < 0 ? NO_SYMBOL : low;
}

static inline int append_number(Machine *m, int code, const Step *value, uint64_t found)
{
    Column *c = m->columns + value->column;
    int32_t bits = (int32_t)found;
    float narrow;
    double wide;
    if (UNLIKELY(!has_room(m, value->column))) return 0;
    switch (code) {
        case PROTO_BOOL: put_bit(c->values, c->length, found != 0); break;
        case PROTO_SINT32:
            found = (uint64_t)unzigzag((uint32_t)found);
            /* fall through */
        case PROTO_INT32:
        case PROTO_UINT32:
        case PROTO_ENUM: ((int32_t *)c->values)[c->length] = (int32_t)found; break;
        case PROTO_FLOAT:
            if (value->kind == KIND_DOUBLE) {
                memcpy(&narrow, &bits, 4);
                wide = narrow;
                memcpy((int64_t *)c->values + c->length, &wide, 8);
                break;
            }
            ((int32_t *)c->values)[c->length] = (int32_t)found;
            break;
        case PROTO_FIXED32:
        case PROTO_SFIXED32:
            if (value->kind == KIND_INT32 || value->kind == KIND_UINT32)
                ((int32_t *)c->values)[c->length] = (int32_t)found;
            else
                ((int64_t *)c->values)[c->length] = code == PROTO_FIXED32 ? (int64_t)found : (int32_t)found;
            break;
        case PROTO_SINT64:
            found = (uint64_t)unzigzag(found);
            /* fall through */
        default: ((int64_t *)c->values)[c->length] = (int64_t)found;
    }
    put_valid(c);
    return 1;
}

static NOINLINE void clear_oneof(Machine *m, const Step *step, int64_t oneof, uint64_t *seen, int kept)
{
    int k;
    for (k = 0; k < step->count; k++) {
        const Step *field = CHILD(m, step, k);
        if (k != kept && field->code == PROTO_FIELD && field->b == oneof && field->column != DROPPED && HAS(seen, k)) {
            take_back(m, field->column, m->columns[field->column].length - 1);
            UNSET(seen, k);
        }
    }
}

/* Before an entry, or an item, is appended for a field. */
static inline void make_way(Machine *m, const Step *step, const Step *field, uint64_t *seen, int k)
{
    if (UNLIKELY(field->b >= 0)) clear_oneof(m, step, field->b, seen, k);
    if (field->flags & PROTO_REPEATED) {
        if (UNLIKELY(HAS(seen, k))) {
            m->columns[field->column].length--;
            UNSET(seen, k);
        }
        return;
    }
    if (UNLIKELY(HAS(seen, k))) take_back(m, field->column, m->columns[field->column].length - 1);
    SET(seen, k);
}

/* One number of a field, behind its tag or in a packed run. */
static inline const uint8_t *read_number_field(Machine *m, const Step *step, const Step *field, uint64_t *seen, int k,
                                               const uint8_t *at, const uint8_t *stop, int *is_unknown)
{
    const int code = VALUE_CODE(field);
    const Step *value = CHILD(m, field, 0);
    uint64_t found = 0;
    switch (code) {
        case PROTO_FIXED64:
        case PROTO_SFIXED64:
        case PROTO_DOUBLE:
            if (UNLIKELY(stop - at < 8)) return fail(m, BAD_SHORT, at);
            found = (uint64_t)little_int64(at);
            at += 8;
            break;
        case PROTO_FIXED32:
        case PROTO_SFIXED32:
        case PROTO_FLOAT:
            if (UNLIKELY(stop - at < 4)) return fail(m, BAD_SHORT, at);
            found = (uint32_t)little_int32(at);
            at += 4;
            break;
        default:
            at = read_wire_number(m, at, stop, &found);
            if (UNLIKELY(!at)) return NULL;
            if (code == PROTO_ENUM) {
                int64_t index = enum_index(m, value, (int32_t)found);
                if (UNLIKELY(index < 0)) {
                    *is_unknown = 1;
                    return index == NO_SYMBOL ? NULL : at;
                }
                found = (uint64_t)index;
            }
    }
    if (UNLIKELY(field->column == DROPPED)) {
        if (field->b >= 0) clear_oneof(m, step, field->b, seen, k);
        return at;
    }
    make_way(m, step, field, seen, k);
    return LIKELY(append_number(m, code, value, found)) ? at : NULL;
}

#define LEAST_SECONDS INT64_C(-9223372036855)

/* Microseconds of a time; 0: they do not fit. */
static int to_microseconds(int64_t seconds, int64_t nanos, int is_duration, int64_t *value)
{
    int64_t micros = nanos / 1000 - (!is_duration && nanos % 1000 < 0);
    if (seconds < LEAST_SECONDS - 3000 || seconds > 3000 - LEAST_SECONDS) return 0;
    seconds += micros / 1000000 - (micros % 1000000 < 0);
    micros = micros % 1000000 + (micros % 1000000 < 0 ? 1000000 : 0);
    if (seconds < LEAST_SECONDS || (seconds == LEAST_SECONDS && micros < 224192)) return 0;
    if (seconds > -LEAST_SECONDS - 1 || (seconds == -LEAST_SECONDS - 1 && micros > 775807)) return 0;
    *value = (int64_t)((uint64_t)seconds * 1000000 + (uint64_t)micros);
    return 1;
}

/* A Timestamp or a Duration goes on with the seconds and nanoseconds of the last entry. */
static const uint8_t *read_time(Machine *m, const Step *value, const uint8_t *at, const uint8_t *stop, int goes_on,
                                int64_t *found)
{
    Column *c = m->columns + value->column;
    const uint8_t *content = at, *end;
    if (!goes_on) c->seconds = c->nanos = 0;
    while (at < stop) {
        const uint8_t *start = at;
        uint64_t tag, number = 0;
        at = read_tag(m, at, stop, &tag);
        if (UNLIKELY(!at)) return NULL;
        if (LIKELY(tag == 8 || tag == 16)) {
            at = read_wire_number(m, at, stop, &number);
            if (UNLIKELY(!at)) return NULL;
            if (tag == 8) c->seconds = (int64_t)number;
            else c->nanos = (int32_t)number;
        } else {
            at = skip_field(m, tag, start, at, stop, &end);
            if (!at) return NULL;
        }
    }
    if (UNLIKELY(!to_microseconds(c->seconds, c->nanos, value->code == PROTO_DURATION, found)))
        return fail(m, BAD_RANGE, content);
    return at;
}

/* google.protobuf.Struct, Value and ListValue as JSON text. A message is looked through, then what it has is written:
   never more than WRITTEN_TIMES the bytes that are read. Parts of one that are not in one place would have to be merged,
   which no serializer writes: they are refused. */

enum { JSON_STRUCT, JSON_VALUE, JSON_LIST };
enum { KIND_ABSENT, NULL_VALUE, NUMBER_VALUE, STRING_VALUE, BOOL_VALUE, STRUCT_VALUE, LIST_VALUE };
enum { WRITTEN_TIMES = 6, WRITTEN_MORE = 32, ENTRY = 4, SORTED_KEYS = 16 };

static int write_value(Machine *m, const uint8_t *at, const uint8_t *stop, uint8_t **to);

static uint8_t *write_text(uint8_t *to, const uint8_t *at, const uint8_t *stop)
{
    static const char digits[] = "0123456789abcdef";
    *to++ = '"';
    for (; at < stop; at++) {
        const char *short_form = NULL;
        if (LIKELY(*at >= 0x20 && *at != '"' && *at != '\\')) {
            *to++ = *at;
            continue;
        }
        *to++ = '\\';
        if (*at == '"' || *at == '\\') {
            *to++ = *at;
        } else if (*at >= 8 && *at <= 13 && *at != 11) {
            short_form = "btn.fr";
            *to++ = (uint8_t)short_form[*at - 8];
        } else {
            memcpy(to, "u00", 3);
            to[3] = (uint8_t)digits[*at >> 4];
            to[4] = (uint8_t)digits[*at & 15];
            to += 5;
        }
    }
    *to++ = '"';
    return to;
}

/* The shortest digits that are read as the same number: 15, or more where it needs them. */
static uint8_t *write_double(uint8_t *to, double value)
{
    char text[40];
    int digits = value > -1e-300 && value < 1e-300 ? 1 : 15, size, k, is_odd = 0;
    if (value > -1e15 && value < 1e15 && value != 0 && value == (double)(int64_t)value) {
        uint64_t rest = (uint64_t)(value < 0 ? -(int64_t)value : (int64_t)value);
        for (k = sizeof text; rest; rest /= 10) text[--k] = (char)('0' + rest % 10);
        if (value < 0) text[--k] = '-';
        memcpy(to, text + k, sizeof text - (size_t)k);
        return to + (sizeof text - (size_t)k);
    }
    do size = snprintf(text, sizeof text, "%.*g", digits++, value);
    while (digits <= 17 && strtod(text, NULL) != value);
    for (k = 0; k < size; k++) {
        int was_odd = is_odd;
        is_odd = !((text[k] >= '0' && text[k] <= '9') || text[k] == '-' || text[k] == '+' || text[k] == 'e');
        if (!is_odd) *to++ = (uint8_t)text[k];
        else if (!was_odd) *to++ = '.';  /* of whichever locale */
    }
    return to;
}

/* Where the message in a field of a message is; one that was there before is refused. */
static const uint8_t *read_part(Machine *m, const uint8_t *at, const uint8_t *stop, int is_there, const uint8_t **end)
{
    at = read_size(m, at, stop, end);
    return at && is_there ? fail(m, BAD_PARTS, at) : at;
}

static int compare_entries(const uint8_t *base, const int64_t *a, const int64_t *b)
{
    if (a[1] != b[1]) return a[1] < b[1] ? -1 : 1;
    return a[1] ? memcmp(base + a[0], base + b[0], (size_t)a[1]) : 0;
}

static void swap_values(int64_t *a, int64_t *b)
{
    int64_t place = a[2], size = a[3];
    memcpy(a + 2, b + 2, 16);
    b[2] = place;
    b[3] = size;
}

/* Of entries with the same key the first gets the value of the last; the others get a key of size -1 and an earlier
   value, which still has to be sound. */
static int drop_equal_entries(Machine *m, const uint8_t *base, int64_t *entries, int64_t count)
{
    int64_t a, b, width, *order, *from, *swap;
    if (count <= SORTED_KEYS) {
        for (a = 0; a < count; a++)
            for (b = a + 1; b < count; b++)
                if (entries[ENTRY * a + 1] >= 0 && !compare_entries(base, entries + ENTRY * a, entries + ENTRY * b)) {
                    swap_values(entries + ENTRY * a, entries + ENTRY * b);
                    entries[ENTRY * b + 1] = -1;
                }
        return 1;
    }
    order = take_scratch(m, 2 * count);
    if (!order) return 0;
    from = order + count;
    for (a = 0; a < count; a++) order[a] = a;
    for (width = 1; width < count; width *= 2) {
        swap = from, from = order, order = swap;
        for (a = 0; a < count; a += 2 * width) {
            int64_t middle = a + width < count ? a + width : count, end = middle + width < count ? middle + width : count;
            int64_t left = a, right = middle, at;
            for (at = a; at < end; at++) {
                int is_left = left < middle
                              && (right >= end || compare_entries(base, entries + ENTRY * from[left],
                                                                  entries + ENTRY * from[right]) <= 0);
                order[at] = is_left ? from[left++] : from[right++];
            }
        }
    }
    for (a = 0; a < count; a = b) {
        int64_t *first = entries + ENTRY * order[a];
        for (b = a + 1; b < count && !compare_entries(base, first, entries + ENTRY * order[b]); b++)
            swap_values(first, entries + ENTRY * order[b]);
        for (width = a + 1; width < b; width++) entries[ENTRY * order[width] + 1] = -1;
    }
    give_scratch(m, 2 * count);
    return 1;
}

/* The key and the value of an entry, as their places and sizes behind `base`. */
static const uint8_t *read_entry(Machine *m, const uint8_t *base, const uint8_t *at, const uint8_t *stop, int64_t *entry)
{
    const uint8_t *end;
    int has_value = 0;
    memset(entry, 0, ENTRY * sizeof *entry);
    while (at < stop) {
        const uint8_t *start = at;
        uint64_t tag = 0;
        at = read_tag(m, at, stop, &tag);
        if (!at) return NULL;
        if (tag == (1 << 3 | WIRE_BYTES)) {
            at = read_size(m, at, stop, &end);
            if (!at) return NULL;
            if (!is_utf8(at, end - at)) return fail(m, BAD_UTF8, at);
            entry[0] = at - base;
            entry[1] = end - at;
            at = end;
        } else if (tag == (2 << 3 | WIRE_BYTES)) {
            at = read_part(m, at, stop, has_value, &end);
            if (!at) return NULL;
            has_value = 1;
            entry[2] = at - base;
            entry[3] = end - at;
            at = end;
        } else {
            at = skip_field(m, tag, start, at, stop, &end);
            if (!at) return NULL;
        }
    }
    return at;
}

static int write_struct(Machine *m, const uint8_t *at, const uint8_t *stop, uint8_t **to)
{
    const uint8_t *base = at, *end;
    const int64_t scratch = m->scratch_at;
    int64_t count = 0, k, *entries = NULL, *entry;
    int is_first = 1;
    while (at < stop) {
        const uint8_t *start = at;
        uint64_t tag = 0;
        at = read_tag(m, at, stop, &tag);
        if (!at) return 0;
        if (tag == (1 << 3 | WIRE_BYTES)) {
            at = read_size(m, at, stop, &end);
            if (!at || !enter(m, at)) return 0;
            entry = take_scratch(m, ENTRY);  /* behind the one before */
            if (!entry) return 0;
            if (!entries) entries = entry;
            count++;
            at = read_entry(m, base, at, end, entry);
            leave(m);
        } else {
            at = skip_field(m, tag, start, at, stop, &end);
        }
        if (!at) return 0;
    }
    if (count > 1 && !drop_equal_entries(m, base, entries, count)) return 0;
    *(*to)++ = '{';
    for (k = 0; k < count; k++) {
        uint8_t *kept = *to;
        entry = entries + ENTRY * k;
        if (entry[1] >= 0) {
            if (!is_first) *(*to)++ = ',';
            is_first = 0;
            *to = write_text(*to, base + entry[0], base + entry[0] + entry[1]);
            *(*to)++ = ':';
        }
        m->depth++;  /* the entry, that was entered before */
        if (!enter(m, base + entry[2])) return 0;
        if (!write_value(m, base + entry[2], base + entry[2] + entry[3], to)) return 0;
        leave(m);
        leave(m);
        if (entry[1] < 0) *to = kept;
    }
    *(*to)++ = '}';
    m->scratch_at = scratch;
    return 1;
}

static int write_list(Machine *m, const uint8_t *at, const uint8_t *stop, uint8_t **to)
{
    const uint8_t *end;
    int is_first = 1;
    *(*to)++ = '[';
    while (at < stop) {
        const uint8_t *start = at;
        uint64_t tag = 0;
        at = read_tag(m, at, stop, &tag);
        if (!at) return 0;
        if (tag == (1 << 3 | WIRE_BYTES)) {
            at = read_size(m, at, stop, &end);
            if (!at || !enter(m, at)) return 0;
            if (!is_first) *(*to)++ = ',';
            is_first = 0;
            if (!write_value(m, at, end, to)) return 0;
            leave(m);
            at = end;
        } else {
            at = skip_field(m, tag, start, at, stop, &end);
            if (!at) return 0;
        }
    }
    *(*to)++ = ']';
    return 1;
}

/* The struct or list of a value; 1 where it has none. */
static int write_content(Machine *m, int kind, const uint8_t *at, const uint8_t *stop, uint8_t **to)
{
    if (kind != STRUCT_VALUE && kind != LIST_VALUE) return 1;
    if (!enter(m, at)) return 0;
    if (!(kind == LIST_VALUE ? write_list : write_struct)(m, at, stop, to)) return 0;
    leave(m);
    return 1;
}

static int write_value(Machine *m, const uint8_t *at, const uint8_t *stop, uint8_t **to)
{
    uint8_t *const first = *to;
    const uint8_t *content = NULL, *content_end = NULL, *end;
    int kind = KIND_ABSENT;
    uint64_t number = 0;
    double value = 0;
    while (at < stop) {
        const uint8_t *start = at, *next = NULL, *next_end = NULL;
        int found = KIND_ABSENT;
        uint64_t tag = 0;
        at = read_tag(m, at, stop, &tag);
        if (!at) return 0;
        switch (tag) {
            case NULL_VALUE << 3 | WIRE_VARINT:
            case BOOL_VALUE << 3 | WIRE_VARINT:
                at = read_wire_number(m, at, stop, &number);
                if (!at) return 0;
                found = (int)(tag >> 3);
                break;
            case NUMBER_VALUE << 3 | WIRE_WIDE:
                if (stop - at < 8) return fail(m, BAD_SHORT, at) != NULL;
                number = (uint64_t)little_int64(at);
                memcpy(&value, &number, 8);
                if (!(value - value == 0)) return fail(m, BAD_RANGE, at) != NULL;
                found = NUMBER_VALUE;
                at += 8;
                break;
            case STRING_VALUE << 3 | WIRE_BYTES:
            case STRUCT_VALUE << 3 | WIRE_BYTES:
            case LIST_VALUE << 3 | WIRE_BYTES:
                found = (int)(tag >> 3);
                at = read_part(m, at, stop, found == kind && found != STRING_VALUE, &end);
                if (!at) return 0;
                if (found == STRING_VALUE && !is_utf8(at, end - at)) return fail(m, BAD_UTF8, at) != NULL;
                next = at;
                next_end = at = end;
                break;
            default: at = skip_field(m, tag, start, at, stop, &end);
        }
        if (!at) return 0;
        if (found == KIND_ABSENT) continue;
        if (!write_content(m, kind, content, content_end, to)) return 0;  /* replaced, but part of the message */
        *to = first;
        kind = found;
        content = next;
        content_end = next_end;
    }
    switch (kind) {
        case NUMBER_VALUE: *to = write_double(*to, value); return 1;
        case STRING_VALUE: *to = write_text(*to, content, content_end); return 1;
        case BOOL_VALUE:
            memcpy(*to, number ? "true" : "false", number ? 4 : 5);
            *to += number ? 4 : 5;
            return 1;
        case STRUCT_VALUE:
        case LIST_VALUE: return write_content(m, kind, content, content_end, to);
        default:
            memcpy(*to, "null", 4);
            *to += 4;
            return 1;
    }
}

static int append_json(Machine *m, const Step *value, const uint8_t *at, const uint8_t *stop)
{
    uint8_t *start = reserve_bytes(m, value->column, WRITTEN_TIMES * (stop - at) + WRITTEN_MORE), *to = start;
    if (!start || !enter(m, at)) return 0;
    if (!(value->a == JSON_STRUCT ? write_struct : value->a == JSON_VALUE ? write_value : write_list)(m, at, stop, &to))
        return 0;
    leave(m);
    close_bytes(m, value->column, to - start);
    return 1;
}

/* One occurrence of a field that has a length or is a group: the bytes from `at` to `end`. 0: return NULL. */
static inline int read_content(Machine *m, const Step *step, const Step *field, const Step *value, uint64_t *seen,
                               int k, const uint8_t *at, const uint8_t *end)
{
    const int goes_on = !(field->flags & PROTO_REPEATED) && HAS(seen, k);
    int is_unknown = 0;
    int64_t micros;
    switch (VALUE_CODE(field)) {
        case PROTO_STRING:
            make_way(m, step, field, seen, k);
            return append_text(m, value->column, at, end - at, at);
        case PROTO_BYTES:
            make_way(m, step, field, seen, k);
            return append_bytes(m, value->column, at, end - at);
        case PROTO_MESSAGE:
            if (UNLIKELY(!enter(m, at))) return 0;
            if (LIKELY(!goes_on)) {
                make_way(m, step, field, seen, k);
                if (value->column != DROPPED && UNLIKELY(!append_struct(m, value->column))) return 0;
            }
            if (UNLIKELY(!read_message(m, value, at, end, goes_on, &is_unknown))) return 0;
            leave(m);
            return 1;
        case PROTO_MAP_ENTRY:
            if (UNLIKELY(!enter(m, at))) return 0;
            make_way(m, step, field, seen, k);
            if (UNLIKELY(!read_message(m, value, at, end, 0, &is_unknown))) return 0;
            if (UNLIKELY(is_unknown)) {
                int place;
                for (place = 0; place < 2; place++) {
                    int column = CHILD(m, value, place)->column;
                    take_back(m, column, m->columns[column].length - 1);
                }
            }
            leave(m);
            return 1;
        case PROTO_JSON:
            if (UNLIKELY(goes_on)) return fail(m, BAD_PARTS, at) != NULL;
            make_way(m, step, field, seen, k);
            return append_json(m, value, at, end);
        default:
            if (UNLIKELY(!enter(m, at))) return 0;
            if (UNLIKELY(!read_time(m, value, at, end, goes_on, &micros))) return 0;
            leave(m);
            make_way(m, step, field, seen, k);
            return append_int64(m, value->column, micros);
    }
}

static inline const uint8_t *read_fields(Machine *m, const Step *step, uint64_t *seen, const uint8_t *at,
                                         const uint8_t *stop, int *is_unknown)
{
    const Step *fields = CHILD(m, step, 0);
    int k = -1;
    while (at < stop) {
        const uint8_t *start = at, *end = NULL, *after;
        const Step *field;
        uint64_t tag = 0;
        int guess = k + 1;
        at = read_varint32(m, at, stop, &tag);
        if (UNLIKELY(!at)) return NULL;
        /* the next one, the same one again, or any other: a guess needs not wait for a table */
        if (LIKELY(guess < step->count && fields[guess].a == (int64_t)tag)) {
            k = guess;
        } else if (k < 0 || fields[k].a != (int64_t)tag) {
            int place;
            if (UNLIKELY(is_no_tag(tag))) return fail(m, BAD_TAG, start);
            place = field_place(m, step, tag >> 3);
            if (UNLIKELY(place < 0)) {
                at = skip_field(m, tag, start, at, stop, &end);
                if (UNLIKELY(!at)) return NULL;
                continue;
            }
            k = place;
            if (UNLIKELY(fields[k].a != (int64_t)tag)) {
                if (!(fields[k].flags & PROTO_PACKABLE && (tag & 7) == WIRE_BYTES)) {
                    at = skip_field(m, tag, start, at, stop, &end);
                    if (UNLIKELY(!at)) return NULL;
                    continue;
                }
                at = read_size(m, at, stop, &end);
                if (UNLIKELY(!at)) return NULL;
                while (at < end) {
                    at = read_number_field(m, step, fields + k, seen, k, at, end, is_unknown);
                    if (UNLIKELY(!at)) return NULL;
                }
                continue;
            }
        }
        field = fields + k;
        if (VALUE_CODE(field) >= PROTO_INT32 && VALUE_CODE(field) <= PROTO_ENUM) {
            at = read_number_field(m, step, field, seen, k, at, stop, is_unknown);
            if (UNLIKELY(!at)) return NULL;
            continue;
        }
        if (LIKELY((tag & 7) == WIRE_BYTES)) {
            at = read_size(m, at, stop, &end);
            after = end;
        } else {
            after = skip_field(m, tag, at, at, stop, &end);
            if (UNLIKELY(!after)) return NULL;
        }
        if (UNLIKELY(!at)) return NULL;
        if (UNLIKELY(field->column == DROPPED)) {
            if (field->b >= 0) clear_oneof(m, step, field->b, seen, k);
        } else if (UNLIKELY(!read_content(m, step, field, CHILD(m, field, 0), seen, k, at, end))) {
            return NULL;
        }
        at = after;
    }
    return at;
}

/* Bits become those at `order`. */
static int gather_bits(Machine *m, uint8_t *bits, int64_t start, int64_t old, const int64_t *order, int64_t count)
{
    int64_t words = (old + 63) / 64, k, *saved = take_scratch(m, words);
    uint8_t *copy = (uint8_t *)saved;
    if (!saved) return 0;
    memset(copy, 0, (size_t)words * 8);
    for (k = 0; k < old; k++) copy[k >> 3] |= (uint8_t)((bits[(start + k) >> 3] >> ((start + k) & 7) & 1) << (k & 7));
    for (k = 0; k < count; k++) put_bit(bits, start + k, copy[order[k] >> 3] >> (order[k] & 7) & 1);
    give_scratch(m, words);
    return 1;
}

/* The entries of a column from `start` on become those of them that `order` has, counted from there. 0: return NULL. */
static int gather(Machine *m, int column, int64_t start, const int64_t *order, int64_t count)
{
    Column *c = m->columns + column;
    const int32_t *children = m->numbers + c->first_child;
    int32_t *offsets = (int32_t *)c->values;
    int64_t old = c->length - start, k, words, size, base, *saved;
    if (c->validity && !gather_bits(m, c->validity, start, old, order, count)) return 0;
    c->length = start + count;
    switch (c->kind) {
        case KIND_NULL: return 1;
        case KIND_BOOL: return gather_bits(m, c->values, start, old, order, count);
        case KIND_STRUCT:
            for (k = 0; k < c->child_count; k++)
                if (!gather(m, children[k], start, order, count)) return 0;
            return 1;
        case KIND_STRING:
        case KIND_BINARY:
        case KIND_LIST:
        case KIND_MAP: break;
        default:
            words = (old * c->width + 7) / 8;
            saved = take_scratch(m, words);
            if (!saved) return 0;
            memcpy(saved, c->values + start * c->width, (size_t)(old * c->width));
            for (k = 0; k < count; k++)
                memcpy(c->values + (start + k) * c->width, (uint8_t *)saved + order[k] * c->width, (size_t)c->width);
            give_scratch(m, words);
            return 1;
    }
    /* where each of the old entries begins and ends */
    saved = take_scratch(m, old + 1);
    if (!saved) return 0;
    base = offsets[start];
    for (k = 0; k <= old; k++) saved[k] = offsets[start + k] - base;
    for (k = 0; k < count; k++)
        offsets[start + k + 1] = (int32_t)(offsets[start + k] + saved[order[k] + 1] - saved[order[k]]);
    size = offsets[start + count] - base;
    if (c->kind == KIND_STRING || c->kind == KIND_BINARY) {
        int64_t *data;
        words = (saved[old] + 7) / 8;
        data = take_scratch(m, words);
        if (!data) return 0;
        if (saved[old]) memcpy(data, c->data + base, (size_t)saved[old]);
        for (k = 0; k < count; k++)
            memcpy(c->data + offsets[start + k], (uint8_t *)data + saved[order[k]],
                   (size_t)(saved[order[k] + 1] - saved[order[k]]));
        c->size = base + size;
        give_scratch(m, words);
    } else {
        int64_t *below = take_scratch(m, size), at = 0, item;
        if (!below) return 0;
        for (k = 0; k < count; k++)
            for (item = saved[order[k]]; item < saved[order[k] + 1]; item++) below[at++] = item;
        for (k = 0; k < c->child_count; k++)
            if (!gather(m, children[k], base, below, size)) return 0;
        give_scratch(m, size);
    }
    give_scratch(m, old + 1);
    return 1;
}

/* Below 0, 0 or above: an order of keys, whichever it is. */
static int compare_map_keys(const Column *c, int64_t a, int64_t b)
{
    const int32_t *offsets = (const int32_t *)c->values;
    int32_t size;
    switch (c->kind) {
        case KIND_BOOL: return (c->values[a >> 3] >> (a & 7) & 1) - (c->values[b >> 3] >> (b & 7) & 1);
        case KIND_STRING:
        case KIND_BINARY:
            size = offsets[a + 1] - offsets[a];
            if (size != offsets[b + 1] - offsets[b]) return size < offsets[b + 1] - offsets[b] ? -1 : 1;
            return memcmp(c->data + offsets[a], c->data + offsets[b], (size_t)size);
        default: return memcmp(c->values + a * c->width, c->values + b * c->width, (size_t)c->width);
    }
}

static int sort_map_keys(Machine *m, const Column *c, int64_t start, int64_t *order, int64_t count)
{
    int64_t *from = take_scratch(m, count), *to = order, *swap, width, k;
    if (!from) return 0;
    for (k = 0; k < count; k++) order[k] = from[k] = k;
    for (width = 1; width < count; width *= 2) {
        swap = from, from = to, to = swap;
        for (k = 0; k < count; k += 2 * width) {
            int64_t a = k, middle = k + width < count ? k + width : count, b = middle, at;
            int64_t end = k + 2 * width < count ? k + 2 * width : count;
            for (at = k; at < end; at++)
                to[at] = a < middle && (b >= end || compare_map_keys(c, start + from[a], start + from[b]) <= 0) ? from[a++]
                                                                                                            : from[b++];
        }
    }
    if (to != order) memcpy(order, to, (size_t)count * 8);
    give_scratch(m, count);
    return 1;
}

/* Of entries with the same key the last one is left, in the place of the first. */
static NOINLINE int drop_duplicates(Machine *m, const Column *map, int64_t start, int64_t count)
{
    const Column *keys = m->columns + m->numbers[map->first_child];
    int64_t *order = take_scratch(m, 2 * count), *last, k, kept = 0;
    if (!order || !sort_map_keys(m, keys, start, order, count)) return 0;
    last = order + count;
    for (k = 0; k < count;) {
        int64_t first = order[k], at = k;
        while (at + 1 < count && compare_map_keys(keys, start + first, start + order[at + 1]) == 0) last[order[++at]] = -1;
        last[first] = order[at];
        k = at + 1;
    }
    for (k = 0; k < count; k++)
        if (last[k] >= 0) order[kept++] = last[k];
    if (kept < count)
        for (k = 0; k < map->child_count; k++)
            if (!gather(m, m->numbers[map->first_child + k], start, order, kept)) return 0;
    give_scratch(m, 2 * count);
    return 1;
}

enum { FEW_KEYS = 16 };

static int close_map(Machine *m, int column)
{
    const Column *map = m->columns + column, *keys = m->columns + m->numbers[map->first_child];
    int64_t start, count, a, b;
    if (UNLIKELY(!has_room(m, column))) return 0;
    start = ((int32_t *)map->values)[map->length];
    count = keys->length - start;
    if (count <= FEW_KEYS) {
        for (a = 1; a < count; a++)
            for (b = 0; b < a; b++)
                if (UNLIKELY(compare_map_keys(keys, start + a, start + b) == 0)) goto found;
        return close_list(m, column);
    }
found:
    return drop_duplicates(m, map, start, count) && close_list(m, column);
}

static int append_absent(Machine *m, const Step *step, const uint8_t *at)
{
    const Step *value;
    const uint8_t *text = m->text + step->text;
    if (step->code != CONSTANT) return step->column == DROPPED || append_null(m, step->column);
    value = CHILD(m, step, 0);
    if (LIKELY(value->code >= PROTO_INT32 && value->code <= PROTO_BOOL && text[0] == 0 && step->text_size == 1))
        return append_number(m, value->code, value, 0);
    if (LIKELY((value->code == PROTO_STRING || value->code == PROTO_BYTES) && step->text_size == 0))
        return append_bytes(m, value->column, at, 0);
    return run(m, step, at, at) != NULL;
}

static inline int fill_missing(Machine *m, const Step *step, const uint64_t *seen, const uint8_t *at)
{
    int k, word;
    for (word = 0; 64 * word < step->count; word++) {
        uint64_t missing = ~seen[word];
        int rest = step->count - 64 * word;
        if (rest < 64) missing &= ((uint64_t)1 << rest) - 1;
        for (k = 64 * word; missing; k++, missing >>= 1) {
            const Step *field;
#if defined(__GNUC__)
            int skipped = __builtin_ctzll(missing);
            k += skipped;
            missing >>= skipped;
#else
            if (!(missing & 1)) continue;
#endif
            field = CHILD(m, step, k);
            if (field->code != PROTO_FIELD) {
                if (UNLIKELY(!append_absent(m, field, at))) return 0;
            } else if (field->column == DROPPED) {
                continue;
            } else if (field->flags & PROTO_REPEATED) {
                int is_map = VALUE_CODE(field) == PROTO_MAP_ENTRY;
                if (UNLIKELY(!(is_map ? close_map(m, field->column) : close_list(m, field->column)))) return 0;
            } else if (UNLIKELY(field->count < 2)) {
                fail(m, BAD_MISSING, at);
                return 0;
            } else if (UNLIKELY(!append_absent(m, CHILD(m, field, 1), at))) {
                return 0;
            }
        }
    }
    return 1;
}

/* Before a message goes on: what is null in it did not come yet. */
static NOINLINE void open_again(Machine *m, const Step *step, uint64_t *seen)
{
    int k;
    for (k = 0; k < step->count; k++) {
        const Step *field = CHILD(m, step, k);
        const Column *c;
        SET(seen, k);
        if (field->code != PROTO_FIELD || field->column == DROPPED || field->flags & PROTO_REPEATED) continue;
        c = m->columns + field->column;
        if (c->validity && !(c->validity[(c->length - 1) >> 3] >> ((c->length - 1) & 7) & 1)) {
            take_back(m, field->column, c->length - 1);
            UNSET(seen, k);
        }
    }
}

/* The fields of a message, or of a map's entry. `*is_unknown`: an enum has a number that it does not know. */
static const uint8_t *read_message(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop, int goes_on,
                                   int *is_unknown)
{
    uint64_t few = 0, *seen = &few;
    int words = (step->count + 63) / 64;
    if (UNLIKELY(words > 1)) {
        seen = (uint64_t *)take_scratch(m, words);
        if (!seen) return NULL;
        memset(seen, 0, (size_t)words * 8);
    }
    if (UNLIKELY(goes_on)) open_again(m, step, seen);
    at = read_fields(m, step, seen, at, stop, is_unknown);
    if (UNLIKELY(!at || !fill_missing(m, step, seen, at))) return NULL;
    if (UNLIKELY(words > 1)) give_scratch(m, words);
    return at;
}

/* A value alone: a root, or the default of a field. */
static const uint8_t *run_proto(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    int is_unknown = 0;
    uint64_t found = 0;
    int64_t micros;
    switch (step->code) {
        case PROTO_MESSAGE:
            if (step->column != DROPPED && UNLIKELY(!append_struct(m, step->column))) return NULL;
            return read_message(m, step, at, stop, 0, &is_unknown);
        case PROTO_TIMESTAMP:
        case PROTO_DURATION:
            at = read_time(m, step, at, stop, 0, &micros);
            return at && append_int64(m, step->column, micros) ? at : NULL;
        case PROTO_STRING: return append_text(m, step->column, at, stop - at, at) ? stop : NULL;
        case PROTO_BYTES: return append_bytes(m, step->column, at, stop - at) ? stop : NULL;
        case PROTO_JSON: return append_json(m, step, at, stop) ? stop : NULL;
    }
    switch (step->code) {
        case PROTO_FIXED64:
        case PROTO_SFIXED64:
        case PROTO_DOUBLE:
            if (stop - at < 8) return fail(m, BAD_SHORT, at);
            found = (uint64_t)little_int64(at);
            at += 8;
            break;
        case PROTO_FIXED32:
        case PROTO_SFIXED32:
        case PROTO_FLOAT:
            if (stop - at < 4) return fail(m, BAD_SHORT, at);
            found = (uint32_t)little_int32(at);
            at += 4;
            break;
        case PROTO_MAP_ENTRY:
        case PROTO_FIELD: return fail(m, BAD_TAG, at);
        default: at = read_wire_number(m, at, stop, &found);
    }
    if (!at) return NULL;
    if (step->code == PROTO_ENUM) {
        int64_t index = enum_index(m, step, (int32_t)found);
        if (index == NO_SYMBOL) return NULL;
        if (index == NOT_THERE) return append_null(m, step->column) ? at : NULL;
        found = (uint64_t)index;
    }
    return append_number(m, step->code, step, found) ? at : NULL;
}
