"""Giving memory back to the system.

The C library keeps freed memory for later use as long as any memory after it is in use. After peers with incomplete
frames or large answers are gone, that may be hundreds of megabytes.
"""

import ctypes
from typing import Final

_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_memory_back() -> None:
    """Give back free memory if the C library supports it; takes a few milliseconds at most."""
    if _trim is not None:
        _trim(0)
