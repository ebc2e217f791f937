"""Topic to topic, without duplicates.

    dedup("orders", "orders-once", by="keys", window="1 hour", namesrv=…, checkpoint="/data/checkpoints/once")

The first message with a key passes, and further ones are dropped as long as the key is remembered: at least for
`window` after the first one, and somewhat longer. The time is that of the pipeline, not that of the messages: so no
message is too late, and only duplicates of a message that passed are dropped, however unevenly queues are read. A
backlog that is read in one batch is compared as a whole. A message without a key passes.

Messages that pass keep the order of their queue. The keys are in the checkpoint, in RocksDB.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.spans import Span
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import span_s
from kourou.spark.pipelines.report import RunReport
from kourou.spark.pipelines.running import Runner, explain
from kourou.spark.pipelines.sending import by_queue
from kourou.spark.pipelines.streams import flow, read_stream, send_stream
from kourou.spark.pipelines.tasks import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB: Final = "dedup"
_KEY: Final = "__key"
_SEEN: Final = "__seen"
_STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


def dedup(
    topics: str,
    target: str,
    *,
    checkpoint: str | Path,
    by: str = "unique_key",
    window: Span = "1 hour",
    namesrv: str | None = None,
    once: bool = True,
    every: Span = "10s",
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """`by` is unique_key, keys, or SQL over a message, such as "get_json_object(string(body), '$.id')".

    Raises PipelineError.
    """
    wanted = flow(
        topics=topics,
        target=target,
        checkpoint=checkpoint,
        namesrv=namesrv,
        once=once,
        every=every,
        options=options,
        job={"pipeline": JOB, "by": by},
    )
    with (runner or Runner()).run(JOB, by=by, window=str(window), **wanted.asked()) as run:
        remembered = f"{round(span_s(window, 'window') * 1000)} milliseconds"
        first = first_of_key(read_stream(run, wanted), by, remembered)
        tasks = parallelism(run.spark)
        with _state_settings(run.spark, tasks):
            send_stream(run, first, wanted, prepare=lambda batch: by_queue(batch, tasks), is_ordered=True)
        run.report.skip("duplicates", run.report.read.rows - run.report.written.rows)
    return run.report


def first_of_key(frame: "DataFrame", by: str, window: str) -> "DataFrame":
    """Raises OptionError for a key or a window that Spark refuses."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812

    own = F.concat_ws("/", F.lit("\0"), "topic", "broker", "queue_id", "queue_offset")
    try:
        key = F.coalesce(F.nullif(F.expr(by).cast("string"), F.lit("")), own)
        marked = frame.withColumn(_KEY, key).withColumn(_SEEN, F.current_timestamp())
        return marked.withWatermark(_SEEN, window).dropDuplicatesWithinWatermark([_KEY]).drop(_KEY, _SEEN)
    except PySparkException as error:
        raise OptionError(f"by {by!r}, window {window!r}: {explain(error)}") from None


@contextmanager
def _state_settings(spark: "SparkSession", tasks: int) -> Iterator[None]:
    """RocksDB, with as many partitions as tasks run at a time instead of Spark's 200. A checkpoint keeps both."""
    settings = {**_STATE, "spark.sql.shuffle.partitions": str(tasks)}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
