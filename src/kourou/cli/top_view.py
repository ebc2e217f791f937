"""How `kourou top` looks: a snapshot as tables that fit a terminal, narrow or wide.

Everything that comes from a broker is escaped (`output.cell`) and put into `Text`, which knows no markup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kourou.cli.output import cell
from kourou.cli.top_facts import BrokerRow, GroupRow, Snapshot, TopicRow

PROBLEMS_MAX: Final = 5
NARROW: Final = 100
"""Terminals with fewer columns get fewer columns of the tables."""

NAME_MAX: Final = 40

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table."""

    title: str
    show: Callable[[T], str]
    sort: Callable[[T], float] | None = None  # descending; None: not sorted by it
    is_text: bool = False
    is_wide: bool = False  # only for wide terminals


@dataclass(slots=True)
class View:
    """The choices that the user made with keys."""

    of_topics: bool = False
    group_sort: int = 0
    topic_sort: int = 0
    is_paused: bool = False

    def press(self, key: str) -> bool:
        """False: leave."""
        match key:
            case "q" | "Q" | "\x03" | "\x04":
                return False
            case "\t":
                self.of_topics = not self.of_topics
            case "g":
                self.of_topics = False
            case "t":
                self.of_topics = True
            case "s" if self.of_topics:
                self.topic_sort = (self.topic_sort + 1) % len(_sortable(TOPICS))
            case "s":
                self.group_sort = (self.group_sort + 1) % len(_sortable(GROUPS))
            case "p" | " ":
                self.is_paused = not self.is_paused
        return True


def rate(value: float | None) -> str:
    """Messages a second; a dash where there is none yet."""
    return "-" if value is None else count(value)


def count(value: float | None) -> str:
    """A number in at most six characters."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000 or unit == "G":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if not unit and value == int(value) else f"{value:.1f}{unit}"


def age(ms: int | None) -> str:
    """A span of time in one unit."""
    if ms is None:
        return "-"
    seconds = ms / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


BROKERS: Final[tuple[Column[BrokerRow], ...]] = (
    Column("broker", lambda row: row.name, is_text=True),
    Column("role", lambda row: row.role, is_text=True),
    Column("in/s", lambda row: rate(row.in_rate)),
    Column("out/s", lambda row: rate(row.out_rate)),
    Column("disk", lambda row: "-" if row.disk is None or row.disk < 0 else f"{row.disk:.0%}"),
    Column("sends wait", lambda row: count(row.sends_waiting), is_wide=True),
    Column("pulls wait", lambda row: count(row.pulls_waiting), is_wide=True),
    Column("to flush", lambda row: row.flush_behind, is_wide=True),
    Column("replicas", lambda row: row.replicas, is_text=True, is_wide=True),
    Column("version", lambda row: row.version, is_text=True, is_wide=True),
    Column("address", lambda row: row.error or row.address, is_text=True, is_wide=True),
)
GROUPS: Final[tuple[Column[GroupRow], ...]] = (
    Column("group", lambda row: row.group, is_text=True),
    Column("topic", lambda row: row.topic, is_text=True),
    Column("lag", lambda row: count(row.lag), lambda row: row.lag),
    Column("behind", lambda row: age(row.lag_ms), lambda row: row.lag_ms or 0),
    Column("in/s", lambda row: rate(row.in_rate), lambda row: row.in_rate or 0, is_wide=True),
    Column("out/s", lambda row: rate(row.out_rate), lambda row: row.out_rate or 0),
    Column("in flight", lambda row: count(row.in_flight), lambda row: row.in_flight, is_wide=True),
)
TOPICS: Final[tuple[Column[TopicRow], ...]] = (
    Column("topic", lambda row: row.topic, is_text=True),
    Column("in/s", lambda row: rate(row.in_rate), lambda row: row.in_rate or 0),
    Column("messages", lambda row: count(row.messages), lambda row: row.messages),
    Column("queues", lambda row: str(row.queues), lambda row: row.queues),
)


def _sortable(columns: Sequence[Column[T]]) -> list[Column[T]]:
    return [column for column in columns if column.sort is not None]


def ordered(rows: Sequence[T], columns: Sequence[Column[T]], chosen: int) -> list[T]:
    """The rows in the order of the chosen column, and then by name."""
    column = _sortable(columns)[chosen]
    by_name = sorted(rows, key=lambda row: columns[0].show(row))
    assert column.sort is not None
    return sorted(by_name, key=column.sort, reverse=True)


def screen(snapshot: Snapshot, view: View, width: int, height: int, title: str = "kourou top") -> Group:
    """The whole view, in no more lines than the terminal has."""
    parts: list[Any] = [Text(cell(_head(snapshot, view, title)), no_wrap=True, overflow="ellipsis", style="bold")]
    problems = [Text(cell(f"! {text}"), no_wrap=True, overflow="ellipsis") for text in snapshot.problems]
    parts += problems[:PROBLEMS_MAX]
    if len(problems) > PROBLEMS_MAX:
        parts.append(Text(f"! and {len(problems) - PROBLEMS_MAX} more"))
    brokers = snapshot.brokers[: max(height // 3, 1)]
    parts += [_table(brokers, BROKERS, width), Text("")]
    left = max(height - len(parts) - len(brokers) - 2, 1)
    if view.of_topics:
        rows = ordered(snapshot.topics, TOPICS, view.topic_sort)
        parts.append(_table(rows[:left], TOPICS, width, _sortable(TOPICS)[view.topic_sort].title))
    else:
        lagging = ordered(snapshot.groups, GROUPS, view.group_sort)
        parts.append(_table(lagging[:left], GROUPS, width, _sortable(GROUPS)[view.group_sort].title))
    return Group(*parts)


def _head(snapshot: Snapshot, view: View, title: str) -> str:
    figures = (
        f"brokers {len(snapshot.brokers)}, topics {snapshot.topics_known}, groups {snapshot.groups_known} | "
        f"in {rate(_sum(row.in_rate for row in snapshot.brokers if row.role == 'master'))}/s "
        f"out {rate(_sum(row.out_rate for row in snapshot.brokers))}/s"
    )
    keys = "paused, p: continue" if view.is_paused else "q quit, s sort, Tab groups/topics, p pause"
    return f"{title} | {figures} | {keys}"


def _sum(rates: Any) -> float | None:
    known = [one for one in rates if one is not None]
    return sum(known) if known else None


def _table(rows: Sequence[T], columns: Sequence[Column[T]], width: int, chosen: str = "") -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
    shown = [column for column in columns if width >= NARROW or not column.is_wide]
    for column in shown:
        title = f"{column.title}*" if column.title == chosen else column.title
        justify: Any = "left" if column.is_text else "right"
        table.add_column(Text(title), justify=justify, no_wrap=True, overflow="ellipsis", max_width=NAME_MAX)
    for row in rows:
        table.add_row(*(Text(cell(column.show(row))) for column in shown))
    return table
