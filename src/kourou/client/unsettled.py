"""The messages of one queue that are pulled and not settled yet. Pure. Java: ProcessQueue.

Messages are settled in any order; the offset that may be committed is that of the first unsettled one. So after a crash
no message is skipped, and some are delivered twice.

    pulled    10 11 12 13 14        commit 10
    settled      11    13           commit 10
    settled   10                    commit 12
"""

from collections import deque
from collections.abc import Iterable


class Unsettled:
    """Offsets of one queue, in order."""

    __slots__ = ("_done", "_order", "count", "end", "size")

    def __init__(self) -> None:
        self._order: deque[int] = deque()  # offsets from the first unsettled one on; later ones may be settled
        self._done: set[int] = set()  # the settled ones of these offsets
        self.count = 0  # unsettled messages
        self.size = 0  # bytes of unsettled messages
        self.end = -1  # the offset after the last pulled message; -1 before the first pull

    def put(self, messages: Iterable[tuple[int, int]]) -> None:
        """(offset, size) of pulled messages, in order."""
        order = self._order
        for offset, size in messages:
            assert offset >= self.end, "messages of a queue come in order"
            order.append(offset)
            self.count += 1
            self.size += size
            self.end = offset + 1

    def settle(self, offset: int, size: int) -> int:
        """Settles a message. Returns the offset that may be committed now."""
        order, done = self._order, self._done
        self.count -= 1
        self.size -= size
        if order[0] != offset:
            done.add(offset)
            return order[0]
        order.popleft()
        while order and order[0] in done:
            done.remove(order.popleft())
        return order[0] if order else self.end

    @property
    def first(self) -> int | None:
        """The first unsettled offset."""
        return self._order[0] if self._order else None

    @property
    def span(self) -> int:
        """The distance between the first unsettled and the last pulled offset."""
        return self.end - 1 - self._order[0] if self._order else 0

    def clear(self) -> None:
        self._order.clear()
        self._done.clear()
        self.count = self.size = 0
