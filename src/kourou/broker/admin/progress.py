"""The progress of topics and groups.

Java: AdminBrokerProcessor: getTopicStatsInfo, getConsumeStats, fetchAllConsumeStatsInBroker, queryConsumeTimeSpan.
"""

from typing import Final, NamedTuple

from kourou.broker.admin import tables
from kourou.broker.clients import Clients
from kourou.broker.events import Large, Refused, Request
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol import bodies, fastjson, headers
from kourou.protocol.bodies import ConsumeStats, OffsetWrapper, TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import split_names
from kourou.protocol.message import MessageQueue
from kourou.store.reading import Reader
from kourou.turns import Slices

_NAMES_IN_SLICE: Final = 5_000


class _Behind(NamedTuple):
    """How many messages of a topic a group has not consumed, and how many of those it has pulled."""

    behind: int
    in_flight: int


class ProgressRequests:
    """Serves requests about the progress of groups."""

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

    def topic(self, asked: Request[headers.GetTopicStatsInfo]) -> Slices[Large]:
        """GET_TOPIC_STATS_INFO: the ends of a topic's queues."""
        yield 0
        topic = self._topic(asked.header.topic)
        name = topic.topic_name or ""
        entries = tables.Entries()
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            start, end = self._reader.offsets(name, queue_id)
            offsets = bodies.TopicOffset(
                min_offset=start,
                max_offset=end,
                last_update_timestamp=self._reader.stored_ms_of(name, queue_id, end - 1) if end else 0,
            )
            entries.add_pair(self._queue(name, queue_id), offsets)
            if queue_id % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        shell = bodies.TopicStatsTable(topic_put_tps=self._stats.put_rate(name))
        return entries.answer(asked.command, shell, "offsetTable")

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.name, queue_id)

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def group(self, asked: Request[headers.GetConsumeStats]) -> Slices[Large]:
        """GET_CONSUME_STATS: how far a group is in one topic, in several or in all."""
        yield 0
        header = asked.header
        group = header.consumer_group
        if header.topic_list and header.topic_list.strip():
            names = {name for name in split_names(header.topic_list, ";") if name.strip()}
        else:
            one = header.topic if header.topic and header.topic.strip() else None
            names = self._subscribed(group, self._offsets.topics_of(group) if one is None else {one})
        entries = tables.Entries()
        rate = 0.0
        ordered = yield from tables.in_order(names)
        for number, topic in enumerate(filter(None, map(self._topics.get, ordered))):
            yield from self._consumed(group, topic, topic.read_queue_nums, entries)
            rate += self._stats.get_rate(topic.topic_name or "", group)
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        return entries.answer(asked.command, ConsumeStats(consume_tps=rate), "offsetTable")

    def _subscribed(self, group: str, topics: set[str]) -> set[str]:
        """The topics that the members of a group subscribe to; all, if no member is connected."""
        members = self._clients.group(group)
        if members is None or not members.subscriptions:
            return topics
        return topics & members.subscriptions.keys()

    def _consumed(self, group: str, topic: TopicConfig, queues: int, entries: tables.Entries) -> Slices[_Behind]:
        """Adds an entry for each queue."""
        name = topic.topic_name or ""
        behind = in_flight = 0
        for queue_id in range(queues):
            _, end = self._reader.offsets(name, queue_id)
            consumed = self._offsets.get(group, name, queue_id)
            if name not in self._topics.static:  # of a static topic, it may be in another piece of the queue
                consumed = max(consumed, 0)
            pulled = max(consumed, self._offsets.pulled.get(f"{name}@{group}", {}).get(queue_id, 0))
            stored_ms = max(self._reader.stored_ms_of(name, queue_id, consumed - 1), 0) if consumed else 0
            wrapper = OffsetWrapper(
                broker_offset=end, consumer_offset=consumed, pull_offset=pulled, last_timestamp=stored_ms
            )
            entries.add_pair(self._queue(name, queue_id), wrapper)
            behind += end - consumed
            in_flight += pulled - consumed
            if queue_id % tables.ENTRIES_IN_SLICE == tables.ENTRIES_IN_SLICE - 1:
                yield len(entries.text)
        return _Behind(behind, in_flight)

    def all_groups(self, asked: Request[headers.GetBrokerConsumeStats]) -> Slices[Large]:
        """GET_BROKER_CONSUME_STATS: how far all groups are; with `isOrder`, in ordered topics."""
        yield 0
        only_ordered = asked.header.is_order
        everyone = tables.Entries()
        behind = in_flight = 0
        for number, group in enumerate(list(self._groups.table)):
            stats = tables.Entries()
            names = self._subscribed(group, self._offsets.topics_of(group))
            ordered = yield from tables.in_order(names)
            for topic in filter(None, map(self._topics.get, ordered)):
                if only_ordered and not topic.order:
                    continue
                entries = tables.Entries()
                so_far = yield from self._consumed(group, topic, topic.write_queue_nums, entries)
                shell = ConsumeStats(consume_tps=self._stats.get_rate(topic.topic_name or "", group))
                stats.add(*tables.parts(shell, {"offsetTable": entries}))
                behind += so_far.behind
                in_flight += so_far.in_flight
                yield len(everyone.text) + len(stats.text)
            everyone.add(b"{", fastjson.encode(group), b":[", stats.text, b"]}")
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(everyone.text)
        shell_of_all = bodies.ConsumeStatsList(
            broker_addr=self._settings.address, total_diff=behind, total_inflight_diff=in_flight
        )
        return everyone.answer(asked.command, shell_of_all, "consumeStatsList")

    def time_span(self, asked: Request[headers.QueryConsumeTimeSpan]) -> Slices[Large]:
        """QUERY_CONSUME_TIME_SPAN: when the messages that a group has and has not consumed were stored."""
        yield 0
        header = asked.header
        topic = self._topic(header.topic)
        entries = tables.Entries()
        for queue_id in range(topic.write_queue_nums):
            entries.add(fastjson.encode(self._span(header.topic, queue_id, header.group, asked.wall_ms)))
            if queue_id % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        return entries.answer(asked.command, bodies.QueryConsumeTimeSpanBody(), "consumeTimeSpanSet")

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

    # ── Subscriptions ──────────────────────────────────────────────────────────────────────────────────────────────

    def groups_of_topic(self, asked: Request[headers.QueryTopicConsumeByWho]) -> Slices[Large]:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups that consume a topic, or have consumed it."""
        yield 0
        name = asked.header.topic
        groups = self._offsets.groups_of(name)
        for number, group in enumerate(list(self._clients.consumers)):
            if self._clients.subscription(group, name) is not None:
                groups.add(group)
            if number % _NAMES_IN_SLICE == 0:
                yield 100 * len(groups)
        ordered = yield from tables.in_order(groups)
        entries = yield from tables.whole_list(ordered)
        return entries.answer(asked.command, bodies.GroupList(), "groupList")

    def topics_of_group(self, asked: Request[headers.QueryTopicsByConsumer]) -> Slices[Large]:
        """QUERY_TOPICS_BY_CONSUMER: topics of which a group has consumed something."""
        yield 0
        group = asked.header.group
        ordered = yield from tables.in_order(self._offsets.topics_of(group))
        entries = yield from tables.whole_list(ordered)
        return entries.answer(asked.command, bodies.TopicList(broker_addr=self._settings.address), "topicList")

    def subscription(self, asked: Request[headers.QuerySubscriptionByConsumer]) -> Command:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: the subscription of a group to a topic."""
        header = asked.header
        found = self._clients.subscription(header.group, header.topic or "")
        body = bodies.QuerySubscriptionResponseBody(group=header.group, topic=header.topic, subscription_data=found)
        return asked.command.answer(body=body.encode())
