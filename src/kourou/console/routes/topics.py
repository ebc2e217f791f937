"""Topics: the list, figures of rows on the screen, one topic; creating, changing, deleting."""

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, now_ms
from kourou.console.limits import ROWS_MAX, TOPIC_FIGURES_MAX
from kourou.console.sessions import Role
from kourou.console.state import Console
from kourou.console.views.topics import (
    TYPE_ATTRIBUTE,
    FiguresPage,
    TopicFigures,
    TopicPage,
    TopicView,
    topic_figures,
    topic_page,
    topic_view,
)
from kourou.console.views.values import long, long_in, perm_of
from kourou.protocol.bodies import TopicOffset
from kourou.protocol.errors import KourouError
from kourou.protocol.message import MessageQueue

QUEUES_MAX: Final = 1024
TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")


async def listing(call: Call) -> TopicPage:
    kind = call.choice("kind", "normal", "retry", "dlq", "system", "all")
    offset, limit = call.number("offset", 0, 0, 10**6), call.number("limit", 100, 1, ROWS_MAX)
    topics, system = await asyncio.gather(call.look.topics(), call.look.system_topics())
    return topic_page(topics, system, call.text("q"), kind, offset, limit)


async def figures(call: Call) -> FiguresPage:
    names = call.names("names", TOPIC_FIGURES_MAX)
    return FiguresPage(await figures_of(call.console, call.look, names))


async def figures_of(console: Console, look: Look, names: list[str]) -> dict[str, TopicFigures | None]:
    """The figures of the topics on the screen."""

    async def one(name: str) -> TopicFigures | None:
        try:
            ends, at = await look.topic_ends_at(name, 8.0)
        except (KourouError, ConsoleError):
            return None
        groups = look.known_topic_groups(name)  # requested in the background: rows do not wait for it
        return topic_figures(ends, rate_of(console, name, ends, at), None if groups is None else len(groups))

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def rate_of(console: Console, name: str, ends: Mapping[MessageQueue, TopicOffset], at: float) -> float | None:
    """Messages per second. Answers are shared, so the time of the request is used."""
    return console.rates.rate(f"topic:{name}", at, sum(end.max_offset for end in ends.values()))


async def known_topic(look: Look, name: str) -> str:
    """Raises ConsoleError if no broker has the topic."""
    if name not in await look.topics():
        look.check_complete()
        raise ConsoleError("not_found", f"no broker has a topic {name!r}", "check the name, or create it")
    return name


async def topic(console: Console, look: Look, name: str) -> TopicView:
    await known_topic(look, name)
    on = (await look.topics())[name]
    console.rings.want(f"topic:{name}", console.clock())
    (ends, at), groups, system = await asyncio.gather(
        look.topic_ends_at(name), look.topic_groups(name), look.system_topics()
    )
    keeps = []
    for one in on:
        try:
            earliest = long_in((await look.runtime(one.address)).get("earliestMessageTimeStamp"))
        except KourouError:
            continue
        if earliest is not None and earliest > 0:
            keeps.append(max(now_ms() - earliest, 0))
    rate = rate_of(console, name, ends, at)
    history = console.rings.history(f"topic:{name}", ("in",))
    return topic_view(name, on, system, ends, groups, rate, max(keeps, default=None), history)


async def show(call: Call) -> TopicView:
    return await topic(call.console, call.look, call.path["topic"])


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    queues: int = 8
    perm: str = "rw"
    type: str = "NORMAL"
    order: bool = False
    cluster: str | None = None
    preview: bool = False
    confirm: str | None = None


class ChangedTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    read_queues: int | None = None
    write_queues: int | None = None
    perm: str | None = None
    broker: str | None = None
    preview: bool = False
    confirm: str | None = None


class Confirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The confirmation of a deletion."""

    confirm: str | None = None
    preview: bool = False


def command(name: str, *words: str) -> str:
    """A line of `kourou admin`, to be pasted into a shell."""
    return " ".join(("kourou admin", name, *(shlex.quote(word) for word in words)))


def check_queues(*counts: int | None) -> None:
    """Raises ConsoleError."""
    if any(count is not None and not 1 <= count <= QUEUES_MAX for count in counts):
        raise ConsoleError("bad_request", f"a topic has 1 to {QUEUES_MAX} queues on a broker")


def perm_given(text: str) -> int:
    """Raises ConsoleError."""
    try:
        return perm_of(text)
    except ValueError as error:
        raise ConsoleError("bad_request", str(error)) from None


async def cluster_names(look: Look) -> list[str]:
    return sorted((await look.cluster()).cluster_addr_table)


async def create(call: Call) -> Any:
    given = call.read(NewTopic)
    check_queues(given.queues)
    perm = perm_given(given.perm)
    if given.type not in TYPES:
        raise ConsoleError("bad_request", f"type {given.type[:20]!r}: one of {', '.join(TYPES)} is expected")
    clusters = [given.cluster] if given.cluster is not None else await cluster_names(call.look)
    attributes = {} if given.type == "UNSPECIFIED" else {TYPE_ATTRIBUTE: given.type}
    words = ["-t", given.name, "-r", str(given.queues), "-w", str(given.queues), "-p", str(perm)]
    words += [
        *(["-o", "true"] if given.order else []),
        *(["-a", f"+{TYPE_ATTRIBUTE}={given.type}"] if attributes else []),
    ]
    cli = "; ".join(command("updateTopic", "-c", cluster, *words) for cluster in clusters)
    if given.name in await call.look.topics():
        raise ConsoleError("conflict", f"a topic {given.name!r} already exists", "change it, or choose another name")
    masters = await call.look.masters()
    brokers = [member.name for member in masters if given.cluster in (None, member.cluster)]
    if given.preview:
        return Preview({"queues": given.queues * len(brokers), "brokers": brokers}, cli)
    await call.look.mq.admin.topics.create(
        given.name, cluster=given.cluster, queues=given.queues, perm=perm, order=given.order, attributes=attributes
    )
    call.console.facts.forget("topics")
    call.note("create topic", given.name, cli=cli)
    return Done({"name": given.name}, cli)


async def change(call: Call) -> Any:
    given = call.read(ChangedTopic)
    check_queues(given.read_queues, given.write_queues)
    name = await known_topic(call.look, call.path["topic"])
    on = [one for one in (await call.look.topics())[name] if given.broker in (None, one.address)]
    if not on:
        raise ConsoleError("not_found", f"broker {given.broker!r} does not have this topic")
    if given.broker is None:
        call.look.check_complete()
    lines = []
    changes = []
    for one in on:
        reads = given.read_queues or one.config.read_queue_nums
        writes = given.write_queues or one.config.write_queue_nums
        perm = one.config.perm if given.perm is None else perm_given(given.perm)
        words = ["-t", name, "-r", str(reads), "-w", str(writes), "-p", str(perm)]
        words += ["-o", "true"] if one.config.order else []
        lines.append(command("updateTopic", "-b", one.address, *words))
        changes.append((one, reads, writes, perm))
    cli = "; ".join(lines)
    if given.preview:
        return Preview({"brokers": [one.broker for one in on]}, cli)
    for one, reads, writes, perm in changes:
        await call.look.mq.admin.topics.create(
            name, broker=one.address, read_queues=reads, write_queues=writes, perm=perm, order=one.config.order
        )
    call.console.facts.forget("topics", "ends")
    call.note("change topic", name, cli=cli)
    return Done({"name": name}, cli)


async def delete(call: Call) -> Any:
    given = call.read(Confirmation)
    name = await known_topic(call.look, call.path["topic"])
    cli = "; ".join(command("deleteTopic", "-c", cluster, "-t", name) for cluster in await cluster_names(call.look))
    if given.preview:
        ends = await call.look.topic_ends(name)
        count = sum(end.max_offset - end.min_offset for end in ends.values())
        groups = await call.look.topic_groups(name)
        return Preview({"messages": long(count), "queues": len(ends), "groups": groups}, cli, name)
    call.confirm(given.confirm, name)
    await call.look.mq.admin.topics.delete(name)
    call.console.facts.forget("topics", "ends", "topic groups")
    call.note("delete topic", name, cli=cli)
    return Done({"name": name}, cli)


WAYS: Final = (
    Way("GET", "/api/topics", listing),
    Way("GET", "/api/topics/figures", figures),
    Way("GET", "/api/topics/{topic}", show),
    Way("POST", "/api/topics", create, Role.ADMINISTER),
    Way("PATCH", "/api/topics/{topic}", change, Role.ADMINISTER),
    Way("DELETE", "/api/topics/{topic}", delete, Role.ADMINISTER),
)
