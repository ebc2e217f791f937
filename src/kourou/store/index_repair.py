"""Rebuilds a damaged index file and those after it from the log, while the store serves requests.

    after a start: CheckIndex, for each file ─▶ damaged? ─▶ DropIndex ─▶ ReadKeys ─▶ Index        all of it in slices
    after a failed sync: the file is written again ─▶ CheckIndex …

The files have no checksum. But entries ascend in the log, each refers to the previous one in its slot, and each slot
has its newest entry. Nearly any damage violates one of these rules, and a zeroed page always does.

Until it is rebuilt, the index ends where the damaged file began, and the checkpoint says so. If the store is closed
or crashes before, the next start recovers from there.

After a failed sync the system may treat pages as clean that never reached the disk, and drop them. So the bytes that
may have changed are written again, which keeps them in memory until the next sync, and then the file is checked. It is
rebuilt only if pages are already lost: queries are answered all the time.
"""

import logging
import sys
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kourou.store import entry_layout
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import Disk
from kourou.store.dispatch import Dispatcher
from kourou.store.errors import StoreError
from kourou.store.index import Index
from kourou.store.index_file import ENTRY_SIZE, HEADER_SIZE, SECONDS_MAX, SLOT_SIZE, check_entries
from kourou.store.jobs import Slice
from kourou.store.log_walk import LogWalk

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the index or of the log, for one job."""
RECORDS_MAX: Final = 200
"""The number of records whose keys one job returns: the owner adds them at once."""
CATCH_UP_BYTES: Final = 64 * 1024
"""Bytes of newer records: the owner reads them at once, or the rebuild would never end."""
RETRY_MS: Final = 1_000

_CHUNK: Final = 64 * 1024 // ENTRY_SIZE * ENTRY_SIZE
_SLOTS_CHUNK: Final = 64 * 1024

Keys = tuple[bytes, list[bytes], int, int]
"""The topic, keys, offset and store time of a record."""


@dataclass(slots=True)
class FileCheck:
    """The progress of the check of one file."""

    path: Path
    slot_count: int
    count: int  # entries from this number on are newer, and not checked
    log_end: int
    number: int = 1
    last_physical: int = 0
    slot: int = 0
    newest: "array[int]" = field(default_factory=lambda: array("i"))

    @property
    def entries_at(self) -> int:
        return HEADER_SIZE + self.slot_count * SLOT_SIZE


@dataclass(slots=True)
class CheckIndex(Slice):
    """One slice of the check of a file. `damage` describes what is wrong."""

    disk: Disk
    check: FileCheck
    damage: str | None = None
    complete: bool = False

    def _work(self) -> None:
        check = self.check
        if not check.newest:
            check.newest = array("i", bytes(4 * check.slot_count))
        budget = SLICE_BYTES
        while budget > 0 and self.damage is None and not self.complete:
            if check.number < check.count:
                budget -= self._check_entries()
            elif check.slot < check.slot_count:
                budget -= self._check_slots()
            else:
                self.complete = True

    def _check_entries(self) -> int:
        check = self.check
        size = min(_CHUNK, (check.count - check.number) * ENTRY_SIZE)
        data = self.disk.read_at(check.path, check.entries_at + check.number * ENTRY_SIZE, size)
        good, check.last_physical = check_entries(
            data, check.number, memoryview(check.newest), check.last_physical, check.log_end
        )
        if good * ENTRY_SIZE < size:
            self.damage = f"entry {check.number + good} is wrong"
        check.number += good
        return size

    def _check_slots(self) -> int:
        check = self.check
        stop = min(check.slot + _SLOTS_CHUNK // SLOT_SIZE, check.slot_count)
        found = self.disk.read_at(check.path, HEADER_SIZE + check.slot * SLOT_SIZE, (stop - check.slot) * SLOT_SIZE)
        expected = check.newest[check.slot : stop]
        there = array("i", found)
        if sys.byteorder == "little":
            there.byteswap()
        if there != expected:
            for place, (number, newest) in enumerate(zip(there, expected, strict=False)):
                if number != newest and self._before(number) != newest:
                    self.damage = f"slot {check.slot + place} is wrong"
                    break
        check.slot = stop
        return len(found)

    def _before(self, number: int) -> int:
        """The newest entry of a chain among those that existed when the check began."""
        check = self.check
        while number >= check.count:
            data = self.disk.read_at(check.path, check.entries_at + number * ENTRY_SIZE, ENTRY_SIZE)
            _, _, _, before = entry_layout.index_entry(data.ljust(ENTRY_SIZE, b"\0"), 0)
            if before >= number:
                return -1
            number = before
        return number


@dataclass(slots=True)
class DropIndex(Slice):
    """Write to the checkpoint that the index ends earlier, then remove its files from there on."""

    disk: Disk
    paths: list[Path]
    checkpoint_path: Path
    limit_ms: int  # the index has the records up to this store time

    def _work(self) -> None:
        checkpoint = Checkpoint.read(self.disk, self.checkpoint_path)
        lowered = msgspec.structs.replace(
            checkpoint,
            logical_ms=min(checkpoint.logical_ms, self.limit_ms),
            index_ms=min(checkpoint.index_ms, self.limit_ms),
        )
        lowered.write(self.disk, self.checkpoint_path)
        while self.paths:
            path = self.paths[len(self.paths) - 1]
            self.disk.remove(path)
            self.disk.sync_folder(path.parent)
            self.paths.pop()


@dataclass(slots=True)
class ReadKeys(Slice):
    """The keys of some records of the log."""

    walk: LogWalk
    dispatcher: Dispatcher
    found: list[Keys] = field(default_factory=list)

    def _work(self) -> None:
        for scanner in self.walk.records(SLICE_BYTES):
            if len(self.found) == RECORDS_MAX:
                return
            keys = self.dispatcher.keys_of(scanner)
            if keys:
                self.found.append((scanner.topic, keys, scanner.physical_offset, scanner.stored_ms))


class IndexRepair:
    """The checks and rebuilds of the index, for the owner of a store. `index` is None if there is none."""

    def __init__(
        self, disk: Disk, index: Index | None, dispatcher: Dispatcher, log_folder: Path, file_size: int
    ) -> None:
        self._disk = disk
        self._index = index
        self._dispatcher = dispatcher
        self._log_folder = log_folder
        self._file_size = file_size
        self._unchecked: list[Path] = []
        self._check: FileCheck | None = None
        self._dropped: list[Path] = []
        self._unsynced: list[Path] = []  # files whose sync failed, and that are not checked yet
        self._step: int | None = None  # the next one of `IndexFile.rewrite` of the first of them; None: it is checked
        self._walk: LogWalk | None = None
        self._not_before_ms = 0
        self._problem: str | None = None
        self.behind = False  # the index lacks records that were dispatched
        self.job: CheckIndex | DropIndex | ReadKeys | None = None

    def start(self) -> None:
        """Check all existing files."""
        if self._index is not None:
            self._unchecked = self._index.paths()
            if self._index.damaged in self._unchecked:
                self._found(self._index.damaged, "its header is wrong")

    def not_synced(self, paths: set[Path]) -> None:
        """These files could not be synced: rewrite and check them."""
        if paths:
            self._unsynced = sorted({*self._unsynced, *paths})
            self._step = 0

    def _is_rewritten(self, dispatched: int, now_ms: int) -> bool:
        """Write a step of the first file again; after the last one its check can begin."""
        assert self._index is not None
        if self._step is None:
            return True
        file = self._index.file_at(self._unsynced[0])
        try:
            if file is not None and file.rewrite(self._step):
                self._step += 1
                return False
        except OSError as error:
            self._try_later(error, now_ms)
            return False
        self._step = None
        if self._check is not None:
            self._unchecked.insert(0, self._check.path)
            self._check = None
        if file is None:
            self._checked(self._unsynced[0])  # it expired
        else:
            self._check = FileCheck(file.path, file.slot_count, file.count, dispatched)
        return True

    def _checked(self, path: Path) -> None:
        """A file is correct, or no longer exists."""
        if self._unsynced and self._unsynced[0] == path and self._step is None:
            del self._unsynced[0]
            self._step = 0 if self._unsynced else None

    @property
    def has_unsynced(self) -> bool:
        """Does the index have files whose contents are uncertain?"""
        return bool(self._unsynced)

    @property
    def is_idle(self) -> bool:
        return not self.behind and not self._unsynced and self._check is None and not self._unchecked

    def limit_ms(self, stored_ms: int) -> int:
        """The store time up to which the index has all records."""
        if not self.behind or self._index is None:
            return stored_ms
        return min(stored_ms, self._index.end_ms)

    def due_ms(self, *, syncing: bool) -> int | None:
        """When `next_job` has a slice; None while another job is not returned."""
        if self.job is not None or self._index is None or (self._dropped and syncing):
            return None
        return self._not_before_ms if self._dropped or not self.is_idle else None

    def next_job(
        self, log_start: int, dispatched: int, now_ms: int, checkpoint: Path, *, syncing: bool
    ) -> Slice | None:
        """The next slice, if there is work and none is running. `syncing`: a checkpoint is being written."""
        if self.job is not None or now_ms < self._not_before_ms or self._index is None:
            return None
        if self._unsynced and not self.behind and not self._is_rewritten(dispatched, now_ms):
            return None
        if self._dropped:
            if not syncing:  # or it might claim that removed entries are durable
                self.job = DropIndex(self._disk, self._dropped, checkpoint, self.limit_ms(SECONDS_MAX * 1000))
        elif self.behind:
            self.job = self._next_read(log_start, dispatched)
        elif self._check is not None or self._begin_check(dispatched):
            assert self._check is not None
            self.job = CheckIndex(self._disk, self._check)
        return self.job

    def _begin_check(self, dispatched: int) -> bool:
        assert self._index is not None
        while self._unchecked:
            path = self._unchecked.pop(0)
            file = self._index.file_at(path)
            if file is not None:
                self._check = FileCheck(path, file.slot_count, file.count, dispatched)
                return True
        return False

    def _next_read(self, log_start: int, dispatched: int) -> ReadKeys:
        assert self._index is not None
        if self._walk is None:
            begin = max(self._index.end_physical, log_start)  # of a record, or of the log
            self._walk = LogWalk(self._disk, self._log_folder, self._file_size, begin, dispatched)
        self._walk.at, self._walk.end = max(self._walk.at, log_start), dispatched
        return ReadKeys(self._walk, self._dispatcher)

    def finished(self, job: Slice, dispatched: int, now_ms: int) -> None:
        """A slice has ended."""
        self.job = None
        if job.error is not None:
            self._try_later(job.error, now_ms)
            return
        self._problem = None
        if isinstance(job, CheckIndex):
            if job.damage is not None:
                self._found(job.check.path, job.damage)
            elif job.complete:
                self._check = None
                self._checked(job.check.path)
        elif isinstance(job, ReadKeys):
            self._enter(job, dispatched, now_ms)

    def _found(self, path: Path, damage: str) -> None:
        assert self._index is not None
        self._check = None
        self._unchecked = []
        self._unsynced = [unsynced for unsynced in self._unsynced if unsynced < path]
        self._step = 0 if self._unsynced else None
        self._walk = None
        self._dropped = self._index.drop_from(path)
        if not self._dropped:
            return  # it expired
        self.behind = True
        self._dispatcher.use_index(None)
        log.warning("%s is damaged (%s): the index is rebuilt from the log from there on", path, damage)

    def _enter(self, job: ReadKeys, dispatched: int, now_ms: int) -> None:
        index = self._index
        assert index is not None
        try:
            self._enter_all(job.found)
            if job.walk.at < dispatched <= job.walk.at + CATCH_UP_BYTES:
                job.walk.end = dispatched
                last = ReadKeys(job.walk, self._dispatcher)
                last.run()
                if last.error is not None:
                    raise last.error
                self._enter_all(last.found)
        except (StoreError, OSError) as error:
            self._walk = None  # it starts again with the last added record
            self._try_later(error, now_ms)
            return
        if job.walk.at >= dispatched:
            self.behind = False
            self._walk = None
            self._dispatcher.use_index(index)
            log.warning("the index is rebuilt, with records up to %d", dispatched)

    def _enter_all(self, records: list[Keys]) -> None:
        index = self._index
        assert index is not None
        for topic, keys, physical_offset, stored_ms in records:
            if index.begin(len(keys), physical_offset, stored_ms):
                for key in keys:
                    index.put(topic, key, physical_offset, stored_ms)
                index.finish()

    def _try_later(self, error: Exception, now_ms: int) -> None:
        self._not_before_ms = now_ms + RETRY_MS
        if self._problem != str(error):
            self._problem = str(error)
            log.error("the index can't be checked or rebuilt yet: %s", error)
