"""The events that go into the machine, and the effects that come out of it.

The driver performs effects in the given order. Three rules apply:

- A job (`Save`, `SaveEpochs`, `Cut`, `Restart`) is done when its result is durable; the driver then reports `Done`. A
  failed job is retried. The machine issues one job at a time, and holds back every effect that depends on it.
- `Append` is performed at once. Afterwards, and whenever the broker itself has appended, the driver reports `Appended`
  with the actual end of the log, even if it is lower than the machine expected.
- `Flushed` reports how far the log is on disk. After the `Done` of a cut it refers to the log after the cut.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from kourou.raft.members import Count, Member, MemberId, Members
from kourou.raft.messages import AppendRequest, Message
from kourou.store.epochs import Epochs

Token = object


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Received(msgspec.Struct, frozen=True):
    """A message of another member, whose identity the driver has checked."""

    message: Message


class Appended(msgspec.Struct, frozen=True):
    """The log ends here."""

    end: int


class Flushed(msgspec.Struct, frozen=True):
    """The log is on disk up to here."""

    offset: int


class Trimmed(msgspec.Struct, frozen=True):
    """The log begins here, because older segments were removed. A segment after the commit offset is never removed."""

    start: int


class Done(msgspec.Struct, frozen=True):
    """A job is durable."""

    job: int


class Health(msgspec.Struct, frozen=True):
    """Whether the log can be written. A leader that can't write steps down, and is not elected until it can."""

    writable: bool


class Read(msgspec.Struct, frozen=True):
    """A client wants a read that reflects everything that is committed now."""

    token: Token


class Transfer(msgspec.Struct, frozen=True):
    """An administrator asks for another leader."""

    to: str
    token: Token


class ChangeMembers(msgspec.Struct, frozen=True):
    """An administrator asks for these members; at most one voter may be added or removed."""

    members: tuple[Member, ...]
    token: Token


Event = Received | Appended | Flushed | Trimmed | Done | Health | Read | Transfer | ChangeMembers


# ── Effects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class HardState(msgspec.Struct, frozen=True):
    """The state that must survive a restart of the member, in one small file."""

    term: Count = 0
    vote: Annotated[MemberId, Meta()] | None = None
    members: Members = Members()


class Save(msgspec.Struct, frozen=True):
    """Job: replace the file of term, vote and members."""

    job: int
    state: HardState


class SaveEpochs(msgspec.Struct, frozen=True):
    """Job: replace the file of epochs."""

    job: int
    epochs: Epochs


class Cut(msgspec.Struct, frozen=True):
    """Job: remove everything after this offset from the log."""

    job: int
    end: int


class Restart(msgspec.Struct, frozen=True):
    """Job: let the log, which is empty, begin at this offset."""

    job: int
    start: int


class Append(msgspec.Struct, frozen=True):
    """Append the leader's bytes to the log; `offset` is the end of the log."""

    offset: int
    data: bytes


class BeginTerm(msgspec.Struct, frozen=True):
    """Append the record that begins a leader's term, and then report `Appended`."""

    term: int


class Send(msgspec.Struct, frozen=True):
    """A message to a member."""

    to: str
    message: Message


class Ship(msgspec.Struct, frozen=True):
    """A message to a member, followed by `size` bytes of the log from `message.previous` on."""

    to: str
    message: AppendRequest
    size: int


class Committed(msgspec.Struct, frozen=True):
    """No election can remove the log before this offset: its senders may be answered, and consumers may see it."""

    offset: int


class RoleChanged(msgspec.Struct, frozen=True):
    """The role, the term or the leader has changed. `leader` is None while the leader is not known."""

    role: str
    term: int
    leader: str | None


class ReadReady(msgspec.Struct, frozen=True):
    """The read may be served, up to this offset."""

    token: Token
    offset: int


class Answered(msgspec.Struct, frozen=True):
    """A read has failed, or an administrator's request has succeeded (`fault` is None) or failed."""

    token: Token
    fault: str | None


Job = Save | SaveEpochs | Cut | Restart
Effect = Job | Append | BeginTerm | Send | Ship | Committed | RoleChanged | ReadReady | Answered
