"""The time of day, for store times and for display.

All durations and deadlines run on the steady clock: `now_ms`, which every step gets. It starts at the time of day and
never jumps. The time of day may: an administrator sets it, or a virtual machine resumes. The driver measures the
difference before each step (`skew_ms`), and this module turns one time into the other.

    steady   ──────────────────────────────▶  now_ms: deadlines, intervals, time-outs
    of day   ───────▶      ┌───────────────▶  at(now_ms): displayed, compared with times from users
                    └──────┘  set back
    stamps   ───────▶ ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌──────▶  stamp(now_ms): store times of messages

Store times never go back along the log, because messages are found by time with a binary search. While the time of day
is behind the last stamp, stamps advance by the steady clock, a little more slowly, until the time of day has caught up.
So a message with a delay of ten seconds is due ten seconds later, whatever happens to the clock.
"""

SLEW = 16
"""While the time of day is behind, stamps advance by 15 of 16 milliseconds: an hour is made good in 16 hours."""


class WallClock:
    """The time of day that corresponds to a time of the steady clock."""

    __slots__ = ("_last_ms", "_set_ms", "_steady_ms", "skew_ms")

    def __init__(self) -> None:
        self.skew_ms = 0  # time of day minus steady time, as the driver measured it last
        self._last_ms = 0  # the last stamp
        self._set_ms = 0  # the last stamp that was the time of day …
        self._steady_ms: int | None = None  # … and the steady time when it was given

    def at(self, now_ms: int) -> int:
        """The time of day."""
        return now_ms + self.skew_ms

    def stamp(self, now_ms: int) -> int:
        """The store time of a message that arrives now: the time of day, but never earlier than the stamp before."""
        wall_ms = now_ms + self.skew_ms
        if self._steady_ms is None:  # the first stamp
            slewed_ms, self._steady_ms = self._set_ms, now_ms
        else:
            slewed_ms = self._set_ms + (now_ms - self._steady_ms) * (SLEW - 1) // SLEW
        if wall_ms >= slewed_ms:
            self._last_ms = self._set_ms = wall_ms
            self._steady_ms = now_ms
        else:
            self._last_ms = slewed_ms
        return self._last_ms

    def start_from(self, stamp_ms: int) -> None:
        """The log has a message with this store time: no later message may have an earlier time."""
        self._last_ms = self._set_ms = max(self._last_ms, stamp_ms)
        self._steady_ms = None
