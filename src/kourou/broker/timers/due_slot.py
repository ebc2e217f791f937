"""The messages of one slot of the wheel, by the millisecond in which they are due.

    units of the slot, newest first ─▶ add_older ─┐
    new units ──────────────────────▶ add ────────┴─▶ due(time): positions in the timer log, oldest last

A message takes 8 bytes, so a million messages in one second take 8 MB.
"""

from array import array
from heapq import heappop, heappush

from kourou.store.errors import StoreError


class DamagedError(StoreError):
    """The timer files are damaged."""


class DueSlot:
    """One slot."""

    __slots__ = ("_at", "_newer", "_older", "begin_ms", "deleted", "deletes", "next_older", "taken")

    def __init__(self, begin_ms: int, newest: int) -> None:
        self.begin_ms = begin_ms
        self.next_older = newest  # the next unit to load; -1: all are loaded
        self._older: dict[int, array[int]] = {}  # oldest last
        self._newer: dict[int, array[int]] = {}  # newest last
        self._at: list[int] = []  # the times of messages, as a heap
        self.deleted: set[bytes] = set()  # recalled messages by name, which are not delivered
        self.deletes: array[int] = array("q")  # the units of their recalls
        self.taken = 0  # how many units were taken

    @property
    def is_loaded(self) -> bool:
        return self.next_older < 0

    @property
    def first_ms(self) -> int | None:
        """When the first message is due; None if there is none."""
        return self._at[0] if self._at else None

    def _table(self, table: dict[int, "array[int]"], at_ms: int) -> "array[int]":
        found = table.get(at_ms)
        if found is None:
            if at_ms not in self._older and at_ms not in self._newer:
                heappush(self._at, at_ms)
            found = table[at_ms] = array("q")
        return found

    def add_older(self, at_ms: int, position: int) -> None:
        """Add a unit that is older than all loaded ones."""
        self._table(self._older, at_ms).append(position)

    def add(self, at_ms: int, position: int) -> None:
        """Add a unit that is newer than all loaded ones."""
        self._table(self._newer, at_ms).append(position)

    def due(self, now_ms: int) -> "array[int] | None":
        """The units of the first millisecond that is due, the next one last. They are due until `took` is called."""
        while self._at and self._at[0] <= now_ms:
            at_ms = self._at[0]
            older = self._older.get(at_ms)
            if not older:
                older = self._newer.pop(at_ms, None)
                if older is None:
                    self._older.pop(at_ms, None)
                    heappop(self._at)
                    continue
                older.reverse()
                self._older[at_ms] = older
            return older
        return None

    def took(self, count: int) -> None:
        """The next units are done, so many of those that `due` returned."""
        del self._older[self._at[0]][-count:]
        self.taken += count

    def rest(self) -> list[int]:
        """All units that were not taken, oldest first, including those of recalls."""
        tables = (*self._older.values(), *self._newer.values(), self.deletes)
        return sorted(position for table in tables for position in table)
