"""Syncs of the log: when they begin, how their results are handled, and how the log is rewritten after a failed one.

    dirty ─▶ SyncLog ─▶ the watermark `flushed` moves ─▶ senders are answered
                └ failed ─▶ writes are refused ─▶ RewriteLog ─▶ flushed, and writing resumes

Only one such job runs at a time.
"""

import logging

from kourou.store.backoff import Backoff
from kourou.store.commit_log import CommitLog
from kourou.store.durability import Durability, Token
from kourou.store.flush import FlushClock
from kourou.store.jobs import PrepareSegment, RewriteLog, SupplyPages, SyncLog

log = logging.getLogger(__name__)

SUPPLY_MIN, SUPPLY_MAX = 8 << 20, 64 << 20
"""How far after the end of the log its pages are loaded into memory while it is written to."""


LOOK_MS = 100
"""How often pages and segments are prepared while messages are appended."""


class LogSync:
    """The running job, and the results of the last ones."""

    def __init__(
        self, commit_log: CommitLog, durability: Durability, clock: FlushClock, now_ms: int, *, sealed: bool
    ) -> None:
        """`sealed`: each record ends with a CRC over the whole record."""
        self._log = commit_log
        self._durability = durability
        self._clock = clock
        self._sealed = sealed
        self._syncs = Backoff(log, "the log can't be synced")
        self._rewrites = Backoff(log, "the log can't be written")
        self._begun_ms = now_ms  # when the last sync began
        self._unflushed_since_ms: int | None = None  # when the first byte was seen that is not covered by a sync
        self.job: SyncLog | RewriteLog | None = None

    def due_ms(self) -> int | None:
        """When `next_job` has a job; None if nothing is dirty, or a job is running."""
        if self.job is not None:
            return None
        if self._log.failed is not None:
            return max(self._syncs.retry_ms, self._rewrites.retry_ms)
        dirty = self._log.end - self._durability.flushed
        due_ms = self._clock.log_due_ms(dirty, at_once=self._durability.syncs_at_once)
        return None if due_ms is None else max(due_ms, self._syncs.retry_ms)

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
        """A job that syncs the whole log. Raises OSError."""
        return SyncLog(*self._log.sync_target(self._durability.flushed))

    def rewrite(self) -> RewriteLog:
        """A job that rewrites everything that is not flushed."""
        return self._log.rewrite(self._durability.flushed, sealed=self._sealed)

    def synced(self, job: SyncLog, now_ms: int) -> list[Token]:
        """A sync has ended; returns tokens that may be answered."""
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
        """The log was rewritten, except for `lost` bytes at its end, or that failed; returns answerable tokens."""
        if job.error is not None:
            self._rewrites.failed(job.error, now_ms)
            return []
        self._rewrites.succeeded()
        end = self._log.end
        if lost:
            log.error("%d bytes after offset %d were not written before the disk failed, and are lost", lost, end)
        if self._syncs.failures == 1:  # not for each failure of a disk that fails repeatedly
            log.warning("the log was rewritten and is durable up to %d: writing resumes", end)
        return self._durability.flushed_to(end, self._log.stored_ms)

    def late_ms(self, now_ms: int) -> int:
        """For how long a sync of the log has been overdue; 0 if it is not."""
        if self._unflushed_since_ms is None or self._log.end <= self._durability.flushed:
            return 0
        settings = self._clock.settings
        allowed = 0 if self._durability.syncs_at_once else settings.flush_interval_ms + settings.flush_thorough_ms
        return max(now_ms - self._unflushed_since_ms - allowed, 0)


class SpareSegments:
    """Prepares the next segment of the log before it is needed."""

    def __init__(self, commit_log: CommitLog, *, warm: bool) -> None:
        self._log = commit_log
        self._warm = warm
        self._tries = Backoff(log, "the next segment can't be prepared")
        self._job: PrepareSegment | None = None

    def due_ms(self) -> int | None:
        """When to retry after a failure; None if there was none, or a job is running."""
        return self._tries.retry_ms if self._tries.failures and self._job is None else None

    def next_job(self, now_ms: int) -> PrepareSegment | None:
        """The job that is due now, if there is one."""
        if not self._tries.is_ready(now_ms):
            return None
        job = self._log.prepare_spare(warm=self._warm)
        self._job = job or self._job
        return job

    def finished(self, job: PrepareSegment, now_ms: int) -> None:
        """The job is over."""
        self._log.spare_prepared(job)
        self._job = None
        if job.error is not None:
            self._tries.failed(job.error, now_ms)
        elif job.done:
            self._tries.succeeded()


class PageSupply:
    """Loads pages of the log into memory before records are written to them."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._supplied = 0  # the log's pages are in memory up to this offset
        self._seen_end: int | None = None  # the end of the log at the last call
        self._seen_ms = 0  # when that was
        self._job: SupplyPages | None = None

    def due_ms(self) -> int | None:
        """When to call `next_job`; None if nothing was written since its last call."""
        return self._seen_ms + LOOK_MS if self._log.end != self._seen_end else None

    def next_job(self, now_ms: int) -> SupplyPages | None:
        """A job for at least as many pages as were written since the last call; None while nothing is written.

        Raises OSError if the segment can't be mapped; an append will report that.
        """
        end, segments = self._log.end, self._log.segments
        written = 0 if self._seen_end is None else end - self._seen_end
        self._seen_end, self._seen_ms = end, now_ms
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
