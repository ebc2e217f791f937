"""Readers in bulk have a share of the loop's time beside others, and all of it without; nothing of theirs is lost."""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kourou.net.background import QUIET, SPENT_MAX, Background
from kourou.net.connection import Connection
from kourou.net.listener import Listener
from kourou.protocol import frame
from kourou.protocol.command import Command

from .conftest import Dial, Knock, Listen
from .peers import BULK, Bulky, RawPeer, eventually, only_connection, turns

USUAL = BULK + 1


class Loop:
    """As much of a loop as turns need, whose time passes only as they say."""

    def __init__(self) -> None:
        self.now = 100.0
        self._number = 0
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., None], *words: Any) -> object:
        return self.call_at(self.now, callback, *words)

    def call_at(self, when: float, callback: Callable[..., None], *words: Any) -> object:
        self._number += 1
        heapq.heappush(self._waiting, (when, self._number, lambda: callback(*words)))
        return object()

    def run(self) -> None:
        """Until nothing is waiting."""
        while self._waiting:
            when, _, call = heapq.heappop(self._waiting)
            self.now = max(self.now, when)
            call()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr("kourou.net.background.asyncio.get_running_loop", lambda: loop)
    return loop


class Reader:
    """Asks for its next turn in each one, and takes some time for it."""

    def __init__(self, loop: Loop, background: Background, count: int, seconds: float = 0.001) -> None:
        self._loop, self._background, self._left, self._seconds = loop, background, count, seconds
        self.began: list[float] = []
        self.others = False  # somebody else asks all the time

    def turn(self) -> None:
        self.began.append(self._loop.now)
        self._loop.now += self._seconds
        self._left -= 1
        self.ask()

    def ask(self) -> None:
        if self.others:
            self._background.others_asked = self._loop.now
        if self._left:
            self._background.ask(self.turn)


def _reader(loop: Loop, count: int, *, share: float = 0.25, seconds: float = 0.001, others: bool = True) -> Reader:
    reader = Reader(loop, Background(lambda: share, loop.time), count, seconds)
    reader.others = others
    reader.ask()
    return reader


def test_all_the_time_without_other_requests(loop: Loop) -> None:
    reader = _reader(loop, 100, others=False)
    loop.run()
    assert reader.began[-1] == pytest.approx(100 + 0.099)


@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
def test_a_share_of_it_beside_others(loop: Loop, share: float) -> None:
    reader = _reader(loop, 1000, share=share)
    loop.run()
    assert len(reader.began) == 1000
    assert 1.0 / (reader.began[-1] - reader.began[0]) == pytest.approx(share, rel=0.02)


def test_a_turn_that_was_held_up_counts_as_a_long_one(loop: Loop) -> None:
    reader = _reader(loop, 2, seconds=3.0)
    loop.run()
    assert reader.began[1] - reader.began[0] == pytest.approx(3.0)
    reader = _reader(loop, 2, seconds=SPENT_MAX)
    loop.run()
    assert reader.began[1] - reader.began[0] <= SPENT_MAX * 4


def test_the_others_have_gone(loop: Loop) -> None:
    reader = _reader(loop, 1000)
    reader.others = False
    loop.run()
    passed = reader.began[-1] - reader.began[0]
    assert passed == pytest.approx(QUIET + 1.0 - QUIET / 4, abs=0.01)


def test_readers_take_turns(loop: Loop) -> None:
    background, order = Background(lambda: 0.5, loop.time), list[str]()
    background.others_asked = loop.now

    def turn(name: str, left: int) -> None:
        order.append(name)
        loop.now += 0.001
        background.others_asked = loop.now
        if left:
            background.ask(partial(turn, name, left - 1))

    for name in ("a", "b", "c"):
        background.ask(partial(turn, name, 4))
    loop.run()
    assert "".join(order) == "abc" * 5


def test_a_turn_that_fails_is_not_the_end(loop: Loop) -> None:
    background, seen = Background(lambda: 0.5, loop.time), list[int]()
    background.others_asked = loop.now

    def fail() -> None:
        raise RuntimeError("a fault of a turn")

    background.ask(fail)
    background.ask(lambda: seen.append(1))
    with pytest.raises(RuntimeError):
        loop.run()
    loop.run()
    assert seen == [1]


# ── On connections ──────────────────────────────────────────────────────────────────────────────────────────────────


class BulkyLane:
    """As the handler, one request at a time."""

    def read(self, connection: Connection, data: bytes) -> None:
        if len(data) < 4 or (stop := 4 + int.from_bytes(data[:4])) > len(data):
            connection.decode(data)
            return
        (command,) = frame.Decoder().feed(data[:stop])
        connection.reply_frames(frame.encode(command.answer(body=command.body)), 0)
        if command.code == BULK:
            connection.step_back()
        connection.put_off(data[stop:])


@pytest.fixture(params=["handler", "lane"])
async def listener(listen: Listen, request: pytest.FixtureRequest) -> Listener:
    listener = await listen(Bulky(), background=Background(lambda: 0.25))
    if request.param == "lane":
        listener.reader = BulkyLane()
    return listener


BODY = bytes(40_000)


async def _ask_all_the_time(dial: Dial, listener: Listener) -> "asyncio.Task[int]":
    """Another client sends one request after the other."""
    connection = await dial(listener)

    async def ask() -> int:
        count = 0
        while True:
            await connection.request(Command(USUAL), 20)
            count += 1

    return asyncio.create_task(ask())


async def test_all_answers_in_order_beside_others(listener: Listener, knock: Knock, dial: Dial) -> None:
    others = await _ask_all_the_time(dial, listener)
    peer = await knock(listener)
    sending = asyncio.create_task(peer.send([Command(BULK, opaque, body=BODY) for opaque in range(100)]))
    assert [answer.opaque for answer in await peer.commands(100)] == list(range(100))
    await sending
    others.cancel()


async def test_what_comes_while_it_waits(listener: Listener, knock: Knock, dial: Dial) -> None:
    others = await _ask_all_the_time(dial, listener)
    peer = await knock(listener)
    frames = b"".join(frame.encode(Command(BULK, opaque, body=b"x" * 50)) for opaque in range(30))
    for at in range(0, len(frames), 33):
        await peer.send(frames[at : at + 33])
        await asyncio.sleep(0)
    assert [answer.opaque for answer in await peer.commands(30)] == list(range(30))
    others.cancel()


async def test_a_former_bulk_reader_is_served_as_the_others(listen: Listen, knock: Knock) -> None:
    background = Background(lambda: 0.01)
    listener = await listen(Bulky(), background=background)
    peer = await knock(listener)
    await peer.send(Command(BULK, 1))
    await peer.commands(1)
    await peer.send(Command(USUAL, 2))
    await peer.commands(1)
    before = background.others_asked
    await turns()
    await peer.send(Command(USUAL, 3))
    await peer.commands(1)
    assert background.others_asked > before


async def test_the_end_of_a_waiting_connection(listener: Listener, knock: Knock, dial: Dial) -> None:
    """Its requests are answered before the end if it is a good one, and without an error if it is not."""
    others = await _ask_all_the_time(dial, listener)
    peer, rude = await knock(listener), await knock(listener)
    for each in (peer, rude):
        await each.send([Command(BULK, opaque) for opaque in range(20)])
    rude.close()
    peer.half_close()
    assert [answer.opaque for answer in await peer.rest()] == list(range(20))
    await eventually(lambda: len(listener.connections) == 1)
    others.cancel()


async def test_a_listener_that_ends_answers_waiting_readers(listener: Listener, knock: Knock) -> None:
    peer = await knock(listener)
    await peer.send([Command(BULK, opaque) for opaque in range(20)])
    first = await peer.command()
    closing = asyncio.create_task(listener.close(20))
    answers = [first, *await _until_end(peer)]
    assert [answer.opaque for answer in answers] == list(range(len(answers)))
    await closing


async def _until_end(peer: RawPeer) -> list[Command]:
    answers = await peer.rest()
    peer.close()
    return answers


async def test_without_a_background_nothing_changes(listen: Listen, knock: Knock) -> None:
    listener = await listen(Bulky())
    peer = await knock(listener)
    await peer.send([Command(BULK, opaque) for opaque in range(20)])
    assert [answer.opaque for answer in await peer.commands(20)] == list(range(20))
    assert not (await only_connection(listener))._waiting.steps_back
