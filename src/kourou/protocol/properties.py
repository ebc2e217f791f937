"""Message properties: their names, and the string format in which they are sent and stored.

    name 0x01 value 0x02   name 0x01 value 0x02   ...

The same format is used in send headers (as a string), in batches and in stored records (as UTF-8 bytes). The last 0x02
may be missing. Only the first 0x01 of a pair is a separator, so a value may contain others. A pair without a name or
without a value is not a property: readers ignore it, and Kourou refuses to write it.
"""

from collections.abc import Mapping
from typing import Final

from kourou.protocol.errors import BodyError, LocalProtocolError

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
KEY_SEPARATOR: Final = " "

PROPERTIES_SIZE_MAX: Final = 32767
"""The limit of the string format in bytes: records and batches have its size as a signed short."""


class Property:
    """The names that have a meaning to brokers and clients."""

    # Set by the producer.
    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    UNIQUE_KEY: Final = "UNIQ_KEY"
    WAIT_STORED: Final = "WAIT"
    PRODUCER_GROUP: Final = "PGROUP"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    LITE_TOPIC: Final = "__LITE_TOPIC"
    PRIORITY: Final = "_SYS_MSG_PRIORITY_"
    BUYER_ID: Final = "BUYER_ID"
    INSTANCE_ID: Final = "INSTANCE_ID"
    MESSAGE_TYPE: Final = "MSG_TYPE"
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    EXTEND_UNIQUE_INFO: Final = "EXTEND_UNIQ_INFO"

    # Origin and destination.
    REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    CLUSTER: Final = "CLUSTER"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT: Final = "REDIRECT"
    DUP_INFO: Final = "DUP_INFO"
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    RECORD_CRC: Final = "__CRC32#"

    # Retries and dead letters.
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    ORIGIN_GROUP: Final = "ORIGIN_GROUP"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

    # Transactions.
    TRANSACTION_PREPARED: Final = "TRAN_MSG"
    TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

    # Delays, by level and by the timer wheel.
    DELAY_LEVEL: Final = "DELAY"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    START_DELIVER_TIME: Final = "__STARTDELIVERTIME"  # of Alibaba's service; here only metrics look at it
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_DEL_UNIQUE_KEY: Final = "TIMER_DEL_UNIQKEY"
    TIMER_ENGINE_TYPE: Final = "E_T"

    # Request and reply.
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

    # Pop consumption.
    POP_CHECKPOINT: Final = "POP_CK"
    POP_CHECKPOINT_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"

    # Never stored: set by a broker for the interceptors of one request.
    TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
    TRANSIENT_TOPIC_CONFIG: Final = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
    TRANSIENT_GROUP_CONFIG: Final = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"


RESERVED: Final = frozenset(
    {
        Property.ARRIVE_TIME,
        Property.BORN_HOST,
        Property.BORN_TIMESTAMP,
        Property.BUYER_ID,
        Property.CLUSTER,
        Property.CONSUME_START_TIME,
        Property.CORRECTION_FLAG,
        Property.CORRELATION_ID,
        Property.DELAY_LEVEL,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DUP_INFO,
        Property.EXTEND_UNIQUE_INFO,
        Property.FIRST_POP_TIME,
        Property.INNER_MULTI_QUEUE_OFFSET,
        Property.INSTANCE_ID,
        Property.KEYS,
        Property.LITE_TOPIC,
        Property.MAX_OFFSET,
        Property.MAX_RECONSUME_TIMES,
        Property.MESSAGE_TYPE,
        Property.MIN_OFFSET,
        Property.MQ2_FLAG,
        Property.ORIGIN_GROUP,
        Property.ORIGIN_MESSAGE_ID,
        Property.POP_CHECKPOINT,
        Property.POP_CHECKPOINT_OFFSET,
        Property.PRIORITY,
        Property.PRODUCER_GROUP,
        Property.PUSH_REPLY_TIME,
        Property.REAL_QUEUE_ID,
        Property.REAL_TOPIC,
        Property.RECONSUME_TIME,
        Property.RECORD_CRC,
        Property.REGION,
        Property.REPLY_TO_CLIENT,
        Property.RETRY_TOPIC,
        Property.TAGS,
        Property.TIMER_DELAY_LEVEL,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELIVER_MS,
        Property.TIMER_DEL_UNIQUE_KEY,
        Property.TIMER_DEQUEUE_MS,
        Property.TIMER_ENQUEUE_MS,
        Property.TIMER_OUT_MS,
        Property.TIMER_ROLL_TIMES,
        Property.TRACE_ON,
        Property.TRANSACTION_PREPARED,
        Property.TRANSACTION_PREPARED_QUEUE_OFFSET,
        Property.TRANSFER_FLAG,
        Property.TTL,
        Property.UNIQUE_KEY,
        Property.WAIT_STORED,
    }
)
"""Names that users may not set (Java: MessageConst.STRING_HASH_SET of 5.5.0)."""


def encode(properties: Mapping[str, str]) -> str:
    """Encode properties. Raises LocalProtocolError for a pair that would not be decoded again, or above 32767 bytes."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    count = len(properties)
    if text.count("\x01") != count or text.count("\x02") != count or "\x01\x02" in text or "" in properties:
        _find_unwritable(properties)
    if text.isascii() and len(text) <= PROPERTIES_SIZE_MAX:
        return text
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"properties are not valid Unicode: {error.reason} at {error.start}") from None
    if size > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(f"properties take {size} bytes; the limit is {PROPERTIES_SIZE_MAX}")
    return text


def _find_unwritable(properties: Mapping[str, str]) -> None:
    """Raises for the first pair that would not be decoded again. A value may contain 0x01."""
    for name, value in properties.items():
        if not name or not value or NAME_END in name or PAIR_END in name or PAIR_END in value:
            raise _unwritable(name, value)


def _unwritable(name: str, value: str) -> LocalProtocolError:
    if not name:
        return LocalProtocolError(f"the property with value {value[:40]!r} has no name")
    if not value:
        return LocalProtocolError(f"property {name[:40]!r} has no value: readers would ignore it")
    return LocalProtocolError(f"property {name[:40]!r} contains a separator, 0x01 or 0x02, in its name or value")


def decode(text: str | bytes | memoryview) -> dict[str, str]:
    """Decode properties; if a name occurs twice, the last value counts. Never fails, as in Java.

    Invalid UTF-8 becomes U+FFFD. Java: MessageDecoder.string2messageProperties.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def number(properties: Mapping[str, str], name: str) -> int | None:
    """The value of a numeric property, None if it is missing. Raises BodyError if it is not a number."""
    text = properties.get(name)
    if text is None:
        return None
    if len(text) <= 20 and text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    raise BodyError(f"property {name} is {text[:40]!r}, but must be a number")


def check_user_property(name: str, value: str) -> None:
    """Raises LocalProtocolError for invalid user properties: reserved or blank names, blank values, separators.

    Stricter than `encode`: Java and Kourou decode a value with 0x01, but the Go client loses it.
    """
    if name in RESERVED or name.startswith(Property.TRANSIENT_PREFIX):
        raise LocalProtocolError(f"property {name!r} is reserved for the system")
    if not name.strip() or not value.strip():
        raise LocalProtocolError(f"property {name[:40]!r} has a blank name or value")
    if any(separator in text for separator in (NAME_END, PAIR_END) for text in (name, value)):
        raise _unwritable(name, value)
