"""Functions of the user that misbehave: the client goes on."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.waiting import eventually

from kourou.client import (
    Averagely,
    Client,
    ClosedError,
    Configured,
    ConsumerOptions,
    Delivery,
    MessageQueue,
    connect,
)

from .conftest import World
from .steps import make_topic


@pytest.fixture
def world(kourou_world: World) -> World:
    """One broker is enough, because these tests concern the client alone."""
    return kourou_world


class Stubborn:
    """A strategy that fails now and then."""

    name = "STUBBORN"

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        self.calls += 1
        if self.fails:
            raise ValueError("the machine room of this client is not known")
        return Averagely().allocate(client_id, queues, client_ids)


async def test_a_strategy_that_fails_keeps_the_queues_and_is_asked_again(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    strategy = Stubborn()
    async with mq.consume(name, group=name, strategy=strategy, rebalance_interval=0.05) as consumer:
        strategy.fails = True
        consumer.rebalance_soon()
        calls = strategy.calls
        await eventually(lambda: strategy.calls > calls + 1)
        assert len(consumer.assignment) == 2


async def test_configured_queues_are_pulled_once(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=2)
    queues = await mq.producer().queues(name)
    settings: ConsumerOptions = {"strategy": Configured(queues[:1]), "rebalance_interval": 0.05, "start": "first"}
    async with mq.consume(name, group=name, **settings) as consumer:
        before = mq.metrics.rebalances
        await eventually(lambda: mq.metrics.rebalances > before + 3)
        assert consumer.assignment == [queues[0]]
        await mq.send(name, b"once", queue=queues[0])
        message = await consumer.next(10)
        assert message is not None and message.body == b"once"
        message.ack()
        pulls = [task for task in asyncio.all_tasks() if task.get_name().startswith(f"pull {name}")]
        assert len(pulls) == 1


async def test_a_listener_whose_own_work_was_cancelled_has_failed(mq: Client, name: str) -> None:
    seen: list[int] = []

    async def listener(message: Delivery) -> None:
        seen.append(message.reconsume_times)
        if len(seen) == 1:
            inner = asyncio.ensure_future(asyncio.get_running_loop().create_future())
            inner.cancel()
            await inner

    await make_topic(mq, name, queues=1)
    async with await mq.listen(name, listener, group=name, start="first", concurrency=1):
        await mq.send(name, b"1")
        await mq.send(name, b"2")
        await eventually(lambda: len(seen) >= 2)


async def test_a_blocking_listener_that_raises_stop_iteration_has_failed(mq: Client, name: str) -> None:
    seen: list[bytes] = []

    def listener(message: Delivery) -> None:
        seen.append(message.body)
        next(iter(()))

    await make_topic(mq, name, queues=1)
    async with await mq.listen(name, listener, group=name, start="first", concurrency=1):
        await mq.send(name, b"1")
        await mq.send(name, b"2")
        await eventually(lambda: len(seen) >= 2)


FOR_EVER = 3600.0
"""As settle_timeout: how long a listener that waits for itself would wait."""

PATIENCE = 60.0


@pytest.mark.parametrize("what", ["listening", "consumer", "client", "task"])
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_listener_may_close_what_calls_it(world: World, name: str, what: str, blocks: bool) -> None:
    """Its message is consumed: nothing is delivered again."""
    mq = connect(world.namesrv)
    closed: list[bool] = []
    loop = asyncio.get_running_loop()

    async def close() -> None:
        if what == "task":
            await asyncio.create_task(listening.close())
        else:
            closing = {"listening": listening.close, "consumer": listening.consumer.close, "client": mq.close}
            await closing[what]()
        closed.append(True)

    async def listener(_: Delivery) -> None:
        await close()

    def blocking(_: Delivery) -> None:
        asyncio.run_coroutine_threadsafe(close(), loop).result()

    await make_topic(mq, name, queues=1)
    await mq.send(name, b"1")
    listening = await mq.listen(
        name, blocking if blocks else listener, group=name, start="first", concurrency=1, settle_timeout=FOR_EVER
    )
    await eventually(lambda: closed, PATIENCE)
    await asyncio.wait_for(listening.close(), PATIENCE)
    await mq.close()
    async with connect(world.namesrv) as other, other.consume(name, group=name, start="first") as consumer:
        await other.send(name, b"2")
        message = await consumer.next(30)
        assert message is not None and message.body == b"2"
        message.ack()


async def test_a_callback_may_close_its_consumer(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    calls: list[str] = []

    async def on_assigned(_: list[MessageQueue]) -> None:
        calls.append("assigned")
        await consumer.close()

    async def on_revoked(_: list[MessageQueue]) -> None:
        calls.append("revoked")
        await consumer.close()

    consumer = mq.consume(
        name, group=name, start="first", on_assigned=on_assigned, on_revoked=on_revoked, settle_timeout=FOR_EVER
    )
    with pytest.raises(ClosedError):
        await asyncio.wait_for(consumer.start(), PATIENCE)
    await asyncio.wait_for(consumer.close(), PATIENCE)
    assert calls[0] == "assigned"

    calls.clear()
    consumer = mq.consume(name, group=f"{name}-2", start="first", on_revoked=on_revoked, settle_timeout=FOR_EVER)
    await consumer.start()
    await asyncio.wait_for(consumer.close(), PATIENCE)
    assert calls == ["revoked"]


async def test_a_callback_whose_own_work_was_cancelled_stops_nothing(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)

    async def on_assigned(queues: list[MessageQueue]) -> None:
        raise asyncio.CancelledError

    async with mq.consume(name, group=name, start="first", on_assigned=on_assigned) as consumer:
        await mq.send(name, b"x")
        message = await consumer.next(10)
        assert message is not None
        message.ack()
