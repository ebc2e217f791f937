"""The commands that dialogs show: each of them runs, and does what the dialog does."""

import asyncio
import base64
import shlex
from typing import Any

from tests.unit.console.conftest import Page
from typer.testing import CliRunner

import kourou
from kourou.cli.main import app
from kourou.embedded import Embedded


async def run(broker: Embedded, line: str) -> str:
    """Runs all commands of a line. Returns their output."""
    output = ""
    for one in line.split("; "):
        program, *words = shlex.split(one)
        assert program == "kourou"
        done = await asyncio.to_thread(CliRunner().invoke, app, words, env={"NAMESRV_ADDR": broker.namesrv})
        assert done.exit_code == 0, f"{one}: {done.output} {done.exception}"
        output += done.output
    return output


async def shown(page: Page, method: str, path: str, body: Any) -> str:
    line: str = (await page.change(method, path, {**body, "preview": True}))["cli"]
    return line


async def test_commands_for_topics(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await run(broker, await shown(page, "POST", "/api/topics", {"name": "orders", "queues": 2, "order": True}))
        page.console.facts.forget("topics")
        await run(broker, await shown(page, "PATCH", "/api/topics/orders", {"read_queues": 3, "write_queues": 3}))
        config = await mq.admin.topics.config("orders", broker.broker("broker-a").address)
        assert (config.read_queue_nums, config.perm, config.order) == (3, 6, True)
        await run(broker, await shown(page, "DELETE", "/api/topics/orders", {}))
        assert "orders" not in await mq.admin.topics.list()


async def test_commands_for_groups(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=2)
        sent = [await mq.send("orders", b"%d" % number) for number in range(4)]
        await run(broker, await shown(page, "POST", "/api/groups", {"name": "billing", "retry_max": 3}))
        page.console.facts.forget("groups")
        await run(broker, await shown(page, "PATCH", "/api/groups/billing", {"consume_enable": False}))
        config = await mq.admin.groups.config("billing", broker.broker("broker-a").address)
        assert (config.retry_max_times, config.consume_enable) == (3, False)
        await mq.admin.groups.set_offset("billing", sent[0].queue, 1)
        place = {"queue": sent[0].queue.queue_id, "broker": "broker-a"}
        for to, expected in (
            ({"to": "end"}, 4),
            ({"to": "first"}, 0),
            ({"to": "time", "time_ms": 2**42}, 4),
            ({"to": "first"}, 0),
            ({"to": "offset", "offset": "2", **place}, 2),
        ):
            await run(broker, await shown(page, "POST", "/api/groups/billing/reset", {"topic": "orders", **to}))
            progress = await mq.admin.groups.progress("billing", "orders")
            assert sum(state.consumer_offset for state in progress.queues.values()) == expected, to
        await run(broker, await shown(page, "DELETE", "/api/groups/billing", {"offsets": True}))
        assert "billing" not in await mq.admin.groups.list()


async def test_commands_that_send(broker: Embedded, page: Page) -> None:
    path = "/api/topics/orders/messages"
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=2)
        full = {"body": "-'a b'", "tag": "paid", "keys": ["k1"], "properties": {"city": "Lyon x"}, "ordering_key": "7"}
        await run(broker, await shown(page, "POST", path, full))
        await run(
            broker, await shown(page, "POST", path, {"body": "here", "keys": ["k2"], "broker": "broker-a", "queue": 1})
        )
        (first,) = await mq.admin.messages.by_key("orders", "k1")
        assert (first.body, first.tag, first.properties["city"]) == (b"-'a b'", "paid", "Lyon x")
        (second,) = await mq.admin.messages.by_key("orders", "k2")
        assert (second.body, second.queue_id) == (b"here", 1)
    assert "--delay 5000ms" in await shown(page, "POST", path, {"body": "later", "delay_ms": 5000})
    line = await shown(page, "POST", path, {"body": base64.b64encode(b"\xff").decode(), "encoding": "base64"})
    assert line == "echo /w== | base64 -d | kourou send orders"
    assert await shown(page, "POST", path, {"body": "x" * 5000}) == ""


async def test_commands_name_the_cluster(page: Page) -> None:
    line = await shown(page, "POST", "/api/acl/users", {"name": "bob", "password": "secret"})
    assert line == "kourou admin createUser -c DefaultCluster -u bob -p '***'"
    rule = {"subject": "User:bob", "resource": "Topic:orders", "actions": ["Pub"]}
    assert " -c DefaultCluster -s User:bob " in await shown(page, "POST", "/api/acl/rules", rule)
