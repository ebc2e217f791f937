"""Errors of the store. Each message has the file, the offset if there is one, and what to do."""

import errno
from pathlib import Path

from kourou.protocol.errors import KourouError


class StoreError(KourouError):
    """The base of the store's errors."""


class StoreInUseError(StoreError):
    """Another process has this directory open."""


class BadStoreError(StoreError):
    """Invalid files of a store: a missing or short segment, an unreadable folder."""


class BadSettingError(StoreError, ValueError):
    """An invalid setting."""


class NotWritableError(StoreError):
    """The store refuses writes for now; reading continues. Writing resumes automatically when the cause is gone."""

    retriable = True


class DiskFullError(NotWritableError):
    """The disk has no space for the next bytes."""


class DiskFailedError(NotWritableError):
    """A write or a sync failed: records that were not durable are doubtful and are written again first."""


class IllegalMessageError(StoreError):
    """A message that violates a limit of the record format or of the settings."""


def cannot_open(root: Path, error: OSError) -> DiskFullError | DiskFailedError:
    what = f"{error.filename or root}: {error.strerror or error}; the store in {root} can't be opened"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{what} without room for some small files. Free some space, and start again")
    return DiskFailedError(f"{what}. It must be possible to read and write there; then start again")
