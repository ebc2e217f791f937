"""Topic to topic, by a streaming query with a checkpoint: the common part of `transform` and `dedup`.

The checkpoint has the progress of the query. If a run dies, the next one repeats its unfinished batch, with the same
rows and the same unique keys: at least once, and duplicates can be recognised.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.spans import Span
from kourou.spark.errors import OptionError
from kourou.spark.options import canonical
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
from kourou.spark.reading_settings import READ_OPTIONS
from kourou.spark.session import hadoop_version
from kourou.spark.sink import SINK_OPTIONS
from kourou.spark.source import commit_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS: Final = 500_000
LABEL: Final = "kourou.json"
KEPT: Final = 1000
"""The most batches whose counts are kept until Spark reports them."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Source, target and settings of a stream."""

    topics: str
    target: str | None
    """None if the rows have a column `topic`."""
    checkpoint: str
    namesrv: str | None = None
    once: bool = True
    every: Span = 10.0
    output_mode: str = "append"
    options: dict[str, str] = {}
    """Options of the source; those for access are also used for the sink."""
    job: dict[str, str] = {}
    """The pipeline, and the settings that define its query."""

    def check(self) -> None:
        """Raises OptionError."""
        span_s(self.every, "every")

    def source(self) -> dict[str, str]:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS), **self.options}
        if "startingTimestamp" in given:
            del given["startingOffsets"]
        return {**given, "topics": self.topics, **({"namesrv": self.namesrv} if self.namesrv else {})}

    def belongings(self) -> dict[str, str]:
        """The only use of the checkpoint."""
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
    """The values are checked when they are used, inside the run, which reports errors in them."""
    return Flow(
        topics=topics,
        target=target,
        checkpoint=str(checkpoint),
        namesrv=namesrv,
        once=once,
        every=every,
        options=canonical(options or {}, {*READ_OPTIONS, *SINK_OPTIONS}),
        output_mode=output_mode,
        job=dict(job),
    )


def read_stream(run: Run, wanted: Flow) -> "DataFrame":
    """Raises OptionError for a source or target topic that does not exist, and for an invalid interval."""
    wanted.check()
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
    """Run the query that sends a stream's rows, to its end or until a stop. Raises the error of the query."""
    options = sink_options(wanted.namesrv, wanted.options)
    check_rows(frame, wanted.target)
    checkpoint = for_spark(wanted.checkpoint)
    for name, value in spark_settings(wanted.checkpoint).items():
        run.spark.conf.set(name, value)
    label = open_label(run.spark, checkpoint)
    label.check(wanted.belongings())
    counts: dict[int, Shipment] = {}
    started: Future[StreamingQuery] = Future()  # its id stays the same as long as the checkpoint exists

    def send(batch: "DataFrame", number: int) -> None:
        run.enter_batch(number)
        how = How(write_id=f"{started.result().id}/{number}", is_ordered=is_ordered)
        counts[number] = send_frame(prepare(batch), Sending(options=options, topic=wanted.target, how=how))
        label.write(wanted.belongings())  # not before: a query that has not sent anything may still be changed
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
        writer = writer.trigger(processingTime=f"{round(span_s(wanted.every, 'every') * 1000)} milliseconds")
    query = writer.start()
    started.set_result(query)
    run.follow(query, count)
    if "group" in wanted.options and run.report.to_offsets:
        commit_progress(run.report.to_offsets, wanted.source())


def open_label(spark: "SparkSession", checkpoint: str) -> "Label":
    """Raises OptionError if this Spark can't read the place of the checkpoint."""
    try:
        return Label(spark, checkpoint)
    except Exception as error:
        told = missing_jars(error, hadoop_version())
        if told is None:
            raise
        raise told from None


class Label:
    """A file in a checkpoint that names its query. Spark would use another query's checkpoint, and skip messages."""

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        jvm: Any = spark._jvm  # the path of the checkpoint by Spark's rules
        self._checkpoint = checkpoint
        self._path = jvm.org.apache.hadoop.fs.Path(checkpoint, LABEL)
        self._fresh = jvm.org.apache.hadoop.fs.Path(checkpoint, f".{LABEL}.tmp")
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._read = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._is_written = False

    def check(self, wanted: Mapping[str, str]) -> None:
        """Raises OptionError for the checkpoint of another query."""
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
                f"checkpoint {self._checkpoint} belongs to a run with {', '.join(others)}: use another directory"
            )
        self._is_written = True

    def write(self, wanted: Mapping[str, str]) -> None:
        """First under another name: a run that is killed meanwhile leaves no partial file."""
        if self._is_written:
            return
        file = self._files.create(self._fresh, True)
        file.write(bytearray(json.dumps(dict(wanted)).encode()))
        file.close()
        if not self._files.rename(self._fresh, self._path):
            raise OptionError(f"checkpoint {self._checkpoint}: {LABEL} can't be written")
        self._is_written = True
