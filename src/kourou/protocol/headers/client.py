"""Requests from clients to brokers about themselves and their groups, and from brokers to clients."""

from msgspec import field

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    GET,
    SUB,
    UPDATE,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
    request_without_header,
)

_BROKER = Direction.CLIENT_TO_BROKER
_CLIENT = Direction.BROKER_TO_CLIENT


class Common(Header):
    """Fields that any request may have in addition to its own: `Common.decode` reads them from the same `extFields`."""

    namespace: str | None = field(name="ns", default=None)
    namespaced: bool | None = field(name="nsd", default=None)
    broker_name: str | None = field(name="bname", default=None)
    one_way: bool | None = field(name="oway", default=None)
    logical: bool | None = field(name="lo", default=None)
    """Whether `queue_id` is the number of a static topic's queue across all brokers."""


# --------------------------------------------------------------------------------------------------- clients and groups


class HeartbeatAnswer(Header):
    """Whether the next heartbeats may omit the subscriptions, and whether the broker does not have them."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)


request_without_header(
    RequestCode.HEART_BEAT,
    _BROKER,
    "Report a client with its groups and subscriptions.",
    access=needs(SUB, in_body=True),
    body=bodies.HeartbeatData,
    answer=HeartbeatAnswer,
)


@request(RequestCode.UNREGISTER_CLIENT, _BROKER, access=needs(SUB, "consumer_group"))
class UnregisterClient(Header):
    """Remove a client from a group."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request(
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    _BROKER,
    access=needs(SUB | GET, "consumer_group"),
    answer_body=bodies.GetConsumerListByGroupResponseBody,
)
class GetConsumerListByGroup(Header):
    """List the client ids of a group's consumers."""

    consumer_group: str


request_without_header(
    RequestCode.CHECK_CLIENT_CONFIG,
    _BROKER,
    "Check a filter expression.",
    access=needs(SUB, in_body=True),
    body=bodies.CheckClientRequestBody,
)
request_without_header(
    RequestCode.LOCK_BATCH_MQ,
    _BROKER,
    "Lock queues for an orderly consumer.",
    access=needs(SUB, in_body=True),
    body=bodies.LockBatchRequestBody,
    answer_body=bodies.LockBatchResponseBody,
)
request_without_header(
    RequestCode.UNLOCK_BATCH_MQ,
    _BROKER,
    "Unlock queues of an orderly consumer.",
    access=needs(SUB, in_body=True),
    body=bodies.UnlockBatchRequestBody,
)
request_without_header(
    RequestCode.QUERY_ASSIGNMENT,
    _BROKER,
    "Get the queues of a topic that are assigned to a client.",
    access=needs(SUB, in_body=True),
    body=bodies.QueryAssignmentRequestBody,
    answer_body=bodies.QueryAssignmentResponseBody,
)
request_without_header(
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    _BROKER,
    "Choose whether a group pulls or pops from a topic.",
    access=needs(SUB | UPDATE, in_body=True),
    body=bodies.SetMessageRequestModeRequestBody,
)


# ----------------------------------------------------------------------------------------------------- broker to client


@request(RequestCode.CHECK_TRANSACTION_STATE, _CLIENT, body="one stored record", one_way=True)
class CheckTransactionState(Header):
    """Ask a producer for the state of a half message. The client answers with END_TRANSACTION."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, _CLIENT, one_way=True)
class NotifyConsumerIdsChanged(Header):
    """Tell consumers that the members of their group changed: they rebalance."""

    consumer_group: str


@request(
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    _CLIENT,
    body="ResetOffsetBody, or ResetOffsetBodyForC to clients in C++",
    one_way=True,
)
class ResetConsumerClientOffset(Header):
    """Continue from the offsets in the body."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = -1
    offset: Int64 | None = None


@request(
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    _CLIENT,
    answer_body=bodies.GetConsumerStatusBody,
)
class GetConsumerStatusFromClient(Header):
    """Get the offsets of a consumer."""

    topic: str
    group: str
    client_addr: str | None = None


@request(
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    Direction.ADMIN_TO_CLIENT,
    access=needs(GET, "consumer_group"),
    answer_body=bodies.ConsumerRunningInfo,
)
class GetConsumerRunningInfo(Header):
    """Get the internal state of a consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@request(
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    Direction.ADMIN_TO_CLIENT,
    access=needs(SUB, "consumer_group", "topic"),
    body="one stored record",
    answer_body=bodies.ConsumeMessageDirectlyResult,
)
class ConsumeMessageDirectly(Header):
    """Consume this message now and return the result."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, _CLIENT, body="the reply")
class PushReplyMessage(Header):
    """Deliver the reply to a request that this client sent as a message."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


@request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, _CLIENT, one_way=True)
class NotifyUnsubscribeLite(Header):
    """Tell a client that the broker ended one of its lite subscriptions."""

    lite_topic: str
    consumer_group: str
    client_id: str
