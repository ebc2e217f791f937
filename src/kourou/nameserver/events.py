"""What crosses the border of the name server's machine: events go in, effects come out."""

from collections.abc import Hashable
from enum import Enum
from typing import TypeAlias

import msgspec

from kourou.protocol.command import Command


class Kept(Enum):
    """The documents that survive a restart."""

    KV_CONFIG = "kv_config"
    SETTINGS = "settings"


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request came on a connection."""

    connection: Hashable
    command: Command


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A connection is lost or closed."""

    connection: Hashable


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Time for what is unfinished. Sent again and again while `NameServer.is_busy`, after others were served."""


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A version of a document is durable."""

    document: Kept
    version: int


class NotSaved(msgspec.Struct, frozen=True, gc=False):
    """A version of a document could not be written; the version before it is still valid."""

    document: Kept
    version: int
    reason: str


Event: TypeAlias = Asked | Gone | Tick | Turn | Saved | NotSaved


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer on a connection."""

    connection: Hashable
    command: Command


class Close(msgspec.Struct, frozen=True, gc=False):
    """End a connection."""

    connection: Hashable
    reason: str


class Tell(msgspec.Struct, frozen=True, gc=False):
    """A one-way command to an address, tried once, and only if `connection`, which registered it, comes from there."""

    address: str
    command: Command
    connection: Hashable = None


class Save(msgspec.Struct, frozen=True, gc=False):
    """Write a document so that a crash leaves the old or the new one; then say Saved or NotSaved."""

    document: Kept
    version: int
    content: str


Effect: TypeAlias = Reply | Close | Tell | Save
