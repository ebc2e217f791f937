"""`kourou pipeline transform` and `dedup`: topic to topic, with a checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.pipelines import (
    Conf,
    Every,
    Html,
    JsonOutput,
    Master,
    NameServers,
    Once,
    SourceOptions,
    execute,
    source_options,
)
from kourou.cli.times import parse_span

if TYPE_CHECKING:
    from kourou.spark.pipelines.report import RunReport
    from kourou.spark.pipelines.running import Runner

Topics = Annotated[str, typer.Argument(metavar="TOPICS", help="Topics, separated by commas.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The topic to send to.")]
Checkpoint = Annotated[
    str, typer.Option(metavar="DIR", help="Where the progress is stored; each pipeline needs its own, always the same.")
]


def transform(
    topics: Topics,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The topic to send to; - to take it from the column topic.")
    ],
    checkpoint: Checkpoint,
    sql: Annotated[
        str | None, typer.Option(metavar="SQL", help="SELECT … FROM messages; the result needs a column body.")
    ] = None,
    sql_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the SQL from a file.")] = None,
    namesrv: NameServers = None,
    once: Once = True,
    every: Every = "10s",
    watermark: Annotated[
        str | None, typer.Option(metavar="TIME", help="For windows: how late messages may be, '10 minutes'.")
    ] = None,
    output_mode: Annotated[str, typer.Option(metavar="MODE", help="append, update or complete.")] = "append",
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Send the result of an SQL query over a topic to another topic."""
    options = source_options(namesrv, option)
    parse_span(every, "--every")
    if watermark is not None:
        parse_span(watermark, "--watermark")
    if (sql is None) == (sql_file is None):
        raise typer.BadParameter("give --sql or --sql-file")
    try:
        text = sql or (sql_file.read_text() if sql_file is not None else "")
    except OSError as error:
        raise typer.BadParameter(f"--sql-file {sql_file}: {error.strerror}") from None

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.transform import transform

        return transform(
            topics,
            None if target == "-" else target,
            sql=text,
            checkpoint=checkpoint,
            once=once,
            every=every,
            watermark=watermark,
            output_mode=output_mode,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


def dedup(
    topics: Topics,
    target: Target,
    checkpoint: Checkpoint,
    by: Annotated[str, typer.Option(metavar="KEY", help="unique_key, keys, or an SQL expression.")] = "unique_key",
    window: Annotated[
        str, typer.Option(metavar="TIME", help="The minimum time for which keys are remembered.")
    ] = "1 hour",
    namesrv: NameServers = None,
    once: Once = True,
    every: Every = "10s",
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Send a topic's messages to another topic, without those whose key was seen before."""
    options = source_options(namesrv, option)
    parse_span(every, "--every")
    parse_span(window, "--window")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.dedup import dedup

        return dedup(
            topics,
            target,
            checkpoint=checkpoint,
            by=by,
            window=window,
            once=once,
            every=every,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)
