# cython: annotation_typing=False
"""The hot loop of a verification: each record of the log, and its queue entry.

Records are counted here; everything unexpected is passed to a listener.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from kourou.protocol.codes import TRANSACTION_MASK, SysFlag
from kourou.protocol.record import RECORD_CRC_SIZE, CorruptRecordError, Found, Scanner, check_record_crc
from kourou.store import entry_layout
from kourou.store.crash_damage import is_torn
from kourou.store.offline import QueueFiles
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE

PROGRESS_STEP: Final = 4096
"""The number of records after which the listener gets the progress."""

_RECORD_CRC: Final = b"__CRC32#\x01"

# Under names that verify_log.pxd declares as C constants.
_ENTRY = ENTRY_SIZE
_BLANK = BLANK_SIZE
_STEP = PROGRESS_STEP
_RECORD = int(Found.RECORD)
_TRANSACTION = int(TRANSACTION_MASK)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


class Listener(Protocol):
    """Receives everything unexpected."""

    def without_queue(self, scanner: Scanner) -> None:
        """A record whose queue is missing."""

    def mismatch(self, queue: "QueueCheck", number: int, physical: int, size: int, tags_code: int) -> None:
        """A record whose entry is wrong or missing."""

    def torn(self, scanner: Scanner, why: str) -> None:
        """A record with damage that the CRC of its body does not cover."""

    def reached(self, physical: int) -> None:
        """The progress."""


class QueueCheck:
    """The state of the check of one queue."""

    __slots__ = (
        "_block",
        "_block_end",
        "_block_first",
        "asked_end",
        "end",
        "files",
        "first_physical",
        "live",
        "matched",
        "max_physical",
    )

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self.end = files.first  # the number of the first empty entry
        self.live = 0  # entries of records in the log
        self.first_physical = -1  # the position of the first of these records; -1: there is none
        self.max_physical = 0  # the end of the last one
        self.matched = 0  # entries with a matching record
        self.asked_end = 0  # after the last of them
        self._block = memoryview(b"")  # a block of entries, and the numbers of the first and after the last
        self._block_first = 0
        self._block_end = 0

    def scan(self, log_start: int) -> Iterator[tuple[int, str]]:
        """Count the entries; yields the numbers of invalid ones, and why."""
        for physical_offset, size, _ in self.files.entries(self.end):
            if physical_offset < self.max_physical:
                yield self.end, f"it points to {physical_offset}, the record before it ends at {self.max_physical}"
            physical_end = physical_offset
            if size != _BLANK:
                physical_end += size
                if physical_offset >= log_start:
                    self.live += 1
                    if self.first_physical < 0:
                        self.first_physical = physical_offset
            self.max_physical = max(self.max_physical, physical_end)
            self.end += 1

    def has(self, number: int, physical: int, size: int, tags_code: int) -> bool:
        """True if the entry has these values."""
        if not self._block_first <= number < self._block_end:
            block, self._block_first = self.files.block(number)
            self._block = memoryview(block)
            self._block_end = self._block_first + len(block) // _ENTRY
            if number >= self._block_end:
                return False
        found_physical, found_size, found_tags = entry_layout.entry(self._block, (number - self._block_first) * _ENTRY)
        if found_physical != physical or found_size != size or found_tags != tags_code:
            return False
        self.matched += 1
        self.asked_end = number + 1
        return True


class LogCheck:
    """Scans records. `queues` has the queues by topic and id; the index covers a range of the log."""

    def __init__(
        self, queues: dict[bytes, dict[int, QueueCheck]], index_from: int, index_to: int, listener: Listener
    ) -> None:
        self._queues = queues
        self._index_from = index_from
        self._index_to = index_to
        self._listener = listener
        self.records = 0
        self.keys = 0  # of records that the index should have
        self.last_ms = 0  # store time of the last record
        self.times_back = 0  # how often it was earlier than the one before
        self.first_back = 0  # the position of the first

    def run(self, scanner: Scanner, view: memoryview) -> int:
        """Check records until something else is found; returns a `Found`."""
        last_topic, queues = b"", self._queues.get(b"", _NO_QUEUES)
        found = scanner.step()
        while found == _RECORD:
            scanner.find_keys()
            physical = scanner.physical_offset
            topic = scanner.topic
            kind = scanner.sys_flag & _TRANSACTION
            if kind != _PREPARED and kind != _ROLLBACK:
                if topic != last_topic:
                    last_topic = topic
                    queues = self._queues.get(topic, _NO_QUEUES)
                queue = queues.get(scanner.queue_id)
                number = scanner.queue_offset
                if queue is None:
                    self._listener.without_queue(scanner)
                elif not queue.has(number, physical, scanner.size, scanner.tags_hash):
                    self._listener.mismatch(queue, number, physical, scanner.size, scanner.tags_hash)
            if kind != _ROLLBACK and self._index_from <= physical <= self._index_to:
                self._count_keys(scanner)
            self._check_rest(scanner, view, topic)
            if scanner.stored_ms < self.last_ms:
                if self.times_back == 0:
                    self.first_back = physical
                self.times_back += 1
            self.last_ms = scanner.stored_ms
            self.records += 1
            if self.records % _STEP == 0:
                self._listener.reached(physical)
            found = scanner.step()
        return found

    def _count_keys(self, scanner: Scanner) -> None:
        if scanner.unique_key_size:
            self.keys += 1
        if scanner.keys_size:
            for key in scanner.keys.split(b" "):
                if key:
                    self.keys += 1

    def _check_rest(self, scanner: Scanner, view: memoryview, topic: bytes) -> None:
        """Check what the CRC of the body does not cover."""
        properties = bytes(view[scanner.properties_at : scanner.next_at])
        if properties.startswith(_RECORD_CRC, max(0, len(properties) - RECORD_CRC_SIZE)):
            try:
                check_record_crc(view, scanner.at)
            except CorruptRecordError as error:
                self._listener.torn(scanner, error.reason)
        elif (b"\0" in properties or b"\0" in topic) and is_torn(view, scanner):
            self._listener.torn(scanner, "part of its topic or properties is missing")


_NO_QUEUES: Final[dict[int, QueueCheck]] = {}
