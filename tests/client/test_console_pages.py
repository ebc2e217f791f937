"""The console's pages over our broker and Apache's, in a real browser: each screen, and the life of one message.

A topic and a group are created, a message is produced, found, and fails until it is a dead letter; it is redriven,
consumed, and consumed again after a reset. What the pages look like is a matter of tests/console.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator
from tests.console.conftest import browser as browser
from tests.console.test_screens import screens
from tests.console.watched import Watched, watched
from tests.waiting import wait_for

from kourou.client import Consumer, connect

from .conftest import PATIENT, World

pytestmark = pytest.mark.browser

Result = TypeVar("Result")

RETRIES = 1
"""A message that fails twice is a dead letter."""


@pytest.fixture
def console(world: World, tmp_path: Path) -> Iterator[str]:
    """The link of a console of its own."""
    output = tmp_path / "out"
    command = [sys.executable, "-m", "kourou", "console", "-n", world.namesrv, "--port", "0"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path)
    try:
        wait_for("the link", lambda: "#token=" in output.read_text() or process.poll() is not None)
        found = re.search(r"http\S+#token=\S+", output.read_text())
        assert found is not None, output.read_text()
        yield found[0]
    finally:
        process.terminate()
        process.wait()


def beside(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs it in another thread: this one has the event loop of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@asynccontextmanager
async def consuming(world: World, name: str) -> AsyncIterator[Consumer]:
    async with (
        connect(world.namesrv, settings=PATIENT) as mq,
        mq.consume(name, group=name, start="first", retries=RETRIES) as consumer,
    ):
        yield consumer


async def fail(world: World, name: str) -> None:
    async with consuming(world, name) as consumer:
        for times in range(RETRIES + 1):
            message = await consumer.next(timeout=60)
            assert message is not None and message.reconsume_times == times
            await message.retry(delay_level=1)


async def succeed(world: World, name: str) -> bytes:
    async with consuming(world, name) as consumer:
        message = await consumer.next(timeout=60)
        assert message is not None
        await message.ack()
        return message.body


async def committed(world: World, name: str) -> int:
    async with connect(world.namesrv, settings=PATIENT) as mq:
        queues = (await mq.admin.groups.progress(name)).queues
        return sum(state.consumer_offset for queue, state in queues.items() if queue.topic == name)


def confirm(dialog: Locator, name: str, action: str) -> None:
    """A dialog wants the name typed before it does what it has shown."""
    button = dialog.get_by_role("button", name=action, exact=True)
    assert button.is_disabled()
    dialog.get_by_label(f"Type {name} to confirm").fill(name)
    button.click()


def create(it: Watched, name: str) -> None:
    dialog = it.page.get_by_role("dialog")
    it.visit("/topics?do=create")
    dialog.get_by_label("Topic", exact=True).fill(name)
    dialog.get_by_label("Queues on each broker").fill("1")
    dialog.get_by_text("kourou admin updateTopic").wait_for()
    dialog.get_by_role("button", name="Create").click()
    it.page.get_by_role("heading", name=name).wait_for()
    it.visit("/groups?do=create")
    dialog.get_by_label("Group").fill(name)
    dialog.get_by_label("Attempts before a dead letter").fill(str(RETRIES))
    dialog.get_by_text("kourou admin updateSubGroup").wait_for()
    dialog.get_by_role("button", name="Create").click()
    it.page.get_by_role("heading", name=name).wait_for()


def produce_and_find(it: Watched, name: str) -> str:
    """The address of the message's page."""
    dialog = it.page.get_by_role("dialog")
    it.visit(f"/topics/{name}?do=produce")
    dialog.get_by_label("Body", exact=True).fill('{"order": 42, "city": "Lyon"}')
    dialog.get_by_label("Keys").fill("order-42")
    dialog.get_by_label("Tag").fill("paid")
    dialog.get_by_role("button", name="Send").click()
    it.page.get_by_text("Stored at broker-a").first.wait_for()
    it.visit(f"/topics/{name}?q={quote('tag:paid order=42 body~Lyon')}")
    it.page.get_by_text("1 shown, 1 of 1 read").wait_for()
    it.visit(f"/messages?topic={name}&key=order-42")
    it.page.locator("main [data-row]").first.click()
    it.page.wait_for_url("**/messages/*topic*")
    return it.page.url.removeprefix(it.url)


def test_the_life_of_a_message(browser: Browser, world: World, name: str, console: str) -> None:
    with watched(browser, console.split("/#")[0]) as it:
        page, dialog = it.page, it.page.get_by_role("dialog")
        page.goto(console)
        page.get_by_role("link", name="broker-a", exact=True).wait_for()
        create(it, name)
        message = produce_and_find(it, name)

        beside(fail(world, name))
        journey = page.locator(".journey")
        journey.get_by_text("attempt 2 failed").wait_for()
        journey.get_by_role("link", name="dead letter").click()
        page.get_by_text("1 dead letter", exact=True).wait_for()

        page.get_by_role("link", name="Redrive all").click()
        dialog.get_by_text("1 dead letter is sent.").wait_for()
        confirm(dialog, name, "Redrive")
        page.get_by_role("dialog", name="Redrive", exact=True).get_by_text("done", exact=True).wait_for()
        assert beside(succeed(world, name)) == b'{"order": 42, "city": "Lyon"}'
        page.keyboard.press("Escape")
        it.visit(message)
        journey.get_by_text("redriven").wait_for()

        assert beside(committed(world, name)) == 1
        it.visit(f"/groups/{name}?do=reset")
        dialog.locator("select[name=to]").select_option("first")
        dialog.get_by_text("1 message is consumed again, 0 are skipped.").wait_for()
        confirm(dialog, name, "Reset")
        page.get_by_text(f"{name} was reset.").wait_for()
        assert beside(committed(world, name)) == 0
        it.check("at the end")

        for address in screens(name):
            it.visit(address.replace("10.0.0.5%3A10911", quote(world.broker, safe="")))
            shown = page.get_by_role("alert")
            assert shown.count() == 0 or address.startswith(f"/messages/{name}"), (address, shown.all_inner_texts())
        said = [text for text in it.wrong if "Content Security Policy" in text or not text.startswith("error:")]
        assert said == []
