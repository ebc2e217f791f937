"""The timer files of a store, and the job that makes them durable.

    put ─▶ a unit and its slot, in memory
    freeze ─▶ the next checkpoint … the commit log is durable up to `log_end` … ─▶ SyncTimers ─▶ finished
              └ the timer log is synced ─▶ slots are written and synced ─▶ timercheck is replaced

A unit must not survive a crash in which its message is lost, and a message must not count as delivered before its copy
is durable. So the job begins when the commit log is durable up to its end at the time of the freeze. A crash at any
point leaves the old checkpoint or the new one. Slots of the wheel that are newer than the checkpoint refer to durable
units.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kourou.store.backoff import Backoff
from kourou.store.disk import Disk, File
from kourou.store.errors import BadStoreError, StoreError
from kourou.store.jobs import Slice
from kourou.store.paths import Paths
from kourou.store.settings import StoreSettings
from kourou.store.timers.layout import EMPTY, NONE, Slot, TimerCheckpoint, Unit
from kourou.store.timers.unit_log import UnitLog
from kourou.store.timers.wheel import Wheel

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SyncTimers(Slice):
    """Make the timer files durable up to a checkpoint."""

    disk: Disk
    files: list[File]
    created: list[Path]
    wheel: Wheel
    path: Path
    checkpoint: TimerCheckpoint
    expired: list[Path]
    log_synced: bool = field(default=False, init=False)

    def _work(self) -> None:
        for file in self.files:
            file.sync()
        for path in self.created:
            self.disk.sync_created(path)
        self.log_synced = True
        try:
            self.wheel.apply()
        except StoreError as error:
            raise OSError(*(error.__cause__.args if isinstance(error.__cause__, OSError) else (str(error),))) from error
        self.disk.replace(self.path, self.checkpoint.encode())
        for path in self.expired:
            with suppress(OSError):  # the next start finds it again
                self.disk.remove(path)


class TimerFiles:
    """Wheel, log and checkpoint of one store."""

    def __init__(self, disk: Disk, paths: Paths, settings: StoreSettings, log_start: Callable[[], int]) -> None:
        """`log_start` returns the beginning of the commit log."""
        self._disk = disk
        self._log_start = log_start
        self._path = paths.config / "timercheck"
        self.wheel = Wheel(disk, paths.root / "timerwheel", settings.timer_slots, settings.timer_precision_ms)
        self.log = UnitLog(disk, paths.root / "timerlog", settings.timer_log_file_size)
        self.checkpoint = TimerCheckpoint()  # the last durable one
        self._frozen: tuple[TimerCheckpoint, int] | None = None  # the next one, and the end of the commit log for it
        self._syncs = Backoff(log, "the timer files can't be synced")
        self.log_failed = False  # units since the checkpoint may be lost and have to be written again
        self.job: SyncTimers | None = None

    @property
    def precision_ms(self) -> int:
        return self.wheel.precision_ms

    def open(self) -> str | None:
        """Open the files. Returns the missing or damaged file, or None. Raises OSError."""
        content = self._disk.read(self._path)
        found = TimerCheckpoint.decode(content) if content is not None else None
        if found is None:
            return None if content is None and not self._disk.files(self.log_folder) else "timercheck"
        self.checkpoint = found
        if found.precision_ms not in (0, self.precision_ms):
            return f"timerwheel: it has slots of {found.precision_ms} ms (timerPrecisionMs), which"
        try:
            if not self.log.open(found.flush_end):
                return "timerlog"
        except BadStoreError as error:
            return str(error)
        return None if self.wheel.open() or not found.flush_end else "timerwheel"

    @property
    def log_folder(self) -> Path:
        return self.wheel.path.with_name("timerlog")

    def clear(self) -> None:
        """Remove all files. Raises OSError."""
        with suppress(FileNotFoundError):
            self._disk.remove(self._path)
            self._disk.sync_folder(self._path.parent)
        self.log.clear()
        self.wheel.clear()
        self.checkpoint = TimerCheckpoint()
        self._frozen = None
        self.log_failed = False

    # ── Units ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, slot_ms: int, unit: Unit, *, change: int) -> int:
        """Add a unit to a slot. Returns its position. Raises DiskFullError, DiskFailedError.

        `change` is added to the count of the slot; `unit.previous` is set.
        """
        slot = self.wheel.slot(slot_ms)
        position = self.log.append(unit, slot.last)
        self._put_slot(slot_ms, slot, position, change)
        return position

    def _put_slot(self, slot_ms: int, slot: Slot, position: int, change: int) -> None:
        first = position if slot.first == NONE else slot.first
        self.wheel.put(slot_ms, Slot(first, position, slot.messages + change))

    def restore(self, position: int, unit: Unit, *, change: int) -> None:
        """Add a unit of the log to the wheel, which may already have it."""
        slot = self.wheel.slot(unit.slot_ms)
        if slot.last < position:
            self._put_slot(unit.slot_ms, slot, position, change)

    def relink(self, slot_ms: int, positions: list[int]) -> None:
        """Let a slot have only these units. Raises OSError, StoreError."""
        units = [unit for position in positions if (unit := self.log.unit(position)) is not None]
        self.wheel.put(slot_ms, EMPTY)
        for unit in units:
            self.put(slot_ms, unit, change=1)

    # ── Checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def can_freeze(self) -> bool:
        return self._frozen is None

    def freeze(self, checkpoint: TimerCheckpoint, log_end: int) -> None:
        """The next checkpoint, which may be written when the commit log is durable up to `log_end`."""
        self.wheel.freeze()
        self._frozen = checkpoint._replace(flush_end=self.log.end, precision_ms=self.precision_ms), log_end

    def due_ms(self, durable_to: int) -> int | None:
        """When `next_job` has a job; None if it must wait for the commit log or a running job."""
        if self.job is not None or self._frozen is None or self.log_failed or durable_to < self._frozen[1]:
            return None
        return self._syncs.retry_ms

    def next_job(self, durable_to: int, now_ms: int) -> SyncTimers | None:
        """The job that is due now, if there is one."""
        if self.job is not None or self._frozen is None or self.log_failed or not self._syncs.is_ready(now_ms):
            return None
        checkpoint, log_end = self._frozen
        if durable_to < log_end:
            return None
        try:
            files = self.log.dirty_files(self.checkpoint.flush_end)
            expired = self.log.take_expired(self._log_start())
        except OSError as error:
            self._syncs.failed(error, now_ms)
            return None
        created = self.log.take_created()
        self.job = SyncTimers(self._disk, files, created, self.wheel, self._path, checkpoint, expired)
        return self.job

    def finished(self, job: SyncTimers, now_ms: int) -> None:
        """A job has ended."""
        if job is not self.job:
            return
        self.job = None
        if job.error is None:
            self._syncs.succeeded()
            self.checkpoint = job.checkpoint
            self._frozen = None
            self.wheel.thaw()
            return
        self._syncs.failed(job.error, now_ms)
        self.log.put_back(job.created)
        self.log_failed = not job.log_synced

    def go_back(self) -> None:
        """Undo everything after the checkpoint. No job may be running. Raises OSError."""
        assert self.job is None
        self.wheel.drop_changes()
        self._frozen = None
        self.log.cut(self.checkpoint.flush_end)
        self.log_failed = False

    def flush(self, durable_to: int, now_ms: int) -> None:
        """Write the frozen state in this thread. Errors are logged."""
        job = self.job or self.next_job(durable_to, now_ms)
        while job is not None:
            job.run()
            failed = job.error is not None
            self.finished(job, now_ms)
            job = None if failed else self.next_job(durable_to, now_ms)

    def forget(self, now_ms: int) -> None:
        """Remove the files, because the broker has become a slave and its log may change. Raises OSError."""
        if self.job is not None:
            self.job.run()  # or wait until a worker has run it
            self.finished(self.job, now_ms)
        self.clear()

    def close(self) -> None:
        if self.job is not None:
            self.job.call_off()
        self.wheel.close()
        self.log.close()
