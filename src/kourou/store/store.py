"""The store: opens, recovers and closes its parts in order, and is the interface for all packages above.

    append ─▶ commit log (memory) ─▶ dispatch ─▶ queues, index ─▶ readers
                    └─▶ jobs: SyncLog, then SyncQueues with the checkpoint, PrepareSegment … ─▶ finished ─▶ senders

One thread owns a store. It appends and dispatches at once; blocking work is handed out as jobs (`jobs`) and taken back
(`finished`). `durability` decides how far the log may be dispatched, so that no consumer sees a message that a crash or
another master could remove, and which senders may be answered.

Java: DefaultMessageStore.
"""

import logging
import os
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec

from kourou.protocol.record import RECORD_CRC_SIZE, Found
from kourou.store.appending import Appended, Appender
from kourou.store.checkpoint import Checkpoint
from kourou.store.commit_log import CommitLog, NewMessage
from kourou.store.disk import Disk, Lock, RealDisk
from kourou.store.dispatch import Dispatcher
from kourou.store.durability import Durability, Token
from kourou.store.errors import DiskFailedError, DiskFullError, StoreError, cannot_open
from kourou.store.flush import FlushClock, earliest
from kourou.store.history import History
from kourou.store.index import Index
from kourou.store.index_repair import IndexRepair
from kourou.store.jobs import Job, PrepareSegment, RemoveFiles, RewriteLog, Slice, SupplyPages, SyncLog, SyncQueues
from kourou.store.log_sync import LogSync, PageSupply, SpareSegments
from kourou.store.metadata import Kind, MetadataFile, Sealer
from kourou.store.paths import Paths, with_present_sizes
from kourou.store.queue_repair import QueueRepairs, SearchLog
from kourou.store.queue_rewrite import QueueRewrite, ReadEntries
from kourou.store.queue_sync import QueueSync
from kourou.store.queues import Queues
from kourou.store.reading import Reader
from kourou.store.recovery import CleanStop, Recovery, RecoveryReport, read_clean_stop
from kourou.store.removed import REMOVED_TOPICS, RemovedTopics
from kourou.store.retention import Cleaner, expired_queues
from kourou.store.settings import StoreSettings, delay_table
from kourou.store.timers.files import SyncTimers, TimerFiles
from kourou.store.truncation import LastRecord, cut_log, last_record_before
from kourou.store.wall_clock import WallClock
from kourou.turns import at_once

log = logging.getLogger(__name__)

T = TypeVar("T")


class Store:
    """An open store. Made by `Store.open`, ended by `close`."""

    def __init__(
        self,
        paths: Paths,
        settings: StoreSettings,
        disk: Disk,
        lock: Lock,
        store_host: bytes,
        now_ms: int,
        file_time: Callable[[int], str],
    ) -> None:
        self.paths = paths
        self._settings = settings
        self.disk = disk
        self._lock = lock
        self.clock = WallClock()
        self.log = CommitLog(disk, paths.commit_log, settings.commit_log_file_size, settings.max_body_size, store_host)
        self.durability = Durability(self.log, settings)
        self.queues = Queues(disk, paths.queues, settings)
        self.index = (
            Index(disk, paths.index, settings.index_slots, settings.index_entries, file_time)
            if settings.index_enabled
            else None
        )
        self.reader = Reader(self.log, self.queues, self.index, lambda: self.dispatched)
        self.reader.limits.adopt(settings)
        self._cleaner = Cleaner(
            settings,
            disk,
            paths.root,
            self.log,
            self.queues,
            self.index,
            now_ms,
            lambda time_ms: int(file_time(time_ms)[8:10]),  # yyyyMMddHH…
            self.clock,
        )
        self.removed = RemovedTopics()
        self.removed_file = self.metadata(REMOVED_TOPICS)
        self._dispatcher = Dispatcher(
            self.queues.by_bytes,
            self.index,
            delay_table(settings.delay_levels),
            sealed=settings.record_crc,
            removed=self.removed,
            extend=self.queues.extensions.extend if settings.queue_ext_enabled else None,
        )
        log_files = paths.commit_log, settings.commit_log_file_size
        self._repairs = QueueRepairs(disk, self.queues, self._dispatcher, *log_files)
        self.reader.on_damage = self.queues.on_damage = self._repairs.found
        self.index_repair = IndexRepair(disk, self.index, self._dispatcher, *log_files)
        self._appender = Appender(self.log, self.queues.ensure, record_crc=settings.record_crc)
        self.dispatched = 0  # readers see the log before this offset
        self.master_flushed = 0  # on a slave: the flushed offset of its master; kept in the checkpoint
        self._last_at_start = 0  # the offset of the last record when the store was opened
        self._clock = FlushClock(settings, now_ms, now_ms, now_ms, now_ms)
        self._log_sync = LogSync(self.log, self.durability, self._clock, now_ms, sealed=settings.record_crc)
        self._queue_rewrite = QueueRewrite(disk, self.queues, self._dispatcher, self.removed, *log_files)
        repairs = self._queue_rewrite, self.index_repair
        self._queue_sync = QueueSync(
            disk, paths.checkpoint, self.queues, self.index, *repairs, self._clock, self._checkpoint
        )
        self.timers = TimerFiles(disk, paths, settings, lambda: self.log.start)
        self._pages = PageSupply(self.log)
        self._spares = SpareSegments(self.log, warm=settings.warm_segments)
        self._removal: RemoveFiles | None = None  # under way
        self.report, self.history = RecoveryReport(), History(disk, paths.root, self.log)

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def open(
        cls,
        root: Path,
        settings: StoreSettings,
        *,
        store_host: bytes,
        now_ms: int,
        file_time: Callable[[int], str],
        disk: Disk | None = None,
        commit_log: Path | None = None,
    ) -> "Store":
        """Open a store, and recover it if necessary.

        Raises BadSettingError, StoreInUseError, BadStoreError, and DiskFullError or DiskFailedError if files can't be
        created or read.
        """
        paths = Paths(root.absolute(), commit_log)
        disk = disk or RealDisk(paths.aside)
        try:
            lock = disk.lock(paths.lock)
            try:
                settings = with_present_sizes(settings, disk, paths)
                store = cls(paths, settings, disk, lock, store_host, now_ms, file_time)
            except BaseException:
                lock.release()
                raise
            try:
                store._recover(now_ms)
            except BaseException:
                store.abandon()
                raise
        except OSError as error:
            raise cannot_open(paths.root, error) from error
        return store

    def _recover(self, now_ms: int) -> None:
        disk, paths = self.disk, self.paths
        disk.remove_folder(paths.aside)
        clean = disk.read(paths.abort) is None
        checkpoint = Checkpoint.read(disk, paths.checkpoint)
        parts = disk, self.log, self.queues, self.index, self._dispatcher, checkpoint, paths.checkpoint
        recovery = Recovery(*parts, read_clean_stop(disk, paths.clean_stop), clean, self._settings.check_crc)
        recovery.load()
        self.history.load()
        self.removed.load(self.removed_file.load())
        self.removed.log_was_cut(self.log.segments.end)
        disk.replace(paths.abort, str(os.getpid()).encode())  # from now on, any end but `close` counts as a crash
        if not clean:
            self.queues.drop_removed(self.removed)
            self.queues.sync_names()
        self.report = recovery.run()
        self.durability.resume(self.log.end, self.log.stored_ms)
        self.removed.log_was_cut(self.log.end)
        self.removed.forget_before(self.log.start)
        self.keep_removed()
        self.clock.start_from(self.log.stored_ms)
        self.master_flushed = checkpoint.master_flushed
        self._last_at_start = max(self._dispatcher.last_record, 0)
        self.dispatched = self.reader.written_from = self.log.end
        self._queue_sync.resume(self.log.end)
        self._dispatcher.take_arrived()  # no consumer has seen these queues in another state
        self.queues.lazy = True
        self.index_repair.start()
        log.info("%s", self.report)
        for damage in self.report.damage:
            log.error("damaged: %s", damage)
        disk.remove(paths.clean_stop)
        disk.sync_folder(paths.root)
        if not self.report.hinted:
            self.flush(now_ms)

    def close(self, now_ms: int) -> None:
        """Make everything durable, remove `abort`, and close. If that fails, the store is closed nevertheless.

        Raises DiskFailedError, DiskFullError, OSError.
        """
        try:
            self._settle(now_ms)
            self.keep_removed()
            if self.log.failed is not None:
                rewrite = self._log_sync.rewrite()
                rewrite.run()
                self._log_rewritten(rewrite, now_ms)
            self.flush(now_ms)
            if not self._queue_sync.doubtful and not self.index_repair.behind:
                self._write_clean_stop()
                self.disk.remove(self.paths.abort)
                self.disk.sync_folder(self.paths.root)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files without making anything durable, like a crash. Jobs do nothing after it."""
        for job in self._under_way():
            job.call_off()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.timers.close()
        self.log.close()
        self._lock.release()

    def _write_clean_stop(self) -> None:
        checkpoint = Checkpoint.read(self.disk, self.paths.checkpoint)
        stop = CleanStop(
            checkpoint=checkpoint.fingerprint,
            log_end=self.log.end,
            last_record=self._dispatcher.last_record,
            queues=self.queues.count_on_disk(),
            index=[] if self.index is None else self.index.names,
            ends=self.queues.ends(),
        )
        self.disk.replace(self.paths.clean_stop, msgspec.json.encode(stop))

    def metadata(self, kind: Kind[T], sealer: Sealer | None = None) -> MetadataFile[T]:
        """One of the tables in config/."""
        return MetadataFile(self.disk, self.paths.config, kind, sealer)

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self, messages: Sequence[NewMessage], now_ms: int, *, together: bool = False, size: int | None = None
    ) -> list[Appended]:
        """Append messages, in order; `together`: into one segment. They are written, but not yet durable or visible.

        `size` is the sum of `size_of` of all messages, if it is already known.

        Raises IllegalMessageError for the first one that exceeds a limit; DiskFullError, DiskFailedError. With
        `together` nothing is appended then; otherwise the messages before it are.
        """
        if self._cleaner.refusal is not None:
            raise DiskFullError(self._cleaner.refusal)
        self.log.now_ms = now_ms
        if together:
            self.log.make_room(sum(map(self.size_of, messages)) if size is None else size)
        return self._appender.append(messages, max(self.clock.stamp(now_ms), self.log.stored_ms))

    def dispatch_from(self, offset: int) -> None:
        """Let the log, which is empty, begin at `offset`: it will be a copy of another log."""
        self.dispatched = self._queue_sync.covered = self.reader.written_from = offset

    def size_of(self, message: NewMessage) -> int:
        """The most bytes that a message takes. Raises IllegalMessageError if it exceeds a limit."""
        topic = message.topic.encode()
        self.log.check(message, topic)
        return self.log.size_of(message, topic, message.properties) + RECORD_CRC_SIZE + 1

    def dispatch(self, most: int = 2**63) -> None:
        """Make records visible to consumers, as far as `durability` allows: whole records of up to `most` bytes.

        Raises DiskFullError if queues have no room; the next call continues from there.
        """
        commit_log, limit = self.log, min(self.durability.visible_to, self.dispatched + most)
        file_size = commit_log.segments.file_size
        while self.dispatched < limit:
            base = self.dispatched - self.dispatched % file_size
            stop = min(limit - base, file_size)
            buffer = commit_log.segments.file(self.dispatched).buffer
            scanner = self._dispatcher.run(buffer, self.dispatched - base, stop, base, crc=False)
            found = scanner.step()  # over the filler, if there is one
            self.dispatched = base + scanner.at
            if scanner.at < stop:
                if found == Found.CUT and (limit < commit_log.end or limit == commit_log.copied_to):
                    return  # watermarks, and copies of a master's log, may end anywhere in a record
                raise StoreError(
                    f"{commit_log.segments.path(base)} at {scanner.at}: {scanner.reason}; the log ends at {limit}"
                )

    @property
    def last_record(self) -> int:
        """Where the last dispatched record begins; -1: there is none."""
        return self._dispatcher.last_record

    @property
    def has_arrived(self) -> bool:
        """Whether `take_arrived` has something to return."""
        return self._dispatcher.has_arrived

    def take_arrived(self) -> list[tuple[str, int]]:
        """Topics and ids of the queues with new entries since the last call, each once: pulls that wait for messages of
        these queues can be served now.

        Not only `dispatch` makes messages visible, but also `flush`, `truncate` and removals of topics.
        """
        return self._dispatcher.take_arrived()

    def take_repaired(self) -> list[tuple[str, int]]:
        """Topics and ids of the queues whose damaged entries were repaired since the last call, each once."""
        return self._repairs.take_repaired()

    # ── Durability ────────────────────────────────────────────────────────────────────────────────────────────────

    def flush_late_ms(self, now_ms: int) -> int:
        """For how long the log should have been synced, and was not: 0 while all is well."""
        return self._log_sync.late_ms(now_ms)

    def jobs(self, now_ms: int) -> list[Job]:
        """Jobs that are due now, for a worker; each is to be given back by `finished`."""
        commit_log, flushed, dispatched = self.log, self.durability.flushed, self.dispatched
        self.queues.close_forgotten()
        due: list[Job | None] = []
        removal = self._cleaner.step(now_ms, min(dispatched, flushed))
        if removal is not None and removal is not self._removal:
            self._removal = removal
            due.append(removal)
        if self._cleaner.refusal is None:
            due.append(self._spares.next_job(now_ms))
        with suppress(OSError):  # the segment can't be mapped: an append will report that
            due.append(self._pages.next_job(now_ms))
        due.append(self._repairs.next_job(commit_log.start, dispatched, now_ms))
        syncing = self._queue_sync.job is not None
        due.append(
            self.index_repair.next_job(commit_log.start, dispatched, now_ms, self.paths.checkpoint, syncing=syncing)
        )
        due.append(self._log_sync.next_job(now_ms))
        due.append(self._queue_sync.next_job(commit_log.start, dispatched, now_ms))
        due.append(self.timers.next_job(self.durability.durable_to, now_ms))
        return [job for job in due if job is not None]

    def due_ms(self) -> int | None:
        """When `jobs` has a job; None until something is appended or a job is returned."""
        return earliest(
            self._cleaner.due_ms(),
            self._pages.due_ms(),
            self._repairs.due_ms(),
            self.index_repair.due_ms(syncing=self._queue_sync.job is not None),
            self._log_sync.due_ms(),
            self._queue_sync.due_ms(self.dispatched),
            self._spares.due_ms() if self._cleaner.refusal is None else None,
            0 if self.queues.has_forgotten else None,
            self.timers.due_ms(self.durability.durable_to),
        )

    def finished(self, job: Job, now_ms: int) -> list[Token]:
        """A job has ended; returns tokens that may be answered, because their messages are durable.

        A job that was already taken back has no effect.
        """
        assert job.done or isinstance(job, PrepareSegment), f"{job} was returned without being run"
        match job:
            case SyncLog() if job is self._log_sync.job:
                self._log_sync.job = None
                return self._log_sync.synced(job, now_ms)
            case RewriteLog() if job is self._log_sync.job:
                self._log_sync.job = None
                return self._log_rewritten(job, now_ms)
            case SyncQueues() if job is self._queue_sync.job:
                self._queue_sync.job = None
                self._queue_sync.synced(job, self.dispatched, now_ms)
            case PrepareSegment():
                self._spares.finished(job, now_ms)
            case SupplyPages():
                self._pages.finished()
            case RemoveFiles() if job is self._removal:
                self._removal = None
                self._cleaner.removed(job)
                self.removed.forget_before(self.log.start)
            case SyncTimers():
                self.timers.finished(job, now_ms)
            case ReadEntries() if job is self._queue_rewrite.job:
                self._queue_sync.read(job, now_ms)
            case SearchLog() if job is self._repairs.job:
                self._repairs.finished(job, now_ms)
            case Slice() if job is self.index_repair.job:
                self.index_repair.finished(job, self.dispatched, now_ms)
            case SyncLog() | RewriteLog() | SyncQueues() | RemoveFiles() | Slice():
                pass
            case _:
                assert_never(job)
        return []

    def _under_way(self) -> list[SyncLog | RewriteLog | SyncQueues | RemoveFiles | Slice]:
        """The jobs that were handed out and not taken back, except the one that prepares a segment."""
        repairs = (self._repairs.job, self.index_repair.job, self._queue_rewrite.job)
        jobs = (self._log_sync.job, self._queue_sync.job, self._removal, *repairs)
        return [job for job in jobs if job is not None]

    def _settle(self, now_ms: int) -> list[Token]:
        """Take back all jobs; those that no worker has begun are run in this thread."""
        tokens: list[Token] = []
        for job in self._under_way():
            job.run()
            tokens += self.finished(job, now_ms)
        return tokens

    def _log_rewritten(self, job: RewriteLog, now_ms: int) -> list[Token]:
        """The doubtful records after a failed sync were rewritten to new files, or the rewrite failed."""
        before = self.log.end
        if job.error is None:
            try:
                self._cut_to(job.held, self.log.stored_ms)
                self.keep_removed()
                self.log.rewritten(job)
                self.count_given_out()
            except OSError as error:
                job.error = error
                job.close()
        return self._log_sync.rewritten(job, before - self.log.end, now_ms)

    def _cut_to(self, end: int, stored_ms: int, *, closed: bool = False) -> None:
        """Remove everything after `end` from the log, with all references to it. Raises OSError."""
        if end >= self.log.end:
            return
        self.durability.cut(end, stored_ms)
        self.removed.log_was_cut(end)
        self.dispatched = min(self.dispatched, end)
        self._queue_sync.log_was_cut(end)
        self.queues.truncate(end, closed=closed)
        if self.index is not None:
            self.index.truncate(end)

    def count_given_out(self) -> None:
        """Let queue offsets continue after the existing records, dispatched or not."""
        for queue in self.queues.opened():
            queue.next_offset = queue.end
        for record in self.log.records(self.dispatched):
            if self._dispatcher.has_entry(record):
                queue = self.queues.by_bytes(record.topic, record.queue_id)
                queue.next_offset = max(queue.next_offset, record.queue_offset + 1)

    def _checkpoint(self) -> Checkpoint:
        """The checkpoint that will be valid once queues and index are synced."""
        durability = self.durability
        stored_ms = self.index_repair.limit_ms(min(self._dispatcher.stored_ms, durability.flushed_ms))
        return Checkpoint(
            physical_ms=durability.flushed_ms,
            logical_ms=stored_ms,
            index_ms=stored_ms if self.index is not None else 0,
            master_flushed=self.master_flushed,
            confirm=self._last_at_start if durability.confirmed is None else durability.confirmed,
            logical_physical=min(self.dispatched, durability.flushed),
            flushed_physical=durability.flushed,
        )

    def flush(self, now_ms: int) -> list[Token]:
        """Make everything durable in this thread; returns answerable tokens. Raises DiskFailedError, OSError."""
        tokens = self._settle(now_ms)
        if self.log.failed is not None:
            raise DiskFailedError(self.log.failed)
        job = self._log_sync.sync()
        job.run()
        tokens += self._log_sync.synced(job, now_ms)
        if job.error is not None:
            raise job.error
        self.dispatch()
        if self._queue_sync.doubtful:
            return tokens
        queue_job = self._queue_sync.sync()
        queue_job.run()
        self._queue_sync.synced(queue_job, self.dispatched, now_ms)
        if queue_job.error is not None:
            raise queue_job.error
        return tokens

    # ── Removing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def truncate(self, end: int, now_ms: int, last: LastRecord | None = None) -> list[Token]:
        """Cut the log at this offset, where a record ends: remove later records with their entries, durably.

        For replicas. The log before the offset is flushed; returns answerable tokens. `Durability.take_cut` returns the
        others. `last` is what `last_record_before` found; None: search now. Raises StoreError if no record ends there;
        nothing is changed then. Raises DiskFailedError or OSError if the disk fails: the store is closed then, and the
        next start finds a log that ends there or at a later record, as after a crash.
        """
        if self.log.failed is not None:
            raise DiskFailedError(self.log.failed)
        last, tokens = last or at_once(last_record_before(self.log, end)), self._settle(now_ms)
        if end < self.log.end:
            self._cut(end, last)
            log.warning("the log was cut at %d; everything after it was removed", end)
        return tokens + self.flush(now_ms)

    def _cut(self, end: int, last: LastRecord) -> None:
        try:
            path = self.paths.checkpoint
            Checkpoint.read(self.disk, path).cut(end, last.stored_ms).write(self.disk, path)
            self._cut_to(end, last.stored_ms, closed=True)
            cut_log(self.disk, self.log, end)
            self.keep_removed()  # records written after the cut do not belong to removed topics
        except BaseException:
            self.abandon()
            raise
        self.log.resume(end, last.stored_ms)
        if self._dispatcher.last_record >= end:
            self._dispatcher.go_on_after(last.offset, last.stored_ms)
        self._last_at_start = min(self._last_at_start, max(last.offset, 0))
        self.master_flushed = min(self.master_flushed, end)
        self.reader.written_from = min(self.reader.written_from, end)
        self.count_given_out()

    @property
    def refusal(self) -> str | None:
        """Why nothing may be written now: the disk is too full, or has failed. None if writes are allowed."""
        return self._cleaner.refusal or self.log.failed

    def used_ratios(self) -> tuple[float, float]:
        """The used ratios of the disks with the log and with the queues, 0.0 to 1.0 each. Raises OSError."""
        root = self.paths.root
        log_folder = self.paths.commit_log if len(self.log.segments) else root
        return self.disk.used_ratio(log_folder), self.disk.used_ratio(root)

    def space(self) -> tuple[int, int]:
        """The size of the disk with the store, and its free bytes. Raises OSError."""
        return self.disk.space(self.paths.root)

    def reconfigure(self, settings: StoreSettings) -> None:
        """Apply the settings that can change while a store is open: flush, timeouts, retention, limits of reads."""
        self._settings = replace(
            self._settings,
            sync_flush_timeout_ms=settings.sync_flush_timeout_ms,
            read_uncommitted=settings.read_uncommitted,
            flush_interval_ms=settings.flush_interval_ms,
            flush_least_pages=settings.flush_least_pages,
            flush_thorough_ms=settings.flush_thorough_ms,
            queue_flush_interval_ms=settings.queue_flush_interval_ms,
            queue_flush_least_pages=settings.queue_flush_least_pages,
            queue_flush_thorough_ms=settings.queue_flush_thorough_ms,
        )
        self._clock.settings = self._settings
        self.durability.configure(self._settings)
        self._cleaner.retention.configure(settings)
        self.reader.limits.adopt(settings)

    def remove_expired(self) -> None:
        """Remove expired segments now, at any hour (DELETE_EXPIRED_COMMITLOG)."""
        self._cleaner.request()

    def remove_topic(self, topic: str) -> int:
        """Remove the queues of a topic; returns their number. Its records stay in the log until they expire.

        The next message of the topic gets offset 0. The removal is durable once `removed` is saved, by `keep_removed`
        or by the function that is called on changes (`RemovedTopics.touch`). Raises OSError.
        """
        self.dispatch()
        try:
            removed = self.queues.remove_topic(topic)
        finally:
            self._dispatcher.forget_queues()
            self._appender.forget()
        if removed:
            self.removed.add(topic, self.log.end)
            self._queue_sync.cut(self.dispatched - 1)
        return removed

    def keep_removed(self) -> None:
        """Make removals of topics durable, in this thread. Raises OSError."""
        if not self.removed.is_kept:
            self.removed_file.write(self.removed_file.encode(self.removed.wrapper()))

    def remove_unused_topics(self, used: Container[str]) -> list[str]:
        """Remove the queues of all other topics, and return these topics (CLEAN_UNUSED_TOPIC). Raises OSError."""
        unused = sorted({topic for topic, _ in self.queues.names() if topic not in used})
        for topic in unused:
            self.remove_topic(topic)
        return unused

    def remove_expired_queues(self, keep: Container[str] = ()) -> int:
        """Remove queues all of whose messages are removed, except those of topics to keep; returns their number.

        Their next messages get offset 0 (CLEAN_EXPIRED_CONSUMEQUEUE). Raises OSError.
        """
        self.dispatch()
        names = expired_queues(self.queues, self.log.start, keep)
        try:
            for topic, queue_id in names:
                self.queues.remove(topic, queue_id)
        finally:
            self._dispatcher.forget_queues()
            self._appender.forget()
        return len(names)
