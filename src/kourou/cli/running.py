"""What commands have in common: options, the event loop, error handling."""

import sys
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.output import discard_output, is_output_closed, show, show_error

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

NameServers = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT",
        envvar="NAMESRV_ADDR",
        help="Name servers, separated by semicolons (default: those of the profile in use).",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="JSON for programs, one object per line.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.", envvar="KOUROU_LOG_LEVEL")]

CLOSED_CHECK_SECONDS = 0.2
"""How often a waiting command checks whether the reader of its output has gone."""


class CommandError(Exception):
    """A command failed; the text says why."""


def run(command: Callable[[], Coroutine[Any, Any, None]], log_level: str) -> None:
    """Run an asyncio command with logging; a KourouError or CommandError is shown as one line, not as a traceback."""
    import asyncio

    from kourou.protocol.errors import KourouError

    level = log_level.upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise typer.BadParameter(f"--log-level {log_level}: debug, info, warning or error is expected")
    log_to_stderr(level)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(command())
    except (KourouError, CommandError) as error:
        show_error(_without_utf_8(error) or error)
        raise typer.Exit(1) from None
    except ValueError as error:
        show_error(_without_utf_8(error) or error)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _without_utf_8(error: Exception) -> str | None:
    """The remedy if the error is about a word of the command line that is not UTF-8: its bytes are surrogates here."""
    if not any(sign in str(error) for sign in ("surrogates not allowed", "\\udc")):
        return None
    found: list[str] = []
    for before, word in pairwise(sys.argv):
        shown = word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if shown == word:
            continue
        if before.startswith("-") or word.startswith("-"):
            name = word.partition("=")[0] if word.startswith("--") else before
            found.insert(0, f"{name} '{shown}'" if name == before else f"'{shown}'")
        else:
            found.append(f"'{shown}'")  # it may be a body, which may be any bytes
    if not found:
        return None
    return (
        f"{found[0]} is not UTF-8 text: it was typed or stored in another encoding. Use UTF-8 in the terminal or "
        "script, or convert the text (iconv -f LATIN1 -t UTF-8)"
    )


async def until_stopped(work: "Coroutine[Any, Any, None]") -> None:
    """Do some work until it ends, SIGINT or SIGTERM arrives, or the reader of the standard output has gone."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    watching = asyncio.ensure_future(_cancel_when_closed(task))
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        watching.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _cancel_when_closed(task: "asyncio.Task[None]") -> None:
    import asyncio

    while not is_output_closed():  # noqa: ASYNC110 - not every event loop tells of the far end of a pipe
        await asyncio.sleep(CLOSED_CHECK_SECONDS)
    discard_output()
    task.cancel()


def log_to_stderr(level: str) -> None:
    """Logs to the standard error, with all but printable text escaped."""
    import logging

    from kourou.printable import printable, printable_lines

    class OneLine(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
            record.message = printable(record.message)
            return super().formatMessage(record)

        def format(self, record: logging.LogRecord) -> str:
            return printable_lines(super().format(record))  # the traceback as well: it may quote a peer

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def show_unexpected(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:  # sys.excepthook
    """Shows the traceback of an internal error, escaped: it may quote a peer."""
    import traceback

    show("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"), error=True)


def _loop_factory() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """uvloop if it is installed: 2.7 times less CPU time with many small connections."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
