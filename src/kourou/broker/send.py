"""Sending: a request becomes one record or, for a batch, as many as it has messages.

The order of the checks is Apache's, for a request that breaks two rules is to get the same answer. Each answer carries
the region and whether messages are traced.

Java: SendMessageProcessor, AbstractSendMessageProcessor.
"""

import random
from collections.abc import Callable

from kourou.broker import names
from kourou.broker.events import Asked, Refused
from kourou.broker.groups import Groups
from kourou.broker.message_writer import MessageWriter
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol import batch as _batch, headers, properties as _properties
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import ADVICE, RequestCode, ResponseCode, SysFlag, TopicSysFlag, Version
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.properties import Property
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.turns import Slices, at_once

DEAD_LETTER_QUEUES = 1

_SEND = int(RequestCode.SEND_MESSAGE)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)
_V3_4_9 = int(Version.V3_4_9)

LONG_BATCH_BYTES = 64 * 1024
"""Beyond it, a batch is read in slices."""

BATCH_SLICE = 128
"""Messages of a batch between two looks at the time."""


class Send:
    """Serves sends."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        writer: MessageWriter,
        locks: QueueLocks,
        stats: Stats,
        store_host: bytes,
        unique_id: Callable[[int], str],
        chance: random.Random,
        on_half: Callable[[str, int], None] = lambda _topic, _now_ms: None,
    ) -> None:
        """`on_half` is told of a half message that was stored: the topic that it is for, and the time."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._writer = writer
        self._locks = locks
        self._stats = stats
        self._store_host = store_host
        self._unique_id = unique_id
        self._chance = chance
        self._on_half = on_half
        self.answer_ext = {"MSG_REGION": settings.region, "TRACE_ON": str(settings.trace_on).lower()}

    def send(self, asked: Asked) -> Slices[None] | None:
        """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. A long batch is read in slices."""
        command = asked.command
        try:
            self.check_state(asked)
            header = (
                headers.SendMessage.decode(command.ext).to_v2()
                if command.code == _SEND
                else headers.SendMessageV2.decode(command.ext)
            )
            topic = self.topic_for(header, asked)
            if command.code == _BATCH or header.batch:
                storing = self._store_batch(header, topic, asked)
                if len(command.body) > LONG_BATCH_BYTES:
                    return self._finish(storing, asked)
                answer, wait = at_once(storing)
            else:
                answer, wait = self._store_one(header, topic, asked)
        except Refused as refused:
            raise self._with_answer_ext(refused) from None
        self._writer.answer(asked.peer, command, command.answer(ext=answer), asked.now_ms, wait=wait)
        return None

    def _finish(self, storing: Slices[tuple[dict[str, str], bool]], asked: Asked) -> Slices[None]:
        try:
            answer, wait = yield from storing
        except Refused as refused:
            raise self._with_answer_ext(refused) from None
        self._writer.answer(asked.peer, asked.command, asked.command.answer(ext=answer), asked.now_ms, wait=wait)

    def _with_answer_ext(self, refused: Refused) -> Refused:
        refused.ext = {**self.answer_ext, **(refused.ext or {})}
        return refused

    # ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_state(self, asked: Asked) -> None:
        """Raises Refused while nothing may be sent at all."""
        if self._settings.role is Role.SLAVE:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: a slave takes no messages",
            )
        if asked.wall_ms < self._settings.accept_sends_from_ms:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._settings.accept_sends_from_ms}",
            )
        self._writer.check_load()

    def topic_for(self, header: headers.SendMessageV2, asked: Asked) -> TopicConfig:
        """The topic that a message may go to, made if need be. Raises Refused."""
        settings, name = self._settings, header.topic
        if not settings.is_writable and self._topics.is_order(name):
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{settings.ip}] sending message is forbidden")
        topic = self._topics.get(name)
        if topic is None or name in names.NOT_FOR_SENDING:
            topic = self._new_topic(header, asked)
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {describe(topic)} Producer: {asked.peer.address}",
            )
        return topic

    def _new_topic(self, header: headers.SendMessageV2, asked: Asked) -> TopicConfig:
        name = header.topic
        fault = names.topic_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if name in names.NOT_FOR_SENDING:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        is_retry = name.startswith(names.RETRY_PREFIX)
        if is_retry:
            self._group_of(name, asked)  # before a topic is made for a group that there can't be
        sys_flag = 0
        if header.unit_mode:
            sys_flag = int(TopicSysFlag.UNIT_SUB if is_retry else TopicSysFlag.UNIT)
        topic = self._topics.create_by_sending(
            name, header.default_topic, header.default_topic_queue_nums, asked.now_ms, sys_flag=sys_flag
        )
        if topic is None and is_retry:
            topic = self._topics.ensure(name, 1, asked.now_ms, sys_flag=sys_flag)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{ADVICE}")
        return topic

    def _group_of(self, retry_topic: str, asked: Asked) -> SubscriptionGroupConfig:
        group_name = names.group_of_retry_topic(retry_topic)
        group = self._groups.find(group_name, asked.now_ms)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name} {ADVICE}"
            )
        return group

    def choose_queue(self, queue_id: int, topic: TopicConfig) -> int:
        """The queue that the sender chose, or any."""
        if queue_id >= 0:
            return queue_id
        if topic.write_queue_nums <= 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic.topic_name}] has no queue to write to")
        return self._chance.randrange(topic.write_queue_nums)

    # ── One message ───────────────────────────────────────────────────────────────────────────────────────────────

    def _store_one(
        self, header: headers.SendMessageV2, topic: TopicConfig, asked: Asked
    ) -> tuple[dict[str, str], bool]:
        queue_id = self.choose_queue(header.queue_id, topic)
        properties = self.stored_properties(header.properties, asked.wall_ms)
        message = self.new_message(header, topic, queue_id, asked)
        if header.topic.startswith(names.RETRY_PREFIX):
            self._to_dead_letters_if_tried_enough(header, message, properties, asked)
        if not message.body:
            self._writer.failed += 1
            raise self._writer.illegal("its body is empty")
        wait = properties.get(Property.WAIT_STORED, "true").lower() == "true"
        (stored,) = self._writer.put([message], properties, asked.now_ms, is_sent=True)
        if message.topic == names.HALF_TOPIC:
            self._on_half(properties[Property.REAL_TOPIC], asked.now_ms)
        self._stats.put(message.topic, 1, stored.size)
        return self.place(stored, queue_id, properties[Property.UNIQUE_KEY]), wait

    def stored_properties(self, text: str | None, wall_ms: int) -> dict[str, str]:
        """What a message says of itself, and what the broker adds."""
        properties = _properties.decode(text or "")
        properties[Property.REGION] = self.answer_ext["MSG_REGION"]
        properties[Property.TRACE_ON] = self.answer_ext["TRACE_ON"]
        properties.pop(Property.POP_CHECKPOINT, None)
        if Property.UNIQUE_KEY not in properties:
            properties[Property.UNIQUE_KEY] = self._unique_id(wall_ms)
        properties[Property.CLUSTER] = self._settings.cluster
        return properties

    def new_message(self, header: headers.SendMessageV2, topic: TopicConfig, queue_id: int, asked: Asked) -> NewMessage:
        sys_flag = header.sys_flag
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= _MULTI_TAGS
        return NewMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=asked.command.body,
            properties=b"",
            born_ms=header.born_timestamp,
            born_host=asked.peer.host,
            flag=header.flag,
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )

    def _to_dead_letters_if_tried_enough(
        self, header: headers.SendMessageV2, message: NewMessage, properties: dict[str, str], asked: Asked
    ) -> None:
        """A consumer sends a message that it could not handle to its group's retry topic itself."""
        group_name = names.group_of_retry_topic(header.topic)
        group = self._group_of(header.topic, asked)
        tries = group.retry_max_times
        if asked.command.version >= _V3_4_9 and header.max_reconsume_times is not None:
            tries = header.max_reconsume_times
        # A group that holds locks consumes in order: there is no later for its messages.
        if message.reconsume_times > tries or self._locks.is_held(group_name, asked.now_ms):
            topic = names.dead_letter_topic(group_name)
            self._topics.ensure(topic, DEAD_LETTER_QUEUES, asked.now_ms)
            message.topic, message.queue_id = topic, self._chance.randrange(DEAD_LETTER_QUEUES)
            properties[Property.DELAY_LEVEL] = "-1"

    def place(self, stored: Appended, queue_id: int, unique_key: str | None) -> dict[str, str]:
        """Where a message went, as answers say it."""
        ext = {
            "msgId": encode_offset_id(self._store_host, PhysicalOffset(stored.physical_offset)),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            **self.answer_ext,
        }
        if unique_key is not None:
            ext["transactionId"] = unique_key
        return ext

    # ── A batch ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _store_batch(
        self, header: headers.SendMessageV2, topic: TopicConfig, asked: Asked
    ) -> Slices[tuple[dict[str, str], bool]]:
        """Its messages are read in slices, and stored in one go: nothing else comes between them."""
        name, settings = header.topic, self._settings
        queue_id = self.choose_queue(header.queue_id, topic)
        if len(name) > names.TOPIC_LENGTH_MAX:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}")
        if name.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}")
        model = self.new_message(header, topic, queue_id, asked)
        messages: list[NewMessage] = []
        size = 0
        try:
            for entry in _batch.iterate_batch(asked.command.body, settings.max_body_size, settings.batch_messages_max):
                message = NewMessage(
                    name,
                    queue_id,
                    bytes(entry.body),
                    bytes(entry.raw_properties),
                    model.born_ms,
                    model.born_host,
                    entry.flag,
                    model.sys_flag,
                    model.reconsume_times,
                )
                messages.append(message)
                size += self._writer.size_of(message)
                if len(messages) % BATCH_SLICE == 0:
                    yield size
        except _batch.BatchCountError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{error}, the limit (maxMessagesPerBatch)") from None
        except BodyError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch does not decode: {error}") from None
        if not messages:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        self.topic_for(header, asked)  # it may have been removed meanwhile
        wait = "WAIT\x01false" not in (header.properties or "")
        stored = self._writer.put(messages, None, asked.now_ms, together=True, size=size)
        self._stats.put(name, len(stored), sum(one.size for one in stored))
        answer = self.place(stored[0], queue_id, _properties.decode(header.properties or "").get(Property.UNIQUE_KEY))
        ids: list[str] = []
        for at in range(0, len(stored), BATCH_SLICE):
            ids += [
                encode_offset_id(self._store_host, PhysicalOffset(one.physical_offset))
                for one in stored[at : at + BATCH_SLICE]
            ]
            if at:
                yield size
        answer["msgId"] = ",".join(ids)
        return answer, wait


def describe(topic: TopicConfig) -> str:
    """A topic in Apache's words."""
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={permission_text(topic.perm)}, "
        f"topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag}, "
        f"order={str(topic.order).lower()}, attributes={topic.attributes}]"
    )


def permission_text(perm: int) -> str:
    """`RW-`, as Apache shows permissions."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def refusal(command: Command, refused: Refused) -> Command:
    """The answer that says so."""
    return command.answer(refused.code, refused.remark, refused.ext)
