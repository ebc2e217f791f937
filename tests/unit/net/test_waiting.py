"""The queue of what waits on a connection, without a connection."""

import pytest

from kourou.net.waiting import FIRST_BATCH, TURN, Waiting
from kourou.protocol.command import Command


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waiting(clock: Clock) -> Waiting:
    return Waiting(64, clock)


def commands(first: int, last: int, size: int = 0) -> list[Command]:
    return [Command(1, opaque, body=bytes(size)) for opaque in range(first, last)]


def opaques(batch: list[Command]) -> list[int]:
    return [command.opaque for command in batch]


def test_requests_are_taken_in_batches_and_in_order(waiting: Waiting) -> None:
    waiting.put(commands(0, 10))
    waiting.put(commands(10, 12))
    assert opaques(waiting.take_batch()) == list(range(FIRST_BATCH))
    assert opaques(waiting.take_batch()) == list(range(FIRST_BATCH, 12))
    assert not waiting.has_requests and not waiting


def test_what_is_put_back_comes_first(waiting: Waiting) -> None:
    waiting.put(commands(0, 10))
    batch = waiting.take_batch()
    size = waiting.size
    waiting.put_back(batch[3:])
    assert waiting.size > size
    assert opaques(waiting.take_batch()) == [3, 4, 5, 6, 7, 8, 9]
    assert waiting.size == 0


def test_sizes(waiting: Waiting) -> None:
    waiting.put(commands(0, 2, size=1000))
    assert 2000 < waiting.size < 4000
    waiting.rest = bytes(5000)
    assert waiting.size > 7000
    assert waiting.take_rest() == bytes(5000)
    assert waiting.rest == b"" and waiting
    waiting.clear()
    assert not waiting and waiting.size == 0


@pytest.mark.parametrize(
    ("seconds", "is_congested", "steps_back", "expected"),
    [
        (TURN / 2, False, False, FIRST_BATCH * 2),
        (TURN * 2, False, False, FIRST_BATCH // 2),
        (0.0, True, False, FIRST_BATCH // 2),
        (0.0, False, True, FIRST_BATCH // 2),
    ],
)
def test_the_next_batch_depends_on_what_the_last_one_took(
    waiting: Waiting, clock: Clock, seconds: float, is_congested: bool, steps_back: bool, expected: int
) -> None:
    waiting.begin(FIRST_BATCH)
    waiting.steps_back = steps_back
    clock.now += seconds
    waiting.fit(FIRST_BATCH, is_congested=is_congested)
    assert waiting.batch == expected


def test_batches_are_bounded(waiting: Waiting, clock: Clock) -> None:
    for _ in range(10):
        waiting.begin(waiting.batch)
        waiting.fit(waiting.batch, is_congested=False)
    assert waiting.batch == 64
    waiting.fit(3, is_congested=False)  # fewer than a batch: nothing is known of a larger one
    assert waiting.batch == 64
    for _ in range(10):
        waiting.begin(2)
        clock.now += 1
        waiting.fit(waiting.batch, is_congested=True)
    assert waiting.batch == 1
