# C types for queue_entries.py.

cimport cython

from kourou.store cimport entry_layout

cdef int _ENTRY, _BLANK


@cython.locals(number=Py_ssize_t, physical_offset="long long", size=int, next_end="long long")
cpdef (Py_ssize_t, long long) count_valid(
    const unsigned char[::1] data, Py_ssize_t count, long long physical_end, long long log_end
) except *
