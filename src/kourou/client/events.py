"""What a client tells the program about itself: connections that come and go, queues that are given and taken.

    connect(…, on_connection=seen)            Connected, Disconnected
    consume(…, on_assigned=f, on_revoked=g)   lists of queues

A coroutine function runs on the event loop, an ordinary function in a thread, so that it may block. An exception in one
is logged and changes nothing.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

EVENTS_MAX: Final = 1024
"""Events that wait for a slow callback; beyond it the oldest are dropped."""


class Connected(msgspec.Struct, frozen=True):
    """A connection to a name server or broker was opened."""

    address: str


class Disconnected(msgspec.Struct, frozen=True):
    """A connection to a name server or broker was lost, or closed."""

    address: str
    reason: str


ConnectionEvent = Connected | Disconnected
ConnectionCallback = Callable[[ConnectionEvent], object]
QueuesCallback = Callable[[list[MessageQueue]], object]
"""Functions or coroutine functions. What they return does not matter."""


def is_coroutine_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[[Any], object], argument: object) -> None:
    """Calls what a user gave: a coroutine function here, any other in a thread. Raises what it raises."""
    result = function(argument) if is_coroutine_function(function) else await asyncio.to_thread(function, argument)
    if inspect.isawaitable(result):
        await result


async def call_queues(function: QueuesCallback | None, queues: list[MessageQueue], timeout: float) -> None:
    """Tells of queues and waits until that is done, `timeout` seconds at most. Failures are logged."""
    if function is None or not queues:
        return
    try:
        async with asyncio.timeout(timeout):
            await call(function, queues)
    except TimeoutError:
        log.warning("a rebalance callback takes longer than %g s, and is waited for no longer", timeout)
    except Exception:
        log.exception("a rebalance callback failed")


class Announcer:
    """Hands events to one callback, one after the other, in the order of their coming."""

    def __init__(self, callback: ConnectionCallback) -> None:
        self._callback = callback
        self._waiting: deque[ConnectionEvent] = deque(maxlen=EVENTS_MAX)
        self._task: asyncio.Task[None] | None = None

    def tell(self, event: ConnectionEvent) -> None:
        if len(self._waiting) == EVENTS_MAX:
            log.warning("a connection callback is too slow: event dropped %s", self._waiting[0])
        self._waiting.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="connection events")

    async def _run(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                await call(self._callback, event)
            except Exception:
                log.exception("a connection callback failed event=%s", event)

    async def finish(self, timeout: float) -> None:
        """Waits until all was told, `timeout` seconds at most."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout)
            self._task.cancel()
