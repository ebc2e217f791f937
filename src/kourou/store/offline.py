"""Reads the files of a store that is not open: for `kourou store`.

This module never changes or creates a file and never recovers anything. So it can read a store of another broker, a
copy, a read-only disk and, with care, a store in use. Names, sizes and entries may be wrong in any way; none of that
raises.

    StoreFiles      the root: the log, queues, index, small files
    LogFiles        the segments, and records in them
    QueueFiles      entries of one queue
    IndexView       header, slots and entries of one index file
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.hashes import index_hash
from kourou.protocol.record import Found, Scanner
from kourou.store import entry_layout
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import Disk, Lock, RealDisk
from kourou.store.index_file import HEADER_SIZE, SLOT_SIZE
from kourou.store.paths import Paths
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE
from kourou.store.records import find_record, goes_on_at, scan
from kourou.store.segments import NAME_DIGITS, segment_name

ENTRIES_PER_SLOT: Final = 4
BLOCK_ENTRIES: Final = 204  # of a queue: nearly a page
SCANNED_ENTRIES: Final = 3276  # nearly 64 KiB

_NOTHING: Final = memoryview(b"")


def is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A file whose name is the offset of its first byte."""

    start: int
    size: int


class Folder:
    """A folder of segments. `strays` are the names of other files."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder
        sizes = disk.files(folder)
        self.strays = sorted(name for name in sizes if not is_segment_name(name))
        self.segments = [Segment(int(name), sizes[name]) for name in sorted(sizes) if is_segment_name(name)]
        self.file_size = max((segment.size for segment in self.segments), default=0)
        self._mapped: tuple[int, memoryview] = (-1, _NOTHING)

    def path(self, start: int) -> Path:
        return self.folder / segment_name(start)

    @property
    def start(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        return self.segments[-1].start + self.segments[-1].size if self.segments else 0

    def view(self, start: int) -> memoryview:
        """The bytes of a file; empty if it can't be read. Only one file is mapped at a time."""
        if self._mapped[0] != start:
            self._mapped = (start, read_only(self._disk, self.path(start)))
        return self._mapped[1]

    def problems(self) -> Iterator[tuple[Path, str]]:
        """Wrong names and sizes."""
        for name in self.strays:
            yield self.folder / name, "its name is not an offset of 20 digits: no broker will open this folder"
        expected = self.start
        for segment in self.segments:
            if segment.start != expected:
                yield self.path(expected), f"it is missing: the next file is {segment_name(segment.start)}"
            if segment.size != self.file_size:
                yield self.path(segment.start), f"it has {segment.size} bytes, others have {self.file_size}"
            expected = segment.start + self.file_size


def read_only(disk: Disk, path: Path) -> memoryview:
    """All bytes of a file, not copied; empty if it is missing, empty or unreadable."""
    try:
        file = disk.open(path, writable=False)
    except OSError:
        return _NOTHING
    file.close()  # the mapping stays as long as a slice of it exists
    return file.buffer


class LogFiles(Folder):
    """The segments of the log."""

    def scanner(self, offset: int, *, crc: bool = True) -> Scanner | None:
        """A scanner at an offset of the log; None if no segment contains it."""
        if not self.file_size:
            return None
        base = offset - offset % self.file_size
        view = self.view(base) if self.start <= offset < self.end else _NOTHING
        return scan(view, base, offset - base, crc=crc) if offset - base < len(view) else None

    def next_record(self, offset: int) -> int | None:
        """The next position in the same segment with bytes that look like a record."""
        base = offset - offset % self.file_size
        found = find_record(self.view(base), offset - base, base)
        return None if found is None else base + found

    def records(self, offset: int) -> Iterator[Scanner]:
        """Scanners at each record from this position on. Damaged parts are skipped."""
        while (scanner := self.scanner(offset)) is not None:
            found = scanner.step()
            while found == Found.RECORD:
                yield scanner
                found = scanner.step()
            base = offset - offset % self.file_size
            following = goes_on_at(scanner, found, base, self.file_size)
            if following is None:
                following = self.next_record(base + scanner.at + 1)
            offset = base + self.file_size if following is None else following


class QueueFiles(Folder):
    """The entries of one queue, read in blocks: a store may have too many queues to map a file of each."""

    def __init__(self, disk: Disk, folder: Path, topic: str, queue_id: int) -> None:
        super().__init__(disk, folder)
        self.topic = topic
        self.queue_id = queue_id
        self.file_entries = self.file_size // ENTRY_SIZE
        self._block = b""  # some entries, and the number of the first
        self._block_first = 0

    @property
    def first(self) -> int:
        """The number of the first entry in the files."""
        return self.start // ENTRY_SIZE

    @cached_property
    def length(self) -> int:
        """The number of the first empty entry in the last file that has entries. Computed once."""
        for segment in reversed(self.segments):
            first = segment.start // ENTRY_SIZE
            found = self._first_that(self._is_empty, first, first + segment.size // ENTRY_SIZE)
            if found > first:
                return found
        return self.first

    def live_from(self, log_start: int) -> int:
        """The number of the first entry whose record is still in the log."""

        def is_live(number: int) -> bool:
            physical_offset, size, _ = self.entry(number) or (0, 0, 0)
            return physical_offset >= log_start and (size != BLANK_SIZE or physical_offset > 0)

        return self._first_that(is_live, self.first, self.length)

    def _is_empty(self, number: int) -> bool:
        return (self.entry(number) or (0, 0, 0))[1] <= 0

    @staticmethod
    def _first_that(holds: Callable[[int], bool], low: int, high: int) -> int:
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def entry(self, number: int) -> tuple[int, int, int] | None:
        """Log offset, size and tags code; None outside the files."""
        at = (number - self._block_first) * ENTRY_SIZE
        if not 0 <= at < len(self._block):
            self._block, self._block_first = self.block(number)
            at = (number - self._block_first) * ENTRY_SIZE
        return entry_layout.entry(self._block, at) if at + ENTRY_SIZE <= len(self._block) else None

    def entries(self, number: int) -> Iterator[tuple[int, int, int]]:
        """The entries from this one on, up to the first empty one."""
        while True:
            block, first = self.block(number, SCANNED_ENTRIES)
            count = first + len(block) // ENTRY_SIZE - number
            if count <= 0:
                return
            for at in range((number - first) * ENTRY_SIZE, len(block) - ENTRY_SIZE + 1, ENTRY_SIZE):
                entry = entry_layout.entry(block, at)
                if entry[1] <= 0:
                    return
                yield entry
            number += count

    def block(self, number: int, count: int = BLOCK_ENTRIES) -> tuple[bytes, int]:
        """The bytes of a block of entries with this one, and the number of the first. None if it can't be read."""
        if self.file_entries == 0 or not self.first <= number < self.end // ENTRY_SIZE:
            return b"", number
        file_first = number - number % self.file_entries
        first = file_first + (number - file_first) // count * count
        size = min(count, file_first + self.file_entries - first) * ENTRY_SIZE
        try:
            at = (first - file_first) * ENTRY_SIZE
            return self._disk.read_at(self.path(file_first * ENTRY_SIZE), at, size), first
        except OSError:
            return b"", number


class IndexView:
    """One file of the index. `problem` says why it is invalid."""

    def __init__(self, disk: RealDisk, path: Path, slot_count: int | None = None) -> None:
        self.path = path
        self.view = read_only(disk, path)
        size = len(self.view)
        self.slot_count = slot_count or max((size - HEADER_SIZE) // (SLOT_SIZE + ENTRIES_PER_SLOT * ENTRY_SIZE), 1)
        self.entries_at = HEADER_SIZE + self.slot_count * SLOT_SIZE
        self.entry_limit = (size - self.entries_at) // ENTRY_SIZE
        self.problem: str | None = None
        header = (0, 0, 0, 0, 0, 1)
        if size < HEADER_SIZE or self.entry_limit < 1:
            self.problem = f"its {size} bytes are too few for {self.slot_count} slots"
        else:
            header = entry_layout.header(self.view, 0)
        self.begin_ms, self.end_ms, self.begin_physical, self.end_physical, self.slots_used, self.count = header
        if self.problem is None and not 0 <= self.count <= self.entry_limit:
            self.problem = f"the next entry should be number {self.count}, and there is room for {self.entry_limit}"
        if self.problem is not None:
            self.count = 1

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, log offset, seconds since `begin_ms`, number of the previous entry."""
        return entry_layout.index_entry(self.view, self.entries_at + number * ENTRY_SIZE)

    def slot(self, number: int) -> int:
        return entry_layout.slot(self.view, HEADER_SIZE + number * SLOT_SIZE)[0]

    def find(self, topic: str, key: str) -> Iterator[int]:
        """The log offsets of records that may have a key, newest first."""
        hash_ = index_hash(f"{topic}#{key}")
        number, above = self.slot(hash_ % self.slot_count) if self.count > 1 else 0, self.count
        while 0 < number < above:
            above = number
            entry_hash, physical_offset, _, number = self.entry(number)
            if entry_hash == hash_:
                yield physical_offset


@dataclass(slots=True)
class StoreFiles:
    """A store's root folder."""

    paths: Paths
    disk: RealDisk
    log: LogFiles

    @classmethod
    def at(cls, root: Path, commit_log: Path | None = None) -> "StoreFiles":
        """Raises OSError for folders that can't be read."""
        paths = Paths(root.absolute(), commit_log)
        disk = RealDisk(paths.aside)
        return cls(paths, disk, LogFiles(disk, paths.commit_log))

    @property
    def is_store(self) -> bool:
        """True if there is any part of a store."""
        folders = (self.paths.commit_log, self.paths.queues, self.paths.index)
        return any(folder.is_dir() for folder in folders) or self.paths.checkpoint.is_file()

    def lock(self) -> Lock | None:
        """Exclude brokers while reading. Raises StoreInUseError if a broker has the store open."""
        return self.disk.lock_for_reading(self.paths.lock)

    @property
    def is_clean(self) -> bool:
        """True if the last run stopped cleanly."""
        return not self.paths.abort.exists()

    def checkpoint(self) -> Checkpoint | None:
        """Raises OSError."""
        content = self.disk.read(self.paths.checkpoint)
        return None if content is None else Checkpoint.decode(content)

    def queue_names(self) -> list[tuple[str, int]]:
        """Topics and ids of the queues that have a folder."""
        names = []
        for topic in self.disk.folders(self.paths.queues):
            ids = (name for name in self.disk.folders(self.paths.queues / topic) if name.isascii() and name.isdigit())
            names += [(topic, queue_id) for queue_id in sorted(map(int, ids))]
        return names

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        return QueueFiles(self.disk, self.paths.queues / topic / str(queue_id), topic, queue_id)

    def index_files(self) -> list[IndexView]:
        """Oldest first."""
        names = sorted(name for name in self.disk.files(self.paths.index) if name.isascii() and name.isdigit())
        return [IndexView(self.disk, self.paths.index / name) for name in names]
