"""A broker under attack, and requests that hurt none."""

import itertools
from pathlib import Path
from typing import Any

from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

from .target import Ordinary, Peer, Target

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
        where = ["--namesrv-port", "0", "--port", "0", "--store", str(folder / "store")]
        told = self._start(folder, ["run", "--no-console", *where], settings)
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


class Customer(Ordinary):
    """Sends messages, and reads them."""

    def round(self) -> None:
        sent = self._peer.ask(send_command("ordinary", b"ordinary"))
        assert sent.code == ResponseCode.SUCCESS, sent
        assert sent.ext is not None
        found = self._peer.ask(pull_command("ordinary", int(sent.ext["queueOffset"]), group="customers"))
        assert found.code == ResponseCode.SUCCESS, found
