"""The numbers of open, committed and rolled back transactions, by topic.

The number of open ones is saved in the file transactionMetrics, in Apache's form; the others are for Prometheus, and
start at zero.

Java: TransactionMetrics, BrokerMetricsManager.initTransactionMetrics.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container
from typing import Final

from kourou.broker.meters import Histogram
from kourou.protocol.bodies import DataVersion, TransactionMetric, TransactionMetricsSerializeWrapper
from kourou.store.wall_clock import WallClock

LATENCY_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Buckets of the time from the birth of a message to its commit, in seconds."""


class Counts:
    """The figures of one broker."""

    def __init__(
        self, kept: TransactionMetricsSerializeWrapper | None, touch: Callable[[], None], clock: WallClock
    ) -> None:
        """`touch` is called after each change, so that it is saved."""
        kept = kept or TransactionMetricsSerializeWrapper()
        self._touch = touch
        self._clock = clock
        self._version = kept.data_version
        self._open = {topic: [metric.count, metric.time_stamp] for topic, metric in kept.transaction_count.items()}
        self._changes = 0  # since `_version`
        self._changed_ms = 0  # the time of the last one
        self.commits: Counter[str] = Counter()
        self.rollbacks: Counter[str] = Counter()
        self.latencies: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LATENCY_BOUNDS_S))

    def opened(self, topic: str, now_ms: int, count: int = 1) -> None:
        """Half messages were stored."""
        self._add(topic, count, now_ms)

    def closed(self, topic: str, now_ms: int) -> None:
        """One was committed, rolled back or discarded."""
        self._add(topic, -1, now_ms)

    def committed(self, topic: str, born_ms: int, now_ms: int) -> None:
        self.closed(topic, now_ms)
        self.commits[topic] += 1
        self.latencies[topic].add(max(self._clock.at(now_ms) - born_ms, 0) // 1000)

    def rolled_back(self, topic: str, now_ms: int) -> None:
        self.closed(topic, now_ms)
        self.rollbacks[topic] += 1

    def _add(self, topic: str, amount: int, now_ms: int) -> None:
        metric = self._open.get(topic)
        if metric is None:
            metric = self._open[topic] = [0, 0]
        metric[0] += amount
        metric[1] = self._changed_ms = self._clock.at(now_ms)
        self._changes += abs(amount)
        self._touch()

    @property
    def open(self) -> dict[str, TransactionMetric]:
        """How many transactions of each topic are open, and when the number changed."""
        return {topic: TransactionMetric(count=count, time_stamp=ms) for topic, (count, ms) in self._open.items()}

    def forget_but(self, topics: Container[str]) -> None:
        """Other topics were removed."""
        for table in (self._open, self.commits, self.rollbacks, self.latencies):
            for topic in [topic for topic in table if topic not in topics]:
                del table[topic]

    def wrapper(self) -> TransactionMetricsSerializeWrapper:
        """The contents of the file."""
        version = self._version
        if self._changes:
            self._version = version = DataVersion(
                state_version=version.state_version,
                timestamp=self._changed_ms,
                counter=version.counter + self._changes,
            )
            self._changes = 0
        return TransactionMetricsSerializeWrapper(transaction_count=self.open, data_version=version)
