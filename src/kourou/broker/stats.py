"""What a broker counts: messages and bytes put and got, by topic, queue and group.

Counting is adding to an integer; everything else is worked out when somebody asks. Samples are taken every ten seconds,
ten minutes and hour, and kept for a minute, an hour and a day, as Apache has them.

Java: BrokerStatsManager, BrokerStats, StatsItem.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Item:
    """One counter: a value, how many times it was added to, and its samples."""

    value: int = 0
    times: int = 0
    minute: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=7))  # (ms, value, times)
    hour: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=7))
    day: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=25))


class Stats:
    """All counters of one broker."""

    def __init__(self) -> None:
        self.puts: dict[str, Item] = {}  # TOPIC_PUT_NUMS
        self.put_bytes: dict[str, Item] = {}  # TOPIC_PUT_SIZE
        self.gets: dict[tuple[str, str], Item] = {}  # GROUP_GET_NUMS, by topic and group
        self.get_bytes: dict[tuple[str, str], Item] = {}
        self.sent_back: dict[tuple[str, str], Item] = {}  # SNDBCK_PUT_NUMS
        self.put_total = 0
        self.put_bytes_total = 0
        self.get_total = 0
        self.get_bytes_total = 0

    def put(self, topic: str, count: int, size: int) -> None:
        """Messages were stored."""
        item = self.puts.get(topic)
        if item is None:
            item = self.puts[topic] = Item()
            self.put_bytes[topic] = Item()
        item.value += count
        item.times += 1
        self.put_bytes[topic].value += size
        self.put_total += count
        self.put_bytes_total += size

    def got(self, topic: str, group: str, count: int, size: int) -> None:
        """Messages were handed out."""
        key = topic, group
        item = self.gets.get(key)
        if item is None:
            item = self.gets[key] = Item()
            self.get_bytes[key] = Item()
        item.value += count
        item.times += 1
        self.get_bytes[key].value += size
        self.get_total += count
        self.get_bytes_total += size

    def was_sent_back(self, topic: str, group: str) -> None:
        item = self.sent_back.setdefault((topic, group), Item())
        item.value += 1
        item.times += 1
