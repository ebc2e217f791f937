"""The interface of the controller's machine: its events and effects."""

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from kourou.protocol.command import Command
from kourou.replication.links import LinkEffect, LinkEvent


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request arrived on a connection."""

    connection: Hashable
    command: Command
    address: str = "?"
    """`ip:port` of the sender."""
    user: str | None = None
    """The user whom the sender's certificate names."""


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A connection was closed."""

    connection: Hashable


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Saved(msgspec.Struct, frozen=True, gc=False):
    """The file was written and is durable; or writing it failed, with this error."""

    error: str | None = None


class PeerLink(msgspec.Struct, frozen=True, gc=False):
    """An event of a connection to or from another controller."""

    event: LinkEvent


Event: TypeAlias = Asked | Gone | Tick | Saved | PeerLink


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer on a connection."""

    connection: Hashable
    command: Command


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Send a one-way command to a broker's address, once, and only if `connection` comes from the same host."""

    address: str
    command: Command
    connection: Hashable


class Save(msgspec.Struct, frozen=True, gc=False):
    """Replace the controller's file, then report `Saved`. One at a time."""

    content: bytes


Effect: TypeAlias = Reply | Tell | Save | LinkEffect
