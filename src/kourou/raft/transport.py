"""Connections between the members of a group, and the identity of the member at the other end.

    this member ──Hello, messages──▶ another member        one connection for each direction
    this member ◀──Hello, messages── another member

A member connects to each of the others, and sends only on the connections that it has made. It accepts an incoming
connection if the address is that of a member, if the `Hello` names this group, this member and one of the others, and
if all messages are from that member. A newer connection from the same member replaces the older one.

Nothing is queued here. A message that can't be sent now, because there is no connection or the other end does not read,
is dropped as a network may drop it; the machine sends it again. Pure: connections are values
(`kourou.replication.links`).
"""

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, TypeAlias

from kourou.protocol.errors import ProtocolError
from kourou.raft.messages import Message
from kourou.raft.wire import Decoder, Hello, encode
from kourou.replication.links import (
    Accepted,
    Closed,
    Connect,
    Connected,
    HangUp,
    HasRoom,
    Link,
    LinkEvent,
    NotConnected,
    Received,
    Transfer,
)
from kourou.replication.refusals import Refusals

log = logging.getLogger(__name__)

RETRY_MIN_MS: Final = 50
RETRY_MAX_MS: Final = 500
"""The longest pause before connecting again; the pause doubles up to this. An election takes longer."""

CONNECTING_MS: Final = 6_000
"""How long an attempt to connect may take before the next one."""

HELLO_MS: Final = 3_000
"""How long an incoming connection may take to send its `Hello`."""

INCOMING_MAX: Final = 64
"""The most incoming connections. Each member has one; those that do not identify themselves are soon closed."""

UNSENT_MAX: Final = 8 * 1024 * 1024
"""The most bytes that wait to be sent on one connection: more than may be in flight."""

Effect: TypeAlias = Transfer | HangUp | Connect


class _Peer:
    """The connection to another member."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.link: Link | None = None
        self.connecting_ms: int | None = None  # since when
        self.retry_ms = 0  # when to connect again
        self.pause_ms = RETRY_MIN_MS
        self.problem = ""  # why there is no connection, as last logged
        self.dropped = 0  # messages that could not be sent


class _Caller:
    """An incoming connection."""

    def __init__(self, now_ms: int) -> None:
        self.decoder = Decoder(knows_sender=False)
        self.since_ms = now_ms
        self.sender: str | None = None  # None until its `Hello`


class Transport:
    """See the module's text."""

    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self._member = member
        self._peers: dict[str, _Peer] = {}
        self._ips: dict[str, str] = {}  # the addresses at which members were reached, by id
        self._callers: dict[Link, _Caller] = {}
        self._effects: list[Effect] = []
        self._refusals = Refusals("the port of the group")

    def use(self, addresses: Mapping[str, str]) -> None:
        """Use these other members, with their addresses."""
        for member in self._peers.keys() - addresses.keys():
            peer = self._peers.pop(member)
            self._ips.pop(member, None)
            if peer.link is not None:
                self._effects.append(HangUp(peer.link, f"{member} is no longer a member"))
        for member, address in addresses.items():
            before = self._peers.get(member)
            if before is None or before.address != address:
                self._peers[member] = _Peer(address)
                if before is not None and before.link is not None:
                    self._effects.append(HangUp(before.link, f"{member} has another address"))

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    @property
    def connected(self) -> frozenset[str]:
        """The members to which there is a connection."""
        return frozenset(member for member, peer in self._peers.items() if peer.link is not None)

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, to: str, message: Message, data: memoryview | None = None) -> None:
        """Send a message, with bytes of the log if it has any; drop it if it can't be sent now."""
        peer = self._peers.get(to)
        if peer is None or peer.link is None or not peer.link.has_room:
            if peer is not None:
                peer.dropped += 1
            return
        head = encode(message, 0 if data is None else len(data))
        self._effects.append(Transfer(peer.link, head, data))

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, now_ms: int) -> None:
        """Make the connections that are due, and end incoming ones that sent no `Hello` in time."""
        for peer in self._peers.values():
            if peer.connecting_ms is not None and now_ms >= peer.connecting_ms + CONNECTING_MS:
                peer.connecting_ms = None
            if peer.link is None and peer.connecting_ms is None and now_ms >= peer.retry_ms:
                peer.connecting_ms = now_ms
                self._effects.append(Connect(peer.address))
        for link, caller in list(self._callers.items()):
            if caller.sender is None and now_ms >= caller.since_ms + HELLO_MS:
                self._refuse(link, "silence", f"no greeting within {HELLO_MS} ms", now_ms)

    def due_ms(self) -> int | None:
        """When `step` is due."""
        times = [
            peer.retry_ms if peer.connecting_ms is None else peer.connecting_ms + CONNECTING_MS
            for peer in self._peers.values()
            if peer.link is None
        ]
        times += [caller.since_ms + HELLO_MS for caller in self._callers.values() if caller.sender is None]
        return min(times, default=None)

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, event: LinkEvent, now_ms: int) -> list[Message]:
        """Handle an event of a connection; returns the messages that arrived."""
        match event:
            case Accepted(link):
                self._accept(link, now_ms)
            case Received(link, data):
                return self._received(link, data, now_ms)
            case Closed(link):
                self._closed(link, now_ms)
            case Connected(link):
                self._connected(link)
            case NotConnected(address, reason):
                self._not_connected(address, reason, now_ms)
            case HasRoom():
                pass  # the machine sends dropped messages again
        return []

    def _connected(self, link: Link) -> None:
        for member, peer in self._peers.items():
            if peer.address == link.address and peer.link is None:
                peer.link, peer.connecting_ms, peer.problem, peer.pause_ms = link, None, "", RETRY_MIN_MS
                self._ips[member] = link.ip
                self._effects.append(Transfer(link, encode(Hello(self.group, self._member, member))))
                log.info("connected to a member of the group member=%s address=%s", member, link.address)
                return
        self._effects.append(HangUp(link, "this address is not one of a member"))

    def _not_connected(self, address: str, reason: str, now_ms: int) -> None:
        for member, peer in self._peers.items():
            if peer.address == address and peer.link is None:
                self._retry(peer, now_ms)
                if reason != peer.problem:
                    peer.problem = reason
                    log.warning(
                        "can't connect to a member of the group member=%s address=%s: %s", member, address, reason
                    )

    def _retry(self, peer: _Peer, now_ms: int) -> None:
        peer.connecting_ms = None
        peer.retry_ms = now_ms + peer.pause_ms
        peer.pause_ms = min(2 * peer.pause_ms, RETRY_MAX_MS)

    def _closed(self, link: Link, now_ms: int) -> None:
        self._callers.pop(link, None)
        for member, peer in self._peers.items():
            if peer.link is link:
                peer.link = None
                self._retry(peer, now_ms)
                log.warning("lost the connection to a member of the group member=%s address=%s", member, link.address)

    # ── Connections to this member ────────────────────────────────────────────────────────────────────────────────

    def _accept(self, link: Link, now_ms: int) -> None:
        if not self._is_members(link.ip):
            self._refuse(link, "address", "no member of the group has this address: check dLegerPeers", now_ms)
        elif len(self._callers) >= INCOMING_MAX:
            self._refuse(link, "count", f"the limit of {INCOMING_MAX} connections is reached", now_ms)
        else:
            self._callers[link] = _Caller(now_ms)

    def _is_members(self, ip: str) -> bool:
        hosts = {peer.address.rpartition(":")[0].strip("[]") for peer in self._peers.values()}
        return _plain(ip) in {_plain(host) for host in hosts | set(self._ips.values())}

    def _refuse(self, link: Link, cause: str, reason: str, now_ms: int) -> None:
        self._callers.pop(link, None)
        self._refusals.add(cause, link.address, reason, now_ms)
        self._effects.append(HangUp(link, reason))

    def _received(self, link: Link, data: bytes, now_ms: int) -> list[Message]:
        caller = self._callers.get(link)
        if caller is None:
            self._effects.append(HangUp(link, "data on a connection that is used only for sending"))
            return []
        messages: list[Message] = []
        try:
            for message in caller.decoder.feed(data):
                if isinstance(message, Hello):
                    self._greet(caller, message)
                elif caller.sender is None or message.sender != caller.sender:
                    raise ProtocolError(f"a message of {message.sender} on a connection of {caller.sender}")
                else:
                    messages.append(message)
        except ProtocolError as error:
            self._refuse(link, "message", str(error), now_ms)
        return messages

    def _greet(self, caller: _Caller, hello: Hello) -> None:
        """Raises ProtocolError."""
        if caller.sender is not None:
            raise ProtocolError("a second greeting on the same connection")
        if hello.group != self.group:
            raise ProtocolError(f"its group is {hello.group!r}, but this member's is {self.group!r}: check dLegerGroup")
        if hello.receiver != self._member:
            raise ProtocolError(
                f"it connects to {hello.receiver!r}, but this is {self._member!r}: check dLegerSelfId and dLegerPeers"
            )
        if hello.sender not in self._peers:
            raise ProtocolError(f"{hello.sender!r} is not another member of the group: check dLegerPeers")
        for other, known in list(self._callers.items()):
            if known.sender == hello.sender:
                self._callers.pop(other)
                self._effects.append(HangUp(other, f"{hello.sender} has connected again"))
        caller.sender = hello.sender


def _plain(ip: str) -> str:
    """An IP address in canonical form; a name unchanged."""
    try:
        found = ip_address(ip)
    except ValueError:
        return ip
    return str(getattr(found, "ipv4_mapped", None) or found)
