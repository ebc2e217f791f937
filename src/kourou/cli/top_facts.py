"""What `kourou top` shows: facts that brokers report, and rates between two reports.

    brokers                 each round
    names of topics, groups every NAMES_SECONDS
    progress of groups, ends of topics   up to ASKED_AT_ONCE of each in a round, in turns, and the busiest each time

A rate is the difference of two answers of the same kind: of end offsets, of committed offsets, of a broker's counter.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from kourou.protocol.errors import ConsumerNotOnlineError, KourouError
from kourou.protocol.system_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.client.admin import Progress
    from kourou.protocol.bodies import ProcessQueueInfo, TopicOffset
    from kourou.protocol.message import MessageQueue

T = TypeVar("T")

NAMES_SECONDS: Final = 30.0
ASKED_AT_ONCE: Final = 30
"""Groups, and topics, that brokers are asked about in one round."""

ALWAYS_ASKED: Final = 10
"""The share of the busiest groups, and topics, in these."""

KNOWN_MAX: Final = 20_000
"""Topics, and groups, that are shown at most."""

TOPICS_ASKED: Final = 8
MEMBERS_ASKED: Final = 5
"""Of a group that has not committed an offset."""

LATE_MS: Final = 60_000
DISK_RATIO: Final = 0.85


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker."""

    name: str
    broker_id: int
    address: str
    role: str
    version: str = ""
    in_rate: float | None = None
    out_rate: float | None = None
    disk: float | None = None  # used part of the disk
    flush_behind: str = ""
    sends_waiting: int | None = None
    pulls_waiting: int | None = None
    replicas: str = ""  # in sync of all, or how far a slave is behind
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in one topic."""

    group: str
    topic: str
    lag: int
    lag_ms: int | None  # age of the last message that was consumed, while there is a lag
    in_flight: int
    in_rate: float | None
    out_rate: float | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic."""

    topic: str
    queues: int
    messages: int  # between the first and the last offset
    in_rate: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts at one moment."""

    brokers: tuple[BrokerRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    problems: tuple[str, ...] = ()
    topics_known: int = 0
    groups_known: int = 0


@dataclass(slots=True)
class Counter:
    """A number that grows, and its rate between the last two updates."""

    value: float = 0
    at: float = 0
    rate: float | None = None

    def look(self, value: float, at: float) -> None:
        if self.at and at > self.at and value >= self.value:
            self.rate = (value - self.value) / (at - self.at)
        elif value < self.value:
            self.rate = None  # the counter was reset: the broker restarted
        self.value, self.at = value, at


@dataclass(slots=True)
class _Known:
    """Names in the order in which brokers are asked about them."""

    names: list[str] = field(default_factory=list)
    next: int = 0

    def use(self, names: Iterable[str]) -> None:
        self.names = sorted(names)[:KNOWN_MAX]

    def turn(self, busiest: Iterable[str], count: int) -> list[str]:
        """The names to ask about in this round."""
        known = set(self.names)
        chosen = dict.fromkeys([name for name in busiest if name in known][:ALWAYS_ASKED])
        for _ in range(len(self.names)):
            if len(chosen) >= count:
                break
            self.next = (self.next + 1) % len(self.names)
            chosen[self.names[self.next]] = None
        return list(chosen)


class Facts:
    """Asks the brokers of one cluster, or of all."""

    def __init__(self, mq: "Client", cluster: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._mq = mq
        self._cluster = cluster
        self._clock = clock
        self._named_at: float | None = None
        self._topics, self._groups = _Known(), _Known()
        self._topic_rows: dict[str, TopicRow] = {}
        self._group_rows: dict[str, tuple[GroupRow, ...]] = {}
        self._counters: dict[tuple[str, ...], Counter] = {}
        self._problems: list[str] = []

    async def look(self, at_once: int = ASKED_AT_ONCE) -> Snapshot:
        """Asks the brokers. Raises KourouError if no name server answers."""
        self._problems = []
        brokers = await self._brokers()
        await self._names()
        groups = sorted(self._group_rows, key=lambda name: -sum(row.lag for row in self._group_rows[name]))
        topics = sorted(self._topic_rows, key=lambda name: -(self._topic_rows[name].in_rate or 0))
        await asyncio.gather(
            *(self._group(name) for name in self._groups.turn(groups, at_once)),
            *(self._topic(name) for name in self._topics.turn(topics, at_once)),
        )
        rows = [row for rows in self._group_rows.values() for row in rows]
        self._problems += [
            f"{row.group} is {row.lag_ms // 1000} s behind in {row.topic}"
            for row in sorted(rows, key=lambda row: -(row.lag_ms or 0))
            if row.lag_ms is not None and row.lag_ms > LATE_MS
        ]
        return Snapshot(
            tuple(brokers),
            tuple(rows),
            tuple(self._topic_rows.values()),
            tuple(self._problems),
            len(self._topics.names),
            len(self._groups.names),
        )

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _brokers(self) -> list[BrokerRow]:
        info = await self._mq.admin.brokers.cluster()
        wanted: set[str] = set()
        for cluster, names in info.cluster_addr_table.items():
            if self._cluster in (None, cluster):
                wanted |= set(names)
        asked = [
            self._broker(name, broker_id, address)
            for name in sorted(wanted & info.broker_addr_table.keys())
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        ]
        return list(await asyncio.gather(*asked))

    async def _broker(self, name: str, broker_id: int, address: str) -> BrokerRow:
        role = "master" if broker_id == 0 else "slave"
        try:
            runtime = await self._mq.admin.brokers.runtime(address)
        except KourouError as error:
            self._problems.append(f"{name} {address} does not answer: {error}")
            return BrokerRow(name, broker_id, address, role, error=str(error))
        at = self._clock()
        disk = _number(runtime, "commitLogDiskRatio")
        if disk is not None and disk > DISK_RATIO:
            self._problems.append(f"the disk of {name} {address} is {disk:.0%} full")
        if int(_number(runtime, "kourouInternalErrors") or 0):
            self._problems.append(f"{name} {address} had internal errors: see its log")
        sends, pulls = _number(runtime, "sendThreadPoolQueueSize"), _number(runtime, "pullThreadPoolQueueSize")
        return BrokerRow(
            name,
            broker_id,
            address,
            role,
            runtime.get("brokerVersionDesc", ""),
            self._rate(("put", address), _number(runtime, "putMessageTimesTotal"), at),
            _newest(runtime, "getTransferredTps"),
            disk,
            runtime.get("remainHowManyDataToFlush", ""),
            None if sends is None else int(sends),
            None if pulls is None else int(pulls),
            await self._replicas(name, address),
        )

    async def _replicas(self, name: str, address: str) -> str:
        try:
            status = await self._mq.admin.brokers.replication(address)
        except KourouError:
            return ""
        if not status.master:
            return f"at {status.ha_client_runtime_info.max_offset}"
        followers = status.ha_connection_info
        late = [one for one in followers if not one.in_sync]
        self._problems += [f"slave {one.addr} of {name} is {one.diff} bytes behind" for one in late]
        return f"{len(followers) - len(late)}/{len(followers)} in sync" if followers else ""

    # ── Groups and topics ─────────────────────────────────────────────────────────────────────────────────────────

    async def _names(self) -> None:
        now = self._clock()
        if self._named_at is not None and now - self._named_at < NAMES_SECONDS:
            return
        self._named_at = now
        topics = await self._mq.admin.topics.list(self._cluster)
        system = set(await self._system())
        self._topics.use(
            name for name in topics if not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) and name not in system
        )
        self._groups.use(await self._mq.admin.groups.list(self._cluster))
        _keep(self._topic_rows, self._topics.names)
        _keep(self._group_rows, self._groups.names)
        current = {*self._topics.names, *self._groups.names}
        for key in [key for key in self._counters if key[0] in ("end", "committed") and key[1] not in current]:
            del self._counters[key]

    async def _system(self) -> list[str]:
        try:
            return await self._mq.admin.topics.system()
        except KourouError as error:
            self._problems.append(f"the system topics are not known: {error}")
            return []

    async def _topic(self, name: str) -> None:
        try:
            ends = await self._mq.admin.topics.stats(name)
        except KourouError as error:
            self._problems.append(f"topic {name}: {error}")
            return
        total = sum(offset.max_offset for offset in ends.values())
        rate = self._rate(("end", name), total, self._clock())
        kept = total - sum(offset.min_offset for offset in ends.values())
        self._topic_rows[name] = TopicRow(name, len(ends), kept, rate)

    async def _group(self, name: str) -> None:
        try:
            progress = await self._mq.admin.groups.progress(name)
            if all(queue.topic.startswith(RETRY_PREFIX) for queue in progress.queues):
                progress = await self._with_uncommitted(name, progress)
        except KourouError as error:
            self._problems.append(f"group {name}: {error}")
            return
        at, wall_ms = self._clock(), time.time() * 1000
        rows = []
        for topic in sorted({queue.topic for queue in progress.queues}):
            queues = [offsets for queue, offsets in progress.queues.items() if queue.topic == topic]
            late = [one for one in queues if one.broker_offset > one.consumer_offset and one.last_timestamp > 0]
            rows.append(
                GroupRow(
                    name,
                    topic,
                    sum(max(one.broker_offset - one.consumer_offset, 0) for one in queues),
                    max((int(max(wall_ms - one.last_timestamp, 0)) for one in late), default=None),
                    sum(max(one.pull_offset - one.consumer_offset, 0) for one in queues),
                    self._rate(("end", name, topic), sum(one.broker_offset for one in queues), at),
                    self._rate(("committed", name, topic), sum(one.consumer_offset for one in queues), at),
                )
            )
        self._group_rows[name] = tuple(rows)

    async def _with_uncommitted(self, name: str, progress: "Progress") -> "Progress":
        """The progress with the topics that the group consumes, but has no offset in yet."""
        from kourou.client.admin.positions import BROADCASTING, with_uncommitted

        admin = self._mq.admin
        try:
            members = await admin.groups.connections(name)
        except ConsumerNotOnlineError:
            return progress
        missing: dict[MessageQueue, TopicOffset] = {}
        held: dict[MessageQueue, ProcessQueueInfo] = {}
        topics = [topic for topic in members.subscription_table if not topic.startswith(RETRY_PREFIX)]
        for topic in topics[:TOPICS_ASKED] if members.message_model != BROADCASTING else ():
            missing |= await admin.topics.stats(self._mq.session.unwrap(topic))
        if any(end.max_offset > end.min_offset for end in missing.values()):
            for member in members.connection_set[:MEMBERS_ASKED]:
                with suppress(KourouError):  # it has left, or does not answer
                    held |= (await admin.groups.running_info(name, member.client_id or "")).mq_table
        return with_uncommitted(progress, missing, held, members)[0]

    def _rate(self, key: tuple[str, ...], value: float | None, at: float) -> float | None:
        if value is None:
            return None
        counter = self._counters.setdefault(key, Counter())
        counter.look(value, at)
        return counter.rate


def _keep(rows: dict[str, T], names: list[str]) -> None:
    for name in rows.keys() - set(names):
        del rows[name]


def _number(runtime: Mapping[str, str], key: str) -> float | None:
    try:
        return float(runtime[key])
    except (KeyError, ValueError):
        return None


def _newest(runtime: Mapping[str, str], key: str) -> float | None:
    """The first of three rates, which is over ten seconds."""
    try:
        return float(runtime.get(key, "").split(" ")[0])
    except ValueError:
        return None
