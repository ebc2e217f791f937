"""Test files in folders that are no packages need names of their own: pytest imports them by these names."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_files_outside_of_packages_have_different_names() -> None:
    files = [path for path in TESTS.rglob("*.py") if not (path.parent / "__init__.py").exists()]
    counts = Counter(path.name for path in files if path.name != "conftest.py")
    assert files
    twice = [str(path.relative_to(TESTS)) for path in files if counts[path.name] > 1]
    assert not twice, f"rename all but one of each name: {sorted(twice)}"
