/* JSON, RFC 8259. A value is read once, in the order of its bytes, and its members fill their columns as they come.

   That is right unless an object has a name twice, or something is wrong: then what was appended is taken back, the
   whole value is checked as JSON, and read again slowly (`is_sure`), each object looked through before its members are
   read. So only the second reading decides which error a value has (ops.py: first those of syntax), and which member
   counts; the first one only has to notice.

   Numbers are exact: floating point is used where it rounds once, big integers elsewhere. No function of the C library
   depends on the locale here. */

#include <float.h>

enum { JSON_BASE64 = 1, JSON_RAW_NAME = 1 };  /* flags of ops.py */

enum { MOST_INTEGER_DIGITS = 80, MOST_DOUBLE_DIGITS = 800, DIGITS_OF_64_BITS = 19, FEW_NAMES = 12 };

static const uint8_t *json_value(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop, int is_sure);

/* Syntax */

static inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *stop)
{
    while (at < stop && UNLIKELY(*at <= ' ') && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

static inline int is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* What a byte should have been and is not. */
static NOINLINE const uint8_t *fail_syntax(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    return fail(m, at < stop ? BAD_SYNTAX : BAD_SHORT, at);
}

/* Behind the bracket of an object or array: the first name or item, or, with *is_end, what follows the array. */
static inline const uint8_t *begin_items(Machine *m, const uint8_t *at, const uint8_t *stop, int close, int *is_end)
{
    *is_end = 0;
    at = skip_space(at + 1, stop);
    if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
    *is_end = *at == close;
    return at + *is_end;
}

/* Behind a value: the next name or item, or, with *is_end, what follows the object or array. */
static inline const uint8_t *next_item(Machine *m, const uint8_t *at, const uint8_t *stop, int close, int *is_end)
{
    at = skip_space(at, stop);
    if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
    if (*at == ',') {
        *is_end = 0;
        return skip_space(at + 1, stop);
    }
    *is_end = 1;
    return LIKELY(*at == close) ? at + 1 : fail_syntax(m, at, stop);
}

/* The bytes of a well-formed character beyond ASCII; 0: it is not well-formed; -1: it goes on behind `stop`.
   Source: Unicode 15, 3.9, table 3-7. */
static inline int wide_character(const uint8_t *at, const uint8_t *stop)
{
    uint8_t first = at[0], low = 0x80, high = 0xbf;
    int size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, k;
    if (first < 0xc2 || first > 0xf4) return 0;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    if (stop - at < 2) return -1;
    if (at[1] < low || at[1] > high) return 0;
    for (k = 2; k < size; k++) {
        if (stop - at <= k) return -1;
        if ((at[k] & 0xc0) != 0x80) return 0;
    }
    return size;
}

static inline int is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

/* The first byte that is not plain, or `stop`. */
static inline const uint8_t *skip_plain(const uint8_t *at, const uint8_t *stop)
{
#if defined(__SSE2__) && !defined(SEGREADER_NO_SSE2) && defined(__GNUC__)
    for (; stop - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i low = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));  /* signed: 0x80 and above, too */
        __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                     _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_or_si128(low, marks));
        if (found) return at + __builtin_ctz(found);
    }
#endif
    while (at < stop && is_plain(*at)) at++;
    return at;
}

static inline int hex_digit(uint8_t byte)
{
    if (is_digit(byte)) return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static inline const uint8_t *skip_escape(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    int k;
    if (++at >= stop) return fail_syntax(m, at, stop);
    switch (*at++) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': return at;
        case 'u': break;
        default: return fail_syntax(m, at - 1, stop);
    }
    for (k = 0; k < 4; k++, at++)
        if (at >= stop || hex_digit(*at) < 0) return fail_syntax(m, at, stop);
    return at;
}

/* From the first byte of a string's text to the quote behind it. */
static inline const uint8_t *skip_text(Machine *m, const uint8_t *at, const uint8_t *stop, int *has_escapes)
{
    for (;;) {
        at = skip_plain(at, stop);
        if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
        if (LIKELY(*at == '"')) return at;
        if (*at == '\\') {
            *has_escapes = 1;
            at = skip_escape(m, at, stop);
            if (UNLIKELY(!at)) return NULL;
        } else if (*at < 0x20) {
            return fail_syntax(m, at, stop);
        }
        while (at < stop && *at >= 0x80) {
            int size = wide_character(at, stop);
            if (UNLIKELY(size <= 0)) return size ? fail(m, BAD_SHORT, stop) : fail(m, BAD_UTF8, at);
            at += size;
        }
    }
}

static inline const uint8_t *skip_string(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    int has_escapes;
    at = skip_text(m, at + 1, stop, &has_escapes);
    return LIKELY(at) ? at + 1 : NULL;
}

static const uint8_t *skip_literal(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    const char *wanted = *at == 't' ? "true" : *at == 'f' ? "false" : "null";
    for (; *wanted; wanted++, at++)
        if (UNLIKELY(at >= stop || *at != (uint8_t)*wanted)) return fail_syntax(m, at, stop);
    return at;
}

static inline const uint8_t *skip_digits(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    if (UNLIKELY(at >= stop || !is_digit(*at))) return fail_syntax(m, at, stop);
    while (at < stop && is_digit(*at)) at++;
    return at;
}

static inline const uint8_t *skip_number(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    if (*at == '-') at++;
    if (at < stop && *at == '0') at++;
    else at = skip_digits(m, at, stop);
    if (at && at < stop && *at == '.') at = skip_digits(m, at + 1, stop);
    if (at && at < stop && (*at | 0x20) == 'e') {
        at++;
        if (at < stop && (*at == '+' || *at == '-')) at++;
        at = skip_digits(m, at, stop);
    }
    return at;
}

/* Any value, whatever its type. */
static const uint8_t *skip_value(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    uint8_t closes[MOST_DEPTH + 1];
    int depth = m->depth, is_end;
    for (;;) {
        if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
        is_end = 0;
        switch (*at) {
            case '"': at = skip_string(m, at, stop); break;
            case '{':
            case '[':
                if (UNLIKELY(depth >= MOST_DEPTH)) return fail(m, BAD_DEPTH, at);
                closes[++depth] = *at == '{' ? '}' : ']';
                at = begin_items(m, at, stop, closes[depth], &is_end);
                if (UNLIKELY(!at)) return NULL;
                if (is_end) depth--;
                else goto item;
                break;
            case 't': case 'f': case 'n': at = skip_literal(m, at, stop); break;
            case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
                at = skip_number(m, at, stop);
                break;
            default: return fail_syntax(m, at, stop);
        }
        if (UNLIKELY(!at)) return NULL;
        for (;;) {
            if (depth == m->depth) return at;
            at = next_item(m, at, stop, closes[depth], &is_end);
            if (UNLIKELY(!at)) return NULL;
            if (!is_end) break;
            depth--;
        }
    item:
        if (closes[depth] == ']') continue;
        if (UNLIKELY(at >= stop || *at != '"')) return fail_syntax(m, at, stop);
        at = skip_string(m, at, stop);
        if (UNLIKELY(!at)) return NULL;
        at = skip_space(at, stop);
        if (UNLIKELY(at >= stop || *at != ':')) return fail_syntax(m, at, stop);
        at = skip_space(at + 1, stop);
    }
}

/* Strings */

static inline unsigned four_digits(const uint8_t *at)
{
    return (unsigned)(hex_digit(at[0]) << 12 | hex_digit(at[1]) << 8 | hex_digit(at[2]) << 4 | hex_digit(at[3]));
}

/* The text of a string that skip_text() found well-formed, without backslashes: its size, -1 where a surrogate is alone.
   It is never longer. */
static int64_t unescape(const uint8_t *at, const uint8_t *end, uint8_t *to)
{
    uint8_t *start = to;
    while (at < end) {
        unsigned code;
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at += 2;
        switch (at[-1]) {
            case 'b': *to++ = '\b'; continue;
            case 'f': *to++ = '\f'; continue;
            case 'n': *to++ = '\n'; continue;
            case 'r': *to++ = '\r'; continue;
            case 't': *to++ = '\t'; continue;
            case 'u': break;
            default: *to++ = at[-1]; continue;
        }
        code = four_digits(at);
        at += 4;
        if (code >= 0xd800 && code < 0xe000) {
            unsigned low;
            if (code >= 0xdc00 || end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
            low = four_digits(at + 2);
            if (low < 0xdc00 || low >= 0xe000) return -1;
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            at += 6;
            *to++ = (uint8_t)(0xf0 | code >> 18);
            *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        } else if (code >= 0x800) {
            *to++ = (uint8_t)(0xe0 | code >> 12);
            *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        } else if (code >= 0x80) {
            *to++ = (uint8_t)(0xc0 | code >> 6);
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        } else {
            *to++ = (uint8_t)code;
        }
    }
    return to - start;
}

/* The text between `at` and `end`, in scratch where it has backslashes. 0: return NULL, for want of scratch. */
static inline int plain_text(Machine *m, const uint8_t *at, const uint8_t *end, int has_escapes, const uint8_t **text,
                             int64_t *size)
{
    *text = at;
    *size = end - at;
    if (UNLIKELY(has_escapes)) {
        int64_t *to = take_scratch(m, (end - at + 7) / 8);
        if (!to) return 0;
        *text = (const uint8_t *)to;
        *size = unescape(at, end, (uint8_t *)to);
    }
    return 1;
}

static inline int is_same(const uint8_t *one, const uint8_t *other, int64_t size)
{
    uint64_t a, b;
    uint32_t c, d;
    if (size > 16) return !memcmp(one, other, (size_t)size);
    if (size >= 8) {
        memcpy(&a, one, 8);
        memcpy(&b, other, 8);
        if (a != b) return 0;
        memcpy(&a, one + size - 8, 8);
        memcpy(&b, other + size - 8, 8);
        return a == b;
    }
    if (size >= 4) {
        memcpy(&c, one, 4);
        memcpy(&d, other, 4);
        if (c != d) return 0;
        memcpy(&c, one + size - 4, 4);
        memcpy(&d, other + size - 4, 4);
        return c == d;
    }
    return size <= 0 || (one[0] == other[0] && one[size / 2] == other[size / 2] && one[size - 1] == other[size - 1]);
}

/* Numbers */

typedef struct {
    const uint8_t *first, *end;  /* of its digits and their point, without sign and exponent */
    int64_t whole;               /* digits before the point */
    int64_t exponent;
    uint64_t digits;             /* all of them as one number, where is_short */
    int64_t power;               /* by which power of ten it is multiplied */
    int is_negative, is_short, is_whole;  /* is_whole: neither point nor exponent */
} Number;

static const uint8_t *read_number(Machine *m, const uint8_t *at, const uint8_t *stop, Number *n)
{
    const uint8_t *first, *point = NULL;
    int64_t count;
    uint64_t digits = 0;
    n->is_negative = *at == '-';
    at += n->is_negative;
    first = n->first = at;
    if (UNLIKELY(at >= stop || !is_digit(*at))) return fail_syntax(m, at, stop);
    if (*at == '0') at++;
    else for (; at < stop && is_digit(*at); at++) digits = digits * 10 + (*at - '0');
    n->whole = count = at - first;
    n->exponent = 0;
    n->is_whole = 1;
    if (at < stop && *at == '.') {
        point = ++at;
        if (UNLIKELY(at >= stop || !is_digit(*at))) return fail_syntax(m, at, stop);
        for (; at < stop && is_digit(*at); at++) digits = digits * 10 + (*at - '0');
        count += at - point;
        n->is_whole = 0;
    }
    n->end = at;
    if (at < stop && (*at | 0x20) == 'e') {
        int is_minus = 0;
        int64_t exponent = 0;
        at++;
        if (at < stop && (*at == '+' || *at == '-')) is_minus = *at++ == '-';
        if (UNLIKELY(at >= stop || !is_digit(*at))) return fail_syntax(m, at, stop);
        for (; at < stop && is_digit(*at); at++)
            if (exponent < INT64_C(100000000000000000)) exponent = exponent * 10 + (*at - '0');
        n->exponent = is_minus ? -exponent : exponent;
        n->is_whole = 0;
    }
    n->digits = digits;
    n->power = n->exponent - (count - n->whole);
    if (UNLIKELY(count > DIGITS_OF_64_BITS)) {  /* zeros in front do not count */
        const uint8_t *p = first;
        while (count > DIGITS_OF_64_BITS && (*p == '0' || *p == '.')) count -= *p++ == '0';
    }
    n->is_short = count <= DIGITS_OF_64_BITS;
    return at;
}

/* How many digits a number has from the first that is not 0 to the last such one; and the power of ten of that one. */
static int64_t significant(const Number *n, const uint8_t **first, int64_t *power)
{
    const uint8_t *p = n->first, *last = n->end - 1;
    int64_t count, place;
    while (p < n->end && (*p == '0' || *p == '.')) p++;
    if (p == n->end) return 0;
    while (*last == '0' || *last == '.') last--;
    /* The place of a digit: how many digits are in front of it. */
    place = last - n->first;
    count = last - p + 1;
    if (place > n->whole) {
        place--;
        if (p - n->first <= n->whole) count--;
    }
    *first = p;
    *power = n->exponent + n->whole - 1 - place;
    return count;
}

/* limbs * factor + more; 0 where that has more than 256 bits. */
static int multiply_limbs(uint64_t limbs[4], uint32_t factor, uint32_t more)
{
    uint64_t carry = more;
    int k;
    for (k = 0; k < 4; k++) {
        uint64_t low = (limbs[k] & 0xffffffff) * factor + carry;
        uint64_t high = (limbs[k] >> 32) * factor + (low >> 32);
        limbs[k] = high << 32 | (low & 0xffffffff);
        carry = high >> 32;
    }
    return !carry;
}

static void negate_limbs(uint64_t limbs[4])
{
    uint64_t carry = 1;
    int k;
    for (k = 0; k < 4; k++) {
        limbs[k] = ~limbs[k] + carry;
        carry = carry && !limbs[k];
    }
}

/* The number times 10 to the power of `scale`, exactly; or why it is none: a BAD_*. */
static int to_limbs(const Number *n, int64_t scale, int must_be_integer, uint64_t limbs[4])
{
    const uint8_t *digit = NULL;
    int64_t power = 0, count = significant(n, &digit, &power);
    memset(limbs, 0, 4 * sizeof *limbs);
    if (!count) return 0;
    if (must_be_integer && power < 0) return BAD_TYPE;
    power += scale;
    if (power < 0 || count > MOST_INTEGER_DIGITS || count + power > MOST_INTEGER_DIGITS) return BAD_RANGE;
    for (; count; digit++) {
        if (*digit == '.') continue;
        count--;
        if (!multiply_limbs(limbs, 10, *digit - '0')) return BAD_RANGE;
    }
    for (; power; power--)
        if (!multiply_limbs(limbs, 10, 0)) return BAD_RANGE;
    if (limbs[3] >> 63) return BAD_RANGE;
    if (n->is_negative) negate_limbs(limbs);
    return 0;
}

static inline int leading_zeros(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_clzll(bits);
#else
    int count = 0;
    for (; !(bits >> 63); bits <<= 1) count++;
    return count;
#endif
}

/* `top` * 2 to the power of `power`, and a little more where `has_rest`, as the bits of the nearest double (half way: the even
   one); those of infinity where it is too large. */
static uint64_t round_to_double(uint64_t top, int64_t power, int has_rest)
{
    const uint64_t infinity = UINT64_C(0x7ff) << 52;
    int zeros = leading_zeros(top);
    int64_t exponent = power - zeros + 63 + 1023, drop = 11;
    uint64_t kept, rest, half, bits;
    top <<= zeros;
    if (exponent >= 2047) return infinity;
    if (exponent <= 0) drop += 1 - exponent;
    if (drop > 64) return 0;
    kept = drop < 64 ? top >> drop : 0;
    rest = drop < 64 ? top & ((UINT64_C(1) << drop) - 1) : top;
    half = UINT64_C(1) << (drop - 1);
    kept += rest > half || (rest == half && (has_rest || (kept & 1)));
    bits = exponent <= 0 ? kept : kept + ((uint64_t)(exponent - 1) << 52);
    return bits < infinity ? bits : infinity;
}

/* Big integers: of doubles with many digits, or far from 1. */

enum { BIG_LIMBS = 96 };  /* 800 digits have 2,658 bits, 5 to the power of 1,126 has 2,615; with 63 more, and 32 */

typedef struct {
    int size;  /* the highest limb is not 0 */
    uint32_t limbs[BIG_LIMBS];
} Big;

static void multiply_big(Big *big, uint32_t factor, uint32_t more)
{
    uint64_t carry = more;
    int k;
    for (k = 0; k < big->size; k++) {
        carry += (uint64_t)big->limbs[k] * factor;
        big->limbs[k] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) big->limbs[big->size++] = (uint32_t)carry;
}

static void multiply_by_fives(Big *big, int64_t power)
{
    for (; power >= 13; power -= 13) multiply_big(big, 1220703125, 0);
    for (; power > 0; power--) multiply_big(big, 5, 0);
}

static int64_t count_bits(const Big *big)
{
    return 32 * (int64_t)big->size + 32 - leading_zeros(big->limbs[big->size - 1]);
}

static void shift_big(Big *big, int64_t bits)
{
    int whole = (int)(bits / 32), k;
    for (k = big->size - 1; k >= 0; k--) big->limbs[k + whole] = big->limbs[k];
    for (k = 0; k < whole; k++) big->limbs[k] = 0;
    big->size += whole;
    if (bits % 32) multiply_big(big, UINT32_C(1) << bits % 32, 0);
}

/* A limb of a quotient; what is left of `rest` (one limb longer than `divisor`, whose highest bit is set) after it.
   Source: Knuth, TAOCP 2, 4.3.1, algorithm D. */
static uint32_t divide_limb(uint32_t *rest, const Big *divisor)
{
    int n = divisor->size, k;
    uint64_t top = (uint64_t)rest[n] << 32 | rest[n - 1];
    uint64_t guess = top / divisor->limbs[n - 1], carry = 0, borrow = 0;
    if (guess > 0xffffffff) guess = 0xffffffff;
    for (k = 0; k <= n; k++) {
        uint64_t wanted = borrow;
        if (k < n) carry += guess * divisor->limbs[k];
        wanted += carry & 0xffffffff;
        carry >>= 32;
        borrow = rest[k] < wanted;
        rest[k] = (uint32_t)(rest[k] - wanted);
    }
    while (borrow) {  /* the guess was too high, by 2 at most */
        guess--;
        carry = 0;
        for (k = 0; k <= n; k++) {
            carry += (uint64_t)rest[k] + (k < n ? divisor->limbs[k] : 0);
            rest[k] = (uint32_t)carry;
            carry >>= 32;
        }
        borrow = !carry;
    }
    return (uint32_t)guess;
}

static NOINLINE uint64_t big_to_double(const Number *n)
{
    Big number, divisor;
    const uint8_t *digit = NULL;
    int64_t power = 0, count = significant(n, &digit, &power), shift, k;
    uint64_t top;
    int has_rest = 0;
    if (!count || count + power < -324) return 0;
    if (count + power > 310) return UINT64_C(0x7ff) << 52;
    number.size = 0;
    for (k = 0; k < count && k < MOST_DOUBLE_DIGITS; digit++)
        if (*digit != '.') multiply_big(&number, 10, *digit - '0'), k++;
    if (k < count) {  /* no double, nor the middle of two, has that many digits: any more of them decide the same */
        multiply_big(&number, 10, 1);
        power += count - k - 1;
    }
    if (power >= 0) {
        multiply_by_fives(&number, power);
        if (number.size < 2) return round_to_double(number.limbs[0], power, 0);
        shift = count_bits(&number) % 32 ? 32 - count_bits(&number) % 32 : 0;
        shift_big(&number, shift);
        for (k = 0; k < number.size - 2; k++) has_rest |= number.limbs[k] != 0;
        top = (uint64_t)number.limbs[number.size - 1] << 32 | number.limbs[number.size - 2];
        return round_to_double(top, power - shift + 32 * (int64_t)(number.size - 2), has_rest);
    }
    divisor.size = 1;
    divisor.limbs[0] = 1;
    multiply_by_fives(&divisor, -power);
    shift = count_bits(&divisor) % 32 ? 32 - count_bits(&divisor) % 32 : 0;
    while (count_bits(&divisor) + shift + 63 < count_bits(&number)) shift += 32;
    shift_big(&divisor, shift);
    power += shift;
    shift = count_bits(&divisor) + 63 - count_bits(&number);
    shift_big(&number, shift);
    power -= shift;
    for (k = number.size; k < divisor.size + 2; k++) number.limbs[k] = 0;
    top = (uint64_t)divide_limb(number.limbs + 1, &divisor) << 32;
    top |= divide_limb(number.limbs, &divisor);
    for (k = 0; k < divisor.size; k++) has_rest |= number.limbs[k] != 0;
    return round_to_double(top, power, has_rest);
}

#if defined(__SIZEOF_INT128__)
/* The same for numbers of 64 bits, with powers of 5 that have no more. */
static inline uint64_t near_to_double(uint64_t digits, int64_t power)
{
    static const uint64_t FIVES[] = {  /* up to 5 to the power of 27 */
        UINT64_C(1), UINT64_C(5), UINT64_C(25), UINT64_C(125), UINT64_C(625), UINT64_C(3125), UINT64_C(15625),
        UINT64_C(78125), UINT64_C(390625), UINT64_C(1953125), UINT64_C(9765625), UINT64_C(48828125), UINT64_C(244140625),
        UINT64_C(1220703125), UINT64_C(6103515625), UINT64_C(30517578125), UINT64_C(152587890625),
        UINT64_C(762939453125), UINT64_C(3814697265625), UINT64_C(19073486328125), UINT64_C(95367431640625),
        UINT64_C(476837158203125), UINT64_C(2384185791015625), UINT64_C(11920928955078125), UINT64_C(59604644775390625),
        UINT64_C(298023223876953125), UINT64_C(1490116119384765625), UINT64_C(7450580596923828125),
    };
    if (power >= 0) {
        unsigned __int128 product = (unsigned __int128)digits * FIVES[power];
        uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
        int zeros;
        if (!high) return round_to_double(low, power, 0);
        zeros = leading_zeros(high);
        if (zeros) high = high << zeros | low >> (64 - zeros), low <<= zeros;
        return round_to_double(high, power + 64 - zeros, low != 0);
    } else {
        int zeros = leading_zeros(digits), shift = leading_zeros(FIVES[-power]);
        uint64_t divisor = FIVES[-power] << shift, top = digits << zeros >> 1;  /* less than the divisor */
        unsigned __int128 number = (unsigned __int128)top << 64;
        if (zeros == 0 && (digits & 1)) number |= UINT64_C(1) << 63;
        return round_to_double((uint64_t)(number / divisor), power + shift - zeros + 1 - 64, number % divisor != 0);
    }
}
#endif

static inline double to_double(const Number *n)
{
    uint64_t bits;
    double value;
#if FLT_EVAL_METHOD == 0
    static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (LIKELY(n->is_short && n->digits <= UINT64_C(1) << 53 && n->power >= -22 && n->power <= 22)) {
        value = (double)n->digits;  /* exact, as are the powers: rounded once */
        value = n->power < 0 ? value / TENS[-n->power] : value * TENS[n->power];
        return n->is_negative ? -value : value;
    }
#endif
#if defined(__SIZEOF_INT128__)
    if (n->is_short && n->digits && n->power >= -27 && n->power <= 27) bits = near_to_double(n->digits, n->power);
    else
#endif
        bits = big_to_double(n);
    bits |= (uint64_t)n->is_negative << 63;
    memcpy(&value, &bits, 8);
    return value;
}

static inline const uint8_t *json_number(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    Number n;
    const uint8_t *start = at;
    int is_appended;
    if (UNLIKELY(*at != '-' && !is_digit(*at))) return fail(m, BAD_TYPE, at);
    at = read_number(m, at, stop, &n);
    if (UNLIKELY(!at)) return NULL;
    if (step->kind == KIND_DECIMAL) {
        uint64_t limbs[4];
        int bad = to_limbs(&n, step->a, 0, limbs);
        if (bad) return fail(m, bad, start);
        is_appended = append_decimal(m, step->column, limbs, start);
    } else {
        double value = to_double(&n);
        if (UNLIKELY(value > DBL_MAX || value < -DBL_MAX)) return fail(m, BAD_RANGE, start);
        if (step->kind == KIND_FLOAT) {
            float narrow = (float)value;
            if (narrow > FLT_MAX || narrow < -FLT_MAX) return fail(m, BAD_RANGE, start);
            is_appended = append_float(m, step->column, narrow);
        } else {
            is_appended = append_double(m, step->column, value);
        }
    }
    return LIKELY(is_appended) ? at : NULL;
}

static inline const uint8_t *json_integer(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const int64_t ms_of_day = 86400000, us_of_day = INT64_C(86400000000);
    Number n;
    const uint8_t *start = at;
    int64_t value, low = INT64_MIN, high = INT64_MAX;
    int is_appended;
    if (UNLIKELY(*at != '-' && !is_digit(*at))) return fail(m, BAD_TYPE, at);
    at = read_number(m, at, stop, &n);
    if (UNLIKELY(!at)) return NULL;
    if (LIKELY(n.is_whole && n.is_short && n.digits <= INT64_MAX && step->kind != KIND_DECIMAL)) {
        value = n.is_negative ? -(int64_t)n.digits : (int64_t)n.digits;
    } else {
        uint64_t limbs[4], sign;
        int bad = to_limbs(&n, step->kind == KIND_DECIMAL ? step->a : 0, 1, limbs);
        if (bad) return fail(m, bad, start);
        if (step->kind == KIND_DECIMAL) return append_decimal(m, step->column, limbs, start) ? at : NULL;
        sign = (uint64_t)0 - (limbs[3] >> 63);
        if (limbs[1] != sign || limbs[2] != sign || limbs[3] != sign) return fail(m, BAD_RANGE, start);
        if (step->kind == KIND_UINT64 && !sign)
            return append_int64(m, step->column, (int64_t)limbs[0]) ? at : NULL;
        if ((limbs[0] >> 63) != (sign & 1)) return fail(m, BAD_RANGE, start);
        value = (int64_t)limbs[0];
    }
    switch (step->kind) {
        case KIND_INT32:
        case KIND_DATE: low = INT32_MIN, high = INT32_MAX; break;
        case KIND_UINT64: low = 0; break;
        case KIND_TIME_MS: low = 0, high = ms_of_day - 1; break;
        case KIND_TIME_US: low = 0, high = step->a ? (us_of_day - 1) / step->a : us_of_day - 1; break;
        case KIND_TIMESTAMP:
            if (step->a) low = INT64_MIN / step->a, high = INT64_MAX / step->a;
            break;
    }
    if (UNLIKELY(value < low || value > high)) return fail(m, BAD_RANGE, start);
    if ((step->kind == KIND_TIME_US || step->kind == KIND_TIMESTAMP) && step->a) value *= step->a;
    if (step->kind == KIND_INT32 || step->kind == KIND_DATE || step->kind == KIND_TIME_MS)
        is_appended = append_int32(m, step->column, (int32_t)value);
    else
        is_appended = append_int64(m, step->column, value);
    return LIKELY(is_appended) ? at : NULL;
}

/* What a string means in columns other than of text. These take its text, and give 0 where it is nothing of the kind. */

/* `count` digits as a number, -1: they are none. */
static inline int digits_at(const uint8_t *at, int count)
{
    int value = 0;
    for (; count; count--, at++) {
        if (!is_digit(*at)) return -1;
        value = value * 10 + (*at - '0');
    }
    return value;
}

/* YYYY-MM-DD as days since 1970-01-01. Source: "chrono-compatible low-level date algorithms", days_from_civil. */
static int to_date(const uint8_t *at, int64_t size, int64_t *days)
{
    static const uint8_t LENGTHS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, is_leap, of_era;
    if (size != 10 || at[4] != '-' || at[7] != '-') return 0;
    year = digits_at(at, 4);
    month = digits_at(at + 5, 2);
    day = digits_at(at + 8, 2);
    if (year < 0 || month < 1 || month > 12 || day < 1) return 0;
    is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > LENGTHS[month - 1] + (month == 2 && is_leap)) return 0;
    year += 400 - (month <= 2);  /* from March on, and of the era before, so that nothing is negative */
    of_era = year % 400;
    *days = (int64_t)(year / 400 - 1) * 146097 + of_era * 365 + of_era / 4 - of_era / 100
            + (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1 - 719468;
    return 1;
}

/* HH:MM:SS[.d+][offset] as microseconds since midnight, and those of the offset. */
static int to_time(const uint8_t *at, int64_t size, int64_t *time, int64_t *offset, int *has_offset)
{
    const uint8_t *end = at + size;
    int hour, minute, second, k;
    int64_t fraction = 0;
    if (size < 8 || at[2] != ':' || at[5] != ':') return 0;
    hour = digits_at(at, 2);
    minute = digits_at(at + 3, 2);
    second = digits_at(at + 6, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return 0;
    at += 8;
    if (at < end && *at == '.') {
        at++;
        if (at == end || !is_digit(*at)) return 0;
        for (k = 0; k < 6; k++) fraction = fraction * 10 + (at < end && is_digit(*at) ? *at++ - '0' : 0);
        while (at < end && is_digit(*at)) at++;
    }
    *time = (((int64_t)hour * 60 + minute) * 60 + second) * 1000000 + fraction;
    *offset = 0;
    *has_offset = at < end;
    if (at == end) return 1;
    if ((*at | 0x20) == 'z') return at + 1 == end;
    if ((*at != '+' && *at != '-') || end - at != 6 || at[3] != ':') return 0;
    hour = digits_at(at + 1, 2);
    minute = digits_at(at + 4, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59) return 0;
    *offset = ((int64_t)hour * 60 + minute) * 60000000;
    if (*at == '-') *offset = -*offset;
    return 1;
}

static int base64_digit(uint8_t byte)
{
    if (byte >= 'A' && byte <= 'Z') return byte - 'A';
    if (byte >= 'a' && byte <= 'z') return byte - 'a' + 26;
    if (is_digit(byte)) return byte - '0' + 52;
    if (byte == '+' || byte == '-') return 62;
    return byte == '/' || byte == '_' ? 63 : -1;
}

/* How many bytes `size` characters of base64 are, in either alphabet, padded or not; -1: they are none. */
static int64_t from_base64(const uint8_t *at, int64_t size, uint8_t *to)
{
    uint8_t *start = to;
    uint32_t bits = 0;
    int64_t k;
    int left;
    if (size && size % 4 == 0 && at[size - 1] == '=') size -= 1 + (at[size - 2] == '=');
    if (size % 4 == 1) return -1;
    for (k = 0; k < size; k++) {
        int digit = base64_digit(at[k]);
        if (digit < 0) return -1;
        bits = bits << 6 | (uint32_t)digit;
        if (k % 4 == 3) {
            *to++ = (uint8_t)(bits >> 16);
            *to++ = (uint8_t)(bits >> 8);
            *to++ = (uint8_t)bits;
            bits = 0;
        }
    }
    left = (int)(size % 4);
    if (left == 2) {
        if (bits & 0xf) return -1;
        *to++ = (uint8_t)(bits >> 4);
    } else if (left == 3) {
        if (bits & 3) return -1;
        *to++ = (uint8_t)(bits >> 10);
        *to++ = (uint8_t)(bits >> 2);
    }
    return to - start;
}

/* Big-endian two's complement; 0: too long for a decimal. */
static int limbs_of_bytes(const uint8_t *at, int64_t size, uint64_t limbs[4])
{
    uint8_t sign = at[0] & 0x80 ? 0xff : 0;
    int64_t k;
    for (; size > 32; at++, size--)
        if (*at != sign || (at[1] ^ sign) & 0x80) return 0;
    memset(limbs, sign, 4 * sizeof *limbs);
    for (k = 0; k < size; k++) {
        int64_t limb = (size - 1 - k) / 8, shift = (size - 1 - k) % 8 * 8;
        limbs[limb] = (limbs[limb] & ~(UINT64_C(0xff) << shift)) | (uint64_t)at[k] << shift;
    }
    return 1;
}

static const uint8_t *append_decimal_text(Machine *m, const Step *step, const uint8_t *text, int64_t size,
                                          const uint8_t *at)
{
    uint64_t limbs[4];
    int bad;
    if (step->flags & JSON_BASE64) {
        uint8_t *bytes = (uint8_t *)take_scratch(m, size / 8 + 1);
        if (!bytes) return NULL;
        size = from_base64(text, size, bytes);
        if (size <= 0) return fail(m, BAD_TYPE, at);
        bad = limbs_of_bytes(bytes, size, limbs) ? 0 : BAD_RANGE;
    } else {
        Number n;
        const uint8_t *end = size ? read_number(m, text, text + size, &n) : NULL;
        if (end != text + size || !size) return fail(m, BAD_TYPE, at);
        bad = to_limbs(&n, step->a, 0, limbs);
    }
    if (bad) return fail(m, bad, at);
    return append_decimal(m, step->column, limbs, at) ? at : NULL;
}

/* The index of a symbol, -1: there is no such. */
static int64_t find_symbol(Machine *m, const Step *step, const uint8_t *text, int64_t size)
{
    const int64_t *table = m->table + step->table;
    const uint8_t *symbols = m->text + step->text;
    int64_t low = 0, high = step->table_size / 2;
    while (low < high) {
        int64_t middle = (low + high) / 2, start = middle ? table[2 * middle - 1] : 0;
        int64_t length = table[2 * middle + 1] - start;
        int order = length < size ? -1 : length > size;
        if (!order) order = size ? memcmp(symbols + start, text, (size_t)size) : 0;
        if (!order) return table[2 * middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* Appends what a string means; gives `at`, its first byte, or NULL. */
static NOINLINE const uint8_t *append_meaning(Machine *m, const Step *step, const uint8_t *text, int64_t size,
                                              const uint8_t *at)
{
    const int64_t us_of_day = INT64_C(86400000000);
    int64_t days, time, offset;
    int has_offset, is_appended;
    uint8_t *to;
    switch (step->kind) {
        case KIND_ENUM:
            time = find_symbol(m, step, text, size);
            if (time < 0) return fail(m, BAD_SYMBOL, at);
            is_appended = append_index(m, step->column, (int32_t)time);
            break;
        case KIND_DATE:
            if (!to_date(text, size, &days)) return fail(m, BAD_TYPE, at);
            is_appended = append_int32(m, step->column, (int32_t)days);
            break;
        case KIND_TIME_US:
            if (!to_time(text, size, &time, &offset, &has_offset)) return fail(m, BAD_TYPE, at);
            is_appended = append_int64(m, step->column, (time - offset + us_of_day) % us_of_day);
            break;
        case KIND_TIMESTAMP:
            if (size < 11 || ((text[10] | 0x20) != 't' && text[10] != ' ') || !to_date(text, 10, &days)
                || !to_time(text + 11, size - 11, &time, &offset, &has_offset) || !has_offset)
                return fail(m, BAD_TYPE, at);
            is_appended = append_int64(m, step->column, days * us_of_day + time - offset);
            break;
        case KIND_BINARY:
            to = reserve_bytes(m, step->column, size);
            if (!to) return NULL;
            size = from_base64(text, size, to);
            if (size < 0) return fail(m, BAD_TYPE, at);
            close_bytes(m, step->column, size);
            is_appended = 1;
            break;
        case KIND_DECIMAL: return append_decimal_text(m, step, text, size, at);
        default: return fail(m, BAD_TYPE, at);
    }
    return is_appended ? at : NULL;
}

static inline const uint8_t *json_string(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const uint8_t *start = at + 1, *end, *text;
    int64_t size, scratch = m->scratch_at;
    int has_escapes = 0;
    if (UNLIKELY(*at != '"')) return fail(m, BAD_TYPE, at);
    end = skip_text(m, start, stop, &has_escapes);
    if (UNLIKELY(!end)) return NULL;
    if (LIKELY(step->kind == KIND_STRING)) {
        if (LIKELY(!has_escapes)) {
            if (UNLIKELY(!append_bytes(m, step->column, start, end - start))) return NULL;
        } else {
            uint8_t *to = reserve_bytes(m, step->column, end - start);
            if (!to) return NULL;
            size = unescape(start, end, to);
            if (size < 0) return fail(m, BAD_UTF8, at);
            close_bytes(m, step->column, size);
        }
        return end + 1;
    }
    if (!plain_text(m, start, end, has_escapes, &text, &size)) return NULL;
    if (size < 0) return fail(m, BAD_UTF8, at);
    if (!append_meaning(m, step, text, size, at)) return NULL;
    m->scratch_at = scratch;
    return end + 1;
}

/* Objects */

/* The JSON_FIELD of a name, -1: there is none. */
static NOINLINE int find_field(Machine *m, const Step *step, const uint8_t *name, int64_t size)
{
    const int64_t *table = m->table + step->table;
    int low = 0, high = step->table_size;
    while (low < high) {
        int middle = (low + high) / 2, order;
        const Step *field = CHILD(m, step, table[middle]);
        order = field->text_size < size ? -1 : field->text_size > size;
        if (!order) order = size ? memcmp(m->text + field->text, name, (size_t)size) : 0;
        if (!order) return (int)table[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* From the quote of a name to the first byte of its value. *field: the child that it is, -1 without; `expected`: which it
   may be, for members mostly come in one order. */
static inline const uint8_t *read_name(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop,
                                       int expected, int *field)
{
    if (UNLIKELY(at >= stop || *at != '"')) return fail_syntax(m, at, stop);
    at++;
    if (LIKELY(expected < step->count)) {
        const Step *next = CHILD(m, step, expected);
        int64_t size = next->text_size;
        if ((next->flags & JSON_RAW_NAME) && stop - at > size && at[size] == '"'
            && is_same(at, m->text + next->text, size)) {
            *field = expected;
            at += size;
            goto found;
        }
    }
    {
        int has_escapes = 0;
        int64_t size, scratch = m->scratch_at;
        const uint8_t *start = at, *name;
        at = skip_text(m, at, stop, &has_escapes);
        if (UNLIKELY(!at) || UNLIKELY(!plain_text(m, start, at, has_escapes, &name, &size))) return NULL;
        *field = size < 0 ? -1 : find_field(m, step, name, size);
        m->scratch_at = scratch;
    }
found:
    at = skip_space(at + 1, stop);
    if (UNLIKELY(at >= stop || *at != ':')) return fail_syntax(m, at, stop);
    at = skip_space(at + 1, stop);
    return LIKELY(at < stop) ? at : fail_syntax(m, at, stop);
}

/* A child of an object whose member is missing. */
static const uint8_t *run_missing(Machine *m, const Step *child, const uint8_t *start, const uint8_t *stop)
{
    if (child->code == JSON_FIELD) {
        if (child->count < 2) return fail(m, BAD_MISSING, start);
        child = CHILD(m, child, 1);
    }
    if (child->code == SET_NULL && child->column != DROPPED) return append_null(m, child->column) ? start : NULL;
    return run(m, child, start, stop);
}

static const uint8_t *json_object(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const uint8_t *start = at;
    int64_t scratch = m->scratch_at;
    uint64_t few = 0, *seen = &few;
    int is_end, field, expected = 0, left = step->count, k;
    if (UNLIKELY(*at != '{')) return fail(m, BAD_TYPE, at);
    if (UNLIKELY(!enter(m, at))) return NULL;
    if (UNLIKELY(step->count > 64)) {
        seen = (uint64_t *)take_scratch(m, (step->count + 63) / 64);
        if (!seen) return NULL;
        memset(seen, 0, (size_t)(step->count + 63) / 64 * 8);
    }
    if (UNLIKELY(!append_struct(m, step->column))) return NULL;
    at = begin_items(m, at, stop, '}', &is_end);
    while (LIKELY(at) && !is_end) {
        at = read_name(m, step, at, stop, expected, &field);
        if (UNLIKELY(!at)) return NULL;
        if (field < 0) {
            at = skip_value(m, at, stop);
        } else {
            if (UNLIKELY(seen[field / 64] >> field % 64 & 1)) return fail(m, BAD_SYNTAX, at);  /* read again, slowly */
            seen[field / 64] |= UINT64_C(1) << field % 64;
            left--;
            expected = field + 1;
            at = json_value(m, CHILD(m, CHILD(m, step, field), 0), at, stop, 0);
        }
        if (UNLIKELY(!at)) return NULL;
        at = next_item(m, at, stop, '}', &is_end);
    }
    if (UNLIKELY(!at)) return NULL;
    for (k = 0; left; k++) {
        if (seen[k / 64] >> k % 64 & 1) continue;
        left--;
        if (!run_missing(m, CHILD(m, step, k), start, stop)) return NULL;
    }
    m->scratch_at = scratch;
    leave(m);
    return at;
}

/* The same for a value that was checked: the last of equal names counts. */
static const uint8_t *json_object_surely(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const uint8_t *start = at, *behind = NULL;
    int64_t scratch = m->scratch_at, *last;
    int is_end, field, expected, k, is_reading;
    if (*at != '{') return fail(m, BAD_TYPE, at);
    if (!enter(m, at)) return NULL;
    last = take_scratch(m, step->count);
    if (!last || !append_struct(m, step->column)) return NULL;
    for (k = 0; k < step->count; k++) last[k] = -1;
    for (is_reading = 0; is_reading < 2; is_reading++) {
        expected = 0;
        behind = begin_items(m, start, stop, '}', &is_end);
        while (behind && !is_end) {
            at = read_name(m, step, behind, stop, expected, &field);
            if (!at) return NULL;
            expected = field + 1;
            if (field >= 0 && !is_reading) last[field] = at - start;
            if (field >= 0 && is_reading && last[field] == at - start)
                behind = json_value(m, CHILD(m, CHILD(m, step, field), 0), at, stop, 1);
            else
                behind = skip_value(m, at, stop);
            if (!behind) return NULL;
            behind = next_item(m, behind, stop, '}', &is_end);
        }
        if (!behind) return NULL;
    }
    for (k = 0; k < step->count; k++)
        if (last[k] < 0 && !run_missing(m, CHILD(m, step, k), start, stop)) return NULL;
    m->scratch_at = scratch;
    leave(m);
    return behind;
}

/* Maps */

static inline const uint8_t *read_colon(Machine *m, const uint8_t *at, const uint8_t *stop)
{
    at = skip_space(at, stop);
    if (UNLIKELY(at >= stop || *at != ':')) return fail_syntax(m, at, stop);
    return skip_space(at + 1, stop);
}

static inline int64_t name_at(const Column *keys, int64_t k, const uint8_t **key)
{
    const int32_t *offsets = (const int32_t *)keys->values + k;
    *key = keys->data + offsets[0];
    return offsets[1] - offsets[0];
}

static int compare_names(const Column *keys, int64_t one, int64_t other)
{
    const uint8_t *a, *b;
    int64_t size = name_at(keys, one, &a), more = name_at(keys, other, &b);
    if (size != more) return size < more ? -1 : 1;
    return size ? memcmp(a, b, (size_t)size) : 0;
}

static uint64_t hash_name(const Column *keys, int64_t k)
{
    const uint8_t *key;
    int64_t size = name_at(keys, k, &key);
    uint64_t hash = (uint64_t)size, eight;
    for (; size >= 8; key += 8, size -= 8) {
        memcpy(&eight, key, 8);
        hash = (hash ^ eight) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    for (; size; key++, size--) hash = (hash ^ *key) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* 0: the keys from `first` on are all different. 1: they may not be; keys that were chosen to have equal hashes end here,
   too, not in a long search. -1: no scratch. */
static int may_repeat(Machine *m, const Column *keys, int64_t first)
{
    int64_t count = keys->length - first, size = 32, probes = 8 * count, k, j, *table;
    if (count <= FEW_NAMES) {
        for (k = 1; k < count; k++)
            for (j = 0; j < k; j++)
                if (!compare_names(keys, first + k, first + j)) return 1;
        return 0;
    }
    while (size < 2 * count) size *= 2;
    table = take_scratch(m, size);
    if (!table) return -1;
    memset(table, 0, (size_t)size * sizeof *table);
    for (k = first; k < first + count; k++) {
        uint64_t at = hash_name(keys, k);
        for (; table[at & (uint64_t)(size - 1)]; at++)
            if (!probes-- || !compare_names(keys, k, table[at & (uint64_t)(size - 1)] - 1)) return 1;
        table[at & (uint64_t)(size - 1)] = k + 1;
    }
    give_scratch(m, size);
    return 0;
}

static const uint8_t *json_map(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const Step *key = CHILD(m, step, 0), *value = CHILD(m, step, 1);
    int64_t first = m->columns[key->column].length;
    int is_end, repeats;
    if (UNLIKELY(*at != '{')) return fail(m, BAD_TYPE, at);
    if (UNLIKELY(!enter(m, at))) return NULL;
    at = begin_items(m, at, stop, '}', &is_end);
    while (at && !is_end) {
        if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
        at = json_string(m, key, at, stop);
        if (LIKELY(at)) at = read_colon(m, at, stop);
        if (LIKELY(at)) at = json_value(m, value, at, stop, 0);
        if (UNLIKELY(!at)) return NULL;
        at = next_item(m, at, stop, '}', &is_end);
    }
    if (UNLIKELY(!at)) return NULL;
    repeats = may_repeat(m, m->columns + key->column, first);
    if (repeats) return repeats < 0 ? NULL : fail(m, BAD_SYNTAX, at);  /* read again, slowly */
    leave(m);
    return close_list(m, step->column) ? at : NULL;
}

/* Sorts numbers of keys by the keys, equal ones by themselves. Gives the array that they are in then. */
static int64_t *sort_names(const Column *keys, int64_t first, int64_t count, int64_t *from, int64_t *to)
{
    int64_t width, start;
    for (width = 1; width < count; width *= 2) {
        int64_t *swapped = to;
        for (start = 0; start < count; start += 2 * width) {
            int64_t middle = start + width < count ? start + width : count;
            int64_t end = middle + width < count ? middle + width : count, i = start, j = middle, k;
            for (k = start; k < end; k++) {
                int is_left = i < middle && (j >= end || compare_names(keys, first + from[i], first + from[j]) <= 0);
                to[k] = is_left ? from[i++] : from[j++];
            }
        }
        to = from;
        from = swapped;
    }
    return from;
}

/* Of a value that was checked: the last of equal names counts, in the place of the first. */
static const uint8_t *json_map_surely(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const Step *key = CHILD(m, step, 0), *value = CHILD(m, step, 1);
    const uint8_t *start = at, *behind = NULL;
    const Column *keys = m->columns + key->column;
    int64_t first = keys->length, scratch = m->scratch_at, count = 0, k, *names, *values, *order, *last;
    int is_end, is_counted;
    if (*at != '{') return fail(m, BAD_TYPE, at);
    if (!enter(m, at)) return NULL;
    names = values = order = last = NULL;
    for (is_counted = 0; is_counted < 2; is_counted++) {
        if (is_counted) {
            names = take_scratch(m, 4 * count);
            if (!names) return NULL;
            values = names + count;
            order = values + count;
            last = order + count;
        }
        behind = begin_items(m, start, stop, '}', &is_end);
        for (k = 0; behind && !is_end; k++) {
            if (is_counted) {
                names[k] = behind - start;
                at = json_string(m, key, behind, stop);
                if (!at && m->outcome == OUT_BAD) return fail(m, BAD_UTF8, start);
            } else {
                at = skip_string(m, behind, stop);
            }
            if (at) at = read_colon(m, at, stop);
            if (!at) return NULL;
            if (is_counted) {
                values[k] = at - start;
                order[k] = k;
            }
            behind = skip_value(m, at, stop);
            if (!behind) return NULL;
            behind = next_item(m, behind, stop, '}', &is_end);
        }
        if (!behind) return NULL;
        count = k;
    }
    order = sort_names(keys, first, count, order, last);
    last = order == values + count ? order + count : values + count;
    for (k = count - 1; k >= 0; k--) {  /* of each run of equal keys the first gets the value of the last */
        int is_last = k == count - 1 || compare_names(keys, first + order[k], first + order[k + 1]);
        last[order[k]] = is_last ? values[order[k]] : last[order[k + 1]];
        if (!is_last) last[order[k + 1]] = -1;
    }
    take_back(m, key->column, first);
    for (k = 0; k < count; k++) {
        if (last[k] < 0) continue;
        if (!json_string(m, key, start + names[k], stop) || !json_value(m, value, start + last[k], stop, 1)) return NULL;
    }
    m->scratch_at = scratch;
    leave(m);
    return close_list(m, step->column) ? behind : NULL;
}

static const uint8_t *json_array(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop, int is_sure)
{
    const Step *item = CHILD(m, step, 0);
    int is_end;
    if (UNLIKELY(*at != '[')) return fail(m, BAD_TYPE, at);
    if (UNLIKELY(!enter(m, at))) return NULL;
    at = begin_items(m, at, stop, ']', &is_end);
    while (LIKELY(at) && !is_end) {
        at = json_value(m, item, at, stop, is_sure);
        if (UNLIKELY(!at)) return NULL;
        at = next_item(m, at, stop, ']', &is_end);
    }
    if (UNLIKELY(!at)) return NULL;
    leave(m);
    return close_list(m, step->column) ? at : NULL;
}

/* Which of the children of JSON_CHOICE a value takes, by its first byte. */
static int choice_of(uint8_t first)
{
    switch (first) {
        case '{': return 0;
        case '[': return 1;
        case '"': return 2;
        case 't': case 'f': return 4;
        case 'n': return 5;
        default: return 3;
    }
}

static const uint8_t *json_value(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop, int is_sure)
{
    const uint8_t *end;
    if (UNLIKELY(at >= stop)) return fail_syntax(m, at, stop);
    for (;;) {
        if (UNLIKELY(step->column == DROPPED)) return skip_value(m, at, stop);
        switch (step->code) {
            case JSON_OR_NULL:
                if (UNLIKELY(*at == 'n')) {
                    at = skip_literal(m, at, stop);
                    return at && append_null(m, step->column) ? at : NULL;
                }
                step = CHILD(m, step, 0);
                continue;
            case JSON_CHOICE: {
                int64_t choice = m->table[step->table + choice_of(*at)];
                if (choice < 0) return fail(m, BAD_TYPE, at);
                step = CHILD(m, step, choice);
                continue;
            }
            case JSON_STRING: return json_string(m, step, at, stop);
            case JSON_INTEGER: return json_integer(m, step, at, stop);
            case JSON_NUMBER: return json_number(m, step, at, stop);
            case JSON_OBJECT: return is_sure ? json_object_surely(m, step, at, stop) : json_object(m, step, at, stop);
            case JSON_ARRAY: return json_array(m, step, at, stop, is_sure);
            case JSON_MAP: return is_sure ? json_map_surely(m, step, at, stop) : json_map(m, step, at, stop);
            case JSON_BOOL:
                if (UNLIKELY(*at != 't' && *at != 'f')) return fail(m, BAD_TYPE, at);
                end = skip_literal(m, at, stop);
                return end && append_bool(m, step->column, *at == 't') ? end : NULL;
            case JSON_ANY:
                end = skip_value(m, at, stop);
                return end && append_bytes(m, step->column, at, end - at) ? end : NULL;
            default: return fail(m, BAD_TYPE, at);
        }
    }
}

/* A value, behind white space. */
static const uint8_t *run_json(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    const uint8_t *start = skip_space(at, stop), *end;
    int64_t length = step->column == DROPPED ? 0 : m->columns[step->column].length, scratch = m->scratch_at;
    int depth = m->depth;
    end = json_value(m, step, start, stop, 0);
    if (LIKELY(end) || m->outcome != OUT_BAD) return end;
    if (step->column != DROPPED) take_back(m, step->column, length);
    m->depth = depth;
    m->scratch_at = scratch;
    end = skip_value(m, start, stop);
    return end ? json_value(m, step, start, stop, 1) : NULL;
}

/* A whole value of a record: with white space around it. Returns `stop`, or the first byte that is left over. */
static const uint8_t *run_json_root(Machine *m, const Step *step, const uint8_t *at, const uint8_t *stop)
{
    int depth = m->depth;
    const uint8_t *end = run_json(m, step, at, stop);
    if (LIKELY(end)) {
        end = skip_space(end, stop);
        return LIKELY(end == stop) ? stop : fail(m, BAD_LEFT_OVER, end);
    }
    if (m->outcome == OUT_BAD) {  /* what is left over is said before what the value is not */
        int bad = m->bad;
        const uint8_t *bad_at = m->bad_at;
        m->depth = depth;
        end = skip_value(m, skip_space(at, stop), stop);
        if (!end) return NULL;
        end = skip_space(end, stop);
        return end == stop ? fail(m, bad, bad_at) : fail(m, BAD_LEFT_OVER, end);
    }
    return NULL;
}
