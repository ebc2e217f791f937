"""An event loop in a thread of its own, and calls from other threads that wait for its results."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from kourou.client import ClosedError

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started: Future[None] = Future()

        def run() -> None:
            loop = self._loop = _new_loop()
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set_result, None)
            try:
                loop.run_forever()
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()

        self._thread = threading.Thread(target=run, name="kourou-sync", daemon=True)
        self._thread.start()
        started.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns. An interrupt (Ctrl-C) cancels it."""
        loop = self._loop
        if loop is None or not loop.is_running():
            work.close()
            raise ClosedError("the client is closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: inside of a coroutine, use kourou.client")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def wait(self, begin: Callable[[], Awaitable[T]]) -> T:
        """What comes of an awaitable that is made in the loop's thread."""

        async def work() -> T:
            return await begin()

        return self.run(work())

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs it to its end, if the loop still runs; waits for it, unless this is the loop's own thread."""
        loop = self._loop
        if loop is None or not loop.is_running():
            work.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(work, loop)
        else:
            self.run(work)

    def call(self, function: Callable[[], T]) -> T:
        """What the function returns, called in the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
