"""The client for code that is not asyncio: the same names, without `await`.

    with kourou.sync.connect("127.0.0.1:9876") as mq:
        mq.send("orders", b"...", tag="paid")
        for message in mq.consume("orders", group="billing"):
            with message.process():
                ...

One event loop in a thread of its own serves one client; calls wait for what they ask of it. A client may be used from
several threads. Whatever is documented for `kourou.client` holds here.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar, Unpack

from kourou.client import (
    Batch,
    Client as AsyncClient,
    ClientSettings,
    ClosedError,
    Consumer as AsyncConsumer,
    ConsumerOptions,
    ConsumerSettings,
    Delivery as AsyncDelivery,
    LitePullConsumer as AsyncLitePullConsumer,
    Message as Message,
    MessageQueue,
    ProducerSettings,
    PullConsumer as AsyncPullConsumer,
    SendResult,
    Serializer,
    TlsSettings,
    Topic as AsyncTopic,
    Transaction as AsyncTransaction,
    TypedConsumer as AsyncTypedConsumer,
    TypedDelivery as AsyncTypedDelivery,
    connect as connect_async,
)
from kourou.client.client import Topics
from kourou.client.delivery import settle_failure
from kourou.client.events import ConnectionCallback
from kourou.client.listeners import Listening as AsyncListening
from kourou.client.metrics import ClientMetrics
from kourou.client.producer import Selector
from kourou.client.serializing import SendManyOptions, SendOptions
from kourou.client.transactions import Checker
from kourou.protocol.record import StoredMessage
from kourou.sync_admin import Admin

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started: Future[None] = Future()

        def run() -> None:
            loop = self._loop = _new_loop()
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set_result, None)
            try:
                loop.run_forever()
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()

        self._thread = threading.Thread(target=run, name="kourou-sync", daemon=True)
        self._thread.start()
        started.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns. An interrupt (Ctrl-C) cancels it."""
        loop = self._loop
        if loop is None or not loop.is_running():
            work.close()
            raise ClosedError("the client is closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for itself: inside of a coroutine, use kourou.client")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def wait(self, begin: Callable[[], Awaitable[T]]) -> T:
        """What comes of an awaitable that is made in the loop's thread."""

        async def work() -> T:
            return await begin()

        return self.run(work())

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs it to its end, if the loop still runs; waits for it, unless this is the loop's own thread."""
        loop = self._loop
        if loop is None or not loop.is_running():
            work.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(work, loop)
        else:
            self.run(work)

    def call(self, function: Callable[[], T]) -> T:
        """What the function returns, called in the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


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
    """As `kourou.connect`."""
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


class Delivery:
    """A message: see `kourou.client.Delivery`, whose attributes it has."""

    __slots__ = ("_inner", "_loop")

    def __init__(self, inner: AsyncDelivery, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    @property
    def body(self) -> bytes:
        return self._inner.body

    @property
    def properties(self) -> dict[str, str]:
        return self._inner.properties

    @property
    def topic(self) -> str:
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
        return self._inner.queue

    @property
    def queue_id(self) -> int:
        return self._inner.queue_id

    @property
    def queue_offset(self) -> int:
        return self._inner.queue_offset

    @property
    def reconsume_times(self) -> int:
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
        """As it is stored."""
        return self._inner.record

    @property
    def settled(self) -> bool:
        return self._inner.settled

    @property
    def inner(self) -> AsyncDelivery:
        """The message as asyncio code has it, with everything else that is known of it."""
        return self._inner

    def ack(self) -> None:
        self._loop.call(self._inner.ack)

    def retry(self, delay_level: int = 0) -> None:
        self._loop.wait(lambda: self._inner.retry(delay_level))

    def dead_letter(self) -> None:
        self._loop.wait(self._inner.dead_letter)

    def process(self, *, suppress: bool = False) -> "Processing":
        """`with message.process():` acks at the end; an exception means retry, and is raised again.

        With `suppress` the exception is logged and goes no further.
        """
        return Processing(self, self._loop, suppress)

    def __repr__(self) -> str:
        return repr(self._inner)


class Processing:
    """See `Delivery.process`."""

    def __init__(self, delivery: Delivery, loop: Loop, suppress: bool = False) -> None:
        self._delivery = delivery
        self._loop = loop
        self._suppress = suppress

    def __enter__(self) -> Delivery:
        return self._delivery

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._delivery.ack()
            return False
        if not isinstance(error, Exception):
            return False
        return self._loop.run(settle_failure(self._delivery.inner, error, suppress=self._suppress))


class TypedDelivery(Delivery, Generic[T]):
    """A message whose body is a value: see `kourou.client.TypedDelivery`."""

    __slots__ = ()

    @property
    def value(self) -> T:
        """The body, decoded. Raises BodyError when it can't be."""
        inner: AsyncTypedDelivery[T] = self._inner  # type: ignore[assignment]
        return inner.value


D_co = TypeVar("D_co", bound=Delivery, covariant=True)


class Messages(Iterator[D_co]):
    """The iterator of one loop. When it is dropped, however the loop ended, its consumer leaves the group."""

    def __init__(self, consumer: "_Consumer[D_co]", inner: AsyncConsumer, loop: Loop) -> None:
        self._consumer = consumer
        self._inner = inner
        self._loop = loop
        loop.call(inner.enter_loop)

    def __next__(self) -> D_co:
        return next(self._consumer)

    def __del__(self) -> None:
        self._loop.finish(self._left())

    async def _left(self) -> None:
        self._inner.leave_loop()
        if self._inner.is_ending:
            await self._inner.close()


class _Consumer(Generic[D_co]):
    """What consumers with and without values share."""

    def __init__(self, inner: AsyncConsumer, loop: Loop, kind: Callable[[AsyncDelivery, Loop], D_co]) -> None:
        self._inner = inner
        self._loop = loop
        self._kind = kind

    def start(self) -> None:
        self._loop.run(self._inner.start())

    def __iter__(self) -> Iterator[D_co]:
        """The messages. A consumer that its loop started leaves the group with it, however the loop ends."""
        self._loop.call(self._inner.check_open)
        return Messages(self, self._inner, self._loop)

    def __next__(self) -> D_co:
        delivery = self._loop.run(self._inner.next())
        if delivery is None:
            raise StopIteration
        return self._kind(delivery, self._loop)

    def next(self, timeout: float | None = None) -> D_co | None:
        """The next message, or None when there is none for `timeout` seconds."""
        delivery = self._loop.run(self._inner.next(timeout))
        return None if delivery is None else self._kind(delivery, self._loop)

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._loop.call(lambda: self._inner.assignment)

    def subscribe(self, topic: str, tags: str | None = None, sql: str | None = None) -> None:
        self._loop.run(self._inner.subscribe(topic, tags, sql))

    def unsubscribe(self, topic: str) -> None:
        self._loop.run(self._inner.unsubscribe(topic))

    def pause(self) -> None:
        self._loop.call(self._inner.pause)

    def resume(self) -> None:
        self._loop.call(self._inner.resume)

    def commit(self) -> None:
        self._loop.run(self._inner.commit())

    def close(self) -> None:
        self._loop.run(self._inner.close())

    def drop(self, queue: MessageQueue) -> None:
        self._loop.run(self._inner.drop(queue))

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._loop.run(self._inner.reset(offsets))

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Consumer(_Consumer[Delivery]):
    """A member of a group: iterate over it. See `kourou.client.Consumer`."""

    def __init__(self, inner: AsyncConsumer, loop: Loop) -> None:
        super().__init__(inner, loop, Delivery)


class TypedConsumer(_Consumer[TypedDelivery[T]], Generic[T]):
    """A consumer whose messages have values. See `kourou.client.TypedConsumer`."""

    def __init__(self, inner: AsyncTypedConsumer[T], loop: Loop) -> None:
        super().__init__(inner, loop, TypedDelivery[T])


class Listening:
    """A consumer whose messages go to a listener."""

    def __init__(self, inner: AsyncListening, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def close(self) -> None:
        self._loop.run(self._inner.close())

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LitePullConsumer(_Consumer[Delivery]):
    """A consumer that is polled: see `kourou.client.LitePullConsumer`."""

    def __init__(self, inner: AsyncLitePullConsumer, loop: Loop) -> None:
        super().__init__(inner, loop, Delivery)
        self._lite = inner

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = None) -> None:
        self._loop.run(self._lite.assign(queues, tags=tags))

    def topic_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._loop.run(self._lite.topic_queues(topic))

    def poll(self, timeout: float = 5.0, *, count: int = 10) -> list[Delivery]:
        return [Delivery(found, self._loop) for found in self._loop.run(self._lite.poll(timeout, count=count))]

    def committed(self, queue: MessageQueue) -> int | None:
        return self._loop.run(self._lite.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._loop.run(self._lite.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        self._loop.run(self._lite.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        self._loop.run(self._lite.seek_to_end(queue))

    def offset_for_time(self, queue: MessageQueue, when: datetime | float) -> int:
        return self._loop.run(self._lite.offset_for_time(queue, when))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._loop.call(lambda: self._lite.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._loop.call(lambda: self._lite.resume(queues))


class PullConsumer:
    """Pulling by hand: see `kourou.client.PullConsumer`."""

    def __init__(self, inner: AsyncPullConsumer, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._loop.run(self._inner.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str | None = None,
        sql: str | None = None,
        wait: float = 0.0,
    ) -> Batch:
        return self._loop.run(self._inner.pull(queue, offset, count=count, tags=tags, sql=sql, wait=wait))

    def max_offset(self, queue: MessageQueue) -> int:
        return self._loop.run(self._inner.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._loop.run(self._inner.min_offset(queue))

    def search_offset(self, queue: MessageQueue, when: datetime | float) -> int:
        return self._loop.run(self._inner.search_offset(queue, when))

    def committed(self, queue: MessageQueue) -> int | None:
        return self._loop.run(self._inner.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        self._loop.run(self._inner.commit(queue, offset))

    def close(self) -> None:
        self._loop.run(self._inner.close())

    def __enter__(self) -> "PullConsumer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Transaction:
    """`with mq.transaction(...) as tx`: commits on leaving, rolls back on an exception."""

    def __init__(self, inner: AsyncTransaction, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> "Transaction":
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._loop.run(self._inner.__aexit__(kind, error, trace))

    def send(
        self,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        topic: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        return self._loop.run(
            self._inner.send(
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                ordering_key=ordering_key,
                topic=topic,
                timeout=timeout,
            )
        )

    def commit(self) -> None:
        self._loop.run(self._inner.commit())

    def rollback(self, reason: str | None = None) -> None:
        self._loop.run(self._inner.rollback(reason))


class Topic(Generic[T]):
    """A topic whose bodies are values: see `kourou.client.Topic`."""

    def __init__(self, inner: AsyncTopic[T], loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

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


class Client:
    """Made by `connect`; use it with `with`. Everything that was made from it is closed with it."""

    def __init__(self, inner: AsyncClient) -> None:
        self._inner = inner
        self._loop = Loop()
        self._state = "new"

    def start(self) -> None:
        if self._state != "new":
            raise ClosedError("a client is started only once: make a new one")
        self._state = "running"
        self._loop.start()
        self._loop.run(self._inner.__aenter__())

    def close(self) -> None:
        if self._state == "running":
            self._state = "closed"
            try:
                self._loop.run(self._inner.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> "Client":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function with the asyncio client: for what has no method here.

        mq.run(lambda mq: mq.admin.topics.list())
        """
        return self._loop.run(work(self._inner))

    @property
    def admin(self) -> Admin:
        """Administration, by the names of `kourou.client.admin`: `mq.admin.topics.create("orders")`.

        What is an asynchronous iterator there is a list here.
        """
        return self._loop.call(lambda: Admin(self._inner.admin, self._loop.run))

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def metrics(self) -> ClientMetrics:
        return self._inner.metrics

    def send(
        self,
        topic: str,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int = 0,
        flag: int = 0,
        timeout: float | None = None,
    ) -> SendResult:
        return self._loop.run(
            self._inner.send(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                ordering_key=ordering_key,
                queue=queue,
                selector=selector,
                delay=delay,
                deliver_at=deliver_at,
                delay_level=delay_level,
                flag=flag,
                timeout=timeout,
            )
        )

    def send_many(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        return self._loop.run(
            self._inner.send_many(
                topic, messages, ordering_key=ordering_key, queue=queue, selector=selector, timeout=timeout
            )
        )

    def send_batch(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        return self._loop.run(
            self._inner.send_batch(
                topic, messages, ordering_key=ordering_key, queue=queue, selector=selector, timeout=timeout
            )
        )

    def send_one_way(
        self,
        topic: str,
        body: bytes | Message,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        self._loop.run(
            self._inner.send_one_way(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                ordering_key=ordering_key,
                queue=queue,
                selector=selector,
            )
        )

    def recall(self, topic: str, recall_handle: str) -> str:
        return self._loop.run(self._inner.recall(topic, recall_handle))

    def transaction(self, topic: str, *, group: str, check: Checker | None = None) -> Transaction:
        inner = self._loop.call(lambda: self._inner.transaction(topic, group=group, check=check))
        return Transaction(inner, self._loop)

    def transaction_check(self, group: str, check: Checker, *, topics: str | Sequence[str] = ()) -> None:
        self._loop.run(self._inner.transaction_check(group, check, topics=topics))

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

    def consume(
        self,
        topics: Topics,
        *,
        group: str,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        inner = self._loop.call(
            lambda: self._inner.consume(topics, group=group, tags=tags, sql=sql, settings=settings, **options)
        )
        return Consumer(inner, self._loop)

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
        """A topic whose bodies are values of one type."""
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

    def pull(self, *, group: str) -> PullConsumer:
        return PullConsumer(self._loop.call(lambda: self._inner.pull(group=group)), self._loop)

    def lite_pull(
        self,
        *,
        group: str,
        settings: ConsumerSettings | None = None,
        auto_commit: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> LitePullConsumer:
        inner = self._loop.call(
            lambda: self._inner.lite_pull(group=group, settings=settings, auto_commit=auto_commit, **options)
        )
        return LitePullConsumer(inner, self._loop)


__all__ = [
    "Client",
    "Consumer",
    "Delivery",
    "Listening",
    "LitePullConsumer",
    "Message",
    "PullConsumer",
    "Topic",
    "Transaction",
    "TypedConsumer",
    "TypedDelivery",
    "connect",
]
