"""What users would write, as mypy --strict and pyright have to accept it: see `test_typing.py`. Nobody runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import kourou
import kourou.sync
from kourou.client import (
    AveragelyByCircle,
    Client,
    Connected,
    ConnectionEvent,
    Consumer,
    ConsumerSettings,
    DeadLetter,
    Delivery,
    Json,
    KourouError,
    Message,
    MessageQueue,
    NoRouteError,
    ProducerSettings,
    RetryLater,
    SendManyError,
    SendResult,
    Text,
    TlsSettings,
    TypedDelivery,
)
from kourou.client.admin import Progress


async def sending() -> None:
    async with kourou.connect("127.0.0.1:9876") as mq:
        assert_type(mq, Client)
        result = await mq.send("orders", b"...", tag="paid", keys=["42"], properties={"amount": "12"})
        assert_type(result, SendResult)
        await mq.send("orders", b"later", delay=timedelta(seconds=1.5))
        await mq.send("orders", b"then", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
        await mq.send("orders", Message(body=b"...", tag="paid"), ordering_key="42", timeout=1)
        assert_type(await mq.send_many("orders", [b"a", Message(body=b"b")]), list[SendResult])
        await mq.send_batch("orders", (b"%d" % number for number in range(10)))

        def first(queues: Sequence[MessageQueue]) -> MessageQueue:
            return queues[0]

        await mq.send("orders", b"...", selector=first)
        try:
            await mq.send_many("orders", [b"x"])
        except SendManyError as error:
            assert_type(error.results, list[SendResult | KourouError])
        except NoRouteError as error:
            print(error.topic, error.retriable)


async def consuming() -> None:
    async with kourou.connect(["10.0.0.1:9876", "10.0.0.2:9876"], access_key="a", secret_key="b", tls=True) as mq:
        async for message in mq.consume("orders", group="billing", tags="paid || new"):
            assert_type(message, Delivery)
            async with message.process():
                assert_type(message.body, bytes)
                assert_type(message.tag, str | None)
                if message.reconsume_times > 3:
                    raise DeadLetter
                raise RetryLater(2)
        async with mq.consume({"orders": "paid", "returns": None}, group="both", orderly=True) as consumer:
            assert_type(consumer, Consumer)
            assert_type(await consumer.next(timeout=1), Delivery | None)


async def settling(mq: Client) -> None:
    async for message in mq.consume("orders", group="billing", start=datetime.now(UTC) - timedelta(days=1)):
        message.ack()
        await message.ack()
        message.retry(3)
        await message.retry(delay_level=3)
        await message.dead_letter()
        async with message.process(suppress=True) as same:
            assert_type(same, Delivery)
        raise kourou.RetryLater(3) if message.tag else kourou.DeadLetter


async def events() -> None:
    def seen(event: ConnectionEvent) -> None:
        if isinstance(event, Connected):
            print(event.address)
        else:
            print(event.address, event.reason)

    async def assigned(queues: list[MessageQueue]) -> None:
        print(queues)

    async with kourou.connect("127.0.0.1:9876", on_connection=seen, max_body=4 * 1024 * 1024) as mq:
        mq.consume("orders", group="g", on_assigned=assigned, on_revoked=lambda queues: print(len(queues)))


@dataclass
class Order:
    number: int


class Number:
    def encode(self, value: int, /) -> bytes:
        return str(value).encode()

    def decode(self, body: bytes, /) -> int:
        return int(body)


async def values(mq: Client) -> None:
    orders = mq.topic("orders", Json(Order))
    assert_type(await orders.send(Order(1), tag="paid", keys="42", delay_level=1), SendResult)
    await orders.send_many([Order(2)], ordering_key="k")
    async for message in orders.consume(group="g", start="first"):
        assert_type(message.value, Order)
        assert_type(message.body, bytes)
        async with message.process() as same:
            assert_type(same.value, Order)
    async for anything in mq.topic("orders", Json()).consume(group="g"):
        assert_type(anything.value, Any)
    async with mq.topic("texts", Text()).consume(group="g") as texts:
        text = await texts.next(1)
        assert_type(text.value if text is not None else None, str | None)

    async def listener(message: TypedDelivery[int]) -> None:
        print(message.value + 1)

    await mq.topic("numbers", Number()).listen(listener, group="g", concurrency=4)


async def listening(mq: Client) -> None:
    async def one(message: Delivery) -> None:
        print(message.body)

    def blocking(message: Delivery) -> None:
        print(message.body)

    async def several(messages: list[Delivery]) -> int:
        return len(messages)

    settings = ConsumerSettings(broadcast=True, strategy=AveragelyByCircle())
    async with await mq.listen("orders", one, group="a", settings=settings):
        pass
    await mq.listen("orders", blocking, group="b", concurrency=4)
    await mq.listen("orders", batch_listener=several, group="c", batch_size=100)


async def transactions(mq: Client) -> None:
    async def check(message: Delivery) -> bool | None:
        return message.keys == ["42"]

    await mq.transaction_check("tx", check)
    await mq.transaction_check("tx", lambda message: bool(message.keys), topics=["orders", "returns"])
    async with mq.transaction("orders", group="tx", check=check) as tx:
        assert_type(await tx.send(b"..."), SendResult)


async def administration(mq: Client) -> None:
    assert_type(await mq.admin.topics.list(), list[str])
    assert_type(await mq.admin.groups.progress("billing"), Progress)
    async for message in mq.admin.messages.by_time("orders", datetime.now(UTC) - timedelta(hours=1)):
        assert_type(message, Delivery)


def without_await() -> None:
    with kourou.sync.connect("127.0.0.1:9876", producer=ProducerSettings(retries=0), tls=TlsSettings()) as mq:
        assert_type(mq.send("orders", b"..."), SendResult)
        for message in mq.consume("orders", group="billing", start="first", orderly=True):
            with message.process():
                assert_type(message, kourou.sync.Delivery)
            message.retry(3)
        assert_type(mq.admin.topics.list(), list[str])
        mq.admin.topics.create("orders", queues=4)
        assert_type(mq.admin.groups.progress("billing", topic="orders").lag, int)
        assert_type(mq.admin.messages.by_time("orders", 0), list[Delivery])
        for order in mq.topic("orders", Json(Order)).consume(group="g"):
            assert_type(order.value, Order)
            with order.process() as same:
                assert_type(same.value, Order)


async def embedded() -> None:
    async with kourou.embedded() as broker, kourou.connect(broker.namesrv) as mq:
        await mq.send("orders", b"...")
