"""Groups, the doctor, resets, the journey into the dead letters and back, live events, brokers and connections."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from tests.unit.console.conftest import MakePage, Page, until
from tests.waiting import answered

import kourou
from kourou.console import halves, retries
from kourou.embedded import Embedded
from kourou.protocol.bodies import SubscriptionGroupConfig

FAST = {"messageDelayLevel": "1s 1s 1s 1s 1s"}


def codes(found: Any) -> list[str]:
    return [one["code"] for one in found["findings"]]


async def test_groups_and_reset(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        for number in range(5):
            await mq.send("orders", b"%d" % number)
        async with mq.consume("orders", group="billing", start="first") as consumer:
            for _ in range(3):
                message = await consumer.next(timeout=30)
                assert message is not None
                await message.ack()
            found = await until(page, "/api/groups/billing", lambda found: bool(found["members"]))
            assert (found["kind"], found["model"], found["from_where"]) == ("push", "clustering", "first")
            (member,) = found["members"]
            detail = await page.get(f"/api/groups/billing/members/{quote(member['id'], safe='')}")
            assert [one["topic"] for one in detail["subscriptions"] if "%" not in one["topic"]] == ["orders"]
            assert (await page.get("/api/groups/billing/members/nobody", 404))["code"] == "not_found"
            assert "no_members" not in codes(await page.get("/api/groups/billing/doctor"))
    found = await until(page, "/api/groups/billing", lambda found: not found["members"] and found["lag"] == "2")
    assert found["topics"] == ["orders"]
    figures = await page.get("/api/groups/figures", names="billing,nothing")
    assert figures["figures"]["billing"]["lag"] == "2"
    (queue,) = [one for one in found["queues"] if one["topic"] == "orders"]
    assert (queue["committed"], queue["end"], queue["lag"]) == ("3", "5", "2")
    assert queue["lag_ms"] is not None and queue["lag_ms"] >= 0
    assert codes(await page.get("/api/groups/billing/doctor")) == ["no_members"]
    assert [one["name"] for one in (await page.get("/api/groups", q="bill"))["groups"]] == ["billing"]
    assert "TOOLS_CONSUMER" not in [one["name"] for one in (await page.get("/api/groups"))["groups"]]
    assert "TOOLS_CONSUMER" in [one["name"] for one in (await page.get("/api/groups", kind="all"))["groups"]]
    path = "/api/groups/billing/reset"
    preview = await page.post(path, {"topic": "orders", "to": "first", "preview": True})
    assert (preview["preview"]["again"], preview["preview"]["skipped"], preview["confirm"]) == ("3", "0", "billing")
    assert "resetOffsetByTime -g billing -t orders" in preview["cli"]
    assert (await page.post(path, {"topic": "orders", "to": "first"}, 409))["code"] == "confirm_needed"
    await page.post(path, {"topic": "orders", "to": "first", "confirm": "billing"})
    await until(page, "/api/groups/billing", lambda found: found["lag"] == "5")
    one = {"topic": "orders", "to": "offset", "queue": 0, "offset": "4", "confirm": "billing"}
    await page.post(path, one)
    await until(page, "/api/groups/billing", lambda found: found["lag"] == "1")
    assert (await page.post(path, {**one, "offset": "6"}, 400))["code"] == "bad_request"
    skipped = await page.post("/api/groups/billing/skip", {"topic": "orders", "confirm": "billing"})
    assert skipped["done"]["skipped"] == "1"
    await until(page, "/api/groups/billing", lambda found: found["lag"] == "0")
    assert (await page.post(path, {"topic": "nothing", "to": "end"}, 404))["code"] == "not_found"


async def test_settings_of_groups(page: Page) -> None:
    await page.post("/api/groups", {"name": "billing", "retry_max": 3})
    (row,) = (await page.get("/api/groups", q="billing"))["groups"]
    assert (row["retry_max"], row["consume_enable"]) == (3, True)
    await page.change("PATCH", "/api/groups/billing", {"consume_enable": False})
    (row,) = (await page.get("/api/groups", q="billing"))["groups"]
    assert (row["retry_max"], row["consume_enable"]) == (3, False)
    assert codes(await page.get("/api/groups/billing/doctor")) == ["no_members", "consume_disabled"]
    await page.change("DELETE", "/api/groups/billing", {"confirm": "billing"})
    assert (await page.get("/api/groups", q="billing"))["total"] == 0


async def test_the_journey_into_the_dead_letters_and_back(make_page: MakePage) -> None:
    async with kourou.embedded(properties=FAST) as broker, kourou.connect(broker.namesrv) as mq:
        page = await make_page(broker.namesrv)
        await mq.admin.topics.create("orders", queues=1)
        await mq.admin.groups.create("billing", config=SubscriptionGroupConfig(retry_max_times=2))
        sent = await mq.send("orders", b"bad", tag="paid", keys=["42"])
        path = f"/api/journey/{sent.message_id}"

        async def billing(state: str) -> Any:
            def is_so(found: Any) -> bool:
                return [one["state"] for one in found["groups"] if one["group"] == "billing"] == [state]

            found = await until(page, path, is_so, topic="orders")
            return next(group for group in found["groups"] if group["group"] == "billing")

        async with mq.consume("orders", group="billing", start="first", retries=2) as consumer:
            for times in range(3):
                message = await consumer.next(timeout=30)
                assert message is not None and message.reconsume_times == times
                await message.retry()
            dead = await billing("dead")
            assert [one["ok"] for one in dead["attempts"]] == [False, False, False]
            assert [one["level"] for one in dead["attempts"]][:2] == [3, 4]
            letters = await until(page, "/api/dead/billing", lambda found: bool(found["messages"]))
            (letter,) = letters["messages"]
            assert (letter["origin"]["topic"], letter["redriven"], letters["count"]) == ("orders", None, "1")
            from_letter = await page.get(f"/api/journey/{letter['id']}", topic=letter["topic"])
            assert from_letter["message"]["topic"] == "orders"
            assert [one["state"] for one in from_letter["groups"]] == ["dead"]
            assert [one["group"] for one in (await page.get("/api/dead"))["groups"]] == ["billing"]
            order = {"target": "retry", "rate": 1000}
            preview = await page.post("/api/dead/billing/redrive", {**order, "preview": True})
            assert preview["preview"]["to"] == {"%RETRY%billing": 1}
            assert (await page.post("/api/dead/billing/redrive", order, 409))["code"] == "confirm_needed"
            done = await page.post("/api/dead/billing/redrive", {**order, "confirm": "billing"})
            job = await until(page, f"/api/jobs/{done['done']['job']}", lambda found: found["state"] != "running")
            assert (job["state"], job["sent"], job["failed"]) == ("done", 1, 0)
            message = await consumer.next(timeout=30)
            assert message is not None
            assert (message.body, message.message_id, message.topic) == (b"bad", sent.message_id, "orders")
            assert message.properties["REDRIVE_ID"] == job["id"]
            assert message.properties["REDRIVE_FROM"].startswith("%DLQ%billing/broker-a/0/0")
            await message.ack()
        assert (await billing("consumed"))["redriven"][0]["id"] == job["id"]
        again = await page.post("/api/dead/billing/redrive", {**order, "confirm": "billing"}, 409)
        assert again["code"] == "conflict"
        (letter,) = (await page.get("/api/dead/billing"))["messages"]
        assert letter["redriven"] == job["id"]
        assert [one["id"] for one in (await page.get("/api/jobs"))["jobs"]] == [job["id"]]


async def test_failed_messages_that_wait_are_seen(broker: Embedded, page: Page) -> None:
    """There is no lag, neither in the topic nor in the retry topic, and yet every message fails."""
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        for number in range(3):
            await mq.send("orders", b"%d" % number)
        await mq.send("orders", b"another", delay_level=10)
        async with mq.consume("orders", group="billing", start="first") as consumer:
            for _ in range(3):
                message = await consumer.next(timeout=30)
                assert message is not None
                await message.retry(delay_level=15)
            found = await until(page, "/api/groups/billing", lambda found: found["retrying"] == "3")
            assert (found["lag"], found["retrying_is_least"]) == ("0", False)
            findings = (await page.get("/api/groups/billing/doctor"))["findings"]
            assert [one["code"] for one in findings] == ["retrying"]
            assert findings[0]["args"]["count"] == "3"
            assert findings[0]["text"].startswith("3 messages failed")
            page.console.facts.forget("waiting retries")
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(retries, "RECORDS_MAX", 1)
                text = (await page.get("/api/groups/billing/doctor"))["findings"][0]["text"]
            assert "at least" in text or "were not examined" in text


async def test_a_message_that_waits(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        sent = await mq.send("orders", b"later", delay_level=10)
    found = await until(
        page, f"/api/journey/{sent.message_id}", lambda found: found["held"] is not None, topic="orders"
    )
    assert found["held"]["kind"] == "delayed"
    assert found["held"]["due_ms"] - found["message"]["stored_ms"] == 6 * 60_000
    levels = await until(page, "/api/delayed", lambda found: any(one["waiting"] == "1" for one in found["levels"]))
    assert [(one["level"], one["delay"], one["next_ms"]) for one in levels["levels"]] == [
        (10, "6m", found["held"]["due_ms"])
    ]
    (one,) = (await page.get("/api/delayed/messages"))["messages"]
    assert (one["real_topic"], one["due_ms"]) == ("orders", found["held"]["due_ms"])
    assert (await page.get("/api/half"))["messages"] == []


async def test_timed_messages(broker: Embedded, page: Page) -> None:
    assert (await page.get("/api/delayed/timed"))["messages"] == []
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b"in an hour", delay=timedelta(hours=1))
        first = time.time() * 1000
    found = await until(page, "/api/delayed/timed", lambda found: len(found["messages"]) == 1)
    (one,) = found["messages"]
    journey = await page.get(f"/api/journey/{one['id']}", topic=one["topic"])
    assert (journey["held"]["kind"], journey["held"]["due_ms"]) == ("timed", one["due_ms"])
    assert one["real_topic"] == "orders" and abs(one["due_ms"] - first - 3_600_000) < 60_000
    found = await until(page, "/api/delayed", lambda found: found["timed"][0]["topics"] != {})
    assert (found["timed"][0]["count"], found["timed"][0]["topics"]) == ("1", {"orders": "1"})


async def test_a_half_message_that_was_stored_again(make_page: MakePage) -> None:
    """Its producer was asked: the check has passed the older copy, and the newest one alone is open."""
    settings = {"transactionTimeOut": "1", "transactionCheckInterval": "1000"}
    async with kourou.embedded(properties=settings) as broker, kourou.connect(broker.namesrv) as mq:
        page = await make_page(broker.namesrv)
        await mq.admin.topics.create("orders", queues=1)
        async with mq.transaction("orders", group="tx") as tx:
            await tx.send(b"open")

            def are_told(found: Any) -> bool:
                states = [one["open"] for one in found["messages"]]
                return len(states) > 1 and states == [True] + [False] * (len(states) - 1)

            await until(page, "/api/half", are_told)


async def test_half_messages(broker: Embedded, page: Page) -> None:
    """Those that were committed or rolled back are told from open ones."""
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        for body in (b"committed", b"back"):
            async with mq.transaction("orders", group="tx") as tx:
                await tx.send(body)
                if body == b"back":
                    await tx.rollback()
        async with mq.transaction("orders", group="tx") as tx:
            await tx.send(b"open")

            def are_told(found: Any) -> bool:
                return [one["open"] for one in found["messages"]] == [True, False, False]

            found = await until(page, "/api/half", are_told)
            assert [one["body"]["text"] for one in found["messages"]] == ["open", "back", "committed"]
            assert {(one["real_topic"], one["group"]) for one in found["messages"]} == {("orders", "tx")}
            held = []
            for one in found["messages"]:
                journey = await page.get(f"/api/journey/{one['id']}", topic=one["topic"])
                held.append(None if journey["held"] is None else journey["held"]["kind"])
            assert held == ["half", "ended", None]
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(halves, "RECORDS_MAX", 0)
                unknown = (await page.get("/api/half"))["messages"]
            assert [one["open"] for one in unknown] == [None, None, None]


async def test_brokers_clients_and_search(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.send("orders", b"x")
        await until(page, "/api/clients", lambda found: found["total"] > 0)
    address = broker.broker().address
    one = await page.get(f"/api/brokers/{address}")
    settings = {setting["key"]: setting["value"] for setting in one["config"]}
    assert settings["brokerName"] == "broker-a"
    assert (await page.get("/api/brokers/10.0.0.1:10911", 404))["code"] == "not_found"
    change = {"settings": {"bulkReadRatio": "71"}}
    path = f"/api/brokers/{address}/config"
    preview = await page.change("PATCH", path, {**change, "preview": True})
    assert [one["to"] for one in preview["preview"]["changes"]] == ["71"]
    await page.change("PATCH", path, {**change, "confirm": "broker-a"})
    settings = {setting["key"]: setting["value"] for setting in (await page.get(f"/api/brokers/{address}"))["config"]}
    assert settings["bulkReadRatio"] == "71"
    wrong = {"settings": {"a b": "c"}, "confirm": "broker-a"}
    assert (await page.change("PATCH", path, wrong, 400))["code"] == "bad_request"
    assert {hit["kind"] for hit in (await page.get("/api/search", q="broker"))["hits"]} >= {"broker"}
    hit = {"kind": "topic", "name": "orders", "link": "/topics/orders"}
    await until(page, "/api/search", lambda found: hit in found["hits"], q="ord")
    acl = await page.get("/api/acl")
    assert not acl["on"] and acl["reason"]


async def events(page: Page, path: str, wanted: int) -> list[tuple[str, Any]]:
    """So many events of a stream."""
    from kourou.console.routes.events import KINDS, SHOWS
    from kourou.console.streams import Stream, watches_of

    cookie = page.http.cookies[page.console.cookie]
    viewer = page.console.sessions.viewer(cookie)
    assert viewer is not None
    stream = Stream(page.console, viewer, cookie, watches_of(path, KINDS), "", SHOWS).run()
    found: list[tuple[str, Any]] = []
    async for raw in stream:
        if raw.startswith(b"event: "):
            name, _, data = raw.decode().removeprefix("event: ").partition("\ndata: ")
            found.append((name, json.loads(data)))
            if len(found) == wanted:
                break
    await stream.aclose()
    assert page.console.streams == 0
    return found


async def test_events(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        found = dict(await events(page, "overview,topic%3Aorders,group:nothing", 4))
        assert found["overview"]["brokers"][0]["ok"]
        assert found["topic%3Aorders"]["name"] == "orders"
        assert (found["error"]["code"], found["error"]["watch"]) == ("not_found", "group:nothing")

        async def keep_sending() -> None:
            while True:
                await mq.send("orders", b"live")
                await asyncio.sleep(0.05)

        sending = asyncio.create_task(keep_sending())
        try:
            _, (name, tail) = await asyncio.wait_for(events(page, "tail:orders", 2), 60)
        finally:
            sending.cancel()
        assert name == "tail"
        assert tail["messages"][0]["body"]["text"] == "live"
        assert (tail["dropped"], tail["matched"]) == (0, len(tail["messages"]))
    for wrong in ("", "x", "tail", "topic:", ",".join(["overview"] * 9)):
        assert (await page.get("/events", 400, watch=wrong))["code"] == "bad_request"


async def test_the_search_for_problems(broker: Embedded, page: Page) -> None:
    from kourou.console.watching import Watching

    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("%DLQ%billing", queues=1)
        await mq.admin.groups.create("billing")
        await mq.send("%DLQ%billing", b"dead")
        page.console.overview_looked()
        watching = asyncio.create_task(Watching(page.console).run())

        async def problems() -> Any:
            found = await page.get("/api/overview")
            return found if found["problems"] and found["history"]["times"] else None

        found = await answered(problems)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert [one["code"] for one in found["problems"]] == ["dead_letters"]
        assert found["problems"][0]["link"] == "/dead/billing"


async def test_a_message_is_linked_to_its_trace(broker: Embedded, page: Page) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        sent = [
            await mq.send("orders", b"1", properties={"traceparent": text})
            for text in (f"00-{trace}-00f067aa0ba902b7-01", 'x" onload="')
        ]
    links = []
    for template in (None, "https://traces/{trace_id}?x=1"):
        page.console.trace_url = template
        links += [(await page.get(f"/api/journey/{one.message_id}", topic="orders"))["trace_url"] for one in sent]
    assert links == [None, None, f"https://traces/{trace}?x=1", None]
