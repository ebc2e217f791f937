"""Work that failed: when it is tried again, and what the log says about it.

A failing disk is asked again after `FIRST_MS`, then less often, up to every `MOST_MS`: often enough that service
resumes within a second once the disk works again, seldom enough that the tries cost nothing. Each cause is logged once,
and so is the recovery.
"""

import logging

FIRST_MS = 50
"""How long after the first failure the work is tried again. The wait doubles with each failure."""

MOST_MS = 1_000
"""The longest wait between two tries."""


class Backoff:
    """One kind of work that may fail."""

    __slots__ = ("_cause", "_log", "_what", "failures", "retry_ms")

    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` is the subject of the log lines: "queues and index are not synced"."""
        self._log = log
        self._what = what
        self._cause: str | None = None
        self.failures = 0  # in a row
        self.retry_ms = 0  # not before this time

    def is_ready(self, now_ms: int) -> bool:
        """Is it time to try, for the first time or again?"""
        return now_ms >= self.retry_ms

    def failed(self, error: object, now_ms: int) -> None:
        self.failures += 1
        self.retry_ms = now_ms + min(FIRST_MS << min(self.failures - 1, 10), MOST_MS)
        cause = f"errno {error.errno}" if isinstance(error, OSError) and error.errno else str(error)
        if cause != self._cause:  # the paths of one failing disk differ from try to try
            self._cause = cause
            self._log.error("%s, which is retried: %s", self._what, error)

    def succeeded(self) -> None:
        if self.failures:
            self._log.warning("recovered after %d failures (%s: %s)", self.failures, self._what, self._cause)
            self.failures = self.retry_ms = 0
            self._cause = None
