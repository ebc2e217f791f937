"""Connections by address: opened at the first use, kept open, and opened again when lost.

One connection per server carries all requests, in both directions: brokers send requests to clients on the connection
that the client opened. Callers that need the same new connection wait for one attempt; if one of them is cancelled
meanwhile, the attempt continues for the others.
"""

import asyncio
from collections.abc import Callable

from kourou.client.errors import ClosedError
from kourou.client.link import Link, open_link
from kourou.client.pacing import Pacing
from kourou.net.client import CONNECT_TIMEOUT
from kourou.net.errors import ConnectFailedError, TransportError
from kourou.net.handlers import Handler
from kourou.net.limits import Limits
from kourou.net.tls import TlsSettings
from kourou.protocol.codes import CommandFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import refused
from kourou.protocol.signing import Credentials

_ONE_WAY = int(CommandFlag.ONE_WAY)


def split_address(address: str) -> tuple[str, int]:
    """Host and port; an IPv6 host may be in brackets. Raises ConnectFailedError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ConnectFailedError(f"{address!r} is not an address: host:port is expected")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_cancelled(task: "asyncio.Task[object] | None") -> bool:
    return task is not None and task.cancelling() > 0


class Pool:
    """The connections of one client."""

    def __init__(
        self,
        handler: Handler,
        *,
        credentials: Credentials | None = None,
        tls: TlsSettings | None = None,
        limits: Limits | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        pacing: Pacing | None = None,
    ) -> None:
        self._handler = handler
        self._pacing = pacing
        self._credentials = credentials
        self._tls = tls
        self._limits = limits or Limits()
        self._connect_timeout = connect_timeout
        self._links: dict[str, Link] = {}
        self._opening: dict[str, asyncio.Task[Link]] = {}
        self._closed = False
        self.on_connected: Callable[[str], None] | None = None  # called with the address of every new connection
        self.on_lost: Callable[[str, str], None] | None = None  # called with address and reason when one is lost

    def link(self, address: str) -> Link | None:
        """The open connection to this address, if there is one."""
        link = self._links.get(address)
        return link if link is not None and link.is_open else None

    @property
    def addresses(self) -> list[str]:
        """The addresses with open connections."""
        return [address for address, link in self._links.items() if link.is_open]

    async def connected(self, address: str) -> Link:
        """The connection to this address; opens it if necessary. Raises ConnectFailedError, ClosedError."""
        link = self.link(address)
        if link is not None:
            return link
        if self._closed:
            raise ClosedError("the client is closed")
        task = self._opening.get(address)
        if task is None:
            task = self._opening[address] = asyncio.create_task(self._open(address))
            task.add_done_callback(lambda done: self._opened(address, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _is_cancelled(asyncio.current_task()):  # by `close`, which did not mean them
                raise ClosedError("the client was closed while it connected") from None
            raise

    async def _open(self, address: str) -> Link:
        host, port = split_address(address)
        return await open_link(host, port, self._handler, self._limits, self._tls, self._connect_timeout)

    def _opened(self, address: str, task: "asyncio.Task[Link]") -> None:
        self._opening.pop(address, None)
        if task.cancelled() or task.exception() is not None:
            return
        link = task.result()
        if self._closed:
            link.close()
            return
        self._links[address] = link
        if self.on_connected is not None:
            self.on_connected(address)
        link.lost.add_done_callback(lambda _: self._gone(address, link))

    def _gone(self, address: str, link: Link) -> None:
        if self.on_lost is not None:
            is_ours = self._closed or self._links.get(address) is not link
            self.on_lost(address, link.reason or f"closed by the {'client' if is_ours else 'server'}")

    def sign(self, command: Command) -> None:
        """Signs the request, if the client has credentials."""
        if self._credentials is not None:
            self._credentials.sign(command)

    def begin(self, link: Link, command: Command, timeout: float) -> "asyncio.Future[Command]":
        """Signs a request and sends it on an open connection: see `Link.begin`."""
        if self._credentials is not None:
            self._credentials.sign(command)
        return link.begin(command, timeout)

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        """The answer, with any code. Raises TransportError, ClosedError."""
        if self._pacing is None:
            return await self._request(address, command, timeout)
        async with self._pacing.turn(address, command):
            return await self._request(address, command, timeout)

    async def _request(self, address: str, command: Command, timeout: float) -> Command:
        link = self.link(address) or await self.connected(address)
        self.sign(command)
        return await link.request(command, timeout)

    async def ask(self, address: str, command: Command, timeout: float) -> Command:
        """The successful answer. Raises RefusedError for any other, TransportError, ClosedError."""
        answer = await self.request(address, command, timeout)
        if answer.code != 0:
            raise refused(answer.code, answer.remark)
        return answer

    async def tell(self, address: str, command: Command) -> None:
        """Sends a one-way request. Raises TransportError if it can't be sent, ClosedError."""
        link = self.link(address) or await self.connected(address)
        command.flag |= _ONE_WAY
        self.sign(command)
        await link.send(command)

    def forget(self, address: str) -> None:
        """Closes the connection to a server that is no longer used."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

    async def close(self, grace: float = 2.0) -> None:
        """Closes all connections after their unsent bytes were sent, within `grace` seconds."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()
        if opening:
            await asyncio.gather(*opening, return_exceptions=True)
        if links:
            await asyncio.wait([link.lost for link in links], timeout=grace)
        for link in links:
            if not link.lost.done():
                link.abort(f"not closed within {grace:g} s")


__all__ = ["ConnectFailedError", "Pool", "TransportError", "split_address"]
