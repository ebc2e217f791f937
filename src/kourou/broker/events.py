"""What crosses the border of the broker's machine: events in, effects out, and the peers that both speak of.

Time comes in as a number with each step, never as an event's field, so any run can be run again.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Decoder
from kourou.store.jobs import Job
from kourou.store.metadata import MetadataFile


class Peer:
    """One connection as the machine knows it. The driver makes it, keeps it and finds its own end in `link`."""

    __slots__ = ("address", "decode", "groups", "host", "link")

    def __init__(
        self, address: str, host: bytes, link: Any = None, decode: Callable[[bytes], list[Command]] | None = None
    ) -> None:
        """`decode` takes the end of a read, keeps half a frame, and returns the requests that may be served now."""
        self.address = address  # "ip:port", for people
        self.host = host  # the same in 8 or 20 bytes, as records hold it
        self.link = link  # what the driver needs to reach it
        self.decode = decode or Decoder().feed
        self.groups: set[tuple[bool, str]] = set()  # (is a consumer group, name): what it has heart-beaten for

    @property
    def is_writable(self) -> bool:
        """Does it read what it is sent? If not, what is not a must waits. Peers without a link always do."""
        return bool(getattr(self.link, "is_writable", True))

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
    """Time has passed; what is due is done."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Time for unfinished work. Sent again and again while `Broker.is_busy`, after others were served."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """A job of the store was run by a worker."""

    job: Job


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A table was written, or could not be: then `error` says why."""

    name: str
    version: int
    error: str | None = None


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A client answered what we asked it (`Ask`); None: it did not in time, or is gone."""

    token: int
    answer: Command | None


class Announced(msgspec.Struct, frozen=True, gc=False):
    """A name server answered a registration; None: there is no answer, and `error` says why."""

    address: str
    answer: Command | None
    error: str | None = None
    code: int = RequestCode.REGISTER_BROKER  # of the command that was sent


Event: TypeAlias = Requests | Gone | Tick | Turn | Done | Saved | Answered | Announced


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
    is_bulk: bool = False  # others come before the next requests of its reader


class ReplyFrames(msgspec.Struct, frozen=True, gc=False):
    """Answers that are encoded already."""

    peer: Peer
    frames: bytes
    count: int  # of those that were announced by `Owe`
    is_bulk: bool = False  # others come before the next requests of its reader


class Owe(msgspec.Struct, frozen=True, gc=False):
    """So many answers will be given on a connection later, to requests that were not decoded."""

    peer: Peer
    count: int


class PutOff(msgspec.Struct, frozen=True, gc=False):
    """The rest of a read: it is read again when other connections had their turn."""

    peer: Peer
    data: bytes


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


class Close(msgspec.Struct, frozen=True, gc=False):
    """End a connection."""

    peer: Peer
    reason: str


class Run(msgspec.Struct, frozen=True, gc=False):
    """A job of the store, for a worker; it comes back as `Done`."""

    job: Job


class Save(msgspec.Struct, frozen=True, gc=False):
    """Write a table (`MetadataFile.write`) in a worker, then say `Saved`."""

    name: str
    version: int
    file: MetadataFile[Any]
    content: bytes | list[bytes]


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Send a command to every name server; each answer comes back as `Announced`."""

    command: Command
    timeout_ms: int


Effect: TypeAlias = Reply | ReplyParts | ReplyFrames | Owe | PutOff | Tell | Ask | Close | Run | Save | Announce


class Refused(Exception):
    """A request that is answered with a code other than success. Raised by the functions that serve requests."""

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext = ext


class Asked(msgspec.Struct, frozen=True, gc=False):
    """One request, as the functions that serve them get it."""

    peer: Peer
    command: Command
    now_ms: int  # of the steady clock, for deadlines
    wall_ms: int  # the time of day, for what is stored and shown


class Large(msgspec.Struct, frozen=True, gc=False):
    """An answer whose body was built in slices. The command's own body is empty."""

    command: Command
    body: list[bytes | bytearray]


class Outbox:
    """Where the parts of the machine put effects; `step` hands them out."""

    __slots__ = ("_asked", "_next_token", "effects")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._asked: dict[int, Callable[[Command | None, int], None]] = {}  # who goes on with a client's answer
        self._next_token = 0

    def take(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def put(self, effect: Effect) -> None:
        self.effects.append(effect)

    def reply(self, peer: Peer, request: Command, answer: Command) -> None:
        """Answer a request, unless nobody waits for it."""
        if not request.is_one_way:
            self.effects.append(Reply(peer, answer))

    def ask(self, peer: Peer, command: Command, timeout_ms: int, then: Callable[[Command | None, int], None]) -> None:
        """Ask a client; `then` gets its answer, or None if there is none in time, and what time it is by then."""
        self._next_token += 1
        self._asked[self._next_token] = then
        self.effects.append(Ask(peer, command, timeout_ms, self._next_token))

    def answered(self, token: int, answer: Command | None, now_ms: int) -> None:
        then = self._asked.pop(token, None)
        if then is not None:
            then(answer, now_ms)
