"""Half messages as records: how they are stored, copied, committed and asked about.

    half       RMQ_SYS_TRANS_HALF_TOPIC, queue 0; REAL_TOPIC and REAL_QID are its real topic and queue
    copy       the same, with TRANSACTION_CHECK_TIMES incremented if its producer is asked; a copy that is made while
               the producer may not be asked (immune) has TRAN_PREPARED_QUEUE_OFFSET instead, the offset of the first,
               and WAIT=false
    committed  the real topic and queue, with the transaction bits of a commit and the log offset of the half message
    discarded  TRANS_CHECK_MAX_TIME_TOPIC, queue 0

All records are in Apache's form, so that a store with open transactions can be moved between the brokers. Copies keep
the flag of the message, which Apache's lose.

Java: TransactionalMessageBridge, EndTransactionProcessor, DefaultTransactionalMessageCheckListener.
"""

from typing import Final

import msgspec

from kourou.broker import names
from kourou.broker.events import Refused
from kourou.broker.placement import TIMER_PROPERTIES, Candidate, is_half
from kourou.broker.settings import BrokerSettings
from kourou.protocol.codes import ResponseCode, SysFlag
from kourou.protocol.errors import BodyError
from kourou.protocol.message import with_transaction
from kourou.protocol.properties import Property, number
from kourou.protocol.record import StoredMessage
from kourou.store.commit_log import NewMessage

HALF_QUEUE: Final = 0
RAW_HALF_TOPIC: Final = names.HALF_TOPIC.encode()
RAW_DISCARD_TOPIC: Final = names.TRANSACTION_CHECK_TOPIC.encode()

_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)


class HalfMessages:
    """The placement of half messages: in the half topic. For `Placement`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings

    def place(self, candidate: Candidate) -> bool:
        if not candidate.is_sent or not is_half(candidate):
            return False
        message, properties = candidate.message, candidate.properties
        if self._settings.reject_transactions:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.ip}] sending transaction message is forbidden (rejectTransactionMessage)",
            )
        if properties.get(Property.DELAY_LEVEL, "0") != "0" or any(name in properties for name in TIMER_PROPERTIES):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message of a transaction can't be delayed: send it without a delay level or time, "
                "or outside of a transaction",
            )
        properties[Property.TRANSACTION_ID] = properties[Property.UNIQUE_KEY]
        properties[Property.REAL_TOPIC] = message.topic
        properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
        message.topic, message.queue_id = names.HALF_TOPIC, HALF_QUEUE
        message.sys_flag = with_transaction(message.sys_flag, 0)
        return True


class Half(msgspec.Struct, frozen=True, gc=False):
    """A half message, or a copy of one, with its properties."""

    record: StoredMessage
    properties: dict[str, str]

    @classmethod
    def of(cls, record: StoredMessage) -> "Half | None":
        """The half message in a record; None if it is another record."""
        if record.raw_topic != RAW_HALF_TOPIC or record.queue_id != HALF_QUEUE:
            return None
        return cls.of_any(record)

    @classmethod
    def of_any(cls, record: StoredMessage) -> "Half | None":
        """The same, also for a discarded half message."""
        if record.raw_topic not in (RAW_HALF_TOPIC, RAW_DISCARD_TOPIC):
            return None
        properties = record.properties
        properties.pop(Property.RECORD_CRC, None)  # of this record
        return cls(record, properties)

    @property
    def is_discarded(self) -> bool:
        return self.record.raw_topic == RAW_DISCARD_TOPIC

    @property
    def offset(self) -> int:
        return self.record.queue_offset

    @property
    def unique_key(self) -> str:
        return self.properties.get(Property.UNIQUE_KEY, "")

    @property
    def producer_group(self) -> str:
        return self.properties.get(Property.PRODUCER_GROUP, "")

    @property
    def real_topic(self) -> str:
        return self.properties.get(Property.REAL_TOPIC, "")

    @property
    def real_queue(self) -> int | None:
        """The real queue; None if it is missing or invalid."""
        return self._number(Property.REAL_QUEUE_ID, 2**31 - 1)

    @property
    def check_times(self) -> int:
        """How often its producer was asked."""
        return self._number(Property.TRANSACTION_CHECK_TIMES, 2**31 - 1) or 0

    @property
    def first_offset(self) -> int | None:
        """The offset of the first copy, if this one has it."""
        return self._number(Property.TRANSACTION_PREPARED_QUEUE_OFFSET, 2**63 - 1)

    @property
    def is_copy(self) -> bool:
        """Is there an older copy of it?"""
        return self.check_times > 0 or self.first_offset is not None

    def immunity_ms(self, timeout_ms: int) -> int | None:
        """How long after its birth the producer may not be asked, if it says so. Invalid values mean the timeout."""
        if Property.CHECK_IMMUNITY_TIME_IN_SECONDS not in self.properties:
            return None
        seconds = self._number(Property.CHECK_IMMUNITY_TIME_IN_SECONDS, 2**53)
        return timeout_ms if seconds is None else seconds * 1000

    def _number(self, name: str, most: int) -> int | None:
        try:
            value = number(self.properties, name)
        except BodyError:
            return None
        return value if value is not None and 0 <= value <= most else None

    def is_copy_of(self, other: "Half") -> bool:
        """Are both copies of the same message? Copies keep the birth data of the first one."""
        mine, its = self.record, other.record
        return (
            self.unique_key == other.unique_key
            and mine.born_ms == its.born_ms
            and mine.born_host == its.born_host
            and mine.body_crc == its.body_crc
        )


def committed(half: Half) -> tuple[NewMessage, dict[str, str]] | None:
    """The message for consumers, and its properties. None if the half message has no valid topic and queue."""
    topic, queue_id = half.real_topic, half.real_queue
    if not topic or queue_id is None or topic in names.NOT_FOR_SENDING:
        return None
    properties = dict(half.properties)
    del properties[Property.REAL_TOPIC], properties[Property.REAL_QUEUE_ID]
    message = _copy(half.record, topic, queue_id)
    message.sys_flag = with_transaction(message.sys_flag, _COMMIT)
    message.prepared_offset = half.record.physical_offset
    return message, properties


def asked_copy(half: Half) -> NewMessage:
    """A copy of the half message, made before its producer is asked."""
    times = str(half.check_times + 1)
    return _half_copy(half, {Property.TRANSACTION_CHECK_TIMES: times})


def immune_copy(half: Half) -> NewMessage:
    """A copy of the half message, made while its producer may not be asked. It does not count as a check."""
    first = half.offset if half.first_offset is None else half.first_offset
    return _half_copy(half, {Property.TRANSACTION_PREPARED_QUEUE_OFFSET: str(first), Property.WAIT_STORED: "false"})


def resumed_copy(half: Half) -> NewMessage:
    """A copy of a discarded half message, in the half topic again."""
    return _half_copy(half, {Property.TRANSACTION_CHECK_TIMES: "0"})


def discarded(half: Half) -> NewMessage:
    """A copy of the half message in the topic of discarded ones."""
    message = _copy(half.record, names.TRANSACTION_CHECK_TOPIC, 0)
    message.properties = _encoded(half.properties)
    return message


def question(half: Half) -> bytes | None:
    """The record for a question to a producer, with its real topic and queue. None if they are not valid.

    It has WAIT=false, as Apache's. The stored copy keeps the property of the sender: consumers get it after a commit.
    """
    topic, queue_id = half.real_topic.encode(), half.real_queue
    if not 0 < len(topic) <= names.TOPIC_LENGTH_MAX or queue_id is None:
        return None
    return msgspec.structs.replace(
        half.record,
        raw_topic=topic,
        queue_id=queue_id,
        raw_properties=_encoded({**half.properties, Property.WAIT_STORED: "false"}),
    ).encode()


def _half_copy(half: Half, changes: dict[str, str]) -> NewMessage:
    message = _copy(half.record, names.HALF_TOPIC, HALF_QUEUE)
    message.properties = _encoded({**half.properties, **changes})
    return message


def _encoded(properties: dict[str, str]) -> bytes:
    """The encoded properties of a stored message, with those added by the broker; the store checks their length."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode()


def _copy(record: StoredMessage, topic: str, queue_id: int) -> NewMessage:
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(record.body),
        properties=b"",
        born_ms=record.born_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
    )
