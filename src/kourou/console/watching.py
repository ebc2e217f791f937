"""The background work: figures every 5 seconds, and the search for problems while the overview is displayed.

brokers     one runtime request each, always: 0.2 ms of a broker's time every 5 s
topics      the ends of those that were displayed within the last 10 minutes
groups      the progress of those, and of all others a few at a time while the overview is displayed
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.client.errors import NoRouteError
from kourou.client.naming import is_system_group
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, Member, now_ms
from kourou.console.lags import group_lag_ms
from kourou.console.limits import BACKGROUND_PER_SECOND, RING_SECONDS
from kourou.console.positions import positions_of
from kourou.console.views.brokers import missing_members
from kourou.console.views.overview import GroupState, first_rate
from kourou.console.views.session import Feature
from kourou.console.views.values import long_in, number_in
from kourou.protocol.errors import KourouError, RequestCodeNotSupportedError
from kourou.protocol.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from kourou.console.state import Console

log = logging.getLogger(__name__)

OVERVIEW_SECONDS: Final = 30.0
"""How long the search for problems continues after the overview was last displayed."""
IDLE_SECONDS: Final = 1.0


class Watching:
    """The loops of one console."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._next_group = 0

    async def run(self) -> None:
        """Runs until it is cancelled. A failure is logged, and the loops continue."""
        await asyncio.gather(self._repeat(self._sample, RING_SECONDS), self._search())

    async def _repeat(self, work: "Work", seconds: float) -> None:
        while True:
            try:
                await work()
            except (KourouError, ConsoleError) as error:
                log.debug("some figures could not be collected: %s", error)
            except Exception:
                log.exception("collecting figures failed")
            await asyncio.sleep(seconds)

    # ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _sample(self) -> None:
        console = self._console
        look = console.facts.look()
        members = await look.members()
        total = {"in": 0.0, "out": 0.0}
        disks: list[float] = []
        stamp = now_ms() // 1000
        for member in members:
            figures = await self._broker(look, member)
            console.rings.add(f"broker:{member.address}", stamp, figures)
            if member.is_master:
                total["in"] += figures.get("in") or 0.0
            total["out"] += figures.get("out") or 0.0
            if (disk := figures.get("disk")) is not None:
                disks.append(disk)
        console.rings.add("cluster", stamp, {**total, "disk": max(disks, default=None)})
        now = console.clock()
        for name in console.rings.wanted("topic", now):
            with suppress(KourouError, ConsoleError):
                await self.topic(look, name, stamp)
        for name in console.rings.wanted("group", now):
            with suppress(KourouError, ConsoleError):
                await self.group(look, name, stamp)
        if not console.known_features:
            console.known_features = await find_features(look, members)

    async def _broker(self, look: Look, member: Member) -> dict[str, float | None]:
        try:
            table = await look.runtime(member.address)
        except (KourouError, ConsoleError):
            return {"in": None, "out": None, "disk": None, "log": None}
        ratio = number_in(table.get("commitLogDiskRatio"))
        return {
            "in": first_rate(table.get("putTps")),
            "out": first_rate(table.get("getTransferredTps")),
            "disk": ratio if ratio is not None and ratio >= 0 else None,
            "log": long_in(table.get("commitLogMaxOffset")),
        }

    async def topic(self, look: Look, name: str, stamp: int) -> None:
        ends, at = await look.topic_ends_at(name)
        total = sum(end.max_offset for end in ends.values())
        rate = self._console.rates.rate(f"topic:{name}", at, total)
        self._console.rings.add(f"topic:{name}", stamp, {"in": rate})

    async def group(self, look: Look, name: str, stamp: int) -> None:
        positions = await positions_of(look, name)
        progress = positions.progress
        lag_ms = await group_lag_ms(look, name, positions)
        figures = {
            "lag": float(progress.lag),
            "lag_ms": None if lag_ms is None else float(lag_ms),
            "rate": progress.tps,
        }
        self._console.rings.add(f"group:{name}", stamp, figures)

    # ── Problems ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _search(self) -> None:
        """Checks one group after another while the overview is displayed."""
        console = self._console
        while True:
            await asyncio.sleep(1 / BACKGROUND_PER_SECOND)
            if console.clock() - console.overview_at > OVERVIEW_SECONDS:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            try:
                await self._search_next()
            except (KourouError, ConsoleError) as error:
                log.debug("the search for problems paused: %s", error)
                await asyncio.sleep(IDLE_SECONDS)
            except Exception:
                log.exception("the search for problems failed")
                await asyncio.sleep(IDLE_SECONDS)

    async def _search_next(self) -> None:
        console = self._console
        look = console.facts.look()
        groups = [name for name in await look.groups() if not is_system_group(name)]
        known = set(groups)
        console.group_states = {name: state for name, state in console.group_states.items() if name in known}
        if self._next_group >= len(groups):
            self._next_group = 0
            await self.look_at_replication(look)
        if not groups:
            await asyncio.sleep(IDLE_SECONDS)
            return
        name = groups[self._next_group]
        self._next_group += 1
        console.group_states[name] = msgspec.structs.replace(await state_of(look, name), at=console.clock())
        if self._next_group >= len(groups):
            await asyncio.sleep(IDLE_SECONDS)

    async def look_at_replication(self, look: Look) -> None:
        """Which slaves are behind, and which members of Raft groups are missing."""
        found: dict[str, int] = {}
        members = await look.members()
        with_slaves = {member.name for member in members if not member.is_master}
        for member in members:
            if member.is_master and member.name in with_slaves:
                with suppress(KourouError, ConsoleError):
                    for slave in (await look.replication(member.address)).ha_connection_info:
                        found[member.address] = max(found.get(member.address, 0), slave.diff)
        self._console.slaves_behind = found
        raft = self._console.known_features.get("raft")
        missing: dict[str, list[str]] = {}
        for member in members if raft is not None and raft.on else ():
            with suppress(KourouError, ConsoleError):
                status = await look.raft(member.address) if member.is_master else None
                if status is not None and status.role == "leader":
                    missing[member.address] = missing_members(status)
        self._console.raft_missing = missing


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Work = Callable[[], Awaitable[None]]


async def state_of(look: Look, name: str) -> GroupState:
    """The lag of a group, and the number of its dead letters."""
    positions = await positions_of(look, name, 10.0)
    progress = positions.progress
    connections = await look.connections(name, 10.0)
    dead, _ = await look.dead_count(name, 10.0)
    lag_ms = await group_lag_ms(look, name, positions)
    return GroupState(name, progress.lag, lag_ms, dead, len(connections.connection_set) if connections else 0)


async def find_features(look: Look, members: list[Member]) -> dict[str, Feature]:
    """The features of the brokers; determined once."""
    found: dict[str, Feature] = {}
    masters = [member for member in members if member.is_master]
    if not masters:
        return found
    try:
        config = await look.config(masters[0].address)
        is_on = config.get("authorizationEnabled", config.get("aclEnable", "false")) == "true"
        found["acl"] = Feature(
            is_on, "" if is_on else "access control is off: authenticationEnabled, authorizationEnabled"
        )
        raft = config.get("enableDLegerCommitLog") == "true"
        found["raft"] = Feature(raft, "" if raft else "the brokers are not a Raft group")
        timers = config.get("timerWheelEnable", "true") == "true"
        found["timers"] = Feature(timers, "" if timers else "timerWheelEnable is off")
    except RequestCodeNotSupportedError:
        found["acl"] = Feature(False, "these brokers have no users and rules")
    except (KourouError, ConsoleError) as error:
        found["acl"] = Feature(None, str(error))
    try:
        await look.mq.admin.topics.route(TRACE_TOPIC)
        found["trace"] = Feature(True)
    except NoRouteError:
        found["trace"] = Feature(False, "no broker has the trace topic: traceTopicEnable=true")
    except (KourouError, ConsoleError) as error:
        found["trace"] = Feature(None, str(error))
    return found
