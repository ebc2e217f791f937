"""Queries of the tables: routes, clusters, members, topic names.

Java: RouteInfoManager.pickupTopicRouteData and the other getters.
"""

from collections.abc import Callable

from kourou.nameserver.groups import Group, Member
from kourou.nameserver.settings import Settings
from kourou.nameserver.tables import Tables
from kourou.protocol.bodies import BrokerMemberGroup, ClusterInfo, TopicList, TopicRouteData
from kourou.protocol.codes import TopicSysFlag

SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class Routes:
    """Reads the tables. Encoded routes are cached until they change."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def kept_route(self, topic: str, *, standard: bool) -> bytes | None:
        """The cached route as JSON, if it is up to date."""
        return self._tables.encoded.get(topic, standard=standard)

    def encoded_route(self, topic: str, settings: Settings, order_conf: str | None, *, standard: bool) -> bytes | None:
        """The route as JSON; None if no broker serves the topic."""
        encoded = self._tables.encoded.get(topic, standard=standard)
        if encoded is None:
            route = self.route(topic, settings, order_conf)
            if route is None:
                return None
            encoded = route.encode(standard=standard)
            self._tables.encoded.put(topic, encoded, standard=standard)
        return encoded

    def route(self, topic: str, settings: Settings, order_conf: str | None) -> TopicRouteData | None:
        """The route of a topic."""
        groups = self._tables.groups_of(topic)
        if not groups:
            return None
        acting = settings.support_acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        queues = [group.queues_of(topic) for group in groups]
        return TopicRouteData(
            order_topic_conf=order_conf,
            queue_datas=queues,
            broker_datas=[
                group.to_body(group.with_acting_master(of_group) if acting else None)
                for group, of_group in zip(groups, queues, strict=True)
            ],
            filter_server_table=self._filter_servers_of(groups),
            topic_queue_mapping_by_broker=self._tables.mappings.get(topic),
        )

    def _filter_servers_of(self, groups: list[Group]) -> dict[str, list[str]]:
        servers = self._tables.filter_servers
        if not servers:
            return {}
        members = [Member(group.cluster, address) for group in groups for address in group.addresses.values()]
        return {member.address: servers[member] for member in members if member in servers}

    def cluster_info(self) -> ClusterInfo:
        tables = self._tables
        return ClusterInfo(
            broker_addr_table={name: group.to_body() for name, group in tables.brokers.items()},
            cluster_addr_table={cluster: sorted(groups) for cluster, groups in tables.clusters.items()},
        )

    def member_group(self, cluster: str, group_name: str) -> BrokerMemberGroup:
        group = self._tables.brokers.get(group_name)
        addresses = {} if group is None else dict(sorted(group.addresses.items()))
        return BrokerMemberGroup(cluster=cluster, broker_name=group_name, broker_addrs=addresses)

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers, and the address of one broker."""
        tables = self._tables
        names = list(tables.clusters) + [name for groups in tables.clusters.values() for name in sorted(groups)]
        address = next((group.addresses[group.smallest_id] for group in tables.brokers.values()), None)
        return TopicList(topic_list=list(dict.fromkeys(names)), broker_addr=address)

    def check(self, settings: Settings, order_conf_of: Callable[[str], str | None]) -> None:
        """Assert that the cached routes are up to date."""

        def encode(topic: str, standard: bool) -> bytes | None:
            route = self.route(topic, settings, order_conf_of(topic))
            return None if route is None else route.encode(standard=standard)

        self._tables.encoded.check(encode)


TopicFilter = Callable[[str, list[Group]], bool]
"""Whether to list a topic that these groups serve."""


def unit_filter(*, unit: bool | None, subscribed: bool | None) -> TopicFilter:
    """Topics by the unit flags of their first broker; None matches any."""

    def fits(topic: str, groups: list[Group]) -> bool:
        flag = groups[0].queues[topic].topic_sys_flag
        is_unit, is_subscribed = bool(flag & TopicSysFlag.UNIT), bool(flag & TopicSysFlag.UNIT_SUB)
        return unit in (None, is_unit) and subscribed in (None, is_subscribed)

    return fits


def cluster_filter(group_names: set[str]) -> TopicFilter:
    """Topics of these groups."""
    return lambda _, groups: any(group.name in group_names for group in groups)
