"""The overview and the list of brokers' figures."""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from kourou.client.naming import is_system_group
from kourou.console.calls import Call, Way
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, Member, kind_of_topic, now_ms
from kourou.console.state import Console
from kourou.console.views.overview import BrokerRow, Overview, Runtime, broker_row, problems, seconds_to_full
from kourou.protocol.errors import KourouError

Fact = TypeVar("Fact")


async def runtimes_of(look: Look, members: list[Member]) -> dict[str, Runtime]:
    """The runtime information of each broker, or why there is none, by address."""

    async def ask(address: str) -> Runtime:
        try:
            return await look.runtime(address)
        except (KourouError, ConsoleError) as error:
            return str(error)

    answers = await asyncio.gather(*(ask(member.address) for member in members))
    return dict(zip((member.address for member in members), answers, strict=True))


async def broker_rows(look: Look) -> tuple[list[Member], dict[str, Runtime], list[BrokerRow]]:
    members = await look.members()
    runtimes = await runtimes_of(look, members)
    return members, runtimes, [broker_row(member, runtimes[member.address], now_ms()) for member in members]


async def if_known(asked: Awaitable[Fact]) -> Fact | None:
    """None if a broker does not have it, or does not answer."""
    try:
        return await asked
    except (KourouError, ConsoleError):
        return None


async def overview(console: Console, look: Look) -> Overview:
    members, runtimes, rows = await broker_rows(look)
    cluster = await look.cluster()
    topics, groups = await if_known(_own_topics(look)), await if_known(_own_groups(look))
    states = console.fresh_states()
    ratios = [row.disk_ratio for row in rows if row.disk_ratio is not None]
    full = [seconds for member in members if (seconds := _seconds_to_full(console, runtimes, member)) is not None]
    return Overview(
        clusters=sorted(cluster.cluster_addr_table),
        topics=topics,
        groups=groups,
        checked=len(states),
        brokers=rows,
        rates={
            "in": sum(row.in_rate or 0.0 for row in rows if row.role == "master"),
            "out": sum(row.out_rate or 0.0 for row in rows),
        },
        disk_ratio=max(ratios, default=None),
        disk_full_in_s=min(full, default=None),
        problems=problems(members, runtimes, states, console.slaves_behind, console.raft_missing),
        history=console.rings.history("cluster", ("in", "out", "disk")),
    )


async def _own_topics(look: Look) -> int:
    topics, system = await look.topics(), await look.system_topics()
    return sum(kind_of_topic(name, system) == "normal" for name in topics)


async def _own_groups(look: Look) -> int:
    return sum(not is_system_group(name) for name in await look.groups())


def _seconds_to_full(console: Console, runtimes: dict[str, Runtime], member: Member) -> float | None:
    history = console.rings.history(f"broker:{member.address}", ("log",))
    seconds = history.times[-1] - history.times[0] if history.times else 0
    return seconds_to_full(runtimes[member.address], history.series["log"], seconds)


async def show(call: Call) -> Overview:
    call.console.overview_looked()
    return await overview(call.console, call.look)


WAYS: Final = (Way("GET", "/api/overview", show),)
