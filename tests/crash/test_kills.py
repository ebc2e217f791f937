"""A process that is killed under load loses nothing that it has told anybody of."""

from pathlib import Path
from random import Random

import pytest

from .kills import Victim
from .opening import now_ms

KILLS = 5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_nothing_is_missing_after_kills(mode: str, tmp_path: Path) -> None:
    victim = Victim(tmp_path / "store", mode, Random(f"kills {mode}"))
    for number in range(KILLS):
        store = victim.kill_once()
        # The next writer finds what a kill has left, what a start after it has left, or a clean stop.
        if number % 2:
            store.close(now_ms())
        else:
            store.abandon()
    assert victim.told
