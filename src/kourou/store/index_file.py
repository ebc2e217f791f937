# cython: annotation_typing=False
"""One file of the key index: header, slots and entries. index.py draws it and says what they mean.

The header in the file is always up to date, so that another broker can open the file after a kill. Its end offset is
that of the last record, plus one as soon as all keys of that record are entered. Apache's broker never adds one. After
a start it enters the records from the end offset on, and so the last one again; with one added, it does not.

Java: IndexFile, IndexHeader.
"""

from pathlib import Path
from typing import Final

from kourou.store import entry_layout
from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.file_room import is_zero, reserve, zero_tail

HEADER_SIZE: Final = entry_layout.HEADER_SIZE
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = entry_layout.ENTRY_SIZE
SECONDS_MAX: Final = 0x7FFFFFFF
LATEST_MS: Final = 2**62

_ROOM: Final = 1024 * 1024  # entries get their room in steps of this many bytes

# The same once more under names that index_file.pxd makes C constants.
_HEADER = HEADER_SIZE
_SLOT = SLOT_SIZE
_ENTRY = ENTRY_SIZE
_SECONDS_MAX = SECONDS_MAX

_NOTHING: Final = memoryview(bytearray(0))


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
