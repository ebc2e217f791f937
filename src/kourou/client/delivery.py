"""A message that was delivered to a consumer, and how it is settled.

A delivery is settled once: by `ack`, by `retry`, by `dead_letter`, or at the end of `process`. Until then the offset of
its queue is not moved past it, so the message is delivered again after a crash. When its queue has moved to another
consumer in the meantime, settling it has no effect and raises nothing.

`ack`, `retry` and `dead_letter` work alike: the call itself settles the message. The returned object may be awaited; it
is done when the broker has the outcome, if the broker needs it. Forgetting the `await` loses nothing.

The body and the properties are decoded at their first use: a consumer that only reads the keys never decompresses a
body.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from kourou.client.spans import processing
from kourou.protocol import properties as _properties
from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from kourou.protocol.errors import BodyError
from kourou.protocol.hosts import decode_host
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import KEY_SEPARATOR, Property
from kourou.protocol.record import StoredMessage

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

DeliveryT = TypeVar("DeliveryT", bound="Delivery")


class RetryLater(Exception):
    """Raised by a listener or inside `process`: deliver the message again, after the delay of this level."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"retry later, delay level {delay_level}")
        self.delay_level = delay_level


class DeadLetter(Exception):
    """Raised by a listener or inside `process`: move the message to the dead letters."""


class Settling:
    """The result of settling a message. The message is settled whether this is awaited or not."""

    __slots__ = ("_task",)

    def __init__(self, task: "asyncio.Task[None] | None" = None) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from asyncio.shield(self._task).__await__()


SETTLED: Final = Settling()
"""The outcome is known: awaiting it returns at once."""


class Settler(Protocol):
    """Receives the outcome of deliveries."""

    def acked(self, delivery: "Delivery") -> None: ...

    def failed(self, delivery: "Delivery", delay_level: int) -> Settling: ...

    def released(self, delivery: "Delivery") -> None:
        """Its processing was cancelled, and it is not settled."""


class Delivery:
    """A message. Read-only, except that it is settled."""

    __slots__ = (
        "_body",
        "_max_body",
        "_properties",
        "_settler",
        "queue",
        "reconsume_times",
        "record",
        "settled",
        "source",
        "started",
        "topic",
    )

    def __init__(
        self,
        record: StoredMessage,
        queue: MessageQueue,
        topic: str,
        settler: Settler | None,
        source: object = None,
        max_body: int = DECOMPRESSED_LIMIT_BYTES,
    ) -> None:
        self.record = record
        """The record as the broker stores it."""
        self.queue = queue
        """The queue that the message was pulled from: of its topic, or of the group's retry topic."""
        self.topic = topic
        """The topic that the producer sent the message to."""
        self.reconsume_times = record.reconsume_times
        """How many times consumers of this group have failed to process the message."""
        self.settled = False
        self.started = 0.0  # when it was handed out
        self.source = source  # private to the settler
        self._settler = settler
        self._max_body = max_body
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed. Raises BodyError if it is damaged, or larger than `max_body`."""
        body = self._body
        if body is None:
            try:
                body = self._body = decompress(self.record.body, self.record.sys_flag, self._max_body)
            except BodyError as error:
                raise BodyError(f"the body of message {self.message_id} can't be read: {error}") from None
        return body

    @property
    def properties(self) -> dict[str, str]:
        """All properties: the user's and the system's."""
        found = self._properties
        if found is None:
            found = self._properties = _properties.decode(self.record.raw_properties)
        return found

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(Property.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def message_id(self) -> str:
        """The unique id, which its producer received."""
        return self.properties.get(Property.UNIQUE_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id that encodes where the message is stored: broker address and log offset."""
        return encode_offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def physical_offset(self) -> int:
        return self.record.physical_offset

    @property
    def born_ms(self) -> int:
        """When it was sent, by its producer's clock."""
        return self.record.born_ms

    @property
    def stored_ms(self) -> int:
        """When it was stored, by the broker's clock."""
        return self.record.stored_ms

    @property
    def born_host(self) -> str:
        return decode_host(self.record.born_host)

    @property
    def store_host(self) -> str:
        return decode_host(self.record.store_host)

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def sys_flag(self) -> int:
        return self.record.sys_flag

    @property
    def ordering_key(self) -> str | None:
        return self.properties.get(Property.SHARDING_KEY)

    @property
    def transaction_id(self) -> str | None:
        return self.properties.get(Property.UNIQUE_KEY) if Property.TRANSACTION_PREPARED in self.properties else None

    # ── Settling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ack(self) -> Settling:
        """Acknowledge the message: it is consumed. A second call does nothing."""
        if not self.settled:
            self.settled = True
            if self._settler is not None:
                self._settler.acked(self)
        return SETTLED

    def retry(self, delay_level: int = 0) -> Settling:
        """Have the message delivered again after this level's delay; 0 lets the broker choose, longer each time."""
        if self.settled:
            return SETTLED
        self.settled = True
        return SETTLED if self._settler is None else self._settler.failed(self, delay_level)

    def dead_letter(self) -> Settling:
        """Move the message to the group's dead letters; it is not delivered again."""
        return self.retry(-1)

    def release(self) -> None:
        """Processing the message was cancelled: deliver it again soon. This does not count as a failed attempt."""
        if not self.settled and self._settler is not None:
            self._settler.released(self)

    def process(self, *, suppress: bool = False) -> "Processing[Self]":
        """`async with message.process():` acknowledges at the end; an exception means retry, and is raised again.

        With `suppress` the exception is logged instead, so that a loop continues with the next message.
        `RetryLater` and `DeadLetter` say what to do with the message and are never raised again. Cancellation is not a
        failure of the message: it stays unsettled, and is delivered again soon, to this consumer or to the next one of
        its queue.
        """
        return Processing(self, suppress)

    def __repr__(self) -> str:
        return f"<Delivery {self.message_id} topic={self.topic} queue={self.queue_id} offset={self.queue_offset}>"


class Processing(Generic[DeliveryT]):
    """See `Delivery.process`."""

    __slots__ = ("_delivery", "_span", "_suppress")

    def __init__(self, delivery: DeliveryT, suppress: bool = False) -> None:
        self._delivery = delivery
        self._suppress = suppress
        self._span: AbstractContextManager[None] = nullcontext()

    async def __aenter__(self) -> DeliveryT:
        self._span = processing([self._delivery], getattr(self._delivery._settler, "group", None))
        self._span.__enter__()
        return self._delivery

    async def __aexit__(
        self, kind: "type[BaseException] | None", error: BaseException | None, trace: "TracebackType | None"
    ) -> bool:
        self._span.__exit__(kind, error, trace)
        if error is None:
            self._delivery.ack()
            return False
        if not isinstance(error, Exception):
            self._delivery.release()
            return False
        return await settle_failure(self._delivery, error, suppress=self._suppress)


async def settle_failure(delivery: Delivery, error: Exception, *, suppress: bool = True) -> bool:
    """Settles a message after an exception in user code. True if the exception must not be raised again."""
    if isinstance(error, RetryLater):
        await delivery.retry(error.delay_level)
        return True
    if isinstance(error, DeadLetter):
        await delivery.dead_letter()
        return True
    if suppress:
        log_failure(delivery, error)
    await delivery.retry()
    return suppress


def log_failure(delivery: Delivery, error: Exception) -> None:
    log.warning(
        "message failed id=%s topic=%s times=%d",
        delivery.message_id,
        delivery.topic,
        delivery.reconsume_times,
        exc_info=error,
    )


def delivered_topic(record: StoredMessage) -> str:
    """The topic that the message was sent to, even if it was pulled from a retry topic."""
    topic = record.topic
    if topic.startswith("%RETRY%"):
        return _properties.decode(record.raw_properties).get(Property.RETRY_TOPIC, topic)
    return topic
