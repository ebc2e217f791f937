"""How often an idle name server and an idle broker wake up, counted in an event loop whose time leaps.

When nothing is ready, the loop does not sleep until its next timer: its clock is set to that time. A minute of a real
process takes a fraction of a second, and each wake-up is counted.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, heartbeat, pull, send

from kourou.embedded import Embedded
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.protocol.codes import ResponseCode
from kourou.server import nameserver
from kourou.server.clock import SteadyClock
from kourou.store.jobs import Job
from kourou.store.worker import Worker

MINUTE = 60.0
BEGIN_MS = 1_700_000_000_000
PATIENCE = 30.0
SETTLE = 0.005
"""Real seconds that workers have to end their jobs before the clock is set on."""


class LeapingSelector(selectors.DefaultSelector):
    """Waits for what is ready, and lets the loop's time pass otherwise. While threads have jobs, time is real."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wake_ups = 0
        self.jobs = 0  # that threads have

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.wake_ups += timeout != 0
        ready = super().select(timeout if timeout is None or self.jobs else min(timeout, SETTLE))
        if timeout is not None and not ready:
            self.now += timeout
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its selector."""

    def __init__(self) -> None:
        self.selector = LeapingSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now

    def now_ms(self) -> int:
        return BEGIN_MS + round(self.selector.now * 1000)


Story = Callable[[LeapingLoop], Coroutine[Any, Any, None]]
Run = Callable[[Story], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(story: Story) -> None:
        loop = LeapingLoop()
        monkeypatch.setattr(SteadyClock, "now_ms", lambda _: loop.now_ms())
        monkeypatch.setattr(SteadyClock, "read", lambda _: (loop.now_ms(), 0))
        monkeypatch.setattr(nameserver, "_now_ms", loop.now_ms)
        submit, finished, execute = Worker.submit, Worker.finished, loop.run_in_executor

        def ended(_: object) -> None:
            loop.selector.jobs -= 1

        def count_execution(*words: Any) -> asyncio.Future[Any]:
            loop.selector.jobs += 1
            job = execute(*words)
            job.add_done_callback(ended)
            return job

        def count_one(worker: Worker, job: Job) -> None:
            loop.selector.jobs += 1
            submit(worker, job)

        def count_ended(worker: Worker, *, wait: bool = False) -> list[Job]:
            jobs = finished(worker, wait=wait)
            loop.selector.jobs -= len(jobs)
            return jobs

        monkeypatch.setattr(loop, "run_in_executor", count_execution)
        monkeypatch.setattr(Worker, "submit", count_one)
        monkeypatch.setattr(Worker, "finished", count_ended)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(story(loop))

    return run


async def wake_ups_in(loop: LeapingLoop, seconds: float) -> int:
    before = loop.selector.wake_ups
    await asyncio.sleep(seconds)
    return loop.selector.wake_ups - before


async def consume_nothing(client: Connection) -> None:
    """What an idle consumer does: a heartbeat every 30 seconds, and one pull after the other."""

    async def heartbeats() -> None:
        while True:
            assert (await client.request(heartbeat("c1", group=GROUP), PATIENCE)).code == ResponseCode.SUCCESS
            await asyncio.sleep(30)

    async def pulls() -> None:
        while True:
            answer = await client.request(pull(offset=1, wait_ms=15_000), PATIENCE)
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark

    await asyncio.gather(heartbeats(), pulls())


def test_name_server_and_broker_without_clients(run: Run) -> None:
    async def story(loop: LeapingLoop) -> None:
        async with Embedded():
            await asyncio.sleep(MINUTE)
            assert await wake_ups_in(loop, MINUTE) < 40

    run(story)


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_name_server_and_broker_with_an_idle_consumer(run: Run, mode: str) -> None:
    async def story(loop: LeapingLoop) -> None:
        async with Embedded(properties={"flushDiskType": mode}) as embedded:
            host, port = embedded.address.split(":")
            client = await connect(host, int(port))
            assert (await client.request(send(), PATIENCE)).code == ResponseCode.SUCCESS
            consumer = asyncio.ensure_future(consume_nothing(client))
            await asyncio.sleep(MINUTE)
            assert await wake_ups_in(loop, MINUTE) < 60, "less than once a second"
            consumer.cancel()
            client.close()

    run(story)
