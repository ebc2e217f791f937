"""Names of topics and groups that mean something to brokers and clients alike, and how long names may be.

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
"""The topic whose settings a broker gives to topics that it creates on their first message."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
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
"""Topics that take no messages from clients, whichever version of a broker has them."""

is_allowed = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
"""Does a name hold nothing but the characters that names may have?"""


def retry_topic(group: str) -> str:
    """Where messages wait that a consumer of the group failed on."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages end that consumers of the group failed on too often."""
    return DEAD_LETTER_PREFIX + group
