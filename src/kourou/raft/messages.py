"""The messages between the members of a group.

A message refers only to a term and a vote that its sender has on disk. Each may be lost, late, repeated or out of
order.
"""

import msgspec

from kourou.raft.members import Count, MemberId, Members


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A candidate asks for a vote; with `trial`, only whether it would get one, which changes nothing."""

    sender: MemberId
    term: Count
    last_epoch: Count
    """The epoch of the last byte of the candidate's log."""
    end: Count
    """Where the candidate's log ends."""
    members_term: Count
    members_version: Count
    trial: bool = False
    is_transfer: bool = False
    """The leader asked for this election: a member votes even if it has just heard from that leader."""


class VoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Granted: `term` is that of the request. Refused: `term` is that of the member that refuses."""

    sender: MemberId
    term: Count
    granted: bool
    trial: bool = False
    members: Members | None = None
    """The voter's list of members, if the candidate's is older: the candidate can't be elected without it."""


class AppendRequest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A leader sends bytes of its log, or none: a heartbeat."""

    sender: MemberId
    term: Count
    stamp: Count
    """Grows with each request of a leader; the answer repeats it. See lease.py."""
    previous: Count
    """The offset of the first byte."""
    previous_epoch: Count
    """The epoch of the byte before it."""
    epoch: Count
    """The epoch of all bytes here."""
    commit: Count
    """The leader's commit offset."""
    members: Members | None = None
    """The leader's list of members, if the follower may not have it."""
    restart: tuple[Count, Count] | None = None
    """The leader's log begins at `previous`: a follower that lacks the byte before drops its log, and continues from
    there. The number and the start of the epoch of that byte."""
    data: bytes = b""
    """Whole records of one epoch. On the wire they follow the message: see wire.py."""


class AppendAnswer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A follower has the leader's log up to `matched`; or, if not `ok`, it lacks the byte before `previous`."""

    sender: MemberId
    term: Count
    stamp: Count
    ok: bool
    matched: Count
    """ok: up to here its log is the leader's. Not ok: where the epoch `hint_epoch` ends in the follower's log."""
    durable: Count
    """ok: up to here the follower has that log on disk."""
    hint_epoch: Count
    """Not ok: the follower's newest epoch that may be in the leader's log as well."""
    members_term: Count
    members_version: Count


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The leader asks a follower that has the whole log to start an election at once."""

    sender: MemberId
    term: Count


Message = VoteRequest | VoteAnswer | AppendRequest | AppendAnswer | TakeOver
