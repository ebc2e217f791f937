"""A listening socket and its connections."""

import asyncio
import logging
import resource
from typing import Any

from kourou.net.background import Background
from kourou.net.connection import Connection
from kourou.net.handlers import Handler, Reader
from kourou.net.limits import Budget, Limits
from kourou.net.proxy import Networks, is_trusted
from kourou.net.tls import TlsSettings

log = logging.getLogger(__name__)

BACKLOG = 1024
FILES_RESERVED = BACKLOG + 64
"""Open files that are reserved for other uses: connections that are being accepted, documents, logs."""


class Listener:
    """Accepts connections and hands their requests to one handler.

    `start` binds; `close` accepts no more connections and requests, and answers the accepted ones.
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
        """`background`: shared by bulk readers, if there are any. `trusted_proxies` may send PROXY preambles."""
        self._handler = handler
        self._trusted_proxies = trusted_proxies
        self.reader: Reader | None = None  # for connections that are accepted from now on
        self._background = background
        self._limits = limits or Limits()
        self._tls = tls or TlsSettings()
        self._budget = Budget(self._limits.buffered)
        self._server: asyncio.Server | None = None
        self._port: int | None = None
        self._closing = False
        self._connections_max = self._limits.connections
        self.connections: set[Connection] = set()
        self._hosts: dict[Connection, str] = {}  # those that count for the limit per address
        self._of_host: dict[str, int] = {}
        self.refused = 0  # connections beyond the limit, since the start

    @property
    def buffered(self) -> int:
        """How many bytes all connections hold together, as last reported."""
        return self._budget.held

    @property
    def port(self) -> int:
        """The bound port; for port 0 the one that was chosen."""
        assert self._port is not None, "not started"
        return self._port

    async def start(self, host: str, port: int) -> None:
        """Raises OSError if the address is in use or not available."""
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
                log.warning(
                    "refusing connections: %d are open, the limit (maxConnections or open files)", len(self.connections)
                )
            self.refused += 1
            return _Refusal()
        connection = _Accepted(
            self,
            self._handler,
            self._limits,
            self._budget,
            tls=self._tls,
            on_end=self._ended,
            reader=self.reader,
            background=self._background,
            trusted_proxies=self._trusted_proxies,
        )
        self.connections.add(connection)
        return connection

    def came(self, connection: Connection) -> None:
        """Refuse a connection if its address has too many. Trusted proxies do not count: many clients share them."""
        peer = connection.peer
        if is_trusted(peer, self._trusted_proxies):
            return
        host = peer.rpartition(":")[0]
        count = self._of_host.get(host, 0)
        if count >= self._limits.connections_of_address:
            if self.refused % 1000 == 0:
                log.warning(
                    "refusing connections address=%s: it has %d, the limit (maxConnectionsPerAddress)", host, count
                )
            self.refused += 1
            connection.abort("its address has too many connections (maxConnectionsPerAddress)")
            return
        self._of_host[host] = count + 1
        self._hosts[connection] = host

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    async def close(self, grace: float = 5.0) -> None:
        """Answer accepted requests for at most `grace` seconds, then close everything."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.drain(grace) for connection in list(self.connections)))
        if self._server is not None:
            await self._server.wait_closed()


class _Accepted(Connection):
    """A connection to a listener, which is told about it once its address is known."""

    def __init__(self, listener: Listener, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._listener.came(self)


class _Refusal(asyncio.Protocol):
    """The protocol of a connection beyond the limit: it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
