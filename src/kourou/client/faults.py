"""Which brokers to avoid for a while, because they failed or were slow. Pure; the caller passes the time.

    latency at least   50   100   550   1800   3000   5000   15000 ms
    avoided for         0     0  2000   5000   6000  10000   30000 ms

A failed send counts as 10 seconds. A broker that could not be reached is avoided until it is reached again. When all
are avoided, a slow broker is preferred to an unreachable one, and any broker to none.

Java: MQFaultStrategy.
"""

import msgspec

LATENCY_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
AVOIDED_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILED_LATENCY_MS = 10_000


def avoided_ms(latency_ms: float) -> int:
    """For how long a broker with this latency is avoided."""
    for least, avoided in zip(reversed(LATENCY_MS), reversed(AVOIDED_MS), strict=True):
        if latency_ms >= least:
            return avoided
    return 0


class _Fault(msgspec.Struct):
    until_ms: float = 0
    reachable: bool = True


class Faults:
    """The recent latencies and failures of brokers, by name."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def answered(self, broker: str, latency_ms: float, now_ms: float) -> None:
        """A send was answered after this time."""
        self._note(broker, latency_ms, now_ms, reachable=True)

    def failed(self, broker: str, now_ms: float, *, reachable: bool) -> None:
        """A send failed."""
        self._note(broker, FAILED_LATENCY_MS, now_ms, reachable=reachable)

    def _note(self, broker: str, latency_ms: float, now_ms: float, *, reachable: bool) -> None:
        fault = self._faults.get(broker)
        avoided = avoided_ms(latency_ms)
        if fault is None:
            if not avoided and reachable:
                return
            fault = self._faults[broker] = _Fault()
        fault.reachable = reachable
        if avoided:
            fault.until_ms = max(fault.until_ms, now_ms + avoided)

    def is_available(self, broker: str, now_ms: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.until_ms

    def is_reachable(self, broker: str) -> bool:
        fault = self._faults.get(broker)
        return fault is None or fault.reachable

    def unreachable(self) -> list[str]:
        """Brokers to probe for whether they are reachable again."""
        return [broker for broker, fault in self._faults.items() if not fault.reachable]

    def reached(self, broker: str) -> None:
        """The broker is reachable again."""
        if (fault := self._faults.get(broker)) is not None:
            fault.reachable = True
