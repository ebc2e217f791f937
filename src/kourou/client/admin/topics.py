"""Topics: listing, creating, changing and deleting them; their routes and offsets."""

import builtins
import time
from collections.abc import Iterable, Mapping

import msgspec

from kourou.client import naming
from kourou.client.admin import static_plans
from kourou.client.admin.requests import AdminRequests, Without
from kourou.client.admin.static_plans import Plan
from kourou.client.errors import ClientError, NoBrokerError
from kourou.protocol.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from kourou.protocol.codes import MASTER_ID, Perm, RequestCode
from kourou.protocol.errors import QueryNotFoundError, RefusedError, TopicNotExistError
from kourou.protocol.headers import (
    CreateTopic,
    DeleteKVConfig,
    DeleteTopicInBroker,
    DeleteTopicInNamesrv,
    GetAllTopicConfig,
    GetKVConfig,
    GetKVConfigAnswer,
    GetTopicConfig,
    GetTopicsByCluster,
    GetTopicStatsInfo,
    PutKVConfig,
    QueryTopicConsumeByWho,
)
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import ORDER_NAMESPACE

READ_WRITE = int(Perm.READ | Perm.WRITE)


class Topics:
    """`mq.admin.topics`"""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    async def list(self, cluster: str | None = None) -> builtins.list[str]:
        """The names of all topics, or of a cluster's."""
        if cluster is None:
            answer = await self._ask.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._ask.name_server(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByCluster(cluster=cluster))
        return sorted(TopicList.decode(answer.body).topic_list)

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic is. Raises NoRouteError."""
        return (await self._ask.route(topic)).data

    async def clusters(self, topic: str) -> builtins.list[str]:
        """The clusters that serve a topic. Raises NoRouteError."""
        brokers = (await self._ask.route(topic)).data.broker_datas
        return sorted({broker.cluster for broker in brokers if broker.cluster})

    async def stats(self, topic: str, without: Without | None = None) -> dict[MessageQueue, TopicOffset]:
        """The first and next offsets of the topic's queues, sorted by queue. Raises NoRouteError.

        With `without`, the brokers that do not answer are entered there, unless none answers.
        """
        wrapped = self._ask.session.wrap(topic)
        header = GetTopicStatsInfo(topic=wrapped)
        code = RequestCode.GET_TOPIC_STATS_INFO
        found: dict[MessageQueue, TopicOffset] = {}
        addresses = await self._ask.masters_of(topic)
        for table in await self._ask.each(
            addresses, lambda address: self._ask.body(TopicStatsTable, address, code, header), without
        ):
            found.update(table.offset_table)
        return {queue: found[queue] for queue in sorted(found)}

    async def config(self, topic: str, broker: str) -> TopicConfigAndQueueMapping:
        """A topic's settings on one broker."""
        header = GetTopicConfig(topic=self._ask.session.wrap(topic))
        return await self._ask.body(TopicConfigAndQueueMapping, broker, RequestCode.GET_TOPIC_CONFIG, header)

    async def all_configs(self, broker: str) -> TopicConfigAndMappingSerializeWrapper:
        """All topics of one broker, with their settings."""
        code, header = RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfig()
        return await self._ask.body(TopicConfigAndMappingSerializeWrapper, broker, code, header)

    async def create(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic or change it, on all masters of a cluster (or of all clusters), or on one broker.

        `attributes` are set; a key that begins with `-` is removed. Raises InvalidNameError, RefusedError.
        """
        naming.check_topic(topic)
        wrapped = self._ask.session.wrap(topic)
        header = CreateTopic(
            topic=wrapped,
            default_topic=naming.DEFAULT_TOPIC,
            read_queue_nums=read_queues or queues,
            write_queue_nums=write_queues or queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=_attributes(attributes),
        )
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if order and broker is None:
            names = [data.broker_name for data in await self._ask.brokers(cluster)]
            await self.set_order(topic, ";".join(f"{name}:{header.write_queue_nums}" for name in names))
        self._ask.session.routes.drop(wrapped)

    async def create_all(
        self, topics: Iterable[TopicConfig], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Create or change several topics at once, on all masters of a cluster (or of all), or on one broker."""
        wanted = [msgspec.structs.replace(one, topic_name=self._named(one.topic_name or "")) for one in topics]
        body = CreateTopicListRequestBody(topic_config_list=wanted).encode()
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    def _named(self, topic: str) -> str:
        naming.check_topic(topic)
        return self._ask.session.wrap(topic)

    async def set_perm(self, topic: str, perm: int, *, broker: str | None = None) -> None:
        """Change what clients may do: 2 write, 4 read, 6 both. Raises NoRouteError, RefusedError."""
        data = await self.route(topic)
        for queue in data.queue_datas:
            addresses = next(b.broker_addrs for b in data.broker_datas if b.broker_name == queue.broker_name)
            address = addresses.get(0)
            if address is None or broker not in (None, address):
                continue
            header = CreateTopic(
                topic=self._ask.session.wrap(topic),
                default_topic=naming.DEFAULT_TOPIC,
                read_queue_nums=queue.read_queue_nums,
                write_queue_nums=queue.write_queue_nums,
                perm=perm,
                topic_filter_type="SINGLE_TAG",
                topic_sys_flag=queue.topic_sys_flag,
            )
            await self._ask.broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from a cluster's brokers (or from all) and from the name servers."""
        wrapped = self._ask.session.wrap(topic)
        for address in await self._ask.masters(cluster):
            await self._ask.broker(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicInBroker(topic=wrapped))
        header = DeleteTopicInNamesrv(topic=wrapped, cluster_name=cluster)
        await self._ask.name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self._ask.session.routes.drop(wrapped)

    async def groups(self, topic: str, without: Without | None = None) -> builtins.list[str]:
        """The consumer groups of a topic. Raises NoRouteError. `without`: as for `stats`."""
        header = QueryTopicConsumeByWho(topic=self._ask.session.wrap(topic))
        found: set[str] = set()
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        addresses = await self._ask.masters_of(topic)
        for table in await self._ask.each(
            addresses, lambda address: self._ask.body(GroupList, address, code, header), without
        ):
            found.update(table.group_list)
        return sorted(self._ask.session.unwrap(group) for group in found)

    # ── Static topics ─────────────────────────────────────────────────────────────────────────────────────────────

    async def create_static(self, topic: str, queues: int, brokers: Iterable[str]) -> Plan:
        """Create a static topic with `count` queues on these brokers, given by name, or add queues to it.

        Returns the topic on each broker. Raises ClientError, NoBrokerError, RefusedError.
        """
        addresses = await self._addresses()
        wrapped = self._named(topic)
        there = await self._static(wrapped, addresses)
        plan = static_plans.grow(wrapped, queues, {*brokers, *there}, there, round(time.time() * 1000))
        plan = static_plans.completed(wrapped, plan, addresses)
        for name in plan:
            await self._put_static(plan, name, addresses)
        self._ask.session.routes.drop(wrapped)
        return plan

    async def move_static(self, topic: str, brokers: Iterable[str]) -> Plan:
        """Spread the queues of a static topic over these brokers, given by name. They keep their messages and numbers.

        Returns the topic on each broker. Raises ClientError, NoBrokerError, RefusedError.
        """
        addresses = await self._addresses()
        wrapped = self._named(topic)
        there = await self._static(wrapped, addresses)
        plan = static_plans.move(wrapped, set(brokers), there, round(time.time() * 1000))
        moves = static_plans.moved(there, plan)
        plan = static_plans.completed(wrapped, plan, addresses)
        for name in {new for _, new in moves.values()}:  # may be written to, and has no offset yet
            await self._put_static(plan, name, addresses)
        for name in {old for old, _ in moves.values()}:  # takes no more messages
            await self._put_static(plan, name, addresses)
        for number, (old, new) in moves.items():
            plan = static_plans.begun(plan, number, new, await self._end_of(plan, number, new, addresses[old]))
        for name in sorted(plan, key=lambda name: name not in {new for _, new in moves.values()}):
            await self._put_static(plan, name, addresses)
        self._ask.session.routes.drop(wrapped)
        return plan

    async def _end_of(self, plan: Plan, number: int, broker: str, old_address: str) -> int:
        """Where the queue of the old broker ends."""
        detail = plan[broker].mapping_detail
        assert detail is not None
        piece = detail.hosted_queues[number][-2]
        header = GetTopicStatsInfo(topic=detail.topic or "")
        table = await self._ask.body(TopicStatsTable, old_address, RequestCode.GET_TOPIC_STATS_INFO, header)
        ends = {(queue.broker_name, queue.queue_id): found.max_offset for queue, found in table.offset_table.items()}
        return ends.get((piece.bname or "", piece.queue_id), 0)

    async def _addresses(self) -> dict[str, str]:
        """Masters by broker name."""
        found = {data.broker_name or "": data.broker_addrs for data in await self._ask.brokers()}
        return {name: addresses[MASTER_ID] for name, addresses in found.items() if MASTER_ID in addresses}

    async def _static(self, wrapped: str, addresses: Mapping[str, str]) -> dict[str, TopicConfigAndQueueMapping]:
        """A static topic on each broker that has it."""
        header = GetTopicConfig(topic=wrapped, logical=True)
        found = {}
        for name, address in addresses.items():
            try:
                code = RequestCode.GET_TOPIC_CONFIG
                found[name] = await self._ask.body(TopicConfigAndQueueMapping, address, code, header)
            except TopicNotExistError:
                continue
        return found

    async def _put_static(self, plan: Plan, name: str, addresses: Mapping[str, str]) -> None:
        if name not in addresses:
            raise NoBrokerError(f"broker {name!r} has no master at present; there are: {', '.join(sorted(addresses))}")
        config = plan[name]
        assert config.mapping_detail is not None
        header = CreateTopic(
            topic=config.topic_name or "",
            default_topic=naming.DEFAULT_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=config.topic_sys_flag,
        )
        code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
        await self._ask.broker(addresses[name], code, header, config.mapping_detail.encode())

    # ── Order ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def set_order(self, topic: str, conf: str) -> None:
        """Fix the queues of an ordered topic: `broker:count;broker:count`."""
        header = PutKVConfig(namespace=ORDER_NAMESPACE, key=self._ask.session.wrap(topic), value=conf)
        await self._ask.name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def order(self, topic: str) -> str | None:
        """The fixed queues of an ordered topic; None for any other."""
        header = GetKVConfig(namespace=ORDER_NAMESPACE, key=self._ask.session.wrap(topic))
        try:
            answer = await self._ask.name_server(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFoundError:
            return None
        return GetKVConfigAnswer.decode(answer.ext).value

    async def remove_order(self, topic: str) -> None:
        """Remove the fixed queues of an ordered topic."""
        header = DeleteKVConfig(namespace=ORDER_NAMESPACE, key=self._ask.session.wrap(topic))
        await self._ask.name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def system(self) -> builtins.list[str]:
        """The topics that brokers and clusters use internally."""
        first = TopicList.decode((await self._ask.name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body)
        found = set(first.topic_list)
        for address in await self._ask.masters():
            try:
                more = await self._ask.body(TopicList, address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            except RefusedError:
                continue
            found.update(more.topic_list)
        return sorted(found)


def _attributes(attributes: Mapping[str, str] | None) -> str | None:
    if not attributes:
        return None
    for key, value in attributes.items():
        if "," in key or "=" in key or "," in value:
            raise ClientError(f"attribute {key!r} contains a comma or an equals sign, which separate attributes")
    return ",".join(key if key.startswith("-") else f"+{key.lstrip('+')}={value}" for key, value in attributes.items())


__all__ = ["Topics"]
