"""Several writers on a lake, compaction, and lakes in Delta's format; without Spark."""

import itertools
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.pipelines.compact import replace
from kourou.spark.pipelines.delta import DeltaFiles, DeltaLog
from kourou.spark.pipelines.folders import ArrowFolder, DiskFolder, Folder
from kourou.spark.pipelines.lake import Lake, format_of, reading
from kourou.spark.pipelines.lake_files import LakeFile, place_of
from kourou.spark.pipelines.merging import Merge, MergeTask, plan
from kourou.spark.pipelines.parquet_files import PartitionedFiles, StagedFile

from .test_pipelines_lake import WHOLE, Crash, Mortal, archive_once, rows, seen

QUEUES = {name: MessageQueue(name, "b", 0) for name in ("a", "b", "c")}


def stage(lake: Lake, folder: Folder, topic: str, start: int, end: int) -> list[StagedFile]:
    files = PartitionedFiles(folder, lake.staged)
    try:
        files.write(rows([(topic, 0, at, 0) for at in range(start, end)]))
        return files.close()
    finally:
        files.abandon()


def add(lake: Lake, folder: Folder, topic: str, start: int, end: int) -> None:
    lake.add(stage(lake, folder, topic, start, end), {QUEUES[topic]: [(start, end)]})


def places(topic: str, count: int) -> list[tuple[str, int, int]]:
    return [(topic, 0, at) for at in range(count)]


def in_delta(root: Path) -> list[tuple[str, int, int]]:
    table = DeltaTable(str(root)).to_pyarrow_table(columns=["topic", "queue_id", "queue_offset"])
    return sorted((r["topic"], r["queue_id"], r["queue_offset"]) for r in table.to_pylist())


def compact_once(folder: Folder) -> int:
    """The work of the pipeline, without Spark. Returns how many files were merged."""
    with Lake("", "compact", folder) as lake:
        merges = plan(lake.files.visible(), 1_000_000)
        if merges:
            lake.files.check_replacing()
        found = [MergeTask(lake.url, lake.staged)(merge, folder) for merge in merges]
        return sum(len(one.paths) for one in replace(lake, [one for one in found if one is not None]))


# ── Several writers ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_of_a_dead_run_is_shown_by_the_other_that_is_open(tmp_path: Path) -> None:
    """One run dies at any moment of its commit; the other, opened before, commits; then a process opens the lake."""
    for dies_at in itertools.count():
        root = tmp_path / str(dies_at)
        folder, mortal = DiskFolder(root), Mortal(DiskFolder(root), None)
        one, two = Lake("", "test", mortal).__enter__(), Lake("", "test", folder).__enter__()
        staged = stage(one, mortal, "a", 0, 5)
        mortal._dies_at = mortal.changes + dies_at
        is_dead = False
        try:
            one.add(staged, {QUEUES["a"]: [(0, 5)]})
        except Crash:
            is_dead = True
        one._holding.close()  # a dead process has no locks, and tidies nothing up
        add(two, folder, "b", 0, 3)
        assert set(places("b", 3)) <= set(seen(root))
        two.__exit__(None, None, None)
        with Lake("", "test", folder) as last:
            counted = [(queue.topic, 0, at) for queue, [(a, b)] in last.done.items() for at in range(a, b)]
        assert seen(root) == sorted(counted), f"dead at change {dies_at}"
        if not is_dead:
            break
    assert dies_at > 3
    assert len(counted) == 8


def test_files_that_could_not_be_shown_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when a committed file is moved: the run ends with an error, and the next one shows it."""
    folder = DiskFolder(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def run() -> None:
        with Lake("", "test", folder) as lake:
            monkeypatch.setattr(DiskFolder, "move", full)
            add(lake, folder, "a", 0, 5)

    with pytest.raises(OSError, match="No space left"):
        run()
    monkeypatch.undo()
    assert seen(tmp_path) == []
    with Lake("", "test", folder) as lake:
        assert lake.done == {QUEUES["a"]: [(0, 5)]}
    assert seen(tmp_path) == places("a", 5)


def test_a_run_that_was_taken_for_dead_is_told(tmp_path: Path) -> None:
    """Where there are no locks, the files of a run may be thrown away. It must not commit them then."""
    folder = DiskFolder(tmp_path)
    with Lake("", "test", folder) as lake:
        staged = stage(lake, folder, "a", 0, 5)
        folder.remove(lake.staged)
        with pytest.raises(SparkError, match="another run considered this run dead"):
            lake.add(staged, {QUEUES["a"]: [(0, 5)]})
        assert lake.done == {}


def test_a_commit_that_an_earlier_version_never_showed(tmp_path: Path) -> None:
    """Its files lie in the folder of a dead run; they are shown before that is thrown away."""
    folder = DiskFolder(tmp_path)
    with Lake("", "test", folder) as lake:
        add(lake, folder, "a", 0, 5)
        add(lake, folder, "b", 0, 3)
    commit = json.loads(folder.read("_kourou/commits/000000000001.json"))
    [file] = commit["files"]
    folder.make(file["staged"].rpartition("/")[0])
    folder.move(file["path"], file["staged"])
    folder.write_new(f"{file['staged'].rpartition('/')[0]}.lock", b"")
    folder.remove("_kourou/format")
    assert seen(tmp_path) == places("b", 3)
    with Lake("", "test", folder):
        pass
    assert seen(tmp_path) == places("a", 5) + places("b", 3)
    assert folder.names("_kourou/staged") == []


def test_torn_commits_are_tidied_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kourou.spark.pipelines import ledger

    monkeypatch.setattr(ledger, "SNAPSHOT_EVERY", 2)
    folder = DiskFolder(tmp_path)
    with Lake("", "test", folder) as lake:
        (tmp_path / "_kourou" / "commits" / ".000000000001.json.0123").write_bytes(b"{")
        add(lake, folder, "a", 0, 5)
        add(lake, folder, "a", 5, 6)
    assert [name for name in folder.names("_kourou/commits") if name.startswith(".")] == []


# ── Compaction ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_merged() -> None:
    def file(hour: int, number: int, size: int, topic: str = "a") -> LakeFile:
        return LakeFile(f"topic={topic}/date=2026-01-31/hour={hour:02d}/{number}", size)

    files = [
        file(0, 0, 40),
        file(0, 1, 30),
        file(0, 2, 50),
        file(0, 3, 40),
        file(1, 4, 1),
        file(2, 5, 1),
        file(2, 6, 1),
    ]
    assert [[path[-1] for path in merge.paths] for merge in plan(files, 100)] == [["0", "1"], ["5", "6"]]
    assert plan(files[:3], 100)[0].bytes == 70
    others = [file(0, 7, 1, "%25b"), file(0, 8, 1, "%25b")]
    assert [merge.paths[0][-1] for merge in plan([*files, *others], 100, frozenset(["%b"]))] == ["7"]
    assert plan([], 100) == []
    assert place_of(others[0].path).topic == "%b"
    assert place_of(rows_path := "topic=a/date=2026-01-31/hour=05/x").hours == 1_769_835_600 // 3600, rows_path


def test_a_compacted_lake_has_the_same_rows(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path)
    archive_once(folder, batch_rows=1)
    before = len(list(tmp_path.glob("topic=*/**/*.parquet")))
    assert seen(tmp_path) == WHOLE
    assert compact_once(folder) > 4
    after = list(tmp_path.glob("topic=*/**/*.parquet"))
    assert len(after) < before and len({path.parent for path in after}) == len(after)
    assert seen(tmp_path) == WHOLE
    assert compact_once(folder) == 0
    archive_once(folder)
    assert seen(tmp_path) == WHOLE
    assert folder.names("_kourou/staged") == []
    assert [path.name for path in tmp_path.glob("topic=*/**/*.staged")] == []


@pytest.mark.slow
def test_a_compaction_that_dies_at_any_moment(tmp_path: Path) -> None:
    """A reader sees each row once then, and when the next run has opened the lake."""
    for dies_at in itertools.count():
        root = tmp_path / str(dies_at)
        archive_once(DiskFolder(root), batch_rows=3)
        mortal = Mortal(DiskFolder(root), dies_at)
        try:
            compact_once(mortal)
        except Crash:
            assert seen(root) == WHOLE, f"dead at change {dies_at}"
        else:
            break
        with Lake("", "test", DiskFolder(root)):
            assert seen(root) == WHOLE, f"opened after the death at change {dies_at}"
        assert DiskFolder(root).names("_kourou/staged") == []
    assert dies_at > 30


def test_other_files_of_an_hour_stay(tmp_path: Path) -> None:
    """Files that are large, or that other programs wrote."""
    folder = DiskFolder(tmp_path)
    archive_once(folder, batch_rows=1)
    place = next(tmp_path.glob("topic=a/date=*/hour=05"))
    (place / "_SUCCESS").write_bytes(b"mine")
    compact_once(folder)
    assert (place / "_SUCCESS").read_bytes() == b"mine"


def test_a_deleted_date_does_not_come_back(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path)
    archive_once(folder, batch_rows=1)
    with Lake("", "compact", folder) as lake:
        found = [MergeTask(lake.url, lake.staged)(merge) for merge in plan(lake.files.visible(), 1_000_000)]
        folder.remove("topic=a")
        assert MergeTask(lake.url, lake.staged)(Merge(["topic=a/date=2026-01-31/hour=05/x.parquet"], 1)) is None
        replace(lake, [one for one in found if one is not None])
    assert {topic for topic, *_ in seen(tmp_path)} == {"%c"}


def test_a_reader_of_ours_keeps_its_files(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path)
    archive_once(folder, batch_rows=1)
    with reading(tmp_path), pytest.raises(BlockingIOError):
        compact_once(folder)
    assert compact_once(folder)
    with reading(tmp_path / "none"):
        assert not (tmp_path / "none").exists()


def test_a_place_without_folders_that_can_be_exchanged(tmp_path: Path) -> None:
    folder = ArrowFolder(fs.LocalFileSystem(), str(tmp_path), str(tmp_path))
    archive_once(folder, batch_rows=1)
    with pytest.raises(OptionError, match="use --format delta"):
        compact_once(folder)
    assert seen(tmp_path) == WHOLE
    with pytest.raises(OptionError, match="has no hard links"):
        folder.link("a", "b")


# ── Delta ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["disk", "arrow"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "disk":
        return DiskFolder(tmp_path)
    return ArrowFolder(fs.LocalFileSystem(), str(tmp_path), str(tmp_path))


def test_a_delta_lake(folder: Folder, tmp_path: Path) -> None:
    """With unchanged rows, statistics for skipping, and the earlier files."""
    archive_once(folder, form="delta")
    assert in_delta(tmp_path) == WHOLE
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == ["topic", "date", "hour"]
    rows_read = table.to_pyarrow_table()
    assert rows_read.schema.names == [*COLUMNS, "date", "hour"]
    assert dict(rows_read["properties"][0].as_py()) == {"n": str(rows_read["queue_offset"][0])}
    few = table.to_pyarrow_dataset().to_table(filter=pa.compute.field("queue_offset") >= 6)
    assert few["queue_offset"].to_pylist() == [6]
    actions = pa.table(table.get_add_actions(flatten=True))
    assert {"num_records", "min.queue_offset", "max.store_timestamp"} <= set(actions.column_names)
    assert sum(actions["num_records"].to_pylist()) == len(WHOLE)
    versions = []
    for version in range(1, table.version() + 1):
        table.load_as_version(version)
        versions.append(table.to_pyarrow_table().num_rows)
    assert versions == [9, 15, 16]
    archive_once(folder)
    assert in_delta(tmp_path) == WHOLE
    assert format_of(folder) == "delta"


def test_a_compacted_delta_lake(folder: Folder, tmp_path: Path) -> None:
    archive_once(folder, batch_rows=1, form="delta")
    before = DeltaTable(str(tmp_path))
    assert compact_once(folder) > 4
    after = DeltaTable(str(tmp_path))
    assert len(after.file_uris()) < len(before.file_uris())
    assert in_delta(tmp_path) == WHOLE
    assert before.to_pyarrow_table().num_rows == len(WHOLE)  # the old files are there
    after.load_as_version(before.version())
    assert after.to_pyarrow_table().num_rows == len(WHOLE)
    with Lake("", "test", folder) as lake:
        assert isinstance(lake.files, DeltaFiles)
        assert lake.files.vacuum(timedelta(hours=1)) == 0
        assert lake.files.vacuum(timedelta(0)) > 4
    assert in_delta(tmp_path) == WHOLE
    archive_once(folder)
    assert in_delta(tmp_path) == WHOLE


@pytest.mark.slow
def test_a_delta_lake_whose_run_dies_at_any_moment(tmp_path: Path) -> None:
    for dies_at in itertools.count():
        root = tmp_path / str(dies_at)
        try:
            archive_once(Mortal(DiskFolder(root), dies_at), batch_rows=5, form="delta")
        except Crash:
            pass
        else:
            break
        archive_once(DiskFolder(root), form="delta")
        assert in_delta(root) == WHOLE, f"dead at change {dies_at}"
    assert dies_at > 20


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    """Also by two runs at the same time, on a file system without locks."""
    folder = DiskFolder(tmp_path)
    archive_once(folder, form="delta")
    one, two = DeltaLog(str(tmp_path)), DeltaLog(str(tmp_path))
    number = one.number()
    [path] = list(DeltaTable(str(tmp_path)).file_uris())[:1]
    file = Path(path)
    (tmp_path / "topic=new" / "date=2026-01-31" / "hour=05").mkdir(parents=True)
    name = "topic=new/date=2026-01-31/hour=05/000000000009-00000-0123456789ab.parquet"
    (tmp_path / name).write_bytes(file.read_bytes())
    from kourou.spark.pipelines.ledger import CommittedFile

    added = [CommittedFile("", name, 3, file.stat().st_size)]
    assert two.number() == number
    one.enter(number + 1, added)
    version = DeltaTable(str(tmp_path)).version()
    two.enter(number + 1, added)
    assert DeltaTable(str(tmp_path)).version() == version


def test_an_entry_that_another_engine_is_quicker_than(tmp_path: Path) -> None:
    """It has replaced the files that a compaction, which is committed already, was to replace."""
    folder = DiskFolder(tmp_path)
    archive_once(folder, batch_rows=1, form="delta")

    class Late(DeltaLog):
        def _enter(self, number: int, files: Any) -> None:
            DeltaTable(self._url).optimize.compact()
            super()._enter(number, files)

    with Lake("", "compact", folder, log=Late(str(tmp_path))) as lake:
        found = [MergeTask(lake.url, lake.staged)(merge) for merge in plan(lake.files.visible(), 1_000_000)]
        replace(lake, [one for one in found if one is not None])
    assert in_delta(tmp_path) == WHOLE
    archive_once(folder)
    assert in_delta(tmp_path) == WHOLE


@pytest.mark.parametrize("left", [b"", b'{"commitInfo": {"timesta'])
def test_an_entry_that_a_power_cut_has_cut_short(tmp_path: Path, left: bytes) -> None:
    """It is the newest one, and the ledger has its commit."""
    folder = DiskFolder(tmp_path)
    archive_once(folder, form="delta")
    newest = sorted((tmp_path / "_delta_log").glob("*.json"))[-1]
    newest.write_bytes(left)
    archive_once(folder)
    assert in_delta(tmp_path) == WHOLE


def test_a_checkpoint_that_a_power_cut_has_cut_short(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path)
    archive_once(folder, form="delta")
    DeltaTable(str(tmp_path)).create_checkpoint()
    [checkpoint] = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    (tmp_path / "_delta_log" / "_last_checkpoint").write_bytes(b"")
    archive_once(folder)
    assert in_delta(tmp_path) == WHOLE


def test_a_lake_keeps_its_format(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path / "plain")
    assert format_of(folder) is None
    archive_once(folder)
    with pytest.raises(OptionError, match="is a lake of format parquet: format delta needs another directory"):
        archive_once(folder, form="delta")
    with pytest.raises(OptionError, match="no format iceberg: there are parquet, delta"):
        archive_once(folder, form="iceberg")
    (tmp_path / "plain" / "_kourou" / "format").write_text("next")
    with pytest.raises(SparkError, match="format next, which this version of Kourou does not support"):
        archive_once(folder)


def test_versions_of_a_delta_lake(tmp_path: Path) -> None:
    archive_once(DiskFolder(tmp_path), form="delta")
    log = DeltaLog(str(tmp_path))
    assert len(log.paths(1)) < len(log.paths())
    assert log.paths(datetime.now(UTC) + timedelta(hours=1)) == log.paths()
    with pytest.raises(OptionError, match="has no version 99"):
        log.paths(99)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(OptionError, match=r"pip install 'kourou\[delta\]'"):
        archive_once(DiskFolder(tmp_path), form="delta")
    archive_once(DiskFolder(tmp_path / "plain"))
