"""Old log offset -> new log offset.

A pair of both offsets is kept for one record in every 256 KiB of the old log. The others are computed: the records in
between are walked over, and placed in the same way as by the conversion. So a log of 1 TiB takes 64 MiB of memory, and
the pairs are small enough to be part of the progress.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from kourou.protocol.codes import TRANSACTION_MASK, SysFlag
from kourou.protocol.record import Scanner
from kourou.store.convert.source import Place, Source, Walk
from kourou.store.convert.target import Placement

STEP: Final = 256 * 1024
"""Bytes of the old log between two pairs."""

BLOCKS_MAX: Final = 64
"""How many ranges between two pairs are kept in memory."""

_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)


class OffsetMap:
    """`add` every record in order; then `find` and `position`."""

    def __init__(self, source: Source, head: int, step: int = STEP) -> None:
        self._source = source
        self._head = head
        self._step = step
        self.old = array("q")  # the old and new offsets of the first record of each block
        self.new = array("q")
        self.saved = 0  # how many pairs are saved in the progress
        self._blocks: OrderedDict[int, dict[int, int]] = OrderedDict()

    def add(self, scanner: Scanner, offset: int) -> None:
        """Add a record, whose new offset is `offset`."""
        entry = self._source.entry_offset(scanner)
        if not self.old or entry >= self.old[-1] + self._step:
            self.old.append(entry)
            self.new.append(offset - self._head)

    def find(self, offset: int) -> int | None:
        """The new offset of the record that was at `offset`; None if there is none, or if it is not copied yet."""
        number = bisect_right(self.old, offset) - 1
        return None if number < 0 else self._block(number).get(offset)

    def position(self, offset: int, end: int) -> int:
        """The new offset of the first record that was at `offset` or after it; `end` if there is none."""
        number = max(bisect_right(self.old, offset) - 1, 0)
        for block in range(number, min(number + 2, len(self.old))):
            found = [new for old, new in self._block(block).items() if old >= offset]
            if found:
                return found[0] - self._head
        return end

    def _block(self, number: int) -> dict[int, int]:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._walk(number)
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return block

    def _walk(self, number: int) -> dict[int, int]:
        start = self.old[number]
        placement = Placement(self._source.file_size, self._head, self.new[number])
        block: dict[int, int] = {}
        for scanner in Walk(self._source, Place(start), quick=True):
            if self._source.entry_offset(scanner) >= start + self._step:
                break
            block[scanner.physical_offset] = placement.place(scanner.size)
        return block

    def prepared(self, scanner: Scanner) -> int:
        """The new offset of the half message or the original to which this record refers.

        A commit refers to its half message, and a copy delivered by Kourou (by the complement) to its original. An
        offset of an expired record is unchanged: both logs begin at the same offset.
        """
        value = scanner.prepared_offset
        if value < 0:
            found = self.find(~value)
            return value if found is None else ~found
        if scanner.sys_flag & TRANSACTION_MASK != _COMMIT:
            return value
        found = self.find(value)
        return value if found is None else found
