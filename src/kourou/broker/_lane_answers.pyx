"""The answers of one read, as the bytes that are sent: `encode` of protocol/command.py writes the same.

Answers to sends wait in `held` where a send is only answered when its messages are durable; all others are `ready`.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, uint8_t, uint32_t

from kourou.protocol.scan cimport Text, put, put_int32, put_number
from kourou.store.lane_port cimport ReadPort

import msgspec

from kourou.protocol.codes import CURRENT_VERSION
from kourou.protocol.command import OUR_LANGUAGE

cdef enum:
    KEPT_CAPACITY = 1048576  # a larger buffer is given back after its read
    FIXED_SIZE = 512  # more than the parts of an answer to a send that have a limited size
    PULL_FIXED_SIZE = 1024  # the same for a pull
    ID_SIZE_MAX = 17  # of a message's id, without the address, and with a comma

cdef bytes _HEAD = b'{"code":0,"extFields":{'
cdef bytes _TAIL = f',"serializeTypeCurrentRPC":"JSON","version":{int(CURRENT_VERSION)}}}'.encode()
cdef bytes _END_OF_FIELDS = b'},"flag":1,"language":' + msgspec.json.encode(OUR_LANGUAGE) + b',"opaque":'


def pull_tail(int topic_sys_flag, int group_sys_flag):
    """The last fields of an answer to a pull, and the bytes up to its number."""
    return f'","topicSysFlag":"{topic_sys_flag}","groupSysFlag":"{group_sys_flag}"'.encode() + _END_OF_FIELDS


def send_fields(region, trace_on):
    """The fields that every answer to a send has."""
    return b'"MSG_REGION":' + msgspec.json.encode(region) + b',"TRACE_ON":' + msgspec.json.encode(trace_on)


@cython.final
cdef class Answers:
    def __init__(self, bytes store_host not None):
        self.host_hex = store_host.hex().upper().encode()

    def __dealloc__(self):
        PyMem_Free(self.ready.data)
        PyMem_Free(self.held.data)

    cdef begin(self):
        self.ready.size = self.held.size = self.held_count = 0

    cdef bytes take_ready(self):
        return _taken(&self.ready)

    cdef bytes take_held(self):
        return _taken(&self.held)

    # ── Sends ─────────────────────────────────────────────────────────────────────────────────────────────────────

    cdef uint8_t* begin_send(self, Py_ssize_t ids, Py_ssize_t texts_size) except NULL:
        """Begin an answer to a send of `ids` messages: where `put_id` writes their ids, with commas between them.

        `texts_size` is that of the unique key and of the handle.
        """
        cdef Out* out = &self.held if self.must_wait else &self.ready
        cdef Py_ssize_t ids_size = ids * (ID_SIZE_MAX + PyBytes_GET_SIZE(self.host_hex))
        _make_room(out, FIXED_SIZE + PyBytes_GET_SIZE(self.send_fields) + texts_size + ids_size)
        return put(put_bytes(out.data + out.size + 8, _HEAD), b'"msgId":"', 9)

    cdef void end_send(
        self, uint8_t* p, int32_t opaque, long long queue_id, long long queue_offset, Text* unique_key, Text* handle
    ) noexcept:
        """Write the rest after the ids. Without this call there is no answer.

        `handle` is that of a timed message, by which it can be recalled; its size is 0 if there is none.
        """
        cdef Out* out = &self.held if self.must_wait else &self.ready
        cdef uint8_t* frame = out.data + out.size
        p = put(p, b'","queueId":"', 13)
        p = put_number(p, queue_id)
        p = put(p, b'","queueOffset":"', 17)
        p = put_number(p, queue_offset)
        p = put(p, b'",', 2)
        p = put_bytes(p, self.send_fields)
        if unique_key.at != NULL:
            p = put(p, b',"transactionId":"', 18)
            p = put(p, <const char*>unique_key.at, unique_key.size)
            p[0] = c'"'
            p += 1
        if handle.size:
            p = put(p, b',"recallHandle":"', 17)
            p = put(p, <const char*>handle.at, handle.size)
            p[0] = c'"'
            p += 1
        p = put_bytes(p, _END_OF_FIELDS)
        p = put_number(p, opaque)
        p = put_bytes(p, _TAIL)
        _put_sizes(frame, p, p)
        out.size = p - out.data
        if self.must_wait:
            self.held_count += 1

    # ── Pulls ─────────────────────────────────────────────────────────────────────────────────────────────────────

    cdef int add_pull(
        self,
        int32_t opaque,
        long long suggested,
        long long next_offset,
        long long start,
        long long end,
        bytes tail,
        ReadPort found,
    ) except -1:
        """Write the answer to a pull, with the records that were found. `start` and `end` are those of the queue."""
        cdef Out* out = &self.ready
        cdef uint8_t* frame
        cdef uint8_t* p
        cdef uint8_t* body
        cdef Py_ssize_t i
        _make_room(out, PULL_FIXED_SIZE + PyBytes_GET_SIZE(tail) + found.size)
        frame = out.data + out.size
        p = put_bytes(frame + 8, _HEAD)
        p = put(p, b'"suggestWhichBrokerId":"', 24)
        p = put_number(p, suggested)
        p = put(p, b'","nextBeginOffset":"', 21)
        p = put_number(p, next_offset)
        p = put(p, b'","minOffset":"', 15)
        p = put_number(p, start)
        p = put(p, b'","maxOffset":"', 15)
        p = put_number(p, end)
        p = put_bytes(p, tail)
        p = put_number(p, opaque)
        p = put(p, b',"remark":"FOUND"', 17)
        body = p = put_bytes(p, _TAIL)
        for i in range(found.count):
            p = put(p, <const char*>found.pieces[i].at, found.pieces[i].size)
        _put_sizes(frame, body, p)
        out.size = p - out.data
        return 0


cdef inline void _put_sizes(uint8_t* frame, uint8_t* header_end, uint8_t* end) noexcept nogil:
    put_int32(frame, <uint32_t>(end - frame - 4))
    put_int32(frame + 4, <uint32_t>(header_end - frame - 8))


cdef int _make_room(Out* out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = out.capacity
    cdef uint8_t* data
    if out.size + more <= capacity:
        return 0
    while capacity < out.size + more:
        capacity = max(2 * capacity, 65536)
    data = <uint8_t*>PyMem_Realloc(out.data, capacity)
    if data == NULL:
        raise MemoryError
    out.data = data
    out.capacity = capacity
    return 0


cdef bytes _taken(Out* out):
    cdef bytes taken = PyBytes_FromStringAndSize(<const char*>out.data, out.size) if out.size else b""
    out.size = 0
    if out.capacity > KEPT_CAPACITY:
        PyMem_Free(out.data)
        out.data = NULL
        out.capacity = 0
    return taken
