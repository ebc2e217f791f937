"""`kourou top`: its figures, its screen, its keys, and a terminal that it gives back as it was."""

import asyncio
import io
import json
import os
import pty
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console
from tests.waiting import answered, wait_for
from typer.testing import CliRunner

from kourou.cli.main import app
from kourou.cli.top_facts import BrokerRow, Counter, Facts, GroupRow, Snapshot, TopicRow
from kourou.cli.top_view import View, age, count, screen
from kourou.client import Delivery, connect
from kourou.embedded import Embedded, EmbeddedThread

ESCAPE = "\x1b[31mred\u202e[bold]"
"""A name that would change the terminal, or the markup."""

BROKER = BrokerRow("broker-a", 0, "10.0.0.5:10911", "master", "V5_5_0", 4100.0, 4000.0, 0.61, "0 B", 0, 7)


def drawn(snapshot: Snapshot, view: View | None = None, width: int = 120, height: int = 30) -> str:
    into = io.StringIO()
    console = Console(file=into, width=width, height=height, color_system=None, highlight=False)
    console.print(screen(snapshot, view or View(), width, height))
    return into.getvalue()


def groups(*rows: tuple[str, int]) -> Snapshot:
    return Snapshot((BROKER,), tuple(GroupRow(name, "orders", lag, 41_000, 3, 1.0, 2.0) for name, lag in rows))


# ── What it looks like ──────────────────────────────────────────────────────────────────────────────────────────────


def test_problems_come_first_and_groups_by_their_lag() -> None:
    snapshot = replace(groups(("small", 5), ("large", 12_034)), problems=("large is 41 s behind",))
    lines = drawn(snapshot).splitlines()
    assert "brokers 1" in lines[0]
    assert lines[1].startswith("! large is 41 s behind")
    assert "4.1k" in lines[3] and "61%" in lines[3]
    body = "\n".join(lines)
    assert body.index("large ") < body.index("small ")
    assert "12.0k" in body and "41.0 s" in body


def test_keys() -> None:
    snapshot = groups(("a", 1), ("b", 2))
    snapshot = Snapshot(snapshot.brokers, snapshot.groups, (TopicRow("orders", 8, 900, 3.0),))
    view = View()
    assert "lag*" in drawn(snapshot, view)
    assert view.press("s")
    assert "behind*" in drawn(snapshot, view)
    assert view.press("\t")
    assert "messages" in drawn(snapshot, view) and "orders" in drawn(snapshot, view)
    assert view.press("p") and "paused" in drawn(snapshot, view)
    assert view.press("g") and view.press("unknown")
    assert not view.of_topics
    assert not view.press("q")


def test_a_narrow_terminal_has_fewer_columns_and_no_line_is_too_long() -> None:
    rows = [(f"group-with-a-very-long-name-{number:03d}", number) for number in range(100)]
    text = drawn(groups(*rows), width=60, height=20)
    assert max(map(len, text.splitlines())) <= 60
    assert len(text.splitlines()) <= 20
    assert "in flight" not in text and "lag" in text


def test_names_of_others_are_escaped() -> None:
    hostile = Snapshot(
        (BrokerRow(ESCAPE, 0, ESCAPE, "master", ESCAPE, error=ESCAPE),),
        (GroupRow(ESCAPE, ESCAPE, 1, 1, 1, 1.0, 1.0),),
        (TopicRow(ESCAPE, 1, 1, 1.0),),
        (f"slave {ESCAPE} is behind",),
    )
    for view in (View(), View(of_topics=True)):
        text = drawn(hostile, view, width=200)
        assert "\x1b" not in text and "\u202e" not in text
        assert "[bold]" in text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0, "0"), (999, "999"), (12_034, "12.0k"), (2.5e9, "2.5G")])
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert count(value) == text


def test_ages_have_one_unit() -> None:
    assert [age(ms) for ms in (None, 900, 90_000, 7_200_000, 172_800_000)] == [
        "-",
        "0.9 s",
        "1.5 min",
        "2.0 h",
        "2.0 d",
    ]


def test_a_counter_that_begins_again_has_no_rate() -> None:
    counter = Counter()
    counter.look(100, 1)
    assert counter.rate is None
    rates: list[float | None] = []
    for value, at in ((300, 3), (300, 5), (5, 6)):
        counter.look(value, at)
        rates.append(counter.rate)
    assert rates == [100, 0, None]


# ── What it asks ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_rates_are_differences_of_offsets() -> None:
    now = 0.0
    async with Embedded() as broker, connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=2)
        await mq.send_many("orders", [b"x"] * 10)
        async with mq.consume("orders", group="billing", start="first") as consumer:
            for _ in range(4):
                (await anext(consumer)).ack()
        facts = Facts(mq, clock=lambda: now + 1)

        async def is_committed() -> bool:
            progress = await mq.admin.groups.progress("billing")
            return progress.lag == 6

        await answered(is_committed)
        first = await facts.look()
        assert [(row.group, row.topic, row.lag, row.out_rate) for row in first.groups] == [
            ("billing", "orders", 6, None)
        ]
        await mq.send_many("orders", [b"x"] * 20)
        now = 10.0
        second = await facts.look()
    (group,) = second.groups
    (topic,) = [row for row in second.topics if row.topic == "orders"]
    assert (group.lag, group.in_rate, group.out_rate) == (26, 2.0, 0.0)
    assert (topic.messages, topic.in_rate) == (30, 2.0)
    (row,) = second.brokers
    assert (row.name, row.role, row.in_rate) == ("broker-a", "master", 2.0)
    assert not second.problems


async def test_a_broker_that_is_gone_is_a_problem() -> None:
    async with Embedded(brokers=2) as cluster, connect(cluster.namesrv) as mq:
        facts = Facts(mq)
        assert len((await facts.look()).brokers) == 2
        address = cluster.broker("broker-b").address
        await cluster.broker("broker-b").stop()

        async def is_alone() -> bool:
            found = await facts.look()
            return len(found.brokers) == 1 or any(address in text for text in found.problems)

        assert await answered(is_alone)


async def test_a_group_whose_first_messages_are_never_finished_has_a_lag() -> None:
    ended = asyncio.Event()

    async def hang(_: Delivery) -> None:
        await ended.wait()

    async with Embedded() as broker, connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        for _ in range(3):
            await mq.send("orders", b"x")
        await mq.listen("orders", hang, group="billing", start="first")
        facts = Facts(mq)

        async def lag() -> bool:
            rows = (await facts.look()).groups
            return [(row.lag, row.in_flight) for row in rows if (row.group, row.topic) == ("billing", "orders")] == [
                (3, 3)
            ]

        assert await answered(lag)
        ended.set()


# ── The command ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedThread() as broker:

        async def fill() -> None:
            async with connect(broker.namesrv) as mq:
                await mq.admin.topics.create("orders", queues=1)
                await mq.send("orders", b"x")

        asyncio.run(fill())
        yield broker.namesrv


def test_once_for_programs(namesrv: str) -> None:
    done = CliRunner().invoke(app, ["top", "-n", namesrv, "--once", "--json", "--interval", "0.2"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["brokers"][0]["role"] == "master"
    (orders,) = [row for row in found["topics"] if row["topic"] == "orders"]
    assert (orders["messages"], orders["in_rate"]) == (1, 0)


def test_once_for_people(namesrv: str) -> None:
    done = CliRunner().invoke(app, ["top", "-n", namesrv, "--once", "--topics", "--interval", "0.2"])
    assert done.exit_code == 0, done.output
    assert "broker-a" in done.stdout and "orders" in done.stdout


def test_without_a_terminal_it_says_what_to_do(namesrv: str) -> None:
    done = CliRunner().invoke(app, ["top", "-n", namesrv])
    assert done.exit_code == 2
    assert "--once" in done.output


def test_in_a_terminal(namesrv: str) -> None:
    """It draws, takes keys, and leaves the terminal as it found it."""
    child, descriptor = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        command = [sys.executable, "-m", "kourou", "top", "-n", namesrv, "--interval", "0.2"]
        os.execv(sys.executable, command)
    before = termios.tcgetattr(descriptor)
    seen = bytearray()
    os.set_blocking(descriptor, False)

    def shows(text: bytes) -> bool:
        with suppress(OSError):
            seen.extend(os.read(descriptor, 65536))
        return text in seen

    try:
        wait_for("the group table", lambda: shows(b"lag*"))
        os.write(descriptor, b"\t")
        wait_for("the topics", lambda: shows(b"orders"))
        os.write(descriptor, b"q")
        deadline = time.monotonic() + 30
        status = None
        while status is None and time.monotonic() < deadline:
            shows(b"")
            done, code = os.waitpid(child, os.WNOHANG)
            status = code if done else None
        assert status == 0
        child = 0
        assert termios.tcgetattr(descriptor)[3] & termios.ECHO == before[3] & termios.ECHO
    finally:
        if child:
            os.kill(child, 9)
            os.waitpid(child, 0)
        os.close(descriptor)
    assert b"\x1b[?1049l" in seen  # the screen from before is back
