"""The counters of a broker: messages put and got, by topic and group, and their rates.

Counting is adding to integers; everything else is computed on request. From time to time the counts are
written down, and a rate is the difference of two of these samples:

    every second with a change             the whole broker, for the figures over 10 s, 1 min and 10 min of its status
    every 10 s, every 10 min, every hour   each topic and group, for their last minute, hour and day
    at midnight                            the totals, so that there is a "today" and a "yesterday"

A topic or group of which nothing was counted for a day is forgotten; it is counted from nothing when it comes back.

Java: BrokerStatsManager, StatsItem, StoreStatsService, BrokerStats.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kourou.broker.meters import MESSAGE_TYPES, Traffic
from kourou.protocol.bodies import BrokerStatsData, BrokerStatsItem
from kourou.turns import Slices

K = TypeVar("K")

SECOND_MS, TEN_SECONDS_MS, TEN_MINUTES_MS, HOUR_MS, DAY_MS = 1_000, 10_000, 600_000, 3_600_000, 86_400_000

MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
DAY_SAMPLES: Final = 25

ITEMS_MAX: Final = 50_000
"""How many topics and groups are counted one by one: about 4 kB each, after a day. Others count in the totals alone."""

RATE_SECONDS: Final = (10, 60, 600)

Sample = tuple[int, int, int, int]
"""When, and the three counts then: messages, bytes, calls."""


class Item:
    """The counts of one topic, of one group in a topic, or of the whole broker."""

    __slots__ = ("calls", "count", "day", "hour", "is_system", "minute", "size")

    def __init__(self, *, is_system: bool = False) -> None:
        self.count = 0  # messages
        self.size = 0  # bytes
        self.calls = 0  # how many requests these came with
        self.is_system = is_system  # of one of the broker's own topics
        self.minute: list[Sample] = []
        self.hour: list[Sample] = []
        self.day: list[Sample] = []

    def sample(self, samples: list[Sample], now_ms: int, interval_ms: int, keep: int) -> None:
        """Write down the counts. Those of a new item have grown from nothing since an interval ago."""
        if not samples:
            samples.append((now_ms - interval_ms, 0, 0, 0))
        samples.append((now_ms, self.count, self.size, self.calls))
        if len(samples) > keep:
            del samples[0]

    @property
    def is_idle(self) -> bool:
        """Was nothing counted for a whole day?"""
        return len(self.day) >= DAY_SAMPLES and self.day[0][1:] == (self.count, self.size, self.calls)

    def counts(self) -> BrokerStatsData:
        """Messages in the last minute, hour and day."""
        return self._windows(1)

    def sizes(self) -> BrokerStatsData:
        """Bytes in the same."""
        return self._windows(2)

    @property
    def per_second(self) -> float:
        """Messages a second, over the last minute."""
        return _window(self.minute, 1).tps

    def _windows(self, field: int) -> BrokerStatsData:
        return BrokerStatsData(
            stats_minute=_window(self.minute, field),
            stats_hour=_window(self.hour, field),
            stats_day=_window(self.day, field),
        )


def _remove(table: dict[tuple[str, str], Any], is_wanted: Callable[[tuple[str, str]], bool]) -> None:
    for key in [key for key in table if is_wanted(key)]:
        del table[key]


def _window(samples: list[Sample], field: int) -> BrokerStatsItem:
    if not samples:
        return BrokerStatsItem()
    first, last = samples[0], samples[-1]
    total, time_ms, calls = last[field] - first[field], last[0] - first[0], last[3] - first[3]
    return BrokerStatsItem(
        sum=total, tps=total * 1000 / time_ms if time_ms > 0 else 0.0, avgpt=total / calls if calls > 0 else 0.0
    )


class Second(NamedTuple):
    """The whole broker at one moment."""

    ms: int
    puts: int  # messages stored
    found: int  # reads that found messages
    missed: int  # reads that found none
    got: int  # messages handed out


class DayTotals:
    """Totals at the last two midnights, of topics that are not the broker's own."""

    __slots__ = ("today_morning", "yesterday_morning")

    def __init__(self) -> None:
        self.today_morning = 0
        self.yesterday_morning = 0

    def new_day(self, total: int) -> None:
        self.yesterday_morning, self.today_morning = self.today_morning, total


class Stats:
    """All counters of one broker."""

    def __init__(
        self,
        is_system: Callable[[str], bool] = lambda _: False,
        now_ms: int = 0,
        local_day: Callable[[int], object] = lambda now_ms: now_ms // DAY_MS,
    ) -> None:
        """`is_system` knows the broker's own topics; `local_day` names the day of a time, midnight being the host's."""
        self._is_system = is_system
        self._local_day = local_day
        self.topics: dict[str, Item] = {}  # messages put
        self.groups: dict[tuple[str, str], Item] = {}  # messages got, by topic and group
        self.sent_back: dict[tuple[str, str], Item] = {}  # messages that a group could not handle, by topic and group
        self.traffic: dict[tuple[str, str], Traffic] = {}  # messages put, by topic and type
        self.dead_letters: Counter[tuple[str, str]] = Counter()  # by topic and group
        self.puts = Item()  # of the whole broker
        self.gets = Item()
        self.user_puts = Item()  # the same without its own topics
        self.user_gets = Item()
        self.found = 0  # reads that found messages
        self.missed = 0  # reads that did not
        self.put_days = DayTotals()
        self.get_days = DayTotals()
        self._seconds: deque[Second] = deque([Second(now_ms, 0, 0, 0, 0)], maxlen=RATE_SECONDS[-1] + 1)
        self._day = local_day(now_ms)
        self._due_ms = dict.fromkeys((SECOND_MS, TEN_SECONDS_MS, TEN_MINUTES_MS, HOUR_MS), now_ms)
        self._due_ms[SECOND_MS] += SECOND_MS

    # ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, topic: str, count: int, size: int, calls: int = 1, message_type: str | None = None) -> None:
        """Messages were stored, by one request or by several.

        Of a type, if one request has stored them; the lane counts its own types apart.
        """
        item = self.topics.get(topic)
        if item is None:
            item = self._new(self.topics, topic, topic)
        item.count += count
        item.size += size
        item.calls += calls
        total = self.puts
        total.count += count
        total.size += size
        if not item.is_system:
            self.user_puts.count += count
        if message_type is not None:
            self._traffic_of(topic, message_type).add(count, size)

    def put_before(
        self, topic: str, message_type: str, count: int, size: int, sizes: Sequence[int], total: int
    ) -> None:
        """Add the counts of the lane by type; `put` has added them to the other counts already."""
        self._traffic_of(topic, message_type).add_all(count, size, sizes, total)

    def _traffic_of(self, topic: str, message_type: str) -> Traffic:
        key = topic, message_type
        found = self.traffic.get(key)
        if found is None:
            found = Traffic()
            if len(self.traffic) < ITEMS_MAX:
                self.traffic[key] = found
        return found

    def got(self, topic: str, group: str, count: int, size: int) -> None:
        """Messages were handed out by one request."""
        key = topic, group
        item = self.groups.get(key)
        if item is None:
            item = self._new(self.groups, key, topic)
        item.count += count
        item.size += size
        item.calls += 1
        total = self.gets
        total.count += count
        total.size += size
        self.found += 1
        if not item.is_system:
            self.user_gets.count += count

    def was_sent_back(self, topic: str, group: str) -> None:
        """A group could not handle a message of a topic."""
        key = topic, group
        item = self.sent_back.get(key)
        if item is None:
            item = self._new(self.sent_back, key, topic)
        item.count += 1
        item.calls += 1

    def died(self, topic: str, group: str) -> None:
        """A message of a topic became a dead letter of a group."""
        key = topic, group
        if key in self.dead_letters or len(self.dead_letters) < ITEMS_MAX:
            self.dead_letters[key] += 1

    def _new(self, table: dict[K, Item], key: K, topic: str) -> Item:
        item = Item(is_system=self._is_system(topic))
        if len(self.topics) + len(self.groups) + len(self.sent_back) < ITEMS_MAX:
            table[key] = item
        return item

    # ── Forgetting ────────────────────────────────────────────────────────────────────────────────────────────────

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        self.topics.pop(topic, None)
        for table in (self.groups, self.sent_back, self.traffic, self.dead_letters):
            _remove(table, lambda key: key[0] == topic)

    def forget_group(self, group: str) -> None:
        for table in (self.groups, self.sent_back, self.dead_letters):
            _remove(table, lambda key: key[1] == group)

    # ── Sampling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, _now_ms: int) -> int | None:
        """When `step` has samples to take. While nothing is counted, none are taken every second."""
        times = self._due_ms
        due_ms = min(times[TEN_SECONDS_MS], times[TEN_MINUTES_MS], times[HOUR_MS])
        return due_ms if self._is_same else min(due_ms, times[SECOND_MS])

    @property
    def _is_same(self) -> bool:
        """Was nothing counted since the last second?"""
        last = self._seconds[-1]
        return (
            last.puts == self.puts.count
            and last.got == self.gets.count
            and last.found == self.found
            and last.missed == self.missed
        )

    def catch_up(self, now_ms: int) -> None:
        """Add the seconds in which nothing was counted, which `step` left out. To be called before `rates`."""
        last = self._seconds[-1]
        count = (now_ms - last.ms) // SECOND_MS - (not self._is_same)
        for number in range(max(1, count - RATE_SECONDS[-1]), count + 1):
            self._seconds.append(last._replace(ms=last.ms + number * SECOND_MS))

    def step(self, now_ms: int) -> Slices[None]:
        """Take the samples that are due."""
        if self._is_due(SECOND_MS, now_ms):
            self.catch_up(now_ms)
            self._sample_second(now_ms)
        if self._is_due(TEN_SECONDS_MS, now_ms):
            for item in self._items():
                item.sample(item.minute, now_ms, TEN_SECONDS_MS, MINUTE_SAMPLES)
                yield 0
        if self._is_due(TEN_MINUTES_MS, now_ms):
            for item in self._items():
                item.sample(item.hour, now_ms, TEN_MINUTES_MS, HOUR_SAMPLES)
                yield 0
        if self._is_due(HOUR_MS, now_ms):
            for item in self._items():
                item.sample(item.day, now_ms, HOUR_MS, DAY_SAMPLES)
                yield 0
            yield from self._forget_idle()

    def _is_due(self, interval_ms: int, now_ms: int) -> bool:
        due_ms = self._due_ms[interval_ms]
        if now_ms < due_ms:
            return False
        due_ms += interval_ms
        self._due_ms[interval_ms] = due_ms if due_ms > now_ms else now_ms + interval_ms
        return True

    def _items(self) -> Iterable[Item]:
        for items in [list(table.values()) for table in self._tables]:
            yield from items
        yield from (self.puts, self.gets, self.user_puts, self.user_gets)

    def _sample_second(self, now_ms: int) -> None:
        if not self._is_same:
            self._seconds.append(Second(now_ms, self.puts.count, self.found, self.missed, self.gets.count))
        day = self._local_day(now_ms)
        if day != self._day:
            self._day = day
            self.put_days.new_day(self.user_puts.count)
            self.get_days.new_day(self.user_gets.count)

    def _forget_idle(self) -> Slices[None]:
        for table in self._tables:
            for key, item in list(table.items()):
                if item.is_idle and table.get(key) is item:
                    del table[key]
                    if table is self.topics:
                        for message_type in MESSAGE_TYPES:
                            self.traffic.pop((key, message_type), None)
                yield 0

    @property
    def _tables(self) -> tuple[dict[Any, Item], ...]:
        return self.topics, self.groups, self.sent_back

    # ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def put_rate(self, topic: str) -> float:
        """Messages a second that a topic gets."""
        item = self.topics.get(topic)
        return 0.0 if item is None else item.per_second

    def get_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group gets of a topic."""
        item = self.groups.get((topic, group))
        return 0.0 if item is None else item.per_second

    def rates(self, amount: Callable[[Second], int]) -> list[float | None]:
        """Per second, over the last 10 s, minute and 10 minutes; None where the broker has not run for as long."""
        seconds, last = self._seconds, self._seconds[-1]
        found: list[float | None] = []
        for length in RATE_SECONDS:
            rate = None
            if len(seconds) > length:
                first = seconds[-1 - length]
                rate = (amount(last) - amount(first)) * 1000 / max(last.ms - first.ms, 1)
            found.append(rate)
        return found

    def view(self, name: str, key: str, cluster: str) -> BrokerStatsData | None:
        """One of Apache's counters by its name; None if there is none, or nothing was counted."""
        item = self._find(name, key, cluster)
        if item is None:
            return None
        return item.sizes() if name.endswith("_SIZE") else item.counts()

    def _find(self, name: str, key: str, cluster: str) -> Item | None:
        topic, _, group = key.partition("@")
        match name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return self.topics.get(key)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                return self.groups.get((topic, group))
            case "SNDBCK_PUT_NUMS":
                return self.sent_back.get((topic, group))
        totals = {
            "BROKER_PUT_NUMS": self.puts,
            "BROKER_GET_NUMS": self.gets,
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": self.user_puts,
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": self.user_gets,
        }
        return totals.get(name) if key == cluster else None
