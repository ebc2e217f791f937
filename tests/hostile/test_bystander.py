"""A short sample of `python -m tests.hostile.bystander`: attacks that once blocked all clients for seconds."""

from pathlib import Path

import pytest

from .bystander import MEMORY_MAX, run

SECONDS = 1.5
P99_MAX = 1.0
"""Far above the time on an idle machine, and below the time that each of these attacks once took."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["statistics_of_wide_topics", "slow_bodies", "names_without_end"])
def test_a_bystander_is_served(name: str, tmp_path: Path) -> None:
    outcome = run(name, tmp_path, rounds=1, seconds=SECONDS)
    assert outcome.p99 < P99_MAX
    assert outcome.kept < MEMORY_MAX
