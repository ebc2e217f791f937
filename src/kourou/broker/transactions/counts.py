"""How many transactions are open, and how many were committed and rolled back, by topic.

The first is kept in the file transactionMetrics, in Apache's form; the others are for Prometheus, and begin with zero.

Java: TransactionMetrics, BrokerMetricsManager.initTransactionMetrics.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from kourou.protocol.bodies import DataVersion, TransactionMetric, TransactionMetricsSerializeWrapper
from kourou.store.wall_clock import WallClock

LATENCY_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Buckets of the time from the birth of a message to its commit, in seconds."""


@dataclass(slots=True)
class Latency:
    """How long transactions took, as a histogram."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    total_s: int = 0

    def add(self, seconds: int) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """How many took at most so many seconds, as Prometheus wants it."""
        bounds = [*(str(float(bound)) for bound in LATENCY_BOUNDS_S), "+Inf"]
        return list(zip(bounds, accumulate(self.buckets), strict=True))


class Counts:
    """The figures of one broker."""

    def __init__(
        self, kept: TransactionMetricsSerializeWrapper | None, touch: Callable[[], None], clock: WallClock
    ) -> None:
        """`touch` is called after each change, so that it is kept."""
        kept = kept or TransactionMetricsSerializeWrapper()
        self._touch = touch
        self._clock = clock
        self._version = kept.data_version
        self.open: dict[str, TransactionMetric] = dict(kept.transaction_count)
        self.commits: Counter[str] = Counter()
        self.rollbacks: Counter[str] = Counter()
        self.latencies: defaultdict[str, Latency] = defaultdict(Latency)

    def opened(self, topic: str, now_ms: int) -> None:
        """A half message was stored."""
        self._add(topic, 1, now_ms)

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
        wall_ms = self._clock.at(now_ms)
        before = self.open.get(topic)
        count = amount if before is None else before.count + amount
        self.open[topic] = TransactionMetric(count=count, time_stamp=wall_ms)
        version = self._version
        self._version = DataVersion(state_version=version.state_version, timestamp=wall_ms, counter=version.counter + 1)
        self._touch()

    def forget_but(self, topics: Container[str]) -> None:
        """Other topics were removed."""
        for table in (self.open, self.commits, self.rollbacks, self.latencies):
            for topic in [topic for topic in table if topic not in topics]:
                del table[topic]

    def wrapper(self) -> TransactionMetricsSerializeWrapper:
        """What is kept."""
        return TransactionMetricsSerializeWrapper(transaction_count=dict(self.open), data_version=self._version)
