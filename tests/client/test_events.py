"""The events of a client: connections, and queues that are assigned and revoked."""

import asyncio
import threading

import pytest
from tests.waiting import eventually

import kourou.sync
from kourou.client import Client, Connected, ConnectionEvent, Delivery, Disconnected, MessageQueue, connect
from kourou.client.events import EVENTS_MAX, Announcer

from .conftest import PATIENT, World
from .steps import make_topic, until_stored
from .test_faults import Wire, through


async def test_connections_are_told_of(world: World, name: str) -> None:
    seen: list[ConnectionEvent] = []

    async def on_connection(event: ConnectionEvent) -> None:
        seen.append(event)

    async with connect(world.namesrv, settings=PATIENT, on_connection=on_connection) as mq:
        await mq.send(name, b"x")
        await eventually(lambda: len(seen) == 2)
        assert seen[0] == Connected(world.namesrv)
        assert isinstance(seen[1], Connected) and seen[1].address.endswith(world.broker.rpartition(":")[2])
    assert {event.address for event in seen[2:]} == {event.address for event in seen[:2]}
    assert all(isinstance(event, Disconnected) and "client" in event.reason for event in seen[2:])


async def test_a_connection_that_breaks_is_told_of(kourou_world: World, name: str) -> None:
    seen: list[ConnectionEvent] = []
    async with (
        Wire(kourou_world.broker) as wire,
        connect(kourou_world.namesrv, settings=PATIENT, on_connection=seen.append) as mq,
    ):
        through(mq, kourou_world.broker, wire.address)
        await mq.send(name, b"x")
        await eventually(lambda: Connected(kourou_world.broker) in seen)
        wire.cut()
        await eventually(lambda: any(isinstance(event, Disconnected) for event in seen))
        await mq.send(name, b"x")
        await eventually(lambda: seen.count(Connected(kourou_world.broker)) == 2)


async def test_a_slow_or_failing_callback_has_no_other_effect(caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()
    seen: list[str] = []

    async def callback(event: ConnectionEvent) -> None:
        await go_on.wait()
        seen.append(event.address)
        raise ValueError("not today")

    announcer = Announcer(callback)
    for number in range(EVENTS_MAX * 2):
        announcer.tell(Connected(str(number)))
    await asyncio.sleep(0)
    go_on.set()
    await announcer.finish(30)
    assert len(seen) <= EVENTS_MAX + 1
    assert seen[-1] == str(EVENTS_MAX * 2 - 1)
    assert "not today" in caplog.text and "too slow" in caplog.text


async def test_queues_that_come_and_go(world: World, mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=4)
    told: list[tuple[str, int]] = []
    ours: set[MessageQueue] = set()

    async def on_assigned(queues: list[MessageQueue]) -> None:
        told.append(("assigned", len(queues)))
        ours.update(queues)

    def on_revoked(queues: list[MessageQueue]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        told.append(("revoked", len(queues)))
        ours.difference_update(queues)

    async with connect(world.namesrv, settings=PATIENT) as other:
        async with mq.consume(name, group=name, on_assigned=on_assigned, on_revoked=on_revoked) as one:
            assert told == [("assigned", 4)]
            assert ours == set(one.assignment)
            async with other.consume(name, group=name) as two:
                await eventually(lambda: len(two.assignment) == 2 and len(ours) == 2)
                assert ours == set(one.assignment)
            await eventually(lambda: len(ours) == 4)
        assert not ours
    assert told[-1] == ("revoked", 4)


async def test_what_is_settled_when_a_queue_goes_counts(mq: Client, name: str) -> None:
    """A callback may settle messages: offsets are stored after it."""
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"a", b"b"], ordering_key="k")
    in_work: list[Delivery] = []

    async def on_revoked(queues: list[MessageQueue]) -> None:
        for message in in_work:
            await message.ack()

    async with mq.consume(name, group=name, start="first", on_revoked=on_revoked) as consumer:
        in_work.append(await consumer.next(30) or pytest.fail("nothing came"))
    async with mq.consume(name, group=name, start="first") as consumer:
        message = await consumer.next(30)
    assert message is not None and message.body == b"b"


async def test_seeking_when_a_queue_comes(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"0", b"1", b"2"], ordering_key="k")
    await until_stored(mq, name, 3)

    async def on_assigned(queues: list[MessageQueue]) -> None:
        await consumer.reset(dict.fromkeys(queues, 2))

    consumer = mq.consume(name, group=name, start="first", on_assigned=on_assigned)
    async with consumer:
        message = await consumer.next(30)
    assert message is not None and message.body == b"2"


async def test_a_callback_that_fails_is_logged(mq: Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
    await mq.send(name, b"x")

    def on_assigned(queues: list[MessageQueue]) -> None:
        raise ValueError("not today")

    async with mq.consume(name, group=name, start="first", on_assigned=on_assigned) as consumer:
        assert await consumer.next(30) is not None
    assert "not today" in caplog.text


def test_callbacks_without_asyncio_may_use_the_client(world: World, name: str) -> None:
    depth: list[int] = []
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.run(lambda client: make_topic(client, name, queues=2))

        def on_assigned(queues: list[MessageQueue]) -> None:
            depth.append(len(mq.admin.topics.stats(name)))

        with mq.consume(name, group=name, on_assigned=on_assigned):
            assert depth == [2]
