"""The wheel: for each second of two weeks, the positions of its units in the timer log.

After a crash, any part of the writes to a mapped file may be on disk. If a slot reached the disk before its units, it
would refer to nothing. So changes are gathered in memory, and written to the file after the units are synced:

    put ─▶ changed ─▶ freeze ─▶ (the timer log is synced) ─▶ apply ─▶ sync ─▶ thaw

A slot has 32 bytes and never spans two sectors: after a crash it has its old or its new contents.

Java: TimerWheel.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from kourou.store.disk import Disk, File
from kourou.store.file_room import reserve
from kourou.store.timers.layout import EMPTY, NONE, SLOT, SLOT_SIZE, Slot

SLOTS_LOOKED_AT: Final = 20_000
"""How many slots are examined at once, which takes a few milliseconds."""

SLOTS_TRIED: Final = 1_000
"""How many earlier slots are tried for a message whose place in the wheel is taken by an undelivered slot."""

_ROOM: Final = 64 * 1024
_Changes = dict[int, tuple[int, int, int, int]]


class Wheel:
    """The slots of one store. `apply` may run in another thread; all other methods belong to the owner's thread."""

    def __init__(self, disk: Disk, path: Path, slots: int, precision_ms: int) -> None:
        self._disk = disk
        self._room: set[int] = set()  # parts of the file whose space is reserved
        self._file: File | None = None
        self._buffer: memoryview | None = None
        self._changed: _Changes = {}  # time in units of the precision, first, last, count; by index
        self._frozen: _Changes = {}
        self.path = path
        self.slots = slots
        self.precision_ms = precision_ms

    @property
    def size(self) -> int:
        return self.slots * SLOT_SIZE

    def open(self) -> bool:
        """Returns whether there is a wheel of the right size. Raises OSError."""
        if self._disk.files(self.path.parent).get(self.path.name) != self.size:
            return False
        self._use(self._disk.open(self.path))
        return True

    def _use(self, file: File) -> None:
        file.read_nothing_ahead()
        self._buffer = file.buffer
        self._file = file

    def clear(self) -> None:
        """Remove all slots, and the file. Raises OSError."""
        self.close()
        self._changed, self._frozen = {}, {}
        self._room.clear()
        with suppress(FileNotFoundError):
            self._disk.remove(self.path)
            self._disk.sync_folder(self.path.parent)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._buffer = None

    # ── Slots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def slot(self, time_ms: int) -> Slot:
        """The slot of a time."""
        time = time_ms // self.precision_ms
        index = time % self.slots
        found = self._changed.get(index) or self._frozen.get(index)
        if found is None:
            if self._buffer is None:
                return EMPTY
            found = SLOT.unpack_from(self._buffer, index * SLOT_SIZE)
        return Slot(found[1], found[2], found[3]) if found[0] == time else EMPTY

    def is_in_use(self, time_ms: int, read_ms: int) -> bool:
        """Is the place of this time's slot taken by the slot of another time that is not read yet?"""
        time = time_ms // self.precision_ms
        index = time % self.slots
        found = self._changed.get(index) or self._frozen.get(index)
        if found is None and self._buffer is not None:
            found = SLOT.unpack_from(self._buffer, index * SLOT_SIZE)
        return found is not None and read_ms // self.precision_ms <= found[0] != time

    def free_before(self, time_ms: int, read_ms: int) -> int | None:
        """The last slot before this one whose place is free, of those after `read_ms`."""
        last_ms = time_ms - self.precision_ms
        first_ms = max(read_ms, last_ms - SLOTS_TRIED * self.precision_ms)
        slots = range(last_ms, first_ms, -self.precision_ms)
        return next((slot_ms for slot_ms in slots if not self.is_in_use(slot_ms, read_ms)), None)

    def put(self, time_ms: int, slot: Slot) -> None:
        time = time_ms // self.precision_ms
        self._changed[time % self.slots] = (time, *slot)

    def next_used(self, begin_ms: int, end_ms: int) -> int:
        """The first slot with units from `begin_ms` on and before `end_ms`; `end_ms` if there is none.

        The search ends after SLOTS_LOOKED_AT slots; it then returns the slot where it ended.
        """
        begin, end = begin_ms // self.precision_ms, end_ms // self.precision_ms
        index = begin % self.slots
        end = max(min(end, begin + SLOTS_LOOKED_AT, begin + self.slots - index), begin)
        for changes in (self._changed, self._frozen):
            times = [time for time, _, last, _ in changes.values() if begin <= time < end and last != NONE]
            end = min(times, default=end)
        if self._buffer is not None:
            part = self._buffer[index * SLOT_SIZE : (index + end - begin) * SLOT_SIZE]
            for time, (found, _, last, _, _) in enumerate(SLOT.iter_unpack(part), begin):
                if found == time and last != NONE:
                    end = time
                    break
        return end * self.precision_ms

    def times_from(self, time_ms: int) -> list[int]:
        """The times of all slots with units from a time on, in any order. Raises OSError."""
        begin = time_ms // self.precision_ms
        times = {time for time, _, last, _ in (*self._changed.values(), *self._frozen.values()) if last != NONE}
        if self._buffer is not None:
            at, end = self._disk.data(self.path, 0, self.size)
            while at < self.size:
                at, stop = at - at % SLOT_SIZE, min(end + -end % SLOT_SIZE, self.size)
                times.update(time for time, *_ in SLOT.iter_unpack(self._buffer[at:stop]) if time)
                if stop >= self.size:
                    break
                at, end = self._disk.data(self.path, stop, self.size)
        return [time * self.precision_ms for time in times if begin <= time < begin + self.slots]

    # ── Making changes durable ────────────────────────────────────────────────────────────────────────────────────

    @property
    def changes(self) -> int:
        """How many slots have changed since the last `freeze`."""
        return len(self._changed)

    def freeze(self) -> None:
        """Freeze the changes so far, which `apply` will write."""
        assert not self._frozen, "the last changes are not applied yet"
        self._frozen, self._changed = self._changed, {}

    def drop_changes(self) -> None:
        """Drop all changes that are not applied."""
        self._frozen, self._changed = {}, {}

    def apply(self) -> None:
        """Write the frozen changes to the file, and sync it. Raises OSError, StoreError."""
        if not self._frozen:
            return
        if self._file is None:
            self._use(self._disk.create(self.path, self.size, reserve=False))
        file, buffer = self._file, self._buffer
        assert file is not None
        assert buffer is not None
        for index, (time, first, last, count) in self._frozen.items():
            at = index * SLOT_SIZE
            part = at // _ROOM
            if part not in self._room:
                reserve(file, part * _ROOM, min(_ROOM, self.size - part * _ROOM))
                self._room.add(part)
            SLOT.pack_into(buffer, at, time, first, last, count, 0)
        file.sync()

    def thaw(self) -> None:
        """The frozen changes are durable."""
        self._frozen = {}
