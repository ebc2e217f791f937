# C types for verify_index.py.

cimport cython

from kourou.protocol.record cimport Scanner
from kourou.store cimport entry_layout

cdef int _STEP, _ENTRY, _NOT_ASCII


cdef class IndexCheck:
    cdef object _log
    cdef long long _log_start, _log_end, _known
    cdef bint _lenient
    cdef list _hashes, _entered
    cdef readonly Py_ssize_t entries, in_log

    @cython.locals(
        data="const unsigned char[::1]",
        newest="int[::1]",
        count=int,
        entries_at=Py_ssize_t,
        slot_count=int,
        last_physical="long long",
        used=int,
        number=int,
        at=Py_ssize_t,
        hash_=int,
        physical="long long",
        seconds=int,
        before=int,
        slot=Py_ssize_t,
        wanted=Py_ssize_t,
    )
    cpdef run(self, view, say, progress)
    cdef list _hashes_at(self, long long physical)
    @cython.locals(topic=bytes, key=bytes)
    cdef list _key_hashes(self, Scanner scanner)


@cython.locals(hash_=int)
cpdef long long key_hash(bytes topic, bytes key)
