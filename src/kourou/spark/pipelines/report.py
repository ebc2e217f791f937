"""The report of a run of a pipeline: one struct for text, JSON and pages.

A pipeline sets the fields that it has values for. Other results are `Table`s and `Chart`s, which text, JSON and HTML
show in the same way for all pipelines.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from kourou.printable import printable, printable_json
from kourou.spark.positions import Nested

Cell = str | int | float | None

TEXT_ROWS_MAX: Final = 20
"""Rows of a table that are shown as text; JSON and HTML have all."""


class Amount(msgspec.Struct):
    """How much."""

    rows: int = 0
    bytes: int = 0

    def add(self, rows: int, size_bytes: int = 0) -> None:
        self.rows += rows
        self.bytes += size_bytes


class Table(msgspec.Struct):
    """Rows of text and numbers under a title."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


class Chart(msgspec.Struct, kw_only=True):
    """Numbers to be drawn. Lines have numbers or times (ms since 1970) for x, bars have names."""

    title: str
    kind: Literal["lines", "bars"]
    x: list[float] | list[str]
    series: dict[str, list[float | None]]
    """By name; each as long as `x`, None for missing values."""
    unit: str = ""
    is_time: bool = False
    """x is a time."""


class RunReport(msgspec.Struct, kw_only=True, omit_defaults=False):
    """The result of a run. Returned by every pipeline, printed last by `--json`."""

    pipeline: str
    started: str
    """UTC, ISO 8601."""
    seconds: float = 0.0
    batches: int = 0
    read: Amount = msgspec.field(default_factory=Amount)
    written: Amount = msgspec.field(default_factory=Amount)
    reads_only: bool = False
    """The pipeline writes nothing, so the text omits what was written."""
    facts: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """The main results, each a figure and its name, instead of the counts of messages."""
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages that were read and not written, by the reason."""
    from_offsets: Nested = msgspec.field(default_factory=dict)
    to_offsets: Nested = msgspec.field(default_factory=dict)
    """{topic: {broker: {queue: offset}}}; the end is exclusive."""
    from_time: str | None = None
    to_time: str | None = None
    """Store times of the first and last message that was read, if they are known."""
    rows_per_s: float = 0.0
    stopped: Literal["end", "asked", "error"] = "end"
    """Why it ended: it was complete, it was asked to stop, or it failed."""
    errors: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """The settings of the run, without secrets."""
    tables: list[Table] = msgspec.field(default_factory=list)
    charts: list[Chart] = msgspec.field(default_factory=list)

    def skip(self, reason: str, rows: int) -> None:
        if rows:
            self.skipped[reason] = self.skipped.get(reason, 0) + rows

    def json(self) -> str:
        """One line."""
        return printable_json(msgspec.json.encode(self).decode())

    def text(self) -> str:
        """For people: a line of totals, then tables and notes."""
        lines = [printable(self._totals())]
        lines += [printable(f"  {rows:,} skipped: {reason}") for reason, rows in self.skipped.items()]
        for table in self.tables:
            lines += ["", *table_lines(table)]
        lines += [printable(f"note: {note}") for note in self.notes]
        lines += [printable(f"error: {error}") for error in self.errors]
        return "\n".join(lines)

    def _totals(self) -> str:
        ending = {"end": "", "asked": ", stopped as asked", "error": ", failed"}[self.stopped]
        if self.facts:
            said = "; ".join(f"{figure} {what}" for figure, what in self.facts)
            return f"{self.pipeline}: {said}; {count_text(self.batches, 'sample', 'samples')}{ending}"
        written = "" if self.reads_only else f"{self.written.rows:,} written, "
        return (
            f"{self.pipeline}: {self.read.rows:,} messages ({size_text(self.read.bytes)}) read, "
            f"{written}{count_text(self.batches, 'batch', 'batches')} in {self.seconds:.1f} s "
            f"({self.rows_per_s:,.0f}/s){ending}"
        )


def table_lines(table: Table) -> list[str]:
    """A table as text; numbers to the right."""
    rows = [[_cell(cell) for cell in row] for row in table.rows[:TEXT_ROWS_MAX]]
    widths = [max(len(name), *(len(row[at]) for row in rows), 0) for at, name in enumerate(table.columns)]
    is_number = [
        bool(rows) and all(isinstance(row[at], int | float) or row[at] is None for row in table.rows)
        for at in range(len(table.columns))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        )
        return "  " + "  ".join(padded).rstrip()

    lines = [printable(table.title), line([printable(name) for name in table.columns]), *(line(row) for row in rows)]
    if len(table.rows) > TEXT_ROWS_MAX:
        lines.append(f"  … and {len(table.rows) - TEXT_ROWS_MAX} more")
    return lines


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    text = f"{cell:,}" if isinstance(cell, int) else cell
    return printable(text)


def size_text(size_bytes: float) -> str:
    """3 B, 12.0 kB, 1.5 MB, 2.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000 or unit == "GB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"


def span_text(seconds: float) -> str:
    """0.3s, 12s, 3m05s, 2h10m, 4d03h."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def count_text(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def time_text(time_ms: float) -> str:
    """UTC, ISO 8601."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def offsets_table(title: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> Table:
    """The range of each queue that was read."""
    rows: list[list[Cell]] = []
    for topic, brokers in end.items():
        for broker, queues in brokers.items():
            for queue, offset in queues.items():
                begin = start.get(topic, {}).get(broker, {}).get(queue, 0)
                if offset > begin:
                    rows.append([topic, broker, int(queue), begin, offset, offset - begin])
    return Table(title, ["topic", "broker", "queue", "from", "to", "messages"], rows)
