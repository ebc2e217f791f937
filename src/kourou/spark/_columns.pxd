# Columns of a batch, in C. See _columns.pyx.

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy


@cython.final
cdef class Block:
    cdef char *data
    cdef Py_ssize_t size, room

    cdef int grow(self, Py_ssize_t need) except -1

    cdef inline char *more(self, Py_ssize_t count) except NULL:
        """Where the next `count` bytes go."""
        cdef Py_ssize_t at = self.size
        if at + count > self.room:
            self.grow(at + count)
        self.size = at + count
        return self.data + at

    cdef inline int put32(self, int32_t value) except -1:
        (<int32_t *> self.more(4))[0] = value
        return 0

    cdef inline int put64(self, int64_t value) except -1:
        (<int64_t *> self.more(8))[0] = value
        return 0

    cdef inline int put(self, const void *data, Py_ssize_t size) except -1:
        if size > 0:
            memcpy(self.more(size), data, size)
        return 0


@cython.final
cdef class Column:
    cdef readonly str name
    cdef int kind
    cdef Block valid, offsets, data
    cdef Column keys, values  # of a map
    cdef Py_ssize_t rows, nulls
    cdef Py_ssize_t data_needed, offsets_needed  # by the batch before this one
    cdef unsigned char host[8]  # the last one that was put here, and its text
    cdef char host_text[32]
    cdef Py_ssize_t host_size

    cdef int begin(self) except -1
    cdef int mark(self, bint there) except -1
    cdef int put_null(self) except -1
    cdef int put_value(self, object value) except -1

    cdef inline int is_there(self) except -1:
        """A row that has a value. That is only noted once a row had none."""
        if self.nulls:
            self.mark(True)
        self.rows += 1
        return 0

    cdef inline int put32(self, int32_t value) except -1:
        self.data.put32(value)
        return self.is_there()

    cdef inline int put64(self, int64_t value) except -1:
        self.data.put64(value)
        return self.is_there()

    cdef inline int put_text(self, const void *data, Py_ssize_t size) except -1:
        self.data.put(data, size)
        return self.end_text()

    cdef inline int end_text(self) except -1:
        if self.data.size > 0x7FFFFFFF:
            raise OverflowError(f"more than 2 GiB in column {self.name} of one batch")
        self.offsets.put32(<int32_t> self.data.size)
        return self.is_there()
