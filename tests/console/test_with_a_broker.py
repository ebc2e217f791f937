"""The pages with the real server and a broker: a topic is created, messages are sent and found, settings changed."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.console.answers import HOSTILE
from tests.console.running import Running, beside, running
from tests.console.watched import watched

import kourou


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("run")) as found:
        beside(fill(found))
        yield found


async def fill(real: Running) -> None:
    """A topic with bodies of every kind."""
    async with kourou.connect(real.namesrv) as mq:
        await mq.admin.topics.create("bodies", queues=1)
        for text in HOSTILE:
            await mq.send("bodies", text.encode(), keys=["x"], properties={"note": text})
        await mq.send("bodies", bytes(range(256)), keys=["binary"])
        await mq.send("bodies", b'{"large": "' + b"<b>x</b>" * 400_000 + b'"}')


async def copies(real: Running) -> list[bytes]:
    """The bodies of all messages with the key "binary"."""
    async with kourou.connect(real.namesrv) as mq:
        return [message.body for message in await mq.admin.messages.by_key("bodies", "binary")]


def test_flows(browser: Browser, real: Running) -> None:
    """One session: the link is valid once."""
    with watched(browser, real.url) as it:
        page = it.page
        page.goto(real.link)
        page.get_by_role("heading", name="Overview").wait_for()
        assert "#" not in page.url
        page.get_by_role("link", name="broker-a", exact=True).wait_for()

        it.visit("/topics?do=create")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Topic").fill("orders")
        dialog.get_by_text("kourou admin updateTopic -c DefaultCluster -t orders").wait_for()
        dialog.get_by_role("button", name="Create").click()
        page.get_by_role("heading", name="orders").wait_for()

        page.get_by_role("link", name="Produce").click()
        for number in range(3):
            dialog.get_by_label("Body", exact=True).fill(f'{{"order": {number}, "amount": {number * 90}}}')
            dialog.get_by_label("Keys").fill(f"key-{number}")
            dialog.get_by_label("Tag").fill("paid")
            dialog.get_by_label("Stay here to send more").set_checked(number < 2)
            dialog.get_by_role("button", name="Send").click()
            page.get_by_text("Stored at broker-a").nth(number).wait_for()
        page.get_by_text('"amount": 180').wait_for()
        message = page.url

        it.visit("/topics/orders?q=tag%3Apaid+amount%3E100")
        page.get_by_text("1 shown, 3 of 3 read").wait_for()
        assert "key-2" in it.text and "key-1" not in it.text
        it.visit("/messages?topic=orders&key=key-1")
        page.get_by_role("main").get_by_text("key-1").wait_for()
        page.goto(message)
        page.get_by_text('"amount": 180').wait_for()

        it.visit("/audit")
        page.get_by_text("create topic").wait_for()
        page.get_by_text("kourou admin updateTopic").first.wait_for()

        it.visit("/topics/bodies")
        page.get_by_text(f"{len(HOSTILE) + 2} shown").wait_for()
        assert "<script>window.owned=1</script>" in it.text
        page.locator("[data-row]").first.click()
        page.get_by_text("cut: download it for the rest").wait_for()
        assert page.evaluate("window.owned") is None

        it.visit("/messages?topic=bodies&key=binary")  # and what is produced again has the same bytes
        page.get_by_role("main").get_by_text("binary").first.wait_for()
        page.locator("[data-row]").first.click()
        page.get_by_role("link", name="Produce again").click()
        dialog.get_by_role("button", name="Send").click()
        page.get_by_text("Stored at broker-a").first.wait_for()
        assert beside(copies(real)) == [bytes(range(256))] * 2
        violations = [text for text in it.wrong if "Content Security Policy" in text or not text.startswith("error:")]
        assert violations == []
