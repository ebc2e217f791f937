"""The messages that must be in the wheel before a slot is delivered: those that were stored before the slot began.

    the slot begins ─▶ the end of the commit log is noted … it is dispatched ─▶ the end of the timer queue is noted

Later messages do not count, so that a steady flow of messages does not delay a slot.
"""

from kourou.broker.names import TIMER_TOPIC
from kourou.store.store import Store


class Mark:
    """A time, and the ends of commit log and timer queue at that time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.time_ms = -1
        self.log_end = 0
        self._queue_end: int | None = None  # of the timer queue, with all messages before `log_end`

    def set(self, time_ms: int) -> None:
        """Note the end of the commit log at a time."""
        self.time_ms = time_ms
        self.move()

    def move(self) -> None:
        """Move the mark to the current end: messages that were stored since count as well."""
        self.log_end, self._queue_end = self._store.log.end, None

    @property
    def is_dispatched(self) -> bool:
        return self._store.dispatched >= self.log_end

    def is_reached(self, queue_offset: int) -> bool:
        """Are the messages that were stored before the mark among those before this queue offset?"""
        if not self.is_dispatched:
            return False
        if self._queue_end is None:
            queue = self._store.queues.get(TIMER_TOPIC, 0)
            self._queue_end = 0 if queue is None else queue.end
        return queue_offset >= self._queue_end
