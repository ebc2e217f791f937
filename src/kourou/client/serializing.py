"""Values instead of bytes: a topic whose bodies are all of one type.

    orders = mq.topic("orders", Json(Order))
    await orders.send(Order(42), tag="paid")
    async for message in orders.consume(group="billing"):
        async with message.process():
            message.value                       # an Order

A serializer is anything with `encode(value) -> bytes` and `decode(body) -> value`. A body is decoded when `value` is
first used, inside `process`: a message whose body can't be decoded fails like any other, and becomes a dead letter
in the end.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from kourou.client.assigned_queue import AssignedQueue
from kourou.client.consumer import Consumer
from kourou.client.delivery import Delivery, Settler
from kourou.client.errors import InvalidMessageError
from kourou.client.listeners import Listening
from kourou.client.outgoing import Message
from kourou.client.results import SendResult
from kourou.client.selecting import Selector
from kourou.client.settings import ConsumerOptions, ConsumerSettings
from kourou.protocol.errors import BodyError, KourouError
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from kourou.client.client import Client
    from kourou.client.session import Session

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Encodes values of one type to bodies, and back. Exceptions become an InvalidMessageError or a BodyError."""

    def encode(self, value: T, /) -> bytes: ...

    def decode(self, body: bytes, /) -> T: ...


class Json(Generic[T]):
    """JSON, by msgspec: of dataclasses, attrs classes, TypedDicts, msgspec Structs and their members.

    `Json(Order)` validates what it reads; `Json()` reads anything, as dicts, lists, strings and numbers.
    """

    @overload
    def __init__(self: "Json[Any]") -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def encode(self, value: T, /) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, /) -> T:
        return cast(T, self._decoder.decode(body))


class Text:
    """Strings, in UTF-8."""

    def encode(self, value: str, /) -> bytes:
        return value.encode()

    def decode(self, body: bytes, /) -> str:
        return body.decode()


class SendOptions(TypedDict, total=False):
    """The options of `Client.send`."""

    tag: str | None
    keys: "str | Sequence[str]"
    properties: "Mapping[str, str] | None"
    ordering_key: str | None
    queue: MessageQueue | None
    selector: Selector | None
    delay: "timedelta | None"
    deliver_at: "datetime | None"
    delay_level: int
    flag: int
    timeout: float | None


class SendManyOptions(TypedDict, total=False):
    """The options of `Client.send_many`."""

    ordering_key: str | None
    queue: MessageQueue | None
    selector: Selector | None
    timeout: float | None


class TypedDelivery(Delivery, Generic[T]):
    """A message whose body is a value: see `Delivery` for the rest."""

    __slots__ = ("_serializer", "_value")

    def __init__(
        self,
        record: StoredMessage,
        queue: MessageQueue,
        topic: str,
        settler: Settler | None,
        source: object,
        max_body: int,
        serializer: Serializer[T],
    ) -> None:
        super().__init__(record, queue, topic, settler, source, max_body)
        self._serializer = serializer
        self._value: tuple[T] | None = None

    @property
    def value(self) -> T:
        """The decoded body. Raises BodyError if it can't be decoded."""
        if self._value is None:
            body = self.body
            try:
                self._value = (self._serializer.decode(body),)
            except KourouError:
                raise
            except Exception as error:
                raise BodyError(
                    f"the body of message {self.message_id} of topic {self.topic!r} can't be decoded: {error}"
                ) from error
        return self._value[0]


class TypedConsumer(Consumer, Generic[T]):
    """A consumer whose messages have values."""

    def __init__(
        self, session: "Session", group: str, topics: Any, settings: ConsumerSettings, serializer: Serializer[T]
    ) -> None:
        super().__init__(session, group, topics, settings)
        self._serializer = serializer

    def delivery(
        self, record: StoredMessage, queue: MessageQueue, topic: str, settler: Settler, assigned: AssignedQueue | None
    ) -> Delivery:
        limit = self.session.settings.max_body
        return TypedDelivery(record, queue, topic, settler, assigned, limit, self._serializer)

    def __aiter__(self) -> AsyncIterator[TypedDelivery[T]]:
        return cast("AsyncIterator[TypedDelivery[T]]", super().__aiter__())

    async def __anext__(self) -> TypedDelivery[T]:
        return cast("TypedDelivery[T]", await super().__anext__())

    async def next(self, timeout: float | None = None) -> TypedDelivery[T] | None:
        """The next message; None after `timeout` seconds without one, or when the consumer is closed."""
        return cast("TypedDelivery[T] | None", await super().next(timeout))


class Topic(Generic[T]):
    """A topic and the serializer of its bodies. Made by `Client.topic`."""

    def __init__(self, client: "Client", name: str, serializer: Serializer[T]) -> None:
        self._client = client
        self.name = name
        self.serializer = serializer

    def encode(self, value: T) -> bytes:
        """The body of a value. Raises InvalidMessageError."""
        try:
            return self.serializer.encode(value)
        except KourouError:
            raise
        except Exception as error:
            raise InvalidMessageError(
                f"a {type(value).__name__} can't be encoded for topic {self.name!r}: {error}"
            ) from error

    async def send(self, value: T, **options: Unpack[SendOptions]) -> SendResult:
        """Send one value and wait until it is stored: as `Client.send`."""
        return await self._client.send(self.name, self.encode(value), **options)

    async def send_many(self, values: Iterable[T], **options: Unpack[SendManyOptions]) -> list[SendResult]:
        """Send many values, pipelined: as `Client.send_many`."""
        bodies: Iterable[bytes | Message] = map(self.encode, values)
        return await self._client.send_many(self.name, bodies, **options)

    async def send_batch(self, values: Iterable[T], **options: Unpack[SendManyOptions]) -> list[SendResult]:
        """Send values in batches: as `Client.send_batch`."""
        bodies: Iterable[bytes | Message] = map(self.encode, values)
        return await self._client.send_batch(self.name, bodies, **options)

    def consume(
        self,
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> TypedConsumer[T]:
        """The messages of this topic, as a member of a group: as `Client.consume`."""
        return self._client.consume_as(
            self.serializer, self.name, group=group, tags=tags, sql=sql, settings=settings, **options
        )

    async def listen(
        self,
        listener: Callable[[TypedDelivery[T]], object],
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Listening:
        """Call `listener` with each message: as `Client.listen`."""
        consumer = self.consume(group=group, tags=tags, sql=sql, settings=settings, **options)
        return await self._client.listen_with(consumer, cast("Callable[[Delivery], object]", listener))


__all__ = ["Json", "SendManyOptions", "SendOptions", "Serializer", "Text", "Topic", "TypedConsumer", "TypedDelivery"]
