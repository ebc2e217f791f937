"""Topics -> a lake, each message exactly once.

    archive("orders,payments", "/data/lake", namesrv="127.0.0.1:9876")

A commit of the lake records, in one step, the new files and how far each queue is archived. So no separate checkpoint
can contradict the lake. (Refused: a streaming query with foreachBatch. Its checkpoint could contradict the lake, and
its rows would pass through the JVM and back before they are written.)

A batch: ask brokers for the ends of queues; choose messages that are not in the lake, up to a limit; tasks pull and
write them; commit. If a task fails, the run fails: nothing of the batch is visible, and the next run repeats it. If
another run has archived a part of the batch first, the commit is refused, and the batch is read again without that
part.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.protocol.message import MessageQueue
from kourou.spans import Span
from kourou.spark.errors import DataLossError, OptionError
from kourou.spark.options import Options
from kourou.spark.pipelines.choice import span_s
from kourou.spark.pipelines.intervals import Interval, missing, size as size_of
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.ledger import ConflictError
from kourou.spark.pipelines.parquet_files import Written, write_files
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Chart, RunReport, offsets_table, time_text
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.pipelines.tasks import parallelism, run_tasks
from kourou.spark.planning import Range, Task, admit, make_tasks
from kourou.spark.positions import Offsets, from_nested, to_nested
from kourou.spark.reading_settings import READ_OPTIONS, ReadSettings, read_settings
from kourou.spark.selection import Selection
from kourou.spark.source import Topics, read_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "archive"
BATCH_ROWS: Final = 2_000_000
TASK_ROWS: Final = 100_000
TASK_ROWS_MIN: Final = 1_000


def archive(
    topics: str,
    lake: str | Path,
    *,
    namesrv: str | None = None,
    pattern: bool = False,
    once: bool = True,
    every: Span = "60s",
    batch_rows: int = BATCH_ROWS,
    format: str | None = None,  # noqa: A002
    group: str | None = None,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Archive all present messages (`once`), or a batch after each interval `every` until the runner is asked to stop.

    `topics` are names, separated by commas, or with `pattern` a regular expression. `options` are those of the source:
    startingOffsets for queues that are new to the lake, failOnDataLoss, tags, access. With `group`, the progress of the
    archive is committed to brokers as the offsets of that group. `format` is parquet or delta; a lake keeps the format
    with which it was created. Raises PipelineError.
    """
    with (runner or Runner()).run(JOB, topics=topics, lake=str(lake), namesrv=namesrv, once=once) as run:
        every_s = span_s(every, "every")
        given = {**(options or {}), **({} if group is None else {"group": group})}
        settings = _settings(topics, namesrv, pattern, given)
        with Lake(lake, JOB, form=format) as opened:
            _Archive(run, opened, settings, batch_rows).work(None if once else every_s)
    return run.report


def _settings(topics: str, namesrv: str | None, pattern: bool, options: Mapping[str, str]) -> ReadSettings:
    given = {**options, "topicPattern" if pattern else "topics": topics}
    if namesrv:
        given["namesrv"] = namesrv
    if not {"startingoffsets", "startingtimestamp"} & {name.lower() for name in given}:
        given["startingOffsets"] = "earliest"
    if "columns" in {name.lower() for name in given}:
        raise OptionError("an archive always has all columns")
    return read_settings(Options(given, READ_OPTIONS), streaming=True)


class WriteTask(msgspec.Struct, frozen=True):
    """The work of a task: pull ranges, write files, and return the results."""

    settings: ReadSettings
    lake: str
    staged: str

    def __call__(self, task: Task) -> Written:
        return write_files(read_task(task, self.settings, Selection()), self.lake, self.staged)


class _Archive:
    """The batches of one run."""

    def __init__(self, run: Run, lake: Lake, settings: ReadSettings, batch_rows: int) -> None:
        self._run = run
        self._lake = lake
        self._settings = settings
        self._topics = Topics(settings)
        self._batch_rows = settings.rows_max or batch_rows
        self._starts: Offsets = {}  # of queues that are new to the lake

    def work(self, every_s: float | None) -> None:
        target = self._ends() if every_s is None else None
        while not self._run.is_stopping:
            began = time.monotonic()
            if self._batch(target or self._ends()):
                continue
            if every_s is None or not self._run.wait(began + every_s - time.monotonic()):
                break
        report = self._run.report
        queues = offsets_table("Queues", report.from_offsets, report.to_offsets)
        if queues.rows:
            report.tables.append(queues)
            counts: dict[str, int] = {}
            for topic, *_, count in queues.rows:
                counts[str(topic)] = counts.get(str(topic), 0) + int(count or 0)
            report.charts.append(topics_chart(counts))

    def _ends(self) -> Offsets:
        return self._topics.reachable.ends(self._topics.queues())

    def _batch(self, ends: Offsets) -> bool:
        """Archive the present messages, up to the size of a batch. Returns whether there are more."""
        starts = self._resume(ends)
        until = admit(starts, ends, self._batch_rows)
        moved = {_name(queue): at for queue, at in until.items() if self._lake.positions.get(_name(queue)) != at}
        if not moved:
            return False
        pieces = {queue: missing(starts[queue], until[queue], self._lake.done.get(queue, ())) for queue in until}
        ranges = [Range(queue, *piece) for queue, here in pieces.items() for piece in here]
        spark = self._run.spark if ranges else None  # the start of Spark is not part of a batch
        began = time.monotonic()
        results = [] if spark is None else self._write(spark, ranges)
        try:
            self._lake.add([file for result in results for file in result.files], pieces, moved)
        except ConflictError as error:
            self._run.report.notes.append(f"{error} The batch was read again without them")
            return True
        if self._settings.group is not None:
            self._topics.cluster.commit(until, self._settings.group)
        if until != starts:
            known = sum(until[queue] - starts[queue] - size_of(pieces[queue]) for queue in until)
            self._run.report.skip("in the lake already", known)
            lag = sum(max(end - until[queue], 0) for queue, end in ends.items())
            self._tell(starts, until)
            tell_batch(self._run, results, time.monotonic() - began, lag)
        return until != ends

    def _resume(self, ends: Offsets) -> Offsets:
        """Where to continue in each queue. Raises DataLossError for removed messages."""
        self._place_new([queue for queue in ends if _name(queue) not in self._lake.positions])
        first = self._topics.cluster.starts(ends)
        found: Offsets = {}
        for queue, end in ends.items():
            start = self._lake.positions.get(_name(queue), self._starts.get(queue, 0))
            if start > end:
                raise DataLossError(
                    f"{_describe(queue)} ends at offset {end}, but was archived up to {start} before: if the topic "
                    "was deleted and created again, archive it to another lake"
                )
            gone = missing(start, min(first[queue], end), self._lake.done.get(queue, ()))
            if gone:
                self._lost(queue, gone, first[queue])
                start = max(start, first[queue])
            found[queue] = start
        return found

    def _place_new(self, queues: list[MessageQueue]) -> None:
        """Where queues begin that are new to the lake. New queues of a topic in the lake are read from their start."""
        queues = [queue for queue in queues if queue not in self._starts]
        known = {name.rsplit("/", 2)[0] for name in self._lake.positions}
        grown = [queue for queue in queues if queue.topic in known]
        self._starts.update(self._topics.cluster.starts(grown))
        fresh = [queue for queue in queues if queue.topic not in known]
        if fresh:
            position = self._settings.starting
            otherwise = "latest" if position == "latest" else "earliest"
            self._starts.update(self._topics.place(position, fresh, otherwise=otherwise))

    def _lost(self, queue: MessageQueue, gone: list[Interval], first: int) -> None:
        text = f"{_describe(queue)}: expected offset {gone[0][0]}, but the first message is at {first}"
        if self._settings.fail_on_loss:
            raise DataLossError(
                f"{text}. They expired before they were archived (failOnDataLoss=false continues from there)"
            )
        self._run.report.notes.append(f"{text}: {size_of(gone)} messages are lost")
        self._run.report.skip("expired before they were read", size_of(gone))

    def _write(self, spark: "SparkSession", ranges: list[Range]) -> list[Written]:
        settings = self._settings
        # As many tasks as run at a time, unless they become too large: few files, and all cores are used.
        share = -(-sum(one.size for one in ranges) // parallelism(spark))
        rows_max = settings.task_rows_max or max(min(share, TASK_ROWS), TASK_ROWS_MIN)
        tasks = make_tasks(ranges, tasks_min=settings.tasks_min, task_rows_max=rows_max)
        job = WriteTask(settings, self._lake.url, self._lake.staged)
        return run_tasks(spark, job, tasks)

    def _tell(self, starts: Offsets, until: Offsets) -> None:
        report = self._run.report
        report.from_offsets = to_nested({**starts, **from_nested(report.from_offsets)})
        report.to_offsets = to_nested(until)


def topics_chart(counts: Mapping[str, int]) -> Chart:
    return Chart(title="Messages by topic", kind="bars", x=list(counts), series={"messages": [*counts.values()]})


def tell_batch(run: Run, results: list[Written], seconds: float, lag: int | None) -> None:
    """Count the results of tasks."""
    report = run.report
    times = [moment for one in results for moment in (one.first_us, one.last_us) if moment is not None]
    if times:
        report.from_time = min(report.from_time or "9", time_text(min(times) / 1000))
        report.to_time = max(report.to_time or "", time_text(max(times) / 1000))
    report.written.bytes += sum(file.bytes for one in results for file in one.files)
    report.skip("in the lake already", sum(one.known for one in results))
    report.skip("damaged", sum(one.damaged for one in results))
    run.batch(
        BatchProgress(
            batch=report.batches,
            rows=sum(one.read for one in results),
            bytes=sum(one.read_bytes for one in results),
            seconds=seconds,
            written=sum(file.rows for one in results for file in one.files),
            lag=lag,
            age_s=max(time.time() - max(times) / 1e6, 0.0) if times else None,
        )
    )


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _describe(queue: MessageQueue) -> str:
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"
