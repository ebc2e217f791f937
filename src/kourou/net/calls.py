"""Our own requests on a connection that await an answer, with their deadlines.

    number ─▶ begin ─▶ future ─▶ answer          the peer answered
                          ├────▶ time-out        one timer for all requests, which looks every `SWEEP` seconds
                          └────▶ fail            the connection is lost

A request needs neither a task nor a timer, so that a client can have tens of thousands in flight.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from kourou.net.errors import ConnectionLostError, RequestTimedOutError, TooManyRequestsError
from kourou.protocol.command import Command

SWEEP = 0.05
"""The most seconds by which a timeout may be late."""

NUMBER_MAX = 2**31 - 1


class Calls:
    """The requests of one connection that await an answer. `peer` names the other side in errors."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count_max: int) -> None:
        self.peer = ""
        self.on_time_out: Callable[[float, float], None] | None = None
        """Called after a request has timed out, with the time when it began and its timeout in seconds."""
        self._loop = loop
        self._count_max = count_max
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._deadlines: list[tuple[float, int, float, int]] = []  # (when, number, time-out, request code), a heap
        self._timer: asyncio.TimerHandle | None = None
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """A number (`opaque`) that no waiting request has. Raises TooManyRequestsError."""
        if len(self._waiting) >= self._count_max:
            raise TooManyRequestsError(f"{len(self._waiting)} requests await an answer from {self.peer}")
        while True:
            self._last_number = self._last_number + 1 if self._last_number < NUMBER_MAX else 0
            if self._last_number not in self._waiting:
                return self._last_number

    def begin(self, number: int, code: int, timeout: float) -> "asyncio.Future[Command]":
        """Returns the future answer to a request that is being sent; it may fail with a TransportError."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[number] = future
        due = self._loop.time() + timeout
        heappush(self._deadlines, (due, number, timeout, code))
        timer = self._timer
        if timer is None or (self._deadlines[0][1] == number and timer.when() > due + SWEEP):
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_later(max(timeout, SWEEP), self._look)
        return future

    def answer(self, command: Command) -> None:
        """An answer arrived. It is dropped if its caller no longer waits."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    def forget(self, number: int) -> None:
        """The caller no longer waits for this answer."""
        self._waiting.pop(number, None)

    def fail(self, why: str) -> None:
        """The connection is lost: fail all requests, each with an error of its own."""
        self.stop()
        self.on_time_out = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            fail_future(future, ConnectionLostError(why))

    def stop(self) -> None:
        """Stop timeouts, because the connection is being ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()

    def _look(self) -> None:
        """Fail the requests that have timed out."""
        self._timer = None
        now, deadlines = self._loop.time(), self._deadlines
        while deadlines:
            due, number, timeout, code = deadlines[0]
            future = self._waiting.get(number)
            is_waiting = future is not None and not future.done()
            if is_waiting and due > now:
                self._timer = self._loop.call_later(max(due - now, SWEEP), self._look)
                return
            heappop(deadlines)
            self._waiting.pop(number, None)
            if is_waiting and future is not None:
                text = f"no answer from {self.peer} to request {code} within {timeout:g} s"
                fail_future(future, RequestTimedOutError(text))
                if self.on_time_out is not None:
                    self.on_time_out(due - timeout, timeout)


def fail_future(
    future: "asyncio.Future[object] | asyncio.Future[Command] | asyncio.Future[None]", error: Exception
) -> None:
    """Fail a future. If it is no longer awaited, asyncio does not log the error."""
    if not future.done():
        future.set_exception(error)
        future.exception()
