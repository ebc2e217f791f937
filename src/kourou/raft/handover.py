"""Transfers the leadership to another member: an administrator asked for it, or the other member is preferred.

During a handover the broker appends nothing. As soon as the other member has the whole log, it is asked to start an
election. A handover that takes longer than `election_ms` is given up, and the broker accepts writes again.
"""

from collections.abc import Mapping
from typing import Final

from kourou.raft.events import Answered, Token
from kourou.raft.lease import Lease
from kourou.raft.messages import TakeOver
from kourou.raft.node import Node
from kourou.raft.progress import Progress

NEVER: Final = 2**62

PREFER_AGAIN: Final = 10
"""The pause after a failed handover to a preferred member, as a multiple of `election_ms`."""


class Handover:
    """The handover in progress; there is at most one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._to: str | None = None
        self._token: Token | None = None
        self._prefer_ms = node.now_ms + node.settings.election_ms  # not before this time
        self.due_ms = NEVER

    @property
    def is_under_way(self) -> bool:
        return self._to is not None

    def begin(self, to: str, token: Token | None) -> bool:
        """Begin to hand over to a voter."""
        node = self._node
        if to == node.id:
            self._answer(token, None)
            return False
        if self.is_under_way or to not in node.voters:
            others = ", ".join(sorted(node.voters - {node.id}))
            fault = "another transfer is in progress" if self.is_under_way else f"{to} can't lead: name one of {others}"
            self._answer(token, fault)
            return False
        self._to, self._token = to, token
        self.due_ms = node.now_ms + node.settings.election_ms
        return True

    def follower_has(self, follower: str, matched: int, lease: Lease) -> None:
        """Ask the follower to take over if it is the target and has the whole log."""
        if follower == self._to and matched >= self._node.log.end:
            lease.is_void = True
            self._node.send(follower, TakeOver(self._node.id, self._node.term))

    def prefer(self, progress: Mapping[str, Progress], *, is_open: bool) -> None:
        """Hand over to a member that is preferred to this one and almost has the whole log."""
        node = self._node
        if not is_open or self.is_under_way or node.now_ms < self._prefer_ms:
            return
        for member in node.settings.preferred:
            if member == node.id:
                return
            near = progress.get(member)
            if (
                near is not None
                and member in node.voters
                and node.now_ms - near.heard_ms < node.settings.election_ms
                and near.matched >= node.log.end - node.settings.preferred_gap_bytes
            ):
                self._prefer_ms = node.now_ms + PREFER_AGAIN * node.settings.election_ms
                self.begin(member, None)
                return

    def is_late(self) -> None:
        """The other member was not elected in time."""
        fault = f"{self._to} did not take over within {self._node.settings.election_ms} ms: check that it is reachable"
        self._answer(self._token, fault)
        self._to, self._token, self.due_ms = None, None, NEVER

    def ended(self, *, by_newer_term: bool) -> None:
        """This member no longer leads; if because of a newer term, the target of the handover counts as elected."""
        self._answer(self._token, None if by_newer_term else "the leader lost its majority: ask the next leader")
        self._token = None

    def _answer(self, token: Token | None, fault: str | None) -> None:
        if token is not None:
            self._node.out.add(Answered(token, fault))
