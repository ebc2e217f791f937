"""The topics of a broker: their settings, how they are created, and which are the broker's own.

Each change counts up the data version, by which name servers and slaves notice changes; `changed`
gathers the names for the next registration.

How many topics and queues there may be is limited (maxTopics, maxQueues), and below that how many topics there may be
for clients to make further ones: by sends, and for the retries and dead letters of their groups (maxAutoCreatedTopics).
The limits count the topics that are there. A table that was loaded may have more: it is served, and nothing is added.

Java: TopicConfigManager.
"""

import logging
from collections.abc import Callable, Iterable

import msgspec

from kourou.broker import names
from kourou.broker.events import Refused
from kourou.broker.request_bodies import too_much
from kourou.broker.settings import INHERIT, READ, WRITE, BrokerSettings
from kourou.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicQueueMappingDetail
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import shown
from kourou.store.wall_clock import WallClock
from kourou.turns import Slices

log = logging.getLogger(__name__)

SAID_EVERY = 1000
"""A limit that is hit repeatedly is logged this rarely, so that the log does not fill."""


NAMES_IN_SLICE = 2000
"""Topics that are examined before requests have their turn."""


class Topics:
    """All topics of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        kept: TopicConfigSerializeWrapper | None,
        touch: Callable[[], None],
        clock: WallClock | None = None,
    ) -> None:
        """`touch` is called after each change, so that it is kept."""
        self._settings = settings
        self._touch = touch
        self._clock = clock or WallClock()
        self.version = kept.data_version if kept is not None else DataVersion()
        self.table: dict[str, TopicConfig] = {}
        self.system: set[str] = {
            names.DEFAULT_TOPIC,
            names.SCHEDULE_TOPIC,
            names.BENCHMARK_TOPIC,
            names.HALF_TOPIC,
            names.TRACE_TOPIC,
            names.HALF_OP_TOPIC,
            names.TRANSACTION_CHECK_TOPIC,
            names.SELF_TEST_TOPIC,
            names.OFFSET_MOVED_TOPIC,
            names.CHECKPOINT_TOPIC,
        }
        self.static: dict[str, TopicQueueMappingDetail] = {}  # mappings of static topics, owned by StaticTopics
        self.changed: set[str] = set()  # since the last registration
        self._not_created = 0  # because of the limit
        self.on_created: Callable[[str, int], None] | None = None  # called before the first message is stored
        for topic in self._own_topics():
            assert topic.topic_name is not None
            self.system.add(topic.topic_name)
            self.table[topic.topic_name] = topic
        self._own_count = len(self.table)
        if kept is not None:
            self.table.update(kept.topic_config_table)
        self.queue_count = sum(map(queues_of, self.table.values()))

    def _own_topics(self) -> Iterable[TopicConfig]:
        settings = self._settings
        yield new_topic(names.SELF_TEST_TOPIC, 1)
        if settings.auto_create_topics:
            yield new_topic(names.DEFAULT_TOPIC, settings.default_topic_queues, READ | WRITE | INHERIT)
        yield new_topic(names.BENCHMARK_TOPIC, 1024)
        yield new_topic(settings.cluster, 16, INHERIT | (READ | WRITE if settings.cluster_topic else 0))
        yield new_topic(settings.name, 1, INHERIT | (READ | WRITE if settings.broker_topic else 0))
        yield new_topic(names.OFFSET_MOVED_TOPIC, 1)
        yield new_topic(names.SCHEDULE_TOPIC, 18)
        if settings.trace_topic:
            yield new_topic(settings.trace_topic_name, 1)
        yield new_topic(settings.cluster + names.REPLY_TOPIC_SUFFIX, 1)
        yield new_topic(f"{names.SYSTEM_PREFIX}REVIVE_LOG_{settings.cluster}", settings.revive_queues)
        yield new_topic(f"{names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{settings.name}", 1, INHERIT)
        yield new_topic(names.HALF_TOPIC, 1)
        yield new_topic(names.HALF_OP_TOPIC, 1)
        yield new_topic(names.ROCKSDB_HALF_TOPIC, 1)
        yield new_topic(names.ROCKSDB_HALF_OP_TOPIC, 1)
        yield new_topic(names.TIMER_TOPIC, 1)

    # ── Looking up ────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def is_system(self, name: str) -> bool:
        return name in self.system or name.startswith(names.SYSTEM_PREFIX)

    def is_order(self, name: str) -> bool:
        topic = self.table.get(name)
        return topic is not None and topic.order

    def has_queue(self, name: str, queue_id: int) -> bool:
        """Does this queue exist, to read from or to write to?"""
        topic, mapping = self.table.get(name), self.static.get(name)
        if mapping is not None:  # its queues are numbered across brokers
            return queue_id in mapping.hosted_queues
        return topic is not None and 0 <= queue_id < max(topic.read_queue_nums, topic.write_queue_nums)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """The whole table, as it is saved and sent."""
        return TopicConfigSerializeWrapper(topic_config_table=self.table, data_version=self.version)

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def check_room(self, topics: Iterable[TopicConfig]) -> None:
        """Raises Refused if there may not be as many topics or queues as there would be with these."""
        count, queues = len(self.table) - self._own_count, self.queue_count
        settings, more, wider = self._settings, 0, 0
        seen: set[str] = set()
        for topic in topics:
            name = topic.topic_name or ""
            there = self.table.get(name)
            more += there is None and name not in seen
            seen.add(name)
            wider += queues_of(topic) - (0 if there is None else queues_of(there))
        if more and count + more > settings.topics_max:
            raise too_much(f"there would be {count + more} topics", settings.topics_max, "maxTopics")
        if wider > 0 and queues + wider > settings.queues_max:
            raise too_much(f"all topics would have {queues + wider} queues", settings.queues_max, "maxQueues")

    def put(self, topic: TopicConfig, now_ms: int) -> None:
        """Create or change a topic."""
        self.put_all((topic,), now_ms)

    def put_all(self, topics: Iterable[TopicConfig], now_ms: int) -> None:
        """Create or change topics, all at once."""
        for topic in topics:
            name = topic.topic_name
            assert name is not None
            before = self.table.get(name)
            self.queue_count += queues_of(topic) - (0 if before is None else queues_of(before))
            self.table[name] = topic
            self.changed.add(name)
        self._has_changed(now_ms)

    def remove(self, name: str, now_ms: int) -> bool:
        """True if it existed."""
        if not self._drop(name):
            return False
        self._has_changed(now_ms)
        return True

    def adopt(self, table: dict[str, TopicConfig], version: DataVersion) -> Slices[None]:
        """A slave takes over its master's topics, all of them and no others."""
        for number, (name, topic) in enumerate(table.items(), 1):
            self._take(name, topic)
            if number % NAMES_IN_SLICE == 0:
                yield 0
        for number, name in enumerate(list(self.table), 1):
            if name not in table:
                self._drop(name)
            if number % NAMES_IN_SLICE == 0:
                yield 0
        self.version = version
        self._touch()

    def merge(self, table: dict[str, TopicConfig], gone: Iterable[str], version: DataVersion) -> None:
        """A follower takes over some topics of its leader, and drops others."""
        for name, topic in table.items():
            self._take(name, topic)
        for name in gone:
            self._drop(name)
        self.version = version
        self._touch()

    def _take(self, name: str, topic: TopicConfig) -> None:
        """Another broker's topic. The table stays the same object, which others have."""
        before = self.table.get(name)
        if before != topic:
            self.queue_count += queues_of(topic) - (0 if before is None else queues_of(before))
            self.table[name] = topic
            self.changed.add(name)

    def _drop(self, name: str) -> bool:
        topic = self.table.pop(name, None)
        if topic is None:
            return False
        self.queue_count -= queues_of(topic)
        self.changed.add(name)
        return True

    def _has_changed(self, now_ms: int) -> None:
        self.version = next_version(self.version, self._clock.at(now_ms))
        self._touch()

    def planned_by_sending(
        self, name: str, default_topic: str, queues: int, *, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic that a send would create from the default topic, if that allows it; `create` creates it."""
        model = self.table.get(default_topic)
        if model is None:
            return None
        if default_topic == names.DEFAULT_TOPIC and not self._settings.auto_create_topics:
            return None
        if not model.perm & INHERIT:
            return None
        queues = max(min(queues, model.write_queue_nums), 0)
        return msgspec.structs.replace(
            model,
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=model.perm & ~INHERIT,
            topic_sys_flag=sys_flag,
            order=False,
            attributes={},
        )

    def has_room_for(self, name: str) -> bool:
        """May clients create a topic with this name, according to maxAutoCreatedTopics?"""
        there = len(self.table) - self._own_count
        if there < self._settings.auto_topics_max:
            return True
        if self._not_created % SAID_EVERY == 0:
            log.warning("topic %s not created: the limit of %d is reached (maxAutoCreatedTopics)", shown(name), there)
        self._not_created += 1
        return False

    def create(self, topic: TopicConfig, now_ms: int) -> TopicConfig:
        """Create a topic because a client needs it. Raises Refused if a limit is reached."""
        assert topic.topic_name is not None
        if not self.has_room_for(topic.topic_name):
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic.topic_name}] does not exist and was not created: the broker has as many topics as "
                f"clients may create, {self._settings.auto_topics_max} (maxAutoCreatedTopics); create it with mqadmin",
            )
        self.check_room([topic])
        self.put(topic, now_ms)
        log.info("topic created name=%s queues=%d", topic.topic_name, topic.write_queue_nums)
        if self.on_created is not None:
            self.on_created(topic.topic_name, now_ms)
        return topic

    def ensure(
        self, name: str, queues: int, now_ms: int, *, perm: int = READ | WRITE, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic that a group needs for its retries or dead letters. Raises Refused if a limit is reached."""
        topic = self.table.get(name)
        if topic is None:
            topic = self.create(new_topic(name, queues, perm, order=order, sys_flag=sys_flag), now_ms)
        elif name.startswith(names.RETRY_PREFIX) and topic.order != order:
            topic = msgspec.structs.replace(topic, order=order)
            self.put(topic, now_ms)
        return topic

    def ensure_own(self, name: str, queues: int, now_ms: int) -> None:
        """A topic that the broker itself needs, whatever clients have created. Raises Refused if a limit is reached."""
        if name not in self.table:
            topic = new_topic(name, queues)
            self.check_room([topic])
            self.put(topic, now_ms)
            log.info("topic created name=%s queues=%d", name, queues)

    def mark_ordered(self, ordered: Iterable[str], now_ms: int) -> Slices[None]:
        """The name servers return the ordered topics: these, and no others."""
        wanted = set(ordered)
        for number, name in enumerate(list(self.table), 1):
            topic = self.table.get(name)
            may_change = name in wanted or not name.startswith(names.RETRY_PREFIX)
            if topic is not None and may_change and topic.order != (name in wanted):
                self.table[name] = msgspec.structs.replace(topic, order=name in wanted)
                self._has_changed(now_ms)
            if number % NAMES_IN_SLICE == 0:
                yield 0


def queues_of(topic: TopicConfig) -> int:
    """How many queues a topic has, to read from or to write to."""
    return max(topic.read_queue_nums, topic.write_queue_nums, 0)


def next_version(version: DataVersion, wall_ms: int) -> DataVersion:
    return DataVersion(state_version=version.state_version, timestamp=wall_ms, counter=version.counter + 1)


def new_topic(
    name: str, queues: int, perm: int = READ | WRITE, *, order: bool = False, sys_flag: int = 0
) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        order=order,
        topic_sys_flag=sys_flag,
    )
