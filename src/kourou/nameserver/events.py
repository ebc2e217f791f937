"""The interface of the name server's machine: its events and effects."""

from collections.abc import Hashable
from enum import Enum
from typing import TypeAlias

import msgspec

from kourou.access.plain_acl import PlainAcl
from kourou.protocol.command import Command


class Kept(Enum):
    """The documents that survive a restart."""

    KV_CONFIG = "kv_config"
    SETTINGS = "settings"
    USERS = "users"


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request arrived on a connection."""

    connection: Hashable
    command: Command
    address: str = ""  # ip:port of the peer
    user: str | None = None  # the user that its certificate names


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A connection was closed."""

    connection: Hashable


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Time for unfinished work. Sent repeatedly while `NameServer.is_busy`, after other events."""


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A version of a document is durable."""

    document: Kept
    version: int


class NotSaved(msgspec.Struct, frozen=True, gc=False):
    """A version of a document could not be written; the version before it is still valid."""

    document: Kept
    version: int
    reason: str


class AccountsRead(msgspec.Struct, frozen=True, gc=False):
    """The files of plain_acl.yml have changed: these accounts are in force from now on."""

    acl: PlainAcl


Event: TypeAlias = Asked | Gone | Tick | Turn | Saved | NotSaved | AccountsRead


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer on a connection."""

    connection: Hashable
    command: Command


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a connection."""

    connection: Hashable
    reason: str


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Send a one-way command to an address, once, and only if `connection`, which registered it, comes from there."""

    address: str
    command: Command
    connection: Hashable = None


class Save(msgspec.Struct, frozen=True, gc=False):
    """Write a document atomically, also in a crash; then report Saved or NotSaved."""

    document: Kept
    version: int
    content: str | bytes


Effect: TypeAlias = Reply | Close | Tell | Save
