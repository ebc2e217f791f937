"""What goes wrong around a client: servers that die, connections that break, listeners that fail, cancellation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from tests.waiting import eventually

from kourou.client import (
    Client,
    ClosedError,
    Delivery,
    Message,
    MessageQueue,
    NoNameServerError,
    NoReplyError,
    NoRouteError,
    NotANameServerError,
    ProducerSettings,
    RefusedError,
    SendManyError,
    connect,
)
from kourou.embedded import Embedded
from kourou.net.errors import ConnectFailedError, TransportError

from .conftest import PATIENT, World
from .steps import until_caught_up


@pytest.fixture
async def own() -> AsyncIterator[Embedded]:
    """A broker of the test's own, which it may stop."""
    broker = Embedded()
    await broker.start()
    yield broker
    await broker.stop()


class Wire:
    """A relay before a server, which can be cut, or go silent."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.silent = False
        self.relayed = 0
        self.cut_after: int | None = None  # bytes towards the server

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return self

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, there}
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._copy(reader, there, forward=True), self._copy(there_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forward: bool = False) -> None:
        while data := await reader.read(4096):
            if forward:
                self.relayed += len(data)
                if self.cut_after is not None and self.relayed > self.cut_after:
                    self.cut_after = None
                    self.cut()
                    return
            if not self.silent:
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)


def through(mq: Client, broker: str, wire: str) -> None:
    """Lets the client reach the broker by the wire."""
    pool = mq.session.pool
    opened = pool._open
    pool._open = lambda address: opened(wire if address == broker else address)  # type: ignore[method-assign]


async def test_no_name_server(unused_tcp_port: int) -> None:
    async with connect(f"127.0.0.1:{unused_tcp_port}") as mq:
        with pytest.raises(NoNameServerError, match=str(unused_tcp_port)):
            await mq.send("topic", b"x")


async def test_no_address_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with connect() as mq:
        with pytest.raises(NoNameServerError, match="NAMESRV_ADDR"):
            await mq.send("topic", b"x")


async def test_addresses_from_the_environment(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", world.namesrv)
    async with connect(settings=PATIENT) as mq:
        assert (await mq.send(name, b"x")).is_safe


async def test_the_next_name_server_is_asked(world: World, name: str, unused_tcp_port: int) -> None:
    for _ in range(4):  # the first is chosen by chance
        async with connect(f"127.0.0.1:{unused_tcp_port};{world.namesrv}", settings=PATIENT) as mq:
            assert (await mq.send(name, b"x")).is_safe


async def test_name_servers_by_http(world: World, name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = f"{world.namesrv}\n".encode()
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, connect(discovery_url=f"http://127.0.0.1:{port}/rocketmq/nsaddr", settings=PATIENT) as mq:
        assert (await mq.send(name, b"x")).is_safe


async def test_a_topic_without_a_route() -> None:
    async with (
        Embedded(properties={"autoCreateTopicEnable": "false"}) as strict,
        connect(strict.namesrv, settings=PATIENT) as mq,
    ):
        with pytest.raises(NoRouteError, match="autoCreateTopicEnable"):
            await mq.send("unknown", b"x")


async def test_sends_survive_a_cut_connection(own: Embedded) -> None:
    async with Wire(own.address) as wire, connect(own.namesrv, settings=PATIENT) as mq:
        through(mq, own.address, wire.address)
        await mq.send("topic", b"first")
        for number in range(5):
            wire.cut_after = wire.relayed + 50
            assert (await mq.send("topic", b"%d" % number)).is_safe


async def test_many_sends_survive_a_cut_connection(own: Embedded) -> None:
    async with Wire(own.address) as wire, connect(own.namesrv, settings=PATIENT) as mq:
        through(mq, own.address, wire.address)
        await mq.send("topic", b"first")
        wire.cut_after = wire.relayed + 20_000
        results = await mq.send_many("topic", [b"%d" % number for number in range(500)])
        assert len(results) == 500
        assert mq.metrics.sent["topic"].retries > 0


async def test_a_silent_broker_costs_no_more_than_the_time_limit(own: Embedded) -> None:
    async with Wire(own.address) as wire, connect(own.namesrv, settings=PATIENT) as mq:
        through(mq, own.address, wire.address)
        await mq.send("topic", b"first")
        wire.silent = True
        began = asyncio.get_running_loop().time()
        with pytest.raises(TransportError):
            await mq.send("topic", b"x", timeout=0.5)
        assert asyncio.get_running_loop().time() - began < 10  # and not the 20 of other sends


async def test_a_refusal_that_will_not_change_is_not_tried_again() -> None:
    """A broker without timers says so with SYSTEM_ERROR, which also means trouble that passes."""
    async with (
        Embedded(properties={"timerWheelEnable": "false"}) as own,
        connect(own.namesrv, settings=PATIENT) as mq,
    ):
        await mq.send("topic", b"x")
        with pytest.raises(RefusedError, match="timer message is not enabled") as caught:
            await mq.send("topic", b"x", delay=timedelta(seconds=1.5))
        assert not caught.value.retriable
        with pytest.raises(SendManyError):
            await mq.send_many("topic", [Message(body=b"x", delay=timedelta(seconds=1.5))] * 3)
        assert (mq.metrics.sent["topic"].failures, mq.metrics.sent["topic"].retries) == (4, 0)


async def test_the_address_of_a_broker_instead_of_a_name_servers(own: Embedded) -> None:
    async with connect(own.address, settings=PATIENT) as mq:
        with pytest.raises(NotANameServerError, match=f"{own.address} is not a name server"):
            await mq.send("topic", b"x")
        with pytest.raises(NotANameServerError, match="10911"):
            await mq.admin.brokers.cluster()
    async with connect([own.address, own.namesrv], settings=PATIENT) as mq:
        assert (await mq.send("topic", b"x")).is_safe  # another address is one


async def test_failures_of_many_are_told_one_by_one(own: Embedded) -> None:
    async with connect(own.namesrv, settings=PATIENT, producer=ProducerSettings(retries=0, timeout=1)) as mq:
        await mq.send("topic", b"x")
        await own.stop()
        with pytest.raises(SendManyError) as caught:
            await mq.send_many("topic", [b"x"] * 5)
        assert len(caught.value.results) == 5


async def test_a_consumer_goes_on_after_a_cut(own: Embedded) -> None:
    async with (
        Wire(own.address) as wire,
        connect(own.namesrv, settings=PATIENT) as mq,
        connect(own.namesrv, settings=PATIENT) as sender,
    ):
        through(mq, own.address, wire.address)
        seen: set[bytes] = set()

        async def listener(message: Delivery) -> None:
            seen.add(message.body)

        await sender.send("topic", b"0")
        async with await mq.listen("topic", listener, group="group", start="first"):
            await eventually(lambda: b"0" in seen)
            for number in range(1, 4):
                wire.cut()
                await sender.send("topic", b"%d" % number)
                await eventually(lambda number=number: b"%d" % number in seen)  # type: ignore[misc]


async def test_a_broker_that_restarts(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("store")
    first = Embedded(store=store)
    await first.start()
    ports = {"namesrv_port": int(first.namesrv.rpartition(":")[2]), "port": int(first.address.rpartition(":")[2])}
    seen: list[bytes] = []

    async def listener(message: Delivery) -> None:
        seen.append(message.body)

    async with connect(first.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"before")
        async with await mq.listen("topic", listener, group="group", start="first"):
            await eventually(lambda: seen == [b"before"])
            await first.stop()
            async with Embedded(store=store, **ports):  # type: ignore[arg-type]
                await mq.send("topic", b"after", timeout=15)
                await eventually(lambda: b"after" in seen, 40)


async def test_a_listener_that_always_raises_delays_no_other_message(own: Embedded) -> None:
    seen = []

    async def listener(message: Delivery) -> None:
        if message.body == b"bad":
            raise ValueError("always")
        seen.append(message.body)

    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send_many("topic", [b"bad", b"good"] * 20)
        async with await mq.listen("topic", listener, group="group", start="first", concurrency=2):
            await eventually(lambda: len(seen) == 20)


async def test_a_closed_client_says_so(own: Embedded) -> None:
    mq = connect(own.namesrv, settings=PATIENT)
    async with mq:
        await mq.send("topic", b"x")
    with pytest.raises(ClosedError):
        await mq.send("topic", b"x")
    await mq.close()


async def test_close_waits_for_sends(own: Embedded) -> None:
    mq = connect(own.namesrv, settings=PATIENT)
    await mq.send("topic", b"x")
    sends = [asyncio.create_task(mq.send("topic", b"x")) for _ in range(50)]
    await asyncio.sleep(0)
    await mq.close()
    assert all(result.is_safe for result in await asyncio.gather(*sends))


async def test_close_lets_listeners_finish(own: Embedded) -> None:
    finished: list[bytes] = []
    begun = asyncio.Event()

    async def listener(message: Delivery) -> None:
        begun.set()
        await eventually(lambda: mq._closing is not None)
        finished.append(message.body)

    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"x")
        await mq.listen("topic", listener, group="group", start="first")
        await begun.wait()
    assert finished == [b"x"]
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await until_caught_up(mq, "group", "topic")


async def test_cancelled_anywhere_a_client_works_on(own: Embedded) -> None:
    """Cancel sends and consuming after a random number of turns of the loop, again and again."""
    random = Random("cancel")
    async with connect(own.namesrv, settings=PATIENT, producer=ProducerSettings(in_flight=4, timeout=20)) as mq:
        for _ in range(60):
            tasks = [
                asyncio.create_task(mq.send("topic", b"x" * 5000)),
                asyncio.create_task(mq.send_many("topic", [b"x"] * 20)),
                asyncio.create_task(mq.send_batch("topic", [Message(body=b"x")] * 3)),
            ]
            for _ in range(random.randrange(12)):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert mq.producer()._in_flight.count == 0
            assert mq.producer()._in_flight.size == 0
        assert (await mq.send("topic", b"x")).is_safe
        assert len(await mq.send_many("topic", [b"x"] * 50)) == 50


async def test_taking_may_be_cancelled_without_loss(own: Embedded) -> None:
    random = Random("take")
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send_many("topic", [b"%d" % number for number in range(200)])
        seen: list[int] = []
        async with mq.consume("topic", group="group", start="first") as consumer:
            while len(seen) < 200:
                task = asyncio.create_task(consumer.next(5))
                for _ in range(random.randrange(4)):
                    await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    message = await task
                    assert message is not None
                    message.ack()
                    seen.append(int(message.body))
        assert sorted(seen) == list(range(200))


async def test_starting_may_be_cancelled(own: Embedded) -> None:
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"x")
        for turns in range(12):
            consumer = mq.consume("topic", group="group", start="first")
            task = asyncio.create_task(consumer.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await consumer.close()
            assert "group" not in mq.session.members
        async with mq.consume("topic", group="group", start="first") as consumer:
            assert await consumer.next(30) is not None


async def test_nothing_is_left_behind(own: Embedded) -> None:
    before = asyncio.all_tasks()
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"x")
        async with mq.consume("topic", group="group", start="first") as consumer:
            assert await consumer.next(30) is not None
    # The broker may still be writing its tables, which ends; a task that the client has left does not.
    await eventually(lambda: not asyncio.all_tasks() - before)


async def test_settings_reach_the_client(own: Embedded) -> None:
    settings = replace(PATIENT, request_timeout=19.5, producer_group="mine")
    async with connect(own.namesrv, settings=settings) as mq:
        await mq.send("topic", b"x")
        assert mq.producer().group == "mine"
        assert mq.session.settings.request_timeout == 19.5


async def test_everything_over_tls(own: Embedded) -> None:
    async with connect(own.namesrv, settings=PATIENT, tls=True) as mq:
        await mq.send_many("topic", [b"x" * 100_000] * 5)
        async with mq.consume("topic", group="group", start="first") as consumer, asyncio.timeout(60):
            for _ in range(5):
                message = await anext(consumer)
                message.ack()
                assert message.body == b"x" * 100_000
        assert all(link.is_tls for link in mq.session.pool._links.values())


async def test_many_senders_with_a_small_in_flight_limit(own: Embedded) -> None:
    settings = ProducerSettings(in_flight=3, timeout=20)
    async with connect(own.namesrv, settings=PATIENT, producer=settings) as mq, asyncio.timeout(60):
        results = await asyncio.gather(*(mq.send_many("topic", [b"x"] * 30) for _ in range(8)))
    assert [len(found) for found in results] == [30] * 8


def hangs(mq: Client, *addresses: str) -> None:
    """Connections to these addresses are neither opened nor refused, as when a machine has lost its power."""
    pool = mq.session.pool
    opened = pool._open

    async def begin(address: str) -> object:
        if address in addresses:
            await asyncio.sleep(3600)
        return await opened(address)

    pool._open = begin  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("silent", ["broker", "name server"])
async def test_a_machine_that_is_gone_costs_a_send_no_more_than_its_time_limit(own: Embedded, silent: str) -> None:
    async with connect(own.namesrv, settings=PATIENT) as mq:
        hangs(mq, own.address if silent == "broker" else own.namesrv)
        for send in (mq.send("topic", b"x", timeout=0.3), mq.send_many("topic", [b"x"] * 3, timeout=0.3)):
            began = asyncio.get_running_loop().time()
            address = own.address if silent == "broker" else own.namesrv
            with pytest.raises((TransportError, SendManyError), match=rf"{address} within [\d.]+ s"):
                await send
            assert asyncio.get_running_loop().time() - began < 10  # and not the 20 of a connection


async def test_a_machine_that_is_gone_leaves_time_for_the_other_brokers() -> None:
    async with (
        Embedded(brokers=2) as cluster,
        connect(cluster.namesrv, settings=PATIENT) as admin,
        connect(cluster.namesrv, settings=PATIENT) as mq,
    ):
        await admin.admin.topics.create("topic", queues=2, cluster="DefaultCluster")
        hangs(mq, cluster.broker("broker-a").address)
        for _ in range(3):  # one queue after the other, so some of these try broker-a first
            sent = await mq.send("topic", b"x", timeout=3)
            assert sent.queue.broker_name == "broker-b"


async def test_a_consumer_that_could_not_start_says_so_at_every_use(own: Embedded) -> None:
    """It used to return None at once, as if there were no messages: a loop over it took all of a CPU."""
    is_refused = asyncio.Event()

    async def refuse(address: str) -> object:
        await is_refused.wait()
        raise ConnectFailedError(f"no connection to {address}")

    async with connect(own.namesrv, settings=PATIENT) as mq:
        mq.session.pool._open = refuse  # type: ignore[method-assign, assignment]
        consumer = mq.consume("topic", group="g")
        assert await consumer.next(timeout=0.01) is None  # its start takes longer
        is_refused.set()
        for _ in range(2):
            with pytest.raises(NoNameServerError):
                await consumer.next(timeout=5)
        await consumer.close()
        assert await consumer.next(timeout=5) is None


async def test_closing_a_consumer_that_starts_does_not_cancel_those_who_wait(own: Embedded) -> None:
    """They used to be cancelled with its start, as if somebody had cancelled their task."""
    async with connect(own.namesrv, settings=PATIENT) as mq:
        hangs(mq, own.namesrv)
        consumer = mq.consume("topic", group="g")
        taking = asyncio.create_task(consumer.next())
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await consumer.close()
        assert await taking is None
        with pytest.raises(ClosedError, match="was closed while it started"):
            await starting


@pytest.mark.parametrize("silent", ["broker", "name server"])
async def test_closing_a_client_that_connects_does_not_cancel_those_who_send(own: Embedded, silent: str) -> None:
    settings = replace(PATIENT, producer=replace(PATIENT.producer, drain_timeout=0.05))
    async with connect(own.namesrv, settings=settings) as mq:
        hangs(mq, own.address if silent == "broker" else own.namesrv)
        sends = [asyncio.create_task(mq.send("topic", b"x")) for _ in range(3)]
        await eventually(lambda: mq.session.pool._opening)
        await mq.close()
        for send in sends:
            with pytest.raises(ClosedError):
                await send


async def test_a_request_that_awaits_its_reply_ends_with_the_client(own: Embedded) -> None:
    async with connect(own.namesrv, settings=PATIENT) as mq, connect(own.namesrv, settings=PATIENT) as other:
        asking = asyncio.create_task(mq.request("topic", b"x", timeout=3600))
        async with other.consume("topic", group="g", start="first") as consumer:
            assert await consumer.next(timeout=30) is not None
        await mq.close()
        with pytest.raises(ClosedError, match="before a reply came"):
            await asyncio.wait_for(asking, 30)


async def test_a_request_takes_no_longer_than_its_time_limit(own: Embedded) -> None:
    """Finding the topic's brokers used to come on top of it."""
    async with connect(own.namesrv, settings=PATIENT) as mq:
        hangs(mq, own.namesrv)
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoReplyError):
            await mq.request("topic", b"x", timeout=0.3)
        assert asyncio.get_running_loop().time() - began < 10


async def test_a_transaction_can_not_be_committed_after_its_client_is_closed(own: Embedded) -> None:
    """The block used to end without an error, although nobody was left who could tell the broker."""
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"x")
        transaction = mq.transaction("topic", group="tx")
        async with transaction:
            await transaction.send(b"x")
            await mq.close()
            with pytest.raises(ClosedError, match="before the commit"):
                await transaction.commit()


async def test_a_consumer_looks_for_the_new_master_when_its_pulls_fail(own: Embedded, unused_tcp_port: int) -> None:
    """It used to ask the old one until the periodic refresh of routes, for up to 30 seconds."""
    async with connect(own.namesrv, settings=replace(PATIENT, route_interval=3600)) as mq:
        await mq.send("topic", b"first")
        async with mq.consume("topic", group="g", start="first") as consumer:
            assert await consumer.next(timeout=30) is not None
            mq.session.routes.brokers()["broker-a"].broker_addrs[0] = f"127.0.0.1:{unused_tcp_port}"
            async with connect(own.namesrv, settings=PATIENT) as other:
                for _ in range(4):  # one in each queue
                    await other.send("topic", b"second")
            for _ in range(4):
                assert await consumer.next(timeout=30) is not None
            await eventually(lambda: mq.session.routes.master("broker-a") == own.address)


def test_a_client_is_not_used_in_a_second_event_loop(kourou_world: World, name: str) -> None:
    """It used to wait for ever, or to fail with "Event loop is closed"."""

    async def use(mq: Client) -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            await mq.send(name, b"x")
        with pytest.raises(ClosedError, match="another event loop"):
            await mq.consume(name, group=name).next()

    async def send(mq: Client) -> None:
        await mq.send(name, b"x")

    with asyncio.Runner() as first, asyncio.Runner() as second:
        mq = connect(kourou_world.namesrv, settings=PATIENT)
        first.run(send(mq))
        second.run(use(mq))
        first.run(mq.close())


async def test_queues_of_a_namespace_may_have_their_public_names(own: Embedded) -> None:
    async with connect(own.namesrv, settings=replace(PATIENT, namespace="shop")) as mq:
        sent = await mq.send("topic", b"x")
        async with mq.consume("topic", group="g", start="first") as consumer:
            for queue in (sent.queue, MessageQueue("topic", "broker-a", sent.queue.queue_id)):
                message = await consumer.next(timeout=30)
                assert message is not None
                await message.ack()
                await consumer.reset({queue: 0})
            assert (await consumer.next(timeout=30)) is not None
            await consumer.drop(MessageQueue("topic", "broker-a", sent.queue.queue_id))
            assert sent.queue not in consumer.assignment


async def test_the_time_limit_of_many_sends_includes_all_attempts(own: Embedded) -> None:
    """Each attempt used to have all of it."""
    async with Wire(own.address) as wire, connect(own.namesrv, settings=PATIENT) as mq:
        through(mq, own.address, wire.address)
        await mq.send("topic", b"first")
        wire.silent = True
        with pytest.raises(SendManyError):
            await mq.send_many("topic", [b"x"] * 3, timeout=0.5)
        assert (mq.metrics.sent["topic"].failures, mq.metrics.sent["topic"].retries) == (3, 0)
