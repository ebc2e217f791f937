"""One simulated life of two brokers of a group, and of clients: a master, its slave, and fail-overs between them.

The connection between both delivers bytes in pieces of any size, late, or not at all: it is cut at any byte, and made
again. Either broker is stopped, killed or loses its power at any moment. Now and then the master is lost, its slave is
promoted, and the old master comes back as the master that it was, until a name server tells it better. All of it
follows from the seed.

Both are SYNC_MASTER as masters, with inSyncReplicas=2 and minInSyncReplicas=2. Most lives have SYNC_FLUSH. Those with
ASYNC_FLUSH have no power cuts, but masters that begin an epoch after each kill. In some lives each record has a CRC
over the whole record, and a power cut may leave sectors half written. What must be true:

- while the slave follows, its log is the beginning of the master's, with SYNC_FLUSH of what is flushed;
- a new master has every message that was acknowledged, and every message that a consumer saw, at the same place of the
  same queue;
- the epoch of a new master is higher than any of the old one, so name servers keep the new one;
- a master that was replaced acknowledges nothing, and shows no consumer what the new one lacks, whether it runs on or
  is started again;
- at the end, when nothing fails any more, both brokers have the same log, to the byte.

One thing is excepted: a master that starts again shows all messages that it finds in its log, also those that no slave
has. If it is lost before a slave gets them, they are gone. That takes two failures of the master.
"""

from dataclasses import replace
from random import Random
from typing import Final

from tests.unit.broker.asking import pull, request, send

from kourou.broker.events import Announced, Answered
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_records
from kourou.replication.links import (
    Accepted,
    Closed,
    Connect,
    Connected,
    HangUp,
    HasRoom,
    Link,
    NotConnected,
    Received,
    Transfer,
)
from kourou.store.settings import FlushMode
from kourou.testing.broker import BEGIN_MS, SMALL_STORE, SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedDisk

TOPIC: Final = "orders"
QUEUES: Final = 3
NAME_SERVER: Final = "10.0.0.9:9876"
SETTLED_TURNS: Final = 3_000

FIRST: Final = BrokerSettings(
    role=Role.SYNC_MASTER, ip="10.0.0.1", ha_ip="10.0.0.1", in_sync_replicas=2, min_in_sync_replicas=2
)
SECOND: Final = replace(FIRST, role=Role.SLAVE, broker_id=1, ip="10.0.0.2", ha_ip="10.0.0.2")
STORE: Final = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)


class Wire:
    """One direction of a connection, and the room that its sender sees."""

    def __init__(self, address: str) -> None:
        self.link = Link(address, self)
        self.has_room = True
        self.bytes = bytearray()  # sent, and not delivered


class Connection:
    """What master and slave have between them."""

    def __init__(self, address: str) -> None:
        self.to_slave = Wire("10.0.0.8:40000")  # the master's end
        self.to_master = Wire(address)  # the slave's end


class ReplicationRun:
    """A life by its seed. `run` raises AssertionError when something is wrong."""

    def __init__(self, seed: int, steps: int = 800) -> None:
        self.chance = Random(seed)
        self._steps = steps
        is_async = self.chance.random() < 0.3
        self._store = replace(
            STORE,
            record_crc=self.chance.random() < 0.3,
            flush_mode=FlushMode.ASYNC if is_async else FlushMode.SYNC,
        )
        self._ways = ("stop", "kill") if is_async else ("stop", "kill", "crash")
        self.trace: list[str] = [f"seed {seed}"]
        self.master = self._world(SimulatedDisk(Random(seed)), FIRST)
        self.slave = self._world(SimulatedDisk(Random(seed + 1)), SECOND)  # or a master that was replaced
        self._connection: Connection | None = None
        self._client: SimulatedClient | None = None
        self._deceived: SimulatedClient | None = None  # of a master that was replaced
        self._waiting: dict[int, bytes] = {}  # sends without an answer: their bodies
        self._next_body = 0
        self.acknowledged: set[bytes] = set()
        self.seen: dict[tuple[int, int], bytes] = {}  # by queue and offset
        self._places: dict[tuple[int, int], int] = {}  # of what was seen, in the log
        self._recovered_to = 0  # where the master's log ended when it was started last
        self._replaced_from = 0  # the same of a master that was replaced, if it was not started again since then
        self._fails = True
        self.cuts = self.ends = self.fail_overs = self.forks = 0

    def _world(self, disk: SimulatedDisk, settings: BrokerSettings, now_ms: int | None = None) -> SimulatedBroker:
        now_ms = BEGIN_MS if now_ms is None else now_ms
        disk.tears = self._store.record_crc  # without, a disk has to write sectors as a whole
        return SimulatedBroker(disk, replace(settings), self._store, lazy=True, chance=self.chance, now_ms=now_ms)

    def run(self) -> None:
        usual = (
            (8, self._send),
            (4, self._pull),
            (30, self._deliver),
            (12, self._work_at_master),
            (12, self._work_at_slave),
            (6, self._pass_time),
            (2, self._name_master),
            (2, self._pull_from_the_other),
        )
        failures = (
            (1, self._send_to_the_old_master),
            (0.6, self._block),
            (0.6, self._cut),
            (0.4, self._end_slave),
            (0.3, self._end_master),
            (0.3, self._fail_over),
        )
        weights, functions = zip(*usual, *failures, strict=True)
        for _ in range(self._steps):
            (act,) = self.chance.choices(functions, weights)
            act()
            self._settle()
            self._check_prefix()
        self._come_to_rest()
        self._compare_logs()
        self._fail_over()
        self._settle()
        self._write_on(self.master)

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def _clients(self) -> SimulatedClient:
        if self._client is None:
            self._client = self.master.connect()
        return self._client

    def _new_sends(self) -> tuple[list[Command], list[bytes]]:
        commands, texts = [], []
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            self._next_body += 1
            body = b"%d." % self._next_body + b"x" * self.chance.choice((0, 10, 700, 9_000))
            commands.append(send(body, TOPIC, self.chance.randrange(QUEUES)))
            texts.append(body)
        return commands, texts

    def _send(self) -> None:
        commands, texts = self._new_sends()
        self._waiting.update(zip(self._clients().send(*commands), texts, strict=True))

    def _send_to_the_old_master(self) -> None:
        """A client has not heard that there is another master."""
        if self._deceived is None and self.slave.settings.role is not Role.SLAVE:
            self._deceived = self.slave.connect()
        if self._deceived is not None:
            self._deceived.send(*self._new_sends()[0])

    def _pull(self) -> None:
        self._pull_from(self.master, self._clients())

    def _pull_from_the_other(self) -> None:
        """A consumer reads from the slave, or has not heard that there is another master."""
        self._pull_from(self.slave, self.slave.connect())
        self._check_seen(self.master)

    def _pull_from(self, world: SimulatedBroker, client: SimulatedClient) -> None:
        queue_id = self.chance.randrange(QUEUES)
        offset = self.chance.randrange(1 + max((at + 1 for q, at in self.seen if q == queue_id), default=0))
        (number,) = client.send(pull(TOPIC, queue_id, offset))
        world.work(limit=0)
        answer = client.answers.pop(number, None)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            for message in decode_records(answer.body):
                place = (queue_id, message.queue_offset)
                body = bytes(message.body)
                assert self.seen.setdefault(place, body) == body, f"another message is at {place} now"
                self._places[place] = message.physical_offset

    def _deliver(self) -> None:
        """Some bytes arrive, in one direction."""
        connection = self._connection
        if connection is None:
            return
        wire, world, link = self.chance.choice(
            (
                (connection.to_slave, self.slave, connection.to_master.link),
                (connection.to_master, self.master, connection.to_slave.link),
            )
        )
        size = self.chance.choices((1, 7, 100, 5_000, 10**6), (1, 2, 2, 4, 6))[0]
        data = bytes(wire.bytes[:size])
        del wire.bytes[:size]
        if data:
            world.step(Received(link, data))

    def _work_at_master(self) -> None:
        self.master.work(choose=self.chance.randrange, limit=self.chance.randrange(4))

    def _work_at_slave(self) -> None:
        self.slave.work(choose=self.chance.randrange, limit=self.chance.randrange(4))

    def _pass_time(self) -> None:
        ms = self.chance.choices((1, 10, 100, 1_000, 6_000), (6, 6, 4, 1, 1))[0]
        if ms > 1_000 and self.slave.settings.role is not Role.SLAVE:
            self._name_master()  # in time for a broker that has just started
        for world in (self.master, self.slave):
            world.tick(ms)

    def _name_master(self) -> None:
        """A name server sends a slave the address of its master, and an old master that of the new one."""
        self._name_master_to(self.slave)

    def _name_master_to(self, world: SimulatedBroker) -> None:
        settings = self.master.settings
        if world.settings.role is Role.SLAVE:
            world.machine.replication.follow(settings.address, settings.ha_address, world.now_ms)
            world.step()
        else:
            group = bodies.BrokerMemberGroup(broker_addrs={0: settings.address})
            body = bodies.GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()
            world.step(Announced(NAME_SERVER, Command(0, body=body), None, RequestCode.GET_BROKER_MEMBER_GROUP))

    def _block(self) -> None:
        if self._connection is not None:
            wire = self._connection.to_slave
            wire.has_room = not wire.has_room
            if wire.has_room:
                self.master.step(HasRoom(wire.link))

    def _cut(self) -> None:
        """The connection is lost, with all that was on its way."""
        if self._connection is not None:
            self.cuts += 1
            self.trace.append("cut")
            self._lose_connection(self.master, self.slave)

    def _end_slave(self) -> None:
        self._lose_connection(self.master)
        self._deceived = None
        self._replaced_from = 0
        self.slave = self._ended(self.slave, self._ways)

    def _end_master(self) -> None:
        self._lose_connection(self.slave)
        self._client, self._waiting = None, {}
        self.master = self._ended(self.master, self._ways)
        self._name_master_to(self.master)
        self._recovered_to = self.master.store.log.end

    def _fail_over(self) -> None:
        """The master is lost, and its slave is promoted. The old master comes back as a master."""
        if self.slave.settings.role is not Role.SLAVE:
            return  # there is no slave: the old master was not told yet
        self._lose_connection(self.master, self.slave)
        if self.chance.random() < 0.5:  # both lose their power
            self.slave = self._ended(self.slave, ("kill", *self._ways[2:] * 2))
        if not self.slave.store.log.end:
            return  # it has nothing: a log without a common epoch is not followed
        self.fail_overs += 1
        self._client, self._waiting = None, {}
        old = self.master  # it goes on without its slave, or is lost, and started again as a master
        self._replaced_from = self._recovered_to
        if self.chance.random() < 0.7:
            old = self._ended(old, ("kill", *self._ways[2:]))
            self._replaced_from = 0
        answer = self.slave.connect().ask(request(RequestCode.PROMOTE_BROKER, headers.PromoteBroker(force=True)))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.trace.append(f"{self.slave.settings.address} is promoted: {answer.remark}")
        self.forks += old.store.log.end > self.slave.store.log.end
        self.master, self.slave = self.slave, old
        assert self.master.store.history.newest > old.store.history.newest, "name servers may keep the old master"
        self._check_master()
        self._recovered_to = self.master.store.log.end

    def _lose_connection(self, *survivors: SimulatedBroker) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            for world in survivors:
                wire = connection.to_slave if world is self.master else connection.to_master
                world.step(Closed(wire.link))

    def _ended(self, world: SimulatedBroker, ways: tuple[str, ...]) -> SimulatedBroker:
        self.ends += 1
        how = self.chance.choice(ways)
        self.trace.append(f"{how} of {world.settings.address}, {world.settings.role.value}")
        world.on_links.clear()
        ended: SimulatedBroker = getattr(world, how)()
        if ended.settings.role is not Role.SLAVE:
            ended.machine.failover.ask_first(ended.now_ms)
        return ended

    # ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Effects on connections are performed, and answers taken."""
        while any(world.on_links or world.asked for world in (self.master, self.slave)):
            for world in (self.master, self.slave):
                effects, world.on_links[:] = list(world.on_links), []
                for effect in effects:
                    self._perform(world, effect)
                asked, world.asked[:] = list(world.asked), []
                for ask in asked:
                    world.step(Answered(ask.token, self._answer(world, ask.address, ask.command)))
        if self._client is not None:
            for number in [number for number in self._waiting if number in self._client.answers]:
                body = self._waiting.pop(number)
                if self._client.answers.pop(number).code == ResponseCode.SUCCESS:
                    self.acknowledged.add(body)
        if self._deceived is not None:
            codes = {answer.code for answer in self._deceived.answers.values()}
            assert ResponseCode.SUCCESS not in codes, "a master that was replaced has acknowledged a message"
            if self.slave.settings.role is Role.SLAVE:
                self._deceived = None

    def _answer(self, world: SimulatedBroker, address: str, command: Command) -> Command | None:
        """What another broker is asked, and answers; None: no answer comes."""
        other = self.slave if world is self.master else self.master
        if address != other.settings.address or (self._fails and self.chance.random() < 0.2):
            return None
        return other.connect().ask(command)

    def _perform(self, world: SimulatedBroker, effect: object) -> None:
        match effect:
            case Connect(address):
                self._connect(world, address)
            case Transfer(link, head, data):
                link.wire.bytes += head + (b"" if data is None else data)
            case HangUp(link):
                connection = self._connection
                if connection is not None and link in (connection.to_slave.link, connection.to_master.link):
                    self.trace.append(f"{world.settings.address} hangs up: {effect.reason}")
                    self._lose_connection(self.master if world is self.slave else self.slave)

    def _connect(self, world: SimulatedBroker, address: str) -> None:
        if address != self.master.settings.ha_address or (self._fails and self.chance.random() < 0.1):
            world.step(NotConnected(address, "refused"))
            return
        connection = self._connection = Connection(address)
        self.master.step(Accepted(connection.to_slave.link))
        world.step(Connected(connection.to_master.link))

    # ── What must be true ─────────────────────────────────────────────────────────────────────────────────────────

    def _check_prefix(self) -> None:
        """A slave that follows has nothing that the master has not flushed."""
        if self._connection is not None:
            assert self.slave.store.log.end <= self._safe_end(self.master)

    def _safe_end(self, world: SimulatedBroker) -> int:
        """The offset up to which no failure in this life takes anything from a broker."""
        is_async = self._store.flush_mode is FlushMode.ASYNC
        return world.store.log.end if is_async else world.store.durability.flushed

    def _check_master(self) -> None:
        """A new master has everything that was acknowledged or seen."""
        world = self.master
        log = world.store.log
        texts = {bytes(record.message().body) for record in log.records(log.start)}
        missing = self.acknowledged - texts
        assert not missing, f"{len(missing)} acknowledged messages are lost: {sorted(missing)[:3]}"
        self._check_seen(world)

    def _check_seen(self, world: SimulatedBroker) -> None:
        log = world.store.log
        for place, body in list(self.seen.items()):
            if self._places[place] >= log.end:
                excepted = max(self._recovered_to, self._replaced_from)
                assert self._places[place] < excepted, f"message {place} was seen, and is gone"
                del self.seen[place], self._places[place]
                continue
            record = next(iter(log.records(self._places[place])))
            assert bytes(record.message().body) == body, f"another message is at {place} now"

    def _come_to_rest(self) -> None:
        """Nothing fails any more: the brokers get the same log."""
        self._fails = False
        self._send()  # a log that has grown is compared to its end
        for turn in range(SETTLED_TURNS):
            if self._connection is not None:
                self._connection.to_slave.has_room = True
            for act in (self._name_master, self._deliver, self._work_at_master, self._work_at_slave):
                act()
            for world in (self.master, self.slave):
                world.tick(self.chance.choice((0, 1, 200)))
            self._settle()
            if turn % 50 == 0 and not self._waiting:
                self._send()
            if self._connection is not None and self._is_equal() and not self._waiting:
                return
        raise AssertionError("the brokers do not get the same log")

    def _is_equal(self) -> bool:
        one, other = self.master, self.slave
        return one.store.log.end == other.store.log.end == self._safe_end(one) == self._safe_end(other)

    def _compare_logs(self) -> None:
        one, other = self.master.store.log, self.slave.store.log
        at = other.start
        assert at == one.start
        while at < other.end:
            size = min(other.end - at, STORE.commit_log_file_size - at % STORE.commit_log_file_size)
            assert bytes(one.read(at, size)) == bytes(other.read(at, size)), f"the logs differ after {at}"
            at += size
        assert self.master.store.history.epochs == self.slave.store.history.epochs

    def _write_on(self, world: SimulatedBroker) -> None:
        """The new master takes messages, here without a slave: each queue goes on where it was."""
        world.settings.in_sync_replicas = world.settings.min_in_sync_replicas = 1
        for _ in range(10):
            world.work()
            world.tick(10)
        world.machine.replication.role_changed(world.now_ms)  # the settings count from now on
        ends = [world.store.reader.offsets(TOPIC, queue_id)[1] for queue_id in range(QUEUES)]
        client = world.connect()
        for queue_id, end in enumerate(ends):
            (number,) = client.send(send(b"new", TOPIC, queue_id))
            for _ in range(10):
                world.work()
                world.tick(10)
            answer = client.answers[number]
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert int((answer.ext or {})["queueOffset"]) == end
