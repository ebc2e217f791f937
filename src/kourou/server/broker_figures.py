"""The figures of a broker for Prometheus.

Names, labels and buckets are those that Apache's broker 5.5 exports if it has the same figure, so that one dashboard
serves both. All figures are read when a page is requested.

Java: BrokerMetricsManager, RemotingMetricsManager.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from kourou.broker import names
from kourou.broker.clients import ConsumerGroup
from kourou.broker.machine import Broker
from kourou.broker.meters import Histogram, Rpc, Traffic
from kourou.broker.stats import Item
from kourou.protocol.codes import version_name
from kourou.server.figures import COUNTER, HISTOGRAM, Figure, Lines, Row, flag, one
from kourou.server.lag_figures import lag_figures
from kourou.server.replication_figures import replication_figures
from kourou.server.store_figures import store_figures

_OWN_LABELS = frozenset(
    (
        *("topic", "is_system", "is_retry", "message_type", "consumer_group", "consume_mode", "language", "version"),
        *("protocol_type", "processor", "request_code", "response_code", "is_long_polling", "result", "le"),
        *("invocation_status", "storage_type", "storage_medium", "timer_bound_s", "role", "slave", "member"),
    )
)

_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}

_PROCESSORS = (
    *("query_message", "client_manager", "heartbeat", "lite_pull", "transaction", "consumer_manager", "reply", "ack"),
    *("send", "pull"),
)
"""Apache's thread pools. Here, requests of these kinds are started in the turn in which they are read."""

_SENT_FROM_FILES = frozenset(("query_message", "view_message_by_id"))
"""Requests whose messages Apache's broker sends from its files. It does not export whether these were long polls."""


class BrokerFigures:
    """The page of one broker."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._now_ms = now_ms
        settings, self._wanted = broker.settings, broker.configuration.process
        labels = {**_labels(self._wanted.metrics_label), "cluster": settings.cluster, "node_type": "broker"}
        labels["node_id"] = settings.name
        self._lines = Lines(labels)  # the labels of all figures

    def text(self) -> Iterator[str]:
        """The page, line by line; an empty text is a pause."""
        if self._broker.lane is not None:
            self._broker.lane.hand_over(self._broker.meters)
        for figure in self._figures():
            yield from self._lines.of(figure)

    def _figures(self) -> Iterator[Figure]:
        wanted, broker, now_ms = self._wanted, self._broker, self._now_ms()
        if wanted.request_metrics:
            yield from self._messages()
            yield from self._creations()
        if wanted.remoting_metrics:
            yield self._latencies()
        if wanted.connection_metrics:
            yield from self._clients()
        if wanted.lag_metrics:
            yield from lag_figures(broker, now_ms)
        if wanted.transaction_metrics:
            yield from self._transactions()
        if wanted.stats_metrics:
            yield from self._state()
        if wanted.store_metrics:
            yield from store_figures(broker, now_ms)
        yield from self._ours(now_ms)
        yield from replication_figures(broker, now_ms)

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _messages(self) -> Iterator[Figure]:
        stats = self._broker.stats
        labels: tuple[str, ...] = ("topic", "message_type", "is_system")
        topics = list(stats.traffic.items())

        def of_topics(value: Callable[[Traffic], float | Histogram]) -> Iterator[Row]:
            for (topic, kind), item in topics:
                yield None if _is_left_out(topic) else ((topic, kind, self._is_system(topic)), value(item))

        rows = of_topics(lambda item: item.messages)
        yield Figure("rocketmq_messages_in_total", "Messages stored.", rows, labels, COUNTER)
        rows = of_topics(lambda item: item.size)
        yield Figure("rocketmq_throughput_in_total", "Bytes stored.", rows, labels, COUNTER)
        rows = of_topics(lambda item: item.sizes)
        yield Figure("rocketmq_message_size", "Sizes of stored messages in bytes.", rows, labels, HISTOGRAM)
        labels = ("topic", "consumer_group", "is_system")
        groups = list(stats.groups.items())

        def of_groups(value: Callable[[Item], float]) -> Iterator[Row]:
            for (topic, group), item in groups:
                yield None if _is_left_out(topic) else ((topic, group, self._is_system(topic, group)), value(item))

        rows = of_groups(lambda item: item.count)
        yield Figure("rocketmq_messages_out_total", "Messages handed out.", rows, labels, COUNTER)
        rows = of_groups(lambda item: item.size)
        yield Figure("rocketmq_throughput_out_total", "Bytes handed out.", rows, labels, COUNTER)

    def _creations(self) -> Iterator[Figure]:
        meters = self._broker.meters
        topics: Iterator[Row] = (
            ((outcome, flag(is_system)), found) for (outcome, is_system), found in list(meters.topic_creations.items())
        )
        name, text = "rocketmq_topic_create_execution_time_milliseconds", "Duration of requests that write topics."
        yield Figure(name, text, topics, ("invocation_status", "is_system"), HISTOGRAM)
        groups: Iterator[Row] = (((outcome,), found) for outcome, found in list(meters.group_creations.items()))
        name = "rocketmq_consumer_group_create_execution_time_milliseconds"
        yield Figure(name, "Duration of requests that write groups.", groups, ("invocation_status",), HISTOGRAM)

    def _latencies(self) -> Figure:
        rows: Iterator[Row] = (
            (("remoting", rpc.request, rpc.response, _long_polling(rpc), rpc.result), found)
            for rpc, found in list(self._broker.meters.latencies.items())
        )
        labels = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
        name = "rocketmq_rpc_latency_milliseconds"
        return Figure(name, "Time from a request to its answer.", rows, labels, HISTOGRAM)

    # ── Clients ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _clients(self) -> Iterator[Figure]:
        clients = self._broker.clients
        text = "Connected consumers."
        labels: tuple[str, ...] = (
            *("consumer_group", "language", "version", "consume_mode", "protocol_type"),
            "is_system",
        )
        rows = self._consumers(list(clients.consumers.values()))
        yield Figure("rocketmq_consumer_connections", text, rows, labels)
        text, labels = "Connected producers.", ("language", "version", "protocol_type")
        yield Figure("rocketmq_producer_connections", text, self._producers(), labels)

    def _consumers(self, groups: list[ConsumerGroup]) -> Iterator[Row]:
        for group in groups:
            kinds = Counter((client.language, client.version) for client in list(group.clients.values()))
            mode = _MODES.get(group.consume_type, group.consume_type.lower())
            system = flag(names.is_system_group(group.name))
            for (language, version), count in kinds.items():
                yield (group.name, language.lower(), version_name(version).lower(), mode, "remoting", system), count
            yield None

    def _producers(self) -> Iterator[Row]:
        kinds: Counter[tuple[str, int]] = Counter()
        for members in list(self._broker.clients.producers.values()):
            kinds.update((client.language, client.version) for client in list(members.values()))
            yield None
        for (language, version), count in kinds.items():
            yield (language.lower(), version_name(version).lower(), "remoting"), count

    # ── Transactions, state ───────────────────────────────────────────────────────────────────────────────────────

    def _transactions(self) -> Iterator[Figure]:
        counts, labels = self._broker.transactions.counts, ("topic",)
        half: Iterator[Row] = (((topic,), metric.count) for topic, metric in list(counts.open.items()))
        yield Figure("rocketmq_half_messages", "Open transactions.", half, labels)
        commits: Iterator[Row] = (((topic,), count) for topic, count in list(counts.commits.items()))
        yield Figure("rocketmq_commit_messages_total", "Transactions committed.", commits, labels, COUNTER)
        back: Iterator[Row] = (((topic,), count) for topic, count in list(counts.rollbacks.items()))
        yield Figure("rocketmq_rollback_messages_total", "Transactions rolled back.", back, labels, COUNTER)
        times: Iterator[Row] = (((topic,), latency) for topic, latency in list(counts.latencies.items()))
        name = "rocketmq_finish_message_latency_milliseconds"
        text = "Seconds (not milliseconds: the name is that of Apache) from the birth of a message to its commit."
        yield Figure(name, text, times, labels, HISTOGRAM)

    def _state(self) -> Iterator[Figure]:
        broker = self._broker
        text = "Permission bits: 4 read, 2 write."
        yield one("rocketmq_broker_permission", text, broker.settings.permission)
        yield one("rocketmq_topic_number", "Topics.", len(broker.topics.table))
        yield one("rocketmq_consumer_group_number", "Consumer groups.", len(broker.groups.table))
        waiting = dict.fromkeys(_PROCESSORS, 0)
        waiting |= {"async_put": broker.writer.waiting, "admin": broker.turns.count}
        rows: list[Row] = [((name,), count) for name, count in waiting.items()]
        text = "Requests that wait: async_put for the disk or slaves, admin among long requests."
        yield Figure("rocketmq_processor_watermark", text, rows, ("processor",))

    def _ours(self, now_ms: int) -> Iterator[Figure]:
        broker, store = self._broker, self._broker.store
        text = "Parts of a step that failed unexpectedly."
        yield one("kourou_internal_errors_total", text, broker.faults, COUNTER)
        yield one("kourou_commit_log_bytes", "Bytes of the commit log.", store.log.end - store.log.start)
        yield one("kourou_flush_late_ms", "For how long a sync of the log is overdue.", store.flush_late_ms(now_ms))
        yield one("kourou_held_pulls", "Pulls that wait for messages.", broker.pull.polls.waiting)
        yield one("kourou_waiting_sends", "Sends that wait for the disk.", broker.writer.waiting)
        yield one("kourou_store_refuses", "1 while nothing can be stored.", int(store.refusal is not None))

    def _is_system(self, topic: str, group: str = "") -> str:
        return flag(self._broker.topics.is_system(topic) or names.is_system_group(group))


def _long_polling(rpc: Rpc) -> str | None:
    is_from_files = rpc.request in _SENT_FROM_FILES and rpc.response == "success"
    return None if is_from_files else flag(rpc.is_long_polling)


def _is_left_out(topic: str) -> bool:
    """Apache's broker does not count messages of these topics."""
    return topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX))


def _labels(text: str) -> dict[str, str]:
    """Labels from `name:value,name:value`, if Prometheus accepts their names and no figure has a label of that name."""
    pairs = (word.split(":") for word in text.split(",") if word)
    labels = {re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name.strip()): value.strip() for name, value in pairs}
    return {name: value for name, value in labels.items() if name not in _OWN_LABELS}
