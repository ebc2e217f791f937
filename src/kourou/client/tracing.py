"""Traces: what happened to each message at its producer and its consumers, as messages to a trace topic.

A trace message contains records (`protocol/traces.py`); `mqadmin queryMsgTraceById` and dashboards find them by the ids
in its keys. The topic is RMQ_SYS_TRACE_TOPIC, or `trace_topic` of the settings. Nothing is recorded of messages whose
broker has `traceOn=false`.

Traces never delay a message: they are collected, sent every five seconds or when they fill a message, and dropped if
they can't be sent. Java: AsyncTraceDispatcher, TraceDataEncoder.
"""

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Final

from kourou.client.outgoing import Draft, Message
from kourou.client.producer import Producer
from kourou.client.results import SendResult
from kourou.client.session import Session
from kourou.client.settings import ProducerSettings
from kourou.protocol.codes import SysFlag
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.traces import END_TRANSACTION, PUB, RECALL, SUB_AFTER, SUB_BEFORE, encode_trace

if TYPE_CHECKING:
    from kourou.client.consumer import Consumer
    from kourou.client.delivery import Delivery

log = logging.getLogger(__name__)

FLUSH_S: Final = 5.0
MESSAGE_SIZE: Final = 128_000
RECORDS_MAX: Final = 20_000
"""Records that may wait to be sent; when there are more, new ones are dropped."""

NO_REGION: Final = "DefaultRegion"
_SUCCESS, _FAILED = "0", "4"  # Java: ConsumeReturnType SUCCESS, FAILED
_COMMITTED = 2  # Java: MessageType.Trans_msg_Commit
_STATES: Final = {
    int(SysFlag.TRANSACTION_COMMIT): "COMMIT_MESSAGE",
    int(SysFlag.TRANSACTION_ROLLBACK): "ROLLBACK_MESSAGE",
}


class Tracer:
    """Collects and sends the traces of one client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        settings = ProducerSettings(compress_from=None, timeout=5.0)
        self._producer = Producer(session, "_INNER_TRACE_PRODUCER-kourou", settings)
        self._producer.has_spans = False
        self._records: list[tuple[str, str, list[str]]] = []  # topic, record, keys
        self._size = 0
        self._full = asyncio.Event()
        self._task = session.spawn(self._run(), "traces")

    def watch(self, producer: Producer) -> None:
        """Trace the messages of this producer."""

        def sent(prepared: Draft, queue: MessageQueue, result: SendResult | None, elapsed: float) -> None:
            self._sent(producer, prepared, queue, result, elapsed)

        producer.on_sent = sent
        producer.on_ended = lambda *ended: self._ended(producer, *ended)
        producer.on_recalled = lambda topic, message_id: self._recalled(producer, topic, message_id)

    def watch_consumer(self, consumer: "Consumer") -> None:
        """Trace the messages of this consumer."""
        topic = consumer.settings.trace_topic
        consumer.on_taken = lambda delivery: self._taken(topic, consumer.group, delivery)
        consumer.on_settled = lambda delivery, ok: self._settled(topic, consumer.group, delivery, ok)

    def _sent(
        self, producer: Producer, prepared: Draft, queue: MessageQueue, result: SendResult | None, elapsed: float
    ) -> None:
        if result is not None and not result.is_traced:
            return
        cost = round(elapsed * 1000)
        for message_id in prepared.ids.split(","):
            self._add(
                producer.settings.trace_topic,
                [message_id, *prepared.keys.split()],
                PUB,
                _now_ms() - cost,
                (result and result.region) or NO_REGION,
                producer.group,
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

    def _ended(
        self, producer: Producer, queue: MessageQueue, message_id: str, transaction_id: str, state: int, checked: bool
    ) -> None:
        """A broker was told the outcome of a transaction; `checked`: because it asked."""
        self._add(
            producer.settings.trace_topic,
            [message_id],
            *(END_TRANSACTION, _now_ms(), NO_REGION, producer.group, self._session.unwrap(queue.topic), message_id),
            *("", "", self._address(queue), _COMMITTED, transaction_id, _STATES.get(state, "UNKNOW")),
            "true" if checked else "false",
        )

    def _recalled(self, producer: Producer, topic: str, message_id: str) -> None:
        self._add(
            producer.settings.trace_topic,
            [message_id],
            *(RECALL, _now_ms(), NO_REGION, producer.group, topic, message_id, "true"),
        )

    def _taken(self, topic: str, group: str, delivery: "Delivery") -> None:
        properties = delivery.properties
        if properties.get("TRACE_ON") == "false":
            return
        keys = properties.get("KEYS", "")
        request_id = properties["_trace"] = uuid.uuid4().hex.upper()
        region = properties.get("MSG_REGION", NO_REGION)
        message_id = delivery.message_id
        self._add(
            topic,
            [message_id, *keys.split()],
            *(SUB_BEFORE, _now_ms(), region, group, request_id, message_id, delivery.reconsume_times, keys),
        )

    def _settled(self, topic: str, group: str, delivery: "Delivery", ok: bool) -> None:
        if delivery.properties.get("TRACE_ON") == "false":
            return
        keys = delivery.properties.get("KEYS", "")
        request_id = delivery.properties.pop("_trace", "")
        cost = round((time.monotonic() - delivery.started) * 1000)
        message_id = delivery.message_id
        self._add(
            topic,
            [message_id, *keys.split()],
            *(SUB_AFTER, request_id, message_id, cost, "true" if ok else "false", keys),
            *(_SUCCESS if ok else _FAILED, _now_ms(), group),
        )

    def _address(self, queue: MessageQueue) -> str:
        try:
            return self._session.routes.master_of(queue)
        except KourouError:
            return queue.broker_name

    def _add(self, topic: str, keys: list[str], *fields: object) -> None:
        if len(self._records) >= RECORDS_MAX:
            return
        record = encode_trace(*fields)
        self._records.append((topic, record, keys))
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
        by_topic: dict[str, list[tuple[str, list[str]]]] = {}
        for topic, record, names in records:
            by_topic.setdefault(topic, []).append((record, names))
        for topic, found in by_topic.items():
            await self._flush(topic, found)

    async def _flush(self, topic: str, records: list[tuple[str, list[str]]]) -> None:
        text: list[str] = []
        keys: dict[str, None] = {}
        size = 0
        for record, names in records:
            if text and (size + len(record) > MESSAGE_SIZE or len(keys) > 400):
                await self._send(topic, text, keys)
                text, keys, size = [], {}, 0
            text.append(record)
            size += len(record)
            keys.update(dict.fromkeys(names))
        if text:
            await self._send(topic, text, keys)

    async def _send(self, topic: str, text: list[str], keys: dict[str, None]) -> None:
        try:
            await self._producer.send(topic, Message(body="".join(text).encode(), keys=list(keys)))
        except KourouError as error:
            log.warning("%d trace records lost: %s", len(text), error)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.flush()
        await self._producer.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
