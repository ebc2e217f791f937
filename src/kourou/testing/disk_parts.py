"""The parts of a simulated disk: content and names, both in a visible and a durable state, and their failures.

`PowerCut` decides which data survive one power failure without being durable.
"""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Literal

SECTOR = 512
"""The unit that a disk writes at once, although a power failure may tear it."""

BLOCK = 4096
"""The unit in which space is counted."""

_COMPARED_AT_ONCE = 128 * SECTOR

Change = Literal["create", "reserve", "sync", "truncate", "backup", "replace", "remove", "remove_folder", "sync_folder"]
"""The calls that are boundaries: they are counted, and a crash may happen immediately before or after each.

Not all are methods of the port: `replace` with a backup is two, and `remove_folder` is one more for each file in it.
"""

Call = Literal[Change, "open", "read", "list"]
"""The calls that can fail. Nothing changes between reads, so a crash there is like one at the last boundary."""


class Inode:
    """The content of a file, independent of its name."""

    __slots__ = ("believed", "cache", "handles", "is_whole", "modified_ms", "platter", "room", "safe_room")

    def __init__(self, content: bytearray, room: bytearray, modified_ms: int) -> None:
        self.cache = content
        self.platter = bytearray(content)
        self.believed = self.platter  # treated as written; another object only after a failed sync
        self.room = room  # 1 for each block with space on the disk
        self.safe_room = bytearray(room)
        self.handles = 0
        self.is_whole = True  # its size is durable
        self.modified_ms = modified_ms

    def dirty(self) -> list[int]:
        """The positions of the sectors that the next sync has to write."""
        return differences(self.cache, self.believed)

    def write(self, sectors: Sequence[int]) -> None:
        for at in sectors:
            piece = self.cache[at : at + SECTOR]
            self.platter[at : at + SECTOR] = piece
            if self.believed is not self.platter:
                self.believed[at : at + SECTOR] = piece

    def rewrite(self, start: int, size: int) -> None:
        """Treat these bytes as dirty, whether they changed or not."""
        if self.believed is self.platter:
            return  # no sync has failed: clean sectors have been written
        for at in range(start - start % SECTOR, start + size, SECTOR):
            if self.believed[at : at + SECTOR] == self.cache[at : at + SECTOR]:
                self.believed[at] ^= 0xFF

    def copy(self) -> "Inode":
        twin = Inode(bytearray(self.cache), bytearray(self.room), self.modified_ms)
        twin.platter = twin.believed = bytearray(self.platter)
        if self.believed is not self.platter:
            twin.believed = bytearray(self.believed)
        twin.safe_room = bytearray(self.safe_room)
        twin.is_whole = self.is_whole
        return twin


def differences(one: bytearray, other: bytearray) -> list[int]:
    if one == other:
        return []
    found = []
    for step in range(0, len(one), _COMPARED_AT_ONCE):
        end = min(step + _COMPARED_AT_ONCE, len(one))
        if one[step:end] != other[step:end]:
            found += [at for at in range(step, end, SECTOR) if one[at : at + SECTOR] != other[at : at + SECTOR]]
    return found


class Folder:
    """Names: the visible ones and the durable ones."""

    __slots__ = ("files", "folders", "safe_files")

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.safe_files: dict[str, Inode] = {}
        self.folders: set[str] = set()

    def copy(self, inodes: Mapping[int, Inode] | None = None) -> "Folder":
        """The same names, for the same files or for copies of them, by the ids of the originals."""
        twin = Folder()
        twin.folders = set(self.folders)
        for mine, others in ((twin.files, self.files), (twin.safe_files, self.safe_files)):
            mine.update((name, inode if inodes is None else inodes[id(inode)]) for name, inode in others.items())
        return twin


class Fault:
    """An error that waits for its call."""

    __slots__ = ("call", "code", "late", "left", "skip", "where")

    def __init__(self, call: Call, code: int, where: str, skip: int, left: float, late: bool) -> None:
        self.call = call
        self.code = code
        self.where = where
        self.skip = skip
        self.left = left
        self.late = late

    def strikes(self, call: Call, path: Path) -> bool:
        if call != self.call or not self.left or not fnmatch(str(path), self.where):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        return True


class PowerCut:
    """The effect of one power failure.

    The shares of dirty sectors that are kept and torn are drawn once for the whole disk, so that both extremes occur,
    and all shares in between.
    """

    def __init__(self, random: Random, *, tears: bool) -> None:
        self._random = random
        self._keep = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        self._tear = random.choice((0.0, 0.05, 0.3)) if tears else 0.0

    def platter(self, inode: Inode, dirty: Sequence[int]) -> bytearray:
        after = bytearray(inode.platter)
        for at in dirty:
            start, end = at, min(at + SECTOR, len(after))
            if self._random.random() < self._tear and end - start > 1:
                cut = self._random.randrange(start + 1, end)
                start, end = (start, cut) if self._random.random() < 0.5 else (cut, end)
            elif self._random.random() >= self._keep:
                continue
            after[start:end] = inode.cache[start:end]
        return after

    def has_size(self, inode: Inode) -> bool:
        """A file that was made and never synced may be found empty."""
        return inode.is_whole or self._random.random() < 0.7

    def room(self, inode: Inode, platter: bytearray) -> bytearray:
        """Space that was reserved since the last sync may be lost, except where data were written."""
        if not platter:
            return bytearray()
        if inode.room == inode.safe_room or self._random.random() < 0.5:
            return bytearray(inode.room)
        return bytearray(map(max, inode.safe_room, used_room(platter)))

    def names(self, folder: Folder) -> dict[str, Inode]:
        names: dict[str, Inode] = {}
        for name in sorted(folder.files.keys() | folder.safe_files.keys()):
            visible, durable = folder.files.get(name), folder.safe_files.get(name)
            inode = visible if visible is durable or self._random.random() < 0.5 else durable
            if inode is not None:
                names[name] = inode
        return names


def split_path(path: Path | str) -> tuple[str, str]:
    """Folder and name."""
    folder, _, name = str(path).rpartition("/")
    return folder or "/", name


def blocks_of(size: int) -> int:
    return -(-size // BLOCK)


def used_room(content: bytearray) -> bytearray:
    """Space for the blocks that are not all zeros."""
    return bytearray(bool(content[at : at + BLOCK].strip(b"\0")) for at in range(0, len(content), BLOCK))


def disk_error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
