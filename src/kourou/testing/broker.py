"""A broker in memory: the machine that is shipped, on a simulated disk, with a clock that a test moves.

    world = SimulatedBroker()
    client = world.connect()
    answer = client.ask(Command(…))          a request, and what the broker answers at once
    client.write(data)                       bytes, however they are cut
    world.pass_time(10_000)                  ten seconds, with all ticks that a driver would give
    world = world.crash()                    power cut: the next broker on what is left of the disk

What a driver would do in other threads (jobs of the store, writing tables) is done after each step. With `lazy`, it
waits in `undone` until somebody says `work`, in whatever order a simulation likes.
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
    Close,
    Done,
    Effect,
    Event,
    Gone,
    Owe,
    Peer,
    PutOff,
    Reply,
    ReplyFrames,
    ReplyParts,
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
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk

ROOT = Path("/store")
BEGIN_MS = 1_700_000_000_000
TICK_MS = 100
MEMORY_BYTES = 1024**3

SMALL_STORE = StoreSettings(
    commit_log_file_size=64 * 1024,
    queue_file_entries=200,
    index_slots=64,
    index_entries=256,
    max_body_size=32 * 1024,
    flush_least_pages=0,
    queue_flush_least_pages=0,
)


class SimulatedClient:
    """One connection to a simulated broker, and all that came over it."""

    def __init__(self, world: "SimulatedBroker", address: str) -> None:
        self._world = world
        self.decoder = Decoder()  # of the broker's end
        self.peer = Peer(address, encode_host(address), self, self.decoder.decode)
        self.answers: dict[int, Command] = {}  # by opaque
        self.told: list[Command] = []  # one-way commands of the broker
        self.asked: list[Ask] = []  # its requests, which `answer` answers
        self.closed: str | None = None  # why the broker ended the connection
        self._opaque = 0

    def send(self, *commands: Command) -> list[int]:
        """Send requests in one read; by the numbers that are returned, `answers` has what came back."""
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
        """The connection is lost. What the broker asks has no answer any more."""
        self._world.clients.remove(self)
        lost, self.asked = self.asked, []
        self._world.step(Gone(self.peer), *(Answered(ask.token, None) for ask in lost))


class CountingLane:
    """The fast lane of a broker, which counts what it serves."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.taken = 0  # bytes of requests
        self.answers_max = 0  # bytes of answers that one turn gave
        self.dispatch = lane.dispatch
        self.tables_may_change = lane.tables_may_change

    def serve(self, peer: Peer, data: bytes, now_ms: int) -> tuple[int, bytes, bytes, int, bool]:
        served = self._lane.serve(peer, data, now_ms)
        self.taken += served[0]
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

        `lane`: usual requests take the fast lane, where it is compiled.
        `clock_ns` measures slices of long work: a clock that stands still does all work at once.
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
        """Something happens now."""
        self._step(*events)
        if not self.lazy:
            self.work()

    def read(self, *reads: tuple[SimulatedClient, bytes]) -> None:
        """These bytes came on these connections, in one turn of the loop."""
        joined = [(client.peer, client.decoder.join(data)) for client, data in reads]
        while whole := [(peer, data) for peer, data in joined if data]:
            self.store.clock.skew_ms = self.skew_ms
            self._perform(self.machine.read(whole, self.now_ms))
            assert not self.machine.faults, "a part of a step failed; the log says why"
            joined, self._put_off = self._put_off, []
        if not self.lazy:
            self.work()

    def _step(self, *events: Event) -> None:
        self.store.clock.skew_ms = self.skew_ms
        self._perform(self.machine.step(list(events), self.now_ms))
        assert not self.machine.faults, "a part of a step failed; the log says why"

    @property
    def in_lane(self) -> int:
        """Bytes of requests that the fast lane has served."""
        return 0 if self.lane is None else self.lane.taken

    def set_clock(self, ms: int) -> None:
        """Somebody sets the time of day forward, or back if `ms` is negative."""
        self.skew_ms += ms

    @property
    def stamp_ms(self) -> int:
        """The store time of a message that arrives now."""
        self.store.clock.skew_ms = self.skew_ms
        return self.store.clock.stamp(self.now_ms)

    def take_turns(self) -> int:
        """Finish long work, as a driver does while nobody asks anything. How many turns that took."""
        count = 0
        while self.machine.is_busy:
            self.step(Turn())
            count += 1
        return count

    def tick(self, ms: int = 0) -> None:
        """Time passes, and the driver's timer fires once."""
        self.now_ms += ms
        self.disk.now_ms = self.now_ms + self.skew_ms
        self.step(Tick())

    def pass_time(self, ms: int, each: Callable[[], None] | None = None) -> None:
        """Time passes, with all ticks that there would be meanwhile; `each` is called after each of them."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            wake_ms = min(self.machine.wake_ms(self.now_ms), self.now_ms + TICK_MS, until_ms)
            self.tick(max(wake_ms - self.now_ms, 1))
            if each is not None:
                each()

    def work(self, *, choose: Callable[[int], int] = lambda _: 0, limit: int | None = None) -> None:
        """Do what other threads would do, until nothing is left or so much was done."""
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
                case Owe():
                    pass  # no answer is lost, for no connection ends by itself
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

    def _ask(self, client: SimulatedClient, ask: Ask) -> None:
        if client in self.clients:
            client.asked.append(ask)
        else:
            self._step(Answered(ask.token, None))

    # ── Ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> "SimulatedBroker":
        """A clean stop, as the driver does it, and a new start."""
        self._perform(self.machine.leave(self.now_ms))
        self._perform(self.machine.release_pulls())
        self.work()
        self.machine.keep_all(self.now_ms)
        self.store.close(self.now_ms)
        return self._next(self.disk)

    def kill(self) -> "SimulatedBroker":
        """The process is gone, what it has written is not; and a new start."""
        return self._next(self.disk.kill())

    def crash(self) -> "SimulatedBroker":
        """A power cut takes what was not safe; and a new start."""
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
