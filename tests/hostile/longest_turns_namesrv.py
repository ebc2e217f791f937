"""The same for a name server: how long each request holds its event loop at most.

python -m tests.hostile.longest_turns_namesrv
"""

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable

import msgspec

from kourou.nameserver import limits
from kourou.nameserver.configuration import KV_SIZE_MAX
from kourou.nameserver.events import Asked, Effect, Event, Gone, Reply, Save, Saved, Tick, Turn
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol import frame
from kourou.protocol.bodies import RegisterBrokerBody
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS
from kourou.protocol.headers.table import Direction
from kourou.server.process import calm_collector

from .longest_turns import FULL, LIMIT_MS, VERBOSE, bodies_of, headers_of

LEAVES, IS_SILENT, ALL_LEAVE = 0, -1, -2
"""In the table of figures, beside the codes of requests."""

OTHER = {
    LEAVES: "a broker's connection ends",
    IS_SILENT: "a broker is silent for too long",
    ALL_LEAVE: "a connection of many brokers ends",
}


class Sizes(msgspec.Struct):
    """How large the tables are."""

    brokers: int = 5  # with many topics each
    topics: int = 50_000  # of each of them
    small_brokers: int = limits.BROKERS_MAX - 20  # each with the topic "common"
    kv_size: int = KV_SIZE_MAX - 64 * 1024
    registration: int = 90_000  # topics of a registration as large as a frame


class Walked:
    """A name server, and a watch."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        value = "x" * 100
        self.kv = {f"key-{number:06d}": value for number in range(sizes.kv_size // (len(value) + 16))}
        self.machine = NameServer(Settings(), {"N": self.kv}, 0, None, time.thread_time_ns)
        self.longest_ns = 0
        self.now_ms = 0
        for number in range(sizes.brokers):
            name = f"broker-{number}"
            self.ask(registration(name, f"10.0.0.{number}:10911", sizes.topics), name)
        for number in range(sizes.small_brokers):
            self.ask(small_registration(number), "many")

    def ask(self, command: Command, connection: str = "client") -> None:
        self.do(Asked(connection, command))
        self.settle()

    def settle(self) -> None:
        while self.machine.is_busy:
            self.do(Turn())

    def do(self, event: Event) -> None:
        began = time.thread_time_ns()
        effects = self.machine.step([event], self.now_ms)
        for effect in effects:
            if isinstance(effect, Reply):
                frame.encode(effect.command)
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began)
        self._perform(effects)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Save):
                self.do(Saved(effect.document, effect.version))

    def measure(self, *events: Event) -> float:
        """The longest turn until all that follows from the events is done, in milliseconds."""
        self.longest_ns = 0
        for event in events:
            self.do(event)
        self.settle()
        return self.longest_ns / 1e6


def registration(
    name: str, address: str, topics: int, counter: int = 1, mappings: int = 0, spaces: str = ""
) -> Command:
    """A registration as a Java broker writes it; with `spaces` one that can't be cut."""
    table = {
        f"{name}-{n:06d}": {"topicName": f"{name}-{n:06d}", "perm": 6, "order": False, "attributes": {}}
        for n in range(topics)
    }
    infos = {f"s{n}": {"topic": f"s{n}", "bname": name, "currIdMap": {"0": 0, "1": 1}} for n in range(mappings)}
    wrapper = {
        "dataVersion": {"counter": counter},
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": infos,
    }
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}, separators=("," + spaces, ":" + spaces))
    body = body.replace('"0":0,"1":1', "0:0,1:1")  # as fastjson writes numbers
    return _register(name, address, body.encode())


def small_registration(number: int) -> Command:
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"common":{"topicName":"common"},"other":{}}}}'
    return _register(f"small-{number}", f"10.1.{number // 250}.{number % 250}:10911", body)


def _register(name: str, address: str, body: bytes, **more: str) -> Command:
    ext = {"clusterName": "C", "brokerName": name, "brokerId": "0", "brokerAddr": address, "haServerAddr": "h:1"}
    ext |= {"bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF), **more}
    return Command(RequestCode.REGISTER_BROKER, version=513, ext=ext, body=body)


def registrations(walked: Walked) -> Iterable[Command]:
    """As large as they come, and as slow."""
    count = walked.sizes.registration
    yield registration("broker-0", "10.0.0.0:10911", walked.sizes.topics, 2)
    yield registration("broker-0", "10.0.0.0:10911", walked.sizes.topics, 2)
    yield registration("another", "10.0.2.0:10911", walked.sizes.topics // 2)
    yield (largest := registration("largest", "10.0.2.1:10911", count))
    yield registration("largest", "10.0.2.1:10911", 10, 2, mappings=10_000)
    yield registration("whole", "10.0.2.2:10911", 3_000, spaces=" ")
    yield registration("whole", "10.0.2.2:10911", 8_000, spaces=" ")
    packed = RegisterBrokerBody.decode(largest.body).compress()
    yield _register("packed", "10.0.2.3:10911", packed, compressed="true")
    for part in (bytes(20 * 1024 * 1024), b"[" * 20 * 1024 * 1024, b'"' + b"\\" * 1024 * 1024):
        yield _register(
            "packed", "10.0.2.4:10911", zlib.compress(len(part).to_bytes(4) + part, 1)[:FULL], compressed="true"
        )
    head = b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{'
    for filling in (b"}", b'"":{},', b'},"', b'"a":{},"a":{{}:0},', b"$", b"$r", b'"a":{"perm":null},', b'"a":{0:0},'):
        for size in (100_000, 500_000, FULL):
            yield _register("odd", "10.0.2.5:10911", head + filling * (size // len(filling)) + b'"z":{}}}}')
    servers = json.dumps({"filterServerList": ["f:1"] * 15_000}).encode()
    yield _register("servers", "10.0.2.6:10911", servers)


NAMES = {"clusterName": "C", "cluster": "C", "brokerName": "broker-0", "namespace": "N"}
TOPICS = ("common", "broker-0-000001")


def worst_of(walked: Walked, code: int) -> Iterable[Command]:
    if code == RequestCode.REGISTER_BROKER:
        yield from registrations(walked)
    all_headers = [{**ext, **{key: value for key, value in NAMES.items() if key in ext}} for ext in headers_of(code)]
    all_headers += [{**ext, "topic": topic} for topic in TOPICS for ext in all_headers if "topic" in ext]
    for body in bodies_of(code):
        for ext in all_headers if not body else all_headers[:2]:
            yield Command(code, version=513, ext=ext, body=body)
            if not body:
                yield Command(code, version=300, ext=ext)


def served() -> list[int]:
    ours = (Direction.CLIENT_TO_NAMESERVER, Direction.BROKER_TO_NAMESERVER)
    return [code for code, info in REQUESTS.items() if info.direction in ours]


def walk(
    walked: Walked, codes: Iterable[int], tell: Callable[[int, float], None] = lambda *_: None
) -> dict[int, float]:
    """The longest turn of each code, in milliseconds."""
    found: dict[int, float] = {}
    for code in sorted(codes, key=lambda code: (code == RequestCode.UNREGISTER_BROKER, code)):
        worst = 0.0
        for command in worst_of(walked, code):
            taken = walked.measure(Asked("client", command))
            if taken > LIMIT_MS and VERBOSE:
                print(f"{taken:.1f} ms {str(command.ext)[:100]} {len(command.body)} {command.body[:80]!r}")
            worst = max(worst, taken)
        found[code] = worst
        tell(code, worst)
    return found


def walk_away(walked: Walked, tell: Callable[[int, float], None] = lambda *_: None) -> dict[int, float]:
    """The same for brokers that leave."""
    found = {LEAVES: walked.measure(Gone("broker-1"))}
    tell(LEAVES, found[LEAVES])
    found[ALL_LEAVE] = walked.measure(Gone("many"))
    tell(ALL_LEAVE, found[ALL_LEAVE])
    walked.now_ms += 120_001
    found[IS_SILENT] = walked.measure(Tick())
    tell(IS_SILENT, found[IS_SILENT])
    assert not walked.machine.tables.topics and not walked.machine.tables.live
    return found


def main() -> None:
    logging.disable(logging.CRITICAL)
    walked = Walked(Sizes())
    calm_collector()

    def tell(code: int, worst: float) -> None:
        name = RequestCode(code).name if code > 0 else OTHER[code]
        print(f"| {name} | {code if code > 0 else ''} | {worst:.1f} |{'  <--' if worst > LIMIT_MS else ''}", flush=True)

    walk(walked, served(), tell)
    walk_away(walked, tell)


if __name__ == "__main__":
    main()
