"""Every route, requested without the right: without a session, from another site, with too low a role, read-only."""

import re
from collections.abc import AsyncIterator

import pytest
from tests.unit.console.conftest import CHANGE, MakePage

from kourou.console.calls import Way
from kourou.console.guard import ANSWER_HEADERS
from kourou.console.routes import all_ways
from kourou.console.sessions import Role

WAYS = all_ways()
NAMES = [f"{way.method} {way.path}" for way in WAYS]


def path_of(way: Way) -> str:
    return re.sub(r"\{[^}]*\}", "x", way.path)


def headers_of(way: Way) -> dict[str, str]:
    return dict(CHANGE) if way.is_change else {}


async def ask(
    page_maker: MakePage, way: Way, role: Role | None, headers: dict[str, str], **options: bool
) -> tuple[int, str]:
    page = await page_maker(role=role, **options)
    answer = await page.http.request(
        way.method, path_of(way), headers=headers, content=b"{}" if way.is_change else None
    )
    for name, value in ANSWER_HEADERS:
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    return answer.status_code, answer.json().get("code", "")


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
async def test_every_route(way: Way, make_page: MakePage) -> None:
    good = headers_of(way)
    for change, expected in (
        ({"host": "evil.example"}, (421, "wrong_host")),
        ({"host": "127.0.0.1:9999"}, (421, "wrong_host")),
        ({"origin": "http://evil.example"}, (403, "foreign_origin")),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, (403, "foreign_origin")),
    ):
        assert await ask(make_page, way, Role.ADMINISTER, {**good, **change}) == expected
    if way.is_change:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            wrong = {**good, "content-type": kind}
            assert await ask(make_page, way, Role.ADMINISTER, wrong) == (415, "wrong_type")
        no_header = {"content-type": "application/json"}
        assert await ask(make_page, way, Role.ADMINISTER, no_header) == (403, "missing_header")
        if not way.is_session:
            refused = await ask(make_page, way, Role.ADMINISTER, good, read_only=True)
            assert refused == (403, "read_only")
    if way.role is not None:
        assert await ask(make_page, way, None, good) == (401, "not_signed_in")
        for role in Role:
            if role < way.role:
                assert await ask(make_page, way, role, good) == (403, "forbidden")


def test_what_changes_needs_a_role() -> None:
    for way in WAYS:
        if way.is_change and not way.is_session:
            assert way.role is not None and way.role >= Role.OPERATE, f"{way.method} {way.path}"
    assert {way.path for way in WAYS if way.role is None} == {"/api/session"}


async def test_a_body_that_is_too_large(make_page: MakePage) -> None:
    page = await make_page()
    answer = await page.http.post("/api/topics", content=b"x" * (1 << 20) + b"x", headers=CHANGE)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    answer = await page.http.post("/api/topics", content=parts(), headers=CHANGE)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_body_that_is_not_as_expected(make_page: MakePage) -> None:
    page = await make_page()
    for body in (b"", b"[]", b"{", b'{"name": 1}', b'{"name":"a","extra":1}', b"\xff", b'{"queues":' + b"[" * 100_000):
        answer = await page.http.post("/api/topics", content=body, headers=CHANGE)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), body[:20]


async def test_other_paths(make_page: MakePage) -> None:
    page = await make_page(role=None)
    assert (await page.http.get("/topics/orders")).headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/api/nothing", "/static/nothing.js", "/static/", "/static/%2e%2e/app.py", "/static//etc/passwd"):
        assert (await page.http.get(path)).status_code == 404, path
    answer = await page.http.post("/topics", content=b"{}", headers=CHANGE)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    first = await page.http.get("/")
    again = await page.http.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
