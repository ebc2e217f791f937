"""How an admin command is declared: an async function of a client and its options.

    @command("topicRoute")
    async def topic_route(mq: Client, topic: TopicName) -> Output: ...

declares `kourou admin topicRoute -t TOPIC [-n ADDRESS] [--json]`. The function returns rows, facts or a sentence.
Options have mqadmin's names; a test compares them with the complete list.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kourou.cli.output import cell, rounded, show, show_facts, show_json, show_table
from kourou.cli.profiles import open_client
from kourou.cli.running import CommandError, JsonOutput, LogLevel, NameServers, run, until_stopped
from kourou.cli.times import moment as moment

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.bodies import ClusterInfo

BodyT = TypeVar("BodyT")

app = typer.Typer(
    name="admin",
    help="Administer brokers, topics, groups and messages, with the commands and options of mqadmin.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TopicName = Annotated[str, typer.Option("--topic", "-t", help="Topic.")]
GroupName = Annotated[str, typer.Option("--groupName", "-g", help="Consumer group.")]
BrokerAddress = Annotated[str | None, typer.Option("--brokerAddr", "-b", help="One broker, host:port.")]
ClusterName = Annotated[str | None, typer.Option("--clusterName", "-c", help="All masters of a cluster.")]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only brokers of this cluster.")]
Charset = Annotated[str, typer.Option("--bodyFormat", "-f", help="Character set of the body.")]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    summary: Mapping[str, object] = field(default_factory=dict)
    """Lines below the table; in JSON one more object."""
    objects: Sequence[Mapping[str, object]] | None = None
    """The JSON objects, if they have more than the rows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    facts: Mapping[str, object]
    as_object: Mapping[str, object] | None = None
    """The JSON object, if it differs from the facts."""


@dataclass(frozen=True, slots=True)
class Done:
    """A sentence about the result."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Many:
    """Several outputs, one after another."""

    outputs: Sequence["Output"]


@dataclass(frozen=True, slots=True)
class Repeated:
    """An output that is requested and shown repeatedly, until the command is stopped."""

    seconds: float
    ask: Callable[[], Awaitable["Output"]]


Output = Rows | Facts | Done | Many | Repeated

_COMMON = (
    inspect.Parameter("name_servers", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=NameServers),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOutput),
    inspect.Parameter("log_level", inspect.Parameter.KEYWORD_ONLY, default="warning", annotation=LogLevel),
)


def command(
    name: str, group: typer.Typer = app
) -> Callable[[Callable[..., Awaitable[Output]]], Callable[..., Awaitable[Output]]]:
    """Declare a command of this name, in a group of commands."""

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
        group.command(name)(called)
        return function

    return declare


async def _perform(
    function: Callable[..., Awaitable[Output]], name_servers: str | None, options: dict[str, Any], *, as_json: bool
) -> None:
    import asyncio

    async with open_client(name_servers) as mq:
        output = await function(mq, **options)
        if not isinstance(output, Repeated):
            show_output(output, as_json=as_json)
            return

        async def repeat(again: Repeated) -> None:
            while True:
                show_output(await again.ask(), as_json=as_json)
                await asyncio.sleep(again.seconds)

        await until_stopped(repeat(output))


# ── Showing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_output(output: Output, *, as_json: bool) -> None:
    """Show an output, as text or as JSON. Raises OutputClosed."""
    match output:
        case Rows(columns, rows, summary, objects):
            if as_json:
                names = [key_of(column) for column in columns]
                show_json(*(objects or (dict(zip(names, map(rounded, row), strict=True)) for row in rows)))
                if summary:
                    show_json({key_of(name): rounded(value) for name, value in summary.items()})
            else:
                show_table(columns, rows)
                show(*(f"{name}: {cell(value)}" for name, value in summary.items()))
        case Facts(facts, as_object):
            if as_json:
                show_json(as_object or {name: rounded(value) for name, value in facts.items()})
            else:
                show_facts(facts)
        case Done(sentence):
            if as_json:
                show_json({"done": sentence})
            else:
                show(sentence)
        case Many(outputs):
            for one in outputs:
                show_output(one, as_json=as_json)
        case Repeated():
            raise AssertionError("only a whole command is repeated")


def key_of(column: str) -> str:
    """The JSON name of a column: `#Broker Name` is brokerName."""
    words = column.replace("#", "").replace(".", " ").replace("(ms)", "").split()
    if not words:
        return ""
    first = words[0].lower() if words[0].isupper() else words[0][:1].lower() + words[0][1:]
    return first + "".join(word[:1].upper() + word[1:] for word in words[1:])


def number_or_text(text: str) -> int | float | str:
    """Converts a broker's text to a number if it is written as one; other text is returned unchanged."""
    try:
        number = int(text)
    except ValueError:
        pass
    else:
        return number if str(number) == text else text
    try:
        value = float(text)
    except ValueError:
        return text
    return round(value, 2) if "." in text and value == value and abs(value) < 1e15 else text


def rates(text: str) -> object:
    """A broker's rates over three periods, "0.2 0.19996 ", as numbers; None for a period that is not complete yet."""
    words = [number_or_text(word) if word else None for word in text.split(" ")]
    if any(isinstance(word, str) for word in words):
        return text
    return words if len(words) > 1 else words[0]


# ── Which servers ───────────────────────────────────────────────────────────────────────────────────────────────────


def masters_or(broker: str | None, cluster: str | None) -> None:
    """Raises BadParameter unless one of them is given."""
    if (broker is None) == (cluster is None):
        raise typer.BadParameter("give either a broker (-b) or a cluster (-c)")


async def brokers_of(
    mq: "Client", broker: str | None, cluster: str | None, *, with_slaves: bool = False
) -> dict[str, str]:
    """The one broker, or a cluster's masters: name by address. Raises BadParameter, CommandError."""
    masters_or(broker, cluster)
    if broker is not None:
        return {broker: ""}
    info = await mq.admin.brokers.cluster()
    found = {
        address: name
        for name in sorted(_names_in(info, cluster or ""))
        if name in info.broker_addr_table
        for number, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        if with_slaves or number == 0
    }
    if not found:
        raise CommandError(f"cluster {cluster!r} has no master now")
    return found


async def in_cluster(mq: "Client", cluster: str | None) -> Callable[[str | None], bool]:
    """A test whether a broker name is in the cluster, if one is given. Raises CommandError if it does not exist."""
    if cluster is None:
        return lambda _: True
    names = _names_in(await mq.admin.brokers.cluster(), cluster)
    return lambda name: name in names


def _names_in(info: "ClusterInfo", cluster: str) -> set[str]:
    names = info.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise CommandError(f"cluster {cluster!r} does not exist; there are: {known}")
    return set(names)


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_list(path: str, kind: "type[BodyT]") -> "list[BodyT]":
    """The settings in a JSON file, which has a list of them. Raises CommandError."""
    from kourou.protocol import fastjson
    from kourou.protocol.errors import BodyError

    try:
        return fastjson.decode(Path(path).read_bytes(), list[kind])  # type: ignore[valid-type]
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from None
    except BodyError as error:
        raise CommandError(f"{path}: a JSON list is expected: {error}") from None


# ── Values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def truth(text: str | None, flag: str) -> bool | None:
    """The value of a flag: mqadmin's flags take `true` or `false`."""
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise typer.BadParameter(f"{flag} {text}: true or false is expected")
    return text.lower() == "true"


def parse_attributes(text: str) -> dict[str, str]:
    """Attributes to set, and with `-` before the key those to remove."""
    found: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith("-"):
            found[word] = ""
        elif "=" in word:
            key, _, value = word.removeprefix("+").partition("=")
            found[key] = value
        else:
            raise typer.BadParameter(f"-a {word}: +key=value or -key is expected")
    return found


def parse_time(text: str) -> float | None:
    """Seconds since the epoch; None means the end.

    `now`, -1 for the end, ms since the epoch, or `yyyy-MM-dd#HH:mm:ss:SSS` as in mqadmin.
    """
    if text in ("-1", "max"):
        return None
    if text == "now":
        return datetime.now(UTC).timestamp()
    if text.isascii() and text.isdigit():
        return int(text) / 1000
    for form in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, form).astimezone().timestamp()
        except ValueError:
            continue
    raise typer.BadParameter(f"{text}: now, -1, milliseconds, or a time such as 2026-01-31#12:00:00:000 is expected")
