from array import array

from kourou.broker.message_writer import MessageWriter
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.timers.counts import Counts
from kourou.broker.timers.due_slot import DueSlot
from kourou.store.store import Store

class TimerLane:
    def __init__(
        self, settings: BrokerSettings, store: Store, writer: MessageWriter, stats: Stats, counts: Counts
    ) -> None: ...
    def enter(
        self,
        slots: dict[int, DueSlot],
        queue_offset: int,
        read_ms: int,
        written_ms: int,
        until_ms: int,
        now_ms: int,
        *,
        count_max: int,
        size_max: int,
    ) -> int: ...
    def deliver(self, due: array[int], time_ms: int, now_ms: int, *, size_max: int) -> int: ...
