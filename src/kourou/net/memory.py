"""Giving memory back to the system.

The C library keeps what was freed for the next need, as long as anything behind it is in use. After peers that hoarded
half frames are gone, that may be hundreds of megabytes.
"""

import ctypes
from typing import Final

_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_memory_back() -> None:
    """Where the C library can do it; a few milliseconds at most."""
    if _trim is not None:
        _trim(0)
