"""How connections end: by us, by the peer, in the middle of something, and with a clean shutdown."""

import asyncio
import gc
import weakref

import pytest

from kourou.net.connection import Connection
from kourou.net.errors import ConnectionLostError
from kourou.net.handlers import NoRequests
from kourou.net.limits import Budget, Limits
from kourou.net.listener import Listener
from kourou.net.tls import TlsSettings
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag
from kourou.protocol.command import Command

from .conftest import Dial, Knock, Listen
from .peers import Echo, Later, eventually, only_connection, turns

KIB = 1024
MIB = 1024 * KIB
ONE_WAY = int(CommandFlag.ONE_WAY)
BAD_FRAMES = [
    bytes.fromhex("00000000"),
    bytes.fromhex("ffffffff"),
    bytes.fromhex("7fffffff"),
    bytes.fromhex("00000004 02000000"),
    bytes.fromhex("00000008 00000004 00000000"),
    bytes.fromhex("00000004 00000009"),
    b"GET / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize(("size", "times"), [(KIB, 0), (2 * MIB, 1)])
async def test_memory_of_large_answers_is_given_back_when_their_peer_is_gone(
    size: int, times: int, listen: Listen, knock: Knock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr("kourou.net.connection.give_memory_back", lambda: given.append(1))
    handler = Echo(bytes(size))
    peer = await knock(await listen(handler))
    await peer.send(frame.encode(Command(1, 1)))
    await peer.commands(1)
    peer.close()
    await eventually(lambda: handler.gone)
    await turns()
    assert len(given) == times


# ── The peer makes no sense ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", BAD_FRAMES, ids=lambda bad: bad[:8].hex())
async def test_a_frame_without_sense_ends_its_connection_alone(
    bad: bytes, listen: Listen, knock: Knock, dial: Dial
) -> None:
    handler = Echo()
    listener = await listen(handler)
    other = await dial(listener)
    peer = await knock(listener)
    await peer.send(bad)
    assert await peer.ended()
    await eventually(lambda: handler.gone)
    assert handler.gone[0].reason
    assert (await other.request(Command(1, body=b"x"), 5)).body == b"x"
    assert listener.buffered == 0


@pytest.mark.parametrize("bad", BAD_FRAMES, ids=lambda bad: bad[:8].hex())
async def test_requests_before_a_frame_without_sense_are_answered(bad: bytes, listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await knock(await listen(handler))
    good = b"".join(frame.encode(Command(1, opaque)) for opaque in range(3))
    await peer.send(good + bad + good)
    assert [answer.opaque for answer in await peer.rest()] == [0, 1, 2]
    assert len(handler.seen) == 3


async def test_late_answers_before_a_frame_without_sense_too(listen: Listen, knock: Knock) -> None:
    handler = Later()
    peer = await knock(await listen(handler))
    await peer.send(frame.encode(Command(1, 1)) + BAD_FRAMES[0] + frame.encode(Command(1, 2)))
    await eventually(lambda: handler.owed)
    await peer.send(frame.encode(Command(1, 3)) * 100)
    await turns()
    assert handler.gone == []
    handler.pay()
    assert [answer.opaque for answer in await peer.rest()] == [1]
    assert [command.opaque for command in handler.seen] == [1]


async def test_answers_arrive_although_the_peer_goes_on_sending(listen: Listen, knock: Knock) -> None:
    """Closing a socket with bytes unread resets it, and the peer loses what it has not read yet."""
    handler = Echo(bytes(3 * MIB))
    listener = await listen(handler)
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send(frame.encode(Command(1, 1)) + BAD_FRAMES[0] + bytes(100 * KIB))
    await eventually(lambda: handler.seen)
    server = handler.connections[0]
    await eventually(lambda: not server.is_open)
    await peer.send(bytes(100 * KIB))
    (answer,) = await peer.rest()
    assert len(answer.body) == 3 * MIB
    peer.close()
    await eventually(lambda: handler.gone)


async def test_a_peer_that_does_not_close_after_us(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(linger=1.0))
    peer = await knock(listener)
    await peer.send(frame.encode(Command(1, 1)) + BAD_FRAMES[0])
    assert len(await peer.rest()) == 1
    assert handler.gone == []  # our direction is closed, and the peer's turn it is
    await eventually(lambda: handler.gone)
    assert listener.connections == set()


# ── The peer ends ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_peer_that_closes(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await knock(listener)
    await peer.send(Command(1))
    await peer.command()
    peer.close()
    await eventually(lambda: handler.gone == handler.connections)
    assert listener.connections == set()


async def test_a_half_closed_peer_gets_its_answers(listen: Listen, knock: Knock) -> None:
    handler = Later()
    peer = await knock(await listen(handler))
    await peer.send([Command(1, opaque) for opaque in range(5)])
    peer.half_close()
    await eventually(lambda: len(handler.owed) == 5)
    await turns()
    assert handler.gone == []
    handler.pay()
    assert [answer.opaque for answer in await peer.rest()] == [0, 1, 2, 3, 4]
    await eventually(lambda: handler.gone)


async def test_a_half_closed_peer_that_is_owed_nothing(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await knock(await listen(handler))
    await peer.send([Command(1, 1), Command(1, 2)])
    peer.half_close()
    assert [answer.opaque for answer in await peer.rest()] == [1, 2]
    await eventually(lambda: handler.gone)


async def test_a_half_closed_peer_with_half_a_frame(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await knock(listener)
    await peer.send(frame.encode(Command(1))[:-1])
    peer.half_close()
    assert await peer.rest() == []
    await eventually(lambda: handler.gone)
    assert listener.buffered == 0


async def test_a_half_closed_peer_whose_requests_wait_for_it_to_read(listen: Listen, knock: Knock) -> None:
    """It has sent all, its answers are unread, and the last requests are one-way: the end must still come."""
    handler = Echo(bytes(64 * KIB))
    listener = await listen(handler, limits=Limits(pause_writing=64 * KIB, batch=4))
    peer = await knock(listener, receive_buffer=16 * KIB)
    commands = [Command(1, opaque) for opaque in range(200)] + [Command(1, 1000, ONE_WAY)] * 50
    await peer.send(commands)
    peer.half_close()
    server = await only_connection(listener)
    await eventually(lambda: server._waiting.has_requests and not server._reading)
    assert [answer.opaque for answer in await peer.rest()] == list(range(200))
    await eventually(lambda: handler.gone)
    assert len(handler.seen) == 250


async def test_an_answer_in_the_same_moment_as_the_peers_end(listen: Listen, knock: Knock) -> None:
    """The answer is given, not written yet, and the FIN comes: it is written first."""
    handler = Later()
    listener = await listen(handler)
    peer = await knock(listener)
    await peer.send(Command(1, 7))
    await eventually(lambda: handler.owed)
    server = handler.connections[0]
    handler.pay()
    assert server.eof_received() is False
    assert [answer.opaque for answer in await peer.rest()] == [7]


async def test_a_reset(listen: Listen, knock: Knock) -> None:
    import socket
    import struct

    handler = Later()
    listener = await listen(handler)
    peer = await knock(listener)
    await peer.send([Command(1), Command(2)])
    await eventually(lambda: len(handler.owed) == 2)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    await eventually(lambda: handler.gone)
    handler.pay()
    assert listener.connections == set()


# ── We end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_closing_sends_what_is_to_be_sent(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await knock(listener)
    server = await only_connection(listener)
    for opaque in range(3):
        server.send_now(Command(40, opaque))
    server.close()
    server.close()
    assert not server.is_open
    server.send_now(Command(40, 99))
    server.reply(Command(0, 99, 1))
    assert [command.opaque for command in await peer.rest()] == [0, 1, 2]
    peer.close()
    await eventually(lambda: handler.gone)


async def test_aborting_in_the_middle(listen: Listen, knock: Knock) -> None:
    """Everything that may follow an abort in the same moment: nothing of it may fail."""
    handler = Echo(bytes(MIB))
    listener = await listen(handler, limits=Limits(pause_writing=64 * KIB))
    peer = await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    await peer.send([Command(1)] * 10)
    await eventually(lambda: server.buffered > 0)
    server.send_now(Command(40))
    server.abort("first")
    server.abort("second")
    server.reply(Command(0, flag=1))
    server.send_now(Command(40))
    server.close()
    server.pause_writing()
    server.resume_writing()
    server.output._flush_later()
    server._look_at_clock()
    assert server.buffered == 0 or server._transport is not None
    with pytest.raises(ConnectionLostError, match="first"):
        await server.request(Command(307), 5)
    await server.lost
    assert server.reason == "first"
    assert handler.gone == [server]
    assert listener.buffered == 0
    assert server._timer is not None and server._timer.cancelled()


async def test_a_handler_that_ends_the_connection(listen: Listen, knock: Knock) -> None:
    class Strict(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            super().answer(connection, command)
            if command.code == 2:
                connection.close()
            if command.code == 3:
                connection.abort("unwanted")

    handler = Strict()
    listener = await listen(handler)
    polite = await knock(listener)
    await polite.send([Command(1, 1), Command(2, 2), Command(1, 3)])
    assert [answer.opaque for answer in await polite.rest()] == [1, 2]
    rude = await knock(listener)
    await rude.send([Command(1, 1), Command(3, 2), Command(1, 3)] * 100)
    await rude.ended()
    polite.close()
    await eventually(lambda: len(handler.gone) == 2)


async def test_our_own_request_when_the_server_ends(listen: Listen, dial: Dial) -> None:
    handler = Later()
    listener = await listen(handler)
    connection = await dial(listener)
    asking = asyncio.create_task(connection.request(Command(1), 20))
    await eventually(lambda: handler.owed)
    handler.connections[0].close()
    with pytest.raises(ConnectionLostError):
        await asking
    await connection.lost


# ── Clean shutdown ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_shutdown_answers_what_was_taken(listen: Listen, knock: Knock) -> None:
    handler = Later()
    listener = await listen(handler)
    peers = [await knock(listener) for _ in range(3)]
    for peer in peers:
        await peer.send([Command(1, opaque) for opaque in range(20)])
    await eventually(lambda: len(handler.owed) == 60)
    closing = asyncio.create_task(listener.close(10))
    await turns()
    assert not closing.done()
    for peer in peers:
        await peer.send(Command(1, 99))  # too late
    handler.pay()
    for peer in peers:
        assert [answer.opaque for answer in await peer.rest()] == list(range(20))
        peer.close()
    await closing
    assert len(handler.seen) == 60
    assert len(handler.gone) == 3
    with pytest.raises(OSError):
        await knock(listener)  # nobody listens any more


async def test_shutdown_with_large_answers_to_a_slow_reader_that_goes_on_asking(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(512 * KIB))
    listener = await listen(handler, limits=Limits(batch=2))
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send([Command(1, opaque, body=bytes(KIB)) for opaque in range(16)])
    server = await only_connection(listener)
    await eventually(lambda: not server._reading)
    taken = len(handler.seen) + len(server._waiting._requests)
    closing = asyncio.create_task(listener.close(20))
    await peer.send([Command(1, 99, body=bytes(KIB))] * 50)
    assert [answer.opaque for answer in await peer.rest()] == list(range(taken))
    peer.close()
    await closing


async def test_shutdown_ends_a_peer_that_never_reads(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(8 * MIB))
    listener = await listen(handler)
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send([Command(1)] * 5)
    await eventually(lambda: handler.seen)
    await listener.close(0.2)
    assert handler.gone == handler.connections
    assert handler.gone[0].reason == "its requests were not answered within 0.2 s"
    assert listener.connections == set()


async def test_shutdown_ends_a_peer_that_is_never_answered(listen: Listen, knock: Knock) -> None:
    handler = Later()
    listener = await listen(handler)
    peer = await knock(listener)
    await peer.send(Command(11))
    await eventually(lambda: handler.owed)
    await listener.close(0.1)
    assert handler.gone
    handler.pay()
    assert await peer.ended()


async def test_shutdown_does_not_wait_for_the_idle(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    quiet = [await knock(listener) for _ in range(20)]
    halfway = await knock(listener)
    await halfway.send(b"\0\0\0")
    await eventually(lambda: len(listener.connections) == 21)
    started = asyncio.get_running_loop().time()
    await listener.close(30)
    assert asyncio.get_running_loop().time() - started < 10
    for peer in quiet:
        assert await peer.ended()
    assert len(handler.gone) == 21


async def test_shutdown_waits_a_moment_for_peers_to_close(listen: Listen, dial: Dial) -> None:
    """Our clients, as Java's, close when the server does: no lingering then."""
    listener = await listen(limits=Limits(linger=60))
    clients = [await dial(listener) for _ in range(5)]
    await asyncio.gather(*(client.request(Command(1), 5) for client in clients))
    await listener.close(50)
    await asyncio.gather(*(client.lost for client in clients))


async def test_shutdown_with_a_connection_that_is_just_being_made(listen: Listen) -> None:
    """Accepted, not yet connected: it must not outlive the listener."""
    loop = asyncio.get_running_loop()
    handler = Echo()
    listener = await listen(handler)
    connection = listener._accept()
    assert isinstance(connection, Connection)
    closing = asyncio.create_task(listener.close(20))
    await turns(3)

    server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await closing
    await connection.lost
    assert handler.gone == [connection]
    assert not isinstance(listener._accept(), Connection)  # nor one that is accepted even later
    writer.close()
    server.close()


async def test_shutdown_of_a_listener_that_never_started() -> None:
    await Listener(Echo()).close()


async def test_a_connection_that_was_never_made() -> None:
    connection = Connection(Echo(), Limits(), Budget(1000), tls=TlsSettings())
    assert not connection.is_open
    assert connection.buffered == 0
    connection.close()
    connection.abort("nothing is there")
    connection.reply(Command(0, flag=1))
    with pytest.raises(ConnectionLostError, match="the peer is closed"):
        await connection.send(Command(1))


async def test_a_connection_that_is_over_is_freed_without_a_collector(listen: Listen, knock: Knock) -> None:
    """A server runs the collector rarely, and peers that come and go would be kept until then."""
    listener = await listen(NoRequests())
    peer = await knock(listener)
    await peer.send([Command(1, 1)])
    await peer.command()
    gone = weakref.ref(await only_connection(listener))
    gc.collect()
    gc.disable()
    try:
        peer.close()
        await eventually(lambda: not listener.connections)
        await eventually(lambda: gone() is None)
    finally:
        gc.enable()
