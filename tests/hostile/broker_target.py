"""A broker under attack, and requests that hurt none."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

from .target import PATIENCE, Peer, Target

_opaques = itertools.count(1)


def send_command(topic: str, body: bytes = b"x", **fields: Any) -> Command:
    """A send, with whatever fields are given instead of sensible ones."""
    header: dict[str, Any] = {
        "producer_group": "hostile",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
        "properties": "",
    }
    ext = headers.SendMessageV2(**{**header, **fields}).encode()
    return Command(RequestCode.SEND_MESSAGE_V2, next(_opaques), ext=ext, body=body)


def pull_command(
    topic: str, offset: int = 0, *, suspend_ms: int = 0, group: str = "hostile", queue_id: int = 0
) -> Command:
    """A pull that brings its subscription along; with a time, it waits for messages."""
    header = headers.PullMessage(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=6 if suspend_ms else 4,
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0,
        subscription="*",
    )
    return Command(RequestCode.PULL_MESSAGE, next(_opaques), ext=header.encode())


class BrokerTarget(Target):
    """A running `kourou run`; `port` is its broker's."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.log_path = folder / "log.txt"
        ready = folder / "ready.json"
        where = ["--namesrv-port", "0", "--port", "0", "--store", str(folder / "store"), "--ready-file", str(ready)]
        command = [sys.executable, "-m", "kourou", "run", *where]
        for word in settings:
            command += ["--set", word]
        self.started = time.monotonic()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=folder, env={**os.environ, "HOME": str(folder)}
            )
        deadline = self.started + PATIENCE
        while not ready.exists():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, "the broker did not get ready"
            time.sleep(0.005)
        told = json.loads(ready.read_text())
        self.port = int(told["broker"].rpartition(":")[2])
        self.name_server_port = int(told["namesrv"].rpartition(":")[2])

    def ask(self, command: Command) -> Command:
        with Peer(self.port) as peer:
            return peer.ask(command)

    def check(self) -> None:
        """It lives, takes messages and hands them out, and has had no accident."""
        assert self.process.poll() is None, self.log[-4000:]
        with Peer(self.port) as peer:
            sent = peer.ask(send_command("checked", b"check"))
            assert sent.code == ResponseCode.SUCCESS, sent
            assert sent.ext is not None
            found = peer.ask(pull_command("checked", int(sent.ext["queueOffset"])))
            assert found.code == ResponseCode.SUCCESS, found
            assert b"check" in found.body
        log = self.log
        for word in ("Traceback", "ERROR", "Exception in callback", "never retrieved", "Fatal error"):
            assert word not in log, log[log.index(word) - 500 :][:4000]


class Customer:
    """An ordinary client that sends and reads what it sent all the time, from a thread."""

    def __init__(self, target: BrokerTarget) -> None:
        self._peer = Peer(target.port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.seconds: list[float] = []

    def __enter__(self) -> "Customer":
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.perf_counter()
                sent = self._peer.ask(send_command("ordinary", b"ordinary"))
                assert sent.code == ResponseCode.SUCCESS, sent
                assert sent.ext is not None
                found = self._peer.ask(pull_command("ordinary", int(sent.ext["queueOffset"]), group="customers"))
                assert found.code == ResponseCode.SUCCESS, found
                self.seconds.append(time.perf_counter() - began)
                self._stop.wait(0.01)
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


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
