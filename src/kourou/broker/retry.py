"""Retries: a consumer sends back a message that it could not handle. It gets it again later, or it is a dead letter.

    message at offset X ─▶ back ─▶ %RETRY%group, after 10 s, 30 s, 1 m … 2 h: the levels 3, 4, 5 … 18
                            └────▶ %DLQ%group, when it was tried often enough, or the consumer gives up on it

What is stored is a copy with the count of tries raised by one. It keeps when and where it was born, the topic that it
was first sent to and the id that it first had, so that consumers and people see the same message again.

The answer promises that the copy is as durable as any message, because the consumer then forgets the original.

Java: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

import logging
import random

from kourou.broker import names
from kourou.broker.access import Access
from kourou.broker.events import Asked, Refused, Request
from kourou.broker.groups import Groups, no_group
from kourou.broker.message_writer import MessageWriter
from kourou.broker.send import DEAD_LETTER_QUEUES
from kourou.broker.settings import WRITE, BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol import headers
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode, TopicSysFlag, Version
from kourou.protocol.command import Command
from kourou.protocol.headers.table import SUB
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.names import shown
from kourou.protocol.properties import Property
from kourou.protocol.record import StoredMessage
from kourou.store.commit_log import NewMessage
from kourou.store.reading import Reader

log = logging.getLogger(__name__)

FIRST_LEVEL = 3
"""The delay level of the first retry; each further one is a level higher."""

_UNIT_SUB = int(TopicSysFlag.UNIT_SUB)
_V3_4_9 = int(Version.V3_4_9)


class Retry:
    """Serves messages that are sent back."""

    def __init__(
        self,
        settings: BrokerSettings,
        reader: Reader,
        topics: Topics,
        groups: Groups,
        writer: MessageWriter,
        stats: Stats,
        chance: random.Random,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._reader = reader
        self._topics = topics
        self._groups = groups
        self._writer = writer
        self._stats = stats
        self._chance = chance

    def send_back(self, asked: Request[headers.ConsumerSendMsgBack]) -> Command | None:
        """CONSUMER_SEND_MSG_BACK."""
        command = asked.command
        header = asked.header
        self._check(header)
        original: StoredMessage | None = None
        if self._groups.get(header.group) is None or self._topics.get(names.retry_topic(header.group)) is None:
            original = self._original(header)  # first: no topic is created for a message that does not exist
        group = self._group(header, asked)
        if group.retry_queue_nums <= 0:  # the group does not want to see it again
            return command.answer()
        retry_topic = self._ensure_retry_topic(header, group, asked.now_ms)
        if original is None:
            original = self._original(header)
        self._access.check_topic(asked, original.topic, SUB)
        properties = _kept_properties(original)
        message = _copy(original, retry_topic, self._chance.randrange(group.retry_queue_nums))
        if self._is_dead(header, group, original, asked):
            message.topic = names.dead_letter_topic(header.group)
            message.queue_id = self._chance.randrange(DEAD_LETTER_QUEUES)
            self._topics.ensure(message.topic, DEAD_LETTER_QUEUES, asked.now_ms)
            properties[Property.DELAY_LEVEL] = "0"
            self._stats.died(properties[Property.RETRY_TOPIC], header.group)
            log.info(
                "dead letter group=%s topic=%s id=%s tries=%d",
                header.group,
                shown(properties[Property.RETRY_TOPIC]),
                shown(properties[Property.ORIGIN_MESSAGE_ID]),
                message.reconsume_times,
            )
        else:
            properties[Property.DELAY_LEVEL] = str(header.delay_level or FIRST_LEVEL + original.reconsume_times)
        self._put(message, properties, asked.now_ms)
        self._stats.was_sent_back(properties[Property.RETRY_TOPIC], header.group)
        self._writer.answer(asked.peer, command, command.answer(), asked.now_ms)
        return None

    def _check(self, header: headers.ConsumerSendMsgBack) -> None:
        settings = self._settings
        if settings.role is Role.SLAVE:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: a slave takes no messages",
            )
        if not self._groups.may_be_found(header.group):
            raise no_group(header.group)
        if not settings.is_writable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{settings.ip}] sending message is forbidden")
        self._writer.check_load()

    def _group(self, header: headers.ConsumerSendMsgBack, asked: Asked) -> SubscriptionGroupConfig:
        group = self._groups.find(header.group, asked.now_ms)
        if group is None:
            raise no_group(header.group)
        return group

    def _original(self, header: headers.ConsumerSendMsgBack) -> StoredMessage:
        original = self._reader.message_at(header.offset)
        if original is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        return original

    def _ensure_retry_topic(
        self, header: headers.ConsumerSendMsgBack, group: SubscriptionGroupConfig, now_ms: int
    ) -> str:
        name = names.retry_topic(header.group)
        topic = self._topics.get(name)
        if topic is None:  # an existing topic may be ordered, and is not changed
            sys_flag = _UNIT_SUB if header.unit_mode else 0
            topic = self._topics.ensure(name, group.retry_queue_nums, now_ms, sys_flag=sys_flag)
        if not topic.perm & WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return name

    def _is_dead(
        self,
        header: headers.ConsumerSendMsgBack,
        group: SubscriptionGroupConfig,
        original: StoredMessage,
        asked: Asked,
    ) -> bool:
        tries = group.retry_max_times
        if asked.command.version >= _V3_4_9 and header.max_reconsume_times is not None:
            tries = header.max_reconsume_times
        return original.reconsume_times >= tries or header.delay_level < 0

    def _put(self, message: NewMessage, properties: dict[str, str], now_ms: int) -> None:
        """Store it. What went wrong is said as consumers expect it: by the name of the outcome, first of all."""
        try:
            (stored,) = self._writer.put([message], properties, now_ms)
        except Refused as refused:
            outcome = ResponseCode(refused.code).name
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{outcome}: {refused.remark}") from None
        if message.topic == names.SCHEDULE_TOPIC:  # Apache's figures leave out the other topics, too
            self._stats.put(message.topic, 1, stored.size)


def _kept_properties(original: StoredMessage) -> dict[str, str]:
    """The properties of the copy: those of the original, and where it comes from."""
    properties = original.properties
    properties.pop(Property.RECORD_CRC, None)  # of the original record
    properties.setdefault(Property.RETRY_TOPIC, original.topic)
    if not properties.get(Property.ORIGIN_MESSAGE_ID, "").strip():
        offset = PhysicalOffset(original.physical_offset)
        properties[Property.ORIGIN_MESSAGE_ID] = encode_offset_id(original.store_host, offset)
    properties[Property.WAIT_STORED] = "false"
    return properties


def _copy(original: StoredMessage, topic: str, queue_id: int) -> NewMessage:
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(original.body),
        properties=b"",
        born_ms=original.born_ms,
        born_host=original.born_host,
        flag=original.flag,
        sys_flag=original.sys_flag,
        reconsume_times=original.reconsume_times + 1,
    )
