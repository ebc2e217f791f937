"""Figures for Prometheus, on a port of their own: GET /metrics.

Names and labels are those of Apache's broker 5.x where it has the same figure, so that its dashboards work. They are
read from the broker when somebody asks; nothing is counted twice for it.

Java: BrokerMetricsManager, DefaultStoreMetricsManager.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from kourou.broker import names
from kourou.broker.machine import Broker
from kourou.server.conf import ConfError

log = logging.getLogger(__name__)

REQUEST_SIZE_MAX = 8 * 1024
REQUEST_TIME = 5.0
CONNECTIONS_MAX = 16

_OWN_LABELS = frozenset(("topic", "is_system", "consumer_group", "consume_mode", "producer_group"))

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class BrokerFigures:
    """What a broker knows, as Prometheus wants it."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._now_ms = now_ms
        settings, self._wanted = broker.settings, broker.configuration.process
        labels = {**_labels(self._wanted.metrics_label), "cluster": settings.cluster, "node_type": "broker"}
        labels["node_id"] = settings.name
        self._labels, self._node = list(labels), list(labels.values())  # what all figures bear

    def collect(self) -> Iterable[Metric]:
        wanted = self._wanted
        if wanted.request_metrics:
            yield from self._messages()
        if wanted.connection_metrics:
            yield from self._clients()
        if wanted.lag_metrics:
            yield from self._lag()
        if wanted.transaction_metrics:
            yield from self._transactions()
        yield from self._state()

    def _messages(self) -> Iterable[Metric]:
        stats, node = self._broker.stats, self._node
        labels = [*self._labels, "topic", "is_system"]
        put = CounterMetricFamily("rocketmq_messages_in_total", "Messages stored.", labels=labels)
        put_bytes = CounterMetricFamily("rocketmq_throughput_in_total", "Bytes stored.", labels=labels)
        for topic, item in list(stats.topics.items()):
            row = [*node, topic, self._is_system(topic)]
            put.add_metric(row, item.count)
            put_bytes.add_metric(row, item.size)
        labels = [*self._labels, "topic", "consumer_group", "is_system"]
        got = CounterMetricFamily("rocketmq_messages_out_total", "Messages handed out.", labels=labels)
        got_bytes = CounterMetricFamily("rocketmq_throughput_out_total", "Bytes handed out.", labels=labels)
        for (topic, group), item in list(stats.groups.items()):
            row = [*node, topic, group, self._is_system(topic, group)]
            got.add_metric(row, item.count)
            got_bytes.add_metric(row, item.size)
        yield from (put, put_bytes, got, got_bytes)

    def _clients(self) -> Iterable[Metric]:
        clients, node = self._broker.clients, self._node
        labels = [*self._labels, "consumer_group", "consume_mode"]
        consumers = GaugeMetricFamily("rocketmq_consumer_connections", "Connected consumers.", labels=labels)
        for group in clients.consumers.values():
            consumers.add_metric([*node, group.name, group.consume_type], len(group.clients))
        labels = [*self._labels, "producer_group"]
        producers = GaugeMetricFamily("rocketmq_producer_connections", "Connected producers.", labels=labels)
        for name, members in clients.producers.items():
            producers.add_metric([*node, name], len(members))
        yield from (consumers, producers)

    def _lag(self) -> Iterable[Metric]:
        """Messages that groups have not consumed yet, for those that are connected."""
        broker, node = self._broker, self._node
        labels = [*self._labels, "topic", "consumer_group", "is_system"]
        lag = GaugeMetricFamily("rocketmq_consumer_lag_messages", "Messages not consumed yet.", labels=labels)
        for group in list(broker.clients.consumers.values()):
            if group.is_broadcasting:
                continue
            for topic in list(group.subscriptions):
                offsets = broker.offsets.of_topic(group.name, topic)
                behind = sum(
                    max(broker.store.reader.offsets(topic, queue_id)[1] - offset, 0)
                    for queue_id, offset in list(offsets.items())
                )
                lag.add_metric([*node, topic, group.name, self._is_system(topic, group.name)], behind)
        yield lag

    def _transactions(self) -> Iterable[Metric]:
        counts, node, labels = self._broker.transactions.counts, self._node, [*self._labels, "topic"]
        half = GaugeMetricFamily("rocketmq_half_messages", "Transactions that nobody has ended yet.", labels=labels)
        for topic, metric in list(counts.open.items()):
            half.add_metric([*node, topic], metric.count)
        commits = CounterMetricFamily("rocketmq_commit_messages_total", "Transactions committed.", labels=labels)
        for topic, count in list(counts.commits.items()):
            commits.add_metric([*node, topic], count)
        rollbacks = CounterMetricFamily("rocketmq_rollback_messages_total", "Transactions rolled back.", labels=labels)
        for topic, count in list(counts.rollbacks.items()):
            rollbacks.add_metric([*node, topic], count)
        latency = HistogramMetricFamily(
            "rocketmq_finish_message_latency", "Seconds from the birth of a message to its commit.", labels=labels
        )
        for topic, found in list(counts.latencies.items()):
            latency.add_metric([*node, topic], found.cumulative(), found.total_s)
        yield from (half, commits, rollbacks, latency)

    def _state(self) -> Iterable[Metric]:
        broker, wanted = self._broker, self._wanted
        of_tables = (
            ("rocketmq_broker_permission", "Permission bits: 4 read, 2 write.", broker.settings.permission),
            ("rocketmq_topic_number", "Topics.", len(broker.topics.table)),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(broker.groups.table)),
        )
        of_store = (
            ("rocketmq_storage_size", "Bytes of the commit log.", broker.store.log.end - broker.store.log.start),
            (
                "rocketmq_storage_flush_behind_bytes",
                "Bytes of the commit log that are not on disk yet.",
                broker.store.log.end - broker.store.durability.flushed,
            ),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes of the commit log that consumers can't see yet.",
                broker.store.log.end - broker.store.dispatched,
            ),
        )
        errors = CounterMetricFamily(
            "kourou_internal_errors_total", "Parts of a step that failed unexpectedly.", labels=self._labels
        )
        errors.add_metric(self._node, broker.faults)
        yield errors
        ours = (
            (
                "kourou_flush_late_ms",
                "For how long a sync of the log is overdue.",
                broker.store.flush_late_ms(self._now_ms()),
            ),
            ("kourou_held_pulls", "Pulls that wait for messages.", broker.pull.polls.waiting),
            ("kourou_waiting_sends", "Sends that wait for the disk.", broker.writer.waiting),
            ("kourou_store_refuses", "1 while nothing can be stored.", int(broker.store.refusal is not None)),
        )
        for name, text, value in (
            *(of_tables if wanted.stats_metrics else ()),
            *(of_store if wanted.store_metrics else ()),
            *ours,
        ):
            gauge = GaugeMetricFamily(name, text, labels=self._labels)
            gauge.add_metric(self._node, value)
            yield gauge

    def _is_system(self, topic: str, group: str = "") -> str:
        return str(self._broker.topics.is_system(topic) or names.is_system_group(group)).lower()


def _labels(text: str) -> dict[str, str]:
    """Labels from `name:value,name:value`, with names that Prometheus takes and that no figure has for itself."""
    pairs = (word.split(":") for word in text.split(",") if word)
    labels = {re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name.strip()): value.strip() for name, value in pairs}
    return {name: value for name, value in labels.items() if name not in _OWN_LABELS}


class MetricsServer:
    """Answers GET /metrics, and nothing else."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BrokerFigures(broker, now_ms))
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Raises ConfError."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_SIZE_MAX)
        except (OSError, OverflowError) as error:
            raise ConfError(
                f"can't serve metrics on {host}:{port}: {error}. Another port: metricsPromExporterPort"
            ) from None

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_TIME):
                if self._open > CONNECTIONS_MAX:
                    writer.write(_answer(503, b"too many connections\n"))
                else:
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._page(request))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _page(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _answer(405, b"GET is expected\n")
        if path != b"/metrics":
            return _answer(404, b"/metrics is all there is\n")
        return _answer(200, generate_latest(self._registry), head_only=method == b"HEAD")


_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _answer(status: int, body: bytes, *, head_only: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {TEXT}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
