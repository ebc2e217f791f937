"""Syncs of the queues and the index, and the checkpoint after each, which tells recovery up to where they are complete.

    entries ─▶ SyncQueues ─▶ checkpoint
                   └ failed ─▶ the files are written again (queue_rewrite.py, index_repair.py) ─▶ SyncQueues …

Queues and index may be synced at any time, but the checkpoint may only refer to records that are flushed. While files
are written again the checkpoint is not changed: a crash then only makes recovery longer.
"""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kourou.store.backoff import Backoff
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import Disk
from kourou.store.errors import StoreError
from kourou.store.flush import FlushClock
from kourou.store.index import Index
from kourou.store.index_repair import IndexRepair
from kourou.store.jobs import SyncQueues
from kourou.store.queue_rewrite import QueueRewrite, ReadEntries
from kourou.store.queues import Queues

log = logging.getLogger(__name__)

NOTHING_WAS_TRIED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES)
"""Errors of a folder's sync that occur before the disk is used: a retry is enough."""


class QueueSync:
    """The running job, and the results of the last ones."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        queues: Queues,
        index: Index | None,
        rewrite: QueueRewrite,
        index_repair: IndexRepair,
        clock: FlushClock,
        checkpoint: Callable[[], Checkpoint],
    ) -> None:
        """`checkpoint` returns one that is valid once all dispatched entries are synced; `path` is its file."""
        self._disk = disk
        self._path = path
        self._queues = queues
        self._index = index
        self._rewrite = rewrite
        self._index_repair = index_repair
        self._clock = clock
        self._checkpoint = checkpoint
        self._syncs = Backoff(log, "queues and index can't be synced")
        self.covered = 0  # according to the last job's checkpoint, queues and index have the records before this offset
        self._kept = 0  # the same of the last checkpoint that was written
        self._names_doubtful = False  # a folder's sync failed: new queues may be lost in a crash
        self.job: SyncQueues | None = None

    def resume(self, end: int) -> None:
        """Queues, index and checkpoint are durable up to the end of the log."""
        self.covered = self._kept = end

    @property
    def doubtful(self) -> bool:
        """Must the checkpoint stay unchanged, because a sync failed?"""
        return self._names_doubtful or not self._rewrite.is_idle or self._index_repair.has_unsynced

    def due_ms(self, dispatched: int) -> int | None:
        """When `next_job` has a job; None if nothing is dirty, or a job is running."""
        if self.job is not None:
            return None
        if self.doubtful:
            return self._syncs.retry_ms if self._rewrite.has_job else None
        due_ms = self._clock.queues_due_ms(dispatched - self.covered, crowded=self._queues.crowded)
        return None if due_ms is None else max(due_ms, self._syncs.retry_ms)

    def next_job(self, log_start: int, dispatched: int, now_ms: int) -> SyncQueues | ReadEntries | None:
        """The job that is due now, if there is one."""
        if self.job is not None or not self._syncs.is_ready(now_ms):
            return None
        if self.doubtful:
            return self._rewrite.next_job(log_start)
        if self._clock.queues_are_due(dispatched - self.covered, now_ms, crowded=self._queues.crowded):
            try:
                self.job = self.sync()
            except OSError as error:
                self._syncs.failed(error, now_ms)
        return self.job

    def sync(self) -> SyncQueues:
        """A job that syncs all new entries since the last one. Raises OSError."""
        files = self._queues.dirty_files()
        if self._index is not None:
            files += self._index.dirty_files()
        checkpoint = self._checkpoint()
        self.covered = checkpoint.covered
        aside, changed = self._queues.take_removed()
        created = self._queues.take_created()
        return SyncQueues(self._disk, files, created, self._path, checkpoint.encode(), changed, aside)

    def synced(self, job: SyncQueues, dispatched: int, now_ms: int) -> None:
        """A sync has ended."""
        if job.synced:
            self._queues.let_go()
            if self._index is not None:
                self._index.release()
        if job.error is None:
            self._syncs.succeeded()
            self._clock.queues_were_synced(now_ms)
            self._kept = self.covered
            return
        self._syncs.failed(job.error, now_ms)
        self._clock.queues_ms = now_ms
        self.covered = 0
        if not job.synced:
            self._queues.put_back(job.created, job.aside)
            self._not_synced(job, dispatched)

    def _not_synced(self, job: SyncQueues, dispatched: int) -> None:
        assert job.error is not None
        paths = {file.path for file in job.unsynced}
        if paths:
            index = {path for path in paths if self._index is not None and path in self._index.paths()}
            self._index_repair.not_synced(index)
            if paths - index:
                self._rewrite.start(paths - index, self._kept, dispatched)
        elif job.error.errno not in NOTHING_WAS_TRIED:
            log.error("the names of new queues could not be synced; the next start will rebuild them: %s", job.error)
            self._names_doubtful = True

    def read(self, job: ReadEntries, now_ms: int) -> None:
        """The entries to be written again were read."""
        try:
            self._rewrite.finished(job)
        except (OSError, StoreError) as error:
            self._syncs.failed(error, now_ms)

    def cut(self, end: int) -> None:
        """Queues and index must be synced again from here on: the log was cut, or a topic was removed."""
        self.covered = min(self.covered, end)

    def log_was_cut(self, end: int) -> None:
        """The log ends here."""
        self.cut(end)
        self._kept = min(self._kept, end)
        self._rewrite.cut(end)
