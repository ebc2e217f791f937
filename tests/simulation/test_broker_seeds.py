"""A few simulated lives of a broker, with each run of the tests. Thousands: `make soak`."""

import logging
from collections.abc import Iterator

import pytest
from tests.simulation.broker_run import BrokerRun


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", [3, 14, 63, 327])
def test_a_life(seed: int, mode: str) -> None:
    run = BrokerRun(seed, 600, mode)
    run.run()
    assert run.sent


@pytest.mark.parametrize("seed", range(12))
def test_a_life_with_a_failing_disk(seed: int) -> None:
    run = BrokerRun(seed, 600, faults=True)
    run.run()
    assert run.sent


def test_a_seed_repeats() -> None:
    traces, ends = [], []
    for _ in range(2):
        run = BrokerRun(14, 300)
        run.run()
        traces.append(run.trace)
        ends.append(run.world.store.log.end)
    assert traces[0] == traces[1]
    assert ends[0] == ends[1]
