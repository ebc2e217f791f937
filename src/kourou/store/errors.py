"""What can go wrong with files. Each message names the file, the offset where there is one, and what to do."""

from kourou.protocol.errors import KourouError


class StoreError(KourouError):
    """The root of the store's errors."""


class StoreInUseError(StoreError):
    """Another process has this directory open."""


class BadStoreError(StoreError):
    """Files that can't be what a store left behind: a missing or short segment, an unreadable folder."""


class BadSettingError(StoreError, ValueError):
    """A setting that makes no sense."""


class NotWritableError(StoreError):
    """The store refuses writes for now; reading goes on. It resumes by itself when the cause is gone."""

    retriable = True


class DiskFullError(NotWritableError):
    """No room for the next bytes."""


class DiskFailedError(NotWritableError):
    """A write or a sync failed: what was not safe before is doubtful, and the store re-opens before it goes on."""


class IllegalMessageError(StoreError):
    """A message that breaks a limit of the record format or of the settings."""
