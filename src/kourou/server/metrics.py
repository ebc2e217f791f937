"""Figures for Prometheus, on a port of their own: GET /metrics.

Names and labels are those of Apache's broker 5.x where it has the same figure, so that its dashboards work. They are
read from the broker when a page is asked for; nothing is counted twice for it.

A page of a broker with many topics and groups is long. It is written in slices, one in each turn of the event loop, so
that other requests are served in between; its lines may be of different moments.

Java: BrokerMetricsManager, DefaultStoreMetricsManager.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from kourou.broker import names
from kourou.broker.machine import Broker
from kourou.server.conf import ConfError

log = logging.getLogger(__name__)

REQUEST_SIZE_MAX = 8 * 1024
REQUEST_TIME = 5.0
PAGE_TIME = 60.0
"""Seconds that a page may take, to be written and to be read by its client."""

CONNECTIONS_MAX = 16

SLICE = 0.005
"""Seconds that lines are written before other requests have their turn."""

QUEUES_IN_SLICE = 500

_OWN_LABELS = frozenset(("topic", "is_system", "consumer_group", "consume_mode", "producer_group"))

TEXT = "text/plain; version=0.0.4; charset=utf-8"

Rows: TypeAlias = Iterator[tuple[tuple[str, ...], float] | None]
"""Values of a figure's own labels, and the figure; None: a moment at which other requests may be served."""


class BrokerFigures:
    """What a broker knows, as Prometheus wants it."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._now_ms = now_ms
        settings, self._wanted = broker.settings, broker.configuration.process
        labels = {**_labels(self._wanted.metrics_label), "cluster": settings.cluster, "node_type": "broker"}
        labels["node_id"] = settings.name
        self._labels, self._node = list(labels), list(labels.values())  # what all figures bear

    def text(self) -> Iterator[str]:
        """The page, a line at a time, and empty texts where there is a pause."""
        wanted = self._wanted
        if wanted.request_metrics:
            yield from self._messages()
        if wanted.connection_metrics:
            yield from self._clients()
        if wanted.lag_metrics:
            labels = ("topic", "consumer_group", "is_system")
            yield from self._figure("rocketmq_consumer_lag_messages", "Messages not consumed yet.", labels, self._lag())
        if wanted.transaction_metrics:
            yield from self._transactions()
        yield from self._state()

    def _figure(self, name: str, text: str, labels: tuple[str, ...], rows: Rows, kind: str = "gauge") -> Iterator[str]:
        yield _heading(name, text, kind)
        yield from self._lines(name, labels, rows)

    def _lines(self, name: str, labels: tuple[str, ...], rows: Rows) -> Iterator[str]:
        order = sorted(range(len(self._labels) + len(labels)), key=[*self._labels, *labels].__getitem__)
        keys = [f'{(*self._labels, *labels)[at]}="' for at in order]
        for row in rows:
            if row is None:
                yield ""
                continue
            values = (*self._node, *row[0])
            shown = ",".join(f'{key}{_escaped(values[at])}"' for key, at in zip(keys, order, strict=True))
            yield f"{name}{{{shown}}} {float(row[1])!r}\n"

    def _messages(self) -> Iterator[str]:
        stats = self._broker.stats
        labels: tuple[str, ...] = ("topic", "is_system")
        topics = list(stats.topics.items())
        counts: Rows = (((topic, self._is_system(topic)), item.count) for topic, item in topics)
        yield from self._figure("rocketmq_messages_in_total", "Messages stored.", labels, counts, "counter")
        sizes: Rows = (((topic, self._is_system(topic)), item.size) for topic, item in topics)
        yield from self._figure("rocketmq_throughput_in_total", "Bytes stored.", labels, sizes, "counter")
        labels = ("topic", "consumer_group", "is_system")
        groups = list(stats.groups.items())
        counts = (((topic, group, self._is_system(topic, group)), item.count) for (topic, group), item in groups)
        yield from self._figure("rocketmq_messages_out_total", "Messages handed out.", labels, counts, "counter")
        sizes = (((topic, group, self._is_system(topic, group)), item.size) for (topic, group), item in groups)
        yield from self._figure("rocketmq_throughput_out_total", "Bytes handed out.", labels, sizes, "counter")

    def _clients(self) -> Iterator[str]:
        clients = self._broker.clients
        consumers: Rows = (
            ((group.name, group.consume_type), len(group.clients)) for group in list(clients.consumers.values())
        )
        labels: tuple[str, ...] = ("consumer_group", "consume_mode")
        yield from self._figure("rocketmq_consumer_connections", "Connected consumers.", labels, consumers)
        producers: Rows = (((name,), len(members)) for name, members in list(clients.producers.items()))
        labels = ("producer_group",)
        yield from self._figure("rocketmq_producer_connections", "Connected producers.", labels, producers)

    def _lag(self) -> Rows:
        """Messages that groups have not consumed yet, for those that are connected."""
        broker = self._broker
        for group in list(broker.clients.consumers.values()):
            if group.is_broadcasting:
                continue
            for topic in list(group.subscriptions):
                behind = 0
                for number, (queue_id, offset) in enumerate(list(broker.offsets.of_topic(group.name, topic).items())):
                    behind += max(broker.store.reader.offsets(topic, queue_id)[1] - offset, 0)
                    if number % QUEUES_IN_SLICE == QUEUES_IN_SLICE - 1:
                        yield None
                yield (topic, group.name, self._is_system(topic, group.name)), behind

    def _transactions(self) -> Iterator[str]:
        counts, labels = self._broker.transactions.counts, ("topic",)
        half: Rows = (((topic,), metric.count) for topic, metric in list(counts.open.items()))
        yield from self._figure("rocketmq_half_messages", "Transactions that nobody has ended yet.", labels, half)
        commits: Rows = (((topic,), count) for topic, count in list(counts.commits.items()))
        yield from self._figure("rocketmq_commit_messages_total", "Transactions committed.", labels, commits, "counter")
        back: Rows = (((topic,), count) for topic, count in list(counts.rollbacks.items()))
        yield from self._figure(
            "rocketmq_rollback_messages_total", "Transactions rolled back.", labels, back, "counter"
        )
        name = "rocketmq_finish_message_latency"
        yield _heading(name, "Seconds from the birth of a message to its commit.", "histogram")
        found = [(topic, latency.cumulative(), latency.total_s) for topic, latency in list(counts.latencies.items())]
        buckets: Rows = (((topic, limit), count) for topic, ends, _ in found for limit, count in ends)
        yield from self._lines(f"{name}_bucket", ("topic", "le"), buckets)
        yield from self._lines(f"{name}_count", labels, (((topic,), ends[-1][1]) for topic, ends, _ in found))
        yield from self._lines(f"{name}_sum", labels, (((topic,), total) for topic, _, total in found))

    def _state(self) -> Iterator[str]:
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
        faults: Rows = iter([((), broker.faults)])
        text = "Parts of a step that failed unexpectedly."
        yield from self._figure("kourou_internal_errors_total", text, (), faults, "counter")
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
            yield from self._figure(name, text, (), iter([((), value)]))

    def _is_system(self, topic: str, group: str = "") -> str:
        return str(self._broker.topics.is_system(topic) or names.is_system_group(group)).lower()


def _labels(text: str) -> dict[str, str]:
    """Labels from `name:value,name:value`, with names that Prometheus takes and that no figure has for itself."""
    pairs = (word.split(":") for word in text.split(",") if word)
    labels = {re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name.strip()): value.strip() for name, value in pairs}
    return {name: value for name, value in labels.items() if name not in _OWN_LABELS}


def _heading(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class MetricsServer:
    """Answers GET /metrics, and nothing else."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._figures = BrokerFigures(broker, now_ms)
        self._turn = asyncio.Lock()  # of all pages together, one slice in each turn of the loop
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
            if self._open > CONNECTIONS_MAX:
                writer.write(_answer(503, b"too many connections\n"))
            else:
                async with asyncio.timeout(REQUEST_TIME):
                    request = await reader.readuntil(b"\r\n\r\n")
                async with asyncio.timeout(PAGE_TIME):
                    await self._answer(request, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            writer.write(_answer(405, b"GET is expected\n"))
        elif path != b"/metrics":
            writer.write(_answer(404, b"/metrics is all there is\n"))
        else:
            writer.write(_head(200))
            if method == b"GET":
                await self._write_page(writer)
        await writer.drain()

    async def _write_page(self, writer: asyncio.StreamWriter) -> None:
        """The page ends with the connection: its size is not known before."""
        lines = self._figures.text()
        while True:
            async with self._turn:
                data = slice_of(lines)
                await asyncio.sleep(0)
            if data is None:
                return
            writer.write(data)
            await writer.drain()


def slice_of(lines: Iterator[str]) -> bytes | None:
    """As many lines as one turn of the event loop may write; None: that was all."""
    until = time.perf_counter() + SLICE
    some: list[str] = []
    for line in lines:
        some.append(line)
        if time.perf_counter() > until:
            break
    return "".join(some).encode() if some else None


_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _answer(status: int, body: bytes) -> bytes:
    return _head(status, len(body)) + body


def _head(status: int, size: int | None = None) -> bytes:
    length = "" if size is None else f"Content-Length: {size}\r\n"
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {TEXT}\r\n{length}Connection: close\r\n\r\n".encode()
