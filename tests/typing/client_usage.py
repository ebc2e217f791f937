"""What users would write, as mypy --strict has to accept it. `test_typing.py` runs it past mypy; nobody runs it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_type

import kourou
import kourou.sync
from kourou.client import (
    AveragelyByCircle,
    Client,
    Consumer,
    ConsumerSettings,
    DeadLetter,
    Delivery,
    KourouError,
    Message,
    MessageQueue,
    NoRouteError,
    ProducerSettings,
    RetryLater,
    SendManyError,
    SendResult,
    TlsSettings,
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
        for message in mq.consume("orders", group="billing"):
            with message.process():
                assert_type(message, kourou.sync.Delivery)


async def embedded() -> None:
    async with kourou.embedded() as broker, kourou.connect(broker.namesrv) as mq:
        await mq.send("orders", b"...")
