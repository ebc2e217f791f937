"""Limits of the memory and time that a single peer, and all peers together, may use."""

from dataclasses import dataclass, field
from typing import Protocol

from kourou.protocol.frame import FRAME_SIZE_MAX

MIB = 1024 * 1024

FILLED_AGAIN = 7 / 8
"""The share of a budget that is in use after connections were ended to free memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one listener. Sizes are bytes, times are seconds."""

    frame_size: int = FRAME_SIZE_MAX  # larger frames end the connection, as with Apache
    connections: int = 65_536  # further ones are closed at once (maxConnections)
    connections_of_address: int = 16_384  # the same for one address (maxConnectionsPerAddress)
    in_flight: int = 65_536  # requests of one connection that await our answer (maxRequestsInFlight)
    buffered: int = 512 * MIB  # unfinished frames, unhandled requests and unsent answers of all connections
    unsent: int = 64 * MIB  # unsent answers of one connection; more are unusual for a peer that reads
    pause_writing: int = 256 * 1024  # unsent answers that make us stop reading from the peer
    batch: int = 64  # the most requests handed over at once
    requests: int = 65_536  # our own requests on one connection that await an answer
    idle: float = 120.0  # a connection without reads and writes for this time is closed
    frame_time: float = 120.0  # a frame or handshake must be complete this long after its first byte
    linger: float = 2.0  # how long a peer may take to close after us


class Buffers(Protocol):
    """A connection, as the budget sees it."""

    held: int  # the bytes that the budget counts for it

    @property
    def buffered(self) -> int: ...

    def abort(self, reason: str) -> None: ...


@dataclass(slots=True)
class Budget:
    """The memory that all connections of a listener hold together.

    Each connection reports how much it holds. When the sum exceeds the limit, the connection that holds most is ended:
    first those of peers that send incomplete frames or do not read their answers, last those of small, busy peers.
    """

    limit: int
    held: int = 0
    members: set[Buffers] = field(default_factory=set)

    def add(self, amount: int) -> None:
        self.held += amount
        if self.held > self.limit:
            self._make_room()

    def _make_room(self) -> None:
        """End connections. This examines all of them, so it frees enough that it is not needed again soon."""
        for member in self.members:
            member.held = member.buffered  # bytes sent since its last report are no longer held
        self.held = sum(member.held for member in self.members)
        if self.held <= self.limit:
            return
        for member in sorted(self.members, key=lambda member: member.held, reverse=True):
            if self.held <= self.limit * FILLED_AGAIN:
                break
            member.abort(f"all connections together hold more than {self.limit} bytes, and this one holds most")
