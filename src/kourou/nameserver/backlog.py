"""Registrations that are being read, a slice at a time, and what their connections asked meanwhile.

A connection's requests are answered in their order: behind a registration that takes several turns, they wait. Other
connections do not notice. How much may wait is bounded; what comes beyond it is refused, and a broker tries again.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from kourou.protocol.command import Command

REQUESTS_MAX = 1024
SIZE_MAX = 128 * 1024 * 1024
"""Requests that wait, and bytes of their bodies with those that are being read."""


class Request(Protocol):
    """A request and the connection that it came on."""

    @property
    def connection(self) -> Hashable: ...

    @property
    def command(self) -> Command: ...


R = TypeVar("R", bound=Request)
W = TypeVar("W")


class Backlog(Generic[R, W]):
    """Work of type W for requests of type R, one for each connection at a time, in turn."""

    def __init__(self) -> None:
        self._work: dict[Hashable, tuple[R, W]] = {}  # by connection; the first is next
        self._behind: dict[Hashable, deque[R]] = {}  # requests behind it; a connection without any is missing
        self._count = 0  # of all requests behind
        self._size = 0  # bytes of all bodies, worked on and behind

    def __bool__(self) -> bool:
        return bool(self._work)

    def holds(self, connection: Hashable) -> bool:
        """Is there work for this connection, so that its next request must wait?"""
        return connection in self._work

    def has_room(self, request: R) -> bool:
        return self._count < REQUESTS_MAX and self._size + len(request.command.body) <= SIZE_MAX

    def start(self, request: R, work: W) -> None:
        """Work that takes more than one turn."""
        assert request.connection not in self._work
        self._work[request.connection] = request, work
        self._size += len(request.command.body)

    def wait(self, request: R) -> None:
        """Behind the work for its connection."""
        self._behind.setdefault(request.connection, deque()).append(request)
        self._count += 1
        self._size += len(request.command.body)

    def next(self) -> tuple[R, W]:
        """Whose turn it is; with the next turn it is another's."""
        connection = next(iter(self._work))
        self._work[connection] = work = self._work.pop(connection)
        return work

    def finish(self, connection: Hashable) -> deque[R]:
        """The work for this connection is done or in vain. What waited behind it."""
        if connection not in self._work:
            return deque()
        request, _ = self._work.pop(connection)
        behind = self._behind.pop(connection, deque())
        self._count -= len(behind)
        self._size -= len(request.command.body) + sum(len(waiting.command.body) for waiting in behind)
        return behind
