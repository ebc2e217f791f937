"""The server under attack, and peers that talk to it over blocking sockets."""

import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import wait_for

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command

MIB = 1024 * 1024
FLOOD_MAX = 64 * MIB
PATIENCE = 60.0
"""Seconds after which a peer gives up. Far more than is ever needed: machines that run tests can be busy."""


class Peer:
    """A client that sends any bytes."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(PATIENCE)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.connect(("127.0.0.1", port))
        self._decoder = frame.Decoder()
        self._commands: list[Command] = []

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes | Command) -> None:
        self.sock.sendall(frame.encode(data) if isinstance(data, Command) else data)

    def receive(self) -> Command:
        """The next command. Raises EOFError when the server ends the connection, in whatever way."""
        while not self._commands:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._commands = self._decoder.feed(data)
            assert self._decoder.error is None
        return self._commands.pop(0)

    def ask(self, command: Command) -> Command:
        self.send(command)
        return self.receive()

    def ended(self) -> bool:
        """Wait for the server to end the connection; True if it said nothing before."""
        try:
            self.receive()
        except EOFError:
            return True
        return False

    def reset(self) -> None:
        """Gone without a trace: no FIN, no TIME_WAIT."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]")
"""Characters that a terminal acts on, or treats as the end of a line."""


class Target:
    """A running `kourou namesrv`."""

    extra_environment: Mapping[str, str] = {}

    def __init__(self, folder: Path, *settings: str) -> None:
        told = self._start(folder, ["namesrv", "-p", "0"], [f"kvConfigPath={folder / 'kvConfig.json'}", *settings])
        self.port = int(told["namesrv"].rpartition(":")[2])

    def _start(self, folder: Path, words: list[str], settings: Iterable[str]) -> dict[str, str]:
        """Runs `kourou` with these words until it is ready. Returns its ready file."""
        self.folder = folder
        self.log_path = folder / "log.txt"
        ready = folder / "ready.json"
        command = [sys.executable, "-m", "kourou", *words, "--ready-file", str(ready)]
        for word in settings:
            command += ["--set", word]
        self.started = time.monotonic()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "HOME": str(folder), **self.extra_environment},
            )
        while not ready.exists():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < self.started + PATIENCE, "it did not get ready"
            time.sleep(0.005)  # not by `until`: the time of a start is measured
        told: dict[str, str] = json.loads(ready.read_text())
        self.told = told
        return told

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            raw = RAW.search(self.log)
            assert raw is None, f"the log has {raw[0]!r}, as a peer has sent it"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def rss(self) -> int:
        """Bytes of memory that the server has."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")

    @property
    def cpu(self) -> float:
        """Seconds of CPU time that the server has used, which do not depend on other processes."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def files(self) -> int:
        """File descriptors that the server has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def check(self) -> None:
        """It lives, answers, and has had no accident."""
        assert self.process.poll() is None, self.log[-4000:]
        with Peer(self.port) as peer:
            answer = peer.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 7, ext={"topic": "no such topic"}))
            assert (answer.code, answer.opaque) == (17, 7)
        log = self.log
        for word in ("Traceback", "ERROR", "Exception in callback", "never retrieved", "Fatal error"):
            assert word not in log, log[-4000:]


class Ordinary(ABC):
    """An ordinary client that asks all the time, from a thread, and notes how long each round takes."""

    def __init__(self, target: Target) -> None:
        self._peer = Peer(target.port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.seconds: list[float] = []

    @abstractmethod
    def round(self) -> None:
        """Ask, and look at the answer."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.perf_counter()
                self.round()
                self.seconds.append(time.perf_counter() - began)
                self._stop.wait(0.005)
        except BaseException as error:
            self._failure = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        enough = time.monotonic() + PATIENCE
        while len(self.seconds) < 20 and self._failure is None and time.monotonic() < enough:
            time.sleep(0.01)
        self._stop.set()
        self._thread.join(PATIENCE)
        self._peer.sock.close()
        if self._failure is not None:
            raise AssertionError("the ordinary client was not served") from self._failure

    def usual(self) -> float:
        """What half of its rounds took at most."""
        return sorted(self.seconds)[len(self.seconds) // 2]

    @property
    def longest(self) -> float:
        return max(self.seconds)


class Probe(Ordinary):
    """Asks for the route of a topic that there is not."""

    def __init__(self, target: Target, topic: str = "probed") -> None:
        super().__init__(target)
        self._topic = topic
        self._opaque = 0

    def round(self) -> None:
        self._opaque += 1
        answer = self._peer.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._opaque, ext={"topic": self._topic}))
        assert (answer.code, answer.opaque) == (17, self._opaque)


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until it is true; `what` is the text of the failure otherwise."""
    wait_for(what, condition, PATIENCE)


def flood(crowd: list[Peer], request: bytes) -> None:
    """Peers that send requests for as long as these are taken, and never look at an answer."""
    taken = dict.fromkeys(crowd, 0)
    for peer in crowd:
        peer.sock.setblocking(False)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 0.5:
        _, ready, _ = select.select([], [peer.sock for peer in crowd], [], 0.05)
        for peer in crowd:
            if peer.sock in ready:
                taken[peer] += peer.sock.send(request[taken[peer] % len(request) :])
                quiet_since = time.monotonic()
                assert taken[peer] < FLOOD_MAX, "requests are taken without end from a peer that does not read"
