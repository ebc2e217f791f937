"""Some simulated lives of a lake, with each run of the tests. Thousands: `make soak`."""

import pytest

from .lake import KINDS
from .lake_run import LakeRun

FEW = [("two", 6), ("five", 3), ("compact", 4), ("delta", 2), ("delta-compact", 2)]


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, count in FEW for seed in range(count)])
def test_a_life(kind: str, seed: int) -> None:
    run = LakeRun(seed, **KINDS[kind])
    run.run()
    assert run.commits and run.checks


@pytest.mark.slow
def test_processes_are_killed_at_every_kind_of_step() -> None:
    """Or the lives above would show nothing."""
    places: set[str] = set()
    for seed in range(100, 112):
        run = LakeRun(seed, **KINDS["compact"])
        run.run()
        places.update(run.kills)
    wanted = {
        *(f"write commits {moment}" for moment in ("before", "after")),
        *(f"move to visible {moment}" for moment in ("before", "amid", "after")),
        *(f"remove staged {moment}" for moment in ("before", "after")),
        *(f"output staged {moment}" for moment in ("before", "after")),
        *(f"make staged {moment}" for moment in ("before", "after")),
        *(f"lock lock {moment}" for moment in ("before", "after")),
    }
    assert wanted <= places, wanted - places
    assert any(place.startswith("exchange with visible") for place in places)


def test_a_seed_repeats() -> None:
    traces = []
    for _ in range(2):
        run = LakeRun(14, **KINDS["compact"])
        run.run()
        traces.append(run.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100
