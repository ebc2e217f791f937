"""The extension of a consume queue: for each message the bit map of the SQL filters that it matches.

    consumequeue_ext/<topic>/<queue id>/00000000000000000000  00000000000050331648  …   48 MiB each

    a unit:  0  2  its size          a file:  │ unit │ unit │ … │ -1 (2 bytes), then unused │
             2  8  code of the tags
            10  8  store time, ms
            18  2  size of the bit map
            20     bit map

In a queue with an extension, the address of a unit replaces the tags code: its position among all bytes of the
extension, counted from the smallest 64-bit number, far below any hash. The extension is optional: without a unit, a
message counts as one that may match, and the client filters by tags anyway.

A unit never spans two files, and leaves four bytes free at the end of its file.

Java: ConsumeQueueExt.
"""

import struct
from pathlib import Path
from typing import Final

import msgspec

from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File
from kourou.store.file_room import reserve, zero_tail
from kourou.store.segments import Segments

UNIT_SIZE_MIN: Final = 20
UNIT_SIZE_MAX: Final = 32767
ADDRESS_MAX: Final = -(2**31) - 1

_BASE: Final = -(2**63)
_HEAD: Final = struct.Struct(">hqqh")
_FILE_END: Final = struct.pack(">h", -1)
_FILE_END_ROOM: Final = 4
_ROOM: Final = 65536


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Tags code, store time and filter bit map of a message."""

    tags_code: int
    stored_ms: int
    bit_map: bytes

    @property
    def size(self) -> int:
        return UNIT_SIZE_MIN + len(self.bit_map)


def is_address(tags_code: int) -> bool:
    """True if this is the address of a unit, rather than a tags code."""
    return tags_code <= ADDRESS_MAX


class ConsumeQueueExt:
    """The extension of one queue. Call `open` before anything else."""

    __slots__ = ("_clean", "_disk", "_folder", "_room", "_segments", "end")

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = Segments(disk, folder, file_size, reserve=False)
        self.end = 0  # the position of the next unit
        self._room = 0  # space is reserved up to here in the last file
        self._clean = 0  # bytes before it were returned by `dirty_files`

    def open(self, newest: int) -> None:
        """Find the files and their end. Raises BadStoreError, OSError.

        `newest` is the newest address in the queue, or any other number if it has none. Units after it have no entry
        and are removed, durably. If the address is invalid, its file stays unchanged: an address is never assigned
        twice.
        """
        self._segments.load()
        if not is_address(newest):
            end = self._scan(self._segments.starts[-1]) if len(self._segments) else 0
        else:
            unit = self.read(newest)
            offset = newest - _BASE
            end = offset + unit.size if unit is not None else self._after_file_of(offset)
        self._clean = end
        self._cut(end)

    def _after_file_of(self, offset: int) -> int:
        file_size = self._segments.file_size
        return max(offset - offset % file_size + file_size, self._segments.end)

    def _scan(self, start: int) -> int:
        """Where the units of a file end."""
        file_size = self._segments.file_size
        at = start
        while at + UNIT_SIZE_MIN <= start + file_size:
            unit = self._unit(at)
            if unit is None:
                break
            at += unit.size
        return at

    def _unit(self, offset: int) -> Unit | None:
        segments = self._segments
        if not segments.holds(offset):
            return None
        buffer = segments.file(offset).buffer
        at = offset % segments.file_size
        if at + UNIT_SIZE_MIN > len(buffer):
            return None
        size, tags_code, stored_ms, bit_map_size = _HEAD.unpack_from(buffer, at)
        if size < UNIT_SIZE_MIN or bit_map_size != size - UNIT_SIZE_MIN or at + size > len(buffer):
            return None
        return Unit(tags_code, stored_ms, bytes(buffer[at + UNIT_SIZE_MIN : at + size]))

    # ── Use ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, unit: Unit) -> int | None:
        """The address of the new unit; None if it can't be stored: then the queue's entry gets the tags code.

        Raises DiskFullError, DiskFailedError: nothing is changed.
        """
        file_size = self._segments.file_size
        size = unit.size
        if size > min(UNIT_SIZE_MAX, file_size - _FILE_END_ROOM) or self.end + file_size > ADDRESS_MAX - _BASE:
            return None
        at = self.end % file_size
        if at + size > file_size - _FILE_END_ROOM:
            self._make_room(len(_FILE_END))
            self._segments.slice(self.end, len(_FILE_END))[:] = _FILE_END
            self.end += file_size - at
            at = 0
        self._make_room(size)
        buffer = self._segments.file(self.end).buffer
        _HEAD.pack_into(buffer, at, size, unit.tags_code, unit.stored_ms, len(unit.bit_map))
        buffer[at + UNIT_SIZE_MIN : at + size] = unit.bit_map
        address = self.end + _BASE
        self.end += size
        return address

    def _make_room(self, size: int) -> None:
        segments = self._segments
        if self.end + size <= self._room:
            return
        at = self.end % segments.file_size
        start = self.end - at
        if segments.holds(start):
            file = segments.file(start)
        else:
            try:
                file = segments.add(start)
            except OSError as error:
                raise no_room(segments.path(start), size, error) from None
        step = min(max(size, _ROOM), segments.file_size - at)
        reserve(file, at, step)
        self._room = self.end + step

    def read(self, address: int) -> Unit | None:
        """The unit at an address; None if the address is invalid. Raises OSError."""
        return self._unit(address - _BASE) if is_address(address) else None

    # ── Truncating ────────────────────────────────────────────────────────────────────────────────────────────────

    def truncate(self, newest: int) -> None:
        """Remove the units after the one at this address, durably. Raises OSError."""
        unit = self.read(newest)
        if unit is not None:
            self._cut(newest - _BASE + unit.size)

    def _cut(self, end: int) -> None:
        segments = self._segments
        # Files that end before it were lost with those after them; the rest is useless.
        segments.remove_from(max(end, segments.start + 1) if end <= segments.end else 0)
        if segments.holds(end):
            zero_tail(self._disk, segments.file(end), end % segments.file_size)
        self.end = end
        self._clean = min(self._clean, end)
        self._room = 0

    def expire(self, oldest: int) -> int:
        """The queue no longer has addresses before this one: remove files without others. Returns how many."""
        segments = self._segments
        count = 0
        while is_address(oldest) and len(segments) > 1 and segments.starts[1] <= oldest - _BASE:
            segments.remove_first()
            count += 1
        return count

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dirty_files(self) -> list[File]:
        """Files with new units since the last call, to be synced before those of the queue. Raises OSError."""
        segments = self._segments
        if self._clean >= self.end:
            return []
        low = max(self._clean, segments.start)
        files = [segments.file(at) for at in range(low - low % segments.file_size, self.end, segments.file_size)]
        self._clean = self.end
        return files

    def release(self) -> None:
        """Unmap the files, if `dirty_files` has returned all of them; call it after they are synced."""
        if self._clean >= self.end:
            self.close()

    def close(self) -> None:
        """Close the files, synced or not."""
        self._room = 0
        self._segments.close()
