"""The state of a Raft group, as a member sees it. Kourou's own."""

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.java import Int32, Int64


class RaftPeer(Body):
    """A member of the group."""

    id: str = always("")
    address: str = always("")
    voter: bool = always(True)
    connected: bool = always(False)
    """The member that answers has a connection to it."""
    log_end: Int64 | None = None
    """Up to where it has the log of the leader. Only the leader knows this and the following values."""
    durable: Int64 | None = None
    """Up to where it has that on its disk."""
    silent_millis: Int64 | None = None
    """When the leader has heard from it last."""


class RaftStatus(Body):
    """The state of a group."""

    group: str = always("")
    id: str = always("")
    """The member that answers."""
    role: str = always("")
    """leader, follower or candidate."""
    term: Int64 = always(0)
    leader: str | None = None
    log_start: Int64 = always(0)
    log_end: Int64 = always(0)
    durable: Int64 = always(0)
    commit: Int64 = always(0)
    elections: Int64 = always(0)
    """How many this member has won since its start."""
    election_millis: Int32 = always(0)
    """The setting `raftElectionTimeout`."""
    members_version: Int64 = always(0)
    members: list[RaftPeer] = always(list)
    broken: str | None = None
    """Why this member takes no part in its group any more."""
