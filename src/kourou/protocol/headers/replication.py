"""What a slave asks its master, and what admins ask about replication."""

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
    "All consumer offsets.",
    access=READ_CLUSTER,
    answer_body=bodies.ConsumerOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_DELAY_OFFSET,
    _PEER,
    "How far the delay levels are.",
    access=READ_CLUSTER,
    answer_body=bodies.DelayOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_TIMER_CHECK_POINT,
    _PEER,
    "How far the timer is.",
    access=READ_CLUSTER,
    answer_body="the timer's checkpoint file",
)
request_without_header(
    RequestCode.GET_TIMER_METRICS,
    _PEER,
    "What waits in the timer.",
    access=READ_CLUSTER,
    answer_body=bodies.TimerMetricsSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    _PEER,
    "Which groups pop.",
    access=READ_CLUSTER,
    answer_body=bodies.MessageRequestModeSerializeWrapper,
)


class ExchangeHAInfoAnswer(Header):
    """The same three of the master."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(RequestCode.EXCHANGE_BROKER_HA_INFO, _PEER, access=CHANGE_CLUSTER, answer=ExchangeHAInfoAnswer)
class ExchangeHAInfo(Header):
    """Brokers of a group tell each other where the master is; None asks."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


request_without_header(
    RequestCode.GET_BROKER_HA_STATUS,
    _BROKER,
    "How replication goes.",
    access=READ_CLUSTER,
    answer_body=bodies.HARuntimeInfo,
)


@request(RequestCode.RESET_MASTER_FLUSH_OFFSET, _BROKER, access=CHANGE_CLUSTER)
class ResetMasterFlushOffset(Header):
    """Tell a slave how far its master is on disk."""

    master_flush_offset: Int64
