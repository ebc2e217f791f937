"""Spans of time, written the same on the command line and in Python: 500ms, 10s, 5m, 2h, 1d, 10 minutes."""

import re
from datetime import timedelta

Span = str | float | timedelta
"""A text such as "10s", a number of seconds, or a timedelta."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


def is_span(text: str) -> bool:
    match = _SPAN.fullmatch(text.strip())
    return match is not None and match[2] in _UNITS


def seconds_of(span: Span, name: str = "a span of time") -> float:
    """Its seconds. `name` says in the error what it was for. Raises ValueError."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if isinstance(span, int | float):
        return float(span)
    match = _SPAN.fullmatch(span.strip())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{name} {span}: a time such as 500ms, 10s, 5m, 2h, 1d or '10 minutes' is expected")
    return float(match[1]) * _UNITS[match[2]]


__all__ = ["Span", "is_span", "seconds_of"]
