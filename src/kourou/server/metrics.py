"""Figures for Prometheus, on a port of their own: GET /metrics. broker_figures.py defines them.

The page of a broker with many topics and groups is long. It is written in slices, one in each turn of the event loop,
so that other requests are served in between; so its lines may show the state at different times.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from kourou.broker.machine import Broker
from kourou.server.broker_figures import BrokerFigures
from kourou.server.conf import ConfError

log = logging.getLogger(__name__)

REQUEST_SIZE_MAX = 8 * 1024
REQUEST_TIME = 5.0
PAGE_TIME = 60.0
"""Seconds that a page may take, until its client has read it."""

CLOSE_TIME = 2.0
"""Seconds that a client may take to read the rest."""

CONNECTIONS_MAX = 16

SLICE = 0.005
"""Seconds for which lines are written before other requests have their turn."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Answers only GET /metrics."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._figures = BrokerFigures(broker, now_ms)
        if broker.configuration.process.remoting_metrics or broker.configuration.process.request_metrics:
            broker.meters.start(broker.outbox, broker.writer)
        self._turn = asyncio.Lock()  # of all pages together, one slice in each turn of the loop
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Raises ConfError."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_SIZE_MAX)
        except (OSError, OverflowError) as error:
            raise ConfError(
                f"can't serve metrics on {host}:{port}: {error}. Set metricsPromExporterPort to a free port"
            ) from None

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS_MAX:
                writer.write(_answer(503, b"too many connections\n"))
            else:
                async with asyncio.timeout(REQUEST_TIME):
                    request = await reader.readuntil(b"\r\n\r\n")
                async with asyncio.timeout(PAGE_TIME):
                    await self._answer(request, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            await _close(writer)

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            writer.write(_answer(405, b"GET is expected\n"))
        elif path != b"/metrics":
            writer.write(_answer(404, b"/metrics is all there is\n"))
        else:
            writer.write(_head(200))
            if method == b"GET":
                await self._write_page(writer)
        await writer.drain()

    async def _write_page(self, writer: asyncio.StreamWriter) -> None:
        """Write the page, then close the connection, because the size of the page is not known in advance."""
        lines = self._figures.text()
        while True:
            async with self._turn:
                data = slice_of(lines)
                await asyncio.sleep(0)
            if data is None:
                return
            writer.write(data)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; at once, with what it has not read, if its client does not read."""
    writer.close()
    with contextlib.suppress(OSError):
        try:
            async with asyncio.timeout(CLOSE_TIME):
                await writer.wait_closed()
        except TimeoutError:
            writer.transport.abort()


def slice_of(lines: Iterator[str]) -> bytes | None:
    """The lines for one turn of the event loop; None at the end."""
    until = time.perf_counter() + SLICE
    some: list[str] = []
    for line in lines:
        some.append(line)
        if time.perf_counter() > until:
            break
    return "".join(some).encode() if some else None


_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _answer(status: int, body: bytes) -> bytes:
    return _head(status, len(body)) + body


def _head(status: int, size: int | None = None) -> bytes:
    length = "" if size is None else f"Content-Length: {size}\r\n"
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {TEXT}\r\n{length}Connection: close\r\n\r\n".encode()
