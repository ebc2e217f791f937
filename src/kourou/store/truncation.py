"""Cutting a store back to an earlier end: what a replica does whose log has gone another way than its master's.

    1  the checkpoint is lowered: it may not speak of what will go
    2  queues and index are cut, and safe
    3  the segment with the new end is zeroed behind it, and safe
    4  the segments behind it go, the newest first

A crash in between leaves a log that ends there or at a later record, and the next start sees to it that queues and
index follow: behind the lowered checkpoint, everything is doubtful to it. See Store.truncate.

Java: CommitLog.truncateDirtyFiles, DefaultMessageStore.truncateDirtyFiles.
"""

from dataclasses import dataclass

from kourou.protocol.record import Found
from kourou.store.commit_log import CommitLog
from kourou.store.disk import Disk
from kourou.store.errors import StoreError
from kourou.store.file_room import zero_tail
from kourou.store.records import scan_segment


@dataclass(frozen=True, slots=True)
class LastRecord:
    """What a log ends with."""

    offset: int = -1  # where it begins; -1: there is none
    stored_ms: int = 0


def last_record_before(log: CommitLog, end: int) -> LastRecord:
    """What a log would end with, if it ended here. Raises StoreError if that is amid a record, or not in the log."""
    size = log.segments.file_size
    if not log.start <= end <= log.end:
        raise StoreError(f"{log.segments.folder} can't be cut at {end}: it goes from {log.start} to {log.end}")
    base = end - end % size
    last = _last_in_segment(log, base, end) if end > base else None
    while last is None and base > log.start:
        base -= size
        last = _last_in_segment(log, base, base + size)
    return last or LastRecord()


def _last_in_segment(log: CommitLog, base: int, end: int) -> LastRecord | None:
    size = log.segments.file_size
    scanner = scan_segment(log.segments, base, log.end)
    last, at = None, 0
    while at < end - base and scanner.step() == Found.RECORD:
        last, at = LastRecord(base + scanner.at, scanner.stored_ms), scanner.next_at
    if at != end - base and end != base + size:
        raise StoreError(f"{log.segments.path(base)} can't be cut at {end - base}: no record ends there")
    return last


def cut_log(disk: Disk, log: CommitLog, end: int) -> None:
    """Nothing is behind the end, durably; `CommitLog.resume` has to follow. Raises OSError."""
    segments = log.segments
    at = end % segments.file_size
    if segments.holds(end) and at:
        zero_tail(disk, segments.file(end), at)
    log.drop_spare()
    segments.remove_from(end)
