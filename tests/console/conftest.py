"""A real browser: chromium-headless-shell, driven by playwright. `make test` installs it as root."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = os.environ.get("KOUROU_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""`KOUROU_CHROMIUM` names another one."""

MISSING = "no browser: install the package chromium-headless-shell, or set KOUROU_CHROMIUM"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/console/"):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module. Its event loop runs in this thread, so it ends before tests of other modules begin."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=120_000)
        yield browser
        browser.close()
