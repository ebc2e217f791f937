"""The interface of the broker's machine: events, effects, and the peers that both refer to.

Time is a number that is passed to each step, not a field of an event, so every run can be repeated.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from kourou.access.plain_acl import PlainAcl
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Decoder
from kourou.protocol.signing import ACCESS_KEY, Credentials
from kourou.replication.links import LinkEffect, LinkEvent
from kourou.store.jobs import Job


class Peer:
    """One connection as the machine knows it. The driver makes it, keeps it and finds its own end in `link`."""

    __slots__ = ("address", "asked", "decode", "grants", "groups", "host", "link", "user")

    def __init__(
        self,
        address: str,
        host: bytes,
        link: Any = None,
        decode: Callable[[bytes], list[Command]] | None = None,
        user: str | None = None,
    ) -> None:
        """`decode` takes the end of a read, keeps half a frame, and returns the requests that may be served now."""
        self.address = address  # "ip:port", for display
        self.host = host  # the same in 8 or 20 bytes, as in records
        self.link = link  # the driver's own end of the connection
        self.decode = decode or Decoder().feed
        self.user = user  # the name in its TLS certificate; None: no certificate
        self.groups: set[tuple[bool, str]] = set()  # (is a consumer group, name): the groups in its heartbeats
        self.grants: Any = None  # its grants of access control: see access.py
        self.asked: dict[int, tuple[int, int, int, str]] = {}  # requests that are timed, see meters.py

    @property
    def is_writable(self) -> bool:
        """Does the peer read its answers? If not, optional output waits. Peers without a link always do."""
        return not getattr(self.link, "is_congested", False)

    def __repr__(self) -> str:
        return f"Peer({self.address})"


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Requests(msgspec.Struct, frozen=True, gc=False):
    """Requests came on a connection, in this order."""

    peer: Peer
    commands: list[Command]


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A connection is lost or closed."""

    peer: Peer


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed: work that is due is done."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Time for unfinished work. Sent again and again while `Broker.is_busy`, after others were served."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """A job of the store was run by a worker."""

    job: Job


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A table was written, or `error` is the reason why it could not be written."""

    name: str
    version: int
    error: str | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A client answered an `Ask`; None: it did not answer in time, or has disconnected."""

    token: int
    answer: Command | None


class Announced(msgspec.Struct, frozen=True, gc=False):
    """A name server answered a registration; None: without an answer, `error` is the reason."""

    address: str
    answer: Command | None
    error: str | None = None
    code: int = RequestCode.REGISTER_BROKER  # of the command that was sent


class AccountsRead(msgspec.Struct, frozen=True, gc=False):
    """The files of plain_acl.yml have changed: these accounts are in force from now on."""

    acl: PlainAcl


class GroupLink(msgspec.Struct, frozen=True, gc=False):
    """Something happened on a connection to or from another member of the Raft group."""

    event: LinkEvent


Event: TypeAlias = (
    Requests | Gone | Tick | Turn | Done | Saved | Answered | Announced | AccountsRead | LinkEvent | GroupLink
)


# ── Effects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer on a connection."""

    peer: Peer
    command: Command


class ReplyParts(msgspec.Struct, frozen=True, gc=False):
    """An answer whose body is made of slices of the log: its head is encoded when it is sent, nothing is copied before.

    The command's own body is empty.
    """

    peer: Peer
    command: Command
    parts: list[memoryview]
    size: int
    is_bulk: bool = False  # other connections have their turn before its next requests


class ReplyFrames(msgspec.Struct, frozen=True, gc=False):
    """Encoded answers."""

    peer: Peer
    frames: bytes
    count: int  # of those that were announced by `Owe`
    is_bulk: bool = False  # other connections have their turn before its next requests


class Owe(msgspec.Struct, frozen=True, gc=False):
    """So many answers will be given on a connection later, to requests that were not decoded."""

    peer: Peer
    count: int


class PutOff(msgspec.Struct, frozen=True, gc=False):
    """The rest of a read: it is read again when other connections had their turn."""

    peer: Peer
    data: bytes


class PutBack(msgspec.Struct, frozen=True, gc=False):
    """Requests that were not served because those before them took long: they come again, after other connections."""

    peer: Peer
    commands: list[Command]


class Tell(msgspec.Struct, frozen=True, gc=False):
    """A one-way command to a client."""

    peer: Peer
    command: Command


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A request to a client; its answer, or None after the time-out, comes back as `Answered`."""

    peer: Peer
    command: Command
    timeout_ms: int
    token: int


class AskBroker(msgspec.Struct, frozen=True, gc=False):
    """A request to another broker; its answer, or None after the time-out, comes back as `Answered`."""

    address: str
    command: Command
    timeout_ms: int
    token: int


class AskNameServer(msgspec.Struct, frozen=True, gc=False):
    """A request to the first name server that answers; None comes back if none does, each within the time-out."""

    command: Command
    timeout_ms: int
    token: int


class Close(msgspec.Struct, frozen=True, gc=False):
    """End a connection."""

    peer: Peer
    reason: str


class Run(msgspec.Struct, frozen=True, gc=False):
    """A job of the store, for a worker; it comes back as `Done`."""

    job: Job


class WrittenFile(Protocol):
    """A file that a worker replaces."""

    path: Any

    def write(self, content: Any, /) -> object:
        """Replace the content, durable on return. Raises OSError."""


class Save(msgspec.Struct, frozen=True, gc=False):
    """Write a table, or the state of the Raft group, in a worker, then say `Saved`."""

    name: str
    version: int
    file: WrittenFile
    content: Any


class ConnectMember(msgspec.Struct, frozen=True, gc=False):
    """Connect to another member of the Raft group; the result comes back in a `GroupLink`."""

    address: str


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Send a command to every name server; each answer comes back as `Announced`."""

    command: Command
    timeout_ms: int


Effect: TypeAlias = (
    Reply
    | ReplyParts
    | ReplyFrames
    | Owe
    | PutOff
    | PutBack
    | Tell
    | Ask
    | AskBroker
    | AskNameServer
    | Close
    | Run
    | Save
    | Announce
    | LinkEffect
    | ConnectMember
)


class Refused(Exception):
    """A request that is answered with a code other than success. Raised by the functions that serve requests."""

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


class Asked(msgspec.Struct, frozen=True, gc=False):
    """One request, as the functions that serve requests get it."""

    peer: Peer
    command: Command
    now_ms: int  # of the steady clock, for deadlines
    wall_ms: int  # the time of day, for stored and displayed times

    @property
    def access_key(self) -> str | None:
        """The user in the request's signature, unverified; None: it is not signed."""
        return (self.command.ext or {}).get(ACCESS_KEY)


H = TypeVar("H")


class Request(Asked, Generic[H], frozen=True, gc=False):
    """A request with its declared header (`kourou.protocol.headers`), which is decoded once, in serving.py."""

    header: H


class Large(msgspec.Struct, frozen=True, gc=False):
    """An answer whose body was built in slices. The command's own body is empty."""

    command: Command
    body: list[bytes | bytearray]


class Outbox:
    """Where the parts of the machine put effects; `step` hands them out."""

    __slots__ = ("_asked", "_credentials", "_next_token", "effects", "on_answers")

    def __init__(self, credentials: Credentials | None = None) -> None:
        """`credentials` sign requests to other brokers."""
        self._credentials = credentials
        self.effects: list[Effect] = []
        self.on_answers: Callable[[list[Effect]], None] | None = None
        """Is called with the effects that are returned; None: requests are not timed."""

        self._asked: dict[int, Callable[[Command | None, int], None]] = {}  # continue with an answer
        self._next_token = 0

    def take(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        if self.on_answers is not None:
            self.on_answers(effects)
        return effects

    def put(self, effect: Effect) -> None:
        self.effects.append(effect)

    def reply(self, peer: Peer, request: Command, answer: Command) -> None:
        """Answer a request, unless the sender does not wait."""
        if not request.is_one_way:
            self.effects.append(Reply(peer, answer))

    def ask(self, peer: Peer, command: Command, timeout_ms: int, then: Callable[[Command | None, int], None]) -> None:
        """Ask a client; `then` is called with its answer, or None if it does not answer in time, and the time."""
        self._next_token += 1
        self._asked[self._next_token] = then
        self.effects.append(Ask(peer, command, timeout_ms, self._next_token))

    def ask_broker(
        self, address: str, command: Command, timeout_ms: int, then: Callable[[Command | None, int], None]
    ) -> None:
        """Ask another broker; `then` is called as by `ask`. The request is signed where the broker has credentials."""
        if self._credentials is not None:
            self._credentials.sign(command)
        self._next_token += 1
        self._asked[self._next_token] = then
        self.effects.append(AskBroker(address, command, timeout_ms, self._next_token))

    def ask_name_server(self, command: Command, timeout_ms: int, then: Callable[[Command | None, int], None]) -> None:
        """Ask the first name server that answers; `then` is called as by `ask`. Signed as by `ask_broker`."""
        if self._credentials is not None:
            self._credentials.sign(command)
        self._next_token += 1
        self._asked[self._next_token] = then
        self.effects.append(AskNameServer(command, timeout_ms, self._next_token))

    def announce(self, command: Command, timeout_ms: int) -> None:
        """Send a command to every name server. It is signed where the broker has credentials."""
        if self._credentials is not None:
            self._credentials.sign(command)
        self.effects.append(Announce(command, timeout_ms))

    def answered(self, token: int, answer: Command | None, now_ms: int) -> None:
        then = self._asked.pop(token, None)
        if then is not None:
            then(answer, now_ms)
