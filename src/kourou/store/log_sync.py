"""Syncs of the log: when they begin, what follows from them, and how the log is written again after one that failed.

    dirty ─▶ SyncLog ─▶ the watermark `flushed` moves ─▶ senders are answered
                └ failed ─▶ nothing is written ─▶ RewriteLog ─▶ flushed, and writing goes on

There is one such job at a time.
"""

import logging

from kourou.store.backoff import Backoff
from kourou.store.commit_log import CommitLog
from kourou.store.durability import Durability, Token
from kourou.store.flush import FlushClock
from kourou.store.jobs import RewriteLog, SupplyPages, SyncLog

log = logging.getLogger(__name__)

SUPPLY_MIN, SUPPLY_MAX = 8 << 20, 64 << 20
"""How far ahead of the log's end its pages are brought into memory, while it is written to."""


class LogSync:
    """The job that is under way, and how it went lately."""

    def __init__(
        self, commit_log: CommitLog, durability: Durability, clock: FlushClock, now_ms: int, *, sealed: bool
    ) -> None:
        """`sealed`: each record ends in a CRC over all of it."""
        self._log = commit_log
        self._durability = durability
        self._clock = clock
        self._sealed = sealed
        self._syncs = Backoff(log, "the log is not synced")
        self._rewrites = Backoff(log, "the log can't be written")
        self._begun_ms = now_ms  # when the last sync began
        self._unflushed_since_ms: int | None = None  # when the first byte was seen that no sync covers
        self.job: SyncLog | RewriteLog | None = None

    def next_job(self, now_ms: int) -> SyncLog | RewriteLog | None:
        """The job that is due now, if there is one."""
        flushed = self._durability.flushed
        dirty = self._log.end - flushed
        if self._unflushed_since_ms is None and dirty > 0:
            self._unflushed_since_ms = now_ms
        if self.job is not None or not self._syncs.is_ready(now_ms):
            return None
        if self._log.failed is not None:
            if self._rewrites.is_ready(now_ms):
                self.job = self.rewrite()
        elif self._clock.log_is_due(dirty, now_ms, at_once=self._durability.syncs_at_once):
            try:
                self.job = self.sync()
                self._begun_ms = now_ms
            except OSError as error:  # its files can't be mapped
                self._syncs.failed(error, now_ms)
        return self.job

    def sync(self) -> SyncLog:
        """A job that syncs all of the log. Raises OSError."""
        return SyncLog(*self._log.sync_target(self._durability.flushed))

    def rewrite(self) -> RewriteLog:
        """A job that writes again all that is not flushed."""
        return self._log.rewrite(self._durability.flushed, sealed=self._sealed)

    def synced(self, job: SyncLog, now_ms: int) -> list[Token]:
        """A sync has ended: tokens that may be answered."""
        if job.error is not None:
            self._log.sync_failed(job.error, self._durability.flushed)
            self._syncs.failed(job.error, now_ms)
            return []
        tokens = self._durability.flushed_to(job.upto, job.stored_ms)
        self._unflushed_since_ms = self._begun_ms if self._log.end > self._durability.flushed else None
        self._syncs.succeeded()
        self._clock.log_was_synced(now_ms)
        return tokens

    def rewritten(self, job: RewriteLog, lost: int, now_ms: int) -> list[Token]:
        """The log was written again, but for `lost` bytes at its end, or could not be: tokens that may be answered."""
        if job.error is not None:
            self._rewrites.failed(job.error, now_ms)
            return []
        self._rewrites.succeeded()
        end = self._log.end
        if lost:
            log.error("%d bytes after offset %d were never written and are lost", lost, end)
        if self._syncs.failures == 1:  # a disk that fails again and again is not worth a line each time
            log.warning("the log was written again and is durable up to %d: writing goes on", end)
        return self._durability.flushed_to(end, self._log.stored_ms)

    def late_ms(self, now_ms: int) -> int:
        """For how long the log should have been synced, and was not; 0 while all is well."""
        if self._unflushed_since_ms is None or self._log.end <= self._durability.flushed:
            return 0
        settings = self._clock.settings
        allowed = 0 if self._durability.syncs_at_once else settings.flush_interval_ms + settings.flush_thorough_ms
        return max(now_ms - self._unflushed_since_ms - allowed, 0)


class PageSupply:
    """Brings pages of the log into memory before records are written to them."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._supplied = 0  # up to here, the log's pages are in memory
        self._seen_end: int | None = None  # of the log, at the last call
        self._job: SupplyPages | None = None

    def next_job(self) -> SupplyPages | None:
        """As many pages as were written since the last call, and more; none while nothing is written.

        Raises OSError: the segment can't be mapped, and an append will say so.
        """
        end, segments = self._log.end, self._log.segments
        written = 0 if self._seen_end is None else end - self._seen_end
        self._seen_end = end
        if written <= 0 or self._job is not None or not segments.holds(end):
            return None
        ahead = min(max(SUPPLY_MIN, 2 * written), SUPPLY_MAX)
        base = end - end % segments.file_size
        begin = max(end, self._supplied)
        stop = min(end + ahead, base + segments.file_size)
        if begin - end > ahead // 2 or begin >= stop:
            return None
        self._job = SupplyPages(segments.file(end), begin - base, stop - begin)
        self._supplied = stop
        return self._job

    def finished(self) -> None:
        """The job is over."""
        self._job = None
