# The C version of layout.py, with the same names and the same contract. Inlined into the compiled record.py.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp

from kourou.protocol.crc cimport crc32


cdef inline int _int32(const unsigned char *p) noexcept nogil:
    return <int> ((<unsigned int> p[0] << 24) | (<unsigned int> p[1] << 16) | (<unsigned int> p[2] << 8) | p[3])


cdef inline long long _int64(const unsigned char *p) noexcept nogil:
    return <long long> ((<unsigned long long> <unsigned int> _int32(p) << 32) | <unsigned int> _int32(p + 4))


cdef inline (int, int, int, int, int, long long, long long, int, long long) head(
    const unsigned char[::1] view, Py_ssize_t at
) noexcept nogil:
    cdef const unsigned char *p = &view[at]
    return (
        _int32(p), _int32(p + 4), _int32(p + 8), _int32(p + 12), _int32(p + 16),
        _int64(p + 20), _int64(p + 28), _int32(p + 36), _int64(p + 40),
    )


cdef inline (int, int) start(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return _int32(&view[at]), _int32(&view[at + 4])


cdef inline (int, long long, int) tail(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return _int32(&view[at]), _int64(&view[at + 4]), _int32(&view[at + 12])


cdef inline (int,) uint8(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return (view[at],)


cdef inline (int,) int16(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return (<short> ((view[at] << 8) | view[at + 1]),)


cdef inline (long long,) int64(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return (_int64(&view[at]),)


cdef inline bytes copy(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *> &view[at], size)


cdef inline int crc(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    return crc32(&view[at], size)


cdef inline (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) find_names(
    const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef Py_ssize_t tags = 0, tags_size = 0, keys = 0, keys_size = 0, unique = 0, unique_size = 0
    cdef Py_ssize_t value, size
    cdef const unsigned char *pair
    cdef const unsigned char *stop
    cdef const unsigned char *mark
    cdef const unsigned char *base
    if at >= end:
        return tags, tags_size, keys, keys_size, unique, unique_size
    base = &view[0]
    pair = base + at
    while pair < base + end:
        stop = <const unsigned char *> memchr(pair, 2, base + end - pair)
        if stop == NULL:
            stop = base + end
        mark = <const unsigned char *> memchr(pair, 1, stop - pair)
        if mark != NULL and mark + 1 < stop:
            value = mark + 1 - base
            size = stop - mark - 1
            if mark - pair == 4:
                if memcmp(pair, b"TAGS", 4) == 0:
                    tags, tags_size = value, size
                elif memcmp(pair, b"KEYS", 4) == 0:
                    keys, keys_size = value, size
            elif mark - pair == 8 and memcmp(pair, b"UNIQ_KEY", 8) == 0:
                unique, unique_size = value, size
        pair = stop + 1
    return tags, tags_size, keys, keys_size, unique, unique_size


cdef inline long long ascii_hash(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef unsigned int total = 0
    cdef Py_ssize_t i
    for i in range(at, at + size):
        if view[i] >= 0x80:
            return <long long> 1 << 40
        total = 31 * total + view[i]
    return <int> total
