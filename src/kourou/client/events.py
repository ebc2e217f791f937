"""Callbacks: connections that are opened and lost, queues that are assigned and revoked.

    connect(…, on_connection=seen)            Connected, Disconnected
    consume(…, on_assigned=f, on_revoked=g)   lists of queues

A coroutine function runs on the event loop, any other function in a thread, so that it may block. An exception
in a callback is logged and has no other effect.
"""

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

import msgspec

from kourou.client.user_calls import user_call
from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

EVENTS_MAX: Final = 1024
"""Events that may wait for a slow callback; when there are more, the oldest are dropped."""


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
"""Functions or coroutine functions. Their return values are ignored."""


def is_coroutine_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def as_coroutine(function: Callable[[Any], Any], threads: Executor | None = None) -> Callable[[Any], Awaitable[Any]]:
    """A user's function as a coroutine function: called here if it is one, otherwise in a thread.

    A result that is awaitable is awaited.

    It raises what the function raises, but RuntimeError for StopIteration, which no future takes, and for the
    cancellation of work of its own, which must not end the task that calls it.
    """
    is_coroutine = is_coroutine_function(function)

    async def guarded(argument: Any) -> Any:
        try:
            if is_coroutine:
                return await function(argument)
            begin = partial(contextvars.copy_context().run, _without_stop_iteration, function, argument)
            result = await asyncio.get_running_loop().run_in_executor(threads, begin)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("the function waited for something that was cancelled") from error

    return guarded


def _without_stop_iteration(function: Callable[[Any], Any], argument: object) -> Any:
    try:
        return function(argument)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


async def call(function: Callable[[Any], Any], argument: object) -> Any:
    """The result of a user's function: see `as_coroutine`."""
    return await as_coroutine(function)(argument)


async def call_queues(
    function: QueuesCallback | None, queues: list[MessageQueue], timeout: float, *owners: object
) -> None:
    """Calls a user's function with queues and waits for it, `timeout` seconds at most. Failures are logged.

    `owners` wait for it: see user_calls.py.
    """
    if function is None or not queues:
        return
    try:
        with user_call(*owners):
            async with asyncio.timeout(timeout):
                await call(function, queues)
    except TimeoutError:
        log.warning("a rebalance callback takes longer than %g s; continuing without waiting for it", timeout)
    except Exception:
        log.exception("a rebalance callback failed")


class Announcer:
    """Passes events to one callback, one at a time, in order."""

    def __init__(self, callback: ConnectionCallback, owner: object = None) -> None:
        """`owner`, a session, waits for the callback when it ends."""
        self._callback = callback
        self._owner = owner
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
                with user_call(self._owner):
                    await call(self._callback, event)
            except Exception:
                log.exception("a connection callback failed event=%s", event)

    async def finish(self, timeout: float) -> None:
        """Waits until the callback has had all events, `timeout` seconds at most."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout)
            self._task.cancel()
