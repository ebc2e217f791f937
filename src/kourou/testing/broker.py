"""A broker in memory: the production machine, on a simulated disk, with a clock that the test moves.

    world = SimulatedBroker()
    client = world.connect()
    answer = client.ask(Command(…))      a request, and the broker's answer
    client.write(data)                   bytes, with any boundaries
    world.pass_time(10_000)              ten seconds, with all ticks of a driver
    world = world.crash()                power failure: the next broker, on the remaining data

The work of a driver's other threads (jobs of the store, writing tables) is done after each step. With `lazy`, it waits
in `undone` until `work` is called, in any order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec

from kourou.broker.events import (
    Announce,
    Answered,
    Ask,
    AskBroker,
    AskNameServer,
    Close,
    ConnectMember,
    Done,
    Effect,
    Event,
    Gone,
    Owe,
    Peer,
    PutBack,
    PutOff,
    Reply,
    ReplyFrames,
    ReplyParts,
    Requests,
    Run,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.broker.lane import Lane
from kourou.broker.machine import Broker
from kourou.broker.properties import Configuration, ProcessSettings
from kourou.broker.settings import BrokerSettings
from kourou.protocol import frame
from kourou.protocol.command import Command
from kourou.protocol.frame import Decoder
from kourou.protocol.hosts import encode_host
from kourou.replication.links import Connect, HangUp, LinkEffect, Transfer
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk

ROOT = Path("/store")
BEGIN_MS = 1_700_000_000_000
MEMORY_BYTES = 1024**3

SMALL_STORE = StoreSettings(
    commit_log_file_size=64 * 1024,
    queue_file_entries=200,
    index_slots=64,
    index_entries=256,
    max_body_size=32 * 1024,
    flush_least_pages=0,
    queue_flush_least_pages=0,
    timer_log_file_size=4096,
    timer_slots=2 * 3_600,
)


class SimulatedClient:
    """One connection to a simulated broker, and everything that it received."""

    def __init__(self, world: "SimulatedBroker", address: str) -> None:
        self._world = world
        self.decoder = Decoder()  # of the broker's end
        self.peer = Peer(address, encode_host(address), self, self.decoder.decode)
        self.answers: dict[int, Command] = {}  # by opaque
        self.told: list[Command] = []  # one-way commands of the broker
        self.asked: list[Ask] = []  # requests of the broker, for `answer`
        self.closed: str | None = None  # why the broker ended the connection
        self._opaque = 0

    def send(self, *commands: Command) -> list[int]:
        """Send requests in one read. Returns their numbers, which are the keys of `answers`."""
        numbered: list[Command] = []
        for command in commands:
            self._opaque += 1
            numbered.append(msgspec.structs.replace(command, opaque=self._opaque))
        self.write(b"".join(map(frame.encode, numbered)))
        return [command.opaque for command in numbered]

    def write(self, data: bytes) -> None:
        """Send bytes in one read."""
        self._world.read((self, data))

    def ask(self, command: Command) -> Command:
        """Send a request that is answered at once."""
        (number,) = self.send(command)
        assert number in self.answers, f"request {command.code} is not answered yet"
        return self.answers.pop(number)

    def answer(self, ask: Ask, code: int = 0, remark: str | None = None) -> None:
        """Answer a request of the broker."""
        self.asked.remove(ask)
        self._world.step(Answered(ask.token, ask.command.answer(code, remark)))

    def close(self) -> None:
        """The connection is lost. Requests of the broker get no answer any more."""
        self._world.clients.remove(self)
        lost, self.asked = self.asked, []
        self._world.step(Gone(self.peer), *(Answered(ask.token, None) for ask in lost))


class CountingLane:
    """The fast lane of a broker, with counters of its work."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.taken = 0  # bytes of requests
        self.answers_max = 0  # bytes of the answers of one turn
        self.dispatch = lane.dispatch
        self.tables_may_change = lane.tables_may_change
        self.took = lane.took
        self.hand_over = lane.hand_over
        self.held_batches = 0

    def serve(self, peer: Peer, data: bytes, now_ms: int) -> tuple[int, bytes, bytes, int, bool]:
        served = self._lane.serve(peer, data, now_ms)
        self.taken += served[0]
        self.held_batches = self._lane.held_batches
        self.answers_max = max(self.answers_max, len(served[1]))
        return served


class SimulatedBroker:
    """A broker and its world."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        settings: BrokerSettings | None = None,
        store_settings: StoreSettings = SMALL_STORE,
        *,
        now_ms: int = BEGIN_MS,
        skew_ms: int = 0,
        lazy: bool = False,
        chance: Random | None = None,
        clock_ns: Callable[[], int] = lambda: 0,
        lane: bool = True,
    ) -> None:
        """`now_ms` is the steady time; the time of day is `skew_ms` ahead of it.

        `lane`: usual requests and timed messages take the fast lanes, if they are compiled. `clock_ns` measures slices
        of long work: with a clock that stands still, all work is done at once.
        """
        self.disk = disk or SimulatedDisk(Random(1))
        self.settings = settings or BrokerSettings()
        self.store_settings = store_settings
        self.now_ms = now_ms
        self.skew_ms = skew_ms
        self.lazy = lazy
        self.chance = chance or Random(1)
        self.clients: list[SimulatedClient] = []
        self.undone: deque[Run | Save] = deque()
        self.announced: list[Command] = []
        self.asked: list[AskBroker] = []  # requests to other brokers
        self.asked_name_servers: list[AskNameServer] = []
        self.on_links: list[LinkEffect] = []  # effects for connections that carry the log
        self.to_members: list[str] = []  # members of its Raft group that it wants to connect to
        self._put_off: list[tuple[Peer, bytes]] = []
        self._wants_lane = lane
        self._ids = 0
        self._ports = 40_000
        store_host = encode_host(self.settings.address)
        self.store = Store.open(
            ROOT, store_settings, store_host=store_host, now_ms=now_ms, file_time=_file_time, disk=self.disk
        )
        self.machine = Broker(
            Configuration(self.settings, store_settings, ProcessSettings(), {}),
            self.store,
            store_host,
            now_ms=now_ms,
            memory_bytes=MEMORY_BYTES,
            unique_id=self._unique_id,
            chance=self.chance,
            clock_ns=clock_ns,
        )
        self.lane = CountingLane(self.machine.lane) if lane and self.machine.lane is not None else None
        self.machine.lane = self.lane
        if not lane:
            self.machine.timers.lane = None
        self.step(Tick())

    def _unique_id(self, now_ms: int) -> str:
        self._ids += 1
        return f"{now_ms:024X}{self._ids:08X}"

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, address: str | None = None) -> SimulatedClient:
        self._ports += 1
        client = SimulatedClient(self, address or f"127.0.0.1:{self._ports}")
        self.clients.append(client)
        return client

    def step(self, *events: Event) -> None:
        """Pass events to the broker now."""
        self._step(*events)
        if not self.lazy:
            self.work()

    def read(self, *reads: tuple[SimulatedClient, bytes]) -> None:
        """These bytes arrived on these connections, in one turn of the loop."""
        joined = [(client.peer, client.decoder.join(data)) for client, data in reads]
        while whole := [(peer, data) for peer, data in joined if data]:
            self.store.clock.skew_ms = self.skew_ms
            self._perform(self.machine.read(whole, self.now_ms))
            assert not self.machine.faults, "a part of a step failed; see the log for the reason"
            joined, self._put_off = self._put_off, []
        if not self.lazy:
            self.work()

    def _step(self, *events: Event) -> None:
        self.store.clock.skew_ms = self.skew_ms
        self._perform(self.machine.step(list(events), self.now_ms))
        assert not self.machine.faults, "a part of a step failed; see the log for the reason"

    @property
    def in_lane(self) -> int:
        """Bytes of requests that the fast lane has served."""
        return 0 if self.lane is None else self.lane.taken

    def set_clock(self, ms: int) -> None:
        """Set the time of day forward, or back if `ms` is negative."""
        self.skew_ms += ms

    @property
    def stamp_ms(self) -> int:
        """The store time of a message that arrives now."""
        self.store.clock.skew_ms = self.skew_ms
        return self.store.clock.stamp(self.now_ms)

    def take_turns(self) -> int:
        """Finish long work, as a driver does while no requests arrive. Returns the number of turns."""
        count = 0
        while self.machine.is_busy:
            self.step(Turn())
            count += 1
        return count

    def tick(self, ms: int = 0) -> None:
        """Let time pass; the driver's timer fires once."""
        self.now_ms += ms
        self.disk.now_ms = self.now_ms + self.skew_ms
        self.step(Tick())

    def pass_time(self, ms: int, each: Callable[[], None] | None = None) -> None:
        """Let time pass, with all ticks of a driver; `each` is called after each of them."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.tick(max(min(self.machine.deadlines.wake_ms, until_ms) - self.now_ms, 1))
            if each is not None:
                each()

    def work(self, *, choose: Callable[[int], int] = lambda _: 0, limit: int | None = None) -> None:
        """Do the work of other threads: all of it, or at most this many pieces."""
        while self.undone and limit != 0:
            at = choose(len(self.undone))
            work = self.undone[at]
            del self.undone[at]
            self._step(_done(work))
            limit = None if limit is None else limit - 1

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(peer, command):
                    peer.link.answers[command.opaque] = command
                case ReplyParts(peer, command, parts, _):
                    body = b"".join(parts)
                    peer.link.answers[command.opaque] = msgspec.structs.replace(command, body=body)
                case ReplyFrames(peer, frames):
                    peer.link.answers.update((answer.opaque, answer) for answer in Decoder().feed(frames))
                case PutOff(peer, data):
                    self._put_off.append((peer, data))
                case PutBack(peer, commands):
                    self._step(Requests(peer, commands))
                case Owe():
                    pass  # no answer is lost, because no connection ends by itself
                case Tell(peer, command):
                    peer.link.told.append(command)
                case Ask(peer):
                    self._ask(peer.link, effect)
                case Close(peer, reason):
                    peer.link.closed = reason
                case Run() | Save():
                    self.undone.append(effect)
                case Announce(command):
                    self.announced.append(command)
                case AskBroker():
                    self.asked.append(effect)
                case AskNameServer():
                    self.asked_name_servers.append(effect)
                case Transfer() | HangUp() | Connect():
                    self.on_links.append(effect)
                case ConnectMember(address):
                    self.to_members.append(address)

    def _ask(self, client: SimulatedClient, ask: Ask) -> None:
        if client in self.clients:
            client.asked.append(ask)
        else:
            self._step(Answered(ask.token, None))

    # ── Ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> "SimulatedBroker":
        """Stop cleanly, as a driver does, and start again."""
        self._perform(self.machine.leave(self.now_ms))
        self._perform(self.machine.release_pulls())
        self.work()
        self.machine.keep_all(self.now_ms)
        self.store.close(self.now_ms)
        return self._next(self.disk)

    def kill(self) -> "SimulatedBroker":
        """Kill the process, which keeps its writes, and start again."""
        return self._next(self.disk.kill())

    def crash(self) -> "SimulatedBroker":
        """Simulate a power failure, which loses writes that are not durable, and start again."""
        return self._next(self.disk.crash())

    def _next(self, disk: SimulatedDisk) -> "SimulatedBroker":
        return SimulatedBroker(
            disk,
            self.settings,
            self.store_settings,
            now_ms=self.now_ms,
            skew_ms=self.skew_ms,
            lazy=self.lazy,
            chance=self.chance,
            lane=self._wants_lane,
        )


def _done(work: Run | Save) -> Event:
    if isinstance(work, Run):
        work.job.run()
        return Done(work.job)
    try:
        work.file.write(work.content)
    except OSError as error:
        return Saved(work.name, work.version, str(error))
    return Saved(work.name, work.version)


def _file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]
