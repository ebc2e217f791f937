# cython: annotation_typing=False
"""The key index: which records have a key, by its hash.

    index/20251115220304123     named by the time of its first entry; 420 MB, of which little is used at first
    │ header 40 │ slots: 5,000,000 × 4 │ entries: 20,000,000 × 20 … │
                  └ newest entry ─────▶ … entry ─▶ the one before in the same slot ─▶ … ─▶ 0

The hash of `topic#key` chooses a slot; from it a chain leads through all entries of that slot, newest first. Entries
are numbered from 1 in the order of the log. Keys themselves are not stored: a query may find records of other keys with
the same hash, which the one who asked must sort out. When a file has no room for all keys of a record, the next begins.

The header in the file is always up to date, so that another broker can open the file after a kill. Its end offset is
that of the last record, plus one as soon as all keys of that record are entered. Apache's broker never adds one. After
a start it enters the records from the end offset on, and so the last one again; with one added, it does not.

Like the queues, the index is made from the log, and what is doubtful after a crash is dropped and made again.

Java: IndexFile, IndexHeader, IndexService.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kourou.protocol.hashes import index_hash
from kourou.store import entry_layout
from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.errors import BadStoreError
from kourou.store.sparse import is_zero, reserve, zero_tail

HEADER_SIZE: Final = entry_layout.HEADER_SIZE
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = entry_layout.ENTRY_SIZE
TAGS_KEY: Final = "T#"
"""What stands before the tags of a record where they are entered as a key, as Apache does it since 5.5."""

SECONDS_MAX: Final = 0x7FFFFFFF
LATEST_MS: Final = 2**62

_ENTRIES_PER_SLOT: Final = 4  # the proportion of Apache's defaults, and of ours
_ROOM: Final = 1024 * 1024  # entries get their room in steps of this many bytes
_NAME_DIGITS: Final = 17

# The same once more under names that index.pxd makes C constants.
_HEADER = HEADER_SIZE
_SLOT = SLOT_SIZE
_ENTRY = ENTRY_SIZE
_SECONDS_MAX = SECONDS_MAX
_NOT_ASCII = entry_layout.NOT_ASCII


class Hits(NamedTuple):
    """What a query found, and how far the index had come."""

    offsets: list[int]
    """Physical offsets, newest first."""
    last_ms: int
    last_physical: int


class IndexFile:
    """One file of the index. It is mapped when somebody first reads or writes entries."""

    __slots__ = (
        "_asked",
        "_disk",
        "_entries_at",
        "_file",
        "_last_entry",
        "_room",
        "_view",
        "begin_ms",
        "begin_physical",
        "count",
        "end_ms",
        "end_physical",
        "entry_limit",
        "path",
        "slot_count",
        "slots_used",
        "whole",
    )

    def __init__(self, disk: Disk, path: Path, slot_count: int, entry_limit: int) -> None:
        self._disk = disk
        self.path = path
        self.slot_count = slot_count
        self.entry_limit = entry_limit  # of numbers: one entry less, for they begin with 1
        self._entries_at = HEADER_SIZE + slot_count * SLOT_SIZE
        self._file: File | None = None
        self._view: memoryview
        self._room = 0  # entries below this number have room; 0 also says that the file is not mapped for writing
        self._asked = 1  # entries below this number were handed out to be synced
        # The header.
        self.begin_ms = 0
        self.end_ms = 0
        self.begin_physical = 0
        self.end_physical = 0  # of the last record that has entries
        self.whole = False  # all keys of that record are entered
        self.slots_used = 0
        self.count = 1  # the number of the next entry
        self._last_entry = 0  # the offset of the last one, when the file was loaded

    @property
    def size(self) -> int:
        return self._entries_at + self.entry_limit * ENTRY_SIZE

    def load(self) -> None:
        """Read the header. Raises OSError."""
        (
            self.begin_ms,
            self.end_ms,
            self.begin_physical,
            self.end_physical,
            self.slots_used,
            count,
        ) = entry_layout.header(self._disk.read_at(self.path, 0, HEADER_SIZE), 0)
        self.count = self._asked = min(max(count, 1), self.entry_limit)
        self._know_last_record()

    def header_is_wrong(self) -> bool:
        """After a clean stop: does the header not fit the entries? Raises OSError."""
        if self.count == 1:
            return not is_zero(self._disk, self.path, HEADER_SIZE, self.size)
        return not (0 <= self.begin_ms <= self.end_ms and self.begin_physical <= self.end_physical == self._last_entry)

    def _know_last_record(self) -> None:
        """Tell an end offset of ours, which is one more, from one of Apache's. Either way, the record is complete."""
        if self.count == 1:
            return
        at = self._entries_at + (self.count - 1) * ENTRY_SIZE
        _, last, _, _ = entry_layout.index_entry(self._disk.read_at(self.path, at, ENTRY_SIZE), 0)
        self._last_entry = last
        if self.end_physical == last + 1:
            self.end_physical = last
            self.whole = True

    def create(self, end_physical: int, end_ms: int, whole: bool) -> None:
        """Make the file, which goes on where another one ended. Raises DiskFullError, DiskFailedError."""
        try:
            self._file = self._disk.create(self.path, self.size, reserve=False)
        except OSError as error:
            raise no_room(self.path, self._entries_at, error) from None
        self.begin_ms = self.end_ms = end_ms
        self.begin_physical = self.end_physical = end_physical
        self.whole = whole
        try:
            self._make_room()
        except BaseException:
            self.remove()
            raise
        self._put_header()

    # ── Entries ───────────────────────────────────────────────────────────────────────────────────────────────────

    def has_place_for(self, count: int) -> bool:
        return self.count + count <= self.entry_limit

    def ensure_room(self, count: int) -> None:
        """See to it that the next entries can be put. Raises DiskFullError, DiskFailedError."""
        if self.count + count > self._room and self._room < self.entry_limit:
            self._make_room(count)

    def put(self, hash_: int, physical_offset: int, stored_ms: int) -> None:
        """Add an entry to a file that is not full. Raises DiskFullError, DiskFailedError: nothing is changed."""
        number = self.count
        if number >= self._room:
            self._make_room()
        slot_at = _HEADER + hash_ % self.slot_count * _SLOT
        (before,) = entry_layout.slot(self._view, slot_at)
        if before >= number or before < 0:
            before = 0
        # As Java counts it: the first entry of a file after another still counts from the end of that one.
        seconds = 0
        if self.begin_ms > 0 and stored_ms > self.begin_ms:
            seconds = min((stored_ms - self.begin_ms) // 1000, _SECONDS_MAX)
        entry_at = self._entries_at + number * _ENTRY
        entry_layout.put_index_entry(self._view, entry_at, hash_, physical_offset, seconds, before)
        entry_layout.put_slot(self._view, slot_at, number)
        if number == 1:
            self.begin_physical = physical_offset
            self.begin_ms = stored_ms
        if before == 0:
            self.slots_used += 1
        self.count = number + 1
        self.end_physical = physical_offset
        self.whole = False
        self.end_ms = stored_ms
        self._put_header()

    def finish(self) -> None:
        """All keys of the last record are entered. Raises OSError."""
        if self.count > 1 and not self.whole:
            if self._room == 0:
                self._view = self._map().buffer
            self._asked = min(self._asked, self.count - 1)
            self.whole = True
            self._put_header()

    def _put_header(self) -> None:
        entry_layout.put_header(
            self._view,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_physical,
            self.end_physical + 1 if self.whole else self.end_physical,
            self.slots_used,
            self.count,
        )

    def _make_room(self, count: int = 1) -> None:
        """Map the file, and reserve room for header and slots once, and for some entries more."""
        file = self._map()
        at = self._entries_at + self.count * ENTRY_SIZE
        stop = min(at + max(_ROOM, count * ENTRY_SIZE), self.size)
        if self._room == 0:
            reserve(file, 0, self._entries_at)
        reserve(file, at, stop - at)
        self._view = file.buffer
        self._room = (stop - self._entries_at) // ENTRY_SIZE

    def _map(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def find(self, hash_: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Append the offsets of this hash and time to `found`, newest first, until it has `limit` of them.

        A record with a key twice counts once. Numbers fall along a chain, so that none is endless, whatever the bytes.
        """
        view = self._map().buffer
        (number,) = entry_layout.slot(view, HEADER_SIZE + hash_ % self.slot_count * SLOT_SIZE)
        above = self.count
        newest = found[len(found) - 1] if found else -1  # the offset that was found last
        while 0 < number < above and len(found) < limit:
            above = number
            at = self._entries_at + number * ENTRY_SIZE
            entry_hash, physical_offset, seconds, number = entry_layout.index_entry(view, at)
            if seconds < 0:
                break
            stored_ms = self.begin_ms + seconds * 1000
            if entry_hash == hash_ and begin_ms <= stored_ms <= end_ms and physical_offset != newest:
                found.append(physical_offset)
                newest = physical_offset
            if stored_ms < begin_ms:
                break

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return begin_ms <= self.end_ms and end_ms >= self.begin_ms

    # ── Cutting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, log_end: int) -> None:
        """After a crash: keep, durably, the entries of records before this offset.

        Those entries were synced. Slots and header may be of a later time and refer to entries that were lost; so they
        are made from the entries, which have all that is needed. Raises DiskFullError, DiskFailedError, OSError.
        """
        file = self._map()
        slots = memoryview(bytearray(self._entries_at - HEADER_SIZE))
        self._gather(log_end, file.buffer, slots)
        reserve(file, 0, self._entries_at)
        file.buffer[HEADER_SIZE : self._entries_at] = slots
        zero_tail(self._disk, file, self._entries_at + self.count * ENTRY_SIZE)
        self.end_ms = LATEST_MS
        self._end_with(self.count - 1, file.buffer)
        self._view = file.buffer
        self._put_header()
        file.sync()
        self._asked = self.count

    def first_physical(self) -> int:
        """Where the record of the first entry lies; -1 if the entry is not valid. Raises OSError."""
        first = self._disk.read_at(self.path, self._entries_at + ENTRY_SIZE, ENTRY_SIZE)
        hash_, physical_offset, seconds, _ = entry_layout.index_entry(first, 0)
        is_valid = hash_ >= 0 and seconds >= 0 and (hash_ > 0 or physical_offset > 0)
        return physical_offset if is_valid else -1

    def _gather(self, log_end: int, view: memoryview, slots: memoryview) -> None:
        """Count the entries that hold and are of records before this offset, and find the newest of each slot."""
        number = 1
        before = 0
        self.slots_used = 0
        while number < self.entry_limit:
            hash_, physical_offset, seconds, _ = entry_layout.index_entry(view, self._entries_at + number * _ENTRY)
            if physical_offset < before or physical_offset >= log_end or hash_ < 0 or seconds < 0:
                break
            if hash_ == 0 and physical_offset == 0:
                break  # never written
            slot_at = hash_ % self.slot_count * _SLOT
            if entry_layout.slot(slots, slot_at)[0] == 0:
                self.slots_used += 1
            entry_layout.put_slot(slots, slot_at, number)
            before = physical_offset
            number += 1
        self.count = number

    def truncate(self, log_end: int) -> int:
        """Remove, durably, the entries of records from this offset on; how many. Raises OSError.

        They are taken out of their slots, newest first; a crash in between leaves less to do. Then the header follows.
        """
        last = self.count
        if last == 1:
            return 0  # nothing was ever put into it, and it may have no room
        file = self._map()
        view = file.buffer
        number = last - 1
        while number > 0:
            at = self._entries_at + number * ENTRY_SIZE
            hash_, physical_offset, _, before = entry_layout.index_entry(view, at)
            if physical_offset < log_end:
                break
            slot_at = HEADER_SIZE + hash_ % self.slot_count * SLOT_SIZE
            if entry_layout.slot(view, slot_at)[0] == number:
                before = before if 0 < before < number else 0
                entry_layout.put_slot(view, slot_at, before)
                self.slots_used -= before == 0
            number -= 1
        file.sync()
        self.count = self._asked = number + 1
        # Later ones will stand among the old, and after a crash nothing tells one from the other.
        zero_tail(self._disk, file, self._entries_at + self.count * ENTRY_SIZE)
        self._end_with(number, view)
        self._view = view
        self._put_header()
        file.sync()
        return last - self.count

    def _end_with(self, number: int, view: memoryview) -> None:
        """The header's end for this last entry: of its time, only the second is known."""
        if number == 0:
            self.end_ms, self.end_physical, self.whole = self.begin_ms, self.begin_physical, False
            return
        _, self.end_physical, seconds, _ = entry_layout.index_entry(view, self._entries_at + number * ENTRY_SIZE)
        self.whole = True
        # The first entry of a file may count its seconds from the end of the file before.
        end_ms = self.begin_ms + seconds * 1000 + 999 if number > 1 else self.begin_ms
        self.end_ms = min(end_ms, self.end_ms)

    # ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fits(self) -> bool:
        """Are these the numbers of slots and entries that the file was made with? The newest entry's slot shows it."""
        last = self.count - 1
        if last == 0:
            return True
        at = self._entries_at + last * ENTRY_SIZE
        hash_, *_ = entry_layout.index_entry(self._disk.read_at(self.path, at, ENTRY_SIZE), 0)
        slot_at = HEADER_SIZE + hash_ % self.slot_count * SLOT_SIZE
        # A kill may come when the next entry has its slot already, and the header does not know of it.
        return hash_ >= 0 and entry_layout.slot(self._disk.read_at(self.path, slot_at, SLOT_SIZE), 0)[0] in (
            last,
            last + 1,
        )

    def dirty_file(self) -> File | None:
        """The file, if there are entries in it since the last call."""
        if not self.is_dirty:
            return None
        self._asked = self.count
        return self._file

    @property
    def is_dirty(self) -> bool:
        return self._asked < self.count

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._view = _NOTHING
        self._room = 0

    def remove(self) -> None:
        self.close()
        self._disk.remove(self.path)
        self._disk.sync_folder(self.path.parent)


_NOTHING: Final = memoryview(bytearray(0))


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


def check_entries(data: bytes, first: int, newest: memoryview, last_physical: int, log_end: int) -> tuple[int, int]:
    """How many of these entries are right, from the first one on, and the log offset of the last one that is.

    `first` is the number of the first one. `newest` has the newest entry of each slot, and is kept up to date.
    """
    slot_count = len(newest)
    count = len(data) // _ENTRY
    for place in range(count):
        hash_, physical_offset, seconds, before = entry_layout.index_entry(data, place * _ENTRY)
        if hash_ < 0 or seconds < 0 or physical_offset < last_physical or physical_offset >= log_end:
            return place, last_physical
        slot = hash_ % slot_count
        if before != newest[slot]:
            return place, last_physical
        newest[slot] = first + place
        last_physical = physical_offset
    return count, last_physical
