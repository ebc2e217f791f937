"""Requests from admins to brokers about settings, statistics and files."""

from msgspec import field

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
    Int64,
    needs,
    request,
    request_without_header,
)

_BROKER = Direction.ADMIN_TO_BROKER


request_without_header(
    RequestCode.UPDATE_BROKER_CONFIG,
    _BROKER,
    "Change a broker's settings.",
    access=CHANGE_CLUSTER,
    body=PROPERTIES,
)


class GetBrokerConfigAnswer(Header):
    """The version of the settings, a DataVersion as JSON."""

    version: str


request_without_header(
    RequestCode.GET_BROKER_CONFIG,
    _BROKER,
    "Read a broker's settings.",
    access=READ_CLUSTER,
    answer=GetBrokerConfigAnswer,
    answer_body=PROPERTIES,
)
request_without_header(
    RequestCode.GET_BROKER_RUNTIME_INFO,
    _BROKER,
    "Get a broker's runtime statistics.",
    access=READ_CLUSTER,
    answer_body=bodies.KVTable,
)


@request(
    RequestCode.VIEW_BROKER_STATS_DATA,
    _BROKER,
    access=READ_CLUSTER,
    answer_body=bodies.BrokerStatsData,
)
class ViewBrokerStatsData(Header):
    """Get one of a broker's counters, such as TOPIC_PUT_NUMS of a topic."""

    stats_name: str
    stats_key: str


for _code, _about in (
    (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "Delete consume queues whose messages have expired."),
    (RequestCode.CLEAN_UNUSED_TOPIC, "Delete unused topics."),
    (RequestCode.DELETE_EXPIRED_COMMITLOG, "Delete old files of the commit log now."),
):
    request_without_header(_code, _BROKER, _about, access=CHANGE_CLUSTER)

request_without_header(
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    _BROKER,
    "Limit how much cold data groups may read per second.",
    access=CHANGE_CLUSTER,
    body=PROPERTIES,
)
request_without_header(
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    _BROKER,
    "Remove the limit on cold data of a group.",
    access=CHANGE_CLUSTER,
    body="the name of a group",
)
request_without_header(
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    _BROKER,
    "Get the limits on cold data, and how much of them is used.",
    access=READ_CLUSTER,
    answer_body="JSON",
)


@request(RequestCode.SET_COMMITLOG_READ_MODE, _BROKER, access=CHANGE_CLUSTER)
class SetCommitLogReadMode(Header):
    """Tell the kernel how the commit log is read: madvise's 0 (normal) or 1 (random)."""

    mode: str | None = field(name="READ_AHEAD_MODE", default=None)


@request(RequestCode.SWITCH_TIMER_ENGINE, _BROKER, access=CHANGE_CLUSTER)
class SwitchTimerEngine(Header):
    """Choose how timer messages are stored: R (RocksDB) or F (files)."""

    engine_type: str | None = field(name="E_T", default=None)


@request(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _BROKER, access=needs(GET, "topic"), answer_body="JSON")
class CheckRocksdbCqWriteProgress(Header):
    """Compare the consume queues in files with those in RocksDB."""

    topic: str
    check_store_time: Int64 = 0


@request(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, _BROKER, access=READ_CLUSTER)
class ExportRocksDBConfigToJson(Header):
    """Write settings in RocksDB to JSON files. `config_type` lists them, separated by semicolons."""

    config_type: str


@request(RequestCode.ADD_BROKER, _BROKER, access=CHANGE_CLUSTER, body=PROPERTIES)
class AddBroker(Header):
    """Start another broker in a broker container."""

    config_path: str | None = None


@request(RequestCode.REMOVE_BROKER, _BROKER, access=needs(UPDATE, "broker_cluster_name"))
class RemoveBroker(Header):
    """Stop a broker in a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
