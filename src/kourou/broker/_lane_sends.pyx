"""Sends in the lane: SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, from the scanned request to the record and the answer.

    Request ─▶ numbers and properties are usual? ─▶ the topic may be sent to? ─▶ its queue is open? ─▶ room in the log?
            ─▶ write, publish (store/lane_port.pyx) ─▶ answer

Nothing is changed until all questions are answered with yes; otherwise the general path (send.py) serves the request.

`SendTopic` keeps what is known of a topic. Only steps of the machine change what that depends on, so it is compared
with the table of topics once after each step (`epoch`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from kourou.broker._lane_answers cimport Answers, put_bytes, put_id
from kourou.broker._lane_scan cimport (
    B_TOPIC,
    M_BATCH,
    Properties,
    Request,
    SendNumbers,
    find_properties,
    maybe_bool,
    send_numbers,
)
from kourou.protocol.scan cimport Text, int32_at, put
from kourou.store.lane_port cimport AppendPort, Draft
from kourou.store.consume_queue cimport ConsumeQueue

from kourou.broker import names
from kourou.broker._lane_answers import send_fields
from kourou.broker.settings import Role
from kourou.protocol.properties import PROPERTIES_SIZE_MAX

cdef enum:
    SCRATCH_SIZE = 65536
    TOPICS_MAX = 4096  # that are known
    TRANSACTION = 0xC
    MULTI_TAGS = 0x2
    TOPIC_SIZE_MAX = 127
    BATCH_ENTRY_MIN = 22

cdef int _PROPERTIES_MAX = PROPERTIES_SIZE_MAX
cdef object _slave = Role.SLAVE


@cython.final
cdef class SendQueue:
    """A queue of a topic that is sent to."""


@cython.final
cdef class SendTopic:
    """A topic that may be sent to."""


@cython.final
cdef class Sends:
    def __cinit__(self):
        self._scratch = <uint8_t*>PyMem_Malloc(SCRATCH_SIZE)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)

    def __init__(
        self, AppendPort port not None, Answers answers not None, settings, store, send, writer, topics, stats
    ):
        self._port = port
        self._answers = answers
        self._settings = settings
        self._durability = store.durability
        self._send = send
        self._writer = writer
        self._topics = topics
        self._stats = stats
        self._clock = store.clock
        self._body_max = store.log.max_body_size
        self._known = {}
        self._counted = []

    # ── Steps and reads ───────────────────────────────────────────────────────────────────────────────────────────

    cdef look(self, long long epoch):
        """The machine has made a step: what do the settings and the store allow now?"""
        settings = self._settings
        self._epoch = epoch
        self._may_send = settings.role is not _slave and settings.is_writable and self._port.may_append()
        self._answers.must_wait = self._durability.must_wait
        self._from_ms = settings.accept_sends_from_ms
        self._batch_max = settings.max_body_size
        self._batch_messages_max = settings.batch_messages_max
        self._waiting_max = settings.waiting_sends_max
        ext = self._send.answer_ext
        if ext is not self._answer_ext or settings.cluster != self._cluster:
            self._answer_ext = ext
            self._cluster = settings.cluster
            region, trace_on = ext["MSG_REGION"], ext["TRACE_ON"]
            self._suffix = "".join(
                f"{name}\x01{value}\x02"
                for name, value in (("MSG_REGION", region), ("TRACE_ON", trace_on), ("CLUSTER", settings.cluster))
            ).encode()
            self._answers.send_fields = send_fields(region, trace_on)
            if not (region and trace_on and (region + settings.cluster).isprintable() and settings.cluster):
                self._answer_ext = None  # such properties can't be stored
        if self._answer_ext is None:
            self._may_send = False

    cdef begin(self, bytes born_host, long long now_ms):
        """A read of a connection begins."""
        self._born_host = born_host
        self._waiting = self._writer.waiting
        self._may_send_now = self._may_send and self._clock.at(now_ms) >= self._from_ms
        self._stamp_ms = self._clock.stamp(now_ms)

    cdef end(self):
        """The read is served: count what was stored."""
        cdef SendTopic topic
        if self._counted:
            for topic in self._counted:
                self._stats.put(topic.name, topic.count, topic.size, topic.calls)
                topic.count = topic.size = topic.calls = 0
            self._counted.clear()

    # ── One message ───────────────────────────────────────────────────────────────────────────────────────────────

    cdef bint serve(self, Request* request) except -1:
        """Serve a send of one message. False: nothing was done."""
        cdef SendNumbers numbers
        cdef Properties properties
        cdef Draft draft
        cdef SendQueue queue
        cdef uint8_t* p
        if not self._is_usual(request, &numbers, &properties) or maybe_bool(request, M_BATCH) != 0:
            return False
        if request.body_size == 0 or request.body_size > self._body_max or properties.unique_key.size == 0:
            return False
        queue = self._queue(request, &numbers, &draft)
        if queue is None:
            return False
        draft.flag = <int>numbers.flag
        draft.body = request.body
        draft.body_size = request.body_size
        draft.properties_size = properties.size + (0 if properties.closed else 1) + PyBytes_GET_SIZE(self._suffix)
        if draft.properties_size > _PROPERTIES_MAX or not self._port.has_room(self._port.size(&draft)):
            return False

        p = self._port.write(queue.queue, &draft, self._stamp_ms)
        p = put(p, <const char*>properties.at, properties.size)
        if not properties.closed:
            p[0] = 2
            p += 1
        put_bytes(p, self._suffix)
        self._written(queue, &draft)
        self._last.calls += 1
        if request.flag == 0:
            p = self._answers.begin_send(1, properties.unique_key.size)
            p = put_id(p, self._answers.host_hex, draft.offset)
            self._answers.end_send(p, request.opaque, numbers.queue_id, draft.queue_offset, &properties.unique_key)
        return True

    cdef bint _is_usual(self, Request* request, SendNumbers* numbers, Properties* properties) noexcept:
        """May sends be served here now, and is this one usual as far as its header goes?"""
        return (
            self._may_send_now
            and self._waiting + self._answers.held_count < self._waiting_max
            and (request.flag == 0 or request.flag == 2)
            and send_numbers(request, numbers)
            and not numbers.sys_flag & TRANSACTION
            and find_properties(request, self._scratch, SCRATCH_SIZE, properties)
            and (properties.waits or not self._answers.must_wait)
        )

    cdef int _written(self, SendQueue queue, Draft* draft) except -1:
        """The record is complete."""
        cdef SendTopic topic = self._last
        self._port.publish(queue.queue, draft)
        if topic.count == 0:
            self._counted.append(topic)
        topic.count += 1
        topic.size += draft.size
        return 0

    # ── A batch ───────────────────────────────────────────────────────────────────────────────────────────────────

    cdef bint serve_batch(self, Request* request) except -1:
        """Serve a send of several messages, all for one queue. False: nothing was done."""
        cdef SendNumbers numbers
        cdef Properties properties
        cdef Draft draft
        cdef SendQueue queue
        cdef Py_ssize_t count = 0, room
        cdef const uint8_t* entry = request.body
        cdef const uint8_t* end = request.body + request.body_size
        cdef const uint8_t* tail
        cdef uint8_t* p
        cdef uint8_t* answer
        cdef long long queue_offset
        if not self._is_usual(request, &numbers, &properties) or maybe_bool(request, M_BATCH) < 0:
            return False
        if request.body_size > self._batch_max:
            return False
        queue = self._queue(request, &numbers, &draft)
        if queue is None:
            return False
        room = self._batch_room(request, &draft, &count)
        if room < 0 or count == 0 or count > self._batch_messages_max or not self._port.has_room(room):
            return False

        answer = self._answers.begin_send(count, properties.unique_key.size)
        queue_offset = queue.queue.next_offset
        while entry < end:
            draft.flag = <int32_t>int32_at(entry + 12)
            draft.body = entry + 20
            draft.body_size = <int32_t>int32_at(entry + 16)
            tail = draft.body + draft.body_size
            draft.properties_size = _int16_at(tail)
            p = self._port.write(queue.queue, &draft, self._stamp_ms)
            memcpy(p, tail + 2, draft.properties_size)
            self._written(queue, &draft)
            answer = put_id(answer, self._answers.host_hex, draft.offset)
            entry = tail + 2 + draft.properties_size
            if entry < end:
                answer[0] = c','
                answer += 1
        self._last.calls += 1
        if request.flag == 0:
            self._answers.end_send(answer, request.opaque, numbers.queue_id, queue_offset, &properties.unique_key)
        return True

    cdef Py_ssize_t _batch_room(self, Request* request, Draft* draft, Py_ssize_t* count) noexcept:
        """The room that the messages of a batch may need in the log, and how many they are. -1: one is unusual."""
        cdef const uint8_t* entry = request.body
        cdef const uint8_t* end = request.body + request.body_size
        cdef const uint8_t* properties
        cdef Py_ssize_t room = 0
        cdef int32_t size, body_size, properties_size
        while entry < end:
            if end - entry < BATCH_ENTRY_MIN:
                return -1
            size = <int32_t>int32_at(entry)
            body_size = <int32_t>int32_at(entry + 16)
            if size < BATCH_ENTRY_MIN or size > end - entry or body_size < 0 or body_size > size - BATCH_ENTRY_MIN:
                return -1
            if body_size > self._body_max:
                return -1
            properties = entry + 20 + body_size + 2
            properties_size = size - BATCH_ENTRY_MIN - body_size
            if properties_size > _PROPERTIES_MAX or _int16_at(properties - 2) != properties_size:
                return -1
            if properties_size and memchr(properties, 0, properties_size) != NULL:
                return -1
            draft.body_size = body_size
            draft.properties_size = properties_size
            room += self._port.size_max(draft)
            count[0] += 1
            entry += size
        return room

    # ── Topics and queues ─────────────────────────────────────────────────────────────────────────────────────────

    cdef SendQueue _queue(self, Request* request, SendNumbers* numbers, Draft* draft):
        """The queue of a send; None if the general path must decide. Fills in what all its messages have in common."""
        cdef SendTopic topic = self._topic(&request.fields[B_TOPIC])
        if topic is None or numbers.queue_id >= topic.queue_limit:
            return None
        draft.topic = PyBytes_AS_STRING(topic.raw)
        draft.topic_size = PyBytes_GET_SIZE(topic.raw)
        draft.born_host = PyBytes_AS_STRING(self._born_host)
        draft.born_host_size = PyBytes_GET_SIZE(self._born_host)
        draft.born_ms = numbers.born_ms
        draft.sys_flag = <int>numbers.sys_flag | topic.sys_flag
        draft.reconsume_times = <int>numbers.times
        return self._open_queue(topic, <int>numbers.queue_id)

    cdef SendTopic _topic(self, Text* text):
        """A topic that may be sent to, which becomes `_last`; None if the general path must decide."""
        cdef SendTopic topic = self._last
        cdef bytes raw
        if (
            topic is None
            or PyBytes_GET_SIZE(topic.raw) != text.size
            or memcmp(PyBytes_AS_STRING(topic.raw), text.at, text.size) != 0
        ):
            raw = PyBytes_FromStringAndSize(<const char*>text.at, text.size)
            topic = self._known.get(raw)
            if topic is None:
                return self._learn(raw)
            self._last = topic
        if topic.epoch != self._epoch:
            if self._topics.table.get(topic.name) is not topic.config:
                return self._learn(topic.raw)
            topic.epoch = self._epoch
        return topic

    cdef SendTopic _learn(self, bytes raw):
        cdef SendTopic topic
        cdef str name = raw.decode()
        config = self._topics.table.get(name)
        if (
            config is None
            or not 0 < len(raw) <= TOPIC_SIZE_MAX
            or name in names.NOT_FOR_SENDING
            or name.startswith(names.RETRY_PREFIX)
        ):
            self._known.pop(raw, None)
            self._last = None
            return None
        topic = SendTopic()
        topic.name = name
        topic.raw = raw
        topic.config = config
        topic.epoch = self._epoch
        topic.queue_limit = max(config.read_queue_nums, config.write_queue_nums)
        topic.sys_flag = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        topic.queues = {}
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        self._known[raw] = topic
        self._last = topic
        return topic

    cdef SendQueue _open_queue(self, SendTopic topic, int queue_id):
        """A queue that is open; None if it is not."""
        cdef SendQueue queue = topic.queues.get(queue_id)
        cdef ConsumeQueue found
        if queue is None or queue.epoch != self._epoch:
            found = self._port.queue(topic.name, queue_id)
            if found is None:
                return None
            if queue is None or queue.queue is not found:
                queue = SendQueue()
                queue.queue = found
                topic.queues[queue_id] = queue
            queue.epoch = self._epoch
        return queue


cdef inline int _int16_at(const uint8_t* p) noexcept nogil:
    return (p[0] << 8) | p[1]
