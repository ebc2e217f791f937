"""A broker whose system calls fail under load loses nothing, resumes automatically and does not fill its log."""

from pathlib import Path

import pytest

from .failing import build, plan, run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_calls_that_fail_for_a_while(tmp_path: Path, mode: str) -> None:
    library = build(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler, which makes the library of failing calls")
    counts = run(tmp_path, library, mode, plan(0))
    for call in ("open", "ftruncate", "fallocate", "rename", "msync", "mkdir", "mmap"):
        assert counts[call], f"no {call} has failed"
    assert counts["acknowledged"] > 100
