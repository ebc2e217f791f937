"""A name server, a broker and a console as processes of `kourou run`, with the link that signs in."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.waiting import wait_for

Result = TypeVar("Result")


@dataclass(frozen=True)
class Running:
    """`link` signs in one browser, once; `url` is the console without it."""

    link: str
    namesrv: str
    broker: str
    pid: int

    @property
    def url(self) -> str:
        return self.link.split("/#")[0]


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """`kourou run` with its files in `folder`."""
    ports = ("--namesrv-port", "0", "--port", "0")
    command = [sys.executable, "-m", "kourou", "run", *ports, "--store", "store", "--ready-file", "ready"]
    output = folder / "out"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder)
    try:
        wait_for("the link", lambda: "#token=" in output.read_text() or process.poll() is not None)
        lines = output.read_text().splitlines()
        link = next(line.removeprefix("console: ") for line in lines if line.startswith("console: http"))
        ready = json.loads((folder / "ready").read_text())
        yield Running(link, ready["namesrv"], ready["broker"], process.pid)
    finally:
        process.terminate()
        process.wait()


def beside(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs it in another thread: this one has the event loop of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
