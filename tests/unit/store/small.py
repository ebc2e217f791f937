"""A small store on a simulated disk, for tests that tell a story about one."""

from collections.abc import Hashable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from kourou.protocol.record import decode_record
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.store.jobs import Job
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedDisk

ROOT = Path("/store")
LOG = ROOT / "commitlog"
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
BEGIN_MS = 1_700_000_000_000
SEGMENT = 8192
SETTINGS = StoreSettings(
    commit_log_file_size=SEGMENT,
    queue_file_entries=10,
    index_slots=8,
    index_entries=32,
    max_body_size=4000,
    flush_least_pages=0,
    queue_flush_least_pages=0,
)
SYNC = replace(SETTINGS, flush_mode=FlushMode.SYNC)


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def new_disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(Random(seed))


def message(
    body: bytes, topic: str = "orders", queue_id: int = 0, *, key: str = "", sys_flag: int = 0, properties: bytes = b""
) -> NewMessage:
    keys = f"KEYS\1{key}\2".encode() if key else b""
    return NewMessage(topic, queue_id, body, keys + properties, BEGIN_MS, HOST, sys_flag=sys_flag)


class Small:
    """A store in use: its disk, and what time it is."""

    def __init__(
        self, disk: SimulatedDisk | None = None, settings: StoreSettings = SETTINGS, now_ms: int = BEGIN_MS
    ) -> None:
        self.disk = disk or new_disk()
        self.settings = settings
        self.now_ms = now_ms
        self.store = Store.open(ROOT, settings, store_host=HOST, now_ms=now_ms, file_time=file_time, disk=self.disk)

    def again(self, disk: SimulatedDisk | None = None) -> "Small":
        """Open it again, on what became of the disk."""
        return Small(disk or self.disk, self.settings, self.now_ms)

    def append(self, *messages: NewMessage) -> list[Appended]:
        return self.store.append(messages, self.now_ms)

    def send(self, *messages: NewMessage) -> list[Appended]:
        """Append, and make visible what may be."""
        appended = self.append(*messages)
        self.store.dispatch()
        return appended

    def fill(self, count: int, topic: str = "orders", size: int = 300) -> None:
        """Messages over some segments."""
        for number in range(count):
            self.now_ms += 1
            self.send(message(b"%05d" % number + bytes(size), topic, key=f"k{number}"))

    def later(self, ms: int = 2_000) -> list[Job]:
        """Time passes: the jobs that are due then."""
        self.now_ms += ms
        return self.store.jobs(self.now_ms)

    def work(self, ms: int = 2_000) -> list[Hashable]:
        """Time passes, and all jobs that are due are done. Returns the senders that may be answered."""
        tokens: list[Hashable] = []
        for job in self.later(ms):
            job.run()
            tokens += self.store.finished(job, self.now_ms)
        return tokens

    def run(self, ms: int = 2_000) -> list[Job]:
        """The same: the jobs that were done."""
        jobs = self.later(ms)
        for job in jobs:
            job.run()
            self.store.finished(job, self.now_ms)
        return jobs

    def settle(self) -> None:
        """Until there is nothing more to do."""
        for _ in range(10):
            self.work()
            self.store.dispatch()

    def close(self) -> None:
        self.store.close(self.now_ms)

    def bodies(self, topic: str = "orders", queue_id: int = 0, offset: int = 0) -> list[bytes]:
        """What a consumer gets from an offset on."""
        found: list[bytes] = []
        while True:
            result = self.store.reader.get(topic, queue_id, offset, 32)
            if result.next_offset <= offset or not result.records:
                return found
            found += [bytes(decode_record(record, crc=True).body) for record in result.records]
            offset = result.next_offset

    def by_key(self, key: str, topic: str = "orders") -> list[bytes]:
        records = self.store.reader.query(topic, key, 64, 0, 2**50).records
        return [bytes(decode_record(record).body) for record in records]

    def names(self, folder: str) -> list[str]:
        return sorted(self.disk.files(ROOT / folder))
