"""The budget of requests to each server."""

import asyncio
from contextlib import suppress

import pytest

from kourou.client.pacing import SILENT_S, Pacing, SilentServerError, TooBusyError, is_long_poll
from kourou.net.errors import RequestTimedOutError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command

ASK = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
HELD = Command(RequestCode.PULL_MESSAGE, ext={"sysFlag": "6"})


def test_long_polls() -> None:
    assert is_long_poll(HELD)
    assert not is_long_poll(ASK)
    assert not is_long_poll(Command(RequestCode.PULL_MESSAGE, ext={"sysFlag": "4"}))
    assert not is_long_poll(Command(RequestCode.PULL_MESSAGE))


async def test_requests_under_way_are_limited() -> None:
    pacing = Pacing(2, 1000.0, waiting_max=1)
    first, second = pacing.turn("a", ASK), pacing.turn("a", ASK)
    await first.__aenter__()
    await second.__aenter__()
    async with pacing.turn("b", ASK), pacing.turn("a", HELD):
        third = asyncio.ensure_future(pacing.turn("a", ASK).__aenter__())
        await asyncio.sleep(0)
        assert pacing.waiting == 1
        with pytest.raises(TooBusyError):
            await pacing.turn("b", ASK).__aenter__()
    await first.__aexit__(None, None, None)
    await third
    assert pacing.waiting == 0


async def test_requests_per_second_are_limited() -> None:
    now = 0.0
    pacing = Pacing(100, 20.0, clock=lambda: now)
    for _ in range(20):
        async with pacing.turn("a", ASK):
            pass
    late = asyncio.ensure_future(pacing.turn("a", ASK).__aenter__())
    await asyncio.sleep(0)
    assert not late.done() and pacing.waiting == 1
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    now = 10.0
    async with pacing.turn("a", ASK):
        assert pacing.waiting == 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def fail(pacing: Pacing, clock: Clock, command: Command, *, seconds: float = 5.0) -> None:
    """A request that is not answered for so long."""
    with suppress(RequestTimedOutError):
        async with pacing.turn("a", command):
            clock.now += seconds
            raise RequestTimedOutError("no answer from a")


async def test_a_silent_server_is_asked_by_one_request_at_a_time() -> None:
    clock = Clock()
    pacing = Pacing(4, 1000.0, clock=clock)
    await fail(pacing, clock, ASK)
    with pytest.raises(SilentServerError, match="no answer from a"):
        await pacing.turn("a", ASK).__aenter__()
    async with pacing.turn("b", ASK):
        clock.now += SILENT_S
    probe = pacing.turn("a", ASK)
    await probe.__aenter__()
    with pytest.raises(SilentServerError):
        await pacing.turn("a", ASK).__aenter__()
    await probe.__aexit__(None, None, None)  # it answers again
    async with pacing.turn("a", ASK), pacing.turn("a", ASK):
        pass
    assert pacing.waiting == 0


async def test_requests_that_wait_for_a_server_that_turns_out_to_be_silent_fail() -> None:
    clock = Clock()
    pacing = Pacing(1, 1000.0, clock=clock)
    first = pacing.turn("a", ASK)
    await first.__aenter__()
    waiting = [asyncio.ensure_future(pacing.turn("a", ASK).__aenter__()) for _ in range(3)]
    await asyncio.sleep(0)
    assert pacing.waiting == 3
    clock.now += 5
    error = RequestTimedOutError("no answer from a")
    assert not await first.__aexit__(type(error), error, None), "the error is raised again"
    for one in waiting:
        with pytest.raises(SilentServerError):
            await one
    assert pacing.waiting == 0


async def test_what_says_nothing_about_a_server() -> None:
    """A consumer that hangs, a long poll, and a connection that was closed at once."""
    clock = Clock()
    pacing = Pacing(4, 1000.0, clock=clock)
    await fail(pacing, clock, Command(RequestCode.GET_CONSUMER_RUNNING_INFO))
    await fail(pacing, clock, HELD)
    await fail(pacing, clock, ASK, seconds=0.1)
    async with pacing.turn("a", ASK):
        pass
