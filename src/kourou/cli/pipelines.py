"""`kourou pipeline`: the Spark jobs. The common part of the commands, which are in pipelines_*.py.

Nothing here imports Spark, or anything that needs it, before a verb runs: `kourou --help` and the base install do
without. A verb declares its options, and hands `execute` a function that is given a `Runner` and returns a `RunReport`.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.output import show_error
from kourou.cli.profiles import chosen_profile
from kourou.cli.running import CommandError, NameServers as NameServers, log_to_stderr

if TYPE_CHECKING:
    from kourou.spark.pipelines.report import RunReport
    from kourou.spark.pipelines.running import Runner

app = typer.Typer(
    help="Run Spark jobs: archive, replay, dead letters, SQL. They need the spark extra.", no_args_is_help=True
)

Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master: local[4], spark://…, yarn, k8s://… (local[*]).")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; can be repeated.")
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of format rocketmq, such as accessKey=…; can be repeated."
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="A JSON object per batch, and the report at the end.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page with charts.")]
Once = Annotated[
    bool, typer.Option("--once/--continuous", help="End when the present messages are processed, or run until stopped.")
]
Every = Annotated[str, typer.Option(metavar="TIME", help="With --continuous: how often a batch starts.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that this Spark SQL condition accepts.")]
Key = Annotated[
    list[str] | None, typer.Option(metavar="KEY", help="Only messages with this key or unique key; can be repeated.")
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only messages stored at this time (UTC) or later.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only messages stored before this time (UTC).")]


def execute(
    job: "Callable[[Runner], RunReport]",
    *,
    master: str | None = None,
    conf: Iterable[str] | None = None,
    as_json: bool = False,
    html: Path | None = None,
) -> None:
    """Run a job with progress, signal handling and a report. Exit code 0 if it ended or was stopped, 1 if it failed."""
    from kourou.protocol.errors import KourouError
    from kourou.spark.session import check_installation

    settings = pairs(conf, "--conf")
    log_to_stderr("WARNING")  # the default handler would write text of peers to the terminal unescaped
    if html is not None and not html.absolute().parent.is_dir():
        raise typer.BadParameter(f"--html {html}: the directory {html.parent} does not exist")
    try:
        check_installation()
        from kourou.spark.pipelines.progress import JsonLines, Lines
        from kourou.spark.pipelines.running import PipelineError, Runner, stopping_on_signals

        watch = JsonLines() if as_json else Lines()
        runner = Runner(master=master, settings=settings, watch=watch)
        with stopping_on_signals(runner):
            try:
                _save(job(runner), html)
            except PipelineError as error:
                _save(error.report, html)
                raise
    except (KourouError, OSError) as error:
        show_error(error)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)  # at once: threads that serve Spark would delay a normal exit


def _save(report: "RunReport", html: Path | None) -> None:
    from kourou.spark.pipelines.page import write_page

    if html is not None:
        write_page(report, html)


def pairs(words: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parses KEY=VALUE words. Raises BadParameter."""
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} {word}: KEY=VALUE is expected")
        found[name] = value
    return found


def source_options(namesrv: str | None, options: Iterable[str] | None) -> dict[str, str]:
    """The options of format rocketmq, with the name servers. Raises BadParameter if those are not given."""
    found = pairs(options, "--option")
    if namesrv:
        found["namesrv"] = namesrv
    if "namesrv" not in found:
        found = {**_profile_options(), **found}
    if "namesrv" not in found:
        raise typer.BadParameter(
            "no name server is given: use -n HOST:PORT, set NAMESRV_ADDR, or add a profile (kourou profile add)"
        )
    return found


def _profile_options() -> dict[str, str]:
    try:
        profile = chosen_profile()
    except CommandError as error:
        show_error(error)
        raise typer.Exit(1) from None
    if profile is None:
        return {}
    if profile.namespace is not None:
        show_error(
            "pipelines ignore a profile's namespace: write topics as NAMESPACE%TOPIC, and give -n and credentials"
        )
        raise typer.Exit(1)
    given = {
        "namesrv": profile.namesrv,
        "accessKey": profile.access_key,
        "secretKey": profile.secret_key,
        "securityToken": profile.security_token,
        "tls": "true" if profile.tls else None,
    }
    return {name: value for name, value in given.items() if value is not None}
