"""The in-sync set of a master: the replicas that have every acknowledged message, so each of them may be elected.

The controller owns the set; the master proposes changes. While a proposal is in flight, either set may be in force, so
the condition for an acknowledgement must hold in both:

    allAckInSyncStateSet     every member of either set has the message, including this broker
    inSyncReplicas = n       n members of both sets have it, including this broker

Senders wait for a joining replica before it is proposed, and it is proposed once it has all messages that were
acknowledged before. So at no time is a message acknowledged that a member lacks.

Java: AutoSwitchHAService.
"""

from dataclasses import dataclass
from typing import Protocol


class Replicas(Protocol):
    """The progress of the connected slaves."""

    def acknowledged_by(self, broker_id: int) -> int | None:
        """The offset up to which this replica has the log; None if it is not connected or has not reported."""


@dataclass(slots=True)
class InSyncSet:
    """The set as the master knows it."""

    broker_id: int  # of this broker, which is always a member
    members: frozenset[int]
    epoch: int  # of the set
    proposed: frozenset[int] | None = None  # in flight, or its answer was lost
    joining: frozenset[int] = frozenset()  # senders wait for these replicas, which will be proposed

    def __post_init__(self) -> None:
        self.members |= {self.broker_id}

    def known(self, members: frozenset[int], epoch: int) -> bool:
        """A controller names the set; an older one is ignored. True if the set has changed."""
        if epoch < self.epoch or not members:
            return False
        is_news = (epoch, members) != (self.epoch, self.members)
        self.members, self.epoch, self.proposed = members | {self.broker_id}, epoch, None
        self.joining -= members
        return is_news

    # ── What senders wait for ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def either(self) -> frozenset[int]:
        """The members of either set, and the joining replicas."""
        return self.members | (self.proposed or frozenset()) | self.joining

    @property
    def both(self) -> frozenset[int]:
        return self.members & self.proposed if self.proposed is not None else self.members

    def had_by_all(self, replicas: Replicas, end: int) -> int:
        """The offset up to which every member has the log; 0 while one is not connected."""
        others = self.either - {self.broker_id}
        return min((replicas.acknowledged_by(one) or 0 for one in others), default=end)

    def had_by(self, count: int, replicas: Replicas, end: int) -> int:
        """The offset up to which at least `count` members have the log, including this broker."""
        others = sorted((replicas.acknowledged_by(one) or 0 for one in self.both - {self.broker_id}), reverse=True)
        if count <= 1:
            return end
        return others[count - 2] if count - 2 < len(others) else 0
