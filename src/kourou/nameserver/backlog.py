"""Connections with an unanswered change of the tables, and their later requests.

The requests of a connection are served in order: during a change that takes several turns, later ones wait. Other
connections are not affected. The number of waiting requests is bounded; further ones are refused, and brokers retry.
"""

from collections import deque
from collections.abc import Hashable

from kourou.nameserver.events import Asked

REQUESTS_MAX = 1024
SIZE_MAX = 128 * 1024 * 1024
"""Limits: the number of waiting requests, and the bytes of their bodies and of those of running changes."""


class _Line:
    """The requests of one connection."""

    __slots__ = ("change", "waiting")

    def __init__(self) -> None:
        self.change: Asked | None = None  # running
        self.waiting: deque[Asked] = deque()


class Backlog:
    """Requests that must wait for a change on their own connection."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._count = 0  # of all waiting requests
        self._size = 0  # bytes of all bodies, of running changes and of waiting requests

    def __len__(self) -> int:
        return len(self._lines)

    def holds(self, connection: Hashable) -> bool:
        """True if the next request of this connection must wait."""
        return connection in self._lines

    def has_change(self, connection: Hashable) -> bool:
        """True if a change of this connection is running."""
        line = self._lines.get(connection)
        return line is not None and line.change is not None

    def has_room(self, asked: Asked) -> bool:
        return self._count < REQUESTS_MAX and self._size + len(asked.command.body) <= SIZE_MAX

    def begin(self, asked: Asked) -> None:
        """A change is running; later requests of its connection wait."""
        line = self._lines.setdefault(asked.connection, _Line())
        assert line.change is None, "a connection runs one change at a time"
        line.change = asked
        self._size += len(asked.command.body)

    def wait(self, asked: Asked) -> None:
        self._lines[asked.connection].waiting.append(asked)
        self._count += 1
        self._size += len(asked.command.body)

    def end(self, asked: Asked) -> bool:
        """A change is answered. True if requests wait: take them with `next`; later ones still wait for them."""
        line = self._lines.get(asked.connection)
        if line is None or line.change is not asked:
            return False  # the connection was closed
        self._size -= len(asked.command.body)
        line.change = None
        if not line.waiting:
            del self._lines[asked.connection]
        return bool(line.waiting)

    def next(self, connection: Hashable) -> Asked | None:
        """The next waiting request; None if there is none, and later ones need not wait."""
        line = self._lines[connection]
        if not line.waiting:
            del self._lines[connection]
            return None
        asked = line.waiting.popleft()
        self._count -= 1
        self._size -= len(asked.command.body)
        return asked

    def forget(self, connection: Hashable) -> None:
        """The connection was closed: its answers are not needed."""
        line = self._lines.pop(connection, None)
        if line is not None:
            change = [] if line.change is None else [line.change]
            self._count -= len(line.waiting)
            self._size -= sum(len(asked.command.body) for asked in (*change, *line.waiting))
