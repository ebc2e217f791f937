"""Throttles bulk readers: while other clients are active, they share a limited part of the event loop.

A bulk reader, which asks for its next megabyte while the last one is still in flight, keeps the event loop and a
processor busy as long as there are messages to read. That would delay clients that wait for a single answer. So while
other clients send requests, all bulk readers together get a share of the loop's time, one at a time; otherwise they get
all of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf

QUIET = 0.1
"""After this many seconds without requests of other clients, bulk readers get all of the time."""

SPENT_MAX = 0.005
"""The most seconds that a turn counts for: a longer turn was delayed by the machine and did not use that time."""

CATCH_UP = 0.002
"""The most seconds by which turns make up for timers that fired late; timers have a resolution of milliseconds."""


class Background:
    """The turns of bulk readers. `share` returns their share of the time while others are active: above 0, up to 1."""

    def __init__(self, share: Callable[[], float], clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures turns, because the loop's own clock may stand still during a turn."""
        self.share = share
        self._clock = clock
        self._turns: deque[Callable[[], None]] = deque()
        self._due = -inf  # the loop's time before which no turn begins
        self._timer: asyncio.Handle | None = None
        self.others_asked = -inf  # the loop's time of the last request of another client

    def ask(self, turn: Callable[[], None]) -> None:
        """Call `turn` as soon as the share allows it."""
        loop = asyncio.get_running_loop()
        if not self._turns and self._is_quiet(loop):
            loop.call_soon(turn)
            return
        self._turns.append(turn)
        if self._timer is None:
            self._set_timer(loop)

    def _is_quiet(self, loop: asyncio.AbstractEventLoop) -> bool:
        return loop.time() - self.others_asked > QUIET

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_quiet(loop):
            self._timer = loop.call_soon(self._next_turn, loop)
        else:
            self._timer = loop.call_at(self._due, self._next_turn, loop)

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        turn = self._turns.popleft()
        due = max(self._due, loop.time() - CATCH_UP)
        began = self._clock()
        try:
            turn()
        finally:
            self._due = due + min(self._clock() - began, SPENT_MAX) / self.share()
            if self._turns and self._timer is None:
                self._set_timer(loop)
