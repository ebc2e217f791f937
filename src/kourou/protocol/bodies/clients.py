"""What clients tell brokers of themselves, and what brokers and admins learn of clients."""

from msgspec import field

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.java import Int32, Int64
from kourou.protocol.message import MessageQueue


class SubscriptionData(Body):
    """Which messages of a topic a group wants. `sub_version` is the time in ms at which it said so."""

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
    """A client says that it is there, and for which groups.

    With `without_sub` the subscriptions are left out: they are those of the last whole heartbeat, whose content
    `heartbeat_fingerprint` is the hash of.
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
    """The clients of a consumer group, and what the group subscribes to."""

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
    """What a group subscribes to of a topic."""

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class CheckClientRequestBody(Body):
    """A subscription to be checked before it is used."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class LockBatchRequestBody(Body):
    """Queues that a client of an orderly group wants to have alone."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = always(False)
    mq_set: list[MessageQueue] = always(list)


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Queues that it gives back."""


class LockBatchResponseBody(Body):
    """Those that it got."""

    locked: list[MessageQueue] = always(list, name="lockOKMQSet")


class QueryAssignmentRequestBody(Body):
    """A client asks the broker which queues are its own."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: str | None = None


class MessageQueueAssignment(Body):
    """A queue, and whether to pull or to pop from it."""

    message_queue: MessageQueue | None = None
    mode: str = always("PULL")
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """The queues of a client."""

    message_queue_assignments: list[MessageQueueAssignment] = always(list)


class SetMessageRequestModeRequestBody(Body):
    """Whether a group pulls (PULL) or pops (POP) from a topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: str = always("PULL")
    pop_share_queue_num: Int32 = always(0)


class MessageRequestModeSerializeWrapper(Body):
    """A broker's file of these modes, by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = always(dict)


class BatchAck(Body):
    """Popped messages of one checkpoint that are done."""

    consumer_group: str | None = field(name="c", default=None)
    topic: str | None = field(name="t", default=None)
    retry: str | None = field(name="r", default=None)
    """"1" when the messages came from the group's retry topic."""
    start_offset: Int64 = always(0, name="so")
    queue_id: Int32 = always(0, name="q")
    revive_queue_id: Int32 = always(0, name="rq")
    pop_time: Int64 = always(0, name="pt")
    invisible_time: Int64 = always(0, name="it")
    bit_set: bytes | None = field(name="b", default=None)
    """Bit n is the message at start_offset + n; the lowest bit of the first byte is n = 0. Base64 on the wire."""


class BatchAckMessageRequestBody(Body):
    """Acknowledgements for many messages of one broker."""

    broker_name: str | None = None
    acks: list[BatchAck] = always(list)
