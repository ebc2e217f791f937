"""Sends in the lane: SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, from the scanned request to the record and the answer.

    Request ─▶ numbers and properties are usual? ─▶ the topic may be sent to? ─▶ its queue is open? ─▶ room in the log?
            ─▶ write, publish (store/lane_port.pyx) ─▶ answer

Nothing is changed until all questions are answered with yes; otherwise the general path (send.py) serves the request.

A half message is stored in the half topic, and a timed message in the timer topic, as transactions/half_records.py and
timers/placing.py say it; their real topic and queue follow their other properties.

`SendTopic` keeps what is known of a topic. Only steps of the machine change what that depends on, so it is compared
with the table of topics once after each step (`epoch`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset

from kourou.broker._lane_answers cimport Answers, put_bytes, put_id
from kourou.broker._lane_scan cimport (
    B_TOPIC,
    HALF,
    M_BATCH,
    PLAIN,
    TIMED_AT,
    TIMED_IN_S,
    Properties,
    Request,
    SendNumbers,
    find_properties,
    maybe_bool,
    send_numbers,
)
from kourou.protocol.scan cimport Text, int32_at, put, put_number
from kourou.store.lane_port cimport AppendPort, Draft
from kourou.store.consume_queue cimport ConsumeQueue

from kourou.broker import names
from kourou.broker._lane_answers import send_fields
from kourou.broker.meters import MESSAGE_TYPES as _types
from kourou.broker.settings import Role
from kourou.protocol.properties import PROPERTIES_SIZE_MAX

cdef enum:
    SCRATCH_SIZE = 65536
    FIXED_SIZE = 1024  # more than the parts of a handle, or of added properties, without the unique key
    ADDED_SIZE = 4 * SCRATCH_SIZE  # added properties, the text of a handle, and its base64
    TOPICS_MAX = 4096  # that are known
    TRANSACTION = 0xC
    INNER_BATCH = 0x80
    MULTI_TAGS = 0x2
    TOPIC_SIZE_MAX = 127
    BATCH_ENTRY_MIN = 22

cdef int _PROPERTIES_MAX = PROPERTIES_SIZE_MAX
cdef long long _INT_MAX = 2147483647  # no slot has more messages
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
        self._added = <uint8_t*>PyMem_Malloc(ADDED_SIZE)
        if self._scratch == NULL or self._added == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)
        PyMem_Free(self._added)

    def __init__(
        self,
        AppendPort port not None,
        Answers answers not None,
        settings,
        store,
        send,
        writer,
        topics,
        stats,
        transactions,
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
        self._tallied = []
        self._transactions = transactions
        self._wheel = store.timers.wheel
        self._precision_ms = store.timers.precision_ms
        self._halves = _system_topic(names.HALF_TOPIC)
        self._timers = _system_topic(names.TIMER_TOPIC)
        self._half_topics = []

    # ── Steps and reads ───────────────────────────────────────────────────────────────────────────────────────────

    cdef look(self, long long epoch):
        """The machine has made a step: read again what the settings and the store allow."""
        settings = self._settings
        self._epoch = epoch
        self._may_send = (
            settings.role is not _slave
            and settings.is_writable
            and self._writer.replicas_missing is None
            and self._writer.paused is None
            and self._port.may_append()
        )
        self._answers.must_wait = self._durability.must_wait
        self._from_ms = settings.accept_sends_from_ms
        self._batch_max = settings.max_body_size
        self._batch_messages_max = settings.batch_messages_max
        self._waiting_max = settings.waiting_sends_max
        self._takes_halves = not settings.reject_transactions
        self._takes_timers = settings.timers
        self._timer_max_ms = settings.timer_max_delay_s * 1000
        self._slot_max = settings.timer_slot_max
        self._broker = settings.name.encode()
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
        self._now_ms = now_ms

    cdef end(self):
        """The read is served: count the stored messages."""
        cdef SendTopic topic
        if self._counted:
            for topic in self._counted:
                self._stats.put(topic.name, topic.count, topic.size, topic.calls)
                topic.count = topic.size = topic.calls = 0
            self._counted.clear()
        if self._half_topics:
            for topic in self._half_topics:
                self._transactions.halves_stored(topic.name, topic.halves, self._now_ms)
                topic.halves = 0
            self._half_topics.clear()

    # ── One message ───────────────────────────────────────────────────────────────────────────────────────────────

    cdef bint serve(self, Request* request) except -1:
        """Serve a send of one message. False: nothing was done."""
        cdef SendNumbers numbers
        cdef Properties properties
        cdef Draft draft
        cdef SendQueue queue
        cdef SendTopic topic
        cdef uint8_t* p
        if not self._is_usual(request, &numbers, &properties) or maybe_bool(request, M_BATCH) != 0:
            return False
        if request.body_size == 0 or request.body_size > self._body_max or properties.unique_key.size == 0:
            return False
        self._added_size = self._handle.size = 0
        queue = self._place(request, &numbers, &properties, &draft)
        if queue is None:
            return False
        topic = self._last if properties.kind == PLAIN else self._halves if properties.kind == HALF else self._timers
        draft.flag = <int>numbers.flag
        draft.body = request.body
        draft.body_size = request.body_size
        draft.properties_size = (
            properties.size + (0 if properties.closed else 1) + PyBytes_GET_SIZE(self._suffix) + self._added_size
        )
        if draft.properties_size > _PROPERTIES_MAX or not self._port.has_room(self._port.size(&draft)):
            return False

        p = self._port.write(queue.queue, &draft, self._stamp_ms)
        p = put(p, <const char*>properties.at, properties.size)
        if not properties.closed:
            p[0] = 2
            p += 1
        p = put_bytes(p, self._suffix)
        put(p, <const char*>self._added, self._added_size)
        self._written(topic, queue, &draft)
        topic.calls += 1
        self.tally(topic, _message_type(&properties), 1, draft.size)
        if properties.kind == HALF:
            if self._last.halves == 0:
                self._half_topics.append(self._last)
            self._last.halves += 1
        if request.flag == 0:
            p = self._answers.begin_send(1, properties.unique_key.size + self._handle.size)
            p = put_id(p, self._answers.host_hex, draft.offset)
            self._answers.end_send(
                p, request.opaque, numbers.queue_id, draft.queue_offset, &properties.unique_key, &self._handle
            )
        return True

    cdef bint _is_usual(self, Request* request, SendNumbers* numbers, Properties* properties) noexcept:
        """May the lane serve sends now, and is the header of this one usual?"""
        return (
            self._may_send_now
            and self._waiting + self._answers.held_count < self._waiting_max
            and (request.flag == 0 or request.flag == 2)
            and send_numbers(request, numbers)
            and find_properties(request, self._scratch, SCRATCH_SIZE, properties)
            and (properties.kind == HALF or not numbers.sys_flag & TRANSACTION)
            and not numbers.sys_flag & INNER_BATCH
            and (properties.waits or not self._answers.must_wait)
        )

    cdef int _written(self, SendTopic topic, SendQueue queue, Draft* draft) except -1:
        """The record is complete."""
        self._port.publish(queue.queue, draft)
        if topic.count == 0:
            self._counted.append(topic)
        topic.count += 1
        topic.size += draft.size
        return 0

    cdef int tally(self, SendTopic topic, int message_type, long long messages, long long size) except -1:
        """A request has stored messages of a type."""
        cdef Tally* tally = &topic.tallies[message_type]
        cdef long long each = size if messages == 1 else size // messages
        if not topic.is_tallied:
            if len(self._tallied) >= TOPICS_MAX:
                self.hand_over()
            topic.is_tallied = True
            self._tallied.append(topic)
        tally.messages += messages
        tally.size += size
        tally.total += each
        tally.sizes[size_bucket(each)] += 1
        return 0

    cdef hand_over(self):
        """Add the tallies to the statistics. Those of topics that were removed meanwhile are dropped."""
        cdef SendTopic topic
        cdef Tally* tally
        cdef int i, j
        for topic in self._tallied:
            for i in range(MESSAGE_TYPES):
                tally = &topic.tallies[i]
                if tally.messages and topic.name in self._topics.table:
                    sizes = [tally.sizes[j] for j in range(SIZES)]
                    self._stats.put_before(topic.name, _types[i], tally.messages, tally.size, sizes, tally.total)
            memset(topic.tallies, 0, sizeof(topic.tallies))
            topic.is_tallied = False
        self._tallied.clear()

    # ── Messages that wait elsewhere ──────────────────────────────────────────────────────────────────────────────

    cdef SendQueue _place(self, Request* request, SendNumbers* numbers, Properties* properties, Draft* draft):
        """The queue that a message is stored in; None if the general path must decide.

        Writes to `_added` what the properties of a message say that is stored elsewhere than it was sent to.
        """
        cdef SendQueue queue = self._queue(request, numbers, draft)
        cdef SendTopic topic = self._last, stored_in
        if queue is None or properties.kind == PLAIN:
            return queue
        if properties.kind == HALF:
            if not self._takes_halves:
                return None
            stored_in = self._halves
            self._added_size = (
                put(
                    put(
                        put(self._added, b"__transactionId__\x01", 18),
                        <const char*>properties.unique_key.at,
                        properties.unique_key.size,
                    ),
                    b"\x02",
                    1,
                )
                - self._added
            )
            draft.sys_flag &= ~TRANSACTION
        else:
            if not self._takes_timers or topic.name == names.TIMER_TOPIC or not self._add_time(properties):
                return None
            stored_in = self._timers
        self._add_real(topic, numbers.queue_id)
        draft.topic = PyBytes_AS_STRING(stored_in.raw)
        draft.topic_size = PyBytes_GET_SIZE(stored_in.raw)
        return self._open_queue(stored_in, 0)

    cdef bint _add_time(self, Properties* properties) except -1:
        """The slot of a timed message, and its handle. False: it is due, or too late, or its slot is crowded."""
        cdef long long now_ms = self._port.stored_ms(self._stamp_ms), deliver_ms = properties.time, slot_ms
        cdef uint8_t* p
        if properties.kind != TIMED_AT:
            deliver_ms = now_ms + deliver_ms * (1000 if properties.kind == TIMED_IN_S else 1)
        if deliver_ms <= now_ms or deliver_ms - now_ms > self._timer_max_ms:
            return False
        slot_ms = deliver_ms - 1 - (deliver_ms - 1) % self._precision_ms
        if self._slot_max < _INT_MAX and self._wheel.slot(slot_ms).messages > self._slot_max:
            return False
        p = put_number(put(self._added, b"TIMER_OUT_MS\x01", 13), slot_ms)
        p[0] = 2
        self._added_size = p + 1 - self._added
        self._add_handle(self._last, slot_ms, &properties.unique_key)
        return True

    cdef void _add_real(self, SendTopic topic, long long queue_id) noexcept:
        """Which topic and queue a message is for."""
        cdef uint8_t* p = put(self._added + self._added_size, b"REAL_TOPIC\x01", 11)
        p = put(put_bytes(p, topic.raw), b"\x02REAL_QID\x01", 10)
        p = put_number(p, queue_id)
        p[0] = 2
        self._added_size = p + 1 - self._added

    cdef void _add_handle(self, SendTopic topic, long long slot_ms, Text* unique_key) noexcept:
        """The handle of a timed message: see timers/handles.py."""
        cdef uint8_t* text = self._added + SCRATCH_SIZE
        cdef uint8_t* p = put_bytes(put(text, b"v1 ", 3), topic.raw)
        p = put(put_bytes(put(p, b" ", 1), self._broker), b" ", 1)
        p = put(put_number(p, slot_ms + 1), b" ", 1)
        p = put(p, <const char*>unique_key.at, unique_key.size)
        self._handle.at = self._added + 2 * SCRATCH_SIZE + FIXED_SIZE
        self._handle.size = _put_base64(<uint8_t*>self._handle.at, text, p - text)

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
        cdef long long queue_offset, size = 0
        if not self._is_usual(request, &numbers, &properties) or maybe_bool(request, M_BATCH) < 0:
            return False
        if request.body_size > self._batch_max or properties.kind != PLAIN:
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
            self._written(self._last, queue, &draft)
            size += draft.size
            answer = put_id(answer, self._answers.host_hex, draft.offset)
            entry = tail + 2 + draft.properties_size
            if entry < end:
                answer[0] = c','
                answer += 1
        self._last.calls += 1
        self.tally(self._last, _message_type(&properties), count, size)
        if request.flag == 0:
            self._handle.size = 0
            self._answers.end_send(
                answer, request.opaque, numbers.queue_id, queue_offset, &properties.unique_key, &self._handle
            )
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
        if self.granted is not None and topic.name not in self.granted:
            return None
        draft.topic = PyBytes_AS_STRING(topic.raw)
        draft.topic_size = PyBytes_GET_SIZE(topic.raw)
        draft.born_host = PyBytes_AS_STRING(self._born_host)
        draft.born_host_size = PyBytes_GET_SIZE(self._born_host)
        draft.born_ms = numbers.born_ms
        draft.prepared_offset = 0
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
            or name in self._topics.static
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


cdef SendTopic _system_topic(str name):
    """A topic in which messages wait."""
    cdef SendTopic topic = SendTopic()
    topic.name = name
    topic.raw = name.encode()
    topic.queues = {}
    return topic


cdef Py_ssize_t _put_base64(uint8_t* out, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """The form for addresses, with padding: how many bytes were written."""
    cdef const char* letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cdef uint8_t* p = out
    cdef int bits
    while size > 0:
        bits = text[0] << 16 | (text[1] << 8 if size > 1 else 0) | (text[2] if size > 2 else 0)
        p[0] = letters[bits >> 18]
        p[1] = letters[bits >> 12 & 63]
        p[2] = letters[bits >> 6 & 63] if size > 1 else c'='
        p[3] = letters[bits & 63] if size > 2 else c'='
        text += 3
        size -= 3
        p += 4
    return p - out


cdef inline int _message_type(Properties* properties) noexcept nogil:
    """As meters.message_type decides."""
    if properties.kind == HALF:
        return 3
    if properties.is_ordered:
        return 1
    return 0 if properties.kind == PLAIN else 2


cdef inline int _int16_at(const uint8_t* p) noexcept nogil:
    return (p[0] << 8) | p[1]
