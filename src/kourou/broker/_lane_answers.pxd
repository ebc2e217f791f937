# The answers of one read. See _lane_answers.pyx.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kourou.protocol.scan cimport Text, put
from kourou.store.lane_port cimport ReadPort

cdef struct Out:
    uint8_t* data
    Py_ssize_t size, capacity


@cython.final
cdef class Answers:
    cdef Out ready, held
    cdef Py_ssize_t held_count
    cdef bint must_wait  # sends are answered when their messages are durable
    cdef bytes host_hex
    cdef bytes send_fields

    cdef begin(self)
    cdef bytes take_ready(self)
    cdef bytes take_held(self)
    cdef uint8_t* begin_send(self, Py_ssize_t ids, Py_ssize_t texts_size) except NULL
    cdef void end_send(
        self, uint8_t* p, int32_t opaque, long long queue_id, long long queue_offset, Text* unique_key, Text* handle
    ) noexcept
    cdef int add_pull(
        self,
        int32_t opaque,
        long long suggested,
        long long next_offset,
        long long start,
        long long end,
        bytes tail,
        ReadPort found,
    ) except -1


cdef inline uint8_t* put_bytes(uint8_t* out, bytes text) noexcept:
    return put(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline uint8_t* put_id(uint8_t* out, bytes host_hex, long long offset) noexcept:
    """The id of a message: the address of this broker, and where the message is in the log."""
    cdef int i
    out = put_bytes(out, host_hex)
    for i in range(16):
        out[i] = b"0123456789ABCDEF"[(<uint64_t>offset >> (60 - 4 * i)) & 15]
    return out + 16
