"""Topics by request: made, changed, deleted and shown.

Java: AdminBrokerProcessor, TopicConfigManager.
"""

import logging
from typing import Final

import msgspec

from kourou.broker import names
from kourou.broker.admin import attributes, tables
from kourou.broker.admin.pages import Pages
from kourou.broker.events import Asked, Large, Refused, Request
from kourou.broker.offsets import Offsets
from kourou.broker.request_bodies import RequestBodies, too_much
from kourou.broker.settings import BrokerSettings
from kourou.broker.static_topics import StaticTopics, in_plain_json
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics, queues_of
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.store.store import Store
from kourou.turns import Slices

log = logging.getLogger(__name__)

LOGGED_MAX: Final = 10
"""Topics of one request that are logged each with a line of its own."""

CHECKED_IN_SLICE: Final = 100
"""Topics that are checked before others have their turn."""

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicRequests:
    """Serves requests about topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        static: StaticTopics,
        offsets: Offsets,
        stats: Stats,
        store: Store,
        bodies: RequestBodies,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._static = static
        self._offsets = offsets
        self._stats = stats
        self._store = store
        self._bodies = bodies
        self._pages: Pages[TopicConfig] = Pages()

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, asked: Request[headers.CreateTopic]) -> Command:
        """UPDATE_AND_CREATE_TOPIC."""
        header = asked.header
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=attributes.parse(header.attributes),
        )
        self._put([self._checked(topic)], asked)
        return asked.command.answer()

    def update_static(self, asked: Request[headers.CreateTopic]) -> Command:
        """UPDATE_AND_CREATE_STATIC_TOPIC: a topic, and which of its queues are on which broker."""
        header = asked.header
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
        )
        topic = self._checked(wanted)
        command = msgspec.structs.replace(asked.command, body=in_plain_json(asked.command.body))
        mapping = self._bodies.read(bodies.TopicQueueMappingDetail, msgspec.structs.replace(asked, command=command))
        mapping = self._static.checked(header.topic, mapping, force=bool(header.force))
        self._topics.check_room([topic])
        self._static.put(header.topic, mapping, asked.now_ms)
        self._topics.put(topic, asked.now_ms)
        return asked.command.answer()

    def update_all(self, asked: Asked) -> Slices[Command]:
        """UPDATE_AND_CREATE_TOPIC_LIST: all of them, or none."""
        yield 0
        wanted = (yield from self._bodies.read_in_slices(bodies.CreateTopicListRequestBody, asked)).topic_config_list
        limit = self._settings.topics_per_request
        if len(wanted) > limit:
            raise too_much(f"the request has {len(wanted)} topics", limit, "maxTopicsPerRequest")
        checked: list[TopicConfig] = []
        for topic in wanted:
            checked.append(self._checked(topic))
            if len(checked) % CHECKED_IN_SLICE == 0:
                yield len(asked.command.body)
        self._put(checked, asked)
        return asked.command.answer()

    def _checked(self, wanted: TopicConfig) -> TopicConfig:
        """The topic as it will be stored. Raises Refused."""
        name = wanted.topic_name or ""
        fault = names.topic_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        self._check_not_system(name)
        if wanted.topic_filter_type not in _FILTER_TYPES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{wanted.topic_filter_type[:40]}] value invalid"
            )
        for queues in (wanted.read_queue_nums, wanted.write_queue_nums):
            if not 0 <= queues <= self._settings.queues_per_topic:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"a topic has 0 to {self._settings.queues_per_topic} queues (maxQueuesPerTopic), "
                    f"{queues} were asked for",
                )
        is_mixed = wanted.attributes.get(f"+{attributes.MESSAGE_TYPE}") == "MIXED"
        if is_mixed and not self._settings.mixed_topics:
            raise Refused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        there = self._topics.get(name)
        altered = attributes.alter(attributes.OF_TOPICS, None if there is None else there.attributes, wanted.attributes)
        return msgspec.structs.replace(wanted, attributes=altered)

    def _check_not_system(self, name: str) -> None:
        if self._settings.guard_system_topics and self._topics.is_system(name):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")

    def _put(self, topics: list[TopicConfig], asked: Asked) -> None:
        """All at once: a part of them is never visible. Raises Refused."""
        queues, limit = sum(map(queues_of, topics)), self._settings.queues_per_request
        if queues > limit:
            raise too_much(f"the topics of the request have {queues} queues", limit, "maxQueuesPerRequest")
        new = [topic for topic in topics if topic != self._topics.get(topic.topic_name or "")]
        if not new:
            return
        self._topics.check_room(new)
        self._topics.put_all(new, asked.now_ms)
        for topic in new[:LOGGED_MAX]:
            log.info(
                "topic set name=%s read_queues=%d write_queues=%d perm=%d peer=%s",
                topic.topic_name,
                topic.read_queue_nums,
                topic.write_queue_nums,
                topic.perm,
                asked.peer.address,
            )
        if len(new) > LOGGED_MAX:
            log.info("topics set count=%d peer=%s", len(new), asked.peer.address)

    def delete(self, asked: Request[headers.DeleteTopicInBroker]) -> Slices[Command]:
        """DELETE_TOPIC_IN_BROKER. It succeeds if the topic does not exist."""
        yield 0
        name = asked.header.topic
        if not name.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_not_system(name)
        groups = self._offsets.groups_of(name) if self._settings.delete_retry_topics else set()
        for number, group in enumerate(groups, 1):
            for retries in (f"{names.RETRY_PREFIX}{group}_{name}", f"{names.RETRY_PREFIX}{group}+{name}"):
                if self._topics.get(retries) is not None:
                    yield from self._delete(retries, asked)
            if number % CHECKED_IN_SLICE == 0:
                yield 0
        yield from self._delete(name, asked)
        return asked.command.answer()

    def _delete(self, name: str, asked: Asked) -> Slices[None]:
        if self._topics.remove(name, asked.now_ms):
            log.info("topic deleted name=%s peer=%s", name, asked.peer.address)
        self._static.remove(name, asked.now_ms)
        yield from self._offsets.remove_topic(name)
        self._stats.forget_topic(name)
        yield 0
        if self._settings.raft:
            return  # members that are behind would number the messages of a new topic of this name differently
        try:
            self._store.remove_topic(name)
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the queues of {name} can't be removed: {error}") from None

    # ── Showing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, asked: Request[headers.GetTopicConfig]) -> Command:
        """GET_TOPIC_CONFIG."""
        header = asked.header
        name = header.topic
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        mapping = self._static.table.get(name) if header.logical else None
        shown = bodies.TopicConfigAndQueueMapping(**msgspec.structs.asdict(topic), mapping_detail=mapping)
        return asked.command.answer(body=shown.encode())

    def show_all(self, asked: Request[headers.GetAllTopicConfig]) -> Slices[Large]:
        """GET_ALL_TOPIC_CONFIG: all of them, or a page."""
        yield 0
        header = asked.header
        topics = self._topics
        page = yield from self._pages.page(
            topics.table, topics.version, header.data_version, header.topic_seq, header.max_topic_num
        )
        shell = bodies.TopicConfigAndMappingSerializeWrapper(
            data_version=topics.version, mapping_data_version=self._static.version
        )
        ext = {"totalTopicNum": str(len(topics.table))}
        entries = yield from tables.whole_table(page)
        static = tables.Entries()
        for name in page if self._static.table else ():
            if name in self._static.table:
                # Keys in quotes, other than Apache's: mqadmin does not read numbers as keys here.
                static.add(msgspec.json.encode(name), b":", msgspec.json.encode(self._static.table[name]))
                yield len(entries.text) + len(static.text)
        members = {"topicConfigTable": entries, "topicQueueMappingDetailMap": static}
        return tables.answer(asked.command, shell, members, ext)

    def show_system(self, asked: Asked) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        return asked.command.answer(body=bodies.TopicList(topic_list=sorted(self._topics.system)).encode())
