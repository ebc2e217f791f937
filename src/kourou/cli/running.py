"""What commands have in common: options, the event loop, and what happens to errors."""

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import asyncio

NameServers = Annotated[
    str | None,
    typer.Option(
        "--namesrv", "-n", metavar="HOST:PORT", envvar="NAMESRV_ADDR", help="Name servers, separated by semicolons."
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="JSON for programs, one object a line.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.", envvar="KOUROU_LOG_LEVEL")]


class CommandError(Exception):
    """A command that can't do what it was asked for; the text says why."""


def run(command: Callable[[], Coroutine[Any, Any, None]], log_level: str) -> None:
    """Run an asyncio command with logging; an error of ours is one line, not a traceback."""
    import asyncio
    import logging

    from kourou.protocol.errors import KourouError

    level = log_level.upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise typer.BadParameter(f"--log-level {log_level}: debug, info, warning or error is expected")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(command())
    except (KourouError, CommandError) as error:
        print(f"kourou: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except ValueError as error:
        print(f"kourou: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _loop_factory() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """uvloop where it is installed: 2.7 times less CPU with many small connections."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
