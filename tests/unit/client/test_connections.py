"""Links and pools: pipelining, time-outs, breaks, single attempts, closing."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kourou.client.errors import ClosedError
from kourou.client.link import Link
from kourou.client.pool import Pool, split_address
from kourou.net.connection import Connection
from kourou.net.errors import ConnectFailedError, ConnectionLostError, RequestTimedOutError
from kourou.net.handlers import NoRequests
from kourou.net.listener import Listener
from kourou.protocol.command import Command
from kourou.protocol.errors import TopicNotExistError
from kourou.protocol.signing import Credentials


class Server:
    """Answers code 1 at once, 2 never, 3 with a refusal; 4 breaks the connection."""

    def __init__(self) -> None:
        self.seen: list[Command] = []
        self.connections = 0

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        for command in commands:
            self.seen.append(command)
            if command.code == 1 and not command.is_one_way:
                connection.reply(command.answer(body=command.body))
            elif command.code == 3:
                connection.reply(command.answer(17, "no such topic"))
            elif command.code == 4:
                connection.abort("as asked")

    def closed(self, connection: Connection) -> None:
        self.connections += 1


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    handler = Server()
    listener = Listener(handler)
    await listener.start("127.0.0.1", 0)
    yield handler, f"127.0.0.1:{listener.port}"
    await listener.close(0.2)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(NoRequests())
    yield pool
    await pool.close()


async def test_many_requests_on_one_link(server: tuple[Server, str], pool: Pool) -> None:
    link = await pool.connected(server[1])
    futures = [link.begin(Command(1, body=b"%d" % number), 5) for number in range(500)]
    answers = await asyncio.gather(*futures)
    assert [answer.body for answer in answers] == [b"%d" % number for number in range(500)]
    assert len(link.calls) == 0


async def test_time_outs_are_kept_and_forgotten(server: tuple[Server, str], pool: Pool) -> None:
    link = await pool.connected(server[1])
    slow = link.begin(Command(2), 30)
    quick = link.begin(Command(2), 0.2)
    assert (await link.begin(Command(1), 5)).code == 0
    with pytest.raises(RequestTimedOutError, match=r"0\.2 s"):
        await quick
    assert not slow.done()
    assert (await link.begin(Command(1), 5)).code == 0
    assert len(link.calls) == 1
    slow.cancel()


async def test_a_cancelled_request_leaves_nothing(server: tuple[Server, str], pool: Pool) -> None:
    link = await pool.connected(server[1])
    task = asyncio.create_task(link.request(Command(2), 0.2))
    await asyncio.sleep(0)
    assert len(link.calls) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await link.begin(Command(1), 5)).code == 0
    waiting = link.begin(Command(2), 0.3)
    await link.begin(Command(1), 5)
    with pytest.raises(RequestTimedOutError):
        await waiting
    assert len(link.calls) == 0


async def test_a_break_fails_waiting_requests_and_the_next_request_connects_again(
    server: tuple[Server, str], pool: Pool
) -> None:
    first = await pool.connected(server[1])
    waiting = first.begin(Command(2), 30)
    with pytest.raises(ConnectionLostError):
        await pool.request(server[1], Command(4), 5)
    with pytest.raises(ConnectionLostError):
        await waiting
    with pytest.raises(ConnectionLostError):
        first.begin(Command(1), 5)
    assert (await pool.request(server[1], Command(1), 5)).code == 0
    assert pool.link(server[1]) is not first


async def test_callers_share_one_attempt(server: tuple[Server, str], pool: Pool) -> None:
    told: list[str] = []
    pool.on_connected = told.append
    tasks = [asyncio.create_task(pool.connected(server[1])) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    links = await asyncio.gather(*tasks[1:])
    assert len({id(link) for link in links}) == 1
    assert isinstance(links[0], Link)
    assert told == [server[1]]


async def test_nobody_listens(pool: Pool, unused_tcp_port: int) -> None:
    with pytest.raises(ConnectFailedError, match=str(unused_tcp_port)):
        await pool.request(f"127.0.0.1:{unused_tcp_port}", Command(1), 1)
    with pytest.raises(ConnectFailedError, match="host:port"):
        await pool.request("nonsense", Command(1), 1)
    assert split_address("[::1]:9876") == ("::1", 9876)


async def test_a_refusal_is_raised(server: tuple[Server, str], pool: Pool) -> None:
    with pytest.raises(TopicNotExistError, match="no such topic"):
        await pool.ask(server[1], Command(3), 5)


async def test_requests_are_signed(server: tuple[Server, str]) -> None:
    pool = Pool(NoRequests(), credentials=Credentials("me", "secret-key"))
    await pool.ask(server[1], Command(1, ext={"a": "b"}), 5)
    await pool.tell(server[1], Command(1))
    await pool.ask(server[1], Command(1), 5)
    assert all(command.ext and command.ext["AccessKey"] == "me" for command in server[0].seen)
    assert server[0].seen[1].is_one_way
    await pool.close()


async def test_a_closed_pool_opens_nothing(server: tuple[Server, str]) -> None:
    pool = Pool(NoRequests())
    await pool.ask(server[1], Command(1), 5)
    assert pool.addresses == [server[1]]
    await pool.close()
    assert pool.addresses == []
    with pytest.raises(ClosedError):
        await pool.request(server[1], Command(1), 5)


async def test_a_server_that_is_silent_is_left(server: tuple[Server, str], pool: Pool) -> None:
    link = await pool.connected(server[1])
    await link.begin(Command(1), 5)
    link._heard -= 0.01  # a while ago
    with pytest.raises(RequestTimedOutError):
        await link.begin(Command(2), 0.1)
    assert pool.link(server[1]) is None
    assert (await pool.request(server[1], Command(1), 5)).code == 0


async def test_a_server_that_answers_others_is_kept(server: tuple[Server, str], pool: Pool) -> None:
    link = await pool.connected(server[1])
    slow = link.begin(Command(2), 0.3)
    await link.begin(Command(1), 5)
    with pytest.raises(RequestTimedOutError):
        await slow
    assert pool.link(server[1]) is link
