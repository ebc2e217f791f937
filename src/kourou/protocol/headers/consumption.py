"""Requests from admins to brokers about the offsets of consumer groups."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    GET,
    READ_CLUSTER,
    UPDATE,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
    request_without_header,
)

_BROKER = Direction.ADMIN_TO_BROKER


@request(
    RequestCode.GET_CONSUME_STATS,
    _BROKER,
    access=needs(GET, "consumer_group", "topic", "topic_list"),
    answer_body=bodies.ConsumeStats,
)
class GetConsumeStats(Header):
    """Get the progress of a group in one topic, in several (separated by semicolons) or in all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@request(
    RequestCode.GET_BROKER_CONSUME_STATS,
    _BROKER,
    access=READ_CLUSTER,
    answer_body=bodies.ConsumeStatsList,
)
class GetBrokerConsumeStats(Header):
    """Get the progress of all groups: either the orderly ones or the others."""

    is_order: bool


@request(
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    _BROKER,
    access=needs(UPDATE, "group", "topic"),
    answer_body=bodies.ResetOffsetBody,
)
class InvokeBrokerToResetOffset(Header):
    """Reset a group's offsets to a time (-1: to the end), or one queue to an offset."""

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


@request(
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    _BROKER,
    access=needs(GET, "topic", "group"),
    answer_body=bodies.GetConsumerStatusBody,
)
class InvokeBrokerToGetConsumerStatus(Header):
    """Get the offsets of the consumers of a group, or of the one at `client_addr`."""

    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, _BROKER, access=needs(GET, "topic"), answer_body=bodies.GroupList)
class QueryTopicConsumeByWho(Header):
    """List the groups that consume a topic."""

    topic: str


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER, _BROKER, access=needs(GET, "group"), answer_body=bodies.TopicList)
class QueryTopicsByConsumer(Header):
    """List the topics that a group consumes."""

    group: str


@request(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    _BROKER,
    access=needs(GET, "group", "topic"),
    answer_body=bodies.QuerySubscriptionResponseBody,
)
class QuerySubscriptionByConsumer(Header):
    """Get a group's subscription to a topic."""

    group: str
    topic: str | None = None


@request(
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    _BROKER,
    access=needs(GET, "topic", "group"),
    answer_body=bodies.QueryConsumeTimeSpanBody,
)
class QueryConsumeTimeSpan(Header):
    """Get the store times of the messages that a group has and has not consumed."""

    topic: str
    group: str


@request(
    RequestCode.QUERY_CORRECTION_OFFSET,
    _BROKER,
    access=needs(GET, "filter_groups", "compare_group", "topic"),
    answer_body=bodies.QueryCorrectionOffsetBody,
)
class QueryCorrectionOffset(Header):
    """Get the smallest offsets of a topic over all groups but those in `filter_groups` (separated by commas)."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@request(
    RequestCode.CLONE_GROUP_OFFSET, _BROKER, access=needs(UPDATE, "dest_group", "topic", also=needs(GET, "src_group"))
)
class CloneGroupOffset(Header):
    """Copy the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@request(
    RequestCode.QUERY_CONSUME_QUEUE,
    _BROKER,
    access=needs(GET, "topic", "consumer_group"),
    answer_body=bodies.QueryConsumeQueueResponseBody,
)
class QueryConsumeQueue(Header):
    """Get entries of a consume queue."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, _BROKER, access=needs(UPDATE, "topic"))
class ResumeCheckHalfMessage(Header):
    """Check a discarded half message again."""

    topic: str | None = None
    msg_id: str | None = None


request_without_header(
    RequestCode.POP_ROLLBACK,
    _BROKER,
    "Write pop checkpoints and acknowledgements to the log, before a downgrade.",
    access=CHANGE_CLUSTER,
)
