"""Names of topics and groups: which are allowed, and which are the system's own.

Java: TopicValidator, MixAll, KeyBuilder.
"""

from typing import Final

from kourou.protocol.system_names import (
    BENCHMARK_TOPIC as BENCHMARK_TOPIC,
    CHECKPOINT_TOPIC as CHECKPOINT_TOPIC,
    DEAD_LETTER_PREFIX as DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC as DEFAULT_TOPIC,
    GROUP_LENGTH_MAX as GROUP_LENGTH_MAX,
    HALF_OP_TOPIC as HALF_OP_TOPIC,
    HALF_TOPIC as HALF_TOPIC,
    NOT_FOR_SENDING as NOT_FOR_SENDING_ANYWHERE,
    OFFSET_MOVED_TOPIC as OFFSET_MOVED_TOPIC,
    RETRY_PREFIX as RETRY_PREFIX,
    RETRY_TOPIC_LENGTH_MAX as RETRY_TOPIC_LENGTH_MAX,
    SCHEDULE_TOPIC as SCHEDULE_TOPIC,
    SELF_TEST_TOPIC as SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX as SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS as SYSTEM_GROUPS,
    SYSTEM_PREFIX as SYSTEM_PREFIX,
    TIMER_TOPIC as TIMER_TOPIC,
    TOPIC_LENGTH_MAX as TOPIC_LENGTH_MAX,
    TRACE_TOPIC as TRACE_TOPIC,
    TRANSACTION_CHECK_TOPIC as TRANSACTION_CHECK_TOPIC,
    dead_letter_topic as dead_letter_topic,
    is_allowed,
    retry_topic as retry_topic,
)

ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"  # half messages in RocksDB, which Kourou does not have
ROCKSDB_HALF_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"

NOT_FOR_SENDING: Final = NOT_FOR_SENDING_ANYWHERE | {ROCKSDB_HALF_TOPIC, ROCKSDB_HALF_OP_TOPIC, TIMER_TOPIC}
"""Topics that clients may not send to. A message in the timer topic says where and when it is delivered: a client that
could write it would pass by access control, and could fill any slot.
"""


def topic_fault(topic: str) -> str | None:
    """Why the name of a topic is invalid, in Apache's words; None if it is valid."""
    if not topic.strip():
        return "The specified topic is blank."
    if is_allowed(topic) is None:
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > RETRY_TOPIC_LENGTH_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {RETRY_TOPIC_LENGTH_MAX}"
            )
    elif len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_LENGTH_MAX}"
    return None


def group_fault(group: str) -> str | None:
    """The same of a group."""
    if not group.strip():
        return "The specified group is blank."
    if is_allowed(group) is None:
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None


def group_of_retry_topic(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
