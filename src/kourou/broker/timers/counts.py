"""How many timed messages wait, by topic, and how many have entered and left the wheel.

The number of waiting messages is saved in the file timermetrics, in Apache's form. After a crash it may differ from
the real number by the messages of the last seconds.

Java: TimerMetrics.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from kourou.broker.meters import Histogram
from kourou.protocol.bodies import DataVersion, TimerMetric, TimerMetricsSerializeWrapper
from kourou.store.wall_clock import WallClock

DELAY_BOUNDS_S: Final = (60, 600, 3_600, 43_200, 86_400, 259_200)


class Counts:
    """The figures of one broker."""

    def __init__(self, kept: TimerMetricsSerializeWrapper | None, touch: Callable[[], None], clock: WallClock) -> None:
        """`touch` is called after each change, so that it is saved."""
        kept = kept or TimerMetricsSerializeWrapper()
        self._touch = touch
        self._clock = clock
        self._version = kept.data_version
        self._waiting = {topic: [metric.count, metric.time_stamp] for topic, metric in kept.timing_count.items()}
        self.enqueued = 0  # since the start
        self.dequeued = 0
        self.enqueued_of: Counter[str] = Counter()  # by topic
        self.dequeued_of: Counter[str] = Counter()
        self.delays: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(DELAY_BOUNDS_S))
        self._before = (0, 0, 0)  # a time, and both at that time
        self._rates = (0.0, 0.0)

    def entered(self, topic: str, now_ms: int, *, is_delete: bool, count: int = 1) -> None:
        """Messages were put into the wheel."""
        self.came(topic, count)
        if not is_delete:
            self._add(topic, count, now_ms)

    def came(self, topic: str, count: int = 1) -> None:
        """Messages were read from the timer topic."""
        self.enqueued += count
        self.enqueued_of[topic] += count

    def delivered(self, topic: str, count: int = 1) -> None:
        self.dequeued += count
        self.dequeued_of[topic] += count

    def waits(self, topic: str, seconds: int) -> None:
        """Record the delay of a message."""
        self.delays[topic].add(max(seconds, 0))

    def wait(self, topic: str, buckets: Sequence[int], total: int) -> None:
        """Record the delays of several messages: how many there are up to each bound, and their sum."""
        self.delays[topic].add_all(buckets, total)

    def left(self, topic: str, now_ms: int, count: int = 1) -> None:
        """Messages were delivered or recalled, or will be put into the wheel again."""
        self._add(topic, -count, now_ms)

    def _add(self, topic: str, amount: int, now_ms: int) -> None:
        metric = self._waiting.setdefault(topic, [0, 0])
        metric[0] = max(metric[0] + amount, 0)
        metric[1] = self._clock.at(now_ms)
        self._touch()

    @property
    def waiting(self) -> dict[str, TimerMetric]:
        """How many messages of each topic wait, and when the number changed."""
        return {topic: TimerMetric(count=count, time_stamp=ms) for topic, (count, ms) in self._waiting.items()}

    def rates(self, now_ms: int) -> tuple[float, float]:
        """How many messages entered and left per second since the last call, over at least a second."""
        before_ms, enqueued, dequeued = self._before
        seconds = (now_ms - before_ms) / 1000
        if seconds >= 1:
            self._rates = round((self.enqueued - enqueued) / seconds, 2), round((self.dequeued - dequeued) / seconds, 2)
            self._before = now_ms, self.enqueued, self.dequeued
        return self._rates

    def wrapper(self) -> TimerMetricsSerializeWrapper:
        """The contents of the file."""
        version = self._version
        self._version = DataVersion(
            state_version=version.state_version, timestamp=version.timestamp, counter=version.counter + 1
        )
        return TimerMetricsSerializeWrapper(timing_count=self.waiting, data_version=self._version)
