# C types for verify_index.py.

cimport cython

from kourou.protocol.record cimport Scanner
from kourou.store cimport entry_layout

cdef int _NOT_ASCII


cdef class IndexCheck:
    cdef object _log
    cdef long long _log_start, _log_end, _known
    cdef bint _lenient
    cdef list _hashes
    cdef readonly Py_ssize_t entries, in_log

    @cython.locals(topic=bytes, key=bytes)
    cdef list _key_hashes(self, Scanner scanner)


@cython.locals(hash_=int)
cpdef long long key_hash(bytes topic, bytes key)
