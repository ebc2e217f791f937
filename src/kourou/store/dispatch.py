# cython: annotation_typing=False
"""Dispatch: builds the consume queues and the index from the commit log.

`Dispatcher.run` reads the records in a part of a segment, right after they were appended or during recovery. Half
messages and rollbacks get no queue entry, rollbacks no key either. Tags count as a key. Dispatch is idempotent: queues
and index skip records that they already have.

Java: DefaultMessageStore.ReputMessageService and the CommitLogDispatchers.
"""

from collections.abc import Callable

from kourou.protocol import properties as _properties
from kourou.protocol.codes import TRANSACTION_MASK, SysFlag
from kourou.protocol.record import Found, Scanner
from kourou.protocol.system_names import SCHEDULE_TOPIC
from kourou.store.consume_queue import ConsumeQueue, Put
from kourou.store.crash_damage import is_torn
from kourou.store.index import TAGS_KEY, Index
from kourou.store.records import scan
from kourou.store.removed import RemovedTopics

_DONE = int(Put.DONE)
_BEHIND = int(Put.BEHIND)
_RECORD = int(Found.RECORD)
_TRANSACTION = int(TRANSACTION_MASK)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_SCHEDULE = SCHEDULE_TOPIC.encode()
_TAGS = TAGS_KEY.encode()


class Dispatcher:
    """Adds records to their queues and to the index."""

    def __init__(
        self,
        queue_of: Callable[[bytes, int], ConsumeQueue],
        index: Index | None,
        delays: dict[int, int],
        *,
        sealed: bool = False,
        removed: RemovedTopics | None = None,
        extend: Callable[[ConsumeQueue, Scanner, int], int] | None = None,
    ) -> None:
        """`sealed`: each new record ends with a CRC over the whole record.

        `extend` returns the address that replaces the tags code of a new entry.
        """
        self._extend = extend
        self._queue_of = queue_of
        self._index = index
        self._delays = delays
        self._sealed = sealed
        self._removed = removed or RemovedTopics()
        self._topic = b""  # of the previous record, with its queues
        self._queues: dict[int, ConsumeQueue] = {}
        self._arrived: list[ConsumeQueue] = []  # queues that got entries in this round, each once
        self._round = 1  # `take_arrived` begins a new one
        self._scanner: Scanner | None = None  # of the last run, and its buffer
        self._buffer: memoryview | None = None
        self.stored_ms = 0  # of the last record that was dispatched
        self.records = 0  # the number of dispatched records
        self.last_record = -1  # where the last one begins
        self._last_end = -1  # where the last one of this run of the broker ends; -1: there was none
        self.disagreements = 0  # records whose queue entry is taken, or far beyond the queue's end
        self.gaps = 0  # records with missing entries before theirs
        self.recovering = False  # during recovery
        self.whole_until_ms = 0  # records stored before it were durable, so no crash can have damaged them
        self.whole_until = 0  # the same for records before this offset
        self.doubtful_from = -1  # where those end; -1: all are complete
        self.torn = False  # the last run ended at a record of which a part is missing
        self.removed_end = 0  # no record from here on is of a removed topic
        self.covered = 0  # in recovery: queues have the records before this offset
        self.uncovered = False  # … and one was found that is not in its queue

    def cover(self, covered: int) -> None:
        """Queues already have all records before an offset."""
        self.covered = covered
        self.uncovered = False

    def reset(self) -> None:
        """Queues were closed or removed: look them up again, and reset the counters."""
        self.forget_queues()
        self.stored_ms = self.records = self.disagreements = self.gaps = 0
        self.last_record = self._last_end = self.doubtful_from = -1

    def go_on_after(self, last_record: int, stored_ms: int) -> None:
        """Everything up to this record was dispatched by an earlier run of the broker."""
        self.last_record = last_record
        self.stored_ms = stored_ms

    def forget_queues(self) -> None:
        """Some queues no longer exist."""
        self._topic = b""
        self._queues = {}
        self._arrived = [queue for queue in self._arrived if queue.is_open]

    @property
    def has_arrived(self) -> bool:
        """True if `take_arrived` has something to return."""
        return len(self._arrived) > 0

    def take_arrived(self) -> list[tuple[str, int]]:
        """Topics and ids of the queues with new entries since the last call."""
        arrived = [(queue.topic, queue.queue_id) for queue in self._arrived]
        self._arrived = []
        self._round += 1
        return arrived

    def run(self, buffer: memoryview, start: int, end: int, base: int, crc: bool) -> Scanner:
        """Dispatch the records of `buffer[start:end]`, whose first byte has the log offset `base`.

        The scanner is where dispatch stopped: `at` and `reason` say where and why. Raises DiskFullError.
        """
        scanner = self._scanner_over(buffer, start, end, base, crc)
        self.torn = False
        self.removed_end = self._removed.end
        while scanner.step() == _RECORD:
            if self.recovering and self._is_doubtful(scanner) and crc and is_torn(buffer, scanner, sealed=self._sealed):
                self.torn = True
                break
            scanner.find_keys()
            kind = scanner.sys_flag & _TRANSACTION
            topic = scanner.topic
            if kind != _PREPARED and kind != _ROLLBACK and not self._is_removed(scanner, topic):
                if topic != self._topic:
                    self._topic = topic
                    self._queues = {}
                queue = self._queues.get(scanner.queue_id)
                if queue is None:
                    queue = self._queue_of(topic, scanner.queue_id)
                    self._queues[scanner.queue_id] = queue
                tags_code = scanner.tags_hash if topic != _SCHEDULE else self._due_ms(scanner)
                if scanner.physical_offset < self.covered and scanner.next_at + base > queue.max_physical:
                    self.uncovered = True
                    break
                if scanner.queue_offset > queue.end:
                    self.gaps += 1
                if self._extend is not None and _is_next(queue, scanner):
                    tags_code = self._extend(queue, scanner, tags_code)
                done = queue.put(scanner.physical_offset, scanner.size, tags_code, scanner.queue_offset)
                if done == _BEHIND and self._may_restart(queue, scanner.queue_offset):
                    # The topic was removed and created again, and its queue restarts, which a slave learns from the log
                    # only; or its first record is wrong.
                    queue.restart(scanner.queue_offset)
                    done = queue.put(scanner.physical_offset, scanner.size, tags_code, scanner.queue_offset)
                if done > _DONE:
                    self.disagreements += 1
                elif done == _DONE and queue.arrival != self._round:
                    queue.arrival = self._round
                    self._arrived.append(queue)
            if kind != _ROLLBACK and self._index is not None:
                self._put_keys(scanner, topic)
            self.stored_ms = scanner.stored_ms
            self.last_record = scanner.physical_offset
            self._last_end = scanner.physical_offset + scanner.size
            self.records += 1
        return scanner

    def _may_restart(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """True if a record before the end of its queue may begin the queue again. A damaged offset may be negative."""
        return queue_offset == 0 or (self.recovering and queue_offset > 0 and queue.end - queue.start < 2)

    def _is_removed(self, scanner: Scanner, topic: bytes) -> bool:
        """True if its topic was removed after this record was stored."""
        if scanner.physical_offset >= self.removed_end:
            return False
        return scanner.physical_offset < self._removed.until.get(topic, 0)

    def _is_doubtful(self, scanner: Scanner) -> bool:
        """True if a crash may have damaged this record. Its store time decides, unless that is what was damaged."""
        if scanner.physical_offset < self.whole_until:
            return False
        if self.doubtful_from < 0 and scanner.stored_ms >= self.whole_until_ms:
            # A filler before it is as doubtful as the record.
            self.doubtful_from = self._last_end if self._last_end >= 0 else scanner.physical_offset
        return self.doubtful_from >= 0 or scanner.stored_ms < self.stored_ms

    def _scanner_over(self, buffer: memoryview, start: int, end: int, base: int, crc: bool) -> Scanner:
        """Reuse the scanner of the previous run if possible: creating one costs as much as dispatching a record."""
        if crc or self._scanner is None or buffer is not self._buffer:
            self._scanner = scan(buffer, base, start, end, crc=crc)
            self._buffer = None if crc else buffer
        else:
            self._scanner.move(start, end)
        return self._scanner

    def _put_keys(self, scanner: Scanner, topic: bytes) -> None:
        index = self._index
        if index is None:
            return
        keys = self._keys(scanner)
        if keys and index.begin(len(keys), scanner.physical_offset, scanner.stored_ms):
            for key in keys:
                index.put(topic, key, scanner.physical_offset, scanner.stored_ms)
            index.finish()

    def _keys(self, scanner: Scanner) -> list[bytes]:
        keys = [key for key in scanner.keys.split(b" ") if key] if scanner.keys_size else []
        if scanner.unique_key_size:
            keys.insert(0, scanner.unique_key)
        if scanner.tags_size:
            keys.append(_TAGS + scanner.tags)
        return keys

    def keys_of(self, scanner: Scanner) -> list[bytes]:
        """The keys of a record in the index. For any thread."""
        if scanner.sys_flag & _TRANSACTION == _ROLLBACK:
            return []
        scanner.find_keys()
        return self._keys(scanner)

    def use_index(self, index: Index | None) -> None:
        """Add keys to this index from now on, or to none."""
        self._index = index

    def has_entry(self, scanner: Scanner) -> bool:
        """True if the current record of a scanner belongs in its queue."""
        if scanner.physical_offset < self._removed.until.get(scanner.topic, 0):
            return False
        return scanner.sys_flag & _TRANSACTION not in (_PREPARED, _ROLLBACK)

    def tags_code(self, scanner: Scanner) -> int:
        """The tags code of its entry, without an extension. For any thread."""
        scanner.find_keys()
        return scanner.tags_hash if scanner.topic != _SCHEDULE else self._due_ms(scanner)

    def _due_ms(self, scanner: Scanner) -> int:
        """Entries of the schedule topic have the delivery time in place of the tags code."""
        found = _properties.decode(scanner.message().raw_properties)
        try:
            level = int(found[_properties.Property.DELAY_LEVEL])
        except (KeyError, ValueError):
            return scanner.tags_hash
        level = min(level, max(self._delays))
        return scanner.stored_ms + self._delays.get(level, 1000) if level > 0 else scanner.tags_hash


def _is_next(queue: ConsumeQueue, scanner: Scanner) -> bool:
    """True if the queue will create an entry for this record, rather than already have one."""
    return scanner.queue_offset >= queue.end and scanner.physical_offset + scanner.size > queue.max_physical
