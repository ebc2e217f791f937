"""`kourou bench`: load, latency and CPU per message of any broker, Kourou's or Apache's.

Without --rate it measures the highest rate: --concurrency senders, each of which sends the next message when the last
is answered. With --rate, messages are due at even intervals, and latency is measured from the time at which the message
was due, so a stall of the broker counts for all the messages that waited meanwhile.

The CPU time of a broker is measured if its process runs on this machine: it is found by its port, or given by --pid.
"""

import os
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kourou.cli.measuring import Histogram, cpu_ns, is_local, listening_pid
from kourou.cli.output import rounded, show, show_facts, show_json
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.times import parse_span

if TYPE_CHECKING:
    from kourou.client import Client, Delivery, Producer

TOPIC = "KOUROU_BENCH"
GROUP = "KOUROU_BENCH"
MAGIC = b"KBEN"
STAMP = struct.Struct(">4s8sq")
"""The head of a body: magic, run id, and due time in ns of this machine's monotonic clock."""
ASSIGNED_SECONDS = 30.0
FAILURE_KINDS_MAX = 100
"""Different failure texts that are counted separately."""


class Work(StrEnum):
    """The measured operation."""

    SEND = "send"
    CONSUME = "consume"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Load:
    """The options of a run."""

    topic: str
    work: Work
    rate: float | None
    concurrency: int
    size: int
    seconds: float
    warmup: float
    queues: int
    keep: bool
    pids: Sequence[int]


def bench(
    topic: Annotated[
        str, typer.Argument(help="The topic; if it does not exist it is created, and deleted at the end.")
    ] = TOPIC,
    name_servers: NameServers = None,
    work: Annotated[
        Work, typer.Option(help="Send, consume a backlog, or both with the end-to-end latency.")
    ] = Work.BOTH,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Messages per second (default: as fast as possible).")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Sends in flight at a time.")] = 64,
    size: Annotated[int, typer.Option(min=STAMP.size, help="Size of a body in bytes.")] = 1024,
    duration: Annotated[str, typer.Option("--time", metavar="TIME", help="Duration: 10s, 5m.")] = "10s",
    warmup: Annotated[
        str | None, typer.Option(metavar="TIME", help="Warm-up before it, which is not counted (2s; to consume: 0s).")
    ] = None,
    queues: Annotated[int, typer.Option(min=1, help="Number of queues, if the topic is created.")] = 8,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete a topic that was created.")] = False,
    pid: Annotated[
        list[int] | None, typer.Option(help="Process id of a broker on this machine; can be repeated.")
    ] = None,
    as_json: JsonOutput = False,
    log_level: LogLevel = "error",
) -> None:
    """Measure the throughput, latency and CPU time per message of a broker."""
    seconds = parse_span(duration, "--time")
    warm = parse_span(warmup or ("0s" if work is Work.CONSUME else "2s"), "--warmup")
    load = Load(topic, work, rate, concurrency, size, seconds, warm, queues, keep, pid or [])
    run(lambda: until_stopped(_bench(name_servers, load, as_json=as_json)), log_level)


async def _bench(name_servers: str | None, load: Load, *, as_json: bool) -> None:
    from kourou.client import ProducerSettings

    settings = ProducerSettings(compress_from=None, retries=0, in_flight=load.concurrency)
    async with open_client(name_servers, producer=settings) as mq, _topic(mq, load) as brokers:
        pids = load.pids or await _pids(brokers)
        if not as_json:
            _say_what(load, brokers, pids)
        found = await _measured(mq, load, pids)
    _report(found, load, pids, as_json=as_json)


@asynccontextmanager
async def _topic(mq: "Client", load: Load) -> AsyncIterator[list[str]]:
    """The masters of the topic, which is created if it does not exist."""
    from kourou.client import NoRouteError
    from kourou.client.admin.requests import AdminRequests
    from kourou.protocol.errors import KourouError

    requests = AdminRequests(mq.session)
    made = False
    try:
        brokers = await requests.masters_of(load.topic)
    except NoRouteError:
        if load.work is Work.CONSUME:
            raise
        await mq.admin.topics.create(load.topic, queues=load.queues)
        made = True
        brokers = await _until_routed(requests, load.topic)
    try:
        yield brokers
    finally:
        if made and not load.keep:
            with suppress(KourouError):
                await mq.admin.topics.delete(load.topic)
        if load.work is not Work.SEND:
            with suppress(KourouError):
                await mq.admin.groups.delete(GROUP, with_offsets=True)
                await mq.admin.topics.delete(f"%RETRY%{GROUP}")


async def _until_routed(requests: Any, topic: str) -> list[str]:
    """Waits for a new topic's route: brokers before 5.0 register it with their next heartbeat. Raises NoRouteError."""
    import asyncio

    from kourou.client import NoRouteError

    until = time.monotonic() + ASSIGNED_SECONDS
    while True:
        try:
            found: list[str] = await requests.masters_of(topic)
            return found
        except NoRouteError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


async def _pids(brokers: list[str]) -> list[int]:
    import asyncio

    found = set()
    for address in brokers:
        host, _, port = address.rpartition(":")
        if is_local(host.strip("[]")) and (pid := await asyncio.to_thread(listening_pid, int(port))) is not None:
            found.add(pid)
    return sorted(found - {os.getpid()})


# ── Measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Measured:
    """Counts and latencies since a point in time."""

    started: float = field(default_factory=time.perf_counter)
    sent: int = 0
    consumed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    sending: Histogram = field(default_factory=Histogram)
    end_to_end: Histogram = field(default_factory=Histogram)
    client_cpu_ns: int = 0
    broker_cpu_ns: int = 0
    seconds: float = 0.0
    first_ns: int = 0  # when messages were consumed
    last_ns: int = 0


class Bench:
    """A run: senders and a consumer count in `now`, which is replaced when the warm-up ends."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.now = Measured()
        self.run_id = os.urandom(8)
        self._filler = os.urandom(load.size - STAMP.size)
        self._next_due = 0.0

    async def send(self, producer: "Producer") -> None:
        """One sender; runs until it is cancelled."""
        from kourou.protocol.errors import KourouError

        pack, filler, topic, run_id = STAMP.pack, self._filler, self.load.topic, self.run_id
        while True:
            due_ns = await self._due()
            try:
                await producer.send(topic, pack(MAGIC, run_id, due_ns) + filler)
            except KourouError as error:
                self._failed(str(error))
                await _breathe()
                continue
            now = self.now
            now.sent += 1
            now.sending.add(time.perf_counter_ns() - due_ns)

    def _failed(self, text: str) -> None:
        failures = self.now.failures
        failures[text if text in failures or len(failures) < FAILURE_KINDS_MAX else "other failures"] += 1

    async def _due(self) -> int:
        """Waits until the next message is due, if there is a rate. Returns its due time."""
        import asyncio

        if self.load.rate is None:
            return time.perf_counter_ns()
        now = time.perf_counter()
        due = self._next_due or now
        self._next_due = due + 1 / self.load.rate
        if due > now:
            await asyncio.sleep(due - now)
        return round(due * 1e9)

    async def consumed(self, messages: "list[Delivery]") -> None:
        now, time_ns = self.now, time.perf_counter_ns()
        now.consumed += len(messages)
        now.first_ns = now.first_ns or time_ns
        now.last_ns = time_ns
        for message in messages:
            body = message.record.body
            if len(body) >= STAMP.size:
                magic, run_id, due_ns = STAMP.unpack_from(body)
                if magic == MAGIC and run_id == self.run_id:
                    now.end_to_end.add(time_ns - due_ns)


async def _breathe() -> None:
    import asyncio

    await asyncio.sleep(0.05)  # do not retry in a tight loop when the broker refuses


async def _measured(mq: "Client", load: Load, pids: Sequence[int]) -> Measured:
    import asyncio

    bench = Bench(load)
    _begin(bench.now, pids)
    async with AsyncExitStack() as stack:
        if load.work is not Work.SEND:
            start: Literal["first", "last"] = "first" if load.work is Work.CONSUME else "last"
            listening = await mq.listen(
                load.topic, batch_listener=bench.consumed, group=GROUP, start=start, batch_size=32, pull_batch=32
            )
            stack.push_async_callback(listening.close)
            await _until_assigned(listening)
        senders = []
        if load.work is not Work.CONSUME:
            producer = mq.producer()
            senders = [asyncio.create_task(bench.send(producer)) for _ in range(load.concurrency)]
            stack.push_async_callback(_ended, senders)
        with suppress(asyncio.CancelledError):  # stopped early: show the measurement so far
            if load.warmup or load.work is not Work.CONSUME:
                await asyncio.sleep(load.warmup)
                _begin(started := Measured(), pids)
                bench.now = started
            await asyncio.sleep(load.seconds)
        now, bench.now = bench.now, Measured()
        now.seconds = time.perf_counter() - now.started
        if load.work is Work.CONSUME and now.last_ns > now.first_ns:
            now.seconds = (now.last_ns - now.first_ns) / 1e9  # the backlog may be consumed before the time is over
        now.client_cpu_ns += time.process_time_ns()
        now.broker_cpu_ns += _cpu_of(pids)
        return now


def _begin(measured: Measured, pids: Sequence[int]) -> None:
    measured.client_cpu_ns, measured.broker_cpu_ns = -time.process_time_ns(), -_cpu_of(pids)


async def _until_assigned(listening: Any) -> None:
    """Waits until the consumer has queues: messages that are sent earlier would not be consumed."""
    import asyncio

    until = time.monotonic() + ASSIGNED_SECONDS
    while not listening.consumer.assignment:
        if time.monotonic() > until:
            raise CommandError(
                f"no queue was assigned to the consumer within {ASSIGNED_SECONDS:g} s: are other members of group "
                f"{GROUP} running?"
            )
        await asyncio.sleep(0.05)


async def _ended(tasks: "list[Any]") -> None:
    import asyncio

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _cpu_of(pids: Sequence[int]) -> int:
    try:
        return sum(cpu_ns(pid) for pid in pids)
    except OSError as error:
        raise CommandError(f"the CPU time of process {', '.join(map(str, pids))} can't be read: {error}") from None


# ── Showing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _say_what(load: Load, brokers: list[str], pids: Sequence[int]) -> None:
    how = "as fast as possible" if load.rate is None else f"{load.rate:g} messages/s"
    cpu = (
        f"process {', '.join(map(str, pids))}" if pids else "not on this machine: no CPU time (--pid gives the process)"
    )
    show(f"{load.work.value} {load.topic}: {how}, {load.concurrency} at a time, {load.size} bytes, {load.seconds:g} s")
    show(f"brokers {', '.join(brokers)}: {cpu}", "")


def _report(found: Measured, load: Load, pids: Sequence[int], *, as_json: bool) -> None:
    """Shows the result. Raises CommandError if nothing was measured."""
    seconds = max(found.seconds, 1e-9)
    failed = sum(found.failures.values())
    messages = max(found.sent, found.consumed)
    facts: dict[str, object] = {"seconds": found.seconds}
    if load.work is not Work.CONSUME:
        facts |= {"sent": found.sent, "failed": failed, "sentPerSecond": found.sent / seconds}
        facts |= {"sentMBPerSecond": found.sent * load.size / seconds / 1e6, **found.sending.figures("send")}
    if load.work is not Work.SEND:
        facts |= {"consumed": found.consumed, "consumedPerSecond": found.consumed / seconds}
    if load.work is Work.BOTH:
        facts |= found.end_to_end.figures("endToEnd")
    if messages:
        if pids:
            facts |= {"brokerCpuUsPerMessage": found.broker_cpu_ns / 1000 / messages}
            facts |= {"brokerCpuPercent": found.broker_cpu_ns / 1e7 / seconds}
        facts |= {"clientCpuUsPerMessage": found.client_cpu_ns / 1000 / messages}
    if as_json:
        about = {"topic": load.topic, "work": load.work.value, "rate": load.rate, "concurrency": load.concurrency}
        show_json({**about, "size": load.size, **{name: rounded(value) for name, value in facts.items()}})
    else:
        show_facts(facts)
    for text, count in found.failures.most_common(3):
        show(f"kourou: {count} times: {text}", error=True)
    if not messages:
        raise CommandError("nothing was measured: no message was sent or consumed")
