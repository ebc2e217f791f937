"""One simulated member: the machine with a driver over a simulated disk, clock and network."""

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from kourou.raft.events import (
    Answered,
    Append,
    Appended,
    BeginTerm,
    Committed,
    Done,
    Effect,
    Event,
    Flushed,
    Health,
    Job,
    ReadReady,
    Received,
    RoleChanged,
    Save,
    Send,
    Ship,
    Trimmed,
)
from kourou.raft.log import Log
from kourou.raft.machine import Raft
from kourou.raft.messages import Message
from kourou.raft.settings import RaftSettings

from .raft_storage import Storage

if TYPE_CHECKING:
    from .raft_world import World


class Clock:
    """A monotonic clock that is too fast or too slow, and that may jump."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.ahead_ms = 0.0

    def ms(self, time_ms: float) -> int:
        return int(time_ms * self.rate + self.ahead_ms)

    def until(self, local_ms: int, time_ms: float) -> float:
        """When this clock shows a time."""
        return max(time_ms, (local_ms - self.ahead_ms + 1) / self.rate)


class Member:
    """See the module's text. `raft` is None while it is down."""

    def __init__(self, world: "World", name: str, storage: Storage, settings: RaftSettings, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.storage = storage
        self.settings = settings
        self.clock = clock
        self.raft: Raft | None = None
        self.life = 0  # events of an earlier life are dropped
        self.job: Job | None = None
        self.wake_ms = -1.0
        self.waiting: list[tuple[int, int]] = []  # (end, number) of appends that are not answered
        self._perform: dict[type, Callable[[Effect], None]] = {
            Send: self._send,
            Ship: self._ship,
            Append: self._append,
            BeginTerm: self._begin_term,
            Committed: self._committed,
            RoleChanged: self._role_changed,
            ReadReady: self._read_ready,
            Answered: self._answered,
        }
        self._again: list[Event] = []

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        storage = self.storage
        storage.epochs = storage.epochs.cut(storage.end)
        storage.synced = storage.end  # recovery syncs what it has read
        log = Log(storage, storage.start, storage.end, storage.epochs)
        now_ms = self.clock.ms(self.world.now_ms)
        random = Random(self.world.random.random())
        self.raft = Raft(self.name, storage.hard, log, self.settings, random, now_ms)
        self.world.check.recovered(self)
        self.step([])

    def stop(self, *, power: bool) -> None:
        digest = self.world.check.digest_at(self.job)
        if power:
            self.storage.cut_power(self.job, digest)
        else:
            self.storage.end_process(self.job, digest)
        self.raft, self.job = None, None
        self.life += 1
        self.waiting.clear()
        self._again.clear()
        self.wake_ms = -1.0

    def step(self, events: Iterable[Event]) -> None:
        """Feed the machine, perform the effects, until nothing is left to say."""
        raft = self.raft
        assert raft is not None
        now_ms = self.clock.ms(self.world.now_ms)
        while True:
            for effect in raft.step(events, now_ms):
                perform = self._perform.get(type(effect), self._run_job)
                perform(effect)
            if not self._again:
                break
            events, self._again = self._again, []
        self.world.check.stepped(self)
        self._sync()
        self._set_timer(raft)

    def _set_timer(self, raft: Raft) -> None:
        due_ms = self.clock.until(raft.due_ms, self.world.now_ms)
        if self.wake_ms < 0 or due_ms < self.wake_ms:
            self.wake_ms = due_ms
            self.world.at(due_ms, self._wake, self.life, due_ms)

    def _wake(self, life: int, due_ms: float) -> None:
        if life == self.life and self.raft is not None and self.wake_ms == due_ms:
            self.wake_ms = -1.0
            self.step([])

    def _later(self, delay_ms: float, *events: Event) -> None:
        self.world.at(self.world.now_ms + delay_ms, self._happens, self.life, events)

    def _happens(self, life: int, events: tuple[Event, ...]) -> None:
        if life == self.life and self.raft is not None:
            self.step(events)

    # ── The disk ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self) -> None:
        storage = self.storage
        if storage.sync_to is None and storage.end > storage.synced:
            storage.sync_to = storage.end
            delay_ms = self.world.disk_ms()
            self.world.at(self.world.now_ms + delay_ms, self._synced, self.life, storage.end)

    def _synced(self, life: int, end: int) -> None:
        storage = self.storage
        if life != self.life or self.raft is None or storage.sync_to != end:
            return
        storage.synced_to(end)
        self.step([Flushed(end)])

    def _run_job(self, effect: Effect) -> None:
        assert self.job is None, "one job at a time"
        assert not isinstance(effect, Send | Ship | Append | BeginTerm | Committed | RoleChanged | ReadReady | Answered)
        self.job = effect
        self.world.at(self.world.now_ms + self.world.disk_ms(), self._job_done, self.life, effect)

    def _job_done(self, life: int, job: Job) -> None:
        if life != self.life or self.job is not job:
            return
        self.job = None
        self.storage.perform(job, self.world.check.digest_at(job))
        if isinstance(job, Save) and job.state.vote is not None:
            self.world.voted(self)
        end = self.storage.end
        cut = [number for at, number in self.waiting if at > end]
        self.waiting = [(at, number) for at, number in self.waiting if at <= end]
        self.world.clients.cut(cut)
        self.step([Done(job.job)])

    def _append(self, effect: Effect) -> None:
        assert isinstance(effect, Append)
        ends = self.storage.append(effect.offset, effect.data)
        self._written(ends)
        if not ends:
            self._again.append(Health(False))
        self._again.append(Appended(self.storage.end))

    def _begin_term(self, effect: Effect) -> None:
        ends = self.storage.write(0, 16)
        self._written(ends)
        self._again.append(Appended(self.storage.end) if ends else Health(False))

    def _written(self, ends: list[int]) -> None:
        storage = self.storage
        for end in ends:
            self.world.check.written(self, storage.epochs.before(end), end, storage.digests[end])

    def write(self, number: int, size: int) -> int | None:
        """A client's append: where it ends, or None if this member takes none now."""
        assert self.raft is not None
        if not self.raft.is_open:
            return None
        ends = self.storage.write(number, size)
        if not ends:
            self.step([Health(False)])
            return None
        self._written(ends)
        self.waiting.append((ends[-1], number))
        self.step([Appended(ends[-1])])
        return ends[-1]

    def fill(self, *, is_full: bool) -> None:
        self.storage.is_full = is_full
        if self.raft is not None and not is_full:
            self.step([Health(True)])

    def trim(self) -> None:
        """Old segments are removed, up to some record that is committed."""
        storage = self.storage
        if self.raft is None or self.job is not None:
            return
        ends = [end for end in storage.ends if end <= self.raft.node.commit]
        if ends:
            storage.trim(self.world.random.choice(ends))
            self.step([Trimmed(storage.start)])

    # ── Messages and clients ──────────────────────────────────────────────────────────────────────────────────────

    def _send(self, effect: Effect) -> None:
        assert isinstance(effect, Send)
        self.world.network.send(self.name, effect.to, effect.message)

    def _ship(self, effect: Effect) -> None:
        assert isinstance(effect, Ship)
        data = self.storage.read(effect.message.previous, effect.size) if effect.size else b""
        self.world.network.send(self.name, effect.to, effect.message, data)

    def receive(self, message: Message) -> None:
        if self.raft is not None:
            self.step([Received(message)])

    def _committed(self, effect: Effect) -> None:
        assert isinstance(effect, Committed)
        self.world.check.committed(self, effect.offset)
        done = [(end, number) for end, number in self.waiting if end <= effect.offset]
        if done:
            self.waiting = [(end, number) for end, number in self.waiting if end > effect.offset]
            self.world.clients.acknowledged(done)

    def _role_changed(self, effect: Effect) -> None:
        assert isinstance(effect, RoleChanged)
        self.world.trace(f"{self.name} is {effect.role} in term {effect.term}, leader {effect.leader}")
        self.world.check.role_changed(self, effect.role, effect.term)
        if effect.role == "leader":
            self.world.leads(self)

    def _read_ready(self, effect: Effect) -> None:
        assert isinstance(effect, ReadReady)
        self.world.clients.read(effect.token, effect.offset)

    def _answered(self, effect: Effect) -> None:
        assert isinstance(effect, Answered)
        self.world.clients.answered(effect.token, effect.fault)
