"""A few simulated lives of a broker, with each run of the tests. Thousands: `make soak`."""

import logging
from collections.abc import Iterator

import pytest
from tests.simulation.broker_run import BrokerRun

from kourou.broker.lane import IS_COMPILED


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def live(seed: int, steps: int, mode: str | None = None, *, lane: bool, faults: bool = False) -> BrokerRun:
    run = BrokerRun(seed, steps, mode, lane=lane, faults=faults)
    run.run()
    assert run.sent
    assert (run.in_lane > 0) == (lane and IS_COMPILED)
    return run


@pytest.mark.parametrize("lane", [True, False], ids=["lane", "general"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", [3, 14, 63, 327, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007])
def test_a_life(seed: int, mode: str, lane: bool) -> None:
    live(seed, 400, mode, lane=lane)


@pytest.mark.parametrize("lane", [True, False], ids=["lane", "general"])
@pytest.mark.parametrize("seed", range(12))
def test_a_life_with_a_failing_disk(seed: int, lane: bool) -> None:
    live(seed, 400, lane=lane, faults=True)


@pytest.mark.parametrize("seed", [16, 204, 397, 469, 561, 747])
def test_a_life_that_once_failed(seed: int) -> None:
    """Timers: rolled copies beside recalls after a pause (16), a first sync that fails (204), a clock that jumps
    by more than the wheel has (397), recalls in files that are rebuilt (469),
    files that can't be removed (561). Transactions: a clean stop while the disk refuses op records (747).
    """
    live(seed, 1_500, lane=True, faults=True)


@pytest.mark.parametrize("other", [True, False], ids=["lane", "general"])
def test_a_seed_repeats(other: bool) -> None:
    """Whatever path requests take, a life is the same to the byte."""
    one, two = (live(14, 300, lane=lane) for lane in (False, other))
    assert one.trace[1:] == two.trace[1:]
    assert log_of(one) == log_of(two)


def log_of(run: BrokerRun) -> list[bytes]:
    segments = run.world.store.log.segments
    return [bytes(segments.file(start).buffer) for start in segments.starts]
