"""What consumers that pop ask brokers."""

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
    answer_body=RECORDS,
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
    answer_body=RECORDS,
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
