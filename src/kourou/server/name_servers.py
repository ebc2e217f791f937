"""The name servers at which a broker registers, over connections of its own.

Java: BrokerOuterAPI.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence

from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.errors import ConnectionLostError, TransportError
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError

log = logging.getLogger(__name__)


class NameServers:
    """All name servers. With `by_lookup`, each address of a host name is one, and names are resolved each time."""

    def __init__(self, addresses: Sequence[str], tls: TlsSettings | None = None, *, by_lookup: bool = False) -> None:
        """`tls`: the settings of the connections; None for plain text."""
        self._addresses = addresses
        self._tls = tls
        self._by_lookup = by_lookup
        self._links = {} if by_lookup else {address: NameServerLink(address, tls) for address in addresses}
        self._turn = asyncio.Lock()

    def __bool__(self) -> bool:
        return bool(self._addresses)

    async def links(self) -> "list[NameServerLink]":
        """Connections to all current name servers."""
        if self._by_lookup:
            async with self._turn:  # one at a time, like registrations
                await self._look_up()
        return list(self._links.values())

    async def ask_one(self, command: Command, timeout: float) -> Command | None:
        """The answer of the first one that answers. Those that did not answer the last time are asked last."""
        for link in sorted(await self.links(), key=lambda link: link.is_silent):
            answer = await link.ask(command, timeout)
            link.is_silent = isinstance(answer, str)
            if not isinstance(answer, str):
                return answer
        return None

    async def _look_up(self) -> None:
        found: set[str] = set()
        for address in self._addresses:
            host, _, port = address.rpartition(":")
            try:
                loop = asyncio.get_running_loop()
                infos = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            except (OSError, ValueError) as error:  # use the addresses of the last time
                log.warning("the name of a name server can't be resolved name=%s: %s", address, error)
                return
            found |= {f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos}
        if found != self._links.keys():
            log.info("name servers resolved addresses=%s", " ".join(sorted(found)))
        for address in self._links.keys() - found:
            self._links.pop(address).close()
        for address in found - self._links.keys():
            self._links[address] = NameServerLink(address, self._tls)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class NameServerLink:
    """The connection to a name server. It is kept open, since name servers remove a broker when its connection closes.

    Registrations are sent one at a time.
    """

    def __init__(self, address: str, tls: TlsSettings | None) -> None:
        self.address = address
        self.is_silent = False  # it did not answer the last request of `ask_one`
        self._tls = tls
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def ask(self, command: Command, timeout: float) -> Command | str:
        """The answer, or why there is none."""
        command = Command(command.code, flag=command.flag, ext=command.ext, body=command.body)
        async with self._turn:
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._connect()
                return await self._connection.request(command, timeout)
            except (TransportError, LocalProtocolError, ValueError) as error:
                log.debug("a request to a name server failed address=%s: %s", self.address, error)
                return str(error) or type(error).__name__

    async def _connect(self) -> Connection:
        """Raises TransportError."""
        host, _, port = self.address.rpartition(":")
        connection = None if self._is_closed else await connect(host.strip("[]"), int(port), tls=self._tls)
        if self._is_closed and connection is not None:  # closed meanwhile
            connection.close()
        if self._is_closed or connection is None:
            raise ConnectionLostError("this broker has closed its connection to the server")
        return connection

    def close(self) -> None:
        """Close the connection, or the one that is being made as soon as it is; later requests fail."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
