"""Replication, users and access rules, lite topics: bodies between brokers, controllers and admins."""

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.consumption import OffsetWrapper, TopicOffset
from kourou.protocol.bodies.routes import BrokerMemberGroup
from kourou.protocol.java import Int32, Int64

# ------------------------------------------------------------------------------------------------------- replication


class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: Int64 = always(0)
    diff: Int64 = always(0)
    in_sync: bool = always(False)
    transferred_byte_in_second: Int64 = always(0)
    transfer_from_where: Int64 = always(0)


class HAClientRuntimeInfo(Body):
    """A slave as it sees itself."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = always(0)
    max_offset: Int64 = always(0)
    last_read_timestamp: Int64 = always(0)
    last_write_timestamp: Int64 = always(0)
    master_flush_offset: Int64 = always(0)


class HARuntimeInfo(Body):
    """The state of replication, on a master or on a slave."""

    master: bool = always(False)
    master_commit_log_max_offset: Int64 = always(0)
    in_sync_slave_nums: Int32 = always(0)
    ha_connection_info: list[HAConnectionRuntimeInfo] = always(list)
    ha_client_runtime_info: HAClientRuntimeInfo = always(HAClientRuntimeInfo)


class SyncStateSet(Body):
    """The ids of the brokers that are in sync: they have all acknowledged messages."""

    sync_state_set: list[Int64] = always(list)
    sync_state_set_epoch: Int32 = always(0)


class EpochEntry(Body):
    """The range of the log that one master wrote."""

    epoch: Int32 = always(0)
    start_offset: Int64 = always(0)
    end_offset: Int64 = always(2**63 - 1)


class EpochEntryCache(Body):
    """All epochs in the log of one broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = always(0)
    epoch_list: list[EpochEntry] = always(list)
    max_offset: Int64 = always(0)


class ReplicaIdentity(Body):
    """A replica as a controller sees it."""

    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    alive: bool | None = None


class ReplicasInfo(Body):
    """The replicas of one broker group."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    in_sync_replicas: list[ReplicaIdentity] = always(list)
    not_in_sync_replicas: list[ReplicaIdentity] = always(list)


class BrokerReplicasInfo(Body):
    """The replicas of several broker groups, by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = always(dict)


class ElectMasterResponseBody(Body):
    """A broker group after an election."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = always(list)


# ------------------------------------------------------------------------------------------------------------ access


class UserInfo(Body):
    """A user. `user_type` is Super or Normal, `user_status` enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body):
    """Actions that are allowed or denied on a resource, from some addresses."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """Entries of one policy type, Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """All policies of one subject, such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


# ------------------------------------------------------------------------------------------------------- lite topics


class OffsetOption(Body):
    """Where a lite subscription begins: `type` is POLICY, OFFSET, TAIL_N or TIMESTAMP."""

    type: str | None = None
    value: Int64 = always(0)


class LiteSubscriptionDTO(Body):
    """A change of a client's subscriptions to lite topics.

    `action` is PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD or COMPLETE_REMOVE.
    """

    action: str | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: Int64 = always(0)


class LiteSubscriptionCtlRequestBody(Body):
    """Several changes of lite subscriptions."""

    subscription_set: list[LiteSubscriptionDTO] = always(list)


class GetBrokerLiteInfoResponseBody(Body):
    """How many lite topics a broker has."""

    store_type: str | None = None
    max_lmq_num: Int32 = always(0)
    current_lmq_num: Int32 = always(0)
    lite_subscription_count: Int32 = always(0)
    order_info_count: Int32 = always(0)
    cq_table_size: Int32 = always(0)
    offset_table_size: Int32 = always(0)
    event_map_size: Int32 = always(0)
    topic_meta: dict[str, Int32] | None = None
    group_meta: dict[str, list[str]] | None = None


class GetParentTopicInfoResponseBody(Body):
    """The parent topic of lite topics."""

    topic: str | None = None
    ttl: Int32 = always(0)
    groups: list[str] | None = None
    lmq_num: Int32 = always(0)
    lite_topic_count: Int32 = always(0)


class ClientGroup(Body):
    """A client and its group."""

    client_id: str | None = None
    group: str | None = None


class GetLiteTopicInfoResponseBody(Body):
    """One lite topic."""

    parent_topic: str | None = None
    lite_topic: str | None = None
    subscriber: list[ClientGroup] | None = None
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = always(False)


class GetLiteClientInfoResponseBody(Body):
    """One client of lite topics."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    last_access_time: Int64 = always(0)
    last_consume_time: Int64 = always(0)
    lite_topic_count: Int32 = always(0)
    lite_topic_set: list[str] | None = None


class LiteLagInfo(Body):
    """The lag of a group in one lite topic."""

    lite_topic: str | None = None
    lag_count: Int64 = always(0)
    earliest_unconsumed_timestamp: Int64 = always(-1)


class GetLiteGroupInfoResponseBody(Body):
    """The lag of a group in its lite topics."""

    group: str | None = None
    parent_topic: str | None = None
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: Int64 = always(-1)
    total_lag_count: Int64 = always(0)
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] | None = None
    lag_timestamp_top_k: list[LiteLagInfo] | None = None
