"""Static topics: their queues are numbered across brokers, and clients find the broker of each by the topic's route."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.waiting import answered, eventually

import kourou
from kourou.client import Client, ConsumerOptions, MessageQueue, SendManyError, connect
from kourou.embedded import Embedded
from kourou.protocol.route_queues import is_logical

from .conftest import PATIENT
from .steps import route_of

QUEUES = 4


@pytest.fixture
async def cluster() -> AsyncIterator[Embedded]:
    async with kourou.embedded(brokers=2, properties={"transactionCheckInterval": 3000}) as cluster:
        yield cluster


@pytest.fixture
async def mq(cluster: Embedded) -> AsyncIterator[Client]:
    async with connect(cluster.namesrv, settings=PATIENT) as client:
        yield client


async def make_static(mq: Client, topic: str) -> list[MessageQueue]:
    await mq.admin.topics.create_static(topic, QUEUES, ["broker-a", "broker-b"])

    async def is_known() -> bool:
        route = await route_of(mq, topic)
        return route is not None and len(route.topic_queue_mapping_by_broker or ()) == 2

    await answered(is_known)
    queues = list(await mq.producer().queues(topic))
    assert [queue.queue_id for queue in queues] == list(range(QUEUES))
    assert all(map(is_logical, queues))
    return queues


async def test_what_is_sent_in_any_way_is_consumed(mq: Client, name: str) -> None:
    """Half of it was refused: the brokers do not have the queues that the numbers seemed to say."""
    queues = await make_static(mq, name)
    for queue in queues:
        sent = await mq.send(name, b"send %d" % queue.queue_id, queue=queue)
        assert (sent.queue, sent.queue_offset) == (queue, 0)
    try:
        await mq.send_many(name, [b"many %d" % number for number in range(QUEUES)])
    except SendManyError as error:
        raise error.errors[0] from None
    await mq.send_batch(name, [b"batch 1", b"batch 2"])
    await mq.send_one_way(name, b"one way", ordering_key="k")
    async with mq.transaction(name, group=f"{name}-tx") as tx:
        await tx.send(b"transaction")
    seen: dict[bytes, MessageQueue] = {}
    async with mq.consume(name, group=name, start="first") as consumer:
        assert consumer.assignment == queues
        while len(seen) < 2 * QUEUES + 4:
            message = await consumer.next(30)
            assert message is not None, seen
            assert message.queue_id == message.queue.queue_id
            seen[message.body] = message.queue
            message.ack()
    assert [seen[b"send %d" % queue.queue_id] for queue in queues] == queues
    assert {*seen} >= {b"batch 1", b"batch 2", b"one way", b"transaction"}
    async with mq.consume(name, group=name, start="first") as consumer:
        assert await consumer.next(1) is None  # offsets are stored where they are looked for


async def test_a_group_shares_the_queues_in_order(mq: Client, cluster: Embedded, name: str) -> None:
    queues = await make_static(mq, name)
    options: ConsumerOptions = {"orderly": True, "start": "first", "rebalance_interval": 0.5}
    async with connect(cluster.namesrv, settings=PATIENT) as other:
        one, two = mq.consume(name, group=name, **options), other.consume(name, group=name, **options)
        async with one, two:
            await eventually(lambda: sorted([*one.assignment, *two.assignment]) == queues)
            await eventually(lambda: len(one.assignment) == len(two.assignment) == 2)
            for number in range(8):
                await mq.send(name, b"%d" % number, queue=queues[number % QUEUES])
            found: dict[int, list[int]] = {}
            async with asyncio.timeout(60):
                while sum(map(len, found.values())) < 8:
                    for consumer in (one, two):
                        if (message := await consumer.next(0.1)) is not None:
                            found.setdefault(message.queue_id, []).append(int(message.body))
                            message.ack()
            assert found == {number: [number, number + 4] for number in range(QUEUES)}


async def test_failures_and_dead_letters(mq: Client, name: str) -> None:
    """The client sends their copies itself, because the original may be on another broker."""
    queues = await make_static(mq, name)
    await mq.send(name, b"dead", queue=queues[1])
    await mq.send(name, b"again", queue=queues[2])
    async with mq.consume(name, group=name, start="first") as consumer:
        times: list[int] = []
        while len(times) < 2:
            message = await consumer.next(30)
            assert message is not None
            if message.body == b"dead":
                await message.dead_letter()
            elif not message.reconsume_times:
                times.append(0)
                await message.retry(1)
            else:
                times.append(message.reconsume_times)
                await message.ack()
        assert times == [0, 1]
        assert message is not None and (message.topic, message.body) == (name, b"again")
    async with mq.consume(f"%DLQ%{name}", group=f"{name}-dead", start="first") as consumer:
        letter = await consumer.next(30)
        assert letter is not None and letter.body == b"dead"


async def test_pulling_by_hand_and_polling(mq: Client, name: str) -> None:
    queues = await make_static(mq, name)
    for number in range(3):
        await mq.send(name, b"%d" % number, queue=queues[3])
    puller = mq.pull(group=name)
    assert (await puller.min_offset(queues[3]), await puller.max_offset(queues[3])) == (0, 3)
    assert await puller.search_offset(queues[3], 0) == 0
    assert [message.body for message in (await puller.pull(queues[3], 1)).messages] == [b"1", b"2"]
    await puller.commit(queues[3], 2)
    async with mq.lite_pull(group=name) as consumer:
        await consumer.assign([queues[3]])
        assert [message.body for message in await consumer.poll(30)] == [b"2"]
