"""Reads that are never stale: how a leader knows that it still leads.

Each request of a leader has an increasing stamp: the leader's time in ms, and a counter for requests of the same ms. A
follower repeats the stamp in its answer. So the stamp that a majority has repeated is a time at which no other member
led:

- A read that arrived before that time sees the commit offset that the leader had when the read arrived.
- Followers that answered do not vote for another leader within `election_ms` of the request. So for a little less than
  that time after the stamp, the leader answers reads at once (the lease). The margin allows for clocks that run at
  different speeds. A clock that jumps would break the lease, so a driver has to use a monotonic clock. A leader that
  has asked another member to take over has no lease for the rest of the term: an election may happen at any time.
"""

from collections import deque
from typing import Final

from kourou.raft.events import Answered, ReadReady, Token

READS_MAX: Final = 10_000
"""How many reads may wait at the same time. Further ones are refused."""

_BITS = 20  # requests of one millisecond that a stamp can tell apart


class Lease:
    """The stamps of one leader, and the reads that wait for them."""

    __slots__ = ("_reads", "_round", "is_void", "last")

    def __init__(self) -> None:
        self.last = 0  # the latest stamp
        self._round = 0  # the first stamp of the last round of requests to all members
        self._reads: deque[tuple[int, int, Token]] = deque()  # stamp needed, offset visible to the read, its token
        self.is_void = False

    def stamp(self, now_ms: int) -> int:
        """The stamp of the next request."""
        self.last = max(self.last + 1, now_ms << _BITS)
        return self.last

    def is_valid(self, majority_stamp: int, lease_ms: int, now_ms: int) -> bool:
        """May the leader answer reads without asking a majority again?"""
        return not self.is_void and now_ms < (majority_stamp >> _BITS) + lease_ms

    def wait(self, commit: int, token: Token) -> bool:
        """Let a read wait for answers to requests that are sent from now on. False: too many reads wait already."""
        if len(self._reads) >= READS_MAX:
            return False
        self._reads.append((self.last + 1, commit, token))
        return True

    @property
    def is_waited_for(self) -> bool:
        return bool(self._reads)

    @property
    def needs_round(self) -> bool:
        """Whether a read waits for requests that have not been sent yet."""
        return bool(self._reads) and self._reads[-1][0] > self._round

    def begin_round(self) -> None:
        """Called before requests are sent to all members."""
        self._round = self.last + 1

    def confirmed(self, majority_stamp: int) -> list[ReadReady]:
        """Reads that may be answered now."""
        ready = []
        while self._reads and self._reads[0][0] <= majority_stamp:
            _, offset, token = self._reads.popleft()
            ready.append(ReadReady(token, offset))
        return ready

    def ended(self, fault: str) -> list[Answered]:
        """The leader has stepped down: all waiting reads fail."""
        reads, self._reads = self._reads, deque()
        return [Answered(token, fault) for _, _, token in reads]
