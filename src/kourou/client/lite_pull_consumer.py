"""A consumer that is polled: messages are fetched in the background, the program takes them when it wants.

    subscribe(topic)    the group shares the queues, or
    assign(queues)      the program chooses them
    poll()              the next messages; those of the previous poll count as consumed
    seek, pause, resume, commit, committed

Closing a consumer does not count the messages of its last poll as consumed, because an exception may have been the
reason: they are delivered again, unless they were acknowledged or committed.

Java: DefaultLitePullConsumer.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kourou.client import naming
from kourou.client.assigned_queue import AssignedQueue
from kourou.client.consumer import Consumer
from kourou.client.delivery import Delivery
from kourou.client.errors import ClientError
from kourou.client.filters import subscription
from kourou.client.offsets import HeldOffsets, OffsetStore
from kourou.client.pulling import Pull
from kourou.client.queue_bounds import max_offset, min_offset, search_offset
from kourou.client.session import Session
from kourou.client.settings import ConsumerSettings
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.message import MessageQueue

POLL_BATCH: Final = 10


class LitePullConsumer(Consumer):
    """Made by `Client.lite_pull`."""

    has_retry_topic = False
    kind = "CONSUME_ACTIVELY"

    def __init__(self, session: Session, group: str, settings: ConsumerSettings, *, auto_commit: bool = True) -> None:
        self.auto_commit = auto_commit
        super().__init__(session, group, {}, settings)
        self._mode = ""
        self._given: list[Delivery] = []  # by the last poll
        self._last_commit = time.monotonic()

    def _make_offsets(self) -> OffsetStore:
        store = super()._make_offsets()
        return store if self.auto_commit else HeldOffsets(store)

    def how(self, wanted: SubscriptionData) -> Pull:
        settings = self.settings
        return Pull(
            group=self.group,
            subscription=wanted,
            batch=settings.pull_batch,
            batch_size=settings.pull_batch_size,
            suspend=settings.long_poll,
            with_subscription=True,
            is_lite=True,
        )

    # ── Which queues ──────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, topic: str, tags: str | None = None, sql: str | None = None) -> None:
        """Share the queues of this topic with the other members of the group."""
        self._choose("subscribe")
        naming.check_topic(topic)
        wrapped = self.session.wrap(topic)
        if self.is_running:
            await super().subscribe(topic, tags, sql)
        else:
            self.subscriptions[wrapped] = subscription(wrapped, tags, sql)
            await self.start()

    async def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = None) -> None:
        """Consume exactly these queues, without sharing them. Committed offsets are those of the group all the same."""
        self._choose("assign")
        self.is_balanced = False
        chosen = {self.wrapped(queue) for queue in queues}
        for topic in {queue.topic for queue in chosen}:
            self.subscriptions[topic] = subscription(topic, tags)
            await self.session.routes.refresh(topic)
        await self.start()
        await self.rebalancer.give_up(sorted(set(self.queues) - chosen))
        await self.rebalancer.take_on(sorted(chosen - set(self.queues)))

    def _choose(self, mode: str) -> None:
        if self._mode not in ("", mode):
            raise ClientError("use either subscribe or assign, not both")
        self._mode = mode

    async def topic_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that could be assigned. Raises NoRouteError."""
        return (await self.session.routes.refresh(self.session.wrap(topic))).subscribe

    # ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def poll(self, timeout: float = 5.0, *, count: int = POLL_BATCH) -> list[Delivery]:
        """The next messages of one queue; none after `timeout` seconds. Those of the last poll count as consumed."""
        self._consumed()
        if self.auto_commit and time.monotonic() - self._last_commit >= self.settings.persist_interval:
            await self.commit()
        try:
            async with asyncio.timeout(timeout):
                self._given = await self.take(count)
        except TimeoutError:
            self._given = []
        return list(self._given)

    def _consumed(self) -> None:
        for delivery in self._given:
            delivery.ack()
        self._given = []

    async def commit(self) -> None:
        """Store the offsets after the messages of the last poll."""
        self._consumed()
        self._last_commit = time.monotonic()
        if isinstance(self.offsets, HeldOffsets):
            await self.offsets.release()
        await self.offsets.persist()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as the broker has it; None if it has none."""
        return await self.offsets.read(self.wrapped(queue))

    # ── Offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset. Raises ClientError if the queue is not assigned, or does not have the offset."""
        queue = self.wrapped(queue)
        if queue not in self.queues:
            raise ClientError(f"{queue} is not assigned to this consumer")
        first, end = await min_offset(self.session, queue), await max_offset(self.session, queue)
        if not first <= offset <= end:
            raise ClientError(f"offset {offset} is outside the queue, which has offsets {first} to {end}")
        self._given = [delivery for delivery in self._given if delivery.queue != queue]
        await self.reset({queue: offset})

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue with the oldest message of the queue."""
        await self.seek(queue, await min_offset(self.session, self.wrapped(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next message that is stored in the queue."""
        await self.seek(queue, await max_offset(self.session, self.wrapped(queue)))

    async def offset_for_time(self, queue: MessageQueue, when: datetime | float) -> int:
        """The offset of the first message stored at this time or later."""
        seconds = when.timestamp() if isinstance(when, datetime) else when
        return await search_offset(self.session, self.wrapped(queue), round(seconds * 1000))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop fetching from these queues, or from all, for now."""
        for assigned in self._chosen(queues):
            assigned.paused = True

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Fetch again from these queues, or from all, after `pause`."""
        for assigned in self._chosen(queues):
            assigned.paused = False
            assigned.changed()

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[AssignedQueue]:
        wanted = None if queues is None else {self.wrapped(queue) for queue in queues}
        return [assigned for queue, assigned in self.queues.items() if wanted is None or queue in wanted]
