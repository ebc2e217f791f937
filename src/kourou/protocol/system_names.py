"""Topic and group names with a meaning to brokers and clients, and the limits of names.

Java: TopicValidator, MixAll.
"""

import re
from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 120
RETRY_TOPIC_LENGTH_MAX: Final = 255

DEFAULT_TOPIC: Final = "TBW102"
"""The topic whose settings a broker gives to topics that it creates automatically."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"

NOT_FOR_SENDING: Final = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, HALF_OP_TOPIC, TRANSACTION_CHECK_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC)
)
"""Topics that clients may not send to, in any version of the broker."""

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of tools that pull messages. Every broker has it."""

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets are the progress of the check of transactions."""

SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""The groups that every broker has."""

PREDEFINED_GROUPS: Final = frozenset(
    (
        *SYSTEM_GROUPS,
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
    )
)
"""The groups that clients and tools do not take for a user's. Java: MixAll.PREDEFINE_GROUP_SET."""

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of a name server's KV settings with the queues of ordered topics."""

is_allowed = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
"""Matches a name that has valid characters only."""


def retry_topic(group: str) -> str:
    """The topic with the messages that consumers of the group failed to process."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic with the messages that consumers of the group failed to process too often."""
    return DEAD_LETTER_PREFIX + group
