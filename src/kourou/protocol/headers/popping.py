"""Requests from consumers that pop messages."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    GET,
    RECORDS,
    SUB,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
    request_without_header,
)

_BROKER = Direction.CLIENT_TO_BROKER


class PopMessageAnswer(Header):
    """When the messages were popped, how long they are invisible, and the handles to acknowledge them."""

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
    answer_body=RECORDS,
)
class PopMessage(Header):
    """Get messages and hide them from the group's other consumers; those not acknowledged in time come again."""

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
    answer_body=RECORDS,
)
class PeekMessage(Header):
    """Get messages without hiding them from others."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@request(RequestCode.ACK_MESSAGE, _BROKER, access=needs(SUB, "topic", "consumer_group"))
class AckMessage(Header):
    """Acknowledge a popped message."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


request_without_header(
    RequestCode.BATCH_ACK_MESSAGE,
    _BROKER,
    "Acknowledge many popped messages.",
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
    """Change how long a popped message is invisible."""

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
    """Wait until there are messages to pop."""

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
    """The number of waiting requests."""

    polling_num: Int32


@request(RequestCode.POLLING_INFO, _BROKER, access=needs(GET, "topic", "consumer_group"), answer=PollingInfoAnswer)
class PollingInfo(Header):
    """Get the number of pop requests of a group that wait at a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
