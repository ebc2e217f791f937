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
    NoNameServerError,
    NoRouteError,
    NotANameServerError,
    ProducerSettings,
    RefusedError,
    SendManyError,
    connect,
)
from kourou.embedded import Embedded
from kourou.net.errors import TransportError

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


async def test_a_refusal_that_will_not_change_is_not_tried_again(own: Embedded) -> None:
    """A broker without timers says so with SYSTEM_ERROR, which also means trouble that passes."""
    async with connect(own.namesrv, settings=PATIENT) as mq:
        await mq.send("topic", b"x")
        with pytest.raises(RefusedError, match="not in this broker yet") as caught:
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


async def test_a_listener_that_always_raises_holds_nobody_up(own: Embedded) -> None:
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
