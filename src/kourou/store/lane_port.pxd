# The store as the broker's compiled lane uses it. See lane_port.pyx.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from kourou.protocol.record cimport Scanner
from kourou.protocol.scan cimport Text
from kourou.store.commit_log cimport CommitLog
from kourou.store.consume_queue cimport ConsumeQueue
from kourou.store.dispatch cimport Dispatcher

cdef struct Draft:
    # A record to append.
    int flag, sys_flag, reconsume_times
    long long born_ms, prepared_offset
    const uint8_t* body
    Py_ssize_t body_size
    const char* topic
    Py_ssize_t topic_size
    const char* born_host
    Py_ssize_t born_host_size
    Py_ssize_t properties_size
    long long stored_ms  # of the record that it was read from
    # Set by `write`.
    long long offset, queue_offset
    Py_ssize_t size

cdef struct Piece:
    const uint8_t* at
    Py_ssize_t size


@cython.final
cdef class AppendPort:
    cdef object _store, _cleaner, _durability, _reader
    cdef dict _queues
    cdef CommitLog _log
    cdef Dispatcher _dispatcher
    cdef bint _record_crc

    cdef bint may_append(self) except -1
    cdef ConsumeQueue queue(self, str topic, queue_id)
    cdef Py_ssize_t size(self, Draft* draft) noexcept
    cdef Py_ssize_t size_max(self, Draft* draft) noexcept
    cdef bint has_room(self, Py_ssize_t size) noexcept
    cdef uint8_t* write(self, ConsumeQueue queue, Draft* draft, long long stamp_ms) noexcept
    cdef void publish(self, ConsumeQueue queue, Draft* draft) noexcept
    cdef long long stored_ms(self, long long stamp_ms) noexcept
    cdef bint half(self, ConsumeQueue queue, long long queue_offset, long long offset, Draft* draft, Text* properties) except -1
    cdef bint dispatch(self) except -1


@cython.final
cdef class ReadPort:
    cdef Piece* pieces  # the records that were found
    cdef Py_ssize_t count
    cdef long long size  # of all of them
    cdef bint is_far  # the last one is so old that it may have to be read from disk

    cdef object _reader
    cdef dict _queues
    cdef CommitLog _log
    cdef Py_ssize_t _capacity
    cdef long long _file_size
    # Until `release`.
    cdef bint _is_ready
    cdef long long _log_start, _trusted
    cdef long long _window, _memory_count, _memory_size, _disk_count, _disk_size, _scan_count
    cdef long long _segment_start
    cdef const unsigned char[::1] _segment
    cdef list _buffers  # keep the memory of the pieces mapped
    cdef Scanner _checker

    cdef ConsumeQueue queue(self, str topic, queue_id)
    cdef long long read(
        self,
        ConsumeQueue queue,
        long long offset,
        long long max_count,
        long long max_size,
        bint is_bulk,
        const long long* codes,
        Py_ssize_t code_count,
    ) except -2
    cdef bint draft(self, const uint8_t* record, Py_ssize_t size, Draft* draft, Text* properties) noexcept
    cdef const uint8_t* record(self, long long physical, long long size) except? NULL
    cdef release(self)
    cdef _prepare(self)
    cdef bint _is_full(
        self, long long behind, int32_t size, long long max_count, long long max_size, bint is_bulk
    ) noexcept nogil
    cdef const uint8_t* _record(self, long long physical, int32_t size) except? NULL
    cdef int _add(self, const uint8_t* at, Py_ssize_t size) except -1
