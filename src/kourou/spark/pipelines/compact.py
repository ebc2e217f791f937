"""A lake with many small files -> the same lake with few files; each message stays in it exactly once.

    compact("/data/lake")

Tasks merge files of one topic and hour; a commit of the ledger replaces the old ones by the new one, hour by hour in
one step. Runs of archive may continue meanwhile. Whether readers may depends on the format: see `showing` for plain
Parquet; with format delta readers are not affected, and the old files are kept until `vacuum`.
"""

import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from kourou.spans import Span
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import size_bytes, span_s
from kourou.spark.pipelines.delta import DeltaFiles
from kourou.spark.pipelines.folders import Folder, open_folder
from kourou.spark.pipelines.lake import Lake, format_of
from kourou.spark.pipelines.lake_files import HIDDEN, place_of
from kourou.spark.pipelines.merging import Merge, Merged, MergeTask, plan
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Cell, RunReport, Table
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.pipelines.tasks import parallelism, run_tasks

JOB: Final = "compact"
TARGET_SIZE: Final = "128m"
LOCK: Final = f"{HIDDEN}/compact.lock"

MERGES_PER_CORE: Final = 4
"""The number of merged files of a commit per task that runs at a time."""


class Totals(msgspec.Struct):
    """The merges of one topic."""

    files: int = 0
    bytes: int = 0
    merged_files: int = 0
    merged_bytes: int = 0


def compact(
    lake: str | Path,
    *,
    topics: str | None = None,
    target_size: int | str = TARGET_SIZE,
    vacuum: Span | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Merge files that are smaller than half of `target_size`, of these topics (names, separated by commas) or of all.

    `target_size` is a size such as "128m", or a number of bytes. With `vacuum`, a span of time, files of a lake of
    format delta that were replaced before it are deleted; older versions of the table can't be read then.
    Raises PipelineError.
    """
    with (runner or Runner()).run(JOB, lake=str(lake), topics=topics, target_size=target_size) as run:
        folder = open_folder(lake)
        if format_of(folder) is None:
            raise OptionError(f"no lake exists at {folder.url}")
        size = size_bytes(target_size, "target_size")
        if size < 2:
            raise OptionError(f"target_size must be at least 2 bytes, not {target_size}")
        vacuum_s = None if vacuum is None else span_s(vacuum, "vacuum")
        try:
            with folder.lock(LOCK, wait=False), Lake(lake, JOB, folder) as opened:
                _work(run, folder, opened, size, frozenset(topics.split(",") if topics else ()), vacuum_s)
        except BlockingIOError:
            raise OptionError(f"another run is compacting {folder.url}") from None
    return run.report


def _work(
    run: Run, folder: Folder, lake: Lake, target_size: int, topics: frozenset[str], vacuum_s: float | None
) -> None:
    merges = plan(lake.files.visible(), target_size, topics)
    if vacuum_s is not None and not isinstance(lake.files, DeltaFiles):
        raise OptionError(f"{folder.url} is a lake of format parquet, which does not keep replaced files")
    totals: dict[str, Totals] = {}
    if merges:
        lake.files.check_replacing()
        _merge(run, lake, merges, totals)
    if vacuum_s is not None and isinstance(lake.files, DeltaFiles):
        gone = lake.files.vacuum(timedelta(seconds=vacuum_s))
        run.report.notes.append(f"{gone} replaced files were deleted")
    if totals:
        rows: list[list[Cell]] = [
            [topic, one.merged_files, one.files, one.merged_bytes, one.bytes] for topic, one in sorted(totals.items())
        ]
        head = ["topic", "small files", "merged into", "bytes before", "bytes after"]
        run.report.tables.append(Table("Merged", head, rows))


def _merge(run: Run, lake: Lake, merges: list[Merge], totals: dict[str, Totals]) -> None:
    share = parallelism(run.spark) * MERGES_PER_CORE
    job = MergeTask(lake.url, lake.staged)
    while merges and not run.is_stopping:
        began = time.monotonic()
        here, merges = merges[:share], merges[share:]
        found = run_tasks(run.spark, job, here)
        results = [one for one in found if one is not None]
        run.report.skip("files that were replaced or deleted meanwhile", sum(map(_count, here)) - _count(*results))
        try:
            done = replace(lake, results)
        except BlockingIOError:
            run.report.skip("files that a replay is reading: compact them later", _count(*results))
            run.report.notes.append("a replay is reading this lake: files that it may need were not replaced")
            return
        run.report.skip("files that were replaced or deleted meanwhile", _count(*results) - _count(*done))
        _tell(run, done, totals, time.monotonic() - began)


def replace(lake: Lake, results: list[Merged]) -> list[Merged]:
    """Show merged files in place of their sources. Returns the merged files that are visible."""
    commit = lake.replace((one.file, one.paths) for one in results)
    shown = {file.staged for file in commit.files} if commit is not None else set()
    return [one for one in results if one.file.name in shown]


def _tell(run: Run, done: list[Merged], totals: dict[str, Totals], seconds: float) -> None:
    for one in done:
        here = totals.setdefault(place_of(one.paths[0]).topic, Totals())
        here.files += 1
        here.bytes += one.file.bytes
        here.merged_files += len(one.paths)
        here.merged_bytes += one.bytes
    rows = sum(one.file.rows for one in done)
    run.report.written.bytes += sum(one.file.bytes for one in done)
    run.batch(
        BatchProgress(
            batch=run.report.batches,
            rows=rows,
            bytes=sum(one.bytes for one in done),
            written=rows,
            seconds=seconds,
        )
    )


def _count(*merges: Merge | Merged) -> int:
    return sum(len(one.paths) for one in merges)
