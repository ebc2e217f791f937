"""Connections whose last change of the tables is not answered yet, and what they asked meanwhile.

The requests of a connection are served in their order: after a change that takes several turns, they wait. Other
connections are not affected. How much may wait is bounded; requests beyond it are refused, and a broker tries again.
"""

from collections import deque
from collections.abc import Hashable

from kourou.nameserver.events import Asked

REQUESTS_MAX = 1024
SIZE_MAX = 128 * 1024 * 1024
"""Requests that wait, and bytes of their bodies together with those of the changes under way."""


class _Line:
    """The requests of one connection."""

    __slots__ = ("change", "waiting")

    def __init__(self) -> None:
        self.change: Asked | None = None  # under way
        self.waiting: deque[Asked] = deque()


class Backlog:
    """Requests that must wait for a change on their own connection."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._count = 0  # of all requests that wait
        self._size = 0  # bytes of all bodies, of changes under way and of requests that wait

    def __len__(self) -> int:
        return len(self._lines)

    def holds(self, connection: Hashable) -> bool:
        """Must the next request of this connection wait?"""
        return connection in self._lines

    def has_change(self, connection: Hashable) -> bool:
        """Is a change of this connection under way?"""
        line = self._lines.get(connection)
        return line is not None and line.change is not None

    def has_room(self, asked: Asked) -> bool:
        return self._count < REQUESTS_MAX and self._size + len(asked.command.body) <= SIZE_MAX

    def begin(self, asked: Asked) -> None:
        """A change is under way; later requests of its connection wait."""
        line = self._lines.setdefault(asked.connection, _Line())
        assert line.change is None, "a connection has one change at a time"
        line.change = asked
        self._size += len(asked.command.body)

    def wait(self, asked: Asked) -> None:
        self._lines[asked.connection].waiting.append(asked)
        self._count += 1
        self._size += len(asked.command.body)

    def end(self, asked: Asked) -> bool:
        """A change is answered. True: requests wait, to be taken by `next`, and later ones still wait for them."""
        line = self._lines.get(asked.connection)
        if line is None or line.change is not asked:
            return False  # the connection is gone
        self._size -= len(asked.command.body)
        line.change = None
        if not line.waiting:
            del self._lines[asked.connection]
        return bool(line.waiting)

    def next(self, connection: Hashable) -> Asked | None:
        """The next request that waits; None when there is none, and later ones need not wait."""
        line = self._lines[connection]
        if not line.waiting:
            del self._lines[connection]
            return None
        asked = line.waiting.popleft()
        self._count -= 1
        self._size -= len(asked.command.body)
        return asked

    def forget(self, connection: Hashable) -> None:
        """The connection is gone, and nobody waits for the answers."""
        line = self._lines.pop(connection, None)
        if line is not None:
            change = [] if line.change is None else [line.change]
            self._count -= len(line.waiting)
            self._size -= sum(len(asked.command.body) for asked in (*change, *line.waiting))
