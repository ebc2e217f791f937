"""The last hour of figures: a point every 5 seconds for displayed subjects. Pure: values and times are arguments."""

from array import array
from collections.abc import Iterable
from math import isnan, nan

import msgspec

from kourou.console.limits import LOOKED_AT_SECONDS, RING_FIGURES_MAX, RING_POINTS


class History(msgspec.Struct, frozen=True):
    """Points for a chart: times in seconds, and a series for each figure."""

    times: list[int]
    series: dict[str, list[float | None]]


class _Ring:
    """The points of one subject; NaN for a figure that was not known."""

    def __init__(self) -> None:
        self.times = array("q")
        self.values: dict[str, array[float]] = {}

    def add(self, seconds: int, figures: dict[str, float | None]) -> None:
        for name in figures:
            if name not in self.values:
                self.values[name] = array("d", [nan] * len(self.times))
        self.times.append(seconds)
        for name, values in self.values.items():
            value = figures.get(name)
            values.append(nan if value is None else value)
        if len(self.times) > RING_POINTS:
            del self.times[0]
            for values in self.values.values():
                del values[0]


class Rings:
    """Points by subject (such as `group:billing`) and figure."""

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._wanted: dict[str, float] = {}

    def want(self, subject: str, now: float) -> None:
        """The subject is displayed."""
        self._wanted[subject] = now

    def wanted(self, kind: str, now: float) -> list[str]:
        """The names of subjects of a kind that were displayed recently. Others are removed."""
        self._wanted = {name: at for name, at in self._wanted.items() if at > now - LOOKED_AT_SECONDS}
        prefix = f"{kind}:"
        return [name.removeprefix(prefix) for name in self._wanted if name.startswith(prefix)]

    def add(self, subject: str, seconds: int, figures: dict[str, float | None]) -> None:
        """A point. The subject that had its last point first is dropped if there are too many figures."""
        ring = self._rings.pop(subject, None) or _Ring()
        ring.add(seconds, figures)
        self._rings[subject] = ring  # the newest are last
        while sum(len(one.values) for one in self._rings.values()) > RING_FIGURES_MAX:
            self._rings.pop(next(iter(self._rings)))

    def history(self, subject: str, figures: Iterable[str]) -> History:
        ring = self._rings.get(subject) or _Ring()
        absent = array("d", [nan] * len(ring.times))
        return History(
            list(ring.times),
            {name: [None if isnan(one) else one for one in ring.values.get(name, absent)] for name in figures},
        )


class Rates:
    """Rates as differences of end offsets."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int, float | None]] = {}

    def rate(self, subject: str, at: float, count: int) -> float | None:
        """The rate per second since the last call; the same rate again if that is less than a second ago."""
        last = self._last.get(subject)
        if last is not None and at - last[0] < 1.0:
            return last[2]
        rate = None if last is None or count < last[1] else (count - last[1]) / (at - last[0])
        while len(self._last) >= RING_FIGURES_MAX:
            self._last.pop(next(iter(self._last)))
        self._last.pop(subject, None)
        self._last[subject] = (at, count, rate)
        return rate
