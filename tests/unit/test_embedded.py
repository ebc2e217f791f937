"""The whole broker in this process, alone, several at once, and as a fixture."""

import asyncio
import time
from pathlib import Path

import pytest

from kourou.embedded import Embedded, EmbeddedThread
from kourou.net.client import connect
from kourou.protocol import headers
from kourou.protocol.command import Command
from kourou.server.conf import ConfError

UP_MS_MAX = 300


async def send(address: str, topic: str, body: bytes) -> Command:
    host, _, port = address.rpartition(":")
    connection = await connect(host, int(port))
    header = headers.SendMessageV2(
        producer_group="tests",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
    )
    try:
        return await connection.request(Command(310, ext=header.encode(), body=body), 5.0)
    finally:
        connection.close()


async def route(address: str, topic: str) -> Command:
    host, _, port = address.rpartition(":")
    connection = await connect(host, int(port))
    try:
        return await connection.request(Command(105, ext={"topic": topic}), 5.0)
    finally:
        connection.close()


async def test_a_broker_is_up_and_found_by_its_name_server() -> None:
    async with Embedded() as broker:
        assert (await send(broker.address, "orders", b"one")).code == 0
        answer = await route(broker.namesrv, "orders")
        assert answer.code == 0
        assert broker.address.encode() in answer.body


async def test_several_are_up_at_once_and_share_nothing() -> None:
    async with Embedded() as one, Embedded() as other:
        assert (await send(one.address, "orders", b"one")).code == 0
        assert (await route(one.namesrv, "orders")).code == 0
        assert (await route(other.namesrv, "orders")).code == 17
        assert one.store != other.store


async def test_a_temporary_store_goes_and_a_given_one_stays(tmp_path: Path) -> None:
    async with Embedded() as broker:
        root = broker.store
        assert (root / "lock").exists()
    assert not root.exists()
    for offset in ("0", "1"):
        async with Embedded(store=tmp_path / "kept") as broker:
            answer = await send(broker.address, "orders", b"one")
            assert answer.ext is not None
            assert answer.ext["queueOffset"] == offset
    assert not (tmp_path / "kept" / "abort").exists()


async def test_properties_are_those_of_broker_conf() -> None:
    async with Embedded(properties={"autoCreateTopicEnable": False, "flushDiskType": "SYNC_FLUSH"}) as broker:
        assert (await send(broker.address, "orders", b"one")).code == 17


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"autoCreateTopicEnabled": True}, "autoCreateTopicEnabled: not a property of a broker"),
        ({"flushDiskType": "SYNC"}, "flushDiskType=SYNC: one of ASYNC_FLUSH, SYNC_FLUSH is expected"),
        ({"brokerPermission": "rw"}, "brokerPermission=rw: a whole number is expected"),
    ],
)
def test_a_wrong_property_is_named(properties: dict[str, object], told: str) -> None:
    with pytest.raises(ConfError, match=told):
        Embedded(properties=properties)


def test_it_is_up_at_once() -> None:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        with EmbeddedThread():
            times.append((time.perf_counter() - started) * 1000)
    assert min(times) < UP_MS_MAX


def test_the_fixture_serves_tests_that_are_not_asyncio(kourou_broker: EmbeddedThread) -> None:
    assert asyncio.run(send(kourou_broker.address, "orders", b"one")).code == 0


async def test_the_fixture_serves_tests_that_are(kourou_broker: EmbeddedThread) -> None:
    assert (await send(kourou_broker.address, "orders", b"one")).code == 0


def test_what_can_not_start_says_why(tmp_path: Path) -> None:
    with EmbeddedThread(store=tmp_path) as running:
        port = int(running.address.rpartition(":")[2])
        with pytest.raises(ConfError, match="can't listen"), EmbeddedThread(port=port):
            pass
