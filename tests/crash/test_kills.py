"""A process that is killed under load loses nothing that it has acknowledged. More of them: `make soak`."""

from pathlib import Path

import pytest

from .kills import kill_often

KILLS = 5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_nothing_is_missing_after_kills(mode: str, tmp_path: Path) -> None:
    victim = kill_often(tmp_path, mode, 0, KILLS)
    assert victim.told
