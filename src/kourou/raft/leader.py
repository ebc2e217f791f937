"""The member that writes: it sends its log to the other members, and decides what is committed.

    elected ─▶ members and epochs of the new term on disk ─▶ the term's first record ─▶ the broker may append
                                                                                        (`is_open`)

An offset is committed when a majority of the voters has the log up to there, and the byte before it is of the
leader's own term: bytes of an older term can be lost, even if a majority has them, to a leader that never had
them (figure 8 of the Raft paper). That is why a term begins with a record of its own.

A leader that has no answer from a majority for `election_ms` steps down: it can't commit, and another member may lead
already. It must have sent two heartbeats in that time, because a process that was paused may have answers that it has
not read yet.
"""

from collections.abc import Mapping

from kourou.raft.change import Change
from kourou.raft.events import Answered, BeginTerm, ChangeMembers, Read, Ship, Transfer
from kourou.raft.handover import NEVER, Handover
from kourou.raft.lease import Lease
from kourou.raft.messages import AppendAnswer, AppendRequest
from kourou.raft.node import LEADER, Node
from kourou.raft.progress import Progress
from kourou.raft.quorum import agreed, majority

_NOT_ANY_MORE = "this broker no longer leads the group: try again with the new leader"


class Leader:
    """See the module's text."""

    name = LEADER

    def __init__(self, node: Node) -> None:
        self._node = node
        node.leader = node.id
        self.start = node.log.end  # of this term
        self._begins = False  # the first record of the term was requested
        self._lease = Lease()
        self._progress = {peer: Progress(node.log.end, node.now_ms) for peer in node.peers}
        self._first: frozenset[str] = node.voters  # sent everything at once
        self._gathered_ms = NEVER  # when the others are sent less than a batch
        self.handover = Handover(node)
        self._change = Change(node)
        self._beat_ms = node.now_ms  # when the next heartbeat is due
        self._asked_ms = (node.now_ms, node.now_ms)  # when the last two heartbeats were sent
        node.use_members(node.members.of_term(node.term))
        node.save_epochs(node.log.epochs_for(node.term))

    def jobs_are_done(self) -> None:
        """The files for a new term or new members are on disk."""
        self._check_change()
        if not self._begins and self._node.log.epochs.last is not None:
            self._begins = self._node.log.epochs.last.number == self._node.term
            if self._begins:
                self._node.out.add(BeginTerm(self._node.term))

    @property
    def followers(self) -> Mapping[str, Progress]:
        """How far the other members are, by their ids."""
        return self._progress

    @property
    def has_begun(self) -> bool:
        """The first record of the term is in the log."""
        return self._begins and self._node.log.stored > self.start

    @property
    def is_open(self) -> bool:
        """May the broker append?"""
        return self.has_begun and not self.handover.is_under_way

    @property
    def has_committed(self) -> bool:
        """Whether a byte of this term is committed, which implies that everything committed before is known here."""
        return self.has_begun and self._node.commit > self.start

    @property
    def due_ms(self) -> int:
        return min(self._beat_ms, self._gathered_ms, self.handover.due_ms)

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> bool:
        """False: a majority does not answer, so this member steps down."""
        node = self._node
        if node.now_ms >= self.handover.due_ms:
            self.handover.is_late()
        if node.now_ms >= self._beat_ms:
            heard_ms = self._heard_ms()
            if node.now_ms - heard_ms >= node.settings.election_ms and self._asked_ms[0] > heard_ms:
                return False
            self.handover.prefer(self._progress, is_open=self.is_open and self.has_committed)
            self._beat()
        elif node.now_ms >= self._gathered_ms:
            self._feed_all()
        return True

    def _heard_ms(self) -> int:
        """When a majority answered last."""
        node = self._node
        return agreed(node.now_ms if voter == node.id else self._progress[voter].heard_ms for voter in node.voters)

    def _beat(self) -> None:
        self._asked_ms = (self._asked_ms[1], self._node.now_ms)
        self._beat_ms = self._node.now_ms + self._node.settings.heartbeat_ms
        self._lease.begin_round()
        self._choose_first()
        for progress in self._progress.values():
            progress.is_waiting = False
        self._feed_all(even_nothing=True)

    def _choose_first(self) -> None:
        """Of the other voters, those that have most of the log, as many as a majority needs."""
        node = self._node
        others = sorted(
            node.voters - {node.id},
            key=lambda voter: (-self._progress[voter].matched, voter not in self._first, voter),
        )
        self._first = frozenset(others[: majority(len(node.voters)) - 1])

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _feed(self, peer: str, progress: Progress, *, even_nothing: bool = False) -> None:
        """Send the log that the follower lacks, within `in_flight_bytes`; with `even_nothing`, at least a heartbeat."""
        log, settings = self._node.log, self._node.settings
        while (
            progress.next < log.stored and progress.room(settings.in_flight_bytes) and not self._gathers(peer, progress)
        ):
            even_nothing = False
            if progress.next < log.start:
                self._send_restart(peer, progress)
                return
            start = progress.next
            end = log.batch(start, settings.batch_bytes)
            self._ship(peer, progress, end - start)
            progress.sent_ms = self._node.now_ms
            if not progress.probing:
                progress.next = end
        if even_nothing:
            self._ship(peer, progress, 0)

    def _feed_all(self, *, even_nothing: bool = False) -> None:
        self._gathered_ms = NEVER
        for peer, progress in self._progress.items():
            self._feed(peer, progress, even_nothing=even_nothing)

    def _gathers(self, peer: str, progress: Progress) -> bool:
        """Less than a batch waits, and is sent with the records that are stored until then: each batch has a cost.

        It waits for the answer to the batch before, and if a majority does not need this follower, for `gather_ms`.
        With SYNC_FLUSH it does not wait, because each batch would wait for the sync of the one before.
        """
        node, settings = self._node, self._node.settings
        if settings.sync or progress.probing or node.log.stored - progress.next >= settings.batch_bytes:
            return False
        if progress.matched < progress.next:
            return True
        until_ms = progress.sent_ms + settings.gather_ms
        if peer in self._first or node.now_ms >= until_ms:
            return False
        self._gathered_ms = min(self._gathered_ms, until_ms)
        return True

    def _ship(self, peer: str, progress: Progress, size: int, restart: tuple[int, int] | None = None) -> None:
        node, log = self._node, self._node.log
        start = log.start if restart is not None else max(progress.next, log.start)
        is_known = progress.members_age == node.members.age
        before = log.epochs.before(start)
        request = AppendRequest(
            sender=node.id,
            term=node.term,
            stamp=self._lease.stamp(node.now_ms),
            previous=start,
            previous_epoch=before,
            epoch=log.epochs.at(start) if size else before,
            commit=node.commit,
            members=None if is_known else node.members,
            restart=restart,
        )
        progress.is_waiting = progress.probing
        node.out.add(Ship(peer, request, size))

    def _send_restart(self, peer: str, progress: Progress) -> None:
        log = self._node.log
        epoch = log.epochs.before(log.start)
        progress.probing = True
        self._ship(peer, progress, 0, restart=(epoch, log.epochs.start_of(epoch) or 0))

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def answered(self, answer: AppendAnswer) -> None:
        """A follower has answered a request of this term."""
        progress = self._progress.get(answer.sender)
        if progress is None:
            return
        progress.heard_ms = self._node.now_ms
        progress.stamp = max(progress.stamp, answer.stamp)
        progress.members_age = (answer.members_term, answer.members_version)
        if answer.ok:
            progress.has(answer.matched, answer.durable, answer.stamp)
            self._advance()
            self.handover.follower_has(answer.sender, answer.matched, self._lease)
        elif answer.stamp >= progress.floor:
            progress.probe(self._meeting_point(answer), answer.stamp)
        self._answer_reads()
        self._check_change()
        if answer.sender in self._progress:
            self._feed(answer.sender, progress)

    def _meeting_point(self, answer: AppendAnswer) -> int:
        """The offset to try next as the end of the part that both logs have in common."""
        log = self._node.log
        epoch = log.epochs.not_after(answer.hint_epoch)
        end = log.epochs.end_of(epoch, log.stored) if epoch else 0
        return min(answer.matched, end) if epoch == answer.hint_epoch else end

    # ── Commit ────────────────────────────────────────────────────────────────────────────────────────────────────

    def log_moved(self) -> None:
        """The broker has appended, or the log was flushed."""
        if self.has_begun:
            self._advance()
            self._feed_all()

    def _advance(self) -> None:
        """Commit up to the offset that a majority has."""
        offset = min(self.majority_has(), self._node.log.stored)
        if self._may_commit(offset):
            self._node.commit_to(offset)

    def majority_has(self) -> int:
        """The offset up to which a majority of the voters has the log, on disk if the settings require it."""
        return agreed(self._has(voter) for voter in self._node.voters)

    def _has(self, voter: str) -> int:
        log, is_sync = self._node.log, self._node.settings.sync
        if voter == self._node.id:
            return log.durable if is_sync else log.stored
        progress = self._progress[voter]
        return progress.durable if is_sync else progress.matched

    def _may_commit(self, offset: int) -> bool:
        """Whether the byte before this offset is of the current term."""
        return self.has_begun and offset > self.start

    # ── Reads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, event: Read) -> None:
        """Answer a read now if the lease is valid, otherwise after a majority has answered the next heartbeats."""
        node = self._node
        if not self.has_committed:
            node.out.add(Answered(event.token, "the leader has just been elected: try again"))
        elif not self._lease.wait(node.commit, event.token):
            node.out.add(Answered(event.token, "too many reads wait for a majority of the group: try again"))

    def reads_are_due(self) -> None:
        """At the end of a step: reads of the same step share one round."""
        node, settings = self._node, self._node.settings
        if not self._lease.is_waited_for:
            return
        lease_ms = settings.election_ms * settings.lease_percent // 100
        if len(node.voters) == 1 or self._lease.is_valid(self._majority_stamp(), lease_ms, node.now_ms):
            self._finish_reads(self._lease.stamp(node.now_ms))
        elif self._lease.needs_round:
            self._beat()

    def _answer_reads(self) -> None:
        if self._lease.is_waited_for:
            self._finish_reads(self._majority_stamp())

    def _finish_reads(self, stamp: int) -> None:
        for ready in self._lease.confirmed(stamp):
            self._node.out.add(ready)

    def _majority_stamp(self) -> int:
        own = self._lease.last
        return agreed(own if voter == self._node.id else self._progress[voter].stamp for voter in self._node.voters)

    # ── Administration ────────────────────────────────────────────────────────────────────────────────────────────

    def transfer(self, event: Transfer) -> None:
        """Let another member lead."""
        fault = None if self.is_open else "the leader is not ready for a transfer: try again"
        if fault is not None:
            self._node.out.add(Answered(event.token, fault))
            return
        progress = self._progress.get(event.to)
        if self.handover.begin(event.to, event.token) and progress is not None:
            self.handover.follower_has(event.to, progress.matched, self._lease)

    def change_members(self, event: ChangeMembers) -> None:
        """Add, remove, promote or demote a member."""
        is_committed = self.has_committed and self.majority_has() >= self._node.commit
        if self._change.begin(event, self._progress, is_committed=is_committed):
            self._follow_members()
            self._check_change()

    def _follow_members(self) -> None:
        node = self._node
        for peer in self._progress.keys() - node.members.ids:
            del self._progress[peer]
        for peer in node.peers:
            if peer not in self._progress:
                self._progress[peer] = Progress(node.log.stored, node.now_ms)
        self._advance()
        self._beat()

    def _check_change(self) -> None:
        self._change.check(self._progress)

    def ended(self, *, by_newer_term: bool) -> None:
        """Another role follows."""
        for answer in self._lease.ended(_NOT_ANY_MORE):
            self._node.out.add(answer)
        self.handover.ended(by_newer_term=by_newer_term)
        self._change.ended()
