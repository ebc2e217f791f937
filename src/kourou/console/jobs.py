"""Work that continues after its request: redriving dead letters. Jobs can be watched and stopped.

A job reads the letters while it sends them, a page at a time. It keeps only their positions, so that their number is
not limited.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from kourou.client import Client, Delivery
from kourou.client.admin.dead_letters import redrive, target_topic
from kourou.console.errors import ConsoleError
from kourou.console.facts import now_ms
from kourou.console.limits import (
    JOB_FAILURES_MAX,
    JOB_RESULTS_MAX,
    JOBS_MAX,
    JOBS_RUNNING_MAX,
    REMEMBERED_MAX,
)
from kourou.console.views.values import long
from kourou.printable import printable
from kourou.protocol.errors import KourouError

RUNNING: Final = "running"

Place = tuple[str, str, int, int]
"""Topic, broker, queue and offset of a dead letter."""

Letters = AsyncGenerator[tuple[list[Delivery], int], None]
"""Pages of letters, and how many places were read so far."""


class Failure(msgspec.Struct, frozen=True):
    """A message that was not sent, and why."""

    broker: str
    queue: int
    offset: str
    id: str
    reason: str


class Result(msgspec.Struct, frozen=True):
    """The result of sending a message."""

    broker: str
    queue: int
    offset: str
    id: str
    ok: bool
    to: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now."""

    id: str
    kind: str
    group: str
    user: str
    state: str
    total: int
    is_least: bool
    """There may be more letters, because not all were counted before."""
    sent: int
    failed: int
    skipped: int
    started_ms: int
    ended_ms: int | None
    target: str
    rate: float
    text: str
    failures: list[Failure]
    results: list[Result]


class Job:
    """Redriving of chosen dead letters. `total`: how many were counted; with `is_least` there may be more."""

    def __init__(
        self, group: str, user: str, target: str, rate: float, letters: Letters, total: int, *, is_least: bool = False
    ) -> None:
        self.id = secrets.token_hex(16)
        self.group = group
        self.user = user
        self.target = target
        self.rate = rate
        self.state = RUNNING
        self.text = ""
        self.started_ms = now_ms()
        self.ended_ms: int | None = None
        self.sent = 0
        self.failed = 0
        self.skipped = 0
        self.total = total
        self.is_least = is_least
        self.failures: list[Failure] = []
        self.results: deque[Result] = deque(maxlen=JOB_RESULTS_MAX)
        self.letters = letters
        self.next_at = 0.0
        """When the next message may be sent."""
        self.task: asyncio.Task[None] | None = None
        self.stopping = asyncio.Event()

    def view(self) -> JobView:
        return JobView(
            id=self.id,
            kind="redrive",
            group=printable(self.group),
            user=printable(self.user),
            state=self.state,
            total=max(self.total, self.sent + self.failed + self.skipped),
            is_least=self.is_least,
            sent=self.sent,
            failed=self.failed,
            skipped=self.skipped,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            target=printable(self.target),
            rate=self.rate,
            text=printable(self.text),
            failures=list(self.failures),
            results=list(self.results),
        )


def place(letter: Delivery) -> Place:
    return letter.record.topic, letter.queue.broker_name, letter.queue_id, letter.queue_offset


class Redriven:
    """The dead letters that jobs have redriven, and those that are being sent: no two jobs send one at a time."""

    def __init__(self) -> None:
        self._jobs: dict[Place, str] = {}
        self._sending: set[Place] = set()
        self.changes = 0
        """Increases when letters are redriven, so that older counts of letters are not reused."""

    def by(self, where: Place) -> str | None:
        """The job that has redriven a dead letter."""
        return self._jobs.get(where)

    def begin(self, where: Place, *, again: bool) -> bool:
        """Whether the letter may be sent now; `end` must follow."""
        if where in self._sending or (where in self._jobs and not again):
            return False
        self._sending.add(where)
        return True

    def end(self, where: Place, job_id: str | None) -> None:
        """The letter was sent by this job, or not at all."""
        self._sending.discard(where)
        if job_id is None:
            return
        while len(self._jobs) >= REMEMBERED_MAX:
            self._jobs.pop(next(iter(self._jobs)))
        self._jobs[where] = job_id
        self.changes += 1


class Jobs:
    """Jobs, the newest last, and what they have redriven."""

    def __init__(self, redriven: Redriven | None = None) -> None:
        self._jobs: dict[str, Job] = {}
        self.redriven = redriven or Redriven()

    @property
    def changes(self) -> int:
        return self.redriven.changes

    def all(self) -> list[Job]:
        """The newest first."""
        return list(self._jobs.values())[::-1]

    def get(self, job_id: str) -> Job:
        """Raises ConsoleError."""
        found = self._jobs.get(job_id)
        if found is None:
            raise ConsoleError("not_found", "there is no such job", "jobs end when the console stops")
        return found

    def redriven_by(self, letter: Delivery) -> str | None:
        """The job that has redriven a dead letter."""
        return self.redriven.by(place(letter))

    def start(self, mq: Client, job: Job, *, again: bool) -> None:
        """Starts the work. Raises ConsoleError if too many jobs run."""
        if sum(one.state == RUNNING for one in self._jobs.values()) >= JOBS_RUNNING_MAX:
            raise ConsoleError("busy", f"{JOBS_RUNNING_MAX} jobs are running", "wait for one to end, or stop one")
        for old in [key for key, one in self._jobs.items() if one.state != RUNNING]:
            if len(self._jobs) < JOBS_MAX:
                break
            del self._jobs[old]
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(mq, job, again=again))

    @property
    def is_busy(self) -> bool:
        """Whether a job is running."""
        return any(job.state == RUNNING for job in self._jobs.values())

    def stop(self, job: Job) -> None:
        """Stops after the message that is being sent. Messages that were sent remain sent."""
        job.stopping.set()

    async def close(self) -> None:
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, mq: Client, job: Job, *, again: bool) -> None:
        try:
            async with aclosing(job.letters) as pages:
                async for letters, _ in pages:
                    for letter in letters:
                        if not again and self.redriven.by(place(letter)) is not None:
                            job.skipped += 1
                        elif await _stopped(job):
                            job.state = "stopped"
                            job.text = f"stopped after {job.sent} of {job.view().total}"
                            return
                        elif not self.redriven.begin(place(letter), again=again):
                            job.skipped += 1  # another job was faster
                        else:
                            await self._send(mq, job, letter)
            job.state = "done"
            job.total = job.sent + job.failed + job.skipped
            job.is_least = False
            job.text = f"{job.sent} of {job.total}, {job.failed} failed"
        except asyncio.CancelledError:
            job.state, job.text = "stopped", "the console ended"
            raise
        except Exception as error:
            job.state = "failed"
            job.text = str(error)
        finally:
            job.ended_ms = now_ms()

    async def _send(self, mq: Client, job: Job, letter: Delivery) -> None:
        broker, queue, offset = letter.queue.broker_name, letter.queue_id, long(letter.queue_offset)
        key = printable(letter.message_id)
        sent_by: str | None = None
        try:
            await redrive(mq.producer(), letter, job.target, job.id)
            sent_by = job.id
        except KourouError as error:
            job.failed += 1
            if len(job.failures) < JOB_FAILURES_MAX:
                job.failures.append(Failure(printable(broker), queue, offset, key, printable(str(error))))
            job.results.append(Result(printable(broker), queue, offset, key, False, ""))
            return
        finally:
            self.redriven.end(place(letter), sent_by)
        job.sent += 1
        to = target_topic(letter, job.target) or ""
        job.results.append(Result(printable(broker), queue, offset, key, True, printable(to)))


async def _stopped(job: Job) -> bool:
    """Waits until the next message may be sent. True if the job must stop."""
    now = asyncio.get_running_loop().time()
    pause = job.next_at - now
    job.next_at = max(job.next_at, now) + 1 / job.rate
    if pause > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(job.stopping.wait(), pause)
    else:
        await asyncio.sleep(0)
    return job.stopping.is_set()
