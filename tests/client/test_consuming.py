"""Consuming as a member of a group: filters, retries, order, sharing, broadcasting, resets."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import becomes, eventually

from kourou.client import (
    AveragelyByCircle,
    Client,
    ConsumerOptions,
    DeadLetter,
    Delivery,
    GroupInUseError,
    Message,
    MessageQueue,
    RefusedError,
    RetryLater,
    connect,
)

from .conftest import PATIENT, Collect, World
from .steps import make_topic, until_caught_up, until_stored


async def test_iterating_and_processing(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"%d" % number for number in range(10)])
    seen = []
    async for message in mq.consume(name, group=name, start="first"):
        async with message.process():
            seen.append(int(message.body))
        if len(seen) == 10:
            break
    assert sorted(seen) == list(range(10))


async def test_a_group_goes_on_where_it_was(mq: Client, name: str, collect: Collect) -> None:
    await mq.send_many(name, [b"a"] * 5)
    assert len(await collect(name, 5)) == 5
    await mq.send_many(name, [b"b"] * 5)
    assert [message.body for message in await collect(name, 5)] == [b"b"] * 5


async def test_unsettled_messages_come_again(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"0", b"1", b"2", b"3"], ordering_key="k")
    async with mq.consume(name, group=f"{name}-collect", start="first") as consumer:
        taken = [await anext(consumer) for _ in range(4)]
        taken[0].ack()
        taken[2].ack()
    got = await collect(name, 3)
    assert [message.body for message in got] == [b"1", b"2", b"3"]


async def test_tags(mq: Client, name: str, collect: Collect) -> None:
    for tag in ("a", "b", "c", None):
        await mq.send(name, (tag or "none").encode(), tag=tag)
    got = await collect(name, 2, tags=" a || c ")
    assert sorted(message.body for message in got) == [b"a", b"c"]


async def test_tags_with_the_same_hash_are_told_apart(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=1)  # else the stranger's queue may not be pulled in time
    await mq.send(name, b"stranger", tag="BB")
    await mq.send(name, b"wanted", tag="Aa")
    (got,) = await collect(name, 1, tags="Aa")
    assert got.body == b"wanted"
    await until_caught_up(mq, f"{name}-collect", name)


async def test_sql(mq: Client, name: str, collect: Collect) -> None:
    for amount in (5, 10, 15):
        await mq.send(name, b"%d" % amount, properties={"amount": str(amount)})
    got = await collect(name, 2, sql="amount >= 10")
    assert sorted(message.body for message in got) == [b"10", b"15"]
    with pytest.raises(RefusedError):
        await mq.consume(name, group=f"{name}-wrong", sql="amount >").start()


async def test_an_exception_means_retry(mq: Client, name: str) -> None:
    await mq.send(name, b"x", properties={"mine": "1"})
    times = []
    async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
        async for message in consumer:
            async with message.process():
                times.append((message.reconsume_times, message.topic, message.properties["mine"]))
                if len(times) == 1:
                    raise RetryLater(1)
            if len(times) == 2:
                break
    assert times == [(0, name, "1"), (1, name, "1")]


async def test_too_many_failures_end_as_a_dead_letter(mq: Client, name: str) -> None:
    await mq.send(name, b"poison")
    calls = []

    async def listener(message: Delivery) -> None:
        calls.append(message.reconsume_times)
        raise RetryLater(1)

    async with await mq.listen(name, listener, group=name, start="first", retries=1):
        await eventually(lambda: len(calls) == 2, 40)
        async with mq.consume(f"%DLQ%{name}", group=f"{name}-dlq", start="first") as consumer:
            letter = await consumer.next(60)
    assert letter is not None
    letter.ack()
    assert letter.body == b"poison"
    assert calls == [0, 1]


async def test_a_dead_letter_at_once(mq: Client, name: str) -> None:
    await mq.send(name, b"poison")
    async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
        async with (await anext(consumer)).process():
            raise DeadLetter
        async with mq.consume(f"%DLQ%{name}", group=f"{name}-dlq", start="first") as letters:
            letter = await anext(letters)
            letter.ack()
    assert letter.body == b"poison"


async def test_listeners_run_side_by_side(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"x"] * 10)
    running, most, done = 0, 0, 0
    all_there = asyncio.Event()

    async def listener(message: Delivery) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        if running == 4:
            all_there.set()
        await all_there.wait()
        await asyncio.sleep(0)
        running -= 1
        done += 1

    async with await mq.listen(name, listener, group=name, start="first", concurrency=4):
        await eventually(lambda: done == 10)
    assert most == 4


async def test_a_listener_that_blocks_runs_in_a_thread(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"x"] * 3)
    threads = []

    def listener(message: Delivery) -> None:
        threads.append(threading.current_thread())

    async with await mq.listen(name, listener, group=name, start="first"):
        await eventually(lambda: len(threads) == 3)
    assert threading.main_thread() not in threads


async def test_batches_for_listeners(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"%d" % number for number in range(20)])
    await until_stored(mq, name, 20)  # or the first batch may be the first message alone
    batches: list[list[bytes]] = []

    async def listener(messages: list[Delivery]) -> None:
        batches.append([message.body for message in messages])

    async with await mq.listen(name, batch_listener=listener, group=name, start="first", batch_size=8):
        await eventually(lambda: sum(map(len, batches)) == 20)
    assert max(map(len, batches)) <= 8
    assert min(map(len, batches[:1])) > 1


async def test_order_holds_and_failures_wait(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    for key in ("x", "y", "z"):
        await mq.send_many(name, [f"{key}{n}".encode() for n in range(20)], ordering_key=key)
    seen: list[str] = []
    failed: set[str] = set()

    async def listener(message: Delivery) -> None:
        text = message.body.decode()
        if text.endswith("7") and text not in failed:
            failed.add(text)
            raise ValueError("not yet")
        seen.append(text)

    async with await mq.listen(name, listener, group=name, orderly=True, start="first", suspend=0.05):
        await eventually(lambda: len(seen) == 60)
    for key in ("x", "y", "z"):
        assert [text for text in seen if text[0] == key] == [f"{key}{n}" for n in range(20)]
    assert len(failed) == 6


async def test_a_client_that_ends_leaves_no_lock(kourou_world: World, name: str) -> None:
    """Not even that of a queue which it gave up before, while a message was being processed: brokers keep locks for a
    minute, and the next member would wait as long.
    """
    options: ConsumerOptions = {"orderly": True, "start": "first", "rebalance_interval": 1.0}
    async with connect(kourou_world.namesrv, settings=PATIENT) as other:
        async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
            await make_topic(mq, name, queues=2)
            for queue in await mq.producer().queues(name):
                await mq.send(name, b"%d" % queue.queue_id, queue=queue)
            consumer = mq.consume(name, group=name, **options)
            await consumer.start()
            assert {(await anext(consumer)).body for _ in range(2)} == {b"0", b"1"}  # and none is settled
            successor = other.consume(name, group=name, **options)
            await successor.start()
            await eventually(lambda: len(consumer.assignment) == 1)
        found = [await successor.next(20), await successor.next(20)]
        assert {message and message.body for message in found} == {b"0", b"1"}
        await successor.close()


async def test_orderly_iteration_hands_out_one_at_a_time(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"0", b"1", b"2"], ordering_key="k")
    async with mq.consume(name, group=name, orderly=True, start="first") as consumer:
        first = await consumer.next(30)
        assert first is not None and first.body == b"0"
        assert await consumer.next(0.5) is None
        first.ack()
        second = await consumer.next(30)
        assert second is not None and second.body == b"1"
        second.ack()


async def test_two_members_share_the_queues(world: World, mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=4)
    async with connect(world.namesrv, settings=PATIENT) as other, mq.consume(name, group=name, start="first") as one:
        assert len(one.assignment) == 4
        async with other.consume(name, group=name, start="first") as two:
            await eventually(lambda: len(one.assignment) == 2 and len(two.assignment) == 2)
            assert {*one.assignment, *two.assignment} == set(await mq.producer().queues(name))
        await eventually(lambda: len(one.assignment) == 4)


async def test_settling_after_a_queue_moved_raises_nothing(world: World, mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    await mq.send_many(name, [b"x"] * 10)
    async with connect(world.namesrv, settings=PATIENT) as other, mq.consume(name, group=name, start="first") as one:
        taken = [await anext(one) for _ in range(10)]
        async with other.consume(name, group=name, start="first") as two:
            await eventually(lambda: len(one.assignment) == 1 and len(two.assignment) == 1)
            for message in taken:
                message.ack()
            await one.commit()
            moved = [message for message in taken if message.queue not in one.assignment]
            async with asyncio.timeout(60):
                again = [await anext(two) for _ in range(len(moved))]
            assert {message.offset_id for message in again} == {message.offset_id for message in moved}


async def test_another_strategy(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=3)
    async with mq.consume(name, group=name, strategy=AveragelyByCircle()) as consumer:
        assert len(consumer.assignment) == 3


async def test_broadcasting_gives_everyone_everything(world: World, name: str, tmp_path: Path) -> None:
    async with (
        connect(world.namesrv, settings=PATIENT) as one,
        connect(world.namesrv, settings=PATIENT, instance_name="second") as two,
    ):
        await one.send_many(name, [b"x"] * 8)
        options = {"group": name, "broadcast": True, "start": "first", "offset_dir": tmp_path}
        for client in (one, two):
            async with client.consume(name, **options) as consumer:  # type: ignore[arg-type]
                for _ in range(8):
                    message = await consumer.next(30)
                    assert message is not None
                    message.ack()
        assert len(list(tmp_path.glob("*/*/offsets.json"))) == 2
        await one.send(name, b"new")
        async with one.consume(name, **options) as consumer:  # type: ignore[arg-type]
            message = await consumer.next(30)
            assert message is not None and message.body == b"new"


async def test_a_new_group_may_begin_at_the_end_or_at_a_time(mq: Client, name: str, collect: Collect) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send(name, b"old")
    middle = time.time() + 0.05
    await eventually(lambda: time.time() > middle + 0.05)
    await mq.send(name, b"new")
    await until_stored(mq, name, 2)  # or the time is looked for in an empty queue
    (got,) = await collect(name, 1, start="timestamp", start_at=middle)
    assert got.body == b"new"
    when = datetime.fromtimestamp(middle, UTC)
    (got,) = await collect(name, 1, start=when, group=f"{name}-since")
    assert got.body == b"new"


@pytest.mark.parametrize("wrong", ["latest", "earliest", 5, None])
async def test_a_start_that_there_is_not(mq: Client, name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="start must be 'last', 'first' or a datetime, not"):
        mq.consume(name, group=name, start=wrong)


async def test_an_option_that_there_is_not(mq: Client, name: str) -> None:
    with pytest.raises(TypeError, match="has no option 'orderley': did you mean orderly"):
        mq.consume(name, group=name, orderley=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no option 'qqq': there are broadcast, orderly"):
        await mq.listen(name, print, group=name, qqq=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="concurrency must be at least 1"):
        mq.lite_pull(group=name, concurrency=0)


async def test_a_reset_brings_messages_again(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    await mq.send_many(name, [b"x"] * 10)
    seen = []

    async def listener(message: Delivery) -> None:
        seen.append(message.offset_id)

    async with await mq.listen(name, listener, group=name, start="first", long_poll=1.0) as listening:
        await eventually(lambda: len(seen) == 10)
        await listening.consumer.commit()
        await until_caught_up(mq, name, name)
        await mq.admin.groups.reset_to_time(name, name, 0)
        await eventually(lambda: len(seen) == 20, 60)
        assert sorted(seen[:10]) == sorted(seen[10:])
        await listening.consumer.reset(dict.fromkeys(listening.consumer.assignment, 0))
        await eventually(lambda: len(seen) == 30)


async def test_one_consumer_of_a_group_for_each_client(mq: Client, name: str) -> None:
    await make_topic(mq, name)
    async with mq.consume(name, group=name):
        with pytest.raises(GroupInUseError, match="already"):
            await mq.consume(name, group=name).start()


async def test_a_topic_that_comes_later(mq: Client, name: str) -> None:
    async with mq.consume(name, group=name, start="first") as consumer:
        await make_topic(mq, name)
        await mq.send(name, b"x")
        message = await consumer.next(30)
    assert message is not None


async def test_one_more_topic(mq: Client, name: str) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        await make_topic(mq, topic)
        await mq.send(topic, topic.encode())
    async with mq.consume(name, group=name, start="first") as consumer:
        first = await consumer.next(30)
        await consumer.subscribe(other)
        second = await consumer.next(30)
        assert first is not None and second is not None
        assert {first.topic, second.topic} == {name, other}
        await consumer.unsubscribe(other)
        assert {queue.topic for queue in consumer.assignment} == {name}


async def test_pausing(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    async with mq.consume(name, group=name, start="first") as consumer:
        consumer.pause()
        await mq.send(name, b"on its way")  # a pull that waits at the broker is answered all the same
        await until_stored(mq, name, 1)
        await consumer.next(5)
        await mq.send(name, b"x")
        await until_stored(mq, name, 2)
        assert await consumer.next(1) is None
        consumer.resume()
        assert await consumer.next(30) is not None


async def test_too_much_held_pauses_pulling(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"x"] * 300)
    async with mq.consume(name, group=name, start="first", queue_messages=50) as consumer, asyncio.timeout(60):
        unsettled = consumer.queues[MessageQueue(name, consumer.assignment[0].broker_name, 0)].unsettled
        await eventually(lambda: unsettled.count > 50)
        for _ in range(300):
            assert unsettled.count <= 50 + 32
            (await anext(consumer)).ack()
        assert unsettled.count == 0


async def test_a_message_that_takes_too_long_is_given_back(mq: Client, name: str) -> None:
    await mq.send(name, b"slow")
    async with mq.consume(name, group=name, start="first", consume_timeout=0.5) as consumer:
        message = await consumer.next(30)
        assert message is not None
        await eventually(lambda: all(not assigned.unsettled.count for assigned in consumer.queues.values()))
        assert message.settled
        await consumer.commit()
        await until_caught_up(mq, name, name)


async def test_requests_and_replies(world: World, mq: Client, name: str) -> None:
    await make_topic(mq, name)

    async def listener(message: Delivery) -> None:
        await other.reply(message, b"re: " + message.body)

    async with (
        connect(world.namesrv, settings=PATIENT) as other,
        await other.listen(name, listener, group=name, start="first"),
    ):
        replies = await asyncio.gather(*(mq.request(name, b"%d" % n, timeout=20) for n in range(5)))
    assert [reply.body for reply in replies] == [b"re: %d" % n for n in range(5)]


async def test_namespaces_keep_names_apart(world: World, name: str) -> None:
    async with (
        connect(world.namesrv, settings=PATIENT, namespace="ns1") as one,
        connect(world.namesrv, settings=PATIENT) as plain,
    ):
        await one.send(name, b"x")
        async with one.consume(name, group=name, start="first") as consumer:
            message = await consumer.next(30)
        assert message is not None and message.topic == name
        wrapped = f"ns1%{name}"
        await becomes(lambda: _lists(plain, wrapped), True)
        await plain.send(wrapped, Message(body=b"y"))
        async with one.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
            bodies = {(await anext(consumer)).body, (await anext(consumer)).body}
        assert bodies == {b"x", b"y"}


async def _lists(mq: Client, topic: str) -> bool:
    return topic in await mq.admin.topics.list()
