"""The settings of a group."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RaftSettings:
    """Times in milliseconds, sizes in bytes."""

    election_ms: int = 1_000
    """A follower that has not heard from a leader for one to two times this time starts an election. A leader that has
    not heard from a majority for this time steps down."""
    heartbeat_ms: int = 200
    lease_percent: int = 80
    """The part of `election_ms` for which a leader may answer reads alone after a majority has answered. The rest is
    the margin for clocks that run at different speeds. 0: each read asks a majority."""
    sync: bool = True
    """SYNC_FLUSH: only bytes on disk count for a majority. ASYNC_FLUSH (False): bytes in memory count as well."""
    batch_bytes: int = 256 * 1024
    """The most bytes of the log in one message; a larger record is sent alone."""
    gather_ms: int = 10
    """With ASYNC_FLUSH, members that a majority does not need are sent less than a batch at most this often."""
    in_flight_bytes: int = 4 * 1024 * 1024
    """The most bytes sent to a follower that it has not acknowledged."""
    preferred: tuple[str, ...] = ()
    """The members that should lead, the most preferred first."""
    preferred_gap_bytes: int = 1024 * 1024
    """The most bytes that a preferred member, or a learner that becomes a voter, may be behind."""
