"""The options of `format("rocketmq")` for reading, checked, as values."""

from pathlib import Path
from typing import Final

import msgspec

from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES
from kourou.protocol.message import MessageQueue
from kourou.spark.columns import chosen
from kourou.spark.errors import OptionError
from kourou.spark.options import Options
from kourou.spark.positions import Offsets, parse_assignment, parse_offsets
from kourou.spark.pulling import READING_GROUP, Filter
from kourou.spark.wire import Access

ACCESS_OPTIONS: Final = (
    "namesrv",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsTrust",
    "tlsCert",
    "tlsKey",
    "requestTimeout",
    "retryTimeout",
)

READ_OPTIONS: Final = (
    *ACCESS_OPTIONS,
    "path",
    "topics",
    "topicPattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "failOnUnreachable",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "tags",
    "sql92",
    "columns",
    "decompress",
    "maxBody",
    "group",
    "pushdown",
)

GROUP: Final = "group"
"""A start position: the committed offsets of the group."""


class TopicTimes(msgspec.Struct, frozen=True):
    """Times in ms, by topic."""

    by_topic: dict[str, int]


Position = str | int | Offsets | TopicTimes
"""earliest, latest, group; a time in ms, for all topics or for each; or an offset for each queue."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a read."""

    name_servers: tuple[str, ...]
    access: Access
    retry_s: float
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position
    ending: Position
    fail_on_loss: bool
    fail_on_unreachable: bool = True
    rows_max: int | None
    rows_min: int | None
    bytes_max: int | None
    delay_max_s: float
    tasks_min: int | None
    task_rows_max: int | None
    wanted: Filter
    columns: tuple[str, ...]
    decompressing: bool
    max_body: int = DECOMPRESSED_LIMIT_BYTES
    group: str | None
    pushdown: bool

    @property
    def reading_group(self) -> str:
        return self.group or READING_GROUP


def read_access(options: Options) -> tuple[tuple[str, ...], Access, float]:
    """Name servers, access to them, and the time limit for retries. Raises OptionError."""
    name_servers = tuple(
        part.strip()
        for part in options.needed("namesrv", "127.0.0.1:9876").replace(",", ";").split(";")
        if part.strip()
    )
    for address in name_servers:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise OptionError(f"option namesrv: {address!r} is not host:port")
    access_key, secret_key = options.text("accessKey"), options.text("secretKey")
    if (access_key is None) != (secret_key is None):
        raise OptionError("give accessKey and secretKey together")
    for name in ("tlsTrust", "tlsCert", "tlsKey"):
        path = options.text(name)
        if path is not None and not Path(path).is_file():
            raise OptionError(f"option {name}: file {path} does not exist")
    timeout = _seconds(options, "requestTimeout", 10.0)
    if not timeout:
        raise OptionError("option requestTimeout must be more than 0: no server answers at once")
    access = Access(
        timeout=timeout,
        access_key=access_key,
        secret_key=secret_key,
        security_token=options.text("securityToken"),
        tls=options.flag("tls", False),
        tls_trust=options.text("tlsTrust"),
        tls_cert=options.text("tlsCert"),
        tls_key=options.text("tlsKey"),
    )
    return name_servers, access, _seconds(options, "retryTimeout", 60.0)


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _seconds(options: Options, name: str, default: float) -> float:
    """A duration: 30, 30s, 500ms, 15m, 1h."""
    text = options.text(name)
    if text is None:
        return default
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise OptionError(f"option {name} must be a duration such as 30s or 15m, not {text!r}") from None
    if not 0 <= seconds < 1e9:
        raise OptionError(f"option {name} must be a duration such as 30s or 15m, not {text!r}")
    return seconds


def read_settings(options: Options, *, streaming: bool) -> ReadSettings:
    """Raises OptionError."""
    name_servers, access, retry_s = read_access(options)
    options.exclusive("topics", "topicPattern", "assign", "path")
    options.exclusive("tags", "sql92")
    options.exclusive("startingOffsets", "startingTimestamp")
    options.exclusive("endingOffsets", "endingTimestamp")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp"):
            if options.text(name):
                raise OptionError(f"option {name} can't be used in a stream, which has no end")
    topics = options.names("topics") or options.names("path") or []
    pattern, assign = options.pattern("topicPattern"), options.text("assign")
    if not topics and pattern is None and assign is None:
        raise OptionError('no topics are given: use .load("orders"), or option topics, topicPattern or assign')
    group = options.text("group")
    starting = _position(options, "starting", "latest" if streaming else "earliest")
    ending = _position(options, "ending", "latest")
    if GROUP in (starting, ending) and group is None:
        raise OptionError("to start at the offsets of a group, set option group")
    if ending in ("earliest", GROUP):
        raise OptionError(f"option endingOffsets can't be {ending}")
    if isinstance(starting, int) and isinstance(ending, int) and starting > ending:
        raise OptionError("option startingTimestamp is later than endingTimestamp")
    sql = options.text("sql92")
    return ReadSettings(
        name_servers=name_servers,
        access=access,
        retry_s=retry_s,
        topics=tuple(dict.fromkeys(topics)),
        topic_pattern=pattern,
        assigned=tuple(parse_assignment(assign)) if assign else (),
        starting=starting,
        ending=ending,
        fail_on_loss=options.flag("failOnDataLoss", True),
        fail_on_unreachable=options.flag("failOnUnreachable", True),
        rows_max=options.number("maxOffsetsPerTrigger"),
        rows_min=options.number("minOffsetsPerTrigger"),
        bytes_max=options.size("maxBytesPerTrigger"),
        delay_max_s=_seconds(options, "maxTriggerDelay", 900.0),
        tasks_min=options.number("minPartitions"),
        task_rows_max=options.number("maxRecordsPerPartition"),
        wanted=Filter("SQL92", sql) if sql else Filter("TAG", options.text("tags") or "*"),
        columns=chosen(options.names("columns")),
        decompressing=options.flag("decompress", True),
        max_body=options.size("maxBody", DECOMPRESSED_LIMIT_BYTES) or DECOMPRESSED_LIMIT_BYTES,
        group=group,
        pushdown=options.flag("pushdown", False),
    )


def _position(options: Options, which: str, default: str) -> Position:
    text = options.text(f"{which}Timestamp") or ""
    if text.startswith("{"):
        return TopicTimes(options.times_ms(f"{which}Timestamp"))
    time_ms = options.time_ms(f"{which}Timestamp")
    if time_ms is not None:
        return time_ms
    text = options.text(f"{which}Offsets", default) or default
    if text.startswith("{"):
        return parse_offsets(text, f"{which}Offsets")
    if text.lower() not in ("earliest", "latest", GROUP):
        if options.is_time(text):
            raise OptionError(f"option {which}Offsets does not take a time: use option {which}Timestamp")
        raise OptionError(f"option {which}Offsets must be earliest, latest, group or JSON, not {text!r}")
    return text.lower()
