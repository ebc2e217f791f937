"""`kourou store`: verifies and inspects the files of a store, without a broker: see verifying.py and inspecting.py."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Verify and inspect the files of a store, Kourou's or Apache's, even while it is in use.", no_args_is_help=True
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The store's root (storePathRootDir).")]
CommitLog = Annotated[
    Path | None, typer.Option("--commit-log", metavar="DIR", help="The commit log, if it is not in DIR/commitlog.")
]
Live = Annotated[bool, typer.Option("--live", help="Verify even while a broker uses the store.")]
Json = Annotated[bool, typer.Option("--json", help="Output as JSON.")]


class Part(Enum):
    """What `inspect` shows."""

    OVERVIEW = "overview"
    RECORDS = "records"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"


@app.command()
def verify(directory: Directory, commit_log: CommitLog = None, live: Live = False, as_json: Json = False) -> None:
    """Check every record, queue entry and index entry. Changes nothing.

    Exit code 1: problems were found. 2: the store could not be checked.
    """
    from kourou.cli import verifying
    from kourou.cli.running import log_to_stderr

    log_to_stderr("WARNING")
    raise typer.Exit(verifying.verify(directory, commit_log, live=live, as_json=as_json))


@app.command()
def inspect(
    directory: Directory,
    part: Annotated[Part, typer.Argument(help="What to show.")] = Part.OVERVIEW,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue of the topic.")] = None,
    start: Annotated[
        int | None,
        typer.Option("--from", help="The first offset: in the queue if --queue is given, otherwise in the log."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 20,
    key: Annotated[
        str | None, typer.Option(help="Only records of the topic with this key, found by the index.")
    ] = None,
    commit_log: CommitLog = None,
    as_json: Json = False,
) -> None:
    """Show records, queues, the index or the checkpoint. Changes nothing; works while a broker is running."""
    from kourou.cli import inspecting
    from kourou.cli.running import log_to_stderr

    log_to_stderr("WARNING")
    if queue is not None and topic is None:
        raise typer.BadParameter("--queue needs --topic")
    if key is not None and topic is None:
        raise typer.BadParameter("--key needs --topic")
    wanted = inspecting.Wanted(topic, queue, start, count, key)
    raise typer.Exit(inspecting.inspect(directory, commit_log, part.value, wanted, as_json=as_json))
