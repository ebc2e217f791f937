# Reads and writes text in memory, for the compiled codec and the compiled lane: JSON strings and numbers, the JSON
# header of a frame, big-endian integers.
#
#     next_key                the keys of a header, up to its fields and after them
#     name_end, value_end     one field of a header
#
# These functions accept compact JSON as clients write it. They report everything else as unusual, and the plain codec
# (command.py) decodes it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #ifndef KOUROU_ONES
    #define KOUROU_ONES 0x0101010101010101ULL

    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    /* The first byte at or after p that is not literal text of a JSON string: a quote, a backslash, a control;
       `end` if there is none. 16 or 8 bytes at a time. Of the flags of 8 bytes, the lowest is exact, and only it is
       used. */
    static inline const uint8_t* kourou_special(const uint8_t* p, const uint8_t* end) {
    #if defined(__SSE2__)
        const __m128i quotes = _mm_set1_epi8(0x22), backslashes = _mm_set1_epi8(0x5C), controls = _mm_set1_epi8(0x1F);
        for (; end - p >= 16; p += 16) {
            __m128i x = _mm_loadu_si128((const __m128i*)p);
            __m128i found = _mm_or_si128(_mm_cmpeq_epi8(x, quotes), _mm_cmpeq_epi8(x, backslashes));
            int flags = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(x, controls), x)));
            if (flags) return p + __builtin_ctz((unsigned int)flags);
        }
    #elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (end - p >= 8) {
            uint64_t x, quote, backslash, flags;
            memcpy(&x, p, 8);
            quote = x ^ (KOUROU_ONES * 0x22);
            backslash = x ^ (KOUROU_ONES * 0x5C);
            flags = (((x - KOUROU_ONES * 0x20) & ~x) | ((quote - KOUROU_ONES) & ~quote)
                     | ((backslash - KOUROU_ONES) & ~backslash)) & (KOUROU_ONES * 0x80);
            if (flags) return p + (__builtin_ctzll(flags) >> 3);
            p += 8;
        }
    #endif
        while (p < end && *p >= 0x20 && *p != 0x22 && *p != 0x5C) p++;
        return p;
    }

    /* Is every byte ASCII? */
    static inline int kourou_is_ascii(const uint8_t* p, size_t size) {
        uint64_t all = 0, x;
        for (; size >= 8; size -= 8, p += 8) {
            memcpy(&x, p, 8);
            all |= x;
        }
        while (size--) all |= *p++;
        return (all & (KOUROU_ONES * 0x80)) == 0;
    }
    #endif
    """
    const uint8_t* kourou_special(const uint8_t* p, const uint8_t* end) noexcept nogil
    bint kourou_is_ascii(const uint8_t* p, size_t size) noexcept nogil


cdef struct Text:
    const uint8_t* at
    Py_ssize_t size


cdef inline bint equals(const uint8_t* text, Py_ssize_t size, const char* name, Py_ssize_t name_size) noexcept nogil:
    return size == name_size and memcmp(text, name, size) == 0


# ── Strings and numbers ─────────────────────────────────────────────────────────────────────────────────────────────

cdef inline uint32_t int32_at(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int hex_digit(uint8_t c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    if c'A' <= c <= c'F':
        return c - c'A' + 10
    return -1


cdef inline int hex4(const uint8_t* p) noexcept nogil:
    cdef int a = hex_digit(p[0]), b = hex_digit(p[1]), c = hex_digit(p[2]), d = hex_digit(p[3])
    if a < 0 or b < 0 or c < 0 or d < 0:
        return -1
    return (a << 12) | (b << 8) | (c << 4) | d


cdef inline const uint8_t* string_end(const uint8_t* p, const uint8_t* end, bint* escaped) noexcept nogil:
    """The closing quote of the string whose text starts at p; NULL if it is missing or a control character is found."""
    escaped[0] = False
    while True:
        p = kourou_special(p, end)
        if p >= end:
            return NULL
        if p[0] == c'"':
            return p
        if p[0] != c'\\':
            return NULL
        escaped[0] = True
        p += 2


cdef inline Py_ssize_t unescape(const uint8_t* p, const uint8_t* end, uint8_t* out) noexcept nogil:
    """Resolve JSON escapes into UTF-8; -1: the plain codec must decode them."""
    cdef Py_ssize_t n = 0
    cdef int u, low
    cdef uint8_t c
    cdef const uint8_t* run
    while True:
        run = kourou_special(p, end)
        memcpy(out + n, p, run - p)
        n += run - p
        p = run
        if p == end:
            return n
        if p + 1 >= end:
            return -1
        c = p[1]
        p += 2
        if c == c'u':
            if end - p < 4:
                return -1
            if p[0] == c'0' and p[1] == c'0' and p[2] == c'0' and c'0' <= p[3] <= c'9':  # the separators of properties
                out[n] = p[3] - c'0'
                n += 1
                p += 4
                continue
            u = hex4(p)
            p += 4
            if u < 0 or 0xDC00 <= u <= 0xDFFF:
                return -1
            if 0xD800 <= u <= 0xDBFF:
                if end - p < 6 or p[0] != c'\\' or p[1] != c'u':
                    return -1
                low = hex4(p + 2)
                if low < 0xDC00 or low > 0xDFFF:
                    return -1
                p += 6
                u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00)
            if u < 0x80:
                out[n] = <uint8_t>u
                n += 1
            elif u < 0x800:
                out[n] = <uint8_t>(0xC0 | (u >> 6))
                out[n + 1] = <uint8_t>(0x80 | (u & 0x3F))
                n += 2
            elif u < 0x10000:
                out[n] = <uint8_t>(0xE0 | (u >> 12))
                out[n + 1] = <uint8_t>(0x80 | ((u >> 6) & 0x3F))
                out[n + 2] = <uint8_t>(0x80 | (u & 0x3F))
                n += 3
            else:
                out[n] = <uint8_t>(0xF0 | (u >> 18))
                out[n + 1] = <uint8_t>(0x80 | ((u >> 12) & 0x3F))
                out[n + 2] = <uint8_t>(0x80 | ((u >> 6) & 0x3F))
                out[n + 3] = <uint8_t>(0x80 | (u & 0x3F))
                n += 4
            continue
        if c == c'"' or c == c'\\' or c == c'/':
            out[n] = c
        elif c == c'n':
            out[n] = 10
        elif c == c't':
            out[n] = 9
        elif c == c'r':
            out[n] = 13
        elif c == c'b':
            out[n] = 8
        elif c == c'f':
            out[n] = 12
        else:
            return -1
        n += 1


cdef inline const uint8_t* number(const uint8_t* p, const uint8_t* end, int32_t* value) noexcept nogil:
    """The position after a 32-bit integer; NULL for anything else."""
    cdef bint negative = p < end and p[0] == c'-'
    cdef int64_t n = 0
    cdef const uint8_t* start
    if negative:
        p += 1
    start = p
    while p < end and c'0' <= p[0] <= c'9' and p - start < 11:
        n = n * 10 + (p[0] - c'0')
        p += 1
    if p == start or (start[0] == c'0' and p - start > 1):
        return NULL
    if negative:
        n = -n
    if n < -2147483648 or n > 2147483647:
        return NULL
    value[0] = <int32_t>n
    return p


# ── Headers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef enum:
    UNUSUAL = 0
    FIELDS = 1  # the object of fields begins here
    DONE = 2

cdef struct Header:
    int32_t code, opaque, flag, version
    Text language, remark  # without their quotes; `at` is NULL if they are missing
    bint escaped  # the remark has escapes
    uint8_t separator  # the character that must precede the next key


cdef inline void begin_header(Header* header) noexcept nogil:
    header.code = header.opaque = header.flag = header.version = 0
    header.language.at = header.remark.at = NULL
    header.escaped = False
    header.separator = c'{'


cdef inline int next_key(const uint8_t** at, const uint8_t* end, Header* header) noexcept nogil:
    """Read the keys of a header from `at` on: to the fields (FIELDS), or to the end of the header (DONE).

    After FIELDS, `at` is the brace that opens the fields, and the caller moves it past them before the next call.
    """
    cdef const uint8_t* p = at[0]
    cdef const uint8_t* key
    cdef const uint8_t* stop
    cdef Py_ssize_t size
    cdef bint escaped = False
    while p != NULL and p < end:
        if p[0] != header.separator:
            return DONE if p[0] == c'}' and header.separator == c',' and p + 1 == end else UNUSUAL
        header.separator = c','
        p += 1
        if p >= end or p[0] != c'"':
            return UNUSUAL
        key = p + 1
        stop = string_end(key, end, &escaped)
        if stop == NULL or escaped or end - stop < 3 or stop[1] != c':':
            return UNUSUAL
        size = stop - key
        p = stop + 2
        if equals(key, size, b"code", 4):
            p = number(p, end, &header.code)
        elif equals(key, size, b"opaque", 6):
            p = number(p, end, &header.opaque)
        elif equals(key, size, b"flag", 4):
            p = number(p, end, &header.flag)
        elif equals(key, size, b"version", 7):
            p = number(p, end, &header.version)
        elif equals(key, size, b"extFields", 9):
            at[0] = p
            return FIELDS
        elif p[0] != c'"':
            return UNUSUAL
        else:
            p += 1
            stop = string_end(p, end, &escaped)
            if stop == NULL:
                return UNUSUAL
            if equals(key, size, b"language", 8):
                if escaped or stop == p or header.language.at != NULL:
                    return UNUSUAL
                header.language.at = p
                header.language.size = stop - p
            elif equals(key, size, b"remark", 6):
                if header.remark.at != NULL:
                    return UNUSUAL
                header.remark.at = p
                header.remark.size = stop - p
                header.escaped = escaped
            elif not equals(key, size, b"serializeTypeCurrentRPC", 23) or not equals(p, stop - p, b"JSON", 4):
                return UNUSUAL
            p = stop + 1
    return UNUSUAL


cdef inline const uint8_t* name_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The closing quote of the name whose text begins at p. The text of its value begins three bytes later.

    NULL: the field is unusual.
    """
    cdef const uint8_t* stop
    cdef bint escaped = False
    if end - p < 5:
        return NULL
    if p[1] == c'"' and c'a' <= p[0] <= c'z':  # most names in sends have one letter
        stop = p + 1
    else:
        stop = string_end(p, end, &escaped)
        if stop == NULL or escaped or end - stop < 4:
            return NULL
    return stop if stop[1] == c':' and stop[2] == c'"' and (p - 1)[0] == c'"' else NULL


cdef inline const uint8_t* value_end(const uint8_t* p, const uint8_t* end, bint* escaped) noexcept nogil:
    """The closing quote of the value whose text begins at p; a comma or a brace follows it. NULL: unusual."""
    cdef const uint8_t* stop = string_end(p, end, escaped)
    if stop == NULL or end - stop < 2 or (stop[1] != c',' and stop[1] != c'}'):
        return NULL
    return stop


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef inline uint8_t* put_number(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint8_t digits[24]
    cdef int n = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        out[0] = c'-'
        out += 1
        rest = 0 - rest
    while True:
        digits[n] = <uint8_t>(c'0' + rest % 10)
        n += 1
        rest = rest // 10
        if rest == 0:
            break
    while n > 0:
        n -= 1
        out[0] = digits[n]
        out += 1
    return out


cdef inline uint8_t* put(uint8_t* out, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline void put_int32(uint8_t* out, uint32_t value) noexcept nogil:
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value
