# cython: annotation_typing=False
"""One file of the key index: header, slots and entries. index.py draws and explains it.

The header in the file is always up to date, so that another broker can open the file after a kill. Its end offset is
that of the last record, plus one as soon as all keys of that record are added. Apache's broker never adds one: after a
start it adds the records from the end offset on, and so the last one again. With one added, it does not.

Java: IndexFile, IndexHeader.
"""

from contextlib import suppress
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

REWRITE_STEP: Final = 1024 * 1024
"""Bytes that are rewritten at once."""

_ROOM: Final = 1024 * 1024  # space for entries is reserved in steps of this many bytes

# The same values under names that index_file.pxd declares as C constants.
_HEADER = HEADER_SIZE
_SLOT = SLOT_SIZE
_ENTRY = ENTRY_SIZE
_SECONDS_MAX = SECONDS_MAX

_NOTHING: Final = memoryview(bytearray(0))


class IndexFile:
    """One file of the index. It is mapped when entries are first read or written."""

    __slots__ = (
        "_asked",
        "_disk",
        "_durable",
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
        self.entry_limit = entry_limit  # of numbers, which begin with 1: one entry less
        self._entries_at = HEADER_SIZE + slot_count * SLOT_SIZE
        self._file: File | None = None
        self._view: memoryview
        self._room = 0  # entries below this number have space; 0: the file is not mapped for writing
        self._asked = 1  # entries below this number were returned by `dirty_file`
        self._durable = 1  # entries below this number are durable
        # The header.
        self.begin_ms = 0
        self.end_ms = 0
        self.begin_physical = 0
        self.end_physical = 0  # of the last record that has entries
        self.whole = False  # all keys of that record are added
        self.slots_used = 0
        self.count = 1  # the number of the next entry
        self._last_entry = 0  # the offset of the last entry when the file was loaded

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
        self.count = self._asked = self._durable = min(max(count, 1), self.entry_limit)
        self._know_last_record()

    def header_is_wrong(self) -> bool:
        """After a clean stop: true if the header does not match the entries. Raises OSError."""
        if self.count == 1:
            return not is_zero(self._disk, self.path, HEADER_SIZE, self.size)
        return not (0 <= self.begin_ms <= self.end_ms and self.begin_physical <= self.end_physical == self._last_entry)

    def _know_last_record(self) -> None:
        """Tell an end offset of Kourou, which is one more, from one of Apache. In both cases the record is complete."""
        if self.count == 1:
            return
        at = self._entries_at + (self.count - 1) * ENTRY_SIZE
        _, last, _, _ = entry_layout.index_entry(self._disk.read_at(self.path, at, ENTRY_SIZE), 0)
        self._last_entry = last
        if self.end_physical == last + 1:
            self.end_physical = last
            self.whole = True

    def create(self, end_physical: int, end_ms: int, whole: bool) -> None:
        """Create the file after another one. Raises DiskFullError, DiskFailedError."""
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
            with suppress(OSError):  # the next try, or the next start, replaces or removes it
                self.remove()
            raise
        self._put_header()

    # ── Entries ───────────────────────────────────────────────────────────────────────────────────────────────────

    def has_place_for(self, count: int) -> bool:
        return self.count + count <= self.entry_limit

    def ensure_room(self, count: int) -> None:
        """Make sure that the next entries can be added. Raises DiskFullError, DiskFailedError."""
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
        # As in Java: the first entry of a file after another is still counted from the end of that one.
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
        """All keys of the last record are added. Raises OSError."""
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
        """Map the file, and reserve space for header and slots once, and for some more entries."""
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

        A record with a key twice counts once. Numbers decrease along a chain, so none is endless.
        """
        view = self._map().buffer
        (number,) = entry_layout.slot(view, HEADER_SIZE + hash_ % self.slot_count * SLOT_SIZE)
        above = self.count
        newest = found[len(found) - 1] if found else -1  # the last offset that was found
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

    # ── Truncating ────────────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, log_end: int) -> None:
        """After a crash: keep the entries of records before this offset, durably.

        Those entries were synced. Slots and header may be newer and refer to lost entries; so they are rebuilt from the
        entries, which contain all the data. Raises DiskFullError, DiskFailedError, OSError.
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
        self._asked = self._durable = self.count

    def first_physical(self) -> int:
        """The log offset of the first entry; -1 if the entry is invalid. Raises OSError."""
        first = self._disk.read_at(self.path, self._entries_at + ENTRY_SIZE, ENTRY_SIZE)
        hash_, physical_offset, seconds, _ = entry_layout.index_entry(first, 0)
        is_valid = hash_ >= 0 and seconds >= 0 and (hash_ > 0 or physical_offset > 0)
        return physical_offset if is_valid else -1

    def _gather(self, log_end: int, view: memoryview, slots: memoryview) -> None:
        """Count the valid entries of records before this offset, and find the newest of each slot."""
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
        """Remove the entries of records from this offset on, durably. Returns how many. Raises OSError.

        They are removed from their slots, newest first; a crash in between leaves less to do. The header comes last.
        """
        last = self.count
        if last == 1:
            return 0  # it is empty, and may have no reserved space
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
        self._durable = min(self._durable, self.count)
        # Later entries will be among the old ones, and after a crash they could not be told apart.
        zero_tail(self._disk, file, self._entries_at + self.count * ENTRY_SIZE)
        self._end_with(number, view)
        self._view = view
        self._put_header()
        file.sync()
        return last - self.count

    def _end_with(self, number: int, view: memoryview) -> None:
        """Set the header's end for this last entry: only the second of its time is known."""
        if number == 0:
            self.end_ms, self.end_physical, self.whole = self.begin_ms, self.begin_physical, False
            return
        _, self.end_physical, seconds, _ = entry_layout.index_entry(view, self._entries_at + number * ENTRY_SIZE)
        self.whole = True
        # The first entry of a file may count its seconds from the end of the previous file.
        end_ms = self.begin_ms + seconds * 1000 + 999 if number > 1 else self.begin_ms
        self.end_ms = min(end_ms, self.end_ms)

    # ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fits(self) -> bool:
        """True if the file was created with these numbers of slots and entries. The newest entry's slot shows it."""
        last = self.count - 1
        if last == 0:
            return True
        at = self._entries_at + last * ENTRY_SIZE
        hash_, *_ = entry_layout.index_entry(self._disk.read_at(self.path, at, ENTRY_SIZE), 0)
        slot_at = HEADER_SIZE + hash_ % self.slot_count * SLOT_SIZE
        # After a kill the next entry may already have its slot, but not be counted in the header.
        return hash_ >= 0 and entry_layout.slot(self._disk.read_at(self.path, slot_at, SLOT_SIZE), 0)[0] in (
            last,
            last + 1,
        )

    def dirty_file(self) -> File | None:
        """The file, if it has new entries since the last call."""
        if not self.is_dirty:
            return None
        self._asked = self.count
        return self._file

    @property
    def is_dirty(self) -> bool:
        return self._asked < self.count

    def was_synced(self) -> None:
        """The file from `dirty_file` is durable."""
        self._durable = self._asked

    def rewrite(self, step: int) -> bool:
        """Have the next sync write the bytes of a step again, of all that may have changed since the last sync.

        That is the header with the slots, and the entries. False: there is no such step. Raises OSError.
        """
        at, size = step * REWRITE_STEP, self._entries_at
        if at >= size:
            at -= -(-size // REWRITE_STEP) * REWRITE_STEP
            begin = self._entries_at + self._durable * ENTRY_SIZE
            at, size = begin + at, self._entries_at + self.count * ENTRY_SIZE
            if at >= size:
                return False
        self._map().rewrite(at, min(REWRITE_STEP, size - at))
        self._asked = min(self._asked, self._durable, self.count - 1)
        return True

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
    """How many of these entries are valid, from the first one on, and the log offset of the last valid one.

    `first` is the number of the first entry. `newest` has the newest entry of each slot, and is updated.
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
