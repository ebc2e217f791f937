"""Peers that do not read, hoard, dribble or sleep: what they can make us hold, and for how long."""

import asyncio
import resource
from contextlib import suppress

import pytest

from kourou.net.connection import Connection
from kourou.net.errors import ConnectionLostError
from kourou.net.limits import Budget, Limits
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag, ResponseCode
from kourou.protocol.command import Command

from .conftest import Dial, Knock, Listen
from .peers import Echo, Later, RawPeer, eventually, only_connection, turns

KIB = 1024
MIB = 1024 * KIB


# ── Slow readers ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_peer_that_does_not_read_is_not_read_from(listen: Listen, knock: Knock, dial: Dial) -> None:
    handler = Echo(bytes(64 * KIB))
    limits = Limits(pause_writing=128 * KIB, batch=4)
    listener = await listen(handler, limits=limits)
    peer = await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    await peer.flood(frame.encode(Command(1, 1, body=bytes(KIB))) * 16, 64 * MIB)
    assert not server._reading
    # The mark, the batch that went beyond it, and the requests of one read (256 KiB).
    assert server.buffered < 128 * KIB + 4 * 64 * KIB + 2 * 256 * KIB + 64 * KIB
    assert listener.buffered <= server.buffered + KIB
    handled = len(handler.seen)
    await turns()
    assert len(handler.seen) == handled
    other = await dial(listener)
    assert len((await other.request(Command(2), 5)).body) == 64 * KIB


async def test_a_peer_that_reads_again_is_served_in_order(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(64 * KIB))
    listener = await listen(handler, limits=Limits(pause_writing=64 * KIB, batch=2))
    peer = await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    sending = asyncio.create_task(peer.send([Command(1, opaque, body=bytes(KIB)) for opaque in range(400)]))
    await eventually(lambda: not server._reading)
    answers = await peer.commands(400)
    await sending
    assert [answer.opaque for answer in answers] == list(range(400))
    assert server._reading
    assert server.buffered == 0
    await eventually(lambda: listener.buffered == 0)


async def test_answers_that_come_late_are_bounded_too(listen: Listen, knock: Knock, dial: Dial) -> None:
    """Requests are taken before their answers are known, so reading can't be stopped in time: the rest is cut off."""
    handler = Later(bytes(256 * KIB))
    listener = await listen(handler, limits=Limits(pause_writing=64 * KIB, unsent=4 * MIB))
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send([Command(1, opaque) for opaque in range(200)])
    await eventually(lambda: len(handler.owed) == 200)
    server = handler.connections[0]
    handler.pay()
    assert not server.is_open
    assert server.reason == f"more than {4 * MIB} bytes of answers are unsent: the peer does not read"
    await eventually(lambda: handler.gone == [server])
    assert listener.buffered == 0


async def test_a_batch_of_large_answers_is_bounded(listen: Listen, knock: Knock) -> None:
    """All of it comes out of one call of the handler: still no more than the limit and one answer are held."""
    largest = 0

    class Watched(Echo):
        def answer(self, connection: Connection, command: Command) -> None:
            nonlocal largest
            super().answer(connection, command)
            largest = max(largest, connection.buffered)

    handler = Watched(bytes(MIB))
    listener = await listen(handler, limits=Limits(pause_writing=64 * KIB, unsent=4 * MIB))
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send([Command(1, opaque) for opaque in range(100)])
    await eventually(lambda: handler.gone)
    assert largest < 6 * MIB
    assert "unsent" in (handler.gone[0].reason or "")


async def test_sending_waits_for_a_peer_that_does_not_read(listen: Listen, knock: Knock) -> None:
    listener = await listen(limits=Limits(pause_writing=64 * KIB))
    peer = await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    sends = [
        asyncio.create_task(server.send(Command(40, opaque, int(CommandFlag.ONE_WAY), body=bytes(64 * KIB))))
        for opaque in range(300)
    ]
    await turns(50)
    waiting = sum(not send.done() for send in sends)
    assert waiting > 100  # the others are in the sockets' buffers
    assert server.buffered < MIB
    assert server.is_congested
    assert [command.opaque for command in await peer.commands(300)] == list(range(300))
    await asyncio.gather(*sends)
    assert not server.is_congested


async def test_a_waiting_sender_gets_the_end_of_the_connection(listen: Listen, knock: Knock) -> None:
    listener = await listen(limits=Limits(pause_writing=64 * KIB))
    await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    sends = [asyncio.create_task(server.send(Command(40, body=bytes(MIB)))) for _ in range(30)]
    asks = [asyncio.create_task(server.request(Command(307, body=bytes(MIB)), 20)) for _ in range(5)]
    await eventually(lambda: server.output._writable is not None)
    server.abort("test")
    results = await asyncio.gather(*sends, *asks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), ConnectionLostError}
    assert {type(result) for result in results[-5:]} == {ConnectionLostError}


async def test_a_request_that_waits_to_be_sent_times_out(listen: Listen, knock: Knock) -> None:
    listener = await listen(limits=Limits(pause_writing=64 * KIB))
    await knock(listener, receive_buffer=16 * KIB)
    server = await only_connection(listener)
    while not server.is_congested:
        await server.send(Command(40, body=bytes(MIB)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await server.send(Command(40))
    assert server.output._writable is not None and not server.output._writable.done()


async def test_the_side_that_opened_always_reads(listen: Listen, dial: Dial) -> None:
    """Both directions full of requests: were both sides to stop reading, nothing would ever move again."""
    limits = Limits(pause_writing=16 * KIB, batch=4)
    listener = await listen(Echo(), limits=limits)
    client = await dial(listener, handler=Echo(), limits=limits)
    server = await only_connection(listener)
    large = bytes(200 * KIB)
    await asyncio.gather(
        *(client.request(Command(1, body=large), 25) for _ in range(60)),
        *(server.request(Command(2, body=large), 25) for _ in range(60)),
    )


# ── The budget of all ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_largest_hoarder_goes_first(listen: Listen, knock: Knock, dial: Dial) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(buffered=MIB))
    small, large = await knock(listener), await knock(listener)
    await small.send(frame.encode(Command(1, 5, body=bytes(200 * KIB)))[:-1])
    await eventually(lambda: listener.buffered > 199 * KIB)
    other = await dial(listener)
    with suppress(ConnectionError):
        await large.send(frame.encode(Command(1, 6, body=bytes(2 * MIB)))[:-1])
    await large.ended()
    (gone,) = handler.gone
    assert gone.peer == large.address
    assert gone.reason == f"all connections together hold more than {MIB} bytes, and this one holds most"
    assert (await other.request(Command(1, body=b"x"), 5)).body == b"x"
    await small.send(b"\0")
    assert len((await small.command()).body) == 200 * KIB
    await eventually(lambda: listener.buffered == 0)


async def test_unread_answers_count_too(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(300 * KIB))
    limits = Limits(buffered=4 * MIB, pause_writing=2 * MIB, batch=1)
    listener = await listen(handler, limits=limits)
    lazy = [await knock(listener, receive_buffer=16 * KIB) for _ in range(3)]
    for peer in lazy:
        await peer.send([Command(1, opaque) for opaque in range(40)])
    await eventually(lambda: handler.gone)
    assert listener.buffered <= 4 * MIB
    assert 1 <= len(handler.gone) < 3


async def test_bytes_that_were_sent_meanwhile_are_not_counted(listen: Listen, knock: Knock) -> None:
    """The budget believes what connections said last; before it ends one it looks again."""
    handler = Echo(bytes(600 * KIB))
    listener = await listen(handler, limits=Limits(buffered=MIB, pause_writing=2 * MIB))
    peer = await knock(listener, receive_buffer=16 * KIB)
    for opaque in range(12):
        await peer.send(Command(1, opaque))
        assert (await peer.command()).opaque == opaque
    assert handler.gone == []


class Hoarder:
    """A member of a budget that is no connection."""

    def __init__(self, budget: Budget, size: int) -> None:
        self.budget, self.buffered, self.held = budget, size, 0
        self.reason: str | None = None
        self.looks = 0
        budget.members.add(self)

    def report(self) -> None:
        change, self.held = self.buffered - self.held, self.buffered
        self.budget.add(change)

    def abort(self, reason: str) -> None:
        self.reason = reason
        self.budget.members.discard(self)
        self.budget.held -= self.held


def test_a_budget_makes_room_for_a_while() -> None:
    """Ending a thousand small ones one at a time would mean to look at all of them a thousand times."""
    budget = Budget(1000)
    members = [Hoarder(budget, 10) for _ in range(101)]
    for member in members:
        member.report()
    ended = [member for member in members if member.reason]
    assert len(ended) == 14
    assert budget.held == 870 == sum(member.held for member in budget.members)


def test_a_budget_ends_no_more_than_it_must() -> None:
    budget = Budget(1000)
    small, large = [Hoarder(budget, 50) for _ in range(10)], Hoarder(budget, 900)
    for member in (*small, large):
        member.report()
    assert large.reason is not None
    assert [member.reason for member in small] == [None] * 10
    assert budget.held == 500


def test_a_budget_counts_again_before_it_ends_a_connection() -> None:
    budget = Budget(1000)
    first, second = Hoarder(budget, 900), Hoarder(budget, 50)
    first.report()
    first.buffered = 0
    second.buffered = 200
    second.report()
    assert (first.reason, second.reason, budget.held) == (None, None, 200)


async def test_accounts_are_even_after_everything(listen: Listen, knock: Knock) -> None:
    listener = await listen(Echo(bytes(100 * KIB)), limits=Limits(pause_writing=64 * KIB))
    peers = [await knock(listener, receive_buffer=16 * KIB) for _ in range(6)]
    for n, peer in enumerate(peers):
        await peer.send(frame.encode(Command(1, body=bytes(50 * KIB)))[: 10_000 * n])
        await peer.send([Command(1)] * n) if n == 0 else None
    await eventually(lambda: listener.buffered > 0)
    for peer in peers:
        peer.close()
    await eventually(lambda: not listener.connections)
    assert listener.buffered == 0
    assert listener._budget.members == set()


# ── Time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_idle_connection_is_closed(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(idle=0.2))
    started = asyncio.get_running_loop().time()
    assert await (await knock(listener)).ended()
    assert asyncio.get_running_loop().time() - started >= 0.2
    await eventually(lambda: handler.gone)
    assert handler.gone[0].reason == "idle for 0.2 s"


async def test_reading_and_writing_are_not_idle(listen: Listen, knock: Knock) -> None:
    listener = await listen()
    peer = await knock(listener)
    server = await only_connection(listener)
    server._heard = server.output.last_active = 1.0
    await peer.send(b"\0")
    await eventually(lambda: server.last_active > 1.0)
    server._heard = server.output.last_active = 1.0
    await server.send(Command(40))
    await peer.command()
    assert server.last_active > 1.0


async def test_a_peer_that_reads_slowly_is_not_idle(listen: Listen, knock: Knock) -> None:
    listener = await listen(Echo(bytes(15 * MIB)))
    peer = await knock(listener, receive_buffer=256 * KIB)
    await peer.send(Command(1))
    server = await only_connection(listener)
    await eventually(lambda: server.buffered > 0)
    server._look_at_clock()
    unsent, now = server.buffered, asyncio.get_running_loop().time()
    server._heard = server.output.last_active = now - 100
    await turns()
    server._look_at_clock()
    assert server.last_active == now - 100  # nothing has moved
    while server.buffered == unsent:
        await peer.receive(128 * KIB)
    server._look_at_clock()
    assert server.last_active >= now


async def test_a_peer_that_never_reads_is_idle_in_the_end(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(8 * MIB))
    listener = await listen(handler, limits=Limits(idle=0.2))
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send(Command(1))
    await eventually(lambda: handler.gone)
    assert handler.gone[0].reason == "idle for 0.2 s"


async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(8 * MIB))
    listener = await listen(handler, limits=Limits(idle=0.3, linger=0.05))
    peer = await knock(listener, receive_buffer=16 * KIB)
    await peer.send(Command(1))
    server = await only_connection(listener)
    await eventually(lambda: server.buffered > 0)
    server.close()
    assert not server.is_open
    await eventually(lambda: handler.gone)


@pytest.mark.parametrize("start", [b"\0", frame.encode(Command(1))[:9], b"PROXY ", b"\x16\x03\x01"])
async def test_a_frame_must_come_to_its_end(start: bytes, listen: Listen, knock: Knock) -> None:
    """Also when the idle limit is far away."""
    handler = Echo()
    listener = await listen(handler, limits=Limits(idle=60, frame_time=0.2))
    peer = await knock(listener)
    started = asyncio.get_running_loop().time()
    await peer.send(start)
    assert await peer.ended()
    assert 0.2 <= asyncio.get_running_loop().time() - started < 30
    await eventually(lambda: handler.gone)
    assert handler.gone[0].reason == "a frame was incomplete after 0.2 s"


async def test_every_whole_frame_restarts_the_time(listen: Listen, knock: Knock) -> None:
    listener = await listen()
    peer = await knock(listener)
    server = await only_connection(listener)
    data = frame.encode(Command(1))
    await peer.send(data[:10])
    await eventually(lambda: server.intake.started)
    for _ in range(5):
        server.intake.started = 1.0
        await peer.send(data[10:] + data[:10])
        await peer.command()
        assert server.intake.started > 1.0
    began = server.intake.started
    await peer.send(data[10:11])
    await turns()
    assert server.intake.started == began  # a piece is no whole
    await peer.send(data[11:])
    await peer.command()
    assert server.intake.started is None


# ── How many ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_connections_beyond_the_limit_are_closed(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(connections=3))
    peers = [await knock(listener) for _ in range(3)]
    await eventually(lambda: len(listener.connections) == 3)
    for _ in range(5):
        assert await (await knock(listener)).ended()
    assert listener.refused == 5
    for peer in peers:
        await peer.send(Command(1))
        await peer.command()
    peers[0].close()
    await eventually(lambda: len(listener.connections) == 2)
    late = await knock(listener)
    await late.send(Command(1))
    await late.command()
    assert len(handler.gone) == 1


async def test_connections_leave_files_for_other_things(
    listen: Listen, knock: Knock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has no file left can neither accept, to say no, nor write its documents."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    listener = await listen()
    peers = [await knock(listener) for _ in range(6)]
    await eventually(lambda: len(listener.connections) == 6)
    assert await (await knock(listener)).ended()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert (await listen())._connections_max == 65_536
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))
    assert (await listen())._connections_max == 20_000 - 1024 - 64
    assert peers


async def test_a_thousand_connections_come_and_go(listen: Listen) -> None:
    handler = Echo()
    listener = await listen(handler)
    for _ in range(10):
        peers = await asyncio.gather(*(RawPeer.open(listener.port) for _ in range(50)))
        for n, peer in enumerate(peers):
            await peer.send(frame.encode(Command(1))[: n * 3])
            peer.close()
    await eventually(lambda: not listener.connections)
    assert listener.buffered == 0
    assert handler.gone


# ── How many ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_connections_of_one_address(listen: Listen, knock: Knock, caplog: pytest.LogCaptureFixture) -> None:
    """Further ones are closed, and named once; when one has gone, another may come."""
    listener = await listen(limits=Limits(connections_of_address=3), trusted="10.0.0.0/8")
    peers = [await knock(listener) for _ in range(3)]
    await eventually(lambda: len(listener.connections) == 3)
    for _ in range(5):
        assert await (await knock(listener)).ended()
    assert len(listener.connections) == 3
    assert listener.refused == 5
    assert caplog.text.count("it has 3, the limit (maxConnectionsPerAddress)") == 1
    peers[0].close()
    await eventually(lambda: len(listener.connections) == 2)
    late = await knock(listener)
    await late.send(Command(1, 7))
    assert (await late.command()).opaque == 7


async def test_proxies_may_have_any_number(listen: Listen, knock: Knock) -> None:
    listener = await listen(limits=Limits(connections_of_address=1), trusted="127.0.0.1")
    peers = [await knock(listener) for _ in range(4)]
    for peer in peers:
        await peer.send(Command(1, 7))
        assert (await peer.command()).opaque == 7


async def test_requests_in_flight(listen: Listen, knock: Knock) -> None:
    """More than a connection may have are refused at once, by the name of the limit; answers make room."""
    handler = Later()
    peer = await knock(await listen(handler, limits=Limits(in_flight=4)))
    for opaque in range(1, 5):
        await peer.send(Command(1, opaque))
    await eventually(lambda: len(handler.owed) == 4)
    await peer.send(Command(1, 99, CommandFlag.ONE_WAY))
    for opaque in (5, 6):
        await peer.send(Command(1, opaque))
    for opaque in (5, 6):
        answer = await peer.command()
        assert (answer.opaque, answer.code) == (opaque, ResponseCode.SYSTEM_BUSY)
        assert "maxRequestsInFlight" in (answer.remark or "")
    handler.pay()
    assert [(await peer.command()).opaque for _ in range(4)] == [1, 2, 3, 4]
    await peer.send(Command(1, 8))
    await eventually(lambda: handler.owed)
    handler.pay()
    assert (await peer.command()).opaque == 8
