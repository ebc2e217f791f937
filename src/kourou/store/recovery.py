"""What is true after a stop or a crash.

The commit log decides. Recovery finds the last whole record, cuts what is behind it, and sees to it that queues and
index have all records up to there and none beyond. Three ways to begin, from cheap to thorough:

- after a clean stop of ours, the log is known up to a record that is looked at again (`clean.json`);
- after a clean stop of another broker, dispatch goes on from the newest record that the queues have;
- after a crash, everything since the checkpoint is dispatched anew, with CRCs, over queues that are cut back to there.

A record that does not hold is the end of the log, unless records behind it were safe according to the checkpoint: then
it is damage, and the log goes on behind it. A lost sector leaves zeros, which a CRC over the body alone does not
always show: see torn.py.

Java: CommitLog.recoverNormally, recoverAbnormally; DefaultMessageStore.recover.
"""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from kourou.protocol.record import Found, Scanner
from kourou.store.checkpoint import Checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.disk import Disk
from kourou.store.dispatch import Dispatcher
from kourou.store.index import Index
from kourou.store.queues import Queues
from kourou.store.sparse import zero_tail

log = logging.getLogger(__name__)

_WINDOW = 4 * 1024 * 1024
_MAGIC_END = 8


class CleanStop(msgspec.Struct):
    """What we write at a clean stop, so that the next start need not look for it."""

    checkpoint: str  # the checkpoint's first 48 bytes in hex: another broker that ran since has changed them
    log_end: int
    last_record: int  # where the last record begins; -1: there is none
    queues: int  # how many queue folders there are
    index: list[str]  # names of the index files


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did, for people and for tests."""

    clean: bool = True
    hinted: bool = False  # the last stop was ours, and nobody ran since
    log_start: int = 0
    scanned_from: int = 0
    log_end: int = 0
    records: int = 0
    scanned_bytes: int = 0
    cut_segments: int = 0  # behind the end
    cut_tail: bool = False  # something stood behind the end in its segment, and was zeroed
    end_reason: str = ""
    damage: list[str] = field(default_factory=list)  # stretches that do not hold, with records behind them
    rebuilt: bool = False  # queues and index were made anew from the whole log

    def __str__(self) -> str:
        parts = ", ".join(f"{key}={value}" for key, value in asdict(self).items())
        return f"recovery: {parts}"


@dataclass(slots=True)
class Recovery:
    """One recovery. `run` leaves log, queues and index open, in agreement, and not yet synced."""

    disk: Disk
    log: CommitLog
    queues: Queues
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    hint: CleanStop | None
    clean: bool
    check_crc: bool
    report: RecoveryReport = field(default_factory=RecoveryReport)

    def run(self) -> RecoveryReport:
        segments = self.log.segments
        self.report.clean = self.clean
        segments.load()
        self.queues.load()
        self.report.log_start = self.queues.log_start = segments.start
        if self.index is not None:
            self.index.load(self.checkpoint.index_ms if not self.clean else None)
        if not len(segments):
            self._start_empty()
            return self.report
        start = self._starting_point()
        end, stored_ms = self._walk(start)
        if self.dispatcher.disagreements:
            start = self._forget_everything()
            end, stored_ms = self._walk(start)
        self.report.scanned_from, self.report.log_end = start, end
        self._cut_log(end)
        self.log.resume(end, stored_ms)
        for queue in self.queues.opened():
            queue.truncate(end)
            queue.next_offset = queue.end
        if self.index is not None:
            self.index.truncate(end)
        return self.report

    def _start_empty(self) -> None:
        """Without a log there is nothing that queues and index could speak of."""
        if self.queues.count():
            self.report.rebuilt = True
            self.queues.remove_all()
        if self.index is not None:
            self.index.remove_all()
        self.log.resume(0, 0)

    def _forget_everything(self) -> int:
        """Log and queues disagree, and the log decides: make queues and index anew."""
        log.warning("%d records do not fit their queues: all queues are rebuilt", self.dispatcher.disagreements)
        self.queues.remove_all()
        if self.index is not None:
            self.index.remove_all()
        self.dispatcher.reset()
        self.report = RecoveryReport(clean=self.report.clean, log_start=self.report.log_start, rebuilt=True)
        return self.log.segments.start

    # ── Where to begin ────────────────────────────────────────────────────────────────────────────────────────────

    def _starting_point(self) -> int:
        start = self.log.segments.start
        index_missing = self.index is not None and self.index.is_empty
        if self.hint is not None and self._hint_holds(self.hint):
            self.report.hinted = True
            return max(self.hint.last_record, start)
        if self.clean:
            begin = max((queue.max_physical for queue in self.queues.all()), default=0)
            if begin == 0 or index_missing:
                self.report.rebuilt = True
                return start
            return self._segment_start(begin)
        begin = start if index_missing else self._checkpointed_segment()
        for queue in self.queues.all():
            queue.recover(begin)
        self.report.rebuilt = begin == start
        return begin

    def _hint_holds(self, hint: CleanStop) -> bool:
        segments = self.log.segments
        if not self.clean or hint.checkpoint != self.checkpoint.fingerprint or hint.queues != self.queues.count():
            return False
        if self.index is not None and hint.index != self.index.names:
            return False
        if hint.last_record < 0 or not segments.holds(hint.last_record):
            return False
        scanner = self._scanner(hint.last_record, segments.file_size)
        return scanner.step() == Found.RECORD and hint.last_record + scanner.size == hint.log_end

    def _segment_start(self, offset: int) -> int:
        segments = self.log.segments
        offset = min(offset, segments.end - 1)
        return max(offset - offset % segments.file_size, segments.start)

    def _checkpointed_segment(self) -> int:
        """The newest segment that began before the checkpoint; the first one if none did."""
        segments, limit_ms = self.log.segments, self.checkpoint.recovery_ms
        for start in reversed(segments.starts):
            scanner = self._scanner(start, segments.file_size)
            if scanner.step() != Found.RECORD or not 0 < scanner.stored_ms <= limit_ms:
                continue
            if self.index is None or self.index.end_physical >= start:
                return start
        return segments.start

    def _scanner(self, offset: int, limit: int, *, crc: bool = True) -> Scanner:
        segments = self.log.segments
        base = offset - offset % segments.file_size
        return Scanner(segments.file(offset).buffer, offset - base, limit, crc=crc, base=base)

    # ── The walk ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self, start: int) -> tuple[int, int]:
        """Dispatch from `start` to the end of the log: where it is, and the store time of the last record."""
        segments = self.log.segments
        at, stored_ms = start, 0
        while segments.holds(at):
            base = at - at % segments.file_size
            scanner = self.dispatcher.run(segments.file(at).buffer, at - base, segments.file_size, base, self.check_crc)
            found = scanner.step() if not self.dispatcher.torn else Found.BAD
            self.report.scanned_bytes += scanner.at - (at - base)
            at = base + scanner.at
            if found == Found.FILLER or (found == Found.END and scanner.at >= segments.file_size):
                at = base + segments.file_size
                continue
            beyond = self._safe_record_beyond(at) if found in (Found.BAD, Found.CUT) else None
            reason = "part of it is missing" if self.dispatcher.torn else scanner.reason
            if beyond is None:
                self.report.end_reason = f"{segments.path(base)} at {scanner.at}: {reason}"
                break
            self.report.damage.append(
                f"{segments.path(base)}: {beyond - at} bytes at {scanner.at} do not hold ({reason}); "
                f"the log goes on at offset {beyond}"
            )
            at = beyond
        self.report.records = self.dispatcher.records
        return at, max(stored_ms, self.dispatcher.stored_ms)

    def _safe_record_beyond(self, offset: int) -> int | None:
        """Is there a record behind this one that was safe before the crash? Then the log does not end here."""
        segments, limit_ms = self.log.segments, self.checkpoint.physical_ms
        start = offset + 1
        while segments.holds(start):
            base = start - start % segments.file_size
            buffer = segments.file(start).buffer
            at = next_record(buffer, start - base, base)
            if at is not None:
                scanner = Scanner(buffer, at, crc=True, base=base)
                if scanner.step() == Found.RECORD and 0 < scanner.stored_ms <= limit_ms:
                    return base + at
                start = base + at + 1
            else:
                start = base + segments.file_size
        return None

    def _cut_log(self, end: int) -> None:
        """Nothing may be behind the end: segments go, and bytes that look like records are zeroed, durably."""
        segments = self.log.segments
        before = len(segments)
        segments.remove_from(end if end % segments.file_size == 0 and end > segments.start else end + 1)
        self.report.cut_segments = before - len(segments)
        if segments.holds(end) and not self.report.hinted:
            self.report.cut_tail = zero_tail(self.disk, segments.file(end), end % segments.file_size)


def next_record(buffer: memoryview, start: int, base: int) -> int | None:
    """Where after `start` something looks like a record that knows where it stands."""
    while start < len(buffer):
        window = bytes(buffer[start : start + _WINDOW + _MAGIC_END])
        found = _magic_in(window, 0)
        while found >= 0:
            at = start + found - 4
            if found >= 4 and int.from_bytes(buffer[at + 28 : at + 36]) == base + at:
                return at
            found = _magic_in(window, found + 1)
        start += _WINDOW
    return None


def _magic_in(data: bytes, start: int) -> int:
    """Where the magic of a record is; it stands four bytes behind the record's start. -1: nowhere."""
    places = (data.find(magic, start) for magic in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"))
    return min((place for place in places if place >= 0), default=-1)


def read_clean_stop(disk: Disk, path: Path) -> CleanStop | None:
    content = disk.read(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=CleanStop)
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.warning("%s is not readable and ignored", path)
        return None
