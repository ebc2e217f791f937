"""broker.conf: Apache's property names, and their effects in Kourou.

A property is one of three things: acted on (it has a place in `BrokerSettings`, `StoreSettings` or `ProcessSettings`),
known and without effect in Kourou (thread pools, buffers), or unknown. The last two are logged by name. `to_properties`
shows all of them, as `mqadmin getBrokerConfig` expects it. A value that promises a guarantee that Kourou does not give
(`UNKEPT`) is refused. A request may change the properties of a list (`HOT`), each within a range, and those without
effect. The list has no path, no address, nothing that could reach a shell or makes the broker delete messages, and no
limit that protects it: these need the configuration file. Values of secrets are not shown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final

from kourou.broker import access_values, property_values
from kourou.broker.known_properties import AUTH_TEXT, KNOWN_TEXT
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol.codes import MASTER_ID
from kourou.protocol.errors import KourouError
from kourou.store.settings import FlushMode, StoreSettings


class PropertyError(KourouError):
    """A property with an invalid value."""


class GuardedPropertyError(PropertyError):
    """A property that no request may change."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of the process: addresses, folders, limits, metrics."""

    bind_address: str = ""  # bindAddress
    name_servers: str = ""  # namesrvAddr: `host:port;host:port`
    name_servers_by_lookup: bool = False  # fetchNameSrvAddrByDnsLookup: each address behind such a name is one
    name_servers_in_tls: bool = False  # useTLS
    store_root: str = ""  # storePathRootDir
    commit_log: str = ""  # storePathCommitLog
    idle_seconds: int = 120  # serverChannelMaxIdleTimeSeconds
    plain_acl: bool = False  # aclEnable: the accounts in plain_acl.yml
    plain_acl_file: str = ""  # plainAclFile, ours; default: plain_acl.yml beside the configuration file
    migrate_plain_acl: bool = False  # migrateAuthFromV1Enabled
    users_key_file: str = ""  # usersKeyFile, ours: the key with which the file of users is sealed
    trusted_proxies: str = ""  # proxyProtocolTrusted, ours: addresses whose PROXY preambles are accepted
    ha_tls_mode: str = "disabled"  # haTlsMode, ours: TLS between brokers, on the HA port and in a Raft group
    ha_allowed_names: str = ""  # haAllowedNames, ours: names, one of which a peer's certificate has
    ha_secret_file: str = ""  # haSecretFile, ours: a secret that all brokers of a group have
    connections_max: int = 65_536  # maxConnections, ours
    connections_of_address: int = 16_384  # maxConnectionsPerAddress, ours
    in_flight_max: int = 65_536  # maxRequestsInFlight, ours: of one connection
    metrics_port: int = 5557  # metricsPromExporterPort, when metricsExporterType is PROM
    metrics_host: str = ""  # metricsPromExporterHost
    metrics_type: str = "DISABLE"  # metricsExporterType
    metrics_label: str = ""  # metricsLabel: `name:value,name:value`, which all figures bear
    request_metrics: bool = True  # enableRequestMetrics
    connection_metrics: bool = True  # enableConnectionMetrics
    lag_metrics: bool = True  # enableLagAndDlqMetrics
    stats_metrics: bool = True  # enableStatsMetrics
    remoting_metrics: bool = True  # enableRemotingMetrics
    transaction_metrics: bool = True  # enableTransactionMetrics
    store_metrics: bool = True  # enableMessageStoreMetrics


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings of a broker's process."""

    broker: BrokerSettings
    store: StoreSettings
    process: ProcessSettings
    given: Mapping[str, str]  # as they were written, to show or save them


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Place:
    part: str  # "broker", "store" or "process"
    name: str
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def _whole(low: int, high: int = 2**63 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"a number from {low} to {high} is expected")
        return number

    return read


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _show_flag(value: bool) -> str:
    return str(value).lower()


def _percent(text: str) -> float:
    return _whole(0, 100)(text) / 100


def _name(text: str) -> str:
    if not text or any(character in text for character in "/\\\0\n\x01\x02"):
        raise ValueError("a name is expected")
    return text


def _exporter(text: str) -> str:
    word = EXPORTERS[int(text)] if text in ("0", "1", "2", "3") else text.upper()
    if word not in EXPORTERS:
        raise ValueError(f"one of {', '.join(EXPORTERS)} is expected")
    return word


def _choice(kind: type[Role] | type[FlushMode]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"one of {', '.join(one.value for one in kind)} is expected") from None

    return read


EXPORTERS: Final = ("DISABLE", "OTLP_GRPC", "PROM", "LOG")
"""Apache's exporters of metrics; a file may have their numbers. PROM alone is here."""

_PORT = _whole(0, 65535)
_NATURAL = _whole(0, 2**31 - 1)
_POSITIVE = _whole(1, 2**31 - 1)
_LONG = _whole(0)


def _flags(part: str, **names: str) -> dict[str, _Place]:
    return {key: _Place(part, name, _flag, _show_flag) for key, name in names.items()}


def _numbers(part: str, read: Callable[[str], int], **names: str) -> dict[str, _Place]:
    return {key: _Place(part, name, read) for key, name in names.items()}


ACTED_ON: Final[dict[str, _Place]] = {
    "brokerClusterName": _Place("broker", "cluster", _name),
    "brokerName": _Place("broker", "name", _name),
    "brokerId": _Place("broker", "broker_id", _LONG),
    "brokerRole": _Place("broker", "role", _choice(Role), lambda role: str(role.value)),
    "brokerIP1": _Place("broker", "ip", str),
    "brokerIP2": _Place("broker", "ha_ip", str),
    "listenPort": _Place("broker", "port", _PORT),
    "haListenPort": _Place("broker", "ha_port", _PORT),
    "haMasterAddress": _Place("broker", "ha_master_address", property_values.address_or_none),
    "haAllowedPeers": _Place("broker", "ha_allowed_peers", property_values.networks),
    "controllerAddr": _Place("broker", "controllers", property_values.addresses),
    "brokerElectionPriority": _Place("broker", "election_priority", _NATURAL),
    **_flags("broker", enableDLegerCommitLog="raft", raftAdoptLog="raft_adopt"),
    **{key: _Place("broker", name, str) for key, name in property_values.RAFT_TEXTS.items()},
    "dLegerPeers": _Place("broker", "raft_peers", property_values.peers),
    **_numbers("broker", _POSITIVE, raftElectionTimeout="raft_election_ms", raftHeartbeatInterval="raft_heartbeat_ms"),
    "regionId": _Place("broker", "region", _name),
    "defaultMessageRequestMode": _Place("broker", "request_mode", property_values.request_mode),
    "brokerPermission": _Place("broker", "permission", _whole(0, 7)),
    "msgTraceTopicName": _Place("broker", "trace_topic_name", _name),
    "configBlackList": _Place("broker", "unchangeable", str),
    "authenticationWhitelist": _Place("broker", "unsigned_codes", access_values.codes, access_values.show_codes),
    "authorizationWhitelist": _Place("broker", "unruled_codes", access_values.codes, access_values.show_codes),
    "initAuthenticationUser": _Place(
        "broker", "first_user", access_values.user("username", "password"), access_values.show_user
    ),
    "innerClientAuthenticationCredentials": _Place(
        "broker", "inner_user", access_values.user("accessKey", "secretKey"), access_values.show_user
    ),
    **_flags(
        "broker",
        autoCreateTopicEnable="auto_create_topics",
        autoCreateSubscriptionGroup="auto_create_groups",
        clusterTopicEnable="cluster_topic",
        brokerTopicEnable="broker_topic",
        traceTopicEnable="trace_topic",
        traceOn="trace_on",
        storeReplyMessageEnable="store_replies",
        longPollingEnable="long_polling",
        slaveReadEnable="slave_read",
        enableSlaveActingMaster="slave_acting_master",
        litePullMessageEnable="lite_pull",
        rejectPullConsumerEnable="reject_pull_consumers",
        useServerSideResetOffset="server_side_reset",
        validateSystemTopicWhenUpdateTopic="guard_system_topics",
        enableMixedMessageType="mixed_topics",
        clearRetryTopicWhenDeleteTopic="delete_retry_topics",
        enableCreateSysGroup="create_system_groups",
        notifyConsumerIdsChangedEnable="notify_members",
        realTimeNotifyConsumerChange="notify_at_once",
        lockInStrictMode="strict_locks",
        serverLoadBalancerEnable="shares_queues",
        compressedRegister="register_compressed",
        enableSplitRegistration="register_split",
        enableScheduleMessageStats="count_delayed",
        disableConsumeIfConsumerReadSlowly="disable_slow_readers",
        rejectTransactionMessage="reject_transactions",
        authenticationEnabled="authenticates",
        authorizationEnabled="authorizes",
        enablePropertyFilter="property_filter",
        filterSupportRetry="filter_retries",
        enableAutoInSyncReplicas="auto_in_sync_replicas",
        enableControllerMode="controller_mode",
        allAckInSyncStateSet="all_in_sync",
        asyncLearner="is_learner",
        enableCalcFilterBitMap="filter_bit_map",
        timerWheelEnable="timers",
        timerStopEnqueue="timer_stop_enqueue",
        timerStopDequeue="timer_stop_dequeue",
        recallMessageEnable="recall",
        allowRecallWhenBrokerNotWriteable="recall_if_read_only",
        appendTopicForTimerDeleteKey="recall_by_topic",
    ),
    **_numbers(
        "broker",
        _POSITIVE,
        inSyncReplicas="in_sync_replicas",
        minInSyncReplicas="min_in_sync_replicas",
        totalReplicas="replicas_total",
        slaveTimeout="slave_timeout_ms",
        haSendHeartbeatInterval="ha_heartbeat_ms",
        haHousekeepingInterval="ha_silence_ms",
        haTransferBatchSize="ha_batch_size",
        haMaxGapNotInSync="ha_max_gap",
        maxHaConnections="ha_connections_max",
        haMaxTimeSlaveNotCatchup="ha_behind_ms",
        brokerHeartbeatInterval="controller_heartbeat_ms",
        controllerHeartBeatTimeoutMills="controller_alive_ms",
        syncControllerMetadataPeriod="controller_leader_ms",
        syncBrokerMetadataPeriod="controller_master_ms",
        maxAutoCreatedTopics="auto_topics_max",
        maxAutoCreatedGroups="auto_groups_max",
        maxTopics="topics_max",
        maxTopicsPerRequest="topics_per_request",
        maxQueues="queues_max",
        maxQueuesPerTopic="queues_per_topic",
        maxConsumerFilterMemory="filter_memory_max",
        maxQueuesPerRequest="queues_per_request",
        maxGroups="groups_max",
        maxGroupsPerRequest="groups_per_request",
        maxGroupsPerClient="groups_per_client",
        maxSubscriptionsPerClient="subscriptions_per_client",
        maxConsumerOffsets="offsets_max",
        maxMessagesPerBatch="batch_messages_max",
        maxJsonBodySize="json_size_max",
        maxJsonBodyObjects="json_objects_max",
        maxLooseBodySize="loose_size_max",
        maxDialectBodySize="dialect_size_max",
        maxConfigBodySize="config_size_max",
        maxLongRequests="long_requests_max",
        maxLongRequestMemory="long_memory_max",
        maxLongRequestTime="long_time_ms",
        defaultTopicQueueNums="default_topic_queues",
        reviveQueueNum="revive_queues",
        sendThreadPoolQueueCapacity="waiting_sends_max",
        pullThreadPoolQueueCapacity="held_pulls_max",
        shortPollingTimeMills="short_polling_ms",
        registerNameServerPeriod="register_interval_ms",
        registerBrokerTimeoutMills="register_timeout_ms",
        splitRegistrationSize="register_split_size",
        flushConsumerOffsetInterval="offsets_interval_ms",
        flushDelayOffsetInterval="delay_offsets_interval_ms",
        channelExpiredTimeout="client_timeout_ms",
        maxMsgsNumBatch="query_count_max",
        defaultQueryMaxNum="unique_query_count",
        transactionTimeOut="transaction_timeout_ms",
        transactionCheckInterval="transaction_check_interval_ms",
        transactionCheckMax="transaction_check_max",
        transactionOpBatchInterval="transaction_op_interval_ms",
        transactionMetricFlushInterval="transaction_counts_interval_ms",
        filterDataCleanTimeSpan="filter_clean_ms",
        timerMaxDelaySec="timer_max_delay_s",
        timerCongestNumEachSlot="timer_slot_max",
        timerFlushIntervalMs="timer_flush_ms",
    ),
    "timerRollWindowSlot": _Place("broker", "timer_roll_slots", property_values.roll_slots),
    "timerPrecisionMs": _Place("store", "timer_precision_ms", property_values.precision),
    "mappedFileSizeTimerLog": _Place("store", "timer_log_file_size", _whole(4096, 2**31 - 1)),
    "transactionOpMsgMaxSize": _Place("broker", "transaction_op_size", _whole(1, 1024**2)),
    "startAcceptSendRequestTimeStamp": _Place("broker", "accept_sends_from_ms", _LONG),
    "consumerFallbehindThreshold": _Place("broker", "slow_reader_bytes", _LONG),
    "maxErrorRateOfBloomFilter": _Place("broker", "bloom_error_percent", _whole(1, 99)),
    "expectConsumerNumUseFilter": _Place("broker", "bloom_expected", _whole(1, 10_000)),
    "bulkReadRatio": _Place("broker", "bulk_ratio", _whole(1, 100)),
    "accessMessageInMemoryMaxRatio": _Place("broker", "memory_ratio", _whole(0, 100)),
    "rocketmq.broker.rebalance.lockMaxLiveTime": _Place("broker", "lock_time_ms", _POSITIVE),
    "maxMessageSize": _Place("store", "max_body_size", _POSITIVE),
    **_flags(
        "store",
        enableConsumeQueueExt="queue_ext_enabled",
        messageIndexEnable="index_enabled",
        warmMapedFileEnable="warm_segments",
        enabledAppendPropCRC="record_crc",
        cleanFileForciblyEnable="force_clean_enabled",
        checkCRCOnRecover="check_crc",
        readUnCommitted="read_uncommitted",
    ),
    **_numbers(
        "store",
        _POSITIVE,
        maxHashSlotNum="index_slots",
        maxIndexNum="index_entries",
        mappedFileSizeConsumeQueueExt="queue_ext_file_size",
        flushIntervalCommitLog="flush_interval_ms",
        flushCommitLogThoroughInterval="flush_thorough_ms",
        flushIntervalConsumeQueue="queue_flush_interval_ms",
        flushConsumeQueueThoroughInterval="queue_flush_thorough_ms",
        syncFlushTimeout="sync_flush_timeout_ms",
        deleteFileBatchMax="delete_batch",
        cleanResourceInterval="clean_interval_ms",
        maxTransferCountOnMessageInMemory="memory_read_count",
        maxTransferBytesOnMessageInMemory="memory_read_size",
        maxTransferCountOnMessageInDisk="disk_read_count",
        maxTransferBytesOnMessageInDisk="disk_read_size",
        maxFilterMessageSize="filter_read_size",
    ),
    **_numbers(
        "store",
        _NATURAL,
        flushCommitLogLeastPages="flush_least_pages",
        flushConsumeQueueLeastPages="queue_flush_least_pages",
        fileReservedTime="reserved_hours",
    ),
    "mappedFileSizeCommitLog": _Place("store", "commit_log_file_size", _whole(4096, 2**31 - 1)),
    "mappedFileSizeConsumeQueue": _Place(
        "store",
        "queue_file_entries",
        lambda text: -(-_whole(20, 2**31 - 1)(text) // 20),
        lambda entries: str(entries * 20),
    ),
    "flushDiskType": _Place("store", "flush_mode", _choice(FlushMode), lambda mode: str(mode.value)),
    "deleteWhen": _Place("store", "delete_when", property_values.hours),
    "diskMaxUsedSpaceRatio": _Place("store", "max_used_ratio", _percent, property_values.percent_text),
    "diskSpaceCleanForciblyRatio": _Place("store", "force_clean_ratio", _percent, property_values.percent_text),
    "diskSpaceWarningLevelRatio": _Place("store", "full_ratio", _percent, property_values.percent_text),
    "messageDelayLevel": _Place("store", "delay_levels", property_values.levels),
    "bindAddress": _Place("process", "bind_address", str),
    "namesrvAddr": _Place("process", "name_servers", str),
    "storePathRootDir": _Place("process", "store_root", str),
    "storePathCommitLog": _Place("process", "commit_log", property_values.one_folder),
    "serverChannelMaxIdleTimeSeconds": _Place("process", "idle_seconds", _NATURAL),
    **{key: _Place("process", name, read) for key, (name, read) in property_values.PROTECTION.items()},
    "metricsExporterType": _Place("process", "metrics_type", _exporter),
    "metricsPromExporterPort": _Place("process", "metrics_port", _PORT),
    "metricsPromExporterHost": _Place("process", "metrics_host", str),
    "metricsLabel": _Place("process", "metrics_label", property_values.labels),
    **_flags(
        "process",
        aclEnable="plain_acl",
        migrateAuthFromV1Enabled="migrate_plain_acl",
        fetchNameSrvAddrByDnsLookup="name_servers_by_lookup",
        useTLS="name_servers_in_tls",
        enableRequestMetrics="request_metrics",
        enableConnectionMetrics="connection_metrics",
        enableLagAndDlqMetrics="lag_metrics",
        enableStatsMetrics="stats_metrics",
        enableRemotingMetrics="remoting_metrics",
        enableTransactionMetrics="transaction_metrics",
        enableMessageStoreMetrics="store_metrics",
    ),
}
"""By property: the field that its value sets."""

_MINUTE_MS: Final = 60_000
_FLAG: Final = None  # true or false, or a word: no range

HOT: Final[dict[str, tuple[int, int] | None]] = {
    "brokerPermission": (0, 7),
    "autoCreateTopicEnable": _FLAG,
    "autoCreateSubscriptionGroup": _FLAG,
    "bulkReadRatio": (1, 100),
    "defaultTopicQueueNums": (1, 1_024),
    "storeReplyMessageEnable": _FLAG,
    "longPollingEnable": _FLAG,
    "shortPollingTimeMills": (1, _MINUTE_MS),
    "slaveReadEnable": _FLAG,
    "litePullMessageEnable": _FLAG,
    "rejectPullConsumerEnable": _FLAG,
    "useServerSideResetOffset": _FLAG,
    "enableMixedMessageType": _FLAG,
    "clearRetryTopicWhenDeleteTopic": _FLAG,
    "enableCreateSysGroup": _FLAG,
    "notifyConsumerIdsChangedEnable": _FLAG,
    **dict.fromkeys(("serverLoadBalancerEnable", "defaultMessageRequestMode"), _FLAG),
    "realTimeNotifyConsumerChange": _FLAG,
    "compressedRegister": _FLAG,
    "enableSplitRegistration": _FLAG,
    "splitRegistrationSize": (100, 100_000),
    "enableScheduleMessageStats": _FLAG,
    "disableConsumeIfConsumerReadSlowly": _FLAG,
    "enablePropertyFilter": _FLAG,
    "filterSupportRetry": _FLAG,
    "enableCalcFilterBitMap": _FLAG,
    "consumerFallbehindThreshold": (1024**3, 2**63 - 1),
    "rejectTransactionMessage": _FLAG,
    "timerStopEnqueue": _FLAG,
    "timerStopDequeue": _FLAG,
    "timerMaxDelaySec": (1, 7 * 86_400),
    "timerCongestNumEachSlot": (1, 2**31 - 1),
    "timerFlushIntervalMs": (10, _MINUTE_MS),
    "recallMessageEnable": _FLAG,
    "allowRecallWhenBrokerNotWriteable": _FLAG,
    "transactionTimeOut": (100, 60 * _MINUTE_MS),
    "transactionCheckInterval": (100, 60 * _MINUTE_MS),
    "transactionCheckMax": (1, 10_000),
    "transactionOpMsgMaxSize": (1, 64 * 1024),
    "transactionOpBatchInterval": (1, _MINUTE_MS),
    "maxMsgsNumBatch": (1, 1_000),
    "defaultQueryMaxNum": (1, 1_000),
    "sendThreadPoolQueueCapacity": (100, 1_000_000),
    "pullThreadPoolQueueCapacity": (100, 1_000_000),
    "startAcceptSendRequestTimeStamp": (0, 2**63 - 1),
    "registerNameServerPeriod": (10_000, _MINUTE_MS),
    "flushIntervalCommitLog": (1, 10_000),
    "flushCommitLogLeastPages": (0, 1_024),
    "flushCommitLogThoroughInterval": (1, _MINUTE_MS),
    "flushIntervalConsumeQueue": (1, _MINUTE_MS),
    "flushConsumeQueueLeastPages": (0, 1_024),
    "flushConsumeQueueThoroughInterval": (1, 10 * _MINUTE_MS),
    "syncFlushTimeout": (100, _MINUTE_MS),
    "maxTransferCountOnMessageInMemory": (1, 1_024),
    "maxTransferBytesOnMessageInMemory": (4 * 1024, 4 * 1024**2),
    "maxTransferCountOnMessageInDisk": (1, 1_024),
    "maxTransferBytesOnMessageInDisk": (4 * 1024, 4 * 1024**2),
    "maxFilterMessageSize": (20, 1024**2),
    "readUnCommitted": _FLAG,
}
"""Properties with an effect that a request may change while the broker runs, and their ranges."""

SECRET: Final = re.compile(r"(?i)password|secret|credential|token|accesskey|exporterheader|authenticationuser$")
"""Properties whose values no answer shows."""

HIDDEN: Final = access_values.HIDDEN

_GUARDED: Final = re.compile(r"(?i)path|dir$|home|addr|host|proxy|target|url|^tls\.|passw|creden|provid|user$|acl|auth")
"""Properties that requests can't change even if they have no effect here: another broker may read the file later."""

UNKEPT: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "storeType": (lambda text: text != "default", "the store supports only the file format `default`"),
    "configManagerVersion": (lambda text: text != "v1", "topics, groups and offsets support only the file format `v1`"),
    "messageStorePlugIn": (bool, "plug-ins of the store, and data that they keep elsewhere, are not supported"),
    "readOnlyCommitLogStorePaths": (bool, "a log in several folders is not supported"),
}
"""Values that promise a guarantee that Kourou does not give, and the reasons."""


@cache
def known() -> dict[str, tuple[str, str]]:
    """Apache's properties that a broker shows: kind (bool, int, float, str) and default."""
    return _parsed(KNOWN_TEXT)


@cache
def known_unshown() -> dict[str, tuple[str, str]]:
    """Properties that it shows only if they were given."""
    return _parsed(AUTH_TEXT)


def _parsed(text: str) -> dict[str, tuple[str, str]]:
    table: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        kind, name, *default = line.split(" ", 2)
        table[name] = kind, default[0] if default else ""
    return table


def _known(key: str) -> tuple[str, str] | None:
    return known().get(key) or known_unshown().get(key)


def is_apaches(key: str) -> bool:
    """Does Apache's broker know this key, too?"""
    return _known(key) is not None


def is_property(key: str) -> bool:
    """Does any broker know this key?"""
    return key in ACTED_ON or _known(key) is not None


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def configure(defaults: Configuration, properties: Mapping[str, str]) -> Configuration:
    """The defaults with these properties. Raises PropertyError, which names the property.

    Unknown ones are ignored: `unknown_keys` names them.
    """
    changes: dict[str, dict[str, Any]] = {"broker": {}, "store": {}, "process": {}}
    for key, text in properties.items():
        text = text.strip()
        place = ACTED_ON.get(key)
        if place is not None:
            changes[place.part][place.name] = _read(key, place.read, text)
        elif (kind_and_default := _known(key)) is not None:
            _check_kind(key, kind_and_default[0], text)
        if key in UNKEPT:
            broken, why = UNKEPT[key]
            if broken(text):
                raise PropertyError(f"{key}={text}: {why}; remove the property to run without")
    broker = replace(defaults.broker, **changes["broker"])
    store = replace(defaults.store, **changes["store"])
    broker = replace(broker, max_body_size=store.max_body_size)
    if broker.raft and "enableDLegerCommitLog" in properties:
        broker = _read("enableDLegerCommitLog", lambda _: property_values.in_group(broker), "true")
    elif broker.role is not Role.SLAVE:
        broker = replace(broker, broker_id=MASTER_ID)  # whatever was given
    problem = broker.problem_of_role
    if problem is not None:
        raise PropertyError(problem)
    process = replace(defaults.process, **changes["process"])
    problem = access_values.problem(broker.authenticates, broker.authorizes, uses_plain_acl=process.plain_acl)
    if problem is not None:
        raise PropertyError(problem)
    return Configuration(broker, store, process, {**defaults.given, **properties})


def _read(key: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        why = str(error).removeprefix(f"{key}={text}: ")
        expected = why if "expected" in why else "a whole number is expected"
        given = HIDDEN if SECRET.search(key) else text
        raise PropertyError(f"{key}={given}: {expected}") from None


def _check_kind(key: str, kind: str, text: str) -> None:
    if kind == "bool":
        _read(key, _flag, text)
    elif kind == "int":
        _read(key, int, text)
    elif kind == "float":
        try:
            float(text)
        except ValueError:
            raise PropertyError(f"{key}={text}: a number is expected") from None


def unknown_keys(properties: Mapping[str, str]) -> list[str]:
    """Keys that no broker knows, for a warning. TLS keys are read elsewhere."""
    return [key for key in properties if not is_property(key) and not key.startswith("tls.")]


def unused_keys(properties: Mapping[str, str]) -> list[str]:
    """Known keys without effect here whose value is not the default."""
    return [
        key
        for key, text in properties.items()
        if key not in ACTED_ON and (found := _known(key)) is not None and text.strip() != found[1]
    ]


def to_properties(configuration: Configuration) -> dict[str, str]:
    """All properties as Apache shows them, sorted."""
    shown = {key: default for key, (_, default) in known().items()}
    shown.update({key: text for key, text in configuration.given.items() if _known(key)})
    parts = {"broker": configuration.broker, "store": configuration.store, "process": configuration.process}
    unshown = known_unshown().keys() - configuration.given.keys()
    for key, place in ACTED_ON.items():
        if key not in unshown:
            shown[key] = place.show(getattr(parts[place.part], place.name))
    return {key: HIDDEN if text and SECRET.search(key) else text for key, text in sorted(shown.items())}


def change(configuration: Configuration, properties: Mapping[str, str]) -> Configuration:
    """The settings with the changes of a request: all of them, or none. Raises PropertyError."""
    secrets = [key for key in properties if SECRET.search(key)]
    changed = configuration if secrets else configure(configuration, properties)
    for key in secrets or properties:
        if not is_property(key):
            raise PropertyError(f"{key} is not a property of a broker; getBrokerConfig lists them")
        if (key in ACTED_ON and key not in HOT) or _GUARDED.search(key) or SECRET.search(key):
            raise GuardedPropertyError(f"{key} can't change while the broker runs: change broker.conf, and restart")
        range_ = HOT.get(key)
        if range_ is not None and not range_[0] <= int(properties[key]) <= range_[1]:
            raise PropertyError(
                f"{key}={properties[key].strip()}: a request may set {range_[0]} to {range_[1]}; "
                "other values need broker.conf, and a restart"
            )
    return changed


def apply(settings: BrokerSettings, changed: BrokerSettings) -> None:
    """Copy the values into the settings object that all parts of a broker share."""
    for field in fields(settings):
        setattr(settings, field.name, getattr(changed, field.name))
