"""What admins ask brokers, and what a slave asks its master: settings, tables, statistics, housekeeping."""

from msgspec import field

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CREATE,
    DELETE,
    GET,
    LIST,
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

_BROKER = Direction.ADMIN_TO_BROKER
_PEER = Direction.BROKER_TO_BROKER

_READ_CLUSTER = needs(GET, Resource.CLUSTER)
_CHANGE_CLUSTER = needs(UPDATE, Resource.CLUSTER)

_PROPERTIES = "properties as text, `key=value` lines"

# ------------------------------------------------------------------------------------------------------------ topics


@request(RequestCode.UPDATE_AND_CREATE_TOPIC, _BROKER, access=needs(CREATE, "topic"))
@request(
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    _BROKER,
    access=needs(CREATE, "topic"),
    body=bodies.TopicQueueMappingDetail,
)
class CreateTopic(Header):
    """Make a topic, or change it. `attributes` is `+key=value,-key`: to set and to remove."""

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
    "Make or change several topics.",
    access=needs(CREATE, in_body=True),
    body=bodies.CreateTopicListRequestBody,
)


@request(RequestCode.DELETE_TOPIC_IN_BROKER, _BROKER, access=needs(DELETE, "topic"))
class DeleteTopicInBroker(Header):
    """Delete a topic and its messages from one broker."""

    topic: str


class GetAllTopicConfigAnswer(Header):
    """How many topics there are in all, when the answer is only a part."""

    total_topic_num: Int32 | None = None


@request(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    _PEER,
    access=needs(GET | LIST, Resource.TOPIC),
    answer=GetAllTopicConfigAnswer,
    answer_body=bodies.TopicConfigAndMappingSerializeWrapper,
)
class GetAllTopicConfig(Header):
    """All topics of a broker; since 5.5 in parts, from the topic with number `topic_seq` on."""

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
    """One topic; `logical` asks for its static mapping."""

    topic: str
    logical: bool | None = field(name="lo", default=None)


@request(
    RequestCode.GET_TOPIC_STATS_INFO,
    _BROKER,
    access=needs(GET, "topic"),
    answer_body=bodies.TopicStatsTable,
)
class GetTopicStatsInfo(Header):
    """The ends of a topic's queues."""

    topic: str


request_without_header(
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    _BROKER,
    "The topics that a broker needs for itself.",
    access=needs(LIST, Resource.TOPIC),
    answer_body=bodies.TopicList,
)

# ------------------------------------------------------------------------------------------------------------ groups

request_without_header(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    _BROKER,
    "Make a consumer group, or change it.",
    access=needs(CREATE, in_body=True),
    body=bodies.SubscriptionGroupConfig,
)
request_without_header(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    _BROKER,
    "Make or change several consumer groups.",
    access=needs(CREATE, in_body=True),
    body=bodies.SubscriptionGroupList,
)


class GetAllSubscriptionGroupAnswer(Header):
    """How many groups there are in all, when the answer is only a part."""

    total_group_num: Int32 | None = None


@request(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    _PEER,
    access=needs(GET | LIST, Resource.GROUP),
    answer=GetAllSubscriptionGroupAnswer,
    answer_body=bodies.SubscriptionGroupWrapper,
)
class GetAllSubscriptionGroup(Header):
    """All groups of a broker; since 5.5 in parts, from the group with number `group_seq` on."""

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
    """One group."""

    group: str


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP, _BROKER, access=needs(DELETE, "group_name"))
class DeleteSubscriptionGroup(Header):
    """Delete a group and, if wanted, its offsets."""

    group_name: str
    clean_offset: bool = False


@request(
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    _BROKER,
    access=needs(UPDATE, "group", "topic"),
    answer_body=bodies.GroupForbidden,
)
class UpdateGroupForbidden(Header):
    """Forbid a topic to a group, or allow it; without `readable`, ask which."""

    group: str
    topic: str
    readable: bool | None = None


# ----------------------------------------------------------------------------------------------------------- clients


@request(
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    _BROKER,
    access=needs(GET, "consumer_group"),
    answer_body=bodies.ConsumerConnection,
)
class GetConsumerConnectionList(Header):
    """The consumers of a group."""

    consumer_group: str


@request(
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    _BROKER,
    access=_READ_CLUSTER,
    answer_body=bodies.ProducerConnection,
)
class GetProducerConnectionList(Header):
    """The producers of a group."""

    producer_group: str


request_without_header(
    RequestCode.GET_ALL_PRODUCER_INFO,
    _BROKER,
    "All producers.",
    access=_READ_CLUSTER,
    answer_body=bodies.ProducerTableInfo,
)

# ------------------------------------------------------------------------------------------------------- consumption


@request(
    RequestCode.GET_CONSUME_STATS,
    _BROKER,
    access=needs(GET, "consumer_group", "topic", "topic_list"),
    answer_body=bodies.ConsumeStats,
)
class GetConsumeStats(Header):
    """How far a group is, in one topic, in several (joined by semicolons) or in all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@request(
    RequestCode.GET_BROKER_CONSUME_STATS,
    _BROKER,
    access=_READ_CLUSTER,
    answer_body=bodies.ConsumeStatsList,
)
class GetBrokerConsumeStats(Header):
    """How far all groups are, orderly ones or the others."""

    is_order: bool


@request(
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    _BROKER,
    access=needs(UPDATE, "group", "topic"),
    answer_body=bodies.ResetOffsetBody,
)
class InvokeBrokerToResetOffset(Header):
    """Set a group back or forward to a time (-1: to the end), or one queue to an offset."""

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


@request(
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    _BROKER,
    access=needs(GET, "topic", "group"),
    answer_body=bodies.GetConsumerStatusBody,
)
class InvokeBrokerToGetConsumerStatus(Header):
    """Ask the consumers of a group, or the one at `client_addr`, how far they are."""

    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, _BROKER, access=needs(GET, "topic"), answer_body=bodies.GroupList)
class QueryTopicConsumeByWho(Header):
    """The groups that consume a topic."""

    topic: str


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER, _BROKER, access=needs(GET, "group"), answer_body=bodies.TopicList)
class QueryTopicsByConsumer(Header):
    """The topics that a group consumes."""

    group: str


@request(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    _BROKER,
    access=needs(GET, "group", "topic"),
    answer_body=bodies.QuerySubscriptionResponseBody,
)
class QuerySubscriptionByConsumer(Header):
    """What a group subscribes to of a topic."""

    group: str
    topic: str | None = None


@request(
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    _BROKER,
    access=needs(GET, "topic", "group"),
    answer_body=bodies.QueryConsumeTimeSpanBody,
)
class QueryConsumeTimeSpan(Header):
    """When the messages that a group has and has not consumed were stored."""

    topic: str
    group: str


@request(
    RequestCode.QUERY_CORRECTION_OFFSET,
    _BROKER,
    access=needs(GET, "filter_groups", "compare_group", "topic"),
    answer_body=bodies.QueryCorrectionOffsetBody,
)
class QueryCorrectionOffset(Header):
    """The smallest offsets of a topic among groups, those in `filter_groups` (joined by commas) left out."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@request(RequestCode.CLONE_GROUP_OFFSET, _BROKER, access=needs(UPDATE, "dest_group", "topic"))
class CloneGroupOffset(Header):
    """Give one group the offsets of another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@request(
    RequestCode.QUERY_CONSUME_QUEUE,
    _BROKER,
    access=needs(GET, "topic", "consumer_group"),
    answer_body=bodies.QueryConsumeQueueResponseBody,
)
class QueryConsumeQueue(Header):
    """Entries of a consume queue."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, _BROKER, access=needs(UPDATE, "topic"))
class ResumeCheckHalfMessage(Header):
    """Ask again about a half message that was given up."""

    topic: str | None = None
    msg_id: str | None = None


request_without_header(
    RequestCode.POP_ROLLBACK,
    _BROKER,
    "Write what is popped and not acknowledged back to the log, before a downgrade.",
    access=_CHANGE_CLUSTER,
)

# ------------------------------------------------------------------------------------------------------------ broker

request_without_header(
    RequestCode.UPDATE_BROKER_CONFIG,
    _BROKER,
    "Change a broker's settings.",
    access=_CHANGE_CLUSTER,
    body=_PROPERTIES,
)


class GetBrokerConfigAnswer(Header):
    """The version of the settings, a DataVersion as JSON."""

    version: str


request_without_header(
    RequestCode.GET_BROKER_CONFIG,
    _BROKER,
    "Read a broker's settings.",
    access=_READ_CLUSTER,
    answer=GetBrokerConfigAnswer,
    answer_body=_PROPERTIES,
)
request_without_header(
    RequestCode.GET_BROKER_RUNTIME_INFO,
    _BROKER,
    "How a broker is.",
    access=_READ_CLUSTER,
    answer_body=bodies.KVTable,
)


@request(
    RequestCode.VIEW_BROKER_STATS_DATA,
    _BROKER,
    access=_READ_CLUSTER,
    answer_body=bodies.BrokerStatsData,
)
class ViewBrokerStatsData(Header):
    """One of a broker's counters, such as TOPIC_PUT_NUMS of a topic."""

    stats_name: str
    stats_key: str


for _code, _about in (
    (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "Delete consume queues whose messages are gone."),
    (RequestCode.CLEAN_UNUSED_TOPIC, "Delete topics that nobody uses."),
    (RequestCode.DELETE_EXPIRED_COMMITLOG, "Delete old files of the commit log now."),
):
    request_without_header(_code, _BROKER, _about, access=_CHANGE_CLUSTER)

request_without_header(
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    _BROKER,
    "Limit how much old data groups may read per second.",
    access=_CHANGE_CLUSTER,
    body=_PROPERTIES,
)
request_without_header(
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    _BROKER,
    "Lift such a limit.",
    access=_CHANGE_CLUSTER,
    body="the name of a group",
)
request_without_header(
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    _BROKER,
    "These limits, and how much is used.",
    access=_READ_CLUSTER,
    answer_body="JSON",
)


@request(RequestCode.SET_COMMITLOG_READ_MODE, _BROKER, access=_CHANGE_CLUSTER)
class SetCommitLogReadMode(Header):
    """Tell the kernel how the commit log is read: madvise's 0 (normal) or 1 (random)."""

    mode: str = field(name="READ_AHEAD_MODE")


@request(RequestCode.SWITCH_TIMER_ENGINE, _BROKER, access=_CHANGE_CLUSTER)
class SwitchTimerEngine(Header):
    """Choose how timer messages are kept: R (RocksDB) or F (files)."""

    engine_type: str = field(name="E_T")


@request(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _BROKER, access=needs(GET, "topic"), answer_body="JSON")
class CheckRocksdbCqWriteProgress(Header):
    """Compare the consume queues in files with those in RocksDB."""

    topic: str
    check_store_time: Int64 = 0


@request(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, _BROKER, access=_READ_CLUSTER)
class ExportRocksDBConfigToJson(Header):
    """Write settings that are in RocksDB to JSON files. `config_type` names them, joined by semicolons."""

    config_type: str


@request(RequestCode.ADD_BROKER, _BROKER, access=_CHANGE_CLUSTER, body=_PROPERTIES)
class AddBroker(Header):
    """Start one more broker in a container of several."""

    config_path: str | None = None


@request(RequestCode.REMOVE_BROKER, _BROKER, access=needs(UPDATE, "broker_cluster_name"))
class RemoveBroker(Header):
    """Stop a broker in such a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


# --------------------------------------------------------------------------------------------------- slave to master

request_without_header(
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    _PEER,
    "All consumer offsets.",
    access=_READ_CLUSTER,
    answer_body=bodies.ConsumerOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_DELAY_OFFSET,
    _PEER,
    "How far the delay levels are.",
    access=_READ_CLUSTER,
    answer_body=bodies.DelayOffsetSerializeWrapper,
)
request_without_header(
    RequestCode.GET_TIMER_CHECK_POINT,
    _PEER,
    "How far the timer is.",
    access=_READ_CLUSTER,
    answer_body="the timer's checkpoint file",
)
request_without_header(
    RequestCode.GET_TIMER_METRICS,
    _PEER,
    "What waits in the timer.",
    access=_READ_CLUSTER,
    answer_body=bodies.TimerMetricsSerializeWrapper,
)
request_without_header(
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    _PEER,
    "Which groups pop.",
    access=_READ_CLUSTER,
    answer_body=bodies.MessageRequestModeSerializeWrapper,
)


class ExchangeHAInfoAnswer(Header):
    """The same three of the master."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(RequestCode.EXCHANGE_BROKER_HA_INFO, _PEER, access=_CHANGE_CLUSTER, answer=ExchangeHAInfoAnswer)
class ExchangeHAInfo(Header):
    """Brokers of a group tell each other where the master is; None asks."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


request_without_header(
    RequestCode.GET_BROKER_HA_STATUS,
    _BROKER,
    "How replication goes.",
    access=_READ_CLUSTER,
    answer_body=bodies.HARuntimeInfo,
)


@request(RequestCode.RESET_MASTER_FLUSH_OFFSET, _BROKER, access=_CHANGE_CLUSTER)
class ResetMasterFlushOffset(Header):
    """Tell a slave how far its master is on disk."""

    master_flush_offset: Int64


# ---------------------------------------------------------------------------------------------------- users and rules


@request(RequestCode.AUTH_CREATE_USER, _BROKER, access=_CHANGE_CLUSTER, body=bodies.UserInfo)
class CreateUser(Header):
    """Make a user."""

    username: str | None = None


@request(RequestCode.AUTH_UPDATE_USER, _BROKER, access=_CHANGE_CLUSTER, body=bodies.UserInfo)
class UpdateUser(Header):
    """Change a user."""

    username: str | None = None


@request(RequestCode.AUTH_DELETE_USER, _BROKER, access=_CHANGE_CLUSTER)
class DeleteUser(Header):
    """Delete a user."""

    username: str | None = None


@request(RequestCode.AUTH_GET_USER, _BROKER, access=_READ_CLUSTER, answer_body=bodies.UserInfo)
class GetUser(Header):
    """One user."""

    username: str | None = None


@request(RequestCode.AUTH_LIST_USER, _BROKER, access=_READ_CLUSTER, answer_body="list of UserInfo")
class ListUsers(Header):
    """The users whose names contain a text."""

    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL, _BROKER, access=_CHANGE_CLUSTER, body=bodies.AclInfo)
class CreateAcl(Header):
    """Add rules for a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_UPDATE_ACL, _BROKER, access=_CHANGE_CLUSTER, body=bodies.AclInfo)
class UpdateAcl(Header):
    """Change the rules of a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_DELETE_ACL, _BROKER, access=_CHANGE_CLUSTER)
class DeleteAcl(Header):
    """Delete rules of a subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL, _BROKER, access=_READ_CLUSTER, answer_body=bodies.AclInfo)
class GetAcl(Header):
    """The rules of a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_LIST_ACL, _BROKER, access=_READ_CLUSTER, answer_body="list of AclInfo")
class ListAcls(Header):
    """The rules whose subject and resource contain these texts."""

    subject_filter: str | None = None
    resource_filter: str | None = None


# ------------------------------------------------------------------------------------------------------ light topics

request_without_header(
    RequestCode.GET_BROKER_LITE_INFO,
    _BROKER,
    "How many light topics a broker has.",
    access=_READ_CLUSTER,
    answer_body=bodies.GetBrokerLiteInfoResponseBody,
)


@request(
    RequestCode.GET_PARENT_TOPIC_INFO,
    _BROKER,
    access=needs(GET, "topic"),
    answer_body=bodies.GetParentTopicInfoResponseBody,
)
class GetParentTopicInfo(Header):
    """A topic under which light topics live."""

    topic: str


@request(
    RequestCode.GET_LITE_TOPIC_INFO,
    _BROKER,
    access=_READ_CLUSTER,
    answer_body=bodies.GetLiteTopicInfoResponseBody,
)
class GetLiteTopicInfo(Header):
    """One light topic."""

    parent_topic: str | None = None
    lite_topic: str | None = None


@request(
    RequestCode.GET_LITE_CLIENT_INFO,
    _BROKER,
    access=needs(GET, "group"),
    answer_body=bodies.GetLiteClientInfoResponseBody,
)
class GetLiteClientInfo(Header):
    """One client of light topics."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 1000


@request(
    RequestCode.GET_LITE_GROUP_INFO,
    _BROKER,
    access=needs(GET, "group"),
    answer_body=bodies.GetLiteGroupInfoResponseBody,
)
class GetLiteGroupInfo(Header):
    """How far behind a group is, in one light topic or where most."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


@request(RequestCode.TRIGGER_LITE_DISPATCH, _BROKER, access=needs(UPDATE, "group"))
class TriggerLiteDispatch(Header):
    """Look for messages that clients of light topics have not been told of."""

    group: str
    client_id: str | None = None
