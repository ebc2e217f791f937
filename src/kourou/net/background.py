"""Who reads a backlog takes what time of the loop the others leave.

A reader that asks for its next megabyte while the last one is still under way keeps the loop, and a processor, busy for
as long as there is something to read. Those who wait for one answer each would notice. So while others ask as well,
readers in bulk have a share of the loop's time together, and their turns come one after the other; while nobody else
asks, they have all of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf

QUIET = 0.1
"""Seconds without a request of anybody else after which readers in bulk have all the time."""

SPENT_MAX = 0.005
"""Seconds that one turn counts for at most: who was held up by the machine has not used that time."""

CATCH_UP = 0.002
"""Seconds by which turns may make up for timers that fired late: these count in milliseconds."""


class Background:
    """The turns of readers in bulk. `share` says how much of the time they may have beside others: above 0 to 1."""

    def __init__(self, share: Callable[[], float], clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures turns: a loop's own may stand still meanwhile."""
        self.share = share
        self._clock = clock
        self._turns: deque[Callable[[], None]] = deque()
        self._due = -inf  # the loop's time before which no turn begins
        self._timer: asyncio.Handle | None = None
        self.others_asked = -inf  # the loop's time when somebody else asked last

    def ask(self, turn: Callable[[], None]) -> None:
        """Call `turn` when it may be."""
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
