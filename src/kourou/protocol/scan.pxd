# Text in memory, as the compiled lanes read and write it: JSON strings, numbers, big-endian integers.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifndef KOUROU_ONES
    #define KOUROU_ONES 0x0101010101010101ULL

    /* The first byte at or after p that can't stand for itself in a JSON string: a quote, a backslash, a control;
       `end` if there is none. Eight bytes at a time: the lowest flag of each test is exact, and only it is used. */
    static inline const uint8_t* kourou_special(const uint8_t* p, const uint8_t* end) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
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
    #endif
    """
    const uint8_t* kourou_special(const uint8_t* p, const uint8_t* end) noexcept nogil


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
    """The closing quote of the string whose text starts at p; NULL if there is none, or a control character is met."""
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
    """JSON escapes resolved into UTF-8; -1 for what the plain path must judge."""
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
            if p[0] == c'0' and p[1] == c'0' and p[2] == c'0' and c'0' <= p[3] <= c'9':  # what parts properties
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
    """Past an integer of 32 bits; NULL for anything else."""
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
