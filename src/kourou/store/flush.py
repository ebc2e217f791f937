"""When syncs are due. Pure: the store runs them, and `Durability` acts on the results.

ASYNC_FLUSH: the log is synced every `flush_interval_ms` if enough pages are dirty, and every `flush_thorough_ms`
regardless. SYNC_FLUSH: as soon as there are new records; one sync serves all senders that wait when it starts (group
commit). Queues and index are synced at their own interval, and the checkpoint is written after them: it must never
claim more than is durable.

Java: CommitLog.FlushRealTimeService, GroupCommitService; DefaultMessageStore.FlushConsumeQueueService.
"""

from dataclasses import dataclass

from kourou.store.settings import StoreSettings

PAGE_SIZE = 4096

CROWDED_INTERVAL_MS = 100
"""The interval of queue syncs if they allow queues to be unmapped."""


@dataclass(slots=True)
class FlushClock:
    """Decides by the time and by the amount of dirty data."""

    settings: StoreSettings
    log_ms: int = 0  # when the log was synced last
    log_thorough_ms: int = 0
    queues_ms: int = 0
    queues_thorough_ms: int = 0

    def log_due_ms(self, dirty_bytes: int, *, at_once: bool) -> int | None:
        """When the log must be synced; None: nothing is dirty."""
        settings = self.settings
        if dirty_bytes <= 0:
            return None
        if at_once:
            return 0
        due_ms = self.log_ms + settings.flush_interval_ms
        if dirty_bytes >= settings.flush_least_pages * PAGE_SIZE:
            return due_ms
        return max(due_ms, self.log_thorough_ms + settings.flush_thorough_ms)

    def log_is_due(self, dirty_bytes: int, now_ms: int, *, at_once: bool) -> bool:
        """Is it time to sync the log?"""
        return is_due(self.log_due_ms(dirty_bytes, at_once=at_once), now_ms)

    def log_was_synced(self, now_ms: int) -> None:
        self.log_ms = self.log_thorough_ms = now_ms

    def queues_due_ms(self, dirty_bytes: int, *, crowded: bool = False) -> int | None:
        """When queues and index must be synced and the checkpoint written; None: nothing is dirty.

        Sooner if too many queues are mapped (`crowded`).
        """
        settings = self.settings
        if dirty_bytes <= 0:
            return None
        if crowded:
            return self.queues_ms + min(settings.queue_flush_interval_ms, CROWDED_INTERVAL_MS)
        due_ms = self.queues_ms + settings.queue_flush_interval_ms
        if dirty_bytes >= settings.queue_flush_least_pages * PAGE_SIZE:
            return due_ms
        return max(due_ms, self.queues_thorough_ms + settings.queue_flush_thorough_ms)

    def queues_are_due(self, dirty_bytes: int, now_ms: int, *, crowded: bool = False) -> bool:
        """Is it time to sync queues and index, and to write the checkpoint?"""
        return is_due(self.queues_due_ms(dirty_bytes, crowded=crowded), now_ms)

    def queues_were_synced(self, now_ms: int) -> None:
        self.queues_ms = self.queues_thorough_ms = now_ms


def is_due(due_ms: int | None, now_ms: int) -> bool:
    """Has this time come? None is never."""
    return due_ms is not None and due_ms <= now_ms


def earliest(*times_ms: int | None) -> int | None:
    """The earliest of these times. None is never."""
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)
