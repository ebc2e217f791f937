"""The client without asyncio, its topics and its transactions."""

import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, Unpack

from kourou.client import (
    Client as AsyncClient,
    ClientSettings,
    ClosedError,
    ConsumerOptions,
    ConsumerSettings,
    Delivery as AsyncDelivery,
    Message,
    ProducerSettings,
    SendResult,
    Serializer,
    TlsSettings,
    Topic as AsyncTopic,
    Transaction as AsyncTransaction,
    TypedDelivery as AsyncTypedDelivery,
    connect as connect_async,
)
from kourou.client.client import Topics
from kourou.client.events import ConnectionCallback
from kourou.client.metrics import ClientMetrics
from kourou.client.serializing import SendManyOptions, SendOptions
from kourou.client.user_calls import is_called_by
from kourou.sync.admin import Admin
from kourou.sync.consumers import Consumer, Listening, LitePullConsumer, PullConsumer, TypedConsumer
from kourou.sync.deliveries import Delivery, TypedDelivery
from kourou.sync.loop import Loop
from kourou.sync.methods import Part, calls, documented_by, makes, waits
from kourou.sync.producer import Producer

T = TypeVar("T")


def connect(
    name_servers: str | Sequence[str] | None = None,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    security_token: str | None = None,
    tls: bool | TlsSettings = False,
    namespace: str | None = None,
    instance_name: str | None = None,
    unit_name: str | None = None,
    discovery_url: str | None = None,
    producer_group: str = "KOUROU_PRODUCER",
    producer: ProducerSettings | None = None,
    max_body: int | None = None,
    on_connection: ConnectionCallback | None = None,
    settings: ClientSettings | None = None,
) -> "Client":
    return Client(
        connect_async(
            name_servers,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            tls=tls,
            namespace=namespace,
            instance_name=instance_name,
            unit_name=unit_name,
            discovery_url=discovery_url,
            producer_group=producer_group,
            producer=producer,
            max_body=max_body,
            on_connection=on_connection,
            settings=settings,
        )
    )


connect.__doc__ = connect_async.__doc__


class Transaction(Part[AsyncTransaction]):
    """`with mq.transaction(...) as tx`: commits on leaving, rolls back on an exception."""

    send = waits(AsyncTransaction.send)
    commit = waits(AsyncTransaction.commit)
    rollback = waits(AsyncTransaction.rollback)
    leave_open = waits(AsyncTransaction.leave_open)
    has_ended = calls(AsyncTransaction.has_ended)

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._loop.run(self._inner.__aexit__(kind, error, trace))


@documented_by(AsyncTopic)
class Topic(Part[AsyncTopic[T]], Generic[T]):
    """A topic whose bodies are values of one type."""

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def serializer(self) -> Serializer[T]:
        return self._inner.serializer

    def encode(self, value: T) -> bytes:
        return self._inner.encode(value)

    def send(self, value: T, **options: Unpack[SendOptions]) -> SendResult:
        return self._loop.run(self._inner.send(value, **options))

    def send_many(self, values: Iterable[T], **options: Unpack[SendManyOptions]) -> list[SendResult]:
        return self._loop.run(self._inner.send_many(values, **options))

    def send_batch(self, values: Iterable[T], **options: Unpack[SendManyOptions]) -> list[SendResult]:
        return self._loop.run(self._inner.send_batch(values, **options))

    def consume(
        self,
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> TypedConsumer[T]:
        inner = self._loop.call(
            lambda: self._inner.consume(group=group, tags=tags, sql=sql, settings=settings, **options)
        )
        return TypedConsumer(inner, self._loop)

    def listen(
        self,
        listener: Callable[[TypedDelivery[T]], object],
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Listening:
        def one(message: AsyncTypedDelivery[T]) -> None:
            listener(TypedDelivery(message, self._loop))

        inner = self._loop.run(self._inner.listen(one, group=group, tags=tags, sql=sql, settings=settings, **options))
        return Listening(inner, self._loop)


@documented_by(AsyncClient)
class Client(Part[AsyncClient]):
    """Made by `connect`; use it with `with`. Closing it closes its producers and consumers."""

    def __init__(self, inner: AsyncClient) -> None:
        super().__init__(inner, Loop())
        self._state = "new"

    producer = makes(AsyncClient.producer, Producer)
    send = waits(AsyncClient.send)
    send_many = waits(AsyncClient.send_many)
    send_batch = waits(AsyncClient.send_batch)
    send_one_way = waits(AsyncClient.send_one_way)
    recall = waits(AsyncClient.recall)
    transaction = makes(AsyncClient.transaction, Transaction)
    transaction_check = waits(AsyncClient.transaction_check)
    consume = makes(AsyncClient.consume, Consumer)
    pull = makes(AsyncClient.pull, PullConsumer)
    lite_pull = makes(AsyncClient.lite_pull, LitePullConsumer)

    def start(self) -> None:
        if self._state != "new":
            raise ClosedError("a client is started only once: make a new one")
        self._state = "running"
        self._loop.start()
        self._loop.run(self._inner.__aenter__())

    def close(self) -> None:
        if self._state == "running":
            self._state = "closed"
            if self._loop.is_forked:
                return  # it is the parent's to close
            if is_called_by(self._inner.session):  # a listener would wait for itself; a thread of its own waits for it
                work = contextvars.Context().run
                threading.Thread(target=work, args=(self._close,), name="kourou-sync close").start()
            else:
                self._close()

    def _close(self) -> None:
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function with the asyncio client, for features without a method here.

        mq.run(lambda mq: mq.admin.topics.list())
        """
        return self._loop.run(work(self._inner))

    @property
    def admin(self) -> Admin:
        """Administration, by the names of `kourou.client.admin`: `mq.admin.topics.create("orders")`.

        Its asynchronous iterators are lists here.
        """
        return self._loop.call(lambda: Admin(self._inner.admin, self._loop))

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def metrics(self) -> ClientMetrics:
        return self._inner.metrics

    def request(
        self,
        topic: str,
        body: bytes | Message,
        *,
        timeout: float = 3.0,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> Delivery:
        reply = self._loop.run(
            self._inner.request(
                topic,
                body,
                timeout=timeout,
                tag=tag,
                keys=keys,
                properties=properties,
                ordering_key=ordering_key,
            )
        )
        return Delivery(reply, self._loop)

    def reply(self, request: Delivery, body: bytes | Message) -> SendResult:
        return self._loop.run(self._inner.reply(request.inner, body))

    def consume_as(
        self,
        serializer: Serializer[T],
        topics: Topics,
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> TypedConsumer[T]:
        inner = self._loop.call(
            lambda: self._inner.consume_as(
                serializer, topics, group=group, tags=tags, sql=sql, settings=settings, **options
            )
        )
        return TypedConsumer(inner, self._loop)

    def topic(self, name: str, serializer: Serializer[T]) -> Topic[T]:
        return Topic(self._inner.topic(name, serializer), self._loop)

    def listen(
        self,
        topics: Topics,
        listener: Callable[[Delivery], object] | None = None,
        *,
        group: str,
        batch_listener: Callable[[list[Delivery]], object] | None = None,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Listening:
        """Call a function with each message, in threads: `concurrency` (20) of them."""

        def one(message: AsyncDelivery) -> None:
            assert listener is not None
            listener(Delivery(message, self._loop))

        def several(messages: list[AsyncDelivery]) -> None:
            assert batch_listener is not None
            batch_listener([Delivery(message, self._loop) for message in messages])

        inner = self._loop.run(
            self._inner.listen(
                topics,
                one if listener is not None else None,
                batch_listener=several if batch_listener is not None else None,
                group=group,
                tags=tags,
                sql=sql,
                settings=settings,
                **options,
            )
        )
        return Listening(inner, self._loop)
