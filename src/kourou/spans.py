"""Spans of time, written the same on the command line and in Python: 500ms, 10s, 5m, 2h, 1d, 10 minutes."""

import re
from datetime import timedelta

Span = str | float | timedelta
"""A text such as "10s", a number of seconds, or a timedelta."""

_PART = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+) ?")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


def is_span(text: str) -> bool:
    return _seconds(text) is not None


def seconds_of(span: Span, name: str = "a span of time") -> float:
    """Its seconds. `name` is the name of the value in the error. Raises ValueError."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if isinstance(span, int | float):
        return float(span)
    found = _seconds(span)
    if found is None:
        raise ValueError(f"{name} {span}: a time such as 500ms, 10s, 5m, 1h30m, 1d or '10 minutes' is expected")
    return found


def _seconds(text: str) -> float | None:
    text = text.strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text) or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


__all__ = ["Span", "is_span", "seconds_of"]
