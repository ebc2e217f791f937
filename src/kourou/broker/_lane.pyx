"""The compiled lane of the broker: usual sends and pulls, from the bytes of one read to the bytes of all answers.

    read ─▶ frame ─▶ header, field by field ─▶ what the topic or group may do ─▶ record in the log ─▶ answer
                          └ anything unusual: this frame and all behind it go to the general path, untouched, in order

lane.py says what the lane takes and what it leaves to others. A request that is handed over has changed nothing here:
each function below looks at everything first and writes at the end. So the lane and the general path can only differ
where it takes something, and tests/property/test_lane.py looks there.

What a topic or a pulling group may do is kept in `_Topic` and `_Pull`. Only steps of the machine change what that
depends on, and each of them begins with `tables_may_change`; then what is kept is compared with the tables again.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from kourou.protocol.record cimport Scanner
from kourou.protocol.scan cimport (
    int32_at,
    kourou_special,
    number,
    put,
    put_int32,
    put_number,
    string_end,
    unescape,
)
from kourou.store.appending cimport Appender
from kourou.store.commit_log cimport CommitLog
from kourou.store.consume_queue cimport ConsumeQueue
from kourou.store.crc cimport kourou_crc32
from kourou.store.dispatch cimport Dispatcher
from kourou.store.writer cimport publish_at, write_up_to_properties

import msgspec

from kourou.broker import names, subscriptions
from kourou.broker.settings import READ, Role
from kourou.protocol.codes import CURRENT_VERSION
from kourou.protocol.command import OUR_LANGUAGE
from kourou.protocol.frame import FRAME_SIZE_MAX
from kourou.protocol.properties import PROPERTIES_SIZE_MAX, Property
from kourou.protocol.record import FILLER_SIZE_MIN, MAGIC_V1, RECORD_CRC_SIZE, RECORD_SIZE_MIN
from kourou.store.errors import StoreError
from kourou.store.consume_queue_ext import ADDRESS_MAX

cdef extern from *:
    """
    /* Has any of these bytes its highest bit set? */
    static inline int kourou_has_high(const uint8_t* p, size_t size) {
        uint64_t all = 0, x;
        for (; size >= 8; size -= 8, p += 8) {
            memcpy(&x, p, 8);
            all |= x;
        }
        while (size--) all |= *p++;
        return (all & 0x8080808080808080ULL) != 0;
    }
    """
    bint kourou_has_high(const uint8_t* p, size_t size) noexcept nogil

cdef object _json = msgspec.json.encode
cdef object _slave = Role.SLAVE

cdef enum:
    SEND_V2 = 310
    SEND_BATCH = 320
    PULL = 11
    HEADER_MAX = 65536
    SCRATCH_SIZE = 65536
    NAMES_MAX = 48
    KNOWN_MAX = 4096
    KEPT_CAPACITY = 1048576
    TRANSACTION = 0xC
    MULTI_TAGS = 0x2
    HOST_BITS = 0x30
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    COMMIT_OFFSET = 1
    SUBSCRIPTION_GIVEN = 4
    BULK = 65536
    TOPIC_SIZE_MAX = 127
    BLANK_SIZE = 0x7FFFFFFF
    BATCH_ENTRY_MIN = 22

cdef int32_t _MAGIC = MAGIC_V1
cdef int _FIXED_SIZE = RECORD_SIZE_MIN - 17
cdef int _FILLER_SIZE = FILLER_SIZE_MIN
cdef int _CRC_ROOM = RECORD_CRC_SIZE + 1
cdef int _PROPERTIES_MAX = PROPERTIES_SIZE_MAX
cdef int _FRAME_MAX = FRAME_SIZE_MAX
cdef int _READ = READ
cdef int64_t _ADDRESS_MAX = ADDRESS_MAX
cdef int64_t INT32_LOW = -2147483648, INT32_HIGH = 2147483647
cdef int64_t WIDE = <int64_t>1 << 59  # more than any offset or time

cdef bytes _HEAD = b'{"code":0,"extFields":{'
cdef bytes _TAIL = f',"serializeTypeCurrentRPC":"JSON","version":{int(CURRENT_VERSION)}}}'.encode()
cdef bytes _ANSWER = b'},"flag":1,"language":' + _json(OUR_LANGUAGE) + b',"opaque":'


# ── Properties with a meaning to the broker ─────────────────────────────────────────────────────────────────────────
# A message with one of these goes to the general path. Others, those of users among them, are only stored.

_HARMLESS = {
    Property.KEYS,
    Property.TAGS,
    Property.UNIQUE_KEY,
    Property.WAIT_STORED,
    Property.SHARDING_KEY,
    Property.INSTANCE_ID,
    Property.BUYER_ID,
    Property.TRACE_CONTEXT,
}
cdef list _MEANINGFUL = sorted(
    value.encode() for name, value in vars(Property).items() if name.isupper() and value not in _HARMLESS
)

cdef struct Text:
    const uint8_t* at
    Py_ssize_t size

cdef Text _meaningful[256]


cdef inline uint8_t _place(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    return <uint8_t>(size * 37 + name[0] * 131 + name[size - 1] * 17 + name[size >> 1])


cdef bint _has_meaning(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    cdef uint8_t place = _place(name, size)
    while _meaningful[place].at != NULL:
        if _meaningful[place].size == size and memcmp(_meaningful[place].at, name, size) == 0:
            return True
        place += 1
    return False


cdef void _enter_names():
    cdef bytes name
    cdef uint8_t place
    memset(_meaningful, 0, sizeof(_meaningful))
    for name in _MEANINGFUL:
        place = _place(<const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        while _meaningful[place].at != NULL:
            place += 1
        _meaningful[place].at = <const uint8_t*>PyBytes_AS_STRING(name)
        _meaningful[place].size = PyBytes_GET_SIZE(name)


_enter_names()


# ── Headers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

cdef enum:
    A_GROUP, B_TOPIC, C_DEFAULT, D_QUEUES, E_QUEUE, F_SYS_FLAG, G_BORN, H_FLAG, I_PROPERTIES, J_TIMES, K_UNIT, L_TIMES
    M_BATCH, N_BROKER
    TOPIC, GROUP, QUEUE_ID, QUEUE_OFFSET, MAX_NUMS, SYS_FLAG, COMMIT, SUSPEND, SUB_VERSION, SUBSCRIPTION, EXPRESSION
    MAX_BYTES, SOURCE
    FIELD_COUNT
    IGNORED
    UNKNOWN

cdef uint32_t _SEND_NEEDS = 0xFF  # a … h
cdef uint32_t _PULL_NEEDS = 0x1FF << TOPIC  # topic … subVersion

cdef struct Request:
    int32_t code, opaque, flag
    uint32_t seen  # a bit for each field
    bint escaped  # the properties have escapes
    Text fields[FIELD_COUNT]
    const uint8_t* body
    Py_ssize_t body_size


cdef inline bint _is(const uint8_t* text, Py_ssize_t size, const char* name, Py_ssize_t name_size) noexcept nogil:
    return size == name_size and memcmp(text, name, size) == 0


cdef int _field(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    if size == 1:
        return (name[0] - c'a') if c'a' <= name[0] <= c'n' else UNKNOWN
    if size == 5:
        if memcmp(name, b"topic", 5) == 0:
            return TOPIC
        return IGNORED if memcmp(name, b"bname", 5) == 0 else UNKNOWN
    if size == 7:
        if memcmp(name, b"queueId", 7) == 0:
            return QUEUE_ID
        return SYS_FLAG if memcmp(name, b"sysFlag", 7) == 0 else UNKNOWN
    if size == 10:
        if memcmp(name, b"maxMsgNums", 10) == 0:
            return MAX_NUMS
        return SUB_VERSION if memcmp(name, b"subVersion", 10) == 0 else UNKNOWN
    if size == 11:
        if memcmp(name, b"queueOffset", 11) == 0:
            return QUEUE_OFFSET
        return MAX_BYTES if memcmp(name, b"maxMsgBytes", 11) == 0 else UNKNOWN
    if size == 12:
        if memcmp(name, b"commitOffset", 12) == 0:
            return COMMIT
        return SUBSCRIPTION if memcmp(name, b"subscription", 12) == 0 else UNKNOWN
    if size == 13:
        if memcmp(name, b"consumerGroup", 13) == 0:
            return GROUP
        return SOURCE if memcmp(name, b"requestSource", 13) == 0 else UNKNOWN
    if _is(name, size, b"suspendTimeoutMillis", 20):
        return SUSPEND
    if _is(name, size, b"expressionType", 14):
        return EXPRESSION
    if _is(name, size, b"lo", 2) or _is(name, size, b"ns", 2) or _is(name, size, b"nsd", 3):
        return IGNORED
    if _is(name, size, b"oway", 4):
        return IGNORED
    return UNKNOWN


cdef const uint8_t* _scan_fields(const uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Past the object of header fields that starts at p; NULL: something is unusual."""
    cdef const uint8_t* name
    cdef const uint8_t* stop
    cdef int field
    cdef bint escaped = False
    if p >= end or p[0] != c'{':
        return NULL
    p += 1
    while True:
        if end - p < 8 or p[0] != c'"':
            return NULL
        name = p + 1
        if name[1] == c'"':
            stop = name + 1
        else:
            stop = string_end(name, end, &escaped)
            if stop == NULL or escaped:
                return NULL
        field = _field(name, stop - name)
        p = stop + 1
        if field == UNKNOWN or end - p < 3 or p[0] != c':' or p[1] != c'"':
            return NULL
        p += 2
        stop = string_end(p, end, &escaped)
        if stop == NULL or (escaped and field != I_PROPERTIES):
            return NULL
        if field != IGNORED:
            if request.seen & (<uint32_t>1 << field):
                return NULL
            request.seen |= <uint32_t>1 << field
            request.fields[field].at = p
            request.fields[field].size = stop - p
            if field == I_PROPERTIES:
                request.escaped = escaped
        p = stop + 1
        if p >= end:
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p += 1


cdef bint _scan(const uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Read a JSON header. False: something is unusual."""
    cdef const uint8_t* key
    cdef const uint8_t* stop
    cdef Py_ssize_t size
    cdef int32_t version = 0
    cdef bint escaped = False, has_fields = False
    request.code = request.opaque = request.flag = 0
    request.seen = 0
    request.escaped = False
    if end - p < 2 or p[0] != c'{':
        return False
    p += 1
    while True:
        if p >= end or p[0] != c'"':
            return False
        key = p + 1
        stop = string_end(key, end, &escaped)
        if stop == NULL or escaped or end - stop < 3 or stop[1] != c':':
            return False
        size = stop - key
        p = stop + 2
        if _is(key, size, b"code", 4):
            p = number(p, end, &request.code)
            if request.code != SEND_V2 and request.code != SEND_BATCH and request.code != PULL:
                return False
        elif _is(key, size, b"opaque", 6):
            p = number(p, end, &request.opaque)
        elif _is(key, size, b"flag", 4):
            p = number(p, end, &request.flag)
        elif _is(key, size, b"version", 7):
            p = number(p, end, &version)
        elif _is(key, size, b"extFields", 9):
            if has_fields:
                return False
            has_fields = True
            p = _scan_fields(p, end, request)
        elif p[0] != c'"':
            return False
        else:
            stop = string_end(p + 1, end, &escaped)
            if stop == NULL or escaped:
                return False
            if _is(key, size, b"language", 8):
                if stop == p + 1:
                    return False
            elif _is(key, size, b"serializeTypeCurrentRPC", 23):
                if not _is(p, stop - p, b'"JSON', 5):
                    return False
            elif not _is(key, size, b"remark", 6):
                return False
            p = stop + 1
        if p == NULL or p >= end:
            return False
        if p[0] == c'}':
            return p + 1 == end
        if p[0] != c',':
            return False
        p += 1


cdef bint _int(Request* request, int field, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """The number in a field, as everybody writes it: no sign but a minus, no zero before it. False: there is none."""
    cdef const uint8_t* p = request.fields[field].at
    cdef Py_ssize_t size = request.fields[field].size
    cdef const uint8_t* end = p + size
    cdef bint negative = size > 1 and p[0] == c'-'
    cdef int64_t n = 0
    if negative:
        p += 1
    if end - p < 1 or end - p > 18 or (p[0] == c'0' and size > 1):
        return False
    while p < end:
        if not c'0' <= p[0] <= c'9':
            return False
        n = n * 10 + (p[0] - c'0')
        p += 1
    if negative:
        n = -n
    value[0] = n
    return low <= n <= high


cdef inline bint _has(Request* request, int field) noexcept nogil:
    return (request.seen >> field) & 1


cdef bint _maybe_int32(Request* request, int field, int64_t* value) noexcept nogil:
    """The same of a field that may be missing: then it is 0."""
    value[0] = 0
    return not _has(request, field) or _int(request, field, INT32_LOW, INT32_HIGH, value)


cdef int _maybe_bool(Request* request, int field) noexcept nogil:
    """0 or 1; missing is 0. -1: something else."""
    cdef Text* text = &request.fields[field]
    if not _has(request, field) or _is(text.at, text.size, b"false", 5):
        return 0
    return 1 if _is(text.at, text.size, b"true", 4) else -1


# ── Properties of one message ───────────────────────────────────────────────────────────────────────────────────────

cdef struct Properties:
    const uint8_t* at
    Py_ssize_t size
    bint closed  # they end in 0x02, or are empty
    Text unique_key
    bint waits  # nothing says that the answer need not wait for the disk


cdef bint _walk(Properties* found) noexcept nogil:
    """Look at each pair. False: one is odd, or has a meaning, or there are too many; so somebody else must look."""
    cdef Text seen[NAMES_MAX]
    cdef int count = 0, i
    cdef const uint8_t* pair = found.at
    cdef const uint8_t* end = found.at + found.size
    cdef const uint8_t* stop
    cdef const uint8_t* mark
    cdef Py_ssize_t size
    found.closed = found.size == 0 or (end - 1)[0] == 2
    found.waits = True
    found.unique_key.at = NULL
    found.unique_key.size = 0
    if found.size and memchr(found.at, 0, found.size) != NULL:
        return False
    while pair < end:
        stop = <const uint8_t*>memchr(pair, 2, end - pair)
        if stop == NULL:
            stop = end
        mark = <const uint8_t*>memchr(pair, 1, stop - pair)
        if mark == NULL or mark == pair or mark + 1 == stop or count == NAMES_MAX:
            return False
        size = mark - pair
        if _has_meaning(pair, size):
            return False
        for i in range(count):
            if seen[i].size == size and memcmp(seen[i].at, pair, size) == 0:
                return False
        seen[count].at = pair
        seen[count].size = size
        count += 1
        if size == 8 and memcmp(pair, b"UNIQ_KEY", 8) == 0:
            found.unique_key.at = mark + 1
            found.unique_key.size = stop - mark - 1
        elif size == 4 and memcmp(pair, b"WAIT", 4) == 0:
            found.waits = _is(mark + 1, stop - mark - 1, b"true", 4)
        pair = stop + 1
    return True


# ── What is kept between requests ───────────────────────────────────────────────────────────────────────────────────

cdef class _Queue:
    """One queue of a topic that is sent to."""

    cdef ConsumeQueue queue
    cdef long long epoch


cdef class _Topic:
    """A topic that may be sent to."""

    cdef str name
    cdef bytes raw
    cdef object config
    cdef long long epoch
    cdef int queue_limit, sys_flag
    cdef dict queues
    cdef long long count, size, calls  # since they were last added to the statistics


cdef class _Pull:
    """A group that may pull from a topic."""

    cdef str topic, group
    cdef bytes key
    cdef object topic_config, group_config
    cdef object members, subscription  # as the group has it; None if the pull brings its own
    cdef long long epoch
    cdef int queue_limit
    cdef bint all_tags
    cdef long long* codes
    cdef Py_ssize_t code_count
    cdef long long sub_version, broker_id, slow_broker_id
    cdef bytes tail  # the end of the answer's fields

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef _want(self, wanted):
        cdef Py_ssize_t i = 0
        self.all_tags = wanted is None
        if wanted is None:
            return
        self.code_count = len(wanted)
        self.codes = <long long*>PyMem_Malloc(max(self.code_count, 1) * sizeof(long long))
        if self.codes == NULL:
            raise MemoryError
        for code in wanted:
            self.codes[i] = code
            i += 1

    cdef inline bint wants(self, long long code) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.code_count):
            if self.codes[i] == code:
                return True
        return False


cdef struct Out:
    uint8_t* data
    Py_ssize_t size, capacity

cdef struct Piece:
    const uint8_t* at
    Py_ssize_t size


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
    """What was written, for once and all; a large buffer is not kept."""
    cdef bytes taken = PyBytes_FromStringAndSize(<const char*>out.data, out.size) if out.size else b""
    out.size = 0
    if out.capacity > KEPT_CAPACITY:
        PyMem_Free(out.data)
        out.data = NULL
        out.capacity = 0
    return taken


cdef inline uint8_t* _put_bytes(uint8_t* out, bytes text) noexcept:
    return put(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline uint8_t* _put_hex(uint8_t* out, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(16):
        out[i] = b"0123456789ABCDEF"[(value >> (60 - 4 * i)) & 15]
    return out + 16


cdef class FastLane:
    """See the module's text, and lane.py."""

    cdef object _settings, _store, _cleaner, _send_part, _puts, _topics, _groups, _clients, _offsets, _stats, _reader
    cdef object _queues, _ext, _cluster, _clock, _durability
    cdef CommitLog _log
    cdef Appender _appender
    cdef Dispatcher _dispatcher
    cdef bint _is_sync  # `Durability.must_wait`, as of `_epoch`
    cdef Py_ssize_t _answers_max

    # What settings say, as of `_epoch`.
    cdef long long _epoch, _looked
    cdef bint _may_send, _may_pull, _slave_read
    cdef long long _sends_from_ms, _batch_max, _batch_messages_max, _waiting_max
    cdef bytes _stored_suffix  # properties that every message gets
    cdef bytes _answer_fields  # fields that every answer to a send has
    cdef bytes _host_hex

    cdef dict _known_topics, _known_pulls
    cdef _Topic _last_topic
    cdef _Pull _last_pull
    cdef list _counted

    # Of the read that is being served.
    cdef Out _out, _held
    cdef Py_ssize_t _held_count
    cdef long long _waiting
    cdef bytes _born_host
    cdef uint8_t* _scratch
    cdef bint _is_bulk  # a pull in bulk was served
    cdef bint _may_send_by_clock  # startAcceptSendRequestTimeStamp has passed
    cdef bint _looked_at_log  # the next three are up to date
    cdef long long _log_start, _trusted
    cdef long long _window, _memory_count, _memory_size, _disk_count, _disk_size, _scan_count
    cdef long long _file_size, _segment_start
    cdef const unsigned char[::1] _segment
    cdef list _buffers  # keep the mapped memory that pieces point into
    cdef Scanner _checker
    cdef Piece* _pieces
    cdef Py_ssize_t _piece_count, _piece_capacity

    def __cinit__(self):
        self._scratch = <uint8_t*>PyMem_Malloc(SCRATCH_SIZE)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)
        PyMem_Free(self._out.data)
        PyMem_Free(self._held.data)
        PyMem_Free(self._pieces)

    def __init__(
        self, settings, store, send, puts, topics, groups, clients, offsets, stats, *, answers_max
    ):
        """`answers_max`: a read is served no further once its answers have as many bytes."""
        self._settings = settings
        self._store = store
        self._clock = store.clock
        self._cleaner = store._cleaner
        self._log = store.log
        self._dispatcher = store._dispatcher
        self._appender = store._appender
        self._queues = store.queues._open
        self._reader = store.reader
        self._send_part = send
        self._puts = puts
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._stats = stats
        self._durability = store.durability
        self._answers_max = answers_max
        self._epoch = 1
        self._known_topics = {}
        self._known_pulls = {}
        self._counted = []
        self._buffers = []
        self._file_size = self._log.segments.file_size
        self._segment_start = -1
        self._host_hex = self._log.store_host.hex().upper().encode()

    # ── A read ────────────────────────────────────────────────────────────────────────────────────────────────────

    cpdef tables_may_change(self):
        """A step of the machine begins: what is kept must be looked at again."""
        self._epoch += 1

    def serve(self, peer, bytes data not None, long long now_ms):
        """Serve the frames at the head of `data`, up to the first one that is unusual or not whole.

        Returns the bytes used, the answers, answers that must wait for the disk with their number, and whether the peer
        reads in bulk.
        """
        cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data), at = 0, stop
        cdef int32_t size
        cdef uint32_t word
        cdef Request request
        cdef bint served
        cdef long long stamp_ms
        if self._looked != self._epoch:
            self._look()
        self._out.size = self._held.size = self._held_count = 0
        self._waiting = self._puts.waiting
        self._born_host = peer.host
        self._looked_at_log = self._is_bulk = False
        self._may_send_by_clock = self._clock.at(now_ms) >= self._sends_from_ms
        stamp_ms = self._clock.stamp(now_ms)
        try:
            while end - at >= 8:
                size = <int32_t>int32_at(base + at)
                if size < 4 or size > _FRAME_MAX:
                    break
                stop = at + 4 + size
                word = int32_at(base + at + 4)
                if stop > end or word > HEADER_MAX or word > <uint32_t>(size - 4):
                    break
                if not _scan(base + at + 8, base + at + 8 + word, &request):
                    break
                if kourou_has_high(base + at + 8, word) and not _is_utf8(base + at + 8, word):
                    break
                request.body = base + at + 8 + word
                request.body_size = base + stop - request.body
                if request.code == PULL:
                    served = self._serve_pull(&request)
                elif request.code == SEND_BATCH or _maybe_bool(&request, M_BATCH) == 1:
                    served = self._serve_batch(&request, stamp_ms)
                else:
                    served = self._serve_send(&request, stamp_ms)
                if not served:
                    break
                at = stop
                if self._out.size >= self._answers_max:
                    break
        finally:
            self._count()
            self._let_go()
        return at, _taken(&self._out), _taken(&self._held), self._held_count, self._is_bulk

    cdef _let_go(self):
        """Nothing of the log is kept mapped for us between reads."""
        if self._segment_start >= 0:
            self._segment_start = -1
            self._segment = None
            self._checker = None
            self._buffers.clear()

    cdef _count(self):
        cdef _Topic topic
        if self._counted:
            for topic in self._counted:
                self._stats.put(topic.name, topic.count, topic.size, topic.calls)
                topic.count = topic.size = topic.calls = 0
            self._counted.clear()

    cdef _look(self):
        """What the settings and the store allow at all."""
        settings = self._settings
        is_master = settings.role is not _slave
        self._may_send = (
            is_master
            and settings.is_writable
            and self._cleaner.refusal is None
            and not self._appender._record_crc
        )
        self._may_pull = is_master and settings.is_readable and not settings.reject_pull_consumers
        self._may_pull = self._may_pull and not self._groups.forbidden and not self._offsets._reset
        self._slave_read = settings.slave_read
        self._is_sync = self._durability.must_wait
        self._sends_from_ms = settings.accept_sends_from_ms
        self._batch_max = settings.max_body_size
        self._batch_messages_max = settings.batch_messages_max
        self._waiting_max = self._puts._waiting_max
        ext = self._send_part.answer_ext
        if ext is not self._ext or settings.cluster != self._cluster:
            self._ext = ext
            self._cluster = settings.cluster
            region, trace_on = ext["MSG_REGION"], ext["TRACE_ON"]
            self._stored_suffix = "".join(
                f"{name}\x01{value}\x02"
                for name, value in (("MSG_REGION", region), ("TRACE_ON", trace_on), ("CLUSTER", settings.cluster))
            ).encode()
            self._answer_fields = b'"MSG_REGION":' + _json(region) + b',"TRACE_ON":' + _json(trace_on)
            if not (region and trace_on and (region + settings.cluster).isprintable() and settings.cluster):
                self._ext = None  # nothing that could be stored
        if self._ext is None:
            self._may_send = False
        self._looked = self._epoch

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    cdef _Topic _topic(self, Text* text):
        """The topic of a send; None if somebody else must judge."""
        cdef _Topic topic = self._last_topic
        cdef bytes raw
        if (
            topic is None
            or PyBytes_GET_SIZE(topic.raw) != text.size
            or memcmp(PyBytes_AS_STRING(topic.raw), text.at, text.size) != 0
        ):
            raw = PyBytes_FromStringAndSize(<const char*>text.at, text.size)
            topic = self._known_topics.get(raw)
            if topic is None:
                topic = self._learn_topic(raw)
                if topic is None:
                    return None
            self._last_topic = topic
        if topic.epoch != self._epoch:
            if self._topics.table.get(topic.name) is not topic.config:
                self._known_topics.pop(topic.raw, None)
                self._last_topic = None
                return self._learn_topic(topic.raw)
            topic.epoch = self._epoch
        return topic

    cdef _Topic _learn_topic(self, bytes raw):
        cdef _Topic topic
        cdef str name = raw.decode()
        config = self._topics.table.get(name)
        if (
            config is None
            or not 0 < len(raw) <= TOPIC_SIZE_MAX
            or name in names.NOT_FOR_SENDING
            or name.startswith(names.RETRY_PREFIX)
        ):
            return None
        topic = _Topic()
        topic.name = name
        topic.raw = raw
        topic.config = config
        topic.epoch = self._epoch
        topic.queue_limit = max(config.read_queue_nums, config.write_queue_nums)
        topic.sys_flag = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        topic.queues = {}
        if len(self._known_topics) >= KNOWN_MAX:
            self._known_topics.clear()
        self._known_topics[raw] = topic
        return topic

    cdef _Queue _queue(self, _Topic topic, int queue_id):
        """A queue that is open; None if it is not."""
        cdef _Queue queue = topic.queues.get(queue_id)
        if queue is None or queue.epoch != self._epoch:
            opened = self._queues.get(topic.name)
            found = opened.get(queue_id) if opened is not None else None
            if found is None:
                return None
            if queue is None or queue.queue is not found:
                queue = _Queue()
                queue.queue = found
                topic.queues[queue_id] = queue
            queue.epoch = self._epoch
        return queue

    cdef bint _may_send_now(self, Request* request) noexcept:
        return (
            self._may_send
            and self._may_send_by_clock
            and self._log._failed is None
            and self._waiting + self._held_count < self._waiting_max
            and request.seen & _SEND_NEEDS == _SEND_NEEDS
            and (request.flag == 0 or request.flag == 2)
        )

    cdef bint _serve_send(self, Request* request, long long stamp_ms) except -1:
        cdef int64_t queue_id, sys_flag, born_ms, flag, times
        cdef Properties properties
        cdef _Topic topic
        cdef _Queue queue
        cdef Py_ssize_t size, properties_size
        cdef long long offset, queue_offset
        cdef uint8_t* p
        if not self._may_send_now(request) or not _numbers(request, &queue_id, &sys_flag, &born_ms, &flag, &times):
            return False
        if _maybe_bool(request, M_BATCH) != 0 or sys_flag & TRANSACTION:
            return False
        if request.body_size == 0 or request.body_size > self._log.max_body_size:
            return False
        if not self._unescape(request, &properties) or not _walk(&properties):
            return False
        if properties.unique_key.size == 0 or (self._is_sync and not properties.waits):
            return False
        p = <uint8_t*>properties.unique_key.at
        if kourou_special(p, p + properties.unique_key.size) != p + properties.unique_key.size:
            return False
        topic = self._topic(&request.fields[B_TOPIC])
        if topic is None or not 0 <= queue_id < topic.queue_limit:
            return False
        queue = self._queue(topic, <int>queue_id)
        if queue is None:
            return False
        properties_size = (
            properties.size + (0 if properties.closed else 1) + PyBytes_GET_SIZE(self._stored_suffix)
        )
        if properties_size > _PROPERTIES_MAX:
            return False
        size = self._record_size(topic, request.body_size, properties_size)
        if self._log.end - self._log._start + size + _FILLER_SIZE > self._log._limit:
            return False

        queue_offset = queue.queue.next_offset
        offset = self._log.end
        p = self._write(
            topic, queue, <int>flag, <int>sys_flag, born_ms, <int>times, request.body, request.body_size, properties_size,
            stamp_ms,
        )
        p = put(p, <const char*>properties.at, properties.size)
        if not properties.closed:
            p[0] = 2
            p += 1
        _put_bytes(p, self._stored_suffix)
        self._written(topic, queue, size)
        topic.calls += 1
        if request.flag == 0:
            self._answer_send(request, queue_id, queue_offset, offset, &properties.unique_key)
        return True

    cdef bint _unescape(self, Request* request, Properties* properties) noexcept:
        """The properties in the header, without their escapes."""
        cdef Text* text = &request.fields[I_PROPERTIES]
        if not _has(request, I_PROPERTIES):
            properties.at = self._scratch
            properties.size = 0
        elif not request.escaped:
            properties.at = text.at
            properties.size = text.size
        elif text.size > SCRATCH_SIZE:
            return False
        else:
            properties.at = self._scratch
            properties.size = unescape(text.at, text.at + text.size, self._scratch)
        return properties.size >= 0

    cdef inline Py_ssize_t _record_size(self, _Topic topic, Py_ssize_t body_size, Py_ssize_t properties_size) noexcept:
        return (
            _FIXED_SIZE
            + PyBytes_GET_SIZE(self._born_host)
            + PyBytes_GET_SIZE(self._log.store_host)
            + body_size
            + 1
            + PyBytes_GET_SIZE(topic.raw)
            + properties_size
        )

    cdef uint8_t* _write(
        self,
        _Topic topic,
        _Queue queue,
        int flag,
        int sys_flag,
        long long born_ms,
        int times,
        const uint8_t* body,
        Py_ssize_t body_size,
        Py_ssize_t properties_size,
        long long stamp_ms,
    ) except NULL:
        """Write the next record up to its properties; where these go. The room is there."""
        cdef CommitLog log = self._log
        cdef Py_ssize_t born_size = PyBytes_GET_SIZE(self._born_host), store_size = PyBytes_GET_SIZE(log.store_host)
        cdef int host_bits = (BORN_HOST_V6 if born_size == 20 else 0) | (STORE_HOST_V6 if store_size == 20 else 0)
        cdef int crc = _crc(body, body_size)
        if stamp_ms > log.stored_ms:
            log.stored_ms = stamp_ms
        return write_up_to_properties(
            &log._view[log.end - log._start],
            crc,
            queue.queue.queue_id,
            flag,
            queue.queue.next_offset,
            log.end,
            ((sys_flag | topic.sys_flag) & ~HOST_BITS) | host_bits,
            born_ms,
            PyBytes_AS_STRING(self._born_host),
            born_size,
            log.stored_ms,
            PyBytes_AS_STRING(log.store_host),
            store_size,
            times,
            0,
            body,
            body_size,
            PyBytes_AS_STRING(topic.raw),
            PyBytes_GET_SIZE(topic.raw),
            properties_size,
        )

    cdef int _written(self, _Topic topic, _Queue queue, Py_ssize_t size) except -1:
        """The record at the end of the log is complete."""
        cdef CommitLog log = self._log
        publish_at(&log._view[log.end - log._start], <int>size, _MAGIC)
        log.end += size
        queue.queue.next_offset += 1
        if topic.count == 0:
            self._counted.append(topic)
        topic.count += 1
        topic.size += size
        return 0

    cdef int _answer_send(
        self,
        Request* request,
        long long queue_id,
        long long queue_offset,
        long long offset,
        Text* unique_key,
    ) except -1:
        cdef Out* out = &self._held if self._is_sync else &self._out
        cdef uint8_t* p
        _make_room(out, 512 + PyBytes_GET_SIZE(self._answer_fields) + unique_key.size)
        p = self._begin_ids(out.data + out.size)
        p = self._put_id(p, offset)
        out.size = self._end_answer(out, p, request.opaque, queue_id, queue_offset, unique_key)
        if self._is_sync:
            self._held_count += 1
        return 0

    cdef inline uint8_t* _begin_ids(self, uint8_t* p) noexcept:
        """Behind the room for the two sizes of a frame, the answer up to the ids of the messages."""
        p = _put_bytes(p + 8, _HEAD)
        return put(p, b'"msgId":"', 9)

    cdef inline uint8_t* _put_id(self, uint8_t* p, long long offset) noexcept:
        return _put_hex(_put_bytes(p, self._host_hex), <uint64_t>offset)

    cdef Py_ssize_t _end_answer(
        self, Out* out, uint8_t* p, int32_t opaque, long long queue_id, long long queue_offset, Text* unique_key
    ) noexcept:
        """The rest of a send's answer: the size of all that is written by now."""
        cdef uint8_t* frame = out.data + out.size
        p = put(p, b'","queueId":"', 13)
        p = put_number(p, queue_id)
        p = put(p, b'","queueOffset":"', 17)
        p = put_number(p, queue_offset)
        p = put(p, b'",', 2)
        p = _put_bytes(p, self._answer_fields)
        if unique_key.at != NULL:
            p = put(p, b',"transactionId":"', 18)
            p = put(p, <const char*>unique_key.at, unique_key.size)
            p[0] = c'"'
            p += 1
        p = _put_bytes(p, _ANSWER)
        p = put_number(p, opaque)
        p = _put_bytes(p, _TAIL)
        put_int32(frame, <uint32_t>(p - frame - 4))
        put_int32(frame + 4, <uint32_t>(p - frame - 8))
        return p - out.data

    # ── Sending a batch ───────────────────────────────────────────────────────────────────────────────────────────

    cdef bint _serve_batch(self, Request* request, long long stamp_ms) except -1:
        cdef int64_t queue_id, sys_flag, born_ms, flag, times
        cdef Properties properties
        cdef _Topic topic
        cdef _Queue queue
        cdef Out* out
        cdef Py_ssize_t room, count = 0, body_size, properties_size, size
        cdef const uint8_t* entry = request.body
        cdef const uint8_t* end = request.body + request.body_size
        cdef const uint8_t* body
        cdef uint8_t* p
        cdef uint8_t* answer
        cdef long long queue_offset
        if not self._may_send_now(request) or not _numbers(request, &queue_id, &sys_flag, &born_ms, &flag, &times):
            return False
        if _maybe_bool(request, M_BATCH) < 0 or sys_flag & TRANSACTION or request.body_size > self._batch_max:
            return False
        if not self._unescape(request, &properties) or not _walk(&properties):
            return False
        if self._is_sync and not properties.waits:
            return False
        p = <uint8_t*>properties.unique_key.at
        if p != NULL and kourou_special(p, p + properties.unique_key.size) != p + properties.unique_key.size:
            return False
        topic = self._topic(&request.fields[B_TOPIC])
        if topic is None or not 0 <= queue_id < topic.queue_limit:
            return False
        queue = self._queue(topic, <int>queue_id)
        if queue is None:
            return False
        room = self._batch_room(topic, entry, end, &count)
        if room < 0 or count == 0 or count > self._batch_messages_max:
            return False
        if self._log.end - self._log._start + room + _FILLER_SIZE > self._log._limit:
            return False

        out = &self._held if self._is_sync else &self._out
        _make_room(
            out,
            512
            + PyBytes_GET_SIZE(self._answer_fields)
            + properties.unique_key.size
            + count * (17 + PyBytes_GET_SIZE(self._host_hex)),
        )
        answer = self._begin_ids(out.data + out.size)
        queue_offset = queue.queue.next_offset
        while entry < end:
            body = entry + 20
            body_size = <int32_t>int32_at(entry + 16)
            properties_size = (body[body_size] << 8) | body[body_size + 1]
            size = self._record_size(topic, body_size, properties_size)
            answer = self._put_id(answer, self._log.end)
            p = self._write(
                topic, queue, <int32_t>int32_at(entry + 12), <int>sys_flag, born_ms, <int>times, body, body_size,
                properties_size, stamp_ms,
            )
            memcpy(p, body + body_size + 2, properties_size)
            self._written(topic, queue, size)
            entry = body + body_size + 2 + properties_size
            if entry < end:
                answer[0] = c','
                answer += 1
        topic.calls += 1
        if request.flag == 0:
            out.size = self._end_answer(out, answer, request.opaque, queue_id, queue_offset, &properties.unique_key)
            if self._is_sync:
                self._held_count += 1
        return True

    cdef Py_ssize_t _batch_room(self, _Topic topic, const uint8_t* entry, const uint8_t* end, Py_ssize_t* count) noexcept:
        """Room that the messages of a batch may need in the log, and how many they are. -1: somebody else must judge."""
        cdef Py_ssize_t room = 0
        cdef int32_t size, body_size, properties_size
        cdef const uint8_t* properties
        while entry < end:
            if end - entry < BATCH_ENTRY_MIN:
                return -1
            size = <int32_t>int32_at(entry)
            body_size = <int32_t>int32_at(entry + 16)
            if size < BATCH_ENTRY_MIN or size > end - entry or body_size < 0 or body_size > size - BATCH_ENTRY_MIN:
                return -1
            if body_size > self._log.max_body_size:
                return -1
            properties = entry + 20 + body_size + 2
            properties_size = size - BATCH_ENTRY_MIN - body_size
            if properties_size > _PROPERTIES_MAX or (((properties - 2)[0] << 8) | (properties - 1)[0]) != properties_size:
                return -1
            if properties_size and memchr(properties, 0, properties_size) != NULL:
                return -1
            room += self._record_size(topic, body_size, properties_size) + _CRC_ROOM
            count[0] += 1
            entry += size
        return room

    # ── Pulling ───────────────────────────────────────────────────────────────────────────────────────────────────

    cdef _Pull _pull(self, Request* request, bint is_given):
        """What the group of a pull may do; None if somebody else must judge. `is_given`: it brings its subscription."""
        cdef _Pull pull = self._last_pull
        cdef bytes key = _pull_key(request, is_given)
        if pull is None or pull.key != key:
            pull = self._known_pulls.get(key)
            if pull is None:
                pull = self._learn_pull(request, key, is_given)
                if pull is None:
                    return None
            self._last_pull = pull
        if pull.epoch != self._epoch:
            if not self._still_holds(pull):
                self._known_pulls.pop(key, None)
                self._last_pull = None
                return self._learn_pull(request, key, is_given)
            pull.epoch = self._epoch
        return pull

    cdef bint _still_holds(self, _Pull pull) except -1:
        if self._topics.table.get(pull.topic) is not pull.topic_config:
            return False
        if self._groups.table.get(pull.group) is not pull.group_config:
            return False
        if pull.members is None:
            return True
        if self._clients.consumers.get(pull.group) is not pull.members:
            return False
        return pull.members.subscriptions.get(pull.topic) is pull.subscription

    cdef _Pull _learn_pull(self, Request* request, bytes key, bint is_given):
        cdef _Pull pull = _Pull()
        pull.key = key
        pull.topic = _text(&request.fields[TOPIC])
        pull.group = _text(&request.fields[GROUP])
        pull.epoch = self._epoch
        topic = pull.topic_config = self._topics.table.get(pull.topic)
        group = pull.group_config = self._groups.table.get(pull.group)
        if topic is None or group is None or not group.consume_enable or not group.consume_broadcast_enable:
            return None
        if not topic.perm & _READ:
            return None
        if is_given:
            given = _text(&request.fields[SUBSCRIPTION]) if _has(request, SUBSCRIPTION) else None
            kind = _text(&request.fields[EXPRESSION]) if _has(request, EXPRESSION) else None
            try:
                subscription = subscriptions.build(pull.topic, given, kind)
            except subscriptions.SubscriptionFault:
                return None
        else:
            pull.members = self._clients.consumers.get(pull.group)
            if pull.members is None:
                return None
            subscription = pull.subscription = pull.members.subscriptions.get(pull.topic)
            if subscription is None:
                return None
            pull.sub_version = subscription.sub_version
        if not subscriptions.is_by_tag(subscription.expression_type):
            return None
        pull._want(subscriptions.codes(subscription))
        pull.queue_limit = topic.read_queue_nums
        pull.broker_id = group.broker_id
        pull.slow_broker_id = group.which_broker_when_consume_slowly
        pull.tail = (
            f'","topicSysFlag":"{topic.topic_sys_flag}","groupSysFlag":"{group.group_sys_flag}"'.encode() + _ANSWER
        )
        if len(self._known_pulls) >= KNOWN_MAX:
            self._known_pulls.clear()
        self._known_pulls[key] = pull
        return pull

    cdef bint _serve_pull(self, Request* request) except -1:
        cdef int64_t queue_id, offset, max_count, sys_flag, commit_offset, ignored, sub_version, max_size
        cdef _Pull pull
        cdef ConsumeQueue queue
        cdef long long next_offset, behind = 0, size
        cdef bint is_given, is_bulk
        if not self._may_pull or request.flag != 0 or request.seen & _PULL_NEEDS != _PULL_NEEDS:
            return False
        if not (
            _int(request, QUEUE_ID, 0, INT32_HIGH, &queue_id)
            and _int(request, QUEUE_OFFSET, 0, WIDE, &offset)
            and _int(request, MAX_NUMS, 1, INT32_HIGH, &max_count)
            and _int(request, SYS_FLAG, INT32_LOW, INT32_HIGH, &sys_flag)
            and _int(request, COMMIT, -WIDE, WIDE, &commit_offset)
            and _int(request, SUSPEND, -WIDE, WIDE, &ignored)
            and _int(request, SUB_VERSION, -WIDE, WIDE, &sub_version)
            and _maybe_int32(request, MAX_BYTES, &max_size)
            and _maybe_int32(request, SOURCE, &ignored)
        ):
            return False
        is_given = (sys_flag & SUBSCRIPTION_GIVEN) != 0
        pull = self._pull(request, is_given)
        if pull is None or queue_id >= pull.queue_limit or (not is_given and pull.sub_version < sub_version):
            return False
        opened = self._queues.get(pull.topic)
        found = opened.get(queue_id) if opened is not None else None
        if found is None:
            return False
        queue = found
        if offset < queue.start or offset >= queue.end:
            return False
        if not self._looked_at_log:
            self._look_at_log()
        is_bulk = (sys_flag & BULK) != 0
        next_offset = self._collect(queue, pull, offset, max_count, max_size, is_bulk, &behind)
        if next_offset < 0:
            return False
        if is_bulk:
            self._is_bulk = True
        size = self._answer_pull(request, pull, queue, next_offset, behind)
        self._offsets.pulled_to(pull.group, pull.topic, queue_id, next_offset)
        if sys_flag & COMMIT_OFFSET:
            self._offsets.commit(pull.group, pull.topic, queue_id, commit_offset)
        self._stats.got(pull.topic, pull.group, self._piece_count, size)
        return True

    cdef _look_at_log(self):
        """Where the log begins, from where on it is as it was written, and how much a read may return."""
        limits = self._reader.limits
        self._log_start = self._log.start
        self._trusted = self._reader._trusted_from()
        self._window = limits.memory_window
        self._memory_count = limits.memory_count
        self._memory_size = limits.memory_size
        self._disk_count = limits.disk_count
        self._disk_size = limits.disk_size
        self._scan_count = limits.scan_count
        self._looked_at_log = True

    cdef long long _collect(
        self,
        ConsumeQueue queue,
        _Pull pull,
        long long offset,
        long long max_count,
        long long max_size,
        bint is_bulk,
        long long* behind,
    ) except -2:
        """Find the records of a pull: where the next one begins, and how far the last one is behind the log's end.

        -1: nothing was found, or something is damaged, and somebody else must judge.
        """
        cdef const unsigned char[::1] view
        cdef const uint8_t* p
        cdef const uint8_t* record
        cdef Py_ssize_t i, count
        cdef long long physical, code, total = 0, log_end = self._log.end
        cdef int32_t size
        self._piece_count = 0
        try:
            entries = queue.entries(offset, max(max_count, self._scan_count))
        except OSError:
            return -1
        count = len(entries) // 20
        if count == 0:
            return -1
        view = entries
        p = &view[0]
        for i in range(count):
            physical = (<int64_t>int32_at(p) << 32) | int32_at(p + 4)
            size = <int32_t>int32_at(p + 8)
            if self._piece_count and self._is_full(log_end - physical, size, total, max_count, max_size, is_bulk):
                break
            if size <= 0 or size == BLANK_SIZE or physical < self._log_start or physical + size > log_end:
                return -1
            offset += 1
            behind[0] = log_end - physical
            code = <int64_t>((<uint64_t>int32_at(p + 12) << 32) | int32_at(p + 16))
            if not pull.all_tags and code <= _ADDRESS_MAX:
                return -1  # the tags are in the queue's extension
            if pull.all_tags or pull.wants(code):
                record = self._record(physical, size)
                if record == NULL or not _fits(queue, offset - 1, record, size):
                    return -1  # the record, or the entry, is damaged
                self._add_piece(record, size)
                total += size
            p += 20
        return offset if self._piece_count else -1

    cdef inline bint _is_full(
        self, long long behind, int32_t size, long long total, long long max_count, long long max_size, bint is_bulk
    ) noexcept nogil:
        cdef long long count = self._piece_count
        if count >= max_count or (max_size > 0 and total + size > max_size):
            return True
        if behind > self._window:
            return (count >= self._disk_count and not is_bulk) or total + size > self._disk_size
        return (count >= self._memory_count and not is_bulk) or total + size > self._memory_size

    cdef const uint8_t* _record(self, long long physical, int32_t size) except? NULL:
        """A record in memory; NULL if it can't be read, or does not hold."""
        cdef long long start = physical - physical % self._file_size
        cdef Py_ssize_t at = physical - start
        cdef const uint8_t* record
        cdef Scanner checker
        if start != self._segment_start:
            try:
                buffer = self._log.segments.file(physical).buffer
            except (OSError, KeyError):
                return NULL
            self._segment = buffer
            self._buffers.append(buffer)
            self._segment_start = start
            self._checker = None
        if at + size > self._segment.shape[0] or size < 4:
            return NULL
        record = &self._segment[at]
        if <int32_t>int32_at(record) != size:
            return NULL
        if physical < self._trusted:
            if self._checker is None:
                self._checker = Scanner(self._buffers[len(self._buffers) - 1], at, at, base=start)
            checker = self._checker
            checker.move(at, at + size)
            if checker.step() != 1 or checker.size != size:
                return NULL
            if checker.body_size and _crc(&self._segment[checker.body_at], checker.body_size) != checker.body_crc:
                return NULL
        return record

    cdef int _add_piece(self, const uint8_t* at, Py_ssize_t size) except -1:
        cdef Piece* pieces
        cdef Py_ssize_t capacity
        if self._piece_count == self._piece_capacity:
            capacity = max(2 * self._piece_capacity, 64)
            pieces = <Piece*>PyMem_Realloc(self._pieces, capacity * sizeof(Piece))
            if pieces == NULL:
                raise MemoryError
            self._pieces = pieces
            self._piece_capacity = capacity
        self._pieces[self._piece_count].at = at
        self._pieces[self._piece_count].size = size
        self._piece_count += 1
        return 0

    cdef long long _answer_pull(
        self, Request* request, _Pull pull, ConsumeQueue queue, long long next_offset, long long behind
    ) except -1:
        """Write the answer with its records: how many bytes these have."""
        cdef Out* out = &self._out
        cdef uint8_t* frame
        cdef uint8_t* p
        cdef uint8_t* body
        cdef long long size = 0, suggested = 0
        cdef Py_ssize_t i
        for i in range(self._piece_count):
            size += self._pieces[i].size
        _make_room(out, 1024 + PyBytes_GET_SIZE(pull.tail) + size)
        if self._slave_read:
            suggested = pull.slow_broker_id if behind > self._window else pull.broker_id
        frame = out.data + out.size
        p = _put_bytes(frame + 8, _HEAD)
        p = put(p, b'"suggestWhichBrokerId":"', 24)
        p = put_number(p, suggested)
        p = put(p, b'","nextBeginOffset":"', 21)
        p = put_number(p, next_offset)
        p = put(p, b'","minOffset":"', 15)
        p = put_number(p, queue.start)
        p = put(p, b'","maxOffset":"', 15)
        p = put_number(p, queue.end)
        p = _put_bytes(p, pull.tail)
        p = put_number(p, request.opaque)
        p = put(p, b',"remark":"FOUND"', 17)
        body = _put_bytes(p, _TAIL)
        p = body
        for i in range(self._piece_count):
            p = put(p, <const char*>self._pieces[i].at, self._pieces[i].size)
        put_int32(frame, <uint32_t>(p - frame - 4))
        put_int32(frame + 4, <uint32_t>(body - frame - 8))
        out.size = p - out.data
        return size

    # ── Making visible ────────────────────────────────────────────────────────────────────────────────────────────

    cpdef bint dispatch(self) except -1:
        """`Store.dispatch` for what lies in the current segment. False: that one must see to it."""
        cdef CommitLog log = self._log
        cdef Scanner scanner
        cdef long long dispatched = self._store.dispatched
        if not self._durability.visible_at_once or log._failed is not None or dispatched < log._start:
            return False
        if dispatched < log.end:
            try:
                scanner = self._dispatcher.run(
                    log._buffer, dispatched - log._start, log.end - log._start, log._start, False
                )
            except (StoreError, OSError):
                return False
            self._store.dispatched = log._start + scanner.at
            return log._start + scanner.at == log.end
        return True


# ── Small things ────────────────────────────────────────────────────────────────────────────────────────────────────

cdef bint _numbers(
    Request* request, int64_t* queue_id, int64_t* sys_flag, int64_t* born_ms, int64_t* flag, int64_t* times
) noexcept nogil:
    """The numbers in the header of a send, all of which must be right whether they are needed or not."""
    cdef int64_t ignored
    return (
        _int(request, E_QUEUE, 0, INT32_HIGH, queue_id)
        and _int(request, F_SYS_FLAG, INT32_LOW, INT32_HIGH, sys_flag)
        and _int(request, G_BORN, -WIDE, WIDE, born_ms)
        and _int(request, H_FLAG, INT32_LOW, INT32_HIGH, flag)
        and _int(request, D_QUEUES, INT32_LOW, INT32_HIGH, &ignored)
        and _maybe_int32(request, J_TIMES, times)
        and _maybe_int32(request, L_TIMES, &ignored)
        and _maybe_bool(request, K_UNIT) >= 0
    )


cdef inline bint _fits(ConsumeQueue queue, long long number, const uint8_t* record, int32_t size) noexcept:
    """Does a record say that it has this place in a queue?"""
    cdef int64_t place
    if size < 28:
        return False
    place = (<int64_t>int32_at(record + 20) << 32) | int32_at(record + 24)
    return place == number and <int32_t>int32_at(record + 12) == queue.queue_id


cdef inline int _crc(const uint8_t* body, Py_ssize_t size) noexcept nogil:
    """As hashes.crc32, of a body."""
    return <int>(kourou_crc32(body, size) & <uint32_t>0x7FFFFFFF)


cdef bint _is_utf8(const uint8_t* p, Py_ssize_t size) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char*>p, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef str _text(Text* text):
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef bytes _pull_key(Request* request, bint is_given):
    """Topic and group, and the subscription where a pull brings it: a quote can be in none of them."""
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
    return b'"' + (<const char*>text.at)[: text.size] + b'"' if _has(request, field) else b""
