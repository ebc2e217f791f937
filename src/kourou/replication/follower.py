"""A slave's end: it connects to its master, appends the records that the master sends, and reports its progress.

    master known ─▶ Connect ─▶ report ─▶ batches ─▶ whole records are appended ─▶ report
                       ▲                    └ the log does not continue here ─┐
                       └────────── a pause of `retry_ms` ◀────────────────────┘

After a lost connection the pause is short at first.

Each batch must begin where the last one ended. An empty log accepts a batch at the start of any segment as its
beginning. Apache's masters send only their last segment to a slave that reports 0. So a slave that knows where the
master's log begins (`first_offset`) reports that offset; if it is 0, it reports 1 and puts the missing byte before the
first batch: that byte is the highest of a record's size, and so is 0.

If a master sends nothing for `silence_ms`, the slave closes the connection and connects again at once.

A report is sent after each read that completed a record, after each flush if only flushed bytes are reported, and after
`report_ms` without a report.

Java: DefaultHAClient.
"""

import logging
from dataclasses import dataclass
from typing import Final

from kourou.replication.frames import Batches, encode_report
from kourou.replication.links import Connect, HangUp, Link, LinkEffect, TargetLog, Transfer
from kourou.replication.records import Assembler, BadCopyError

log = logging.getLogger(__name__)

READ_RATE_MS: Final = 1_000
"""The interval over which `rate` counts bytes."""

FIRST_RETRY_MS: Final = 100
"""The pause after a lost connection. It doubles with each attempt that fails, up to `retry_ms`."""


@dataclass(slots=True)
class FollowerSettings:
    """The comments give the names of the properties."""

    report_ms: int = 5_000  # haSendHeartbeatInterval
    silence_ms: int = 20_000  # haHousekeepingInterval
    retry_ms: int = 5_000  # the longest pause before it connects again; Apache's slaves always wait this long
    connect_ms: int = 5_000  # the timeout of an attempt to connect


class Follower:
    """One slave. See the module's text."""

    def __init__(
        self,
        log: TargetLog,
        settings: FollowerSettings,
        write_errors: tuple[type[Exception], ...] = (),
        *,
        compares: bool = False,
    ) -> None:
        """`write_errors` are the errors of a log that can't be written because its disk is full or has failed.

        `compares`: before each connection the owner compares this log with the master's (`must_compare`, `compared`).
        """
        self._write_errors = write_errors
        self._compares = compares
        self._is_compared = not compares
        self._log = log
        self._settings = settings
        self._effects: list[LinkEffect] = []
        self.master: str | None = None  # address of its HA port
        self.first_offset: int | None = None  # where the master's log begins, if it has records; None: not known
        self.link: Link | None = None
        self._connecting_ms: int | None = None  # since when
        self._retry_ms = 0  # the earliest time of the next attempt to connect
        self._losses = 0  # connections that were lost or failed since data last arrived from the master
        self._batches = Batches()
        self._assembler = Assembler(0, log.segment_size, log.append)
        self._reported = -1
        self._problem = ""  # as last logged
        self._is_caught_up = False  # on this connection, as last logged
        self.heard_ms = self.said_ms = 0
        self.heard_to = 0  # the master's log ends here or later
        self.received_bytes = 0
        self.rate = 0  # bytes received in the last whole second
        self._second_ms = self._second_bytes = 0

    def take_effects(self) -> list[LinkEffect]:
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_following(self) -> bool:
        """Is there a connection to a master that answers?"""
        return self.link is not None

    @property
    def behind(self) -> int:
        """How many bytes this slave is known to be behind; the master does not send the end of its log."""
        return max(self.heard_to - self._log.end, 0)

    # ── Connections ───────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, address: str | None, now_ms: int) -> None:
        """Follow the master with this address of its HA port; None: follow no master."""
        if address == self.master:
            return
        log.info("the master to follow has changed master=%s", address)
        self.master = address
        self._retry_ms = now_ms
        self._connecting_ms = None
        self._is_compared = not self._compares
        self._problem = ""
        self._drop("the master to follow has changed")

    def must_compare(self, now_ms: int) -> bool:
        """Is it time to connect, and is it unknown whether this log is the beginning of the master's?"""
        return not self._is_compared and self._may_connect(now_ms)

    def compared(self, problem: str | None, now_ms: int) -> None:
        """This log is the beginning of the master's; otherwise `problem` says why it is not, or why that is unknown."""
        if problem is None:
            self._is_compared = True
        else:
            self._failed(problem, now_ms, is_loss=True)

    def connected(self, link: Link, now_ms: int) -> None:
        """The requested connection was established."""
        if self._connecting_ms is None or link.address != self.master:
            self._effects.append(HangUp(link, "this connection is no longer needed"))
            return
        self._connecting_ms = None
        self.link = link
        self.heard_ms = now_ms
        self._greet(link, now_ms)

    def _greet(self, link: Link, now_ms: int) -> None:
        """Send the first bytes of a new connection."""
        self._batches = Batches()
        try:
            start = self._begin()
        except self._write_errors as error:
            self._stop(f"the log can't be written: {error}", now_ms)
            return
        self._is_caught_up = False
        log.info("following master=%s from %d", link.address, start)
        self._report(start, now_ms)

    def _begin(self) -> int:
        """The offset of the first report; the assembler waits for the bytes after it."""
        first, log = self.first_offset, self._log
        if not log.is_empty or first is None or first % log.segment_size:
            self._assembler = Assembler(log.end, log.segment_size, log.append)
            return 0 if log.is_empty else log.end
        if first != log.end:
            log.begin_at(first)
        self._assembler = Assembler(first, log.segment_size, log.append)
        if first:
            return first
        self._assembler.feed(memoryview(b"\0"))
        return 1

    def not_connected(self, address: str, reason: str, now_ms: int) -> None:
        """The attempt to connect has failed."""
        if address == self.master and self._connecting_ms is not None:
            self._failed(reason, now_ms, is_loss=True)

    def closed(self, link: Link, now_ms: int) -> None:
        """The connection is lost."""
        if link is self.link:
            self.link = None
            self._failed("the connection was closed", now_ms, is_loss=True)

    def _failed(self, reason: str, now_ms: int, *, is_loss: bool = False) -> None:
        """Schedule the next attempt, soon after a loss: a restarted master should not have to wait for its slave."""
        self._connecting_ms = None
        self._is_compared = not self._compares
        pause_ms = FIRST_RETRY_MS << min(self._losses, 10) if is_loss else self._settings.retry_ms
        self._losses += 1
        self._retry_ms = now_ms + min(pause_ms, self._settings.retry_ms)
        if reason != self._problem:
            self._problem = reason
            log.warning("replication is interrupted and will be retried master=%s: %s", self.master, reason)

    def _drop(self, reason: str) -> None:
        if self.link is not None:
            self._effects.append(HangUp(self.link, reason))
            self.link = None

    # ── Receiving ─────────────────────────────────────────────────────────────────────────────────────────────────

    def received(self, link: Link, data: bytes, now_ms: int) -> None:
        """Bytes arrived from the master."""
        if link is not self.link:
            return
        self.heard_ms = now_ms
        self._count(len(data), now_ms)
        try:
            self._read(data, now_ms)
        except (BadCopyError, ValueError) as error:
            self._stop(str(error), now_ms)
        except self._write_errors as error:
            self._stop(f"the log can't be written: {error}", now_ms)
        else:
            self._problem = ""
            self._losses = 0
            if not self._is_caught_up and self.heard_to and self.behind == 0:
                self._is_caught_up = True
                log.info("caught up with master=%s at %d", link.address, self._log.end)
        self.report(now_ms)

    def _read(self, data: bytes, _now_ms: int) -> None:
        """Process the bytes of a read. Raises BadCopyError, ValueError, and the errors of the log."""
        for offset, piece in self._batches.feed(data):
            self._take(offset, piece)

    def _take(self, offset: int, piece: memoryview) -> None:
        assembler = self._assembler
        if offset != assembler.next_offset:
            if not self._log.is_empty or assembler.pending:
                raise BadCopyError(
                    f"the master sends the log from {offset}, but this log continues at {assembler.next_offset}"
                )
            if offset < 0 or offset % self._log.segment_size:
                raise BadCopyError(
                    f"the master's log begins at {offset}, where no segment of {self._log.segment_size} bytes begins: "
                    "mappedFileSizeCommitLog must be the same on master and slave"
                )
            if not len(piece):
                return  # a header: its bytes decide
            self._log.begin_at(offset)
            assembler = self._assembler = Assembler(offset, self._log.segment_size, self._log.append)
        if offset + len(piece) > self.heard_to:
            self.heard_to = offset + len(piece)
        if len(piece):
            assembler.feed(piece)

    def _stop(self, reason: str, now_ms: int) -> None:
        self._drop(reason)
        self._failed(reason, now_ms)

    def _count(self, size: int, now_ms: int) -> None:
        self.received_bytes += size
        if now_ms - self._second_ms >= READ_RATE_MS:
            self.rate, self._second_bytes, self._second_ms = self._second_bytes, 0, now_ms
        self._second_bytes += size

    # ── Reporting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, now_ms: int) -> None:
        """Report the end of the log to the master if it has changed."""
        if self.link is not None:
            offset = self._log.reported
            if offset > self._reported and not self._log.is_empty:
                self._report(offset, now_ms)

    @property
    def _reportable(self) -> int:
        return 0 if self._log.is_empty else self._log.reported

    def _report(self, offset: int, now_ms: int) -> None:
        assert self.link is not None
        self._reported = offset
        self.said_ms = now_ms
        self._effects.append(Transfer(self.link, self._encode_report(offset)))

    def _encode_report(self, offset: int) -> bytes:
        return encode_report(offset)

    def step(self, now_ms: int) -> None:
        """Do the work that is due: connect, report, drop the connection to a silent master."""
        settings = self._settings
        if self.link is not None:
            if now_ms - self.heard_ms > settings.silence_ms:
                self._drop("silent")
                reason = f"the master sent nothing for {settings.silence_ms} ms (haHousekeepingInterval)"
                self._failed(reason, now_ms)
                self._retry_ms = now_ms
            elif now_ms - self.said_ms >= settings.report_ms:
                self._report(max(self._reported, self._reportable), now_ms)
            else:
                self.report(now_ms)
        elif self._connecting_ms is not None and now_ms - self._connecting_ms > settings.connect_ms:
            self._failed(f"no connection within {settings.connect_ms} ms", now_ms)
        self._connect(now_ms)

    def _connect(self, now_ms: int) -> None:
        """Connect, once the log is durable up to the offset of the first report."""
        if self._is_compared and self._may_connect(now_ms):
            assert self.master is not None
            self._connecting_ms = now_ms
            self._effects.append(Connect(self.master))

    def _may_connect(self, now_ms: int) -> bool:
        if self.link is not None or self._connecting_ms is not None or self.master is None or now_ms < self._retry_ms:
            return False
        return self._log.reported >= self._log.end

    def due_ms(self) -> int | None:
        """When `step` is due, if nothing else happens."""
        if self.link is not None:
            return min(self.heard_ms + self._settings.silence_ms + 1, self.said_ms + self._settings.report_ms)
        if self._connecting_ms is not None:
            return self._connecting_ms + self._settings.connect_ms + 1
        is_waiting = self.master is not None and self._log.reported >= self._log.end
        return self._retry_ms if is_waiting else None
