"""Read-only requests: routes, clusters, lists of topics.

Lists of topics are made in slices (`kourou.turns`); a topic that is added or removed meanwhile may be missing.

Java: ClientRequestProcessor, DefaultRequestProcessor, ZoneRouteRPCHook.
"""

from collections.abc import Callable

import msgspec

from kourou.nameserver.configuration import Configuration
from kourou.nameserver.events import Asked
from kourou.nameserver.requests import Handler, Refused
from kourou.nameserver.routes import Routes, TopicFilter, cluster_filter, unit_filter
from kourou.nameserver.tables import Tables
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import TopicList
from kourou.protocol.codes import ADVICE, MASTER_ID, RequestCode, ResponseCode, Version
from kourou.protocol.command import Command
from kourou.protocol.frame import FRAME_SIZE_MAX
from kourou.turns import Slices

NAMES_IN_SLICE = 1_000
"""The number of topic names that are listed between two yields: about a millisecond."""

ANSWER_MAX = FRAME_SIZE_MAX - 64 * 1024
"""The largest body in bytes: no client reads a larger frame."""

ZONE_NAME, ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"

_V4_9_4 = int(Version.V4_9_4)


class Queries:
    """Answers queries of clients and tools."""

    def __init__(
        self, tables: Tables, configuration: Configuration, started_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self.routes = Routes(tables)
        self._tables = tables
        self._configuration = configuration
        self._started_ms = started_ms
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_topics,
        }

    # ── Routes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _get_route(self, asked: Asked) -> Command:
        command, settings = asked.command, self._configuration.settings
        kept = self._kept_route(command)
        if kept is not None:
            return command.answer(body=kept)
        header = headers.GetRouteInfo.decode(command.ext)
        waited_ms = self._now_ms() - self._started_ms
        if settings.need_wait_for_service and waited_ms < settings.wait_seconds_for_service * 1000:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        order_conf = self._configuration.order_conf_of(header.topic)
        standard = command.version >= _V4_9_4 or bool(header.accept_standard_json_only)
        body = self._zone_route(asked, header.topic, order_conf)
        if body is None:
            body = self.routes.encoded_route(header.topic, settings, order_conf, standard=standard)
        if body is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{ADVICE}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return command.answer(body=body)

    def _kept_route(self, command: Command) -> bytes | None:
        """A cached encoded route."""
        asked = None if self._configuration.settings.need_wait_for_service else usual_route(command)
        return None if asked is None else self.routes.kept_route(asked[0], standard=asked[1])

    def _zone_route(self, asked: Asked, topic: str, order_conf: str | None) -> bytes | None:
        """The route for a client's zone: the brokers there, and groups without a master from all zones."""
        ext = asked.command.ext or {}
        zone = ext.get(ZONE_NAME, "")
        if not zone.strip() or ext.get(ZONE_MODE, "").lower() != "true":
            return None
        route = self.routes.route(topic, self._configuration.settings, order_conf)
        if route is None:
            return None
        near = [
            broker
            for broker in route.broker_datas
            if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
        ]
        names = {broker.broker_name for broker in near}
        addresses = {address for broker in near for address in broker.broker_addrs.values()}
        return msgspec.structs.replace(
            route,
            broker_datas=near,
            queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
            filter_server_table={a: servers for a, servers in route.filter_server_table.items() if a in addresses},
        ).encode()

    def _get_cluster_info(self, asked: Asked) -> Command:
        return asked.command.answer(body=self.routes.cluster_info().encode())

    def _get_member_group(self, asked: Asked) -> Command:
        header = headers.GetBrokerMemberGroup.decode(asked.command.ext)
        group = self.routes.member_group(header.cluster_name, header.broker_name)
        return asked.command.answer(body=bodies.GetBrokerMemberGroupResponseBody(broker_member_group=group).encode())

    # ── Lists of topics ───────────────────────────────────────────────────────────────────────────────────────────

    def _get_all_topics(self, asked: Asked) -> Slices[Command]:
        yield 0
        if not self._configuration.settings.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return (yield from self._topic_list(asked, lambda *_: True))

    def _get_topics_by_cluster(self, asked: Asked) -> Slices[Command]:
        yield 0
        self._check_topic_list_enabled()
        cluster = headers.GetTopicsByCluster.decode(asked.command.ext).cluster
        return (yield from self._topic_list(asked, cluster_filter(self._tables.clusters.get(cluster, set()))))

    def _get_system_topics(self, asked: Asked) -> Command:
        return asked.command.answer(body=self.routes.system_topics().encode())

    def _get_unit_topics(self, asked: Asked) -> Slices[Command]:
        yield 0
        self._check_topic_list_enabled()
        match asked.command.code:
            case RequestCode.GET_UNIT_TOPIC_LIST:
                fits = unit_filter(unit=True, subscribed=None)
            case RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
                fits = unit_filter(unit=None, subscribed=True)
            case _:
                fits = unit_filter(unit=False, subscribed=True)
        return (yield from self._topic_list(asked, fits))

    def _topic_list(self, asked: Asked, fits: TopicFilter) -> Slices[Command]:
        """The names of topics that match."""
        groups_of, parts, size = self._tables.groups_of, [], 0
        names = list(self._tables.topics)
        for at in range(0, len(names), NAMES_IN_SLICE):
            found = [
                name for name in names[at : at + NAMES_IN_SLICE] if (groups := groups_of(name)) and fits(name, groups)
            ]
            if found:
                parts.append(msgspec.json.encode(found)[1:-1])
                size += len(parts[-1])
            if size > ANSWER_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the answer would exceed {ANSWER_MAX} bytes, the largest frame "
                    "(com.rocketmq.remoting.frameMaxLength)",
                )
            yield size
        before, _, after = TopicList().encode().partition(b"[]")
        return asked.command.answer(body=b"".join((before, b"[", b",".join(parts), b"]", after)))

    def _check_topic_list_enabled(self) -> None:
        if not self._configuration.settings.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")


def usual_route(command: Command) -> tuple[str, bool] | None:
    """The topic of a usual route query, and whether in standard JSON; None for any other request."""
    ext = command.ext
    if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or command.flag or ext is None or ZONE_MODE in ext:
        return None
    standard = command.version >= _V4_9_4
    if not standard and "acceptStandardJsonOnly" in ext:
        return None
    return ext.get("topic", ""), standard
