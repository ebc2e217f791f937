"""What must be true of a group at every moment. An AssertionError names the invariant.

election safety       one leader per term
log matching          a byte of the same epoch at the same offset: the logs are equal up to there
leader completeness   a new leader has all that was committed
state machine safety  all members commit the same bytes
linearizability       see raft_clients.py
"""

from typing import TYPE_CHECKING

from kourou.raft.events import Job, Restart

if TYPE_CHECKING:
    from .raft_member import Member


class Check:
    """What has been seen so far, of all members."""

    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}
        self._logs: dict[tuple[int, int], int] = {}  # (epoch, offset): the digest of the log up to there
        self._committed: dict[int, int] = {0: 0}  # offset: digest
        self.committed_end = 0
        self._by_term: dict[int, int] = {}  # what was committed in a term
        self._terms: dict[str, int] = {}
        self.elections = 0

    def digest_at(self, job: Job | None) -> int:
        """Of a log that begins where another one was cut off."""
        if not isinstance(job, Restart):
            return 0
        assert job.start in self._committed, f"a log begins at {job.start}, which is not committed"
        return self._committed[job.start]

    def written(self, member: "Member", epoch: int, end: int, digest: int) -> None:
        """A record is in a log."""
        seen = self._logs.setdefault((epoch, end), digest)
        assert seen == digest, f"log matching: {member.name} has other bytes before {end} in epoch {epoch}"

    def recovered(self, member: "Member") -> None:
        """A member has started with the contents of its disk."""
        storage = member.storage
        epoch, end = storage.epochs.before(storage.end), storage.end
        if end > storage.start:
            self.written(member, epoch, end, storage.digests[end])
        term = self._terms.get(member.name, 0)
        assert storage.hard.term >= term, f"{member.name} forgot term {term}"

    def stepped(self, member: "Member") -> None:
        """After each step."""
        raft = member.raft
        assert raft is not None
        node, storage = raft.node, member.storage
        assert node.log.stored == storage.end, "the machine knows where the log ends"
        assert node.log.durable <= storage.synced, "the machine takes bytes for durable that are not"
        assert member.job is not None or node.log.epochs.last == storage.epochs.last

    def role_changed(self, member: "Member", role: str, term: int) -> None:
        self._terms[member.name] = max(self._terms.get(member.name, 0), member.storage.hard.term)
        if role != "leader":
            return
        self.elections += 1
        first = self._leaders.setdefault(term, member.name)
        assert first == member.name, f"election safety: {first} and {member.name} lead in term {term}"
        assert member.storage.hard.term == term, "a leader whose term is not on disk"
        end = max((end for other, end in self._by_term.items() if other < term), default=0)
        self._has_committed(member, end, f"leader completeness: {member.name} leads in term {term}")

    def _has_committed(self, member: "Member", end: int, why: str) -> None:
        storage = member.storage
        if end < storage.start:
            return
        assert storage.end >= end, f"{why}, its log ends at {storage.end}, and {end} was committed"
        assert storage.digests.get(end) == self._committed[end], f"{why}, and has other bytes before {end}"

    def committed(self, member: "Member", offset: int) -> None:
        """A member says that this is committed."""
        storage, why = member.storage, f"state machine safety: {member.name} commits {offset}"
        assert offset <= storage.end, f"{why}, and its log ends at {storage.end}"
        if offset <= self.committed_end:
            if offset >= storage.start:
                assert storage.digests[offset] == self._committed[offset], f"{why} with other bytes than before"
            return
        self._has_committed(member, self.committed_end, why)
        for end in storage.ends:
            if self.committed_end < end <= offset:
                self._committed[end] = storage.digests[end]
        self.committed_end = offset
        assert member.raft is not None
        self._by_term[member.raft.node.term] = offset
