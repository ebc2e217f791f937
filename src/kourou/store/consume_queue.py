# cython: annotation_typing=False
"""Consume queues: the positions of a queue's messages in the commit log.

    consumequeue/<topic>/<queue id>/00000000000000000000  00000000000006000000  …   300,000 entries of 20 bytes each

    first file                     last file
    │ expired … │ start … entries … ║ … entries │ end: zeros, partly reserved … ║
                                                  └ next_offset ≥ end: assigned, not yet dispatched

Entry n is at byte n·20 of the queue and has the offset and the size of the record and the code of its tags
(entry_layout.py draws it). A queue can be rebuilt from the log, which is authoritative; so a queue is checked,
truncated and filled, and never repaired in place.

A queue that begins after the start of its first file, because earlier messages expired, has blank entries before it,
as Java writes them: offset 0 and an impossible size. Blanks between entries represent messages that the log has lost;
their offset is the end of the record before them. Readers skip entries of BLANK_SIZE.

Invariants: the offsets of entries ascend; no entry before `end` is empty; everything after `end` is zero, except for
remains of a crash until `recover`. Opening reads a few blocks and maps nothing; `release` unmaps an unused queue.

Java: ConsumeQueue.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final

from kourou.store import entry_layout
from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.file_room import is_zero, reserve, zero_tail
from kourou.store.queue_entries import BLANK_SIZE, BLOCK, ENTRY_SIZE, Entries, count_valid, first_where
from kourou.store.segments import Segments

QUEUE_OFFSET_MAX: Final = 2**58
"""The largest possible queue offset: the queue's bytes would have no addresses after it."""

_MAPPED_MAX: Final = 4  # files of one queue at a time
_RECOVERED_FILES: Final = 3
_ZEROS: Final = bytes(BLOCK * ENTRY_SIZE)
_ROOM_MIN: Final = 4096  # space is reserved in steps that grow with the file: most queues stay small
_ROOM_MAX: Final = 65536


class Put(IntEnum):
    """The result of `ConsumeQueue.put`."""

    ALREADY = 0
    """The queue already has this record, or later ones."""
    DONE = 1
    BEHIND = 2
    """Log and queue disagree: another record has the entry of this one."""
    GAP = 3
    """Log and queue disagree: more than a file of entries is missing before this record."""


class Boundary(Enum):
    """Which message to choose if not exactly one has the given store time."""

    LOWER = "lower"
    """The first message stored at that time or later; the end if there is none."""
    UPPER = "upper"
    """The last message stored at that time or earlier; the start if there is none."""


# The same values under names that consume_queue.pxd declares as C constants.
_ENTRY = ENTRY_SIZE
_ALREADY = int(Put.ALREADY)
_DONE = int(Put.DONE)
_BEHIND = int(Put.BEHIND)
_GAP = int(Put.GAP)

_NOTHING: Final = memoryview(bytearray(0))


class ConsumeQueue:
    """One queue of a topic. Call `open` before anything else."""

    __slots__ = (
        "_clean",
        "_disk",
        "_file_entries",
        "_first",
        "_folder",
        "_log_start",
        "_mapped",
        "_on_created",
        "_on_mapped",
        "_room",
        "_segments",
        "_unsafe",
        "_view",
        "arrival",
        "end",
        "max_physical",
        "next_offset",
        "queue_id",
        "start",
        "topic",
        "touched",
    )

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        topic: str,
        queue_id: int,
        file_entries: int,
        on_mapped: "Callable[[ConsumeQueue], None] | None" = None,
        on_created: "Callable[[Path], None] | None" = None,
    ) -> None:
        """`on_mapped` is called when the queue has mapped a file, the first time and after each `release`.

        `on_created` is called when the queue's first file is created, which is not durable then: until the callee has
        called `Disk.sync_created`, a crash may remove the queue. Without `on_created`, the file is durable at once.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.start = 0  # the first entry whose record is still in the log
        self.end = 0  # one after the last entry
        self.next_offset = 0  # the queue offset of the next message that is appended; the store increments it
        self.max_physical = 0  # the end of the newest record with an entry
        self.arrival = 0  # the dispatcher's round in which it got its last entry
        self.touched = False  # its files were used since this was last reset
        self._disk = disk
        self._folder = folder
        self._on_mapped = on_mapped
        self._on_created = on_created
        self._unsafe = False  # the first file was created lazily, and may not be durable
        self._mapped = False
        self._file_entries = file_entries
        self._log_start = 0
        self._segments: Segments | None = None  # until `open`
        # Where `put` writes: the current file, the number of its first entry, and of the first entry without space.
        self._view: memoryview
        self._first = 0
        self._room = 0
        self._clean = 0  # entries before it were returned by `dirty_files`

    # ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, log_start: int, log_end: int | None = None) -> None:
        """Find the files and the start and end of the queue. Raises BadStoreError, OSError.

        The files are trusted, as after a clean stop. After a crash, `log_end` says how far: see `recover`.
        """
        size = self._file_entries * ENTRY_SIZE
        segments = Segments(self._disk, self._folder, size, reserve=False, mapped_max=_MAPPED_MAX)
        segments.load()
        self._segments = segments
        self._log_start = log_start
        entries = Entries(self._disk, segments)
        end = self._find_end(entries)
        self._clean = end
        self._ends_at(end, entries)
        if log_end is not None:
            self._recover(log_end, entries)

    def _files(self) -> Segments:
        assert self._segments is not None, f"queue {self.queue_id} of {self.topic} is not open"
        return self._segments

    def _file(self, position: int) -> File:
        """The mapped file with this byte. Raises OSError."""
        file = self._files().file(position)
        self._use()
        return file

    def _use(self) -> None:
        self.touched = True
        if not self._mapped:
            self._mapped = True
            if self._on_mapped is not None:
                self._on_mapped(self)

    def _find_end(self, entries: Entries) -> int:
        segments = self._files()
        if not len(segments):
            return 0
        high = segments.end // ENTRY_SIZE
        low = high - self._file_entries
        # Most queues are small: their end is in the first block.
        near = min(low + BLOCK, high)
        if entries.size(near - 1) == 0:
            high = near
        return first_where(low, high, lambda n: entries.size(n) == 0)

    def _ends_at(self, end: int, entries: Entries) -> None:
        """Set the end of the queue, and everything that depends on it."""
        first = self._files().start // ENTRY_SIZE
        self.end = self.next_offset = end
        self._clean = min(self._clean, end)
        self.max_physical = entries.physical_end(end - 1) if end > first else 0
        self.start = self._find_start(first, entries)

    def _find_start(self, low: int, entries: Entries) -> int:
        """The first entry from `low` on whose record is in the log; usually `low`."""
        log_start = self._log_start
        if low < self.end and entries.is_alive(low, log_start):
            return low
        return first_where(low, self.end, lambda n: entries.is_alive(n, log_start))

    @property
    def first(self) -> int:
        """The first entry of the first file."""
        return self._files().start // ENTRY_SIZE

    @property
    def is_open(self) -> bool:
        return self._segments is not None

    @property
    def is_mapped(self) -> bool:
        """True if any file is mapped."""
        return self._mapped

    # ── Dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> int:
        """Add an entry for a record; returns a `Put`. Raises DiskFullError, DiskFailedError: nothing is changed.

        Idempotent: a record that already has its entry changes nothing.
        """
        physical_end = physical_offset + size
        if physical_end <= self.max_physical:
            return _ALREADY
        if queue_offset != self.end or queue_offset >= self._room:
            found = self._make_way(queue_offset)
            if found != _DONE:
                return found
        entry_layout.put_entry(self._view, (queue_offset - self._first) * _ENTRY, physical_offset, size, tags_code)
        self.end = queue_offset + 1
        if self.next_offset < self.end:
            self.next_offset = self.end
        self.max_physical = physical_end
        return _DONE

    def _make_way(self, queue_offset: int) -> int:
        """Prepare the queue so that the next entry can be this one, if possible."""
        if queue_offset < self.end:
            return _BEHIND
        if queue_offset > self.end:
            if queue_offset > QUEUE_OFFSET_MAX:
                return _GAP
            if queue_offset - self.end > self._file_entries or not len(self._files()):
                if self.start < self.end:
                    return _GAP
                self._start_anew(queue_offset)
            self._fill(queue_offset)
        self._make_room(queue_offset)
        return _DONE

    def _start_anew(self, queue_offset: int) -> None:
        """The existing entries are useless: start with the file of this entry."""
        self._forget_view()
        self._files().remove_from(0)
        self.start = self.end = self._clean = queue_offset - queue_offset % self._file_entries
        self.max_physical = 0

    def restart(self, queue_offset: int) -> None:
        """The existing entries are useless: the next entry is this one. Raises OSError."""
        self._start_anew(queue_offset)
        self.next_offset = queue_offset

    def _fill(self, queue_offset: int) -> None:
        """Write blanks up to this entry."""
        blank = bytearray(ENTRY_SIZE)
        entry_layout.put_entry(memoryview(blank), 0, self.max_physical, BLANK_SIZE, 0)
        while self.end < queue_offset:
            self._make_room(self.end)
            count = min(queue_offset, self._room) - self.end
            at = (self.end - self._first) * ENTRY_SIZE
            self._file(self.end * ENTRY_SIZE).buffer[at : at + count * ENTRY_SIZE] = bytes(blank) * count
            # As `recover` computes it: a blank counts by its offset, and one at offset 0 does not count.
            if self.start == self.end and (self.max_physical < self._log_start or self.max_physical == 0):
                self.start += count
            self.end += count

    def _make_room(self, queue_offset: int) -> None:
        """Map the file of the entry, and reserve space from there on."""
        segments = self._files()
        position = queue_offset * ENTRY_SIZE
        at = position % segments.file_size
        start = position - at
        try:
            file = segments.file(position) if segments.holds(position) else self._add_file(start)
        except OSError as error:
            raise no_room(segments.path(start), _ROOM_MIN, error) from None
        stop = min(at + min(max(at, _ROOM_MIN), _ROOM_MAX), segments.file_size)
        reserve(file, at, stop - at)
        self._use()  # before the view is set: it may unmap other files
        self._view = file.buffer
        self._first = start // ENTRY_SIZE
        self._room = self._first + stop // ENTRY_SIZE

    def _add_file(self, start: int) -> File:
        segments = self._files()
        if self._on_created is None:
            return segments.add(start)
        if not len(segments):
            file = segments.add_lazily(start)
            self._unsafe = True
            self._on_created(file.path)
            return file
        if self._unsafe:  # the first file must be durable before the second
            segments.file(segments.start).sync()
            self._disk.sync_created(segments.path(segments.start))
            self._unsafe = False
        return segments.add(start)

    def _forget_view(self) -> None:
        if self._room:
            self._view = _NOTHING
            self._room = 0

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Log offset, size and tags code of an entry. Raises IndexError outside of start … end, OSError."""
        if not self.start <= queue_offset < self.end:
            raise IndexError(
                f"queue {self.queue_id} of {self.topic} has no entry {queue_offset}; "
                f"its entries are {self.start} to {self.end}"
            )
        position = queue_offset * ENTRY_SIZE
        return entry_layout.entry(self._file(position).buffer, position % (self._file_entries * ENTRY_SIZE))

    def entries(self, queue_offset: int, count: int) -> memoryview:
        """The bytes of up to `count` entries from this one on, not copied, within its file and the queue.

        None outside of start … end. Raises OSError.
        """
        count = min(count, self.end - queue_offset, self._file_entries - queue_offset % self._file_entries)
        if queue_offset < self.start or count <= 0:
            return memoryview(b"")
        at = queue_offset % self._file_entries * ENTRY_SIZE
        return self._file(queue_offset * ENTRY_SIZE).buffer[at : at + count * ENTRY_SIZE]

    def offset_by_time(self, time_ms: int, boundary: Boundary, stored_ms_at: Callable[[int, int], int]) -> int:
        """The queue offset for a time. `stored_ms_at(physical_offset, size)` returns a record's store time.

        Java: ConsumeQueue.getOffsetInQueueByTime, limited to start … end as in ConsumeQueueStore.
        """
        entries = Entries(self._disk, self._files())
        limit_ms = time_ms if boundary is Boundary.LOWER else time_ms + 1

        def is_late(n: int) -> bool:
            # A blank has no time; the message after it decides.
            while n < self.end:
                physical_offset, size, _ = entries.read(n)
                if size != BLANK_SIZE:
                    return stored_ms_at(physical_offset, size) >= limit_ms
                n += 1
            return True

        found = first_where(self.start, self.end, is_late)
        return found if boundary is Boundary.LOWER else max(found - 1, self.start)

    # ── Truncating ────────────────────────────────────────────────────────────────────────────────────────────────

    def truncate(self, physical_end: int) -> int:
        """Remove entries of records that do not end before this offset, durably. Returns how many. Raises OSError."""
        if self.max_physical <= physical_end:
            return 0
        entries = Entries(self._disk, self._files())
        before = self.end
        end = first_where(self._files().start // ENTRY_SIZE, before, lambda n: entries.physical_end(n) > physical_end)
        self._cut(end)
        return before - end

    def recover(self, log_end: int) -> int:
        """After a crash: keep the valid entries of records before this offset, durably. Returns how many were removed.

        A crash keeps any part of the unsynced writes: entries may be missing in between, incomplete, or refer to
        records that the log has lost. So all entries from the third-last file on are checked, or from further back if
        necessary: the files before were synced long ago. A partly written entry may still look valid. To be certain,
        pass the offset up to which records were dispatched and synced, and dispatch the rest again. Raises OSError.
        """
        return self._recover(log_end, Entries(self._disk, self._files()))

    def _recover(self, log_end: int, entries: Entries) -> int:
        if not len(self._files()):
            return 0
        before = self.end
        low, physical_end = self._first_doubtful(log_end, entries)
        end, is_clean = self._scan(low, physical_end, log_end, entries)
        if end != before or not is_clean:
            self._cut(end)
        return max(0, before - end)

    def file_without_entries(self) -> Path | None:
        """The only file, if it has no entries: a killed process may have created it without making its name durable."""
        segments = self._files()
        is_empty = len(segments) == 1 and self.end * ENTRY_SIZE == segments.start
        return segments.path(segments.start) if is_empty else None

    def _first_doubtful(self, log_end: int, entries: Entries) -> tuple[int, int]:
        """The first entry of the file from which all are to be checked, and the end of the record before it.

        The files before it are valid as far as their first and last entries show.
        """
        segments = self._files()
        low, physical_end = segments.start // ENTRY_SIZE, 0
        for _ in range(len(segments) - _RECOVERED_FILES):
            after = low + self._file_entries
            last_end = physical_end
            for number in sorted({low, after - 1, after}):
                good, last_end = count_valid(entries.raw(number), 1, last_end, log_end)
                if not good:
                    return low, physical_end
            low, physical_end = after, entries.physical_end(after - 1)
        return low, physical_end

    def _scan(self, low: int, physical_end: int, log_end: int, entries: Entries) -> tuple[int, bool]:
        """The first invalid entry from `low` on; and whether its file is empty after it.

        `physical_end` is that of the entry before. Most queues are small: the block that `open` read is enough.
        """
        segments = self._files()
        high = segments.end // ENTRY_SIZE
        while low < high:
            data = entries.block(low)
            good, physical_end = count_valid(data, len(data) // ENTRY_SIZE, physical_end, log_end)
            position, stop = low * ENTRY_SIZE, low * ENTRY_SIZE % segments.file_size + len(data)
            low += good
            if good * ENTRY_SIZE < len(data):
                rest = data[good * ENTRY_SIZE :]
                path = segments.path(position - position % segments.file_size)
                return low, rest == _ZEROS[: len(rest)] and is_zero(self._disk, path, stop, segments.file_size)
        return low, True

    def _cut(self, end: int) -> None:
        """Remove everything from `end` on. A crash in between leaves less to remove, and `recover` finds it again.

        The first file always stays: its name has the offset at which the queue continues.
        """
        segments = self._files()
        position = end * ENTRY_SIZE
        self._forget_view()
        segments.remove_from(max(position, segments.start + 1))
        at = position % segments.file_size
        if segments.holds(position) and not is_zero(self._disk, segments.path(position - at), at, segments.file_size):
            zero_tail(self._disk, segments.file(position), at)
        self._ends_at(end, Entries(self._disk, segments))
        self.release()  # many queues may be truncated, one after the other

    def patch(self, patches: "list[tuple[int, int, int, int]]", *, again: bool = False) -> None:
        """Rewrite entries of this queue: number, log offset, size, tags code. Raises OSError, DiskFullError.

        `again`: the next sync writes them even if they are unchanged. The entries must be consecutive then.
        """
        file_size = self._file_entries * ENTRY_SIZE
        by_file: dict[int, list[tuple[int, int, int, int]]] = {}
        for patch in patches:
            if self.first <= patch[0] < self.end:
                by_file.setdefault(patch[0] // self._file_entries, []).append(patch)
        for number, some in by_file.items():
            file = self._file(number * file_size)
            low, high = min(some)[0], max(some)[0] + 1
            # Their blocks may have become a hole in the file.
            reserve(file, low * ENTRY_SIZE % file_size, (high - low) * ENTRY_SIZE)
            for queue_offset, physical_offset, size, tags_code in some:
                at = queue_offset * ENTRY_SIZE % file_size
                entry_layout.put_entry(file.buffer, at, physical_offset, size, tags_code)
            if again:
                file.rewrite(low * ENTRY_SIZE % file_size, (high - low) * ENTRY_SIZE)
            self._clean = min(self._clean, low)

    def refresh(self) -> None:
        """Entries were rewritten: update the start of the queue and the end of its last record. Raises OSError."""
        entries = Entries(self._disk, self._files())
        if self.end > self.first:
            self.max_physical = max(self.max_physical, entries.physical_end(self.end - 1))
        self.start = self._find_start(self.first, entries)

    def go_to(self, end: int) -> int | None:
        """Set the known end of the queue. Returns the number of a missing entry, if any.

        Raises OSError, DiskFullError, DiskFailedError.
        """
        found = self.end
        if found == end:
            return None
        if found > end:
            self._cut(end)
            return None
        segments = self._files()
        for start in range(segments.end, end * ENTRY_SIZE, segments.file_size):
            self._make_room(start // ENTRY_SIZE)
        self._forget_view()
        self.end = self.next_offset = self._clean = end
        self.start = self._find_start(self.first, Entries(self._disk, segments))
        return found

    def expire(self, log_start: int) -> int:
        """Records before this offset expired: remove files without other entries, never the last. Returns how many.

        Raises OSError.
        """
        self._log_start = log_start
        segments = self._files()
        if self.start == self.end and len(segments) <= 1:
            return 0
        entries = Entries(self._disk, segments)
        count = 0
        while len(segments) > 1 and entries.is_before(segments.starts[1] // ENTRY_SIZE - 1, log_start):
            segments.remove_first()
            count += 1
        self.start = self._find_start(max(self.start, segments.start // ENTRY_SIZE), entries)
        return count

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dirty_files(self) -> list[File]:
        """Files with new entries since the last call, to be synced. Raises OSError."""
        segments = self._segments
        if segments is None or self._clean >= self.end:
            return []
        low = max(self._clean * ENTRY_SIZE, segments.start)
        starts = range(low - low % segments.file_size, self.end * ENTRY_SIZE, segments.file_size)
        files = [self._file(start) for start in starts]
        self._clean = self.end
        return files

    @property
    def dirty_bytes(self) -> int:
        """How many bytes `dirty_files` would return."""
        return (self.end - self._clean) * ENTRY_SIZE

    def release(self, *, unsynced: bool = False) -> None:
        """Unmap the files; they are mapped again on demand.

        Does nothing if there are entries that `dirty_files` has not returned, unless `unsynced`: then a sync maps them
        again. A file that was returned and not yet synced keeps its mapping alive.
        """
        if self._segments is not None and (unsynced or self._clean >= self.end):
            self._forget_view()
            self._segments.close()
            self._mapped = False

    def close(self) -> None:
        """Close the files, synced or not."""
        self._forget_view()
        self._mapped = False
        if self._segments is not None:
            self._segments.close()
            self._segments = None
