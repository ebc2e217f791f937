"""Effects in order: an effect that depends on a job is held back until the job is durable."""

from collections import deque
from typing import Final

from kourou.raft.events import Cut, Effect, Job, Restart, Save, SaveEpochs, Send, Ship

HELD_MAX: Final = 1024
"""How many messages may wait for a job. Further ones are dropped, as a network may drop them."""


class Outbox:
    """The effects of a step, and those that wait for a job."""

    __slots__ = ("_free", "_held", "_job", "_number")

    def __init__(self) -> None:
        self._free: list[Effect] = []  # may be performed now
        self._held: deque[Effect] = deque()  # after the job that is running
        self._job: Job | None = None  # handed out, not yet durable
        self._number = 0

    @property
    def is_busy(self) -> bool:
        """A job is running or queued."""
        return self._job is not None

    @property
    def changes_log(self) -> bool:
        """The running job cuts the log, or changes where it begins."""
        return isinstance(self._job, Cut | Restart)

    def next_job(self) -> int:
        """The number of the next job."""
        self._number += 1
        return self._number

    def add(self, effect: Effect) -> None:
        """Add an effect, which is performed after all those added before."""
        if self._job is None:
            self._free.append(effect)
            if isinstance(effect, Save | SaveEpochs | Cut | Restart):
                self._job = effect
        elif len(self._held) < HELD_MAX or not isinstance(effect, Send | Ship):
            self._held.append(effect)

    def add_now(self, effect: Effect) -> None:
        """Add an effect that does not wait for a job, because it concerns only this member."""
        self._free.append(effect)

    def done(self, number: int) -> Job | None:
        """Mark the job as durable and return it; None if it is not the running one."""
        job = self._job
        if job is None or job.job != number:
            return None
        self._job = None
        held, self._held = self._held, deque()
        for effect in held:
            self.add(effect)
        return job

    def take(self) -> list[Effect]:
        """The effects that may be performed now."""
        free, self._free = self._free, []
        return free
