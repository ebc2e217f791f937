"""The life of a process: ready, running, asked to stop."""

import asyncio
import gc
import json
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from kourou.server.conf import ConfError
from kourou.server.files import write_atomically


async def run_until_stopped(start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
    """Run until SIGTERM or SIGINT, then stop cleanly; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await start()
        calm_collector()
        await stopping.wait()
    finally:
        await stop()


def write_ready_file(
    path: Path | None,
    *,
    namesrv: str | None = None,
    broker: str | None = None,
    ha: str | None = None,
    console: str | None = None,
    store: str | None = None,
) -> None:
    """Tell whoever started us that we are ready, and where. Raises ConfError."""
    if path is not None:
        ready = {
            "pid": os.getpid(),
            "namesrv": namesrv,
            "broker": broker,
            "ha": ha,
            "console": console,
            "store": store,
        }
        try:
            write_atomically(path, json.dumps(ready) + "\n")
        except OSError as error:
            raise ConfError(f"the ready file {path} can't be written: {error.strerror or error}") from None


def calm_collector() -> None:
    """Make full garbage collections rare: everything waits for them, and they take the longer the more is connected.

    6,000 connections make one of 15 to 27 ms. There is next to nothing for them to find: connections and tables are
    freed without their help, and what was made while starting stays until the end anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


def allow_many_connections() -> None:
    """Raise the limit of open files to what the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
