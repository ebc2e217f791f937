"""A lake -> a topic: unchanged messages, in the order of their queues, marked as replayed.

    replay("/data/lake", "orders-again", namesrv=…, since="2026-01-31T12:00", key="42")

A replayed message has its body, tags, keys, unique key and properties, and two more: REPLAY_ID names the run, and
REPLAY_FROM is topic/broker/queue/offset of the original. So consumers can recognise a message that they have processed.

At least once: the hours of the lake are sent in order; if a run fails, it reports the last hour, and the next run sends
that hour again, with the same unique keys. Messages of one queue are sent to one queue, in order."""

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import Choice, Keys, Moment, choice, stored_ms, text_of
from kourou.spark.pipelines.folders import Folder, open_folder
from kourou.spark.pipelines.lake import read_lake, reading
from kourou.spark.pipelines.parquet_files import topic_folder
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Chart, RunReport, Table, time_text
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.pipelines.sending import (
    How,
    Sending,
    by_queue,
    check_rate,
    check_target,
    note_trouble,
    send_frame,
    sink_options,
    tasks_for,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JOB: Final = "replay"
MARK: Final = "REPLAY"
SAMPLE: Final = 10

Hour = tuple[str, int]
"""Date and hour, as in the names of folders."""


def replay(
    lake: str | Path,
    topic: str,
    *,
    namesrv: str | None = None,
    source: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    key: Keys = (),
    where: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Send the chosen messages of a lake's topic `source` to `topic`, at most `rate` messages a second.

    `source` may be omitted if the lake has one topic. With `dry_run` nothing is sent, and the report shows what would
    be. `options` are those of the sink. Raises PipelineError.
    """
    asked = {"lake": str(lake), "topic": topic, "source": source, "where": where, "rate": rate}
    with (runner or Runner()).run(JOB, reads_only=dry_run, **asked, dry_run=dry_run) as run:
        chosen = choice(since=since, until=until, key=key, where=where)
        folder = open_folder(lake)
        source = _source(folder, source)
        check_rate(rate, 1)
        sink = {} if dry_run else sink_options(namesrv, options or {})
        if not dry_run:
            check_target(sink, topic)
        with reading(folder.url):
            frame = read_lake(run.spark, folder.url).where(_is_topic(source))
            frame = chosen.apply(frame)
            hours = [hour for hour in hours_of(folder, source) if is_within(hour, chosen)]
            if dry_run:
                _describe(run, frame)
            else:
                _send(run, frame, hours, topic, rate, sink)
    return run.report


def _source(folder: Folder, source: str | None) -> str:
    topics = topics_of(folder)
    if source is None and len(topics) == 1:
        return topics[0]
    if not topics:
        raise OptionError(f"no lake exists at {folder.url}")
    if source is None:
        raise OptionError(f"the lake has several topics; give one of {', '.join(topics)}")
    if source not in topics:
        raise OptionError(f"the lake has no topic {source}: there are {', '.join(topics)}")
    return source


def topics_of(folder: Folder) -> list[str]:
    return [unquote(name.removeprefix("topic=")) for name in folder.names("") if name.startswith("topic=")]


def hours_of(folder: Folder, topic: str) -> list[Hour]:
    """The hours that a lake has of a topic, in order."""
    below = topic_folder(topic)
    return [
        (date.removeprefix("date="), int(hour.removeprefix("hour=")))
        for date in folder.names(below)
        if date.startswith("date=")
        for hour in folder.names(f"{below}/{date}")
        if hour.startswith("hour=")
    ]


def is_within(hour: Hour, chosen: Choice) -> bool:
    """May an hour have messages of the chosen period?"""
    begin_ms = datetime.fromisoformat(hour[0]).replace(tzinfo=UTC, hour=hour[1]).timestamp() * 1000
    if chosen.from_ms is not None and begin_ms + 3_600_000 <= chosen.from_ms:
        return False
    return chosen.to_ms is None or begin_ms < chosen.to_ms


def _is_topic(topic: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("topic") == topic


def _describe(run: Run, frame: "DataFrame") -> None:
    """The numbers of messages that would be sent, and some of the messages."""
    from pyspark.sql import functions as F  # noqa: N812

    began = time.monotonic()
    counts = (
        frame.groupBy("topic", "broker", "queue_id")
        .agg(
            F.count("*").alias("rows"),
            F.sum("store_size").alias("bytes"),
            F.min("queue_offset").alias("first"),
            F.max("queue_offset").alias("last"),
            F.min(stored_ms()).alias("begin"),
            F.max(stored_ms()).alias("end"),
        )
        .orderBy("topic", "broker", "queue_id")
        .collect()
    )
    report = run.report
    report.tables.append(
        Table(
            "Would be sent",
            ["topic", "broker", "queue", "messages", "first offset", "last offset", "from", "to"],
            [
                [r.topic, r.broker, r.queue_id, r.rows, r.first, r.last, time_text(r.begin), time_text(r.end)]
                for r in counts
            ],
        )
    )
    sample = frame.withColumn("stored", stored_ms()).orderBy("stored").limit(SAMPLE).collect()
    report.tables.append(
        Table(
            "The first of them",
            ["queue", "offset", "stored", "tags", "keys", "body"],
            [[r.queue_id, r.queue_offset, time_text(r.stored), r.tags, r.keys, text_of(r.body)] for r in sample],
        )
    )
    rows, size = sum(r.rows for r in counts), sum(r.bytes for r in counts)
    run.batch(BatchProgress(batch=0, rows=rows, bytes=size, written=0, seconds=time.monotonic() - began))
    report.skip("dry run", rows)


def _send(
    run: Run,
    frame: "DataFrame",
    hours: list[Hour],
    topic: str,
    rate: float | None,
    options: dict[str, str],
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    tasks = tasks_for(run, rate)
    replay_id = uuid.uuid4().hex
    run.report.settings["replay_id"] = replay_id
    share = check_rate(rate, tasks)
    how = How(write_id=replay_id, mark=MARK, mark_id=replay_id, is_ordered=True, rate=share)
    sending = Sending(options=options, topic=topic, how=how)
    names: list[str] = []
    counts: list[float | None] = []
    for number, (date, hour) in enumerate(hours):
        if run.is_stopping:
            begin = f"{date}T{hour:02d}:00Z"
            run.report.notes.append(f"messages stored before {begin} were sent; continue with --since {begin}")
            break
        began = time.monotonic()
        part = frame.where((F.col("date") == F.to_date(F.lit(date))) & (F.col("hour") == hour)).drop("date", "hour")
        sent = send_frame(by_queue(part, tasks), sending)
        note_trouble(run.report, sent)
        names.append(f"{date} {hour:02d}h")
        counts.append(sent.sent)
        if sent.newest_us is not None:
            run.report.to_time = time_text(sent.newest_us / 1000)
        run.batch(
            BatchProgress(
                batch=number, rows=sent.rows, bytes=sent.bytes, written=sent.sent, seconds=time.monotonic() - began
            )
        )
    run.report.charts.append(Chart(title="Messages by hour", kind="bars", x=names, series={"sent": counts}))
