"""What becomes of a store whose files rot, or are removed: all that is intact stays, and nothing else is shown.

A life is lived and ends; then something happens to its files while nobody looks; then it is opened, perhaps with a
crash or two amid that. Images of a power cut are taken during the life, where they must be as the model says, and while
the damaged files are opened, where all that is intact must be there.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kourou.store.checkpoint import Checkpoint
from kourou.store.errors import BadStoreError
from kourou.store.store import Store
from kourou.testing.disk import SimulatedCrash, SimulatedDisk
from kourou.testing.disk_parts import SECTOR

from .store_check import check
from .store_model import Record
from .store_run import ROOT, ObservedDisk, Run

LOG = ROOT / "commitlog"
QUEUES = ROOT / "consumequeue"
INDEX = ROOT / "index"


@dataclass(slots=True)
class RottenRun(Run):
    """A life, and its end."""

    rotten: set[int] = field(default_factory=set)  # offsets of the log where something is wrong
    safe_ms: int = 0  # records stored before it were safe
    trusting: bool = False  # a clean stop is taken for one, and not everything looked at
    whole: bool | None = None  # after the damage: is all that the model knows still there?

    def run(self) -> None:
        self.observe()
        self.open()
        for _ in range(self.steps):
            self.step()
        self.stop()
        happening = self.random.choice(
            (self.rot_in_log, self.rot_in_log, self.rot_elsewhere, self.lose_sector, self.lose_derived, self.lose_small)
        )
        happening()
        self.whole = not self.rotten and not any(" of /store/" in line for line in self.trace[-1:])
        self.observe()
        self.look()

    def stop(self) -> None:
        self.trusting = self.random.random() < 0.5
        if self.trusting:
            self.close()
        else:
            self.waiting, self.done = [], []
            self.disk = ObservedDisk.after(self.disk.kill() if self.random.random() < 0.5 else self.disk.crash())
        self.safe_ms = Checkpoint.read(self.disk, ROOT / "checkpoint").physical_ms

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def rot_in_log(self) -> None:
        """A bit is wrong in a part of the log that was safe."""
        if self.model.safe <= self.model.gone:
            return
        offset = self.random.randrange(self.model.gone, self.model.safe)
        path = LOG / f"{offset - offset % self.model.file_size:020}"
        if path.name in self.disk.files(LOG):
            self.disk.flip(path, offset % self.model.file_size)
            self.rotten = {offset}
            self.note(f"a bit at {offset} of the log")

    def lose_sector(self) -> None:
        """A sector of the log is zero, all of it safe before."""
        sectors = range(-(-self.model.gone // SECTOR), self.model.safe // SECTOR)
        if not sectors:
            return
        at = self.random.choice(sectors) * SECTOR
        path = LOG / f"{at - at % self.model.file_size:020}"
        if path.name in self.disk.files(LOG):
            content = bytearray(self.disk.read(path) or b"")
            start = at % self.model.file_size
            content[start : start + SECTOR] = bytes(SECTOR)
            self.disk.install(path, bytes(content))
            self.rotten = set(range(at, at + SECTOR))
            self.note(f"the sector at {at} of the log")

    def rot_elsewhere(self) -> None:
        """A bit is wrong in a file that follows from the log, or in a small one."""
        paths = [path for path in files(self.disk, ROOT) if path.parent != LOG and path.name != "lock"]
        path = self.random.choice([path for path in paths if self.disk.read(path)])
        at = self.disk.flip(path)
        self.note(f"a bit at {at} of {path}")

    def lose_derived(self) -> None:
        """Queues or index are removed, so that they are rebuilt."""
        topics = [QUEUES / topic for topic in self.disk.folders(QUEUES)]
        single = [topic / name for topic in topics for name in self.disk.folders(topic)]
        folders = self.random.choice(([QUEUES], [INDEX], [QUEUES, INDEX], single[:1] if self.trusting else [QUEUES]))
        for folder in folders:
            self.note(f"without {folder}")
            with self.disk.at_rest():
                self.disk.remove_folder(folder)

    def lose_small(self) -> None:
        for name in self.random.sample(("checkpoint", "kourou-clean.json"), 1):
            self.note(f"without {name}")
            with suppress(FileNotFoundError):
                self.disk.lose(ROOT / name)
        self.safe_ms = 0 if not self.trusting else self.safe_ms

    # ── The rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        store = self.open_after_crashes(self.disk, Random(f"rot {self.seed}"))
        if store is not None:
            self.note(f"{store.report}")
            with self.disk.at_rest():
                self.check_damaged(store)

    def check_image(self, disk: SimulatedDisk, random: Random) -> None:
        if self.whole is None:
            Run.check_image(self, disk, random)
            return
        self.checked += 1
        store = self.open_after_crashes(disk, random)
        if store is not None:
            self.check_damaged(store)

    def check_damaged(self, store: Store) -> None:
        if self.whole:
            check(store, self.model, self.model.safe)
        else:
            self.check_rest(store)

    def open_after_crashes(self, disk: SimulatedDisk, random: Random) -> Store | None:
        for _ in range(random.choice((0, 0, 1, 2))):
            disk.crash_at, disk.crash_after = disk.calls + random.randint(1, 12), random.random() < 0.5
            with suppress(SimulatedCrash, BadStoreError):
                self.open_on(disk)
            disk = disk.crash()
        disk.crash_at = None
        try:
            return self.open_on(disk)
        except BadStoreError as error:
            if not any(folder in str(error) for folder in ("/store/index/", "/store/config/")):
                raise
            return None  # a header of the index, or a table, makes no sense; the error says what to do

    def check_rest(self, store: Store) -> None:
        """Each undamaged record exists if it was durable, and is read as it was written."""
        for record in self.model.records:
            is_rotten = not self.rotten.isdisjoint(range(record.offset, record.end))
            if record.offset < max(store.log.start, self.model.gone) or is_rotten:
                continue
            if record.stored_ms < self.safe_ms and record.end <= self.model.safe:
                assert record.end <= store.log.end, f"the record at {record.offset} was safe, and is gone"
                assert store.log.read(record.offset, record.size) == self.image_of(record)
                # Of a topic that was removed and made again, the first record tells which of its lives is the last.
                if self.rotten and record.queue not in self.model.removed:
                    self.check_queue(store, record)
        self.check_reading(store)

    def check_queue(self, store: Store, record: Record) -> None:
        if record.queue_offset is not None:
            found = store.reader.get(*record.queue, record.queue_offset, 1).records
            assert found and found[0] == self.image_of(record), f"the record at {record.offset} is not in its queue"

    def check_reading(self, store: Store) -> None:
        """Whatever readers get are records that were written there, but for bits that no CRC covers."""
        for topic, queue_id in list(store.queues.names()):
            offset, end = store.reader.offsets(topic, queue_id)
            while offset < end:
                result = store.reader.get(topic, queue_id, offset, 32)
                for found in result.records:
                    self.check_record(found)
                if result.next_offset <= offset:
                    break
                offset = result.next_offset

    def check_record(self, found: memoryview) -> None:
        offset = int.from_bytes(found[28:36])
        wanted = self.model.image[offset : offset + len(found)]
        wrong = {offset + at for at in range(len(found)) if found[at] != wanted[at]}
        assert wrong <= self.rotten, f"the record at {offset} has other bytes"
        body_at = offset + 88 + (12 if found[39] & 0x10 else 0) + (12 if found[39] & 0x20 else 0)
        body = range(body_at, body_at + int.from_bytes(found[body_at - offset - 4 : body_at - offset]))
        assert wrong.isdisjoint(body), f"the record at {offset} has another body"

    def image_of(self, record: Record) -> bytes:
        return bytes(self.model.image[record.offset : record.end])


def files(disk: SimulatedDisk, folder: Path) -> Iterator[Path]:
    """All files below a folder."""
    for name in disk.files(folder):
        yield folder / name
    for name in disk.folders(folder):
        yield from files(disk, folder / name)
