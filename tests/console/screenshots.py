"""Pictures of the console for its documents, with a real broker: `make screenshots`."""

import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import ViewportSize, sync_playwright
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.running import Running, beside, running
from tests.console.watched import Watched

import kourou

IMAGES = Path(__file__).parents[2] / "docs/images"
CITIES = ("Lyon", "Cayenne", "Paris", "Kourou", "Nantes")
SIZE: ViewportSize = {"width": 1180, "height": 720}


async def fill(real: Running) -> None:
    """Topics, and messages with keys and tags."""
    async with kourou.connect(real.namesrv) as mq:
        for name, queues in (("orders", 8), ("payments", 4), ("invoices", 4), ("audit-log", 1)):
            await mq.admin.topics.create(name, queues=queues)
        for number in range(120):
            body = f'{{"order":{number},"city":"{CITIES[number % 5]}","amount":{number * 7 % 240}}}'
            tag = "paid" if number % 3 else "refund"
            await mq.send("orders", body.encode(), tag=tag, keys=[f"order-{number}"])
            if number % 4 == 0:
                await mq.send("payments", b"%d" % number, tag="card", keys=[f"order-{number}"])
        for group, fails in (("audit", False), ("billing", True)):
            seen = 0
            async with mq.consume("orders", group=group, start="first") as consumer:
                async for message in consumer:
                    await (message.retry() if fails else message.ack())
                    seen += 1
                    if seen == (100 if fails else 120):
                        break


def main() -> int:
    if CHROMIUM is None:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as real, sync_playwright() as playwright:
        beside(fill(real))
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        shown: tuple[tuple[Literal["light", "dark"], dict[str, str]], ...] = (
            ("light", {"overview": "/", "topics": "/topics", "messages": "/topics/orders?q=tag%3Apaid+amount%3E100"}),
            (
                "dark",
                {
                    "group": "/groups/billing",
                    "journey": "/messages?topic=orders&key=order-7",
                    "create": "/topics?do=create",
                },
            ),
        )
        for scheme, addresses in shown:
            context = browser.new_context(viewport=SIZE, locale="en-US", color_scheme=scheme)
            it = Watched(context.new_page(), real.url)
            it.page.goto(next_link(Path(folder)))
            it.page.get_by_role("heading", name="Overview").wait_for()
            it.page.wait_for_timeout(12_000)  # the curves need a few points
            for name, address in addresses.items():
                it.visit(address)
                if name == "journey":
                    it.page.locator("main [data-row]").first.click()
                    it.page.locator(".journey").wait_for()
                if name == "create":
                    it.page.get_by_role("dialog").get_by_label("Topic").fill("refunds")
                    it.page.locator(".command").wait_for()
                it.page.wait_for_timeout(1_500)  # figures of the rows
                it.page.screenshot(path=IMAGES / f"console-{name}.png")
        browser.close()
    return 0


def next_link(folder: Path) -> str:
    """The last link that the console printed: each is valid once."""
    lines = [line for line in (folder / "out").read_text().splitlines() if "#token=" in line]
    return "http" + lines[-1].split(" http", 1)[1]


if __name__ == "__main__":
    raise SystemExit(main())
