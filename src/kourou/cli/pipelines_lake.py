"""`kourou pipeline archive`, `archive-store`, `compact` and `replay`: writing and reading a lake."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.pipelines import (
    Conf,
    DryRun,
    Every,
    Html,
    JsonOutput,
    Key,
    Master,
    NameServers,
    Once,
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

LakeFolder = Annotated[str, typer.Argument(metavar="LAKE", help="A directory, or a URL such as s3://bucket/lake.")]
LakeFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Format of a new lake: parquet (the default), or delta, which needs the delta extra.",
    ),
]


def archive(
    topics: Annotated[str, typer.Argument(metavar="TOPICS", help="Topics, separated by commas.")],
    lake: LakeFolder,
    namesrv: NameServers = None,
    pattern: Annotated[bool, typer.Option("--pattern", help="TOPICS is a regular expression for whole names.")] = False,
    once: Once = True,
    every: Every = "60s",
    batch_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum messages per batch.")] = 2_000_000,
    group: Annotated[str | None, typer.Option(help="Commit the progress to brokers as this group.")] = None,
    format: LakeFormat = None,  # noqa: A002
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Archive topics to Parquet files by topic, date and hour, each message exactly once. Continues the last run."""
    options = source_options(namesrv, option)
    parse_span(every, "--every")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.archive import archive

        return archive(
            topics,
            lake,
            pattern=pattern,
            once=once,
            every=every,
            batch_rows=batch_rows,
            format=format,
            group=group,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


def archive_store(
    store: Annotated[str, typer.Argument(metavar="DIR", help="A store's root, or its commitlog directory.")],
    lake: LakeFolder,
    broker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The broker's name, which is not in the files and is part of the archive."),
    ] = None,
    topics: Annotated[
        str | None, typer.Option(metavar="TOPICS", help="Only these topics (default: all but system topics).")
    ] = None,
    format: LakeFormat = None,  # noqa: A002
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="KEY=VALUE", help="An option of format rocketmq-store, such as onCorrupt=skip."
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Archive the files of a store to the same lake, without using the broker. Continues the last run."""
    options = pairs(option, "--option")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.archive_store import archive_store

        return archive_store(store, lake, broker=broker, topics=topics, format=format, options=options, runner=runner)

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


def compact(
    lake: LakeFolder,
    topics: Annotated[
        str | None, typer.Option(metavar="TOPICS", help="Only these topics, separated by commas.")
    ] = None,
    target_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Merge files smaller than half this size into files of this size: 64m, 1g."),
    ] = "128m",
    vacuum: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Format delta: delete files that were replaced before this time: 7d."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Merge the small files of a lake, even while other runs write to it. Each message stays in it exactly once."""
    if vacuum is not None:
        parse_span(vacuum, "--vacuum")

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.compact import compact

        return compact(lake, topics=topics, target_size=target_size, vacuum=vacuum, runner=runner)

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


def replay(
    lake: LakeFolder,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to send to.")],
    namesrv: NameServers = None,
    source: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of the lake, if it has several.")
    ] = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="Messages per second at most.")] = None,
    dry_run: DryRun = False,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Send messages of a lake to a topic, in queue order, marked as replayed."""
    options = pairs(option, "--option") if dry_run else source_options(namesrv, option)

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.replay import replay

        return replay(
            lake,
            topic,
            source=source,
            since=since,
            until=until,
            key=key or (),
            where=where,
            rate=rate,
            dry_run=dry_run,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)
