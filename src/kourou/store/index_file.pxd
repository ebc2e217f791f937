# C types for index_file.py.

cimport cython

from kourou.store cimport entry_layout

cdef int _HEADER, _SLOT, _ENTRY, _SECONDS_MAX


cdef class IndexFile:
    cdef readonly object path
    cdef readonly int slot_count, entry_limit, slots_used, count
    cdef readonly long long begin_ms, end_ms, begin_physical, end_physical
    cdef object _disk, _file
    cdef unsigned char[::1] _view
    cdef long long _entries_at, _last_entry
    cdef int _room, _asked, _durable
    cdef readonly bint whole

    @cython.locals(number=int, before=int, slot_at=Py_ssize_t, entry_at=Py_ssize_t, seconds="long long")
    cdef int put(self, int hash_, long long physical_offset, long long stored_ms) except -1
    cdef int _put_header(self) except -1
    cdef int finish(self) except -1
    cdef bint has_place_for(self, Py_ssize_t count)
    cdef int ensure_room(self, Py_ssize_t count) except -1
    @cython.locals(
        number=int, before="long long", hash_=int, physical_offset="long long", seconds=int, slot_at=Py_ssize_t
    )
    cdef int _gather(
        self, long long log_end, const unsigned char[::1] view, unsigned char[::1] slots
    ) except -1
    @cython.locals(
        view="const unsigned char[::1]",
        number=int,
        above=int,
        at=Py_ssize_t,
        entry_hash=int,
        physical_offset="long long",
        seconds="long long",
        stored_ms="long long",
        newest="long long",
    )
    cpdef object find(self, int hash_, long long begin_ms, long long end_ms, Py_ssize_t limit, list found)


@cython.locals(
    slot_count=int,
    count=Py_ssize_t,
    place=Py_ssize_t,
    hash_=int,
    physical_offset="long long",
    seconds=int,
    before=int,
    slot=int,
)
cpdef tuple check_entries(
    const unsigned char[::1] data, int first, int[::1] newest, long long last_physical, long long log_end
)
