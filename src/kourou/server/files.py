"""Small files that survive a crash: after it, a file has either its old or its new content."""

import errno
import os
import ssl
from contextlib import suppress
from pathlib import Path


def write_safely(path: Path, content: str | bytes, *, backup: bool = True) -> None:
    """Replace a file durably: write a new one, sync, rename, sync the folder. `backup` keeps the old one as `.bak`.

    Owner and permissions stay as they were; only the owner can read a new file. Raises OSError; with `backup` the file
    is then as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    path = path.resolve()
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    before = path.stat() if path.exists() else None
    try:
        _write_synced(aside, data, before)
        if before is not None and backup:
            _keep_backup(path, before)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError:
        if backup:
            _take_back(path, before, aside)
        raise


def write_atomically(path: Path, content: str) -> None:
    """Replace a file that others may read at any time, without waiting for the disk. Raises OSError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably. Raises OSError."""
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
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems can't sync folders
            raise
    finally:
        os.close(descriptor)


def is_refused_by_system(error: BaseException) -> bool:
    """Was a file that exists not read, so that it may be valid? Looks at the cause of an error in words, too."""
    cause = error if isinstance(error, OSError) else error.__context__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | ssl.SSLError)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_synced(path: Path, data: bytes, like: os.stat_result | None) -> None:
    """Write a file and sync it, with the owner and permissions of `like`."""
    with open(path, "wb", opener=_open_private) as file:
        if like is not None:
            os.fchmod(file.fileno(), like.st_mode & 0o7777)
            with suppress(PermissionError):  # only root may change the owner
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep_backup(path: Path, present: os.stat_result) -> None:
    """Give the current content a second name, also by a rename."""
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
    """After a reported failure the new content must not appear later."""
    with suppress(OSError):  # the disk fails; the first failure is the one to report
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
