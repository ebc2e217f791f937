"""What is sent: gathering, pressure, the end. No sockets."""

import asyncio
from typing import Any

import pytest
from tests.unit.net.loops import ManualLoop

from kourou.net.limits import Limits
from kourou.net.output import Output

LIMITS = Limits(pause_writing=100, unsent=1_000, linger=2.0)


class FakeTransport(asyncio.Transport):
    """Takes what is written, and sends it when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unsent = 0
        self.high: int | None = None
        self.is_closed = False
        self.shuts = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        raise OSError("no socket")  # so that a FIN is a close


class World:
    """An output with everything around it."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.transport = FakeTransport()
        self.accounted = 0
        self.aborted: list[str] = []
        self.output = Output(self.loop.as_loop, LIMITS, self.account, self.aborted.append)
        self.output.attach(self.transport)

    def account(self) -> None:
        self.accounted += 1


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_sent_in_one_turn_leaves_together(world: World) -> None:
    for part in (b"a", b"b", b"c"):
        world.output.send(part)
    assert not world.transport.writes and world.output.gathered == 3
    assert world.loop.turn() == 1
    assert world.transport.writes == [b"abc"]
    assert (world.output.gathered, world.accounted) == (0, 1)


def test_answers_of_a_read_leave_when_all_are_there(world: World) -> None:
    world.output.is_gathering = True
    world.output.send(b"a")
    world.output.send(b"b")
    assert world.loop.turn() == 0
    world.output.is_gathering = False
    world.output.flush()
    world.output.flush()
    assert world.transport.writes == [b"ab"]


def test_much_is_not_gathered(world: World) -> None:
    world.output.send(b"x" * 99)
    world.output.send(b"y")
    assert world.transport.writes == [b"x" * 99 + b"y"] and world.accounted == 1


def test_a_peer_that_does_not_read_is_ended(world: World) -> None:
    world.output.pause()
    world.transport.unsent = 1_000
    world.output.write(b"a")
    assert not world.aborted
    world.transport.unsent = 1_001
    world.output.write(b"b")
    assert world.aborted == ["more than 1000 bytes of answers are unsent: the peer does not read"]


async def test_a_waiting_sender_continues_when_the_peer_reads(world: World) -> None:
    world.output.pause()
    waiting = [asyncio.create_task(world.output.wait_writable()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    world.loop.now = 5.0
    world.output.resume()
    await asyncio.gather(*waiting)
    assert world.output.last_active == 5.0


async def test_a_waiting_sender_continues_when_the_peer_disconnects(world: World) -> None:
    world.output.pause()
    task = asyncio.create_task(world.output.wait_writable())
    await asyncio.sleep(0)
    world.output.detach()
    await task


def test_the_end_waits_for_what_is_unsent(world: World) -> None:
    world.output.write(b"a")
    world.transport.unsent = 1
    world.output.finish()
    assert (world.transport.high, world.transport.is_closing()) == (0, False)
    world.output.send(b"too late")
    world.output.write(b"too late")
    world.transport.unsent = 0
    world.output.resume()
    assert world.transport.is_closing() and world.transport.writes == [b"a"]


def test_after_the_end_nothing_is_sent_or_reported(world: World) -> None:
    world.output.send(b"a")
    world.output.detach()
    world.output.send(b"b")
    world.loop.turn()
    assert not world.transport.writes and world.accounted == 0
