"""Redriving many dead letters, and chosen ones, on an embedded broker."""

import asyncio
import os
from typing import Any

import pytest
from tests.unit.console.conftest import Page, until
from tests.waiting import answered

import kourou
from kourou.console import letters, limits, scanning
from kourou.embedded import Embedded
from kourou.protocol.message import MessageQueue

PATH = "/api/dead/billing/redrive"


async def fill(broker: Embedded, page: Page, count: int) -> None:
    """So many dead letters of the topic orders, in two queues; every tenth has the tag `tenth`."""
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.admin.topics.create("%RETRY%billing", queues=1)
        await mq.admin.topics.create("%DLQ%billing", queues=2)
        for queue in await mq.pull(group="TOOLS_CONSUMER").queues("%DLQ%billing"):
            for number in range(count // 2):
                properties = {"RETRY_TOPIC": "orders"}
                message = kourou.Message(body=b"%d" % number, tag="tenth" if number % 10 == 0 else "", properties={})
                await send_letter(mq, queue, message, properties)
    await until(page, "/api/dead/billing", lambda found: found["count"] == str(count))


async def send_letter(mq: kourou.Client, queue: Any, message: kourou.Message, properties: dict[str, str]) -> None:
    """A message with properties that only brokers set."""
    from kourou.client.outgoing import Draft
    from kourou.protocol import properties as encoding

    key = f"{queue.queue_id}-{message.body.decode()}"
    named = {**properties, "UNIQ_KEY": key, "WAIT": "true", **({"TAGS": message.tag} if message.tag else {})}
    text = encoding.encode(named)
    draft = Draft("%DLQ%billing", message.body, 0, 0, text, key, len(message.body), key, tag=message.tag or "")
    await mq.producer().send_draft(draft, lambda _: queue)


async def ended(page: Page, job: str) -> Any:
    async def look() -> Any:
        found = await page.get(f"/api/jobs/{job}")
        return found if found["state"] != "running" else None

    return await answered(look)


async def test_all_are_redriven_beyond_the_bound_of_a_search(
    broker: Embedded, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted before is a part, and says so; the job takes all. Times are null, as the pages send them."""
    await fill(broker, page, 120)
    monkeypatch.setattr(scanning, "SCAN_MAX", 50)
    order = {"rate": limits.REDRIVE_RATE_MAX, "from": None, "to": None, "only": None, "q": ""}
    preview = (await page.post(PATH, {**order, "preview": True}))["preview"]
    assert not preview["complete"] and preview["of"] == "120"
    assert 0 < int(preview["count"]) == int(preview["read"]) < 120
    done = await page.post(PATH, {**order, "confirm": "billing"})
    job = await ended(page, done["done"]["job"])
    assert (job["state"], job["sent"], job["failed"], job["total"], job["is_least"]) == ("done", 120, 0, 120, False)
    monkeypatch.undo()
    after = (await page.post(PATH, {**order, "preview": True}))["preview"]
    assert (after["complete"], after["count"], after["before"]) == (True, "0", "120")
    refused = await page.post(PATH, {**order, "confirm": "billing"}, 409)
    assert "redriven before" in refused["remedy"]


async def test_the_newest_are_ticked(broker: Embedded, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read where they are: nothing is searched, so no bound is reached."""
    await fill(broker, page, 200)
    monkeypatch.setattr(scanning, "SCAN_MAX", 1)
    only = [{"broker": "broker-a", "queue": 1, "offset": str(offset)} for offset in (99, 98, 55)]
    gone = {"broker": "broker-a", "queue": 0, "offset": "5000"}
    order = {"rate": 1000, "from": None, "to": None, "only": [*only, gone]}
    preview = await page.post(PATH, {**order, "preview": True})
    counts = preview["preview"]
    assert (counts["count"], counts["missing"], counts["complete"]) == ("3", "1", True)
    assert counts["to"] == {"%RETRY%billing": 3}
    assert preview["cli"] == "", "no command takes ticked letters"
    done = await page.post(PATH, {**order, "confirm": "billing"})
    job = await ended(page, done["done"]["job"])
    assert [(one["queue"], one["offset"], one["ok"]) for one in job["results"]] == [
        (1, "55", True),
        (1, "98", True),
        (1, "99", True),
    ]
    nothing = await page.post(PATH, {**order, "only": [gone], "confirm": "billing"}, 409)
    assert "no longer stored" in nothing["remedy"]
    for wrong in ({**gone, "broker": "x"}, {**gone, "queue": 7}, {**gone, "offset": "-1"}):
        assert (await page.post(PATH, {**order, "only": [wrong], "preview": True}, 400))["code"] == "bad_request"


async def test_the_command_has_the_choice(broker: Embedded, page: Page) -> None:
    await fill(broker, page, 20)
    order = {"rate": 5, "target": "origin", "preview": True}
    head = "kourou pipeline dlq redrive billing --target origin --state DIR"
    for more, expected in (
        ({}, f"{head} --rate 5"),
        ({"from": "1000", "to": "2000"}, f"{head} --since 1000 --until 2001 --rate 5"),
        ({"q": "key:a"}, f"{head} --key a --rate 5"),
        ({"q": "tag:tenth"}, ""),
        ({"again": True}, ""),
    ):
        assert (await page.post(PATH, {**order, **more}))["cli"] == expected
    tenth = (await page.post(PATH, {**order, "q": "tag:tenth"}))["preview"]
    assert (tenth["count"], tenth["to"]) == ("2", {"orders": 2})
    assert (await page.post(PATH, {**order, "rate": 1001}, 400))["code"] == "bad_request"


async def test_a_job_keeps_no_letters(broker: Embedded, page: Page) -> None:
    """It reads them a page at a time, and no search waits for the gate while it sends."""
    await fill(broker, page, 60)
    done = await page.post(PATH, {"rate": 0.5, "confirm": "billing"})
    job = page.console.jobs.get(done["done"]["job"])

    async def started() -> bool:
        return job.sent > 0

    await answered(started)
    assert not page.console.scan_gate.locked() and page.console.scan_gate._value == limits.SCANS_MAX
    await page.change("DELETE", f"/api/jobs/{job.id}")
    assert (await ended(page, job.id))["state"] == "stopped"


def test_runs_of_places() -> None:
    first, second = (MessageQueue("t", "b", number) for number in (0, 1))
    places = [(first, 1), (first, 2), (first, 32), (first, 33), (first, 500), (second, 1)]
    assert list(letters.runs(places)) == [(first, [1, 2, 32]), (first, [33]), (first, [500]), (second, [1])]
    assert list(letters.runs([])) == []


async def test_a_page_keeps_so_many_bytes(broker: Embedded, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies: a page of a search ends early, and all pages together have all messages, once."""
    monkeypatch.setattr(scanning, "PAGE_BYTES_MAX", 100_000)
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("large", queues=2)
        await asyncio.gather(*(mq.send("large", os.urandom(20_000), keys=[str(number)]) for number in range(100)))
    path = "/api/topics/large/messages"
    await until(page, path, lambda found: found["of"] == "100")
    for order in ("newest", "oldest"):
        seen: list[str] = []
        cursor: str | None = ""
        pages = 0
        while cursor is not None:
            found = await page.get(path, order=order, limit=100, cursor=cursor)
            seen += [key for one in found["messages"] for key in one["keys"]]
            cursor = found["cursor"]
            pages += 1
        assert sorted(seen, key=int) == [str(number) for number in range(100)]
        assert pages > 3


async def test_jobs_at_the_same_time_send_each_letter_once(broker: Embedded, page: Page) -> None:
    await fill(broker, page, 100)
    order = {"target": "origin", "rate": limits.REDRIVE_RATE_MAX, "confirm": "billing"}
    done = await asyncio.gather(*(page.post(PATH, order) for _ in range(3)))
    jobs = [await ended(page, one["done"]["job"]) for one in done]
    assert (sum(job["sent"] for job in jobs), sum(job["failed"] for job in jobs)) == (100, 0)
    async with kourou.connect(broker.namesrv) as mq:
        ends = await mq.admin.topics.stats("orders")
    assert sum(end.max_offset for end in ends.values()) == 100
