"""Requests from brokers and admins to controllers, which elect masters, and from controllers to brokers."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    GET,
    PROPERTIES,
    READ_CLUSTER,
    UPDATE,
    Direction,
    Header,
    Int32,
    Int64,
    needs,
    request,
    request_without_header,
)

_CONTROLLER = Direction.TO_CONTROLLER


class AlterSyncStateSetAnswer(Header):
    """The epoch of the new set."""

    new_sync_state_set_epoch: Int32 = 0


@request(
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    _CONTROLLER,
    access=CHANGE_CLUSTER,
    body=bodies.SyncStateSet,
    answer=AlterSyncStateSetAnswer,
    answer_body=bodies.SyncStateSet,
)
class AlterSyncStateSet(Header):
    """A master reports which replicas have all messages that it has acknowledged."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 = 0


class ElectMasterAnswer(Header):
    """The master of the group."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@request(
    RequestCode.CONTROLLER_ELECT_MASTER,
    _CONTROLLER,
    access=needs(UPDATE, "cluster_name"),
    answer=ElectMasterAnswer,
    answer_body=bodies.ElectMasterResponseBody,
)
class ElectMaster(Header):
    """Elect a master of a broker group; with `designate_elect`, this broker."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool = False
    invoke_time: Int64 | None = None


class RegisterBrokerToControllerAnswer(Header):
    """The master of the group."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@request(
    RequestCode.CONTROLLER_REGISTER_BROKER,
    _CONTROLLER,
    access=needs(UPDATE, "cluster_name"),
    answer=RegisterBrokerToControllerAnswer,
    answer_body=bodies.SyncStateSet,
)
class RegisterBrokerToController(Header):
    """Register a broker that has an id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 = 0


class GetReplicaInfoAnswer(Header):
    """The master of the group."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@request(
    RequestCode.CONTROLLER_GET_REPLICA_INFO,
    _CONTROLLER,
    access=READ_CLUSTER,
    answer=GetReplicaInfoAnswer,
    answer_body=bodies.SyncStateSet,
)
class GetReplicaInfo(Header):
    """Get the master of a broker group."""

    broker_name: str | None = None


class GetMetadataAnswer(Header):
    """The controllers, and their leader."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


request_without_header(
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    _CONTROLLER,
    "Get the leader of the controllers.",
    access=READ_CLUSTER,
    answer=GetMetadataAnswer,
)
request_without_header(
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    _CONTROLLER,
    "Get the replicas of several broker groups.",
    access=READ_CLUSTER,
    body="list of broker names",
    answer_body=bodies.BrokerReplicasInfo,
)
request_without_header(
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    _CONTROLLER,
    "Change a controller's settings.",
    access=CHANGE_CLUSTER,
    body=PROPERTIES,
)
request_without_header(
    RequestCode.GET_CONTROLLER_CONFIG,
    _CONTROLLER,
    "Read a controller's settings.",
    access=READ_CLUSTER,
    answer_body=PROPERTIES,
)


@request(RequestCode.CLEAN_BROKER_DATA, _CONTROLLER, access=needs(UPDATE, "cluster_name"))
class CleanControllerBrokerData(Header):
    """Remove replicas of a broker group."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


class GetNextBrokerIdAnswer(Header):
    """The next free id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@request(
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    _CONTROLLER,
    access=needs(GET, "cluster_name"),
    answer=GetNextBrokerIdAnswer,
)
class GetNextBrokerId(Header):
    """Get the id that a new broker of this group may apply for."""

    cluster_name: str | None = None
    broker_name: str | None = None


class ApplyBrokerIdAnswer(Header):
    """The id was assigned to the broker."""

    cluster_name: str | None = None
    broker_name: str | None = None


@request(
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    _CONTROLLER,
    access=needs(UPDATE, "cluster_name"),
    answer=ApplyBrokerIdAnswer,
)
class ApplyBrokerId(Header):
    """A new broker applies for an id; `register_check_code` later proves that it is the same broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


# ---------------------------------------------------------------------------------------------- controller to broker


@request(
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    Direction.CONTROLLER_TO_BROKER,
    access=CHANGE_CLUSTER,
    body=bodies.SyncStateSet,
)
class NotifyBrokerRoleChanged(Header):
    """Tell a broker that its group has a new master."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


request_without_header(
    RequestCode.GET_BROKER_EPOCH_CACHE,
    Direction.ADMIN_TO_BROKER,
    "Get the epochs of the log: which master wrote which range.",
    access=READ_CLUSTER,
    answer_body=bodies.EpochEntryCache,
)


@request(RequestCode.PROMOTE_BROKER, Direction.ADMIN_TO_BROKER, access=CHANGE_CLUSTER)
class PromoteBroker(Header):
    """Kourou's own: make a slave the master of its group. `force`: even if messages may be lost."""

    force: bool | None = None


@request(RequestCode.DEMOTE_BROKER, Direction.ADMIN_TO_BROKER, access=CHANGE_CLUSTER)
class DemoteBroker(Header):
    """Kourou's own: make a master a slave. `force`: even if no slave has all messages."""

    broker_id: Int64 | None = None
    force: bool | None = None
