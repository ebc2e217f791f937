"""When failed work is retried, and how failures are logged.

After a failure the work is retried after `FIRST_MS`, then less often, up to every `MOST_MS`: often enough that service
resumes within a second once the disk works again, rarely enough that retries cost nothing. Each cause is logged once,
and so is the recovery.
"""

import logging

FIRST_MS = 50
"""The delay before the first retry. It doubles with each failure."""

MOST_MS = 1_000
"""The longest delay between two retries."""


class Backoff:
    """One kind of work that may fail."""

    __slots__ = ("_cause", "_log", "_what", "failures", "retry_ms")

    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` is the beginning of the log lines: "queues and index can't be synced"."""
        self._log = log
        self._what = what
        self._cause: str | None = None
        self.failures = 0  # in a row
        self.retry_ms = 0  # not before this time

    def is_ready(self, now_ms: int) -> bool:
        """True if the work is due, for the first time or again."""
        return now_ms >= self.retry_ms

    def failed(self, error: object, now_ms: int) -> None:
        self.failures += 1
        self.retry_ms = now_ms + min(FIRST_MS << min(self.failures - 1, 10), MOST_MS)
        cause = f"errno {error.errno}" if isinstance(error, OSError) and error.errno else str(error)
        if cause != self._cause:  # the paths of one failing disk differ between retries
            self._cause = cause
            self._log.error("%s; this will be retried: %s", self._what, error)

    def succeeded(self) -> None:
        if self.failures:
            self._log.warning("recovered after %d failures (%s: %s)", self.failures, self._what, self._cause)
            self.failures = self.retry_ms = 0
            self._cause = None
