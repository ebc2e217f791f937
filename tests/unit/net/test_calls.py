"""Our own requests: numbers, answers, time-outs. No sockets."""

import asyncio

import pytest
from tests.unit.net.loops import ManualLoop

from kourou.net.calls import NUMBER_MAX, SWEEP, Calls
from kourou.net.errors import ConnectionLostError, RequestTimedOutError, TooManyRequestsError
from kourou.protocol.command import Command


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def calls(loop: ManualLoop) -> Calls:
    made = Calls(loop.as_loop, 3)
    made.peer = "10.0.0.1:10911"
    return made


def begin(calls: Calls, timeout: float, code: int = 105) -> "tuple[int, asyncio.Future[Command]]":
    number = calls.number()
    return number, calls.begin(number, code, timeout)


async def test_an_answer_goes_to_its_request(calls: Calls) -> None:
    (first, one), (second, two) = begin(calls, 5), begin(calls, 5)
    calls.answer(Command(0, second, body=b"2"))
    calls.answer(Command(0, first, body=b"1"))
    assert (one.result().body, two.result().body) == (b"1", b"2")
    calls.answer(Command(0, first))  # a second answer, and one to nothing
    calls.answer(Command(0, 99))
    assert len(calls) == 0


async def test_numbers_go_round_and_skip_those_that_wait(calls: Calls) -> None:
    assert begin(calls, 5)[0] == 1
    calls._last_number = NUMBER_MAX - 1
    assert [begin(calls, 5)[0] for _ in range(2)] == [NUMBER_MAX, 0]
    calls.forget(0)
    assert begin(calls, 5)[0] == 2


async def test_too_many_requests_are_refused(calls: Calls) -> None:
    numbers = [begin(calls, 5)[0] for _ in range(3)]
    with pytest.raises(TooManyRequestsError, match=r"3 requests await an answer from 10.0.0.1:10911"):
        calls.number()
    calls.forget(numbers[0])
    calls.number()


async def test_time_outs_come_in_their_order_and_hardly_late(loop: ManualLoop, calls: Calls) -> None:
    ended: list[tuple[float, float]] = []
    calls.on_time_out = lambda began, timeout: ended.append((began, timeout))
    _, slow = begin(calls, 30)
    _, quick = begin(calls, 0.2, code=11)
    number, answered = begin(calls, 0.1)
    calls.answer(Command(0, number))
    loop.pass_time(0.2 + SWEEP)
    with pytest.raises(RequestTimedOutError, match=r"no answer from 10.0.0.1:10911 to request 11 within 0.2 s"):
        quick.result()
    assert answered.done() and not slow.done() and len(calls) == 1
    assert ended == [(0.0, 0.2)]
    loop.pass_time(30)
    assert isinstance(slow.exception(), RequestTimedOutError)
    assert len(calls) == 0 and not [timer for timer in loop.timers if not timer.is_cancelled]


async def test_one_timer_for_all(loop: ManualLoop) -> None:
    calls = Calls(loop.as_loop, 1_000)
    futures = [begin(calls, 3)[1] for _ in range(1_000)]
    assert len(loop.timers) == 1
    loop.pass_time(3 + SWEEP)
    assert all(isinstance(future.exception(), RequestTimedOutError) for future in futures)


async def test_a_request_that_is_given_up_is_forgotten_in_time(loop: ManualLoop, calls: Calls) -> None:
    _, future = begin(calls, 1)
    future.cancel()
    loop.pass_time(1 + SWEEP)
    assert len(calls) == 0


async def test_a_lost_connection_fails_all_requests(loop: ManualLoop, calls: Calls) -> None:
    futures = [begin(calls, 5)[1] for _ in range(3)]
    futures[0].cancel()
    calls.fail("lost")
    assert all(isinstance(future.exception(), ConnectionLostError) for future in futures[1:])
    assert len(calls) == 0 and all(timer.is_cancelled for timer in loop.timers)


async def test_nothing_times_out_after_an_end_in_a_time_out(loop: ManualLoop, calls: Calls) -> None:
    """As a client does with a server that is silent: the first time-out ends the connection."""
    calls.on_time_out = lambda *_: calls.stop()
    first, second = begin(calls, 1)[1], begin(calls, 1)[1]
    loop.pass_time(2)
    assert isinstance(first.exception(), RequestTimedOutError) and not second.done()
