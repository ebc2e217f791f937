"""How far the log is durable: which senders may be answered, and what consumers may see.

    appended ≥ flushed, replicated, committed …    watermarks: offsets of the log up to which something is true
    answerable_to = the lowest watermark that senders wait for
    visible_to    = the lowest watermark that consumers wait for

Everything that makes the log more durable moves a watermark and does nothing else. A sync of the log moves `flushed`.
Acknowledgements of replicas move a named watermark, the commit offset of a Raft group another one. So the rest of the
broker asks the same questions in every mode:

    mode                        senders wait for                        consumers wait for
    ASYNC_FLUSH                 nothing                                 nothing
    SYNC_FLUSH                  flushed                                 flushed, unless `readUnCommitted` is set
    replication to n brokers    the above, and a named watermark at the offset up to which n brokers have the log
    a slave                     nothing                                 a named watermark, if its master sends one
    a Raft group                the commit offset alone, which is all that either flush mode asks for there

After a failed sync of the log, consumers see only what is flushed, in every mode.

A sender that has to wait leaves a token. One move of a watermark returns all tokens that may be answered then, so a
hundred senders share one sync. Each watermark has its own queue of tokens, in the order of their offsets: a token that
waits for a slow replica delays no other token. `late` returns a token whose time is over, with the watermark that is
missing, and `take_cut` a token whose bytes were cut from the log.

Pure: the time is an argument, and there is no I/O.

Java: CommitLog.GroupCommitService, GroupTransferService, handleDiskFlushAndHA; MessageStore.getConfirmOffset.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol, TypeAlias

from kourou.store.settings import FlushMode, StoreSettings

FLUSHED: Final = "flushed"
"""The watermark that syncs of the log move. It is always there; SYNC_FLUSH requires it."""

COMMITTED: Final = "committed"
"""The watermark that the commit offset of a Raft group moves."""

_FOREVER: Final = 2**63

Token: TypeAlias = Hashable
"""Identifies a waiting sender. It is returned once, by the first method that has a result for that sender."""


class Log(Protocol):
    """The interface to the commit log."""

    end: int  # where the next record goes

    @property
    def failed(self) -> str | None:
        """Why writes are refused since a failed sync, or None."""


class Late(NamedTuple):
    """A sender that has waited too long: its message is stored, but not as durable as the mode promises."""

    token: Token
    missing: str  # the watermark


class _Waiter:
    """A token, and for how many watermarks it still waits; 0: the token was returned."""

    __slots__ = ("missing", "offset", "since_ms", "token")

    def __init__(self, offset: int, token: Token, since_ms: int) -> None:
        self.offset = offset
        self.token = token
        self.since_ms = since_ms
        self.missing = 0

    def take(self) -> Token:
        token, self.token, self.missing = self.token, None, 0
        return token


class _Watermark:
    """How far something is true of the log, and the tokens that wait for it."""

    __slots__ = ("even_uncommitted", "name", "offset", "required", "timeout_ms", "waiting")

    def __init__(
        self, name: str, offset: int, timeout_ms: int | None, *, required: bool, even_uncommitted: bool = False
    ) -> None:
        self.name = name
        self.offset = offset
        self.timeout_ms = timeout_ms  # how long a sender waits; None: senders do not wait for it
        self.required = required
        self.even_uncommitted = even_uncommitted  # it limits consumers even if `readUnCommitted` is set
        self.waiting: deque[_Waiter] = deque()  # by offset, and so by time

    def release(self, offset: int) -> list[Token]:
        """No token up to `offset` waits for this watermark any longer: returns those that now wait for nothing."""
        answerable: list[Token] = []
        waiting = self.waiting
        while waiting and waiting[0].offset <= offset:
            waiter = waiting.popleft()
            if waiter.missing:
                waiter.missing -= 1
                if not waiter.missing:
                    answerable.append(waiter.take())
        return answerable

    def late(self, now_ms: int) -> list[Late]:
        waiting, late = self.waiting, []
        since_ms = now_ms - (self.timeout_ms or 0)
        while waiting and (not waiting[0].missing or waiting[0].since_ms <= since_ms):
            waiter = waiting.popleft()
            if waiter.missing:
                late.append(Late(waiter.take(), self.name))
        return late

    def cut(self, end: int) -> list[Token]:
        cut: list[Token] = []
        while self.waiting and self.waiting[-1].offset > end:
            waiter = self.waiting.pop()
            if waiter.missing:
                cut.append(waiter.take())
        self.offset = min(self.offset, end)
        return cut

    def due_ms(self) -> int | None:
        return self.waiting[0].since_ms + (self.timeout_ms or 0) if self.waiting else None


class Durability:
    """The watermarks of one log, and the senders that wait for them. See the module's docstring."""

    def __init__(self, log: Log, settings: StoreSettings) -> None:
        is_sync = settings.flush_mode is FlushMode.SYNC
        self._log = log
        self._flush = _Watermark(FLUSHED, 0, settings.sync_flush_timeout_ms, required=is_sync)
        self._marks = {FLUSHED: self._flush}  # all watermarks; the flush is always the last one
        self._awaited: list[_Watermark] = []  # those that senders wait for
        self._limiting: list[_Watermark] = []  # those beyond which consumers see nothing
        self._read_uncommitted = settings.read_uncommitted
        self._cut: list[Token] = []
        self.flushed_ms = 0  # the store time of the last record before `flushed`
        self.syncs_at_once = is_sync  # sync the log as soon as it has new records
        self.must_wait = False  # senders must `wait`; otherwise they are answered after the append
        self.visible_at_once = True  # consumers see records once appended, unless the log has failed
        self._requirements_changed()

    def configure(self, settings: StoreSettings) -> None:
        """Apply the settings that can change while a store is open."""
        self._flush.timeout_ms = settings.sync_flush_timeout_ms
        self._read_uncommitted = settings.read_uncommitted
        self._requirements_changed()

    def _requirements_changed(self) -> None:
        required = [mark for mark in self._marks.values() if mark.required]
        self._awaited = [mark for mark in required if mark.timeout_ms is not None]
        self._limiting = [mark for mark in required if mark.even_uncommitted or not self._read_uncommitted]
        self.must_wait = bool(self._awaited)
        self.visible_at_once = not self._limiting

    # ── How far ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def appended(self) -> int:
        """The end of the log."""
        return self._log.end

    @property
    def flushed(self) -> int:
        """The offset up to which the log survives a crash of this machine."""
        return self._flush.offset

    @property
    def confirmed(self) -> int | None:
        """The offset up to which replicas or the group have the log, if that is required."""
        return min((mark.offset for mark in self._marks.values() if mark is not self._flush), default=None)

    @property
    def durable_to(self) -> int:
        """The offset up to which neither a crash of this machine nor a change of master removes anything."""
        return min(mark.offset for mark in self._marks.values())

    @property
    def answerable_to(self) -> int:
        """Senders whose bytes end here or before may be answered."""
        return min((mark.offset for mark in self._awaited), default=self._log.end)

    @property
    def visible_to(self) -> int:
        """Consumers may see the records that end here or before."""
        offset = self._log.end
        for mark in self._limiting:
            offset = min(offset, mark.offset)
        return offset if self._log.failed is None else min(offset, self._flush.offset)

    # ── Watermarks move ───────────────────────────────────────────────────────────────────────────────────────────

    def resume(self, end: int, stored_ms: int) -> None:
        """After recovery: the log ends here, and all of it is flushed."""
        self._flush.offset, self.flushed_ms = end, stored_ms

    def flushed_to(self, offset: int, stored_ms: int) -> list[Token]:
        """A sync has ended; returns answerable tokens. `stored_ms` is that of the last record before `offset`."""
        if offset > self._flush.offset:
            self._flush.offset, self.flushed_ms = offset, stored_ms
        return self._flush.release(self._flush.offset)

    def reached(self, name: str, offset: int) -> list[Token]:
        """Move a named watermark; returns tokens that may be answered. It never moves back, except by `cut`.

        The caller has checked a peer's offset: it must not be after the end of the log.
        """
        mark = self._marks[name]
        assert mark is not self._flush, "use flushed_to for this watermark"
        assert 0 <= offset <= self._log.end, f"{name} is at {offset}, and the log ends at {self._log.end}"
        mark.offset = max(mark.offset, offset)
        return mark.release(mark.offset)

    def cut(self, end: int, stored_ms: int) -> None:
        """The log was truncated to `end`; its last record is of `stored_ms`. `take_cut` returns the affected tokens.

        Other records will get the same offsets. They must not answer senders that wait for the lost ones.
        """
        self.flushed_ms = min(self.flushed_ms, stored_ms)
        for mark in self._marks.values():
            self._cut += mark.cut(end)

    # ── Requirements ──────────────────────────────────────────────────────────────────────────────────────────────

    def require(self, name: str, offset: int, *, timeout_ms: int | None, even_uncommitted: bool = False) -> None:
        """Add a named watermark: from now on consumers see nothing beyond it, and senders wait for it.

        It begins at `offset`, and `reached` moves it. A sender waits for `timeout_ms`; None: senders do not wait for
        it. Tokens that already wait are not affected. `even_uncommitted`: `readUnCommitted` makes no exception.
        """
        assert name not in self._marks, f"watermark {name} already exists"
        added = _Watermark(name, offset, timeout_ms, required=True, even_uncommitted=even_uncommitted)
        del self._marks[FLUSHED]
        self._marks |= {name: added, FLUSHED: self._flush}
        self._requirements_changed()

    def drop(self, name: str) -> list[Token]:
        """Remove a named watermark; returns tokens that may be answered."""
        assert name != FLUSHED, "use require_flush(False) for this watermark"
        mark = self._marks.pop(name)
        self._requirements_changed()
        return mark.release(self._log.end)

    def require_flush(self, required: bool) -> list[Token]:
        """Set whether answers and reads must wait for a flush of this machine; returns tokens that may be answered.

        Not required in a Raft group, whose commit offset says how many machines have flushed.
        """
        self._flush.required = required
        self._requirements_changed()
        return [] if required else self._flush.release(self._log.end)

    # ── Waiting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, offset: int, token: Token, now_ms: int) -> bool:
        """True if a sender whose bytes end at `offset` may be answered now. If not, the token is returned later.

        Offsets and times must not decrease from call to call.
        """
        waiter: _Waiter | None = None
        for mark in self._awaited:
            if mark.offset < offset:
                if waiter is None:
                    waiter = _Waiter(offset, token, now_ms)
                assert not mark.waiting or offset >= mark.waiting[-1].offset, "offsets must not decrease"
                waiter.missing += 1
                mark.waiting.append(waiter)
        return waiter is None

    def late(self, now_ms: int) -> list[Late]:
        """Tokens that have timed out. A token that waits for a replica and the flush is late for the replica."""
        late: list[Late] = []
        for mark in self._marks.values():
            if mark.waiting:
                late += mark.late(now_ms)
        return late

    def give_up(self) -> list[Late]:
        """All waiting tokens. They count as late now, because their watermarks will not move any more."""
        return self.late(_FOREVER)

    def take_cut(self) -> list[Token]:
        """Tokens whose bytes were truncated from the log: their messages are lost."""
        cut, self._cut = self._cut, []
        return cut

    def due_ms(self) -> int | None:
        """When to call `late` and `take_cut` next; None: no token waits."""
        if self._cut:
            return 0
        times = [due_ms for mark in self._marks.values() if (due_ms := mark.due_ms()) is not None]
        return min(times, default=None)
