"""The machine of one member: `step(events, now_ms) -> effects`.

    follower ──no leader──▶ candidate (trial) ──would win──▶ candidate ──wins──▶ leader
        ▲                        │                               │                  │
        └────────────────────────┴── a leader, or a newer term ──┴──────────────────┘ or no majority, or no disk

It has no clock, no disk and no network: events.py has the rules for a driver. `now_ms` comes from a monotonic clock.

The assertions of this package and the simulation check these invariants: a term has one leader; the log of a leader has
all bytes that were committed before its term; logs that have a byte of the same epoch at the same offset are equal up
to there; committed bytes are never cut.
"""

from collections.abc import Iterable
from random import Random
from typing import assert_never

from kourou.raft.candidate import Candidate, grants
from kourou.raft.events import (
    Answered,
    Appended,
    ChangeMembers,
    Cut,
    Done,
    Effect,
    Event,
    Flushed,
    HardState,
    Health,
    Job,
    Read,
    Received,
    Restart,
    RoleChanged,
    SaveEpochs,
    Transfer,
    Trimmed,
)
from kourou.raft.follower import Follower, is_plausible
from kourou.raft.leader import Leader
from kourou.raft.log import Log
from kourou.raft.members import Members
from kourou.raft.messages import AppendAnswer, AppendRequest, Message, TakeOver, VoteAnswer, VoteRequest
from kourou.raft.node import Node
from kourou.raft.settings import RaftSettings


class Raft:
    """One member of a group."""

    def __init__(
        self, member: str, hard: HardState, log: Log, settings: RaftSettings, random: Random, now_ms: int
    ) -> None:
        self.node = Node(member, hard, log, settings, random, now_ms)
        self.role: Follower | Candidate | Leader = Follower(self.node)
        self._known: tuple[str, int, str | None] = ("", -1, None)  # the contents of the last RoleChanged

    @property
    def is_open(self) -> bool:
        """May the broker append to the log?"""
        return isinstance(self.role, Leader) and self.role.is_open

    @property
    def due_ms(self) -> int:
        """When to call `step` next if there is no event before."""
        return self.role.due_ms

    def step(self, events: Iterable[Event], now_ms: int) -> list[Effect]:
        """Process events, and return the effects to perform."""
        node = self.node
        node.now_ms = max(now_ms, node.now_ms)
        for event in events:
            self._take(event)
        if node.now_ms >= self.role.due_ms:
            self._tick()
        if isinstance(self.role, Candidate) and self.role.is_elected:
            self._won(self.role)
        if isinstance(self.role, Leader):
            self.role.reads_are_due()
        self._tell_role()
        return node.out.take()

    def _take(self, event: Event) -> None:
        match event:
            case Received():
                self._received(event.message)
            case Appended():
                self.node.log.appended(event.end)
                self._log_moved()
            case Flushed():
                self._flushed(event.offset)
            case Trimmed():
                self.node.log.trimmed(event.start)
            case Done():
                self._done(event.job)
            case Health():
                self._health(writable=event.writable)
            case Read() | Transfer() | ChangeMembers():
                self._asked(event)
            case _:
                assert_never(event)

    def _tell_role(self) -> None:
        known = (self.role.name, self.node.term, self.node.leader)
        if known != self._known:
            self._known = known
            self.node.out.add_now(RoleChanged(*known))

    # ── The log and the disk ──────────────────────────────────────────────────────────────────────────────────────

    def _log_moved(self) -> None:
        if not isinstance(self.role, Candidate):
            self.role.log_moved()

    def _flushed(self, offset: int) -> None:
        if not self.node.out.changes_log:
            self.node.log.flushed(offset)
            self._log_moved()

    def _done(self, number: int) -> None:
        job = self.node.out.done(number)
        if job is not None:
            self._was_done(job)
        if not self.node.out.is_busy and not isinstance(self.role, Candidate):
            self.role.jobs_are_done()

    def _was_done(self, job: Job) -> None:
        log = self.node.log
        if isinstance(job, Cut):
            log.appended(job.end)
        elif isinstance(job, Restart):
            log.restarted(job.start)
        elif isinstance(job, SaveEpochs):
            log.epochs = job.epochs

    def _health(self, *, writable: bool) -> None:
        self.node.is_writable = writable
        if not writable and not isinstance(self.role, Follower):
            self._follow(None)

    # ── Time and roles ────────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        if isinstance(self.role, Leader):
            if not self.role.tick():
                self._follow(None)
        elif self._may_run:
            self._run(trial=True)
        else:
            self._follow(None)

    @property
    def _may_run(self) -> bool:
        return self.node.is_voter and self.node.is_writable and not self.node.out.is_busy

    def _run(self, *, trial: bool, is_transfer: bool = False) -> None:
        self.role = Candidate(self.node, trial=trial, is_transfer=is_transfer)

    def _won(self, candidate: Candidate) -> None:
        if candidate.trial:
            self._run(trial=False)  # it can't be elected before its own vote is on disk
        else:
            self.role = Leader(self.node)

    def _follow(self, leader: str | None, *, term: int | None = None, vote: str | None = None) -> None:
        """Become a follower, in a newer term if one is given."""
        node = self.node
        if isinstance(self.role, Leader):
            self.role.ended(by_newer_term=term is not None)
        if term is not None:
            node.enter_term(term, vote)
        node.leader = leader
        self.role = Follower(node)

    # ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _received(self, message: Message) -> None:
        match message:
            case AppendRequest():
                self._append_requested(message)
            case AppendAnswer():
                self._append_answered(message)
            case VoteRequest():
                self._vote_requested(message)
            case VoteAnswer():
                self._vote_answered(message)
            case TakeOver():
                self._take_over(message)
            case _:
                assert_never(message)

    def _append_requested(self, request: AppendRequest) -> None:
        node = self.node
        if request.term < node.term:
            node.send(request.sender, self._old_term(request))
            return
        if not is_plausible(request) or request.sender == node.id:
            return
        if request.term > node.term:
            self._follow(request.sender, term=request.term)
        elif not isinstance(self.role, Follower):
            assert not isinstance(self.role, Leader), f"{request.sender} and {node.id} both lead in term {node.term}"
            self._follow(request.sender)
        node.leader = request.sender
        assert isinstance(self.role, Follower)
        self.role.received(request)

    def _old_term(self, request: AppendRequest) -> AppendAnswer:
        """The answer that tells the sender about a newer term, so that it steps down."""
        age = self.node.members.age
        return AppendAnswer(self.node.id, self.node.term, request.stamp, False, 0, 0, 0, *age)

    def _append_answered(self, answer: AppendAnswer) -> None:
        if answer.term > self.node.term:
            self._follow(None, term=answer.term)
        elif answer.term == self.node.term and isinstance(self.role, Leader):
            self.role.answered(answer)

    def _vote_requested(self, request: VoteRequest) -> None:
        node = self.node
        leads = isinstance(self.role, Leader)
        granted = grants(node, request, leads=leads)
        is_newer = request.term > node.term and not request.trial
        is_heard = request.is_transfer or (not leads and node.now_ms >= node.loyal_until_ms)
        if is_newer and is_heard:
            self._follow(None, term=request.term, vote=request.sender if granted else None)
        elif granted and not request.trial:
            node.vote_for(request.sender)
        if granted and isinstance(self.role, Follower):
            if request.trial:
                self.role.let_try()
            else:
                self.role.wait_for_leader()
        term = request.term if granted else node.term
        is_older = (request.members_term, request.members_version) < node.members.age
        answer = VoteAnswer(node.id, term, granted, request.trial, node.members if is_older else None)
        node.send(request.sender, answer)

    def _vote_answered(self, answer: VoteAnswer) -> None:
        if answer.term > self.node.term and not (answer.trial and answer.granted):
            self._follow(None, term=answer.term)
        if not isinstance(self.role, Leader) and answer.members is not None:
            self._learn(answer.members)
        if isinstance(self.role, Candidate):
            self.role.answered(answer)

    def _learn(self, members: Members) -> None:
        """Adopt newer members; a candidate starts over, since it can't be elected with the older ones."""
        if members.age > self.node.members.age:
            self.node.use_members(members)
            if isinstance(self.role, Candidate):
                self._follow(None)

    def _take_over(self, message: TakeOver) -> None:
        node = self.node
        if message.term != node.term or node.leader != message.sender or not isinstance(self.role, Follower):
            return
        if self._may_run:
            self._run(trial=False, is_transfer=True)

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, event: Read | Transfer | ChangeMembers) -> None:
        role = self.role
        if not isinstance(role, Leader):
            leader = self.node.leader
            fault = f"this broker is not the leader: ask {leader}" if leader else "the group has no leader: try again"
            self.node.out.add(Answered(event.token, fault))
        elif isinstance(event, Read):
            role.read(event)
        elif isinstance(event, Transfer):
            role.transfer(event)
        else:
            role.change_members(event)
