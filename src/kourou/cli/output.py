"""The one way to the terminal: all that a command shows goes through `show`.

`show` lets only printable text pass (see kourou.printable): no other module of the command line writes to the standard
streams, and a test in tests/architecture checks that.

A reader that goes away, such as `head`, ends the command with exit code 0.
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
"""Columns of a table that goes to a file or a pipe, at least."""

FLOAT_DIGITS = 2
"""Digits after the point of a figure, in tables and in JSON."""


class OutputClosed(typer.Exit):
    """Nobody reads the standard output any more: the command ends, with exit code 0."""


def show(*lines: str, error: bool = False) -> None:
    """Write lines to the standard output, or to the standard error. A line may contain further lines.

    Raises OutputClosed when nobody reads the standard output any more, Exit with code 1 when it can't be written.
    """
    text = "".join(f"{printable_lines(line)}\n" for line in lines)
    if error:
        with suppress(OSError):  # there is nowhere else to report it
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
    """Why a command failed, in one line on the standard error."""
    show(f"kourou: {printable(str(error))}", error=True)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the locale of the terminal has no such character
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def discard_output() -> None:
    """Let what is still in buffers go nowhere, or Python would report a closed pipe when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # not a real file, or closed already


def is_output_closed() -> bool:
    """Has the reader of the standard output gone? Known for pipes and sockets, without writing."""
    import select

    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)  # errors are reported always
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in watch.poll(0))
    except (OSError, ValueError):
        return False


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_json(*values: object) -> None:
    """Write one JSON object per line. Raises OutputClosed."""
    show(*map(json_line, values))


def json_line(value: object) -> str:
    """A value in one line of JSON; what JSON does not know is its text."""
    return printable_json(json.dumps(value, ensure_ascii=False, default=str))


def rounded(value: object) -> object:
    """A figure as it is shown; None for one that is not finite, which JSON does not have."""
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
    """Rows under their columns, numbers to the right; without `fold` a row is one line. Raises OutputClosed."""
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
    _show_laid_out(table)


def show_facts(facts: Mapping[str, object]) -> None:
    """A line for each name and value. Raises OutputClosed."""
    width = max((len(printable(name)) for name in facts), default=0)
    show(*(f"{printable(name):<{width}} : {cell(value)}" for name, value in facts.items()))


def _show_laid_out(table: Any) -> None:
    """Without colours: what rich lays out passes `show` like everything else."""
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
    "json_line",
    "printable",
    "rounded",
    "show",
    "show_error",
    "show_facts",
    "show_json",
    "show_table",
]
