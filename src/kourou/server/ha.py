"""The HA port: connections of slaves, and the connection to a master. The port of a Raft group works the same way.

    sockets ─▶ Accepted, Connected, Received, HasRoom, Closed ─▶ the broker's machine ─▶ Transfer, HangUp, Connect

Only the machine knows the frames (`kourou.replication`). If peers have to authenticate (`ha_gate.py`), they do so
before the machine gets their bytes; a peer that fails, or takes longer than `PROVING_TIME`, is refused. A connection
with more than `UNSENT_MAX` unsent bytes reports that it has no room, and gets no more bytes until it has.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final, assert_never, cast

from kourou.protocol.errors import ProtocolError
from kourou.protocol.names import shown
from kourou.replication.links import (
    Accepted,
    Closed,
    Connect,
    Connected,
    HangUp,
    HasRoom,
    Link,
    LinkEffect,
    LinkEvent,
    NotConnected,
    Received,
    Transfer,
)
from kourou.server.ha_gate import OPEN, Gate, PeerSecurity

log = logging.getLogger(__name__)

UNSENT_MAX: Final = 1024 * 1024
"""The most unsent bytes of one connection."""

CONNECT_TIMEOUT: Final = 5.0

PROVING_TIME: Final = 5.0
"""Seconds that a peer has to authenticate."""

PROVING_MAX: Final = 64
"""The most peers that authenticate at the same time; further ones are refused."""

REFUSALS_LOGGED_S: Final = 60.0
"""A cause of refusals is logged once in this time."""

CAUSES_MAX: Final = 20
"""The most causes that are logged in this time."""

UNACKNOWLEDGED_MS: Final = 10_000
"""How long bytes may be unacknowledged before this broker gives up a connection that it has made."""

PROBE_S: Final = 1
"""After this many seconds without traffic, the kernel probes a connection that this broker has made."""


class _Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: "HaPort", address: str | None = None) -> None:
        """`address`: this broker connects to it; None: a peer connects to this broker."""
        self._port = port
        self._is_outgoing = address is not None
        self.link = Link(address or "", self)
        self.has_room = True
        self.transport: asyncio.Transport | None = None
        host = None if address is None else address.rpartition(":")[0].strip("[]")
        self._gate = Gate(port.security, port.purpose, host)
        self._is_known = False  # to the machine
        self._problem = "the connection ended during authentication"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass of it
        self.transport = transport
        if self._port.is_closed:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._port.unsent_max)
        self._port.wires.add(self)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.link.ip = host
        if self._is_outgoing:
            _watch(transport)
        else:
            self.link.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._gate.is_open:
            self._introduce()
        elif self._port.may_prove(self):
            transport.write(self._gate.start())
        else:
            self._refuse(f"the limit of {PROVING_MAX} peers that authenticate at the same time is reached")

    def _introduce(self) -> None:
        self._is_known = True
        self._port.proving.discard(self)
        self._port.give(Connected(self.link) if self._is_outgoing else Accepted(self.link))

    def data_received(self, data: bytes) -> None:
        if self._gate.is_transparent:
            self._port.give(Received(self.link, data))
            return
        try:
            data, answer = self._gate.receive(data)
        except (ProtocolError, ssl.SSLError) as error:
            self._refuse(str(error))
            return
        if answer and self.transport is not None:
            self.transport.write(answer)
        if self._gate.is_open and not self._is_known:
            self._introduce()
        if data and self.transport is not None:
            self._port.give(Received(self.link, data))
        if self._gate.is_closed:
            self.abort()

    def late(self) -> None:
        """The time to authenticate is over."""
        if not self._is_known:
            self._refuse(f"it did not authenticate within {PROVING_TIME:g} s")

    def _refuse(self, reason: str) -> None:
        self._problem = reason
        if not self._is_outgoing:
            self._port.log_refusal(self.link.address, reason)
        if self.transport is not None:
            self.transport.write(self._gate.alert())
            self.transport.close()

    def write(self, head: bytes, data: memoryview | None) -> None:
        if self.transport is not None and not self.transport.is_closing():
            joined = head if data is None else b"".join((head, data))
            try:
                self.transport.write(joined if self._gate.is_transparent else self._gate.send(joined))
            except ssl.SSLError:  # the peer has ended TLS
                self.abort()

    def pause_writing(self) -> None:
        self.has_room = False

    def resume_writing(self) -> None:
        self.has_room = True
        if self._is_known:
            self._port.give(HasRoom(self.link))

    def connection_lost(self, _: Exception | None) -> None:
        self.has_room = False
        self.transport = None
        self._port.wires.discard(self)
        self._port.proving.discard(self)
        if self._is_known:
            self._port.give(Closed(self.link))
        elif self._is_outgoing:
            self._port.give(NotConnected(self.link.address, self._problem))

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class HaPort:
    """All connections of one broker that carry its log to slaves, or to the members of its group."""

    def __init__(
        self,
        give: Callable[[LinkEvent], None],
        unsent_max: int = UNSENT_MAX,
        *,
        one_master: bool = True,
        security: PeerSecurity = OPEN,
        purpose: str = "HA",
    ) -> None:
        """`give` is called with events. `one_master`: an attempt to connect ends all other connections.

        `purpose` makes sure that a proof for one kind of port is not valid for another.
        """
        self.give = give
        self.security = security
        self.purpose = purpose
        self.proving: set[_Wire] = set()  # they have not authenticated yet
        self._refusals: dict[str, float] = {}  # causes, and when they were logged
        self._one_master = one_master
        self.unsent_max = unsent_max
        self.wires: set[_Wire] = set()
        self._server: asyncio.Server | None = None
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    async def listen(self, host: str, port: int, *, listening: socket.socket | None = None) -> int:
        """Accept connections. Returns the port; 0 chooses a free one. Raises OSError.

        `listening` is a bound socket that is used instead.
        """
        loop = asyncio.get_running_loop()
        if listening is not None:
            self._server = await loop.create_server(lambda: _Wire(self), sock=listening)
        else:
            self._server = await loop.create_server(lambda: _Wire(self), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def perform(self, effect: LinkEffect) -> None:
        match effect:
            case Transfer(link, head, data):
                link.wire.write(head, data)
            case HangUp(link, reason):
                log.debug("HA connection ended address=%s: %s", link.address, reason)
                link.wire.abort()
            case Connect(address):
                self.connect(address)
            case _:
                assert_never(effect)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def may_prove(self, wire: _Wire) -> bool:
        """Let a peer authenticate; False if too many do so at the moment."""
        if len(self.proving) >= PROVING_MAX:
            return False
        self.proving.add(wire)
        asyncio.get_running_loop().call_later(PROVING_TIME, wire.late)
        return True

    def log_refusal(self, address: str, reason: str) -> None:
        """Log a refusal, but only from time to time for each cause, so that a stranger can't fill the log."""
        now = time.monotonic()
        self._refusals = {text: then for text, then in self._refusals.items() if now - then < REFUSALS_LOGGED_S}
        cause = reason[:40]
        if cause not in self._refusals and len(self._refusals) < CAUSES_MAX:
            self._refusals[cause] = now
            log.warning("refused a connection to the %s port address=%s: %s", self.purpose, address, shown(reason))

    def connect(self, address: str) -> None:
        """Start to connect; after `close`, do nothing."""
        if self._is_closed:
            return
        for other in list(self._connecting):
            if self._one_master or other == address:
                self._connecting.pop(other).cancel()
        task = asyncio.get_running_loop().create_task(self._connect(address))
        self._connecting[address] = task
        task.add_done_callback(lambda done: self._connected(address, done))

    def _connected(self, address: str, task: asyncio.Task[None]) -> None:
        if self._connecting.get(address) is task:
            del self._connecting[address]

    async def _connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: _Wire(self, address), host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError, OverflowError) as error:
            self.give(NotConnected(address, str(error) or "the attempt to connect timed out"))

    def close(self) -> None:
        """End everything. Connections that are being accepted now are ended as soon as they are known."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for task in list(self._connecting.values()):
            task.cancel()
        for wire in list(self.wires):
            wire.abort()


def _watch(transport: asyncio.Transport) -> None:
    """Let the kernel notice soon that the other end no longer knows the connection.

    Without limits, it sends unacknowledged bytes again for a quarter of an hour, and never checks an idle connection.
    Two followers of a Raft group say nothing to each other until they elect a leader: if the machine of one was
    restarted, or a firewall has dropped the idle connection, the other one's votes would be lost.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_S),
        ("TCP_KEEPINTVL", PROBE_S),
        ("TCP_KEEPCNT", UNACKNOWLEDGED_MS // 1000 // PROBE_S),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
