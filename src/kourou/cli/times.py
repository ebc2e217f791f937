"""Times and spans of time in options."""

from datetime import UTC, datetime
from enum import StrEnum

import typer

from kourou.spans import is_span, seconds_of


class Ends(StrEnum):
    """The ends of a queue."""

    FIRST = "first"
    LAST = "last"


def parse_span(text: str, option: str) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `2h`, `1d`. Raises BadParameter."""
    try:
        return seconds_of(text, option)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_start(text: str, option: str = "--from") -> Ends | float:
    """An end of the queues, or seconds since the epoch. Raises BadParameter."""
    if text in tuple(Ends):
        return Ends(text)
    if is_span(text):
        return datetime.now(UTC).timestamp() - parse_span(text, option)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{option} {text}: last, first, a time ago such as 5m, or a time such as 2026-01-31T12:00 is expected"
        ) from None


def moment(time_ms: int) -> str:
    """A time in ms as local time; empty for no time, or one outside the calendar."""
    if time_ms <= 0:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return ""


def iso_time(time_ms: int) -> str | None:
    """A time in ms as local time with zone, ISO 8601; None for no time, or one outside the calendar."""
    if time_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
