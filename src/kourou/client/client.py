"""The client: one object for sending, consuming and administration.

async with connect("127.0.0.1:9876") as mq:
    await mq.send("orders", b"...", tag="paid")
    async for message in mq.consume("orders", group="billing"):
        async with message.process():
            ...
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kourou.client import naming
from kourou.client.broker_requests import BrokerRequests
from kourou.client.consumer import Consumer
from kourou.client.delivery import Delivery
from kourou.client.errors import ClientError
from kourou.client.events import ConnectionCallback
from kourou.client.listeners import BatchListener, Listener, Listening
from kourou.client.lite_pull_consumer import LitePullConsumer
from kourou.client.metrics import ClientMetrics
from kourou.client.nameservers import parse_addresses
from kourou.client.outgoing import Message
from kourou.client.producer import Producer
from kourou.client.pull_consumer import PullConsumer
from kourou.client.request_reply import Requests
from kourou.client.results import SendResult
from kourou.client.selecting import Selector
from kourou.client.serializing import Serializer, Topic, TypedConsumer
from kourou.client.session import Session
from kourou.client.settings import (
    ClientSettings,
    ConsumerOptions,
    ConsumerSettings,
    ProducerSettings,
    with_options,
)
from kourou.client.tracing import Tracer
from kourou.client.transactions import Checker, Transaction, Transactions
from kourou.client.user_calls import is_called_by, task_outside
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol.message import MessageQueue
from kourou.protocol.signing import Credentials

if TYPE_CHECKING:
    from kourou.client.admin import Admin

Topics = str | Sequence[str] | Mapping[str, str | None]
"""A topic, several topics, or topics with the tags to consume of each."""

T = TypeVar("T")
ConsumerT = TypeVar("ConsumerT", bound=Consumer)


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
    """A client for the cluster of these name servers: `host:port`, several separated by semicolons.

    Without addresses it uses those in the environment variable NAMESRV_ADDR. `tls=True` encrypts without verification,
    as Apache's clients do by default; TlsSettings can say more. `max_body` limits the size of a received body after it
    is decompressed (16 MiB). `on_connection` is called with `Connected` and `Disconnected`. Nothing is connected before
    `async with`, or the first use.
    """
    base = settings or ClientSettings()
    if (access_key is None) != (secret_key is None):
        raise ValueError("access_key and secret_key must be given together")
    account = None if access_key is None or secret_key is None else Credentials(access_key, secret_key, security_token)
    encryption = (TlsSettings(TlsMode.ENFORCING) if tls else None) if isinstance(tls, bool) else tls
    given: dict[str, Any] = {
        "name_servers": None if name_servers is None else tuple(parse_addresses(name_servers)),
        "credentials": account,
        "tls": encryption,
        "namespace": namespace,
        "instance_name": instance_name,
        "unit_name": unit_name,
        "discovery_url": discovery_url,
        "producer_group": producer_group if producer_group != "KOUROU_PRODUCER" else None,
        "producer": producer,
        "max_body": max_body,
        "on_connection": on_connection,
    }
    return Client(replace(base, **{name: value for name, value in given.items() if value is not None}))


class Client:
    """Made by `connect`. Use it in `async with`, which also closes all producers and consumers of the client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[Consumer, Consumer | Listening] = {}  # open consumers -> what closes each
        self._requests: Requests | None = None
        self._transactions: Transactions | None = None
        self._tracer: Tracer | None = None
        self._admin: Admin | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def session(self) -> Session:
        """The connections and routes of this client, started at the first use, inside a running event loop."""
        session = self._session
        if session is None:
            session = self._session = Session(self._settings)
            session.start()
            BrokerRequests(session)
        return session

    async def __aenter__(self) -> "Client":
        self.session.check_running()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets consumers finish and leave their groups, waits for sends under way, and closes the connections.

        Runs to its end even if the caller is cancelled meanwhile. If a listener or callback of this client calls it, it
        returns at once, and the client closes when that function has returned.
        """
        if self._closing is None:
            self._closing = task_outside(self._close(), "close client")
        if self._session is None or not is_called_by(self._session):
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._session is None:
            return
        await asyncio.gather(*(consumer.close() for consumer in list(self._consumers.values())), return_exceptions=True)
        if self._requests is not None:
            self._requests.close()
        if self._transactions is not None:
            await self._transactions.close()
        if self._tracer is not None:
            await self._tracer.close()
        await asyncio.gather(*(producer.close() for producer in self._producers.values()), return_exceptions=True)
        await self._session.close()

    @property
    def client_id(self) -> str:
        return self.session.client_id

    @property
    def metrics(self) -> ClientMetrics:
        """Counters of everything that this client did."""
        return self.session.metrics

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def producer(self, group: str | None = None, settings: ProducerSettings | None = None) -> Producer:
        """The producer of a group. Its settings can be given at the first call for the group only.

        After it was closed, a call makes a new one.
        """
        name = group or self._settings.producer_group
        found = self._producers.get(name)
        if found is None or found.has_left:
            found = Producer(self.session, name, settings or self._settings.producer)
            self._producers[name] = found
            if found.settings.trace:
                self.tracer.watch(found)
        elif settings is not None and settings != found.settings:
            raise ClientError(
                f"the producer of group {name!r} has other settings: give them at its first use, or use another group"
            )
        return found

    async def send(
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
        """Send one message and wait until it is stored: see `Producer.send`."""
        return await self.producer().send(
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

    async def send_many(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many messages, pipelined: see `Producer.send_many`."""
        return await self.producer().send_many(
            topic, messages, ordering_key=ordering_key, queue=queue, selector=selector, timeout=timeout
        )

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages in batches: see `Producer.send_batch`."""
        return await self.producer().send_batch(
            topic, messages, ordering_key=ordering_key, queue=queue, selector=selector, timeout=timeout
        )

    async def send_one_way(
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
        """Send a message without waiting for an answer: see `Producer.send_one_way`."""
        await self.producer().send_one_way(
            topic,
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            ordering_key=ordering_key,
            queue=queue,
            selector=selector,
        )

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancel a delayed message: see `Producer.recall`."""
        return await self.producer().recall(topic, recall_handle)

    def transaction(self, topic: str, *, group: str, check: Checker | None = None) -> Transaction:
        """Messages that are delivered if the block succeeds, and not if it raises.

            async with mq.transaction("orders", group="tx") as tx:
                await tx.send(b"...")

        If this process dies in between, the broker asks another client of the group: `check`, or what
        `transaction_check` was given, answers.
        """
        return self.transactions.begin(topic, group, check)

    @property
    def transactions(self) -> Transactions:
        if self._transactions is None:
            self._transactions = Transactions(self.session, self.producer)
        return self._transactions

    async def transaction_check(self, group: str, check: Checker, *, topics: str | Sequence[str] = ()) -> None:
        """Answer the brokers' checks of this group's unfinished transactions from now on.

        A process that has sent nothing yet, for example after a restart, joins the group by this call: at the brokers
        of `topics`; without topics, at all brokers. Raises NoRouteError, NoNameServerError.
        """
        await self.transactions.answer_with(group, check, [topics] if isinstance(topics, str) else topics)

    async def request(
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
        """Send a message and wait for a consumer's reply. Raises NoReplyError if none comes within `timeout`."""
        return await self.requests.request(
            topic, body, timeout=timeout, tag=tag, keys=keys, properties=properties, ordering_key=ordering_key
        )

    async def reply(self, request: Delivery, body: bytes | Message) -> SendResult:
        """Reply to a message that was sent with `request`."""
        return await self.requests.reply(request, body)

    @property
    def requests(self) -> Requests:
        if self._requests is None:
            self._requests = Requests(self.session, self.producer)
        return self._requests

    # ── Consuming ─────────────────────────────────────────────────────────────────────────────────────────────────

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
        """Messages of topics, as a member of a group; to be used in `async for`, or with `async with`.

        `tags` ("paid || new") or `sql` ("amount > 10") filter. `options` are those of ConsumerSettings:
        `orderly=True`, `broadcast=True`, `start="first"` and so on. Each message has to be settled: with `process`,
        `ack` or `retry`. However a loop over the consumer ends, the consumer leaves its group with it.
        """
        chosen = with_options(settings, options)
        return self._add(Consumer(self.session, group, _filters(topics, tags, sql), chosen))

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
        """As `consume`; each message has a `value`, which the serializer decodes from its body."""
        chosen = with_options(settings, options)
        return self._add(TypedConsumer(self.session, group, _filters(topics, tags, sql), chosen, serializer))

    def _add(self, consumer: ConsumerT) -> ConsumerT:
        if consumer.settings.trace:
            self.tracer.watch_consumer(consumer)
        self._consumers[consumer] = consumer
        consumer.on_closed = partial(self._consumers.pop, consumer, None)
        return consumer

    async def listen(
        self,
        topics: Topics,
        listener: Listener | None = None,
        *,
        group: str,
        batch_listener: BatchListener | None = None,
        tags: str | None = None,
        sql: str | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Listening:
        """Call `listener` with each message from now on, with up to `concurrency` (20) calls at a time.

        A `batch_listener` is called with up to `batch_size` messages of a queue instead. A listener that returns has
        consumed its messages; one that raises has not. Filters and options are those of `consume`.
        """
        if (listener is None) == (batch_listener is None):
            raise ValueError("give either a listener or a batch_listener")
        if batch_listener is not None and settings is None:
            options.setdefault("batch_size", 32)
        consumer = self.consume(topics, group=group, tags=tags, sql=sql, settings=settings, **options)
        return await self.listen_with(consumer, listener, batch_listener)

    async def listen_with(
        self, consumer: Consumer, listener: Listener | None, batch_listener: BatchListener | None = None
    ) -> Listening:
        """Call a function with the messages of one of this client's consumers that is not started yet."""
        listening = Listening(consumer, listener, batch_listener)
        self._consumers[consumer] = listening
        try:
            return await listening.start()
        except BaseException:
            consumer.abandon()
            raise

    def topic(self, name: str, serializer: Serializer[T]) -> Topic[T]:
        """A topic whose bodies are values of one type, such as `mq.topic("orders", Json(Order))`."""
        return Topic(self, name, serializer)

    def pull(self, *, group: str) -> PullConsumer:
        """Pull from queues and offsets of your choice. Queues are not shared, and offsets are not committed."""
        return PullConsumer(self.session, group)

    def lite_pull(
        self,
        *,
        group: str,
        settings: ConsumerSettings | None = None,
        auto_commit: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> LitePullConsumer:
        """A consumer that is polled: subscribe or assign, seek, poll, commit.

        With `auto_commit`, `poll` stores offsets every few seconds; otherwise `commit` does, alone. Messages of the
        last poll that are neither committed nor acknowledged are delivered again.
        """
        return self._add(
            LitePullConsumer(self.session, group, with_options(settings, options), auto_commit=auto_commit)
        )

    # ── The rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tracer(self) -> Tracer:
        if self._tracer is None:
            self._tracer = Tracer(self.session)
        return self._tracer

    @property
    def admin(self) -> "Admin":
        """Administration, as with `mqadmin`: topics, groups, offsets, progress, statistics, settings, queries."""
        if self._admin is None:
            from kourou.client.admin import Admin

            self._admin = Admin(self.session)
        return self._admin


def _filters(topics: Topics, tags: str | None, sql: str | None) -> dict[str, tuple[str | None, str | None]]:
    if isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        if tags is not None or sql is not None:
            raise ValueError("give tags either per topic or for all topics, not both")
        return {topic: (wanted, None) for topic, wanted in topics.items()}
    return dict.fromkeys(topics, (tags, sql))


__all__ = ["Client", "connect", "naming"]
