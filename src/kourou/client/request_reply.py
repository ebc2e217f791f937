"""Request and reply over messages: a request is a message that contains where its reply goes.

    requester ── message (CORRELATION_ID, REPLY_TO_CLIENT) ─▶ topic ─▶ consumer
        ▲                                                                 │ reply
        └── broker pushes it (326) ◀── <cluster>_REPLY_TOPIC ◀────────────┘

The broker finds the requester by its client id, so the requester must have sent it a heartbeat. Java:
DefaultMQProducerImpl.request, MessageUtil.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from kourou.client.delivery import Delivery
from kourou.client.errors import ClosedError, InvalidMessageError, NoReplyError
from kourou.client.outgoing import Message
from kourou.client.producer import Producer, make_message
from kourou.client.results import SendResult
from kourou.client.selecting import selector_of, sharding
from kourou.client.session import Session
from kourou.net.connection import Connection
from kourou.protocol import properties as _properties
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import PushReplyMessage
from kourou.protocol.hosts import encode_host
from kourou.protocol.message import MessageQueue, PhysicalOffset, QueueOffset
from kourou.protocol.properties import Property
from kourou.protocol.record import MAGIC_V1, StoredMessage

REPLY_SUFFIX = "_REPLY_TOPIC"


class Requests:
    """The requests of one client that await a reply."""

    def __init__(self, session: Session, producer: Callable[[], Producer]) -> None:
        self._session = session
        self._make_producer = producer
        self._last_producer: Producer | None = None
        self._waiting: dict[str, asyncio.Future[Delivery]] = {}
        self._announced: set[str] = set()  # topics whose brokers know this client
        session.answer_to(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)

    async def request(
        self,
        topic: str,
        body: bytes | Message,
        *,
        timeout: float,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> Delivery:
        """The reply. Raises NoReplyError; else as `Producer.send`."""
        message = make_message(body, tag=tag, keys=keys, properties=properties)
        producer = self._producer()
        correlation = str(uuid.uuid4())
        extra = {
            Property.CORRELATION_ID: correlation,
            Property.REPLY_TO_CLIENT: self._session.client_id,
            Property.TTL: str(round(timeout * 1000)),
            **sharding(ordering_key),
        }
        prepared = producer.draft(topic, message, extra)
        future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = future
        try:
            async with asyncio.timeout(timeout):
                await self._announce(self._session.wrap(topic))
                fixed = selector_of(self._session, ordering_key)
                await producer.send_draft(prepared, fixed, timeout)
                return await future
        except TimeoutError:
            raise NoReplyError(f"no reply to the request to topic {topic!r} within {timeout:g} s") from None
        finally:
            self._waiting.pop(correlation, None)

    def _producer(self) -> Producer:
        producer = self._make_producer()
        if producer is not self._last_producer:  # brokers removed the closed producer
            self._last_producer = producer
            self._announced.clear()
        return producer

    async def _announce(self, topic: str) -> None:
        if topic not in self._announced:
            await self._session.publish_route(topic)
            await self._session.heartbeat()
            self._announced.add(topic)

    async def reply(self, request: Delivery, body: bytes | Message) -> SendResult:
        """Send a reply. Raises InvalidMessageError if the message is not a request; otherwise as `Producer.send`."""
        asked = request.properties
        cluster, client = asked.get(Property.CLUSTER), asked.get(Property.REPLY_TO_CLIENT)
        if not cluster or not client:
            raise InvalidMessageError(f"message {request.message_id} is not a request: it does not say where to reply")
        extra = {
            Property.MESSAGE_TYPE: "reply",
            Property.CORRELATION_ID: asked.get(Property.CORRELATION_ID, ""),
            Property.REPLY_TO_CLIENT: client,
            Property.TTL: asked.get(Property.TTL, "3000"),
        }
        message = body if isinstance(body, Message) else Message(body=body)
        producer = self._producer()
        prepared = producer.draft(cluster + REPLY_SUFFIX, message, extra)
        prepared.topic = cluster + REPLY_SUFFIX  # a topic of the cluster, outside any namespace
        prepared.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        return await producer.send_draft(prepared, None)

    def close(self) -> None:
        """No reply comes any more: requests that still wait raise ClosedError."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError("the client was closed before a reply came"))

    def _replied(self, connection: Connection, command: Command) -> None:
        header = PushReplyMessage.decode(command.ext)
        properties = header.properties or ""
        future = self._waiting.get(_properties.decode(properties).get(Property.CORRELATION_ID, ""))
        if future is not None and not future.done():
            arrived = f"{Property.ARRIVE_TIME}\x01{time.time_ns() // 1_000_000}\x02"
            text = properties if not properties or properties.endswith("\x02") else properties + "\x02"
            limit = self._session.settings.max_body
            future.set_result(_delivery(header, text + arrived, command.body, limit))
        connection.reply(command.answer())


def _delivery(header: PushReplyMessage, properties: str, body: bytes, max_body: int) -> Delivery:
    record = StoredMessage(
        raw_topic=header.topic.encode(),
        body=body,
        raw_properties=properties.encode(),
        queue_id=header.queue_id,
        queue_offset=QueueOffset(0),
        physical_offset=PhysicalOffset(0),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        stored_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=PhysicalOffset(0),
        body_crc=0,
        magic=MAGIC_V1,
        size=len(body),
    )
    return Delivery(record, MessageQueue(header.topic, "", header.queue_id), header.topic, None, max_body=max_body)


def _host(text: str) -> bytes:
    """Parses an address as Java writes it: `/ip:port`, sometimes with a name before the slash."""
    return encode_host(text.rpartition("/")[2])
