"""Counters of one client, to be exported by the program. Plain numbers, cheap to count and to read."""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class SendCounts:
    """Sends of one topic since the start."""

    messages: int = 0
    bytes: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0  # from send to answer, summed up over answered sends


@dataclass(slots=True)
class ConsumeCounts:
    """Consumption of one topic by one group since the start."""

    pulls: int = 0
    pull_seconds: float = 0.0
    pulled: int = 0
    pulled_bytes: int = 0
    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0  # total time in listeners


@dataclass(slots=True)
class ClientMetrics:
    """`sent[topic]`, `consumed[group, topic]`; names are those that brokers know."""

    sent: "defaultdict[str, SendCounts]" = field(default_factory=lambda: defaultdict(SendCounts))
    consumed: "defaultdict[tuple[str, str], ConsumeCounts]" = field(default_factory=lambda: defaultdict(ConsumeCounts))
    rebalances: int = 0

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """All counters as (name, labels, value), as Prometheus clients take them."""
        found: list[tuple[str, dict[str, str], float]] = [("kourou_client_rebalances_total", {}, self.rebalances)]
        for topic, sent in self.sent.items():
            found += [
                (f"kourou_client_send_{name}_total", {"topic": topic}, getattr(sent, name))
                for name in SendCounts.__slots__
            ]
        for (group, topic), consumed in self.consumed.items():
            labels = {"group": group, "topic": topic}
            found += [
                (f"kourou_client_consume_{name}_total", labels, getattr(consumed, name))
                for name in ConsumeCounts.__slots__
            ]
        return found
