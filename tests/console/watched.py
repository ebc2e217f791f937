"""A page that reports everything that must not happen: violations of the policy, errors, dialogs, foreign requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

PATIENCE_MS = 60_000
"""How long a page may take on a busy machine."""

READY = """() => {
  const main = document.querySelector("main");
  return main && main.querySelector("h1") && !main.querySelector(".loading, [aria-busy=true]");
}"""


class Watched:
    """A page of the console at `url`."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc and not request.url.startswith("data:"):
            self.wrong.append(f"request: {request.url}")

    def open(self, address: str = "/") -> None:
        """Loads the page."""
        self.page.goto(self.url + address)
        self.page.wait_for_function(READY)

    def visit(self, address: str) -> None:
        """Goes to another screen without loading the page again."""
        self.page.evaluate(
            "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }",
            address,
        )
        self.page.wait_for_function(f"() => location.pathname + location.search === {address!r}")
        self.page.wait_for_function(READY)

    @property
    def text(self) -> str:
        return self.page.inner_text("body")

    def check(self, where: str) -> None:
        """Raises AssertionError if anything happened that must not."""
        assert self.page.evaluate("window.owned") is None, where
        assert self.wrong == [], where


@contextmanager
def watched(browser: Browser, url: str, **context: Any) -> Iterator[Watched]:
    """A page of its own, without cookies."""
    given = {"viewport": {"width": 1360, "height": 860}, "locale": "en-US", **context}
    with browser.new_context(**given) as own:
        yield Watched(own.new_page(), url)
