# C types for commit_log.py.

cimport cython

from kourou.store cimport writer

cdef int _V1, _V2, _FIXED_SIZE, _FILLER_SIZE


cdef class NewMessage:
    cdef public str topic
    cdef public bytes body, properties, born_host
    cdef public int queue_id, flag, sys_flag, reconsume_times
    cdef public long long born_ms, prepared_offset


cdef class CommitLog:
    cdef public object segments, _spare, _spare_job, _failed, _no_segment, _new_segments
    cdef public bytes store_host
    cdef public int max_body_size
    cdef public long long end, copied_to, stored_ms, now_ms
    cdef object _buffer
    cdef unsigned char[::1] _view
    cdef long long _start, _limit
    cdef bint _warm

    cpdef object check(self, NewMessage message, bytes topic)
    @cython.locals(
        born_host=bytes,
        body=bytes,
        store_host=bytes,
        topic_size=Py_ssize_t,
        host_bits=int,
        size=int,
        magic=int,
        at=Py_ssize_t,
        offset="long long",
    )
    cpdef long long append(
        self,
        NewMessage message,
        bytes topic,
        bytes properties,
        long long queue_offset,
        long long stored_ms,
        bint sealed=*
    ) except -1
