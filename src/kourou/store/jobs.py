"""Work for another thread: what blocks, and releases the interpreter lock while it does.

A job is made by the owner of a store, run anywhere (`run`), and given back to the owner (`Store.finished`), who alone
changes state. A job that fails gives back its error.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from kourou.store.disk import Disk, File
from kourou.store.segments import Segments


@dataclass(slots=True)
class SyncLog:
    """Make the log safe up to an offset."""

    files: list[File]
    upto: int
    stored_ms: int
    error: OSError | None = None

    def run(self) -> None:
        try:
            for file in self.files:
                file.sync()
        except OSError as error:
            self.error = error


@dataclass(slots=True)
class SyncQueues:
    """Make queues and index safe, then say so in the checkpoint."""

    disk: Disk
    files: list[File]
    checkpoint_path: Path
    checkpoint: bytes
    error: OSError | None = None

    def run(self) -> None:
        try:
            for file in self.files:
                file.sync()
            self.disk.replace(self.checkpoint_path, self.checkpoint)
        except OSError as error:
            self.error = error


@dataclass(slots=True)
class PrepareSegment:
    """Make the next segment of the log, and warm it if that is wanted."""

    segments: Segments
    start: int
    warm: bool
    file: File | None = None
    error: OSError | None = None

    def run(self) -> None:
        try:
            self.file = self.segments.prepare(self.start)
            if self.warm:
                self.file.warm()
        except OSError as error:
            self.error = error


@dataclass(slots=True)
class MendLog:
    """After a failed sync: copy segments into new files, whose sync does not depend on what became of the old."""

    segments: Segments
    starts: list[int]
    files: dict[int, File] = field(default_factory=dict)
    error: OSError | None = None

    def run(self) -> None:
        try:
            for start in self.starts:
                self.files[start] = self.segments.copy(start)
        except OSError as error:
            for file in self.files.values():
                file.close()
            self.error = error


@dataclass(slots=True)
class RemoveFiles:
    """Remove files, oldest first. Each removal is safe before the next one, so that a crash leaves no gap."""

    disk: Disk
    paths: list[Path]  # after the run: those that could not be removed
    error: OSError | None = None

    def run(self) -> None:
        try:
            while self.paths:
                self.disk.remove(self.paths[0])
                self.disk.sync_folder(self.paths[0].parent)
                del self.paths[0]
        except OSError as error:
            self.error = error


Job: TypeAlias = SyncLog | SyncQueues | PrepareSegment | MendLog | RemoveFiles
