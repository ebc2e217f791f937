"""Work for another thread: operations that block, and release the interpreter lock while they do.

A job is created by the owner of a store, run anywhere (`run`), and returned to the owner (`Store.finished`), which
alone changes state. A failed job contains its error.

The owner may also cancel a job: when it needs a segment that a worker was to prepare, or when the store is closed. A
file that is put in place too late would replace one that is already in use.
"""

import errno
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from kourou.protocol.record import Found
from kourou.store.crash_damage import is_torn
from kourou.store.disk import Disk, File
from kourou.store.records import goes_on_at, scan
from kourou.store.segments import Segments


@dataclass(slots=True)
class _Once:
    """Work that runs at most once, and not at all if it is cancelled before it begins."""

    done: bool = field(default=False, init=False)
    error: OSError | None = field(default=None, init=False)
    _off: bool = field(default=False, init=False, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def run(self) -> None:
        with self._turn:
            if self.done or self._off:
                return
            try:
                self._work()
            except OSError as error:
                self.error = error
            self.done = True

    def fail(self, error: Exception) -> None:
        """The job failed because of a bug: its owner gets it back as if the disk had failed."""
        with self._turn:
            self.error = OSError(errno.EIO, f"{type(error).__name__}: {error}")
            self.done = True

    def call_off(self) -> bool:
        """Cancel the job; returns whether it has run. Waits for a thread that is running it."""
        with self._turn:
            self._off = True
            return self.done

    def _work(self) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class SyncLog(_Once):
    """Make the log durable up to an offset."""

    files: list[File]
    upto: int
    stored_ms: int

    def _work(self) -> None:
        for file in self.files:
            file.sync()


@dataclass(slots=True)
class SyncQueues(_Once):
    """Make queues and index durable, with the names of new files, then write the checkpoint."""

    disk: Disk
    files: list[File]
    created: list[Path]
    checkpoint_path: Path
    checkpoint: bytes
    changed: list[Path] = field(default_factory=list)  # folders from which something was put aside
    aside: list[Path] = field(default_factory=list)  # the folders that were put aside
    unsynced: list[File] = field(default_factory=list)  # files whose sync failed
    synced: bool = False  # the files are durable, even if the checkpoint failed

    def _work(self) -> None:
        first: OSError | None = None
        for file in self.files:
            try:
                file.sync()
            except OSError as error:
                first = first or error
                self.unsynced.append(file)
        if first is not None:
            raise first
        for path in self.created:
            self.disk.sync_created(path)
        for folder in self.changed:
            with suppress(FileNotFoundError):  # there are no extensions
                self.disk.sync_folder(folder)
        self.synced = True
        self.disk.replace(self.checkpoint_path, self.checkpoint)
        for folder in self.aside:
            with suppress(OSError):  # the next start removes it
                self.disk.remove_folder(folder)


@dataclass(slots=True)
class PrepareSegment(_Once):
    """Create the next segment of the log, and warm it if requested."""

    segments: Segments
    start: int
    warm: bool
    file: File | None = None

    def _work(self) -> None:
        self.file = self.segments.prepare(self.start)
        if self.warm:
            self.file.warm()

    def take(self) -> File | None:
        """The file, if any; only once."""
        file, self.file = self.file, None
        return file


@dataclass(slots=True)
class SupplyPages(_Once):
    """Load the pages that the log will be written to next.

    The system loads pages when they are first touched, many at a time: eight mebibytes with a large read-ahead setting,
    which can take fifty milliseconds. During an append, all requests would wait for that.
    """

    file: File
    start: int  # in the file
    size: int

    def _work(self) -> None:
        self.file.supply(self.start, self.size)


@dataclass(slots=True)
class RewriteLog(_Once):
    """After a failed sync: write all doubtful records to new files, whose sync does not depend on the old ones.

    The source is memory, which may have dropped pages that never reached the disk and read older contents again. So the
    copy is good only as far as its records are valid; the rest of it is zeroed.
    """

    segments: Segments
    begin: int  # everything before it is durable
    end: int
    sealed: bool  # each record ends with a CRC over the whole record
    files: dict[int, File] = field(default_factory=dict)
    held: int = 0  # how far the copy is valid

    def _work(self) -> None:
        try:
            size = self.segments.file_size
            for start in range(self.begin - self.begin % size, min(self.end, self.segments.end), size):
                self.files[start] = self.segments.copy(start)
            self.held = self._find_end()
            if self.held < self.end:
                self._zero_from(self.held)
        except OSError:
            self.close()
            raise

    def _find_end(self) -> int:
        at, size = self.begin, self.segments.file_size
        while at < self.end and at - at % size in self.files:
            base = at - at % size
            buffer = self.files[base].buffer
            scanner = scan(buffer, base, at - base, min(self.end - base, size), crc=True)
            while (found := scanner.step()) == Found.RECORD and not is_torn(buffer, scanner, sealed=self.sealed):
                pass
            following = goes_on_at(scanner, found, base, size)
            if following is None:
                return min(base + scanner.at, self.end)
            at = following
        return min(at, self.end)

    def _zero_from(self, offset: int) -> None:
        for start, file in self.files.items():
            at, stop = max(offset - start, 0), min(self.end - start, self.segments.file_size)
            if at < stop:
                file.buffer[at:stop] = bytes(stop - at)
                file.sync()

    def close(self) -> None:
        """Its files are not needed."""
        for file in self.files.values():
            file.close()


@dataclass(slots=True)
class RemoveFiles(_Once):
    """Remove files, oldest first. Each removal is durable before the next one, so that a crash leaves no gap."""

    disk: Disk
    paths: list[Path]  # after the run: those that were not removed

    def _work(self) -> None:
        while self.paths:
            self.disk.remove(self.paths[0])
            self.disk.sync_folder(self.paths[0].parent)
            del self.paths[0]


@dataclass(slots=True)
class Slice(_Once):
    """A part of a long task, which continues with another slice."""


Job: TypeAlias = SyncLog | SyncQueues | PrepareSegment | SupplyPages | RewriteLog | RemoveFiles | Slice
