"""SQL from topic to topic.

    transform(
        "SELECT string(body) AS body, tags FROM messages WHERE tags = 'paid'",
        "orders", "paid-orders", namesrv=…, checkpoint="/data/checkpoints/paid",
    )

The messages are the table `messages`, with the columns of the row schema; the query's columns are those of the sink, of
which `body` is needed. SQL with time windows needs a watermark and goes by Spark's rules for streams.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.spans import Span
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import span_s
from kourou.spark.pipelines.report import RunReport
from kourou.spark.pipelines.running import Runner, explain
from kourou.spark.pipelines.streams import flow, read_stream, send_stream

JOB: Final = "transform"
VIEW: Final = "messages"


def transform(
    topics: str,
    target: str | None,
    *,
    sql: str,
    checkpoint: str | Path,
    namesrv: str | None = None,
    once: bool = True,
    every: Span = "10s",
    watermark: Span | None = None,
    output_mode: str = "append",
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Send the result of the SQL to `target`, or to the topics in its column `topic`.

    `watermark` is how late messages may be by their store time, such as "10 minutes": for SQL with windows or joins.
    `options` are those of the source. Raises PipelineError.
    """
    wanted = flow(
        topics=topics,
        target=target,
        checkpoint=checkpoint,
        namesrv=namesrv,
        once=once,
        every=every,
        options=options,
        output_mode=output_mode,
        job={"pipeline": JOB, "sql": sql},
    )
    with (runner or Runner()).run(JOB, sql=sql, **wanted.asked()) as run:
        from pyspark.errors import PySparkException

        messages = read_stream(run, wanted)
        if watermark is not None:
            late = f"{round(span_s(watermark, 'watermark') * 1000)} milliseconds"
            messages = messages.withWatermark("store_timestamp", late)
        messages.createOrReplaceTempView(VIEW)
        try:
            frame = run.spark.sql(sql)
        except PySparkException as error:
            raise OptionError(f"the SQL: {explain(error)}") from None
        if not frame.isStreaming:
            raise OptionError(f"the SQL query does not read the table {VIEW}")
        send_stream(run, frame, wanted)
    return run.report
