"""Files whose space is reserved in steps, as those of queues and of the index: most of them are never full.

A write through a mapping to an unreserved position on a full disk ends the process. So space is reserved before
writing, in steps, and truncated parts are zeroed only where they are not zero already.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kourou.store.commit_log import no_room
from kourou.store.disk import Disk, File

SECTOR: Final = 512
_CHUNK: Final = 2048 * SECTOR
_ZEROS: Final = bytes(_CHUNK)


def reserve(file: File, start: int, size: int) -> None:
    """Reserve space in a file. Raises DiskFullError, DiskFailedError."""
    try:
        file.reserve(start, size)
    except OSError as error:
        raise no_room(file.path, size, error) from None


def is_zero(disk: Disk, path: Path, start: int, end: int) -> bool:
    """True if a file is zero from `start` to `end`. The file is not mapped for this. Raises OSError."""
    return next(_written(disk, path, start, end), None) is None


def zero_tail(disk: Disk, file: File, start: int) -> bool:
    """Zero a file from `start` on, and sync it. Returns whether anything was not zero. Raises OSError."""
    found = False
    for at, data in _written(disk, file.path, start, len(file.buffer)):
        _zero(file, at, data)
        found = True
    if found:
        file.sync()
    return found


def _written(disk: Disk, path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The parts of a file that are not zero, with their positions.

    Read, not mapped: comparing bytes is a memcmp, and no pages are mapped.
    """
    at, data_end = disk.data(path, start, end)
    while at < end:
        stop = min(at - at % _CHUNK + _CHUNK, data_end)
        data = disk.read_at(path, at, stop - at)
        if data != _ZEROS[: stop - at]:
            yield at, data
        at = stop
        if at == data_end and at < end:
            at, data_end = disk.data(path, at, end)


def _zero(file: File, start: int, data: bytes) -> None:
    """Zero the sectors of this data that are not zero: no space is allocated for the others."""
    at, end = start, start + len(data)
    dirty_from = start
    while at < end:
        stop = min(at - at % SECTOR + SECTOR, end)
        is_zero = data[at - start : stop - start] == _ZEROS[: stop - at]
        if is_zero:
            _zero_stretch(file, dirty_from, at)
            dirty_from = stop
        at = stop
    _zero_stretch(file, dirty_from, end)


def _zero_stretch(file: File, start: int, end: int) -> None:
    if start < end:
        file.reserve(start, end - start)
        file.buffer[start:end] = _ZEROS[: end - start]
