"""What the console costs: `kourou run` with few and with many topics, looked at with a real browser.

    python -m benchmarks.console_cost [--topics 10 5000] [--groups 10 1000] [--seconds 60]

`start`: from the start of `kourou run` to the figures of the overview. `bytes`: what the browser loads for that.
`topics`: from a reload to the first row of the list of topics. The rest is CPU time of the broker's process, which is
also the name server, in % of a core: without a viewer, with one at the overview, with one at the list of topics.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table
from tests.console.conftest import CHROMIUM, MISSING
from tests.console.running import Running, beside, running
from tests.console.watched import PATIENCE_MS

import kourou

AT_ONCE = 8
LOADED = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, one) => sum + one.transferSize, 0)"""


async def fill(real: Running, topics: int, groups: int) -> None:
    async with kourou.connect(real.namesrv) as mq:
        gate = asyncio.Semaphore(AT_ONCE)

        async def topic(number: int) -> None:
            async with gate:
                await mq.admin.topics.create(f"topic-{number:05}", queues=4)

        async def group(number: int) -> None:
            async with gate:
                await mq.admin.groups.create(f"group-{number:05}")

        await asyncio.gather(*map(topic, range(topics)))
        await asyncio.gather(*map(group, range(groups)))


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def share(pid: int, seconds: float) -> float:
    """CPU time of the process while the time passes, as a part of a core."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def first_row(page: Page) -> None:
    page.locator("main tbody tr").first.wait_for()


def measure(folder: Path, topics: int, groups: int, seconds: float) -> list[str]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE_MS)
        began = time.monotonic()
        with running(folder) as real, browser.new_context() as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(real.link)
            first_row(page)
            start = time.monotonic() - began
            loaded = page.evaluate(LOADED)
            page.goto("about:blank")
            beside(fill(real, topics, groups))
            time.sleep(31)  # the console keeps lists of names for 30 s
            idle = share(real.pid, seconds)
            page.goto(real.url)
            first_row(page)
            overview = share(real.pid, seconds)
            page.goto(f"{real.url}/topics")
            page.get_by_text("topic-00000").wait_for()
            began = time.monotonic()
            page.reload()
            page.get_by_text("topic-00000").wait_for()
            shown = time.monotonic() - began
            at_topics = share(real.pid, seconds)
        browser.close()
    figures = [f"{value:.2%}" for value in (idle, overview, at_topics)]
    return [f"{topics:,}", f"{groups:,}", f"{start:.1f} s", f"{loaded:,}", f"{shown:.2f} s", *figures]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_cost", description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 5000])
    parser.add_argument("--groups", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--seconds", type=float, default=60, help="how long each CPU time is measured")
    options = parser.parse_args()
    if CHROMIUM is None:
        print(MISSING, file=sys.stderr)
        return 2
    table = Table("topics", "groups", "start", "bytes", "topics shown", "idle", "overview", "list of topics")
    for topics, groups in zip(options.topics, options.groups, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            table.add_row(*measure(Path(folder), topics, groups, options.seconds))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
