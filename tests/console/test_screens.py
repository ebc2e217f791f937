"""Every screen in a real browser, with answers of every kind: hostile text stays text."""

from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from tests.console.answers import HOSTILE, SCRIPT, answers, message, preview, session
from tests.console.fake_server import serving
from tests.console.watched import Watched, watched

from kourou.console.limits import REDRIVE_RATE_MAX

NAMES = ("orders", "billing", "payments-eu", "audit-log")


def screens(name: str) -> list[str]:
    """All screens of things with this name."""
    part = quote(name, safe="")
    return [
        "/",
        "/topics",
        f"/topics/{part}",
        f"/topics/{part}?tab=live",
        f"/topics/{part}?tab=queues",
        f"/topics/{part}?tab=groups",
        f"/topics/{part}?tab=config",
        "/groups",
        f"/groups/{part}",
        f"/groups/{part}?tab=members",
        f"/groups/{part}?tab=doctor",
        f"/groups/{part}?tab=config",
        f"/messages?topic={part}&key=42",
        f"/messages/{part}?topic={part}",
        "/dead",
        f"/dead/{part}",
        "/delayed?level=1",
        "/delayed?tab=timed",
        "/delayed?tab=half",
        "/brokers",
        "/brokers/10.0.0.5%3A10911",
        "/brokers/10.0.0.5%3A10911?tab=config",
        "/brokers/10.0.0.5%3A10911?tab=replication",
        "/brokers/10.0.0.5%3A10911?tab=runtime",
        "/clients",
        "/access",
        "/audit",
    ]


def dialogs(name: str) -> list[str]:
    part = quote(name, safe="")
    return [
        "/topics?do=create",
        f"/topics/{part}?do=produce",
        f"/topics/{part}?do=delete",
        f"/groups/{part}?do=reset",
        f"/groups/{part}?do=skip",
        f"/groups/{part}?do=delete",
        f"/groups/{part}?tab=members&member={part}",
        f"/dead/{part}?do=redrive",
        f"/dead/{part}?job=1",
        "/groups?do=create",
        f"/groups/{part}?do=edit",
        f"/topics/{part}?do=edit",
        "/access?do=user",
        "/access?do=rule",
        f"/access?do=delete-user&name={part}",
        f"/access?do=delete-rule&subject={part}&resource={part}",
        f"/messages/{part}?topic={part}&do=retry&group={part}",
    ]


def change(body: dict[str, Any]) -> Any:
    return preview("orders") if body.get("preview") else {"done": {}, "cli": ""}


def is_shown(text: str, page_text: str) -> bool:
    return " ".join(text.split()) in " ".join(page_text.split())


def test_hostile_text_stays_text(browser: Browser) -> None:
    """All names, bodies and remarks are markup, code, addresses and control characters."""
    tail = {"tail": {"messages": [message(name) for name in HOSTILE], "dropped": 3, "seen": 9, "matched": 9}}
    with serving(answers(), lambda _: preview(), tail) as server, watched(browser, server.url) as it:
        it.open()
        for address in [*screens(SCRIPT), *dialogs(SCRIPT)]:
            it.visit(address)
            assert is_shown(SCRIPT, it.text), address
            it.check(address)
        links = it.page.eval_on_selector_all("a[href]", "all => all.map(one => one.protocol + one.host)")
        assert {link for link in links if not link.endswith(it.url.removeprefix("http://"))} == set()
    assert server.changes and all(body.get("preview") for _, _, body in server.changes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Browser, scheme: str) -> None:
    """axe finds nothing serious: names of controls, contrast, structure."""
    axe = Axe()
    everywhere = [*screens("orders"), *dialogs("orders")]
    some = ["/", "/topics/orders", "/groups/orders?tab=doctor", "/messages/orders?topic=orders", "/topics?do=create"]
    with serving(answers(NAMES), change) as server, watched(browser, server.url, color_scheme=scheme) as it:
        it.open()
        for address in everywhere if scheme == "light" else some:
            it.visit(address)
            found = axe.run(it.page, options={"resultTypes": ["violations"]}).response["violations"]
            serious = [
                (one["id"], node["target"], node["failureSummary"])
                for one in found
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"]
            ]
            assert serious == [], address
        it.check("at the end")


def test_in_chinese(browser: Browser) -> None:
    with serving(answers(NAMES), change) as server, watched(browser, server.url, locale="zh-CN") as it:
        it.open()
        assert it.page.get_attribute("html", "lang") == "zh-CN"
        for address in screens("orders"):
            it.visit(address)
        assert "审计" in it.text
        it.page.get_by_role("button", name="English").click()
        it.page.get_by_role("link", name="Audit").wait_for()
        it.open("/topics")  # the choice is kept
        assert it.page.get_attribute("html", "lang") == "en"
        it.check("at the end")


def test_look_is_chosen_and_kept(browser: Browser) -> None:
    with serving(answers(NAMES)) as server, watched(browser, server.url, color_scheme="light") as it:
        background = "getComputedStyle(document.documentElement).backgroundColor"
        it.open()
        light = it.page.evaluate(background)
        it.page.get_by_role("button", name="Colours").click()
        it.page.get_by_role("button", name="Colours").click()
        dark = it.page.evaluate(background)
        it.open("/topics")
        assert dark == it.page.evaluate(background) != light
        it.check("at the end")


def test_keyboard_alone(browser: Browser) -> None:
    with serving(answers(NAMES), change) as server, watched(browser, server.url) as it:
        it.open()
        press = it.page.keyboard.press
        press("g")
        press("t")
        it.page.wait_for_url("**/topics")
        it.page.wait_for_selector("[data-row]")
        press("j")
        press("j")
        assert focused(it) == "billing"
        press("k")
        assert focused(it) == "orders"
        press("Enter")
        it.page.wait_for_url("**/topics/orders")
        it.page.wait_for_selector("main input[data-search]")
        press("/")
        it.page.keyboard.type("tag:paid g t ?")
        it.page.wait_for_url("**q=tag%3Apaid+g+t+%3F")
        press("Escape")
        press("?")
        it.page.get_by_role("dialog", name="Keys").wait_for()
        press("Escape")
        it.page.get_by_role("dialog", name="Keys").wait_for(state="detached")
        press("Control+k")
        it.page.keyboard.type("audit")
        it.page.wait_for_function("() => document.querySelectorAll('#palette-list [role=option]').length === 1")
        press("Enter")
        it.page.wait_for_url("**/audit")
        it.check("at the end")


def focused(it: Watched) -> str:
    return str(it.page.evaluate("document.activeElement.textContent")).strip()


def test_a_change_is_previewed_and_confirmed(browser: Browser) -> None:
    """With the keyboard: the dialog takes the focus, shows the command, wants the name, and gives the focus back."""
    with serving(answers(NAMES), change) as server, watched(browser, server.url) as it:
        it.open("/topics/orders")
        it.page.get_by_role("link", name="Delete").focus()
        it.page.keyboard.press("Enter")
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("kourou admin orders").wait_for()
        button = dialog.get_by_role("button", name="Delete the topic")
        assert button.is_disabled()
        dialog.get_by_label("Type orders to confirm").fill("order")
        assert button.is_disabled()
        it.page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert focused(it) == "Delete"
        it.page.keyboard.press("Enter")
        dialog.get_by_label("Type orders to confirm").fill("orders")
        it.page.keyboard.press("Enter")
        it.page.wait_for_url("**/topics")
        it.page.get_by_text("orders was deleted.").wait_for()
        assert server.changes[-1] == ("DELETE", "/api/topics/orders", {"confirm": "orders"})
        it.check("at the end")


def test_dead_letters_are_redriven(browser: Browser) -> None:
    """All of a search without times, then ticked ones: the server takes what the page sends, and the job is shown."""
    with serving(answers(NAMES), redriving) as server, watched(browser, server.url) as it:
        it.open("/dead/orders?q=tag%3Apaid")
        dialog = it.page.get_by_role("dialog", name="Redrive dead letters")
        for ticked in (0, 2):
            for row in range(ticked):
                it.page.locator("tbody .choose input").nth(row).check()
            it.page.locator(".head-actions").get_by_role("link", name="Redrive").click()
            dialog.get_by_text("Only 5,000 of 50,000 dead letters were counted so far").wait_for()
            rate = dialog.get_by_label("Messages per second")
            assert rate.get_attribute("max") == str(REDRIVE_RATE_MAX)
            rate.fill(str(REDRIVE_RATE_MAX))
            dialog.get_by_label("Type orders to confirm").fill("orders")
            dialog.get_by_role("button", name="Redrive").click()
            it.page.get_by_role("dialog", name="Redrive", exact=True).get_by_role("heading", name="Results").wait_for()
            it.page.keyboard.press("Escape")
            method, path, body = server.changes[-1]
            assert (method, path, body["rate"], body["confirm"]) == ("POST", "/api/dead/orders/redrive", 1000, "orders")
            assert (body["from"], body["to"], len(body["only"] or [])) == (None, None, ticked)
        it.check("at the end")


def redriving(body: dict[str, Any]) -> Any:
    if not body.get("preview"):
        return {"done": {"job": "1"}, "cli": ""}
    shown = preview("orders")
    return {**shown, "preview": {**shown["preview"], "complete": False, "read": "5000", "of": "50000"}}


def test_focus_stays_under_live_figures(browser: Browser) -> None:
    def group(lag: int) -> dict[str, Any]:
        facts: dict[str, Any] = answers(NAMES)["groups/"]
        return {**facts, "at": lag, "queues": [{**queue, "lag": str(lag)} for queue in facts["queues"]]}

    given = dict(answers(NAMES))
    with serving(given, events={"group:orders": group(4321)}) as server, watched(browser, server.url) as it:
        server.answers["groups/"] = group(1)
        it.open("/groups/orders")
        it.page.wait_for_selector("[data-row]")
        it.page.keyboard.press("j")
        before = it.page.evaluate_handle("document.activeElement")
        it.page.get_by_text("4,321").first.wait_for()
        assert it.page.evaluate("before => before === document.activeElement", before)
        assert focused(it) == "orders"


@pytest.mark.parametrize(("changes", "reason"), [({"read_only": True}, "read-only"), ({"role": "see"}, "role")])
def test_what_a_reader_may_not_do_is_grey(browser: Browser, changes: dict[str, Any], reason: str) -> None:
    with serving({**answers(NAMES), "session": session(**changes)}) as server, watched(browser, server.url) as it:
        it.open("/topics/orders?do=")
        for name in ("Produce", "Edit", "Delete"):
            button = it.page.locator(".head-actions .button", has_text=name)
            assert button.get_attribute("aria-disabled") == "true"
            assert reason in str(button.get_attribute("title"))
            button.click(force=True)
        assert it.page.get_by_role("dialog").count() == 0


def test_a_server_without_answers(browser: Browser) -> None:
    """Each screen says what failed; nothing is blank."""
    with serving({"session": session()}) as server, watched(browser, server.url) as it:
        it.open()
        for address in ("/", "/topics", "/groups/x", "/messages/x?topic=y", "/brokers", "/dead/x"):
            it.visit(address)
            it.page.get_by_role("alert").first.wait_for()
            assert "Not found" in it.text, address
        assert all("404" in text for text in it.wrong)


def test_signing_in(browser: Browser) -> None:
    out = session(signed_in=False, user=None, role=None, name_servers=[], features={})

    def enter(body: dict[str, Any]) -> Any:
        server.answers["session"] = session()
        return session()

    with serving({**answers(NAMES), "session": out}, enter) as server, watched(browser, server.url) as it:
        it.page.goto(it.url + "/topics?kind=all")
        it.page.get_by_label("Token").fill("secret")
        it.page.keyboard.press("Enter")
        it.page.get_by_role("link", name="billing", exact=True).wait_for()
        assert server.changes == [("POST", "/api/session", {"token": "secret"})]
        server.answers["session"] = out
        it.page.goto(it.url + "/groups#token=other")
        it.page.get_by_role("heading", name="Groups").wait_for()
        assert it.page.url == it.url + "/groups", "the token is gone from the address"
        assert server.changes[-1] == ("POST", "/api/session", {"token": "other"})
        it.check("at the end")
