"""Requests to name servers and brokers about topics, queues and their offsets.

Apache's brokers and Kourou's answer them alike. Requests for many topics and queues are sent together, and to all
brokers at the same time, so a thousand topics cost a few round trips.
"""

import copy
import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from kourou.client.errors import NotANameServerError
from kourou.protocol.bodies import TopicList, TopicRouteData
from kourou.protocol.codes import MASTER_ID, PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import (
    KourouError,
    QueryNotFoundError,
    SubscriptionGroupNotExistError,
    TopicNotExistError,
    refused,
)
from kourou.protocol.headers import (
    GetMaxOffset,
    GetMinOffset,
    GetRouteInfo,
    Header,
    OffsetAnswer,
    PullMessage,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from kourou.protocol.message import MessageQueue
from kourou.protocol.route_limits import check_route, decode_route
from kourou.protocol.route_queues import queues_of, readable_counts, writable_counts
from kourou.spark.errors import OptionError, UnreachableError
from kourou.spark.wire import Access, ask_side_by_side, connect, forget, is_connected, persist

log = logging.getLogger(__name__)

PLANNING_PATIENCE_S: Final = 30.0

TOLERANT_PATIENCE_S: Final = 0.15
"""Long enough for a second attempt with a new route."""

AWAY_S: Final = 10.0
"""The time during which a tolerant cluster does not ask a broker again that did not answer."""

_T = TypeVar("_T")


class Route(msgspec.Struct, frozen=True):
    """The route of a topic."""

    readable: tuple[MessageQueue, ...]
    writable: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]
    """Addresses by broker name and id."""


def route_of(topic: str, data: TopicRouteData) -> Route:
    """The queues that a name server's answer describes, sorted. Raises BodyError if there are too many.

    Raises OptionError for a static topic whose queues do not have the numbers of a broker's own: rows, offsets and
    archives name messages by these.
    """
    check_route(data, topic)
    numbers = [mapping.curr_id_map for mapping in (data.topic_queue_mapping_by_broker or {}).values()]
    if len(numbers) > 1 or any(number != own for mapping in numbers for number, own in mapping.items()):
        raise OptionError(
            f"topic {topic} is a static topic: its queues are numbered across brokers, and Spark's tasks work with the "
            "queues of each broker. Use kourou.client for it, or leave it out"
        )
    brokers = {broker.broker_name or "": dict(broker.broker_addrs) for broker in data.broker_datas}
    readable = {name: count for name, count in readable_counts(data).items() if brokers.get(name)}
    return Route(queues_of(topic, readable), queues_of(topic, writable_counts(data)), brokers)


class Cluster:
    """Sends the requests. Routes are cached until they are requested again."""

    def __init__(
        self,
        name_servers: tuple[str, ...],
        access: Access,
        patience_s: float = PLANNING_PATIENCE_S,
        *,
        is_planned: bool = False,
    ) -> None:
        """`is_planned`: for tasks, whose name servers and topics were found before, so they are waited for."""
        self._name_servers = name_servers
        self.access = access
        self._patience_s = patience_s
        self._is_planned = is_planned
        self._is_known = is_planned
        self._is_tolerant = False
        self._routes: dict[str, Route] = {}
        self._away: dict[str, float] = {}  # brokers that did not answer, and until when they are not asked again

    def tolerant(self) -> "Cluster":
        """The same cluster, whose answers omit the queues of brokers that do not answer."""
        other = copy.copy(self)  # with the same tables
        other._is_tolerant = True
        return other

    # ── Name servers ──────────────────────────────────────────────────────────────────────────────────────────────

    def _ask_name_server(self, *commands: Command) -> list[Command]:
        """The answers of the first name server that has them. Raises UnreachableError if none has them.

        Name servers that have answered before are waited for, since they may be restarting. Others may be a
        mistake, which is reported at once.
        """

        def attempt() -> list[Command]:
            return self._ask_name_servers_once(commands)

        if self._is_known:
            return persist("the cluster can't be queried", attempt, self._patience_s)
        answers = attempt()
        self._is_known = True
        return answers

    def _ask_name_servers_once(self, commands: Sequence[Command]) -> list[Command]:
        said: list[str] = []
        others = 0
        for address in self._name_servers:
            is_used = is_connected(address, self.access)  # the connection may be closed already: one more attempt
            for is_last in (False, True) if is_used else (True,):
                try:
                    answers = connect(address, self.access).ask_all(commands)
                    if any(answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED for answer in answers):
                        raise NotANameServerError(address)
                    return answers
                except NotANameServerError as error:
                    said.append(str(error))
                    others += 1
                    break
                except (OSError, KourouError) as error:
                    forget(address, self.access)
                    if is_last:
                        said.append(f"{address}: {error or type(error).__name__}")
        if others == len(said):
            raise OptionError(f"option namesrv: {'; '.join(said)}")
        raise UnreachableError(f"no name server answers: {'; '.join(said)}")

    def route(self, topic: str, *, fresh: bool = False) -> Route:
        """Raises OptionError for a topic that does not exist, UnreachableError."""
        return self.routes([topic], fresh=fresh)[topic]

    def routes(self, topics: Iterable[str], *, fresh: bool = False, gone_ok: bool = False) -> dict[str, Route]:
        """The queues of many topics, which are requested together.

        Raises OptionError for a topic that does not exist, unless `gone_ok`: then it is omitted; UnreachableError.

        A topic that existed before is waited for: a name server that has just started has no topics until brokers
        register.
        """
        wanted = list(dict.fromkeys(topics))
        missing = [topic for topic in wanted if fresh or topic not in self._routes]
        awaited = set() if gone_ok else {topic for topic in missing if self._is_planned or topic in self._routes}
        gone: set[str] = set()

        def attempt() -> None:
            absent = self._ask_routes(missing)
            missing[:] = absent
            strange = [topic for topic in absent if topic not in awaited]
            if strange and not gone_ok:
                raise OptionError(self._no_topic(strange[0]))
            gone.update(strange)
            if len(strange) < len(absent):
                raise UnreachableError(self._no_topic(next(topic for topic in absent if topic in awaited)))

        def what() -> str:
            topic = next((topic for topic in missing if topic in awaited), "")
            return f"topic {topic!r} can't be found{' any more' if topic in self._routes else ''}"

        if missing and awaited:
            persist(what, attempt, self._patience_s)
        elif missing:
            attempt()
        for topic in gone:
            self._routes.pop(topic, None)
        return {topic: self._routes[topic] for topic in wanted if topic not in gone}

    def _no_topic(self, topic: str) -> str:
        return f"topic {topic!r} does not exist at {', '.join(self._name_servers)}"

    def _ask_routes(self, topics: Sequence[str]) -> list[str]:
        """Cache the routes of these topics. Returns the topics without a route."""
        requests = [
            Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=GetRouteInfo(topic=topic).encode()) for topic in topics
        ]
        absent: list[str] = []
        for topic, answer in zip(topics, self._ask_name_server(*requests), strict=True):
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                absent.append(topic)
            elif answer.code != ResponseCode.SUCCESS:
                raise refused(answer.code, answer.remark)
            else:
                self._routes[topic] = route_of(topic, decode_route(answer.body, topic))
        return absent

    def topics(self, pattern: str) -> list[str]:
        """The names that match as a whole. Raises UnreachableError."""
        [answer] = self._ask_name_server(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer.code, answer.remark)
        match = re.compile(pattern).fullmatch
        return sorted(name for name in TopicList.decode(bytes(answer.body)).topic_list if match(name))

    def address(self, queue: MessageQueue, *, fresh: bool = False, master: bool = False) -> str:
        """The address of a broker of the queue: the master or, without a master, a slave. Raises UnreachableError."""
        members = self.route(queue.topic, fresh=fresh).brokers.get(queue.broker_name) or {}
        if MASTER_ID in members:
            return members[MASTER_ID]
        if not members or master:
            raise UnreachableError(f"broker {queue.broker_name} of topic {queue.topic} is not registered now")
        return members[min(members)]

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask_brokers(
        self,
        queues: Iterable[MessageQueue],
        request: Callable[[MessageQueue], Command],
        read: Callable[[Command], _T],
    ) -> dict[MessageQueue, _T]:
        """One request for each queue, all brokers at the same time. Raises UnreachableError, RefusedError.

        A broker that does not answer is asked again, the others are not. A tolerant cluster does that once, and then
        leaves its queues out.
        """
        left: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            left[queue.broker_name].append(queue)
        if self._is_tolerant:
            for name in [name for name in left if self._away.get(name, 0.0) > time.monotonic()]:
                del left[name]
        found: dict[MessageQueue, _T] = {}
        is_again = False

        def attempt() -> None:
            nonlocal is_again
            if is_again:
                self.routes([here[0].topic for here in left.values()], fresh=True)
            is_again = True
            troubles = self._ask_each(left, request, read, found)
            if troubles:
                raise UnreachableError("; ".join(troubles.values()))

        def what() -> str:
            return f"broker{'s' * (len(left) > 1)} {', '.join(left)} do{'es' * (len(left) == 1)} not answer"

        try:
            if left:
                persist(what, attempt, TOLERANT_PATIENCE_S if self._is_tolerant else self._patience_s)
        except UnreachableError as error:
            if not self._is_tolerant or not left:
                raise
            log.warning("%s; their queues are left out for now (failOnUnreachable=false)", error)
            self._away.update(dict.fromkeys(left, time.monotonic() + AWAY_S))
        return found

    def _ask_each(
        self,
        left: dict[str, list[MessageQueue]],
        request: Callable[[MessageQueue], Command],
        read: Callable[[Command], _T],
        found: dict[MessageQueue, _T],
    ) -> dict[str, str]:
        """Ask each broker once, and remove those that answer from `left`. Returns the errors of the others."""
        troubles: dict[str, str] = {}
        asked: list[tuple[str, list[Command]]] = []
        names: list[str] = []
        for name, here in left.items():
            try:
                asked.append((self.address(here[0]), [request(queue) for queue in here]))
                names.append(name)
            except UnreachableError as error:
                troubles[name] = str(error)
        for name, (address, _), outcome in zip(names, asked, ask_side_by_side(asked, self.access), strict=True):
            if not isinstance(outcome, list):
                troubles[name] = f"{address}: {outcome or type(outcome).__name__}"
                continue
            try:
                found.update(zip(left[name], [read(answer) for answer in outcome], strict=True))
            except KourouError as error:
                if not error.retriable:
                    raise
                troubles[name] = f"{address}: {error}"
            else:
                del left[name]
        return troubles

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue will have."""
        return self._offsets(queues, RequestCode.GET_MAX_OFFSET, _max_offset)

    def starts(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset of the first message that each queue still has."""
        return self._offsets(queues, RequestCode.GET_MIN_OFFSET, _min_offset)

    def by_time(self, queues: Iterable[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """The offset of the first message stored at a time or later; the end, if there is none."""
        queues = list(queues)
        ends, starts = self.ends(queues), self.starts(queues)

        def header(queue: MessageQueue) -> Header:
            return SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms)

        found = self._offsets(queues, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        # Brokers before 5.2 answer with the last message if all are older; rows are compared with the time in any case.
        return {
            queue: max(starts[queue], min(offset if offset >= 0 else ends[queue], ends[queue]))
            for queue, offset in found.items()
            if queue in starts and queue in ends
        }

    def committed(self, queues: Iterable[MessageQueue], group: str) -> dict[MessageQueue, int | None]:
        """The committed offsets of a group; None for a queue without one."""

        def request(queue: MessageQueue) -> Command:
            header = QueryConsumerOffset(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
            )
            return Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=header.encode())

        return self._ask_brokers(queues, request, _read_committed)

    def commit(self, offsets: Mapping[MessageQueue, int], group: str) -> None:
        """Commit offsets of a group. Raises OptionError for a group that does not exist."""

        def request(queue: MessageQueue) -> Command:
            header = UpdateConsumerOffset(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offsets[queue]
            )
            return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=header.encode())

        try:
            self._ask_brokers(offsets, request, _checked)
        except SubscriptionGroupNotExistError:
            self._make_known(offsets, group)
            self._ask_brokers(offsets, request, _checked)

    def _make_known(self, queues: Iterable[MessageQueue], group: str) -> None:
        """Pull once from each broker: with autoCreateSubscriptionGroup, this creates the group."""
        one_each = {queue.broker_name: queue for queue in queues}

        def request(queue: MessageQueue) -> Command:
            header = PullMessage(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=0,
                max_msg_nums=1,
                sys_flag=PullSysFlag.SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
            )
            return Command(RequestCode.PULL_MESSAGE, ext=header.encode())

        for answer in self._ask_brokers(one_each.values(), request, lambda answer: answer).values():
            if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise OptionError(
                    f"group {group!r} does not exist, and the brokers do not create groups automatically: create it"
                )

    def _offsets(
        self, queues: Iterable[MessageQueue], code: int, header: Callable[[MessageQueue], Header]
    ) -> dict[MessageQueue, int]:
        return self._ask_brokers(
            queues, lambda queue: Command(code, ext=header(queue).encode()), lambda answer: _read_offset(answer)
        )


def _max_offset(queue: MessageQueue) -> Header:
    return GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)


def _min_offset(queue: MessageQueue) -> Header:
    return GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)


def _checked(answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        error = refused(answer.code, answer.remark)
        if isinstance(error, TopicNotExistError):
            raise OptionError(f"the topic was deleted: {answer.remark}")
        raise error
    return answer


def _read_offset(answer: Command) -> int:
    return OffsetAnswer.decode(_checked(answer).ext).offset


def _read_committed(answer: Command) -> int | None:
    try:
        return _read_offset(answer)
    except (QueryNotFoundError, SubscriptionGroupNotExistError):
        return None
