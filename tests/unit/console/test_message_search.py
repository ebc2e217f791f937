"""Searching messages, sending, files, hostile names and bodies, on an embedded broker."""

import asyncio
import base64
import json
import os

import pytest
from tests.unit.console.conftest import MakePage, Page, until

import kourou
from kourou.console import scanning
from kourou.console.filters import ALL
from kourou.console.finding import cursor_of
from kourou.console.limits import SCANS_MAX
from kourou.console.routes.messages import export_lines
from kourou.console.scanning import Scan
from kourou.console.sessions import Role
from kourou.embedded import Embedded

HOSTILE = b"<script>alert(1)</script> <img src=x onerror=alert(1)> \x1b[31m \xe2\x80\xae"


async def fill(broker: Embedded, count: int) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=3)
        messages = [
            kourou.Message(body=json.dumps({"n": n}).encode(), tag="even" if n % 2 == 0 else "odd", keys=[f"k{n}"])
            for n in range(count)
        ]
        await mq.send_many("orders", messages)


async def test_pages_of_a_search(broker: Embedded, page: Page) -> None:
    await fill(broker, 300)
    path = "/api/topics/orders/messages"
    await until(page, path, lambda found: found["of"] == "300")
    for order in ("newest", "oldest"):
        seen: list[int] = []
        cursor: str | None = ""
        while cursor is not None:
            found = await page.get(path, order=order, limit=70, cursor=cursor)
            seen += [json.loads(one["body"]["text"])["n"] for one in found["messages"]]
            cursor = found["cursor"]
        assert sorted(seen) == list(range(300))
        assert (found["scanned"], found["stopped"]) == ("300", "end")
        times = [one["stored_ms"] for one in found["messages"]]
        assert times == sorted(times, reverse=order == "newest")
    odd = await page.get(path, q="tag:odd n>290", limit=100)
    assert sorted(json.loads(one["body"]["text"])["n"] for one in odd["messages"]) == [291, 293, 295, 297, 299]
    assert (odd["cursor"], odd["scanned"]) == (None, "300")
    (one,) = (await page.get(path, key="k17"))["messages"]
    assert one["keys"] == ["k17"]
    assert (await page.get(f"{path}?from=now"))["of"] == "0"
    assert (await page.get(f"{path}?from=-1h"))["of"] == "300"
    assert (await page.get(path, 400, q="tag:"))["code"] == "bad_filter"
    for wrong in ("x", "e30", base64.urlsafe_b64encode(b'{"spans":[["evil",0,0,5]],"of":5}').decode()):
        assert (await page.get(path, 400, cursor=wrong))["code"] == "bad_request"
    by_id = await page.get(f"/api/messages/{one['id']}", topic="orders")
    assert by_id["message"]["offset_id"] == one["offset_id"]
    assert (await page.get(f"/api/messages/{one['offset_id']}"))["message"]["id"] == one["id"]
    assert (await page.get("/api/messages/nothing", 404, topic="orders"))["code"] == "not_found"
    assert (await page.get("/api/messages/nothing", 400))["code"] == "bad_request"


async def test_ids_name_no_other_server(broker: Embedded, page: Page) -> None:
    await page.get("/api/overview")
    answer = await page.get(f"/api/messages/{'7F000001' + '00000001' + '0' * 16}", 400)
    assert "not a broker of this cluster" in answer["text"]


async def test_produce_and_hostile_bodies(broker: Embedded, page: Page) -> None:
    await page.post("/api/topics", {"name": "orders", "queues": 1})
    new = {"body": base64.b64encode(HOSTILE).decode(), "encoding": "base64", "tag": "a", "keys": ["<b>"]}
    sent = await page.post("/api/topics/orders/messages", {**new, "properties": {"amount": "5"}})
    assert sent["done"]["offset"] == "0"
    found = await until(page, "/api/topics/orders/messages", lambda found: bool(found["messages"]))
    (one,) = found["messages"]
    assert one["body"]["text"] == "<script>alert(1)</script> <img src=x onerror=alert(1)> \\x1b[31m \\u202e"
    assert (one["body"]["kind"], one["properties"], one["keys"]) == ("text", {"amount": "5"}, ["<b>"])
    raw = await page.http.get(f"/api/messages/{one['id']}/body", params={"topic": "orders"})
    assert (raw.content, raw.headers["content-type"]) == (HOSTILE, "application/octet-stream")
    assert raw.headers["content-disposition"].startswith("attachment")
    for wrong in ({"body": "?", "encoding": "base64"}, {"body": "x", "encoding": "x"}, {"body": ""}):
        assert (await page.post("/api/topics/orders/messages", wrong, 400))["code"] == "bad_request"
    preview = await page.post("/api/topics/orders/messages", {"body": "it's", "preview": True})
    assert preview["cli"] == """kourou send orders 'it'"'"'s'"""


async def test_large_and_binary_bodies(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b"x" * 3_000_000)
        await mq.send("orders", bytes(range(256)) * 40)
    found = await until(page, "/api/topics/orders/messages", lambda found: len(found["messages"]) == 2)
    binary, large = found["messages"]
    assert (binary["body"]["kind"], binary["body"]["size"], binary["body"]["truncated"]) == ("binary", "10240", True)
    assert binary["body"]["text"].startswith("000102030405"), "the pages divide it into bytes"
    assert (large["body"]["kind"], len(large["body"]["text"]), large["body"]["size"]) == ("text", 4096, "3000000")
    one = await page.get(f"/api/messages/{large['id']}", topic="orders")
    assert len(one["message"]["body"]["text"]) == 262_144
    raw = await page.http.get(f"/api/messages/{large['id']}/body", params={"topic": "orders"})
    assert len(raw.content) == 3_000_000


async def test_files(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b'=cmd|"x"', tag="@a")
        await mq.send("orders", b"plain")
    await until(page, "/api/topics/orders/messages", lambda found: found["of"] == "2")
    table = (await page.http.get("/api/topics/orders/export", params={"format": "csv"})).text.splitlines()
    assert len(table) == 3
    assert table[1].endswith('"\'=cmd|""x"""') and '"\'@a"' in table[1]
    lines = (await page.http.get("/api/topics/orders/export", params={"q": "plain"})).text.splitlines()
    assert [json.loads(line)["body"]["text"] for line in lines] == ["plain"]


async def test_a_file_has_whole_bodies(broker: Embedded, page: Page) -> None:
    """Binary ones as base64, texts as they are: what is read back has the same bytes."""
    bodies = [os.urandom(5000), HOSTILE, "später\x85".encode()]
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        for body in bodies:
            await mq.send("orders", body)
    await until(page, "/api/topics/orders/messages", lambda found: found["of"] == "3")
    text = (await page.http.get("/api/topics/orders/export")).text
    views = [json.loads(line)["body"] for line in text.split("\n") if line]
    assert [body_of(view) for view in views] == bodies
    assert not any(view["truncated"] for view in views)
    assert "\x85" not in text and "\u202e" not in text


def body_of(view: dict[str, str]) -> bytes:
    return base64.b64decode(view["text"]) if view["kind"] == "base64" else view["text"].encode()


async def test_a_file_that_is_cut_says_so(broker: Embedded, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next file begins there."""
    await fill(broker, 300)
    await until(page, "/api/topics/orders/messages", lambda found: found["of"] == "300")
    monkeypatch.setattr("kourou.console.routes.messages.EXPORT_MAX", 100)
    path = "/api/topics/orders/export"
    seen: list[int] = []
    cursor = ""
    for _ in range(5):
        lines = [json.loads(line) for line in (await page.http.get(path, params={"cursor": cursor})).text.splitlines()]
        cut = lines[-1].get("cut")
        seen += [json.loads(line["body"]["text"])["n"] for line in lines if "cut" not in line]
        if cut is None:
            break
        assert cut["of"] == "300" and "100 messages" in cut["reason"]
        cursor = cut["cursor"]
    assert sorted(seen) == list(range(300))
    table = (await page.http.get(path, params={"format": "csv"})).text.splitlines()
    assert table[-1].startswith('"# cut: a file ends after 100 messages') and "of 300 messages" in table[-1]


async def test_a_slow_reader_of_a_file_keeps_no_search_waiting(broker: Embedded, page: Page) -> None:
    await fill(broker, 300)
    await until(page, "/api/topics/orders/messages", lambda found: found["of"] == "300")
    look = page.console.facts.look()
    cursor = await cursor_of(look, "orders", "", "", "")
    stalled = []
    for _ in range(SCANS_MAX):
        scan = Scan(look.mq, "orders", ALL, cursor, newest=False, limit=50)
        lines = export_lines(scan, cursor, page.console.scan_gate, page.console.clock, is_csv=False)
        assert await anext(lines)
        stalled.append(lines)
    assert len((await asyncio.wait_for(page.get("/api/topics/orders/messages"), 30))["messages"]) == 50
    for lines in stalled:
        await lines.aclose()


async def test_a_search_goes_on_after_its_bound(broker: Embedded, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops there with a cursor: without one, all is read."""
    await fill(broker, 300)
    path = "/api/topics/orders/messages"
    await until(page, path, lambda found: found["of"] == "300")
    monkeypatch.setattr(scanning, "SCAN_MAX", 60)
    cursor: str | None = ""
    bounds, found = 0, []
    while cursor is not None:
        one = await page.get(path, cursor=cursor, q="n=1")
        found += one["messages"]
        cursor = one["cursor"]
        assert (one["stopped"] == "end") == (cursor is None)
        bounds += one["stopped"] == "bound"
    assert (bounds > 1, len(found), one["scanned"]) == (True, 1, "300")


async def test_without_the_right_to_bodies(broker: Embedded, make_page: MakePage) -> None:
    await fill(broker, 1)
    page = await make_page(broker.namesrv, Role.SEE)
    found = await until(page, "/api/topics/orders/messages", lambda found: bool(found["messages"]))
    (one,) = found["messages"]
    assert (one["body"], one["properties"], one["tag"]) == (None, {}, "even")
    for words in ("n=0", "secret", "body~x", "user.name=x"):
        assert (await page.get("/api/topics/orders/messages", 403, q=words))["code"] == "forbidden"
    assert (await page.get("/api/topics/orders/messages", q="tag:even"))["messages"]
    for path in ("/api/topics/orders/export", f"/api/messages/{one['id']}/body", "/events?watch=tail:orders"):
        assert (await page.get(path, 403))["code"] == "forbidden"
