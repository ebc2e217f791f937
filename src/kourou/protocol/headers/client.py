"""What clients ask brokers, and what brokers ask clients.

Fields follow Java's header classes. Where a newer Java client or broker adds an optional field, it is here too: peers
ignore what they do not know.
"""

from typing import Any

import msgspec
from msgspec import field

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    GET,
    PUB,
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

_RECORDS = "stored records, one after the other"


class Common(Header):
    """Fields that any request may carry beside its own: `Common.decode` finds them in the same `extFields`."""

    namespace: str | None = field(name="ns", default=None)
    namespaced: bool | None = field(name="nsd", default=None)
    broker_name: str | None = field(name="bname", default=None)
    one_way: bool | None = field(name="oway", default=None)
    logical: bool | None = field(name="lo", default=None)
    """Whether `queue_id` counts the queues of a static topic across all brokers."""


# ----------------------------------------------------------------------------------------------------------- sending


class SendMessageAnswer(Header):
    """Where the message is. A batch has the ids of all its messages in `msg_id`, joined by commas."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


@request(
    RequestCode.SEND_MESSAGE, _BROKER, access=needs(PUB, "topic"), body="the message's body", answer=SendMessageAnswer
)
@request(
    RequestCode.SEND_REPLY_MESSAGE, _BROKER, access=needs(PUB, "topic"), body="the reply", answer=SendMessageAnswer
)
class SendMessage(Header):
    """Store a message, or pass a reply on to the client that waits for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)

    def to_v2(self) -> "SendMessageV2":
        """The same with short names."""
        return SendMessageV2(**_members(self))


@request(
    RequestCode.SEND_MESSAGE_V2,
    _BROKER,
    access=needs(PUB, "topic"),
    body="the message's body",
    answer=SendMessageAnswer,
)
@request(RequestCode.SEND_BATCH_MESSAGE, _BROKER, access=needs(PUB, "topic"), body="a batch", answer=SendMessageAnswer)
@request(
    RequestCode.SEND_REPLY_MESSAGE_V2, _BROKER, access=needs(PUB, "topic"), body="the reply", answer=SendMessageAnswer
)
class SendMessageV2(Header):
    """The same as SendMessage with short names, which are quicker to read: how nearly all messages are sent."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    batch: bool | None = field(name="m", default=None)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    broker_name: str | None = field(name="n", default=None)

    def to_v1(self) -> SendMessage:
        """The same with long names."""
        return SendMessage(**_members(self))


def _members(header: Header) -> dict[str, Any]:
    return msgspec.structs.asdict(header)


@request(RequestCode.CONSUMER_SEND_MSG_BACK, _BROKER, access=needs(SUB, "group"))
class ConsumerSendMsgBack(Header):
    """A consumer could not handle a message: deliver it to the group again later."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@request(RequestCode.END_TRANSACTION, _BROKER, access=needs(PUB, "topic"), one_way=True)
class EndTransaction(Header):
    """Commit (8) or roll back (12) a half message, or say that it is not yet known (0)."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool | None = False
    transaction_id: str | None = None
    topic: str | None = None


class RecallMessageAnswer(Header):
    """The id of the message that will not be delivered."""

    msg_id: str


@request(RequestCode.RECALL_MESSAGE, _BROKER, access=needs(PUB, "topic"), answer=RecallMessageAnswer)
class RecallMessage(Header):
    """Take back a message that waits in the timer."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


# ----------------------------------------------------------------------------------------------------------- pulling


class PullMessageAnswer(Header):
    """Where to pull next, and from which member of the broker group."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


@request(
    RequestCode.PULL_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PullMessageAnswer,
    answer_body=_RECORDS,
)
@request(
    RequestCode.LITE_PULL_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PullMessageAnswer,
    answer_body=_RECORDS,
)
class PullMessage(Header):
    """Messages of a queue from an offset on; the broker may wait until there are some."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = field(name="proxyFrowardClientId", default=None)
    lite_topic: str | None = None


class QueryMessageAnswer(Header):
    """How far the index goes."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@request(
    RequestCode.QUERY_MESSAGE,
    _BROKER,
    access=needs(SUB | GET, "topic"),
    answer=QueryMessageAnswer,
    answer_body=_RECORDS,
)
class QueryMessage(Header):
    """Messages with a key or, with `unique_key`, the one with this unique id."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None
    unique_key: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)


@request(RequestCode.VIEW_MESSAGE_BY_ID, _BROKER, access=needs(GET, "topic"), answer_body="one stored record")
class ViewMessage(Header):
    """The message at an offset of the commit log."""

    offset: Int64
    topic: str | None = None


# ----------------------------------------------------------------------------------------------------------- offsets


class OffsetAnswer(Header):
    """An offset."""

    offset: Int64


@request(
    RequestCode.QUERY_CONSUMER_OFFSET, _BROKER, access=needs(SUB | GET, "topic", "consumer_group"), answer=OffsetAnswer
)
class QueryConsumerOffset(Header):
    """Where a group stands in one queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@request(RequestCode.UPDATE_CONSUMER_OFFSET, _BROKER, access=needs(SUB | UPDATE, "topic", "consumer_group"))
class UpdateConsumerOffset(Header):
    """A group has consumed one queue up to here. Consumers send it one way, admins wait for the answer."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class SearchOffset(Header):
    """The offset of the message stored at a time; `boundary_type` (lower or upper) chooses among equal times."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


@request(RequestCode.GET_MAX_OFFSET, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class GetMaxOffset(Header):
    """The offset that the next message of a queue will have."""

    topic: str
    queue_id: Int32
    committed: bool = True


@request(RequestCode.GET_MIN_OFFSET, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class GetMinOffset(Header):
    """The offset of the first message that a queue still has."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeAnswer(Header):
    """A time in ms."""

    timestamp: Int64


@request(
    RequestCode.GET_EARLIEST_MSG_STORETIME, _BROKER, access=needs(GET, "topic"), answer=GetEarliestMsgStoretimeAnswer
)
class GetEarliestMsgStoretime(Header):
    """When the first message that a queue still has was stored."""

    topic: str
    queue_id: Int32


# ----------------------------------------------------------------------------------------------- clients and groups


class HeartbeatAnswer(Header):
    """Whether the next heartbeats may leave out the subscriptions, and whether the broker lacks them."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)


request_without_header(
    RequestCode.HEART_BEAT,
    _BROKER,
    "A client is there, with these groups and subscriptions.",
    access=needs(SUB, in_body=True),
    body=bodies.HeartbeatData,
    answer=HeartbeatAnswer,
)


@request(RequestCode.UNREGISTER_CLIENT, _BROKER, access=needs(SUB, "consumer_group"))
class UnregisterClient(Header):
    """A client leaves a group."""

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
    """The client ids of a group's consumers."""

    consumer_group: str


request_without_header(
    RequestCode.CHECK_CLIENT_CONFIG,
    _BROKER,
    "Does this filter expression compile?",
    access=needs(SUB, in_body=True),
    body=bodies.CheckClientRequestBody,
)
request_without_header(
    RequestCode.LOCK_BATCH_MQ,
    _BROKER,
    "An orderly consumer wants queues for itself alone.",
    access=needs(SUB, in_body=True),
    body=bodies.LockBatchRequestBody,
    answer_body=bodies.LockBatchResponseBody,
)
request_without_header(
    RequestCode.UNLOCK_BATCH_MQ,
    _BROKER,
    "An orderly consumer gives queues back.",
    access=needs(SUB, in_body=True),
    body=bodies.UnlockBatchRequestBody,
)
request_without_header(
    RequestCode.QUERY_ASSIGNMENT,
    _BROKER,
    "Which queues of a topic are a client's own?",
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

# ----------------------------------------------------------------------------------------------------------- popping


class PopMessageAnswer(Header):
    """When the messages were popped and for how long they are hidden; the handles to acknowledge them by."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@request(
    RequestCode.POP_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PopMessageAnswer,
    answer_body=_RECORDS,
)
class PopMessage(Header):
    """Messages that no other consumer of the group sees for a while; those not acknowledged by then come again."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = False
    attempt_id: str | None = None


@request(
    RequestCode.PEEK_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PopMessageAnswer,
    answer_body=_RECORDS,
)
class PeekMessage(Header):
    """Messages that stay visible to others."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@request(RequestCode.ACK_MESSAGE, _BROKER, access=needs(SUB, "topic", "consumer_group"))
class AckMessage(Header):
    """A popped message is done."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


request_without_header(
    RequestCode.BATCH_ACK_MESSAGE,
    _BROKER,
    "Many popped messages are done.",
    access=needs(SUB, in_body=True),
    body=bodies.BatchAckMessageRequestBody,
)


class ChangeInvisibleTimeAnswer(Header):
    """The parts of the new handle."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@request(
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=ChangeInvisibleTimeAnswer,
)
class ChangeInvisibleTime(Header):
    """Hide a popped message for longer, or for shorter."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


class NotificationAnswer(Header):
    """Whether there are messages to pop."""

    has_msg: bool
    polling_full: bool = False


@request(
    RequestCode.NOTIFICATION,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=NotificationAnswer,
)
class Notification(Header):
    """Wait until there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class PollingInfoAnswer(Header):
    """How many requests wait."""

    polling_num: Int32


@request(RequestCode.POLLING_INFO, _BROKER, access=needs(GET, "topic", "consumer_group"), answer=PollingInfoAnswer)
class PollingInfo(Header):
    """How many pop requests of a group wait at a queue?"""

    consumer_group: str
    topic: str
    queue_id: Int32


# ------------------------------------------------------------------------------------------------------ light topics


class PopLiteMessageAnswer(Header):
    """As PopMessageAnswer."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@request(
    RequestCode.POP_LITE_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PopLiteMessageAnswer,
    answer_body=_RECORDS,
)
class PopLiteMessage(Header):
    """Pop from all light topics under a topic that a client subscribes to."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    attempt_id: str | None = None


request_without_header(
    RequestCode.LITE_SUBSCRIPTION_CTL,
    _BROKER,
    "Change the light topics that a client subscribes to.",
    access=needs(SUB, in_body=True),
    body=bodies.LiteSubscriptionCtlRequestBody,
)

# -------------------------------------------------------------------------------------------------- broker to client


@request(RequestCode.CHECK_TRANSACTION_STATE, _CLIENT, body="one stored record", one_way=True)
class CheckTransactionState(Header):
    """What became of this half message? The client answers with END_TRANSACTION."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, _CLIENT, one_way=True)
class NotifyConsumerIdsChanged(Header):
    """A consumer came or went: share the queues anew."""

    consumer_group: str


@request(
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    _CLIENT,
    body="ResetOffsetBody, or ResetOffsetBodyForC to clients in C++",
    one_way=True,
)
class ResetConsumerClientOffset(Header):
    """Go on from the offsets in the body."""

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
    """How far is this consumer?"""

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
    """How is this consumer?"""

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
    """Consume this message now and say what came of it."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, _CLIENT, body="the reply")
class PushReplyMessage(Header):
    """The reply to a request that this client sent as a message."""

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
    """The broker has ended a light subscription of this client."""

    lite_topic: str
    consumer_group: str
    client_id: str
