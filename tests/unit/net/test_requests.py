"""Requests and answers: in batches, in both directions, late, one-way, in vain."""

import asyncio
import logging

import pytest

from kourou.net import connection as connection_module
from kourou.net.connection import Connection
from kourou.net.errors import ConnectionLostError, RequestTimedOutError, TooManyRequestsError
from kourou.net.limits import Limits
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError

from .conftest import Dial, Knock, Listen
from .peers import CountingTransport, Echo, Later, eventually, only_connection, turns

ONE_WAY = int(CommandFlag.ONE_WAY)


async def test_request_and_answer(listen: Listen, dial: Dial) -> None:
    connection = await dial(await listen())
    answer = await connection.request(Command(105, ext={"topic": "T"}, body=b"hello"), 5)
    assert (answer.code, answer.body, answer.is_response) == (0, b"hello", True)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches do not shrink because this machine is busy with something else."""
    monkeypatch.setattr(connection_module, "TURN", 60.0)


@pytest.mark.usefixtures("patient")
async def test_many_frames_in_one_read_get_one_write(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await knock(listener)
    transport = CountingTransport(await only_connection(listener))
    await peer.send([Command(1, opaque, body=b"%d" % opaque) for opaque in range(50)])
    answers = await peer.commands(50)
    assert [(answer.opaque, answer.body) for answer in answers] == [(n, b"%d" % n) for n in range(50)]
    assert len(transport.writes) == 1
    await peer.send([Command(1, opaque) for opaque in range(40)])
    await peer.commands(40)
    assert [len(batch) for batch in handler.batches] == [8, 16, 26, 32, 8]
    assert len(transport.writes) == 2


@pytest.mark.usefixtures("patient")
async def test_batches_grow_while_they_are_cheap(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(batch=16))
    peer = await knock(listener)
    await peer.send([Command(1, opaque) for opaque in range(50)])
    assert [answer.opaque for answer in await peer.commands(50)] == list(range(50))
    assert [len(batch) for batch in handler.batches] == [8, 16, 16, 10]


@pytest.mark.usefixtures("patient")
async def test_batches_shrink_when_answers_are_large(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(1024 * 1024))
    listener = await listen(handler)
    peer = await knock(listener, receive_buffer=16 * 1024)
    await peer.send([Command(1, opaque) for opaque in range(30)])
    assert [answer.opaque for answer in await peer.commands(30)] == list(range(30))
    sizes = [len(batch) for batch in handler.batches]
    assert sizes[:3] == [8, 4, 2]
    assert set(sizes[3:]) <= {1, 2, 4}
    handler.body = b""
    handler.connections[0]._waiting.batch = 1
    await peer.send([Command(1, opaque) for opaque in range(40)])
    await peer.commands(40)
    assert [len(batch) for batch in handler.batches][len(sizes) :] == [1, 2, 4, 8, 16, 9]


async def test_answers_of_one_moment_leave_together(listen: Listen, knock: Knock) -> None:
    handler = Later()
    listener = await listen(handler)
    peer = await knock(listener)
    transport = CountingTransport(await only_connection(listener))
    await peer.send([Command(1, opaque) for opaque in range(10)])
    await eventually(lambda: len(handler.owed) == 10)
    assert transport.writes == []
    handler.owed.reverse()
    handler.pay()
    assert [answer.opaque for answer in await peer.commands(10)] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert len(transport.writes) == 1


async def test_frames_in_pieces(listen: Listen, knock: Knock) -> None:
    peer = await knock(await listen())
    for byte in frame.encode(Command(1, 7, body=b"x")):
        await peer.send(bytes([byte]))
    assert (await peer.command()).opaque == 7


async def test_both_header_forms_on_one_connection(listen: Listen, knock: Knock) -> None:
    peer = await knock(await listen())
    await peer.send([Command(1, 1), Command(1, 2, binary=True), Command(1, 3)])
    assert [(answer.opaque, answer.binary) for answer in await peer.commands(3)] == [(1, False), (2, True), (3, False)]


async def test_requests_in_both_directions(listen: Listen, dial: Dial) -> None:
    served, asked = Echo(), Echo(b"from the client")
    listener = await listen(served)
    client = await dial(listener, handler=asked)
    server = await only_connection(listener)
    results = await asyncio.gather(
        *(client.request(Command(1, body=b"c%d" % n), 5) for n in range(20)),
        *(server.request(Command(2, body=b"s%d" % n), 5) for n in range(20)),
    )
    assert [answer.body for answer in results] == [b"c%d" % n for n in range(20)] + [b"from the client"] * 20
    assert {command.code for command in served.seen} == {1}
    assert {command.code for command in asked.seen} == {2}


async def test_a_side_that_only_asks_says_so(listen: Listen, dial: Dial) -> None:
    listener = await listen()
    await dial(listener)
    server = await only_connection(listener)
    answer = await server.request(Command(40), 5)
    assert (answer.code, answer.remark) == (3, " request type 40 not supported")
    await server.send(Command(40, flag=ONE_WAY))
    assert (await server.request(Command(41), 5)).remark == " request type 41 not supported"


async def test_one_way_gets_no_answer(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await knock(await listen(handler))
    await peer.send([Command(1, 1, ONE_WAY), Command(1, 2), Command(1, 3, ONE_WAY), Command(1, 4)])
    assert [answer.opaque for answer in await peer.commands(2)] == [2, 4]
    assert [command.opaque for command in handler.seen] == [1, 2, 3, 4]


async def test_sending_one_way(listen: Listen, dial: Dial) -> None:
    handler = Echo()
    connection = await dial(await listen(handler))
    await connection.send(Command(15, flag=ONE_WAY))
    connection.send_now(Command(37, flag=ONE_WAY))
    await eventually(lambda: [command.code for command in handler.seen] == [15, 37])


async def test_an_answer_that_does_not_come_in_time(listen: Listen, dial: Dial) -> None:
    handler = Later()
    connection = await dial(await listen(handler))
    with pytest.raises(
        RequestTimedOutError, match=r"no answer from 127.0.0.1:\d+ to request 105 within 0.05 s"
    ) as raised:
        await connection.request(Command(105), 0.05)
    assert raised.value.retriable
    handler.pay()  # the late answer is nobody's
    handler.answer = Echo().answer  # type: ignore[method-assign]
    assert (await connection.request(Command(105, body=b"next"), 5)).body == b"next"


async def test_a_request_that_is_given_up(listen: Listen, dial: Dial) -> None:
    handler = Later()
    connection = await dial(await listen(handler))
    task = asyncio.create_task(connection.request(Command(105), 5))
    await eventually(lambda: handler.owed)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(connection.calls) == 0
    handler.pay()
    await turns()
    assert connection.is_open


async def test_answers_to_nothing_are_ignored(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await knock(await listen(handler))
    await peer.send([Command(0, opaque, flag=1) for opaque in range(-3, 4)] + [Command(0, 1, flag=3), Command(1, 9)])
    assert (await peer.command()).opaque == 9
    assert [command.opaque for command in handler.seen] == [9]


async def test_two_answers_to_one_request(listen: Listen, dial: Dial, knock: Knock) -> None:
    class Twice(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            connection.reply(command.answer(body=b"first"))
            connection.reply(command.answer(body=b"second"))

    connection = await dial(await listen(Twice()))
    assert (await connection.request(Command(1), 5)).body == b"first"
    assert (await connection.request(Command(1), 5)).body == b"first"


async def test_a_lost_connection_fails_what_waits(listen: Listen, dial: Dial) -> None:
    handler = Later()
    listener = await listen(handler)
    connection = await dial(listener)
    waiting = [asyncio.create_task(connection.request(Command(1), 5)) for _ in range(3)]
    await eventually(lambda: len(handler.owed) == 3)
    handler.connections[0].abort("test")
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLostError] * 3
    assert len(set(map(id, results))) == 3  # one exception, raised in many tasks, would gather all their tracebacks
    assert not connection.is_open
    with pytest.raises(ConnectionLostError, match="is closed"):
        await connection.request(Command(1), 5)
    with pytest.raises(ConnectionLostError):
        await connection.send(Command(1))
    connection.send_now(Command(1))
    connection.reply(Command(0, flag=1))
    assert handler.gone == handler.connections
    handler.pay()  # answers for a connection that is gone go nowhere


async def test_too_many_requests(listen: Listen, dial: Dial) -> None:
    handler = Later()
    connection = await dial(await listen(handler), limits=Limits(requests=3))
    waiting = [asyncio.create_task(connection.request(Command(1), 5)) for _ in range(3)]
    await eventually(lambda: len(handler.owed) == 3)
    with pytest.raises(TooManyRequestsError, match="3 requests await an answer"):
        await connection.request(Command(1), 5)
    handler.pay()
    await asyncio.gather(*waiting)
    handler.answer = Echo().answer  # type: ignore[method-assign]
    await connection.request(Command(1), 5)


async def test_what_can_not_be_sent_is_refused_here(listen: Listen, dial: Dial) -> None:
    connection = await dial(await listen())
    with pytest.raises(LocalProtocolError):
        await connection.request(Command(200_050, binary=True), 5)
    assert len(connection.calls) == 0
    assert (await connection.request(Command(1, body=b"x"), 5)).body == b"x"


async def test_an_answer_that_can_not_be_sent_becomes_a_refusal(
    listen: Listen, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            connection.reply(command.answer(ext={"value": "\ud800"}))

    connection = await dial(await listen(Odd()))
    answer = await connection.request(Command(1), 5)
    assert answer.code == 1
    assert "not valid Unicode" in (answer.remark or "")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_handler_that_fails_costs_its_peer_the_connection(
    listen: Listen, dial: Dial, knock: Knock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            if command.code == 2:
                raise ZeroDivisionError("a fault of ours")
            super().answer(connection, command)

    handler = Broken()
    listener = await listen(handler)
    peer, other = await knock(listener), await dial(listener)
    await peer.send([Command(1, 1), Command(2, 2), Command(1, 3)])
    await peer.ended()
    assert (await other.request(Command(1), 5)).code == 0
    await eventually(lambda: len(handler.gone) == 1)
    assert len(listener.connections) == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "handler failed" in record.getMessage()
    assert record.exc_info is not None
    caplog.clear()


async def test_a_handler_that_fails_at_the_end(listen: Listen, knock: Knock, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Echo):
        def closed(self, connection: Connection) -> None:
            raise ZeroDivisionError("a fault of ours")

    listener = await listen(Broken())
    peer = await knock(listener)
    await only_connection(listener)
    peer.close()
    await eventually(lambda: not listener.connections)
    assert "handler failed at the end" in caplog.text
    caplog.clear()


async def test_no_connection_occupies_the_loop_for_long(listen: Listen, knock: Knock) -> None:
    """A pipeline of slow requests: another connection's request is served between them."""

    class Slow(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            until = asyncio.get_running_loop().time() + command.code / 1000
            while asyncio.get_running_loop().time() < until:
                pass
            super().answer(connection, command)

    handler = Slow()
    listener = await listen(handler, limits=Limits(batch=4))
    busy, quick = await knock(listener), await knock(listener)
    await busy.send([Command(5, opaque) for opaque in range(100)])
    await eventually(lambda: len(handler.seen) > 3)
    await quick.send(Command(0, 7))
    await quick.command()
    assert len(handler.seen) < 40
    assert [answer.opaque for answer in await busy.commands(100)] == list(range(100))
