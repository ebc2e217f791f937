# C types for index.py.

cimport cython

from kourou.store cimport entry_layout
from kourou.store.index_file cimport IndexFile

cdef int _NOT_ASCII


cdef class Index:
    cdef object _disk, _folder, _file_time
    cdef int _slot_count, _entry_limit
    cdef list _files
    cdef IndexFile _last
    cdef readonly object damaged

    @cython.locals(last=IndexFile)
    cpdef bint begin(self, Py_ssize_t count, long long physical_offset, long long stored_ms) except -1
    cdef bint _has(self, IndexFile last, long long physical_offset)
    @cython.locals(last=IndexFile, hash_=int)
    cpdef int put(self, bytes topic, bytes key, long long physical_offset, long long stored_ms) except -1
    @cython.locals(last=IndexFile)
    cpdef int finish(self) except -1
    cdef IndexFile _next_file(self, long long stored_ms)
