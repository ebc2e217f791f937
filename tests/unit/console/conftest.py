"""The console over an embedded broker, asked without sockets; and one whose name server does not exist."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from tests.waiting import answered

import kourou
from kourou.console.app import make_app
from kourou.console.guard import Rules
from kourou.console.sessions import Role
from kourou.console.state import Access, Console, open_client
from kourou.console.users import Users
from kourou.embedded import Embedded

HOST = "127.0.0.1:8082"
BASE = f"http://{HOST}"
CHANGE = {"x-kourou": "1", "content-type": "application/json"}
NOWHERE = "127.0.0.1:1"


class Page:
    """A browser that is signed in with a role, or not."""

    def __init__(self, console: Console, role: Role | None) -> None:
        self.console = console
        cookies = {} if role is None else {console.cookie: console.sessions.begin("anna", role)}
        transport = httpx.ASGITransport(make_app(console, background=False))
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE, cookies=cookies)

    async def get(self, path: str, status: int = 200, **params: Any) -> Any:
        answer = await self.http.get(path, params=params or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def change(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.http.request(method, path, json=body or {}, headers=CHANGE)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return await self.change("POST", path, body, status)


MakePage = Callable[..., Awaitable[Page]]


@pytest.fixture
async def make_page() -> AsyncIterator[MakePage]:
    """`await make_page(namesrv, role=…, read_only=…)`: a page of a new console."""
    async with AsyncExitStack() as stack:

        async def make(
            namesrv: str = NOWHERE,
            role: Role | None = Role.ADMINISTER,
            *,
            read_only: bool = False,
            users: Users | None = None,
            is_behind_proxy: bool = False,
        ) -> Page:
            client = open_client(Access((namesrv,)))
            rules = Rules(frozenset((HOST,)), is_behind_proxy=is_behind_proxy)
            console = Console(client, rules, read_only=read_only, users=users)
            stack.push_async_callback(console.close)
            page = Page(console, role)
            stack.push_async_callback(page.http.aclose)
            return page

        yield make


@pytest.fixture
async def broker() -> AsyncIterator[Embedded]:
    async with kourou.embedded() as embedded:
        yield embedded


@pytest.fixture
async def page(broker: Embedded, make_page: MakePage) -> Page:
    """An administrator's page over a broker of its own."""
    return await make_page(broker.namesrv)


async def until(page: Page, path: str, is_there: Callable[[Any], bool], **params: Any) -> Any:
    """What a page answers as soon as it is so; facts that the console remembers are asked for again."""

    async def look() -> Any:
        page.console.facts.forget(
            *("ends", "topics", "groups", "progress", "connections", "topic groups"),
            *("waiting retries", "timers", "runtime", "raft"),
        )
        found = await page.get(path, **params)
        return found if is_there(found) else None

    return await answered(look)
