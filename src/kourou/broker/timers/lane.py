"""The lane of timers: usual timed messages go into the wheel and out of it without an object per message.

    Timers ─▶ TimerLane.enter, TimerLane.deliver     usual messages, up to the first unusual one
                 └▶ 0: none ─▶ the general path      that message, and some after it

The general path (service.py, delivering.py) handles every message and defines the behaviour. The lane is compiled
(`_lane_timers.pyx`), and timers work without it. It handles messages of which the following is true:

- The broker has written their properties as it does for a send: the real topic and queue, the slot, and one of the
  three properties with a time. They have not rolled, and recall nothing.
- They go into a slot that is not delivered yet, that is within the range of the wheel, and whose place is free.
- To be delivered, they were entered by this broker, nothing in their slot is recalled, the queue of their topic is
  open, and the current segment of the log has room for the copy.

The lane is not used while the wheel is empty, nor while copies from before the start are looked up.
tests/property/test_timer_lane.py compares files and figures with those of the general path.
"""

from array import array
from typing import Protocol

from kourou.broker.message_writer import MessageWriter
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.timers.counts import Counts
from kourou.broker.timers.due_slot import DueSlot
from kourou.store.store import Store

try:
    from kourou.broker import _lane_timers

    IS_COMPILED = True
except ImportError:
    IS_COMPILED = False


class TimerLane(Protocol):
    """The interface of the lane for `Timers`."""

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
    ) -> int:
        """Put usual messages from this offset of the timer queue on into the wheel. Returns how many they were.

        `slots` are those in memory. Messages go into slots from `read_ms` on, and before `until_ms`. Raises
        DiskFullError, DiskFailedError; then nothing is changed.
        """

    def deliver(self, due: "array[int]", time_ms: int, now_ms: int, *, size_max: int) -> int:
        """Deliver usual messages from the end of `due`, positions in the timer log. Returns how many they were."""


def make_timer_lane(
    settings: BrokerSettings, store: Store, writer: MessageWriter, stats: Stats, counts: Counts
) -> TimerLane | None:
    """The lane of a broker; None where it is not compiled."""
    return _lane_timers.TimerLane(settings, store, writer, stats, counts) if IS_COMPILED else None
