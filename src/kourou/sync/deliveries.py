"""Messages that are delivered to consumers without asyncio."""

from contextlib import suppress
from typing import Generic, Self, TypeVar

from kourou.client import ClosedError, Delivery as AsyncDelivery, MessageQueue, TypedDelivery as AsyncTypedDelivery
from kourou.client.delivery import settle_failure
from kourou.protocol.record import StoredMessage
from kourou.sync.loop import Loop
from kourou.sync.methods import Part, documented_by

T = TypeVar("T")
DeliveryT = TypeVar("DeliveryT", bound="Delivery")


@documented_by(AsyncDelivery)
class Delivery(Part[AsyncDelivery]):
    """A message. It has the attributes of `kourou.client.Delivery`."""

    __slots__ = ()

    @property
    def body(self) -> bytes:
        return self._inner.body

    @property
    def properties(self) -> dict[str, str]:
        return self._inner.properties

    @property
    def topic(self) -> str:
        """The topic that the producer sent the message to."""
        return self._inner.topic

    @property
    def tag(self) -> str | None:
        return self._inner.tag

    @property
    def keys(self) -> list[str]:
        return self._inner.keys

    @property
    def message_id(self) -> str:
        return self._inner.message_id

    @property
    def offset_id(self) -> str:
        return self._inner.offset_id

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was pulled from: of its topic, or of the group's retry topic."""
        return self._inner.queue

    @property
    def queue_id(self) -> int:
        return self._inner.queue_id

    @property
    def queue_offset(self) -> int:
        return self._inner.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How many times consumers of this group have failed to process the message."""
        return self._inner.reconsume_times

    @property
    def born_ms(self) -> int:
        return self._inner.born_ms

    @property
    def stored_ms(self) -> int:
        return self._inner.stored_ms

    @property
    def ordering_key(self) -> str | None:
        return self._inner.ordering_key

    @property
    def flag(self) -> int:
        return self._inner.flag

    @property
    def sys_flag(self) -> int:
        return self._inner.sys_flag

    @property
    def physical_offset(self) -> int:
        return self._inner.physical_offset

    @property
    def born_host(self) -> str:
        return self._inner.born_host

    @property
    def store_host(self) -> str:
        return self._inner.store_host

    @property
    def transaction_id(self) -> str | None:
        return self._inner.transaction_id

    @property
    def record(self) -> StoredMessage:
        """The record as the broker stores it."""
        return self._inner.record

    @property
    def settled(self) -> bool:
        """Whether the message was acknowledged, given back or moved to the dead letters."""
        return self._inner.settled

    @property
    def inner(self) -> AsyncDelivery:
        """The asyncio object of the message."""
        return self._inner

    def ack(self) -> None:
        self._loop.call(self._inner.ack)

    def retry(self, delay_level: int = 0) -> None:
        self._loop.wait(lambda: self._inner.retry(delay_level))

    def dead_letter(self) -> None:
        self._loop.wait(self._inner.dead_letter)

    def release(self) -> None:
        self._loop.call(self._inner.release)

    def process(self, *, suppress: bool = False) -> "Processing[Self]":
        """`with message.process():` acknowledges at the end; an exception means retry, and is raised again.

        With `suppress` the exception is logged and not raised.
        """
        return Processing(self, self._loop, suppress)

    def __repr__(self) -> str:
        return repr(self._inner)


class Processing(Generic[DeliveryT]):
    """See `Delivery.process`."""

    def __init__(self, delivery: DeliveryT, loop: Loop, suppress: bool = False) -> None:
        self._delivery = delivery
        self._loop = loop
        self._suppress = suppress

    def __enter__(self) -> DeliveryT:
        return self._delivery

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._delivery.ack()
            return False
        if not isinstance(error, Exception):
            with suppress(ClosedError):
                self._delivery.release()
            return False
        return self._loop.run(settle_failure(self._delivery.inner, error, suppress=self._suppress))


@documented_by(AsyncTypedDelivery)
class TypedDelivery(Delivery, Generic[T]):
    """A message whose body is a value of one type."""

    __slots__ = ()

    @property
    def value(self) -> T:
        inner: AsyncTypedDelivery[T] = self._inner  # type: ignore[assignment]
        return inner.value
