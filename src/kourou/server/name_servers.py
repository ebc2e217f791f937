"""The name servers that a broker tells of itself, over connections of its own.

Java: BrokerOuterAPI.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence

from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.errors import TransportError
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError

log = logging.getLogger(__name__)


class NameServers:
    """All of them. With `by_lookup`, each address behind a name is one, and they are looked up each time."""

    def __init__(self, addresses: Sequence[str], tls: TlsSettings | None = None, *, by_lookup: bool = False) -> None:
        """`tls`: they are spoken to in TLS."""
        self._addresses = addresses
        self._tls = tls
        self._by_lookup = by_lookup
        self._links = {} if by_lookup else {address: NameServerLink(address, tls) for address in addresses}
        self._turn = asyncio.Lock()

    def __bool__(self) -> bool:
        return bool(self._addresses)

    async def links(self) -> "list[NameServerLink]":
        """Connections to all that there are now."""
        if self._by_lookup:
            async with self._turn:  # one after the other, as registrations are
                await self._look_up()
        return list(self._links.values())

    async def _look_up(self) -> None:
        found: set[str] = set()
        for address in self._addresses:
            host, _, port = address.rpartition(":")
            try:
                loop = asyncio.get_running_loop()
                infos = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            except (OSError, ValueError) as error:  # those of the last time are as good a guess as any
                log.warning("name server not found name=%s: %s", address, error)
                return
            found |= {f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos}
        if found != self._links.keys():
            log.info("name servers found %s", " ".join(sorted(found)))
        for address in self._links.keys() - found:
            self._links.pop(address).close()
        for address in found - self._links.keys():
            self._links[address] = NameServerLink(address, self._tls)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class NameServerLink:
    """The connection to a name server, opened when it is needed and kept: a broker whose connection closes is dropped.

    Registrations go one after the other.
    """

    def __init__(self, address: str, tls: TlsSettings | None) -> None:
        self.address = address
        self._tls = tls
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def ask(self, command: Command, timeout: float) -> Command | str:
        """The answer, or why there is none."""
        command = Command(command.code, flag=command.flag, ext=command.ext, body=command.body)
        async with self._turn:
            try:
                if self._connection is None or not self._connection.is_open:
                    host, _, port = self.address.rpartition(":")
                    self._connection = await connect(host.strip("[]"), int(port), tls=self._tls)
                return await self._connection.request(command, timeout)
            except (TransportError, LocalProtocolError, ValueError) as error:
                log.debug("name server not reached address=%s: %s", self.address, error)
                return str(error) or type(error).__name__

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
