"""From the rows of an Arrow batch to the bodies of batch requests, for usual rows. messages.py and sending.py are the
plain form and decide what is right.

A usual row has a body, and no other properties than tags, keys and its unique key, none of which contains a separator.
If one row is not usual, the plain form takes the whole batch, and reports what is wrong.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memchr, memcpy, memset

import pyarrow as pa

cdef enum:
    HEAD = 20  # sizes, magic, CRC, flag and the size of the body
    KEY_DIGITS = 12
    TEXT_MAX = 4096
    BODY_MAX = 1024 * 1024

cdef char *HEX = b"0123456789ABCDEF"


cdef class Texts:
    """A column of text or bytes."""

    cdef object buffers  # keeps the memory alive
    cdef const uint8_t *valid
    cdef const int32_t *ends
    cdef const char *data
    cdef Py_ssize_t offset

    def __init__(self, array):
        cdef uintptr_t address
        self.buffers = array.buffers()
        valid, ends, data = self.buffers
        address = valid.address if valid is not None and array.null_count else 0
        self.valid = <const uint8_t *> address
        address = ends.address
        self.ends = <const int32_t *> address
        address = data.address if data is not None else 0
        self.data = <const char *> address
        self.offset = array.offset

    cdef inline Py_ssize_t size(self, Py_ssize_t row) noexcept:
        """0 for null, too."""
        row += self.offset
        if self.valid != NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            return 0
        return self.ends[row + 1] - self.ends[row]

    cdef inline const char *start(self, Py_ssize_t row) noexcept:
        return self.data + self.ends[row + self.offset]


cdef inline bint has_separator(const char *p, Py_ssize_t size) noexcept:
    return memchr(p, 1, size) != NULL or memchr(p, 2, size) != NULL


cdef inline char *put(char *out, const char *data, Py_ssize_t size) noexcept:
    memcpy(out, data, size)
    return out + size


cdef inline char *put_int(char *out, uint64_t value, int size) noexcept:
    cdef int i
    for i in range(size):
        out[i] = <char> (value >> 8 * (size - 1 - i) & 0xFF)
    return out + size


cdef inline char *put_property(
    char *out, const char *name, Py_ssize_t name_size, const char *data, Py_ssize_t size
) noexcept:
    out = put(out, name, name_size)
    out[0] = 1
    out = put(out + 1, data, size)
    out[0] = 2
    return out + 1


def is_taken(kind):
    """Is this type of column supported?"""
    return kind == pa.string() or kind == pa.binary()


cdef class Encoder:
    """The rows of one batch. `prefix` and the number of a row make its unique key, if it has none."""

    cdef Texts body, tags, keys, unique_keys
    cdef bytes prefix
    cdef int64_t number
    cdef Py_ssize_t rows

    def __init__(self, body, tags, keys, unique_keys, bytes prefix not None, int64_t number):
        self.rows = len(body)
        self.body = Texts(body)
        self.tags = None if tags is None else Texts(tags)
        self.keys = None if keys is None else Texts(keys)
        self.unique_keys = None if unique_keys is None else Texts(unique_keys)
        self.prefix = prefix
        self.number = number

    def cut(self, Py_ssize_t size_max, Py_ssize_t rows_max):
        """Which rows go into a request together: (first, end, size of the body). None if some row is not usual."""
        cdef Py_ssize_t row, first = 0, total = 0, size
        cdef list found = []
        for row in range(self.rows):
            size = self.entry_size(row)
            if size < 0:
                return None
            if row > first and (total + size > size_max or row - first >= rows_max):
                found.append((first, row, total))
                first, total = row, 0
            total += size
        if self.rows > first:
            found.append((first, self.rows, total))
        return found

    cdef Py_ssize_t entry_size(self, Py_ssize_t row) noexcept:
        """The size of a row in a body; -1 if the row is not usual."""
        cdef Py_ssize_t body = self.body.size(row), text = self.text_size(row)
        if not 0 < body <= BODY_MAX or text < 0 or text > TEXT_MAX:
            return -1
        return HEAD + body + 2 + text

    cdef Py_ssize_t text_size(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t size = 10 + 10, part = 0  # UNIQ_KEY and its separators, WAIT
        if self.unique_keys is not None:
            part = self.unique_keys.size(row)
            if part and has_separator(self.unique_keys.start(row), part):
                return -1
        size += part if part else PyBytes_GET_SIZE(self.prefix) + KEY_DIGITS
        if self.tags is not None:
            part = self.tags.size(row)
            if part:
                if has_separator(self.tags.start(row), part):
                    return -1
                size += 6 + part
        if self.keys is not None:
            part = self.keys.size(row)
            if part:
                if has_separator(self.keys.start(row), part):
                    return -1
                size += 6 + part
        return size

    def encode(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t total):
        """The body of a request with these rows, as `cut` says."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, total)
        cdef char *out = PyBytes_AS_STRING(made)
        cdef Py_ssize_t row, body, text
        for row in range(first, end):
            body, text = self.body.size(row), self.text_size(row)
            out = put_int(out, HEAD + body + 2 + text, 4)
            memset(out, 0, 12)
            out = put_int(out + 12, body, 4)
            out = put(out, self.body.start(row), body)
            out = put_int(out, text, 2)
            out = self.put_text(out, row)
        return made

    cdef char *put_text(self, char *out, Py_ssize_t row) noexcept:
        cdef Py_ssize_t part = 0 if self.unique_keys is None else self.unique_keys.size(row)
        cdef int64_t number = self.number + row
        cdef int shift
        if part:
            out = put_property(out, b"UNIQ_KEY", 8, self.unique_keys.start(row), part)
        else:
            out = put(out, b"UNIQ_KEY\x01", 9)
            out = put(out, PyBytes_AS_STRING(self.prefix), PyBytes_GET_SIZE(self.prefix))
            for shift in range(4 * (KEY_DIGITS - 1), -4, -4):
                out[0] = HEX[number >> shift & 15]
                out += 1
            out[0] = 2
            out += 1
        out = put(out, b"WAIT\x01true\x02", 10)
        if self.tags is not None:
            part = self.tags.size(row)
            if part:
                out = put_property(out, b"TAGS", 4, self.tags.start(row), part)
        if self.keys is not None:
            part = self.keys.size(row)
            if part:
                out = put_property(out, b"KEYS", 4, self.keys.start(row), part)
        return out
