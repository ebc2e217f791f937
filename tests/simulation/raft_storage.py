"""The disk of a simulated member, as light as can be: a log of small records, and files of epochs, term and vote.

    record    u32 size of all, u64 number of the append that wrote it (0: the first record of a term), filling

What was not synced when the power is cut is lost from some record on; a job that was running is done or not, and a
cut of the log is done in part. The digest of a record is that of the whole log up to its end: two logs with the same
digest at the same offset are equal up to there.
"""

import struct
import zlib
from bisect import bisect_right
from random import Random

from kourou.raft.events import Cut, HardState, Job, Restart, Save, SaveEpochs
from kourou.store.epochs import Epochs

RECORD = struct.Struct(">IQ")


def record(number: int, size: int) -> bytes:
    """A record of this append, of at least so many bytes."""
    size = max(size, RECORD.size)
    return RECORD.pack(size, number).ljust(size, b"\xee")


class Storage:
    """See the module's text."""

    def __init__(self, random: Random, hard: HardState) -> None:
        self.random = random
        self.hard = hard
        self.epochs = Epochs()
        self.start = 0
        self.data = bytearray()
        self.ends: list[int] = []  # where records end
        self.digests: dict[int, int] = {0: 0}  # by the end of a record, and at the start
        self.synced = 0
        self.is_full = False
        self.sync_to: int | None = None  # a sync is running

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    def read(self, offset: int, size: int) -> bytes:
        at = offset - self.start
        assert at >= 0 and at + size <= len(self.data), f"{offset} + {size} is not in {self.start} … {self.end}"
        return bytes(self.data[at : at + size])

    def batch_end(self, start: int, limit: int) -> int:
        at = bisect_right(self.ends, start + limit)
        if at and self.ends[at - 1] > start:
            return self.ends[at - 1]
        return self.ends[at]

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, number: int, size: int) -> list[int]:
        """A client's append."""
        return self.append(self.end, record(number, size))

    def synced_to(self, end: int) -> None:
        """The sync that was running has ended."""
        self.synced, self.sync_to = end, None

    def append(self, offset: int, data: bytes) -> list[int]:
        """The ends of the records that were written."""
        assert offset == self.end, f"{offset} is not the end, which is {self.end}"
        if self.is_full:
            return []
        written, at = [], 0
        digest = self.digests[offset]
        while at < len(data):
            size, _ = RECORD.unpack_from(data, at)
            assert size and at + size <= len(data), "not whole records"
            digest = zlib.crc32(data[at : at + size], digest)
            at += size
            self.ends.append(offset + at)
            self.digests[offset + at] = digest
            written.append(offset + at)
        self.data += data
        return written

    def cut(self, end: int) -> None:
        while self.ends and self.ends[-1] > end:
            del self.digests[self.ends.pop()]
        assert self.end == end or not self.ends, f"{end} is amid a record"
        del self.data[end - self.start :]
        self.synced = min(self.synced, end)
        self.sync_to = None

    def trim(self, start: int) -> None:
        """Remove the oldest records."""
        del self.data[: start - self.start]
        gone = bisect_right(self.ends, start)
        for end in [self.start, *self.ends[:gone]]:
            if end != start:
                del self.digests[end]
        del self.ends[:gone]
        self.start = start

    def restart(self, start: int, digest: int) -> None:
        assert not self.ends, "the log is not empty"
        self.start = self.synced = start
        self.data.clear()
        self.digests = {start: digest}
        self.sync_to = None

    def perform(self, job: Job, digest: int) -> None:
        """A job is durable."""
        if isinstance(job, Save):
            self.hard = job.state
        elif isinstance(job, SaveEpochs):
            self.epochs = job.epochs
        elif isinstance(job, Cut):
            self.cut(job.end)
        elif isinstance(job, Restart):
            self.restart(job.start, digest)

    # ── The end of a process or of the power ──────────────────────────────────────────────────────────────────────

    def end_process(self, job: Job | None, digest: int) -> None:
        """The kernel keeps all writes; a job is done in part."""
        self.sync_to = None
        if job is None:
            return
        if isinstance(job, Cut) and self.random.random() < 0.5:
            ends = [end for end in [self.start, *self.ends] if end >= job.end]
            self.cut(self.random.choice(ends))
        elif not isinstance(job, Restart | Cut) and self.random.random() < 0.5:
            self.perform(job, digest)

    def cut_power(self, job: Job | None, digest: int) -> None:
        """Writes that were not synced may be lost."""
        self.end_process(job, digest)
        ends = [end for end in self.ends if end >= self.synced]
        if ends and ends[-1] > self.synced:
            self.cut(self.random.choice([self.synced, self.synced, *ends]))
