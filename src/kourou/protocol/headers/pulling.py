"""Requests from consumers that pull messages, and requests about offsets."""

from msgspec import field

from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    GET,
    RECORDS,
    SUB,
    UPDATE,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
)

_BROKER = Direction.CLIENT_TO_BROKER


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
    answer_body=RECORDS,
)
@request(
    RequestCode.LITE_PULL_MESSAGE,
    _BROKER,
    access=needs(SUB, "topic", "consumer_group"),
    answer=PullMessageAnswer,
    answer_body=RECORDS,
)
class PullMessage(Header):
    """Get messages of a queue from an offset on; the broker may wait until there are some."""

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
    """The progress of the index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@request(
    RequestCode.QUERY_MESSAGE,
    _BROKER,
    access=needs(SUB | GET, "topic"),
    answer=QueryMessageAnswer,
    answer_body=RECORDS,
)
class QueryMessage(Header):
    """Find messages by key or, with `unique_key`, by unique id."""

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
    """Get the message at an offset of the commit log."""

    offset: Int64
    topic: str | None = None


# -------------------------------------------------------------------------------------------------------------- offsets


class OffsetAnswer(Header):
    """An offset."""

    offset: Int64


@request(
    RequestCode.QUERY_CONSUMER_OFFSET, _BROKER, access=needs(SUB | GET, "topic", "consumer_group"), answer=OffsetAnswer
)
class QueryConsumerOffset(Header):
    """Get the offset of a group in one queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@request(RequestCode.UPDATE_CONSUMER_OFFSET, _BROKER, access=needs(SUB | UPDATE, "topic", "consumer_group"))
class UpdateConsumerOffset(Header):
    """Store the offset of a group in one queue. Consumers send it one-way, admins wait for the answer."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class SearchOffset(Header):
    """Find the offset of the message stored at a time; `boundary_type` (lower or upper) chooses among equal times."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


@request(RequestCode.GET_MAX_OFFSET, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class GetMaxOffset(Header):
    """Get the offset that the next message of a queue will have."""

    topic: str
    queue_id: Int32
    committed: bool = True


@request(RequestCode.GET_MIN_OFFSET, _BROKER, access=needs(GET, "topic"), answer=OffsetAnswer)
class GetMinOffset(Header):
    """Get the offset of the first message of a queue."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeAnswer(Header):
    """A time in ms."""

    timestamp: Int64


@request(
    RequestCode.GET_EARLIEST_MSG_STORETIME, _BROKER, access=needs(GET, "topic"), answer=GetEarliestMsgStoretimeAnswer
)
class GetEarliestMsgStoretime(Header):
    """Get the store time of the first message of a queue."""

    topic: str
    queue_id: Int32
