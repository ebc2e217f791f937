"""Requests from clients and admins to brokers about lite topics."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    GET,
    READ_CLUSTER,
    RECORDS,
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
_ADMIN = Direction.ADMIN_TO_BROKER


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
    answer_body=RECORDS,
)
class PopLiteMessage(Header):
    """Pop from all lite topics of a parent topic that a client subscribes to."""

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
    "Change a client's subscriptions to lite topics.",
    access=needs(SUB, in_body=True),
    body=bodies.LiteSubscriptionCtlRequestBody,
)


# ------------------------------------------------------------------------------------------------------ admin to broker


request_without_header(
    RequestCode.GET_BROKER_LITE_INFO,
    _ADMIN,
    "Get the number of lite topics of a broker.",
    access=READ_CLUSTER,
    answer_body=bodies.GetBrokerLiteInfoResponseBody,
)


@request(
    RequestCode.GET_PARENT_TOPIC_INFO,
    _ADMIN,
    access=needs(GET, "topic"),
    answer_body=bodies.GetParentTopicInfoResponseBody,
)
class GetParentTopicInfo(Header):
    """Get the parent topic of lite topics."""

    topic: str


@request(
    RequestCode.GET_LITE_TOPIC_INFO,
    _ADMIN,
    access=READ_CLUSTER,
    answer_body=bodies.GetLiteTopicInfoResponseBody,
)
class GetLiteTopicInfo(Header):
    """Get one lite topic."""

    parent_topic: str | None = None
    lite_topic: str | None = None


@request(
    RequestCode.GET_LITE_CLIENT_INFO,
    _ADMIN,
    access=needs(GET, "group"),
    answer_body=bodies.GetLiteClientInfoResponseBody,
)
class GetLiteClientInfo(Header):
    """Get one client of lite topics."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 1000


@request(
    RequestCode.GET_LITE_GROUP_INFO,
    _ADMIN,
    access=needs(GET, "group"),
    answer_body=bodies.GetLiteGroupInfoResponseBody,
)
class GetLiteGroupInfo(Header):
    """Get the lag of a group, in one lite topic or in those with the largest lag."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


@request(RequestCode.TRIGGER_LITE_DISPATCH, _ADMIN, access=needs(UPDATE, "group"))
class TriggerLiteDispatch(Header):
    """Look for messages that clients of lite topics were not notified of."""

    group: str
    client_id: str | None = None
