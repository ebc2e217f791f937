"""Orderly consumers: one message of a queue at a time, whatever happens to assignments, locks and consumers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.waiting import answered, eventually

from kourou.client import Client, Consumer, Delivery, MessageQueue, connect
from kourou.client.assigned_queue import LOCK_VALID_S
from kourou.embedded import Embedded

from .conftest import PATIENT


@pytest.fixture
async def mq() -> AsyncIterator[Client]:
    async with Embedded() as broker, connect(broker.namesrv, settings=PATIENT) as client:
        await client.admin.topics.create("orders", queues=1)
        await client.send_batch("orders", [b"0", b"1", b"2"])
        yield client


QUEUE = MessageQueue("orders", "broker-a", 0)


async def leaves_and_returns(consumer: Consumer) -> None:
    await consumer.rebalancer.give_up([QUEUE])
    await consumer.rebalancer.run()


async def is_reset(consumer: Consumer) -> None:
    await consumer.reset({QUEUE: 0})


@pytest.mark.parametrize("change", [leaves_and_returns, is_reset])
async def test_a_queue_that_returns_waits_for_the_message_that_is_being_processed(mq: Client, change: object) -> None:
    assert callable(change)
    running: list[bytes] = []
    done: list[bytes] = []
    may_end = asyncio.Event()

    async def work(message: Delivery) -> None:
        running.append(message.body)
        assert len(running) == 1, "two messages of a queue at a time"
        await may_end.wait()
        running.remove(message.body)
        done.append(message.body)

    async with await mq.listen("orders", work, group="g", orderly=True, start="first") as listening:
        await eventually(lambda: running == [b"0"])
        await change(listening.consumer)
        assigned = listening.consumer.queues[QUEUE]
        await eventually(lambda: len(assigned.waiting) + assigned.offered == 3)
        for _ in range(20):
            await asyncio.sleep(0)  # enough turns for a worker to take what is offered
        assert running == [b"0"]
        may_end.set()
        await eventually(lambda: done[-3:] == [b"0", b"1", b"2"])
    assert done == [b"0", b"0", b"1", b"2"]


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_message_whose_processing_was_cancelled_is_delivered_again(
    mq: Client, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    monkeypatch.setattr("kourou.client.consumer.LOCAL_RETRY_S", 0.01)
    seen: list[tuple[bytes, int]] = []
    async with mq.consume("orders", group="g", orderly=orderly, start="first", suspend=0.01) as consumer:
        message = await consumer.__anext__()

        async def process() -> None:
            async with message.process():
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process(), 0.05)
        message.release()  # a second time does nothing
        while {body for body, _ in seen} != {b"0", b"1", b"2"}:
            async with (await consumer.__anext__()).process() as message:
                seen.append((message.body, message.reconsume_times))
        await consumer.commit()
    assert sorted(seen) == [(b"0", 0), (b"1", 0), (b"2", 0)]
    assert not orderly or seen == sorted(seen)
    assert (await mq.admin.groups.progress("g")).lag == 0


async def test_a_message_that_was_released_may_still_be_acknowledged(mq: Client) -> None:
    async with mq.consume("orders", group="g", orderly=True, start="first", suspend=0.01) as consumer:
        first = await consumer.__anext__()
        first.release()
        await first.ack()
        for expected in (b"1", b"2"):
            message = await consumer.__anext__()
            assert message.body == expected
            await message.ack()


async def test_nothing_is_handed_out_without_the_lock(mq: Client) -> None:
    async with mq.consume("orders", group="g", orderly=True, start="first") as consumer:
        await eventually(lambda: consumer.queues[QUEUE].offered == 1)
        consumer.queues[QUEUE].locked_at -= LOCK_VALID_S  # as if this process had been stopped for so long
        taking = asyncio.create_task(consumer.__anext__())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not taking.done()
        await consumer.rebalancer.renew_locks()
        message = await taking
        assert message.body == b"0"


async def test_a_lock_that_another_member_has_got_is_lost_at_once(mq: Client) -> None:
    async with (
        mq.consume("orders", group="g", orderly=True, start="first") as consumer,
        connect(mq.session.name_servers.addresses, settings=PATIENT) as other,
    ):
        message = await consumer.__anext__()
        await consumer.rebalancer.unlock([consumer.queues[QUEUE]])  # as a restart of the broker does

        async def is_taken() -> bool:
            rival = Consumer(other.session, "g", {"orders": (None, None)}, consumer.settings)
            return bool((await rival.rebalancer._lock([QUEUE]))[0])

        await mq.session.routes.refresh("orders")
        await other.session.routes.refresh("orders")
        await answered(is_taken)
        await consumer.rebalancer.renew_locks()
        await message.ack()
        assert await consumer.next(timeout=0.1) is None
