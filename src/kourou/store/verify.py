"""Verifies a store. All of it is checked, and nothing is changed.

    1. small files   checkpoint, config/*.json, names and sizes of segments
    2. queues        their entries ascend in the log
    3. the log       every record: CRC, sizes, position; and its queue entry: verify_log.py
    4. queues again  entries without a record
    5. the index     chains, slots, and the keys of the records: verify_index.py

An error is a problem, with the file and the position in it. A note may have a harmless cause: after a
crash, and while a broker is running, queues and index may be behind the log, and the log may end with a partial record;
the next start repairs that. Records of a deleted topic have no entries and, if it was created again, the entries of
other records.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.bodies import TopicConfigSerializeWrapper
from kourou.protocol.record import Found, Scanner
from kourou.protocol.system_names import SCHEDULE_TOPIC
from kourou.store import metadata
from kourou.store.errors import BadStoreError
from kourou.store.metadata import MetadataFile
from kourou.store.offline import IndexView, QueueFiles, StoreFiles
from kourou.store.queue_entries import BLANK_SIZE, ENTRY_SIZE
from kourou.store.reading import LIGHT_TOPIC_PREFIX
from kourou.store.records import goes_on_at
from kourou.store.verify_index import IndexCheck
from kourou.store.verify_log import LogCheck, QueueCheck

_EXT_ADDRESS_MAX: Final = -(2**31) - 1  # a smaller tags code is the address of an extension unit
_KINDS: Final = (
    metadata.TOPICS,
    metadata.GROUPS,
    metadata.CONSUMER_OFFSETS,
    metadata.DELAY_OFFSETS,
    metadata.STATIC_TOPICS,
    metadata.TIMER_METRICS,
    metadata.FILTERS,
    metadata.ORDERS,
    metadata.REQUEST_MODES,
    metadata.TRANSACTION_METRICS,
)

Progress = Callable[[str, int, int], None]
"""The current check, how much of it is done, and the total."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """A problem or a note."""

    file: str
    """Relative to the root of the store."""
    offset: int | None
    """The position in that file, in bytes."""
    text: str
    problem: bool = True


class Report(msgspec.Struct):
    """The findings, and how much was checked."""

    root: str
    clean: bool
    """The last run stopped cleanly."""
    log_start: int = 0
    log_end: int = 0
    log_bytes: int = 0
    records: int = 0
    queues: int = 0
    entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    problems: list[Finding] = []
    notes: list[Finding] = []


@dataclass(slots=True)
class _Run:
    """Consecutive entries with the same problem, reported as one."""

    kind: str
    first: int
    last: int
    physical: int
    detail: str


@dataclass(slots=True)
class Verifier:
    """One verification. `on_finding` is called at once, `on_progress` from time to time."""

    files: StoreFiles
    live: bool = False
    on_finding: Callable[[Finding], None] | None = None
    on_progress: Progress | None = None
    report: Report = field(init=False)
    _queues: dict[bytes, dict[int, QueueCheck]] = field(default_factory=dict)  # by topic and id
    _log: LogCheck = field(init=False)
    _runs: dict[QueueCheck, _Run] = field(default_factory=dict)
    _homeless: dict[bytes, list[int]] = field(default_factory=dict)  # topics without queues: records, first position
    _superseded: dict[str, int] = field(default_factory=dict)  # records of topics that were created again
    _pending: list[int] = field(default_factory=lambda: [0, 0])  # records without entries yet, first position
    _batch_topics: frozenset[bytes] = frozenset()
    _topics: frozenset[str] | None = None  # the broker's topics; None: unknown

    def __post_init__(self) -> None:
        self.report = Report(str(self.files.paths.root), self.files.is_clean)

    @property
    def lenient(self) -> bool:
        """True if queues and index may be behind the log."""
        return self.live or not self.report.clean

    def run(self) -> Report:
        """Raises OSError for a folder that can't be read."""
        report, log = self.report, self.files.log
        report.log_start = log.start
        report.log_end = log.end
        self._look_at_metadata()
        for path, text in log.problems():
            self._say(path, None, text)
        self._scan_queues()
        index = self.files.index_files()
        index_to = max((view.end_physical for view in index), default=-1)
        self._log = LogCheck(self._queues, index[0].begin_physical if index else 0, index_to, self)
        self._walk()
        self._look_at_checkpoint()
        self._tell_about_records()
        self._check_unmatched()
        self._check_index(index)
        return report

    def _say(self, path: Path, offset: int | None, text: str, *, problem: bool = True) -> None:
        root = self.files.paths.root
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        finding = Finding(name, offset, text, problem)
        (self.report.problems if problem else self.report.notes).append(finding)
        if self.on_finding is not None:
            self.on_finding(finding)

    def _say_of(self, path: Path, offset: int, text: str, problem: bool) -> None:
        self._say(path, offset, text, problem=problem)

    def _progress(self, what: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(what, done, total)

    # ── Small files ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_metadata(self) -> None:
        disk, paths = self.files.disk, self.files.paths
        for kind in _KINDS:
            file: MetadataFile[object] = MetadataFile(disk, paths.config, kind)  # type: ignore[arg-type]
            try:
                value = file.load()
            except (BadStoreError, OSError) as error:
                self._say(file.path, None, str(error))
                continue
            if file.problem is not None:
                self._say(file.path, None, file.problem)
            elif (why := file.problem_of_backup()) is not None:
                self._say(file.backup, None, why)
            if isinstance(value, TopicConfigSerializeWrapper):
                self._topics = frozenset(value.topic_config_table)
            elif isinstance(value, metadata.ConsumerOffsets):
                self._check_offsets(file.path, value)
        self._batch_topics = frozenset(
            topic.encode("utf-8", "surrogateescape") for topic in disk.folders(paths.root / "batchconsumequeue")
        )
        if not self.report.clean:
            text = "a broker is running, or the last run did not stop cleanly: the next start will recover"
            self._say(paths.abort, None, text, problem=False)
        for name in disk.folders(paths.root):
            if name.startswith("dledger-"):
                self._say(paths.root / name, None, "a log of DLedger, which is not verified", problem=False)

    def _check_offsets(self, path: Path, offsets: metadata.ConsumerOffsets) -> None:
        """A group can't be ahead of its queue, unless the queue was removed and created again."""
        for name, queues in offsets.offset_table.items():
            topic = name.partition("@")[0]
            for queue_id, offset in queues.items():
                end = self.files.queue(topic, queue_id).length if topic and queue_id >= 0 else 0
                if offset < -1 or queue_id < 0:
                    self._say(path, None, f"{name}: offset {offset} in queue {queue_id} is not valid")
                elif offset > end > 0 and not self.live:
                    text = f"{name}: offset {offset} in queue {queue_id}, which ends at {end}"
                    self._say(path, None, text, problem=False)

    def _look_at_checkpoint(self) -> None:
        path, report = self.files.paths.checkpoint, self.report
        checkpoint = self.files.checkpoint()
        if checkpoint is None:
            self._say(path, None, "it is missing: after a crash, the whole log is scanned", problem=False)
            return
        if checkpoint.problem:
            self._say(path, 0, checkpoint.problem)
        if checkpoint.physical_ms > self._log.last_ms and not self.live:
            newest = f"the newest in the log is of {self._log.last_ms} ms"
            text = f"records up to {checkpoint.physical_ms} ms were durable, but {newest}"
            self._say(path, 0, text)
        if checkpoint.logical_physical > report.log_end and not self.live:
            text = f"the log was durable up to {checkpoint.logical_physical}, but ends at {report.log_end}"
            self._say(path, 40, text)

    # ── Queues, before the log ────────────────────────────────────────────────────────────────────────────────────

    def _scan_queues(self) -> None:
        names = self.files.queue_names()
        for number, (topic, queue_id) in enumerate(names):
            self._progress("queues", number, len(names))
            files = self.files.queue(topic, queue_id)
            for path, text in files.problems():
                self._say(path, None, text)
            check = QueueCheck(files)
            for entry, why in check.scan(self.report.log_start):
                self._say(*self._place(files, entry), f"entry {entry}: {why}")
            self._queues.setdefault(topic.encode("utf-8", "surrogateescape"), {})[queue_id] = check
            self.report.entries += check.end - files.first
        self.report.queues = len(names)

    def _all_queues(self) -> Iterator[QueueCheck]:
        return (queue for queues in self._queues.values() for queue in queues.values())

    @staticmethod
    def _place(files: QueueFiles, entry: int) -> tuple[Path, int]:
        position = entry * ENTRY_SIZE
        size = files.file_size or 1
        return files.path(position - position % size), position % size

    # ── The log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self) -> None:
        log = self.files.log
        at = log.start
        while at < log.end:
            self._progress("log", at - log.start, log.end - log.start)
            base = at - at % log.file_size
            scanner = log.scanner(at)
            if scanner is None:  # missing segments are already reported
                at = base + log.file_size
                continue
            found = self._log.run(scanner, log.view(base))
            self.report.log_bytes += scanner.at - (at - base)
            following = goes_on_at(scanner, found, base, log.file_size)
            at = self._stopped(scanner, found, base) if following is None else following
        self.report.records = self._log.records
        for queue in list(self._runs):
            self._end_run(queue)

    def _stopped(self, scanner: Scanner, found: int, base: int) -> int:
        """Not a record or filler: returns where to continue."""
        log = self.files.log
        place, following = base + scanner.at, base + log.file_size
        beyond = log.next_record(place + 1)
        if beyond is None and following < log.end and self._has_data(following):
            beyond = following
        if beyond is not None:
            text = f"{beyond - place} bytes are invalid: {scanner.reason}; the log continues at {beyond}"
            self._say(log.path(base), scanner.at, text)
            return beyond
        self.report.log_end = place
        if found != Found.END:
            self._say(log.path(base), scanner.at, f"the log ends here: {scanner.reason}", problem=not self.lenient)
        return log.end

    def _has_data(self, start: int) -> bool:
        """True if any segment from this one on has data."""
        log = self.files.log
        return any(bytes(log.view(s.start)[:8]).strip(b"\0") for s in log.segments if s.start >= start)

    # ── Results of the scan ───────────────────────────────────────────────────────────────────────────────────────

    def reached(self, physical: int) -> None:
        log = self.files.log
        self._progress("log", physical - log.start, log.end - log.start)

    def torn(self, scanner: Scanner, why: str) -> None:
        base = scanner.physical_offset - scanner.at
        self._say(self.files.log.path(base), scanner.at, f"the record of {scanner.size} bytes: {why}")

    def without_queue(self, scanner: Scanner) -> None:
        topic = scanner.topic
        if topic not in self._batch_topics:
            self._homeless.setdefault(topic, [0, scanner.physical_offset])[0] += 1

    def mismatch(self, queue: QueueCheck, number: int, physical: int, size: int, tags_code: int) -> None:
        found = queue.files.entry(number)
        if found is not None and found[0] == physical and found[1] > 0:
            queue.matched += 1
            queue.asked_end = number + 1
            has_other_tags = queue.files.topic == SCHEDULE_TOPIC or found[2] <= _EXT_ADDRESS_MAX
            if found[1] != size:
                self._trouble(queue, "size", number, physical, f"{found[1]} where it has {size}")
            elif found[2] != tags_code and not has_other_tags:
                self._trouble(queue, "tags", number, physical, f"{found[2]} where they are {tags_code}")
            return
        is_older = physical < queue.first_physical
        if is_older and number >= queue.files.first:
            self._superseded[queue.files.topic] = self._superseded.get(queue.files.topic, 0) + 1
        elif found is None or found[1] <= 0:
            if self.lenient and physical >= queue.max_physical:
                self._note_pending(1, physical)
            else:
                self._trouble(queue, "missing", number, physical, "")
        else:
            self._trouble(queue, "elsewhere", number, physical, str(found[0]))

    def _note_pending(self, count: int, physical: int) -> None:
        self._pending[1] = min(self._pending[1], physical) if self._pending[0] else physical
        self._pending[0] += count

    def _trouble(self, queue: QueueCheck, kind: str, number: int, physical: int, detail: str) -> None:
        run = self._runs.get(queue)
        if run is not None and run.kind == kind and run.last + 1 == number and kind != "elsewhere":
            run.last = number
            return
        self._end_run(queue)
        self._runs[queue] = _Run(kind, number, number, physical, detail)

    def _end_run(self, queue: QueueCheck) -> None:
        run = self._runs.pop(queue, None)
        if run is None:
            return
        many = run.last > run.first
        entries = f"entries {run.first} to {run.last}" if many else f"entry {run.first}"
        record = f"{'records from log offset' if many else 'the record at log offset'} {run.physical}{' on' * many}"
        text = {
            "missing": f"{entries}: empty or missing, though {record} should have {'them' if many else 'it'}",
            "elsewhere": f"{entries}: it points to {run.detail}, though it belongs to {record}",
            "size": f"{entries}: wrong size of {record}: {run.detail}",
            "tags": f"{entries}: wrong code of the tags of {record}: {run.detail}",
        }[run.kind]
        self._say(*self._place(queue.files, run.first), text)

    def _tell_about_records(self) -> None:
        """Report the findings that were only counted during the scan."""
        for topic, (count, physical) in self._homeless.items():
            name = topic.decode("utf-8", "replace")
            path = self.files.paths.queues / name.replace("/", "\ufffd")
            if self._topics is not None and name not in self._topics:
                text = f"{count} records of a topic that was deleted, the first at log offset {physical}"
                self._say(path, None, text, problem=False)
            elif self.lenient and physical >= max((queue.max_physical for queue in self._all_queues()), default=0):
                self._note_pending(count, physical)
            else:
                self._say(path, None, f"{count} records have no queue, the first at log offset {physical}")
        for name, count in self._superseded.items():
            text = f"{count} records are older than the queues: the topic was deleted and created again"
            self._say(self.files.paths.queues / name, None, text, problem=False)
        count, physical = self._pending
        if count:
            text = f"{count} records have no entries yet, the first at log offset {physical}: the next start adds them"
            self._say(self.files.paths.queues, None, text, problem=False)
        count, physical = self._log.times_back, self._log.first_back
        if count:
            text = f"store times go back {count} times, first at log offset {physical}: searching by time is inexact"
            self._say(self.files.paths.commit_log, None, text, problem=False)

    # ── Entries without a record ──────────────────────────────────────────────────────────────────────────────────

    def _check_unmatched(self) -> None:
        for queue in self._all_queues():
            if queue.asked_end > queue.end and not self.live:
                text = f"entry {queue.end}: empty, though later entries exist, up to {queue.asked_end - 1}"
                self._say(*self._place(queue.files, queue.end), text)
            elif queue.matched < queue.live:
                self._check_entries(queue)

    def _check_entries(self, queue: QueueCheck) -> None:
        for number, (physical, size, _) in enumerate(queue.files.entries(queue.files.first), queue.files.first):
            if number >= queue.end:
                return
            if size == BLANK_SIZE or physical < self.report.log_start:
                continue
            if physical + size > self.report.log_end:
                text = f"entry {number}: it points to {physical}, the log ends at {self.report.log_end}"
                self._say(*self._place(queue.files, number), text, problem=not self.lenient)
                continue
            why = self._why_not(queue, number, physical, size)
            if why:
                self._say(*self._place(queue.files, number), f"entry {number}: at log offset {physical} {why}")

    def _why_not(self, queue: QueueCheck, number: int, physical: int, size: int) -> str:
        """Why the bytes at this log offset can't be the record of the entry."""
        scanner = self.files.log.scanner(physical)
        if scanner is None or scanner.step() != Found.RECORD:
            return f"there is no valid record ({scanner.reason if scanner is not None else 'no such segment'})"
        if scanner.size != size:
            return ""  # reported during the scan
        topic = scanner.topic.decode("utf-8", "surrogateescape")
        found = (topic, scanner.queue_id, scanner.queue_offset)
        if queue.files.topic.startswith(LIGHT_TOPIC_PREFIX) or found == (
            queue.files.topic,
            queue.files.queue_id,
            number,
        ):
            return ""
        return f"there is message {found[2]} of queue {found[1]} of {topic}"

    # ── The index ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_index(self, index: list[IndexView]) -> None:
        report = self.report
        report.index_files = len(index)
        check = IndexCheck(self.files.log, report.log_start, report.log_end, self.lenient)
        for view in index:
            check.run(view, partial(self._say_of, view.path), self._progress)
        report.index_entries = check.entries
        if check.in_log < self._log.keys:
            text = f"{self._log.keys - check.in_log} keys of records that it should have are missing"
            self._say(self.files.paths.index, None, text, problem=not self.lenient)
