"""The one source of deadlines: when the machine has work to do without an event.

    parts say when they are due ─▶ `wake_ms`, the earliest time ─▶ the driver's timer ─▶ Tick ─▶ the parts that are due

Nothing polls. A part without work is not due (`due_ms` returns None), so an idle broker sleeps. A part that must be
punctual (long polls, delays) is due to the millisecond. The times of the others are rounded up to a grid, so that
several of them share one wake-up.

A step in which something was due ends with `look`, which asks every part. Other steps, and reads that the fast lane
served alone, end with `stay_awake`: all parts are asked within `ACTIVE_MS`, and only those parts at once that a request
can make due sooner (`is_near`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

GRID_MS = 100
"""The grid for parts that need not be punctual."""

ACTIVE_MS = 100
"""While something happens, all parts are asked at least this often: a part without work may have some now."""

AFTER_FAULT_MS = 100
"""How long a part rests that has raised an exception."""

ASLEEP_MS = 60_000
"""The longest sleep, whatever the parts say: the time of day may be set meanwhile, and delays follow it."""


class Part(NamedTuple):
    """A part of the machine that has work of its own."""

    due_ms: Callable[[int], int | None]
    """When `step` has something to do, as seen now; None: not before something else happens."""
    step: Callable[[int], object]
    """Does the work that is due. Afterwards `due_ms` is later, or None."""
    is_punctual: bool = False
    is_near: bool = False
    """A request can make it due within `ACTIVE_MS`, so it is asked after each step."""
    appends: bool = False
    """Its work appends messages, so it is done before messages are dispatched."""


class Deadlines:
    """The parts, and the earliest of their times."""

    def __init__(self, parts: Sequence[Part], on_fault: Callable[[str, Exception], None]) -> None:
        """`on_fault(name, error)` is called if a part raises an exception. The other parts are not affected."""
        self._parts = tuple(parts)
        self._near = tuple(part for part in parts if part.is_near)
        self._on_fault = on_fault
        self._rests: dict[Part, int] = {}  # parts that have failed, and until when they rest
        self.wake_ms = 0
        """When the driver sends Tick at the latest."""

    def step(self, now_ms: int, *, appends: bool) -> None:
        """Do the work that is due, of the parts that append messages or of the others."""
        for part in self._parts:
            if part.appends is not appends or (self._rests and not self._has_rested(part, now_ms)):
                continue
            try:
                due_ms = part.due_ms(now_ms)
                if due_ms is not None and due_ms <= now_ms:
                    part.step(now_ms)
            except Exception as error:
                self._failed(part, error, now_ms)

    def look(self, now_ms: int) -> None:
        """Ask every part for its time. A part that is due now is so again in the next millisecond at the earliest."""
        self.wake_ms = max(self._earliest(self._parts, now_ms, now_ms + ASLEEP_MS), now_ms + 1)

    def stay_awake(self, now_ms: int) -> None:
        """There were events, and no part was due."""
        wake_ms = min(self.wake_ms, now_ms + ACTIVE_MS)
        self.wake_ms = max(self._earliest(self._near, now_ms, wake_ms), now_ms + 1)

    def _earliest(self, parts: Sequence[Part], now_ms: int, wake_ms: int) -> int:
        """The earliest time of these parts, or `wake_ms` if that is earlier."""
        for part in parts:
            try:
                due_ms = part.due_ms(now_ms)
            except Exception as error:
                self._failed(part, error, now_ms)
                due_ms = now_ms
            if due_ms is not None and due_ms < wake_ms:
                if self._rests:
                    due_ms = max(due_ms, self._rests.get(part, 0))
                wake_ms = min(due_ms if part.is_punctual else due_ms + -due_ms % GRID_MS, wake_ms)
        return wake_ms

    def _has_rested(self, part: Part, now_ms: int) -> bool:
        if self._rests.get(part, 0) > now_ms:
            return False
        self._rests.pop(part, None)
        return True

    def _failed(self, part: Part, error: Exception, now_ms: int) -> None:
        self._rests[part] = now_ms + AFTER_FAULT_MS
        self._on_fault(part.step.__qualname__, error)
