"""Requests from producers to brokers.

The fields follow Java's header classes and include optional fields of newer Java clients and brokers: peers ignore
unknown fields.
"""

from typing import Any

import msgspec
from msgspec import field

from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    PUB,
    SUB,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
)

_BROKER = Direction.CLIENT_TO_BROKER


class SendMessageAnswer(Header):
    """Where the message was stored. For a batch, `msg_id` has the ids of all messages, separated by commas."""

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
    """Store a message, or pass a reply to the client that waits for it."""

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
    """As SendMessage, with short names, which are faster to decode. Most clients send this form."""

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

    def to_v2(self) -> "SendMessageV2":
        """This header: both kinds of sends are served alike."""
        return self

    def to_v1(self) -> SendMessage:
        """The same with long names."""
        return SendMessage(**_members(self))


def _members(header: Header) -> dict[str, Any]:
    return msgspec.structs.asdict(header)


@request(RequestCode.CONSUMER_SEND_MSG_BACK, _BROKER, access=needs(SUB, "group"))
class ConsumerSendMsgBack(Header):
    """Return a message that a consumer could not handle: it is delivered to the group again later."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@request(RequestCode.END_TRANSACTION, _BROKER, access=needs(PUB, "topic"), one_way=True)
class EndTransaction(Header):
    """Commit (8) or roll back (12) a half message, or say that its state is unknown (0)."""

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
    """Recall a message that waits in the timer."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
