"""Pulls in the lane: PULL_MESSAGE, from the scanned request to the answer with its records.

    Request ─▶ numbers are usual? ─▶ the group may read the topic? ─▶ records are there (store/lane_port.pyx)? ─▶ answer

Nothing is changed until all questions are answered with yes; otherwise the general path (pull.py) serves the request.

`Subscriber` keeps what is known of a group that reads a topic. Only steps of the machine change what that depends on,
so it is compared with the tables once after each step (`epoch`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from kourou.broker._lane_answers cimport Answers
from kourou.broker._lane_scan cimport (
    EXPRESSION,
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    PullNumbers,
    Request,
    has,
    pull_numbers,
)
from kourou.protocol.scan cimport Text, put
from kourou.store.lane_port cimport ReadPort
from kourou.store.consume_queue cimport ConsumeQueue

from kourou.broker import subscriptions
from kourou.broker._lane_answers import pull_tail
from kourou.broker.settings import READ, Role

cdef enum:
    SUBSCRIBERS_MAX = 4096  # that are known
    COMMIT_OFFSET = 1
    SUBSCRIPTION_GIVEN = 4
    BULK = 65536

cdef int _READ = READ
cdef object _slave = Role.SLAVE


@cython.final
cdef class Subscriber:
    """A group that may read a topic."""

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef _want(self, wanted):
        """Tags with these codes, or all of them (None)."""
        cdef Py_ssize_t i = 0
        self.code_count = -1
        if wanted is None:
            return
        self.code_count = len(wanted)
        self.codes = <long long*>PyMem_Malloc(max(self.code_count, 1) * sizeof(long long))
        if self.codes == NULL:
            raise MemoryError
        for code in wanted:
            self.codes[i] = code
            i += 1


@cython.final
cdef class Pulls:
    def __init__(
        self, ReadPort port not None, Answers answers not None, settings, topics, groups, clients, offsets, stats
    ):
        self._port = port
        self._answers = answers
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._stats = stats
        self._known = {}

    # ── Steps and reads ───────────────────────────────────────────────────────────────────────────────────────────

    cdef look(self, long long epoch):
        """The machine has made a step: read again what the settings and the tables allow."""
        settings = self._settings
        self._epoch = epoch
        self._may_pull = (
            settings.role is not _slave
            and settings.is_readable
            and not settings.reject_pull_consumers
            and not self._groups.forbidden
            and not self._offsets.has_resets
        )
        self._slave_read = settings.slave_read

    cdef begin(self):
        """A read of a connection begins."""
        self.is_bulk = False

    cdef end(self):
        """The read is served."""
        self._port.release()

    cdef bint serve(self, Request* request) except -1:
        """Serve a pull. False: nothing was done."""
        cdef PullNumbers numbers
        cdef Subscriber subscriber
        cdef ConsumeQueue queue
        cdef long long next_offset, suggested = 0
        cdef bint is_given, is_bulk
        if not self._may_pull or request.flag != 0 or not pull_numbers(request, &numbers):
            return False
        is_given = (numbers.sys_flag & SUBSCRIPTION_GIVEN) != 0
        is_bulk = (numbers.sys_flag & BULK) != 0
        subscriber = self._subscriber(request, is_given)
        if subscriber is None or numbers.queue_id >= subscriber.queue_limit:
            return False
        if self.granted is not None and (subscriber.topic, subscriber.group) not in self.granted:
            return False
        if not is_given and subscriber.sub_version < numbers.sub_version:
            return False
        queue = self._port.queue(subscriber.topic, numbers.queue_id)
        if queue is None:
            return False
        next_offset = self._port.read(
            queue,
            numbers.offset,
            numbers.max_count,
            numbers.max_size,
            is_bulk,
            subscriber.codes,
            subscriber.code_count,
        )
        if next_offset < 0:
            return False

        if is_bulk:
            self.is_bulk = True
        if self._slave_read:
            suggested = subscriber.slow_broker_id if self._port.is_far else subscriber.broker_id
        self._answers.add_pull(
            request.opaque, suggested, next_offset, queue.start, queue.end, subscriber.tail, self._port
        )
        self._offsets.pulled_to(subscriber.group, subscriber.topic, numbers.queue_id, next_offset)
        if numbers.sys_flag & COMMIT_OFFSET:
            self._offsets.commit(subscriber.group, subscriber.topic, numbers.queue_id, numbers.commit_offset)
        self._stats.got(subscriber.topic, subscriber.group, self._port.count, self._port.size)
        return True

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    cdef Subscriber _subscriber(self, Request* request, bint is_given):
        """The group of a pull; None if the general path must decide. `is_given`: the pull brings its subscription."""
        cdef Subscriber subscriber = self._last
        cdef bytes key = _key(request, is_given)
        if subscriber is None or subscriber.key != key:
            subscriber = self._known.get(key)
            if subscriber is None:
                return self._learn(request, key, is_given)
            self._last = subscriber
        if subscriber.epoch != self._epoch:
            if not self._is_current(subscriber):
                self._known.pop(key, None)
                self._last = None
                return self._learn(request, key, is_given)
            subscriber.epoch = self._epoch
        return subscriber

    cdef bint _is_current(self, Subscriber subscriber) except -1:
        """Do the tables still have the cached group?"""
        if self._topics.table.get(subscriber.topic) is not subscriber.topic_config:
            return False
        if self._groups.table.get(subscriber.group) is not subscriber.group_config:
            return False
        if subscriber.members is None:
            return True
        if self._clients.consumers.get(subscriber.group) is not subscriber.members:
            return False
        return subscriber.members.subscriptions.get(subscriber.topic) is subscriber.subscription

    cdef Subscriber _learn(self, Request* request, bytes key, bint is_given):
        cdef Subscriber subscriber = Subscriber()
        subscriber.key = key
        subscriber.topic = _text(&request.fields[TOPIC])
        subscriber.group = _text(&request.fields[GROUP])
        subscriber.epoch = self._epoch
        topic = subscriber.topic_config = self._topics.table.get(subscriber.topic)
        group = subscriber.group_config = self._groups.table.get(subscriber.group)
        if topic is None or group is None or not group.consume_enable or not group.consume_broadcast_enable:
            return None
        if not topic.perm & _READ or subscriber.topic in self._topics.static:
            return None
        if is_given:
            given = _text(&request.fields[SUBSCRIPTION]) if has(request, SUBSCRIPTION) else None
            kind = _text(&request.fields[EXPRESSION]) if has(request, EXPRESSION) else None
            try:
                subscription = subscriptions.build(subscriber.topic, given, kind)
            except subscriptions.SubscriptionFault:
                return None
        else:
            subscriber.members = self._clients.consumers.get(subscriber.group)
            if subscriber.members is None:
                return None
            subscription = subscriber.subscription = subscriber.members.subscriptions.get(subscriber.topic)
            if subscription is None:
                return None
            subscriber.sub_version = subscription.sub_version
        if not subscriptions.is_by_tag(subscription.expression_type):
            return None
        subscriber._want(subscriptions.codes(subscription))
        subscriber.queue_limit = topic.read_queue_nums
        subscriber.broker_id = group.broker_id
        subscriber.slow_broker_id = group.which_broker_when_consume_slowly
        subscriber.tail = pull_tail(topic.topic_sys_flag, group.group_sys_flag)
        if len(self._known) >= SUBSCRIBERS_MAX:
            self._known.clear()
        self._known[key] = subscriber
        self._last = subscriber
        return subscriber


cdef str _text(Text* text):
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef bytes _key(Request* request, bint is_given):
    """Topic and group, and the subscription if the pull has one: none of them can contain a quote."""
    cdef Text* topic = &request.fields[TOPIC]
    cdef Text* group = &request.fields[GROUP]
    cdef bytes key = PyBytes_FromStringAndSize(NULL, topic.size + 1 + group.size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(key)
    p = put(p, <const char*>topic.at, topic.size)
    p[0] = c'"'
    put(p + 1, <const char*>group.at, group.size)
    if is_given:
        key += b'"' + _maybe_bytes(request, SUBSCRIPTION) + b'"' + _maybe_bytes(request, EXPRESSION)
    return key


cdef bytes _maybe_bytes(Request* request, int field):
    """A field between quotes; nothing if it is missing."""
    cdef Text* text = &request.fields[field]
    return b'"' + (<const char*>text.at)[: text.size] + b'"' if has(request, field) else b""
