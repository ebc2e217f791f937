"""`kourou store`: verifies, inspects and converts the files of a store, without a broker.

See verifying.py, inspecting.py and converting.py.
"""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Verify, inspect and convert the files of a store, Kourou's or Apache's.", no_args_is_help=True)

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


class Layout(Enum):
    """What `convert` makes."""

    PLAIN = "plain"
    DLEDGER = "dledger"


class Uncommitted(Enum):
    """What `convert` does with entries that DLedger does not call committed."""

    KEEP = "keep"
    DROP = "drop"


@app.command()
def convert(
    directory: Directory,
    target: Annotated[Path, typer.Argument(metavar="NEW_DIR", help="The new store; it must be empty or missing.")],
    to: Annotated[
        Layout | None, typer.Option(help="The new layout, as a check: it is always the one that DIR does not have.")
    ] = None,
    self_id: Annotated[
        str | None,
        typer.Option(help="dLegerSelfId: the member to read, if there are several, or to write. Default: n0."),
    ] = None,
    dledger_data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="DLedger's entries, if they are not in DIR/dledger-*/data."),
    ] = None,
    uncommitted: Annotated[
        Uncommitted, typer.Option(help="Keep or drop entries after the last one that DLedger calls committed.")
    ] = Uncommitted.KEEP,
    commit_log: CommitLog = None,
    as_json: Json = False,
) -> None:
    """Convert a store from DLedger's layout to the plain one, or back. DIR is not changed.

    If it is interrupted, run it again: it continues. Exit code 1: the new store was not completed.
    """
    from kourou.cli import converting
    from kourou.cli.running import log_to_stderr

    log_to_stderr("WARNING")
    wanted = converting.Wanted(to.value if to else None, self_id, uncommitted.value, dledger_data)
    raise typer.Exit(converting.convert(directory, commit_log, target, wanted, as_json=as_json))


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
