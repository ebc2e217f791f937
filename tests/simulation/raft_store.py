"""The disk of a simulated member with the real store on it: commit log, recovery, truncation, epoch file.

The bookkeeping (ends of records, digests) is that of the light storage. A power cut and a kill are those of the
simulated disk: unsynced sectors are lost one by one, files that were renamed or removed may be back.
"""

import zlib
from pathlib import Path
from random import Random

from tests.unit.store.small import BEGIN_MS, HOST, file_time, message

from kourou.raft.events import Cut, HardState, Job, Restart, Save, SaveEpochs
from kourou.raft.storage import RaftStorage
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk

from .raft_storage import RECORD, Storage

ROOT = Path("/store")
SEGMENT = 8192
SETTINGS = StoreSettings(
    commit_log_file_size=SEGMENT,
    queue_file_entries=50,
    index_slots=8,
    index_entries=32,
    max_body_size=4000,
    flush_least_pages=0,
    queue_flush_least_pages=0,
    flush_mode=FlushMode.SYNC,
)


class StoreStorage(Storage):
    """See the module's text."""

    def __init__(self, random: Random, hard: HardState) -> None:
        super().__init__(random, hard)
        self.disk = SimulatedDisk(random)
        self._ms = BEGIN_MS
        self._first = hard
        self._open()

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        """Recovery says where the log ends; the epochs and the vote are those of their files."""
        self._ms += 1
        disk = self.disk
        self.store = Store.open(ROOT, SETTINGS, store_host=HOST, now_ms=self._ms, file_time=file_time, disk=disk)
        self.adapter = RaftStorage(self.store)
        self.hard, log = self.adapter.open(self._first.members.all)
        self.epochs = log.epochs
        assert self.store.log.end >= self.synced, f"recovery lost synced bytes: {self.store.log.end} < {self.synced}"
        self.ends.clear()
        self.digests = {0: 0}
        self._note(0)
        self.synced = self.end
        self.sync_to = None

    def _note(self, start: int) -> list[int]:
        """The ends of the records from here on, with their digests."""
        data, at, written = self.read(start, self.store.log.end - start), 0, []
        digest = self.digests[start]
        while at < len(data):
            size, _ = RECORD.unpack_from(data, at)
            assert size and at + size <= len(data), "not whole records"
            digest = zlib.crc32(data[at : at + size], digest)
            at += size
            self.ends.append(start + at)
            self.digests[start + at] = digest
            written.append(start + at)
        return written

    def read(self, offset: int, size: int) -> bytes:
        parts, end = [], offset + size
        while offset < end:
            piece = min(end, offset - offset % SEGMENT + SEGMENT) - offset
            parts.append(bytes(self.store.log.read(offset, piece)))
            offset += piece
        return b"".join(parts)

    def batch_end(self, start: int, limit: int) -> int:
        end = self.adapter.batch_end(start, limit)
        assert end == min(super().batch_end(start, limit), start - start % SEGMENT + SEGMENT), "not a whole batch"
        return end

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, number: int, size: int) -> list[int]:
        start = self.end
        self._ms += 1
        self.store.append([message(b"%020d" % number + bytes(10 * size))], self._ms)
        return self._note(start)

    def append(self, offset: int, data: bytes) -> list[int]:
        assert offset == self.end, f"{offset} is not the end, which is {self.end}"
        self.adapter.append(offset, data, self._ms)
        return self._note(offset)

    def synced_to(self, end: int) -> None:
        """The sync that was running has ended: the jobs of the store are done."""
        self.sync_to = None
        self._ms += 1_000
        for job in self.store.jobs(self._ms):
            job.run()
            self.store.finished(job, self._ms)
        assert self.store.durability.flushed >= end
        self.synced = end

    def perform(self, job: Job, digest: int) -> None:
        if isinstance(job, Save):
            self.adapter.state_file.write(job.state)
            self.hard = job.state
        elif isinstance(job, SaveEpochs):
            self.adapter.epoch_file.write(job.epochs)
            self.epochs = job.epochs
        elif isinstance(job, Cut):
            self.adapter.cut(job.end, self._ms)
            while self.ends and self.ends[-1] > job.end:
                del self.digests[self.ends.pop()]
            assert self.end == job.end
            self.synced, self.sync_to = min(self.synced, job.end), None
        else:
            assert isinstance(job, Restart)
            raise AssertionError("no segment was removed")

    # ── The end of a process or of the power ──────────────────────────────────────────────────────────────────────

    def end_process(self, job: Job | None, digest: int) -> None:
        self._run_in_part(job, digest)
        self.disk = self.disk.kill()
        self._open()

    def cut_power(self, job: Job | None, digest: int) -> None:
        self._run_in_part(job, digest)
        if self.random.random() < 0.5:
            self.disk.write_back()
        self.disk = self.disk.crash()
        self._open()

    def _run_in_part(self, job: Job | None, digest: int) -> None:
        if isinstance(job, Save | SaveEpochs) and self.random.random() < 0.5:
            self.perform(job, digest)
        if isinstance(job, Cut) and self.random.random() < 0.5:
            self.synced = min(self.synced, job.end)
            self.perform(job, digest)
