"""Open files and locks of the simulated disk."""

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.testing.disk_parts import Inode, disk_error

if TYPE_CHECKING:
    from kourou.testing.disk import SimulatedDisk


class SimulatedFile:
    """A segment of the simulated disk."""

    __slots__ = ("_disk", "_inode", "_open", "_path", "buffer")

    def __init__(self, disk: "SimulatedDisk", path: Path, inode: Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._open = True
        inode.handles += 1
        disk.was_opened(inode)
        view = memoryview(inode.cache)
        self.buffer = view if writable else view.toreadonly()

    @property
    def path(self) -> Path:
        return self._path

    def reserve(self, start: int, size: int) -> None:
        self._check_open()
        self._disk.reserve_room(self._path, self._inode, start, size)

    def sync(self) -> None:
        self._disk.sync_content(self._path, self._inode)

    def rewrite(self, start: int, size: int) -> None:
        self._check_open()
        self._inode.rewrite(start, size)

    def supply(self, start: int, size: int) -> None:
        """Does nothing: the pages are in memory."""

    def warm(self) -> None:
        """Does nothing: the file is in memory."""

    def cool(self) -> None:
        """Does nothing: the file stays in memory."""

    def read_nothing_ahead(self) -> None:
        """Does nothing: the simulated disk has no read-ahead."""

    def close(self) -> None:
        if self._open:
            self._open = False
            self._inode.handles -= 1
            if not self._inode.handles:
                self._disk.was_closed(self._inode)

    def _check_open(self) -> None:
        if not self._open:
            raise disk_error(errno.EBADF, self._path)


class SimulatedLock:
    """A lock that a crash of its holder releases."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)
