# C types for dispatch.py.

cimport cython

from kourou.protocol.record cimport Scanner
from kourou.store.consume_queue cimport ConsumeQueue
from kourou.store.index cimport Index

cdef int _DONE, _BEHIND, _RECORD, _TRANSACTION, _PREPARED, _ROLLBACK
cdef bytes _SCHEDULE, _TAGS


cdef class Dispatcher:
    cdef object _queue_of, _delays, _extend, _removed
    cdef Index _index
    cdef bytes _topic
    cdef dict _queues
    cdef list _arrived
    cdef bint _sealed
    cdef Scanner _scanner
    cdef object _buffer
    cdef readonly long long stored_ms, last_record, doubtful_from
    cdef long long _last_end, removed_end, _round
    cdef readonly Py_ssize_t records, disagreements, gaps
    cdef public long long whole_until_ms, whole_until
    cdef public bint recovering
    cdef readonly bint torn, uncovered
    cdef readonly long long covered

    @cython.locals(scanner=Scanner, kind=int, topic=bytes, queue=ConsumeQueue, tags_code="long long", done=int)
    cpdef Scanner run(self, buffer, Py_ssize_t start, Py_ssize_t end, long long base, bint crc)
    cdef bint _may_restart(self, ConsumeQueue queue, long long queue_offset)
    cdef bint _is_removed(self, Scanner scanner, bytes topic)
    cdef bint _is_doubtful(self, Scanner scanner)
    cdef Scanner _scanner_over(self, buffer, Py_ssize_t start, Py_ssize_t end, long long base, bint crc)
    cdef list _keys(self, Scanner scanner)
    @cython.locals(index=Index, keys=list, key=bytes)
    cdef _put_keys(self, Scanner scanner, bytes topic)
