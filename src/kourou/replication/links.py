"""Connections of the HA port as the machines see them: events, effects, and the interface to the log."""

from typing import Any, Protocol, TypeAlias

import msgspec


class Link:
    """One connection. The driver makes it, and keeps its own object in `wire`."""

    __slots__ = ("address", "ip", "wire")

    def __init__(self, address: str, wire: Any = None) -> None:
        self.address = address  # "ip:port" of the other end, or the "name:port" that was asked for
        self.ip = address.rpartition(":")[0].strip("[]")  # of the other end
        self.wire = wire

    @property
    def has_room(self) -> bool:
        """Does the other end read fast enough? If not, nothing more is sent to it. True without a wire."""
        return bool(getattr(self.wire, "has_room", True))

    def __repr__(self) -> str:
        return f"Link({self.address})"


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """A peer has connected to the HA port."""

    link: Link


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The connection that `Connect` asked for is established."""

    link: Link


class NotConnected(msgspec.Struct, frozen=True, gc=False):
    """The connection that `Connect` asked for failed."""

    address: str
    reason: str


class Received(msgspec.Struct, frozen=True, gc=False):
    """Bytes came."""

    link: Link
    data: bytes


class HasRoom(msgspec.Struct, frozen=True, gc=False):
    """The other end reads again."""

    link: Link


class Closed(msgspec.Struct, frozen=True, gc=False):
    """A connection is lost."""

    link: Link


LinkEvent: TypeAlias = Accepted | Connected | NotConnected | Received | HasRoom | Closed


# ── Effects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """Send a header, followed by bytes of the log, which are not copied before they are sent."""

    link: Link
    head: bytes
    data: memoryview | None = None


class HangUp(msgspec.Struct, frozen=True, gc=False):
    """End a connection."""

    link: Link
    reason: str


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Connect to a master's HA port: `Connected` or `NotConnected` follows."""

    address: str


LinkEffect: TypeAlias = Transfer | HangUp | Connect


# ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SourceLog(Protocol):
    """The log that a master sends."""

    @property
    def start(self) -> int:
        """The offset of its first byte."""

    @property
    def end(self) -> int:
        """Where it ends."""

    @property
    def segment_size(self) -> int: ...

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one segment. Raises KeyError, OSError."""


class TargetLog(Protocol):
    """The log that a slave appends to."""

    @property
    def end(self) -> int:
        """Where it ends, which is the end of a record."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no records, and so may begin at any segment."""

    @property
    def reported(self) -> int:
        """The offset up to which the slave has the log: flushed with SYNC_FLUSH, otherwise in memory."""

    @property
    def segment_size(self) -> int: ...

    def begin_at(self, offset: int) -> None:
        """Let the empty log begin at this offset, where a segment begins. Raises as `append`."""

    def append(self, data: memoryview, stored_ms: int) -> None:
        """Append whole records, the last of which was stored at `stored_ms`. Raises one of `write_errors`."""
