"""How an admin command is declared: an async function of a client and its options.

    @command("topicRoute")
    async def topic_route(mq: Client, topic: TopicName) -> Output: ...

gives `kourou admin topicRoute -t TOPIC [-n ADDRESS] [--json]`. It returns rows, facts or a sentence.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.running import JsonOutput, LogLevel, NameServers, run

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="admin",
    help="Look after brokers, topics, groups and messages, with the names and flags of mqadmin.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TopicName = Annotated[str, typer.Option("--topic", "-t", help="Topic.")]
GroupName = Annotated[str, typer.Option("--group", "-g", help="Consumer group.")]
BrokerAddress = Annotated[str | None, typer.Option("--brokerAddr", "-b", help="One broker, host:port.")]
ClusterName = Annotated[str | None, typer.Option("--clusterName", "-c", help="All masters of a cluster.")]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    note: str = ""  # a line below it


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Done:
    """Something was done; a sentence says what."""

    sentence: str


Output = Rows | Facts | Done

_COMMON = (
    inspect.Parameter("name_servers", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=NameServers),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOutput),
    inspect.Parameter("log_level", inspect.Parameter.KEYWORD_ONLY, default="warning", annotation=LogLevel),
)


def command(name: str) -> Callable[[Callable[..., Awaitable[Output]]], Callable[..., Awaitable[Output]]]:
    """Declare a command of this name."""

    def declare(function: Callable[..., Awaitable[Output]]) -> Callable[..., Awaitable[Output]]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]

        def called(*, name_servers: str | None, as_json: bool, log_level: str, **options: Any) -> None:
            run(lambda: _perform(function, name_servers, options, as_json=as_json), log_level)

        signature = inspect.Signature([*own, *_COMMON])
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        called.__doc__ = function.__doc__
        app.command(name)(called)
        return function

    return declare


async def _perform(
    function: Callable[..., Awaitable[Output]], name_servers: str | None, options: dict[str, Any], *, as_json: bool
) -> None:
    from kourou.client import connect

    async with connect(name_servers) as mq:
        show(await function(mq, **options), as_json=as_json)


# ── Showing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(output: Output, *, as_json: bool) -> None:
    """Print it, for people or for programs."""
    match output:
        case Rows(columns, rows, note):
            if as_json:
                for row in rows:
                    print(json.dumps(dict(zip(map(key_of, columns), row, strict=True)), default=str))
            else:
                _print_table(columns, rows, note)
        case Facts(facts):
            if as_json:
                print(json.dumps(dict(facts), default=str))
            else:
                width = max(map(len, facts), default=0)
                for name, value in facts.items():
                    print(f"{name:<{width}} : {value}")
        case Done(sentence):
            print(json.dumps({"done": sentence}) if as_json else sentence)


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], note: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    listed = [[_cell(value) for value in row] for row in rows]
    for number, column in enumerate(columns):
        is_number = bool(listed) and all(row[number].lstrip("-").replace(".", "", 1).isdigit() for row in listed)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 200))
    console.print(table)
    if note:
        console.print(note)


def _cell(value: object) -> str:
    from rich.markup import escape

    text = "" if value is None else str(value)
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


def key_of(column: str) -> str:
    """A column's name as JSON has it: `#Broker Name` is brokerName."""
    words = column.replace("#", "").replace(".", " ").replace("(ms)", "").split()
    return words[0].lower() + "".join(word[:1].upper() + word[1:] for word in words[1:]) if words else ""


def moment(time_ms: int) -> str:
    """A time in ms, for people."""
    if time_ms <= 0:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def masters_or(broker: str | None, cluster: str | None) -> None:
    """Raises BadParameter unless one of them is given."""
    if (broker is None) == (cluster is None):
        raise typer.BadParameter("either a broker (-b) or a cluster (-c) is expected")


def truth(text: str | None, flag: str) -> bool | None:
    """mqadmin's flags have `true` or `false` as their value."""
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise typer.BadParameter(f"{flag} {text}: true or false is expected")
    return text.lower() == "true"


def parse_time(text: str) -> float | None:
    """Seconds since the epoch; None stands for the end.

    `now`, -1 for the end, ms since the epoch, or `yyyy-MM-dd#HH:mm:ss:SSS` as mqadmin has it.
    """
    if text in ("-1", "max"):
        return None
    if text == "now":
        return datetime.now(UTC).timestamp()
    if text.isdigit():
        return int(text) / 1000
    for form in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, form).astimezone().timestamp()
        except ValueError:
            continue
    raise typer.BadParameter(f"{text}: now, -1, milliseconds, or a time such as 2026-01-31#12:00:00:000 is expected")
