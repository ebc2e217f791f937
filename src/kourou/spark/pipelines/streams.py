"""Topic to topic, by a streaming query with a checkpoint: what `transform` and `dedup` have in common.

The checkpoint says how far the query is. A batch that was under way when a run died is done again by the next one, with
the same rows and the same unique keys: at least once, and duplicates can be told.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.spans import Span
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import span_s
from kourou.spark.pipelines.object_stores import for_spark, missing_jars, spark_settings
from kourou.spark.pipelines.running import Run
from kourou.spark.pipelines.sending import (
    How,
    Sending,
    Shipment,
    check_rows,
    check_target,
    note_trouble,
    send_frame,
    sink_options,
)
from kourou.spark.pipelines.tasks import need_classic
from kourou.spark.session import hadoop_version
from kourou.spark.source import commit_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS: Final = 500_000
LABEL: Final = "kourou.json"
KEPT: Final = 1000
"""Batches whose counts are kept until Spark tells of them."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """From where to where, and how."""

    topics: str
    target: str | None
    """None if the rows have a column `topic`."""
    checkpoint: str
    namesrv: str | None = None
    once: bool = True
    every_s: float = 10.0
    output_mode: str = "append"
    options: dict[str, str] = {}
    """Of the source, those for access also of the sink."""
    job: dict[str, str] = {}
    """Which pipeline, and what makes its query another one."""

    def source(self) -> dict[str, str]:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS), **self.options}
        if "startingTimestamp" in given:
            del given["startingOffsets"]
        return {**given, "topics": self.topics, **({"namesrv": self.namesrv} if self.namesrv else {})}

    def belongings(self) -> dict[str, str]:
        """What the checkpoint is for, and for nothing else."""
        return {**self.job, "topics": self.topics}

    def asked(self) -> dict[str, Any]:
        return {"topics": self.topics, "target": self.target, "checkpoint": self.checkpoint, "once": self.once}


def flow(
    *,
    topics: str,
    target: str | None,
    checkpoint: str | Path,
    namesrv: str | None,
    once: bool,
    every: Span,
    options: Mapping[str, str] | None,
    job: Mapping[str, str],
    output_mode: str = "append",
) -> Flow:
    """Raises OptionError."""
    return Flow(
        topics=topics,
        target=target,
        checkpoint=str(checkpoint),
        namesrv=namesrv,
        once=once,
        every_s=span_s(every, "every"),
        options=dict(options or {}),
        output_mode=output_mode,
        job=dict(job),
    )


def read_stream(run: Run, wanted: Flow) -> "DataFrame":
    """Raises OptionError for topics, of both ends, that there are not."""
    check_target(sink_options(wanted.namesrv, wanted.options), wanted.target)
    need_classic(run.spark, "a pipeline from topic to topic")
    return run.spark.readStream.format("rocketmq").options(**wanted.source()).load()


def send_stream(
    run: Run,
    frame: "DataFrame",
    wanted: Flow,
    *,
    prepare: Callable[["DataFrame"], "DataFrame"] = lambda frame: frame,
    is_ordered: bool = False,
) -> None:
    """Run the query that sends a stream's rows, to its end or until a stop. Raises what it fails with."""
    options = sink_options(wanted.namesrv, wanted.options)
    check_rows(frame, wanted.target)
    checkpoint = for_spark(wanted.checkpoint)
    for name, value in spark_settings(wanted.checkpoint).items():
        run.spark.conf.set(name, value)
    label = open_label(run.spark, checkpoint)
    label.check(wanted.belongings())
    counts: dict[int, Shipment] = {}
    started: Future[StreamingQuery] = Future()  # its id stays the same for as long as the checkpoint is there

    def send(batch: "DataFrame", number: int) -> None:
        run.enter_batch(number)
        how = How(write_id=f"{started.result().id}/{number}", is_ordered=is_ordered)
        counts[number] = send_frame(prepare(batch), Sending(options=options, topic=wanted.target, how=how))
        label.write(wanted.belongings())  # not before: a query that never sent anything may still be changed
        counts.pop(number - KEPT, None)
        note_trouble(run.report, counts[number])

    def count(number: int) -> Mapping[str, int]:
        sent = counts.pop(number, None)
        if sent is None:
            return {}
        found = {"written": sent.sent, "bytes": sent.bytes}
        return found if sent.newest_us is None else {**found, "newest_ms": sent.newest_us // 1000}

    writer = frame.writeStream.foreachBatch(send).outputMode(wanted.output_mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if wanted.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(wanted.every_s * 1000)} milliseconds")
    query = writer.start()
    started.set_result(query)
    run.follow(query, count)
    if "group" in wanted.options and run.report.to_offsets:
        commit_progress(run.report.to_offsets, wanted.source())


def open_label(spark: "SparkSession", checkpoint: str) -> "Label":
    """Raises OptionError for a Spark that can't read the place of the checkpoint."""
    try:
        return Label(spark, checkpoint)
    except Exception as error:
        told = missing_jars(error, hadoop_version())
        if told is None:
            raise
        raise told from None


class Label:
    """A file in a checkpoint that says what it is for. Spark itself takes another query's, and skips what that did."""

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        jvm: Any = spark._jvm  # where Spark finds the checkpoint, by its own rules
        self._checkpoint = checkpoint
        self._path = jvm.org.apache.hadoop.fs.Path(checkpoint, LABEL)
        self._fresh = jvm.org.apache.hadoop.fs.Path(checkpoint, f".{LABEL}.tmp")
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._read = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._is_written = False

    def check(self, wanted: Mapping[str, str]) -> None:
        """Raises OptionError for a checkpoint that is for something else."""
        if not self._files.exists(self._path):
            return
        file = self._files.open(self._path)
        try:
            found = json.loads(bytes(self._read(file)))
        finally:
            file.close()
        if found != dict(wanted):
            others = [f"{name} {found.get(name)!r}" for name in found if found.get(name) != wanted.get(name)]
            raise OptionError(
                f"checkpoint {self._checkpoint} belongs to a run with {', '.join(others)}: take another folder"
            )
        self._is_written = True

    def write(self, wanted: Mapping[str, str]) -> None:
        """Under another name first: a run that is killed meanwhile leaves no half of it."""
        if self._is_written:
            return
        file = self._files.create(self._fresh, True)
        file.write(bytearray(json.dumps(dict(wanted)).encode()))
        file.close()
        if not self._files.rename(self._fresh, self._path):
            raise OptionError(f"checkpoint {self._checkpoint}: {LABEL} can't be written")
        self._is_written = True
