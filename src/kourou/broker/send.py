"""Sending: a request becomes one record or, for a batch, as many as it has messages.

The order of the checks is Apache's, so that a request that breaks two rules gets the same answer. Each answer carries
the region and whether messages are traced.

Java: SendMessageProcessor, AbstractSendMessageProcessor.
"""

import random
from collections.abc import Callable, Mapping

from kourou.broker import names
from kourou.broker.events import Asked, Refused, Request
from kourou.broker.groups import Groups, no_group
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import message_type
from kourou.broker.placement import TIMER_PROPERTIES, delay_level
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.timers import handles
from kourou.broker.topics import Topics, new_topic
from kourou.protocol import batch as _batch, headers, properties as _properties
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import (
    ADVICE,
    TRANSACTION_MASK,
    RequestCode,
    ResponseCode,
    SysFlag,
    TopicSysFlag,
    Version,
)
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.properties import Property
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.turns import Slices, at_once

DEAD_LETTER_QUEUES = 1

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_TRANSACTION = int(TRANSACTION_MASK)
_V3_4_9 = int(Version.V3_4_9)

LONG_BATCH_BYTES = 64 * 1024
"""Beyond it, a batch is read in slices."""

BATCH_SLICE = 128
"""Messages of a batch between two checks of the time."""


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
        """`on_half` is called for each stored half message, with its real topic and the time."""
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

    def send(self, asked: Request[headers.SendMessage | headers.SendMessageV2]) -> Slices[None] | None:
        """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. A long batch is read in slices."""
        command = asked.command
        try:
            self.check_state(asked)
            header = asked.header.to_v2()
            topic = self.topic_for(header, asked, is_stored=True)
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
        """Raises Refused while the broker accepts no messages at all."""
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

    def topic_for(self, header: headers.SendMessageV2, asked: Asked, *, is_stored: bool = False) -> TopicConfig:
        """The topic of a message, created if necessary; `is_stored`: the message will be stored. Raises Refused."""
        settings, name = self._settings, header.topic
        if not settings.is_writable and self._topics.is_order(name):
            raise Refused(ResponseCode.NO_PERMISSION, f"the broker[{settings.ip}] sending message is forbidden")
        topic = self._topics.get(name)
        if topic is None or name in names.NOT_FOR_SENDING:
            topic = self._planned_topic(header)
            self._check_queue(header, topic, asked)
            if is_stored:  # a refused message creates no topic and no group
                self._check_new(header, asked.command)
            return self._make(topic, asked)
        self._check_queue(header, topic, asked)
        return topic

    def _check_new(self, header: headers.SendMessageV2, command: Command) -> None:
        if command.code == _BATCH or header.batch:
            if header.topic.startswith(names.RETRY_PREFIX):
                raise self._batch_of_retries(header.topic)
        elif not command.body:
            raise self._no_body()

    def _no_body(self) -> Refused:
        self._writer.failed += 1
        return self._writer.illegal("its body is empty")

    @staticmethod
    def _batch_of_retries(name: str) -> Refused:
        return Refused(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}")

    def _check_queue(self, header: headers.SendMessageV2, topic: TopicConfig, asked: Asked) -> None:
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {describe(topic)} Producer: {asked.peer.address}",
            )

    def _planned_topic(self, header: headers.SendMessageV2) -> TopicConfig:
        """The topic that the send would create. Raises Refused if it may not be created."""
        name = header.topic
        fault = names.topic_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if name in names.NOT_FOR_SENDING:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        is_retry = name.startswith(names.RETRY_PREFIX)
        if is_retry and not self._groups.may_be_found(names.group_of_retry_topic(name)):
            raise no_group(names.group_of_retry_topic(name))
        sys_flag = 0
        if header.unit_mode:
            sys_flag = int(TopicSysFlag.UNIT_SUB if is_retry else TopicSysFlag.UNIT)
        topic = self._topics.planned_by_sending(
            name, header.default_topic, header.default_topic_queue_nums, sys_flag=sys_flag
        )
        if topic is None and is_retry:
            topic = new_topic(name, 1, sys_flag=sys_flag)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{ADVICE}")
        return topic

    def _make(self, topic: TopicConfig, asked: Asked) -> TopicConfig:
        made = self._topics.create(topic, asked.now_ms)
        if made.topic_name is not None and made.topic_name.startswith(names.RETRY_PREFIX):
            self._group_of(made.topic_name, asked)  # there is room for it, as `_planned_topic` has seen
        return made

    def _group_of(self, retry_topic: str, asked: Asked) -> SubscriptionGroupConfig:
        group_name = names.group_of_retry_topic(retry_topic)
        group = self._groups.find(group_name, asked.now_ms)
        if group is None:
            raise no_group(group_name)
        return group

    def choose_queue(self, queue_id: int, topic: TopicConfig) -> int:
        """The queue that the sender chose, or any queue."""
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
            raise self._no_body()
        self._check_whole(message.sys_flag, properties)
        wait = properties.get(Property.WAIT_STORED, "true").lower() == "true"
        kind = message_type(properties)  # placing the message changes them
        (stored,) = self._writer.put([message], properties, asked.now_ms, is_sent=True)
        if message.topic == names.HALF_TOPIC:
            self._on_half(properties[Property.REAL_TOPIC], asked.now_ms)
        self._stats.put(message.topic, 1, stored.size, message_type=kind)
        answer = self.place(stored, queue_id, properties[Property.UNIQUE_KEY])
        if message.topic == names.TIMER_TOPIC and not header.topic.startswith(names.RETRY_PREFIX):
            answer["recallHandle"] = handles.of_stored(properties, self._settings.name)
        return answer, wait

    def _check_whole(self, sys_flag: int, properties: Mapping[str, str]) -> None:
        """Raises Refused for a message that claims to be a whole batch in one record: consumers would take it apart."""
        if sys_flag & _INNER_BATCH or Property.INNER_NUM in properties:
            self._writer.failed += 1
            raise self._writer.illegal("it says that it is a batch in one record (INNER_BATCH or INNER_NUM)")

    def stored_properties(self, text: str | None, wall_ms: int) -> dict[str, str]:
        """The properties of a message, and those that the broker adds."""
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
        # A group with locks consumes in order: its messages can't be delivered later.
        if message.reconsume_times > tries or self._locks.is_held(group_name, asked.now_ms):
            topic = names.dead_letter_topic(group_name)
            self._topics.ensure(topic, DEAD_LETTER_QUEUES, asked.now_ms)
            message.topic, message.queue_id = topic, self._chance.randrange(DEAD_LETTER_QUEUES)
            properties[Property.DELAY_LEVEL] = "-1"
            self._stats.died(properties.get(Property.RETRY_TOPIC, header.topic), group_name)

    def place(self, stored: Appended, queue_id: int, unique_key: str | None) -> dict[str, str]:
        """The place of a stored message, in the form of answers."""
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
        """Its messages are read in slices, and stored together: no other message comes between them."""
        name, settings = header.topic, self._settings
        queue_id = self.choose_queue(header.queue_id, topic)
        if len(name) > names.TOPIC_LENGTH_MAX:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}")
        if name.startswith(names.RETRY_PREFIX):
            raise self._batch_of_retries(name)
        model = self.new_message(header, topic, queue_id, asked)
        properties = _properties.decode(header.properties or "")
        self._check_batch(model.sys_flag, properties)
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
        self._stats.put(name, len(stored), sum(one.size for one in stored), message_type=message_type(properties))
        answer = self.place(stored[0], queue_id, properties.get(Property.UNIQUE_KEY))
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

    def _check_batch(self, sys_flag: int, properties: Mapping[str, str]) -> None:
        """Raises Refused for a batch that is delayed, or part of a transaction."""
        self._check_whole(sys_flag, properties)
        if sys_flag & _TRANSACTION:
            raise self._writer.illegal("a batch can't be of a transaction: send its messages one by one")
        if delay_level(properties) > 0 or any(name in properties for name in TIMER_PROPERTIES):
            raise self._writer.illegal("a batch can't be delayed: send its messages one by one")


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
    """The answer to such a request."""
    return command.answer(refused.code, refused.remark, refused.ext)
