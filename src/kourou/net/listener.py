"""A listening socket and its connections."""

import asyncio
import logging

from kourou.net.connection import Connection, Handler
from kourou.net.limits import Budget, Limits
from kourou.net.tls import TlsSettings

log = logging.getLogger(__name__)

BACKLOG = 1024


class Listener:
    """Accepts connections and hands their requests to one handler.

    `start` binds, `close` ends: no new connections, no new requests, answers for those that were taken.
    """

    def __init__(self, handler: Handler, *, limits: Limits | None = None, tls: TlsSettings | None = None) -> None:
        self._handler = handler
        self._limits = limits or Limits()
        self._tls = tls or TlsSettings()
        self._budget = Budget(self._limits.buffered)
        self._server: asyncio.Server | None = None
        self.connections: set[Connection] = set()
        self.refused = 0  # connections beyond the limit, since the start

    @property
    def buffered(self) -> int:
        """Bytes that all connections hold together, as far as they have said."""
        return self._budget.held

    @property
    def port(self) -> int:
        """The port that is bound, for port 0 the one that was chosen."""
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Raises OSError: the address is taken, or is not ours."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)

    def _accept(self) -> asyncio.Protocol:
        if len(self.connections) >= self._limits.connections:
            if self.refused % 1000 == 0:
                log.warning("connections refused: %d are open, the limit", len(self.connections))
            self.refused += 1
            return _Refusal()
        connection = Connection(
            self._handler, self._limits, self._budget, tls=self._tls, on_end=self.connections.discard
        )
        self.connections.add(connection)
        return connection

    async def close(self, grace: float = 5.0) -> None:
        """Answers what was taken, for at most `grace` seconds; then everything is closed."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.drain(grace) for connection in list(self.connections)))
        if self._server is not None:
            await self._server.wait_closed()


class _Refusal(asyncio.Protocol):
    """What a connection beyond the limit gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
