"""Memory-mapped files without open descriptors, which Python's mmap does not support: calls of the C library.

Python's mmap keeps a duplicate of the descriptor as long as the mapping exists. A store with ten thousand queues would
need ten thousand of them, and a process usually has 1,024. The system needs none: a mapping keeps its file open. So an
anonymous mapping, which Python owns, reserves the addresses, and the file is mapped over it; Python unmaps it with the
last view.

Syncing uses `msync`, which needs no descriptor either, writes the same as `fdatasync`, and reports errors to the
mapping that had them. `mmap.flush` is the same call, but keeps the interpreter locked while the disk works.
"""

import ctypes
import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_MAP_FIXED: Final = 0x10
_MS_SYNC: Final = 4
_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23
_FAILED: Final = ctypes.c_void_p(-1).value
_STEP: Final = 16 * 1024 * 1024

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_longlong if ctypes.sizeof(ctypes.c_long) == 8 else ctypes.c_long,
]
for _name in ("msync", "madvise"):
    getattr(_libc, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for _name in ("mlock", "munlock"):
    getattr(_libc, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def map_file(path: Path, descriptor: int, size: int) -> mmap.mmap:
    """Map a file for reading and writing. The descriptor may be closed afterwards. Raises OSError."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = _address(mapping)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if _libc.mmap(address, size, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0) == _FAILED:
        raise _error(path)
    return mapping


def sync(mapping: mmap.mmap, path: Path) -> None:
    """Make everything durable that was written before the call. Releases the interpreter lock. Raises OSError."""
    if _libc.msync(_address(mapping), len(mapping), _MS_SYNC):
        raise _error(path)


def supply(mapping: mmap.mmap, start: int, size: int) -> None:
    """Load pages into memory, clean; does nothing before Linux 5.14. Releases the interpreter lock."""
    begin = start - start % mmap.PAGESIZE
    _libc.madvise(_address(mapping) + begin, min(start + size, len(mapping)) - begin, _MADV_POPULATE_READ)


def warm(mapping: mmap.mmap) -> None:
    """Prepare all pages for writing, and lock them in memory as far as the system allows."""
    address, size = _address(mapping), len(mapping)
    for at in range(0, size, _STEP):
        if _libc.madvise(address + at, min(_STEP, size - at), _MADV_POPULATE_WRITE):
            _touch(mapping, at)
            break
    _libc.mlock(address, size)  # usually limited; a failure is ignored


def _touch(mapping: mmap.mmap, start: int) -> None:
    """For systems before Linux 5.14: cause the write fault of each page now, not in an append."""
    with suppress(OSError):
        mapping.madvise(mmap.MADV_WILLNEED)
    for at in range(start, len(mapping), mmap.PAGESIZE):
        mapping[at] = mapping[at]


def cool(mapping: mmap.mmap) -> None:
    """Allow the system to reclaim the memory."""
    _libc.munlock(_address(mapping), len(mapping))


def read_nothing_ahead(mapping: mmap.mmap) -> None:
    """Disable read-ahead: a touch loads one page only."""
    with suppress(OSError):
        mapping.madvise(mmap.MADV_RANDOM)


def _address(mapping: mmap.mmap) -> int:
    first: Any = ctypes.c_char.from_buffer(mapping)
    return ctypes.addressof(first)


def _error(path: Path) -> OSError:
    code = ctypes.get_errno() or errno.EIO
    return OSError(code, os.strerror(code), str(path))
