"""Reads from a store: a queue from an offset on, by key, by id, by time.

Results are slices of the mapped log, not copies. Only dispatched records are visible, and every possible offset in a
request gets the same answer as from Apache.

Readers never receive a record that fails validation. Recently written records are returned from memory unchecked;
records that may come from the disk are validated, which costs about as much as finding them. A damaged record, or one
whose file is gone, is skipped, and an error is logged. A record that can't be read for another reason ends the read,
and so does a missing entry of a queue: skipping it would lose an existing message.

Java: DefaultMessageStore.getMessage, queryMessage, getOffsetInQueueByTime; GetMessageStatus.
"""

import errno
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from kourou.protocol.record import Found, Scanner, StoredMessage
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import Boundary, ConsumeQueue
from kourou.store.consume_queue_ext import ADDRESS_MAX, Unit
from kourou.store.errors import StoreError
from kourou.store.index import Index
from kourou.store.queue_entries import BLANK_SIZE
from kourou.store.queues import Queues
from kourou.store.records import scan, scan_segment
from kourou.store.settings import StoreSettings

log = logging.getLogger(__name__)

ENTRY: Final = struct.Struct(">qiq")

TRUSTED_BYTES: Final = 64 * 1024**2
"""How many of the last bytes written by this process are assumed to be in memory, unchanged."""

KEY_HITS_MAX: Final = 64
WALK_BYTES_MAX: Final = 64 * 1024
COLD_RECORDS_MAX: Final = 64
"""Records beyond `memory_window` that a filter may reject before a read stops: each may cost a disk access."""

"""Limits of the search that decides whether a record begins at an offset given by a client."""

LIGHT_TOPIC_PREFIX: Final = "%LMQ%"
"""Queues of such topics have entries for records of other topics."""

_HEAD_SIZE: Final = 28  # of a record, up to its queue offset
_ANY_COUNT: Final = 2**31 - 1


class GetStatus(Enum):
    """The result of a read; the names are Apache's and appear in remarks."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


@dataclass(slots=True)
class ReadLimits:
    """How much one read returns. Records near the end of the log are in memory; older ones need the disk."""

    memory_window: int = 8 * 1024**3  # bytes before the log's end that count as in memory
    memory_count: int = 32
    memory_size: int = 256 * 1024
    disk_count: int = 8
    disk_size: int = 64 * 1024
    scan_count: int = 800  # entries that a filtered read checks at least before it stops

    def adopt(self, settings: StoreSettings) -> None:
        """Apply the store's settings; the window is set by the code that knows the machine's memory."""
        self.memory_count, self.memory_size = settings.memory_read_count, settings.memory_read_size
        self.disk_count, self.disk_size = settings.disk_read_count, settings.disk_read_size
        self.scan_count = -(-settings.filter_read_size // ENTRY.size)

    def in_bulk(self) -> "ReadLimits":
        """The size limits only."""
        return replace(self, memory_count=_ANY_COUNT, disk_count=_ANY_COUNT)


@dataclass(slots=True)
class GetResult:
    """Records of a queue, and the offset to continue from."""

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: list[memoryview] = field(default_factory=list)
    size: int = 0
    behind: int = 0  # bytes between the last checked record and the end of the log


@dataclass(slots=True)
class QueryResult:
    """Records with a key, oldest first."""

    records: list[memoryview] = field(default_factory=list)
    index_ms: int = 0  # when the index was last added to
    index_physical: int = 0


class Reader:
    """Reads one store. `visible_end` returns the log offset up to which records are visible."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        visible_end: Callable[[], int],
        limits: ReadLimits | None = None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._visible_end = visible_end
        self.limits = limits or ReadLimits()
        self.written_from = 0  # this process has written the log from here on
        self.on_damage: Callable[[ConsumeQueue, int], bool] = lambda _queue, _number: False
        """Called with a wrong entry of a queue; returns whether it will be repaired: then readers wait for that."""
        self._checker: Scanner | None = None
        self._checked: memoryview | None = None  # its segment

    # ── A queue from an offset on ─────────────────────────────────────────────────────────────────────────────────

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        accepts: Callable[[int], bool] | None = None,
        accepts_unit: Callable[[Unit], bool] | None = None,
        accepts_record: Callable[[memoryview], bool] | None = None,
        scan_max: int | None = None,
        max_size: int | None = None,
        is_bulk: bool = False,
    ) -> GetResult:
        """Up to `max_count` records from `offset` on whose tags code and contents are accepted.

        In bulk, only the sizes limit the number of records, not the counts. `scan_max` limits the number of checked
        entries, accepted or not. `accepts_record` reads at most COLD_RECORDS_MAX records from disk.

        If the queue has an extension, `accepts_unit` decides too; a message whose unit is lost is accepted.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        outside = _outside(queue, offset)
        if outside is not None:
            status, next_offset = outside
            return GetResult(status, next_offset, queue.start, queue.end)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.start, queue.end)
        passes = self._entry_filter(queue, accepts, accepts_unit)
        limits = self.limits.in_bulk() if is_bulk else self.limits
        count = max(max_count, limits.scan_count)
        entries = self._entries(queue, result, count if scan_max is None else min(count, scan_max))
        if entries is not None:
            self._collect(queue, result, entries, limits, max_count, passes, accepts_record, max_size)
        return result

    def _entries(self, queue: ConsumeQueue, result: GetResult, count: int) -> memoryview | None:
        try:
            return queue.entries(result.next_offset, count)
        except OSError as error:
            log.error("queue %d of %s can't be read: %s", queue.queue_id, queue.topic, error)
            result.status = GetStatus.OFFSET_FOUND_NULL
            if error.errno == errno.ENOENT:  # other errors may be temporary: nothing is skipped
                result.next_offset = self._queues.next_file(result.next_offset)
            return None

    def _entry_filter(
        self,
        queue: ConsumeQueue,
        accepts: Callable[[int], bool] | None,
        accepts_unit: Callable[[Unit], bool] | None,
    ) -> Callable[[int], bool] | None:
        """Whether an entry passes, by its tags code or extension."""
        if accepts is None and accepts_unit is None:
            return None

        def passes(tags_code: int) -> bool:
            if tags_code > ADDRESS_MAX:
                return accepts is None or accepts(tags_code)
            unit = self._unit(queue, tags_code)
            if unit is None:
                return True
            return (accepts is None or accepts(unit.tags_code)) and (accepts_unit is None or accepts_unit(unit))

        return passes

    def _unit(self, queue: ConsumeQueue, address: int) -> Unit | None:
        try:
            return self._queues.extensions.unit(queue, address)
        except (OSError, StoreError) as error:
            log.error("the extension of queue %d of %s can't be read: %s", queue.queue_id, queue.topic, error)
            return None

    def _collect(
        self,
        queue: ConsumeQueue,
        result: GetResult,
        entries: memoryview,
        limits: ReadLimits,
        max_count: int,
        accepts: Callable[[int], bool] | None,
        accepts_record: Callable[[memoryview], bool] | None,
        max_size: int | None,
    ) -> None:
        log_start, log_end = self._log.start, self._log.end
        trusted = self._trusted_from()
        cold = 0
        for physical, size, tags_code in ENTRY.iter_unpack(entries):
            if result.records and self._is_full(result, limits, physical, size, max_count, max_size):
                break
            if size <= 0:
                if not self.on_damage(queue, result.next_offset):
                    log.error("entry %d in queue %d of %s is missing", result.next_offset, queue.queue_id, queue.topic)
                self._passed_over(result, GetStatus.OFFSET_FOUND_NULL)
                break
            result.next_offset += 1
            result.behind = log_end - physical
            if accepts is not None and not accepts(tags_code):
                self._passed_over(result, GetStatus.NO_MATCHED_MESSAGE)
                continue
            try:
                record = self._read(physical, size, trusted) if size != BLANK_SIZE and physical >= log_start else None
                if record is not None and not self._fits(queue, result.next_offset - 1, record):
                    record = None
            except OSError as error:
                log.error("the record at %d can't be read: %s", physical, error)
                result.next_offset -= 1
                self._passed_over(result, GetStatus.OFFSET_FOUND_NULL)
                break
            if record is None:
                if size != BLANK_SIZE and not self._is_right(queue, result.next_offset - 1, physical, size):
                    result.next_offset -= 1
                    if self.on_damage(queue, result.next_offset):
                        self._passed_over(result, GetStatus.OFFSET_FOUND_NULL)
                        break
                    result.next_offset += 1
                self._passed_over(result, GetStatus.MESSAGE_WAS_REMOVING)
                continue
            if accepts_record is not None and not accepts_record(record):
                self._passed_over(result, GetStatus.NO_MATCHED_MESSAGE)
                cold += result.behind > limits.memory_window
                if cold >= COLD_RECORDS_MAX:
                    break
                continue
            result.records.append(record)
            result.size += size
            result.status = GetStatus.FOUND

    @staticmethod
    def _passed_over(result: GetResult, status: GetStatus) -> None:
        """The last reason counts, unless a record was found."""
        if not result.records:
            result.status = status

    def _is_right(self, queue: ConsumeQueue, number: int, physical: int, size: int) -> bool:
        """For an entry without a valid record: true if the entry is right, and the record is gone or damaged."""
        try:
            if physical < self._log.start:
                return physical >= 0 and (number == queue.start or queue.entry(number - 1)[0] <= physical)
            head = self._log.read(physical, _HEAD_SIZE)
            return int.from_bytes(head[:4]) == size and self._fits(queue, number, head)
        except (KeyError, OSError):
            return self._log.segments.holds(physical)  # unreadable: assume that the entry is right

    @staticmethod
    def _fits(queue: ConsumeQueue, number: int, record: memoryview) -> bool:
        """True if a record has this queue offset. A lite queue has entries for records of other queues."""
        return (
            int.from_bytes(record[20:28]) == number and int.from_bytes(record[12:16]) == queue.queue_id
        ) or queue.topic.startswith(LIGHT_TOPIC_PREFIX)

    def _read(self, physical: int, size: int, trusted: int) -> memoryview | None:
        """A record; None if it is gone or invalid. Raises OSError if it can't be read now."""
        try:
            record = self._log.read(physical, size)
            if int.from_bytes(record[:4]) != size or (physical < trusted and not self._holds(physical, size)):
                log.error("the record of %d bytes at %d is damaged: see `kourou store verify`", size, physical)
                return None
            return record
        except (KeyError, FileNotFoundError) as error:
            log.error("the record at %d is gone: %s", physical, error)
            return None

    def _trusted_from(self) -> int:
        """The offset from which records need no validation. After a failed sync, memory may have lost them."""
        if self._log.failed is not None:
            return self._log.end
        return max(self.written_from, self._log.end - TRUSTED_BYTES)

    def _holds(self, physical: int, size: int) -> bool:
        file_size = self._log.segments.file_size
        at = physical % file_size
        buffer = self._log.segments.file(physical).buffer
        if self._checker is None or buffer is not self._checked:
            self._checker = scan(buffer, physical - at, at, at, crc=True)
            self._checked = buffer
        if at + size > file_size:
            return False
        self._checker.move(at, at + size)
        return self._checker.step() == Found.RECORD and self._checker.size == size

    def _is_full(
        self, result: GetResult, limits: ReadLimits, physical: int, size: int, max_count: int, max_size: int | None
    ) -> bool:
        count = len(result.records)
        if count >= max_count or (max_size is not None and result.size + size > max_size):
            return True
        if self._log.end - physical > limits.memory_window:
            return count >= limits.disk_count or result.size + size > limits.disk_size
        return count >= limits.memory_count or result.size + size > limits.memory_size

    # ── Single records ────────────────────────────────────────────────────────────────────────────────────────────

    def record_of(self, physical_offset: int, size: int) -> memoryview | None:
        """The record of an entry that the broker has made; None if it is gone or damaged. Raises OSError."""
        if not self._log.start <= physical_offset < self._log.end:
            return None
        return self._read(physical_offset, size, self._trusted_from())

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log; None if none does, or if it is invalid.

        The body of a message may contain bytes that look like a record, but are not: see `_is_known`.
        """
        scanner = self._known_record(physical_offset)
        return None if scanner is None else self._log.read(physical_offset, scanner.size)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The same as a value."""
        scanner = self._known_record(physical_offset)
        return None if scanner is None else scanner.message()

    def _known_record(self, offset: int) -> Scanner | None:
        scanner = self._scanner(offset)
        if scanner is None or scanner.step() != Found.RECORD or not self._is_known(scanner):
            return None
        return scanner

    def _is_known(self, scanner: Scanner) -> bool:
        """True if a record begins here; false if these bytes belong to another record, whose sender chose them.

        Its queue knows, or the index. Both were built from the log, and neither costs more than a few reads. A record
        that neither has (of a deleted topic, without a unique key) is found if it is near the start of its segment.
        """
        offset = scanner.physical_offset
        place = scanner.queue_offset
        try:
            queue = self._queues.get(scanner.topic.decode("utf-8", "surrogateescape"), scanner.queue_id)
            if queue is not None and queue.start <= place < queue.end and queue.entry(place)[0] == offset:
                return True
            return self._is_indexed(scanner) or self._is_walked_over(offset)
        except (OSError, StoreError) as error:
            log.error("the record at %d can't be read: %s", offset, error)
            return False

    def _is_indexed(self, scanner: Scanner) -> bool:
        scanner.find_keys()
        if self._index is None or not scanner.unique_key_size:
            return False
        topic, key = scanner.topic.decode("utf-8", "replace"), scanner.unique_key.decode("utf-8", "replace")
        # The index has seconds, rounded down.
        begin_ms, end_ms = scanner.stored_ms - 1000, scanner.stored_ms + 1000
        return scanner.physical_offset in self._index.query(topic, key, KEY_HITS_MAX, begin_ms, end_ms).offsets

    def _is_walked_over(self, offset: int) -> bool:
        """True if the scan of the log from the start of its segment finds a record here."""
        at = offset % self._log.segments.file_size
        if at > WALK_BYTES_MAX:
            return False
        scanner = scan_segment(self._log.segments, offset - at)
        while scanner.next_at < at and scanner.step() == Found.RECORD:
            pass
        return scanner.next_at == at

    def _scanner(self, offset: int) -> Scanner | None:
        visible_end = self._visible_end()
        if not self._log.start <= offset < visible_end:
            return None
        try:
            return scan_segment(self._log.segments, offset, visible_end, crc=True)
        except OSError as error:
            log.error("the record at %d can't be read: %s", offset, error)
            return None

    # ── By key and by time ────────────────────────────────────────────────────────────────────────────────────────

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """The newest records of a topic with a key that were stored in a period, oldest first, like Apache.

        The index has hashes only: the result may include records with another key of the same hash. Those of other
        topics are left out: a key can be made for each hash, and the client may have no right to read them.
        """
        if self._index is None:
            return QueryResult()
        hits, raw_topic = self._index.query(topic, key, max_count, begin_ms, end_ms), topic.encode("utf-8", "replace")
        found = (self._indexed_record(offset, raw_topic) for offset in sorted(hits.offsets))
        return QueryResult([record for record in found if record is not None], hits.last_ms, hits.last_physical)

    def _indexed_record(self, offset: int, topic: bytes) -> memoryview | None:
        scanner = self._scanner(offset)
        if scanner is None or scanner.step() != Found.RECORD or scanner.topic != topic:
            return None
        return self._log.read(offset, scanner.size)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """The queue offset at a time: of the first message at or after it, or of the last at or before it."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.offset_by_time(time_ms, boundary, self.stored_ms_at)

    def stored_ms_at(self, physical_offset: int, size: int) -> int:
        """The store time of a record; -1 if it is gone or unreadable."""
        try:
            record = self._log.read(physical_offset, size)
        except (KeyError, OSError):
            return -1
        scanner = scan(record, physical_offset)
        return scanner.stored_ms if scanner.step() == Found.RECORD else -1

    def stored_ms_of(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of the message at a queue offset; -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.start <= offset < queue.end:
            return -1
        physical, size, _ = queue.entry(offset)
        return self.stored_ms_at(physical, size)

    def earliest_ms(self, topic: str, queue_id: int) -> int:
        """The store time of the oldest message of a queue; -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        return -1 if queue is None else self.stored_ms_of(topic, queue_id, queue.start)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue, and the one after the last."""
        queue = self._queues.get(topic, queue_id)
        return (0, 0) if queue is None else (queue.start, queue.end)


def _outside(queue: ConsumeQueue, offset: int) -> tuple[GetStatus, int] | None:
    """The status for an offset without a message, and the offset to continue from."""
    if queue.end == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < queue.start:
        return GetStatus.OFFSET_TOO_SMALL, queue.start
    if offset == queue.end:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > queue.end:
        return GetStatus.OFFSET_OVERFLOW_BADLY, queue.end
    return None
