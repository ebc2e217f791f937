"""When what is written becomes safe: which jobs are due, and who waits for them. Pure: the store runs the jobs.

ASYNC_FLUSH: the log is synced every `flush_interval_ms` when enough pages are dirty, and every `flush_thorough_ms` in
any case. SYNC_FLUSH: whenever somebody waits; all who wait when a sync starts are answered by that one (group commit).
Queues and index follow at their own pace, and the checkpoint after them: it must never claim more than is safe.

Java: CommitLog.FlushRealTimeService, GroupCommitService; DefaultMessageStore.FlushConsumeQueueService.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from kourou.store.settings import FlushMode, StoreSettings

PAGE_SIZE = 4096

CROWDED_INTERVAL_MS = 100
"""How soon queues are synced again when that lets some go."""


@dataclass(slots=True)
class FlushClock:
    """Decides by the time and by how much is dirty."""

    settings: StoreSettings
    log_ms: int = 0  # when the log was synced last
    log_thorough_ms: int = 0
    queues_ms: int = 0
    queues_thorough_ms: int = 0

    def log_is_due(self, dirty_bytes: int, now_ms: int, *, awaited: bool) -> bool:
        """Is it time to sync the log?"""
        settings = self.settings
        if dirty_bytes <= 0:
            return False
        if settings.flush_mode is FlushMode.SYNC or awaited:
            return True
        if now_ms - self.log_ms < settings.flush_interval_ms:
            return False
        enough = dirty_bytes >= settings.flush_least_pages * PAGE_SIZE
        return enough or now_ms - self.log_thorough_ms >= settings.flush_thorough_ms

    def log_was_synced(self, now_ms: int) -> None:
        self.log_ms = self.log_thorough_ms = now_ms

    def queues_are_due(self, dirty_bytes: int, now_ms: int, *, crowded: bool = False) -> bool:
        """Is it time to sync queues and index, and to write the checkpoint? Sooner if too many queues are mapped."""
        settings = self.settings
        if dirty_bytes > 0 and crowded:
            return now_ms - self.queues_ms >= min(settings.queue_flush_interval_ms, CROWDED_INTERVAL_MS)
        if dirty_bytes <= 0 or now_ms - self.queues_ms < settings.queue_flush_interval_ms:
            return False
        enough = dirty_bytes >= settings.queue_flush_least_pages * PAGE_SIZE
        return enough or now_ms - self.queues_thorough_ms >= settings.queue_flush_thorough_ms

    def queues_were_synced(self, now_ms: int) -> None:
        self.queues_ms = self.queues_thorough_ms = now_ms


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who wants to know when the log is safe up to an offset."""

    upto: int
    deadline_ms: int
    token: Hashable


class Waiters:
    """Who waits for which offset, in the order they came, which is the order of offsets and of deadlines."""

    def __init__(self) -> None:
        self._waiting: deque[Waiter] = deque()
        self._lost: list[Hashable] = []  # what they wait for will never be safe

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, upto: int, deadline_ms: int, token: Hashable) -> None:
        assert not self._waiting or upto >= self._waiting[-1].upto, "offsets only grow"
        self._waiting.append(Waiter(upto, deadline_ms, token))

    def safe(self, upto: int) -> list[Hashable]:
        """The log is safe up to here: these may be answered."""
        done: list[Hashable] = []
        while self._waiting and self._waiting[0].upto <= upto:
            done.append(self._waiting.popleft().token)
        return done

    def expired(self, now_ms: int) -> list[Hashable]:
        """These have waited too long: their messages are stored, and not known to be safe."""
        late, self._lost = self._lost, []
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            late.append(self._waiting.popleft().token)
        return late

    def cut(self, end: int) -> None:
        """What is behind this offset is lost: whoever waits for it is `expired`, and not `safe` when others fill it."""
        while self._waiting and self._waiting[-1].upto > end:
            self._lost.append(self._waiting.pop().token)

    def next_deadline_ms(self) -> int | None:
        if self._lost:
            return 0
        return self._waiting[0].deadline_ms if self._waiting else None
