# cython: annotation_typing=False
"""The hot loop of a verification: each record of the log, and the entry that its queue has for it.

Counting is done here; whatever is not as expected goes to a listener, who knows more.
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
"""After how many records the listener hears how far it is."""

_RECORD_CRC: Final = b"__CRC32#\x01"

# Under names that verify_log.pxd makes C constants.
_ENTRY = ENTRY_SIZE
_BLANK = BLANK_SIZE
_STEP = PROGRESS_STEP
_RECORD = int(Found.RECORD)
_TRANSACTION = int(TRANSACTION_MASK)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


class Listener(Protocol):
    """Hears of what is not as expected."""

    def without_queue(self, scanner: Scanner) -> None:
        """A record whose queue is not there."""

    def mismatch(self, queue: "QueueCheck", number: int, physical: int, size: int, tags_code: int) -> None:
        """A record whose entry is another, or none."""

    def torn(self, scanner: Scanner, why: str) -> None:
        """A record of which something does not hold that the CRC of its body says nothing about."""

    def reached(self, physical: int) -> None:
        """So far it is."""


class QueueCheck:
    """What is learned about one queue."""

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
        self.first_physical = -1  # where the first of these records is; -1: there is none
        self.max_physical = 0  # where the last one ends
        self.matched = 0  # entries that their records have asked for
        self.asked_end = 0  # behind the last of them
        self._block = memoryview(b"")  # some entries, and the numbers of the first and of the one behind the last
        self._block_first = 0
        self._block_end = 0

    def scan(self, log_start: int) -> Iterator[tuple[int, str]]:
        """Count the entries; numbers of those that do not hold, and why."""
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
        """Is this what the entry says?"""
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
    """Walks over records. `queues` has the queues by topic and id; the index covers a span of the log."""

    def __init__(
        self, queues: dict[bytes, dict[int, QueueCheck]], index_from: int, index_to: int, listener: Listener
    ) -> None:
        self._queues = queues
        self._index_from = index_from
        self._index_to = index_to
        self._listener = listener
        self.records = 0
        self.keys = 0  # of records that the index should know
        self.last_ms = 0  # store time of the last record
        self.times_back = 0  # how often it was earlier than the one before
        self.first_back = 0  # and where first

    def run(self, scanner: Scanner, view: memoryview) -> int:
        """Check records up to something else, and say what that is: a `Found`."""
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
        """What the CRC of the body says nothing about."""
        properties = bytes(view[scanner.properties_at : scanner.next_at])
        if properties.startswith(_RECORD_CRC, max(0, len(properties) - RECORD_CRC_SIZE)):
            try:
                check_record_crc(view, scanner.at)
            except CorruptRecordError as error:
                self._listener.torn(scanner, error.reason)
        elif (b"\0" in properties or b"\0" in topic) and is_torn(view, scanner):
            self._listener.torn(scanner, "part of its topic or properties is missing")


_NO_QUEUES: Final[dict[int, QueueCheck]] = {}
