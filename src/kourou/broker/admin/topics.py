"""Topics by request: made, changed, deleted and shown.

Java: AdminBrokerProcessor, TopicConfigManager.
"""

import logging
from typing import Final

import msgspec

from kourou.broker import names
from kourou.broker.admin import attributes, tables
from kourou.broker.admin.pages import Pages
from kourou.broker.events import Asked, Large, Refused
from kourou.broker.offsets import Offsets
from kourou.broker.request_bodies import RequestBodies, too_much
from kourou.broker.settings import BrokerSettings
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
        offsets: Offsets,
        stats: Stats,
        store: Store,
        bodies: RequestBodies,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._stats = stats
        self._store = store
        self._bodies = bodies
        self._pages: Pages[TopicConfig] = Pages()

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, asked: Asked) -> Command:
        """UPDATE_AND_CREATE_TOPIC."""
        header = headers.CreateTopic.decode(asked.command.ext)
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

    def update_all(self, asked: Asked) -> Slices[Command]:
        """UPDATE_AND_CREATE_TOPIC_LIST: all of them, or none."""
        yield 0
        wanted = self._bodies.read(bodies.CreateTopicListRequestBody, asked.command.body).topic_config_list
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
        """The topic as it will be. Raises Refused."""
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
        """All at once: nobody sees a part of them. Raises Refused."""
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

    def delete(self, asked: Asked) -> Slices[Command]:
        """DELETE_TOPIC_IN_BROKER. One that is not there is none to worry about."""
        yield 0
        name = headers.DeleteTopicInBroker.decode(asked.command.ext).topic
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
        yield from self._offsets.remove_topic(name)
        self._stats.forget_topic(name)
        try:
            self._store.remove_topic(name)
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the queues of {name} can't be removed: {error}") from None

    # ── Showing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, asked: Asked) -> Command:
        """GET_TOPIC_CONFIG."""
        name = headers.GetTopicConfig.decode(asked.command.ext).topic
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        shown = bodies.TopicConfigAndQueueMapping(**msgspec.structs.asdict(topic))
        return asked.command.answer(body=shown.encode())

    def show_all(self, asked: Asked) -> Slices[Large]:
        """GET_ALL_TOPIC_CONFIG: all of them, or a page."""
        yield 0
        header = headers.GetAllTopicConfig.decode(asked.command.ext)
        topics = self._topics
        page = yield from self._pages.page(
            topics.table, topics.version, header.data_version, header.topic_seq, header.max_topic_num
        )
        shell = bodies.TopicConfigAndMappingSerializeWrapper(data_version=topics.version)
        ext = {"totalTopicNum": str(len(topics.table))}
        entries = yield from tables.whole_table(page)
        return entries.answer(asked.command, shell, "topicConfigTable", ext)

    def show_system(self, asked: Asked) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        return asked.command.answer(body=bodies.TopicList(topic_list=sorted(self._topics.system)).encode())
