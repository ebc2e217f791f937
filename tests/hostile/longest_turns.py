"""How long each request holds the event loop at most: every request code with its worst bodies, against large tables.

    python -m tests.hostile.longest_turns                 prints the table of docs/limits.md
    python -m tests.hostile.longest_turns CODE …          only these, by name

A turn is one step of the machine and whatever its driver does in the event loop with the effects: encoding answers and
putting them together. Turns are measured in CPU time of the thread, so other processes do not count.
"""

import itertools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from kourou.broker.events import (
    Announce,
    Announced,
    Answered,
    Ask,
    AskNameServer,
    Done,
    Effect,
    Event,
    Gone,
    Peer,
    Reply,
    ReplyParts,
    Requests,
    Run,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.broker.machine import Broker
from kourou.broker.properties import Configuration, ProcessSettings
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, frame, headers
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, encode_head
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.headers import REQUESTS
from kourou.protocol.headers.table import Direction
from kourou.protocol.hosts import encode_host
from kourou.protocol.message import MessageQueue
from kourou.protocol.route_limits import ROUTE_QUEUES_MAX
from kourou.server.clock import SteadyClock, file_time
from kourou.server.process import calm_collector
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

LONG_ROUTE = bodies.TopicRouteData(
    queue_datas=[
        bodies.QueueData(broker_name=f"broker-{n}", read_queue_nums=4, write_queue_nums=4, perm=6)
        for n in range(ROUTE_QUEUES_MAX // 4)
    ]
).encode()
"""What a name server answers."""

LIMIT_MS = 20.0
VERBOSE = "KOUROU_VERBOSE" in os.environ
"""Also print each request whose turns are too long."""

CLOCK = SteadyClock()
HOST = encode_host("127.0.0.1:10911")
WIDE = 65_536
FULL = 16 * 1024 * 1024 - 4096


class Sizes(msgspec.Struct):
    """How large the tables are."""

    topics: int = 95_000
    groups: int = 99_000
    wide: int = 8  # topics with the most queues
    clones: int = 4  # groups with an offset in each queue of the first wide one
    peers: int = 190  # connections that speak for 1,000 groups each
    messages: int = 30_000
    locks: int = 190_000


class Walked:
    """A broker, its driver, and a watch."""

    def __init__(self, folder: Path, sizes: Sizes, settings: BrokerSettings | None = None) -> None:
        settings = settings or BrokerSettings()
        store_settings = StoreSettings()
        store = Store.open(folder, store_settings, store_host=HOST, now_ms=CLOCK.now_ms(), file_time=file_time)
        self.machine = Broker(
            Configuration(settings, store_settings, ProcessSettings(), {}),
            store,
            HOST,
            now_ms=CLOCK.now_ms(),
            memory_bytes=1024**3,
            unique_id=lambda _: "0" * 32,
            chance=Random(1),
            clock_ns=time.thread_time_ns,
        )
        self.machine.registration.is_on = True
        self.sizes = sizes
        self.longest_ns = 0
        self.answers: list[Command] = []
        self._opaques = itertools.count(1)
        self._later: list[Event] = []
        self._now_ms = CLOCK.now_ms()
        self.peers: list[Peer] = []
        self.client = self.connect()
        self._fill()

    def connect(self) -> Peer:
        return Peer(f"127.0.0.1:{20_000 + next(self._ports)}", HOST, None)

    _ports = itertools.count()

    # ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self) -> None:
        machine, sizes, now = self.machine, self.sizes, CLOCK.now_ms()
        machine.topics.put_all(
            [
                TopicConfig(topic_name=f"topic-{n:06d}-{'x' * 20}", read_queue_nums=8, write_queue_nums=8)
                for n in range(sizes.topics)
            ],
            now,
        )
        machine.topics.put_all([TopicConfig(topic_name=name) for name in ("orders", "popular")], now)
        machine.topics.put_all(
            [
                TopicConfig(topic_name=f"wide-{n}", read_queue_nums=WIDE, write_queue_nums=WIDE)
                for n in range(sizes.wide)
            ],
            now,
        )
        machine.groups.put_all([SubscriptionGroupConfig(group_name=f"group-{n:06d}") for n in range(sizes.groups)], now)
        offsets = machine.offsets
        for n in range(sizes.clones):
            offsets.reset(f"group-{n:06d}", "wide-0", dict.fromkeys(range(WIDE), n))
        for n in range(1, sizes.wide):
            offsets.reset("group-000000", f"wide-{n}", dict.fromkeys(range(WIDE), 0))
        for n in range(sizes.groups):
            offsets.commit(f"group-{n:06d}", "popular", 0, 1)
        for n in range(sizes.topics):
            offsets.commit("busy", f"topic-{n:06d}-{'x' * 20}", 0, 1)
        for n in range(sizes.locks):
            queue = MessageQueue("wide-0", "broker-a", n % WIDE)
            machine.locks.lock(f"group-{n // WIDE}", [queue], "client", now)
        for _ in range(sizes.peers):
            peer = self.connect()
            self.peers.append(peer)
            consumers = [bodies.ConsumerData(group_name=f"group-{n:06d}") for n in range(500)]
            producers = [bodies.ProducerData(group_name=f"producers-{n}") for n in range(500)]
            beat = bodies.HeartbeatData(client_id="c", consumer_data_set=consumers, producer_data_set=producers)
            self._expect_success(Command(RequestCode.HEART_BEAT, body=beat.encode()), peer)
        for n in range(sizes.messages // 100):
            command = send("orders", "KEYS\x01key\x02UNIQ_KEY\x01key\x02", queue_id=n % 4)
            self.do(Requests(self.client, [command] * 100))
        self.settle()
        self._expect_success(send("orders"))

    def _expect_success(self, command: Command, peer: Peer | None = None) -> None:
        (answer,) = self.ask(command, peer=peer, rounds=1)
        assert answer.code == 0, answer

    # ── Driving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, command: Command, peer: Peer | None = None, rounds: int = 3) -> list[Command]:
        """Ask, and let everything come to rest. The answers."""
        self.answers = []
        self.do(Requests(peer or self.client, [msgspec.structs.replace(command, opaque=next(self._opaques))]))
        self.settle(rounds)
        return self.answers

    def settle(self, rounds: int = 3) -> None:
        """Tables that wait for their time are written as well."""
        for _ in range(rounds):
            while self.machine.is_busy or self._later:
                later, self._later = self._later, []
                self.do(*later, *([Turn()] if self.machine.is_busy else []))
            if not self.machine.persistence.is_settled:
                self._now_ms += 6_000
                self.do(Tick())
            elif rounds == 3:
                self.do(Tick())

    def measure(self, *events: Event, pass_ms: int = 0) -> float:
        """The longest turn until all that follows from the events is done."""
        self.longest_ns = 0
        self._now_ms += pass_ms
        self.do(*events)
        self.settle()
        return self.longest_ns / 1e6

    def do(self, *events: Event) -> None:
        began = time.thread_time_ns()
        effects = self.machine.step(list(events), self._now_ms)
        for effect in effects:
            self._encode(effect)
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began)
        for effect in effects:
            self._perform(effect)

    def _encode(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self.answers.append(effect.command)
            assert len(effect.command.remark or "") <= 2_000
            with suppress(LocalProtocolError):
                frame.encode(effect.command)
        elif isinstance(effect, ReplyParts):
            self.answers.append(effect.command)
            b"".join((encode_head(effect.command, effect.size), *effect.parts))
        elif isinstance(effect, Tell | Announce):
            frame.encode(effect.command)

    def _perform(self, effect: Effect) -> None:
        """What other threads and peers do."""
        match effect:
            case Run(job):
                job.run()
                self._later.append(Done(job))
            case Save(name, version, file, content):
                file.write(content)
                self._later.append(Saved(name, version))
            case Ask(_, _, _, token):
                self._later.append(Answered(token, None))
            case AskNameServer(command, _, token):
                self._later.append(Answered(token, command.answer(body=LONG_ROUTE)))
            case Announce(command):
                self._later.append(Announced("name-server:9876", command.answer(), None, command.code))
            case _:
                pass


# ── The worst requests ──────────────────────────────────────────────────────────────────────────────────────────────

NAMES: dict[str, list[str]] = {
    "topic": ["wide-0", "popular", "orders", "nowhere"],
    "topic_list": [";".join(f"wide-{n}" for n in range(8)), ";".join(f"topic-{n:06d}-{'x' * 20}" for n in range(2000))],
    "group": ["group-000000", "busy", "new-group"],
    "filter_groups": [",".join(f"group-{n:06d}" for n in range(2000))],
    "subscription": ["||".join(f"tag{n}" for n in range(6000))],
    "key": ["key"],
}
LONG = (
    "9" * 900_000,
    "a;" * 450_000,
    "a||" * 300_000,
    "||".join(f"tag{n}" for n in range(90_000)),
    "".join(f"k{n}\x01v\x02" for n in range(70_000)),
    "REPLY_TO_CLIENT\x01" + "\x1b" * 90_000 + "\x02",
)
"""Values that nearly fill a header."""

GROUP_FIELDS = ("consumer_group", "group_name", "src_group", "dest_group", "compare_group", "producer_group")


def send(topic: str, properties: str = "", body: bytes = b"x", queue_id: int = 0) -> Command:
    header = headers.SendMessageV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
    )
    return Command(RequestCode.SEND_MESSAGE_V2, ext=header.encode(), body=body)


def headers_of(code: int) -> Iterable[dict[str, str]]:
    """Header fields that name the largest things, in turn; also none."""
    header = REQUESTS[code].header
    yield {}
    if header is None:
        return
    fields = msgspec.structs.fields(header)
    for n in range(4):
        ext: dict[str, str] = {}
        for field in fields:
            values = NAMES.get(field.name) or (NAMES["group"] if field.name in GROUP_FIELDS else None)
            kind = str(field.type)
            if values is not None:
                ext[field.encode_name] = values[n % len(values)]
            elif "bool" in kind:
                ext[field.encode_name] = ("true", "false")[n % 2]
            elif "int" in kind:
                ext[field.encode_name] = ("0", "-1", "100000", "1")[n]
            elif field.required:
                ext[field.encode_name] = "x"
        yield ext
        for left_out in ("topic", "topicList", "dataVersion", "clientId"):
            if left_out in ext and left_out not in {field.encode_name for field in fields if field.required}:
                yield {key: value for key, value in ext.items() if key != left_out}
        if n == 0:
            for field in fields:
                for text in LONG if "str" in str(field.type) else LONG[:1]:
                    yield {**ext, field.encode_name: text}


def bodies_of(code: int) -> Iterable[bytes]:
    """Bodies that take as long as a body can: of the size that a frame may have, and of those that are still read."""
    info = REQUESTS[code]
    yield b""
    if info.body is None:
        return
    yield bytes(FULL)
    if not (isinstance(info.body, type) and issubclass(info.body, msgspec.Struct)):
        yield b"key=value\n" * (1024 * 1024 // 10)
        yield b"".join(b"key%d=value\n" % n for n in range(1_000_000))
        return
    lists = [field.encode_name for field in msgspec.structs.fields(info.body) if "list" in str(field.type)]
    tables = [field.encode_name for field in msgspec.structs.fields(info.body) if "dict" in str(field.type)]
    for size in (16 * 1024, 64 * 1024, 1024 * 1024, FULL):
        for name in (*lists, *tables, "x"):
            key = name.encode()
            yield _filled(b'{"%b":[' % key, b"{},", b"{}]}", min(size, 3 * 16_000))
            yield _filled(b'{"%b":[' % key, b"{},", b"{}]}", size)
            yield _filled(b'{"%b":[' % key, b"null,", b"null]}", size)
            yield _filled(b'{"%b":[' % key, b'"",', b'""]}', size)
            yield _filled(b'{"%b":[' % key, b"[],", b"[]]}", size)
            yield _filled(b'{"%b":{' % key, b"0:0,", b"0:0}}", size)
            yield _filled(b'{"%b":{' % key, b"{}:0,", b"{}:0}}", size)
            yield _filled(b'{"%b":{' % key, b'{"a":1}:{"$ref":"$"},', b"0:0}}", size)
            yield _filled(b'{"%b":' % key, b"[", b"", size)
    yield from _real_bodies(code)


def _filled(before: bytes, again: bytes, after: bytes, size: int) -> bytes:
    return before + again * ((size - len(before) - len(after)) // len(again)) + after


def _real_bodies(code: int) -> Iterable[bytes]:
    """As many entries as one request may have."""
    if code == RequestCode.UPDATE_AND_CREATE_TOPIC_LIST:
        topics = [TopicConfig(topic_name=f"more-{n}", attributes={"+message.type": "FIFO"}) for n in range(990)]
        yield bodies.CreateTopicListRequestBody(topic_config_list=topics).encode()
        topics = [TopicConfig(topic_name=f"topic-{n:06d}-{'x' * 20}") for n in range(5_000)]
        yield bodies.CreateTopicListRequestBody(topic_config_list=topics).encode()
    if code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
        groups = [SubscriptionGroupConfig(group_name=f"group-{n:06d}") for n in range(3_000)]
        yield bodies.SubscriptionGroupList(group_config_list=groups).encode()
    queues = [MessageQueue("wide-0", "broker-a", n) for n in range(9_000)]
    if code == RequestCode.LOCK_BATCH_MQ:
        yield bodies.LockBatchRequestBody(consumer_group="group-1", client_id="other", mq_set=queues).encode()
    if code == RequestCode.QUERY_ASSIGNMENT:
        for model in ("BROADCASTING", "CLUSTERING", "CLUSTERING"):
            yield bodies.QueryAssignmentRequestBody(
                topic="wide-0", consumer_group="busy", client_id="c", strategy_name="AVG", message_model=model
            ).encode()
    if code == RequestCode.UNLOCK_BATCH_MQ:
        yield bodies.UnlockBatchRequestBody(consumer_group="group-1", client_id="client", mq_set=queues).encode()
    if code == RequestCode.HEART_BEAT:
        subscriptions = [bodies.SubscriptionData(topic=f"t{n}") for n in range(5_000)]
        one = bodies.ConsumerData(group_name="group-000000", subscription_data_set=subscriptions)
        yield bodies.HeartbeatData(client_id="h", consumer_data_set=[one]).encode()
        many = [bodies.ConsumerData(group_name=f"group-{n:06d}") for n in range(900)]
        yield bodies.HeartbeatData(client_id="h", consumer_data_set=many).encode()
        new = [bodies.ConsumerData(group_name=f"newcomer-{n}") for n in range(90)]
        yield bodies.HeartbeatData(client_id="h", consumer_data_set=new).encode()


def _sends(code: int) -> Iterable[Command]:
    """Messages as large as they may be, and batches of the smallest."""
    entry = (20 + 4 + 1 + 2 - 4).to_bytes(4) + bytes(12) + (1).to_bytes(4) + b"x" + (0).to_bytes(2)
    for body in (bytes(4 * 1024 * 1024), entry * (4 * 1024 * 1024 // len(entry)), entry * 5000):
        for properties in ("", "k\x01v\x02" * 5000, "KEYS\x01" + " ".join(f"k{n}" for n in range(5000)) + "\x02"):
            command = send("orders", properties, body)
            yield msgspec.structs.replace(command, code=code)


def worst_of(code: int) -> Iterable[Command]:
    if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        yield from _sends(code)
    all_headers = list(headers_of(code))
    for body in bodies_of(code):
        for ext in all_headers if not body else all_headers[:2]:
            yield Command(code, version=513, ext=ext, body=body)


def served_by_brokers() -> list[int]:
    ours = (
        Direction.CLIENT_TO_BROKER,
        Direction.ADMIN_TO_BROKER,
        Direction.ADMIN_TO_CLIENT,
        Direction.BROKER_TO_BROKER,
        Direction.NAMESERVER_TO_BROKER,
        Direction.CONTROLLER_TO_BROKER,
    )
    return [code for code, info in REQUESTS.items() if info.direction in ours]


YARDSTICK_MS = 9.0
"""What `_yardstick` takes on the machine of docs/limits.md when nothing else runs there, and nothing on its host."""


def slowness() -> float:
    """How many times slower this machine is at the moment; at least 1.

    A virtual machine counts what its host takes away as time of the thread, and gets twice as slow for minutes.
    """
    return max(1.0, sorted(_yardstick() for _ in range(9))[4] / YARDSTICK_MS)


def _yardstick() -> float:
    began = time.thread_time_ns()
    table: dict[str, int] = {}
    for number in range(20_000):
        table[f"name-{number % 977}"] = table.get(f"name-{number % 331}", 0) + number
    return (time.thread_time_ns() - began) / 1e6


LAST = (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.CLEAN_UNUSED_TOPIC)
"""These make the tables smaller."""


def walk(
    walked: Walked, codes: Iterable[int], tell: Callable[[int, float], None] = lambda *_: None
) -> dict[int, float]:
    """The longest turn of each code, in milliseconds."""
    found: dict[int, float] = {}
    for code in sorted(codes, key=lambda code: (code in LAST, code)):
        worst = 0.0
        for command in worst_of(code):
            walked.longest_ns = 0
            walked.ask(command, peer=walked.client)
            if walked.longest_ns / 1e6 > LIMIT_MS and VERBOSE:
                answer = walked.answers[0] if walked.answers else None
                shown = None if answer is None else (answer.code, (answer.remark or "")[:100])
                ext = {key: value[:20] for key, value in (command.ext or {}).items()}
                print(f"{walked.longest_ns / 1e6:.1f} ms {ext} {len(command.body)} {command.body[:60]!r} -> {shown}")
            worst = max(worst, walked.longest_ns / 1e6)
        found[code] = worst
        tell(code, worst)
    found[0] = walked.measure(Gone(walked.peers[0]))
    tell(0, found[0])
    found[-1] = max(walked.measure(Tick(), pass_ms=31_000) for _ in range(5))
    tell(-1, found[-1])
    return found


def main() -> None:
    logging.disable(logging.CRITICAL)
    wanted: list[int] = [RequestCode[name] for name in sys.argv[1:]] or served_by_brokers()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        walked = Walked(Path(folder), Sizes())
        calm_collector()
        print(f"tables made in {time.monotonic() - began:.0f} s", file=sys.stderr)

        def tell(code: int, worst: float) -> None:
            name = RequestCode(code).name if code > 0 else ("a connection ends", "time passes")[code]
            mark = "  <--" if worst > LIMIT_MS else ""
            print(f"| {code} | {name} | {worst:.1f} |{mark}", flush=True)

        walk(walked, wanted, tell)


if __name__ == "__main__":
    main()
