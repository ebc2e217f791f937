"""How far topics and groups are.

Java: AdminBrokerProcessor: getTopicStatsInfo, getConsumeStats, fetchAllConsumeStatsInBroker, queryConsumeTimeSpan.
"""

from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Refused
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import ConsumeStats, OffsetWrapper, TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.store.reading import Reader


class ProgressRequests:
    """Serves requests about how far somebody is."""

    def __init__(
        self,
        settings: BrokerSettings,
        reader: Reader,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        stats: Stats,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._stats = stats

    # ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    def topic(self, asked: Asked) -> Command:
        """GET_TOPIC_STATS_INFO: the ends of a topic's queues."""
        topic = self._topic(headers.GetTopicStatsInfo.decode(asked.command.ext).topic)
        name = topic.topic_name or ""
        table = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            start, end = self._reader.offsets(name, queue_id)
            table[self._queue(name, queue_id)] = bodies.TopicOffset(
                min_offset=start,
                max_offset=end,
                last_update_timestamp=self._reader.stored_ms_of(name, queue_id, end - 1) if end else 0,
            )
        body = bodies.TopicStatsTable(offset_table=table, topic_put_tps=self._stats.put_rate(name))
        return asked.command.answer(body=body.encode())

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.name, queue_id)

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def group(self, asked: Asked) -> Command:
        """GET_CONSUME_STATS: how far a group is in one topic, in several or in all."""
        header = headers.GetConsumeStats.decode(asked.command.ext)
        group = header.consumer_group
        if header.topic_list and header.topic_list.strip():
            names = {name for name in header.topic_list.split(";") if name.strip()}
        else:
            one = header.topic if header.topic and header.topic.strip() else None
            names = self._subscribed(group, self._offsets.topics_of(group) if one is None else {one})
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for topic in filter(None, map(self._topics.get, sorted(names))):
            table.update(self._consumed(group, topic, topic.read_queue_nums))
            rate += self._stats.get_rate(topic.topic_name or "", group)
        return asked.command.answer(body=ConsumeStats(offset_table=table, consume_tps=rate).encode())

    def _subscribed(self, group: str, topics: set[str]) -> set[str]:
        """Those that the members of a group subscribe to; all, if nobody is there to say so."""
        members = self._clients.group(group)
        if members is None or not members.subscriptions:
            return topics
        return topics & members.subscriptions.keys()

    def _consumed(self, group: str, topic: TopicConfig, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        name = topic.topic_name or ""
        pulled = self._offsets.pulled.get(f"{name}@{group}", {})
        table = {}
        for queue_id in range(queues):
            _, end = self._reader.offsets(name, queue_id)
            consumed = max(self._offsets.get(group, name, queue_id), 0)
            table[self._queue(name, queue_id)] = OffsetWrapper(
                broker_offset=end,
                consumer_offset=consumed,
                pull_offset=max(consumed, pulled.get(queue_id, 0)),
                last_timestamp=max(self._reader.stored_ms_of(name, queue_id, consumed - 1), 0) if consumed else 0,
            )
        return table

    def all_groups(self, asked: Asked) -> Command:
        """GET_BROKER_CONSUME_STATS: how far all groups are; with `isOrder`, in ordered topics."""
        only_ordered = headers.GetBrokerConsumeStats.decode(asked.command.ext).is_order
        everyone: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = 0
        topics_by_group = self._topics_by_group()
        for group in self._groups.table:
            stats = []
            names = self._subscribed(group, topics_by_group.get(group, set()))
            for topic in filter(None, map(self._topics.get, sorted(names))):
                if only_ordered and not topic.order:
                    continue
                table = self._consumed(group, topic, topic.write_queue_nums)
                rate = self._stats.get_rate(topic.topic_name or "", group)
                stats.append(ConsumeStats(offset_table=table, consume_tps=rate))
                behind += sum(one.broker_offset - one.consumer_offset for one in table.values())
                in_flight += sum(one.pull_offset - one.consumer_offset for one in table.values())
            everyone.append({group: stats})
        body = bodies.ConsumeStatsList(
            consume_stats_list=everyone,
            broker_addr=self._settings.address,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return asked.command.answer(body=body.encode())

    def _topics_by_group(self) -> dict[str, set[str]]:
        """Of which topics each group has consumed something: once for all, for there may be thousands of groups."""
        found: dict[str, set[str]] = {}
        for name in self._offsets.table:
            topic, _, group = name.partition("@")
            found.setdefault(group, set()).add(topic)
        return found

    def time_span(self, asked: Asked) -> Command:
        """QUERY_CONSUME_TIME_SPAN: when the messages that a group has and has not consumed were stored."""
        header = headers.QueryConsumeTimeSpan.decode(asked.command.ext)
        topic = self._topic(header.topic)
        spans = [self._span(header.topic, n, header.group, asked.wall_ms) for n in range(topic.write_queue_nums)]
        return asked.command.answer(body=bodies.QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())

    def _span(self, topic: str, queue_id: int, group: str, wall_ms: int) -> bodies.QueueTimeSpan:
        reader = self._reader
        _, end = reader.offsets(topic, queue_id)
        earliest_ms = reader.earliest_ms(topic, queue_id)
        consumed = self._offsets.get(group, topic, queue_id)
        waits_ms = 0
        if consumed < end:
            waits_ms = wall_ms - reader.stored_ms_of(topic, queue_id, consumed)
        return bodies.QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=earliest_ms,
            max_time_stamp=reader.stored_ms_of(topic, queue_id, end - 1),
            consume_time_stamp=reader.stored_ms_of(topic, queue_id, consumed - 1) if consumed > 0 else earliest_ms,
            delay_time=waits_ms,
        )

    # ── Who and what ──────────────────────────────────────────────────────────────────────────────────────────────

    def groups_of_topic(self, asked: Asked) -> Command:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups that consume a topic, or did."""
        name = headers.QueryTopicConsumeByWho.decode(asked.command.ext).topic
        groups = self._offsets.groups_of(name).union(self._clients.groups_of(name))
        return asked.command.answer(body=bodies.GroupList(group_list=sorted(groups)).encode())

    def topics_of_group(self, asked: Asked) -> Command:
        """QUERY_TOPICS_BY_CONSUMER: topics of which a group has consumed something."""
        group = headers.QueryTopicsByConsumer.decode(asked.command.ext).group
        body = bodies.TopicList(topic_list=sorted(self._offsets.topics_of(group)), broker_addr=self._settings.address)
        return asked.command.answer(body=body.encode())

    def subscription(self, asked: Asked) -> Command:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group wants of a topic."""
        header = headers.QuerySubscriptionByConsumer.decode(asked.command.ext)
        found = self._clients.subscription(header.group, header.topic or "")
        body = bodies.QuerySubscriptionResponseBody(group=header.group, topic=header.topic, subscription_data=found)
        return asked.command.answer(body=body.encode())
