"""A life of a lake: writers, compactions and readers, all of whom may be killed at any step, and what must be true.

At any time, whoever reads the lake sees no row twice, none that is not committed, and all that are committed but for
those of the newest commit. When all processes are dead, opening the lake shows exactly what is committed. When a last
writer has archived the rest, the lake has every row of the topics once, as it was, and no leftovers.
"""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, arrow_schema
from kourou.spark.pipelines import lake as lakes, ledger as ledgers
from kourou.spark.pipelines.compact import replace
from kourou.spark.pipelines.intervals import Interval, missing
from kourou.spark.pipelines.lake import Lake, reading
from kourou.spark.pipelines.ledger import Commit, ConflictError, from_nested_done
from kourou.spark.pipelines.merging import MergeTask, plan
from kourou.spark.pipelines.parquet_files import PartitionedFiles

from .lake_world import Process, SimulatedFolder, SimulatedLog, World

HOUR_US = 3_600_000_000
START_US = 1_769_835_600_000_000  # 2026-01-31T05:00:00Z
TOPICS = ("orders", "%DLQ%a b", "x")

Place = tuple[str, int, int]
"""Topic, queue, offset."""


def row(place: Place) -> dict[str, Any]:
    """The messages of the topic in this range."""
    topic, queue, offset = place
    stored = datetime.fromtimestamp((START_US + (offset // 7) * HOUR_US + offset) / 1e6, UTC)
    made: dict[str, Any] = dict.fromkeys(COLUMNS)
    return made | {
        "topic": topic,
        "queue_id": queue,
        "queue_offset": offset,
        "broker": "b",
        "store_timestamp": stored,
        "born_timestamp": stored,
        "store_size": 100 + offset,
        "commit_log_offset": offset * 1000 + queue,
        "properties": [("at", str(offset))],
        "body": f"{topic}/{queue}/{offset}".encode(),
    }


def batch_of(places: list[Place]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(place) for place in places], schema=arrow_schema(COLUMNS))


class _Clock:
    """Time that only the world moves."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self, zone: tzinfo) -> datetime:
        return datetime(2026, 2, 1, tzinfo=zone) + timedelta(milliseconds=7 * self._world.steps)


class LakeRun:
    """One seed."""

    def __init__(self, seed: int, *, writers: int = 2, compactions: int = 0, form: str = "parquet") -> None:
        self.seed = seed
        self._writers, self._compactions, self._form = writers, compactions, form
        shm = Path("/dev/shm")
        base = shm if shm.is_dir() and os.access(shm, os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="kourou-lake-", dir=base))
        self.world = World(self.root, seed)
        self.world.on_commit = self._note_commit
        self.random = self.world.random
        self.commits: list[Commit] = []
        self.committed: set[Place] = set()
        self.checks = 0
        self.conflicts = 0
        self.merged = 0
        self._known: dict[str, list[Place]] = {}  # of visible files
        self.topics = {
            MessageQueue(topic, "b", queue): self.random.randint(5, 25) for topic in TOPICS for queue in range(2)
        }

    @property
    def kills(self) -> Counter[str]:
        return self.world.kills

    @property
    def trace(self) -> list[str]:
        return self.world.trace

    def run(self) -> None:
        patches = (
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=self.random.getrandbits(128))),
            patch.object(lakes, "datetime", _Clock(self.world)),
            patch.object(ledgers, "SNAPSHOT_EVERY", self.random.choice((3, 5, 64))),
            patch.object(ledgers, "KEPT", self.random.choice((1, 4, 256))),
        )
        for one in patches:
            one.start()
        try:
            self._live()
            self._end()
        finally:
            self.world.finish()
            for one in patches:
                one.stop()
            shutil.rmtree(self.root, ignore_errors=True)

    def _live(self) -> None:
        """All processes, one at a time; a process that dies is started again for some time."""
        world = self.world
        world.kill_ratio = self.random.choice((0.01, 0.03, 0.08))
        roles = [self._write] * self._writers + [self._compact] * self._compactions
        if self._compactions:
            roles.append(self._read)
        lives = 4 * len(roles)
        here: dict[int, Process] = {}
        while True:
            for at, role in enumerate(roles):
                if (at not in here or here[at].is_over) and lives > 0:
                    lives -= 1
                    here[at] = world.start(f"{role.__name__.strip('_')}-{at}-{lives}", role)
            if not world.step():
                break
            if self.random.random() < 0.02:
                self._check()
            if self._form == "delta" and self._compactions and self.random.random() < 0.002:
                self._optimize()
        self._check()

    # ── What processes do ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, process: Process) -> Lake:
        log = SimulatedLog(process) if self._form == "delta" else None
        return Lake("", "archive", SimulatedFolder(process), form=self._form, log=log)

    def _write(self, process: Process) -> None:
        """The work of the pipeline, with one task and without Spark."""
        with self._open(process) as lake:
            for _ in range(self.random.randint(1, 6)):
                pieces = self._choose(lake)
                if not pieces:
                    return
                self._add(lake, SimulatedFolder(process), pieces)

    def _choose(self, lake: Lake) -> dict[MessageQueue, list[Interval]]:
        pieces: dict[MessageQueue, list[Interval]] = {}
        for queue in self.random.sample(sorted(self.topics), self.random.randint(1, 3)):
            left = missing(0, self.topics[queue], lake.done.get(queue, ()))
            if left:
                start, end = left[0]
                pieces[queue] = [(start, min(end, start + self.random.randint(1, 9)))]
        return pieces

    def _add(self, lake: Lake, folder: Any, pieces: dict[MessageQueue, list[Interval]]) -> None:
        files = PartitionedFiles(folder, lake.staged)
        try:
            for queue, intervals in pieces.items():
                files.write(batch_of([(queue.topic, queue.queue_id, at) for a, b in intervals for at in range(a, b)]))
            staged = files.close()
        finally:
            files.abandon()  # what the end of a process does to open files
        try:
            lake.add(staged, pieces)
        except ConflictError:
            self.conflicts += 1

    def _compact(self, process: Process) -> None:
        """Without the lock that keeps a second one out: that is a courtesy, and nothing depends on it."""
        folder = SimulatedFolder(process)
        with self._open(process) as lake:
            for _ in range(self.random.randint(1, 4)):
                lake.files.check_replacing()
                try:
                    merges = plan(lake.files.visible(), self.random.choice((20_000, 1_000_000)))
                except FileNotFoundError:
                    continue  # exchanged between listing and asking for the size
                self.random.shuffle(merges)
                task = MergeTask(lake.url, lake.staged)
                found = [task(merge, folder) for merge in merges[: self.random.randint(1, 3)]]
                with contextlib.suppress(BlockingIOError):  # a reader is there
                    self.merged += len(replace(lake, [one for one in found if one is not None]))

    def _read(self, process: Process) -> None:
        """One of Kourou's readers: the files that it has listed are kept while it reads."""
        folder = SimulatedFolder(process)
        with reading("", folder):
            if self._form == "parquet":
                here = self._listed()
                for _ in range(self.random.randint(1, 40)):
                    process.pause()
                assert set(here) <= set(self._listed()), "files vanished while they were read"

    def _optimize(self) -> None:
        """Another engine compacts the table."""
        from deltalake import DeltaTable

        if DeltaTable.is_deltatable(str(self.root)):
            self.trace.append("another engine compacts")
            DeltaTable(str(self.root)).optimize.compact()

    # ── Invariants ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _note_commit(self, name: str, data: bytes) -> None:
        if not name.startswith("_kourou/commits/0"):
            return
        commit = msgspec.json.decode(data, type=Commit)
        assert commit.number == len(self.commits) + 1
        self.commits.append(commit)
        added = self._places(commit)
        assert not added & self.committed, "committed twice"
        self.committed |= added

    @staticmethod
    def _places(commit: Commit) -> set[Place]:
        return {
            (queue.topic, queue.queue_id, at)
            for queue, intervals in from_nested_done(commit.done).items()
            for start, end in intervals
            for at in range(start, end)
        }

    def _listed(self) -> list[str]:
        """The files for a reader that only lists the folders of the lake."""
        return sorted(
            str(path.relative_to(self.root))
            for place in self.root.glob("topic=*/date=*/hour=*")
            for path in place.iterdir()
            if path.name.endswith(".parquet")
        )

    def _files(self) -> list[str]:
        if self._form == "parquet":
            return self._listed()
        from deltalake import DeltaTable

        table = str(self.root)
        uris = DeltaTable(table).file_uris() if DeltaTable.is_deltatable(table) else []
        return [str(Path(uri).relative_to(self.root)) for uri in uris]

    def _visible(self) -> Counter[Place]:
        seen: Counter[Place] = Counter()
        for path in self._files():
            if path not in self._known:
                table = pq.ParquetFile(self.root / path).read(columns=["queue_id", "queue_offset", "body"])
                places = [tuple(bytes(body).decode().rsplit("/", 2)) for body in table["body"].to_pylist()]
                self._known[path] = [(topic, int(queue), int(offset)) for topic, queue, offset in places]
            seen.update(self._known[path])
        return seen

    def _check(self, *, exactly: bool = False) -> None:
        self.checks += 1
        seen = self._visible()
        twice = [place for place, count in seen.items() if count > 1]
        assert not twice, f"seen twice: {twice}"
        here = set(seen)
        assert here <= self.committed, f"not committed: {sorted(here - self.committed)}"
        newest = self._places(self.commits[-1]) if self.commits and not exactly else set()
        assert self.committed - newest <= here, f"lost: {sorted(self.committed - newest - here)}"
        if self._form == "delta":
            assert here >= self.committed or not here & newest, "a part of a batch shows"

    def _end(self) -> None:
        self.world.kill_ratio = 0.0
        self._finish(lambda process: self._open(process).__enter__().__exit__(None, None, None))
        self._check(exactly=True)
        self._finish(self._archive_rest)
        assert self.committed == {
            (queue.topic, queue.queue_id, at) for queue, end in self.topics.items() for at in range(end)
        }
        self._check(exactly=True)
        self._compare()
        if self._compactions:
            self._finish(self._compact_all)
            self._check(exactly=True)
            self._compare()
        assert os.listdir(self.root / "_kourou" / "staged") == []
        names = {name for name in os.listdir(self.root / "_kourou") if not name.startswith(".")}
        assert names <= KNOWN_NAMES

    def _finish(self, work: Any) -> None:
        self.world.start("last", work)
        while self.world.step():
            pass

    def _archive_rest(self, process: Process) -> None:
        with self._open(process) as lake:
            left = {queue: missing(0, end, lake.done.get(queue, ())) for queue, end in self.topics.items()}
            self._add(lake, SimulatedFolder(process), {queue: pieces for queue, pieces in left.items() if pieces})

    def _compact_all(self, process: Process) -> None:
        folder = SimulatedFolder(process)
        with self._open(process) as lake:
            merges = plan(lake.files.visible(), 1_000_000)
            found = [MergeTask(lake.url, lake.staged)(merge, folder) for merge in merges]
            replace(lake, [one for one in found if one is not None])
            assert plan(lake.files.visible(), 1_000_000) == []

    def _compare(self) -> None:
        """Row by row, in all columns, as readers of such tables read them."""
        if self._form == "delta":
            from deltalake import DeltaTable

            table = DeltaTable(str(self.root)).to_pyarrow_table()
        else:
            part = ds.partitioning(
                pa.schema([("topic", pa.string()), ("date", pa.date32()), ("hour", pa.int32())]), flavor="hive"
            )
            table = ds.dataset(self.root, partitioning=part, format="parquet").to_table()
        found = sorted(table.select(list(COLUMNS)).to_pylist(), key=_key)
        wanted = sorted((row(place) for place in self.committed), key=_key)
        assert found == wanted
        hours = {(str(r["date"]), r["hour"], r["store_timestamp"].strftime("%Y-%m-%d%H")) for r in table.to_pylist()}
        assert all(f"{date}{hour:02d}" == stored for date, hour, stored in hours)


KNOWN_NAMES = {"commits", "staged", "lock", "format", "readers.lock"}


def _key(one: dict[str, Any]) -> Place:
    return one["topic"], one["queue_id"], one["queue_offset"]
