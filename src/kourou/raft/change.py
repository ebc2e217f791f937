"""A change of the members by a leader, by the rules of members.py."""

from collections.abc import Mapping

from kourou.raft.events import Answered, ChangeMembers, Token
from kourou.raft.members import fault_of_change
from kourou.raft.node import Node
from kourou.raft.progress import Progress
from kourou.raft.quorum import majority


class Change:
    """The change in progress; there is at most one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._token: Token | None = None  # of the change that a majority does not have yet

    def begin(self, event: ChangeMembers, progress: Mapping[str, Progress], *, is_committed: bool) -> bool:
        """Use other members from now on, if the rules allow it."""
        node = self._node
        fault = self._fault(event, progress, is_committed=is_committed)
        if fault is not None:
            node.out.add(Answered(event.token, fault))
            return False
        self._token = event.token
        node.use_members(node.members.changed(event.members))
        return True

    def _fault(self, event: ChangeMembers, progress: Mapping[str, Progress], *, is_committed: bool) -> str | None:
        node = self._node
        fault = fault_of_change(node.members, event.members, node.id)
        if fault is not None:
            return fault
        if self._token is not None or not self._is_known(progress) or not is_committed:
            return "a majority does not have the last change of members, or the whole log, yet: try again"
        for voter in {member.id for member in event.members if member.voter} - node.voters:
            near = progress.get(voter)
            if near is None or near.matched < node.log.end - node.settings.preferred_gap_bytes:
                return f"{voter} is too far behind: add it as a learner first, and wait until it has caught up"
        return None

    def _is_known(self, progress: Mapping[str, Progress]) -> bool:
        """Does a majority of the voters have the current members on disk?"""
        node = self._node
        if node.out.is_busy:
            return False
        others = node.voters - {node.id}
        knowing = sum(progress[voter].members_age == node.members.age for voter in others)
        return knowing + node.is_voter >= majority(len(node.voters))

    def check(self, progress: Mapping[str, Progress]) -> None:
        """The change is done when a majority has it."""
        if self._token is not None and self._is_known(progress):
            self._node.out.add(Answered(self._token, None))
            self._token = None

    def ended(self) -> None:
        """The leadership ended; the next leader decides whether the new or the previous members apply."""
        if self._token is not None:
            fault = "the leader changed before the change was complete: check the members of the group, and try again"
            self._node.out.add(Answered(self._token, fault))
            self._token = None
