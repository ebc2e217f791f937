"""Groups in queues in which they have not committed an offset: their lag, and what a reset does."""

import asyncio

from tests.unit.console.conftest import MakePage, Page, until

import kourou
from kourou.client import Delivery
from kourou.client.admin.positions import position
from kourou.embedded import Embedded
from kourou.protocol.bodies import ProcessQueueInfo, TopicOffset
from kourou.protocol.message import MessageQueue

FAST = {"messageDelayLevel": "1s 1s 1s 1s 1s"}


async def test_a_group_whose_first_messages_are_never_finished_has_a_lag(broker: Embedded, page: Page) -> None:
    ended = asyncio.Event()

    async def hang(_: Delivery) -> None:
        await ended.wait()

    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        sent = [await mq.send("orders", b"%d" % number) for number in range(5)]
        await mq.listen("orders", hang, group="billing", start="first")
        found = await until(page, "/api/groups/billing", lambda found: found["lag"] == "5")
        (queue,) = [one for one in found["queues"] if one["topic"] == "orders"]
        assert (queue["committed"], queue["end"], queue["in_flight"]) == ("", "5", "5")
        assert 0 <= queue["lag_ms"] < 600_000 and found["topics"] == ["orders"]
        (journey,) = (await page.get(f"/api/journey/{sent[3].message_id}", topic="orders"))["groups"]
        assert (journey["state"], journey["before"]) == ("not_yet", "3")
        figures = await page.get("/api/groups/figures", names="billing")
        assert figures["figures"]["billing"]["lag"] == "5"
        path = "/api/groups/billing/reset"
        preview = await page.post(path, {"topic": "orders", "to": "end", "preview": True})
        assert (preview["preview"]["skipped"], [one["committed"] for one in preview["preview"]["queues"]]) == (
            "5",
            [""],
        )
        done = await page.post(path, {"topic": "orders", "to": "end", "confirm": "billing"})
        assert [one["target"] for one in done["done"]["queues"]] == ["5"]
        ended.set()


async def test_failed_messages_that_are_due_after_the_last_member_left(make_page: MakePage) -> None:
    async with kourou.embedded(properties=FAST) as broker, kourou.connect(broker.namesrv) as mq:
        page = await make_page(broker.namesrv)
        await mq.admin.topics.create("orders", queues=1)
        for _ in range(2):
            await mq.send("orders", b"bad")
        async with mq.consume("orders", group="billing", start="first") as consumer:
            for _ in range(2):
                message = await consumer.next(timeout=30)
                assert message is not None
                await message.retry()
        found = await until(page, "/api/groups/billing", lambda found: found["lag"] == "2" and not found["members"])
        assert int(found["retrying"]) >= 2  # more while the broker has not reported that they are due
        findings = (await page.get("/api/groups/billing/doctor"))["findings"]
        assert "retrying" in [one["code"] for one in findings]


async def test_a_reset_names_all_queues_that_it_changes(broker: Embedded, page: Page) -> None:
    """A broker resets all queues of a topic, whether the group has an offset in them or not."""
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=4)
        sent = [await mq.send("orders", b"%d" % number) for number in range(8)]
        await mq.admin.groups.create("billing")
        await mq.admin.groups.set_offset("billing", sent[0].queue, 1)
        for to in ("end", "first"):
            order = {"topic": "orders", "to": to}
            preview = await page.post("/api/groups/billing/reset", {**order, "preview": True})
            done = await page.post("/api/groups/billing/reset", {**order, "confirm": "billing"})
            places = [(one["queue"], one["target"]) for one in preview["preview"]["queues"]]
            assert len(places) == 4
            assert [(one["queue"], one["target"]) for one in done["done"]["queues"]] == places
            stored = await mq.admin.groups.progress("billing", "orders")
            assert [(queue.queue_id, f"{state.consumer_offset}") for queue, state in stored.queues.items()] == places


def test_the_position_in_a_queue_without_a_committed_offset() -> None:
    queue, again = MessageQueue("orders", "broker-a", 0), MessageQueue("%RETRY%billing", "broker-a", 0)
    end = TopicOffset(min_offset=10, max_offset=50)
    nothing, cached = ProcessQueueInfo(commit_offset=-1), ProcessQueueInfo(cached_msg_count=3, cached_msg_min_offset=20)
    assert position(queue, end, cached, starts_first=True) == 20
    assert position(queue, end, ProcessQueueInfo(commit_offset=30), starts_first=True) == 30
    assert position(queue, end, nothing, starts_first=True) == 10
    assert position(queue, end, nothing, starts_first=False) is None  # it may have started at the end
    assert position(queue, end, None, starts_first=False) is None
    assert position(queue, TopicOffset(min_offset=0, max_offset=50), None, starts_first=False) == 0
    assert position(again, end, None, starts_first=False) == 10
    assert position(queue, end, ProcessQueueInfo(commit_offset=99), starts_first=True) == 50
