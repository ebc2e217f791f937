# cython: annotation_typing=False
"""The key index: finds records by the hash of a key.

    index/20251115220304123     named by the time of its first entry; 420 MB, sparse at first
    │ header 40 │ slots: 5,000,000 × 4 │ entries: 20,000,000 × 20 … │
                  └ newest entry ─────▶ … entry ─▶ the previous one in the same slot ─▶ … ─▶ 0

The hash of `topic#key` selects a slot; from it a chain leads through all entries of that slot, newest first. Entries
are numbered from 1 in the order of the log. Keys are not stored: a query may return records of other keys with the
same hash, which the caller must filter. If a file has no space for all keys of a record, the next file is started.

Like the queues, the index is built from the log; doubtful entries after a crash are removed and built again.

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
"""The prefix of tags that are indexed as a key, as in Apache since 5.5."""

_ENTRIES_PER_SLOT: Final = 4  # the ratio in Apache's defaults, and in ours
_NAME_DIGITS: Final = 17

_NOT_ASCII = entry_layout.NOT_ASCII  # a C constant in index.pxd


class Hits(NamedTuple):
    """The result of a query, and how far the index has progressed."""

    offsets: list[int]
    """Log offsets, newest first."""
    last_ms: int
    last_physical: int


class Index:
    """All files of the index, oldest first. Call `load` before anything else."""

    __slots__ = ("_disk", "_entry_limit", "_file_time", "_files", "_folder", "_last", "_slot_count", "damaged")

    def __init__(
        self, disk: Disk, folder: Path, slot_count: int, entry_limit: int, file_time: Callable[[int], str]
    ) -> None:
        """`file_time` formats a time in ms as 17 digits of local time: yyyyMMddHHmmssSSS."""
        self._disk = disk
        self._folder = folder
        self._slot_count = slot_count
        self._entry_limit = entry_limit
        self._file_time = file_time
        self._files: list[IndexFile] = []
        self._last: IndexFile | None = None
        self.damaged: Path | None = None  # the first file with a wrong header, after `load`

    def load(self, crashed: bool = False) -> None:
        """Find the files. After a crash headers may be outdated: call `recover`. Raises BadStoreError, OSError."""
        sizes = self._disk.files(self._folder)
        for name in sorted(filter(str.isdigit, sizes)):
            path, size = self._folder / name, sizes[name]
            file = self._sized(path, size)
            if size:
                file.load()
            wrong = size > 0 and not crashed and file.header_is_wrong()
            if size == 0 or (file.count == 1 and not crashed and not wrong):
                file.remove()  # created, but never used
            elif wrong and size == file.size and file.slot_count == self._slot_count:
                self._files.append(file)
                self.damaged = self.damaged or path
            elif size == file.size and (file.slot_count == self._slot_count or file.fits()):
                self._files.append(file)
            else:
                raise BadStoreError(
                    f"{path} has {size} bytes, but was not created with {self._slot_count} slots and "
                    f"{self._entry_limit} entries: set maxHashSlotNum and maxIndexNum to their previous values, "
                    "or remove the folder; it is built again from the log"
                )
        self._find_last()

    def _find_last(self) -> None:
        # Compiled modules must not use negative list indices.
        self._last = self._files[len(self._files) - 1] if self._files else None

    def _sized(self, path: Path, size: int) -> IndexFile:
        """An existing file. If its size differs from that of new files, the usual ratio is assumed."""
        file = IndexFile(self._disk, path, self._slot_count, self._entry_limit)
        if size in (0, file.size):
            return file
        slot_count = max((size - HEADER_SIZE) // (SLOT_SIZE + _ENTRIES_PER_SLOT * ENTRY_SIZE), 1)
        return IndexFile(self._disk, path, slot_count, slot_count * _ENTRIES_PER_SLOT)

    # ── Dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, count: int, physical_offset: int, stored_ms: int) -> bool:
        """Prepare for the next record with this many keys; False if it was already added.

        All keys go into one file: recovery may have to remove one file and keep the other.
        Raises DiskFullError, DiskFailedError: nothing of the record is added, and it can be tried again.
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
        """Add a key of a record. Returns 1, or 0 if the index already has later records.

        The keys of a record are added before the next record: first `begin`, then these calls, then `finish`.
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
        """All keys of the last record are added: neither Kourou nor another broker will add it again.

        Raises OSError if the file was not written to since it was loaded.
        """
        if self._last is not None:
            self._last.finish()

    def _next_file(self, stored_ms: int) -> IndexFile:
        """Start a file. Its name sorts after all others, whatever the clock says."""
        before = self._last.path.name if self._last is not None else ""
        try:
            name = self._file_time(stored_ms)
        except (ValueError, OverflowError, OSError):
            name = ""  # not a valid time: the record is damaged
        if name <= before:
            name = f"{int(before or 0) + 1:0{_NAME_DIGITS}}"
        file = IndexFile(self._disk, self._folder / name, self._slot_count, self._entry_limit)
        file.create(self.end_physical, self.end_ms, self._last is not None and self._last.whole)
        self._files.append(file)
        self._last = file
        return file

    # ── Queries ───────────────────────────────────────────────────────────────────────────────────────────────────

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> Hits:
        """Records that may have this key and were stored in this period, up to `limit`. Raises OSError.

        Times are stored in seconds since the first entry of a file, rounded down, and compared in that form.
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
        """The file with this path, if it still exists."""
        return next((file for file in self._files if file.path == path), None)

    def drop_from(self, path: Path) -> list[Path]:
        """Remove this file and those after it from the index. The caller removes them from the disk."""
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
        """The log offset of the newest record in the index; 0 if it is empty."""
        return self._last.end_physical if self._last is not None else 0

    @property
    def end_ms(self) -> int:
        """The store time of the newest record in the index; 0 if it is empty."""
        return self._last.end_ms if self._last is not None else 0

    # ── Truncating ────────────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, log_end: int, log_start: int) -> None:
        """After a crash: keep the entries of records before this offset, up to which the index was synced, durably.

        A file that is followed by another one with such entries was synced completely, unless it had expired.
        Raises DiskFullError, DiskFailedError, OSError.
        """
        files, self._files = self._files, []
        last, first = -1, 0
        for number, file in enumerate(files):
            physical = file.first_physical()
            if first <= physical < log_end:  # a smaller offset than in the previous file is crash damage
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
        """Remove the entries of records from this offset on, durably. Returns how many. Raises OSError."""
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
        """Records before this offset expired: remove files without other entries from the index.

        Never the last one. The caller removes them from the disk: they are large, and removing them takes time.
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
        """Files with new entries since the last call, to be synced."""
        return [dirty for file in self._files if (dirty := file.dirty_file()) is not None]

    def release(self) -> None:
        """The files from `dirty_files` are synced: unmap all files but the last."""
        for file in self._files:
            file.was_synced()
            if file is not self._last and not file.is_dirty:
                file.close()

    def close(self) -> None:
        """Close the files, synced or not."""
        for file in self._files:
            file.close()
        self._files = []
        self._last = None
