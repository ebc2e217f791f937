"""Files that get their room bit by bit, as the files of queues and of the index do: most of them are never full.

A write through a mapping to a place that has no room on a full disk ends the process. So room is reserved ahead of the
writing, in steps, and what is cut off is zeroed only where something stands.
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
    """Make sure that a file has room there. Raises DiskFullError, DiskFailedError."""
    try:
        file.reserve(start, size)
    except OSError as error:
        raise no_room(file.path, size, error) from None


def is_zero(disk: Disk, path: Path, start: int, end: int) -> bool:
    """Does nothing stand in a file from `start` to `end`? It is not mapped for this. Raises OSError."""
    return next(_written(disk, path, start, end), None) is None


def zero_tail(disk: Disk, file: File, start: int) -> bool:
    """Zero what stands in a file from `start` on, and sync it: was there anything? Raises OSError."""
    found = False
    for at, data in _written(disk, file.path, start, len(file.buffer)):
        _zero(file, at, data)
        found = True
    if found:
        file.sync()
    return found


def _written(disk: Disk, path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The pieces of a file that are not zero, and where they stand.

    Read, not looked at through the mapping: comparing bytes is a memcmp, and pages stay unmapped.
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
    """Zero the stretches of sectors where this data is not zero: no room is taken where there was none."""
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
