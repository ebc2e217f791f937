"""Finding messages: by id, by key, by offset, by time."""

import time
from collections.abc import AsyncIterator
from datetime import datetime

from kourou.client.admin.requests import AdminRequests
from kourou.client.delivery import Delivery, delivered_topic
from kourou.client.filters import subscription
from kourou.client.pulling import Pull, PullStatus, pull, records_of
from kourou.client.queue_bounds import max_offset, min_offset, search_offset
from kourou.protocol.bodies import QueryConsumeQueueResponseBody
from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import QueryNotFoundError
from kourou.protocol.headers import QueryConsumeQueue, QueryMessage, ResumeCheckHalfMessage, ViewMessage
from kourou.protocol.ids import decode_offset_id
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import StoredMessage
from kourou.protocol.system_names import TOOLS_GROUP

FOREVER_MS = 2**63 - 1
QUERY_MAX = 64
"""Messages that brokers return per query at most; when asked for more, they return fewer."""


class Messages:
    """`mq.admin.messages`. The messages that it returns need not be settled."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    def _delivery(self, record: StoredMessage, broker: str = "") -> Delivery:
        queue = MessageQueue(record.topic, broker, record.queue_id)
        session = self._ask.session
        topic = session.unwrap(delivered_topic(record))
        return Delivery(record, queue, topic, None, max_body=session.settings.max_body)

    def _records(self, body: bytes, count: int) -> list[StoredMessage]:
        """The first `count` records of an answer's body."""
        return records_of(body, count=count, max_body=self._ask.session.settings.max_body)

    async def by_id(self, message_id: str, topic: str | None = None) -> Delivery | None:
        """The message with this id: its unique id, which its producer received, or its offset id.

        A unique id needs the topic. None if there is no such message.
        """
        if topic is not None:
            found = await self.by_unique_key(topic, message_id)
            if found:
                return found[0]
        return await self.by_offset_id(message_id, topic)

    async def by_offset_id(self, offset_id: str, topic: str | None = None) -> Delivery | None:
        """The message with this offset id. Raises ProtocolError if the id is malformed, TransportError.

        Only brokers of the cluster are asked: raises NoBrokerError if the id names another server.
        """
        place = decode_offset_id(offset_id)
        address = await self._ask.broker_in_id(offset_id)
        header = ViewMessage(offset=place.offset, topic=None if topic is None else self._ask.session.wrap(topic))
        try:
            answer = await self._ask.broker(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except QueryNotFoundError:
            return None
        records = self._records(answer.body, 1)
        return self._delivery(records[0]) if records else None

    async def by_unique_key(self, topic: str, message_id: str) -> list[Delivery]:
        """The messages with this unique id; more than one if a send was repeated."""
        found = await self._query(topic, message_id, 32, 0, FOREVER_MS, unique=True)
        return [message for message in found if message.message_id == message_id]

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        count: int = QUERY_MAX,
        begin: datetime | float | None = None,
        end: datetime | float | None = None,
    ) -> list[Delivery]:
        """The messages with this key, the oldest first; `count` from each broker, at most."""
        begin_ms = 0 if begin is None else _ms(begin)
        end_ms = FOREVER_MS if end is None else _ms(end)
        found = await self._query(topic, key, count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys]

    async def by_tag(
        self,
        topic: str,
        tag: str,
        *,
        count: int = QUERY_MAX,
        begin: datetime | float | None = None,
        end: datetime | float | None = None,
    ) -> list[Delivery]:
        """The same for messages with this tag. Brokers have tags in their index since 5.5."""
        begin_ms = 0 if begin is None else _ms(begin)
        end_ms = FOREVER_MS if end is None else _ms(end)
        found = await self._query(topic, tag, count, begin_ms, end_ms, unique=False, kind="T")
        return [message for message in found if message.tag == tag]

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, unique: bool, kind: str | None = None
    ) -> list[Delivery]:
        header = QueryMessage(
            topic=self._ask.session.wrap(topic),
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key=unique,
            index_type=kind,
        )
        found: list[Delivery] = []
        for broker in (await self._ask.route(topic)).data.broker_datas:
            if not broker.broker_addrs:
                continue
            address = broker.broker_addrs.get(0) or next(iter(broker.broker_addrs.values()))
            try:
                answer = await self._ask.broker(address, RequestCode.QUERY_MESSAGE, header)
            except QueryNotFoundError:
                continue
            found += [self._delivery(record, broker.broker_name or "") for record in self._records(answer.body, count)]
        return sorted(found, key=lambda message: message.stored_ms)

    async def by_offset(self, queue: MessageQueue, offset: int) -> Delivery | None:
        """The message at this offset of a queue; None if there is none."""
        async for message in self.scan(queue, offset, offset + 1):
            return message
        return None

    async def scan(
        self, queue: MessageQueue, begin: int | None = None, end: int | None = None, *, tags: str | None = None
    ) -> AsyncIterator[Delivery]:
        """The messages of a queue from one offset up to another, or to its present end."""
        session = self._ask.session
        queue = MessageQueue(session.wrap(queue.topic), queue.broker_name, queue.queue_id)
        session.use(queue.topic)
        await self._ask.route(queue.topic)
        offset = await min_offset(session, queue) if begin is None else begin
        stop = await max_offset(session, queue) if end is None else end
        wanted = subscription(queue.topic, tags)
        how = Pull(group=TOOLS_GROUP, subscription=wanted, with_subscription=True)
        while offset < stop:
            pulled = await pull(session, how, queue, offset)
            for record in pulled.records:
                if record.queue_offset >= stop:
                    return
                message = self._delivery(record, queue.broker_name)
                if not wanted.tags_set or message.tag in wanted.tags_set:
                    yield message
            if pulled.status is PullStatus.NOTHING_NEW or pulled.next_offset <= offset:
                return
            offset = pulled.next_offset

    async def by_time(
        self,
        topic: str,
        begin: datetime | float,
        end: datetime | float | None = None,
        *,
        tags: str | None = None,
    ) -> AsyncIterator[Delivery]:
        """The messages of a topic that were stored in a period of time, queue by queue."""
        end_ms = _ms(time.time() if end is None else end)
        for queue in (await self._ask.route(topic)).subscribe:
            first = await search_offset(self._ask.session, queue, _ms(begin))
            async for message in self.scan(queue, first, tags=tags):
                if message.stored_ms > end_ms:
                    break
                if message.stored_ms >= _ms(begin):
                    yield message

    async def queue_entries(
        self, broker: str, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue on one broker, as they are stored."""
        header = QueryConsumeQueue(
            topic=self._ask.session.wrap(queue.topic),
            queue_id=queue.queue_id,
            index=index,
            count=count,
            consumer_group=group,
        )
        return await self._ask.body(QueryConsumeQueueResponseBody, broker, RequestCode.QUERY_CONSUME_QUEUE, header)

    async def resume_check(self, topic: str, message_id: str) -> None:
        """Let a broker check a half message again, given by its offset id, after it has given up on it."""
        header = ResumeCheckHalfMessage(topic=self._ask.session.wrap(topic), msg_id=message_id)
        address = await self._ask.broker_in_id(message_id)
        await self._ask.broker(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


def _ms(when: datetime | float) -> int:
    return round((when.timestamp() if isinstance(when, datetime) else when) * 1000)


__all__ = ["Messages"]
