"""Dead letters: counting the messages in %DLQ% topics, and sending them to topics in which they are consumed again.

    triage(["billing"], namesrv=…)
    redrive("billing", "/data/redriven", namesrv=…, where="properties['amount'] > 100")

A dead letter keeps the topic that it was sent to in RETRY_TOPIC. Redriving sends it there again, or to %RETRY% of the
group, where no other group sees it, or to another topic; with its unique key, and marked: REDRIVE_ID names the run,
REDRIVE_FROM is the position of the dead letter. A folder records the offsets of redriven dead letters, so that another
run skips them. At least once: if a run dies after sending a batch and before recording it, the next run sends that
batch again, with the same keys."""

import itertools
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.client.admin.dead_letters import MARK, ORIGIN, TO_RETRY
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import Property
from kourou.spark.cluster import Cluster, Route
from kourou.spark.errors import OptionError
from kourou.spark.options import Options
from kourou.spark.pipelines.choice import Choice, Keys, Moment, choice, stored_ms, text_of
from kourou.spark.pipelines.folders import open_folder
from kourou.spark.pipelines.intervals import Interval, missing, size as size_of
from kourou.spark.pipelines.ledger import Commit, Ledger, from_nested_done, to_nested_done
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Cell, Chart, RunReport, Table, span_text, time_text
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.pipelines.sending import (
    RETRY_COLUMN,
    How,
    Sending,
    Shipment,
    by_queue,
    check_rate,
    note_trouble,
    send_frame,
    sink_options,
    tasks_for,
)
from kourou.spark.reading_settings import ACCESS_OPTIONS, read_access

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DLQ: Final = "%DLQ%"
RETRY: Final = "%RETRY%"
STATE: Final = "redriven"
BATCH_ROWS: Final = 20_000
SAMPLE: Final = 10
KINDS_MAX: Final = 1000
"""Rows of the table of a triage; the most frequent ones."""

_AGES: Final = (("< 1 h", 3600), ("< 1 day", 86400), ("< 1 week", 7 * 86400), ("older", 2**62))


# ── Triage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def triage(
    groups: str | Sequence[str] = (),
    *,
    namesrv: str | None = None,
    by: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    key: Keys = (),
    where: str | None = None,
    sample: int = SAMPLE,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """The dead letters of these groups, or of all: their numbers by kind, their ages, and some of them.

    A kind is a combination of group, topic, tags and number of attempts, and with `by` also of a property, such as one
    in which consumers note the exception. Raises PipelineError.
    """
    options = _access(namesrv, options)
    groups = groups.replace(",", " ").split() if isinstance(groups, str) else groups
    with (runner or Runner()).run(
        "dlq triage", reads_only=True, groups=", ".join(groups) or "all", by=by, where=where
    ) as run:
        chosen = choice(since=since, until=until, key=key, where=where)
        topics = _dead_topics(_cluster(options), groups, run.report)
        if not topics and not groups:
            run.report.notes.append("there are no dead letters")
        if topics:
            frame = chosen.apply(_letters(run, topics, options)).persist()
            try:
                _tell(run, frame, by, sample)
            finally:
                frame.unpersist()
    return run.report


def _dead_topics(cluster: Cluster, groups: Sequence[str], report: RunReport) -> list[str]:
    there = cluster.topics(f"{DLQ}.*")
    wanted = [f"{DLQ}{group.removeprefix(DLQ)}" for group in groups] or there
    report.notes += [f"group {name.removeprefix(DLQ)} has no dead letters" for name in wanted if name not in there]
    found = []
    for name, route in cluster.routes((name for name in wanted if name in there), fresh=True, gone_ok=True).items():
        if route.readable:
            found.append(name)
        else:
            report.notes.append(f"{name} is not readable: change its permission (kourou admin updateTopicPerm -p 6)")
    return found


def _letters(run: Run, topics: Sequence[str], options: Mapping[str, str]) -> "DataFrame":
    reader = run.spark.read.format("rocketmq").options(**options)
    return reader.option("topics", ",".join(topics)).load()


def _origin() -> "Column":
    """The topic that a dead letter was sent to."""
    from pyspark.sql import functions as F  # noqa: N812

    told = F.col("properties")[Property.DLQ_ORIGIN_TOPIC]
    return F.coalesce(F.col("properties")[Property.RETRY_TOPIC], F.when(~told.startswith(RETRY), told))


def _tell(run: Run, frame: "DataFrame", by: str | None, sample: int) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    began, now_ms = time.monotonic(), int(time.time() * 1000)
    age_s = (F.lit(now_ms) - stored_ms()) / 1000
    kinds = {
        "group": F.expr(f"substring(topic, {len(DLQ) + 1})"),
        "origin": _origin(),
        "tags": F.col("tags"),
        "times": F.col("reconsume_times"),
        "what": F.lit(None) if by is None else F.col("properties")[by],
    }
    counted = (
        frame.groupBy(*(column.alias(name) for name, column in kinds.items()))
        .agg(
            F.count("*").alias("rows"),
            F.sum("store_size").alias("bytes"),
            F.min(stored_ms()).alias("oldest"),
            F.max(stored_ms()).alias("newest"),
            *(F.count_if((age_s >= low) & (age_s < high)).alias(f"age{at}") for at, (low, high) in enumerate(_spans())),
        )
        .orderBy(F.desc("rows"), "group", "origin")
        .limit(KINDS_MAX)
        .collect()
    )
    report = run.report
    report.tables.append(_kinds_table(counted, by, now_ms))
    if sample:
        report.tables.append(_sample_table(frame, sample))
    report.charts += _charts(counted)
    rows, size = sum(row.rows for row in counted), sum(row.bytes for row in counted)
    run.batch(BatchProgress(batch=0, rows=rows, bytes=size, written=0, seconds=time.monotonic() - began))


def _spans() -> list[tuple[int, int]]:
    bounds = [-(2**62), *(high for _, high in _AGES)]
    return list(itertools.pairwise(bounds))


def _kinds_table(counted: Sequence[Any], by: str | None, now_ms: int) -> Table:
    columns = [
        "group",
        "topic",
        "tags",
        "consumed",
        *([] if by is None else [by]),
        "letters",
        "oldest",
        "age",
        "newest",
    ]
    rows: list[list[Cell]] = []
    for row in counted:
        what = [] if by is None else [row.what]
        age = span_text((now_ms - row.oldest) / 1000)
        times = time_text(row.oldest), age, time_text(row.newest)
        rows.append([row.group, row.origin, row.tags, row.times, *what, row.rows, *times])
    return Table("Dead letters", columns, rows)


def _sample_table(frame: "DataFrame", count: int) -> Table:
    from pyspark.sql import functions as F  # noqa: N812

    told = frame.withColumn("origin", _origin()).withColumn("stored", stored_ms())
    newest = told.orderBy(F.desc("store_timestamp")).limit(count).collect()
    return Table(
        "The newest",
        ["letter", "topic", "stored", "tags", "keys", "body"],
        [
            [
                f"{r.topic.removeprefix(DLQ)}/{r.broker}/{r.queue_id}/{r.queue_offset}",
                r.origin,
                time_text(r.stored),
                r.tags,
                r.keys,
                text_of(r.body),
            ]
            for r in newest
        ],
    )


def _charts(counted: Sequence[Any]) -> list[Chart]:
    if not counted:
        return []
    by_topic: dict[str, float] = {}
    for row in counted:
        name = f"{row.group}: {row.origin or '?'}"
        by_topic[name] = by_topic.get(name, 0) + row.rows
    ages: list[float | None] = [float(sum(row[f"age{at}"] for row in counted)) for at in range(len(_AGES))]
    names = [name for name, _ in _AGES]
    return [
        Chart(title="Letters by topic", kind="bars", x=list(by_topic), series={"letters": list(by_topic.values())}),
        Chart(title="Letters by age", kind="bars", x=names, series={"letters": ages}),
    ]


# ── Redriving ───────────────────────────────────────────────────────────────────────────────────────────────────────


def redrive(
    group: str,
    state: str | Path,
    *,
    namesrv: str | None = None,
    target: str = ORIGIN,
    since: Moment | None = None,
    until: Moment | None = None,
    key: Keys = (),
    where: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    batch_rows: int = BATCH_ROWS,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Send dead letters of a group again; letters that were redriven before are skipped.

    `target` is "origin" for their original topic, "retry" for the group's retry topic, or the name of a topic.
    `state` is the folder that records redriven letters. Raises PipelineError.
    """
    options = _access(namesrv, options)
    asked = {"group": group, "target": target, "state": str(state), "where": where, "rate": rate}
    with (runner or Runner()).run("dlq redrive", reads_only=dry_run, **asked, dry_run=dry_run) as run:
        chosen = choice(since=since, until=until, key=key, where=where)
        cluster = _cluster(options)
        topics = _dead_topics(cluster, [group], run.report)
        if topics:
            folder = open_folder(state)
            try:
                with folder.lock(f"{STATE}/run.lock", wait=False):
                    ledger = Ledger(folder, STATE)
                    ledger.load()
                    job = _Redrive(run, ledger, cluster, topics[0], target, chosen, options)
                    job.work(rate, batch_rows, dry_run=dry_run)
            except BlockingIOError:
                raise OptionError(f"another run is redriving with {folder.url}") from None
    return run.report


class _Redrive:
    """The batches of one run."""

    def __init__(
        self,
        run: Run,
        ledger: Ledger,
        cluster: Cluster,
        topic: str,
        target: str,
        chosen: Choice,
        options: Mapping[str, str],
    ) -> None:
        self._run = run
        self._ledger = ledger
        self._cluster = cluster
        self._topic = topic
        self._group = topic.removeprefix(DLQ)
        self._target = target
        self._chosen = chosen
        self._options = options
        self._id = uuid.uuid4().hex

    def work(self, rate: float | None, batch_rows: int, *, dry_run: bool) -> None:
        run, report = self._run, self._run.report
        report.settings["redrive_id"] = self._id
        if self._target not in (ORIGIN, TO_RETRY):
            self._cluster.route(self._target)
        route = self._cluster.route(self._topic, fresh=True)
        left = self._left(route)
        known = sum(size_of(self._ledger.done.get(queue, ())) for queue in route.readable)
        total = sum(end - start for _, start, end in left)
        tasks = tasks_for(run, rate)
        counts: dict[str, int] = {}
        for number, (queue, intervals) in enumerate(_pieces(left, batch_rows)):
            if run.is_stopping:
                break
            began = time.monotonic()
            rows_read = size_of(intervals)
            total -= rows_read
            frame = self._frame(queue, intervals)
            if dry_run:
                self._count(frame, counts)
                sent = Shipment(rows=rows_read)
            else:
                sent = self._send(frame, queue, tasks, check_rate(rate, tasks))
            run.batch(
                BatchProgress(
                    batch=number,
                    rows=rows_read,
                    bytes=sent.bytes,
                    written=sent.sent,
                    seconds=time.monotonic() - began,
                    lag=total,
                )
            )
        report.skip("redriven before", known)
        if dry_run:
            rows: list[list[Cell]] = [[topic, count] for topic, count in sorted(counts.items())]
            report.tables.append(Table("Would be redriven", ["to", "letters"], rows))
            report.skip("dry run", sum(counts.values()))
        chosen = sum(counts.values()) if dry_run else report.written.rows
        report.skip("not chosen, or without a topic to go to", report.read.rows - chosen)

    def _left(self, route: Route) -> list[tuple[MessageQueue, int, int]]:
        """The ranges of each queue that were not redriven yet."""
        starts, ends = self._cluster.starts(route.readable), self._cluster.ends(route.readable)
        return [
            (queue, start, end)
            for queue in route.readable
            for start, end in missing(starts[queue], ends[queue], self._ledger.done.get(queue, ()))
        ]

    def _frame(self, queue: MessageQueue, intervals: Sequence[Interval]) -> "DataFrame":
        """Letters in the form in which they are sent: `topic` is their target, `from_topic` where they are now."""
        from pyspark.sql import functions as F  # noqa: N812

        place = {queue.topic: {queue.broker_name: [queue.queue_id]}}
        reader = self._run.spark.read.format("rocketmq").options(**self._options)
        frame = (
            reader.option("assign", json.dumps(place))
            .option("startingOffsets", _offsets(queue, intervals[0][0]))
            .option("endingOffsets", _offsets(queue, intervals[-1][1]))
            .load()
        )
        if len(intervals) > 1:  # other offsets in this range were redriven before
            left = [(offset,) for start, end in intervals for offset in range(start, end)]
            left_frame = self._run.spark.createDataFrame(left, "queue_offset bigint")
            frame = frame.join(F.broadcast(left_frame), "queue_offset", "left_semi")
        frame = self._chosen.apply(frame).withColumn("from_topic", F.col("topic"))
        if self._target == ORIGIN:
            return frame.withColumn("topic", _origin()).where(F.col("topic").isNotNull())
        if self._target == TO_RETRY:
            frame = frame.withColumn(RETRY_COLUMN, _origin()).where(F.col(RETRY_COLUMN).isNotNull())
            return frame.withColumn("topic", F.lit(f"{RETRY}{self._group}"))
        return frame.withColumn("topic", F.lit(self._target))

    def _count(self, frame: "DataFrame", counts: dict[str, int]) -> None:
        for row in frame.groupBy("topic").count().collect():
            counts[row.topic] = counts.get(row.topic, 0) + row["count"]

    def _send(self, frame: "DataFrame", queue: MessageQueue, tasks: int, rate: float | None) -> Shipment:
        how = How(
            write_id=self._id,
            mark=MARK,
            mark_id=self._id,
            is_ordered=self._target != TO_RETRY,
            rate=rate,
            is_remembered=True,
        )
        sending = Sending(options=sink_options(None, self._options), topic=None, how=how)
        sent = send_frame(by_queue(frame, tasks), sending)
        note_trouble(self._run.report, sent)
        done = from_nested_done(sent.done)
        if done.keys() - {queue}:
            raise AssertionError(f"{queue} was read, and {done.keys()} came")
        if done:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._ledger.commit(Commit(job="redrive", run=self._id, at=at, done=to_nested_done(done)))
        return sent


def _pieces(left: Sequence[tuple[MessageQueue, int, int]], size_max: int) -> list[tuple[MessageQueue, list[Interval]]]:
    """Batches: the rest of a queue, in ranges of at most this many offsets, without those that were redriven."""
    pieces: list[tuple[MessageQueue, list[Interval]]] = []
    for queue, start, end in left:
        for at in range(start, end, size_max):
            until = min(at + size_max, end)
            if pieces and pieces[-1][0] == queue and until - pieces[-1][1][0][0] <= size_max:
                pieces[-1][1].append((at, until))
            else:
                pieces.append((queue, [(at, until)]))
    return pieces


def _offsets(queue: MessageQueue, offset: int) -> str:
    return json.dumps({queue.topic: {queue.broker_name: {str(queue.queue_id): offset}}})


def _access(namesrv: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    return {**(options or {}), **({"namesrv": namesrv} if namesrv else {})}


def _cluster(options: Mapping[str, str]) -> Cluster:
    names = {name.lower() for name in ACCESS_OPTIONS}
    given = {name: value for name, value in options.items() if name.lower() in names}
    return Cluster(*read_access(Options(given, ACCESS_OPTIONS)))
