"""Silent connections, with the real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.waiting import answered

from kourou.console import connections, serving
from kourou.console.limits import CONNECTIONS_MAX
from kourou.console.serving import Options, serve
from kourou.console.state import Access


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of a console without brokers."""
    listener = serving.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    ready = asyncio.Event()
    options = Options(access=Access(("127.0.0.1:1",)), port=port, descriptor=listener.detach())
    task = asyncio.create_task(serve(options, lambda _: ready.set(), lambda _: None))
    try:
        await asyncio.wait_for(ready.wait(), 60)
        yield f"127.0.0.1:{port}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_silent_connections_keep_no_other_out() -> None:
    """More of them than there are places, some with the beginning of a request."""
    async with served() as address:
        host, port = address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS_MAX + 8)]
        for _, writer in silent[::2]:
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as http:
            for _ in range(3):
                assert (await http.get("/api/session")).status_code == 200
        for _, writer in silent:
            writer.close()


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS_MAX", 0.05)
    async with served() as address:
        host, port = address.split(":")
        for beginning in (b"", b"GET / HTTP/1.1\r\nHost: x"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(beginning)

            async def closed(reader: asyncio.StreamReader = reader) -> bool:
                try:
                    return not await reader.read(1)
                except ConnectionError:
                    return True

            assert await answered(closed)
            writer.close()
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as http:
            assert (await http.get("/api/session")).status_code == 200
