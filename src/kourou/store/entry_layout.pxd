# The C version of entry_layout.py, with the same names. Inlined into the compiled consume_queue.py and index.py.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from kourou.store.writer cimport kourou_written


cdef inline int _int32(const unsigned char *p) noexcept nogil:
    return <int> ((<unsigned int> p[0] << 24) | (<unsigned int> p[1] << 16) | (<unsigned int> p[2] << 8) | p[3])


cdef inline long long _int64(const unsigned char *p) noexcept nogil:
    return <long long> ((<unsigned long long> <unsigned int> _int32(p) << 32) | <unsigned int> _int32(p + 4))


cdef inline void _put32(unsigned char *p, int value) noexcept nogil:
    p[0] = <unsigned char> (<unsigned int> value >> 24)
    p[1] = <unsigned char> (<unsigned int> value >> 16)
    p[2] = <unsigned char> (<unsigned int> value >> 8)
    p[3] = <unsigned char> value


cdef inline void _put64(unsigned char *p, long long value) noexcept nogil:
    _put32(p, <int> (<unsigned long long> value >> 32))
    _put32(p + 4, <int> value)


cdef inline (long long, int, long long) entry(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    cdef const unsigned char *p = &view[at]
    return _int64(p), _int32(p + 8), _int64(p + 12)


cdef inline void put_entry(
    unsigned char[::1] view, Py_ssize_t at, long long physical_offset, int size, long long tags_code
) noexcept nogil:
    cdef unsigned char *p = &view[at]
    cdef unsigned char last[4]
    _put64(p, physical_offset)
    _put64(p + 12, tags_code)
    _put32(last, size)
    kourou_written()
    memcpy(p + 8, last, 4)


cdef inline (int, long long, int, int) index_entry(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    cdef const unsigned char *p = &view[at]
    return _int32(p), _int64(p + 4), _int32(p + 12), _int32(p + 16)


cdef inline void put_index_entry(
    unsigned char[::1] view, Py_ssize_t at, int hash_, long long physical_offset, int seconds, int before
) noexcept nogil:
    cdef unsigned char *p = &view[at]
    _put32(p, hash_)
    _put64(p + 4, physical_offset)
    _put32(p + 12, seconds)
    _put32(p + 16, before)


cdef inline (long long, long long, long long, long long, int, int) header(
    const unsigned char[::1] view, Py_ssize_t at
) noexcept nogil:
    cdef const unsigned char *p = &view[at]
    return _int64(p), _int64(p + 8), _int64(p + 16), _int64(p + 24), _int32(p + 32), _int32(p + 36)


cdef inline void put_header(
    unsigned char[::1] view,
    Py_ssize_t at,
    long long begin_ms,
    long long end_ms,
    long long begin_physical,
    long long end_physical,
    int slots_used,
    int count,
) noexcept nogil:
    cdef unsigned char *p = &view[at]
    _put64(p, begin_ms)
    _put64(p + 8, end_ms)
    _put64(p + 16, begin_physical)
    _put64(p + 24, end_physical)
    _put32(p + 32, slots_used)
    _put32(p + 36, count)


cdef inline (int,) slot(const unsigned char[::1] view, Py_ssize_t at) noexcept nogil:
    return (_int32(&view[at]),)


cdef inline void put_slot(unsigned char[::1] view, Py_ssize_t at, int number) noexcept nogil:
    _put32(&view[at], number)


cdef inline unsigned int _hash_on(unsigned int total, const unsigned char *p, Py_ssize_t size) noexcept nogil:
    # Four characters at a time: otherwise each multiplication waits for the one before.
    cdef Py_ssize_t i = 0
    while i + 4 <= size:
        total = 923521 * total + (29791 * p[i] + 961 * p[i + 1] + (31 * p[i + 2] + p[i + 3]))
        i += 4
    while i < size:
        total = 31 * total + p[i]
        i += 1
    return total


cdef inline bint _is_ascii(const unsigned char *p, Py_ssize_t size) noexcept nogil:
    cdef unsigned char seen = 0
    cdef Py_ssize_t i
    for i in range(size):
        seen |= p[i]
    return seen < 0x80


cdef inline int key_hash(bytes topic, bytes key) noexcept:
    cdef const unsigned char *topic_at = <const unsigned char *> PyBytes_AS_STRING(topic)
    cdef const unsigned char *key_at = <const unsigned char *> PyBytes_AS_STRING(key)
    cdef unsigned int total
    if not (_is_ascii(topic_at, PyBytes_GET_SIZE(topic)) and _is_ascii(key_at, PyBytes_GET_SIZE(key))):
        return -1
    total = _hash_on(0, topic_at, PyBytes_GET_SIZE(topic))
    total = _hash_on(31 * total + 35, key_at, PyBytes_GET_SIZE(key))
    if total >= 0x80000000:
        total = 0 - total
    return <int> total if total != 0x80000000 else 0
