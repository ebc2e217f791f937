# C types for consume_queue.py.

cimport cython

from kourou.store cimport entry_layout

cdef int _ENTRY, _ALREADY, _DONE, _BEHIND, _GAP


cdef class ConsumeQueue:
    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly long long start, end, max_physical
    cdef public long long next_offset, arrival
    cdef public bint touched
    cdef object _disk, _folder, _segments, _on_mapped, _on_created
    cdef bint _mapped, _unsafe
    cdef int _file_entries
    cdef long long _log_start, _first, _room, _clean
    cdef unsigned char[::1] _view

    @cython.locals(physical_end="long long", found=int)
    cpdef int put(self, long long physical_offset, int size, long long tags_code, long long queue_offset) except -1
    cdef int _make_way(self, long long queue_offset) except -1
    @cython.locals(count="long long")
    cpdef object entries(self, long long queue_offset, long long count)
