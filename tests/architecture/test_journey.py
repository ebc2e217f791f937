"""A message makes the journeys of docs/journey-of-a-message.md: the calls are those of its tables, in their order."""

import asyncio
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kourou
from kourou.broker.lane import IS_COMPILED
from kourou.broker.machine import Broker
from kourou.client import Client, ClientSettings, ProducerSettings
from kourou.embedded import Embedded

PAGE = (Path(__file__).parents[2] / "docs" / "journey-of-a-message.md").read_text()
PATIENT = ClientSettings(request_timeout=60, producer=ProducerSettings(timeout=60))
NOT_IN_THE_LANE = ("Send.send", "MessageWriter.put", "Store.append")
BY_TIMER = {
    "Broker.step": "Broker.read",
    "Store.jobs": "Store.append",
    "Store.finished": "Store.jobs",
    "LongPolls.wake": "Store.take_arrived",
}
"""Functions that timers call as well: their calls count after the other one was called."""


def journey(title: str) -> list[tuple[str, str]]:
    """(function, module) of the table under this title, in order."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+\.\w+)` \| `([\w/]+)\.py` \|", section, re.MULTILINE)


class Spies:
    """Notes the first call of each function, in order, from `start` on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.set: set[str] = set()
        self._monkeypatch = monkeypatch

    def start(self) -> None:
        self.calls.clear()

    def watch(self, function: str, module: str) -> None:
        """A method of a compiled class can't be watched, and does not count."""
        owner, _, name = function.partition(".")
        kind = getattr(import_module(f"kourou.{module.replace('/', '.')}"), owner)
        try:
            self._monkeypatch.setattr(kind, name, self._noting(function, getattr(kind, name)))
        except TypeError:
            return
        self.set.add(function)

    def watch_lane(self, machine: Broker) -> None:
        lane = machine.lane
        assert lane is not None
        watched = SimpleNamespace(
            serve=self._noting("Lane.serve", lane.serve),
            dispatch=self._noting("Lane.dispatch", lane.dispatch),
            tables_may_change=lane.tables_may_change,
        )
        self._monkeypatch.setattr(machine, "lane", watched)
        self.set |= {"Lane.serve", "Lane.dispatch"}

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            is_due = name not in BY_TIMER or BY_TIMER[name] in self.calls
            if is_due and name not in self.calls:
                self.calls.append(name)
            return function(*args, **kwargs)

        return noted


async def travel(broker: Embedded, spies: Spies) -> None:
    """Send a message to a consumer that waits for it; calls are noted from the send on."""
    async with kourou.connect(broker.namesrv, settings=PATIENT) as mq:
        await mq.admin.topics.create("orders", queues=1)
        async with mq.consume("orders", group="billing", start="first") as consumer:
            await mq.send("orders", b"before")  # the route is known, the queue has its files
            first = await consumer.next(timeout=60)
            assert first is not None
            await first.ack()
            await long_poll(broker, mq)
            spies.start()
            await mq.send("orders", b"hello")
            message = await consumer.next(timeout=60)
            assert message is not None
            async with message.process():
                assert message.body == b"hello"


async def long_poll(broker: Embedded, mq: Client) -> None:
    """The consumer's pull has reached the broker and waits there."""
    polls = machine_of(broker).pull.polls
    async with asyncio.timeout(60):
        while ("orders", 0) not in polls.by_queue:
            await mq.admin.topics.stats("orders")


def machine_of(broker: Embedded) -> Broker:
    return broker.broker().process.machine


async def compare(title: str, spies: Spies, properties: dict[str, object], *, in_lane: bool) -> None:
    steps = journey(title)
    assert len(steps) > 5
    for function, module in steps:
        if not function.startswith("Lane."):
            spies.watch(function, module)
    async with Embedded(properties=properties) as broker:
        if in_lane:
            spies.watch_lane(machine_of(broker))
        else:
            machine_of(broker).lane = None
        await travel(broker, spies)
    wanted = [function for function, _ in steps if function in spies.set]
    assert [call for call in spies.calls if call in wanted] == wanted


async def test_by_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    await compare("By the general path", Spies(monkeypatch), {}, in_lane=False)


@pytest.mark.skipif(not IS_COMPILED, reason="the lane is compiled")
async def test_by_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    spies = Spies(monkeypatch)
    for function, module in journey("By the general path"):
        if function in NOT_IN_THE_LANE:
            spies.watch(function, module)
    await compare("By the lane", spies, {}, in_lane=True)
    served = spies.calls[: spies.calls.index("Consumer.offer")]
    assert not set(served) & set(NOT_IN_THE_LANE)


async def test_with_synchronous_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    properties: dict[str, object] = {"flushDiskType": "SYNC_FLUSH"}
    await compare("With synchronous flush", Spies(monkeypatch), properties, in_lane=False)
