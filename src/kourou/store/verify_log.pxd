# C types for verify_log.py.

cimport cython

from kourou.protocol.record cimport Scanner
from kourou.store cimport entry_layout

cdef int _ENTRY, _BLANK, _STEP, _RECORD, _TRANSACTION, _PREPARED, _ROLLBACK


cdef class QueueCheck:
    cdef readonly object files
    cdef readonly long long end, first_physical, max_physical
    cdef readonly Py_ssize_t live
    cdef public Py_ssize_t matched
    cdef public long long asked_end
    cdef const unsigned char[::1] _block
    cdef long long _block_first, _block_end

    @cython.locals(found_physical="long long", found_size=int, found_tags="long long")
    cdef bint has(self, long long number, long long physical, int size, long long tags_code) except -1


cdef class LogCheck:
    cdef dict _queues
    cdef object _listener
    cdef long long _index_from, _index_to
    cdef readonly Py_ssize_t records, keys, times_back
    cdef readonly long long last_ms, first_back

    @cython.locals(
        last_topic=bytes, topic=bytes, queues=dict, queue=QueueCheck, found=int, kind=int, physical="long long",
        number="long long",
    )
    cpdef int run(self, Scanner scanner, view) except -1
    @cython.locals(key=bytes)
    cdef _count_keys(self, Scanner scanner)
    @cython.locals(properties=bytes)
    cdef _check_rest(self, Scanner scanner, view, bytes topic)
