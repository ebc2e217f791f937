"""A short run of the fuzz command; the long one is `make fuzz`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = 50_000


@pytest.mark.slow
def test_mutated_frames() -> None:
    """The seed is new each time; when this fails, the output has it, and the frame."""
    command = [sys.executable, "-m", "benchmarks.fuzz", "--count", str(COUNT)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-4000:]
    assert f"{COUNT} frames in" in run.stdout
