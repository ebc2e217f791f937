"""A member that copies its leader's log.

A request has bytes of one epoch, and the epoch of the byte before them. If this log has that byte in the same epoch,
both logs are equal up to there (see kourou.store.epochs). If not, the answer names the newest epoch of this log
that the leader may have as well, and where that epoch ends in this log. The leader continues from there, so that the
common end of both logs is found after one round trip per epoch.

Only bytes that this log has in another epoch are cut, so that an old request that arrives late cuts nothing. A change
that must be on disk before bytes are appended (a cut, a new epoch, new members) is a job; the request waits for it,
and is then handled again. If more requests arrive meanwhile, only the last one is kept.
"""

from kourou.raft.events import Append, Cut, Restart
from kourou.raft.messages import AppendAnswer, AppendRequest
from kourou.raft.node import FOLLOWER, Node
from kourou.store.epochs import Epochs


def is_plausible(request: AppendRequest) -> bool:
    """Could a leader have sent this? Epochs never fall along a log, and none is newer than the leader's term.

    A log that begins at `restart` has the byte before in the epoch that the request says, or it would begin there again
    and again.
    """
    if request.restart is not None:
        epoch, start = request.restart
        if not epoch or epoch != request.previous_epoch or start >= request.previous:
            return False
    return request.previous_epoch <= request.epoch <= request.term


class Follower:
    """See the module's text."""

    name = FOLLOWER

    def __init__(self, node: Node) -> None:
        self._node = node
        self._same = min(node.commit, node.log.stored)  # up to here the log equals that of the leader of this term
        self._leader_commit = 0
        self._kept: AppendRequest | None = None  # waits for a job
        self._owed: int | None = None  # the stamp of a request that is not answered yet
        self._told = 0  # the durable offset that the leader was told last
        self.due_ms = 0
        self.wait_for_leader()

    def wait_for_leader(self) -> None:
        """Restart the election timeout."""
        node = self._node
        self.due_ms = node.now_ms + node.random.randint(node.settings.election_ms, 2 * node.settings.election_ms)

    def let_try(self) -> None:
        """Another member would win an election: do not compete with it now."""
        node = self._node
        self.due_ms = max(self.due_ms, node.now_ms + node.settings.election_ms // 2)

    # ── A request of the leader ───────────────────────────────────────────────────────────────────────────────────

    def received(self, request: AppendRequest) -> None:
        """A request of the leader of this term."""
        node = self._node
        node.loyal_until_ms = node.now_ms + node.settings.election_ms
        self.wait_for_leader()
        self._look_at(request)

    def jobs_are_done(self) -> None:
        """Continue with the request that waited for the job."""
        request, self._kept = self._kept, None
        if request is not None:
            self._look_at(request)

    def _look_at(self, request: AppendRequest) -> None:
        node, log = self._node, self._node.log
        if node.out.is_busy:
            self._kept = request
        elif request.members is not None and request.members.age > node.members.age:
            node.use_members(request.members)
            self._kept = request
        elif log.has(request.previous, request.previous_epoch):
            self._take(request)
        elif request.restart is not None and request.previous >= log.start:
            self._restart(request, request.restart)
        else:
            self._refuse(request)

    def _take(self, request: AppendRequest) -> None:
        log, data = self._node.log, request.data
        end = request.previous + len(data)
        here = log.same_until(request.previous, request.epoch, end)
        if here < end:
            if self._has_to_prepare(request, here):
                self._kept = request
                return
            self._node.out.add(Append(here, data[here - request.previous :]))
            log.end = end
        self._same = max(self._same, end)
        self._leader_commit = max(self._leader_commit, min(request.commit, end))
        self._owed = max(self._owed or 0, request.stamp)
        if log.end == log.stored:
            self._progressed(at_once=True)

    def _has_to_prepare(self, request: AppendRequest, here: int) -> bool:
        """Is a job needed before bytes can be appended here?"""
        node, log = self._node, self._node.log
        if here < log.end:
            assert here >= node.commit, f"the log would be cut at {here}, but {node.commit} is committed"
            node.out.add(Cut(node.out.next_job(), here))
            self._same = min(self._same, here)
            return True
        epochs = log.epochs_for(request.epoch)
        if epochs is not log.epochs and epochs != log.epochs:
            node.save_epochs(epochs)
            return True
        return False

    def _restart(self, request: AppendRequest, before: tuple[int, int]) -> None:
        """The leader's log begins after the end of this log: drop this log, and begin where the leader's begins.

        The order is log, epochs, new beginning: a crash in between leaves a log that claims less than it has, never
        more.
        """
        node, log = self._node, self._node.log
        epochs = Epochs([before]) if before[0] else Epochs()
        if log.end > log.start:
            assert request.previous > node.commit, f"restart at {request.previous}, but {node.commit} is committed"
            node.out.add(Cut(node.out.next_job(), log.start))
            self._same = 0
        elif log.epochs != epochs:
            node.save_epochs(epochs)
        else:
            node.out.add(Restart(node.out.next_job(), request.previous))
        self._kept = request

    def _refuse(self, request: AppendRequest) -> None:
        log = self._node.log
        if request.previous < log.start:
            epoch, end = log.epochs.before(log.start), log.start
        else:
            before = min(request.previous, log.end)
            epoch = log.epochs.not_after(min(request.previous_epoch, log.epochs.before(before)))
            end = max(log.start, min(log.epochs.end_of(epoch, log.end), before)) if epoch else log.start
        self._answer(request.stamp, ok=False, matched=end, durable=0, hint_epoch=epoch)

    # ── Reports of the driver ──────────────────────────────────────────────────────────────────────────────────────

    def log_moved(self) -> None:
        """Bytes were appended or flushed."""
        self._same = min(self._same, self._node.log.stored)
        self._progressed(at_once=False)

    def _progressed(self, *, at_once: bool) -> None:
        """Advance the commit offset, and answer.

        New bytes are answered when they are on disk, or at once if the settings do not require that; a request without
        new bytes is answered at once.
        """
        node, log = self._node, self._node.log
        node.commit_to(min(self._leader_commit, self._same, log.stored))
        durable = self._durable()
        at_once |= not node.settings.sync
        if node.leader is not None and (durable > self._told or (at_once and self._owed is not None)):
            self._told = max(self._told, durable)
            self._answer(self._owed or 0, ok=True, matched=self._same, durable=durable, hint_epoch=0)
            self._owed = None

    def _durable(self) -> int:
        """The offset up to which this log equals the leader's and is on disk."""
        return min(self._same, self._node.log.durable)

    def _answer(self, stamp: int, *, ok: bool, matched: int, durable: int, hint_epoch: int) -> None:
        node = self._node
        assert node.leader is not None
        answer = AppendAnswer(
            sender=node.id,
            term=node.term,
            stamp=stamp,
            ok=ok,
            matched=matched,
            durable=durable,
            hint_epoch=hint_epoch,
            members_term=node.members.term,
            members_version=node.members.version,
        )
        node.send(node.leader, answer)
