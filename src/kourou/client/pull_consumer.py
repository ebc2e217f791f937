"""Explicit pulls: from a given queue and offset. For tools and pipelines.

Nothing is automatic: queues are not shared, offsets are not committed. Java: DefaultMQPullConsumer.
"""

from datetime import datetime

import msgspec

from kourou.client import naming
from kourou.client.delivery import Delivery, delivered_topic
from kourou.client.filters import subscription
from kourou.client.offsets import BrokerOffsets
from kourou.client.pulling import Pull, PullStatus, pull
from kourou.client.queue_bounds import max_offset, min_offset, search_offset
from kourou.client.session import Session
from kourou.protocol.message import MessageQueue


class Batch(msgspec.Struct, frozen=True):
    """The result of a pull."""

    messages: list[Delivery]
    status: PullStatus
    next_offset: int
    """The offset for the next pull."""
    min_offset: int
    max_offset: int
    """The offset of the queue's first message, and the offset that its next message will have."""


class PullConsumer:
    """Made by `Client.pull`."""

    def __init__(self, session: Session, group: str) -> None:
        if not naming.is_system_group(group):
            naming.check_group(group)
        self._session = session
        self.group = session.wrap(group)
        self._offsets = BrokerOffsets(session, self.group)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The readable queues, sorted. Raises NoRouteError."""
        return (await self._session.routes.refresh(self._session.wrap(topic))).subscribe

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str | None = None,
        sql: str | None = None,
        wait: float = 0.0,
        bulk: bool = False,
    ) -> Batch:
        """Up to `count` messages, starting at `offset`. If there is none, the broker waits up to `wait` seconds.

        Brokers limit an answer to 32 messages. With `bulk`, Kourou's limit it by bytes alone, and serve other clients
        first.

        Raises RefusedError, TransportError, NoBrokerError, InvalidExpressionError.
        """
        queue = await self._known(queue)
        wanted = subscription(queue.topic, tags, sql)
        how = Pull(
            group=self.group, subscription=wanted, batch=count, suspend=wait, with_subscription=True, is_bulk=bulk
        )
        pulled = await pull(self._session, how, queue, offset)
        unwrap = self._session.unwrap
        limit = self._session.settings.max_body
        messages = [
            Delivery(record, queue, unwrap(delivered_topic(record)), None, max_body=limit) for record in pulled.records
        ]
        if wanted.tags_set:
            messages = [message for message in messages if message.tag in wanted.tags_set]
        return Batch(messages, pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)

    async def _known(self, queue: MessageQueue) -> MessageQueue:
        """The queue with the names that brokers know. Fetches its route if necessary."""
        queue = MessageQueue(self._session.wrap(queue.topic), queue.broker_name, queue.queue_id)
        self._session.use(queue.topic)
        if self._session.routes.cached(queue.topic) is None:
            await self._session.routes.refresh(queue.topic)
        return queue

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await max_offset(self._session, await self._known(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still stored."""
        return await min_offset(self._session, await self._known(queue))

    async def search_offset(self, queue: MessageQueue, when: datetime | float) -> int:
        """The offset of the first message stored at this time (a datetime, or seconds since the epoch) or later."""
        seconds = when.timestamp() if isinstance(when, datetime) else when
        return await search_offset(self._session, await self._known(queue), round(seconds * 1000))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset; None if it has none in this queue."""
        return await self._offsets.read(await self._known(queue))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """The group has consumed everything before `offset`."""
        await self._offsets.reset(await self._known(queue), offset)

    async def close(self) -> None:
        """Does nothing: there is nothing to release."""

    async def __aenter__(self) -> "PullConsumer":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
