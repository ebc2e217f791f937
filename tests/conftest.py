"""For all tests: where their files are, which of them run once, and the level of the log.

Files are in memory if there is enough of it: on a busy disk a test may wait for seconds, and fail for a reason that is
not its subject. The variable `PYTEST_DEBUG_TEMPROOT` sets another folder.
"""

import logging
import os
import shutil
from collections.abc import Iterator
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
    "tests/client/test_console_pages.py",
    "tests/console/",
    "tests/crash/test_full_disk.py",
    "tests/crash/test_jumping_clock.py",
    "tests/hostile/test_terminal.py",
    "tests/simulation/test_lake_seeds.py",
    "tests/soak/",
    "tests/spark/",
    "tests/typing/",
    "tests/unit/bench/",
    "tests/unit/cli/",
    "tests/unit/console/",
)
"""Tests that do not depend on the form of the compiled modules: `make test` runs them with one form."""

IN_BOTH_FORMS = (
    "tests/spark/test_edges.py",
    "tests/spark/test_hostile.py",
    "tests/spark/test_live.py",
    "tests/spark/test_many_topics.py",
    "tests/spark/test_parcels.py",
    "tests/spark/test_planning.py",
    "tests/spark/test_robustness.py",
    "tests/spark/test_rows.py",
    "tests/spark/test_sources.py",
    "tests/spark/test_split_reader.py",
    "tests/spark/test_wire.py",
    "tests/unit/cli/test_store_cli.py",
)
"""Those that do depend on it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ONCE) and not item.nodeid.startswith(IN_BOTH_FORMS):
            item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Commands that run inside a test set the level of the root logger; the next test has the usual one again."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
