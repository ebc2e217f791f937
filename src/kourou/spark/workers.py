"""The one-time setup of a Python worker of Spark.

Spark collects garbage after every task of a worker, and each collection examines all imported modules: this takes about
ten milliseconds, for each of many small batches of a stream. And the C library returns the memory of every large batch
to the system, which has to supply it again for the next one, page by page.
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
"""Larger blocks are returned to the system nevertheless."""

_settled: set[int] = set()
"""The processes that were set up; a forked worker has to be set up again."""


def settle() -> None:
    """Exclude all present objects from later garbage collections, because they are kept. Called when tasks begin."""
    if os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()
        with suppress(OSError, AttributeError):  # another C library, with other functions
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, OWN_MAPPING_SIZE)
            library.mallopt(_TRIM_THRESHOLD, KEPT_SIZE)
