"""Both event loops, and a guard that nothing escapes into them."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from kourou.net.background import Background
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.handlers import Handler
from kourou.net.limits import Limits
from kourou.net.listener import Listener
from kourou.net.proxy import networks
from kourou.net.tls import TlsSettings

from .peers import Echo, RawPeer

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    factories: dict[str, Callable[[], Any]] = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


TIME_LIMIT = 60.0
"""Seconds for one test. A signal, which is what pytest-timeout uses, does not wake a uvloop that has nothing to do."""


def _end_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()
        task.cancel(f"the test took more than {TIME_LIMIT:g} s")


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> Iterator[None]:
    """What is there before the first test need not be looked at by each test's garbage collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
async def nothing_escapes(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """No exception reaches the loop, no future's exception is forgotten, and nothing is logged as an error."""
    loop, escaped = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: escaped.append(repr(context)))
    caplog.set_level(logging.INFO, logger="kourou")
    alarm = loop.call_later(TIME_LIMIT, _end_all_tasks)
    yield
    alarm.cancel()
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert escaped == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


class Listen(Protocol):
    async def __call__(
        self,
        handler: Handler | None = None,
        *,
        limits: Limits | None = None,
        tls: TlsSettings | None = None,
        background: Background | None = None,
        trusted: str = ...,
    ) -> Listener: ...


@pytest.fixture
async def ends() -> AsyncIterator[AsyncExitStack]:
    """What is to be undone at the end, last first."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def listen(ends: AsyncExitStack) -> Listen:
    """Start a listener on a free port; echoes unless another handler is given."""

    async def start(
        handler: Handler | None = None,
        *,
        limits: Limits | None = None,
        tls: TlsSettings | None = None,
        background: Background | None = None,
        trusted: str = "127.0.0.0/8",
    ) -> Listener:
        listener = Listener(
            handler or Echo(), limits=limits, tls=tls, background=background, trusted_proxies=networks(trusted)
        )
        await listener.start("127.0.0.1", 0)
        ends.push_async_callback(listener.close, 0.0)
        return listener

    return start


Dial = Callable[..., Awaitable[Connection]]


@pytest.fixture
def dial(ends: AsyncExitStack) -> Dial:
    """Open one of our own connections to a listener."""

    async def open_connection(listener: Listener, **options: Any) -> Connection:
        connection = await connect("127.0.0.1", listener.port, **options)
        ends.push_async_callback(_end, connection)
        return connection

    return open_connection


async def _end(connection: Connection) -> None:
    connection.abort("the test is over")
    await connection.lost


Knock = Callable[..., Awaitable[RawPeer]]


@pytest.fixture
def knock(ends: AsyncExitStack) -> Knock:
    """Open a plain socket to a listener."""

    async def open_peer(listener: Listener, *, receive_buffer: int | None = None) -> RawPeer:
        peer = await RawPeer.open(listener.port, receive_buffer)
        ends.callback(peer.close)
        return peer

    return open_peer
