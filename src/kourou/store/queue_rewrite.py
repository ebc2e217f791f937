"""Queue files that could not be synced are written again from the log, while the store serves requests.

    a sync fails ─▶ QueueRewrite ─▶ ReadEntries, slice by slice, in a worker ─▶ entries ─▶ the queue ─▶ the next sync

After a failed sync the system may treat pages as clean that never reached the disk. A second sync would succeed without
writing them, and under memory pressure the pages are dropped, and their old contents are read from the disk. So neither
the file nor the memory is reliable for entries that were written since the last successful sync. The log has them all:
each entry is written again, whether it looks correct or not, so that the next sync has to write it.

Earlier entries are on the disk. A page with old and new entries has either its old contents, or both.

If an extension could not be synced, the entries that point into it get the code of their tags instead.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.store.disk import Disk
from kourou.store.dispatch import Dispatcher
from kourou.store.errors import StoreError
from kourou.store.jobs import Slice
from kourou.store.log_walk import LogWalk
from kourou.store.queue_entries import ENTRY_SIZE
from kourou.store.queues import Queues
from kourou.store.removed import RemovedTopics

SLICE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the log for one job."""
ENTRIES_MAX: Final = 1_000
"""The most entries from one job, since the owner writes them at once."""

Key = tuple[bytes, int]
Patch = tuple[int, int, int, int]
"""Number, physical offset, size, code of the tags."""


@dataclass(slots=True)
class ReadEntries(Slice):
    """One slice: the entries of the files for records from the position of the walk on."""

    walk: LogWalk
    queues: Queues
    dispatcher: Dispatcher
    files: set[Path]
    begin: int  # the position of the walk when the slice begins
    found: dict[Key, list[Patch]] = field(default_factory=dict)
    starts: dict[Key, "set[int] | None"] = field(default_factory=dict)  # of files of a queue; None: of all files

    def _work(self) -> None:
        count = 0
        for scanner in self.walk.records(SLICE_BYTES):
            if count == ENTRIES_MAX:
                return  # the walk stays at this record and will find it again
            key = scanner.topic, scanner.queue_id
            if key not in self.starts:
                self.starts[key] = self._starts(key)
            starts, number = self.starts[key], scanner.queue_offset
            is_wanted = starts is None or number - number % self.queues.file_entries in starts
            if is_wanted and self.dispatcher.has_entry(scanner):
                patch = number, scanner.physical_offset, scanner.size, self.dispatcher.tags_code(scanner)
                self.found.setdefault(key, []).append(patch)
                count += 1

    def _starts(self, key: Key) -> "set[int] | None":
        """The numbers of the first entries of those files of a queue that have to be written again."""
        topic = key[0].decode("utf-8", "surrogateescape")
        folder, extension = self.queues.folders_of(topic, key[1])
        if any(path.parent == extension for path in self.files):
            return None
        return {int(path.name) // ENTRY_SIZE for path in self.files if path.parent == folder}


class QueueRewrite:
    """The files to be written again, for the owner of a store."""

    def __init__(
        self,
        disk: Disk,
        queues: Queues,
        dispatcher: Dispatcher,
        removed: RemovedTopics,
        log_folder: Path,
        file_size: int,
    ) -> None:
        self._disk = disk
        self._queues = queues
        self._dispatcher = dispatcher
        self._removed = removed
        self._log_folder = log_folder
        self._file_size = file_size
        self._files: set[Path] = set()
        self._begin = 0
        self._walk: LogWalk | None = None
        self.job: ReadEntries | None = None

    @property
    def is_idle(self) -> bool:
        return self._walk is None

    @property
    def has_job(self) -> bool:
        """Is there work to do, and no job running?"""
        return self._walk is not None and self.job is None

    def start(self, files: set[Path], begin: int, end: int) -> None:
        """Write the entries in these files again, of the records from `begin` to `end`. A record begins at `begin`."""
        self._files = files
        self._begin = begin
        self._walk = LogWalk(self._disk, self._log_folder, self._file_size, begin, end)

    def next_job(self, log_start: int) -> ReadEntries | None:
        """The next slice, if there is work and no slice is running."""
        if not self.has_job:
            return None
        assert self._walk is not None
        self._walk.at = max(self._walk.at, log_start)
        self.job = ReadEntries(self._walk, self._queues, self._dispatcher, self._files, self._walk.at)
        return self.job

    def finished(self, job: ReadEntries) -> None:
        """A slice is done: write its entries. Raises OSError, StoreError; the slice is repeated then."""
        self.job = None
        if job.walk is not self._walk:
            return  # the log was cut meanwhile
        try:
            if job.error is not None:
                raise job.error
            for (topic, queue_id), patches in job.found.items():
                queue = self._queues.get(topic.decode("utf-8", "surrogateescape"), queue_id)
                begin = self._removed.until.get(topic, 0)  # the topic may have been removed, and created again
                if queue is not None:
                    queue.patch([patch for patch in patches if patch[1] >= begin], again=True)
        except (OSError, StoreError):
            job.walk.at = job.begin
            raise
        if job.walk.at >= job.walk.end:
            self._walk = None

    def cut(self, end: int) -> None:
        """The log ends here: other records will take the places of those that were read."""
        if self._walk is not None:
            self.start(self._files, min(self._begin, end), min(self._walk.end, end))
