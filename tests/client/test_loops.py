"""However a loop over a consumer ends, its queues are given back at once, and the group can be consumed again."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable

import pytest
from tests.waiting import answered, eventually

import kourou.sync
from kourou.client import Client, ClosedError, Consumer, Delivery, connect
from kourou.protocol.errors import ConsumerNotOnlineError

from .conftest import PATIENT, World
from .steps import make_topic


async def by_break(mq: Client, name: str, body: list[bytes]) -> None:
    async for message in mq.consume(name, group=name, start="first"):
        async with message.process():
            body.append(message.body)
        break


async def by_break_inside_of_process(mq: Client, name: str, body: list[bytes]) -> None:
    async for message in mq.consume(name, group=name, start="first"):
        async with message.process():
            body.append(message.body)
            break


async def by_return(mq: Client, name: str, body: list[bytes]) -> None:
    async for message in mq.consume(name, group=name, start="first"):
        await message.ack()
        body.append(message.body)
        return


async def by_an_exception(mq: Client, name: str, body: list[bytes]) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async for message in mq.consume(name, group=name, start="first"):
            await message.ack()
            body.append(message.body)
            print(1 / 0)


async def by_cancellation(mq: Client, name: str, body: list[bytes]) -> None:
    taken = asyncio.Event()

    async def loop() -> None:
        async for message in mq.consume(name, group=name, start="first"):
            await message.ack()
            body.append(message.body)
            taken.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(loop())
    await taken.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def by_a_comprehension_that_fails(mq: Client, name: str, body: list[bytes]) -> None:
    def fail(message: Delivery) -> bytes:
        message.ack()
        body.append(message.body)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        [fail(message) async for message in mq.consume(name, group=name, start="first")]


WAYS = [
    by_break,
    by_break_inside_of_process,
    by_return,
    by_an_exception,
    by_cancellation,
    by_a_comprehension_that_fails,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_leaving_a_loop_gives_the_queues_back(
    world: World, mq: Client, name: str, way: Callable[[Client, str, list[bytes]], Awaitable[None]]
) -> None:
    await make_topic(mq, name, queues=2)
    await mq.send_many(name, [b"%d" % number for number in range(10)])
    body: list[bytes] = []
    async with asyncio.timeout(60):
        for _ in range(3):  # at once: no GroupInUseError
            await way(mq, name, body)
        await eventually(lambda: not mq.session.members)

        async def is_gone() -> bool:
            try:
                await mq.admin.groups.connections(name)
            except ConsumerNotOnlineError:
                return True
            return False

        assert await answered(is_gone)
        async with (
            connect(world.namesrv, settings=PATIENT) as other,
            other.consume(name, group=name, start="first") as consumer,
        ):
            await eventually(lambda: len(consumer.assignment) == 2)
            while len(set(body)) < 10:
                message = await consumer.next(30)
                assert message is not None
                await message.ack()
                body.append(message.body)
    assert sorted(set(body)) == [b"%d" % number for number in range(10)]
    assert not mq._consumers


async def test_a_consumer_that_was_started_by_hand_outlives_its_loops(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"x"] * 4)
    async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
        for _ in range(4):
            async for message in consumer:
                await message.ack()
                break
            assert consumer.is_running
    with pytest.raises(ClosedError, match="call consume again"):
        async for _ in consumer:
            pass


async def test_several_loops_own_a_consumer_together(mq: Client, name: str) -> None:
    await mq.send_many(name, [b"%d" % number for number in range(20)])
    consumer = mq.consume(name, group=name, start="first")
    seen: list[bytes] = []
    looked, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()

    async def work(count: int, may_end: asyncio.Event) -> None:
        async for message in consumer:
            await message.ack()
            seen.append(message.body)
            count -= 1
            if not count:
                await may_end.wait()
                break

    async with asyncio.timeout(60):
        first, second = asyncio.create_task(work(5, at_once)), asyncio.create_task(work(15, looked))
        await first
        assert consumer.is_running
        looked.set()
        await second
    assert len(set(seen)) == 20
    await eventually(lambda: not consumer.is_running)


async def test_a_loop_that_is_dropped_with_its_task_ends_too(mq: Client, name: str) -> None:
    """The last reference to the iterator is dropped; the garbage collector may notice that in another thread."""
    await mq.send(name, b"x")
    consumer = mq.consume(name, group=name, start="first")
    messages = aiter(consumer)
    await (await anext(messages)).ack()
    cycle: list[object] = [messages]
    cycle.append(cycle)
    del messages, cycle
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    await eventually(lambda: not consumer.is_running)


async def test_a_failed_start_leaves_nothing(mq: Client, name: str) -> None:
    await mq.send(name, b"x")
    async with mq.consume(name, group=name, start="first"):
        with pytest.raises(kourou.KourouError, match="already"):
            async for _ in mq.consume(name, group=name):
                pass
    await eventually(lambda: not mq._consumers)


async def test_a_retry_that_is_not_awaited_is_done_before_the_consumer_closes(mq: Client, name: str) -> None:
    await mq.send(name, b"x")
    async for message in mq.consume(name, group=name, start="first"):
        message.retry(1)
        break
    async with mq.consume(name, group=name, start="first") as consumer:
        again = await consumer.next(60)
    assert again is not None and again.reconsume_times == 1


def sync_break(mq: kourou.sync.Client, name: str) -> None:
    for message in mq.consume(name, group=name, start="first"):
        message.ack()
        break


def sync_exception(mq: kourou.sync.Client, name: str) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        for message in mq.consume(name, group=name, start="first"):
            with message.process():
                print(1 / 0)


@pytest.mark.parametrize("way", [sync_break, sync_exception])
def test_leaving_a_loop_without_asyncio(
    world: World, name: str, way: Callable[[kourou.sync.Client, str], None]
) -> None:
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.send_many(name, [b"x"] * 5)
        for _ in range(3):
            way(mq, name)
            assert mq.run(_members) == []
        with mq.consume(name, group=name, start="first") as consumer:
            for message in consumer:
                message.ack()
                break
            assert consumer.is_running
        with pytest.raises(ClosedError):
            iter(consumer)


async def _members(mq: Client) -> list[str]:
    return list(mq.session.members)


async def test_the_object_is_a_consumer_still(mq: Client, name: str) -> None:
    consumer = mq.consume(name, group=name)
    assert isinstance(consumer, Consumer)
    await consumer.close()
    assert not mq._consumers


async def test_a_consumer_whose_start_is_cancelled_leaves_its_group(name: str) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with silent, connect(f"127.0.0.1:{port}", settings=PATIENT) as mq:

        async def enter() -> None:
            async with mq.consume("t", group=name):
                pass

        async def listen() -> None:
            async with await mq.listen("t", print, group=name):
                pass

        for work in (enter, listen):
            task = asyncio.create_task(work())
            await eventually(lambda: name in mq.session.members)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: name not in mq.session.members)
