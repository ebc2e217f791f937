"""A member that wants to lead: first it asks whether it would be elected (a trial), then it asks for votes.

The trial changes nothing on any member, so that a member that was cut off or removed can't disturb a working group.
Only when a majority would vote for it does a candidate enter a new term; it stores its own vote before it asks.

A trial costs nothing, so it is soon repeated: another member may just have heard from the leader that is gone now. An
election is given more time, since slow disks have to store the votes.
"""

from kourou.raft.messages import VoteAnswer, VoteRequest
from kourou.raft.node import CANDIDATE, Node
from kourou.raft.quorum import majority


class Candidate:
    """See the module's text."""

    name = CANDIDATE

    def __init__(self, node: Node, *, trial: bool, is_transfer: bool = False) -> None:
        self._node = node
        self.trial = trial
        self._is_transfer = is_transfer
        self._votes: set[str] = set()
        longest_ms = node.settings.election_ms // 2 if trial else 2 * node.settings.election_ms
        self.due_ms = node.now_ms + node.random.randint(longest_ms // 2, longest_ms)
        node.leader = None
        if not trial:
            node.enter_term(node.term + 1, node.id)
        self._votes.add(node.id)
        self._ask()

    @property
    def is_elected(self) -> bool:
        """Whether a majority has voted for it. Its own vote counts as soon as it is on disk."""
        node = self._node
        return not node.out.is_busy and len(self._votes & node.voters) >= majority(len(node.voters))

    def _ask(self) -> None:
        node = self._node
        last_epoch, end = node.log.last
        request = VoteRequest(
            sender=node.id,
            term=node.term + self.trial,
            last_epoch=last_epoch,
            end=end,
            members_term=node.members.term,
            members_version=node.members.version,
            trial=self.trial,
            is_transfer=self._is_transfer,
        )
        for voter in sorted(node.voters - {node.id}):
            node.send(voter, request)

    def answered(self, answer: VoteAnswer) -> None:
        """A member has voted."""
        if answer.granted and answer.trial == self.trial and answer.term == self._node.term + self.trial:
            self._votes.add(answer.sender)


def grants(node: Node, request: VoteRequest, *, leads: bool) -> bool:
    """Would this member vote for the candidate? Java's DLedger compares logs first, and so may never elect a leader."""
    if request.term < node.term or (request.term == node.term and request.trial):
        return False
    if not request.is_transfer and (leads or node.now_ms < node.loyal_until_ms):
        return False
    if request.term == node.term and node.vote not in (None, request.sender):
        return False
    if (request.members_term, request.members_version) < node.members.age:
        return False
    return (request.last_epoch, request.end) >= node.log.last
