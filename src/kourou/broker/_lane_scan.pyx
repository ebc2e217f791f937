"""Scanning for the lane: a frame, the fields of its header, the properties of a message.

    frame ─▶ scan_frame ─▶ Request: code, flag, opaque, the place of each field, the body
                              ├ send_numbers, pull_numbers, end_numbers   the fields that are numbers
                              └ find_properties                           the properties of a send, checked pair by pair

The functions accept requests as clients usually write them. For anything else they report failure (0 or False), and the
general path serves the request.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memset

from kourou.protocol.scan cimport (
    DONE,
    UNUSUAL,
    Header,
    begin_header,
    equals,
    int32_at,
    kourou_is_ascii,
    kourou_special,
    name_end,
    next_key,
    unescape,
    value_end,
)

from kourou.protocol.frame import FRAME_SIZE_MAX
from kourou.protocol.properties import Property

cdef enum:
    HEADER_MAX = 65536
    NAMES_MAX = 48  # properties of a message

cdef int _FRAME_MAX = FRAME_SIZE_MAX
cdef int64_t INT32_LOW = -2147483648, INT32_HIGH = 2147483647
cdef int64_t TIME_MAX = <int64_t>1 << 40  # of a delay that is usual
cdef int64_t WIDE = <int64_t>1 << 59  # larger than any offset or time
cdef uint64_t _SEND_NEEDS = 0xFF  # a … h
cdef uint64_t _PULL_NEEDS = 0x1FF << TOPIC  # topic … subVersion
cdef uint64_t _END_NEEDS = (<uint64_t>1 << END_ID | <uint64_t>0xF << END_GROUP)  # msgId, producerGroup … commitOrRollback


# ── Frames and headers ──────────────────────────────────────────────────────────────────────────────────────────────

cdef Py_ssize_t scan_frame(const uint8_t* frame, Py_ssize_t size, Request* request) except -1:
    """Read the frame at the head of `size` bytes: how long it is. 0: it is not complete, or unusual."""
    cdef int32_t frame_size
    cdef uint32_t header_size
    cdef const uint8_t* header = frame + 8
    if size < 8:
        return 0
    frame_size = <int32_t>int32_at(frame)
    if frame_size < 4 or frame_size > _FRAME_MAX or frame_size > size - 4:
        return 0
    header_size = int32_at(frame + 4)
    if header_size > HEADER_MAX or header_size > <uint32_t>(frame_size - 4):
        return 0
    if not _scan_header(header, header + header_size, request):
        return 0
    if not kourou_is_ascii(header, header_size) and not _is_utf8(header, header_size):
        return 0
    request.body = header + header_size
    request.body_size = frame_size - 4 - header_size
    return frame_size + 4


cdef bint _scan_header(const uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Read a JSON header. False: it is unusual."""
    cdef Header header
    cdef bint has_fields = False
    cdef int met
    request.seen = 0
    request.escaped = False
    request.signed = False
    request.access_key.at = NULL
    request.field_count = 0
    begin_header(&header)
    while True:
        met = next_key(&p, end, &header)
        if met == DONE:
            break
        if met == UNUSUAL or has_fields or not (header.code == 0 or _is_ours(header.code)):  # 0: not read yet
            return False
        has_fields = True
        p = _scan_fields(p, end, request)
    request.code = header.code
    request.opaque = header.opaque
    request.flag = header.flag
    return _is_ours(header.code) and not header.escaped


cdef inline bint _is_ours(int32_t code) noexcept nogil:
    return code == SEND_V2 or code == PULL or code == SEND_BATCH or code == END_TRANSACTION


cdef const uint8_t* _scan_fields(const uint8_t* p, const uint8_t* end, Request* request) noexcept nogil:
    """Read the object of header fields that begins at p: where it ends. NULL: it is unusual."""
    cdef const uint8_t* stop
    cdef const uint8_t* name
    cdef int field
    cdef bint escaped = False
    if p >= end or p[0] != c'{':
        return NULL
    while True:
        p += 2
        stop = name_end(p, end)
        if stop == NULL:
            return NULL
        name = p
        field = _field(p, stop - p)
        p = stop + 3
        stop = value_end(p, end, &escaped)
        if stop == NULL or field == UNKNOWN or (escaped and field != I_PROPERTIES):
            return NULL
        if request.collects:
            if request.field_count == SIGNED_FIELDS_MAX:
                return NULL
            request.names[request.field_count].at = name
            request.names[request.field_count].size = p - 3 - name
            request.values[request.field_count].at = p
            request.values[request.field_count].size = stop - p
            request.field_count += 1
        if field == SIGNATURE:
            request.signed = True
            if name[0] == c'A':
                request.access_key.at = p
                request.access_key.size = stop - p
        elif field != IGNORED:
            if request.seen & (<uint64_t>1 << field):
                return NULL
            request.seen |= <uint64_t>1 << field
            request.fields[field].at = p
            request.fields[field].size = stop - p
            if field == I_PROPERTIES:
                request.escaped = escaped
        p = stop + 1
        if p[0] == c'}':
            return p + 1


cdef int _field(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    if size == 1:
        return (name[0] - c'a') if c'a' <= name[0] <= c'n' else UNKNOWN
    if size == 5:
        if memcmp(name, b"topic", 5) == 0:
            return TOPIC
        if memcmp(name, b"msgId", 5) == 0:
            return END_ID
        return IGNORED if memcmp(name, b"bname", 5) == 0 else UNKNOWN
    if size == 7:
        if memcmp(name, b"queueId", 7) == 0:
            return QUEUE_ID
        return SYS_FLAG if memcmp(name, b"sysFlag", 7) == 0 else UNKNOWN
    if size == 9:
        return SIGNATURE if memcmp(name, b"AccessKey", 9) == 0 or memcmp(name, b"Signature", 9) == 0 else UNKNOWN
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
        if memcmp(name, b"producerGroup", 13) == 0:
            return END_GROUP
        if memcmp(name, b"transactionId", 13) == 0:
            return END_TRANSACTION_ID
        if memcmp(name, b"SecurityToken", 13) == 0:
            return SIGNATURE
        return SOURCE if memcmp(name, b"requestSource", 13) == 0 else UNKNOWN
    if size == 20:
        if memcmp(name, b"suspendTimeoutMillis", 20) == 0:
            return SUSPEND
        if memcmp(name, b"tranStateTableOffset", 20) == 0:
            return END_QUEUE_OFFSET
        return END_FROM_CHECK if memcmp(name, b"fromTransactionCheck", 20) == 0 else UNKNOWN
    if equals(name, size, b"commitLogOffset", 15):
        return END_LOG_OFFSET
    if equals(name, size, b"commitOrRollback", 16):
        return END_OUTCOME
    if equals(name, size, b"expressionType", 14):
        return EXPRESSION
    if equals(name, size, b"lo", 2) or equals(name, size, b"ns", 2) or equals(name, size, b"nsd", 3):
        return IGNORED
    if equals(name, size, b"oway", 4):
        return IGNORED
    return UNKNOWN


cdef bint _is_utf8(const uint8_t* p, Py_ssize_t size) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char*>p, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


# ── Fields that are numbers ─────────────────────────────────────────────────────────────────────────────────────────

cdef bint send_numbers(Request* request, SendNumbers* numbers) noexcept nogil:
    """Read the numbers of a send. All of them must be valid, those that the broker ignores included."""
    cdef int64_t ignored
    return (
        request.seen & _SEND_NEEDS == _SEND_NEEDS
        and _int(request, E_QUEUE, 0, INT32_HIGH, &numbers.queue_id)
        and _int(request, F_SYS_FLAG, INT32_LOW, INT32_HIGH, &numbers.sys_flag)
        and _int(request, G_BORN, -WIDE, WIDE, &numbers.born_ms)
        and _int(request, H_FLAG, INT32_LOW, INT32_HIGH, &numbers.flag)
        and _int(request, D_QUEUES, INT32_LOW, INT32_HIGH, &ignored)
        and _maybe_int32(request, J_TIMES, &numbers.times)
        and _maybe_int32(request, L_TIMES, &ignored)
        and maybe_bool(request, K_UNIT) >= 0
    )


cdef bint pull_numbers(Request* request, PullNumbers* numbers) noexcept nogil:
    """The same of a pull."""
    cdef int64_t ignored
    return (
        request.seen & _PULL_NEEDS == _PULL_NEEDS
        and _int(request, QUEUE_ID, 0, INT32_HIGH, &numbers.queue_id)
        and _int(request, QUEUE_OFFSET, 0, WIDE, &numbers.offset)
        and _int(request, MAX_NUMS, 1, INT32_HIGH, &numbers.max_count)
        and _int(request, SYS_FLAG, INT32_LOW, INT32_HIGH, &numbers.sys_flag)
        and _int(request, COMMIT, -WIDE, WIDE, &numbers.commit_offset)
        and _int(request, SUSPEND, -WIDE, WIDE, &ignored)
        and _int(request, SUB_VERSION, -WIDE, WIDE, &numbers.sub_version)
        and _maybe_int32(request, MAX_BYTES, &numbers.max_size)
        and _maybe_int32(request, SOURCE, &ignored)
    )


cdef bint end_numbers(Request* request, EndNumbers* numbers) noexcept nogil:
    """The same of the end of a transaction."""
    return (
        request.seen & _END_NEEDS == _END_NEEDS
        and _int(request, END_QUEUE_OFFSET, 0, WIDE, &numbers.queue_offset)
        and _int(request, END_LOG_OFFSET, 0, WIDE, &numbers.log_offset)
        and _int(request, END_OUTCOME, INT32_LOW, INT32_HIGH, &numbers.outcome)
        and maybe_bool(request, END_FROM_CHECK) >= 0
    )


cdef inline bint _int(Request* request, int field, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    return text_number(&request.fields[field], low, high, value)


cdef bint text_number(Text* text, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """A number that is written as usual: no plus sign, no leading zero. False: it is not one, or out of range."""
    cdef const uint8_t* p = text.at
    cdef Py_ssize_t size = text.size
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


cdef bint _maybe_int32(Request* request, int field, int64_t* value) noexcept nogil:
    """The same of a field that may be missing, which is 0."""
    value[0] = 0
    return not has(request, field) or _int(request, field, INT32_LOW, INT32_HIGH, value)


cdef int maybe_bool(Request* request, int field) noexcept nogil:
    """0 or 1; a missing field is 0. -1: neither true nor false."""
    cdef Text* text = &request.fields[field]
    if not has(request, field) or equals(text.at, text.size, b"false", 5):
        return 0
    return 1 if equals(text.at, text.size, b"true", 4) else -1


# ── Properties of a message ─────────────────────────────────────────────────────────────────────────────────────────
# The broker acts on some properties: a message with one of these takes the general path. Others make a message a half
# message or a timed message (`_kind_of`). All others, those of users included, are only stored.

_ONLY_STORED = {
    Property.KEYS,
    Property.TAGS,
    Property.UNIQUE_KEY,
    Property.WAIT_STORED,
    Property.SHARDING_KEY,
    Property.INSTANCE_ID,
    Property.BUYER_ID,
    Property.TRACE_CONTEXT,
    Property.PRODUCER_GROUP,  # of a half message
}
_KINDS = {
    Property.TRANSACTION_PREPARED,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
}
cdef list _ACTED_ON = sorted(
    value.encode() for name, value in vars(Property).items() if name.isupper() and value not in _ONLY_STORED | _KINDS
)

cdef Text _acted_on[256]  # a hash table; free places have no text


cdef inline uint8_t _place(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    return <uint8_t>(size * 37 + name[0] * 131 + name[size - 1] * 17 + name[size >> 1])


cdef bint _is_acted_on(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    cdef uint8_t place = _place(name, size)
    while _acted_on[place].at != NULL:
        if _acted_on[place].size == size and memcmp(_acted_on[place].at, name, size) == 0:
            return True
        place += 1
    return False


cdef void _enter_names():
    cdef bytes name
    cdef uint8_t place
    memset(_acted_on, 0, sizeof(_acted_on))
    for name in _ACTED_ON:
        place = _place(<const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        while _acted_on[place].at != NULL:
            place += 1
        _acted_on[place].at = <const uint8_t*>PyBytes_AS_STRING(name)
        _acted_on[place].size = PyBytes_GET_SIZE(name)


_enter_names()


cdef bint find_properties(
    Request* request, uint8_t* scratch, Py_ssize_t scratch_size, Properties* found
) noexcept nogil:
    """The properties in the header of a send, without escapes. False: the general path must look at them.

    `scratch` is where they are written if they have escapes.
    """
    cdef Text* text = &request.fields[I_PROPERTIES]
    cdef const uint8_t* end
    found.at = scratch
    found.size = 0
    if has(request, I_PROPERTIES):
        if not request.escaped:
            found.at = text.at
            found.size = text.size
        elif text.size > scratch_size:
            return False
        else:
            found.size = unescape(text.at, text.at + text.size, scratch)
    if found.size < 0 or not _check_pairs(found):
        return False
    if found.unique_key.at == NULL:
        return True
    # The answer repeats the unique key, in JSON and without escapes.
    end = found.unique_key.at + found.unique_key.size
    return kourou_special(found.unique_key.at, end) == end


cdef bint _check_pairs(Properties* found) noexcept nogil:
    """Look at each pair. False: one is malformed, or comes twice, or is acted on; or there are too many."""
    cdef Text seen[NAMES_MAX]
    cdef int count = 0, i
    cdef const uint8_t* pair = found.at
    cdef const uint8_t* end = found.at + found.size
    cdef const uint8_t* stop
    cdef const uint8_t* mark
    cdef Py_ssize_t size
    cdef Kind kind
    cdef Text value
    found.kind = PLAIN
    found.is_ordered = False
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
        if _is_acted_on(pair, size):
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
            found.waits = equals(mark + 1, stop - mark - 1, b"true", 4)
        elif pair[0] == c'T':
            kind = _kind_of(pair, size)
            if kind != PLAIN:
                value.at = mark + 1
                value.size = stop - mark - 1
                if found.kind != PLAIN or not _is_kind(kind, &value, &found.time):
                    return False
                found.kind = kind
        elif size == 13 and memcmp(pair, b"__SHARDINGKEY", 13) == 0:
            found.is_ordered = True
        pair = stop + 1
    return True


cdef inline Kind _kind_of(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """The kind of message that a property defines."""
    if size == 8 and memcmp(name, b"TRAN_MSG", 8) == 0:
        return HALF
    if size == 16 and memcmp(name, b"TIMER_DELIVER_MS", 16) == 0:
        return TIMED_AT
    if size == 14 and memcmp(name, b"TIMER_DELAY_MS", 14) == 0:
        return TIMED_IN_MS
    return TIMED_IN_S if size == 15 and memcmp(name, b"TIMER_DELAY_SEC", 15) == 0 else PLAIN


cdef inline bint _is_kind(Kind kind, Text* value, int64_t* time) noexcept nogil:
    """Is the value of such a property usual?"""
    if kind == HALF:
        return equals(value.at, value.size, b"true", 4)
    return text_number(value, 1, WIDE if kind == TIMED_AT else TIME_MAX, time)


# ── Properties of a half message ────────────────────────────────────────────────────────────────────────────────────

cdef bint check_half(Text* text, Half* half) noexcept nogil:
    """Read the properties of a half message as `send.py` writes them: its real topic and queue are the last two.

    False: they are others, or one of them makes the end of the transaction unusual.
    """
    cdef const uint8_t* pair = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef const uint8_t* stop
    cdef const uint8_t* mark
    cdef Py_ssize_t size
    cdef Text number
    half.group.at = half.topic.at = NULL
    if text.size == 0 or (end - 1)[0] != 2:
        return False
    while pair < end:
        stop = <const uint8_t*>memchr(pair, 2, end - pair)
        mark = <const uint8_t*>memchr(pair, 1, stop - pair)
        if mark == NULL or mark == pair or mark + 1 == stop:
            return False
        size = mark - pair
        if equals(pair, size, b"REAL_TOPIC", 10):
            half.topic.at = mark + 1
            half.topic.size = stop - mark - 1
            half.kept = pair - text.at
            pair = stop + 1
            break
        if equals(pair, size, b"PGROUP", 6):
            if half.group.at != NULL:
                return False
            half.group.at = mark + 1
            half.group.size = stop - mark - 1
        elif _is_acted_on(pair, size) and not _is_added(pair, size):
            return False
        elif _kind_of(pair, size) > HALF:
            return False
        pair = stop + 1
    if half.group.at == NULL or half.topic.at == NULL or end - pair < 11 or memcmp(pair, b"REAL_QID\x01", 9) != 0:
        return False
    number.at = pair + 9
    number.size = end - 1 - number.at
    return text_number(&number, 0, INT32_HIGH, &half.queue_id)


cdef inline bint _is_added(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """Is it a property that the broker gives to every half message?"""
    return (
        equals(name, size, b"MSG_REGION", 10)
        or equals(name, size, b"TRACE_ON", 8)
        or equals(name, size, b"CLUSTER", 7)
        or equals(name, size, b"__transactionId__", 17)
    )
