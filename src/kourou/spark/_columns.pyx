"""Columns that grow as rows come, in the buffers of Arrow: validity, offsets and data. _rows.pyx fills them.

`Column.array` gives the buffers to Arrow, which keeps them as long as the batch lives; nothing is copied again.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset

# Memory of earlier batches is kept for later ones: new memory costs a page fault for every 4 KiB.
cdef enum:
    SPARE_COUNT = 32
    SPARE_LEAST = 16 * 1024
    SPARE_TOTAL = 32 * 1024 * 1024

cdef char *spare[SPARE_COUNT]
cdef Py_ssize_t spare_room[SPARE_COUNT]
cdef Py_ssize_t spare_total = 0
cdef int spares = 0


cdef bint keep_spare(char *data, Py_ssize_t room) noexcept:
    global spares, spare_total
    if spares == SPARE_COUNT or room < SPARE_LEAST or spare_total + room > SPARE_TOTAL:
        return False
    spare[spares] = data
    spare_room[spares] = room
    spare_total += room
    spares += 1
    return True


cdef char *take_spare(Py_ssize_t need, Py_ssize_t *room) noexcept:
    """The smallest block that is large enough and at most twice as large; NULL if there is none."""
    global spares, spare_total
    cdef int i, best = -1
    cdef char *data
    for i in range(spares):
        if need <= spare_room[i] <= need * 2 and (best < 0 or spare_room[i] < spare_room[best]):
            best = i
    if best < 0:
        return NULL
    data = spare[best]
    room[0] = spare_room[best]
    spare_total -= room[0]
    spares -= 1
    spare[best] = spare[spares]
    spare_room[best] = spare_room[spares]
    return data


@cython.final
cdef class Block:
    """Memory that grows, and that Arrow may keep."""

    def __dealloc__(self):
        if not keep_spare(self.data, self.room):
            PyMem_RawFree(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    cdef int grow(self, Py_ssize_t need) except -1:
        cdef Py_ssize_t room = self.room * 2
        cdef void *data
        if room < need:
            room = need
        if room < 1024:
            room = 1024
        if self.data == NULL:
            self.data = take_spare(room, &self.room)
            if self.data != NULL:
                return 0
        data = PyMem_RawRealloc(self.data, room)
        if data == NULL:
            raise MemoryError()
        self.data = <char *> data
        self.room = room
        return 0


@cython.final
cdef class Column:
    """One column's buffers. `kind`: 4 and 8 are integers of that size, 1 is text or bytes, 2 a map."""

    def __init__(self, str name, int kind):
        self.name = name
        self.kind = kind
        self.data_needed = self.offsets_needed = 0
        if kind == 2:
            self.keys = Column("key", 1)
            self.values = Column("value", 1)
        self.begin()

    cdef int begin(self) except -1:
        self.valid = Block()
        self.data = Block()
        self.offsets = Block()
        self.rows = self.nulls = 0
        if self.offsets_needed:
            self.offsets.grow(self.offsets_needed)
        if self.kind <= 2:
            self.offsets.put32(0)
        if self.data_needed:
            self.data.grow(self.data_needed)
        if self.kind == 2:
            self.keys.begin()
            self.values.begin()
        return 0

    cdef int mark(self, bint there) except -1:
        cdef Py_ssize_t row = self.rows
        if row >> 3 >= self.valid.size:
            self.valid.more(1)[0] = 0
        if there:
            (<uint8_t *> self.valid.data)[row >> 3] |= 1 << (row & 7)
        return 0

    cdef int put_null(self) except -1:
        cdef Py_ssize_t row = self.rows, full
        if not self.nulls:  # no null so far
            full = row >> 3
            if full:
                memset(self.valid.more(full), 0xFF, full)
            if row & 7:
                self.valid.more(1)[0] = (1 << (row & 7)) - 1
        self.nulls += 1
        self.mark(False)
        self.rows += 1
        if self.kind == 4:
            self.data.put32(0)
        elif self.kind == 8:
            self.data.put64(0)
        elif self.kind == 1:
            self.offsets.put32(<int32_t> self.data.size)
        else:
            self.offsets.put32(<int32_t> self.keys.rows)
        return 0

    cdef int put_value(self, object value) except -1:
        """Append a value of any type, as rows.py makes it."""
        cdef bytes raw
        if value is None:
            return self.put_null()
        if self.kind == 4:
            return self.put32(value)
        if self.kind == 8:
            return self.put64(value)
        if self.kind == 1:
            raw = value.encode() if isinstance(value, str) else value
            return self.put_text(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        for key, item in value:
            self.keys.put_value(key)
            self.values.put_value(item)
        self.offsets.put32(<int32_t> self.keys.rows)
        return self.is_there()

    def array(self, pa, kind):
        """The rows as an Arrow array. The column is empty then."""
        valid = pa.py_buffer(self.valid) if self.nulls else None
        if self.kind == 2:
            entries = pa.StructArray.from_buffers(
                pa.struct([kind.key_field, kind.item_field]),
                self.keys.rows,
                [None],
                children=[self.keys.array(pa, kind.key_type), self.values.array(pa, kind.item_type)],
            )
            made = pa.Array.from_buffers(
                kind, self.rows, [valid, pa.py_buffer(self.offsets)], self.nulls, children=[entries]
            )
        else:
            if self.data.data == NULL:
                self.data.grow(1)
            buffers = [valid, pa.py_buffer(self.data)]
            if self.kind == 1:
                buffers.insert(1, pa.py_buffer(self.offsets))
            made = pa.Array.from_buffers(kind, self.rows, buffers, self.nulls)
        self.data_needed = self.data.size + (self.data.size >> 4)
        self.offsets_needed = self.offsets.size + (self.offsets.size >> 4)
        self.begin()
        return made
