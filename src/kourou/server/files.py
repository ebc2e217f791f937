"""Small files that survive a crash: at every moment there is the old content or the new one, whole."""

import os
from pathlib import Path


def write_safely(path: Path, content: str | bytes) -> None:
    """Replace a file: written aside, synced, renamed, and the folder synced. The previous one stays as `.bak`.

    Raises OSError; the file is then as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write_synced(aside, data)
        if path.exists():
            _keep_backup(path)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, content: str) -> None:
    """Replace a file that readers may look at any time, without waiting for the disk."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep_backup(path: Path) -> None:
    """A second name for the present content, put in place by a rename as well."""
    backup = path.with_name(path.name + ".bak")
    aside = path.with_name(f".{path.name}.bak.{os.getpid()}.tmp")
    aside.unlink(missing_ok=True)
    try:
        os.link(path, aside)
    except OSError:  # a file system without hard links
        _write_synced(aside, path.read_bytes())
    os.replace(aside, backup)
