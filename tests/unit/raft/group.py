"""A member by itself, for tests that say every message: effects are performed over a light log."""

from collections.abc import Iterable
from random import Random

from tests.simulation.raft_storage import Storage, record

from kourou.raft.events import (
    Append,
    Appended,
    BeginTerm,
    Cut,
    Done,
    Effect,
    Event,
    Flushed,
    HardState,
    Received,
    Restart,
    Save,
    SaveEpochs,
    Send,
    Ship,
)
from kourou.raft.log import Log
from kourou.raft.machine import Raft
from kourou.raft.members import Member, Members
from kourou.raft.messages import Message
from kourou.raft.settings import RaftSettings
from kourou.store.epochs import Epochs

THREE = Members(tuple(Member(name) for name in ("n0", "n1", "n2")), 1)
SETTINGS = RaftSettings(election_ms=1_000, heartbeat_ms=200)


class One:
    """The member n0. `jobs` are not done before `finish`, nor is the log flushed before `flush`."""

    def __init__(
        self,
        hard: HardState | None = None,
        *,
        settings: RaftSettings = SETTINGS,
        epochs: Iterable[tuple[int, int]] = (),
        records: int = 0,
    ) -> None:
        self.storage = Storage(Random(1), hard or HardState(members=THREE))
        for number in range(records):
            self.storage.append(self.storage.end, record(number + 1, 20))
        self.storage.epochs = Epochs(epochs)
        self.storage.synced = self.storage.end
        log = Log(self.storage, self.storage.start, self.storage.end, self.storage.epochs)
        self.now_ms = 0
        self.raft = Raft("n0", self.storage.hard, log, settings, Random(1), 0)
        self.jobs: list[Save | SaveEpochs | Cut | Restart] = []
        self.sent: list[tuple[str, Message]] = []
        self.others: list[Effect] = []

    @property
    def end(self) -> int:
        return self.storage.end

    def step(self, *events: Event, ms: int = 0) -> None:
        """Time passes, and this happens."""
        self.now_ms += ms
        again: list[Event] = list(events)
        while True:
            effects = self.raft.step(again, self.now_ms)
            again = []
            for effect in effects:
                again += self._perform(effect)
            if not again:
                return

    def _perform(self, effect: Effect) -> list[Event]:
        if isinstance(effect, Save | SaveEpochs | Cut | Restart):
            self.jobs.append(effect)
        elif isinstance(effect, Send | Ship):
            self.sent.append((effect.to, effect.message))
        elif isinstance(effect, Append):
            self.storage.append(effect.offset, effect.data)
            return [Appended(self.end)]
        elif isinstance(effect, BeginTerm):
            self.storage.append(self.end, record(0, 20))
            return [Appended(self.end)]
        else:
            self.others.append(effect)
        return []

    def finish(self) -> None:
        """All jobs are durable, also those that follow from them."""
        while self.jobs:
            job = self.jobs.pop(0)
            self.storage.perform(job, 0)
            self.step(Done(job.job))

    def flush(self) -> None:
        self.storage.synced = self.end
        self.step(Flushed(self.end))

    def write(self, number: int = 9) -> int:
        """The broker appends a record; where it ends."""
        self.storage.append(self.end, record(number, 20))
        self.step(Appended(self.end))
        return self.end

    def hear(self, *messages: Message) -> list[tuple[str, Message]]:
        """Messages come, and jobs are done at once; what is sent for that."""
        self.sent.clear()
        self.step(*(Received(message) for message in messages))
        self.finish()
        return self.said()

    def said(self) -> list[tuple[str, Message]]:
        sent, self.sent = self.sent, []
        return sent
