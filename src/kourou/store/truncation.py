"""Truncates a store to an earlier end: for a replica whose log has diverged from its master's.

    1  the checkpoint is lowered: it must not cover removed records
    2  queues and index are truncated, durably
    3  the segment with the new end is zeroed after it, durably
    4  the segments after it are removed, the newest first

A crash in between leaves a log that ends there or at a later record, and the next start makes queues and index
consistent: it treats everything after the lowered checkpoint as doubtful. See Store.truncate.

Java: CommitLog.truncateDirtyFiles, DefaultMessageStore.truncateDirtyFiles.
"""

from dataclasses import dataclass
from typing import Final

from kourou.protocol.record import Found
from kourou.store.commit_log import CommitLog
from kourou.store.disk import Disk
from kourou.store.errors import StoreError
from kourou.store.file_room import zero_tail
from kourou.store.records import scan_segment
from kourou.turns import Slices

SLICE_RECORDS: Final = 256
"""How many records are read between two looks at the clock."""

SKIPPED_RECORDS: Final = 10_000
"""How many records are skipped between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record of a log."""

    offset: int = -1  # where it begins; -1: there is none
    stored_ms: int = 0


def last_record_before(log: CommitLog, end: int) -> Slices[LastRecord]:
    """The last record of a log that ends here, in slices: the segment is read from its beginning.

    Raises StoreError if this is inside a record, or not in the log.
    """
    size = log.segments.file_size
    if not log.start <= end <= log.end:
        raise StoreError(f"{log.segments.folder} can't be cut at {end}: it has the offsets {log.start} to {log.end}")
    base = end - end % size
    last = (yield from _last_in_segment(log, base, end)) if end > base else None
    while last is None and base > log.start:
        base -= size
        last = yield from _last_in_segment(log, base, base + size)
    return last or LastRecord()


def _last_in_segment(log: CommitLog, base: int, end: int) -> Slices[LastRecord | None]:
    size = log.segments.file_size
    scanner = scan_segment(log.segments, base, min(end, log.end))
    while scanner.skip_some(SKIPPED_RECORDS) == Found.RECORD:
        yield 0
    if scanner.at != end - base and end != base + size:
        raise StoreError(f"{log.segments.path(base)} can't be cut at {end - base}: no record ends there")
    return None if scanner.last_at < 0 else LastRecord(base + scanner.last_at, scanner.stored_ms)


def cut_log(disk: Disk, log: CommitLog, end: int) -> None:
    """Remove everything after the end, durably; `CommitLog.resume` must follow. Raises OSError."""
    segments = log.segments
    at = end % segments.file_size
    if segments.holds(end) and at:
        zero_tail(disk, segments.file(end), at)
    log.drop_spare()
    segments.remove_from(end)
