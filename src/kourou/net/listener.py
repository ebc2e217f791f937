"""A listening socket and its connections."""

import asyncio
import logging
import resource

from kourou.net.background import Background
from kourou.net.connection import Connection, Handler, Reader
from kourou.net.limits import Budget, Limits
from kourou.net.proxy import Networks
from kourou.net.tls import TlsSettings

log = logging.getLogger(__name__)

BACKLOG = 1024
FILES_RESERVED = BACKLOG + 64
"""Open files that are kept for other things than connections: those just being accepted, documents, logs."""


class Listener:
    """Accepts connections and hands their requests to one handler.

    `start` binds, `close` ends: no new connections, no new requests, answers for those that were taken.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limits: Limits | None = None,
        tls: TlsSettings | None = None,
        background: Background | None = None,
        trusted_proxies: Networks = (),
    ) -> None:
        """`background`: of those who read in bulk, if some do. `trusted_proxies` may say for whom they speak."""
        self._handler = handler
        self._trusted_proxies = trusted_proxies
        self.reader: Reader | None = None  # of connections that are accepted from now on
        self._background = background
        self._limits = limits or Limits()
        self._tls = tls or TlsSettings()
        self._budget = Budget(self._limits.buffered)
        self._server: asyncio.Server | None = None
        self._port: int | None = None
        self._closing = False
        self._connections_max = self._limits.connections
        self.connections: set[Connection] = set()
        self.refused = 0  # connections beyond the limit, since the start

    @property
    def buffered(self) -> int:
        """Bytes that all connections hold together, as far as they have said."""
        return self._budget.held

    @property
    def port(self) -> int:
        """The port that is bound, for port 0 the one that was chosen."""
        assert self._port is not None, "not started"
        return self._port

    async def start(self, host: str, port: int) -> None:
        """Raises OSError: the address is taken, or is not ours."""
        loop = asyncio.get_running_loop()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            self._connections_max = min(self._limits.connections, files - min(FILES_RESERVED, files // 4))
        self._server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        self._port = int(self._server.sockets[0].getsockname()[1])

    def _accept(self) -> asyncio.Protocol:
        if self._closing:
            return _Refusal()
        if len(self.connections) >= self._connections_max:
            if self.refused % 1000 == 0:
                log.warning("connections refused: %d are open, the limit", len(self.connections))
            self.refused += 1
            return _Refusal()
        connection = Connection(
            self._handler,
            self._limits,
            self._budget,
            tls=self._tls,
            on_end=self.connections.discard,
            reader=self.reader,
            background=self._background,
            trusted_proxies=self._trusted_proxies,
        )
        self.connections.add(connection)
        return connection

    async def close(self, grace: float = 5.0) -> None:
        """Answers what was taken, for at most `grace` seconds; then everything is closed."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.drain(grace) for connection in list(self.connections)))
        if self._server is not None:
            await self._server.wait_closed()


class _Refusal(asyncio.Protocol):
    """What a connection beyond the limit gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
