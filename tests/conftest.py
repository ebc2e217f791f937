"""For all tests: where their files are, and which of them run once.

Files are in memory where there is plenty of it: a disk that others keep busy makes a test wait for seconds, and then
fail for a reason that is not its subject. The variable `PYTEST_DEBUG_TEMPROOT` chooses another folder.
"""

import os
import shutil
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 6 << 30


def _has_room() -> bool:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
        return available >= 2 * ROOM and shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK)
    except (OSError, StopIteration):
        return False


if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _has_room():
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


ONCE = (
    "tests/architecture/",
    "tests/client/test_command_line.py",
    "tests/crash/test_full_disk.py",
    "tests/crash/test_jumping_clock.py",
    "tests/hostile/test_terminal.py",
    "tests/simulation/test_lake_seeds.py",
    "tests/soak/",
    "tests/spark/",
    "tests/typing/",
    "tests/unit/bench/",
    "tests/unit/cli/",
)
"""Tests that do not depend on the form of the compiled modules: `make test` runs them with one form."""

IN_BOTH_FORMS = (
    "tests/spark/test_parcels.py",
    "tests/spark/test_rows.py",
    "tests/spark/test_scanning.py",
    "tests/spark/test_split_reader.py",
    "tests/spark/test_wire.py",
    "tests/unit/cli/test_store_cli.py",
)
"""Those that do depend on it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ONCE) and not item.nodeid.startswith(IN_BOTH_FORMS):
            item.add_marker(pytest.mark.once)
