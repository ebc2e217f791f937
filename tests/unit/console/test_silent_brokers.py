"""One of two brokers does not answer: pages show what the other one says, and name the one that is missing."""

from contextlib import suppress

from tests.unit.console.conftest import MakePage, Page

import kourou
from kourou.net.errors import ConnectFailedError, TransportError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command


async def silence(page: Page, address: str) -> None:
    """The broker answers none of the next requests; nothing is known of it."""
    pacing = page.console.mq.session.settings.pacing
    assert pacing is not None
    with suppress(TransportError):  # it may be known already
        async with pacing.turn(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)):
            raise ConnectFailedError(f"no answer from {address}")
    page.console.facts.forget("ends", "topics", "groups", "progress", "connections", "topic groups", "runtime")


async def test_pages_show_what_the_other_broker_says(make_page: MakePage) -> None:
    async with kourou.embedded(brokers=2) as cluster, kourou.connect(cluster.namesrv) as mq:
        page = await make_page(cluster.namesrv)
        await mq.admin.topics.create("orders", queues=1)
        for number in range(4):
            await mq.send("orders", b"%d" % number)
        for queue in sorted(await mq.pull(group="billing").queues("orders")):
            await mq.admin.groups.create("billing")
            await mq.admin.groups.set_offset("billing", queue, 1)
        assert "without" not in await page.get("/api/groups/billing")
        address = cluster.broker("broker-a").address

        await silence(page, address)
        topic = await page.get("/api/topics/orders")
        assert (topic["without"], [one["broker"] for one in topic["queues"]]) == ([address], ["broker-b"])
        await silence(page, address)
        group = await page.get("/api/groups/billing")
        assert (group["without"], [one["broker"] for one in group["queues"]]) == ([address], ["broker-b"])
        await silence(page, address)
        messages = await page.get("/api/topics/orders/messages")
        assert (messages["without"], len(messages["messages"])) == ([address], 2)
        await silence(page, address)
        assert (await page.get("/api/groups"))["without"] == [address]
        await silence(page, address)
        assert (await page.get("/api/groups/nothing", 502))["code"] == "unreachable", "it may be known there"

        for method, path, body in (
            ("POST", "/api/groups/billing/reset", {"topic": "orders", "to": "first", "confirm": "billing"}),
            ("PATCH", "/api/groups/billing", {"consume_enable": False}),
            ("DELETE", "/api/groups/billing", {"confirm": "billing"}),
            ("PATCH", "/api/topics/orders", {"perm": "r"}),
        ):
            await silence(page, address)
            assert (await page.change(method, path, body, 502))["code"] == "unreachable", "on both brokers or on none"
        for one in (cluster.broker("broker-a"), cluster.broker("broker-b")):
            settings = (await mq.admin.groups.configs(one.address)).subscription_group_table["billing"]
            assert settings.consume_enable
        progress = await mq.admin.groups.progress("billing", "orders")
        assert [state.consumer_offset for state in progress.queues.values()] == [1, 1]
