"""Syncs of the queues and the index, and the checkpoint after each: it says up to where they need not be made again.

Queues and index may be synced at any time, but the checkpoint may only refer to records that are flushed.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from kourou.store.backoff import Backoff
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import Disk
from kourou.store.flush import FlushClock
from kourou.store.index import Index
from kourou.store.jobs import SyncQueues
from kourou.store.queues import Queues

log = logging.getLogger(__name__)


class QueueSync:
    """The job that is under way, and how it went lately."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        queues: Queues,
        index: Index | None,
        clock: FlushClock,
        checkpoint: Callable[[], Checkpoint],
    ) -> None:
        """`checkpoint` makes one that is true once all that was dispatched is synced; `path` is its file."""
        self._disk = disk
        self._path = path
        self._queues = queues
        self._index = index
        self._clock = clock
        self._checkpoint = checkpoint
        self._syncs = Backoff(log, "queues and index are not synced")
        self.covered = 0  # the last checkpoint says that queues and index have the records before this offset
        self.doubtful = False  # a sync failed: the checkpoint stays where it is
        self.job: SyncQueues | None = None

    def next_job(self, dispatched: int, now_ms: int) -> SyncQueues | None:
        """The job that is due now, if there is one."""
        if self.job is not None or self.doubtful or not self._syncs.is_ready(now_ms):
            return None
        if self._clock.queues_are_due(dispatched - self.covered, now_ms, crowded=self._queues.crowded):
            try:
                self.job = self.sync()
            except OSError as error:
                self._syncs.failed(error, now_ms)
        return self.job

    def sync(self) -> SyncQueues:
        """A job that syncs all that was written since the last one. Raises OSError."""
        files = self._queues.dirty_files()
        if self._index is not None:
            files += self._index.dirty_files()
        checkpoint = self._checkpoint()
        self.covered = checkpoint.covered
        aside, changed = self._queues.take_removed()
        created = self._queues.take_created()
        return SyncQueues(self._disk, files, created, self._path, checkpoint.encode(), changed, aside)

    def synced(self, job: SyncQueues, now_ms: int) -> None:
        """A sync has ended."""
        if job.synced:
            self._queues.let_go()
            if self._index is not None:
                self._index.release()
        if job.error is None:
            self._syncs.succeeded()
            self._clock.queues_were_synced(now_ms)
        elif job.synced:
            self._syncs.failed(job.error, now_ms)
            self._clock.queues_ms = now_ms
            self.covered = 0
        else:
            # They are rebuilt from the log, if it comes to that: it is enough that the checkpoint never refers to what
            # was lost here, and that `abort` stays.
            log.error("queues or index could not be synced, the next start will rebuild them: %s", job.error)
            self.doubtful = True

    def cut(self, end: int) -> None:
        """Queues and index must be synced again from this offset on."""
        self.covered = min(self.covered, end)
