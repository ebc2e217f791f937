"""Some hundred simulated lives of a Raft group with each run of the tests, and faults that they have to find."""

import logging

import pytest
from tests.simulation.raft_mutants import MUTANTS, mutated
from tests.simulation.raft_store import StoreStorage
from tests.simulation.raft_world import World

LIVES = 50
FOUND_WITHIN = 1_000


@pytest.mark.parametrize("first", range(0, 300, LIVES))
def test_lives(first: int) -> None:
    """python -m tests.simulation.raft --seed … --trace repeats one."""
    acknowledged = 0
    for seed in range(first, first + LIVES):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} at {world.now_ms:.0f} ms: {error}") from error
        acknowledged += world.clients.acked
    assert acknowledged > 20 * LIVES


def test_lives_over_the_real_store(caplog: pytest.LogCaptureFixture) -> None:
    """Commit log, recovery, truncation and epoch file on a simulated disk: --store repeats one."""
    caplog.set_level(logging.CRITICAL)
    for seed in range(20):
        world = World(seed, StoreStorage)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} at {world.now_ms:.0f} ms: {error}") from error


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_the_machine_is_found(name: str) -> None:
    """The check is worth something: each of these breaks a promise, and is found."""
    with mutated(name):
        found = next((fault for seed in range(FOUND_WITHIN) if (fault := fault_of(seed)) is not None), None)
    assert found is not None, f"{FOUND_WITHIN} lives did not show that {name}"
    assert "no progress" not in found


def fault_of(seed: int) -> str | None:
    """Which invariant a life breaks."""
    try:
        World(seed).run()
    except AssertionError as error:
        return str(error)
    return None
