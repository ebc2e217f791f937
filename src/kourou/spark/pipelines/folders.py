"""A folder that many processes use: on a disk, or wherever Arrow can write (s3:// or s3a://, gs://, hdfs://).

The interface for ledgers and lakes, which rely on these guarantees:

- `write_new` makes a whole file or none, and never changes an existing one.
- After `move`, a file under its new name is complete. In object stores, which copy and delete, a crash may leave both
  names; the new file is complete then.
- `exchange` swaps the names of two folders in one step: no listing shows a state in between. Only disks support it.
- On a disk, the effect of a call survives a power failure once the call has returned.
- `lock` keeps other processes out on a disk. Elsewhere it does nothing: there, one process at a time may write."""

import ctypes
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kourou.spark.errors import OptionError
from kourou.spark.pipelines.object_stores import for_arrow

if TYPE_CHECKING:
    from pyarrow import fs

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # of renameat2(2)


class Folder(Protocol):
    """Names are relative, with slashes."""

    @property
    def url(self) -> str:
        """The argument with which `open_folder` returns the same folder, in this process or another."""

    def names(self, below: str) -> list[str]:
        """The files and folders in a folder, sorted; empty if it does not exist."""

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int:
        """The size of a file in bytes. Raises FileNotFoundError."""

    def read(self, name: str) -> bytes: ...

    def input(self, name: str) -> Any:
        """A binary file to read, which can seek. Raises FileNotFoundError."""

    def write_new(self, name: str, data: bytes) -> None:
        """Raises FileExistsError."""

    def output(self, name: str) -> Any:
        """A binary file to write. Its contents are durable when it is closed."""

    def sync(self, name: str) -> None:
        """Make a file durable that another process wrote, and its name; does nothing if it is missing."""

    def make(self, name: str) -> None:
        """Create a folder and its parents."""

    def move(self, name: str, to: str) -> None:
        """Rename a file or folder. The target's folder is created if necessary."""

    def link(self, name: str, to: str) -> None:
        """Add a second name for a file. Raises FileExistsError, OptionError if links are not supported."""

    def exchange(self, name: str, other: str) -> None:
        """Swap the names of two folders in one step. Raises OptionError if that is not supported."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""

    def lock(self, name: str, *, wait: bool, shared: bool = False) -> Any:
        """A context manager. Raises BlockingIOError without `wait`, if another process has the lock.

        A `shared` lock is compatible with other shared locks.
        """


def open_folder(url: str | Path) -> Folder:
    """Raises OptionError for an invalid or unsupported URL."""
    text = str(url)
    if "://" not in text:
        return DiskFolder(Path(text).absolute())
    if text.startswith("file://"):
        return DiskFolder(Path(text.removeprefix("file://")))
    import pyarrow as pa
    from pyarrow import fs

    text = for_arrow(text)
    try:
        found, path = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OptionError(f"{text}: {error}") from None
    return ArrowFolder(found, path, text)


class DiskFolder:
    """On a disk of this machine, or one that all machines have mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def url(self) -> str:
        return str(self._root)

    def names(self, below: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / below))
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def size(self, name: str) -> int:
        return (self._root / name).stat().st_size

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def input(self, name: str) -> Any:
        return (self._root / name).open("rb")

    def write_new(self, name: str, data: bytes) -> None:
        path = self._root / name
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, path)  # unlike a rename, it refuses to replace
        finally:
            aside.unlink()
        self._sync(path.parent)

    def output(self, name: str) -> Any:
        return _SafeFile(self._root / name)

    def sync(self, name: str) -> None:
        try:
            descriptor = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._sync((self._root / name).parent)

    def make(self, name: str) -> None:
        path = self._root / name
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            self._sync(folder.parent)

    def move(self, name: str, to: str) -> None:
        source, target = self._root / name, self._root / to
        self.make(os.path.dirname(to))
        source.rename(target)
        self._sync(target.parent)

    def link(self, name: str, to: str) -> None:
        os.link(self._root / name, self._root / to)

    def exchange(self, name: str, other: str) -> None:
        one, two = self._root / name, self._root / other
        for folder in (one, two):
            self._sync(folder)
        libc = ctypes.CDLL(None, use_errno=True)
        rename = getattr(libc, "renameat2", None)
        paths = os.fsencode(one), os.fsencode(two)
        if rename is None or rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE):
            number = ctypes.get_errno() if rename is not None else errno.ENOSYS
            if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
                raise OptionError(f"{self._root} is on a file system that can't swap two directories atomically")
            raise OSError(number, os.strerror(number), str(one))
        for folder in (one.parent, two.parent):
            self._sync(folder)

    def remove(self, name: str) -> None:
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str, *, wait: bool, shared: bool = False) -> Iterator[None]:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        descriptor = self._locked(path, how)
        try:
            yield
        finally:
            os.close(descriptor)

    @staticmethod
    def _locked(path: Path, how: int) -> int:
        """A descriptor with the lock on the current file of this name, not on one that was removed meanwhile."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, how)
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    @staticmethod
    def _sync(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _SafeFile:
    """A file that is synced, with its name, before it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
        DiskFolder._sync(self._path.parent)


class ArrowFolder:
    """A folder in a file system of Arrow."""

    def __init__(self, system: "fs.FileSystem", root: str, url: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def names(self, below: str) -> list[str]:
        from pyarrow import fs

        found = self._system.get_file_info(fs.FileSelector(self._path(below), allow_not_found=True))
        return sorted(info.base_name for info in found)

    def exists(self, name: str) -> bool:
        from pyarrow import fs

        return bool(self._system.get_file_info(self._path(name)).type != fs.FileType.NotFound)

    def size(self, name: str) -> int:
        from pyarrow import fs

        found = self._system.get_file_info(self._path(name))
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(name)
        return int(found.size)

    def input(self, name: str) -> Any:
        return self._system.open_input_file(self._path(name))

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(self._path(name)) as file:
            return bytes(file.read())

    def write_new(self, name: str, data: bytes) -> None:
        if self.exists(name):
            raise FileExistsError(name)
        aside = f"{os.path.dirname(name)}/.{os.path.basename(name)}.{uuid.uuid4().hex}"
        with self._system.open_output_stream(self._path(aside)) as file:
            file.write(data)
        self._system.move(self._path(aside), self._path(name))

    def output(self, name: str) -> Any:
        return self._system.open_output_stream(self._path(name))

    def sync(self, name: str) -> None:
        """Does nothing: files in these systems are durable."""

    def make(self, name: str) -> None:
        self._system.create_dir(self._path(name), recursive=True)

    def move(self, name: str, to: str) -> None:
        self.make(os.path.dirname(to))
        self._system.move(self._path(name), self._path(to))

    def link(self, name: str, to: str) -> None:
        raise OptionError(f"{self._url}: {name} can't be linked to {to}: this file system has no hard links")

    def exchange(self, name: str, other: str) -> None:
        raise OptionError(f"{self._url}: this file system can't swap {name} and {other} atomically")

    def remove(self, name: str) -> None:
        from pyarrow import fs

        path = self._path(name)
        kind = self._system.get_file_info(path).type
        if kind == fs.FileType.Directory:
            self._system.delete_dir(path)
        elif kind == fs.FileType.File:
            self._system.delete_file(path)

    @contextmanager
    def lock(self, name: str, *, wait: bool, shared: bool = False) -> Iterator[None]:  # noqa: ARG002
        yield
