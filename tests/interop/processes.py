"""Processes of the tests: started with a log, watched while one waits for them, ended by their id."""

import os
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.waiting import GaveUpError, wait_for

Found = TypeVar("Found")

# What would lead a process away from the servers of its test.
FOREIGN_SETTINGS = ("NAMESRV_ADDR", "ROCKETMQ_HOME", "ROCKETMQ_SERIALIZE_TYPE", "JAVA_TOOL_OPTIONS")


class Process:
    """A running program whose output goes to a file."""

    def __init__(self, command: Sequence[str], home: Path, settings: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.output = home / "output.txt"
        environment = {key: value for key, value in os.environ.items() if key not in FOREIGN_SETTINGS}
        environment.update(settings or {})
        with self.output.open("ab") as output:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home, env=environment
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_until(self, what: str, look: Callable[[], Found | None], seconds: float) -> Found:
        """As `wait_for`, but fails at once when the process ends meanwhile; in both cases with its last words.

        A process that did not do what was waited for is of no use to anyone: it is ended.
        """

        def look_alive() -> Found | None:
            found = look()
            if not found and not self.running:
                raise GaveUpError(f"{what}: ended with {self._popen.returncode}")
            return found

        try:
            return wait_for(what, look_alive, seconds)
        except GaveUpError as gave_up:
            self.kill()
            raise GaveUpError(f"{gave_up}; it said:\n{self.said()[-2000:]}") from None

    def terminate(self) -> None:
        """Asks it to stop, and does not wait."""
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without a word of farewell; fine if it has ended before."""
        self._popen.kill()
        self._popen.wait(timeout=30)

    def wait_end(self, seconds: float) -> int:
        return self._popen.wait(timeout=seconds)


class Talker:
    """A program that answers the commands on its input on its output; its errors are written to a file."""

    def __init__(self, command: Sequence[str], home: Path, settings: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.errors = home / "errors.txt"
        environment = {key: value for key, value in os.environ.items() if key not in FOREIGN_SETTINGS}
        environment["HOME"] = str(home)  # the Go client keeps offsets there, and another run's must not be found
        environment.update(settings or {})
        with self.errors.open("ab") as errors:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=home, env=environment
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def tell(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()

    def line(self) -> str:
        """The next line of its answer. Raises GaveUpError if it has ended."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise GaveUpError(f"ended: {self.errors.read_text(errors='replace')[-2000:]}")
        return line.decode().rstrip("\n")

    def read(self, size: int) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.read(size).decode()

    def stop(self) -> None:
        self._popen.kill()
        self._popen.wait(timeout=30)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


def free_port(*around: int) -> int:
    """A port that is free now, and with it those at the given distances.

    Taken below the range from which the system picks ports for outgoing connections: one of these could take it
    before the server is up.
    """
    for _ in range(1000):
        port = random.randrange(15_000, 30_000)
        if all(_is_free(port + distance) for distance in (0, *around)):
            return port
    raise GaveUpError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def accepts(address: str) -> bool:
    """Whether someone listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
