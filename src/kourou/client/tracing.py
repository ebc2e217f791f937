"""Traces: what happened to each message at its producer and its consumers, as messages to RMQ_SYS_TRACE_TOPIC.

A trace message contains records; `mqadmin queryMsgTraceById` and dashboards find them by the ids in its keys.

    record      field 0x01 field 0x01 … 0x02
    Pub         time region group topic id tags keys store-host body-size cost type offset-id success
    SubBefore   time region group request-id id retry-times keys
    SubAfter    request-id id cost success keys context-code time group

Traces never delay a message: they are collected, sent every five seconds or when they fill a message, and dropped if
they can't be sent. Java: AsyncTraceDispatcher, TraceDataEncoder.
"""

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Final

from kourou.client.naming import TRACE_TOPIC
from kourou.client.outgoing import Draft, Message
from kourou.client.producer import Producer
from kourou.client.results import SendResult
from kourou.client.session import Session
from kourou.client.settings import ProducerSettings
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer
    from kourou.client.delivery import Delivery

log = logging.getLogger(__name__)

FLUSH_S: Final = 5.0
MESSAGE_SIZE: Final = 128_000
RECORDS_MAX: Final = 20_000
"""Records that may wait to be sent; when there are more, new ones are dropped."""

NO_REGION: Final = "DefaultRegion"
_SUCCESS, _FAILED = "0", "3"  # Java: ConsumeReturnType SUCCESS, FAILED


class Tracer:
    """Collects and sends the traces of one client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        settings = ProducerSettings(compress_from=None, timeout=5.0)
        self._producer = Producer(session, "_INNER_TRACE_PRODUCER-kourou", settings)
        self._records: list[tuple[str, list[str]]] = []
        self._size = 0
        self._full = asyncio.Event()
        self._task = session.spawn(self._run(), "traces")

    def watch(self, producer: Producer) -> None:
        """Trace what this producer sends."""

        def sent(prepared: Draft, queue: MessageQueue, result: SendResult | None, elapsed: float) -> None:
            self._sent(producer.group, prepared, queue, result, elapsed)

        producer.on_sent = sent

    def watch_consumer(self, consumer: "Consumer") -> None:
        """Trace what this consumer does."""
        consumer.on_taken = lambda delivery: self._taken(consumer.group, delivery)
        consumer.on_settled = lambda delivery, ok: self._settled(consumer.group, delivery, ok)

    def _sent(
        self, group: str, prepared: Draft, queue: MessageQueue, result: SendResult | None, elapsed: float
    ) -> None:
        cost = round(elapsed * 1000)
        for message_id in prepared.ids.split(","):
            self._add(
                [message_id, *prepared.keys.split()],
                "Pub",
                _now_ms() - cost,
                (result and result.region) or NO_REGION,
                group,
                self._session.unwrap(prepared.topic),
                message_id,
                prepared.tag,
                prepared.keys,
                self._address(queue),
                prepared.size,
                cost,
                prepared.kind,
                result.offset_id if result else "",
                "true" if result is not None and result.is_safe else "false",
            )

    def _taken(self, group: str, delivery: "Delivery") -> None:
        properties = delivery.properties
        keys = properties.get("KEYS", "")
        request_id = properties["_trace"] = uuid.uuid4().hex.upper()
        region = properties.get("MSG_REGION", NO_REGION)
        message_id = delivery.message_id
        self._add(
            [message_id, *keys.split()],
            *("SubBefore", _now_ms(), region, group, request_id, message_id, delivery.reconsume_times, keys),
        )

    def _settled(self, group: str, delivery: "Delivery", ok: bool) -> None:
        keys = delivery.properties.get("KEYS", "")
        request_id = delivery.properties.pop("_trace", "")
        cost = round((time.monotonic() - delivery.started) * 1000)
        message_id = delivery.message_id
        self._add(
            [message_id, *keys.split()],
            *("SubAfter", request_id, message_id, cost, "true" if ok else "false", keys),
            *(_SUCCESS if ok else _FAILED, _now_ms(), group),
        )

    def _address(self, queue: MessageQueue) -> str:
        try:
            return self._session.routes.master(queue.broker_name)
        except KourouError:
            return queue.broker_name

    def _add(self, keys: list[str], *fields: object) -> None:
        if len(self._records) >= RECORDS_MAX:
            return
        record = "\x01".join(map(str, fields)) + "\x02"
        self._records.append((record, keys))
        self._size += len(record)
        if self._size >= MESSAGE_SIZE:
            self._full.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            await self.flush()

    async def flush(self) -> None:
        """Send the collected records."""
        self._full.clear()
        records, self._records, self._size = self._records, [], 0
        text: list[str] = []
        keys: dict[str, None] = {}
        size = 0
        for record, names in records:
            if text and (size + len(record) > MESSAGE_SIZE or len(keys) > 400):
                await self._send(text, keys)
                text, keys, size = [], {}, 0
            text.append(record)
            size += len(record)
            keys.update(dict.fromkeys(names))
        if text:
            await self._send(text, keys)

    async def _send(self, text: list[str], keys: dict[str, None]) -> None:
        try:
            await self._producer.send(TRACE_TOPIC, Message(body="".join(text).encode(), keys=list(keys)))
        except KourouError as error:
            log.warning("%d trace records lost: %s", len(text), error)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.flush()
        await self._producer.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
