"""The lag of the connected groups, in messages and in time.

    committed ───── pulled ───── end of the queue
       │  in flight    │   ready     │
       └──────────── lag ────────────┘

A latency is the age of the first message of its part. All figures of a page are computed in one pass, with pauses. As
with Apache, a queue without a committed offset counts as read to its end.

Java: ConsumerLagCalculator.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kourou.broker import names
from kourou.broker.machine import Broker
from kourou.server.figures import COUNTER, Figure, Row, flag

QUEUES_IN_SLICE = 200
"""Queues between two pauses. For each queue the store times of up to two messages are read."""

LABELS = ("consumer_group", "topic", "is_retry", "is_system")


class Lag(NamedTuple):
    """The lag of one group in one topic."""

    labels: tuple[str, ...]
    behind: int
    behind_ms: int
    in_flight: int
    ready: int
    ready_ms: int


FIGURES: tuple[tuple[str, str, Callable[[Lag], int]], ...] = (
    ("lag_messages", "Messages that the group has not consumed.", lambda lag: lag.behind),
    ("lag_latency_milliseconds", "Age of the first message that it has not consumed.", lambda lag: lag.behind_ms),
    ("inflight_messages", "Messages that it has pulled and not consumed.", lambda lag: lag.in_flight),
    ("queueing_latency_milliseconds", "Age of the first message that it has not pulled.", lambda lag: lag.ready_ms),
    ("ready_messages", "Messages that it has not pulled.", lambda lag: lag.ready),
)


def lag_figures(broker: Broker, now_ms: int) -> Iterator[Figure]:
    lags: list[Lag] = []

    def pauses() -> Iterator[Row]:
        """Computes all lags."""
        for lag in _lags(broker, now_ms):
            if lag is None:
                yield None
            else:
                lags.append(lag)

    def rows(value: Callable[[Lag], int], before: Iterator[Row]) -> Iterator[Row]:
        yield from before
        for lag in lags:
            yield lag.labels, value(lag)

    first = pauses()
    for name, text, value in FIGURES:
        yield Figure(f"rocketmq_consumer_{name}", text, rows(value, first), LABELS)
    dead: Iterator[Row] = (
        ((group, topic, flag(broker.topics.is_system(topic) or names.is_system_group(group))), count)
        for (topic, group), count in list(broker.stats.dead_letters.items())
    )
    labels = ("consumer_group", "topic", "is_system")
    yield Figure("rocketmq_send_to_dlq_messages_total", "Messages that became dead letters.", dead, labels, COUNTER)


def _lags(broker: Broker, now_ms: int) -> Iterator[Lag | None]:
    """The lag of each group and topic; None is a pause."""
    queues = 0
    for group in list(broker.clients.consumers.values()):
        if group.is_broadcasting:
            continue
        for topic in list(group.subscriptions):
            if topic.startswith(names.RETRY_PREFIX) or topic not in broker.topics.table:
                continue
            total = _Sum(broker, group.name, topic)
            for queue_id in total.queues():
                total.add(queue_id)
                queues += 1
                if queues % QUEUES_IN_SLICE == 0:
                    yield None
            yield total.lag(now_ms)


class _Sum:
    """Adds up the queues of a topic."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self._reader = broker.store.reader
        self._stamp = broker.store.clock.at
        system = flag(broker.topics.is_system(topic) or names.is_system_group(group))
        self._labels = group, topic, "false", system
        self._topic = topic
        self._committed = dict(broker.offsets.of_topic(group, topic))
        self._pulled = dict(broker.offsets.pulled.get(f"{topic}@{group}", {}))
        self._behind = self._in_flight = self._ready = 0
        self._first_behind: int | None = None  # when the oldest of these was stored
        self._first_ready: int | None = None

    def queues(self) -> list[int]:
        return sorted(self._committed.keys() | self._pulled.keys())

    def add(self, queue_id: int) -> None:
        end = self._reader.offsets(self._topic, queue_id)[1]
        pulled = self._pulled.get(queue_id)
        committed = self._committed.get(queue_id)
        consumed = end if committed is None else min(committed, end)
        reached = consumed if pulled is None else min(max(pulled, consumed), end)
        self._behind += end - consumed
        self._in_flight += reached - consumed
        self._ready += end - reached
        if consumed < end:
            self._first_behind = self._older(self._first_behind, queue_id, consumed)
        if reached < end:
            self._first_ready = self._older(self._first_ready, queue_id, reached)

    def _older(self, so_far: int | None, queue_id: int, offset: int) -> int | None:
        stored_ms = self._reader.stored_ms_of(self._topic, queue_id, offset)
        if stored_ms <= 0:
            return so_far
        return stored_ms if so_far is None else min(so_far, stored_ms)

    def lag(self, now_ms: int) -> Lag:
        behind_ms, ready_ms = self._age(self._first_behind, now_ms), self._age(self._first_ready, now_ms)
        return Lag(self._labels, self._behind, behind_ms, self._in_flight, self._ready, ready_ms)

    def _age(self, stored_ms: int | None, now_ms: int) -> int:
        return 0 if stored_ms is None else max(self._stamp(now_ms) - stored_ms, 0)
