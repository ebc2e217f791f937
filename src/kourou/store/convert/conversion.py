"""The order of a conversion. Each step may be repeated: a kill at any byte leads to the same target.

1  progress, and the file that makes Apache's broker refuse the target
2  the log: copy, and every 64 MiB sync ─▶ pairs of offsets ─▶ progress
3  files that refer to the log (references.py); for DLedger: its text files
4  compare both logs
5  report ─▶ remove the progress: the target is now complete
6  plain: open and close the store, which builds queues and index from the log
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from kourou.store.convert.check import compare
from kourou.store.convert.offset_map import STEP, OffsetMap
from kourou.store.convert.progress import CHECK, COPY, Progress, ProgressFiles
from kourou.store.convert.references import NOT_CONVERTED, References
from kourou.store.convert.source import Place, Source, Walk
from kourou.store.convert.target import TargetLog
from kourou.store.disk import Disk
from kourou.store.dledger import ENTRY_HEAD, ENTRY_SIZE_MAX, INDEX_FILE_SIZE, member_folder
from kourou.store.errors import BadStoreError
from kourou.store.paths import Paths, present_sizes
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

SYNC_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the new log between two points where a killed conversion can continue."""

PROGRESS_RECORDS: Final = 1024
"""How many records are between two calls of the progress bar."""

ProgressBar = Callable[[str, int, int], None]

_LOCAL_HOST: Final = bytes((127, 0, 0, 1, 0, 0, 0, 0))
_BESIDE_LOG: Final = ("lock", "kourou-aside")


class Layout(Enum):
    """How the log is stored."""

    PLAIN = "plain"
    DLEDGER = "dledger"


class Uncommitted(Enum):
    """How to treat entries after the last committed one, according to DLedger's checkpoint."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's choices, and limits that tests change."""

    self_id: str = "n0"  # of the target's member
    uncommitted: Uncommitted = Uncommitted.KEEP
    index_file_size: int = INDEX_FILE_SIZE
    sync_bytes: int = SYNC_BYTES
    step: int = STEP
    settings: StoreSettings = field(default_factory=StoreSettings)  # of queues and index, unless the source has some


class Report(msgspec.Struct):
    """The result of a conversion."""

    source: str
    target: str
    to: str
    records: int
    log_start: int
    log_end: int
    uncommitted: int
    """Entries after the last committed one: kept, or dropped."""
    uncommitted_dropped: bool
    left_out: int
    """Records of removed topics."""
    resumed: bool
    notes: list[str]


class Conversion:
    """One conversion of a source into a target directory."""

    def __init__(
        self, disk: Disk, source: Source, target: Path, options: Options, progress: ProgressBar | None
    ) -> None:
        self._disk = disk
        self._source = source
        self._options = options
        self._bar: ProgressBar = progress or (lambda *_: None)
        self._target = Paths(target)
        self._files = ProgressFiles(disk, target)
        self.to = Layout.PLAIN if source.is_dledger else Layout.DLEDGER
        source.drop_uncommitted = options.uncommitted is Uncommitted.DROP
        self._member = member_folder(target, options.self_id)
        self._resumed = False

    def run(self, now_ms: int, file_time: Callable[[int], str]) -> Report:
        """Convert, or continue. Raises StoreError, OSError."""
        self._check_options()
        lock = self._disk.lock(self._target.lock)
        try:
            report = self._finished() or self._convert()
        finally:
            lock.release()
        if self.to is Layout.PLAIN:
            self._bar("queues and index", 0, 1)
            self._build_queues(now_ms, file_time)
        return report

    def _check_options(self) -> None:
        source, target = self._source.paths.root, self._target.root
        if target == source or target.is_relative_to(source) or source.is_relative_to(target):
            raise BadStoreError(f"{target} can't be the target: it must be a new directory outside of {source}")
        if self._source.drop_uncommitted and self._source.committed is None:
            raise BadStoreError(
                f"{self._source.member} has no checkpoint, so it is not known which entries are committed. Keep all of "
                "them, or convert the directory of another member"
            )

    # ── The steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _finished(self) -> Report | None:
        """The report, if this conversion is already complete except for the files of its progress."""
        found = self._files.report()
        if found is None:
            return None
        report = msgspec.convert(found, Report)
        if report.source != str(self._source.paths.root):
            raise BadStoreError(f"{self._target.root} was converted from {report.source}. Choose another target")
        self._files.finish()
        return report

    def _convert(self) -> Report:
        source = self._source
        progress = self._begin()
        offsets = OffsetMap(source, 0 if self.to is Layout.PLAIN else ENTRY_HEAD, self._options.step)
        self._files.load_pairs(offsets, progress.syncs)
        if progress.phase == COPY:
            self._copy(progress, offsets)
            References(self._disk, source, self._target.root, offsets, progress.target_at).write()
            if self.to is Layout.DLEDGER:
                self._write_texts(progress)
            progress.phase = CHECK
            self._files.write(progress)
        self._compare(progress, offsets)
        source.check_index(progress.place)
        report = self._report(progress)
        self._disk.replace(self._files.report_path, msgspec.json.format(msgspec.json.encode(report), indent=1))
        self._files.finish()
        return report

    def _begin(self) -> Progress:
        source, root = self._source, self._target.root
        fingerprint = source.fingerprint + self._options.self_id * (self.to is Layout.DLEDGER)
        progress = self._files.read()
        if progress is None:
            present = [*self._disk.folders(root), *self._disk.files(root)]
            if any(name not in _BESIDE_LOG for name in present):
                raise BadStoreError(f"{root} is not empty, and is not a conversion to continue. Choose a new directory")
            progress = Progress(str(source.paths.root), self.to.value, fingerprint, source.start, Place(source.start))
        elif (progress.source, progress.to) != (str(source.paths.root), self.to.value):
            raise BadStoreError(
                f"{root} is the target of another conversion, from {progress.source}. Choose a new directory"
            )
        elif progress.fingerprint != fingerprint:
            raise BadStoreError(
                f"{source.paths.root} has changed since the conversion began, or the options have. Remove {root} and "
                "convert again"
            )
        else:
            self._resumed = True
        self._files.begin(progress)
        return progress

    def _copy(self, progress: Progress, offsets: OffsetMap) -> None:
        source, options = self._source, self._options
        folder, index = self._target.commit_log, None
        if self.to is Layout.DLEDGER:
            folder, index = self._member / "data", (self._member / "index", options.index_file_size)
        total, saved_at = source.end - source.start, progress.target_at
        left_out, uncommitted = progress.left_out, progress.uncommitted
        with closing(TargetLog(self._disk, folder, source.file_size, index)) as target:
            target.resume(progress.target_at, progress.records)
            target.begin()
            walk = Walk(source, progress.place)

            def save() -> None:
                target.sync()
                progress.syncs += 1
                progress.place, progress.target_at = walk.place, target.at
                progress.left_out, progress.uncommitted = left_out + walk.left_out, uncommitted + walk.uncommitted
                self._files.save_pairs(offsets, progress.syncs)
                self._files.write(progress)

            for scanner in walk:
                offset = target.put(scanner, walk.view, offsets.prepared(scanner), progress.records)
                offsets.add(scanner, offset)
                progress.records += 1
                progress.large += scanner.size + ENTRY_HEAD > ENTRY_SIZE_MAX
                if target.at - saved_at >= options.sync_bytes:
                    save()
                    saved_at = target.at
                if progress.records % PROGRESS_RECORDS == 0:
                    self._bar("log", walk.place.offset - source.start, total)
            save()

    def _write_texts(self, progress: Progress) -> None:
        """Write that all entries are committed, in term 0. `abort` makes the broker build its queues from them."""
        last = progress.records - 1
        self._disk.replace(self._member / "currterm", b"currTerm=0\nvoteLeader=\n")
        self._disk.replace(self._member / "checkpoint", b"committedIndex=%d\nendIndex=%d\n" % (last, last))
        self._disk.replace(self._target.abort, b"0")

    def _compare(self, progress: Progress, offsets: OffsetMap) -> None:
        source = self._source
        member = self._member if self.to is Layout.DLEDGER else None
        target = Source(self._disk, self._target.root, member=member, ignored=self._files.stray.name)
        records = progress.checked_records
        old = Walk(source, progress.checked or Place(source.start))
        new = Walk(target, Place(progress.checked_at or source.start, records - 1, 0))
        saved_at = new.place.offset
        for _ in compare(old, new, target, offsets):
            records += 1
            if records % PROGRESS_RECORDS == 0:
                self._bar("comparison", old.place.offset - source.start, source.end - source.start)
            if new.place.offset - saved_at >= self._options.sync_bytes:
                saved_at = new.place.offset
                progress.checked, progress.checked_at, progress.checked_records = old.place, saved_at, records
                self._files.write(progress)
        if records != progress.records:
            raise BadStoreError(
                f"{self._target.root} has {records} records, not {progress.records}. Remove it and convert again"
            )

    def _report(self, progress: Progress) -> Report:
        source = self._source
        dropped = source.drop_uncommitted
        self._note(progress)
        return Report(
            source=str(source.paths.root),
            target=str(self._target.root),
            to=self.to.value,
            records=progress.records,
            log_start=source.start,
            log_end=progress.target_at,
            uncommitted=progress.uncommitted,
            uncommitted_dropped=dropped and progress.uncommitted > 0,
            left_out=progress.left_out,
            resumed=self._resumed,
            notes=source.notes.texts,
        )

    def _note(self, progress: Progress) -> None:
        """Add notes about details that may be unexpected."""
        source, notes = self._source, self._source.notes
        root = source.paths.root
        if progress.uncommitted:
            known = "its checkpoint" if source.committed is not None else "no checkpoint, so that none is known to be"
            done = "dropped" if source.drop_uncommitted else "kept"
            notes.add(
                f"{progress.uncommitted} entries up to {progress.place.entry} of term {progress.place.term} are after "
                f"the last committed one, according to {known}: they are {done}"
            )
        if progress.left_out:
            notes.add(f"{progress.left_out} records of removed topics, which no queue has, are left out")
        if progress.large and self.to is Layout.DLEDGER:
            notes.add(f"{progress.large} records are too large for DLedger to replicate: more than 4 MiB with 48 bytes")
        if not source.is_clean:
            notes.add(f"{root} was not stopped cleanly: queues of topics that were deleted there may appear again")
        for name, what in NOT_CONVERTED.items():
            if self._disk.folders(root / name):
                notes.add(f"{root / name} is not converted: {what}")

    def _build_queues(self, now_ms: int, file_time: Callable[[int], str]) -> None:
        """Open and close the store: its recovery builds queues and index from the log."""
        settings = present_sizes(self._options.settings, self._disk, self._source.paths)
        store = Store.open(
            self._target.root,
            settings,
            store_host=_LOCAL_HOST,
            now_ms=now_ms,
            file_time=file_time,
            disk=self._disk,
        )
        store.close(now_ms)
