# Sends in the lane. See _lane_sends.pyx.

cimport cython
from libc.stdint cimport uint8_t

from kourou.broker._lane_answers cimport Answers
from kourou.broker._lane_scan cimport Properties, Request, SendNumbers
from kourou.protocol.scan cimport Text
from kourou.store.lane_port cimport AppendPort, Draft
from kourou.store.consume_queue cimport ConsumeQueue


@cython.final
cdef class SendQueue:
    cdef ConsumeQueue queue
    cdef long long epoch


@cython.final
cdef class SendTopic:
    cdef str name
    cdef bytes raw
    cdef object config
    cdef long long epoch
    cdef int queue_limit, sys_flag
    cdef dict queues
    cdef long long count, size, calls  # since they were last added to the statistics


@cython.final
cdef class Sends:
    cdef AppendPort _port
    cdef Answers _answers
    cdef object _settings, _durability, _send, _writer, _topics, _stats, _clock
    cdef uint8_t* _scratch
    cdef dict _known
    cdef SendTopic _last
    cdef list _counted

    # What the settings say, as of `_epoch`.
    cdef long long _epoch
    cdef bint _may_send
    cdef long long _from_ms, _body_max, _batch_max, _batch_messages_max, _waiting_max
    cdef object _answer_ext, _cluster
    cdef bytes _suffix  # properties that every message gets

    # Of the read that is being served.
    cdef long long _waiting, _stamp_ms
    cdef bint _may_send_now
    cdef bytes _born_host

    cdef look(self, long long epoch)
    cdef begin(self, bytes born_host, long long now_ms)
    cdef end(self)
    cdef bint serve(self, Request* request) except -1
    cdef bint serve_batch(self, Request* request) except -1
    cdef bint _is_usual(self, Request* request, SendNumbers* numbers, Properties* properties) noexcept
    cdef SendQueue _queue(self, Request* request, SendNumbers* numbers, Draft* draft)
    cdef SendTopic _topic(self, Text* text)
    cdef SendTopic _learn(self, bytes raw)
    cdef SendQueue _open_queue(self, SendTopic topic, int queue_id)
    cdef Py_ssize_t _batch_room(self, Request* request, Draft* draft, Py_ssize_t* count) noexcept
    cdef int _written(self, SendQueue queue, Draft* draft) except -1
