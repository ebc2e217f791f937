"""Requests from slaves to masters, and requests from admins about replication."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    READ_CLUSTER,
    Direction,
    Header,
    Int64,
    request,
    request_without_header,
)

_BROKER = Direction.ADMIN_TO_BROKER
_PEER = Direction.BROKER_TO_BROKER


request_without_header(
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    _PEER,
    "Get all consumer offsets.",
    access=READ_CLUSTER,
    answer_body=bodies.ConsumerOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_DELAY_OFFSET,
    _PEER,
    "Get the progress of the delay levels.",
    access=READ_CLUSTER,
    answer_body=bodies.DelayOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_TIMER_CHECK_POINT,
    _PEER,
    "Get the progress of the timer.",
    access=READ_CLUSTER,
    answer_body="the timer's checkpoint file",
)
request_without_header(
    RequestCode.GET_TIMER_METRICS,
    _PEER,
    "Get the number of messages in the timer.",
    access=READ_CLUSTER,
    answer_body=bodies.TimerMetricsSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    _PEER,
    "Get the request modes of all groups: pull or pop.",
    access=READ_CLUSTER,
    answer_body=bodies.MessageRequestModeSerializeWrapper,
)


class ExchangeHAInfoAnswer(Header):
    """The same three fields of the master."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(RequestCode.EXCHANGE_BROKER_HA_INFO, _PEER, access=CHANGE_CLUSTER, answer=ExchangeHAInfoAnswer)
class ExchangeHAInfo(Header):
    """Exchange the address of the master between the brokers of a group; None asks for it."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


request_without_header(
    RequestCode.GET_BROKER_HA_STATUS,
    _BROKER,
    "Get the state of replication.",
    access=READ_CLUSTER,
    answer_body=bodies.HARuntimeInfo,
)


@request(RequestCode.RESET_MASTER_FLUSH_OFFSET, _BROKER, access=CHANGE_CLUSTER)
class ResetMasterFlushOffset(Header):
    """Tell a slave how far its master's log is flushed."""

    master_flush_offset: Int64
