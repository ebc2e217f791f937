"""Topic to topic, by a streaming query with a checkpoint: what `transform` and `dedup` have in common.

The checkpoint says how far the query is. A batch that was under way when a run died is done again by the next one, with
the same rows and the same unique keys: at least once, and duplicates can be told.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

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
from kourou.spark.source import commit_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS: Final = 500_000
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

    def source(self) -> dict[str, str]:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS), **self.options}
        if "startingTimestamp" in given:
            del given["startingOffsets"]
        return {**given, "topics": self.topics, **({"namesrv": self.namesrv} if self.namesrv else {})}

    def asked(self) -> dict[str, object]:
        return {"topics": self.topics, "target": self.target, "checkpoint": self.checkpoint, "once": self.once}


def flow(
    *,
    topics: str,
    target: str | None,
    checkpoint: str | Path,
    namesrv: str | None,
    once: bool,
    every_s: float,
    options: Mapping[str, str] | None,
    output_mode: str = "append",
) -> Flow:
    return Flow(
        topics=topics,
        target=target,
        checkpoint=str(checkpoint),
        namesrv=namesrv,
        once=once,
        every_s=every_s,
        options=dict(options or {}),
        output_mode=output_mode,
    )


def read_stream(run: Run, wanted: Flow) -> "DataFrame":
    """Raises OptionError for topics, of both ends, that there are not."""
    check_target(sink_options(wanted.namesrv, wanted.options), wanted.target)
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
    counts: dict[int, Shipment] = {}
    started: Future[StreamingQuery] = Future()  # its id stays the same for as long as the checkpoint is there

    def send(batch: "DataFrame", number: int) -> None:
        run.enter_batch(number)
        how = How(write_id=f"{started.result().id}/{number}", is_ordered=is_ordered)
        counts[number] = send_frame(prepare(batch), Sending(options=options, topic=wanted.target, how=how))
        counts.pop(number - KEPT, None)
        note_trouble(run.report, counts[number])

    def count(number: int) -> Mapping[str, int]:
        sent = counts.pop(number, None)
        if sent is None:
            return {}
        found = {"written": sent.sent, "bytes": sent.bytes}
        return found if sent.newest_us is None else {**found, "newest_ms": sent.newest_us // 1000}

    writer = frame.writeStream.foreachBatch(send).outputMode(wanted.output_mode)
    writer = writer.option("checkpointLocation", wanted.checkpoint)
    if wanted.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(wanted.every_s * 1000)} milliseconds")
    query = writer.start()
    started.set_result(query)
    run.follow(query, count)
    if "group" in wanted.options and run.report.to_offsets:
        commit_progress(run.report.to_offsets, wanted.source())
