"""Files that get their room bit by bit, as the files of queues and of the index do: most of them are never full.

A write through a mapping to a place that has no room on a full disk ends the process. So room is reserved ahead of the
writing, in steps, and what is cut off is zeroed only where something stands.
"""

import errno
import os
from pathlib import Path
from typing import Final

from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File, RealDisk

SECTOR: Final = 512
_CHUNK: Final = 2048 * SECTOR
_ZEROS: Final = bytes(_CHUNK)


def reserve(file: File, start: int, size: int) -> None:
    """Make sure that a file has room there. Raises DiskFullError, DiskFailedError."""
    try:
        file.reserve(start, size)
    except OSError as error:
        raise no_room(file.path, size, error) from None


def next_data(disk: Disk, path: Path, start: int, end: int) -> int:
    """Where from `start` on the file may hold something else than zeros; `end` if nowhere before it.

    The file systems of a real disk know which parts of a file were never written. That makes it cheap to ask of ten
    thousand files, most of them nearly empty, whether anything stands behind their end.
    """
    if not isinstance(disk, RealDisk):
        return start
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return min(os.lseek(descriptor, start, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        return start  # a file system that can't tell
    finally:
        os.close(descriptor)


def zero_tail(disk: Disk, file: File, start: int) -> bool:
    """Zero what stands in a file from `start` on, and sync it: was there anything? Raises OSError."""
    buffer = file.buffer
    end = len(buffer)
    found = False
    at = next_data(disk, file.path, start, end)
    while at < end:
        stop = min(at - at % _CHUNK + _CHUNK, end)
        # Read, not looked at through the mapping: comparing bytes is a memcmp, and pages stay unmapped.
        if disk.read_at(file.path, at, stop - at) != _ZEROS[: stop - at]:
            # No room is taken by this where the file system knows that there is data.
            file.reserve(at, stop - at)
            _zero_sectors(buffer, at, stop)
            found = True
        at = next_data(disk, file.path, stop, end) if stop < end else end
    if found:
        file.sync()
    return found


def _zero_sectors(buffer: memoryview, start: int, end: int) -> None:
    at = start
    while at < end:
        stop = min(at - at % SECTOR + SECTOR, end)
        if bytes(buffer[at:stop]) != _ZEROS[: stop - at]:
            buffer[at:stop] = _ZEROS[: stop - at]
        at = stop
