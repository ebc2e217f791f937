"""`kourou pipeline dlq triage` and `dlq redrive`: dead letters."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.pipelines import (
    Conf,
    DryRun,
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
    source_options,
)

if TYPE_CHECKING:
    from kourou.spark.pipelines.report import RunReport
    from kourou.spark.pipelines.running import Runner

app = typer.Typer(help="Count dead letters, and send them again.", no_args_is_help=True)


@app.command()
def triage(
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Groups (default: all).")] = None,
    namesrv: NameServers = None,
    by: Annotated[
        str | None, typer.Option(metavar="PROPERTY", help="Count by this property as well: the exception, for example.")
    ] = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    sample: Annotated[int, typer.Option(min=0, metavar="N", help="Show this many of the newest.")] = 10,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Count the dead letters of groups by topic, tags and number of attempts; show their ages and the newest ones."""
    options = source_options(namesrv, option)

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.dlq import triage

        return triage(
            groups or (),
            by=by,
            since=since,
            until=until,
            key=key or (),
            where=where,
            sample=sample,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)


@app.command()
def redrive(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group with the dead letters.")],
    state: Annotated[
        str, typer.Option(metavar="DIR", help="Records which were sent again; use the same for all runs of a group.")
    ],
    target: Annotated[
        str, typer.Option(metavar="WHERE", help="origin, retry (only this group gets them again), or a topic.")
    ] = "origin",
    namesrv: NameServers = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    where: Where = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="Maximum messages per second.")] = None,
    dry_run: DryRun = False,
    batch_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum dead letters per batch.")] = 20_000,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
    as_json: JsonOutput = False,
    html: Html = None,
) -> None:
    """Send dead letters again, each only once over all runs."""
    options = source_options(namesrv, option)

    def job(runner: "Runner") -> "RunReport":
        from kourou.spark.pipelines.dlq import redrive

        return redrive(
            group,
            state,
            target=target,
            since=since,
            until=until,
            key=key or (),
            where=where,
            rate=rate,
            dry_run=dry_run,
            batch_rows=batch_rows,
            options=options,
            runner=runner,
        )

    execute(job, master=master, conf=conf, as_json=as_json, html=html)
