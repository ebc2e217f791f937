"""broker.conf: Apache's property names, and what they mean here.

A property is one of three things: acted on (it has a place in `BrokerSettings`, `StoreSettings` or `ProcessSettings`),
known and without meaning here (thread pools, buffers, parts that this broker has not), or unknown. Whoever reads a file
is told of the last two by name. `to_properties` shows all of them, as `mqadmin getBrokerConfig` expects it.

Changing properties by a request is for a list of keys (`HOT`) that can do no harm: no path, no address, nothing that
could reach a shell is on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final

from kourou.broker.known_properties import KNOWN_TEXT
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
    store_root: str = ""  # storePathRootDir
    commit_log: str = ""  # storePathCommitLog
    idle_seconds: int = 120  # serverChannelMaxIdleTimeSeconds
    metrics_port: int = 5557  # metricsPromExporterPort, when metricsExporterType is PROM
    metrics_host: str = ""  # metricsPromExporterHost
    metrics_type: str = "DISABLE"  # metricsExporterType


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


def _choice(kind: type[Role] | type[FlushMode]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"one of {', '.join(one.value for one in kind)} is expected") from None

    return read


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
    **_flags(
        "broker",
        autoCreateTopicEnable="auto_create_topics",
        autoCreateSubscriptionGroup="auto_create_groups",
        clusterTopicEnable="cluster_topic",
        brokerTopicEnable="broker_topic",
        traceTopicEnable="trace_topic",
        traceOn="trace_on",
        rejectTransactionMessage="reject_transactions",
        storeReplyMessageEnable="store_replies",
        longPollingEnable="long_polling",
        slaveReadEnable="slave_read",
        litePullMessageEnable="lite_pull",
        rejectPullConsumerEnable="reject_pull_consumers",
        useServerSideResetOffset="server_side_reset",
    ),
    **_numbers(
        "broker",
        _POSITIVE,
        maxAutoCreatedTopics="auto_topics_max",
        maxAutoCreatedGroups="auto_groups_max",
        defaultTopicQueueNums="default_topic_queues",
        reviveQueueNum="revive_queues",
        sendThreadPoolQueueCapacity="waiting_sends_max",
        pullThreadPoolQueueCapacity="held_pulls_max",
        shortPollingTimeMills="short_polling_ms",
        registerNameServerPeriod="register_interval_ms",
        registerBrokerTimeoutMills="register_timeout_ms",
        flushConsumerOffsetInterval="offsets_interval_ms",
        flushDelayOffsetInterval="delay_offsets_interval_ms",
        channelExpiredTimeout="client_timeout_ms",
    ),
    "startAcceptSendRequestTimeStamp": _Place("broker", "accept_sends_from_ms", _LONG),
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
    "storePathCommitLog": _Place("process", "commit_log", str),
    "serverChannelMaxIdleTimeSeconds": _Place("process", "idle_seconds", _NATURAL),
    "metricsExporterType": _Place("process", "metrics_type", str),
    "metricsPromExporterPort": _Place("process", "metrics_port", _PORT),
    "metricsPromExporterHost": _Place("process", "metrics_host", str),
}
"""Property to where its value goes."""

HOT: Final = frozenset(
    (
        "brokerPermission",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "maxAutoCreatedTopics",
        "maxAutoCreatedGroups",
        "defaultTopicQueueNums",
        "rejectTransactionMessage",
        "storeReplyMessageEnable",
        "longPollingEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "litePullMessageEnable",
        "rejectPullConsumerEnable",
        "useServerSideResetOffset",
        "sendThreadPoolQueueCapacity",
        "pullThreadPoolQueueCapacity",
        "startAcceptSendRequestTimeStamp",
        "registerNameServerPeriod",
    )
)
"""Properties that a request may change while the broker runs."""


@cache
def known() -> dict[str, tuple[str, str]]:
    """Apache's properties: kind (bool, int, float, str) and default."""
    table: dict[str, tuple[str, str]] = {}
    for line in KNOWN_TEXT.splitlines():
        kind, name, *default = line.split(" ", 2)
        table[name] = kind, default[0] if default else ""
    return table


def is_property(key: str) -> bool:
    """Does any broker know this key?"""
    return key in ACTED_ON or key in known()


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
        elif key in known():
            _check_kind(key, text)
    broker = replace(defaults.broker, **changes["broker"])
    store = replace(defaults.store, **changes["store"])
    broker = replace(broker, max_body_size=store.max_body_size)
    process = replace(defaults.process, **changes["process"])
    return Configuration(broker, store, process, {**defaults.given, **properties})


def _read(key: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        why = str(error)
        expected = why if "expected" in why else "a whole number is expected"
        raise PropertyError(f"{key}={text}: {expected}") from None


def _check_kind(key: str, text: str) -> None:
    kind, _ = known()[key]
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
        if key not in ACTED_ON and key in known() and text.strip() != known()[key][1]
    ]


def to_properties(configuration: Configuration) -> dict[str, str]:
    """All properties as Apache shows them, sorted."""
    shown = {key: default for key, (_, default) in known().items()}
    shown.update({key: text for key, text in configuration.given.items() if key in shown})
    parts = {"broker": configuration.broker, "store": configuration.store, "process": configuration.process}
    for key, place in ACTED_ON.items():
        shown[key] = place.show(getattr(parts[place.part], place.name))
    return dict(sorted(shown.items()))


def change(configuration: Configuration, properties: Mapping[str, str]) -> Configuration:
    """What a request makes of them, all or nothing. Raises PropertyError."""
    for key in properties:
        if key not in ACTED_ON and key not in known():
            raise PropertyError(f"{key} is no property of a broker; getBrokerConfig lists them all")
        if key not in HOT:
            raise GuardedPropertyError(f"{key} can't change while the broker runs: change broker.conf, and restart")
    return configure(configuration, properties)


def apply(settings: BrokerSettings, changed: BrokerSettings) -> None:
    """Let the one that all parts of a broker share become like another."""
    for field in fields(settings):
        setattr(settings, field.name, getattr(changed, field.name))
