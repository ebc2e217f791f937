"""The life of a process: ready, running, stopping."""

import asyncio
import gc
import json
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from kourou.server.conf import ConfError
from kourou.server.exposure import OpenPort
from kourou.server.files import write_atomically

STANDARD_INPUT = 0


async def run_until_stopped(
    start: Callable[[], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
    ended: Callable[[], Awaitable[None]] | None = None,
    *,
    with_input: bool = False,
) -> None:
    """Run until SIGTERM or SIGINT, then stop cleanly; a second signal ends the process at once.

    It is also stopped when `ended` returns or raises, and, `with_input`, when the standard input ends.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if with_input:
        loop.add_reader(STANDARD_INPUT, _read_input, stopping)
    try:
        await start()
        calm_collector()
        await _first_of(stopping, ended)
    finally:
        await stop()


async def _first_of(stopping: asyncio.Event, ended: Callable[[], Awaitable[None]] | None) -> None:
    if ended is None:
        await stopping.wait()
        return
    tasks = [asyncio.ensure_future(ended()), asyncio.ensure_future(stopping.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _read_input(stopping: asyncio.Event) -> None:
    """Wait for the end of standard input; any input is ignored."""
    try:
        data = os.read(STANDARD_INPUT, 4096)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if not data:
        asyncio.get_running_loop().remove_reader(STANDARD_INPUT)
        stopping.set()


def write_ready_file(
    path: Path | None,
    *,
    namesrv: str | None = None,
    broker: str | None = None,
    ha: str | None = None,
    console: str | None = None,
    store: str | None = None,
    controller: str | None = None,
    members: list[dict[str, Any]] | None = None,
    open_ports: Iterable[OpenPort] = (),
) -> None:
    """Tell the parent process that the server is ready, and its address. Raises ConfError.

    `controller` is the address of a controller, `members` are the processes of a cluster. `open_ports` are those that
    were logged at the start, which the parent repeats.
    """
    if path is not None:
        ready: dict[str, Any] = {
            "pid": os.getpid(),
            "namesrv": namesrv,
            "broker": broker,
            "ha": ha,
            "console": console,
            "store": store,
        }
        if controller is not None:
            ready["controller"] = controller
        if members is not None:
            ready["members"] = members
        if ports := [port._asdict() for port in open_ports]:
            ready["open_ports"] = ports
        try:
            write_atomically(path, json.dumps(ready) + "\n")
        except OSError as error:
            raise ConfError(f"the ready file {path} can't be written: {error.strerror or error}") from None


def calm_collector() -> None:
    """Make full garbage collections rare: they stop the process, and take longer the more connections there are.

    With 6,000 connections, one takes 15 to 27 ms. They find almost nothing: connections and tables are freed without
    them, and objects that were created at the start live until the end anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


def allow_many_connections() -> None:
    """Raise the limit of open files to the highest value that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
