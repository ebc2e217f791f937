# cython: annotation_typing=False
"""The key index: which records have a key, by its hash.

    index/20251115220304123     named by the time of its first entry; 420 MB, of which little is used at first
    │ header 40 │ slots: 5,000,000 × 4 │ entries: 20,000,000 × 20 … │
                  └ newest entry ─────▶ … entry ─▶ the one before in the same slot ─▶ … ─▶ 0

The hash of `topic#key` chooses a slot; from it a chain leads through all entries of that slot, newest first. Entries
are numbered from 1 in the order of the log. Keys themselves are not stored: a query may find records of other keys with
the same hash, which the one who asked must sort out. When a file has no room for all keys of a record, the next begins.

Like the queues, the index is made from the log, and what is doubtful after a crash is dropped and made again.

Java: IndexService.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kourou.protocol.hashes import index_hash
from kourou.store import entry_layout
from kourou.store.disk import Disk, File
from kourou.store.errors import BadStoreError
from kourou.store.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexFile

TAGS_KEY: Final = "T#"
"""What is before the tags of a record where they are entered as a key, as Apache does it since 5.5."""

_ENTRIES_PER_SLOT: Final = 4  # the proportion of Apache's defaults, and of ours
_NAME_DIGITS: Final = 17

_NOT_ASCII = entry_layout.NOT_ASCII  # a C constant in index.pxd


class Hits(NamedTuple):
    """What a query found, and how far the index had come."""

    offsets: list[int]
    """Physical offsets, newest first."""
    last_ms: int
    last_physical: int


class Index:
    """All files of the index, oldest first. `load` before anything else."""

    __slots__ = ("_disk", "_entry_limit", "_file_time", "_files", "_folder", "_last", "_slot_count", "damaged")

    def __init__(
        self, disk: Disk, folder: Path, slot_count: int, entry_limit: int, file_time: Callable[[int], str]
    ) -> None:
        """`file_time` writes a time in ms as 17 digits: the local time, as yyyyMMddHHmmssSSS."""
        self._disk = disk
        self._folder = folder
        self._slot_count = slot_count
        self._entry_limit = entry_limit
        self._file_time = file_time
        self._files: list[IndexFile] = []
        self._last: IndexFile | None = None
        self.damaged: Path | None = None  # the first file with a wrong header, after `load`

    def load(self, crashed: bool = False) -> None:
        """Find the files. After a crash their headers mean little: `recover` follows. Raises BadStoreError, OSError."""
        sizes = self._disk.files(self._folder)
        for name in sorted(filter(str.isdigit, sizes)):
            path, size = self._folder / name, sizes[name]
            file = self._sized(path, size)
            if size:
                file.load()
            wrong = size > 0 and not crashed and file.header_is_wrong()
            if size == 0 or (file.count == 1 and not crashed and not wrong):
                file.remove()  # made, and never used
            elif wrong and size == file.size and file.slot_count == self._slot_count:
                self._files.append(file)
                self.damaged = self.damaged or path
            elif size == file.size and (file.slot_count == self._slot_count or file.fits()):
                self._files.append(file)
            else:
                raise BadStoreError(
                    f"{path} has {size} bytes, and was not made with {self._slot_count} slots and {self._entry_limit} "
                    "entries: set maxHashSlotNum and maxIndexNum to what they were, or remove the folder, and it is "
                    "made again from the log"
                )
        self._find_last()

    def _find_last(self) -> None:
        # Compiled modules must not count from the end of a list.
        self._last = self._files[len(self._files) - 1] if self._files else None

    def _sized(self, path: Path, size: int) -> IndexFile:
        """A file that is there. Where it has another size than new ones get, the usual proportion is a good guess."""
        file = IndexFile(self._disk, path, self._slot_count, self._entry_limit)
        if size in (0, file.size):
            return file
        slot_count = max((size - HEADER_SIZE) // (SLOT_SIZE + _ENTRIES_PER_SLOT * ENTRY_SIZE), 1)
        return IndexFile(self._disk, path, slot_count, slot_count * _ENTRIES_PER_SLOT)

    # ── Dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, count: int, physical_offset: int, stored_ms: int) -> bool:
        """See to it that the next record can be entered with this many keys; False if it was entered before.

        All go into one file: a broker that recovers may have to remove one file and keep the other.
        Raises DiskFullError, DiskFailedError: nothing of the record is entered, and it can be tried again.
        """
        last = self._last
        if last is not None and physical_offset <= last.end_physical and self._has(last, physical_offset):
            return False
        if last is None or (not last.has_place_for(count) and last.count > 1):
            last = self._next_file(stored_ms)
        last.ensure_room(count)
        return True

    def _has(self, last: IndexFile, physical_offset: int) -> bool:
        return physical_offset < last.end_physical or last.whole

    def put(self, topic: bytes, key: bytes, physical_offset: int, stored_ms: int) -> int:
        """Enter a key of a record: 1, or 0 if the index has later records already.

        All keys of a record are entered before the next record: first `begin`, then these, then `finish`.
        Raises DiskFullError, DiskFailedError.
        """
        last = self._last
        if last is not None and physical_offset <= last.end_physical and self._has(last, physical_offset):
            return 0
        if last is None or last.count >= last.entry_limit:
            last = self._next_file(stored_ms)
        hash_ = entry_layout.key_hash(topic, key)
        if hash_ == _NOT_ASCII:
            hash_ = index_hash(f"{topic.decode('utf-8', 'replace')}#{key.decode('utf-8', 'replace')}")
        last.put(hash_, physical_offset, stored_ms)
        return 1

    def finish(self) -> None:
        """All keys of the last record are entered: it is never entered again, by us or by another broker.

        Raises OSError, if the file was not written to since it was loaded.
        """
        if self._last is not None:
            self._last.finish()

    def _next_file(self, stored_ms: int) -> IndexFile:
        """Begin a file. Its name comes after all others, whatever became of the clock."""
        before = self._last.path.name if self._last is not None else ""
        try:
            name = self._file_time(stored_ms)
        except (ValueError, OverflowError, OSError):
            name = ""  # a time that nobody can write as a date: the record is damaged there
        if name <= before:
            name = f"{int(before or 0) + 1:0{_NAME_DIGITS}}"
        file = IndexFile(self._disk, self._folder / name, self._slot_count, self._entry_limit)
        file.create(self.end_physical, self.end_ms, self._last is not None and self._last.whole)
        self._files.append(file)
        self._last = file
        return file

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> Hits:
        """Records that may have this key and were stored in this time, up to `limit`. Raises OSError.

        Times are kept in seconds since the first entry of a file, rounded down, and compared like that.
        """
        found: list[int] = []
        hash_ = index_hash(f"{topic}#{key}")
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                file.find(hash_, begin_ms, end_ms, limit, found)
            if file.begin_ms < begin_ms or len(found) >= limit:
                break
        return Hits(found, self.end_ms, self.end_physical)

    def paths(self) -> list[Path]:
        return [file.path for file in self._files]

    def file_at(self, path: Path) -> IndexFile | None:
        """The file with this path, if it is still there."""
        return next((file for file in self._files if file.path == path), None)

    def drop_from(self, path: Path) -> list[Path]:
        """This file and those after it are no part of this any more. Removing them is left to the caller."""
        kept = [file for file in self._files if file.path < path]
        dropped = [file for file in self._files if file.path >= path]
        for file in dropped:
            file.close()
        self._files = kept
        self._find_last()
        return [file.path for file in dropped]

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [file.path.name for file in self._files]

    @property
    def is_empty(self) -> bool:
        return not self._files

    @property
    def end_physical(self) -> int:
        """The physical offset of the newest record in the index; 0 without any."""
        return self._last.end_physical if self._last is not None else 0

    @property
    def end_ms(self) -> int:
        """The store time of the newest record in the index; 0 without any."""
        return self._last.end_ms if self._last is not None else 0

    # ── Cutting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, log_end: int, log_start: int) -> None:
        """After a crash: keep, durably, the entries of records before this offset, up to which the index was synced.

        A file that is followed by another one with such entries was synced as a whole, unless it had expired.
        Raises DiskFullError, DiskFailedError, OSError.
        """
        files, self._files = self._files, []
        last, first = -1, 0
        for number, file in enumerate(files):
            physical = file.first_physical()
            if first <= physical < log_end:  # an earlier offset than in the file before is one that a crash has torn
                last, first = number, physical
        for file in files[last + 1 :]:
            file.remove()
        for file in files[: max(last, 0)]:
            if file.end_physical < log_start or file.count == 1:
                file.remove()
            else:
                self._files.append(file)
        if last >= 0:
            files[last].recover(log_end)
            self._files.append(files[last])
        self._find_last()

    def truncate(self, log_end: int) -> int:
        """Remove, durably, the entries of records from this offset on; how many. Raises OSError."""
        count = 0
        while self._last is not None and self._last.end_physical >= log_end:
            count += self._last.truncate(log_end)
            if self._last.count > 1:
                break
            self._last.remove()
            self._files.pop()
            self._find_last()
        return count

    def expire(self, log_start: int) -> list[Path]:
        """Records before this offset are gone: files that know of no others are no part of this any more.

        Never the last one. Removing them is left to the caller: they are large, and that takes its time.
        """
        gone: list[Path] = []
        while len(self._files) > 1 and self._files[0].end_physical < log_start:
            file = self._files.pop(0)
            file.close()
            gone.append(file.path)
        return gone

    def remove_all(self) -> None:
        """Remove the index with its folder. Raises OSError."""
        self.close()
        self._disk.remove_folder(self._folder)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dirty_files(self) -> list[File]:
        """Files with entries since the last call, which are to be synced."""
        return [dirty for file in self._files if (dirty := file.dirty_file()) is not None]

    def release(self) -> None:
        """Unmap all files but the last; to be called when what `dirty_files` handed out is synced."""
        for file in self._files:
            if file is not self._last and not file.is_dirty:
                file.close()

    def close(self) -> None:
        """Let go of the files, synced or not."""
        for file in self._files:
            file.close()
        self._files = []
        self._last = None
