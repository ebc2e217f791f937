"""Mistakes that mypy --strict and pyright must find: every line that ends in `# wrong` is one. Nobody runs it.

Each of them was taken in silence when options were `Any`, or is of the same kind.
"""

from dataclasses import dataclass
from datetime import timedelta

import kourou
import kourou.sync
from kourou.client import Client, ConsumerSettings, Delivery, Json, MessageQueue, ProducerSettings, Text, TypedDelivery


@dataclass
class Order:
    number: int


async def connecting() -> None:
    kourou.connect("127.0.0.1:9876", namespce="shop")  # wrong
    kourou.connect(9876)  # wrong
    kourou.connect("127.0.0.1:9876", tls="yes")  # wrong
    kourou.connect("127.0.0.1:9876", max_body="4m")  # wrong
    kourou.connect("127.0.0.1:9876", on_connection=5)  # wrong
    kourou.sync.connect("127.0.0.1:9876", on_connect=print)  # wrong
    ProducerSettings(retry=3)  # wrong
    ConsumerSettings(start="latest")  # wrong


async def sending(mq: Client) -> None:
    await mq.send("orders", "text")  # wrong
    await mq.send("orders", {"number": 42})  # wrong
    await mq.send("orders", b"x", tags="paid")  # wrong
    await mq.send("orders", b"x", properties={"amount": 12})  # wrong
    await mq.send("orders", b"x", keys=[42])  # wrong
    await mq.send("orders", b"x", delay=5)  # wrong
    await mq.send("orders", b"x", delay_level="1")  # wrong
    await mq.send("orders", b"x", deliver_at=timedelta(seconds=1))  # wrong
    await mq.send(b"orders", b"x")  # wrong
    await mq.send_many("orders", ["a", "b"])  # wrong
    await mq.send_batch("orders", [b"a"], tag="paid")  # wrong
    (await mq.send("orders", b"x")).messageid  # wrong
    await mq.request("orders", b"x", timeout="3")  # wrong


async def consuming(mq: Client) -> None:
    mq.consume("orders")  # wrong
    mq.consume("orders", group="g", orderley=True)  # wrong
    mq.consume("orders", group="g", start="earliest")  # wrong
    mq.consume("orders", group="g", start=5)  # wrong
    mq.consume("orders", group="g", concurrency="4")  # wrong
    mq.consume("orders", group="g", strategy="AVG")  # wrong
    mq.consume("orders", group="g", tag="paid")  # wrong
    mq.consume("orders", group="g", on_assigned="print")  # wrong
    mq.consume({"orders": 1}, group="g")  # wrong
    mq.lite_pull(group="g", auto_comit=False)  # wrong
    mq.lite_pull(group="g", start="newest")  # wrong
    await mq.listen("orders", print, group="g", concurency=4)  # wrong
    await mq.listen("orders", "print", group="g")  # wrong
    mq.pull(group="g", start="first")  # wrong
    async for message in mq.consume("orders", group="g"):
        print(message.nothing)  # wrong
        print(message.value)  # wrong
        await message.retry("3")  # wrong
        await message.retry(delay=3)  # wrong
        async with message.process(suppres=True):  # wrong
            pass
        message.body + "text"  # wrong


async def of_another_kind(messages: list[Delivery]) -> None:
    print(messages)


async def listening(mq: Client) -> None:
    await mq.listen("orders", of_another_kind, group="g")  # wrong


async def transactions(mq: Client) -> None:
    mq.transaction("orders")  # wrong
    await mq.transaction_check("tx", lambda message: "yes")  # wrong
    await mq.transaction_check("tx", lambda message: True, topic="orders")  # wrong


async def revoked(queue: MessageQueue) -> None:
    print(queue)


async def values(mq: Client) -> None:
    orders = mq.topic("orders", Json(Order))
    await orders.send(b"x")  # wrong
    await orders.send("text")  # wrong
    await orders.send(Order(1), tags="paid")  # wrong
    await orders.send_many([1, 2])  # wrong
    mq.topic("orders", Json)  # wrong
    mq.topic("orders", 5)  # wrong
    async for message in orders.consume(group="g"):
        message.value.nothing  # wrong
        message.value + 1  # wrong
    orders.consume(group="g", strat="first")  # wrong
    orders.consume(group="g", on_revoked=revoked)  # wrong

    def listener(message: TypedDelivery[str]) -> None:
        print(message.value)

    await orders.listen(listener, group="g")  # wrong
    await mq.topic("orders", Text()).listen(listener, group="g", starts="first")  # wrong


async def administration(mq: Client) -> None:
    await mq.admin.topics.creat("orders")  # wrong
    await mq.admin.topics.create("orders", queue=4)  # wrong
    await mq.admin.topics.create("orders", queues="4")  # wrong
    await mq.admin.groups.progress(5)  # wrong


def without_await(mq: kourou.sync.Client) -> None:
    mq.admin.nothing  # wrong
    mq.admin.topics.creat("orders")  # wrong
    mq.admin.topics.create("orders", queue=4)  # wrong
    mq.admin.topics.create(5)  # wrong
    mq.admin.topics.list() + "text"  # wrong
    mq.admin.groups.progress("g").lagg  # wrong
    mq.admin.messages.by_time("orders")  # wrong
    mq.send("orders", "text")  # wrong
    mq.consume("orders", group="g", orderley=True)  # wrong
    mq.consume("orders", group="g", start="earliest")  # wrong
    mq.listen("orders", print, group="g", concurency=4)  # wrong
    mq.lite_pull(group="g", start=1.5)  # wrong
    for message in mq.consume("orders", group="g"):
        print(message.nothing)  # wrong
        with message.process(suppress="yes"):  # wrong
            pass
    mq.topic("orders", Json(Order)).send(5)  # wrong
