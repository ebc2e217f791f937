"""Rebuilds damaged entries of consume queues from the log, while other requests are served.

    a reader finds a wrong entry ─▶ Damage ─▶ SearchLog, slice by slice, in a worker ─▶ entries ─▶ the queue
                                                └ between the nearest correct entries

An entry is wrong if it is empty, or if it does not point to the record with its number. Readers wait before it, as at
the end of the queue, and are woken when it is correct. Entries whose records are missing from the log become blanks.
"""

import logging
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.store import entry_layout
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.disk import Disk
from kourou.store.dispatch import Dispatcher
from kourou.store.jobs import Slice
from kourou.store.log_walk import LogWalk
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE
from kourou.store.queues import Queues
from kourou.store.segments import segment_name

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the log for one job."""
ENTRIES_MAX: Final = 1_000
"""The most entries from one job, since the owner writes them at once."""
STRETCH_MAX: Final = 1_000_000
"""The most entries that are repaired together. Further damage is repaired when a reader reaches it."""
RETRY_MS: Final = 1_000
REMEMBERED_MAX: Final = 1_000
"""How many repaired ranges are remembered, which are not repaired again for the same entries."""

Key = tuple[str, int]
Patch = tuple[int, int, int, int]
"""Number, physical offset, size, code of the tags."""


@dataclass(slots=True, eq=False)
class Damage:
    """Entries of a queue from `low` to `high`, of which at least `number` is wrong."""

    queue: ConsumeQueue
    folder: Path
    file_entries: int
    first: int  # the first entry that the queue has room for
    number: int
    high: int
    low: int = -1  # not known yet
    ends: "array[int]" = field(default_factory=lambda: array("q"))  # the ends of the records found; 0: not found
    checked: int = 0  # how many of these were examined after the search
    before: int = 0  # the end of the record before those
    lost: int = 0

    @property
    def key(self) -> Key:
        return self.queue.topic, self.queue.queue_id


@dataclass(slots=True)
class SearchLog(Slice):
    """One slice: records of the queue from the position of the walk on."""

    disk: Disk
    damage: Damage
    walk: LogWalk
    log_start: int
    dispatcher: Dispatcher
    found: list[Patch] = field(default_factory=list)
    complete: bool = False

    def _work(self) -> None:
        damage = self.damage
        if damage.low < 0:
            self._find_limits()
        topic = damage.queue.topic.encode("utf-8", "surrogateescape")
        for scanner in self.walk.records(SLICE_BYTES):
            number = scanner.queue_offset
            if scanner.queue_id != damage.queue.queue_id or not damage.low <= number < damage.high:
                continue
            if scanner.topic == topic and self.dispatcher.has_entry(scanner):
                code = self.dispatcher.tags_code(scanner)
                self.found.append((number, scanner.physical_offset, scanner.size, code))
                damage.ends[number - damage.low] = scanner.physical_offset + scanner.size
                if len(self.found) >= ENTRIES_MAX:
                    return  # the walk stays at this record and will find it again
        if self.walk.at >= self.walk.end:
            self.complete = self._add_blanks()

    def _find_limits(self) -> None:
        """Find the nearest correct entries on both sides, which limit the search in the log."""
        damage, walk = self.damage, self.walk
        low, begin = damage.first, walk.at
        number, step = damage.number - 1, 1
        while number >= damage.first:
            found = self._right(number)
            if found is not None:
                low, begin = number + 1, sum(found)
                break
            number, step = number - step, 2 * step
        high, end = damage.high, walk.end
        number, step = damage.number + 1, 1
        while number < damage.high:
            found = self._right(number)
            if found is not None:
                high, end = number, found[0]
                break
            number, step = number + step, 2 * step
        if high - low > STRETCH_MAX:
            low, high = max(low, damage.number - STRETCH_MAX // 2), min(high, damage.number + STRETCH_MAX // 2)
        damage.low, damage.high, damage.before, walk.at, walk.end = low, high, begin, begin, end
        damage.ends = array("q", bytes(8 * (high - low)))

    def _entry(self, number: int) -> tuple[int, int, int]:
        damage = self.damage
        size = damage.file_entries * ENTRY_SIZE
        position = number * ENTRY_SIZE
        path = damage.folder / segment_name(position - position % size)
        data = self.disk.read_at(path, position % size, ENTRY_SIZE)
        return entry_layout.entry(data.ljust(ENTRY_SIZE, b"\0"), 0)

    def _right(self, number: int) -> tuple[int, int] | None:
        """Physical offset and size, if the entry points to the record with its number."""
        physical, size, _ = self._entry(number)
        queue = self.damage.queue
        scanner = self.walk.record(physical, size) if size != BLANK_SIZE else None
        topic = queue.topic.encode("utf-8", "surrogateescape")
        if scanner is None or (scanner.queue_offset, scanner.queue_id, scanner.topic) != (
            number,
            queue.queue_id,
            topic,
        ):
            return None
        return physical, size

    def _add_blanks(self) -> bool:
        """Add blanks for entries without records, unless these were before the log. Returns whether all are done."""
        damage = self.damage
        while damage.checked < len(damage.ends) and len(self.found) < ENTRIES_MAX:
            number, end = damage.low + damage.checked, damage.ends[damage.checked]
            damage.checked += 1
            damage.before = end or damage.before
            if end:
                continue
            physical, size, _ = self._entry(number)
            if (size <= 0 or physical >= self.log_start) and self._right(number) is None:
                self.found.append((number, damage.before, BLANK_SIZE, 0))
                damage.lost += 1
        return damage.checked == len(damage.ends)


class QueueRepairs:
    """The damaged entries, for the owner of a store. One range is repaired at a time."""

    def __init__(self, disk: Disk, queues: Queues, dispatcher: Dispatcher, log_folder: Path, file_size: int) -> None:
        self._disk = disk
        self._queues = queues
        self._dispatcher = dispatcher
        self._log_folder = log_folder
        self._file_size = file_size
        self._waiting: dict[Key, Damage] = {}  # in the order they were found
        self._walk: LogWalk | None = None  # of the first of them
        self._settled: dict[Key, tuple[int, int]] = {}
        self._repaired: list[Key] = []
        self._not_before_ms = 0
        self._problem: str | None = None
        self.job: SearchLog | None = None

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def found(self, queue: ConsumeQueue, number: int) -> bool:
        """An entry is wrong. Returns whether it will be repaired; not if a repair was already tried."""
        key = queue.topic, queue.queue_id
        if key in self._waiting:
            return True
        low, high = self._settled.get(key, (0, 0))
        if low <= number < high:
            return False
        folder, file_entries = self._queues.place(*key)
        log.warning("entry %d in queue %d of %s is damaged; it is rebuilt from the log", number, key[1], key[0])
        self._waiting[key] = Damage(queue, folder, file_entries, queue.first, number, queue.end)
        return True

    def due_ms(self) -> int | None:
        """When `next_job` has a slice; None if no queue is damaged or a slice is running."""
        return self._not_before_ms if self._waiting and self.job is None else None

    def next_job(self, log_start: int, dispatched: int, now_ms: int) -> SearchLog | None:
        """The next slice, if there is work and no slice is running."""
        if self.job is not None or not self._waiting or now_ms < self._not_before_ms:
            return None
        damage = next(iter(self._waiting.values()))
        if self._walk is None:
            self._walk = LogWalk(self._disk, self._log_folder, self._file_size, log_start, dispatched)
        self._walk.at = max(self._walk.at, log_start)
        self.job = SearchLog(self._disk, damage, self._walk, log_start, self._dispatcher)
        return self.job

    def finished(self, job: SearchLog, now_ms: int) -> None:
        """A slice is done. Raises OSError; the slice is retried then."""
        self.job = None
        damage = job.damage
        if self._queues.get(*damage.key) is not damage.queue:  # it was removed
            self._forget(damage.key)
            return
        try:
            if job.error is not None:
                raise job.error
            damage.queue.patch(job.found)
            if job.complete:
                damage.queue.refresh()
        except OSError as error:
            self._not_before_ms = now_ms + RETRY_MS
            if self._problem != str(error):
                self._problem = str(error)
                log.error("queue %d of %s can't be repaired yet: %s", damage.key[1], damage.key[0], error)
            return
        self._problem = None
        if job.complete:
            self._settle(damage)

    def _settle(self, damage: Damage) -> None:
        key = damage.key
        log.warning(
            "queue %d of %s is repaired: entries %d to %d were rebuilt from the log, %d of them are blanks",
            key[1],
            key[0],
            damage.low,
            damage.high - 1,
            damage.lost,
        )
        self._settled.pop(key, None)
        self._settled[key] = damage.low, damage.high
        if len(self._settled) > REMEMBERED_MAX:
            del self._settled[next(iter(self._settled))]
        self._repaired.append(key)
        self._forget(key)

    def _forget(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._walk = None

    def take_repaired(self) -> list[Key]:
        """Queues that were repaired since the last call: pulls that wait for their messages can be served."""
        repaired, self._repaired = self._repaired, []
        return repaired
