"""Real clients in scenarios against a real broker, ours or Apache's: a driver per client, and the scene of a test.

A driver is one process that plays any number of producers and consumers, against any broker, as it is told; so a whole
run needs one JVM for each version of the Java client. What a driver answers are things found, each a table of words:
the results of sends, the messages that a consumer got.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

from tests.waiting import wait_equal, wait_for

from kourou.protocol.codes import RequestCode

from . import toolchain
from .clients import JAVA_OPTIONS, Kind
from .processes import Talker
from .servers import ApacheStage, KourouRun, java_command
from .wire import Connection

Found = Mapping[str, str]

PATIENCE_S = 60

DELAYS = "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"
"""Delay levels for tests: short, and those that retries use (3 and up) the shortest that Apache takes."""

_numbers = itertools.count()


class ClientError(AssertionError):
    """A command of a client failed; the text is the client's error."""


class Driver:
    """A process of real clients."""

    def __init__(self, kind: Kind, home: Path) -> None:
        self.kind = kind
        self._talker = Talker(_command(kind, home), home)
        try:
            assert self._talker.line() == "ready"
        except AssertionError:
            self.kill()
            raise

    def ask(self, verb: str, **words: Any) -> list[Found]:
        """The messages found. Raises ClientError with the client's own text."""
        self._talker.tell(f"{verb} {urlencode({name: str(word) for name, word in words.items()})}")
        how, *found = self._talker.line().split(" ")
        if how != "ok":
            raise ClientError(unquote_plus(" ".join(found)))
        return [dict(parse_qsl(one, keep_blank_values=True)) for one in found if one]

    def kill(self) -> None:
        self._talker.stop()


@dataclass
class Scene:
    """A broker, the clients that a test plays with, and names that no other test uses."""

    broker: KourouRun | ApacheStage
    driver: Driver
    start_driver: Callable[[], Driver]
    """Starts a further process of the same client, which ends with the test."""
    start_go: Callable[[], Driver]
    """The same with the Go client, whichever this one is."""

    @property
    def kind(self) -> Kind:
        return self.driver.kind

    def name(self, word: str) -> str:
        """A name that was not used before."""
        return f"{word}-{next(_numbers)}"

    def ask(self, verb: str, *, by: Driver | None = None, **words: Any) -> list[Found]:
        return (by or self.driver).ask(verb, ns=self.broker.name_server_address, **words)

    # What most tests do.

    def send(self, topic: str, prefix: str = "m", count: int = 1, **words: Any) -> list[Found]:
        """Messages with the bodies `prefix-0`, `prefix-1` …, and what became of them."""
        sent = self.ask("send", topic=topic, prefix=prefix, count=count, **words)
        assert {one["status"] for one in sent} <= {"SEND_OK", "SENT"}, sent
        return sent

    def new_topic(self, word: str = "topic", queues: Iterable[int] = range(4)) -> str:
        """A topic of four queues, with a message `first-0` in those that are named."""
        topic = self.name(word)
        self.send(topic, "made")  # which queue it goes to is the client's choice
        self.wait_for_route(topic)
        for queue in queues:
            self.send(topic, "first", how="queue", queue=queue)
        return topic

    def new_group(self) -> str:
        """A group that the broker knows: its retry topic is there before its clients look for it, which they do twice a
        minute only."""
        group = self.name("group")
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [],
        }
        beat = {"clientID": "first", "consumerDataSet": [consumer], "producerDataSet": []}
        with Connection(self.broker.address) as connection:
            connection.send(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
            self.wait_for_route(f"%RETRY%{group}")
        return group

    def consume(self, topic: str, group: str, *, by: Driver | None = None, **words: Any) -> str:
        """Starts a consumer, from the first message on; its name."""
        self.wait_for_route(topic)  # or a client looks for it again twice a minute only, or not at all
        name = self.name("consumer")
        self.ask("consume", by=by, name=name, topic=topic, group=group, **words)
        return name

    def received(self, name: str, count: int, seconds: int = PATIENCE_S, *, by: Driver | None = None) -> list[Found]:
        """The next messages of a consumer: fewer than `count` only if the time is up."""
        return (by or self.driver).ask("received", name=name, count=count, seconds=seconds)

    def wait_for_route(self, topic: str) -> None:
        """Until the name server knows it: a broker answers the first send to a topic before."""
        wait_for(f"the route of {topic}", lambda: self.has_route(topic), PATIENCE_S)

    def has_route(self, topic: str) -> bool:
        """Does the name server know it?"""
        with Connection(self.broker.name_server_address) as connection:
            return connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0

    def wait_for_end(self, topic: str, queue: int, offset: int) -> None:
        """Waits until consumers can see the messages of a queue up to this offset: Apache's broker answers before."""
        wait_equal(lambda: self.end_of(topic, queue), offset, PATIENCE_S)

    def end_of(self, topic: str, queue: int) -> int:
        with Connection(self.broker.address) as connection:
            ext = {"topic": topic, "queueId": queue, "committed": "true"}
            return int(connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"])

    def close(self, name: str) -> None:
        self.driver.ask("close", name=name)


def properties(**values: str) -> dict[str, Any]:
    """Words for a message's own properties."""
    return {f"property.{name}": value for name, value in values.items()}


def bodies(found: Iterable[Found]) -> list[str]:
    return [one["body"] for one in found]


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{n}" for n in range(count)]


def _command(kind: Kind, home: Path) -> list[str]:
    if kind is Kind.GO:
        return [str(toolchain.go_scenarios())]
    version = "client49" if kind is Kind.JAVA_49 else "server"
    jars = toolchain.jars(version)
    classes = toolchain.classes(f"{version}-scenarios", ["scenarios"], jars)
    start = [*java_command("quiet.xml", home), *JAVA_OPTIONS[kind], "-Xmx512m"]
    start.append(
        "-Drocketmq.client.rebalance.waitInterval=5000"
    )  # instead of 20 s, for queues that are locked at first
    return [*start, f"-Drocketmq.client.localOffsetStoreDir={home}", "-cp", f"{classes}:{jars}/*", "ScenarioDriver"]
