"""Clients: their reports to brokers, and the reports of brokers about them."""

from msgspec import field

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.java import Int32, Int64
from kourou.protocol.message import MessageQueue


class SubscriptionData(Body):
    """Which messages of a topic a group receives. `sub_version` is the time of the subscription in ms."""

    topic: str | None = None
    sub_string: str | None = None
    tags_set: list[str] = always(list)
    code_set: list[Int32] = always(list)
    """Java's hash of each tag."""
    sub_version: Int64 = always(0)
    expression_type: str = always("TAG")
    class_filter_mode: bool = always(False)


class ProducerData(Body):
    """A producer group of a client."""

    group_name: str | None = None


class ConsumerData(Body):
    """A consumer group of a client. The three modes are the names of Java's constants."""

    group_name: str | None = None
    consume_type: str | None = None
    """CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP."""
    message_model: str | None = None
    """CLUSTERING or BROADCASTING."""
    consume_from_where: str | None = None
    """CONSUME_FROM_LAST_OFFSET, CONSUME_FROM_FIRST_OFFSET or CONSUME_FROM_TIMESTAMP."""
    subscription_data_set: list[SubscriptionData] = always(list)
    unit_mode: bool = always(False)


class HeartbeatData(Body):
    """A client's heartbeat, with its groups.

    With `without_sub` the subscriptions are omitted: they are those of the last full heartbeat, which
    `heartbeat_fingerprint` is a hash of.
    """

    client_id: str | None = field(name="clientID", default=None)
    producer_data_set: list[ProducerData] = always(list)
    consumer_data_set: list[ConsumerData] = always(list)
    heartbeat_fingerprint: Int32 = always(0)
    without_sub: bool = always(False)


class Connection(Body):
    """A client as a broker sees it."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = always(0)


class ConsumerConnection(Body):
    """The clients of a consumer group, and the group's subscriptions."""

    connection_set: list[Connection] = always(list)
    subscription_table: dict[str, SubscriptionData] = always(dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body):
    """The clients of a producer group."""

    connection_set: list[Connection] = always(list)


class ProducerInfo(Body):
    """A producer as a broker sees it."""

    client_id: str | None = None
    remote_ip: str | None = field(name="remoteIP", default=None)
    language: str | None = None
    version: Int32 = always(0)
    last_update_timestamp: Int64 = always(0)


class ProducerTableInfo(Body):
    """All producers of a broker, by group."""

    data: dict[str, list[ProducerInfo]] = always(dict)


class GetConsumerListByGroupResponseBody(Body):
    """The ids of a group's consumers."""

    consumer_id_list: list[str] = always(list)


class GroupList(Body):
    """Names of groups."""

    group_list: list[str] = always(list)


class QuerySubscriptionResponseBody(Body):
    """A group's subscription to a topic."""

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class CheckClientRequestBody(Body):
    """A subscription to check before it is used."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class LockBatchRequestBody(Body):
    """Queues that an orderly consumer asks to lock."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = always(False)
    mq_set: list[MessageQueue] = always(list)


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Queues that it unlocks."""


class LockBatchResponseBody(Body):
    """The queues that were locked."""

    locked: list[MessageQueue] = always(list, name="lockOKMQSet")


class QueryAssignmentRequestBody(Body):
    """A client asks the broker which queues are assigned to it."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: str | None = None


class MessageQueueAssignment(Body):
    """A queue, and whether to pull or pop from it."""

    message_queue: MessageQueue | None = None
    mode: str = always("PULL")
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """The queues assigned to a client."""

    message_queue_assignments: list[MessageQueueAssignment] = always(list)


class SetMessageRequestModeRequestBody(Body):
    """Whether a group pulls (PULL) or pops (POP) from a topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: str = always("PULL")
    pop_share_queue_num: Int32 = always(0)


class MessageRequestModeSerializeWrapper(Body):
    """A broker's file of request modes, by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = always(dict)


class BatchAck(Body):
    """Acknowledged messages of one pop checkpoint."""

    consumer_group: str | None = field(name="c", default=None)
    topic: str | None = field(name="t", default=None)
    retry: str | None = field(name="r", default=None)
    """"1" if the messages came from the group's retry topic."""
    start_offset: Int64 = always(0, name="so")
    queue_id: Int32 = always(0, name="q")
    revive_queue_id: Int32 = always(0, name="rq")
    pop_time: Int64 = always(0, name="pt")
    invisible_time: Int64 = always(0, name="it")
    bit_set: bytes | None = field(name="b", default=None)
    """Bit n is the message at start_offset + n; the lowest bit of the first byte is n = 0. Base64 on the wire."""


class BatchAckMessageRequestBody(Body):
    """Acknowledgements of many messages on one broker."""

    broker_name: str | None = None
    acks: list[BatchAck] = always(list)
