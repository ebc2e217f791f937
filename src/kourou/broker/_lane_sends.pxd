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


cdef enum:
    MESSAGE_TYPES = 4  # normal, fifo, delay, transaction: those of meters.py, in this order
    SIZES = 7


cdef struct Tally:  # what meters.py calls Traffic, since it was handed over
    long long messages, size, total
    long long sizes[SIZES]


@cython.final
cdef class SendTopic:
    cdef str name
    cdef bytes raw
    cdef object config
    cdef long long epoch
    cdef int queue_limit, sys_flag
    cdef dict queues
    cdef long long count, size, calls  # since they were last added to the statistics
    cdef Tally tallies[MESSAGE_TYPES]
    cdef bint is_tallied
    cdef long long halves  # half messages for this topic, since the counts of transactions know of them


@cython.final
cdef class Sends:
    cdef AppendPort _port
    cdef Answers _answers
    cdef object _settings, _durability, _send, _writer, _topics, _stats, _clock, _transactions, _wheel
    cdef uint8_t* _scratch
    cdef uint8_t* _added  # what the broker adds to a message that waits elsewhere, and its handle
    cdef Py_ssize_t _added_size
    cdef Text _handle
    cdef SendTopic _halves, _timers  # where such messages are stored
    cdef list _half_topics
    cdef dict _known
    cdef SendTopic _last
    cdef list _counted
    cdef list _tallied  # topics with tallies that were not handed over

    # What the settings say, as of `_epoch`.
    cdef long long _epoch
    cdef bint _may_send
    cdef long long _from_ms, _body_max, _batch_max, _batch_messages_max, _waiting_max
    cdef bint _takes_halves, _takes_timers
    cdef long long _timer_max_ms, _slot_max, _precision_ms
    cdef bytes _broker
    cdef object _answer_ext, _cluster
    cdef bytes _suffix  # properties that every message gets

    # Of the read that is being served.
    cdef long long _waiting, _stamp_ms, _now_ms
    cdef bint _may_send_now
    cdef bytes _born_host
    cdef set granted  # topics that the sender of the request may send to; None: all

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
    cdef SendQueue _place(self, Request* request, SendNumbers* numbers, Properties* properties, Draft* draft)
    cdef bint _add_time(self, Properties* properties) except -1
    cdef void _add_handle(self, SendTopic topic, long long slot_ms, Text* unique_key) noexcept
    cdef void _add_real(self, SendTopic topic, long long queue_id) noexcept
    cdef int _written(self, SendTopic topic, SendQueue queue, Draft* draft) except -1
    cdef int tally(self, SendTopic topic, int message_type, long long messages, long long size) except -1
    cdef hand_over(self)


cdef inline int size_bucket(long long size) noexcept nogil:
    """As meters.SIZE_BOUNDS divides them."""
    if size <= 1 << 10:
        return 0
    if size <= 4 << 10:
        return 1
    if size <= 512 << 10:
        return 2
    if size <= 1 << 20:
        return 3
    if size <= 2 << 20:
        return 4
    return 5 if size <= 4 << 20 else 6
