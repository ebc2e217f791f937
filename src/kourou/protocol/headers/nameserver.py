"""Requests from clients, admins and brokers to a name server, and its one request to brokers."""

from msgspec import field

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    GET,
    LIST,
    PROPERTIES,
    PUB,
    READ_CLUSTER,
    SUB,
    UPDATE,
    Direction,
    Header,
    Int32,
    Int64,
    Resource,
    needs,
    request,
    request_without_header,
)

_CLIENT = Direction.CLIENT_TO_NAMESERVER
_BROKER = Direction.BROKER_TO_NAMESERVER

# ------------------------------------------------------------------------------------------------------------ routes


@request(
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    _CLIENT,
    access=needs(PUB | SUB | GET, "topic"),
    answer_body=bodies.TopicRouteData,
)
class GetRouteInfo(Header):
    """Get the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


request_without_header(
    RequestCode.GET_BROKER_CLUSTER_INFO,
    _CLIENT,
    "Get all brokers and clusters.",
    access=READ_CLUSTER,
    answer_body=bodies.ClusterInfo,
)


@request(
    RequestCode.GET_BROKER_MEMBER_GROUP,
    _CLIENT,
    access=needs(GET, "cluster_name"),
    answer_body=bodies.GetBrokerMemberGroupResponseBody,
)
class GetBrokerMemberGroup(Header):
    """Get the members of one broker group."""

    cluster_name: str
    broker_name: str


# ------------------------------------------------------------------------------------------------------------ topics

request_without_header(
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    _CLIENT,
    "List the names of all topics.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)
request_without_header(
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    _CLIENT,
    "List the topics named after clusters and brokers, and the address of one broker.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)
request_without_header(
    RequestCode.GET_UNIT_TOPIC_LIST,
    _CLIENT,
    "List the topics that belong to units.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)
request_without_header(
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    _CLIENT,
    "List the topics that units subscribe to.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)
request_without_header(
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    _CLIENT,
    "List the topics that units subscribe to and that belong to no unit.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)


@request(
    RequestCode.GET_TOPICS_BY_CLUSTER,
    _CLIENT,
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)
class GetTopicsByCluster(Header):
    """List the names of the topics of one cluster."""

    cluster: str


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV, _CLIENT, access=needs(UPDATE, "cluster_name"))
class DeleteTopicInNamesrv(Header):
    """Remove a topic, in one cluster or in all."""

    topic: str
    cluster_name: str | None = None


@request(
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    _CLIENT,
    access=CHANGE_CLUSTER,
    body=bodies.TopicRouteData,
)
class RegisterTopicInNamesrv(Header):
    """Add a topic with the queues in the body, without a registration by its broker."""

    topic: str


# ---------------------------------------------------------------------------------------------------------- settings


@request(RequestCode.PUT_KV_CONFIG, _CLIENT, access=CHANGE_CLUSTER)
class PutKVConfig(Header):
    """Set a value of a namespace."""

    namespace: str
    key: str
    value: str


class GetKVConfigAnswer(Header):
    """The value."""

    value: str | None = None


@request(RequestCode.GET_KV_CONFIG, _CLIENT, access=READ_CLUSTER, answer=GetKVConfigAnswer)
class GetKVConfig(Header):
    """Read a value of a namespace."""

    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG, _CLIENT, access=CHANGE_CLUSTER)
class DeleteKVConfig(Header):
    """Remove a value from a namespace."""

    namespace: str
    key: str


@request(
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    _CLIENT,
    access=READ_CLUSTER,
    answer_body=bodies.KVTable,
)
class GetKVListByNamespace(Header):
    """Read a whole namespace."""

    namespace: str


request_without_header(
    RequestCode.UPDATE_NAMESRV_CONFIG,
    _CLIENT,
    "Change the name server's own settings.",
    access=CHANGE_CLUSTER,
    body=PROPERTIES,
)
request_without_header(
    RequestCode.GET_NAMESRV_CONFIG,
    _CLIENT,
    "Read the name server's own settings.",
    access=READ_CLUSTER,
    answer_body=PROPERTIES,
)

# ------------------------------------------------------------------------------------------------- write permission


class WipeWritePermAnswer(Header):
    """The number of topics that were changed."""

    wipe_topic_count: Int32


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, _CLIENT, access=CHANGE_CLUSTER, answer=WipeWritePermAnswer)
class WipeWritePerm(Header):
    """Remove the write permission from all queues of a broker, so that producers use other brokers."""

    broker_name: str


class AddWritePermAnswer(Header):
    """The number of topics that were changed."""

    add_topic_count: Int32


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER, _CLIENT, access=CHANGE_CLUSTER, answer=AddWritePermAnswer)
class AddWritePerm(Header):
    """Restore the write permission of all queues of a broker."""

    broker_name: str


# ----------------------------------------------------------------------------------------------------------- brokers


class RegisterBrokerAnswer(Header):
    """The address of the master, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@request(
    RequestCode.REGISTER_BROKER,
    _BROKER,
    access=needs(UPDATE, "cluster_name"),
    body=bodies.RegisterBrokerBody,
    answer=RegisterBrokerAnswer,
    answer_body=bodies.KVTable,
)
class RegisterBroker(Header):
    """Register a broker with its topics; the answer has the settings of ordered topics.

    `body_crc32` is the CRC of the body as sent, with the sign bit cleared; 0 means unchecked.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


@request(RequestCode.UNREGISTER_BROKER, _BROKER, access=needs(UPDATE, "cluster_name"))
class UnregisterBroker(Header):
    """Remove a broker that is stopping."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionAnswer(Header):
    """Whether the broker should register again."""

    changed: bool


@request(
    RequestCode.QUERY_DATA_VERSION,
    _BROKER,
    access=needs(GET, "cluster_name"),
    body=bodies.DataVersion,
    answer=QueryDataVersionAnswer,
    answer_body=bodies.DataVersion,
)
class QueryDataVersion(Header):
    """Ask whether the broker's topics are known in the version of the body. Counts as a heartbeat."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@request(RequestCode.BROKER_HEARTBEAT, _BROKER, access=needs(UPDATE, "cluster_name"))
class BrokerHeartbeat(Header):
    """A broker's heartbeat; controllers also learn its offsets."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_millis: Int64 | None = field(name="heartbeatTimeoutMills", default=None)
    election_priority: Int32 | None = None


@request(
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    Direction.NAMESERVER_TO_BROKER,
    access=CHANGE_CLUSTER,
    one_way=True,
)
class NotifyMinBrokerIdChange(Header):
    """Tell a broker group that the member with the smallest id changed, or that a member left."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
