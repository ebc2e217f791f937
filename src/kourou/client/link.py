"""A client's connection to one server: requests without a task or a timer each.

`net.Connection` has what both sides need. A client that pipelines tens of thousands of requests a second needs one
thing more: to begin a request and await its answer later, with many requests under one timer. `Link.begin` is that.

A server from which nothing at all came while a request waited for its whole time is taken for dead: the connection is
ended, so that the next request opens a new one. Nothing else would notice a machine that is gone without a word.
"""

import asyncio
from heapq import heappop, heappush

from kourou.net.client import CONNECT_TIMEOUT, connect_as
from kourou.net.connection import Connection, Handler
from kourou.net.errors import ConnectionLostError, RequestTimedOutError, TooManyRequestsError
from kourou.net.limits import Budget, Limits
from kourou.net.tls import TlsLayer, TlsSettings
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag
from kourou.protocol.command import Command

_RESPONSE = int(CommandFlag.RESPONSE)

SWEEP_S = 0.05
"""How exactly time-outs are kept. The timer looks no more often than this."""


class Link(Connection):
    """A connection that we opened."""

    def __init__(self, handler: Handler, limits: Limits, tls_layer: TlsLayer | None) -> None:
        super().__init__(handler, limits, Budget(limits.buffered), tls_layer=tls_layer)
        self._deadlines: list[tuple[float, int, float]] = []  # (when, opaque, timeout), a heap
        self._sweep: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()  # when the server last sent anything

    @property
    def is_congested(self) -> bool:
        """The server does not read as fast as we write."""
        return self._writing_paused

    def begin(self, command: Command, timeout: float) -> "asyncio.Future[Command]":
        """Send a request now; the future has its answer, or fails with a TransportError.

        Does not wait for a server that reads slowly: see `is_congested`. Raises ConnectionLostError,
        TooManyRequestsError, LocalProtocolError.
        """
        waiting = self._waiting
        if len(waiting) >= self._limits.requests:
            raise TooManyRequestsError(f"{len(waiting)} requests await an answer from {self.peer}")
        if not self.is_open:
            raise ConnectionLostError(
                f"the connection to {self.peer or 'the server'} is closed ({self.reason or 'lost'})"
            )
        opaque = command.opaque = self._next_opaque()
        data = frame.encode(command)
        future: asyncio.Future[Command] = self._loop.create_future()
        waiting[opaque] = future
        heappush(self._deadlines, (self._loop.time() + timeout, opaque, timeout))
        if self._sweep is None:
            self._sweep = self._loop.call_later(max(timeout, SWEEP_S), self._look_at_deadlines)
        elif self._deadlines[0][1] == opaque and self._sweep.when() > self._deadlines[0][0] + SWEEP_S:
            self._sweep.cancel()
            self._sweep = self._loop.call_later(max(timeout, SWEEP_S), self._look_at_deadlines)
        self._send(data)
        return future

    async def request(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer, also for the server to read. Raises TransportError."""
        if self._writing_paused:
            async with _time_limit(timeout, self.peer, command.code):
                await self.wait_writable()
        return await self.begin(command, timeout)

    async def wait_writable(self) -> None:
        """Wait until the server has read most of what was sent, or the connection is gone."""
        while self._writing_paused and self.is_open:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        super().data_received(data)

    def _take(self, commands: list[Command]) -> None:
        requests: list[Command] = []
        waiting = self._waiting
        for command in commands:
            if command.flag & _RESPONSE:
                future = waiting.pop(command.opaque, None)
                if future is not None and not future.done():
                    future.set_result(command)
            else:
                requests.append(command)
        if requests:
            super()._take(requests)

    def _look_at_deadlines(self) -> None:
        self._sweep = None
        now, deadlines, waiting = self._loop.time(), self._deadlines, self._waiting
        while deadlines:
            when, opaque, timeout = deadlines[0]
            future = waiting.get(opaque)
            if future is not None and not future.done():
                if when > now:
                    self._sweep = self._loop.call_later(max(when - now, SWEEP_S), self._look_at_deadlines)
                    return
                future.set_exception(RequestTimedOutError(f"no answer from {self.peer} in {timeout:g} s"))
                future.exception()  # who waits may have gone already
                if self._heard < when - timeout:
                    waiting.pop(opaque)
                    self.abort(f"the server was silent for {timeout:g} s")
                    return
            waiting.pop(opaque, None)
            heappop(deadlines)

    def _release(self) -> None:
        super()._release()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._deadlines.clear()


class _time_limit:  # noqa: N801 - reads as a verb where it is used
    """asyncio.timeout that raises our error."""

    def __init__(self, timeout: float, peer: str, code: int) -> None:
        self._timeout = asyncio.timeout(timeout)
        self._text = f"request {code} could not be sent to {peer} in {timeout:g} s: it does not read"

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)  # type: ignore[arg-type]
        except TimeoutError:
            raise RequestTimedOutError(self._text) from None


async def open_link(
    host: str,
    port: int,
    handler: Handler,
    limits: Limits,
    tls: TlsSettings | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> Link:
    """A connection to `host:port`, in TLS when its settings are given. Raises ConnectFailedError."""
    return await connect_as(lambda layer: Link(handler, limits, layer), host, port, tls, timeout)
