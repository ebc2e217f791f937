"""Ends of transactions in the lane: a one-way END_TRANSACTION that commits.

    Request ─▶ its half message is in the current segment, and open? ─▶ its producer is the same? ─▶ its queue is open?
            ─▶ write, publish (store/lane_port.pyx) ─▶ the ledger

The half message was sent since the start and has no copy, so it is not necessary to look up whether a copy has ended.
 All others are served by the general path (transactions/ending.py).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from kourou.broker._lane_scan cimport END_GROUP, EndNumbers, Half, Request, check_half, end_numbers
from kourou.broker._lane_sends cimport SendQueue, Sends, SendTopic
from kourou.protocol.scan cimport Text, put
from kourou.store.lane_port cimport AppendPort, Draft

cdef enum:
    ONE_WAY = 2
    COMMIT = 8
    TRANSACTION = 0xC


@cython.final
cdef class Ends:
    def __init__(self, AppendPort port not None, Sends sends not None, transactions):
        self._port = port
        self._sends = sends
        self._transactions = transactions

    cdef bint serve(self, Request* request) except -1:
        """Commit a half message. False: nothing was done."""
        cdef Sends sends = self._sends
        cdef EndNumbers numbers
        cdef Half half
        cdef Draft draft
        cdef Text properties
        cdef Text* group = &request.fields[END_GROUP]
        cdef SendQueue half_queue, queue
        cdef SendTopic topic
        if request.flag != ONE_WAY or not sends._may_send_now or sends.granted is not None:
            return False
        if not end_numbers(request, &numbers) or numbers.outcome != COMMIT:
            return False
        half_queue = sends._open_queue(sends._halves, 0)
        if half_queue is None:
            return False
        if not self._port.half(half_queue.queue, numbers.queue_offset, numbers.log_offset, &draft, &properties):
            return False
        if not check_half(&properties, &half):
            return False
        if half.group.size != group.size or memcmp(half.group.at, group.at, group.size) != 0:
            return False
        topic = sends._topic(&half.topic)
        if topic is None:
            return False
        queue = sends._open_queue(topic, <int>half.queue_id)
        if queue is None or not self._transactions.may_commit(numbers.queue_offset):
            return False
        draft.topic = PyBytes_AS_STRING(topic.raw)
        draft.topic_size = PyBytes_GET_SIZE(topic.raw)
        draft.sys_flag = (draft.sys_flag & ~TRANSACTION) | COMMIT
        draft.properties_size = half.kept
        if not self._port.has_room(self._port.size(&draft)):
            return False

        put(self._port.write(queue.queue, &draft, sends._stamp_ms), <const char*>properties.at, half.kept)
        sends._written(topic, queue, &draft)
        topic.calls += 1
        sends.tally(topic, 3, 1, draft.size)
        self._transactions.committed(
            topic.name, numbers.queue_offset, draft.offset + draft.size, draft.born_ms, sends._now_ms
        )
        return True
