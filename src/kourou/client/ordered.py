"""Orderly consumption: the messages of a queue are offered batch by batch, each after the one before it is settled.

The broker gives the lock of a queue to one member, and only the member that has it offers messages. The order also
holds within this process: while a message of an earlier assignment of the queue is still being processed, messages of a
later one wait. Java: ConsumeMessageOrderlyService.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from kourou.client.assigned_queue import LOCK_VALID_S, AssignedQueue
from kourou.client.send_back import give_back
from kourou.protocol.errors import KourouError

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer
    from kourou.client.delivery import Delivery
    from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)


class Ordered:
    """The order of one consumer's messages."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer
        self._left: dict[MessageQueue, AssignedQueue] = {}  # given up, while a message of it was being processed

    # ── Which messages are offered ────────────────────────────────────────────────────────────────────────────────

    def offer_next(self, assigned: AssignedQueue) -> None:
        """Offers the next batch of a queue, if the last one is settled and we have the queue's lock."""
        settings = self._consumer.settings
        if assigned.offered or assigned.dropped or assigned.resting is not None or assigned.follows_busy():
            return
        if not self._has_lock(assigned):
            return
        batch, assigned.again = assigned.again, []
        while not batch and assigned.waiting:
            count = min(settings.batch_size, len(assigned.waiting))
            batch = [assigned.waiting.popleft() for _ in range(count)]
        if batch:
            assigned.offered = len(batch)
            self._consumer.offer(batch)

    def may_take(self, delivery: "Delivery") -> bool:
        """Whether an offered message may be handed out. If the lock is lost, the message waits for it again."""
        assigned = delivery.source
        assert isinstance(assigned, AssignedQueue)
        if self._has_lock(assigned):
            return True
        assigned.offered -= 1
        assigned.again.append(delivery)
        return False

    def _has_lock(self, assigned: AssignedQueue) -> bool:
        return self._consumer.settings.broadcast or assigned.is_locked(time.monotonic())

    # ── Results of processing ─────────────────────────────────────────────────────────────────────────────────────

    def settled(self, assigned: AssignedQueue, delivery: "Delivery") -> None:
        if delivery in assigned.again:  # it was released, and settled all the same
            assigned.again.remove(delivery)
        else:
            assigned.offered -= 1
        self.offer_next(assigned)

    async def failed(self, assigned: AssignedQueue, delivery: "Delivery", delay_level: int) -> None:
        """Offers the message again after a pause; its queue waits. After too many attempts the message is sent back."""
        limit = self._consumer.settings.retries
        if delay_level < 0 or (limit >= 0 and delivery.reconsume_times >= limit):
            try:
                await give_back(self._consumer, delivery, delay_level, resend=True)
            except KourouError as error:
                log.warning("failed message could not be sent back id=%s: %s", delivery.message_id, error)
            else:
                self._consumer.settle(assigned, delivery)
                return
        delivery.settled = False
        delivery.reconsume_times += 1
        self.again(assigned, delivery)

    def again(self, assigned: AssignedQueue, delivery: "Delivery") -> None:
        """Offers a message again after a pause; its queue waits."""
        self._consumer.put_down(assigned, delivery)
        if assigned.dropped or delivery in assigned.again:
            return
        assigned.offered -= 1
        assigned.again.append(delivery)
        if assigned.resting is None:
            rest = min(max(self._consumer.settings.suspend, 0.01), 30.0)
            assigned.resting = asyncio.get_running_loop().call_later(rest, self._rested, assigned)

    def _rested(self, assigned: AssignedQueue) -> None:
        assigned.resting = None
        assigned.again.sort(key=lambda delivery: delivery.queue_offset)
        self.offer_next(assigned)

    # ── Locks and assignments ─────────────────────────────────────────────────────────────────────────────────────

    def locked(self, assigned: AssignedQueue) -> None:
        """The broker has granted or renewed our lock of the queue."""
        assigned.locked_at = time.monotonic()
        assigned.changed()
        self.offer_next(assigned)

    def lock_lost(self, assigned: AssignedQueue) -> None:
        """The broker has given the lock to another member."""
        assigned.locked_at = -LOCK_VALID_S

    def gave_up(self, assigned: AssignedQueue) -> None:
        """The queue is no longer assigned to us. Its messages that are being processed may finish."""
        if assigned.in_hand or assigned.follows_busy():
            self._left[assigned.queue] = assigned

    def took_on(self, assigned: AssignedQueue) -> None:
        """The queue is assigned to us, perhaps again."""
        assigned.before = self._left.pop(assigned.queue, None)

    def let_go(self, assigned: AssignedQueue) -> None:
        """A message of an assignment that has ended is not being processed any more."""
        if assigned.in_hand:
            return
        if self._left.get(assigned.queue) is assigned and not assigned.follows_busy():
            del self._left[assigned.queue]
        current = self._consumer.queues.get(assigned.queue)
        if current is not None:
            self.offer_next(current)


__all__ = ["Ordered"]
