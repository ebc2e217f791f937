"""`kourou store`: look at the files of a store, without a broker. The work is in verifying.py and inspecting.py."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at the files of a store: ours or Apache's, in use or not.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The store's root (storePathRootDir).")]
CommitLog = Annotated[
    Path | None, typer.Option("--commit-log", metavar="DIR", help="Where the log is, if not in DIR/commitlog.")
]
Live = Annotated[bool, typer.Option("--live", help="Also while a broker has it open.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]


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

    Exit code 1: there are problems. 2: it could not be checked.
    """
    from kourou.cli import verifying
    from kourou.cli.running import log_to_stderr

    log_to_stderr("WARNING")
    raise typer.Exit(verifying.verify(directory, commit_log, live=live, as_json=as_json))


@app.command()
def inspect(
    directory: Directory,
    part: Annotated[Part, typer.Argument(help="What to show.")] = Part.OVERVIEW,
    topic: Annotated[str | None, typer.Option(help="Of this topic only.")] = None,
    queue: Annotated[int | None, typer.Option(help="Of this queue of the topic only.")] = None,
    start: Annotated[
        int | None, typer.Option("--from", help="The first offset: of the queue if one is given, else of the log.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    key: Annotated[str | None, typer.Option(help="Records of the topic with this key, by the index.")] = None,
    commit_log: CommitLog = None,
    as_json: Json = False,
) -> None:
    """Show records, queues, the index or the checkpoint. Changes nothing, and may be used while a broker runs."""
    from kourou.cli import inspecting
    from kourou.cli.running import log_to_stderr

    log_to_stderr("WARNING")
    if queue is not None and topic is None:
        raise typer.BadParameter("--queue needs --topic")
    if key is not None and topic is None:
        raise typer.BadParameter("--key needs --topic")
    wanted = inspecting.Wanted(topic, queue, start, count, key)
    raise typer.Exit(inspecting.inspect(directory, commit_log, part.value, wanted, as_json=as_json))
