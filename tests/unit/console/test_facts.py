"""Answers that are shared: how old they may be is up to each reader, and rates count from when they were asked for."""

import asyncio

from tests.unit.console.conftest import MakePage, Page
from tests.waiting import answered

import kourou
from kourou.console.errors import ConsoleError
from kourou.console.facts import FAILURE_SECONDS, Facts
from kourou.embedded import Embedded


class Source:
    """A fact that is another one each time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.count = 0
        self.error: Exception | None = None

    async def ask(self) -> int:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self.count


async def test_each_reader_says_how_old_an_answer_may_be(make_page: MakePage) -> None:
    source = Source()
    facts = Facts((await make_page()).console.mq, lambda: source.now)
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 1
    source.now += 2
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 1
    assert (await facts.get(("x",), 1.5, source.ask))[0] == 2, "one that is kept for others is too old for this reader"
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 2
    source.now += 8
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 3


async def test_failures_are_kept_for_a_short_time(make_page: MakePage) -> None:
    source = Source()
    source.error = ConsoleError("busy", "later")
    facts = Facts((await make_page()).console.mq, lambda: source.now)
    for wait, asked in ((0.0, 1), (FAILURE_SECONDS / 2, 1), (FAILURE_SECONDS, 2)):
        source.now += wait
        outcome = (await asyncio.gather(facts.get(("x",), 60.0, source.ask), return_exceptions=True))[0]
        assert isinstance(outcome, ConsoleError) and source.count == asked


async def test_a_glance_does_not_wait(make_page: MakePage) -> None:
    source = Source()
    facts = Facts((await make_page()).console.mq, lambda: source.now)
    assert facts.glance(("x",), 8.0, source.ask) is None
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 1, "the request that is under way"
    source.now += 9
    assert facts.glance(("x",), 8.0, source.ask) == 1
    assert (await facts.get(("x",), 8.0, source.ask))[0] == 2


async def test_rates_of_answers_that_are_shared(broker: Embedded, page: Page) -> None:
    """Many looks at one answer neither bring the rate to nothing nor double it."""
    now = 1000.0
    page.console.facts._clock = lambda: now

    async def rate() -> float | None:
        found: float | None = (await page.get("/api/topics/figures", names="orders"))["figures"]["orders"]["rate"]
        return found

    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        assert await rate() is None
        for number in range(20):
            await mq.send("orders", b"%d" % number)

        async def are_visible() -> bool:
            return sum(end.max_offset for end in (await mq.admin.topics.stats("orders")).values()) == 20

        await answered(are_visible)
    seen = []
    for _ in range(4):
        now += 4.0
        seen.append(await rate())
    assert seen == [None, 2.5, 2.5, 0.0], "8 s lie between two answers"


async def test_topics_say_how_many_groups_read_them(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        sent = await mq.send("orders", b"1")
        await mq.admin.groups.create("billing")
        await mq.admin.groups.set_offset("billing", sent.queue, 1)

    async def groups() -> bool:
        found = (await page.get("/api/topics/figures", names="orders"))["figures"]["orders"]
        return bool(found["groups"] == 1)

    await answered(groups)


async def test_an_answer_from_before_a_change_is_not_kept(make_page: MakePage) -> None:
    """A request is under way when something changes: its answer may be from before or after."""
    facts = Facts((await make_page()).console.mq)
    changed = asyncio.Event()
    names = ["orders"]

    async def ask() -> list[str]:
        found = list(names)
        await changed.wait()
        return found

    before = asyncio.create_task(facts.get(("topics",), 60.0, ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    names.append("payments")
    facts.forget("topics")
    after = asyncio.create_task(facts.get(("topics",), 60.0, ask))
    await asyncio.sleep(0)
    changed.set()
    assert (await before)[0] == ["orders"]
    assert (await after)[0] == ["orders", "payments"]
    assert (await facts.get(("topics",), 60.0, ask))[0] == ["orders", "payments"]
