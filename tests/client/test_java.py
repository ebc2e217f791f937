"""Our client and the Java client on the same broker, Apache's or ours, also in one group."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.clients import Client as JavaClient, Kind
from tests.interop.worlds import needed
from tests.waiting import eventually

from kourou.client import Client, Delivery, Message

from .conftest import World
from .steps import make_topic

pytestmark = pytest.mark.interop


@pytest.fixture
def java(world: World, tmp_path: Path) -> Iterator[JavaClient]:
    with needed():
        client = JavaClient(Kind.JAVA, world.namesrv, tmp_path / "java")
    yield client
    client.stop()


async def test_java_to_us(mq: Client, java: JavaClient, name: str) -> None:
    await make_topic(mq, name)
    await asyncio.to_thread(java.send, name, "from-java", 20)
    seen: list[bytes] = []
    async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
        while len(seen) < 20:
            message = await anext(consumer)
            message.ack()
            seen.append(message.body)
    assert sorted(seen) == sorted(f"from-java-{number}".encode() for number in range(20))


async def test_us_to_java(mq: Client, java: JavaClient, name: str) -> None:
    await make_topic(mq, name, queues=2)
    expected = []
    for number in range(3):
        await mq.send(name, f"single-{number}".encode(), tag="t", keys="k", properties={"a": "1"})
        await mq.send_one_way(name, f"one-way-{number}".encode())
        expected += [f"single-{number}", f"one-way-{number}"]
    await mq.send_many(name, [f"many-{number}".encode() for number in range(10)])
    await mq.send_batch(name, [Message(body=f"batch-{number}".encode(), tag="t") for number in range(10)])
    await mq.send(name, b"ordered", ordering_key="k")
    await mq.send(name, b"delayed", delay_level=1)
    await mq.send(name, b"compressed-" + b"x" * 5000)
    expected += [f"many-{number}" for number in range(10)] + [f"batch-{number}" for number in range(10)]
    expected += ["ordered", "delayed", "compressed-" + "x" * 5000]
    await asyncio.to_thread(java.subscribe, name, name)
    got = await asyncio.to_thread(java.receive, name, len(expected))
    assert sorted(got) == sorted(expected)


async def test_one_group_of_both(mq: Client, java: JavaClient, name: str) -> None:
    """Both compute the same shares: together they have every queue once, and every message comes."""
    await make_topic(mq, name, queues=8)
    seen: list[bytes] = []

    async def listener(message: Delivery) -> None:
        seen.append(message.body)

    async with await mq.listen(name, listener, group=name, start="first") as listening:
        await asyncio.to_thread(java.subscribe, name, name)
        await eventually(lambda: len(listening.consumer.assignment) == 4, 60)
        await mq.send_many(name, [b"%d" % number for number in range(80)])
        theirs = await asyncio.to_thread(java.receive, name, 40)
        await eventually(lambda: len(seen) == 40, 60)
    assert {int(body) for body in seen} | {int(body) for body in theirs} == set(range(80))
