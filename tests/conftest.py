"""For all tests: their files lie in memory where there is plenty of it.

A disk that others keep busy makes a test wait for seconds, and then fail for reasons of its own. The variable
`PYTEST_DEBUG_TEMPROOT` chooses another folder.
"""

import os
import shutil
from pathlib import Path

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
