"""Timed messages in the lane: from the timer queue into the wheel, and from there into their real topic.

    enter    entries of the timer queue ─▶ records ─▶ units in the timer log, slots of the wheel
    deliver  units that are due ─▶ records ─▶ copies in the log (store/lane_port.pyx)

timers/lane.py says which messages are usual. Both functions stop before the first message that is not: it is unchanged,
and the general path (timers/service.py, timers/delivering.py) handles it. Counts are collected for each topic, and
added to the figures at the end of a call.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from kourou.broker._lane_scan cimport text_number
from kourou.broker._lane_sends cimport SIZES, size_bucket
from kourou.protocol.scan cimport Text, equals, int32_at, put, put_int32, put_number
from kourou.store.consume_queue cimport ConsumeQueue
from kourou.store.lane_port cimport AppendPort, Draft, ReadPort

from kourou.broker import names
from kourou.broker.meters import DELAY
from kourou.broker.settings import Role
from kourou.broker.timers.counts import DELAY_BOUNDS_S
from kourou.protocol.hashes import java_hash
from kourou.protocol.properties import PROPERTIES_SIZE_MAX
from kourou.store.timers.layout import DEFAULT, UNIT_SIZE, Slot

cdef enum:
    SLOTS_MAX = 64  # that one call changes
    TOPICS_MAX = 4096  # that are known
    TOPIC_SIZE_MAX = 127
    TRANSACTION = 0xC  # bits of a message that belongs to a transaction
    COMMIT = 8
    DELAYS = 7  # as counts.DELAY_BOUNDS_S divides them
    ADDED_MAX = 96  # the properties with the times of a delivery

cdef int64_t TIME_MAX = <int64_t>1 << 59
cdef int64_t DELAY_MAX = <int64_t>1 << 40
cdef int _PROPERTIES_MAX = PROPERTIES_SIZE_MAX
cdef int _UNIT_SIZE = UNIT_SIZE
cdef int _USUAL = DEFAULT
cdef bytes _TIMER_TOPIC = names.TIMER_TOPIC.encode()
cdef int64_t[DELAYS - 1] _bounds
cdef object _slave = Role.SLAVE

# What the properties of a timed message say.
cdef struct Timed:
    Text topic
    int64_t queue_id
    int64_t slot_ms  # as its sender's broker chose it
    int64_t deliver_ms  # 0: it has a delay
    int64_t delay_ms

# A slot of the wheel that the present call changes.
cdef struct Place:
    int64_t slot_ms, first, last
    int messages
    bint in_memory


cdef _read_bounds():
    assert len(DELAY_BOUNDS_S) == DELAYS - 1
    for i, bound in enumerate(DELAY_BOUNDS_S):
        _bounds[i] = bound

_read_bounds()


@cython.final
cdef class TimedTopic:
    """A topic that timed messages are for, and its counts of the present call."""

    cdef str name
    cdef bytes raw
    cdef int hash
    cdef bint is_counted
    cdef long long entered, delivered, size, delay_s
    cdef long long[DELAYS] delays
    cdef long long[SIZES] sizes


@cython.final
cdef class TimerLane:
    """See the module's text, and timers/lane.py."""

    cdef AppendPort _port
    cdef ReadPort _records
    cdef object _settings, _store, _writer, _stats, _counts, _wheel, _units
    cdef dict _topics
    cdef TimedTopic _last
    cdef list _counted  # topics with counts
    cdef long long _body_max
    cdef const unsigned char[::1] _file  # of the timer log, while messages are delivered
    cdef long long _file_start

    def __init__(self, settings, store, writer, stats, counts):
        self._port = AppendPort(store)
        self._records = ReadPort(store)
        self._settings = settings
        self._store = store
        self._writer = writer
        self._stats = stats
        self._counts = counts
        self._wheel = store.timers.wheel
        self._units = store.timers.log
        self._topics = {}
        self._counted = []

    # ── Entering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def enter(
        self,
        dict slots not None,
        long long queue_offset,
        long long read_ms,
        long long written_ms,
        long long until_ms,
        long long now_ms,
        *,
        long long count_max,
        long long size_max,
    ):
        """Put usual messages from this queue offset on into the wheel: how many they were.

        `slots` are those in memory. Slots from `read_ms` on, and before `until_ms`, take messages.
        """
        cdef ConsumeQueue queue = self._records.queue(names.TIMER_TOPIC, 0)
        if queue is None:
            return 0
        try:
            if self._records.read(queue, queue_offset, count_max, size_max, True, NULL, -1) < 0:
                return 0
            return self._enter_all(slots, read_ms, written_ms, until_ms, now_ms)
        finally:
            self._records.release()
            self._count(now_ms)

    cdef Py_ssize_t _enter_all(
        self, dict slots, long long read_ms, long long written_ms, long long until_ms, long long now_ms
    ) except -1:
        cdef Place[SLOTS_MAX] places
        cdef Place* place
        cdef Draft draft
        cdef Timed timed
        cdef Text properties
        cdef TimedTopic topic
        cdef const uint8_t* record
        cdef uint8_t* unit
        cdef Py_ssize_t i, size, count = 0
        cdef int place_count = 0, at
        cdef long long begin = self._units.end, position, exact_ms, slot_ms
        cdef long long precision_ms = self._wheel.precision_ms, length_ms = precision_ms * self._wheel.slots
        cdef unsigned char[::1] room
        cdef list waiting = []  # messages of slots in memory: slot, time, position
        free = self._units.room(self._records.count)
        if free is None:
            return 0
        room = free
        for i in range(self._records.count):
            record = self._records.pieces[i].at
            size = self._records.pieces[i].size
            if not self._records.draft(record, size, &draft, &properties) or not _read_timed(&properties, &timed):
                break
            exact_ms = _exact_ms(&timed, draft.stored_ms)
            if exact_ms == 0:
                break
            slot_ms = exact_ms - 1 - (exact_ms - 1) % precision_ms
            topic = self._topic(&timed.topic)
            if not read_ms <= slot_ms < until_ms or topic is None:
                break
            at = _place_of(places, place_count, slot_ms)
            place = &places[at]
            if at == place_count:
                if at == SLOTS_MAX or _takes_place(places, at, slot_ms, length_ms):
                    break
                if self._wheel.is_in_use(slot_ms, read_ms):
                    break
                slot = self._wheel.slot(slot_ms)
                place.slot_ms = slot_ms
                place.first = slot.first
                place.last = slot.last
                place.messages = slot.messages
                place.in_memory = slot_ms in slots
                place_count += 1
            position = begin + count * _UNIT_SIZE
            unit = &room[count * _UNIT_SIZE]
            put_int32(unit, _UNIT_SIZE)
            _put_int64(unit + 4, place.last)
            put_int32(unit + 12, _USUAL)
            _put_int64(unit + 16, written_ms)
            put_int32(unit + 24, <uint32_t><int32_t>(slot_ms - written_ms))
            _put_int64(unit + 28, _int64_at(record + 28))
            put_int32(unit + 36, <uint32_t>size)
            put_int32(unit + 40, <uint32_t>topic.hash)
            _put_int64(unit + 44, exact_ms)
            if place.first < 0:
                place.first = position
            place.last = position
            place.messages += 1
            if place.in_memory:
                waiting.append((slot_ms, exact_ms, position))
            self._waits(topic, exact_ms - draft.born_ms)
            count += 1
        self._units.extend(count)
        for i in range(place_count):
            place = &places[i]
            self._wheel.put(place.slot_ms, Slot(place.first, place.last, place.messages))
        for slot_ms, exact_ms, position in waiting:
            slots[slot_ms].add(exact_ms, position)
        return count

    cdef int _waits(self, TimedTopic topic, long long delay_ms) except -1:
        cdef int bucket = 0
        cdef long long seconds = delay_ms // 1000 if delay_ms > 0 else 0
        while bucket < DELAYS - 1 and seconds > _bounds[bucket]:
            bucket += 1
        self._counts_of(topic)
        topic.entered += 1
        topic.delays[bucket] += 1
        topic.delay_s += seconds
        return 0

    # ── Delivering ────────────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, due not None, long long time_ms, long long now_ms, *, long long size_max):
        """Deliver usual messages from the end of `due`, positions in the timer log: how many they were."""
        cdef const long long[::1] positions = due
        cdef Py_ssize_t count = 0, left = positions.shape[0]
        cdef long long end = self._store.log.end + size_max
        if not self._port.may_append() or self._settings.role is _slave or self._writer.paused is not None:
            return 0
        self._body_max = self._store.log.max_body_size
        try:
            while left and self._store.log.end < end and self._deliver_one(positions[left - 1], time_ms):
                count += 1
                left -= 1
        except Exception:
            if not count:
                raise
            # Those before it are delivered. The general path, or the next call, meets the error again.
        finally:
            self._records.release()
            self._file = None
            self._count(now_ms)
        return count

    cdef bint _deliver_one(self, long long position, long long time_ms) except -1:
        """Deliver one message. False, or an exception: nothing was done."""
        cdef const uint8_t* unit = self._unit(position)
        cdef const uint8_t* record
        cdef uint8_t* p
        cdef uint8_t[ADDED_MAX] added
        cdef Py_ssize_t added_size
        cdef long long physical
        cdef int32_t size
        cdef Draft draft
        cdef Timed timed
        cdef Text properties
        cdef ConsumeQueue queue
        cdef TimedTopic topic
        if unit == NULL or <int32_t>int32_at(unit) != _UNIT_SIZE or <int32_t>int32_at(unit + 12) != _USUAL:
            return False
        physical = _int64_at(unit + 28)
        size = <int32_t>int32_at(unit + 36)
        record = self._records.record(physical, size)
        if record == NULL or not self._records.draft(record, size, &draft, &properties):
            return False
        if _int64_at(record + 28) != physical or draft.body_size > self._body_max:
            return False
        if not equals(
            <const uint8_t*>draft.topic,
            draft.topic_size,
            PyBytes_AS_STRING(_TIMER_TOPIC),
            PyBytes_GET_SIZE(_TIMER_TOPIC),
        ):
            return False
        if draft.sys_flag & TRANSACTION and draft.sys_flag & TRANSACTION != COMMIT:
            return False
        if not _read_timed(&properties, &timed):
            return False
        topic = self._topic(&timed.topic)
        if topic is None:
            return False
        queue = self._port.queue(topic.name, timed.queue_id)
        if queue is None:
            return False
        p = put_number(put(added, b"TIMER_ENQUEUE_MS\x01", 17), _int64_at(unit + 16))
        p = put_number(put(p, b"\x02TIMER_DEQUEUE_MS\x01", 18), time_ms)
        p[0] = 2
        added_size = p + 1 - added
        draft.topic = PyBytes_AS_STRING(topic.raw)
        draft.topic_size = PyBytes_GET_SIZE(topic.raw)
        draft.prepared_offset = ~physical
        draft.properties_size = properties.size + added_size
        if draft.properties_size > _PROPERTIES_MAX or not self._port.has_room(self._port.size(&draft)):
            return False
        self._counts_of(topic)
        p = self._port.write(queue, &draft, time_ms)
        put(put(p, <const char*>properties.at, properties.size), <const char*>added, added_size)
        self._port.publish(queue, &draft)
        topic.delivered += 1
        topic.size += draft.size
        topic.sizes[size_bucket(draft.size)] += 1
        return True

    cdef const uint8_t* _unit(self, long long position) except? NULL:
        """A unit of the timer log; NULL if there is none."""
        if self._file is None or not self._file_start <= position < self._file_start + self._file.shape[0]:
            found = self._units.file_at(position)
            if found is None:
                return NULL
            self._file_start, self._file = found
        if position - self._file_start + _UNIT_SIZE > self._file.shape[0]:
            return NULL
        return &self._file[position - self._file_start]

    # ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    cdef TimedTopic _topic(self, Text* text):
        """The topic of this name; None if it is unusual."""
        cdef TimedTopic topic = self._last
        cdef bytes raw
        if (
            topic is not None
            and PyBytes_GET_SIZE(topic.raw) == text.size
            and memcmp(PyBytes_AS_STRING(topic.raw), text.at, text.size) == 0
        ):
            return topic
        raw = PyBytes_FromStringAndSize(<const char*>text.at, text.size)
        topic = self._topics.get(raw)
        if topic is None:
            if not 0 < text.size <= TOPIC_SIZE_MAX or raw == _TIMER_TOPIC:
                return None
            topic = TimedTopic()
            try:
                topic.name = raw.decode()
            except UnicodeDecodeError:
                return None
            topic.raw = raw
            topic.hash = java_hash(topic.name)
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            self._topics[raw] = topic
        self._last = topic
        return topic

    cdef int _counts_of(self, TimedTopic topic) except -1:
        """Counts of this topic follow."""
        if not topic.is_counted:
            self._counted.append(topic)
            topic.is_counted = True
        return 0

    cdef int _count(self, long long now_ms) except -1:
        """Add the counts of this call to the figures."""
        cdef TimedTopic topic
        cdef int i
        counts, stats = self._counts, self._stats
        for topic in self._counted:
            topic.is_counted = False
            if topic.entered:
                counts.entered(topic.name, now_ms, is_delete=False, count=topic.entered)
                counts.wait(topic.name, [topic.delays[i] for i in range(DELAYS)], topic.delay_s)
            if topic.delivered:
                counts.left(topic.name, now_ms, topic.delivered)
                counts.delivered(topic.name, topic.delivered)
                if self._settings.count_delayed:
                    stats.put(topic.name, topic.delivered, topic.size, topic.delivered)
                    sizes = [topic.sizes[i] for i in range(SIZES)]
                    stats.put_before(topic.name, DELAY, topic.delivered, topic.size, sizes, topic.size)
            topic.entered = topic.delivered = topic.size = topic.delay_s = 0
            memset(topic.delays, 0, sizeof(topic.delays))
            memset(topic.sizes, 0, sizeof(topic.sizes))
        self._counted.clear()
        return 0


cdef inline int _place_of(Place* places, int count, int64_t slot_ms) noexcept nogil:
    """The number of a slot; `count` if it is a new one."""
    cdef int i
    for i in range(count):
        if places[i].slot_ms == slot_ms:
            return i
    return count


cdef inline bint _takes_place(Place* places, int count, int64_t slot_ms, int64_t length_ms) noexcept nogil:
    """Has one of these slots the same place in a wheel of this length?"""
    cdef int i
    for i in range(count):
        if (places[i].slot_ms - slot_ms) % length_ms == 0:
            return True
    return False


# ── Properties ──────────────────────────────────────────────────────────────────────────────────────────────────────

cdef bint _read_timed(Text* properties, Timed* timed) noexcept nogil:
    """Read the properties of a message that the broker has put into the timer topic.

    False: they are malformed, or one of them makes the message unusual, or one that matters comes twice.
    """
    cdef const uint8_t* pair = properties.at
    cdef const uint8_t* end = properties.at + properties.size
    cdef const uint8_t* stop
    cdef const uint8_t* mark
    cdef Py_ssize_t size
    cdef Text value
    cdef int seen = 0, bit
    cdef bint is_read
    timed.deliver_ms = timed.delay_ms = 0
    if properties.size == 0 or (end - 1)[0] != 2 or memchr(properties.at, 0, properties.size) != NULL:
        return False
    while pair < end:
        stop = <const uint8_t*>memchr(pair, 2, end - pair)
        mark = <const uint8_t*>memchr(pair, 1, stop - pair)
        if mark == NULL or memchr(mark + 1, 1, stop - mark - 1) != NULL:
            return False
        size = mark - pair
        value.at = mark + 1
        value.size = stop - mark - 1
        bit = 0
        is_read = True
        if _ends_with(pair, size, b"TIMER_ENQUEUE_MS", 16) or _ends_with(pair, size, b"__CRC32#", 8):
            return False
        if size > 6 and memcmp(pair, b"TIMER_", 6) == 0:
            if equals(pair, size, b"TIMER_OUT_MS", 12):
                bit = 1
                is_read = text_number(&value, 0, TIME_MAX, &timed.slot_ms)
            elif equals(pair, size, b"TIMER_DELIVER_MS", 16):
                bit = 2
                is_read = text_number(&value, 1, TIME_MAX, &timed.deliver_ms)
            elif equals(pair, size, b"TIMER_DELAY_MS", 14):
                bit = 2
                is_read = text_number(&value, 1, DELAY_MAX, &timed.delay_ms)
            elif equals(pair, size, b"TIMER_DELAY_SEC", 15):
                bit = 2
                is_read = text_number(&value, 1, DELAY_MAX, &timed.delay_ms)
                timed.delay_ms *= 1000
            else:
                return False  # a recall, or it has rolled
        elif equals(pair, size, b"REAL_TOPIC", 10):
            bit = 4
            timed.topic = value
        elif equals(pair, size, b"REAL_QID", 8):
            bit = 8
            is_read = text_number(&value, 0, 0x7FFFFFFF, &timed.queue_id)
        if seen & bit or not is_read:
            return False
        seen |= bit
        pair = stop + 1
    return seen == 15


cdef inline bint _ends_with(const uint8_t* name, Py_ssize_t size, const char* end, Py_ssize_t end_size) noexcept nogil:
    return size >= end_size and memcmp(name + size - end_size, end, end_size) == 0


cdef inline int64_t _exact_ms(Timed* timed, int64_t stored_ms) noexcept nogil:
    """When a message is due, as timing.exact_ms says it; 0: it is not within a second after its slot began."""
    cdef int64_t due_ms = timed.deliver_ms if timed.deliver_ms else stored_ms + timed.delay_ms
    return due_ms if timed.slot_ms < due_ms <= timed.slot_ms + 1000 else 0


# ── Numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef inline int64_t _int64_at(const uint8_t* p) noexcept nogil:
    return <int64_t>((<uint64_t>int32_at(p) << 32) | int32_at(p + 4))


cdef inline void _put_int64(uint8_t* out, int64_t value) noexcept nogil:
    put_int32(out, <uint32_t>(<uint64_t>value >> 32))
    put_int32(out + 4, <uint32_t>value)
