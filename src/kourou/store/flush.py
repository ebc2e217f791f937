"""When syncs are due. Pure: the store runs them, and `Durability` says what follows from them.

ASYNC_FLUSH: the log is synced every `flush_interval_ms` when enough pages are dirty, and every `flush_thorough_ms` in
any case. SYNC_FLUSH: as soon as there is something new; one sync is for all senders that wait when it starts (group
commit). Queues and index are synced at their own pace, and the checkpoint is written after them: it must never say more
than is durable.

Java: CommitLog.FlushRealTimeService, GroupCommitService; DefaultMessageStore.FlushConsumeQueueService.
"""

from dataclasses import dataclass

from kourou.store.settings import StoreSettings

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

    def log_is_due(self, dirty_bytes: int, now_ms: int, *, at_once: bool) -> bool:
        """Is it time to sync the log?"""
        settings = self.settings
        if dirty_bytes <= 0:
            return False
        if at_once:
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
