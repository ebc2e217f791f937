"""broker.conf: Apache's property names, and what they mean here.

A property is one of three things: acted on (it has a place in `BrokerSettings`, `StoreSettings` or `ProcessSettings`),
known and without meaning here (thread pools, buffers), or unknown. Whoever reads a file is told of the last two by
name. `to_properties` shows all of them, as `mqadmin getBrokerConfig` expects it. A value that promises safety which is
not here (`UNKEPT`) is refused: a broker that starts without it would be worse than none.

A request may change the properties of a list (`HOT`), each within a range, and those without meaning. No path, no
address, nothing that could reach a shell is on the list, nothing that makes the broker delete messages, and no limit
that protects it: these need the configuration file. Values of secrets are not shown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from ipaddress import ip_network
from typing import Any, Final

from kourou.broker.known_properties import AUTH_TEXT, KNOWN_TEXT
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol.errors import KourouError
from kourou.store.retention import parse_hours
from kourou.store.settings import FlushMode, StoreSettings, delay_table


class PropertyError(KourouError):
    """A property with a value that makes no sense."""


class GuardedPropertyError(PropertyError):
    """A property that no request may change."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What the process needs to know: where it listens, what it keeps, whom it tells."""

    bind_address: str = ""  # bindAddress
    name_servers: str = ""  # namesrvAddr: `host:port;host:port`
    name_servers_by_lookup: bool = False  # fetchNameSrvAddrByDnsLookup: each address behind such a name is one
    name_servers_in_tls: bool = False  # useTLS
    store_root: str = ""  # storePathRootDir
    commit_log: str = ""  # storePathCommitLog
    idle_seconds: int = 120  # serverChannelMaxIdleTimeSeconds
    trusted_proxies: str = ""  # proxyProtocolTrusted, ours: whose PROXY preambles are believed
    metrics_port: int = 5557  # metricsPromExporterPort, when metricsExporterType is PROM
    metrics_host: str = ""  # metricsPromExporterHost
    metrics_type: str = "DISABLE"  # metricsExporterType
    metrics_label: str = ""  # metricsLabel: `name:value,name:value`, which all figures bear
    request_metrics: bool = True  # enableRequestMetrics
    connection_metrics: bool = True  # enableConnectionMetrics
    lag_metrics: bool = True  # enableLagAndDlqMetrics
    stats_metrics: bool = True  # enableStatsMetrics
    transaction_metrics: bool = True  # enableTransactionMetrics
    store_metrics: bool = True  # enableMessageStoreMetrics


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings of a broker's process."""

    broker: BrokerSettings
    store: StoreSettings
    process: ProcessSettings
    given: Mapping[str, str]  # as they were written, for who shows or keeps them


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


def _levels(text: str) -> str:
    try:
        delay_table(text)
    except (ValueError, KeyError):
        raise ValueError("times such as 1s 5s 1m 2h 1d are expected, blank separated") from None
    return text


def _hours(text: str) -> str:
    parse_hours(text)
    return text


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


def _labels(text: str) -> str:
    if any(word.count(":") != 1 or word.startswith(":") for word in text.split(",") if word):
        raise ValueError("labels such as name:value,name:value are expected")
    return text


def _one_folder(text: str) -> str:
    if "," in text:
        raise ValueError("one folder is expected")
    return text


def _networks(text: str) -> str:
    try:
        for word in text.replace(";", " ").replace(",", " ").split():
            ip_network(word)
    except ValueError as error:
        raise ValueError(f"addresses such as 10.0.0.5;192.0.2.0/24 are expected: {error}") from None
    return text


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
    "regionId": _Place("broker", "region", _name),
    "brokerPermission": _Place("broker", "permission", _whole(0, 7)),
    "msgTraceTopicName": _Place("broker", "trace_topic_name", _name),
    "configBlackList": _Place("broker", "unchangeable", str),
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
        litePullMessageEnable="lite_pull",
        rejectPullConsumerEnable="reject_pull_consumers",
        useServerSideResetOffset="server_side_reset",
        validateSystemTopicWhenUpdateTopic="guard_system_topics",
        enableMixedMessageType="mixed_topics",
        clearRetryTopicWhenDeleteTopic="delete_retry_topics",
        enableCreateSysGroup="create_system_groups",
        notifyConsumerIdsChangedEnable="notify_members",
        realTimeNotifyConsumerChange="notify_at_once",
        compressedRegister="register_compressed",
        enableSplitRegistration="register_split",
        enableScheduleMessageStats="count_delayed",
        disableConsumeIfConsumerReadSlowly="disable_slow_readers",
        rejectTransactionMessage="reject_transactions",
        enablePropertyFilter="property_filter",
        filterSupportRetry="filter_retries",
        enableCalcFilterBitMap="filter_bit_map",
    ),
    **_numbers(
        "broker",
        _POSITIVE,
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
    ),
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
    "deleteWhen": _Place("store", "delete_when", _hours),
    "diskMaxUsedSpaceRatio": _Place("store", "max_used_ratio", _percent, lambda ratio: str(round(ratio * 100))),
    "diskSpaceCleanForciblyRatio": _Place(
        "store", "force_clean_ratio", _percent, lambda ratio: str(round(ratio * 100))
    ),
    "diskSpaceWarningLevelRatio": _Place("store", "full_ratio", _percent, lambda ratio: str(round(ratio * 100))),
    "messageDelayLevel": _Place("store", "delay_levels", _levels),
    "bindAddress": _Place("process", "bind_address", str),
    "namesrvAddr": _Place("process", "name_servers", str),
    "storePathRootDir": _Place("process", "store_root", str),
    "storePathCommitLog": _Place("process", "commit_log", _one_folder),
    "serverChannelMaxIdleTimeSeconds": _Place("process", "idle_seconds", _NATURAL),
    "proxyProtocolTrusted": _Place("process", "trusted_proxies", _networks),
    "metricsExporterType": _Place("process", "metrics_type", _exporter),
    "metricsPromExporterPort": _Place("process", "metrics_port", _PORT),
    "metricsPromExporterHost": _Place("process", "metrics_host", str),
    "metricsLabel": _Place("process", "metrics_label", _labels),
    **_flags(
        "process",
        fetchNameSrvAddrByDnsLookup="name_servers_by_lookup",
        useTLS="name_servers_in_tls",
        enableRequestMetrics="request_metrics",
        enableConnectionMetrics="connection_metrics",
        enableLagAndDlqMetrics="lag_metrics",
        enableStatsMetrics="stats_metrics",
        enableTransactionMetrics="transaction_metrics",
        enableMessageStoreMetrics="store_metrics",
    ),
}
"""Property to where its value goes."""

_MINUTE_MS: Final = 60_000
_FLAG: Final = None  # true or false: no range

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
"""Properties with a meaning that a request may change while the broker runs, and from what to what."""

SECRET: Final = re.compile(r"(?i)password|secret|credential|token|accesskey|exporterheader|authenticationuser$")
"""Properties whose values no answer shows."""

HIDDEN: Final = "******"

_GUARDED: Final = re.compile(r"(?i)path|dir$|home|addr|host|proxy|^tls\.|password|credential|provider|user$|acl|auth")
"""What no request changes even where it has no meaning: whoever reads a changed file later may give it one."""

_NO_ACCESS_CONTROL: Final = "access control is not in this version, and the broker would be open to everybody"
_NO_REPLICAS: Final = "replication is not in this version, and there would be no second copy"

UNKEPT: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "aclEnable": (_flag, _NO_ACCESS_CONTROL),
    "authenticationEnabled": (_flag, _NO_ACCESS_CONTROL),
    "authorizationEnabled": (_flag, _NO_ACCESS_CONTROL),
    "brokerRole": (lambda text: text == Role.SLAVE.value, _NO_REPLICAS),
    "inSyncReplicas": (lambda text: int(text) > 1, _NO_REPLICAS),
    "minInSyncReplicas": (lambda text: int(text) > 1, _NO_REPLICAS),
    "enableDLegerCommitLog": (_flag, _NO_REPLICAS),
    "enableControllerMode": (_flag, _NO_REPLICAS),
    "storeType": (lambda text: text != "default", "the store has one kind of files, `default`"),
    "configManagerVersion": (
        lambda text: text != "v1",
        "topics, groups and offsets are kept in one kind of files, `v1`",
    ),
    "messageStorePlugIn": (bool, "plug-ins of the store are not in this version, nor is what they keep elsewhere"),
    "readOnlyCommitLogStorePaths": (bool, "a log in several folders is not in this version"),
}
"""Values that promise what would not be kept: which they are, and why."""


@cache
def known() -> dict[str, tuple[str, str]]:
    """Apache's properties that a broker shows: kind (bool, int, float, str) and default."""
    return _parsed(KNOWN_TEXT)


@cache
def known_unshown() -> dict[str, tuple[str, str]]:
    """Those that it shows only if they were given."""
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
                raise PropertyError(f"{key}={text}: {why}; take the property away to run without")
    broker = replace(defaults.broker, **changes["broker"])
    store = replace(defaults.store, **changes["store"])
    broker = replace(broker, max_body_size=store.max_body_size, broker_id=0)  # a master's, whatever was given
    process = replace(defaults.process, **changes["process"])
    return Configuration(broker, store, process, {**defaults.given, **properties})


def _read(key: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        why = str(error).removeprefix(f"{key}={text}: ")
        expected = why if "expected" in why else "a whole number is expected"
        raise PropertyError(f"{key}={text}: {expected}") from None


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
    """Keys that no broker knows, for a warning. TLS keys have their own reader."""
    return [key for key in properties if not is_property(key) and not key.startswith("tls.")]


def unused_keys(properties: Mapping[str, str]) -> list[str]:
    """Keys that are known and have no meaning here, where somebody wants another value than the default."""
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
    for key, place in ACTED_ON.items():
        shown[key] = place.show(getattr(parts[place.part], place.name))
    return {key: HIDDEN if text and SECRET.search(key) else text for key, text in sorted(shown.items())}


def change(configuration: Configuration, properties: Mapping[str, str]) -> Configuration:
    """What a request makes of them, all or nothing. Raises PropertyError."""
    changed = configure(configuration, properties)
    for key in properties:
        if not is_property(key):
            raise PropertyError(f"{key} is no property of a broker; getBrokerConfig lists them all")
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
    """Let the one that all parts of a broker share become like another."""
    for field in fields(settings):
        setattr(settings, field.name, getattr(changed, field.name))
