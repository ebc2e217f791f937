"""Serializers: values instead of bytes, with and without asyncio."""

import asyncio
from dataclasses import dataclass

import pytest
from tests.waiting import eventually

import kourou.sync
from kourou.client import Client, InvalidMessageError, Json, Serializer, Text, TypedDelivery
from kourou.protocol.errors import BodyError

from .conftest import PATIENT, World


@dataclass
class Order:
    number: int
    paid: bool = False


class Number:
    """A serializer of the user."""

    def encode(self, value: int, /) -> bytes:
        return str(value).encode()

    def decode(self, body: bytes, /) -> int:
        return int(body)


async def test_values_there_and_back(mq: Client, name: str) -> None:
    orders = mq.topic(name, Json(Order))
    await orders.send(Order(1), tag="new", keys=["k"])
    await orders.send_many([Order(2), Order(3, paid=True)])
    await orders.send_batch([Order(4), Order(5)])
    found = []
    async with asyncio.timeout(60):
        async for message in orders.consume(group=name, start="first"):
            async with message.process():
                found.append(message.value)
                assert message.value is message.value
            if len(found) == 5:
                break
    assert sorted(found, key=lambda order: order.number) == [
        Order(1),
        Order(2),
        Order(3, paid=True),
        Order(4),
        Order(5),
    ]


async def test_a_listener_gets_values(mq: Client, name: str) -> None:
    numbers = mq.topic(name, Number())
    await numbers.send(42)
    seen = []

    async def listener(message: TypedDelivery[int]) -> None:
        seen.append(message.value + 1)

    async with await numbers.listen(listener, group=name, start="first"):
        await eventually(lambda: seen == [43])


@pytest.mark.parametrize(
    ("serializer", "value"), [(Json(), {"a": [1, None]}), (Text(), "grün"), (Number(), -7)], ids=["json", "text", "own"]
)
async def test_kinds_of_serializers(mq: Client, name: str, serializer: Serializer[object], value: object) -> None:
    topic = mq.topic(name, serializer)
    await topic.send(value)
    async with topic.consume(group=name, start="first") as consumer:
        message = await consumer.next(30)
        assert message is not None and message.value == value
        await message.ack()


async def test_a_body_of_another_kind_fails_as_a_message_does(mq: Client, name: str) -> None:
    orders = mq.topic(name, Json(Order))
    sent = await mq.send(name, b'{"number": "one"}')
    async with orders.consume(group=name, start="first") as consumer:
        message = await consumer.next(30)
        assert message is not None
        with pytest.raises(BodyError, match=f"message {sent.message_id} of topic '{name}'.*Expected `int`"):
            async with message.process():
                print(message.value)
        again = await consumer.next(60)
        assert again is not None and again.reconsume_times == 1
        await again.ack()


async def test_a_value_of_another_kind_is_not_sent(mq: Client, name: str) -> None:
    with pytest.raises(InvalidMessageError, match=r"a set can't be encoded|a object can't be encoded"):
        await mq.topic(name, Json()).send(object())
    with pytest.raises(InvalidMessageError, match="can't be encoded"):
        await mq.topic(name, Text()).send(5)  # type: ignore[arg-type]


def test_values_without_asyncio(world: World, name: str) -> None:
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        orders = mq.topic(name, Json(Order))
        orders.send(Order(7), tag="new")
        orders.send_many([Order(8)])
        orders.send_batch([Order(9)])
        found = []
        for message in orders.consume(group=name, start="first"):
            with message.process():
                found.append(message.value.number)
            if len(found) == 3:
                break
        assert sorted(found) == [7, 8, 9]
