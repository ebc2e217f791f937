"""Answers of brokers and name servers, requested once for all viewers.

An answer is kept for a few seconds and shared, together with the time of its request. Viewers that need the same fact
at the same time wait for one request. A failure is also kept, for a shorter time, so that not every viewer connects to
a dead broker. All requests of the process count against one budget for each broker (`kourou.client.pacing`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec

from kourou.client import Client
from kourou.client.admin import Progress
from kourou.client.admin.requests import Without
from kourou.client.errors import NoRouteError
from kourou.console.errors import ConsoleError
from kourou.console.limits import CACHED_MAX
from kourou.net.errors import TransportError
from kourou.protocol.bodies import (
    AclInfo,
    ClusterInfo,
    ConsumerConnection,
    ConsumerRunningInfo,
    EpochEntryCache,
    HARuntimeInfo,
    ProducerTableInfo,
    QueueTimeSpan,
    RaftStatus,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    UserInfo,
)
from kourou.protocol.codes import MASTER_ID
from kourou.protocol.errors import ConsumerNotOnlineError, KourouError, RefusedError, TopicNotExistError
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import (
    BENCHMARK_TOPIC,
    CHECKPOINT_TOPIC,
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    NOT_FOR_SENDING,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
)

T = TypeVar("T")

FAILURE_SECONDS: Final = 2.0
"""How long a failure is kept."""
SOON: Final = 1.5
SHORT: Final = 4.0
LONG: Final = 30.0
VERY_LONG: Final = 300.0
"""How old an answer may be, in seconds, by how fast it changes."""


class Member(msgspec.Struct, frozen=True):
    """A broker of the cluster."""

    name: str
    id: int
    cluster: str
    address: str

    @property
    def is_master(self) -> bool:
        return self.id == MASTER_ID


class TopicOnBroker(msgspec.Struct, frozen=True):
    """The settings of a topic on one broker."""

    broker: str
    address: str
    config: TopicConfig


class GroupOnBroker(msgspec.Struct, frozen=True):
    """The settings of a group on one broker."""

    broker: str
    address: str
    config: SubscriptionGroupConfig


class _Kept(msgspec.Struct, frozen=True):
    """An answer, or a failure. `at`: the time of the request, by the clock of the console."""

    value: Any
    at_ms: int
    at: float
    error: Exception | None = None

    def is_older(self, seconds: float, now: float) -> bool:
        """Whether it is older than this number of seconds."""
        return now - self.at >= (seconds if self.error is None else min(seconds, FAILURE_SECONDS))


class Facts:
    """The shared answers."""

    def __init__(self, mq: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self.mq = mq
        self._clock = clock
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._asking: dict[tuple[object, ...], asyncio.Task[_Kept]] = {}
        self._forgotten: Counter[object] = Counter()
        """How often facts of each kind were forgotten."""
        self.asked = 0
        """How many facts were requested because they were not in the cache."""

    def look(self) -> "Look":
        """A view of the facts for one answer of the API, which records the age of the facts used."""
        return Look(self)

    async def get(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """The fact, at most `seconds` old, and the time of its request. Raises the errors of `ask`."""
        kept = await self.kept(key, seconds, ask)
        return kept.value, kept.at_ms

    async def kept(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[Any]]) -> _Kept:
        """As `get`, with the time and the error of the answer."""
        kept = self._kept.get(key)
        if kept is None or kept.is_older(seconds, self._clock()):
            kept = await asyncio.shield(self._begin(key, ask))
        if kept.error is not None:
            raise kept.error
        return kept

    def glance(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The cached fact, at once; None if it is not known. A missing or old fact is requested in the background."""
        kept = self._kept.get(key)
        if kept is None or kept.is_older(seconds, self._clock()):
            self._begin(key, ask)
        return None if kept is None else cast(T | None, kept.value)

    def _begin(self, key: tuple[object, ...], ask: Callable[[], Awaitable[Any]]) -> "asyncio.Task[_Kept]":
        """One request for all viewers that need the fact."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(lambda done: self._asked(key, done))
        return task

    def _asked(self, key: tuple[object, ...], task: "asyncio.Task[Any]") -> None:
        if self._asking.get(key) is task:
            del self._asking[key]
        if not task.cancelled():
            task.exception()  # retrieved here, because all waiting viewers may be gone

    async def _ask(self, key: tuple[object, ...], ask: Callable[[], Awaitable[Any]]) -> _Kept:
        at_ms, at = now_ms(), self._clock()
        times = self._forgotten[key[0]]
        self.asked += 1
        try:
            kept = _Kept(await ask(), at_ms, at)
        except (KourouError, ConsoleError) as error:
            kept = _Kept(None, at_ms, self._clock(), error.with_traceback(None))
        if times != self._forgotten[key[0]]:
            return kept  # it may be from before a change
        while len(self._kept) >= CACHED_MAX:
            self._kept.pop(next(iter(self._kept)))
        self._kept.pop(key, None)  # the newest are last
        self._kept[key] = kept
        return kept

    def forget(self, *kinds: str) -> None:
        """Drop facts of these kinds after a change, so that they are requested again, also those under way."""
        self._forgotten.update(kinds)
        self._kept = {key: kept for key, kept in self._kept.items() if key[0] not in kinds}
        self._asking = {key: task for key, task in self._asking.items() if key[0] not in kinds}


class Look:
    """The facts that one answer uses."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.at_ms: int | None = None
        """When the oldest of them was requested."""
        self.without: set[str] = set()
        """The addresses of brokers that did not answer, so that their part of a fact is missing."""

    @property
    def mq(self) -> Client:
        return self._facts.mq

    async def _get(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        return cast(T, (await self._kept(key, seconds, ask)).value)

    async def _kept(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[Any]]) -> _Kept:
        kept = await self._facts.kept(key, seconds, ask)
        self.at_ms = kept.at_ms if self.at_ms is None else min(self.at_ms, kept.at_ms)
        return kept

    async def fact(self, key: tuple[object, ...], seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        """A fact that is computed from others, shared like all facts."""
        return await self._get(key, seconds, ask)

    async def _parts(
        self, key: tuple[object, ...], seconds: float, ask: Callable[[Without], Awaitable[T]]
    ) -> tuple[T, _Kept]:
        """A fact from the answers of several brokers, without those that do not answer."""

        async def parts() -> tuple[T, tuple[str, ...]]:
            without: Without = {}
            return await ask(without), tuple(without)

        kept = await self._kept(key, seconds, parts)
        if kept.value[1] and seconds > SHORT:
            kept = await self._kept(key, SHORT, parts)  # it may answer again
        found, without = cast(tuple[T, tuple[str, ...]], kept.value)
        self.without.update(without)
        return found, kept

    def check_complete(self) -> None:
        """Raises ConsoleError if a broker did not answer, so that nothing is changed on the others alone."""
        if self.without:
            text = f"{', '.join(sorted(self.without))} does not answer"
            raise ConsoleError("unreachable", text, "try again when all brokers of the topic or group answer")

    # ── The cluster ───────────────────────────────────────────────────────────────────────────────────────────────

    async def cluster(self) -> ClusterInfo:
        return await self._get(("cluster",), SHORT, self.mq.admin.brokers.cluster)

    async def members(self) -> list[Member]:
        """All brokers, masters first in each group."""
        return members_of(await self.cluster())

    async def masters(self) -> list[Member]:
        return [member for member in await self.members() if member.is_master]

    async def member(self, address: str) -> Member:
        """A broker of the cluster; the console never connects to other addresses. Raises ConsoleError."""
        for member in await self.members():
            if address in (member.address, f"{member.name}:{member.id}") or (
                member.is_master and address == member.name
            ):
                return member
        raise ConsoleError("not_found", f"the cluster has no broker {address!r}")

    async def runtime(self, address: str) -> dict[str, str]:
        return await self._get(("runtime", address), SHORT, lambda: self.mq.admin.brokers.runtime(address))

    async def config(self, address: str) -> dict[str, str]:
        return await self._get(("config", address), SHORT, lambda: self.mq.admin.brokers.config(address))

    async def replication(self, address: str) -> HARuntimeInfo:
        return await self._get(("replication", address), SHORT, lambda: self.mq.admin.brokers.replication(address))

    async def epochs(self, address: str) -> EpochEntryCache:
        return await self._get(("epochs", address), SHORT, lambda: self.mq.admin.brokers.epochs(address))

    async def raft(self, address: str) -> RaftStatus | None:
        """The state of its Raft group; None if the broker is in none, or is not one of Kourou's."""

        async def ask() -> RaftStatus | None:
            try:
                return await self.mq.admin.raft.status(address)
            except RefusedError:
                return None

        return await self._get(("raft", address), SHORT, ask)

    async def timers(self, address: str) -> dict[str, int]:
        """How many timed messages of each topic wait at a broker."""

        async def ask() -> dict[str, int]:
            found = await self.mq.admin.brokers.timers(address)
            return {name: metric.count for name, metric in found.timing_count.items()}

        return await self._get(("timers", address), SHORT, ask)

    async def producers(self, address: str) -> ProducerTableInfo:
        return await self._get(("producers", address), SHORT, lambda: self.mq.admin.brokers.all_producers(address))

    async def users(self, address: str) -> list[UserInfo]:
        return await self._get(("users", address), SHORT, lambda: self.mq.admin.brokers.users(address))

    async def rules(self, address: str) -> list[AclInfo]:
        return await self._get(("rules", address), SHORT, lambda: self.mq.admin.brokers.rules(address))

    # ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def topics(self) -> dict[str, list[TopicOnBroker]]:
        """All topics of all masters, by name, sorted. A master that does not answer is omitted."""
        return (await self._parts(("topics",), LONG, self._topics))[0]

    async def _topics(self, without: Without) -> dict[str, list[TopicOnBroker]]:
        found: dict[str, list[TopicOnBroker]] = {}
        masters = await self.masters()
        tables = await asyncio.gather(
            *(self.mq.admin.topics.all_configs(master.address) for master in masters), return_exceptions=True
        )
        check_one_answered(tables)
        for master, table in zip(masters, tables, strict=True):
            if isinstance(table, TransportError):
                without[master.address] = table
            elif not isinstance(table, BaseException):
                for name, config in table.topic_config_table.items():
                    found.setdefault(name, []).append(TopicOnBroker(master.name, master.address, config))
        return {name: found[name] for name in sorted(found)}

    async def system_topics(self) -> frozenset[str]:
        return await self._get(("system",), VERY_LONG, self._system_topics)

    async def _system_topics(self) -> frozenset[str]:
        try:
            return frozenset(await self.mq.admin.topics.system())
        except KourouError:
            return frozenset()

    async def topic_ends(self, topic: str, seconds: float = SOON) -> dict[MessageQueue, TopicOffset]:
        """The offsets of each queue. Raises ConsoleError if there is no such topic."""
        return (await self.topic_ends_at(topic, seconds))[0]

    async def topic_ends_at(self, topic: str, seconds: float = SOON) -> tuple[dict[MessageQueue, TopicOffset], float]:
        """The offsets of each queue, and the time of the request, by the clock of the console."""
        found, kept = await self._parts(("ends", topic), seconds, partial(self.mq.admin.topics.stats, topic))
        return found, kept.at

    async def topic_groups(self, topic: str) -> list[str]:
        return (await self._parts(("topic groups", topic), LONG, partial(self._topic_groups, topic)))[0]

    def known_topic_groups(self, topic: str) -> list[str] | None:
        """The groups that are known now; None: they are being requested."""

        async def ask() -> tuple[list[str], tuple[str, ...]]:
            without: Without = {}
            return await self._topic_groups(topic, without), tuple(without)

        known = self._facts.glance(("topic groups", topic), LONG, ask)
        return None if known is None else known[0]

    async def _topic_groups(self, topic: str, without: Without) -> list[str]:
        try:
            return await self.mq.admin.topics.groups(topic, without)
        except (NoRouteError, TopicNotExistError):
            return []

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def groups(self) -> dict[str, list[GroupOnBroker]]:
        """All groups of all masters, by name, sorted."""
        return (await self._parts(("groups",), LONG, self._groups))[0]

    async def _groups(self, without: Without) -> dict[str, list[GroupOnBroker]]:
        found: dict[str, list[GroupOnBroker]] = {}
        masters = await self.masters()
        tables = await asyncio.gather(
            *(self.mq.admin.groups.configs(master.address) for master in masters), return_exceptions=True
        )
        check_one_answered(tables)
        for master, table in zip(masters, tables, strict=True):
            if isinstance(table, TransportError):
                without[master.address] = table
            elif not isinstance(table, BaseException):
                for name, config in table.subscription_group_table.items():
                    found.setdefault(name, []).append(GroupOnBroker(master.name, master.address, config))
        return {name: found[name] for name in sorted(found)}

    async def progress(self, group: str, seconds: float = SOON) -> Progress:

        async def ask(without: Without) -> Progress:
            return await self.mq.admin.groups.progress(group, without=without)

        return (await self._parts(("progress", group), seconds, ask))[0]

    async def connections(self, group: str, seconds: float = SOON) -> ConsumerConnection | None:
        """The members of a group; None if there are none."""

        async def ask() -> ConsumerConnection | None:
            try:
                return await self.mq.admin.groups.connections(group)
            except ConsumerNotOnlineError:
                return None

        return await self._get(("connections", group), seconds, ask)

    async def running(self, group: str, client_id: str, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """The internal state of a member."""
        ask = self.mq.admin.groups.running_info
        return await self._get(
            ("running", group, client_id, with_stacks), SHORT, lambda: ask(group, client_id, with_stacks=with_stacks)
        )

    async def time_spans(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """How long the next message of each queue has been waiting."""

        async def ask() -> list[QueueTimeSpan]:
            try:
                return await self.mq.admin.groups.time_spans(group, topic, {})
            except KourouError:
                return []  # Apache's brokers refuse topics that the group has no offsets in

        return await self._get(("spans", group, topic), SOON, ask)

    async def dead_count(self, group: str, seconds: float = SHORT) -> tuple[int, int | None]:
        """How many dead letters a group has, and when the newest was stored."""
        name = DEAD_LETTER_PREFIX + group
        if name not in await self.topics():
            return 0, None
        try:
            ends = await self.topic_ends(name, seconds)
        except (NoRouteError, TopicNotExistError):
            return 0, None
        count = sum(end.max_offset - end.min_offset for end in ends.values())
        return count, max((end.last_update_timestamp for end in ends.values()), default=None)


def members_of(info: ClusterInfo) -> list[Member]:
    """The brokers of a cluster, sorted by name and id."""
    return [
        Member(name, number, data.cluster or "", address)
        for name, data in sorted(info.broker_addr_table.items())
        for number, address in sorted(data.broker_addrs.items())
    ]


def check_one_answered(answers: Iterable[object]) -> None:
    """Raises the first error if no broker answered, so that the result is not mistaken for an empty list."""
    answers = list(answers)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    for failure in failures:
        if not isinstance(failure, KourouError):
            raise failure


def kind_of_topic(name: str, system: frozenset[str]) -> str:
    """normal, retry, dlq or system."""
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dlq"
    return "system" if name in system or name in _SYSTEM or name.startswith((SYSTEM_PREFIX, "%")) else "normal"


_SYSTEM: Final = frozenset((*NOT_FOR_SENDING, DEFAULT_TOPIC, BENCHMARK_TOPIC, CHECKPOINT_TOPIC, TRACE_TOPIC))


def now_ms() -> int:
    return round(time.time() * 1000)
