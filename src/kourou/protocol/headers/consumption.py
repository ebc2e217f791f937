"""What admins ask brokers about the offsets of consumer groups."""

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
    """How far a group is, in one topic, in several (joined by semicolons) or in all."""

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
    """How far all groups are, orderly ones or the others."""

    is_order: bool


@request(
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    _BROKER,
    access=needs(UPDATE, "group", "topic"),
    answer_body=bodies.ResetOffsetBody,
)
class InvokeBrokerToResetOffset(Header):
    """Set a group back or forward to a time (-1: to the end), or one queue to an offset."""

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
    """Ask the consumers of a group, or the one at `client_addr`, how far they are."""

    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, _BROKER, access=needs(GET, "topic"), answer_body=bodies.GroupList)
class QueryTopicConsumeByWho(Header):
    """The groups that consume a topic."""

    topic: str


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER, _BROKER, access=needs(GET, "group"), answer_body=bodies.TopicList)
class QueryTopicsByConsumer(Header):
    """The topics that a group consumes."""

    group: str


@request(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    _BROKER,
    access=needs(GET, "group", "topic"),
    answer_body=bodies.QuerySubscriptionResponseBody,
)
class QuerySubscriptionByConsumer(Header):
    """What a group subscribes to of a topic."""

    group: str
    topic: str | None = None


@request(
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    _BROKER,
    access=needs(GET, "topic", "group"),
    answer_body=bodies.QueryConsumeTimeSpanBody,
)
class QueryConsumeTimeSpan(Header):
    """When the messages that a group has and has not consumed were stored."""

    topic: str
    group: str


@request(
    RequestCode.QUERY_CORRECTION_OFFSET,
    _BROKER,
    access=needs(GET, "filter_groups", "compare_group", "topic"),
    answer_body=bodies.QueryCorrectionOffsetBody,
)
class QueryCorrectionOffset(Header):
    """The smallest offsets of a topic among groups, those in `filter_groups` (joined by commas) left out."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@request(RequestCode.CLONE_GROUP_OFFSET, _BROKER, access=needs(UPDATE, "dest_group", "topic"))
class CloneGroupOffset(Header):
    """Give one group the offsets of another."""

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
    """Entries of a consume queue."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, _BROKER, access=needs(UPDATE, "topic"))
class ResumeCheckHalfMessage(Header):
    """Ask again about a half message that was given up."""

    topic: str | None = None
    msg_id: str | None = None


request_without_header(
    RequestCode.POP_ROLLBACK,
    _BROKER,
    "Write what is popped and not acknowledged back to the log, before a downgrade.",
    access=CHANGE_CLUSTER,
)
