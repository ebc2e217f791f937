"""Small files that survive a crash: at every moment there is the old content or the new one, whole."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def write_safely(path: Path, content: str | bytes) -> None:
    """Replace a file: written aside, synced, renamed, and the folder synced. The previous one stays as `.bak`.

    Owner and permissions stay as they were; only the owner can read a new file. Raises OSError; the file is then as it
    was.
    """
    data = content.encode() if isinstance(content, str) else content
    path = path.resolve()
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    before = path.stat() if path.exists() else None
    try:
        _write_synced(aside, data, before)
        if before is not None:
            _keep_backup(path, before)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError:
        _take_back(path, before, aside)
        raise


def write_atomically(path: Path, content: str) -> None:
    """Replace a file that readers may look at any time, without waiting for the disk. Raises OSError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """A folder that is there after a crash, too, with those above it. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have nothing to sync here
            raise
    finally:
        os.close(descriptor)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_synced(path: Path, data: bytes, like: os.stat_result | None) -> None:
    """`like`: whose owner and permissions the file gets."""
    with open(path, "wb", opener=_open_private) as file:
        if like is not None:
            os.fchmod(file.fileno(), like.st_mode & 0o7777)
            with suppress(PermissionError):  # only root gives files away
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep_backup(path: Path, present: os.stat_result) -> None:
    """A second name for the present content, put in place by a rename as well."""
    aside = path.with_name(f".{path.name}.bak.{os.getpid()}.tmp")
    try:
        aside.unlink(missing_ok=True)
        try:
            os.link(path, aside)
        except OSError:  # a file system without hard links, or another user's file
            _write_synced(aside, path.read_bytes(), present)
        os.replace(aside, _backup_of(path))
    finally:
        aside.unlink(missing_ok=True)  # also after success: renaming one name of a file to another does nothing


def _take_back(path: Path, before: os.stat_result | None, aside: Path) -> None:
    """Nobody may find the new content later, having been told that it was not written."""
    with suppress(OSError):  # the disk fails, and the first failure is the one to tell of
        if before is None:
            path.unlink()
        else:
            try:
                _write_synced(aside, _backup_of(path).read_bytes(), before)
                os.replace(aside, path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise


def _backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
