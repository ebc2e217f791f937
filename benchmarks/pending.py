"""A million timed messages that wait: memory, start-up, and how late messages are delivered meanwhile.

    fill ─▶ memory ─▶ clean stop, start ─▶ kill -9, start ─▶ others become due, while plain and timed messages are sent

Memory is the anonymous memory of the process: the files are mapped, and are the page cache's. How late a message is, is
its store time in its real topic less the time that its sender asked for.
"""

import argparse
import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import Bar, Result, table
from benchmarks.servers import Server, start_kourou_broker
from kourou.client import Client, ConsumerSettings, Delivery, Message, connect

PENDING, QUICK_PENDING = 1_000_000, 50_000
MEMORY_LIMIT = 100
START_LIMIT_S = 3.0
LATE_LIMIT_MS = 50.0
BODY = b"x" * 128
DUE = 10_000
"""Timed messages whose delivery is measured."""

DUE_SECONDS = 10
LOAD_BATCH, LOAD_PAUSE_S = 100, 0.05
"""The load meanwhile: so many plain messages at once, and a pause."""

TIMED_LOAD_BATCH = 200
"""And so many timed messages at once, due in a day: more than the broker puts into the wheel in one go."""

FAR_S = 86_400
_SPREAD_S = 3_600


def run(options: argparse.Namespace) -> Result:
    """Raises GaveUpError when the broker does not start."""
    count = QUICK_PENDING if options.quick else PENDING
    result = Result(f"{count:,} timed messages that wait")
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        home = Path(folder) / "broker"
        server = start_kourou_broker(home, "ASYNC_FLUSH")
        try:
            asyncio.run(_fill(server.address, 1_000))
            before = _anonymous_bytes(server)
            asyncio.run(_fill(server.address, count))
            each = (_anonymous_bytes(server) - before) / count
            server.process.terminate()
            server.process.wait_end(60)
            server, clean_s = _start(home)
            server.stop()
            server, killed_s = _start(home)
            late = sorted(asyncio.run(_late(server.address)))
        finally:
            server.stop()
    p50, p99 = (late[int(len(late) * part)] for part in (0.5, 0.99))
    rows = [
        ["memory of a message", f"{each:.0f} bytes"],
        ["start after a clean stop", f"{clean_s:.2f} s"],
        ["start after kill -9", f"{killed_s:.2f} s"],
        ["late, p50", f"{p50} ms"],
        ["late, p99", f"{p99} ms"],
        ["late, at most", f"{late[-1]} ms"],
    ]
    result.text.append(table(["", "measured"], rows))
    result.bars = [
        Bar("memory of a message that waits", each, MEMORY_LIMIT, "bytes"),
        Bar("start after a clean stop", clean_s, START_LIMIT_S, "s"),
        Bar("start after kill -9", killed_s, START_LIMIT_S, "s"),
        Bar("late under load, p99", p99, LATE_LIMIT_MS, "ms"),
    ]
    result.data = {"bytes": each, "clean_s": clean_s, "killed_s": killed_s, "late_ms": late}
    if options.quick:
        result.no_verdict = "a quick run has too few messages"
    return result


def _start(home: Path) -> tuple[Server, float]:
    """The broker on the same store, and how long it took until it was ready."""
    began = time.monotonic()
    server = start_kourou_broker(home, "ASYNC_FLUSH", with_version=False)
    return server, time.monotonic() - began


def _anonymous_bytes(server: Server) -> int:
    text = Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.M)
    assert found is not None
    return int(found[1]) * 1024


def _timed(due_s: float) -> Message:
    return Message(body=BODY, deliver_at=datetime.fromtimestamp(due_s, UTC))


async def _fill(name_server: str, count: int) -> None:
    """Messages that are due in a day, each second some; until all of them are in the wheel."""
    async with connect(name_server) as mq:
        begin_s = time.time() + FAR_S
        for at in range(0, count, 1_000):
            due_s = begin_s + at * _SPREAD_S / PENDING
            await mq.send_many("waiting", [_timed(due_s + number / 1000) for number in range(1_000)])
        await _settled(mq)


async def _settled(mq: Client) -> None:
    """Until the broker has put all timed messages into the wheel."""
    cluster = await mq.admin.brokers.cluster()
    (broker,) = (data.broker_addrs[0] for data in cluster.broker_addr_table.values())
    while int((await mq.admin.brokers.runtime(broker))["timerOffsetBehind"]):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def _late(name_server: str) -> list[int]:
    """How late messages are delivered while others are sent, in milliseconds."""
    found: list[int] = []
    done = asyncio.Event()

    async def listen(messages: Sequence[Delivery]) -> None:
        found.extend(message.stored_ms - int(message.properties["TIMER_DELIVER_MS"]) for message in messages)
        if len(found) >= DUE:
            done.set()

    async def load(mq: Client) -> None:
        while not done.is_set():
            await mq.send_many("load", [BODY] * LOAD_BATCH)
            far_s = time.time() + FAR_S
            await mq.send_many("waiting", [_timed(far_s + number) for number in range(TIMED_LOAD_BATCH)])
            await asyncio.sleep(LOAD_PAUSE_S)

    async with connect(name_server) as mq:
        await mq.send("due", BODY)
        begin_s = time.time() + 3
        due = [_timed(begin_s + number * DUE_SECONDS / DUE) for number in range(DUE)]
        for at in range(0, DUE, 1_000):
            await mq.send_many("due", due[at : at + 1_000])
        settings = ConsumerSettings(start="last", batch_size=32)
        listening = await mq.listen("due", batch_listener=listen, group="late", settings=settings)
        async with asyncio.timeout(120):
            await asyncio.gather(load(mq), done.wait())
        await listening.close()
    return found
