# C types for appending.py.

cimport cython

from kourou.store cimport writer
from kourou.store.commit_log cimport CommitLog, NewMessage
from kourou.store.consume_queue cimport ConsumeQueue

cdef int _TRANSACTION, _PREPARED, _ROLLBACK


@cython.freelist(64)
cdef class Appended:
    cdef readonly long long physical_offset, queue_offset, stored_ms
    cdef readonly int size


cdef class _Topic:
    cdef bytes name
    cdef dict queues


cdef class Appender:
    cdef CommitLog _log
    cdef object _queue_of
    cdef dict _topics
    cdef bint _record_crc

    @cython.locals(
        log=CommitLog,
        done=list,
        message=NewMessage,
        place=Appended,
        topic=_Topic,
        queue=ConsumeQueue,
        properties=bytes,
        kind=int,
        is_queued=bint,
        sealed=bint,
        queue_offset="long long",
        offset="long long",
    )
    cpdef list append(self, messages, long long stored_ms)
    @cython.locals(topic=_Topic)
    cdef _Topic _keep(self, str name)
