"""One simulated life of the three brokers of a Raft group, and of clients: the whole machines, on simulated disks.

The simulation of `tests/simulation/raft.py` has members and their logs. This one has all that a broker does with them:
roles, waiting senders, consumers, tables in the log, delayed and timed messages, transactions.

Bytes between members come in pieces, late, or not at all; connections are cut; brokers stand still, are killed, or lose
their power, one at a time or all together. In every fourth life the group has ASYNC_FLUSH, and processes are killed
instead: without power, a member would lose what it has acknowledged. All of it follows from the seed. What must be
true:

- an acknowledged message is, at the end, where its answer said, and so is whatever a consumer saw, at any member;
- acknowledged topics are there, delayed, timed and committed messages are delivered, and those rolled back are not;
- at the end, when nothing fails any more, all members have the same log, to the byte, and the same tables.
"""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

from tests.unit.broker.asking import GROUP, pull, request, send
from tests.unit.broker.transacting import COMMIT, ROLLBACK, end, half

from kourou.broker.events import GroupLink, Turn
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_records
from kourou.replication.links import Accepted, Closed, Connected, HangUp, Link, NotConnected, Received, Transfer
from kourou.store.settings import FlushMode
from kourou.testing.broker import BEGIN_MS, SMALL_STORE, SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedDisk

TOPIC: Final = "orders"
QUEUES: Final = 4
SIZE: Final = 3
SETTLED_TURNS: Final = 4_000
PEERS: Final = ";".join(f"n{number}-10.0.0.{number + 1}:40911" for number in range(SIZE))
STORE: Final = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)


def settings_of(number: int) -> BrokerSettings:
    ip = f"10.0.0.{number + 1}"
    return BrokerSettings(
        role=Role.SLAVE,
        broker_id=number + 1,
        ip=ip,
        ha_ip=ip,
        raft=True,
        raft_group="g0",
        raft_peers=PEERS,
        raft_self=f"n{number}",
    )


class Wire:
    """One end of a connection."""

    has_room = True

    def __init__(self, pipe: "Pipe") -> None:
        self.pipe = pipe


class Pipe:
    """A connection: the member that made it sends on it."""

    def __init__(self, sender: int, receiver: int) -> None:
        self.sender, self.receiver = sender, receiver
        self.out = Link(f"10.0.0.{receiver + 1}:40911", Wire(self))
        self.into = Link(f"10.0.0.{sender + 1}:50000", Wire(self))
        self.bytes = bytearray()  # sent, and not delivered


class GroupRun:
    """A life by its seed. `run` raises AssertionError when something is wrong."""

    def __init__(self, seed: int, steps: int = 1_500) -> None:
        self.chance = Random(seed)
        self._steps = steps
        self.trace: list[str] = [f"seed {seed}"]
        self._now_ms = BEGIN_MS
        self._is_sync = seed % 4 != 3
        flush_mode = FlushMode.SYNC if self._is_sync else FlushMode.ASYNC
        self._store = replace(STORE, record_crc=self.chance.random() < 0.3, flush_mode=flush_mode)
        self.members = [self._member(number, self._disk(seed * SIZE + number)) for number in range(SIZE)]
        self._pipes: list[Pipe] = []
        self._down: int | None = None  # a member that is not running
        self._paused: int | None = None  # a member whose process stands still
        self._missed_ms = 0  # for how long
        self._cut_off: int | None = None  # a member that hears nobody, and that nobody hears
        self._lost: list[Link] = []  # connections of the paused member that have ended
        self._clients: dict[int, SimulatedClient] = {}
        self._waiting: dict[tuple[int, int], tuple[str, bytes, Command]] = {}  # by client and number
        self._next = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by queue and offset
        self._halves: list[tuple[bytes, Command]] = []
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        self.later: set[bytes] = set()  # delayed and timed messages that were acknowledged
        self.topics: set[str] = set()
        self.seen: dict[tuple[int, int], bytes] = {}
        self._fails = True
        self.counts: Counter[str] = Counter()

    def _disk(self, seed: int) -> SimulatedDisk:
        disk = SimulatedDisk(Random(seed))
        disk.tears = self._store.record_crc  # without, a disk has to write sectors as a whole
        return disk

    def _member(self, number: int, disk: SimulatedDisk) -> SimulatedBroker:
        return SimulatedBroker(
            disk, settings_of(number), self._store, lazy=True, chance=self.chance, now_ms=self._now_ms
        )

    def run(self) -> None:
        usual = (
            (8, self._send),
            (2, self._send_later),
            (2, self._send_half),
            (2, self._end_half),
            (1, self._make_topic),
            (1, self._send_to_new_topic),
            (4, self._pull),
            (2, self._commit_offset),
            (40, self._deliver),
            (25, self._work),
            (12, self._pass_time),
        )
        failures = (
            (0.4, self._cut),
            (0.3, self._part),
            (0.4, self._end),
            (0.6, self._start),
            (0.1, self._end_all),
            (0.3, self._pause),
            (0.6, self._resume),
            (0.2, self._transfer),
        )
        weights, functions = zip(*usual, *failures, strict=True)
        self.begin()
        for _ in range(self._steps):
            (act,) = self.chance.choices(functions, weights)
            act()
            self._settle()
        self._come_to_rest()
        self._check()

    def begin(self) -> int:
        """Until there is a leader, which takes messages: its number."""
        while (number := self._master()) is None:
            self._go_on(50)
        return number

    # ── Clients ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _running(self) -> list[int]:
        return [number for number in range(SIZE) if number not in (self._down, self._paused)]

    def _master(self) -> int | None:
        """A member that takes messages; of two, any."""
        found = [number for number in self._running if self.members[number].settings.role is not Role.SLAVE]
        return self.chance.choice(found) if found else None

    def _ask(self, number: int, kind: str, text: bytes, command: Command) -> None:
        if number not in self._clients:
            self._clients[number] = self.members[number].connect()
        (opaque,) = self._clients[number].send(command)
        self._waiting[number, opaque] = kind, text, command

    def _text(self) -> bytes:
        self._next += 1
        return b"%d." % self._next + b"x" * self.chance.choice((0, 10, 700, 5_000))

    def _send(self) -> None:
        number = self._master()
        if number is None:
            number = self.chance.choice(self._running)
        self._send_to(number)

    def _send_to(self, number: int) -> None:
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            text = self._text()
            unique = {"UNIQ_KEY": f"{self._next:032X}"} if self.chance.random() < 0.7 else {}  # then the lane takes it
            self._ask(number, "send", text, send(text, TOPIC, self.chance.randrange(QUEUES), unique))

    def _send_later(self) -> None:
        number = self._master()
        if number is not None:
            text = self._text()
            how = self.chance.choice(({"DELAY": "1"}, {"TIMER_DELAY_MS": str(self.chance.randrange(1_000, 5_000))}))
            self._ask(number, "later", text, send(text, TOPIC, 0, how))

    def _send_half(self) -> None:
        number = self._master()
        if number is not None:
            text = self._text()
            self._ask(number, "half", text, half(text, self._now_ms))

    def _end_half(self) -> None:
        number = self._master()
        if number is not None and self._halves:
            text, sent = self._halves.pop(self.chance.randrange(len(self._halves)))
            kind, outcome = self.chance.choice((("commit", COMMIT), ("rollback", ROLLBACK)))
            self._ask(number, kind, text, end(sent, outcome))

    def _make_topic(self) -> None:
        number = self._master()
        if number is not None:
            self._next += 1
            name = f"topic-{self._next}"
            header = headers.CreateTopic(
                topic=name,
                default_topic="TBW102",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=6,
                topic_filter_type="SINGLE_TAG",
            )
            self._ask(number, "topic", name.encode(), request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))

    def _send_to_new_topic(self) -> None:
        """If its topic is gone, consumers can't read an acknowledged message."""
        number = self._master()
        if number is not None:
            self._next += 1
            name = f"new-{self._next}"
            self._ask(number, "topic", name.encode(), send(b"first", name))

    def _commit_offset(self) -> None:
        number = self._master()
        if number is not None and self.seen:
            queue_id, offset = self.chance.choice([*self.seen])
            header = headers.UpdateConsumerOffset(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
            )
            self._ask(number, "offset", b"", request(RequestCode.UPDATE_CONSUMER_OFFSET, header))

    def _pull(self) -> None:
        self._pull_from(self.chance.choice(self._running))

    def _pull_from(self, number: int) -> None:
        queue_id = self.chance.randrange(QUEUES)
        offset = self.chance.randrange(1 + max((at + 1 for q, at in self.seen if q == queue_id), default=0))
        self._ask(number, "pull", b"%d" % queue_id, pull(TOPIC, queue_id, offset))

    def _take_answers(self) -> None:
        for number, opaque in [*self._waiting]:
            client = self._clients.get(number)
            if client is None:
                del self._waiting[number, opaque]
            elif opaque in client.answers:
                answer = client.answers.pop(opaque)
                self._answered(*self._waiting.pop((number, opaque)), answer)

    def _answered(self, kind: str, text: bytes, _command: Command, answer: Command) -> None:
        self.counts[f"{kind} {answer.code}"] += 1
        if answer.code != ResponseCode.SUCCESS:
            return
        if kind == "send":
            assert answer.ext is not None
            place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
            assert place not in self.acknowledged, f"two messages at {place}"
            self.acknowledged[place] = text
        elif kind == "later":
            self.later.add(text)
        elif kind == "half":
            self._halves.append((text, answer))
        elif kind == "commit":
            self.committed.add(text)
        elif kind == "rollback":
            self.rolled_back.add(text)
        elif kind == "topic":
            self.topics.add(text.decode())
        elif kind == "pull":
            self._saw(int(text), answer.body)

    def _saw(self, queue_id: int, body: bytes) -> None:
        for message in decode_records(body):
            place, text = (queue_id, message.queue_offset), bytes(message.body)
            assert self.seen.setdefault(place, text) == text, f"another message is at {place} now"
            assert self.acknowledged.get(place, text) == text, f"another message was acknowledged at {place}"

    # ── Members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_blocked(self, one: int, other: int) -> bool:
        return not {self._down, self._cut_off}.isdisjoint((one, other))

    def _deliver(self) -> None:
        pipes = [
            pipe
            for pipe in self._pipes
            if pipe.bytes and not self._is_blocked(pipe.sender, pipe.receiver) and pipe.receiver != self._paused
        ]
        if pipes:
            pipe = self.chance.choice(pipes)
            size = self.chance.choices((1, 30, 500, 10**6), (1, 2, 3, 20))[0]
            self._deliver_on(pipe, size)

    def _deliver_on(self, pipe: Pipe, size: int) -> None:
        data = bytes(pipe.bytes[:size])
        del pipe.bytes[:size]
        self.members[pipe.receiver].step(GroupLink(Received(pipe.into, data)))

    def _work(self) -> None:
        world = self.members[self.chance.choice(self._running)]
        world.work(choose=self.chance.randrange, limit=self.chance.randrange(5))
        for _ in range(self.chance.randrange(4)):
            if world.machine.is_busy:
                world.step(Turn())

    def _pass_time(self) -> None:
        ms = self.chance.choices((1, 10, 50, 200, 1_500), (8, 8, 6, 3, 0.3))[0]
        self._tick(ms)

    def _tick(self, ms: int) -> None:
        self._now_ms += ms
        self._missed_ms += ms
        for number in self._running:
            self.members[number].tick(ms)

    def _cut(self) -> None:
        if self._pipes:
            self._lose(self.chance.choice(self._pipes))

    def _lose(self, pipe: Pipe) -> None:
        self._pipes.remove(pipe)
        for number, link in ((pipe.sender, pipe.out), (pipe.receiver, pipe.into)):
            if number == self._paused:
                self._lost.append(link)
            elif number != self._down:
                self.members[number].step(GroupLink(Closed(link)))

    def _part(self) -> None:
        if self._cut_off is not None or self._is_whole:
            self._cut_off = self.chance.randrange(SIZE) if self._cut_off is None else None
            self.trace.append(f"{self._now_ms - BEGIN_MS}: cut off {self._cut_off}")

    def _end(self) -> None:
        if not self._is_whole:
            return
        number = self._master() if self.chance.random() < 0.5 else self.chance.randrange(SIZE)
        if number is not None:
            self._down = number
            for pipe in [pipe for pipe in self._pipes if number in (pipe.sender, pipe.receiver)]:
                self._lose(pipe)
            self._clients.pop(number, None)
            self.counts["ends"] += 1

    @property
    def _is_whole(self) -> bool:
        return self._down is self._cut_off is self._paused is None

    def _pause(self) -> None:
        if self._is_whole:
            number = self._master() if self.chance.random() < 0.7 else self.chance.randrange(SIZE)
            self._paused, self._missed_ms = number, 0
            self.counts["pauses"] += 1

    def _resume(self) -> None:
        """It reads what clients have said before it knows what time it is, or what others have said."""
        number, self._paused = self._paused, None
        if number is None:
            return
        self.trace.append(f"{self._now_ms - BEGIN_MS}: {number} stood still for {self._missed_ms} ms")
        world = self.members[number]
        world.now_ms += self._missed_ms
        for _ in range(3):
            self._send_to(number)
            self._pull_from(number)
        lost, self._lost = self._lost, []
        for link in lost:
            world.step(GroupLink(Closed(link)))
        world.tick()

    def _end_all(self) -> None:
        """All lose their power at the same time."""
        if self._is_whole:
            for number in range(SIZE):
                self._down = number
                for pipe in [pipe for pipe in self._pipes if number in (pipe.sender, pipe.receiver)]:
                    self._lose(pipe)
                self._clients.pop(number, None)
                self._start()
            self.counts["ends of all"] += 1

    def _transfer(self) -> None:
        number = self._master()
        if number is not None:
            header = headers.TransferRaftLeadership(member=f"n{self.chance.randrange(SIZE)}")
            self._ask(number, "transfer", b"", request(RequestCode.TRANSFER_RAFT_LEADERSHIP, header))

    def _start(self) -> None:
        if self._down is None:
            return
        number, self._down = self._down, None
        ways = ("kill", "crash", "crash") if self._is_sync else ("kill",)
        world, how = self.members[number], self.chance.choice(ways)
        self.trace.append(f"{self._now_ms - BEGIN_MS}: {how} of {number}, {world.settings.role.value}")
        disk = world.disk.kill() if how == "kill" else world.disk.crash()
        self.members[number] = self._member(number, disk)

    # ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Effects on connections are performed, and answers taken."""
        worlds = [(number, self.members[number]) for number in self._running]
        while any(world.on_links or world.to_members for _, world in worlds):
            for number, world in worlds:
                effects, world.on_links[:] = list(world.on_links), []
                for effect in effects:
                    self._perform(effect)
                addresses, world.to_members[:] = list(world.to_members), []
                for address in addresses:
                    self._connect(number, address)
        self._take_answers()

    def _perform(self, effect: object) -> None:
        match effect:
            case Transfer(link, head, data):
                link.wire.pipe.bytes += head + (b"" if data is None else data)
            case HangUp(link):
                if link.wire.pipe in self._pipes:
                    self._lose(link.wire.pipe)

    def _connect(self, number: int, address: str) -> None:
        other = int(address.partition(":")[0].rpartition(".")[2]) - 1
        if self._is_blocked(number, other) or (self._fails and self.chance.random() < 0.1):
            self.members[number].step(GroupLink(NotConnected(address, "refused")))
            return
        pipe = Pipe(number, other)
        self._pipes.append(pipe)
        self.members[other].step(GroupLink(Accepted(pipe.into)))
        self.members[number].step(GroupLink(Connected(pipe.out)))

    # ── What must be true ─────────────────────────────────────────────────────────────────────────────────────────

    def _come_to_rest(self) -> None:
        """Nothing fails any more: the members get the same log and tables, and everything is delivered."""
        self._fails, self._cut_off = False, None
        self._start()
        self._resume()
        for turn in range(SETTLED_TURNS):
            self._go_on(self.chance.choice((1, 5, 20)))
            if turn % 50 == 49 and self._is_equal():
                return
        raise AssertionError("the members do not get the same log and tables")

    def _go_on(self, ms: int) -> None:
        """What all threads and connections have to do is done, and some time passes."""
        for world in self.members:
            world.work()
            if world.machine.is_busy:
                world.step(Turn())
        for _ in range(8):
            self._deliver()
            self._settle()
        self._tick(ms)
        self._settle()

    def _is_equal(self) -> bool:
        one, *others = (self._state_of(world) for world in self.members)
        return self._master() is not None and all(one == other for other in others) and self.later <= self._delivered()

    @staticmethod
    def _state_of(world: SimulatedBroker) -> tuple[object, ...]:
        machine = world.machine
        assert machine.raft_group is not None
        assert machine.raft_group.broken is None
        return (
            world.store.log.end,
            world.store.dispatched,
            machine.raft_group.raft.node.commit,
            machine.topics.table,
            machine.groups.table,
            {name: dict(queues) for name, queues in machine.offsets.table.items()},
        )

    def _messages(self, world: SimulatedBroker) -> dict[tuple[int, int], bytes]:
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(QUEUES):
            at, stop = world.store.reader.offsets(TOPIC, queue_id)
            while at < stop:
                result = world.store.reader.get(TOPIC, queue_id, at, 32)
                assert result.records, f"{result.status} at {at} of {stop} in queue {queue_id}"
                for record in result.records:
                    (message,) = decode_records(bytes(record))
                    found[queue_id, message.queue_offset] = bytes(message.body)
                    at = message.queue_offset + 1
        return found

    def _delivered(self) -> set[bytes]:
        return set(self._messages(self.members[0]).values())

    def _check(self) -> None:
        for number, world in enumerate(self.members):
            found = self._messages(world)
            for what, expected in (("acknowledged", self.acknowledged), ("seen", self.seen)):
                for place, text in expected.items():
                    assert place in found, f"{what}, and gone at n{number}: {text[:9]!r} at {place}"
                    assert found[place] == text, f"another message is at {place} of n{number}: {found[place][:9]!r}"
            texts = set(found.values())
            missing = (self.later | self.committed) - texts
            assert not missing, f"not delivered at n{number}: {sorted(text[:9] for text in missing)}"
            assert not self.rolled_back & texts, f"rolled back, and delivered: {self.rolled_back & texts}"
            topics = self.topics - world.machine.topics.table.keys()
            assert not topics, f"acknowledged topics are gone at n{number}: {topics}"
            twice = [text for text, count in Counter(found.values()).items() if count > 1]
            assert not [text for text in twice if text not in self.later], f"twice: {twice[:3]}"
            self.counts["later twice"] += sum(text in self.later for text in twice) if not number else 0
        logs = [self._log_of(world) for world in self.members]
        assert all(log == logs[0] for log in logs), "the logs differ"

    @staticmethod
    def _log_of(world: SimulatedBroker) -> list[bytes]:
        log, parts = world.store.log, []
        at, size = log.start, STORE.commit_log_file_size
        while at < log.end:
            piece = min(log.end, at - at % size + size) - at
            parts.append(bytes(log.read(at, piece)))
            at += piece
        return parts
