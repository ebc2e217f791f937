"""Recovery after a stop or a crash.

The commit log is authoritative. Recovery finds the last complete record, truncates the log after it, and makes sure
that queues and index have exactly the records up to there. There are three ways, from cheap to thorough:

- after a clean stop of Kourou, the log is known up to a record that is checked again (CleanStop);
- after a clean stop of another broker, dispatch continues after the newest record in the queues;
- after a crash, the log is scanned with CRCs from the checkpoint's segment on, queues and index are truncated, and
  records that may be missing in them are dispatched again. Kourou's checkpoint says exactly where that starts, so that
  most of ten thousand queues need not be touched; with another checkpoint, or if anything is wrong, it is the start of
  the segment. If anything else is missing, everything is dispatched from the first record on.

An invalid record is the end of the log, unless the checkpoint says that later records were durable: then it is
damage, and the log continues after it. A lost sector leaves zeros, which a CRC over the body does not always detect:
see crash_damage.py.

A crash during recovery must lead to the same state. So `abort` exists before anything is changed, and the checkpoint
is lowered to the start of recovery before queues and index are truncated. After a process was killed, its last writes
may be in memory only: the scanned log is synced before it is used.

Java: CommitLog.recoverNormally, recoverAbnormally; DefaultMessageStore.recover.
"""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.record import Found, Scanner
from kourou.store.checkpoint import Checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.disk import Disk
from kourou.store.dispatch import Dispatcher
from kourou.store.file_room import zero_tail
from kourou.store.index import Index
from kourou.store.queue_entries import BLANK_SIZE
from kourou.store.queues import Queues
from kourou.store.records import find_record, goes_on_at, scan, scan_segment

log = logging.getLogger(__name__)

ALWAYS: Final = 2**62  # a time that never comes


class CleanStop(msgspec.Struct):
    """Written at a clean stop, so that the next start need not search."""

    checkpoint: str  # the checkpoint's first 48 bytes in hex: they change if another broker runs
    log_end: int
    last_record: int  # where the last record begins; -1: there is none
    queues: int  # the number of queue folders
    index: list[str]  # names of the index files
    ends: dict[str, dict[int, int]] = {}  # of the queues, by topic and id


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did, for the log and for tests."""

    clean: bool = True
    hinted: bool = False  # the last stop was Kourou's, and no other broker ran since
    stopped_at: int | None = None  # where the log ended when Kourou last stopped cleanly; None: not known
    log_start: int = 0
    scanned_from: int = 0
    log_end: int = 0
    records: int = 0
    scanned_bytes: int = 0
    cut_segments: int = 0  # segments after the end
    cut_tail: bool = False  # bytes after the end in its segment were zeroed
    end_reason: str = ""
    damage: list[str] = field(default_factory=list)  # invalid parts, with valid records after them
    rebuilt: bool = False  # queues and index were rebuilt from the whole log

    def __str__(self) -> str:
        parts = ", ".join(f"{key}={value}" for key, value in asdict(self).items())
        return f"recovery: {parts}"


@dataclass(slots=True)
class Recovery:
    """One recovery: `load`, then `run`, which leaves log, queues and index open and consistent; the log is durable."""

    disk: Disk
    log: CommitLog
    queues: Queues
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    checkpoint_path: Path
    hint: CleanStop | None
    clean: bool
    check_crc: bool
    report: RecoveryReport = field(default_factory=RecoveryReport)

    def load(self) -> None:
        """Examine the files, without changing anything important. Raises BadStoreError, OSError."""
        segments = self.log.segments
        self.report.clean = self.clean
        self.report.stopped_at = None if self.hint is None else self.hint.log_end
        segments.load()
        self.queues.load()
        self.report.log_start = self.queues.log_start = segments.start
        if self.index is not None:
            self.index.load(not self.clean)

    def run(self) -> RecoveryReport:
        """Raises BadStoreError, DiskFullError, DiskFailedError, OSError."""
        segments = self.log.segments
        if not len(segments):
            self._start_empty()
            return self.report
        if self.index is not None and self.clean and self.index.damaged is None:
            self.index.finish()
        if self.hint is not None and self._hint_holds(self.hint):
            self._go_on_after(self.hint)
            return self.report
        if self.index is not None and self._index_is_damaged(self.index):
            log.warning("the index is damaged: it is rebuilt from the log")
            self.index.remove_all()
        self.dispatcher.recovering = True
        self.dispatcher.whole_until_ms = self.checkpoint.physical_ms if not self.clean else ALWAYS
        self.dispatcher.whole_until = self.checkpoint.flushed_physical
        start = self._starting_point()
        end = self._walk(start)
        if self.dispatcher.uncovered or (self.report.damage and self.dispatcher.covered > start):
            self._cut_back(start)
            end = self._walk(start)
        if self.dispatcher.disagreements or (self.dispatcher.gaps and start > segments.start):
            start = self._forget_everything()
            end = self._walk(start)
        self.report.scanned_from, self.report.log_end = start, end
        self._cut_log(end)
        self._sync_log(start, end)
        self.log.resume(end, self.dispatcher.stored_ms)
        self.queues.truncate(end)
        for queue in self.queues.opened():
            queue.next_offset = queue.end
        if self.index is not None:
            self.index.truncate(end)
            self.index.finish()
        self.dispatcher.recovering = False
        self.dispatcher.cover(0)
        return self.report

    def _start_empty(self) -> None:
        """Without a log, queues and index must be empty."""
        if self.queues.count():
            self.report.rebuilt = True
            self.queues.remove_all()
        if self.index is not None:
            self.index.remove_all()
        self.log.resume(0, 0)

    def _forget_everything(self) -> int:
        """Log and queues disagree: rebuild queues and index from the log, which is authoritative."""
        log.warning(
            "%d records do not fit their queues, and before %d some are missing: all queues are rebuilt",
            self.dispatcher.disagreements,
            self.dispatcher.gaps,
        )
        start = self.log.segments.start
        self._lower_checkpoint(start, start)
        self.queues.remove_all()
        if self.index is not None:
            self.index.remove_all()
        self.queues.lazy = True
        self.dispatcher.reset()
        self.dispatcher.cover(0)
        report = self.report
        self.report = RecoveryReport(
            clean=report.clean, stopped_at=report.stopped_at, log_start=report.log_start, rebuilt=True
        )
        return start

    # ── After a clean stop of Kourou ──────────────────────────────────────────────────────────────────────────────

    def _hint_holds(self, hint: CleanStop) -> bool:
        if not self._hint_is_ours(hint) or hint.queues != self.queues.count():
            return False
        if self.index is not None and hint.index != self.index.names:
            return False
        scanner = self._last_record(hint)
        return scanner is not None and hint.last_record + scanner.size == hint.log_end

    def _hint_is_ours(self, hint: CleanStop) -> bool:
        """No other broker ran since."""
        return self.clean and hint.checkpoint == self.checkpoint.fingerprint

    def _last_record(self, hint: CleanStop) -> Scanner | None:
        segments = self.log.segments
        if hint.last_record < 0 or not segments.holds(hint.last_record):
            return None
        scanner = scan_segment(segments, hint.last_record, crc=True)
        return scanner if scanner.step() == Found.RECORD else None

    def _go_on_after(self, hint: CleanStop) -> None:
        scanner = self._last_record(hint)
        assert scanner is not None
        self.report.hinted = True
        self.report.scanned_from, self.report.log_end = hint.last_record, hint.log_end
        self._cut_log(hint.log_end)
        self.queues.expect(hint.ends)
        self.dispatcher.go_on_after(hint.last_record, scanner.stored_ms)
        self.log.resume(hint.log_end, scanner.stored_ms)

    # ── Where to start ────────────────────────────────────────────────────────────────────────────────────────────

    def _starting_point(self) -> int:
        """Where to start; queues and index have all records before it and, after a crash, no others."""
        first = self.log.segments.start
        begin = covered = first
        if not self._something_is_missing():
            begin = self._newest_dispatched() if self.clean else self._checkpointed_segment()
            covered = max(begin, self.checkpoint.covered)
        self.report.rebuilt = begin == first
        self.queues.lazy = covered == first  # the checkpoint covers no queue entries
        if self.clean:
            self._lower_checkpoint(begin, begin)
        else:
            self._cut_queues(begin, covered)
        return begin

    def _cut_queues(self, begin: int, covered: int) -> None:
        """Dispatch will continue with the segment at `begin`; queues keep their entries of records before `covered`.

        Those were synced before the checkpoint was written, so they need no check.
        """
        self._lower_checkpoint(begin, covered)
        self.queues.recover(covered)
        if covered > begin and not all(map(self._ends_well, self.queues.opened())):
            log.warning("a queue ends with an entry without a record: all queues are truncated to %d", begin)
            self._cut_queues(begin, begin)
            return
        if self.index is not None:
            # An entry that a crash has torn may break a chain, and can't be recognized: these files are rebuilt.
            self.index.recover(begin, self.log.segments.start)
        self.dispatcher.cover(covered if covered > begin else 0)

    def _ends_well(self, queue: ConsumeQueue) -> bool:
        """True if the last entry of a queue refers to its record: then all entries before it were synced, too.

        After them there may be torn entries that look like those of earlier records.
        """
        if queue.start >= queue.end:
            return True
        offset, size, _ = queue.entry(queue.end - 1)
        queue.release()
        if size == BLANK_SIZE or not self.log.segments.holds(offset):
            return False
        scanner = scan_segment(self.log.segments, offset)
        return (
            scanner.step() == Found.RECORD
            and (scanner.size, scanner.queue_offset) == (size, queue.end - 1)
            and (scanner.topic, scanner.queue_id) == (queue.topic.encode("utf-8", "surrogateescape"), queue.queue_id)
        )

    def _cut_back(self, begin: int) -> None:
        """Queues lack entries, or the log is damaged: dispatch the whole segment again."""
        log.warning("queues or log lack records that were durable: dispatching again from %d on", begin)
        self._cut_queues(begin, begin)
        self.dispatcher.reset()
        self.report = RecoveryReport(
            clean=self.report.clean, log_start=self.report.log_start, rebuilt=self.report.rebuilt
        )

    def _something_is_missing(self) -> bool:
        if not self.queues.count() or (self.index is not None and self.index.is_empty):
            return True
        # A queue folder was removed after our clean stop. The hint exists until a start is complete.
        hint = self.hint
        return hint is not None and (not self.clean or self._hint_is_ours(hint)) and hint.queues > self.queues.count()

    def _index_is_damaged(self, index: Index) -> bool:
        """After a clean stop: true if a file has a wrong header or is missing."""
        hint = self.hint
        is_ours = hint is not None and self._hint_is_ours(hint)
        return index.damaged is not None or (hint is not None and is_ours and not {*hint.index} <= {*index.names})

    def _newest_dispatched(self) -> int:
        """The segment with the newest record in the queues."""
        segments = self.log.segments
        offset = min(max(queue.max_physical for queue in self.queues.all()), segments.end - 1)
        return max(offset - offset % segments.file_size, segments.start)

    def _checkpointed_segment(self) -> int:
        """The newest segment that began before the checkpoint; the first one if none did."""
        checkpoint = self.checkpoint
        limit_ms = checkpoint.recovery_ms if self.index is None else checkpoint.recovery_with_index_ms
        for start in reversed(self.log.segments.starts):
            if 0 < self._first_stored_ms(start) <= limit_ms:
                return start
        return self.log.segments.start

    def _first_stored_ms(self, start: int) -> int:
        """The store time of the first record of a segment; 0 if there is none."""
        scanner = scan_segment(self.log.segments, start, crc=True)
        return scanner.stored_ms if scanner.step() == Found.RECORD else 0

    def _lower_checkpoint(self, begin: int, covered: int) -> None:
        stored_ms = self._first_stored_ms(begin) if begin > self.log.segments.start else 0
        lowered = self.checkpoint.lowered(stored_ms, covered)
        if lowered != self.checkpoint:
            lowered.write(self.disk, self.checkpoint_path)
            self.checkpoint = lowered

    # ── Scanning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self, start: int) -> int:
        """Dispatch from `start` to the end of the log; returns the end."""
        segments, dispatcher = self.log.segments, self.dispatcher
        at = start
        while segments.holds(at):
            base = at - at % segments.file_size
            scanner = dispatcher.run(segments.file(at).buffer, at - base, segments.file_size, base, self.check_crc)
            if dispatcher.uncovered:
                return at
            found = scanner.step() if not dispatcher.torn else Found.BAD
            self.report.scanned_bytes += scanner.at - (at - base)
            at = base + scanner.at
            following = goes_on_at(scanner, found, base, segments.file_size)
            if following is not None:
                at = following
                continue
            beyond = self._safe_record_beyond(at)
            reason = "part of it is missing" if dispatcher.torn else scanner.reason
            if beyond is None:
                self.report.end_reason = f"{segments.path(base)} at {scanner.at}: {reason}"
                break
            self.report.damage.append(
                f"{segments.path(base)}: {beyond - at} bytes at {scanner.at} are invalid ({reason}); "
                f"the log continues at offset {beyond}"
            )
            at = beyond
        self.report.records = dispatcher.records
        return at

    def _safe_record_beyond(self, offset: int) -> int | None:
        """A later record that was durable before the crash, if any: then the log does not end here.

        If only the time of the checkpoint is known, records of that very millisecond may be newer than it.
        """
        segments, limit_ms, safe = self.log.segments, self.checkpoint.physical_ms, self.checkpoint.flushed_physical
        if self.dispatcher.stored_ms >= limit_ms and offset >= safe:
            return None  # no durable record is missing
        start = offset + 1
        while segments.holds(start):
            base = start - start % segments.file_size
            buffer = segments.file(start).buffer
            at = find_record(buffer, start - base, base)
            if at is not None:
                scanner = scan(buffer, base, at, crc=True)
                if scanner.step() == Found.RECORD and (base + at < safe or 0 < scanner.stored_ms < limit_ms):
                    return base + at
                start = base + at + 1
            else:
                start = base + segments.file_size
        return None

    def _cut_log(self, end: int) -> None:
        """Remove everything after the end, durably: segments are removed, and bytes in the last one are zeroed."""
        segments = self.log.segments
        before = len(segments)
        segments.remove_from(end if end % segments.file_size == 0 and end > segments.start else end + 1)
        self.report.cut_segments = before - len(segments)
        if segments.holds(end) and not self.report.hinted:
            self.report.cut_tail = zero_tail(self.disk, segments.file(end), end % segments.file_size)

    def _sync_log(self, start: int, end: int) -> None:
        """Sync the log: a killed process may have left records in memory only.

        A sync may have failed before, and the system may treat unwritten pages as clean: so they are written again.
        """
        segments = self.log.segments
        doubtful = self.dispatcher.doubtful_from
        for first in range(start - start % segments.file_size, min(end, segments.end), segments.file_size):
            file, at = segments.file(first), max(doubtful - first, 0)
            stop = min(end - first, segments.file_size)
            if doubtful >= 0 and at < stop:
                file.rewrite(at, stop - at)
            file.sync()


def read_clean_stop(disk: Disk, path: Path) -> CleanStop | None:
    content = disk.read(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=CleanStop)
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.warning("%s can't be read and is ignored", path)
        return None
