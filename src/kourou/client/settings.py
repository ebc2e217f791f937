"""The settings of a client. Defaults are those of the Java client 5.5.

`ConsumerOptions` has the same names and types as `ConsumerSettings`: it lets type checkers check the keywords of
`consume`, `listen` and `lite_pull`. A test keeps the two equal.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

from kourou.client.balance import Averagely, Strategy
from kourou.client.events import ConnectionCallback, QueuesCallback
from kourou.client.pacing import Pacing
from kourou.net.tls import TlsSettings
from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES, Compression
from kourou.protocol.message import BODY_SIZE_MAX
from kourou.protocol.signing import Credentials
from kourou.protocol.system_names import TRACE_TOPIC

MIB = 1024 * 1024

Start = Literal["last", "first", "timestamp"] | datetime
"""Where a new group starts: at new messages, at the oldest, or at the first message stored at a time or later."""


@dataclass(frozen=True)
class ProducerSettings:
    """How messages are sent. Times are seconds, sizes are bytes."""

    timeout: float = 3.0  # for one send with all its retries
    retries: int = 2  # further attempts, on another broker if there is one
    retry_when_unsafe: bool = False  # retry also when a message is stored, but less durably than its broker promises
    body_size_max: int = BODY_SIZE_MAX
    compress_from: int | None = 4096  # bodies of this size and larger are compressed; None: never
    compression: Compression = Compression.ZLIB
    compression_level: int = 5
    batch_size_max: int = 1 * MIB  # send_batch splits larger batches
    batch_count_max: int = 4_000  # and batches with more messages
    in_flight: int = 4096  # sends of this client that await their answer; further ones wait
    in_flight_size: int = 100 * MIB
    avoid_slow_brokers: bool = False  # latency fault tolerance: see faults.py
    trace: bool = False  # record sends in the trace topic
    trace_topic: str = TRACE_TOPIC  # another topic has to exist, unless brokers create topics automatically
    drain_timeout: float = 10.0  # how long `close` waits for sends in flight


@dataclass(frozen=True)
class ConsumerSettings:
    """How messages are pulled and consumed. Times are seconds, sizes are bytes."""

    broadcast: bool = False  # every client gets every message, instead of the group sharing them
    orderly: bool = False  # one message of a queue after another, each queue by one client only
    start: Start = "last"  # where a group without an offset starts; for "timestamp" see start_at
    start_at: float | None = None  # for "timestamp": seconds since the epoch; None: half an hour ago
    strategy: Strategy = field(default_factory=Averagely)
    concurrency: int = 20  # listeners that run at the same time
    batch_size: int = 1  # messages that a batch listener gets at most per call
    retries: int = -1  # how often a message is retried; -1: 16 times, or without limit if orderly
    suspend: float = 1.0  # orderly: how long a queue pauses after a failure
    consume_timeout: float = 15 * 60.0  # a message that takes longer is sent back to the broker
    pull_batch: int = 32
    pull_batch_size: int = 256 * 1024
    pull_interval: float = 0.0
    queue_messages: int = 1000  # unsettled messages of one queue that pause its pulling
    queue_size: int = 100 * MIB  # the same in bytes
    queue_span: int = 2000  # concurrent: how far the first and the last message of a queue may be apart
    long_poll: float = 15.0  # how long a broker may hold a pull that finds nothing
    persist_interval: float = 5.0  # how often offsets are stored
    rebalance_interval: float = 20.0
    settle_timeout: float = 10.0  # how long `close` waits for running listeners, and for rebalance callbacks
    offset_dir: Path | None = None  # where broadcast consumers keep offsets; None: ~/.rocketmq_offsets
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    on_assigned: QueuesCallback | None = None  # called with newly assigned queues, before they are pulled
    on_revoked: QueuesCallback | None = None  # called with revoked queues, before their offsets are stored

    def __post_init__(self) -> None:
        if not isinstance(self.start, datetime) and self.start not in ("last", "first", "timestamp"):
            raise ValueError(f"start must be 'last', 'first' or a datetime, not {self.start!r}")
        for name in ("concurrency", "batch_size", "pull_batch", "pull_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")


class ConsumerOptions(TypedDict, total=False):
    """The keywords of `consume`, `listen` and `lite_pull`: see ConsumerSettings."""

    broadcast: bool
    orderly: bool
    start: Start
    start_at: float | None
    strategy: Strategy
    concurrency: int
    batch_size: int
    retries: int
    suspend: float
    consume_timeout: float
    pull_batch: int
    pull_batch_size: int
    pull_interval: float
    queue_messages: int
    queue_size: int
    queue_span: int
    long_poll: float
    persist_interval: float
    rebalance_interval: float
    settle_timeout: float
    offset_dir: Path | None
    trace: bool
    trace_topic: str
    on_assigned: QueuesCallback | None
    on_revoked: QueuesCallback | None


def with_options(settings: ConsumerSettings | None, options: Mapping[str, Any]) -> ConsumerSettings:
    """The settings with these options. Raises TypeError for an unknown option, ValueError for a wrong value."""
    known = [one.name for one in fields(ConsumerSettings)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise TypeError(f"a consumer has no option {name!r}: {hint}")
    return replace(settings or ConsumerSettings(), **options)


@dataclass(frozen=True)
class ClientSettings:
    """How a client finds and talks to brokers. Times are seconds."""

    name_servers: Sequence[str] = ()
    discovery_url: str | None = None  # an HTTP address that returns the name servers
    namespace: str | None = None
    instance_name: str | None = None  # None: a new one; see identity.py
    unit_name: str | None = None
    credentials: Credentials | None = None
    tls: TlsSettings | None = None
    producer_group: str = "KOUROU_PRODUCER"
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    request_timeout: float = 3.0
    connect_timeout: float = 3.0
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    discovery_interval: float = 120.0
    max_body: int = DECOMPRESSED_LIMIT_BYTES  # a received body that is larger after decompression is an error
    on_connection: ConnectionCallback | None = None  # called when connections are opened and lost
    pacing: Pacing | None = None  # a budget for the requests to each server; sends do not count


def seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value
