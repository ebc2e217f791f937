"""`kourou pipeline stats` and `kourou pipeline trace`: traffic, lag and latency."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.pipelines import (
    Conf,
    Html,
    JsonOutput,
    Key,
    Master,
    NameServers,
    Since,
    SourceOptions,
    Until,
    Where,
    execute,
    pairs,
    source_options,
)
from kourou.cli.times import parse_span

if TYPE_CHECKING:
    from kourou.spark.pipelines.report import RunReport
    from kourou.spark.pipelines.running import Runner

stats_app = typer.Typer(help="Show the traffic of topics and the lag of groups.", no_args_is_help=True)
trace_app = typer.Typer(help="Analyse the traces of clients.", no_args_is_help=True)

Pattern = Annotated[bool, typer.Option("--pattern", help="TOPICS is a regular expression.")]


@stats_app.command()
def traffic(
    topics: Annotated[
        str | None, typer.Argument(metavar="[TOPICS]", help="Names, separated by commas (default, with --store: all).")
    ] = None,
    namesrv: NameServers = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read the files of this store instead of using brokers.")
    ] = None,
    pattern: Pattern = False,
    window: Annotated[str, typer.Option(metavar="TIME", help="Length of an interval: 10s, 5m.")] = "60s",
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Count messages and bytes by topic, queue, tags and time; show sizes, and how evenly queues are filled."""
    options = pairs(option, "--option") if store is not None else source_options(namesrv, option)
    parse_span(window, "--window")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.stats import traffic

        return traffic(
            topics,
            store=store,
            pattern=pattern,
            window=window,
            since=since,
            until=until,
            key=key or (),
            where=where,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


@stats_app.command()
def lag(
    groups: Annotated[str, typer.Argument(metavar="GROUPS", help="Names, separated by commas.")],
    topics: Annotated[str, typer.Argument(metavar="TOPICS", help="Names, separated by commas.")],
    namesrv: NameServers = None,
    pattern: Pattern = False,
    samples: Annotated[int, typer.Option(min=0, metavar="N", help="How many samples to take; 0: until stopped.")] = 1,
    every: Annotated[str, typer.Option(metavar="TIME", help="Interval between samples: 10s, 5m.")] = "10s",
    option: SourceOptions = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Show the lag of groups by queue, and how long the oldest message has waited. Does not start Spark."""
    options = source_options(namesrv, option)
    parse_span(every, "--every")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.stats import lag

        return lag(groups, topics, pattern=pattern, every=every, samples=samples, options=options, runner=runner)

    execute(job, as_json=as_json, html=html)


@trace_app.command()
def latency(
    namesrv: NameServers = None,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The trace topic.")] = "RMQ_SYS_TRACE_TOPIC",
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    slow: Annotated[int, typer.Option(min=0, metavar="N", help="Show this many of the slowest.")] = 20,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Show percentiles of send, end-to-end and consume times, by topic and group."""
    options = source_options(namesrv, option)

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.trace import latency

        return latency(
            topic=topic, since=since, until=until, key=key or (), where=where, slow=slow, options=options, runner=runner
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)
