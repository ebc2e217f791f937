"""Names of topics and groups: which are allowed, and which are the system's own.

Java: TopicValidator, MixAll, KeyBuilder.
"""

import re
from typing import Final

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 120
RETRY_TOPIC_LENGTH_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"  # of a way to keep half messages that is not ours
ROCKSDB_HALF_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"

NOT_FOR_SENDING: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_OP_TOPIC,
        TRANSACTION_CHECK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_HALF_OP_TOPIC,
    )
)

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

_is_allowed = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def topic_fault(topic: str) -> str | None:
    """What is wrong with the name of a topic, in Apache's words; None if nothing is."""
    if not topic.strip():
        return "The specified topic is blank."
    if _is_allowed(topic) is None:
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
    if _is_allowed(group) is None:
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def group_of_retry_topic(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
