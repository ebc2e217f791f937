"""The compiled codec for usual JSON headers.

It accepts compact JSON with known top-level keys, header fields that are strings, numbers of 32 bits and valid UTF-8
(scan.pxd). Everything else is passed to `command.py`, errors included. The two can therefore differ only in what this
module accepts, and tests/property/test_wire.py compares them there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kourou.protocol.scan cimport (
    DONE,
    UNUSUAL,
    Header,
    Text,
    begin_header,
    int32_at,
    kourou_special,
    name_end,
    next_key,
    put,
    put_int32,
    put_number,
    unescape,
    value_end,
)

from kourou.protocol import command as _command
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object text) noexcept
    bint PyUnicode_IS_COMPACT_ASCII(object text) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    const uint8_t* PyUnicode_1BYTE_DATA(object text) noexcept

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

cdef extern from "Python.h":
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define KOUROU_NEW_DICT() _PyDict_NewPresized(16)   /* room for a send's fields without growing twice */
    #else
    #define KOUROU_NEW_DICT() PyDict_New()
    #endif
    """
    dict KOUROU_NEW_DICT()

cdef object _decode = _command.decode
cdef object _encode = _command.encode
cdef object _size_error = _command.size_error
cdef object _new_command = Command


# ── The fields of a command, by their position in memory ────────────────────────────────────────────────────────────
# A struct's fields are slots, and its member descriptors know their offsets. Reading a slot costs a tenth of an
# attribute lookup, and a command has nine fields.

cdef Py_ssize_t _place(str field) except -1:
    descriptor = Command.__dict__[field]
    if type(descriptor).__name__ != "member_descriptor":
        raise ImportError(f"the field {field} of a command is not a slot")
    return (<PyMemberDescrObject*><PyObject*>descriptor).d_member.offset


cdef Py_ssize_t _CODE = _place("code")
cdef Py_ssize_t _OPAQUE = _place("opaque")
cdef Py_ssize_t _FLAG = _place("flag")
cdef Py_ssize_t _VERSION = _place("version")
cdef Py_ssize_t _LANGUAGE = _place("language")
cdef Py_ssize_t _REMARK = _place("remark")
cdef Py_ssize_t _EXT = _place("ext")
cdef Py_ssize_t _BODY = _place("body")
cdef Py_ssize_t _BINARY = _place("binary")


cdef inline object _get(object command, Py_ssize_t place):
    return <object>((<PyObject**>(<char*><PyObject*>command + place))[0])


cdef inline const char* _utf8(object text, Py_ssize_t* size) except NULL:
    if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
        size[0] = PyUnicode_GET_LENGTH(text)
        return <const char*>PyUnicode_1BYTE_DATA(text)
    return PyUnicode_AsUTF8AndSize(text, size)

cdef object _OTHER = "OTHER"
cdef Py_ssize_t FIELDS_MAX = _command.FIELDS_MAX

# Fixed buffers, protected by the interpreter lock. Whatever does not fit is decoded by the plain codec.
cdef enum:
    UNESCAPED_MAX = 65536
    FIELD_SLOTS = 512
    SEEN_MAX = 64
    SHAPE_FIELDS_MAX = 32
    MISSES_MAX = 8
    FRAME_MAX = 65536
    FIXED_MAX = 512
    HEADER_SIZE_MAX = 1048576

cdef uint8_t _scratch[UNESCAPED_MAX]


# ── Header field names and values of earlier frames ─────────────────────────────────────────────────────────────────
# A direct-mapped table of names, each with its last value: topic, group and broker repeat from request to request, so
# most fields cost no allocation, no decoding and no hashing. The table has a fixed size: new names replace others.

cdef struct Seen:
    PyObject* text
    Py_ssize_t size
    uint8_t utf8[SEEN_MAX]

cdef struct Slot:
    Seen name
    Seen value
    PyObject* shape  # of a header whose first field this is, see `_fields_like`
    int misses

cdef Slot _slots[FIELD_SLOTS]
cdef Seen _language_seen


cdef inline object _seen(Seen* seen, const uint8_t* at, Py_ssize_t size):
    """The text of these bytes; the cached object in `seen` if it is unchanged. Raises UnicodeDecodeError."""
    if size == seen.size and seen.text != NULL:
        if size == 1:
            if seen.utf8[0] == at[0]:
                return <object>seen.text
        elif memcmp(seen.utf8, at, size) == 0:
            return <object>seen.text
    text = PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    if size <= SEEN_MAX:
        Py_INCREF(text)
        Py_XDECREF(seen.text)
        seen.text = <PyObject*>text
        seen.size = size
        memcpy(seen.utf8, at, size)
    return text


cdef inline Slot* _slot(const Text* name) noexcept nogil:
    cdef Py_ssize_t size = name.size
    if size == 0:
        return &_slots[0]
    return &_slots[
        (<unsigned int>size * 37 + name.at[0] * 131 + name.at[size - 1] * 17 + name.at[size >> 1]) & (FIELD_SLOTS - 1)
    ]


# ── JSON text ───────────────────────────────────────────────────────────────────────────────────────────────────────

cdef object _unescaped(const uint8_t* p, const uint8_t* end):
    """The text between p and end; None if the plain codec must decode it. Raises UnicodeDecodeError."""
    cdef Py_ssize_t n
    if end - p > UNESCAPED_MAX:
        return None
    n = unescape(p, end, _scratch)
    if n < 0:
        return None
    return PyUnicode_DecodeUTF8(<const char*>_scratch, n, NULL)


# ── Decoding ────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef inline bint _is_text(PyObject* text, const Text* other):
    """True if the str is ASCII and equals these bytes. False also if that is unknown."""
    if not PyUnicode_CheckExact(<object>text) or not PyUnicode_IS_COMPACT_ASCII(<object>text):
        return False
    return PyUnicode_GET_LENGTH(<object>text) == other.size and (
        memcmp(PyUnicode_1BYTE_DATA(<object>text), other.at, other.size) == 0
        if other.size != 1
        else PyUnicode_1BYTE_DATA(<object>text)[0] == other.at[0]
    )


cdef struct Field:
    Text name, value
    bint escaped  # the value has escapes


cdef inline const uint8_t* _next_field(const uint8_t* p, const uint8_t* end, Field* field) noexcept nogil:
    """Read the field whose name begins with the quote at p; return the position after it. NULL: use the plain codec."""
    field.name.at = p + 1
    p = name_end(p + 1, end)
    if p == NULL:
        return NULL
    field.name.size = p - field.name.at
    field.value.at = p + 3
    p = value_end(p + 3, end, &field.escaped)
    if p == NULL:
        return NULL
    field.value.size = p - field.value.at
    return p + 1


cdef inline object _value(Slot* slot, Field* field):
    """The value of a field; None if the plain codec must decode it. Raises UnicodeDecodeError."""
    if field.escaped:
        return _unescaped(field.value.at, field.value.at + field.value.size)
    return _seen(&slot.value, field.value.at, field.value.size)


cdef dict _fields_like(dict shape, const uint8_t** at, const uint8_t* end):
    """Header fields with the names of `shape`, in its order: a copy of `shape` in which changed values are replaced.

    Requests of one kind have the same fields, and most of them the same values. Copying a dict costs a third of filling
    a new one. None: the names differ, or the plain codec must decode the header.
    """
    cdef const uint8_t* p = at[0]
    cdef Field field
    cdef Py_ssize_t pos = 0
    cdef PyObject* known_name
    cdef PyObject* known_value
    cdef dict ext = PyDict_Copy(shape)
    while PyDict_Next(shape, &pos, &known_name, &known_value):
        p = _next_field(p, end, &field)
        if p == NULL or not _is_text(known_name, &field.name):
            return None
        if field.escaped or not _is_text(known_value, &field.value):
            value = _value(_slot(&field.name), &field)
            if value is None:
                return None
            PyDict_SetItem(ext, <object>known_name, value)
        p += 1
        if (p - 1)[0] == c'}':
            break
    if (p - 1)[0] != c'}' or PyDict_Next(shape, &pos, &known_name, &known_value):
        return None
    at[0] = p
    return ext


cdef void _remember_shape(Slot* first, dict ext):
    """Keep the fields as the likely shape of the next header that begins with this field. Long values are left out."""
    cdef dict shape
    if first.shape != NULL and first.misses < MISSES_MAX:
        first.misses += 1
        return
    first.misses = 0
    if PyDict_Size(ext) > SHAPE_FIELDS_MAX:
        return
    shape = {name: value if len(value) <= SEEN_MAX else None for name, value in ext.items()}
    Py_INCREF(shape)
    Py_XDECREF(first.shape)
    first.shape = <PyObject*>shape


cdef dict _fields(const uint8_t** at, const uint8_t* end):
    """The header fields of the object that begins at `at`, which is moved past it. None: use the plain codec."""
    cdef const uint8_t* p = at[0]
    cdef Field field
    cdef Slot* slot
    cdef Slot* first = NULL
    cdef dict ext
    if p >= end or p[0] != c'{':
        return None
    p += 1
    if p < end and p[0] == c'}':
        at[0] = p + 1
        return {}
    if _next_field(p, end, &field) == NULL:
        return None
    first = _slot(&field.name)
    if first.shape != NULL:
        at[0] = p
        ext = _fields_like(<dict>first.shape, at, end)
        if ext is not None:
            first.misses = 0
            return ext
    ext = KOUROU_NEW_DICT()
    while True:
        p = _next_field(p, end, &field)
        if p == NULL:
            return None
        slot = _slot(&field.name)
        value = _value(slot, &field)
        if value is None:
            return None
        PyDict_SetItem(ext, _seen(&slot.name, field.name.at, field.name.size), value)
        if p[0] == c'}':
            at[0] = p + 1
            _remember_shape(first, ext)
            return ext
        if PyDict_Size(ext) >= FIELDS_MAX:
            return None
        p += 1


cdef object _header(const uint8_t* p, const uint8_t* end, const uint8_t* frame_end):
    """The command of a usual JSON header; None if the plain codec must decode it. Raises UnicodeDecodeError."""
    cdef Header header
    cdef object language = _OTHER, remark = None, ext = None
    cdef int met
    begin_header(&header)
    while True:
        met = next_key(&p, end, &header)
        if met == DONE:
            break
        if met == UNUSUAL:
            return None
        ext = _fields(&p, end)
        if ext is None:
            return None
    if header.language.at != NULL:
        language = _seen(&_language_seen, header.language.at, header.language.size)
    if header.remark.at != NULL:
        remark = _unescaped(header.remark.at, header.remark.at + header.remark.size)
        if remark is None:
            return None
    return _new_command(
        header.code, header.opaque, header.flag, header.version, language, remark, ext,
        PyBytes_FromStringAndSize(<const char*>end, frame_end - end), False,
    )


def split(bytes data not None, Py_ssize_t limit):
    """As frame.split_plain."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), at = 0, stop
    cdef int32_t size
    cdef uint32_t word
    cdef list commands = []
    cdef object command
    while end - at >= 4:
        size = <int32_t>int32_at(base + at)
        if size < 4 or size > limit:
            return commands, at, 0, _size_error(size, limit)
        stop = at + 4 + size
        if stop > end:
            return commands, at, stop - at, None
        word = int32_at(base + at + 4)
        command = None
        if word <= HEADER_SIZE_MAX and word <= <uint32_t>(size - 4):  # a word above has another form, or is too large
            try:
                command = _header(base + at + 8, base + at + 8 + word, base + stop)
            except UnicodeDecodeError:
                pass
        if command is None:
            try:
                command = _decode(data, at + 4, stop)
            except FrameError as error:
                return commands, at, 0, error
        commands.append(command)
        at = stop
    return commands, at, 4, None


# ── Encoding ────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef uint8_t* _put_text(uint8_t* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Write a JSON string with its quotes: at most 6 bytes per input byte, plus 2."""
    cdef const uint8_t* end = text + size
    cdef const uint8_t* run
    cdef uint8_t c
    out[0] = c'"'
    out += 1
    if size == 1 and text[0] >= 0x20 and text[0] != c'"' and text[0] != c'\\':
        out[0] = text[0]
        out[1] = c'"'
        return out + 2
    while True:
        run = kourou_special(text, end)
        memcpy(out, text, run - text)
        out += run - text
        if run == end:
            break
        c = run[0]
        text = run + 1
        out[0] = c'\\'
        out += 1
        if c == c'"' or c == c'\\':
            out[0] = c
        elif c == 10:
            out[0] = c'n'
        elif c == 13:
            out[0] = c'r'
        elif c == 9:
            out[0] = c't'
        elif c == 8:
            out[0] = c'b'
        elif c == 12:
            out[0] = c'f'
        else:
            memcpy(out, b"u00", 3)
            out[3] = b"0123456789abcdef"[c >> 4]
            out[4] = b"0123456789abcdef"[c & 15]
            out += 4
        out += 1
    out[0] = c'"'
    return out + 1


cdef uint8_t _frame[FRAME_MAX]


cdef inline bint _has_room(uint8_t* out, Py_ssize_t size) noexcept nogil:
    """True if a text of this size fits, fully escaped, with all fixed parts of a header after it."""
    return 6 * size + FIXED_MAX <= _frame + FRAME_MAX - out


def encode(command):
    """As command.encode."""
    if type(command) is not _new_command or _get(command, _BINARY) is not False:
        return _encode(command)
    try:
        return _encode_usual(command)
    except (UnicodeEncodeError, OverflowError):
        return _encode(command)


cdef bytes _encode_usual(command):
    cdef uint8_t* out = put(_frame + 8, b'{"code":', 8)
    cdef const char* text
    cdef Py_ssize_t size, name_size, header_size, pos = 0
    cdef PyObject* name
    cdef PyObject* value
    cdef dict ext = _get(command, _EXT)
    cdef bytes body = _get(command, _BODY)
    cdef bytes frame
    cdef object remark = _get(command, _REMARK)
    out = put_number(out, _get(command, _CODE))
    if ext is not None and PyDict_Size(ext) > 0:
        if PyDict_Size(ext) > FIELDS_MAX:
            return _encode(command)
        out = put(out, b',"extFields":{', 14)
        while PyDict_Next(ext, &pos, &name, &value):
            text = _utf8(<object>name, &name_size)
            if not _has_room(out, name_size):
                return _encode(command)
            out = _put_text(out, <const uint8_t*>text, name_size)
            out[0] = c':'
            text = _utf8(<object>value, &size)
            if not _has_room(out, size):
                return _encode(command)
            out = _put_text(out + 1, <const uint8_t*>text, size)
            out[0] = c','
            out += 1
        (out - 1)[0] = c'}'
    out = put(out, b',"flag":', 8)
    out = put_number(out, _get(command, _FLAG))
    out = put(out, b',"language":', 12)
    text = _utf8(_get(command, _LANGUAGE), &size)
    if not _has_room(out, size):
        return _encode(command)
    out = _put_text(out, <const uint8_t*>text, size)
    out = put(out, b',"opaque":', 10)
    out = put_number(out, _get(command, _OPAQUE))
    if remark is not None:
        out = put(out, b',"remark":', 10)
        text = _utf8(remark, &size)
        if not _has_room(out, size):
            return _encode(command)
        out = _put_text(out, <const uint8_t*>text, size)
    out = put(out, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    out = put_number(out, _get(command, _VERSION))
    out[0] = c'}'
    header_size = out + 1 - _frame - 8
    size = PyBytes_GET_SIZE(body)
    if 4 + header_size + size > INT32_MAX:
        return _encode(command)
    put_int32(_frame, <uint32_t>(4 + header_size + size))
    put_int32(_frame + 4, <uint32_t>header_size)
    frame = PyBytes_FromStringAndSize(NULL, 8 + header_size + size)
    memcpy(PyBytes_AS_STRING(frame), _frame, 8 + header_size)
    memcpy(PyBytes_AS_STRING(frame) + 8 + header_size, PyBytes_AS_STRING(body), size)
    return frame
