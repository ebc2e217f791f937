# cython: annotation_typing=False
"""Consume queues: where a queue's n-th message lies in the commit log.

    consumequeue/<topic>/<queue id>/00000000000000000000  00000000000006000000  …   300,000 entries of 20 bytes each

    first file                     last file
    │ expired … │ start … entries … ║ … entries │ end: zeros, partly reserved … ║
                                                  └ next_offset ≥ end: given out, not yet dispatched

Entry n stands at byte n·20 of the queue and says where the record is, how long, and which tags it has (entry_layout.py
draws it). Everything in a queue can be rebuilt from the log, which alone decides; so a queue is checked, cut and
filled, and never repaired.

A queue that begins later than its first file, because what came before is gone, has blanks before it, as Java writes
them: offset 0 and an impossible size. Blanks between entries stand for messages that the log has lost; they have the
offset at which the record before them ends. Readers skip entries of BLANK_SIZE.

Invariants: entries ascend in the log; no empty entry stands before `end`; everything behind `end` is zero, but for what
a crash leaves until `recover`. Opening reads a few blocks and maps nothing; `release` unmaps a queue that nobody uses.

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
"""Beyond it a queue offset can't be right: the queue's bytes would have no addresses."""

_MAPPED_MAX: Final = 4  # files of one queue at a time
_RECOVERED_FILES: Final = 3
_ZEROS: Final = bytes(BLOCK * ENTRY_SIZE)
_ROOM_MIN: Final = 4096  # room is reserved in steps that grow with the file: most queues stay small
_ROOM_MAX: Final = 65536


class Put(IntEnum):
    """What `ConsumeQueue.put` came to."""

    ALREADY = 0
    """The queue has this record, or later ones."""
    DONE = 1
    BEHIND = 2
    """Log and queue disagree: the record should have an earlier place, which another one has."""
    GAP = 3
    """Log and queue disagree: more than a file of entries is missing before this one."""


class Boundary(Enum):
    """Which message a time stands for, when it is not the time of exactly one."""

    LOWER = "lower"
    """The first one stored at that time or later; the end if there is none."""
    UPPER = "upper"
    """The last one stored at that time or earlier; the start if there is none."""


# The same once more under names that consume_queue.pxd makes C constants.
_ENTRY = ENTRY_SIZE
_ALREADY = int(Put.ALREADY)
_DONE = int(Put.DONE)
_BEHIND = int(Put.BEHIND)
_GAP = int(Put.GAP)

_NOTHING: Final = memoryview(bytearray(0))


class ConsumeQueue:
    """One queue of a topic. Making it costs nothing; `open` before anything else."""

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
        """`on_mapped` is told when the queue has mapped a file, the first time and after each `release`.

        `on_created` is told of the queue's first file, when it is made. Nobody has waited for the disk then: until the
        one who was told has done that (`Disk.sync_created`), a crash may take the queue away. Without it, it is safe.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.start = 0  # the first entry whose record is still in the log
        self.end = 0  # the first entry that is not there yet
        self.next_offset = 0  # what the next message that is appended to the log gets; the store counts it up
        self.max_physical = 0  # where the newest record that has an entry ends
        self.arrival = 0  # the round of the dispatcher in which it got its last entry
        self.touched = False  # somebody has used its files since this was last set back
        self._disk = disk
        self._folder = folder
        self._on_mapped = on_mapped
        self._on_created = on_created
        self._unsafe = False  # the first file was made like that, and nobody has told us that it is safe
        self._mapped = False
        self._file_entries = file_entries
        self._log_start = 0
        self._segments: Segments | None = None  # until `open`
        # Where `put` writes: the current file, the number of its first entry, and of the first one without room.
        self._view: memoryview
        self._first = 0
        self._room = 0
        self._clean = 0  # entries before it were handed out by `dirty_files`

    # ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, log_start: int, log_end: int | None = None) -> None:
        """Find the files, and where the queue begins and ends. Raises BadStoreError, OSError.

        It trusts the files, as one may after a clean stop. After a crash, `log_end` says how far: see `recover`.
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
        """The file with this byte, mapped. Raises OSError."""
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
        """The queue ends here: everything else follows from it."""
        first = self._files().start // ENTRY_SIZE
        self.end = self.next_offset = end
        self._clean = min(self._clean, end)
        self.max_physical = entries.physical_end(end - 1) if end > first else 0
        self.start = self._find_start(first, entries)

    def _find_start(self, low: int, entries: Entries) -> int:
        """The first entry from `low` on whose record is in the log; mostly `low` itself."""
        log_start = self._log_start
        if low < self.end and entries.is_alive(low, log_start):
            return low
        return first_where(low, self.end, lambda n: entries.is_alive(n, log_start))

    @property
    def first(self) -> int:
        """The first entry that there is room for."""
        return self._files().start // ENTRY_SIZE

    @property
    def is_open(self) -> bool:
        return self._segments is not None

    @property
    def is_mapped(self) -> bool:
        """Has it files in memory?"""
        return self._mapped

    # ── Dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> int:
        """Enter a record; a `Put` says what became of it. Raises DiskFullError, DiskFailedError: nothing is changed.

        May be done again for records that have their entry.
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
        """See to it that the next entry can be this one, if that makes sense."""
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
        """Nothing that is there is of use any more: begin with the file that will hold this entry."""
        self._forget_view()
        self._files().remove_from(0)
        self.start = self.end = self._clean = queue_offset - queue_offset % self._file_entries
        self.max_physical = 0

    def restart(self, queue_offset: int) -> None:
        """Nothing that is there is of use any more, and the next entry is this one. Raises OSError."""
        self._start_anew(queue_offset)
        self.next_offset = queue_offset

    def _fill(self, queue_offset: int) -> None:
        """Blanks up to this entry."""
        blank = bytearray(ENTRY_SIZE)
        entry_layout.put_entry(memoryview(blank), 0, self.max_physical, BLANK_SIZE, 0)
        while self.end < queue_offset:
            self._make_room(self.end)
            count = min(queue_offset, self._room) - self.end
            at = (self.end - self._first) * ENTRY_SIZE
            self._file(self.end * ENTRY_SIZE).buffer[at : at + count * ENTRY_SIZE] = bytes(blank) * count
            # As it is found again: blanks count as what is at their offset, and at 0 as nothing.
            if self.start == self.end and (self.max_physical < self._log_start or self.max_physical == 0):
                self.start += count
            self.end += count

    def _make_room(self, queue_offset: int) -> None:
        """Map the file of the entry, and reserve some room from there on."""
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
        self._use()  # before the view is set: others are unmapped for it
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
        if self._unsafe:  # with the second one there, the first must not be missing
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
        """Physical offset, size and code of the tags of an entry. Raises IndexError outside of start … end, OSError."""
        if not self.start <= queue_offset < self.end:
            raise IndexError(
                f"queue {self.queue_id} of {self.topic} has no entry {queue_offset}: "
                f"it goes from {self.start} to {self.end}"
            )
        position = queue_offset * ENTRY_SIZE
        return entry_layout.entry(self._file(position).buffer, position % (self._file_entries * ENTRY_SIZE))

    def entries(self, queue_offset: int, count: int) -> memoryview:
        """The bytes of up to `count` entries from this one on, not copied: as far as its file and the queue go.

        None, and so no bytes, outside of start … end. Raises OSError.
        """
        count = min(count, self.end - queue_offset, self._file_entries - queue_offset % self._file_entries)
        if queue_offset < self.start or count <= 0:
            return memoryview(b"")
        at = queue_offset % self._file_entries * ENTRY_SIZE
        return self._file(queue_offset * ENTRY_SIZE).buffer[at : at + count * ENTRY_SIZE]

    def offset_by_time(self, time_ms: int, boundary: Boundary, stored_ms_at: Callable[[int, int], int]) -> int:
        """The queue offset that a time stands for. `stored_ms_at(physical_offset, size)` tells a record's store time.

        Java: ConsumeQueue.getOffsetInQueueByTime, within start … end as ConsumeQueueStore does it.
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

    # ── Cutting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def truncate(self, physical_end: int) -> int:
        """Remove, durably, the entries of records that do not end before this offset; how many. Raises OSError."""
        if self.max_physical <= physical_end:
            return 0
        entries = Entries(self._disk, self._files())
        before = self.end
        end = first_where(self._files().start // ENTRY_SIZE, before, lambda n: entries.physical_end(n) > physical_end)
        self._cut(end)
        return before - end

    def recover(self, log_end: int) -> int:
        """After a crash: keep, durably, the entries that hold, of records before this offset. How many went.

        A crash keeps any part of what was not synced: entries are missing in between, half there, or of records that
        the log has lost. So from the third-last file on each is looked at, or from further back if need be: up to there
        everything was synced long ago. An entry may be torn so that it still looks well. Whoever wants to be sure gives
        the offset up to which records were dispatched and synced, and dispatches the rest again. Raises OSError.
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
        """The only file, if no entries are in it: who was killed may have made it, and its name not be safe yet."""
        segments = self._files()
        is_empty = len(segments) == 1 and self.end * ENTRY_SIZE == segments.start
        return segments.path(segments.start) if is_empty else None

    def _first_doubtful(self, log_end: int, entries: Entries) -> tuple[int, int]:
        """The first entry of the file from which on all are to be looked at, and where the record before it ends.

        Up to there, the files hold as far as their first and last entries show it.
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
        """The first entry from `low` on that does not hold; and whether nothing is behind it in its file.

        `physical_end` is that of the entry before. Most queues are small: what `open` has read of them is enough.
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
        """Nothing may be from `end` on. A crash in between leaves less to cut, and `recover` finds it again.

        The first file stays in any case: its name says at which offset the queue goes on.
        """
        segments = self._files()
        position = end * ENTRY_SIZE
        self._forget_view()
        segments.remove_from(max(position, segments.start + 1))
        at = position % segments.file_size
        if segments.holds(position) and not is_zero(self._disk, segments.path(position - at), at, segments.file_size):
            zero_tail(self._disk, segments.file(position), at)
        self._ends_at(end, Entries(self._disk, segments))
        self.release()  # many queues may be cut, one after the other

    def patch(self, patches: "list[tuple[int, int, int, int]]") -> None:
        """Write entries of this queue again: number, physical offset, size, code of the tags. Raises OSError."""
        file_size = self._file_entries * ENTRY_SIZE
        by_file: dict[int, list[tuple[int, int, int, int]]] = {}
        for patch in patches:
            if self.first <= patch[0] < self.end:
                by_file.setdefault(patch[0] // self._file_entries, []).append(patch)
        for number, some in by_file.items():
            file = self._file(number * file_size)
            low, high = min(some)[0], max(some)[0] + 1
            # They may have become a hole of the file.
            reserve(file, low * ENTRY_SIZE % file_size, (high - low) * ENTRY_SIZE)
            for queue_offset, physical_offset, size, tags_code in some:
                at = queue_offset * ENTRY_SIZE % file_size
                entry_layout.put_entry(file.buffer, at, physical_offset, size, tags_code)
            self._clean = min(self._clean, low)

    def refresh(self) -> None:
        """Entries were written again: where the queue begins, and where its last record ends. Raises OSError."""
        entries = Entries(self._disk, self._files())
        if self.end > self.first:
            self.max_physical = max(self.max_physical, entries.physical_end(self.end - 1))
        self.start = self._find_start(self.first, entries)

    def go_to(self, end: int) -> int | None:
        """The queue is known to end here: the number of an entry that is missing, if that is not as it should be.

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
        """Records before this offset are gone: remove files that know of no others, never the last. How many went.

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
        """Files with entries since the last call, which are to be synced. Raises OSError."""
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
        """How much `dirty_files` would make safe."""
        return (self.end - self._clean) * ENTRY_SIZE

    def release(self, *, unsynced: bool = False) -> None:
        """Unmap the files; they are mapped again when somebody needs them.

        Nothing happens if `dirty_files` has not handed out all that was written, unless it is wanted `unsynced`: then
        a sync will map them again. Who was handed a file and is still to sync it keeps its mapping alive.
        """
        if self._segments is not None and (unsynced or self._clean >= self.end):
            self._forget_view()
            self._segments.close()
            self._mapped = False

    def close(self) -> None:
        """Let go of the files, synced or not."""
        self._forget_view()
        self._mapped = False
        if self._segments is not None:
            self._segments.close()
            self._segments = None
