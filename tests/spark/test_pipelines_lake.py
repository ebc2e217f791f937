"""Lakes and ledgers without Spark: their contents if a process dies at any time."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, strategies as st
from pyarrow import fs

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, arrow_schema
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.pipelines import ledger as ledgers
from kourou.spark.pipelines.choice import choice
from kourou.spark.pipelines.folders import ArrowFolder, DiskFolder, Folder, open_folder
from kourou.spark.pipelines.intervals import Interval, holds, merged, missing, runs, size
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.ledger import Commit, ConflictError, Ledger
from kourou.spark.pipelines.parquet_files import Coverage, PartitionedFiles, partition, split, write_files
from kourou.spark.pipelines.replay import hours_of, is_within, topics_of

# ── Intervals ───────────────────────────────────────────────────────────────────────────────────────────────────────

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair))))


def offsets(intervals: list[Interval]) -> set[int]:
    return {offset for start, end in intervals for offset in range(start, end)}


@given(INTERVALS)
def test_merged_intervals_are_the_same_offsets(intervals: list[Interval]) -> None:
    found = merged(intervals)
    assert offsets(found) == offsets(intervals)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    assert size(found) == len(offsets(intervals))
    assert runs(offsets(intervals)) == found
    assert [offset for offset in range(-1, 42) if holds(found, offset)] == sorted(offsets(intervals))


@given(INTERVALS, st.integers(0, 40), st.integers(0, 40))
def test_what_is_missing(intervals: list[Interval], start: int, end: int) -> None:
    found = missing(start, end, merged(intervals))
    assert offsets(found) == set(range(start, end)) - offsets(intervals)
    assert found == merged(found)


# ── Folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["disk", "arrow"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "disk":
        return DiskFolder(tmp_path / "root")
    (tmp_path / "root").mkdir()
    return ArrowFolder(fs.LocalFileSystem(), str(tmp_path / "root"), str(tmp_path / "root"))


def test_a_folder(folder: Folder) -> None:
    assert folder.names("nothing") == []
    folder.make("a/b")
    folder.write_new("a/b/one", b"1")
    with pytest.raises(FileExistsError):
        folder.write_new("a/b/one", b"2")
    assert folder.read("a/b/one") == b"1"
    assert folder.names("a/b") == ["one"]
    out = folder.output("a/b/two")
    out.write(b"22")
    out.close()
    folder.move("a/b/two", "c/d/two")
    assert not folder.exists("a/b/two") and folder.read("c/d/two") == b"22"
    with folder.lock("a/lock", wait=True):
        pass
    assert folder.size("c/d/two") == 2
    with folder.input("c/d/two") as file:
        file.seek(1)
        assert file.read() == b"2"
    with pytest.raises(FileNotFoundError):
        folder.size("c/d/none")
    folder.sync("c/d/two")
    folder.sync("c/d/none")
    folder.remove("a")
    folder.remove("a")
    folder.remove("c/d/two")
    assert folder.names("") == ["c"] and folder.names("c/d") == []


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    one, two = DiskFolder(tmp_path), DiskFolder(tmp_path)
    with one.lock("lock", wait=False), pytest.raises(BlockingIOError), two.lock("lock", wait=False):
        raise AssertionError("two have it")


def test_readers_share_a_lock(tmp_path: Path) -> None:
    one, two = DiskFolder(tmp_path), DiskFolder(tmp_path)
    with (
        one.lock("lock", wait=False, shared=True),
        two.lock("lock", wait=False, shared=True),
        pytest.raises(BlockingIOError),
        two.lock("lock", wait=False),
    ):
        raise AssertionError("a writer among readers")


def test_a_lock_whose_file_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waited for it gets a lock that excludes others, too."""
    import fcntl

    one, two = DiskFolder(tmp_path), DiskFolder(tmp_path)
    real = fcntl.flock
    removed: list[bool] = []

    def flock(descriptor: int, how: int) -> None:
        real(descriptor, how)
        if not removed:
            removed.append(True)
            (tmp_path / "lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with one.lock("lock", wait=True), pytest.raises(BlockingIOError), two.lock("lock", wait=False):
        raise AssertionError("two have it")
    assert removed


def test_two_folders_exchange_their_names(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path)
    for name in ("a", "b"):
        folder.make(name)
        folder.write_new(f"{name}/{name}", name.encode())
    folder.link("a/a", "b/c")
    folder.exchange("a", "b")
    assert (folder.names("a"), folder.names("b"), folder.read("a/c")) == (["b", "c"], ["a"], b"a")
    with pytest.raises(FileNotFoundError):
        folder.exchange("a", "none")


def test_where_folders_are(tmp_path: Path) -> None:
    assert open_folder(tmp_path).url == open_folder(f"file://{tmp_path}").url == str(tmp_path)
    with pytest.raises(OptionError, match="nosuch://"):
        open_folder("nosuch://bucket/lake")


# ── Ledgers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

QUEUE = MessageQueue("t", "b", 0)


def commit(start: int, end: int, **positions: int) -> Commit:
    return Commit(job="test", done={"t": {"b": {"0": [(start, end)]}}}, positions=positions)


def test_a_ledger_adds_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across snapshots, by the writer and by other processes."""
    monkeypatch.setattr(ledgers, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(ledgers, "KEPT", 3)
    shown: list[int] = []
    writer = Ledger(folder, "_state", show=lambda one: shown.append(one.number))
    writer.load()
    for number in range(11):
        written = writer.commit(commit(number * 10, number * 10 + 10, at=number))
        assert written.number == number + 1
        reader = Ledger(folder, "_state")
        reader.load()
        assert reader.done == writer.done == {QUEUE: [(0, number * 10 + 10)]}
        assert reader.positions == {"at": number}
    assert shown == list(range(1, 12))
    names = folder.names("_state/commits")
    assert [name for name in names if name.startswith("snapshot")] == ["snapshot-000000000008.json"]
    assert next(name for name in names if name[0].isdigit()) == "000000000006.json"


def test_nothing_is_done_twice(folder: Folder) -> None:
    one, two = Ledger(folder, "_state"), Ledger(folder, "_state")
    one.load()
    two.load()
    one.commit(commit(0, 10))
    with pytest.raises(ConflictError, match="messages 5 to 14 of topic t, broker b, queue 0 are already archived"):
        two.commit(commit(5, 15))
    two.commit(commit(10, 15))
    one.commit(commit(20, 30))
    assert one.done == {QUEUE: [(0, 15), (20, 30)]}


def test_a_damaged_or_missing_commit(folder: Folder) -> None:
    ledger = Ledger(folder, "_state")
    ledger.load()
    for number in range(3):
        ledger.commit(commit(number, number + 1))
    folder.remove("_state/commits/000000000002.json")
    with pytest.raises(SparkError, match=r"000000000002.json is missing"):
        Ledger(folder, "_state").load()
    folder.write_new("_state/commits/000000000002.json", b'{"job": ')
    with pytest.raises(SparkError, match=r"000000000002.json is damaged"):
        Ledger(folder, "_state").load()


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────────

HOUR_US = 3_600_000_000
START_US = 1_769_835_600_000_000  # 2026-01-31T05:00:00Z


def rows(places: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    """Of (topic, queue, offset, hours since the start)."""
    columns: dict[str, list[Any]] = {name: [None] * len(places) for name in COLUMNS}
    columns["topic"] = [place[0] for place in places]
    columns["broker"] = ["b"] * len(places)
    columns["queue_id"] = [place[1] for place in places]
    columns["queue_offset"] = [place[2] for place in places]
    columns["store_timestamp"] = [START_US + place[3] * HOUR_US for place in places]
    columns["store_size"] = [100] * len(places)
    columns["properties"] = [[("n", str(place[2]))] for place in places]
    columns["body"] = [b"x" * 10] * len(places)
    schema = arrow_schema(COLUMNS)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def test_rows_by_topic_and_hour() -> None:
    batch = rows([("a", 0, 1, 0), ("b", 0, 2, 0), ("a", 0, 3, 1), ("a", 1, 4, 0)])
    hour = START_US // HOUR_US
    found = {key: part.column("queue_offset").to_pylist() for key, part in split(batch)}
    assert found == {("a", hour): [1, 4], ("b", hour): [2], ("a", hour + 1): [3]}
    assert list(split(batch.slice(0, 0))) == []
    [(key, part)] = split(batch.slice(0, 1))
    assert key == ("a", hour) and part.schema.names == [name for name in COLUMNS if name != "topic"]


def test_paths_that_every_reader_understands() -> None:
    hour = START_US // HOUR_US
    assert partition("orders", hour) == "topic=orders/date=2026-01-31/hour=05"
    assert partition("t", -5) == "topic=t/date=1970-01-01/hour=00"
    assert partition("t", 2**62) == "topic=t/date=9999-12-31/hour=23"
    assert partition("%DLQ%a|b", hour) == "topic=%25DLQ%25a%7Cb/date=2026-01-31/hour=05"


def test_many_topics_take_few_files_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kourou.spark.pipelines import parquet_files

    monkeypatch.setattr(parquet_files, "FILES_MAX", 3)
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 5)
    folder = DiskFolder(tmp_path)
    folder.make("staged")
    files = PartitionedFiles(folder, "staged")
    for number in range(10):
        files.write(rows([(f"t{at}", 0, number, 0) for at in range(5)]))
    done = files.close()
    assert sum(file.rows for file in done) == 50
    assert len(done) > 5
    assert all((tmp_path / file.name).stat().st_size == file.bytes for file in done)
    assert all(file.name.endswith(".staged") for file in done)


def test_what_is_known_is_left_out(tmp_path: Path) -> None:
    DiskFolder(tmp_path).make("staged")
    coverage = Coverage("b", [("a", 0, [(0, 3), (5, 6)])])
    batch = rows([("a", 0, number, 0) for number in range(8)] + [("a", 1, 0, 0)])
    written = write_files(iter([batch]), str(tmp_path), "staged", coverage)
    assert (written.read, written.known, written.read_bytes) == (9, 4, 900)
    assert written.done == {MessageQueue("a", "b", 0): [(3, 5), (6, 8)], MessageQueue("a", "b", 1): [(0, 1)]}
    with pytest.raises(SparkError, match="twice"):
        write_files(iter([rows([("a", 1, 5, 0), ("a", 1, 5, 0)])]), str(tmp_path), "staged", coverage)


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="can't be written to"):
        write_files(iter([rows([("a", 0, 0, 0)])]), str(tmp_path), "nowhere")


# ── A run that dies ─────────────────────────────────────────────────────────────────────────────────────────────────


class Crash(BaseException):
    """The process is gone; nothing runs behind this."""


class Mortal:
    """A folder for a process that dies before or behind its n-th change."""

    def __init__(self, inner: Folder, dies_at: int | None) -> None:
        self._inner = inner
        self._dies_at = dies_at
        self.changes = 0

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        for moment in ("before", "behind"):
            if moment == "behind":
                yield
            if self._dies_at == self.changes:
                raise Crash(moment)
            self.changes += 1

    @property
    def url(self) -> str:
        return self._inner.url

    def names(self, below: str) -> list[str]:
        return self._inner.names(below)

    def exists(self, name: str) -> bool:
        return self._inner.exists(name)

    def size(self, name: str) -> int:
        return self._inner.size(name)

    def input(self, name: str) -> Any:
        return self._inner.input(name)

    def sync(self, name: str) -> None:
        self._inner.sync(name)

    def link(self, name: str, to: str) -> None:
        with self._change():
            self._inner.link(name, to)

    def exchange(self, name: str, other: str) -> None:
        with self._change():
            self._inner.exchange(name, other)

    def read(self, name: str) -> bytes:
        return self._inner.read(name)

    def write_new(self, name: str, data: bytes) -> None:
        with self._change():
            self._inner.write_new(name, data)

    def output(self, name: str) -> Any:
        with contextlib.ExitStack() as opened:
            with self._change():
                out = opened.enter_context(contextlib.closing(self._inner.output(name)))
            opened.pop_all()
            return out

    def make(self, name: str) -> None:
        with self._change():
            self._inner.make(name)

    def move(self, name: str, to: str) -> None:
        with self._change():
            self._inner.move(name, to)

    def remove(self, name: str) -> None:
        with self._change():
            self._inner.remove(name)

    def lock(self, name: str, *, wait: bool, shared: bool = False) -> Any:
        return self._inner.lock(name, wait=wait, shared=shared)


SOURCE = {MessageQueue("a", "b", 0): 7, MessageQueue("a", "b", 1): 4, MessageQueue("%c", "b", 0): 5}
"""Queues and where they end."""


def archive_once(folder: Folder, batch_rows: int = 3, form: str | None = None) -> None:
    """The work of the pipeline, with one task and without Spark: some rows of each queue at a time."""
    with Lake("", "test", folder, form=form) as lake:
        while True:
            pieces: dict[MessageQueue, list[Interval]] = {}
            for queue, end in SOURCE.items():
                left = missing(0, end, lake.done.get(queue, ()))
                if left:
                    pieces[queue] = [(left[0][0], min(left[0][1], left[0][0] + batch_rows))]
            if not pieces:
                return
            files = PartitionedFiles(folder, lake.staged)
            try:
                for queue, [(start, end)] in pieces.items():
                    files.write(rows([(queue.topic, queue.queue_id, at, at // 2) for at in range(start, end)]))
                staged = files.close()
            finally:
                files.abandon()  # what the end of a process does to open files
            lake.add(staged, pieces)


def seen(root: Path) -> list[tuple[str, int, int]]:
    """By a reader that lists the folder."""
    dataset = ds.dataset(root, partitioning="hive", format="parquet")
    table = dataset.to_table(columns=["topic", "queue_id", "queue_offset"]) if dataset.files else pa.table({})
    return sorted((r["topic"], r["queue_id"], r["queue_offset"]) for r in table.to_pylist())


WHOLE = sorted((queue.topic, queue.queue_id, at) for queue, end in SOURCE.items() for at in range(end))


@pytest.mark.slow
def test_a_run_that_dies_at_any_moment(tmp_path: Path) -> None:
    """Before and after every change to the folder. No reader sees a message twice, and the next run completes it."""
    for dies_at in itertools.count():
        root = tmp_path / str(dies_at)
        root.mkdir()
        mortal = Mortal(DiskFolder(root), dies_at)
        try:
            archive_once(mortal)
        except Crash:
            here = seen(root)
            assert len(here) == len(set(here))
        else:
            break
        archive_once(DiskFolder(root))
        assert seen(root) == WHOLE, f"dead at change {dies_at}"
        assert [path.name for path in (root / "_kourou" / "staged").iterdir()] == []
    assert dies_at > 40


def test_runs_that_die_one_after_the_other(tmp_path: Path) -> None:
    """Each a little later than the one before, in the same lake, until one gets through."""
    for dies_at in itertools.count(1, 2):
        try:
            archive_once(Mortal(DiskFolder(tmp_path), dies_at), batch_rows=2)
        except Crash:
            here = seen(tmp_path)
            assert len(here) == len(set(here))
        else:
            break
    assert seen(tmp_path) == WHOLE


def test_files_that_look_half_done_are_not_seen(tmp_path: Path) -> None:
    """Globs and recursive readers see no file that is not committed."""
    mortal = Mortal(DiskFolder(tmp_path), None)

    def die() -> None:
        with Lake("", "test", mortal) as lake:
            files = PartitionedFiles(mortal, lake.staged)
            files.write(rows([("a", 0, 0, 0)]))
            files.close()
            raise Crash

    with pytest.raises(Crash):
        die()
    assert seen(tmp_path) == []
    assert list(tmp_path.glob("**/*.parquet")) == []
    assert len(list(tmp_path.glob("**/*.staged"))) == 1
    archive_once(DiskFolder(tmp_path))
    assert list(tmp_path.glob("**/*.staged")) == []


def test_two_runs_at_a_time(tmp_path: Path) -> None:
    """The slower one is refused, its files are never shown, and those of the quicker one stay."""
    folder = DiskFolder(tmp_path)
    queue = MessageQueue("a", "b", 0)
    with Lake("", "test", folder) as one, Lake("", "test", folder) as two:
        for lake in (one, two):
            files = PartitionedFiles(folder, lake.staged)
            files.write(rows([("a", 0, 0, 0)]))
            staged = files.close()
            if lake is one:
                one.add(staged, {queue: [(0, 1)]})
            else:
                with pytest.raises(ConflictError):
                    two.add(staged, {queue: [(0, 1)]})
    assert seen(tmp_path) == [("a", 0, 0)]


def test_the_hours_of_a_lake(tmp_path: Path) -> None:
    archive_once(DiskFolder(tmp_path))
    folder = open_folder(tmp_path)
    assert topics_of(folder) == ["%c", "a"]
    hours = hours_of(folder, "a")
    assert hours == [("2026-01-31", 5 + number) for number in range(4)]
    assert hours_of(folder, "%c") == hours[:3]
    some = choice(since="2026-01-31T06:30:00Z", until="2026-01-31T08:00:00Z")
    assert [hour for hour in hours if is_within(hour, some)] == [("2026-01-31", 6), ("2026-01-31", 7)]
    assert all(is_within(hour, choice()) for hour in hours)


def test_a_choice_that_makes_no_sense() -> None:
    with pytest.raises(OptionError, match="option since must be milliseconds since 1970 or a time such as"):
        choice(since="yesterday")
    with pytest.raises(OptionError, match="since is later than until"):
        choice(since="2026-02-01", until="2026-01-01")
