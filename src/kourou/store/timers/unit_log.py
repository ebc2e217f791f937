"""The timer log: units of 52 bytes in files of 100 MiB.

A unit never spans two files: the rest of a file is marked as unused, which needs 16 bytes.

Java: TimerLog.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.file_room import reserve, zero_tail
from kourou.store.segments import Segments
from kourou.store.timers.layout import BLANK, BLANK_MAGIC, UNIT, UNIT_SIZE, Unit

_ROOM: Final = 256 * 1024


class UnitLog:
    """The units of one store, oldest first. `open` before anything else."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = Segments(disk, folder, file_size, reserve=False)
        self._room = 0  # space is reserved up to this position
        self._start = -1  # the position of the file in `_buffer`
        self._buffer = memoryview(b"")
        self._created: list[Path] = []
        self.end = 0  # where the next unit goes

    def open(self, end: int) -> bool:
        """Find the files; units from `end` on are optional. False if units before it are missing.

        Raises OSError, BadStoreError.
        """
        sizes = {size for size in self._disk.files(self._folder).values() if size}
        if len(sizes) == 1:
            self._segments = Segments(self._disk, self._folder, sizes.pop(), reserve=False)
        self._segments.load()
        self.end = end
        return end == 0 or self._segments.start < end <= self._segments.end

    def clear(self) -> None:
        """Remove all units. Raises OSError."""
        self.close()
        self._disk.remove_folder(self._folder)
        self._segments = Segments(self._disk, self._folder, self._segments.file_size, reserve=False)
        self._created = []
        self.end = self._room = 0

    def close(self) -> None:
        self._start, self._buffer = -1, memoryview(b"")
        self._segments.close()

    @property
    def start(self) -> int:
        return self._segments.start

    # ── Units ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _view(self, position: int) -> tuple[memoryview, int]:
        """The file that contains this position, and the position in it. Raises KeyError, OSError."""
        at = position % self._segments.file_size
        if position - at != self._start:
            self._buffer = self._segments.file(position).buffer
            self._start = position - at
        return self._buffer, at

    def unit(self, position: int) -> Unit | None:
        """The unit at a position; None if there is none. Raises OSError."""
        if not self._segments.start <= position < self._segments.end:
            return None
        buffer, at = self._view(position)
        if at + UNIT_SIZE > len(buffer):
            return None
        unit = Unit._make(UNIT.unpack_from(buffer, at))
        return unit if unit.is_valid else None

    def file_at(self, position: int) -> tuple[int, memoryview] | None:
        """The file with the unit at a position: where it begins, and its bytes. None if there is no unit.

        Raises OSError.
        """
        if not self._segments.start <= position < min(self.end, self._segments.end):
            return None
        buffer, at = self._view(position)
        return position - at, buffer

    def units(self, begin: int) -> Iterator[tuple[int, Unit]]:
        """All units from a position on, up to the first invalid one. Raises OSError."""
        position = max(begin, self._segments.start)
        file_size = self._segments.file_size
        while self._segments.holds(position):
            buffer, at = self._view(position)
            unit = Unit._make(UNIT.unpack_from(buffer, at)) if at + UNIT_SIZE <= len(buffer) else None
            if unit is not None and unit.is_valid:
                yield position, unit
                position += UNIT_SIZE
            elif at + BLANK.size > len(buffer) or BLANK.unpack_from(buffer, at)[2] == BLANK_MAGIC:
                position += file_size - at
            else:
                return

    def append(self, unit: Unit, previous: int) -> int:
        """Append a unit with this previous unit; returns its position. On DiskFullError, DiskFailedError unchanged."""
        file_size = self._segments.file_size
        left = file_size - self.end % file_size
        if left < UNIT_SIZE + BLANK.size:
            self._make_room(BLANK.size)
            buffer, at = self._view(self.end)
            BLANK.pack_into(buffer, at, left, 0, BLANK_MAGIC)
            self.end += left
        self._make_room(UNIT_SIZE)
        position = self.end
        buffer, at = self._view(position)
        UNIT.pack_into(buffer, at, unit[0], previous, *unit[2:])
        self.end += UNIT_SIZE
        return position

    def room(self, count: int) -> memoryview | None:
        """Where the next units go, until `extend`. None: they do not fit into one file.

        Raises DiskFullError, DiskFailedError.
        """
        size = count * UNIT_SIZE
        if self._segments.file_size - self.end % self._segments.file_size < size + BLANK.size:
            return None
        self._make_room(size)
        buffer, at = self._view(self.end)
        return buffer[at : at + size]

    def extend(self, count: int) -> None:
        """Units were written to the room."""
        self.end += count * UNIT_SIZE

    def _make_room(self, size: int) -> None:
        if self.end + size <= self._room:
            return
        segments, at = self._segments, self.end % self._segments.file_size
        start = self.end - at
        try:
            if segments.holds(start):
                file = segments.file(start)
            else:
                path = segments.path(start)
                file = segments.add(start, self._disk.create_lazily(path, segments.file_size))
                self._created.append(path)
        except OSError as error:
            raise no_room(segments.path(start), size, error) from None
        step = min(max(size, _ROOM), segments.file_size - at)
        reserve(file, at, step)
        self._room = self.end + step

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, end: int) -> None:
        """Remove the units from a position on, durably. Raises OSError."""
        segments = self._segments
        segments.remove_from(end + -end % segments.file_size)
        self._start = -1
        if segments.holds(end):
            zero_tail(self._disk, segments.file(end), end % segments.file_size)
        self.end, self._room = end, 0

    def dirty_files(self, begin: int) -> list[File]:
        """The files with units from a position on. Raises OSError."""
        segments = self._segments
        begin = max(begin, segments.start)
        return [segments.file(at) for at in range(begin - begin % segments.file_size, self.end, segments.file_size)]

    def take_created(self) -> list[Path]:
        """Files whose names are not durable."""
        created, self._created = self._created, []
        return created

    def put_back(self, created: list[Path]) -> None:
        """The names of these files are still not durable."""
        self._created = created + self._created

    def take_expired(self, log_start: int) -> list[Path]:
        """The first file, if the commit log no longer has any of its messages. Raises OSError."""
        segments = self._segments
        if len(segments) < 2:
            return []
        file_size = segments.file_size
        last = (file_size - BLANK.size) // UNIT_SIZE * UNIT_SIZE - UNIT_SIZE
        unit = self.unit(segments.start + last)
        if unit is None or unit.physical_offset >= log_start:
            return []
        if self._start == segments.start:
            self._start = -1
        return [segments.drop_first()]
