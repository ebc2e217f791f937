"""Consumers that ask for messages themselves: lite pull and pull."""

import time

import pytest
from tests.waiting import becomes

from kourou.client import Client, ClientError, ConsumerOptions, Message, connect
from kourou.client.pulling import PullStatus

from .conftest import PATIENT, World
from .steps import make_topic, until_stored


async def test_lite_pull_shares_polls_and_commits(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    await mq.send_many(name, [b"%d" % number for number in range(30)])
    consumer = mq.lite_pull(group=name, start="first")
    await consumer.subscribe(name)
    seen: list[int] = []
    while len(seen) < 30:
        messages = await consumer.poll(30)
        assert messages
        assert len({message.queue for message in messages}) == 1
        seen += [int(message.body) for message in messages]
    await consumer.commit()
    assert sorted(seen) == list(range(30))
    assert len(consumer.assignment) == 2
    await consumer.close()
    again = mq.lite_pull(group=name, start="first")
    await again.subscribe(name)
    assert await again.poll(1) == []
    assert sum([await again.committed(queue) or 0 for queue in again.assignment]) == 30


async def test_lite_pull_of_chosen_queues_seeks_and_pauses(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    queue = (await mq.producer().queues(name))[1]
    await mq.send_many(name, [b"%d" % number for number in range(10)], queue=queue)
    await until_stored(mq, name, 10)
    async with mq.lite_pull(group=name, start="first", auto_commit=False) as consumer:
        await consumer.assign([queue])
        assert (await consumer.poll(30, count=3))[0].body == b"0"
        await consumer.seek(queue, 7)
        assert (await consumer.poll(30))[0].body == b"7"
        await consumer.seek_to_end(queue)
        assert await consumer.poll(1) == []
        await consumer.seek_to_begin(queue)
        assert (await consumer.poll(30))[0].body == b"0"
        with pytest.raises(ClientError, match="outside"):
            await consumer.seek(queue, 11)
        with pytest.raises(ClientError, match="either subscribe or assign"):
            await consumer.subscribe(name)
        assert await consumer.offset_for_time(queue, 0) == 0


async def test_pulling_by_hand(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [Message(body=b"%d" % number, tag=f"t{number % 2}") for number in range(10)])
    await until_stored(mq, name, 10)
    async with mq.pull(group=name) as consumer:
        (queue,) = await consumer.queues(name)
        batch = await consumer.pull(queue, 2, count=3)
        assert (batch.status, batch.next_offset, batch.min_offset, batch.max_offset) == (PullStatus.FOUND, 5, 0, 10)
        assert [message.queue_offset for message in batch.messages] == [2, 3, 4]
        tagged = await consumer.pull(queue, 0, tags="t1")
        assert {message.tag for message in tagged.messages} == {"t1"}
        assert (await consumer.pull(queue, 10)).status is PullStatus.NOTHING_NEW
        assert (await consumer.pull(queue, 99)).status is PullStatus.OFFSET_MOVED
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 10)
        assert await consumer.search_offset(queue, 0) == 0
        assert await consumer.search_offset(queue, time.time() + 60) == 10
        assert await consumer.committed(queue) is None
        await consumer.commit(queue, 4)
        assert await consumer.committed(queue) == 4


async def test_brokers_of_topics_that_are_pulled_are_kept(world: World, name: str) -> None:
    async with connect(world.namesrv, settings=PATIENT) as mq:
        await make_topic(mq, name, queues=1)
        puller = mq.pull(group=name)
        (queue,) = await puller.queues(name)
        assert await puller.max_offset(queue) == 0
        for _ in range(3):
            await mq.session._refresh_routes()
        assert await puller.max_offset(queue) == 0


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_poll_that_failed_comes_again(world: World, name: str, auto_commit: bool) -> None:
    """However the consumer is closed: its messages used to count as consumed."""
    for last in range(3):
        async with connect(world.namesrv, settings=PATIENT) as mq:
            if not last:
                await make_topic(mq, name, queues=1)
                await mq.send(name, b"x")
                await until_stored(mq, name, 1)
            consumer = mq.lite_pull(group=name, start="first", auto_commit=auto_commit)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with consumer:
                    await consumer.subscribe(name)
                    assert [message.body for message in await consumer.poll(30)] == [b"x"]
                    print(1 / 0)


async def test_without_auto_commit_the_program_alone_commits(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"%d" % number for number in range(6)], ordering_key="k")
    await until_stored(mq, name, 6)
    (queue,) = await mq.producer().queues(name)
    options: ConsumerOptions = {"start": "first", "persist_interval": 0.02, "long_poll": 0.1}
    async with mq.lite_pull(group=name, auto_commit=False, **options) as consumer:
        await consumer.subscribe(name)
        assert [message.body for message in await consumer.poll(30, count=2)] == [b"0", b"1"]
        assert [message.body for message in await consumer.poll(30, count=4)] == [b"2", b"3", b"4", b"5"]
        assert await consumer.poll(0.5) == []  # offsets are stored many times meanwhile, and pulls carry offsets
        assert await consumer.committed(queue) is None
        await consumer.seek(queue, 3)
        assert await consumer.committed(queue) is None
        assert [message.body for message in await consumer.poll(30, count=1)] == [b"3"]
        await consumer.commit()

        async def committed() -> int | None:
            return await consumer.committed(queue)

        await becomes(committed, 4)
        await consumer.seek(queue, 1)
        assert [message.body for message in await consumer.poll(30, count=1)] == [b"1"]
        await consumer.commit()
        await becomes(committed, 2)
        assert [message.body for message in await consumer.poll(30, count=2)] == [b"2", b"3"]
    again = mq.lite_pull(group=name, auto_commit=False, **options)
    await again.subscribe(name)
    assert [message.body for message in await again.poll(30, count=1)] == [b"2"]


async def test_more_than_is_cached_may_be_polled_before_a_commit(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"x"] * 40)
    async with mq.lite_pull(group=name, auto_commit=False, start="first", queue_messages=10, pull_batch=4) as consumer:
        await consumer.subscribe(name)
        found = 0
        while found < 40:
            messages = await consumer.poll(30)
            assert messages
            found += len(messages)
