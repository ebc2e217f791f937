"""Output: everything that a command prints goes through `show`.

`show` escapes all but printable text (see kourou.printable). No other module of the command line writes to the standard
streams, and a test in tests/architecture checks that.

When the reader of a pipe goes away, as `head` does, the command ends with exit code 0.
"""

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

import typer

from kourou.printable import printable, printable_json, printable_lines

PIPE_WIDTH = 200
"""The minimum width of a table that goes to a file or a pipe."""

FLOAT_DIGITS = 2
"""Decimal places of a number, in tables and in JSON."""


class OutputClosed(typer.Exit):
    """The reader of the standard output has gone: the command ends with exit code 0."""


def show(*lines: str, error: bool = False) -> None:
    """Write lines to the standard output or the standard error. A line may contain line breaks.

    Raises OutputClosed if the reader of the standard output has gone, Exit with code 1 if it can't be written.
    """
    text = "".join(f"{printable_lines(line)}\n" for line in lines)
    if error:
        with suppress(OSError):  # the failure can't be reported anywhere else
            _write(sys.stderr, text)
        return
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        discard_output()
        raise OutputClosed(0) from None
    except OSError as failure:
        discard_output()
        show_error(f"the output can't be written: {failure.strerror or failure}")
        raise typer.Exit(1) from None


def show_error(error: object) -> None:
    """Writes why a command failed, in one line on the standard error."""
    show(f"kourou: {printable(str(error))}", error=True)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the terminal's encoding does not have this character
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def discard_output() -> None:
    """Discards the rest of the buffers; otherwise Python would report a closed pipe at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # not a real file, or already closed


def is_output_closed() -> bool:
    """Whether the reader of the standard output has gone; works for pipes and sockets, without writing."""
    import select

    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)  # errors are always reported
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in watch.poll(0))
    except (OSError, ValueError):
        return False


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_json(*values: object) -> None:
    """Write one JSON object per line. Raises OutputClosed."""
    show(*map(json_line, values))


def json_line(value: object) -> str:
    """A value in one line of JSON; types that JSON does not have become strings."""
    return printable_json(json.dumps(value, ensure_ascii=False, default=str))


def rounded(value: object) -> object:
    """A number, rounded; None for one that is not finite, which JSON does not have."""
    if isinstance(value, float):
        return round(value, FLOAT_DIGITS) if math.isfinite(value) else None
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return value


# ── Tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def cell(value: object) -> str:
    """A value in one line of a table."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{FLOAT_DIGITS}f}"
    if isinstance(value, list | tuple):
        return " ".join(map(cell, value))
    return printable(str(value))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True) -> None:
    """Shows a table with numbers right-aligned; without `fold` a row is one line. Raises OutputClosed."""
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        is_number = bool(listed) and all(isinstance(row[number], int | float) for row in listed)
        justify: Any = "right" if is_number else "left"
        table.add_column(Text(printable(column)), justify=justify, overflow="fold", no_wrap=not fold)
    for row in listed:
        table.add_row(*(Text(cell(value)) for value in row))
    show_laid_out(table)


def show_facts(facts: Mapping[str, object]) -> None:
    """Shows a line for each name and value. Raises OutputClosed."""
    width = max((len(printable(name)) for name in facts), default=0)
    show(*(f"{printable(name):<{width}} : {cell(value)}" for name, value in facts.items()))


def is_terminal() -> bool:
    """Are the standard input and output a terminal?"""
    return sys.stdin.isatty() and sys.stdout.isatty()


def live_screen() -> Any:
    """A `rich.live.Live` over the whole terminal. It must show only `Text` of `cell`."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


def show_laid_out(table: Any) -> None:
    """Lays out a table, or several parts, with rich, without colours, and writes it by `show`. Raises OutputClosed."""
    from rich.console import Console

    width = Console().width
    if not sys.stdout.isatty():
        width = max(width, PIPE_WIDTH)
    into = io.StringIO()
    console = Console(file=into, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    console.print(table)
    show(*(line.rstrip() for line in into.getvalue().splitlines()))


__all__ = [
    "OutputClosed",
    "cell",
    "discard_output",
    "is_output_closed",
    "is_terminal",
    "json_line",
    "live_screen",
    "printable",
    "rounded",
    "show",
    "show_error",
    "show_facts",
    "show_json",
    "show_laid_out",
    "show_table",
]
