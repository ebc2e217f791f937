"""The short way of route queries answers as the usual way does, to the byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kourou.nameserver.settings import Settings
from kourou.protocol import headers
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from kourou.protocol.command import Command, encode
from kourou.server.nameserver import NameServerProcess


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServerProcess]:
    settings = Settings(
        listen_port=0, kv_config_path=str(tmp_path / "kv.json"), config_store_path=str(tmp_path / "namesrv.properties")
    )
    async with NameServerProcess(settings) as process:
        yield process


class Asker:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answers(self, data: bytes, count: int) -> list[bytes]:
        self.writer.write(data)
        found = []
        async with asyncio.timeout(5):
            for _ in range(count):
                size = await self.reader.readexactly(4)
                found.append(size + await self.reader.readexactly(int.from_bytes(size)))
        return found


Connect = Callable[[], Awaitable[Asker]]


@pytest.fixture
async def asker(server: NameServerProcess) -> AsyncIterator[Connect]:
    opened: list[Asker] = []

    async def connect() -> Asker:
        opened.append(Asker(*await asyncio.open_connection("127.0.0.1", server.listener.port)))
        return opened[-1]

    yield connect
    for one in opened:
        one.writer.close()
        await one.writer.wait_closed()


def query(topic: str, opaque: int, **more: object) -> bytes:
    return encode(Command(105, opaque, ext={"topic": topic}, **more))  # type: ignore[arg-type]


def registration(queues: int, counter: int) -> bytes:
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=queues) for name in ("orders", "bills")}
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=topics, data_version=DataVersion(timestamp=1, counter=counter)
    )
    header = headers.RegisterBroker(
        broker_name="b", broker_addr="127.0.0.1:1", cluster_name="c", ha_server_addr="127.0.0.1:2", broker_id=0
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    return encode(Command(103, 7, ext=header.encode(), body=body))


def without_number(answer: bytes, opaque: int) -> bytes:
    return answer[8:].replace(b'"opaque":%d,' % opaque, b'"opaque":_,')


async def test_known_queries_get_the_same_answers(asker: Connect) -> None:
    peer = await asker()
    await peer.answers(registration(4, 1), 1)
    first = (await peer.answers(query("orders", 1), 1))[0]
    second = (await peer.answers(query("orders", 2), 1))[0]
    known = await peer.answers(b"".join(query("orders", n) for n in (3, 1234567890)), 2)
    assert [without_number(a, n) for a, n in zip((second, *known), (2, 3, 1234567890), strict=True)] == [
        without_number(first, 1)
    ] * 3
    assert all(int.from_bytes(a[:4]) == len(a) - 4 for a in known)


async def test_a_route_that_changes_is_answered_anew(asker: Connect) -> None:
    peer = await asker()
    await peer.answers(registration(4, 1), 1)
    for number in range(3):
        assert b'"readQueueNums":4' in (await peer.answers(query("orders", number), 1))[0]
    await peer.answers(registration(9, 2), 1)
    for number in range(3):
        assert b'"readQueueNums":9' in (await peer.answers(query("orders", number), 1))[0]


async def test_known_and_unknown_frames_keep_their_order(asker: Connect) -> None:
    peer = await asker()
    await peer.answers(registration(4, 1), 1)
    for number in range(3):
        await peer.answers(query("orders", number), 1)
    mixed = query("orders", 1) + query("bills", 2) + encode(Command(999, 3)) + query("orders", 4)
    numbers = [int(a.partition(b'"opaque":')[2].partition(b",")[0]) for a in await peer.answers(mixed, 4)]
    assert sorted(numbers) == [1, 2, 3, 4]
    split = query("orders", 5)
    peer.writer.write(split[:20])
    await peer.writer.drain()
    assert b'"opaque":5' in (await peer.answers(split[20:], 1))[0]


@pytest.mark.parametrize("version", [0, 400, 401, 513])
@pytest.mark.parametrize("binary", [False, True])
async def test_all_versions_and_forms_get_what_they_need(asker: Connect, version: int, binary: bool) -> None:
    peer = await asker()
    await peer.answers(registration(4, 1), 1)
    answers = [
        (await peer.answers(query("orders", number, version=version, binary=binary), 1))[0] for number in (11, 12, 13)
    ]
    bodies = {answer[8 + (int.from_bytes(answer[4:8]) & 0xFFFFFF) :] for answer in answers}
    assert len(bodies) == 1
    assert (b'{0:"127.0.0.1:1"}' in bodies.pop()) == (version < 401)


@pytest.mark.parametrize("opaque", [b"-1", b"01", b"99999999999", b"1.0", b'"1"', b" 1"])
async def test_odd_numbers_go_the_usual_way(server: NameServerProcess, asker: Connect, opaque: bytes) -> None:
    peer = await asker()
    await peer.answers(registration(4, 1), 1)
    for number in range(3):
        await peer.answers(query("orders", number), 1)
    usual = query("orders", 1)
    header = usual[8:].replace(b'"opaque":1,', b'"opaque":%b,' % opaque)
    frame = (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header
    other = await asker()
    other.writer.write(frame)
    other.writer.write_eof()
    async with asyncio.timeout(5):
        answer = await other.reader.read()
    server.listener.reader = None
    same = await asker()
    same.writer.write(frame)
    same.writer.write_eof()
    async with asyncio.timeout(5):
        assert await same.reader.read() == answer
