"""How much of our memory and patience a peer may have, and all peers together."""

from dataclasses import dataclass, field
from typing import Protocol

from kourou.protocol.frame import FRAME_SIZE_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one listener. Sizes are bytes, times are seconds."""

    frame_size: int = FRAME_SIZE_MAX  # larger frames end the connection, as with Apache
    connections: int = 65_536  # further ones are closed as they come
    buffered: int = 512 * MIB  # unfinished frames, unhandled requests and unsent answers of all connections
    unsent: int = 64 * MIB  # unsent answers of one connection; what is beyond reading peers' pace
    pause_writing: int = 256 * 1024  # unsent answers that make us stop reading from the peer
    batch: int = 64  # requests handed over at once
    requests: int = 65_536  # our own requests on one connection that await an answer
    idle: float = 120.0  # neither read nor write: closed
    frame_time: float = 120.0  # a frame or handshake must be whole this long after its first byte


class Buffers(Protocol):
    """A connection, as far as the budget is concerned."""

    held: int  # what the budget counts for it

    @property
    def buffered(self) -> int: ...

    def abort(self, reason: str) -> None: ...


@dataclass(slots=True)
class Budget:
    """The memory that all connections of a listener hold together.

    Each connection reports changes of what it holds. When the sum exceeds the limit, the connection that holds most is
    ended: whoever hoards half frames or does not read its answers goes first, small and busy peers last.
    """

    limit: int
    held: int = 0
    members: set[Buffers] = field(default_factory=set)

    def add(self, amount: int) -> None:
        self.held += amount
        if self.held > self.limit:
            self._recount()
        while self.held > self.limit and self.members:
            largest = max(self.members, key=lambda member: member.held)
            largest.abort(f"all connections together hold more than {self.limit} bytes, and this one holds most")

    def _recount(self) -> None:
        """What was sent since a connection last reported is no longer held."""
        for member in self.members:
            member.held = member.buffered
        self.held = sum(member.held for member in self.members)
