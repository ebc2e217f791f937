"""The state of a member that does not depend on its role."""

from random import Random

from kourou.raft.events import Committed, HardState, Save, SaveEpochs, Send
from kourou.raft.log import Log
from kourou.raft.members import Members
from kourou.raft.messages import Message
from kourou.raft.outbox import Outbox
from kourou.raft.settings import RaftSettings
from kourou.store.epochs import Epochs

FOLLOWER, CANDIDATE, LEADER = "follower", "candidate", "leader"


class Node:
    """The state that roles share, and the few ways to change it."""

    def __init__(
        self, member: str, hard: HardState, log: Log, settings: RaftSettings, random: Random, now_ms: int
    ) -> None:
        self.id = member
        self.settings = settings
        self.random = random
        self.log = log
        self.out = Outbox()
        self.now_ms = now_ms
        self.term = hard.term
        self.vote = hard.vote  # in this term
        self.members = hard.members
        self.voters = hard.members.voters
        self.leader: str | None = None  # of this term, if it is known
        self.commit = log.start
        self.loyal_until_ms = now_ms + settings.election_ms
        """Until then this member votes for no other leader: it has just heard from one, or may have (after a start)."""
        self.is_writable = True  # the log can be written

    @property
    def is_voter(self) -> bool:
        return self.id in self.voters

    @property
    def peers(self) -> list[str]:
        """All other members, in a fixed order."""
        return sorted(self.members.ids - {self.id})

    def send(self, to: str, message: Message) -> None:
        self.out.add(Send(to, message))

    # ── State on disk ─────────────────────────────────────────────────────────────────────────────────────────────

    def enter_term(self, term: int, vote: str | None) -> None:
        """Enter a newer term, with this vote."""
        assert term > self.term, f"term {term} is not newer than {self.term}"
        self.term, self.vote, self.leader = term, vote, None
        self._save()

    def vote_for(self, candidate: str) -> None:
        """Give the only vote of this term."""
        assert self.vote in (None, candidate), f"a second vote in term {self.term}"
        if self.vote is None:
            self.vote = candidate
            self._save()

    def use_members(self, members: Members) -> None:
        """Newer members."""
        assert members.age > self.members.age
        self.members, self.voters = members, members.voters
        self._save()

    def _save(self) -> None:
        self.out.add(Save(self.out.next_job(), HardState(self.term, self.vote, self.members)))

    def save_epochs(self, epochs: Epochs) -> None:
        self.out.add(SaveEpochs(self.out.next_job(), epochs))

    # ── How far ───────────────────────────────────────────────────────────────────────────────────────────────────

    def commit_to(self, offset: int) -> bool:
        """Advance the commit offset to this one; False if it is not higher."""
        if offset <= self.commit:
            return False
        assert offset <= self.log.stored, f"the commit offset {offset} is after the end of the log, {self.log.stored}"
        self.commit = offset
        self.out.add(Committed(offset))
        return True
