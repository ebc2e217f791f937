# C types for record.py.

cimport cython

from kourou.protocol cimport layout

cdef int _END, _RECORD, _FILLER, _CUT, _BAD, _V1, _V2, _SIZE_MIN, _HEAD_SIZE, _TAIL_SIZE, _BORN_HOST_V6, _STORE_HOST_V6
cdef long long _NOT_ASCII


cdef class Scanner:
    cdef object _buffer, _bytes
    cdef const unsigned char[::1] _view
    cdef Py_ssize_t _end
    cdef bint _crc
    cdef long long _base
    cdef readonly str reason
    cdef readonly Py_ssize_t at, next_at, last_at, body_at, topic_at, properties_at, keys_at, unique_key_at, tags_at
    cdef readonly int size, magic, body_crc, queue_id, flag, sys_flag, reconsume_times
    cdef readonly int body_size, topic_size, properties_size, keys_size, unique_key_size, tags_size
    cdef readonly long long queue_offset, physical_offset, born_ms, stored_ms, prepared_offset, tags_hash

    @cython.locals(
        at=Py_ssize_t,
        room=Py_ssize_t,
        left=Py_ssize_t,
        stored_at=Py_ssize_t,
        tail_at=Py_ssize_t,
        body_at=Py_ssize_t,
        topic_at=Py_ssize_t,
        properties_at=Py_ssize_t,
        size=int,
        magic=int,
        sys_flag=int,
        topic_count_size=int,
        body_size=int,
        topic_size=int,
        properties_size=int,
    )
    cpdef int step(self) except -1
    cpdef move(self, Py_ssize_t start, Py_ssize_t end)
    cdef int _step_elsewhere(self, Py_ssize_t room) except -1
    cdef int _stop(self, int found, str reason) except -1
    @cython.locals(found=int)
    cpdef int skip_records(self) except -1
    @cython.locals(found=int)
    cpdef int skip_some(self, Py_ssize_t count) except -1
    @cython.locals(tags_hash="long long")
    cpdef find_keys(self)
    @cython.locals(
        born_host_at=Py_ssize_t, born_host_size=Py_ssize_t, store_host_at=Py_ssize_t, store_host_size=Py_ssize_t
    )
    cpdef object message(self)


cdef inline const unsigned char *bytes_at(Scanner scanner, Py_ssize_t at) noexcept:
    """The bytes under a scanner, starting at one of its positions (`body_at`, `topic_at` …)."""
    return &scanner._view[at]


cdef inline (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) names_of(Scanner scanner) noexcept:
    """The positions of the values of TAGS, KEYS and UNIQ_KEY of the current record: as layout.find_names."""
    return layout.find_names(
        scanner._view, scanner.properties_at, scanner.properties_at + scanner.properties_size
    )
