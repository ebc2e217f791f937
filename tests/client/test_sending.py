"""Sending, one by one and together, and what consumers see of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kourou.client import (
    Client,
    ClosedError,
    Compression,
    Delivery,
    InvalidMessageError,
    InvalidNameError,
    Message,
    MessageQueue,
    ProducerSettings,
    connect,
)
from kourou.protocol.properties import Property

from .conftest import PATIENT, Collect, World
from .steps import make_topic


async def test_a_message_comes_out_as_it_went_in(mq: Client, name: str, collect: Collect) -> None:
    sent = await mq.send(name, b"hello", tag="paid", keys=["42", "43"], properties={"amount": "12", "über": "straße"})
    (got,) = await collect(name, 1)
    assert sent.is_safe
    assert (got.body, got.tag, got.keys, got.topic) == (b"hello", "paid", ["42", "43"], name)
    assert got.properties["amount"] == "12"
    assert got.properties["über"] == "straße"
    assert got.message_id == sent.message_id
    assert got.offset_id == sent.offset_id
    assert (got.queue_id, got.queue_offset) == (sent.queue.queue_id, sent.queue_offset)
    assert got.reconsume_times == 0


async def test_flags_and_odd_bodies(mq: Client, name: str, collect: Collect) -> None:
    bodies = [b"\0", bytes(range(256)), "中文".encode(), b"x" * 100_000]
    for body in bodies:
        await mq.send(name, body, flag=7)
    got = await collect(name, len(bodies))
    assert sorted(message.body for message in got) == sorted(bodies)
    assert {message.flag for message in got} == {7}


@pytest.mark.parametrize("kind", list(Compression))
async def test_large_bodies_travel_compressed(world: World, name: str, kind: Compression) -> None:
    async with connect(world.namesrv, settings=PATIENT, producer=ProducerSettings(compression=kind, timeout=20)) as mq:
        body = b"again and again " * 10_000
        await mq.send(name, body)
        async with mq.consume(name, group=name, start="first") as consumer:
            message = await consumer.next(30)
            assert message is not None
            message.ack()
            assert message.body == body
            assert len(message.record.body) < len(body) / 10


async def test_many_messages_pipelined(mq: Client, name: str, collect: Collect) -> None:
    results = await mq.send_many(name, [b"%d" % number for number in range(1000)])
    assert len({result.message_id for result in results}) == 1000
    got = await collect(name, 1000)
    assert sorted(int(message.body) for message in got) == list(range(1000))


async def test_results_of_many_are_in_order(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=1)
    results = await mq.send_many(name, [Message(body=b"%d" % number) for number in range(100)])
    got = {message.message_id: message for message in await collect(name, 100)}
    assert [int(got[result.message_id].body) for result in results] == list(range(100))
    assert sorted(result.queue_offset for result in results) == list(range(100))


async def test_many_with_an_ordering_key_are_stored_in_order(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=4)
    await mq.send_many(name, [b"%d" % number for number in range(50)], ordering_key="k")
    got = await collect(name, 50)
    assert [int(message.body) for message in got] == list(range(50))


async def test_batches_are_split_by_size(world: World, name: str) -> None:
    async with connect(
        world.namesrv, settings=PATIENT, producer=ProducerSettings(batch_size_max=10_000, timeout=20)
    ) as mq:
        results = await mq.send_batch(name, [Message(body=b"x" * 900, tag=f"t{n}") for n in range(50)])
        assert 5 <= len(results) <= 10
        assert sum(len(result.message_ids) for result in results) == 50
        seen: set[str] = set()
        async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
            while len(seen) < 50:
                message = await anext(consumer)
                message.ack()
                seen.add(message.message_id)
        assert seen == {message_id for result in results for message_id in result.message_ids}


async def test_an_ordering_key_fixes_the_queue(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=8)
    results = [await mq.send(name, b"x", ordering_key="customer-1") for _ in range(10)]
    assert len({result.queue for result in results}) == 1
    got = await collect(name, 10)
    assert {message.ordering_key for message in got} == {"customer-1"}


async def test_a_queue_and_a_selector_fix_the_queue(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=4)
    queues = await mq.producer().queues(name)
    chosen = MessageQueue(name, queues[0].broker_name, 3)
    assert (await mq.send(name, b"x", queue=chosen)).queue == chosen
    assert (await mq.send(name, b"x", selector=lambda queues: queues[1])).queue == queues[1]


async def test_messages_go_to_all_queues_in_turn(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=4)
    results = await mq.send_many(name, [b"x"] * 40)
    counts = [sum(result.queue.queue_id == number for result in results) for number in range(4)]
    assert counts == [10, 10, 10, 10]


async def test_one_way(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name)
    for number in range(20):
        await mq.send_one_way(name, b"%d" % number)
    got = await collect(name, 20)
    assert sorted(int(message.body) for message in got) == list(range(20))


async def test_delay_levels(mq: Client, name: str, collect: Collect) -> None:
    sent = datetime.now(UTC)
    await mq.send(name, b"later", delay_level=1)
    (got,) = await collect(name, 1)
    assert got.body == b"later"
    assert got.stored_ms - sent.timestamp() * 1000 >= 900


@pytest.mark.parametrize("form", ["delay", "deliver_at"])
async def test_timers(mq: Client, name: str, collect: Collect, form: str) -> None:
    sent = datetime.now(UTC)
    options = {"delay": timedelta(seconds=2)} if form == "delay" else {"deliver_at": sent + timedelta(seconds=2)}
    result = await mq.send(name, b"later", **options)
    assert result.recall_handle
    (got,) = await collect(name, 1)
    assert got.stored_ms - sent.timestamp() * 1000 >= 1500
    assert Property.TIMER_OUT_MS in got.properties


async def test_a_timer_can_be_recalled(mq: Client, name: str) -> None:
    sent = await mq.send(name, b"never", delay=timedelta(seconds=10))
    assert sent.recall_handle is not None
    assert await mq.recall(name, sent.recall_handle) == sent.message_id
    async with mq.consume(name, group=name, start="first") as consumer:
        assert await consumer.next(13) is None


async def test_nonsense_is_refused_before_it_is_sent(mq: Client, name: str) -> None:
    with pytest.raises(InvalidMessageError, match="0 bytes"):
        await mq.send(name, b"")
    with pytest.raises(InvalidMessageError, match="4194304"):
        await mq.send(name, b"x" * (4 * 1024 * 1024 + 1))
    with pytest.raises(InvalidMessageError, match="bytes, not str"):
        await mq.send(name, "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match="only one of"):
        await mq.send(name, b"x", ordering_key="k", selector=lambda queues: queues[0])


async def test_a_topic_that_brokers_keep_for_themselves(mq: Client) -> None:
    with pytest.raises(InvalidNameError, match="belongs to the broker"):
        await mq.send("SCHEDULE_TOPIC_XXXX", b"x")


async def test_many_tasks_at_once(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name)
    results = await asyncio.gather(*(mq.send(name, b"%d" % number) for number in range(300)))
    assert len({result.offset_id for result in results}) == 300
    assert len(await collect(name, 300)) == 300


async def test_what_was_counted(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"12345"] * 10)
    counts = mq.metrics.sent[name]
    assert (counts.messages, counts.bytes, counts.failures) == (10, 50, 0)
    assert ("kourou_client_send_messages_total", {"topic": name}, 10) in mq.metrics.samples()


async def test_an_ordering_key_is_stored_however_the_message_is_sent(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name)
    await mq.send(name, b"send", ordering_key="k")
    await mq.send_one_way(name, b"one way", ordering_key="k")
    await mq.send_many(name, [b"many"], ordering_key="k")
    await mq.send_batch(name, [b"batch"], ordering_key="k")
    async with mq.transaction(name, group=f"{name}-tx") as tx:
        await tx.send(b"transaction", ordering_key="k")
    found = await collect(name, 5)
    assert {message.body: message.ordering_key for message in found} == dict.fromkeys(
        (b"send", b"one way", b"many", b"batch", b"transaction"), "k"
    )


async def test_a_producer_that_was_closed_is_made_again(mq: Client, name: str) -> None:
    """A function with `async with mq.producer(...)` in it worked once."""
    for _ in range(2):
        async with mq.producer("checkout", ProducerSettings(timeout=20, avoid_slow_brokers=True)) as producer:
            await producer.send(name, b"x")
        with pytest.raises(ClosedError):
            await producer.send(name, b"x")
    async with mq.producer() as producer:
        await producer.send(name, b"x")
    await mq.send(name, b"x")
    probing = [task for task in asyncio.all_tasks() if task.get_name() == "_probe" and not task.cancelling()]
    assert probing == []


async def test_a_request_after_the_producer_was_closed(mq: Client, world: World, name: str) -> None:
    """Brokers find the requester by the heartbeats of its groups: one has to be sent again."""
    await make_topic(mq, name)

    async def listener(message: Delivery) -> None:
        await mq.reply(message, b"re")

    async with (
        await mq.listen(name, listener, group=name, start="first"),
        connect(world.namesrv, settings=PATIENT) as other,
    ):
        for _ in range(2):
            assert (await other.request(name, b"x", timeout=20)).body == b"re"
            await other.producer().close()


async def test_a_selector_that_selects_nothing(mq: Client, name: str) -> None:
    select: Any = lambda queues: None  # noqa: E731
    with pytest.raises(InvalidMessageError, match="one of the topic's queues, not None"):
        await mq.send(name, b"x", selector=select)
    queue: Any = "broker-a:0"
    with pytest.raises(InvalidMessageError, match="must be a MessageQueue, not str"):
        await mq.send(name, b"x", queue=queue)
