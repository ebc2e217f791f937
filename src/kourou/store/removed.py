"""Removed topics: their records must not get queue entries again.

Removing a topic removes its queues; its records stay in the log until they expire. Recovery rebuilds queues from the
log, and would restore the removed ones. So each removal records the end of the log, and records of the topic before
that offset are skipped whenever the log is dispatched:

    log          … a b │ removed here, at P │ c d …          a, b: no entries    c, d: entries 0, 1 of a new queue
    config/kourouRemovedTopics.json  {"removed": {"orders": P}}

A removal is durable once that file is written; the folder of the queues may reappear after a power failure, and is
removed again. A removal is kept as long as the log has records before it. A Java broker ignores the file.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kourou.protocol.bodies.base import Body, always
from kourou.store.metadata import Kind

REMOVED_TOPICS_MAX: Final = 100_000
"""The number of stored removals. Above it the oldest is dropped: a crash may then restore that topic's queues."""


class RemovedTopicsFile(Body):
    """The file. Names are quoted as in a URL: a damaged record may have any bytes as its topic."""

    removed: dict[str, int] = always(dict)


REMOVED_TOPICS = Kind("kourouRemovedTopics.json", "removed topics", RemovedTopicsFile)


class RemovedTopics:
    """All removals whose records may still be in the log."""

    def __init__(self) -> None:
        self.until: dict[bytes, int] = {}  # by topic: records before this offset are skipped
        self.end = 0  # no record from here on is skipped
        self.touch: Callable[[], None] = lambda: None  # called after each change, to save it
        self.is_kept = True  # nothing changed since `wrapper`

    def load(self, kept: RemovedTopicsFile | None) -> None:
        """Load the stored removals."""
        self.until = {} if kept is None else {unquote_to_bytes(name): end for name, end in kept.removed.items()}
        self.end = max(self.until.values(), default=0)

    def add(self, topic: str, log_end: int) -> None:
        """A topic was removed: its records end here."""
        name = topic.encode("utf-8", "surrogateescape")
        self.until.pop(name, None)
        while len(self.until) >= REMOVED_TOPICS_MAX:
            del self.until[next(iter(self.until))]
        self.until[name] = log_end
        self._changed()

    def log_was_cut(self, log_end: int) -> None:
        """The log was truncated here, perhaps after a crash: records after this offset are new."""
        if self.end > log_end:
            self.until = {topic: min(end, log_end) for topic, end in self.until.items()}
            self._changed()

    def forget_before(self, log_start: int) -> None:
        """The log begins here: earlier records have expired."""
        if any(end <= log_start for end in self.until.values()):
            self.until = {topic: end for topic, end in self.until.items() if end > log_start}
            self._changed()

    def _changed(self) -> None:
        self.end = max(self.until.values(), default=0)
        self.is_kept = False
        self.touch()

    def wrapper(self) -> RemovedTopicsFile:
        """The value to store."""
        self.is_kept = True
        return RemovedTopicsFile(removed={quote_from_bytes(topic): end for topic, end in self.until.items()})
