"""What a Python worker of Spark does once in its life.

Spark collects garbage after every task of a worker, and each time looks at all that a worker has imported: some ten
milliseconds, which a stream of small batches pays again and again. And the C library gives the memory of every large
batch back to the system, which then has to supply it anew for the next one, page by page.
"""

import ctypes
import gc
import os
from contextlib import suppress
from typing import Final

_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
KEPT_SIZE: Final = 64 * 1024 * 1024
"""How much free memory a worker keeps at most."""

OWN_MAPPING_SIZE: Final = 32 * 1024 * 1024
"""What is larger than this is given back all the same."""

_settled: set[int] = set()
"""Processes; a worker that is forked has its own life."""


def settle() -> None:
    """What is in memory now will stay: leave it out of garbage collections to come. Called as tasks begin."""
    if os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()
        with suppress(OSError, AttributeError):  # another C library, which has ways of its own
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, OWN_MAPPING_SIZE)
            library.mallopt(_TRIM_THRESHOLD, KEPT_SIZE)
