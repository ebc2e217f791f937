"""How much of our memory and patience a peer may have, and all peers together."""

from dataclasses import dataclass, field
from typing import Protocol

from kourou.protocol.frame import FRAME_SIZE_MAX

MIB = 1024 * 1024

FILLED_AGAIN = 7 / 8
"""The share of a budget that may be held after room was made."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one listener. Sizes are bytes, times are seconds."""

    frame_size: int = FRAME_SIZE_MAX  # larger frames end the connection, as with Apache
    connections: int = 65_536  # further ones are closed as they come
    buffered: int = 512 * MIB  # unfinished frames, unhandled requests and unsent answers of all connections
    unsent: int = 64 * MIB  # unsent answers of one connection; what is beyond reading peers' pace
    pause_writing: int = 256 * 1024  # unsent answers that make us stop reading from the peer
    batch: int = 64  # requests handed over at once, at most
    requests: int = 65_536  # our own requests on one connection that await an answer
    idle: float = 120.0  # neither read nor write: closed
    frame_time: float = 120.0  # a frame or handshake must be whole this long after its first byte
    linger: float = 2.0  # how long a peer may take to close after us


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
            self._make_room()

    def _make_room(self) -> None:
        """Looks at everybody, so it makes enough room for not being needed again soon."""
        for member in self.members:
            member.held = member.buffered  # what was sent since it last reported is no longer held
        self.held = sum(member.held for member in self.members)
        if self.held <= self.limit:
            return
        for member in sorted(self.members, key=lambda member: member.held, reverse=True):
            if self.held <= self.limit * FILLED_AGAIN:
                break
            member.abort(f"all connections together hold more than {self.limit} bytes, and this one holds most")
