"""A few simulated lives of a store, with each run of the tests. Thousands: `make soak`."""

import logging
from collections.abc import Iterator

import pytest
from tests.simulation.store import KINDS


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [4, 6, 7])
def test_a_life(seed: int, kind: str) -> None:
    """With images of a power cut at every boundary, whatever befalls the disk."""
    run = KINDS[kind](seed, 1, 25)
    run.run()
    assert run.checked > 0
