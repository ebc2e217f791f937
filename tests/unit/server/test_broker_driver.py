"""The broker's driver goes on, whatever fails: its timer, its connections, its workers."""

import asyncio
import errno
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.broker.asking import send
from tests.unit.net.peers import eventually
from tests.waiting import answered

from kourou.broker.events import Effect, Event, Request
from kourou.embedded import Embedded
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.protocol import headers
from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.server.broker import BrokerProcess
from kourou.store.flush import FlushClock
from kourou.store.jobs import SyncLog

PATIENCE = 30.0


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[BrokerProcess]:
    async with Embedded(properties={"flushDiskType": request.param, "flushCommitLogLeastPages": 0}) as embedded:
        yield embedded.broker().process


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Connection]:
    connection = await connect("127.0.0.1", broker.listener.port)
    yield connection
    connection.close()


async def sends_and_is_flushed(broker: BrokerProcess, client: Connection) -> None:
    answer = await client.request(send(), PATIENCE)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    durability = broker.machine.store.durability
    await eventually(lambda: durability.flushed == durability.appended)


async def test_a_step_that_raises_does_not_silence_the_timer(
    broker: BrokerProcess, client: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    step, failures = broker.machine.step, 0

    def failing(events: list[Event], now_ms: int) -> list[Effect]:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise RuntimeError("nobody expected this")
        return step(events, now_ms)

    monkeypatch.setattr(broker.machine, "step", failing)
    await eventually(lambda: failures == 3)
    await sends_and_is_flushed(broker, client)
    assert broker.machine.faults == 3


@pytest.mark.parametrize("part", ["jobs", "late", "dispatch"])
async def test_a_part_that_raises_does_not_stop_the_others(
    broker: BrokerProcess,
    client: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
) -> None:
    store, calls = broker.machine.store, 0

    def failing(*_: object) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("nobody expected this")

    with monkeypatch.context() as patch:
        if part == "late":
            patch.setattr(store.durability, "due_ms", lambda: 0)
        patch.setattr(store.durability if part == "late" else store, part, failing)
        flying = asyncio.ensure_future(client.request(send(), PATIENCE))
        await eventually(lambda: calls > 3 or (part == "dispatch" and flying.done()))
    assert (await flying).code == ResponseCode.SUCCESS
    await sends_and_is_flushed(broker, client)
    causes = [record for record in caplog.records if "nobody expected this" in record.message]
    assert len(causes) <= 2, "each cause is logged once"


async def test_too_many_open_files_while_queues_are_synced(
    broker: BrokerProcess, client: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queues, calls = broker.machine.store.queues, 0

    def failing() -> None:
        nonlocal calls
        calls += 1
        raise OSError(errno.EMFILE, "Too many open files", "/somewhere/consumequeue")

    assert (await client.request(send(), PATIENCE)).code == ResponseCode.SUCCESS
    with monkeypatch.context() as patch:
        patch.setattr(queues, "dirty_files", failing)
        patch.setattr(FlushClock, "queues_due_ms", lambda *_, **__: 0)
        await eventually(lambda: calls >= 3)
        await sends_and_is_flushed(broker, client)
    assert broker.machine.faults == 0, "an error of the disk is expected"
    assert caplog.text.count("queues and index can't be synced; this will be retried: [Errno 24]") == 1


async def test_a_job_that_raises_comes_back(
    broker: BrokerProcess, client: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    work, failures = SyncLog._work, 0

    def failing(job: SyncLog) -> None:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise ValueError("nobody expected this")
        work(job)

    async def is_accepted() -> bool:
        answer = await client.request(send(), PATIENCE)
        return failures == 2 and answer.code == ResponseCode.SUCCESS

    monkeypatch.setattr(SyncLog, "_work", failing)
    await answered(is_accepted)
    durability = broker.machine.store.durability
    await eventually(lambda: durability.flushed == durability.appended)  # by now the second failure is over, too
    await sends_and_is_flushed(broker, client)


async def test_a_broker_tells_that_its_flush_is_late(
    broker: BrokerProcess, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.machine.store, "flush_late_ms", lambda _now_ms: 12_345)
    broker.machine.faults = 7
    answer = await client.request(Command(RequestCode.GET_BROKER_RUNTIME_INFO), PATIENCE)
    table = KVTable.decode(answer.body).table
    assert (table["kourouFlushLateMillis"], table["kourouInternalErrors"]) == ("12345", "7")


@pytest.mark.parametrize("count", [8, 64])
async def test_slow_requests_of_one_connection_hold_the_loop_for_20_ms_at_most(
    broker: BrokerProcess, client: Connection, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    machine = broker.machine
    code = RequestCode.GET_MAX_OFFSET
    serve, header = machine._serving._table[code]
    step, longest = machine.step, 0.0

    def slow(asked: Request[Any]) -> object:
        end = time.thread_time() + 0.008
        while time.thread_time() < end:
            pass
        return serve(asked)

    def measured(events: list[Event], now_ms: int) -> list[Effect]:
        nonlocal longest
        began = time.thread_time()
        effects = step(events, now_ms)
        longest = max(longest, time.thread_time() - began)
        return effects

    def ask() -> "asyncio.Future[Command]":
        header = headers.GetMaxOffset(topic="TBW102", queue_id=0)
        return client.begin(Command(code, ext=header.encode()), PATIENCE)

    for number in range(4):  # the batches of this connection grow
        await asyncio.gather(*(ask() for _ in range(8 << number)))
    monkeypatch.setitem(machine._serving._table, code, (slow, header))
    monkeypatch.setattr(machine, "step", measured)
    for _ in range(5):  # the shortest counts: a virtual machine counts what its host takes away as our time
        longest = 0.0
        done: list[asyncio.Future[Command]] = []
        futures = [ask() for _ in range(count)]
        for future in futures:
            future.add_done_callback(done.append)
        await asyncio.gather(*futures)
        assert done == futures, "answered in their order"
        if longest < 0.02:
            break
    assert longest < 0.02, longest
