"""Requests from admins to brokers about topics, groups and clients."""

from msgspec import field

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CREATE,
    DELETE,
    GET,
    LIST,
    READ_CLUSTER,
    UPDATE,
    Direction,
    Header,
    Int32,
    Resource,
    needs,
    request,
    request_without_header,
)

_BROKER = Direction.ADMIN_TO_BROKER
_PEER = Direction.BROKER_TO_BROKER


# --------------------------------------------------------------------------------------------------------------- topics


@request(RequestCode.UPDATE_AND_CREATE_TOPIC, _BROKER, access=needs(CREATE, "topic"))
@request(
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    _BROKER,
    access=needs(CREATE, "topic"),
    body=bodies.TopicQueueMappingDetail,
)
class CreateTopic(Header):
    """Create or update a topic. `attributes` is `+key=value,-key`: set and remove."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = False


request_without_header(
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    _BROKER,
    "Create or update several topics.",
    access=needs(CREATE, in_body=True),
    body=bodies.CreateTopicListRequestBody,
)


@request(RequestCode.DELETE_TOPIC_IN_BROKER, _BROKER, access=needs(DELETE, "topic"))
class DeleteTopicInBroker(Header):
    """Delete a topic and its messages from one broker."""

    topic: str


class GetAllTopicConfigAnswer(Header):
    """The total number of topics, if the answer has only some of them."""

    total_topic_num: Int32 | None = None


@request(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    _PEER,
    access=needs(GET | LIST, Resource.TOPIC),
    answer=GetAllTopicConfigAnswer,
    answer_body=bodies.TopicConfigAndMappingSerializeWrapper,
)
class GetAllTopicConfig(Header):
    """Get all topics of a broker; since 5.5 in parts, starting with the topic number `topic_seq`."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@request(
    RequestCode.GET_TOPIC_CONFIG,
    _BROKER,
    access=needs(GET, "topic"),
    answer_body=bodies.TopicConfigAndQueueMapping,
)
class GetTopicConfig(Header):
    """Get one topic; `logical` asks for its static mapping."""

    topic: str
    logical: bool | None = field(name="lo", default=None)


@request(
    RequestCode.GET_TOPIC_STATS_INFO,
    _BROKER,
    access=needs(GET, "topic"),
    answer_body=bodies.TopicStatsTable,
)
class GetTopicStatsInfo(Header):
    """Get the offsets of a topic's queues."""

    topic: str


request_without_header(
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    _BROKER,
    "List a broker's system topics.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)


# --------------------------------------------------------------------------------------------------------------- groups


request_without_header(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    _BROKER,
    "Create or update a consumer group.",
    access=needs(CREATE, in_body=True),
    body=bodies.SubscriptionGroupConfig,
)
request_without_header(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    _BROKER,
    "Create or update several consumer groups.",
    access=needs(CREATE, in_body=True),
    body=bodies.SubscriptionGroupList,
)


class GetAllSubscriptionGroupAnswer(Header):
    """The total number of groups, if the answer has only some of them."""

    total_group_num: Int32 | None = None


@request(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    _PEER,
    access=needs(GET | LIST, Resource.GROUP),
    answer=GetAllSubscriptionGroupAnswer,
    answer_body=bodies.SubscriptionGroupWrapper,
)
class GetAllSubscriptionGroup(Header):
    """Get all groups of a broker; since 5.5 in parts, starting with the group number `group_seq`."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@request(
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    _BROKER,
    access=needs(GET, "group"),
    answer_body=bodies.SubscriptionGroupConfig,
)
class GetSubscriptionGroupConfig(Header):
    """Get one group."""

    group: str


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP, _BROKER, access=needs(DELETE, "group_name"))
class DeleteSubscriptionGroup(Header):
    """Delete a group and, optionally, its offsets."""

    group_name: str
    clean_offset: bool = False


@request(
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    _BROKER,
    access=needs(UPDATE, "group", "topic"),
    answer_body=bodies.GroupForbidden,
)
class UpdateGroupForbidden(Header):
    """Forbid or allow a group to read a topic; without `readable`, get the setting."""

    group: str
    topic: str
    readable: bool | None = None


# -------------------------------------------------------------------------------------------------------------- clients


@request(
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    _BROKER,
    access=needs(GET, "consumer_group"),
    answer_body=bodies.ConsumerConnection,
)
class GetConsumerConnectionList(Header):
    """Get the consumers of a group."""

    consumer_group: str


@request(
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    _BROKER,
    access=READ_CLUSTER,
    answer_body=bodies.ProducerConnection,
)
class GetProducerConnectionList(Header):
    """Get the producers of a group."""

    producer_group: str


request_without_header(
    RequestCode.GET_ALL_PRODUCER_INFO,
    _BROKER,
    "Get all producers.",
    access=READ_CLUSTER,
    answer_body=bodies.ProducerTableInfo,
)
