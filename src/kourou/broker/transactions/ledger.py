"""The fate of each half message: one byte per offset of the half queue.

        floor                position                       end of the queue
          │   history           │        window                │
    … ────┼─────────────────────┼──────────────────────────────┼─▶ half queue
          C R E Cp C C R … C C  O C C R O O O C O O O … O O O

The position is the first open half message. Fates before it are kept for some time, because clients may end a
transaction twice, or end an older copy of it. Bytes cost little: a million half messages take a megabyte, and the next
open one is found at the speed of `bytearray.find`.

A fate that depends on a record of the log (a commit, a newer copy) is true only if that record survives. So each mark
has the log offset up to which the log must be durable. `safe_position` is the position that a crash can't undo; only it
may be written to a file. `cut` undoes the marks whose records were lost.
"""

from collections import deque
from enum import IntEnum
from typing import Final

HISTORY_MAX: Final = 1_000_000
"""How many fates before the position are kept."""


class Fate(IntEnum):
    """The fate of a half message, or of one of its copies."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    ENDED = 3
    """An op record says that it was committed or rolled back, but not which of them."""
    COPIED = 4
    """A newer copy of it is in the half queue."""
    GIVEN_UP = 5
    """Its producer is no longer asked: it was discarded, or its record can't be read."""

    @property
    def is_end(self) -> bool:
        """Was it committed or rolled back?"""
        return Fate.COMMITTED <= self <= Fate.ENDED


_OPEN = bytes((Fate.OPEN,))


class Ledger:
    """The fates of the half messages of one queue."""

    def __init__(self, floor: int, position: int) -> None:
        """Half messages from `floor` to `position` are not open; they count as copied unless later marked."""
        assert 0 <= floor <= position
        self.floor = floor  # the fates of earlier half messages are not known
        self.position = position  # the first open one
        self.safe_position = position  # the position that a crash can't undo
        self._fates = bytearray(bytes((Fate.COPIED,)) * (position - floor))
        self._log_end = 0  # the highest log offset of a mark
        self._marks: deque[tuple[int, int, int, int]] = deque()
        """Marks that a crash may undo: the log offset that must be durable, the offset, the fate, the previous fate."""
        self._positions: deque[tuple[int, int]] = deque()  # the log offset that must be durable, the position

    def fate(self, offset: int) -> Fate | None:
        """The fate of a half message; None if it is too old."""
        index = offset - self.floor
        if index < 0:
            return None
        return Fate(self._fates[index]) if index < len(self._fates) else Fate.OPEN

    def is_open(self, offset: int) -> bool:
        return self.fate(offset) is Fate.OPEN

    def mark(self, offset: int, fate: Fate, log_end: int) -> None:
        """Note a fate, which is certain once the log is durable up to `log_end`. Too old half messages are ignored."""
        index = offset - self.floor
        if index < 0:
            return
        fates = self._fates
        if index >= len(fates):
            fates.extend(bytes(index + 1 - len(fates)))
        self._marks.append((log_end, offset, fate, fates[index]))
        fates[index] = fate
        self._log_end = max(self._log_end, log_end)
        if offset == self.position:
            self._advance()

    def _advance(self) -> None:
        """Move the position to the first open half message."""
        index = self._fates.find(_OPEN, self.position - self.floor)
        self.position = self.floor + (len(self._fates) if index < 0 else index)
        self._positions.append((self._log_end, self.position))
        if self.position - self.floor >= 2 * HISTORY_MAX:
            surplus = self.position - self.floor - HISTORY_MAX
            del self._fates[:surplus]
            self.floor += surplus

    def skip_to(self, offset: int) -> int:
        """Half messages before this one were removed from the store. Returns how many of them were open."""
        if offset <= self.position:
            return 0
        fates, begin, end = self._fates, self.position - self.floor, offset - self.floor
        if end > len(fates):
            fates.extend(bytes(end - len(fates)))
        lost = fates.count(_OPEN, begin, end)
        fates[begin:end] = fates[begin:end].replace(_OPEN, bytes((Fate.GIVEN_UP,)))
        self._advance()
        return lost

    def next_open(self, begin: int, stop: int) -> int | None:
        """The first open one from `begin` on and before `stop`."""
        begin = max(begin, self.position)
        index = self._fates.find(_OPEN, begin - self.floor, max(stop - self.floor, 0))
        if index >= 0:
            return self.floor + index
        after = max(begin, self.floor + len(self._fates))
        return after if after < stop else None

    # ── Durability ────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, durable: int) -> bool:
        """The log is durable up to this offset. Returns whether `safe_position` has moved."""
        marks, positions = self._marks, self._positions
        while marks and marks[0][0] <= durable:
            marks.popleft()
        before = self.safe_position
        while positions and positions[0][0] <= durable:
            self.safe_position = max(self.safe_position, positions.popleft()[1])
        return self.safe_position != before

    def cut(self, end: int, queue_end: int) -> list[int]:
        """The log was cut at `end`, and the half queue at `queue_end`. Returns the offsets whose marks are void."""
        void = [offset for log_end, offset, _, _ in self._marks if log_end > end]
        kept = [mark for mark in self._marks if mark[0] <= end and mark[1] < queue_end]
        for _, offset, _, before in reversed(self._marks):
            if offset >= self.floor:
                self._fates[offset - self.floor] = before
                if before == Fate.OPEN:
                    self.position = min(self.position, offset)
        self._marks.clear()
        while self._positions and self._positions[-1][0] > end:
            self._positions.pop()
        self._log_end = min(self._log_end, end)
        self.floor = min(self.floor, queue_end)
        del self._fates[queue_end - self.floor :]
        self.position = min(self.position, queue_end)
        self.safe_position = min(self.safe_position, queue_end)
        for log_end, offset, fate, _ in kept:
            self.mark(offset, Fate(fate), log_end)
        self._advance()
        return void
