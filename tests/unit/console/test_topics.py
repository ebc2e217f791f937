"""Overview and topics, on an embedded broker."""

import pytest
from tests.unit.console.conftest import MakePage, Page
from tests.waiting import answered

import kourou
from kourou.console.state import STATE_SECONDS
from kourou.console.views.overview import seconds_to_full
from kourou.console.watching import Watching
from kourou.embedded import Embedded


async def test_overview(broker: Embedded, page: Page) -> None:
    found = await page.get("/api/overview")
    (row,) = found["brokers"]
    assert (row["name"], row["role"], row["ok"], row["kourou"]) == ("broker-a", "master", True, True)
    assert row["address"] == broker.broker().address
    assert found["clusters"] == ["DefaultCluster"]
    assert found["problems"] == []
    assert (found["topics"], found["groups"], found["checked"]) == (0, 0, 0), "those of the system do not count"
    assert found["age_ms"] >= 0


async def test_problems_of_groups(broker: Embedded, page: Page) -> None:
    """They are known once a group was looked at, and not said again long after."""
    now = 1000.0
    console = page.console
    console.clock = lambda: now
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("%DLQ%billing", queues=1)
        await mq.send("%DLQ%billing", b"dead")
        await mq.admin.groups.create("billing")
    console.facts.forget("groups", "topics")
    assert (await page.get("/api/overview"))["checked"] == 0
    await Watching(console)._search_next()
    found = await page.get("/api/overview")
    assert (found["groups"], found["checked"]) == (1, 1)
    assert [(one["code"], one["args"]["count"]) for one in found["problems"]] == [("dead_letters", "1")]
    now += 2 * STATE_SECONDS
    found = await page.get("/api/overview")
    assert (found["checked"], found["problems"]) == (0, [])


def test_when_the_disk_is_full() -> None:
    runtime = {"commitLogDirCapacity": "Total : 10.0 GiB, Free : 1.0 GiB."}
    for grown, expected in ((0.0, None), (1024.0, None), (2.0**30, 3600.0)):
        log = [100 + grown * number / 11 for number in range(12)]
        assert seconds_to_full(runtime, [*log], 3600.0) == (None if expected is None else pytest.approx(expected))
    assert seconds_to_full("down", [1.0] * 20, 3600.0) is None


async def test_a_dead_broker_is_a_problem(broker: Embedded, page: Page) -> None:
    broker.broker().process.machine  # noqa: B018 - it runs
    await page.get("/api/overview")
    page.console.facts.forget("runtime")
    page.console.facts._kept = {key: kept for key, kept in page.console.facts._kept.items() if key[0] == "cluster"}
    await broker.broker().stop()
    found = await page.get("/api/overview")
    assert not found["brokers"][0]["ok"]
    assert found["problems"][0]["code"] == "broker_down"


async def test_nothing_answers(make_page: MakePage) -> None:
    page = await make_page()
    for path in ("/api/overview", "/api/topics", "/api/topics/orders"):
        assert (await page.get(path, 502))["code"] == "unreachable"


async def test_topics(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=2)
        await mq.admin.topics.create("bills", queues=1, attributes={"message.type": "FIFO"})
        for number in range(3):
            await mq.send("orders", b"%d" % number)
    found = await page.get("/api/topics")
    assert [(one["name"], one["type"], one["queues"]) for one in found["topics"]] == [
        ("bills", "FIFO", 1),
        ("orders", "UNSPECIFIED", 2),
    ]
    assert (await page.get("/api/topics", q="ORD"))["total"] == 1
    assert [one["name"] for one in (await page.get("/api/topics", offset=1, limit=1))["topics"]] == ["orders"]
    assert "SCHEDULE_TOPIC_XXXX" in [one["name"] for one in (await page.get("/api/topics", kind="system"))["topics"]]
    for wrong in ({"limit": "0"}, {"limit": "x"}, {"kind": "x"}, {"offset": "-1"}, {"q": "x" * 3000}):
        assert (await page.get("/api/topics", 400, **wrong))["code"] == "bad_request"

    async def stored() -> bool:
        figures = (await page.get("/api/topics/figures", names="orders,nothing"))["figures"]
        page.console.facts.forget("ends")
        assert figures["nothing"] is None
        return bool(figures["orders"]["messages"] == "3")

    await answered(stored)
    one = await page.get("/api/topics/orders")
    assert (one["messages"], one["perm"], len(one["queues"])) == ("3", "rw", 2)
    assert sum(int(queue["end"]) for queue in one["queues"]) == 3
    assert (await page.get("/api/topics/nothing", 404))["code"] == "not_found"


async def test_create_change_and_delete(page: Page) -> None:
    new = {"name": "orders", "queues": 2, "type": "NORMAL"}
    preview = await page.post("/api/topics", {**new, "preview": True})
    assert preview["preview"] == {"queues": 2, "brokers": ["broker-a"]}
    assert (
        preview["cli"] == "kourou admin updateTopic -c DefaultCluster -t orders -r 2 -w 2 -p 6 -a +message.type=NORMAL"
    )
    assert (await page.get("/api/topics"))["total"] == 0
    await page.post("/api/topics", new)
    assert [one["type"] for one in (await page.get("/api/topics"))["topics"]] == ["NORMAL"]
    assert (await page.post("/api/topics", new, 409))["code"] == "conflict"
    for wrong in ({"name": "a b"}, {"name": "x", "queues": 0}, {"name": "x", "perm": "q"}, {"name": "x", "type": "q"}):
        assert (await page.post("/api/topics", wrong, 400))["code"] == "bad_request"
    await page.change("PATCH", "/api/topics/orders", {"write_queues": 4, "read_queues": 4, "perm": "r"})
    one = await page.get("/api/topics/orders")
    assert (one["settings"][0]["write_queues"], one["perm"], one["type"]) == (4, "r", "NORMAL")
    gone = await page.change("DELETE", "/api/topics/orders", {"preview": True})
    assert (gone["preview"]["queues"], gone["confirm"]) == (4, "orders")
    assert (await page.change("DELETE", "/api/topics/orders", {"confirm": "order"}, 409))["code"] == "confirm_needed"
    await page.change("DELETE", "/api/topics/orders", {"confirm": "orders"})
    assert (await page.get("/api/topics"))["total"] == 0
    done = [(entry.action, entry.what, entry.ok) for entry in page.console.audit.newest(20) if entry.ok]
    assert done == [
        ("delete topic", "orders", True),
        ("change topic", "orders", True),
        ("create topic", "orders", True),
    ]


async def test_the_audit_log_has_failed_changes_but_no_previews(page: Page) -> None:
    """A dialog asks for a preview after each key."""
    wrong = {"name": "no spaces allowed", "queues": -1}
    await page.post("/api/topics", {**wrong, "preview": True}, 400)
    assert (await page.get("/api/audit"))["entries"] == []
    await page.post("/api/topics", wrong, 400)
    (entry,) = (await page.get("/api/audit"))["entries"]
    assert (entry["ok"], entry["action"]) == (False, "POST /api/topics")
