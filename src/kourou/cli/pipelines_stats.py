"""`kourou pipeline stats` and `kourou pipeline trace`: what goes on, for people and programs."""

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

stats_app = typer.Typer(help="What goes through topics, and how far groups are behind.", no_args_is_help=True)
trace_app = typer.Typer(help="What clients say in the trace topic.", no_args_is_help=True)

Pattern = Annotated[bool, typer.Option("--pattern", help="TOPICS is a regular expression.")]


@stats_app.command()
def traffic(
    topics: Annotated[
        str | None, typer.Argument(metavar="[TOPICS]", help="Names, separated by commas; all of a store without.")
    ] = None,
    namesrv: NameServers = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Count the files of this store instead of asking brokers.")
    ] = None,
    pattern: Pattern = False,
    window: Annotated[str, typer.Option(metavar="TIME", help="How finely time is told apart: 10s, 5m.")] = "60s",
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
    """Count messages and bytes by topic, queue, tags and time; sizes, and how evenly queues are filled."""
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
    samples: Annotated[int, typer.Option(min=0, metavar="N", help="How often to look; 0 for ever.")] = 1,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look: 10s, 5m.")] = "10s",
    option: SourceOptions = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """How many messages groups have before them, queue by queue, and how long the oldest waits. Starts no Spark."""
    options = source_options(namesrv, option)
    parse_span(every, "--every")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.stats import lag

        return lag(groups, topics, pattern=pattern, every=every, samples=samples, options=options, runner=runner)

    execute(job, as_json=as_json, html=html)


@trace_app.command()
def latency(
    namesrv: NameServers = None,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where clients write traces.")] = "RMQ_SYS_TRACE_TOPIC",
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    slow: Annotated[int, typer.Option(min=0, metavar="N", help="Show so many of the slowest.")] = 20,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Percentiles of sending, of the way from end to end and of consuming, by topic and group."""
    options = source_options(namesrv, option)

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.trace import latency

        return latency(
            topic=topic, since=since, until=until, key=key or (), where=where, slow=slow, options=options, runner=runner
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)
