"""Our Python client beside Apache's Java client, on the same broker (ours), in the same run.

CPU time of the client's process per message. A rate "on one core" is what that CPU time allows: messages per second of
CPU, whatever the broker and the rest of the machine left of the cores in the meantime.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from tests.interop.processes import Talker

from benchmarks.broker import load_client
from benchmarks.report import Bar, Result, table
from benchmarks.servers import process_cpu_ns, start_kourou_broker
from kourou.client import Client, ConsumerSettings, connect

BODY = b"x" * 128
PIPELINED_MIN = 30_000
CONSUMED_MIN = 100_000
ROUNDS = 3

ONE_BY_ONE, PIPELINED, BATCHED, CONSUMED = "send, one by one", "send_many, pipelined", "send_batch", "consume"
JAVA_SENT, JAVA_BATCHED, JAVA_CONSUMED = "16 threads", "batches of 32", "push consumer"


def run(options: argparse.Namespace) -> Result:
    """Raises MissingToolError if Java or Maven is missing, GaveUpError if a server does not start."""
    count = 10_000 if options.quick else 100_000
    result = Result("Python client, beside the Java client")
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        server = start_kourou_broker(Path(folder) / "broker", "ASYNC_FLUSH")
        try:
            ours = asyncio.run(_ours(server.address, count))
            with load_client(Path(folder) / "java") as talker:
                java = _java(talker, server.address, count, 2.0 if options.quick else 8.0)
        finally:
            server.stop()
    rows = [[f"Kourou: {name}", f"{us:.2f}", f"{1e6 / us:,.0f}"] for name, us in ours.items()]
    rows += [[f"Java: {name}", f"{us:.2f}", f"{1e6 / us:,.0f}"] for name, us in java.items()]
    result.text.append(table(["128 B a message", "client's CPU µs", "messages/s on one core"], rows))
    result.bars = [
        Bar("pipelined sends: CPU a message", ours[PIPELINED], 1e6 / PIPELINED_MIN, "µs"),
        Bar("consuming: CPU a message", ours[CONSUMED], 1e6 / CONSUMED_MIN, "µs"),
    ]
    result.data = {"ours": ours, "java": java}
    if options.quick:
        result.no_verdict = "a quick run is too short to be judged"
    return result


# ── Ours ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _ours(name_server: str, count: int) -> dict[str, float]:
    """CPU µs a message of each way, the median of some rounds."""
    figures: dict[str, list[float]] = {}
    async with connect(name_server) as mq:
        ways: dict[str, Callable[[Client, int], Awaitable[int]]] = {
            ONE_BY_ONE: _one_by_one,
            PIPELINED: _pipelined,
            BATCHED: _batched,
        }
        for name, way in ways.items():
            await way(mq, count // 20)
            for _ in range(ROUNDS):
                figures.setdefault(name, []).append(await _cost(way(mq, count)))
        for number in range(ROUNDS + 1):
            await _fill(mq, f"consumed-{number}", count)
            cost = await _cost(_consume(mq, f"consumed-{number}", count))
            if number:  # the first one warms up
                figures.setdefault(CONSUMED, []).append(cost)
    return {name: median(values) for name, values in figures.items()}


async def _cost(work: Awaitable[int]) -> float:
    started = time.process_time_ns()
    messages = await work
    return (time.process_time_ns() - started) / messages / 1000


async def _one_by_one(mq: Client, count: int) -> int:
    for _ in range(count // 10):
        await mq.send("one", BODY)
    return count // 10


async def _pipelined(mq: Client, count: int) -> int:
    for _ in range(count // 1000):
        await mq.send_many("many", [BODY] * 1000)
    return count // 1000 * 1000


async def _batched(mq: Client, count: int) -> int:
    for _ in range(count // 320):
        await mq.send_batch("batch", [BODY] * 320)
    return count // 320 * 320


async def _fill(mq: Client, topic: str, count: int) -> None:
    for _ in range(count // 500):
        await mq.send_batch(topic, [BODY] * 500)


async def _consume(mq: Client, topic: str, count: int) -> int:
    """A batch listener, as an application that needs speed uses it."""
    left = count // 500 * 500
    done = asyncio.Event()

    async def listen(messages: object) -> None:
        nonlocal left
        left -= len(messages)  # type: ignore[arg-type]
        if left <= 0:
            done.set()

    settings = ConsumerSettings(start="first", batch_size=32)
    listening = await mq.listen(topic, batch_listener=listen, group=f"group-{topic}", settings=settings)
    async with asyncio.timeout(120):
        await done.wait()
    await listening.close()
    return count // 500 * 500


# ── Java's ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _java(talker: Talker, name_server: str, count: int, seconds: float) -> dict[str, float]:
    """The same for the Java client, after all ways were tried for a while."""

    def ask(line: str) -> list[str]:
        talker.tell(line)
        how, *words = talker.line().split(" ")
        assert how == "ok", how
        return words

    def sent(threads: int, batch: int) -> float:
        before = process_cpu_ns(talker.pid)
        messages = int(ask(f"send ours load-{threads}-{batch} {threads} {batch} {len(BODY)} {seconds}")[0])
        return (process_cpu_ns(talker.pid) - before) / max(messages, 1) / 1000

    def drained(number: int) -> float:
        ask(f"fill ours java-{number} {3 * count} {len(BODY)}")
        talker.tell(f"drain ours java-{number} {count} {count}")
        assert talker.line() == "begin"
        before = process_cpu_ns(talker.pid)
        messages = int(talker.line().split(" ")[1])
        spent = process_cpu_ns(talker.pid) - before
        assert talker.line() == "ok"
        return spent / messages / 1000

    ask(f"server ours {name_server}")
    ways: dict[str, Callable[[int], float]] = {
        JAVA_SENT: lambda _: sent(16, 1),
        JAVA_BATCHED: lambda _: sent(4, 32),
        JAVA_CONSUMED: drained,
    }
    found: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            cost = way(number)
            if number:
                found.setdefault(name, []).append(cost)
    return {name: median(values) for name, values in found.items()}
