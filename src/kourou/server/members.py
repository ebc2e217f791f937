"""The processes of a cluster on one machine: `kourou run --brokers N`.

    name server ─▶ masters ─▶ slaves ─▶ the ready file lists all of them
    SIGTERM     ─▶ masters ─▶ slaves ─▶ name server

Each member is a `kourou namesrv` or `kourou broker` in a session of its own, so that Ctrl-C in a terminal reaches only
the process that started them. Its standard input is a pipe from that process: it stops cleanly when the pipe ends,
even if that process is killed. A member that ends unexpectedly is reported, and the others continue.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kourou.server.conf import ConfError
from kourou.server.files import make_folder

log = logging.getLogger(__name__)

READY_SECONDS: Final = 60.0
"""How long a member may take to become ready: it may have to recover its store."""

STOP_SECONDS: Final = 30.0
"""How long a member may take to stop. After that it is killed."""

QUOTED_LINES: Final = 5
"""How many lines of its log are shown when a member ended unexpectedly."""

_POLL_SECONDS: Final = 0.02


class MemberProcess:
    """One process of a cluster, and the contents of its ready file."""

    def __init__(self, label: str, words: Sequence[str], root: Path) -> None:
        """`words` is a command line of `kourou`; logs and ready files are in `root`/members."""
        folder = root / "members"
        self.label = label
        self.log_file = folder / f"{label}.log"
        self.ready: dict[str, Any] = {}
        self._words = words
        self._ready_file = folder / f"{label}.json"
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises ConfError with the end of its log."""
        make_folder(self._ready_file.parent)
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "kourou", *self._words, "--member", "--ready-file", str(self._ready_file)]
        self.log_file.touch(0o600)
        with self.log_file.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not self._ready_file.exists():
                    if not self.is_running:
                        raise ConfError(f"{self.how_it_ended()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ConfError(f"{self.label} was not ready within {READY_SECONDS:g} s: see {self.log_file}") from None
        self.ready = json.loads(self._ready_file.read_text())

    async def ended(self) -> None:
        """Wait until the process has ended; logs an error if it was not stopped."""
        assert self._process is not None
        await self._process.wait()
        if not self._is_stopping:
            log.error("%s", self.how_it_ended())

    def how_it_ended(self) -> str:
        """Its name, exit code or signal, log file, and the end of its log."""
        assert self._process is not None
        code = self._process.returncode or 0
        end = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        lines = self._last_lines()
        return f"{self.label} (pid {self.pid}) {end}; its log is {self.log_file}" + (f": {lines}" if lines else "")

    def _last_lines(self) -> str:
        with self.log_file.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").splitlines()
        return " | ".join(line for line in lines[-QUOTED_LINES:] if line.strip())

    async def stop(self) -> None:
        """As SIGTERM does; killed if it takes longer than STOP_SECONDS."""
        process, self._is_stopping = self._process, True
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await process.wait()
        except TimeoutError:
            log.error("%s did not stop within %g s and is killed: see %s", self.label, STOP_SECONDS, self.log_file)
            process.kill()
            await process.wait()
        else:
            if code:
                log.error("%s", self.how_it_ended())


class MemberProcesses:
    """All processes of a cluster, in the order in which they were started."""

    def __init__(self) -> None:
        self._members: list[MemberProcess] = []
        self._watching: list[asyncio.Task[None]] = []

    async def start(self, members: Iterable[MemberProcess]) -> None:
        """Start these members at the same time, and wait until all are ready. Raises ConfError."""
        members = list(members)
        self._members += members
        failures = await asyncio.gather(*(member.start() for member in members), return_exceptions=True)
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure
        self._watching += [asyncio.create_task(member.ended()) for member in members]

    async def all_ended(self) -> None:
        """Wait until all members have ended. May be cancelled."""
        await asyncio.wait(self._watching)

    async def stop(self, members: Iterable[MemberProcess]) -> None:
        """Stop these members at the same time."""
        await asyncio.gather(*(member.stop() for member in members))

    async def stop_the_rest(self) -> None:
        """Stop the members that still run, the last ones first."""
        for member in reversed(self._members):
            await member.stop()
        await asyncio.gather(*self._watching)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
