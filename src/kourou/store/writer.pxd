# The C version of writer.py, for compiled modules.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from kourou.protocol.crc cimport crc32


cdef extern from *:
    """
    /* No compiler may move what was written before to after it. */
    #if defined(__GNUC__) || defined(__clang__)
    #define kourou_written() __atomic_thread_fence(__ATOMIC_RELEASE)
    #else
    #include <stdatomic.h>
    #define kourou_written() atomic_thread_fence(memory_order_release)
    #endif
    """
    void kourou_written() noexcept nogil


cdef inline void _put32(uint8_t* p, int value) noexcept nogil:
    cdef uint32_t v = <uint32_t>value
    p[0] = <uint8_t>(v >> 24)
    p[1] = <uint8_t>(v >> 16)
    p[2] = <uint8_t>(v >> 8)
    p[3] = <uint8_t>v


cdef inline void _put64(uint8_t* p, long long value) noexcept nogil:
    _put32(p, <int>(<uint64_t>value >> 32))
    _put32(p + 4, <int><uint32_t>value)


cdef inline uint8_t* _put(uint8_t* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t* write_up_to_properties(
    uint8_t* p,
    int body_crc,
    int queue_id,
    int flag,
    long long queue_offset,
    long long physical_offset,
    int sys_flag,
    long long born_ms,
    const void* born_host,
    Py_ssize_t born_host_size,
    long long stored_ms,
    const void* store_host,
    Py_ssize_t store_host_size,
    int reconsume_times,
    long long prepared_offset,
    const void* body,
    Py_ssize_t body_size,
    const void* topic,
    Py_ssize_t topic_size,
    Py_ssize_t properties_size,
) noexcept nogil:
    """Write a record except its first eight bytes and its properties; returns where the properties go."""
    _put32(p + 8, body_crc)
    _put32(p + 12, queue_id)
    _put32(p + 16, flag)
    _put64(p + 20, queue_offset)
    _put64(p + 28, physical_offset)
    _put32(p + 36, sys_flag)
    _put64(p + 40, born_ms)
    p = _put(p + 48, born_host, born_host_size)
    _put64(p, stored_ms)
    p = _put(p + 8, store_host, store_host_size)
    _put32(p, reconsume_times)
    _put64(p + 4, prepared_offset)
    _put32(p + 12, <int>body_size)
    p = _put(p + 16, body, body_size)
    if topic_size > 127:
        p[0] = <uint8_t>(topic_size >> 8)
        p += 1
    p[0] = <uint8_t>topic_size
    p = _put(p + 1, topic, topic_size)
    p[0] = <uint8_t>(properties_size >> 8)
    p[1] = <uint8_t>properties_size
    return p + 2


cdef inline void write_record(
    unsigned char[::1] view,
    Py_ssize_t at,
    int size,
    int body_crc,
    int queue_id,
    int flag,
    long long queue_offset,
    long long physical_offset,
    int sys_flag,
    long long born_ms,
    bytes born_host,
    long long stored_ms,
    bytes store_host,
    int reconsume_times,
    long long prepared_offset,
    bytes body,
    bytes topic,
    bytes properties,
) noexcept:
    cdef uint8_t* p = write_up_to_properties(
        &view[at],
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        PyBytes_AS_STRING(born_host),
        PyBytes_GET_SIZE(born_host),
        stored_ms,
        PyBytes_AS_STRING(store_host),
        PyBytes_GET_SIZE(store_host),
        reconsume_times,
        prepared_offset,
        PyBytes_AS_STRING(body),
        PyBytes_GET_SIZE(body),
        PyBytes_AS_STRING(topic),
        PyBytes_GET_SIZE(topic),
        PyBytes_GET_SIZE(properties),
    )
    memcpy(p, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))


cdef inline void publish_at(uint8_t* p, int size, int magic) noexcept nogil:
    cdef uint8_t head[8]
    _put32(head, size)
    _put32(head + 4, magic)
    kourou_written()
    memcpy(p, head, 8)


cdef inline void publish(unsigned char[::1] view, Py_ssize_t at, int size, int magic) noexcept:
    publish_at(&view[at], size, magic)


cdef inline int body_crc(bytes body) noexcept:
    return crc32(<const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))


cdef inline bint has_zero(bytes data) noexcept:
    return memchr(PyBytes_AS_STRING(data), 0, PyBytes_GET_SIZE(data)) != NULL
