# cython: annotation_typing=False
"""Reads the entries of a consume queue from its files, without mapping them. consume_queue.py explains them."""

from collections.abc import Callable
from typing import Final

from kourou.store import entry_layout
from kourou.store.disk import Disk
from kourou.store.segments import Segments

ENTRY_SIZE: Final = entry_layout.ENTRY_SIZE
BLANK_SIZE: Final = 0x7FFFFFFF
"""The size in an entry that represents no message."""

BLOCK: Final = 3276
"""Entries that are read at a time: nearly 64 KiB, which is all of most queues."""

# The same values under names that queue_entries.pxd declares as C constants.
_ENTRY = ENTRY_SIZE
_BLANK = BLANK_SIZE


class Entries:
    """Reads single entries of a queue in blocks, without mapping its files."""

    __slots__ = ("_data", "_disk", "_from", "_segments", "_to")

    def __init__(self, disk: Disk, segments: Segments) -> None:
        self._disk = disk
        self._segments = segments
        self._data = b""
        self._from = 0
        self._to = 0

    def read(self, number: int) -> tuple[int, int, int]:
        at = self._place(number)  # reads the block if necessary
        return entry_layout.entry(self._data, at)

    def raw(self, number: int) -> bytes:
        at = self._place(number)
        return self._data[at : at + ENTRY_SIZE]

    def block(self, number: int) -> bytes:
        """An entry and those after it, up to the end of the block."""
        at = self._place(number)
        return self._data[at:]

    def _place(self, number: int) -> int:
        """The position of an entry in the block."""
        if not self._from <= number < self._to:
            file_size = self._segments.file_size
            position = number * ENTRY_SIZE
            at = position % file_size
            block = at - at % (BLOCK * ENTRY_SIZE)
            size = min(BLOCK * ENTRY_SIZE, file_size - block)
            self._data = self._disk.read_at(self._segments.path(position - at), block, size)
            self._from = (position - at + block) // ENTRY_SIZE
            self._to = self._from + len(self._data) // ENTRY_SIZE
        return (number - self._from) * ENTRY_SIZE

    def size(self, number: int) -> int:
        return self.read(number)[1]

    def physical_end(self, number: int) -> int:
        """The end of an entry's record. A blank has none, but later records come after its offset."""
        physical_offset, size, _ = self.read(number)
        return physical_offset + size if size != BLANK_SIZE else physical_offset

    def is_before(self, number: int, log_start: int) -> bool:
        """True if the record has expired from the log. Unknown (False) for an empty entry, which was lost."""
        physical_offset, size, _ = self.read(number)
        return size > 0 and physical_offset < log_start

    def is_alive(self, number: int, log_start: int) -> bool:
        """True if the record is still in the log. Blanks before the first entry never were; later ones have an offset.

        An empty entry was lost, and its record may still be there.
        """
        physical_offset, size, _ = self.read(number)
        if size <= 0:
            return True
        return physical_offset >= log_start and (size != BLANK_SIZE or physical_offset > 0)


def count_valid(data: bytes, count: int, physical_end: int, log_end: int) -> tuple[int, int]:
    """How many entries are valid, from the first one on, and the end of the last one's record."""
    for number in range(count):
        physical_offset, size, _ = entry_layout.entry(data, number * _ENTRY)
        if physical_offset < physical_end or size <= 0:
            return number, physical_end
        next_end = physical_offset if size == _BLANK else physical_offset + size
        if next_end > log_end:
            return number, physical_end
        physical_end = next_end
    return count, physical_end


def first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Binary search: the first number for which the condition is true; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
