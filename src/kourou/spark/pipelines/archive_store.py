"""The commit-log files of a store -> a lake, without asking a broker; each message exactly once.

    archive_store("/data/rocketmq/store", "/data/lake", broker="broker-a")

The lake is the same as that of `archive`, which reads live topics. Each of the two skips messages that the other has
archived, if `broker` is the broker's name, which is not in the files. Splits of the log are read in the log's order,
several at a time; a commit records how far the log is read, and the next run continues there."""

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.message import MessageQueue
from kourou.spark.columns import COLUMNS, CORRUPT
from kourou.spark.errors import OptionError, SparkError
from kourou.spark.log_files import Split, find_files, plan
from kourou.spark.options import Options
from kourou.spark.pipelines.archive import tell_batch, topics_chart
from kourou.spark.pipelines.intervals import Interval, merged, size as size_of
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.ledger import ConflictError
from kourou.spark.pipelines.parquet_files import Coverage, Written, write_files
from kourou.spark.pipelines.report import Cell, RunReport, Table
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.pipelines.tasks import parallelism, run_tasks
from kourou.spark.rows import FAIL, REPORT, SKIP, make_rows
from kourou.spark.split_reader import scan
from kourou.spark.store_source import OPTIONS, StoreSettings, read_settings

JOB: Final = "archive-store"

OWN_TOPICS: Final = r"(?!RMQ_SYS_|rmq_sys_|SCHEDULE_TOPIC_XXXX$|OFFSET_MOVED_EVENT$|TBW102$|SELF_TEST_TOPIC$).*"
"""The topics that are archived by default: all but the brokers' system topics."""

SPLITS_PER_CORE: Final = 4
"""The number of splits of a batch per task that runs at a time."""


def archive_store(
    store: str | Path,
    lake: str | Path,
    *,
    broker: str | None = None,
    topics: str | None = None,
    format: str | None = None,  # noqa: A002
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Archive the messages in files. `options` are those of rocketmq-store: topicPattern, times, verify, onCorrupt, …

    Damaged records fail the run; with onCorrupt=skip they are skipped and counted. Raises PipelineError.
    """
    with (runner or Runner()).run(JOB, store=str(store), lake=str(lake), broker=broker, topics=topics) as run:
        settings = _settings(str(store), broker, topics, options or {})
        with Lake(lake, JOB, form=format) as opened:
            _work(run, opened, settings)
    return run.report


def _settings(store: str, broker: str | None, topics: str | None, options: Mapping[str, str]) -> StoreSettings:
    given = {**options, "path": store}
    names = {name.lower() for name in given}
    if "columns" in names:
        raise OptionError("an archive always has all columns")
    if topics is not None:
        given["topics"] = topics
    elif "topicpattern" not in names:
        given["topicPattern"] = OWN_TOPICS
    if broker is not None:
        given["brokerName"] = broker
    if "oncorrupt" not in names:
        given["onCorrupt"] = FAIL
    return read_settings(Options(given, OPTIONS))


class ScanTask(msgspec.Struct, frozen=True):
    """The work of a task: scan a split, skip messages that are in the lake, write the others."""

    settings: StoreSettings
    lake: str
    staged: str
    known: tuple[tuple[str, int, list[Interval]], ...]

    def __call__(self, split: Split) -> Written:
        settings = self.settings
        is_reporting = settings.on_damage in (REPORT, SKIP)  # to be counted, damage has to be reported
        rows = make_rows(
            (*COLUMNS, CORRUPT) if is_reporting else tuple(COLUMNS),
            selection=settings.selection,
            broker=settings.broker,
            decompressing=settings.decompressing,
            max_body=settings.max_body,
            verify=settings.verify,
            on_damage=REPORT if is_reporting else FAIL,
        )
        coverage = Coverage(settings.broker or "", self.known)
        return write_files(scan(split, rows), self.lake, self.staged, coverage)


def _work(run: Run, lake: Lake, settings: StoreSettings) -> None:
    name = _name(settings)
    begin = lake.positions.get(name, 0)
    try:
        splits = plan(find_files(settings.folders), settings.selection, settings.split_size)
    except OSError as error:
        raise OptionError(f"{error.filename}: {error.strerror}") from None
    left = [_from(split, begin) for split in splits if split.end > begin]
    run.report.settings["from_log_offset"] = left[0].start if left else begin
    counts: Counter[str] = Counter()
    while left and not run.is_stopping:
        cores = parallelism(run.spark)
        began = time.monotonic()
        here, left = left[: cores * SPLITS_PER_CORE], left[cores * SPLITS_PER_CORE :]
        results = _scan(run, lake, settings, here)
        try:
            lake.add([file for one in results for file in one.files], _done(results), {name: here[-1].end})
        except ConflictError as error:  # another run was faster: skip the messages that it has archived
            run.report.notes.append(f"{error} The files were read again without them")
            left = here + left
            continue
        run.report.settings["to_log_offset"] = here[-1].end
        for file in (file for one in results for file in one.files):
            counts[file.topic] += file.rows
        tell_batch(run, results, time.monotonic() - began, None)
    if counts:
        rows: list[list[Cell]] = [[topic, count] for topic, count in counts.most_common()]
        run.report.tables.append(Table("Topics", ["topic", "messages"], rows))
        run.report.charts.append(topics_chart(dict(counts.most_common())))


def _scan(run: Run, lake: Lake, settings: StoreSettings, splits: list[Split]) -> list[Written]:
    broker = settings.broker or ""
    known = tuple(
        (queue.topic, queue.queue_id, intervals)
        for queue, intervals in lake.done.items()
        if queue.broker_name == broker
    )
    job = ScanTask(settings, lake.url, lake.staged, known)
    return run_tasks(run.spark, job, splits)


def _done(results: list[Written]) -> dict[MessageQueue, list[Interval]]:
    """The offsets that all tasks wrote. Raises SparkError if two wrote the same."""
    found: dict[MessageQueue, list[Interval]] = {}
    for one in results:
        for queue, intervals in one.done.items():
            found.setdefault(queue, []).extend(intervals)
    for queue, intervals in found.items():
        whole = merged(intervals)
        if size_of(whole) != size_of(intervals):
            raise SparkError(f"the log has an offset of topic {queue.topic}, queue {queue.queue_id} twice")
        found[queue] = whole
    return found


def _from(split: Split, offset: int) -> Split:
    return split if split.start >= offset else msgspec.structs.replace(split, start=offset)


def _name(settings: StoreSettings) -> str:
    """Identifies the source: a broker's log, and the selection."""
    selection = repr(msgspec.to_builtins(settings.selection, order="deterministic"))
    return f"store:{settings.broker or ''}:{hashlib.sha256(selection.encode()).hexdigest()[:16]}"
