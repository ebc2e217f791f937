"""An event loop in a thread of its own, and calls from other threads that wait for its results."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from kourou.client import ClosedError

T = TypeVar("T")

CANCEL_S: Final = 5.0
"""How long work that is cancelled when the loop ends may take to end."""


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a garbage collection inside of it may run `finish`
        self._awaited: set[Future[Any]] = set()  # the calls that other threads wait for

    def start(self) -> None:
        self._process = os.getpid()
        started: Future[None] = Future()

        def run() -> None:
            loop = self._loop = _new_loop()
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set_result, None)
            try:
                loop.run_forever()
            finally:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()

        self._thread = threading.Thread(target=run, name="kourou-sync", daemon=True)
        self._thread.start()
        started.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine. An interrupt (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: inside of a coroutine, use kourou.client")
        if self.is_forked:
            work.close()
            raise ClosedError("the client belongs to the parent process: make another one after the fork")
        with self._lock:
            loop = self._loop
            if loop is None or not loop.is_running():
                work.close()
                raise ClosedError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, loop)
            self._awaited.add(future)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._loop is None:
                raise ClosedError("the client was closed while this waited") from None
            raise
        finally:
            self._awaited.discard(future)

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process: threads do not survive a fork, so the loop does not run here."""
        return os.getpid() != self._process

    def wait(self, begin: Callable[[], Awaitable[T]]) -> T:
        """The result of an awaitable that is created in the loop's thread."""

        async def work() -> T:
            return await begin()

        return self.run(work())

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs it to its end, if the loop still runs; waits for it, unless this is the loop's own thread."""
        loop = self._loop
        if loop is None or self.is_forked or not loop.is_running():
            work.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(work, loop)
        else:
            self.run(work)

    def call(self, function: Callable[[], T]) -> T:
        """The result of the function, which is called in the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def stop(self) -> None:
        """Ends the loop and its thread. Calls that still wait raise ClosedError. Does nothing in a forked process."""
        if self.is_forked:
            return
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            for future in list(self._awaited):
                future.cancel()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))


def _new_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
