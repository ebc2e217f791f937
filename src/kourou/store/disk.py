"""The disk port: the operations that a store needs, and the real disk.

There are two kinds of files. Small ones (checkpoint, JSON) are read and replaced as a whole. Segments have a fixed size
and are mapped: writing is assigning to memory, which can't fail if the space was reserved before, and which is durable
only after `sync`. A crash keeps any part of later writes, in units of a sector.

kourou.testing.disk is the simulated disk, which loses, tears and flips data and fails. The same tests run on both.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import ClassVar, Protocol

from kourou.store import memory_map
from kourou.store.errors import StoreInUseError


class File(Protocol):
    """A mapped segment. `buffer` and slices of it stay valid after `close` and after the file is removed."""

    @property
    def path(self) -> Path: ...

    @property
    def buffer(self) -> memoryview:
        """All bytes, writable. Write only where space is reserved."""

    def reserve(self, start: int, size: int) -> None:
        """Reserve space on the disk for these bytes. Raises OSError (ENOSPC, EDQUOT, EIO, EROFS)."""

    def sync(self) -> None:
        """Make everything durable that was written before the call. Raises OSError.

        May run in another thread, and after `close`.
        """

    def rewrite(self, start: int, size: int) -> None:
        """Make the next sync write these bytes, although they did not change. Raises OSError.

        A failed sync may have skipped them and marked them as written, perhaps in a process that has ended.
        """

    def supply(self, start: int, size: int) -> None:
        """Load these pages into memory before they are written, as far as the system allows."""

    def warm(self) -> None:
        """Touch all pages and lock them in memory, as far as the system allows."""

    def cool(self) -> None:
        """The pages need not stay in memory."""

    def read_nothing_ahead(self) -> None:
        """Disable read-ahead: most of the file is empty, and reading ahead would fill the memory with zeros."""

    def close(self) -> None:
        """Close the file. It is unmapped with the last slice of it. Does not sync."""


class Lock(Protocol):
    """A held lock on a directory."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are absolute. Every method may raise OSError.

    After an error, nothing has changed; or, if only the final sync of a folder failed, the change is visible but not
    yet durable.
    """

    def folders(self, folder: Path) -> list[str]:
        """Names of the subfolders; empty if the folder is missing."""

    def files(self, folder: Path) -> dict[str, int]:
        """Names and sizes of the files in a folder; empty if it is missing."""

    def modified_ms(self, path: Path) -> int:
        """When a file was last changed."""

    def create(self, path: Path, size: int, *, reserve: bool = True, content: memoryview | None = None) -> File:
        """Create a segment, zeroed or with this content; it appears complete and synced, or not at all.

        With `reserve`, all of its space is reserved on the disk. An existing file is replaced.
        """

    def create_lazily(self, path: Path, size: int) -> File:
        """Create a segment, zeroed and without reserved space, and its folders, without waiting for the disk.

        It is durable after it is synced and `sync_created` has synced its name: before that, a crash may remove it or
        leave it empty.
        """

    def sync_created(self, path: Path) -> None:
        """Make the name of such a file durable, with those of its folders; another process may have created it.

        Nothing happens if it was removed since.
        """

    def open(self, path: Path, *, writable: bool = True) -> File:
        """Map an existing segment in its present size, which must not be 0."""

    def truncate(self, path: Path, size: int) -> None:
        """Truncate or extend (with zeros) a file that is not open."""

    def read(self, path: Path) -> bytes | None:
        """The content of a small file; None if it is missing."""

    def read_at(self, path: Path, start: int, size: int) -> bytes:
        """Some bytes of a file, without mapping it."""

    def data(self, path: Path, start: int, end: int) -> tuple[int, int]:
        """The first range from `start` on that may have other bytes than zeros; (`end`, `end`) if there is none.

        File systems know which parts of a file were never written. So it is cheap to check ten thousand files, most of
        them nearly empty, for data after their end.
        """

    def replace(self, path: Path, content: bytes | list[bytes], *, backup: bool = False) -> None:
        """Write a file atomically, also in a crash; durable on return. The content may come in parts.

        With `backup`, the old content is kept as `<name>.bak`.
        """

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists. Durable after the next `sync_folder` of its folder."""

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and its contents, if it exists."""

    def put_aside(self, folder: Path) -> Path | None:
        """Rename a folder so that it disappears at once; returns the new path. None if it is missing.

        Durable after the next `sync_folder` of its folder. `remove_folder` then removes it, which takes longer.
        """

    def sync_folder(self, folder: Path) -> None:
        """Make creations and removals in a folder durable."""

    def used_ratio(self, folder: Path) -> float:
        """How full the disk with this folder is: 0.0 to 1.0."""

    def space(self, folder: Path) -> tuple[int, int]:
        """The size of that disk in bytes, and how much of it is free."""

    def lock(self, path: Path) -> Lock:
        """Lock a lock file. Raises StoreInUseError if another process or store has locked it."""


# ── The real disk ───────────────────────────────────────────────────────────────────────────────────────────────────

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""The mode of files: only the broker's user may read messages. A stricter umask applies too."""

_COPY_STEP = 1024 * 1024
_ZEROS = bytes(_COPY_STEP)


class MappedFile:
    """A segment of the real disk. It keeps no descriptor: see memory_map.py."""

    __slots__ = ("_map", "_open", "_path", "_writable", "buffer")

    def __init__(self, path: Path, descriptor: int, size: int, *, writable: bool) -> None:
        self._path = path
        self._open = True
        self._writable = writable
        if writable:
            self._map = memory_map.map_file(path, descriptor, size)
        else:
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        self.buffer = memoryview(self._map)

    @property
    def path(self) -> Path:
        return self._path

    def reserve(self, start: int, size: int) -> None:
        with self._opened() as descriptor:
            os.posix_fallocate(descriptor, start, size)

    def sync(self) -> None:
        if self._writable:
            memory_map.sync(self._map, self._path)

    def rewrite(self, start: int, size: int) -> None:
        with self._opened() as descriptor:
            for at in range(start, start + size, _COPY_STEP):
                _write_at(descriptor, bytes(self.buffer[at : min(at + _COPY_STEP, start + size)]), at)

    def supply(self, start: int, size: int) -> None:
        if self._open:
            memory_map.supply(self._map, start, size)

    def warm(self) -> None:
        memory_map.warm(self._map)

    def cool(self) -> None:
        memory_map.cool(self._map)

    def read_nothing_ahead(self) -> None:
        memory_map.read_nothing_ahead(self._map)

    def close(self) -> None:
        self._open = False

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class _FileLock:
    """A POSIX record lock, which excludes other processes; `held` excludes this process."""

    held: ClassVar[set[Path]] = set()

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.held.add(path)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.held.discard(self._path)


def _write_all(descriptor: int, content: memoryview) -> None:
    """Write the content, skipping blocks of zeros."""
    for at in range(0, len(content), _COPY_STEP):
        piece = bytes(content[at : at + _COPY_STEP])
        if piece != _ZEROS[: len(piece)]:
            _write_at(descriptor, piece, at)


def _write_at(descriptor: int, piece: bytes | memoryview, at: int) -> None:
    written = 0
    while written < len(piece):
        written += os.pwrite(descriptor, piece[written:], at + written)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _write_synced(path: Path, content: bytes | list[bytes]) -> None:
    with open(path, "wb", opener=_open_private) as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably: a file is not durable in a folder that a crash may remove."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RealDisk:
    """Files of this machine. `aside` is a folder for incomplete files: another broker that opens the store would fail
    on unknown names among the segments. Its contents are useless after a crash and are removed when a store is opened.

    A file can't be renamed to another file system. For files there, a folder of the same name beside them is used.
    """

    def __init__(self, aside: Path) -> None:
        self._aside = aside
        self._numbers = count(1)  # several threads create files
        self._beside: set[Path] = set()  # folders beside files on other file systems
        self._safe_names: dict[Path, set[str]] = {}  # by folder: names of subfolders that `sync_created` made durable

    def folders(self, folder: Path) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def files(self, folder: Path) -> dict[str, int]:
        try:
            with os.scandir(folder) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def create(self, path: Path, size: int, *, reserve: bool = True, content: memoryview | None = None) -> File:
        assert content is None or len(content) <= size, f"{len(content)} bytes do not fit into {size}"
        aside = self._aside_name(path)
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            os.ftruncate(descriptor, size)
            if reserve:
                os.posix_fallocate(descriptor, 0, size)
            if content is not None:
                _write_all(descriptor, content)
            os.fsync(descriptor)
            self._put_in_place(aside, path)
            return MappedFile(path, descriptor, size, writable=True)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def create_lazily(self, path: Path, size: int) -> File:
        self._make_folder_lazily(path.parent)
        aside = self._aside_name(path)
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            os.ftruncate(descriptor, size)
            os.replace(aside, path)
            return MappedFile(path, descriptor, size, writable=True)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _make_folder_lazily(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder_lazily(folder.parent)
            self._forget_safe_name(folder)
            folder.mkdir(FOLDER_MODE, exist_ok=True)

    def sync_created(self, path: Path) -> None:
        folder, top = path.parent, self._aside.parent
        with suppress(FileNotFoundError):
            self.sync_folder(folder)
            while folder not in (top, folder.parent) and folder.name not in self._safe_names.get(folder.parent, ()):
                self.sync_folder(folder.parent)
                self._safe_names.setdefault(folder.parent, set()).add(folder.name)
                folder = folder.parent

    def _forget_safe_name(self, folder: Path) -> None:
        self._safe_names.pop(folder, None)
        names = self._safe_names.get(folder.parent)
        if names is not None:
            names.discard(folder.name)

    def open(self, path: Path, *, writable: bool = True) -> File:
        descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                raise OSError(errno.EINVAL, "An empty file can't be mapped", str(path))
            return MappedFile(path, descriptor, size, writable=writable)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        with open(path, "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def read_at(self, path: Path, start: int, size: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.pread(descriptor, size, start)
        finally:
            os.close(descriptor)

    def data(self, path: Path, start: int, end: int) -> tuple[int, int]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
            return min(start, end), min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return end, end
            return start, end  # a file system without this feature
        finally:
            os.close(descriptor)

    def replace(self, path: Path, content: bytes | list[bytes], *, backup: bool = False) -> None:
        aside = self._aside_name(path)
        try:
            _write_synced(aside, content)
            if backup and path.exists():
                self._keep_backup(path)
            self._put_in_place(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def _keep_backup(self, path: Path) -> None:
        """Link the present content to a second name, which is then renamed to the backup's."""
        aside = self._aside_name(path)
        try:
            try:
                os.link(path, aside)
            except OSError:  # a file system without hard links
                _write_synced(aside, path.read_bytes())
            os.replace(aside, path.with_name(path.name + ".bak"))
        finally:
            aside.unlink(missing_ok=True)  # a rename between two names of one file does nothing

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, folder: Path) -> None:
        for name in self.folders(folder):
            self.remove_folder(folder / name)
        for name in self.files(folder):
            self.remove(folder / name)
        self._forget_safe_name(folder)
        with suppress(FileNotFoundError):
            folder.rmdir()
            self.sync_folder(folder.parent)

    def put_aside(self, folder: Path) -> Path | None:
        if not folder.is_dir():
            return None
        aside = self._aside_name(folder)
        os.rename(folder, aside)
        self._forget_safe_name(folder)
        for name in self.folders(aside):
            self._safe_names.pop(folder / name, None)
        return aside

    def sync_folder(self, folder: Path) -> None:
        _sync_folder(folder)

    def used_ratio(self, folder: Path) -> float:
        stat = os.statvfs(folder)
        usable = stat.f_blocks - stat.f_bfree + stat.f_bavail
        return (stat.f_blocks - stat.f_bfree) / usable if usable else 0.0

    def space(self, folder: Path) -> tuple[int, int]:
        stat = os.statvfs(folder)
        return stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize

    def lock(self, path: Path) -> Lock:
        _make_folder(path.parent)
        return self._lock(path.resolve(), os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)

    def lock_for_reading(self, path: Path) -> Lock | None:
        """Exclude processes that would `lock`, without changing a byte; None if the lock file is missing.

        Raises StoreInUseError if it is locked.
        """
        try:
            return self._lock(path.resolve(), os.O_RDONLY, fcntl.LOCK_SH)
        except FileNotFoundError:
            return None

    def _lock(self, path: Path, flags: int, kind: int) -> Lock:
        in_use = StoreInUseError(
            f"{path.parent} is already open ({path.name} is locked): "
            "stop the broker that uses it, or use another directory"
        )
        if path in _FileLock.held:  # opening and closing it again would release the lock
            raise in_use
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            # On the first byte, like Java's FileChannel.lock(0, 1).
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1)
            if kind == fcntl.LOCK_EX:
                os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise in_use from None
            raise
        return _FileLock(path, descriptor)

    def _aside_name(self, path: Path) -> Path:
        """The temporary path of a file that will be renamed to `path`. Creates the folders of both."""
        _make_folder(path.parent)
        folder = self._aside
        _make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        if folder.stat().st_dev != path.parent.stat().st_dev:
            folder = self._folder_beside(path)
        return folder / f"{path.name}.{os.getpid()}.{next(self._numbers)}"

    def _folder_beside(self, path: Path) -> Path:
        folder = path.parent / self._aside.name
        if folder not in self._beside:
            self.remove_folder(folder)
            self._beside.add(folder)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        return folder

    def _put_in_place(self, aside: Path, path: Path) -> None:
        os.replace(aside, path)
        self.sync_folder(path.parent)
