"""The store's interface for the broker's compiled lane: no object per message, and nothing that waits for the disk.

    AppendPort   queue ─▶ size ─▶ has_room ─▶ write, then the caller's properties ─▶ publish     … ─▶ dispatch
    ReadPort     queue ─▶ read ─▶ pieces of the mapped log                                            … ─▶ release

Both do what `Store.append`, `Store.dispatch` and `Reader.get` do, for the usual case. In all other cases (no space, a
failed disk, a damaged record …) they report failure before anything has changed, and the caller uses those methods.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kourou.protocol.crc cimport crc32
from kourou.protocol.record cimport Scanner
from kourou.protocol.scan cimport Text, int32_at
from kourou.store.commit_log cimport CommitLog
from kourou.store.consume_queue cimport ConsumeQueue
from kourou.store.dispatch cimport Dispatcher
from kourou.store.writer cimport publish_at, write_up_to_properties

from kourou.protocol.record import FILLER_SIZE_MIN, MAGIC_V1, RECORD_CRC_SIZE, RECORD_SIZE_MIN
from kourou.store.consume_queue_ext import ADDRESS_MAX
from kourou.store.errors import StoreError
from kourou.store.records import scan

cdef enum:
    BLANK_SIZE = 0x7FFFFFFF
    ENTRY_SIZE = 20
    HOST_BITS = 0x30
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20

cdef int32_t _MAGIC = MAGIC_V1
cdef int _FIXED_SIZE = RECORD_SIZE_MIN - 17
cdef int _FILLER_SIZE = FILLER_SIZE_MIN
cdef int _CRC_ROOM = RECORD_CRC_SIZE + 1
cdef int64_t _ADDRESS_MAX = ADDRESS_MAX


cdef inline ConsumeQueue _open_queue(dict queues, str topic, queue_id):
    """An open queue; None if it is not open."""
    opened = queues.get(topic)
    return None if opened is None else opened.get(queue_id)


# ── Appending ───────────────────────────────────────────────────────────────────────────────────────────────────────

@cython.final
cdef class AppendPort:
    """Appends records with topics of at most 127 bytes, and makes them visible."""

    def __init__(self, store):
        self._store = store
        self._cleaner = store._cleaner
        self._durability = store.durability
        self._reader = store.reader
        self._queues = store.queues._open
        self._log = store.log
        self._dispatcher = store._dispatcher
        self._record_crc = store._settings.record_crc

    cdef bint may_append(self) except -1:
        """True if the disk has space and records need no CRC of their own. Check after each step of the machine."""
        return self._cleaner.refusal is None and not self._record_crc

    cdef ConsumeQueue queue(self, str topic, queue_id):
        return _open_queue(self._queues, topic, queue_id)

    cdef Py_ssize_t size(self, Draft* draft) noexcept:
        """The size of the record."""
        return _size(self._log, draft)

    cdef Py_ssize_t size_max(self, Draft* draft) noexcept:
        """The space that a record may need in a batch: as `Store.size_of`."""
        return _size(self._log, draft) + _CRC_ROOM

    cdef bint has_room(self, Py_ssize_t size) noexcept:
        """True if records of this size fit into the current segment."""
        cdef CommitLog log = self._log
        return log._failed is None and log.end - log._start + size + _FILLER_SIZE <= log._limit

    cdef uint8_t* write(self, ConsumeQueue queue, Draft* draft, long long stamp_ms) noexcept:
        """Write the next record of a queue up to its properties. The caller has checked that it fits.

        Returns where the caller writes the properties, before `publish`.
        """
        cdef CommitLog log = self._log
        cdef Py_ssize_t store_host_size = PyBytes_GET_SIZE(log.store_host)
        cdef int host_bits = 0
        if draft.born_host_size == 20:
            host_bits = BORN_HOST_V6
        if store_host_size == 20:
            host_bits |= STORE_HOST_V6
        if stamp_ms > log.stored_ms:
            log.stored_ms = stamp_ms
        draft.size = _size(log, draft)
        draft.offset = log.end
        draft.queue_offset = queue.next_offset
        return write_up_to_properties(
            &log._view[log.end - log._start],
            crc32(draft.body, draft.body_size),
            queue.queue_id,
            draft.flag,
            queue.next_offset,
            log.end,
            (draft.sys_flag & ~HOST_BITS) | host_bits,
            draft.born_ms,
            draft.born_host,
            draft.born_host_size,
            log.stored_ms,
            PyBytes_AS_STRING(log.store_host),
            store_host_size,
            draft.reconsume_times,
            draft.prepared_offset,
            draft.body,
            draft.body_size,
            draft.topic,
            draft.topic_size,
            draft.properties_size,
        )

    cdef void publish(self, ConsumeQueue queue, Draft* draft) noexcept:
        """The written record is complete."""
        cdef CommitLog log = self._log
        publish_at(&log._view[log.end - log._start], <int>draft.size, _MAGIC)
        log.end += draft.size
        queue.next_offset += 1

    cdef long long stored_ms(self, long long stamp_ms) noexcept:
        """The store time of a record that is written now."""
        return max(self._log.stored_ms, stamp_ms)

    cdef bint half(
        self, ConsumeQueue queue, long long queue_offset, long long offset, Draft* draft, Text* properties
    ) except -1:
        """Read the record of a queue that is at this offset of the log, as a draft of a copy, without its topic.

        False: there is none, or it is not in the current segment, or has to be validated.
        """
        cdef CommitLog log = self._log
        cdef const unsigned char[::1] entry
        cdef const uint8_t* record
        cdef Py_ssize_t host_size = PyBytes_GET_SIZE(log.store_host)
        cdef int32_t size
        if offset < log._start or offset + _FIXED_SIZE > log.end or offset < self._reader._trusted_from():
            return False
        if queue_offset < queue.start or queue_offset >= queue.end:
            return False
        try:
            entries = queue.entries(queue_offset, 1)
        except OSError:
            return False
        if len(entries) < ENTRY_SIZE:
            return False
        entry = entries
        size = <int32_t>int32_at(&entry[8])
        record = &log._view[offset - log._start]
        if int64_at(&entry[0]) != offset or <int32_t>int32_at(record) != size or offset + size > log.end:
            return False
        if int64_at(record + 20) != queue_offset:
            return False
        if not _draft_of(record, size, host_size, draft, properties):
            return False
        draft.prepared_offset = offset
        return True

    cdef bint dispatch(self) except -1:
        """As `Store.dispatch`, for records in the current segment. False: call `Store.dispatch`."""
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


cdef inline int64_t int64_at(const uint8_t* p) noexcept nogil:
    return (<int64_t>int32_at(p) << 32) | int32_at(p + 4)


cdef inline Py_ssize_t _size(CommitLog log, Draft* draft) noexcept:
    return (
        _FIXED_SIZE
        + draft.born_host_size
        + PyBytes_GET_SIZE(log.store_host)
        + draft.body_size
        + 1
        + draft.topic_size
        + draft.properties_size
    )


cdef bint _draft_of(
    const uint8_t* record, Py_ssize_t size, Py_ssize_t store_host_size, Draft* draft, Text* properties
) noexcept nogil:
    """Read a record as a draft of a copy. False: it has a long topic, or a store host of another length."""
    cdef const uint8_t* end = record + size
    cdef const uint8_t* p
    if size < _FIXED_SIZE + 17 or <int32_t>int32_at(record + 4) != _MAGIC:
        return False
    draft.flag = <int32_t>int32_at(record + 16)
    draft.sys_flag = <int32_t>int32_at(record + 36)
    draft.born_ms = int64_at(record + 40)
    draft.born_host = <const char*>record + 48
    draft.born_host_size = 20 if draft.sys_flag & BORN_HOST_V6 else 8
    p = record + 48 + draft.born_host_size
    if ((draft.sys_flag & STORE_HOST_V6) != 0) != (store_host_size == 20) or end - p < 8 + store_host_size + 20:
        return False
    draft.stored_ms = int64_at(p)
    p += 8 + store_host_size
    draft.reconsume_times = <int32_t>int32_at(p)
    draft.prepared_offset = int64_at(p + 4)
    draft.body_size = <int32_t>int32_at(p + 12)
    draft.body = p + 16
    if draft.body_size < 0 or draft.body_size > end - draft.body - 3:
        return False
    p = draft.body + draft.body_size
    draft.topic = <const char*>p + 1
    draft.topic_size = p[0]
    p += 1 + p[0]
    if end - p < 2:
        return False
    properties.at = p + 2
    properties.size = (p[0] << 8) | p[1]
    return end - p - 2 == properties.size


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────

@cython.final
cdef class ReadPort:
    """Finds the records of queues. Several reads may follow one another; after the last one, `release`."""

    def __init__(self, store):
        self._queues = store.queues._open
        self._log = store.log
        self._reader = store.reader
        self._buffers = []
        self._file_size = self._log.segments.file_size
        self._segment_start = -1

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    cdef ConsumeQueue queue(self, str topic, queue_id):
        return _open_queue(self._queues, topic, queue_id)

    cdef release(self):
        """The pieces are no longer used: their memory may be unmapped."""
        self._is_ready = False
        if self._segment_start >= 0:
            self._segment_start = -1
            self._segment = None
            self._checker = None
            self._buffers.clear()

    cdef _prepare(self):
        """Find where the log begins, from where on it needs no check, and how much a read may return."""
        limits = self._reader.limits
        self._log_start = self._log.start
        self._trusted = self._reader._trusted_from()
        self._window = limits.memory_window
        self._memory_count = limits.memory_count
        self._memory_size = limits.memory_size
        self._disk_count = limits.disk_count
        self._disk_size = limits.disk_size
        self._scan_count = limits.scan_count
        self._is_ready = True

    cdef long long read(
        self,
        ConsumeQueue queue,
        long long offset,
        long long max_count,
        long long max_size,
        bint is_bulk,
        const long long* codes,
        Py_ssize_t code_count,
    ) except -2:
        """Find records from a queue offset on with one of these tags codes; returns the offset after the last one.

        A negative `code_count` accepts all tags. -1: nothing was found, or something is damaged; use `Reader.get`.
        """
        cdef const unsigned char[::1] view
        cdef const uint8_t* p
        cdef const uint8_t* record
        cdef Py_ssize_t i, count
        cdef long long physical, code, behind = 0, log_end = self._log.end
        cdef int32_t size
        if offset < queue.start or offset >= queue.end:
            return -1
        if not self._is_ready:
            self._prepare()
        self.count = 0
        self.size = 0
        try:
            entries = queue.entries(offset, max(max_count, self._scan_count))
        except OSError:
            return -1
        count = len(entries) // ENTRY_SIZE
        if count == 0:
            return -1
        view = entries
        p = &view[0]
        for i in range(count):
            physical = (<int64_t>int32_at(p) << 32) | int32_at(p + 4)
            size = <int32_t>int32_at(p + 8)
            if self.count and self._is_full(log_end - physical, size, max_count, max_size, is_bulk):
                break
            if size <= 0 or size == BLANK_SIZE or physical < self._log_start or physical + size > log_end:
                return -1
            offset += 1
            behind = log_end - physical
            code = <int64_t>((<uint64_t>int32_at(p + 12) << 32) | int32_at(p + 16))
            if code_count >= 0 and code <= _ADDRESS_MAX:
                return -1  # the tags are in the queue's extension
            if code_count < 0 or _is_among(code, codes, code_count):
                record = self._record(physical, size)
                if record == NULL or not _is_at(queue, offset - 1, record, size):
                    return -1  # the record, or the entry, is damaged
                self._add(record, size)
            p += ENTRY_SIZE
        self.is_far = behind > self._window
        return offset if self.count else -1

    cdef inline bint _is_full(
        self, long long behind, int32_t size, long long max_count, long long max_size, bint is_bulk
    ) noexcept nogil:
        if self.count >= max_count or (max_size > 0 and self.size + size > max_size):
            return True
        if behind > self._window:
            return (self.count >= self._disk_count and not is_bulk) or self.size + size > self._disk_size
        return (self.count >= self._memory_count and not is_bulk) or self.size + size > self._memory_size

    cdef bint draft(self, const uint8_t* record, Py_ssize_t size, Draft* draft, Text* properties) noexcept:
        """Read a record as a draft of a copy. False: the caller uses `decode_record`."""
        return _draft_of(record, size, PyBytes_GET_SIZE(self._log.store_host), draft, properties)

    cdef const uint8_t* record(self, long long physical, long long size) except? NULL:
        """The record that begins at an offset; NULL: use `Reader.record_of`."""
        if not self._is_ready:
            self._prepare()
        if physical < self._log_start or not 0 < size <= self._log.end - physical:
            return NULL
        return self._record(physical, <int32_t>size)

    cdef const uint8_t* _record(self, long long physical, int32_t size) except? NULL:
        """A record in memory; NULL if it can't be read, or is not valid."""
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
                self._checker = scan(self._buffers[len(self._buffers) - 1], start, at, at)
            checker = self._checker
            checker.move(at, at + size)
            if checker.step() != 1 or checker.size != size:
                return NULL
            if checker.body_size and crc32(&self._segment[checker.body_at], checker.body_size) != checker.body_crc:
                return NULL
        return record

    cdef int _add(self, const uint8_t* at, Py_ssize_t size) except -1:
        cdef Piece* pieces
        cdef Py_ssize_t capacity
        if self.count == self._capacity:
            capacity = max(2 * self._capacity, 64)
            pieces = <Piece*>PyMem_Realloc(self.pieces, capacity * sizeof(Piece))
            if pieces == NULL:
                raise MemoryError
            self.pieces = pieces
            self._capacity = capacity
        self.pieces[self.count].at = at
        self.pieces[self.count].size = size
        self.count += 1
        self.size += size
        return 0


cdef inline bint _is_among(long long code, const long long* codes, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if codes[i] == code:
            return True
    return False


cdef inline bint _is_at(ConsumeQueue queue, long long number, const uint8_t* record, int32_t size) noexcept:
    """True if a record has this position in the queue."""
    cdef int64_t place
    if size < 28:
        return False
    place = (<int64_t>int32_at(record + 20) << 32) | int32_at(record + 24)
    return place == number and <int32_t>int32_at(record + 12) == queue.queue_id
