"""A loop whose time passes only when a test says so: for parts of a connection, without sockets."""

import asyncio
from collections.abc import Callable
from typing import Any, cast


class Timer:
    """A call that is due at some time."""

    def __init__(self, when: float, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._when = when
        self._call = call
        self._args = args
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        if not self.is_cancelled:
            self._call(*self._args)


class ManualLoop:
    """What the parts of a connection need of a loop. Futures are those of the running loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.soon: list[Timer] = []

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self.now

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().create_future()

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(self.now + delay, call, args)
        self.timers.append(timer)
        return timer

    def call_soon(self, call: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(self.now, call, args)
        self.soon.append(timer)
        return timer

    def turn(self) -> int:
        """Run what is due now. How many calls there were."""
        soon, self.soon = self.soon, []
        for timer in soon:
            timer.run()
        return len(soon)

    def pass_time(self, seconds: float) -> None:
        """Time passes, and timers fire in their order."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if not timer.is_cancelled and timer.when() <= until]:
            first = min(due, key=Timer.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when())
            first.run()
        self.now = until
