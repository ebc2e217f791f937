"""Routes: which brokers serve a topic. They come from the name server, are cached, and are refreshed.

A route is kept until a refresh brings a newer one. A refresh that fails, or does not find the topic, leaves the route
unchanged: an old route is better than none while a name server restarts. Callers that need the same unknown route share
one request. The size of an answer is limited (protocol/route_limits.py): a route with too many queues or brokers is
refused.

Java: MQClientInstance.updateTopicRouteInfoFromNameServer, topicRouteData2TopicPublishInfo.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kourou.client.errors import NoBrokerError, NoNameServerError, NoRouteError
from kourou.client.nameservers import NameServers
from kourou.client.naming import DEFAULT_TOPIC
from kourou.protocol.bodies import BrokerData, ClusterInfo, TopicRouteData
from kourou.protocol.codes import MASTER_ID, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, RefusedError, TopicNotExistError
from kourou.protocol.headers import GetRouteInfo
from kourou.protocol.message import MessageQueue
from kourou.protocol.route_limits import (
    ROUTE_ADDRESSES_MAX,
    ROUTE_SIZE_MAX,
    check_route,
    decode_route,
    ordered_counts,
)
from kourou.protocol.route_queues import is_logical, logical_queues, queues_of, readable_counts, writable_counts

DEFAULT_QUEUES: Final = 4
"""The number of queues of a topic that its first message creates, unless the broker's default is smaller."""


class Route(msgspec.Struct, frozen=True):
    """The queues of one topic."""

    topic: str
    data: TopicRouteData
    publish: tuple[MessageQueue, ...]
    """Queues to send to: the writable ones of brokers that have a master."""
    subscribe: tuple[MessageQueue, ...]
    """Queues to consume from, in the order in which consumers share them."""
    homes: Mapping[MessageQueue, str] = {}
    """The brokers of the queues of a static topic."""
    is_default: bool = False
    """This is the route of topics that brokers create on their first message, not the topic's own."""


def route_of(topic: str, data: TopicRouteData, *, is_default: bool = False) -> Route:
    """The route in a name server's answer. Raises BodyError if it has too many queues."""
    check_route(data, topic)
    homes = logical_queues(topic, data)
    publish = _publish_queues(topic, data, is_default)
    if homes and not data.order_topic_conf:
        publish = tuple(queue for queue, broker in homes.items() if broker)
    subscribe = tuple(homes) or queues_of(topic, readable_counts(data))
    return Route(topic, data, publish, subscribe, homes, is_default)


def _publish_queues(topic: str, data: TopicRouteData, is_default: bool) -> tuple[MessageQueue, ...]:
    if data.order_topic_conf:
        return tuple(
            MessageQueue(topic, broker, number)
            for broker, count in ordered_counts(data.order_topic_conf)
            for number in range(count)
        )
    return queues_of(topic, writable_counts(data, DEFAULT_QUEUES if is_default else None))


class Routes:
    """The routes of one client, and the addresses of the brokers in them. Topic names include the namespace."""

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, Route] = {}
        self._asking: dict[tuple[str, bool], asyncio.Task[Route]] = {}
        self._brokers: dict[str, BrokerData] = {}  # by broker name, from all routes
        self._cluster: dict[str, BrokerData] = {}  # all brokers of the cluster, if they are needed
        self.on_change: Callable[[Route], None] | None = None

    def cached(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    async def get(self, topic: str, *, or_default: bool = False) -> Route:
        """The topic's route; with `or_default`, for an unknown topic, the brokers that would create it.

        Raises NoRouteError, NoNameServerError, BodyError.
        """
        route = self._routes.get(topic)
        if route is not None and (or_default or not route.is_default):
            return route
        return await self.refresh(topic, or_default=or_default)

    async def refresh(self, topic: str, *, or_default: bool = False) -> Route:
        """Fetches the topic's route from the name server. Raises NoRouteError, NoNameServerError."""
        key = (topic, or_default)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(topic, or_default))
            task.add_done_callback(lambda done: self._asked(key, done))
        return await asyncio.shield(task)

    def _asked(self, key: tuple[str, bool], task: "asyncio.Task[Route]") -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieve it here: all callers may be gone

    async def _ask(self, topic: str, or_default: bool) -> Route:
        try:
            route = route_of(topic, await self._query(topic))
        except TopicNotExistError:
            if not or_default:
                raise NoRouteError(topic, str(self._name_servers)) from None
            try:
                route = route_of(topic, await self._query(DEFAULT_TOPIC), is_default=True)
            except TopicNotExistError:
                raise NoRouteError(topic, str(self._name_servers)) from None
        self._keep(route)
        return route

    async def _query(self, topic: str) -> TopicRouteData:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=header.encode())
        return decode_route((await self._name_servers.ask(command)).body, topic)

    def _keep(self, route: Route) -> None:
        old = self._routes.get(route.topic)
        for broker in route.data.broker_datas:
            self._brokers[broker.broker_name or ""] = broker
        self._routes[route.topic] = route
        if old is not None and (old.publish, old.subscribe) != (route.publish, route.subscribe) and self.on_change:
            self.on_change(route)

    def drop(self, topic: str) -> None:
        """Drop a route, so that its next use fetches it again."""
        self._routes.pop(topic, None)

    async def refresh_all(self, topics: set[str]) -> None:
        """Fetches the routes of these topics again. A failure leaves a route unchanged."""
        for topic in topics:
            try:
                known = self._routes.get(topic)
                await self.refresh(topic, or_default=known is not None and known.is_default)
            except NoNameServerError:
                return
            except (NoRouteError, RefusedError, BodyError):
                continue

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def brokers(self) -> dict[str, BrokerData]:
        """All broker groups of the routes that are in use, by name."""
        return self._brokers

    async def refresh_cluster(self) -> None:
        """Fetches the addresses of all brokers of the cluster. Raises NoNameServerError, RefusedError, BodyError."""
        answer = await self._name_servers.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        if len(answer.body) > ROUTE_SIZE_MAX:
            raise BodyError(f"the list of brokers has {len(answer.body)} bytes; {ROUTE_SIZE_MAX} are allowed")
        table = ClusterInfo.decode(answer.body).broker_addr_table
        if sum(len(broker.broker_addrs) for broker in table.values()) > ROUTE_ADDRESSES_MAX:
            raise BodyError(f"the list of brokers has more than {ROUTE_ADDRESSES_MAX} addresses")
        self._cluster = table
        self._brokers.update(table)

    def forget_unused(self, topics: set[str]) -> list[str]:
        """Drops brokers that are in no route of these topics. Returns their addresses."""
        used: dict[str, BrokerData] = dict(self._cluster)
        for topic in topics:
            route = self._routes.get(topic)
            if route is not None:
                used.update((broker.broker_name or "", broker) for broker in route.data.broker_datas)
        kept = {address for broker in used.values() for address in broker.broker_addrs.values()}
        gone = {address for broker in self._brokers.values() for address in broker.broker_addrs.values()} - kept
        self._brokers = used
        return sorted(gone)

    def home(self, queue: MessageQueue) -> str:
        """The name of the broker group that has the queue. Raises NoBrokerError for one that moves."""
        if not is_logical(queue):
            return queue.broker_name
        route = self._routes.get(queue.topic)
        name = None if route is None else route.homes.get(queue)
        if not name:
            raise NoBrokerError(f"no broker has queue {queue.queue_id} of static topic {queue.topic!r} now")
        return name

    def master_of(self, queue: MessageQueue) -> str:
        """The address of the master that has the queue. Raises NoBrokerError."""
        return self.master(self.home(queue))

    def member_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> tuple[str, int]:
        """The address and id of a member that has the queue, as `member`. Raises NoBrokerError."""
        return self.member(self.home(queue), broker_id)

    def master(self, broker_name: str) -> str:
        """The address of a broker group's master. Raises NoBrokerError."""
        broker = self._brokers.get(broker_name)
        address = None if broker is None else broker.broker_addrs.get(MASTER_ID)
        if address is None:
            raise NoBrokerError(f"broker {broker_name!r} has no master now")
        return address

    def member(self, broker_name: str, broker_id: int = MASTER_ID, *, only: bool = False) -> tuple[str, int]:
        """The address and id of a member; unless `only`, of another one if it is missing.

        Raises NoBrokerError.
        """
        broker = self._brokers.get(broker_name)
        addresses = {} if broker is None else broker.broker_addrs
        if broker_id in addresses:
            return addresses[broker_id], broker_id
        if not addresses or only:
            raise NoBrokerError(f"broker {broker_name!r} has no member that can serve this request now")
        # The slave is missing: use the next one, or the master, or any member.
        other = next((number for number in (broker_id + 1, MASTER_ID) if number in addresses), min(addresses))
        return addresses[other], other

    def any_broker_of(self, route: Route) -> str:
        """The address of any broker that serves the topic. Raises NoBrokerError."""
        candidates = [broker for broker in route.data.broker_datas if broker.broker_addrs]
        if not candidates:
            raise NoBrokerError(f"topic {route.topic!r} has no broker now")
        addresses = random.choice(candidates).broker_addrs
        return addresses.get(MASTER_ID) or random.choice(list(addresses.values()))
