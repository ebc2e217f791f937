"""The same for a name server: how long each request holds its event loop at most.

python -m tests.hostile.longest_turns_namesrv
"""

import json
import logging
import time
from collections.abc import Callable, Iterable

from kourou.nameserver.events import (
    Asked,
    Effect,
    Event,
    Gone,
    Reply,
    Save,
    Saved,
    Turn,
)
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol import frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS
from kourou.protocol.headers.table import Direction
from kourou.server.process import calm_collector

from .longest_turns import LIMIT_MS, bodies_of, headers_of


class Walked:
    """A name server, and a watch."""

    def __init__(self, brokers: int, topics: int) -> None:
        self.machine = NameServer(Settings(), {}, 0, None, time.thread_time_ns)
        self.longest_ns = 0
        self.topics = topics
        for number in range(brokers):
            self.ask(registration(f"broker-{number}", f"10.0.0.{number}:10911", topics), f"broker-{number}")
        for number in range(2_000):
            ext = {"namespace": "N", "key": f"key-{number}", "value": "x" * 100}
            self.ask(Command(RequestCode.PUT_KV_CONFIG, ext=ext))

    def ask(self, command: Command, connection: str = "client") -> None:
        self.do(Asked(connection, command))
        self.settle()

    def settle(self) -> None:
        while self.machine.is_busy:
            self.do(Turn())

    def do(self, event: Event) -> None:
        began = time.thread_time_ns()
        effects = self.machine.step([event], 0)
        for effect in effects:
            if isinstance(effect, Reply):
                frame.encode(effect.command)
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began)
        self._perform(effects)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Save):
                self.do(Saved(effect.document, effect.version))


def registration(name: str, address: str, topics: int, counter: int = 1) -> Command:
    table = {f"{name}-{n:06d}": {"topicName": f"{name}-{n:06d}", "perm": 6} for n in range(topics)}
    wrapper = {"dataVersion": {"counter": counter}, "topicConfigTable": table}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()
    ext = {"clusterName": "C", "brokerName": name, "brokerId": "0", "brokerAddr": address, "haServerAddr": "h:1"}
    return Command(RequestCode.REGISTER_BROKER, version=513, ext=ext, body=body)


NAMES = {"clusterName": "C", "cluster": "C", "brokerName": "broker-0", "namespace": "N", "topic": "broker-0-000001"}


def worst_of(walked: Walked, code: int) -> Iterable[Command]:
    if code == RequestCode.REGISTER_BROKER:
        yield registration("broker-0", "10.0.0.0:10911", walked.topics, 2)
        yield registration("another", "10.0.1.0:10911", walked.topics)
    all_headers = [{**ext, **{key: value for key, value in NAMES.items() if key in ext}} for ext in headers_of(code)]
    for body in bodies_of(code):
        for ext in all_headers if not body else all_headers[:2]:
            yield Command(code, version=513, ext=ext, body=body)


def served() -> list[int]:
    ours = (Direction.CLIENT_TO_NAMESERVER, Direction.BROKER_TO_NAMESERVER)
    return [code for code, info in REQUESTS.items() if info.direction in ours]


def walk(walked: Walked, tell: Callable[[int, float], None] = lambda *_: None) -> dict[int, float]:
    """The longest turn of each code, in milliseconds."""
    found: dict[int, float] = {}
    for code in sorted(served(), key=lambda code: (code == RequestCode.UNREGISTER_BROKER, code)):
        walked.longest_ns = 0
        for command in worst_of(walked, code):
            walked.ask(command)
        found[code] = walked.longest_ns / 1e6
        tell(code, found[code])
    walked.longest_ns = 0
    walked.do(Gone("broker-1"))
    found[0] = walked.longest_ns / 1e6
    tell(0, found[0])
    return found


def main() -> None:
    logging.disable(logging.CRITICAL)
    walked = Walked(5, 20_000)
    calm_collector()

    def tell(code: int, worst: float) -> None:
        name = RequestCode(code).name if code else "a broker's connection ends"
        print(f"| {code} | {name} | {worst:.1f} |{'  <--' if worst > LIMIT_MS else ''}", flush=True)

    walk(walked, tell)


if __name__ == "__main__":
    main()
