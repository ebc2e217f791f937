"""Which files may be removed, and when.

    oldest                                                            newest
    ║ segment ║ segment ║ segment ║ segment │ … not dispatched or durable … ║ being written ║
      └ removed one after the other, until one is not old enough              └ never removed

Segments of the log are removed by age alone, whether or not their messages were consumed. A segment is as old as its
newest record, and expires when that is older than `fileReservedTime`. It is removed in the hours of `deleteWhen`, as
soon as the disk is too full (`diskMaxUsedSpaceRatio`), or on request. If the disk is even fuller
(`diskSpaceCleanForciblyRatio`), segments are removed regardless of their age; and beyond `diskSpaceWarningLevelRatio`
nothing is written until there is room again, while reads continue. Queues and index follow the log: files that refer
only to removed records are removed as well, and the first offsets of queues move.

`Retention` decides, without a clock or disk. `Cleaner` applies its decisions to the files of a store. The log moves its
start at once, and a worker removes the large files: 1 GiB takes half a second on an ordinary disk. A slice that a
reader still uses keeps its mapping, and so its bytes.

Apache's broker derives the age of a segment from the modification time of its file. For a mapped file that is only a
hint: on ext4 the time changes when a clean page becomes dirty, on tmpfs only when a page is first touched; copying or
restoring a store, or rewriting a segment after a failed sync, makes it later. The log is more reliable: store times
never go back along it, so the store time of the first record of the next segment is an upper bound, and no message is
removed too early. The file's time is used only if that record can't be read.

Java: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService; MappedFileQueue.deleteExpiredFileByTime.
"""

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol import layout
from kourou.protocol.codes import SysFlag
from kourou.protocol.record import MAGIC_V1, MAGIC_V2
from kourou.store.commit_log import CommitLog
from kourou.store.disk import Disk
from kourou.store.errors import BadSettingError, StoreError
from kourou.store.index import Index
from kourou.store.jobs import RemoveFiles
from kourou.store.queues import Queues
from kourou.store.settings import StoreSettings
from kourou.store.wall_clock import WallClock

log = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000

REQUESTED_ROUNDS: Final = 20
"""For how many rounds a request to remove expired files is valid."""

START_DELAY_MS: Final = 60_000
"""How long after a start nothing is removed: an administrator may have started it to rescue messages."""

FULL_INTERVAL_MS: Final = 1_000
"""How often a full disk is checked, so that writing resumes soon."""

QUEUES_AT_ONCE: Final = 100
"""How many queues follow the log in one step, so that a store with thousands of them keeps answering."""

FOLLOW_MS: Final = 100
"""The pause before the next queues follow the log."""

REMOVALS_AT_ONCE: Final = 2
"""How many files of queues are removed in one step; the folder of each is synced, which takes some milliseconds."""

FORCE_RATIOS: Final = (0.30, 0.85)
FULL_RATIOS: Final = (0.35, 0.90)
"""The bounds of these two ratios."""

_HEAD_SIZE: Final = 80  # of a record: enough to read its store time, with either kind of host


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The result of a round of retention."""

    remove: int = 0
    """How many of the oldest segments to remove."""
    why: str = ""
    """For the log: why segments are removed, or should be."""
    full: bool = False
    """The disk is so full that nothing may be written."""
    hurry: bool = False
    """The limit of one round was reached because the disk is nearly full: the next round should follow at once."""


class Retention:
    """The rules. `step` is called once per round."""

    def __init__(self, settings: StoreSettings) -> None:
        """Raises BadSettingError for invalid hours."""
        self._requested = 0  # the number of rounds for which a request is still valid
        self.configure(settings)

    def configure(self, settings: StoreSettings) -> None:
        """Use these rules from now on. Raises BadSettingError for invalid hours."""
        self._reserved_ms = settings.reserved_hours * HOUR_MS
        self._hours = parse_hours(settings.delete_when)
        self._used_ratio = settings.max_used_ratio
        self._force_ratio = min(max(settings.force_clean_ratio, FORCE_RATIOS[0]), FORCE_RATIOS[1])
        self.full_ratio = min(max(settings.full_ratio, FULL_RATIOS[0]), FULL_RATIOS[1])
        self._force_enabled = settings.force_clean_enabled
        self._batch = settings.delete_batch

    def request(self) -> None:
        """Remove expired segments now, at any hour."""
        self._requested = REQUESTED_ROUNDS

    def step(self, now_ms: int, local_hour: int, used_ratio: float, newest_ms: Iterable[int]) -> Decision:
        """One round. `newest_ms`: the time of the newest record of each segment that may be removed, oldest first.

        Only as many of these times are read as needed.
        """
        full = used_ratio > self.full_ratio
        forced = self._force_enabled and (full or used_ratio > self._force_ratio)
        why = self._why(local_hour, used_ratio)
        if not why:
            return Decision()
        count = 0
        for time_ms in newest_ms:
            if count >= self._batch or not (forced or now_ms >= time_ms + self._reserved_ms):
                break
            count += 1
        return Decision(count, why, full, hurry=forced and count >= self._batch)

    def _why(self, local_hour: int, used_ratio: float) -> str:
        """Why files should be removed now; empty if they should not. Counts a round of a request."""
        requested, self._requested = self._requested > 0, max(0, self._requested - 1)
        if used_ratio > min(self._used_ratio, self._force_ratio, self.full_ratio):
            return f"the disk is {used_ratio:.1%} full"
        if requested:
            return "it was requested"
        return f"it is {local_hour} o'clock" if local_hour in self._hours else ""


def parse_hours(text: str) -> frozenset[int]:
    """Hours of the day from `deleteWhen`, as in `04;16`. Raises BadSettingError."""
    hours = frozenset(int(word) if word.strip().isdigit() else -1 for word in text.split(";") if word.strip())
    if not hours or not hours <= set(range(24)):
        raise BadSettingError(f"deleteWhen={text}: hours from 00 to 23 are expected, separated by semicolons")
    return hours


class Cleaner:
    """Applies retention to the files of one store.

    The store calls `step` often, and returns finished jobs with `removed`.
    """

    def __init__(
        self,
        settings: StoreSettings,
        disk: Disk,
        root: Path,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        now_ms: int,
        local_hour: Callable[[int], int],
        clock: WallClock,
    ) -> None:
        self.retention = Retention(settings)
        self.refusal: str | None = None
        """Why nothing may be written; None if it may."""
        self._disk = disk
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._local_hour = local_hour
        self._clock = clock
        self._interval_ms = settings.clean_interval_ms
        self._due_ms = now_ms
        self._removing_from_ms = now_ms + START_DELAY_MS
        self._job: RemoveFiles | None = None
        self._left: list[Path] = []  # files that no longer belong to the store, but could not be removed
        self._behind: deque[tuple[str, int]] = deque()  # queues that have not followed the log yet
        self._follow_ms = 0  # when the next queues follow

    def request(self) -> None:
        """Remove expired files now, at any hour, also in the next rounds."""
        self.retention.request()
        self._due_ms = self._removing_from_ms = 0

    def due_ms(self) -> int | None:
        """When `step` is due; None while its job is not returned."""
        due_ms = None if self._job is not None else self._due_ms
        if self._behind:
            return self._follow_ms if due_ms is None else min(self._follow_ms, due_ms)
        return due_ms

    def step(self, now_ms: int, keep_from: int) -> RemoveFiles | None:
        """Do the work that is due. Returns a job for a worker, or None. The log from `keep_from` on is kept."""
        if self._behind and now_ms >= self._follow_ms:
            self._follow_ms = now_ms + FOLLOW_MS
            self._follow()
        if self._job is not None or now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._interval_ms
        try:
            decision = self._decide(now_ms, keep_from)
        except OSError as error:
            log.error("can't determine which files may be removed: %s", error)
            return None
        if decision.full:
            self._due_ms = now_ms + min(FULL_INTERVAL_MS, self._interval_ms)
        paths, self._left = self._left or self._drop(decision), []
        if paths:
            self._job = RemoveFiles(self._disk, paths)
            if decision.hurry:
                self._due_ms = now_ms
        return self._job

    def removed(self, job: RemoveFiles) -> None:
        """A job is done. Files that could not be removed are retried before others are removed."""
        self._job = None
        self._left = job.paths
        if job.error is not None:
            log.error("files could not be removed; this will be retried: %s", job.error)

    def _decide(self, now_ms: int, keep_from: int) -> Decision:
        used_ratio = self._used_ratio()
        candidates = self._candidates(keep_from) if now_ms >= self._removing_from_ms else ()
        wall_ms = self._clock.at(now_ms)  # the time of day, as in the store times of messages and in `deleteWhen`
        decision = self.retention.step(wall_ms, self._local_hour(wall_ms), used_ratio, candidates)
        self._refuse(decision.full, used_ratio)
        return decision

    def _used_ratio(self) -> float:
        """The used ratio of the disk; of the fuller one if the log has a disk of its own."""
        folders = {self._root, self._log.segments.folder if len(self._log.segments) else self._root}
        return max(self._disk.used_ratio(folder) for folder in folders)

    def _refuse(self, full: bool, used_ratio: float) -> None:
        was_full = self.refusal is not None
        self.refusal = (
            f"the disk with {self._root} is {used_ratio:.1%} full, and nothing is written above "
            f"{self.retention.full_ratio:.0%} (diskSpaceWarningLevelRatio). Free some space: "
            "writing resumes automatically"
            if full
            else None
        )
        if full and not was_full:
            log.error("%s", self.refusal)
        elif was_full and not full:
            log.info("the disk with %s is %.1f %% full: writing resumes", self._root, used_ratio * 100)

    # ── The log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _candidates(self, keep_from: int) -> Iterator[int]:
        """The time of the newest record of each segment that may be removed, oldest first."""
        segments = self._log.segments
        for start, following in zip(segments.starts, segments.starts[1:], strict=False):
            if following > keep_from:
                return
            path = segments.path(following)
            time_ms = first_stored_ms(self._disk.read_at(path, 0, _HEAD_SIZE), following)
            yield self._disk.modified_ms(segments.path(start)) if time_ms is None else time_ms

    def _drop(self, decision: Decision) -> list[Path]:
        """Remove segments from the log, so that queues and index have to follow."""
        segments = self._log.segments
        paths = [segments.drop_first() for _ in range(decision.remove)]
        if paths:
            log.info("removing %d segments before offset %d: %s", len(paths), segments.start, decision.why)
            self._queues.log_start = segments.start
            self._behind = deque(self._queues.names_by_use())
            if self._index is not None:
                paths += self._index.expire(segments.start)
        return paths

    # ── Queues and index ──────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self) -> None:
        """Let some of the queues follow the log; those in use come first."""
        removals = 0
        for _ in range(min(QUEUES_AT_ONCE, len(self._behind))):
            topic, queue_id = self._behind.popleft()
            try:
                removals += self._queues.expire(topic, queue_id)
            except (OSError, StoreError) as error:
                log.error("the expired part of queue %d of %s can't be removed: %s", queue_id, topic, error)
            if removals >= REMOVALS_AT_ONCE:
                break


def first_stored_ms(head: bytes, offset: int) -> int | None:
    """The store time in the first bytes of the record at this log offset; None if no record begins there."""
    if len(head) < _HEAD_SIZE:
        return None
    view = memoryview(head)
    _, magic, _, _, _, _, physical_offset, sys_flag, _ = layout.head(view, 0)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != offset:
        return None
    (stored_ms,) = layout.int64(view, layout.HEAD_SIZE + (20 if sys_flag & SysFlag.BORN_HOST_V6 else 8))
    return stored_ms


def expired_queues(queues: Queues, log_start: int, keep: Container[str]) -> list[tuple[str, int]]:
    """Queues all of whose messages are removed, except those of topics to keep."""
    return [
        (queue.topic, queue.queue_id)
        for queue in queues.all()
        if queue.topic not in keep and 0 < queue.max_physical <= log_start and queue.next_offset == queue.end
    ]
