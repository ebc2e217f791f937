"""Filter pushdown: which queues, offsets and store times the filters of a query allow.

A filter that is accepted is applied exactly: Spark does not evaluate it again, and shows it in its plan
(`PushedFilters`). Spark evaluates the others.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kourou.protocol.message import MessageQueue
from kourou.spark.planning import Range
from kourou.spark.selection import EVER, Selection

PLACES: Final = ("topic", "broker", "queue_id")
OFFSET: Final = "queue_offset"
TIME: Final = "store_timestamp"
NEVER_NULL: Final = (*PLACES, OFFSET, TIME)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PushedFilters(msgspec.Struct):
    """Bounds, from the first inclusive to the second exclusive."""

    allowed: dict[str, set[object]] = {}
    """The allowed values of columns that are constant within a queue, by column."""
    offset_from: int = 0
    offset_to: int = EVER
    stored_from_ms: int = 0
    stored_to_ms: int = EVER

    def take(self, one: Filter) -> bool:
        """Accepts a filter that the reader can apply exactly; False if Spark has to evaluate it."""
        name = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""  # type: ignore[attr-defined]
        if isinstance(one, IsNotNull):
            return name in NEVER_NULL
        if isinstance(one, EqualTo | In) and name in PLACES:
            values = set(one.value) if isinstance(one, In) else {one.value}
            self.allowed[name] = self.allowed.get(name, values) & values
            return True
        if name == OFFSET:
            return self._take_offset(one)
        return name == TIME and self._take_time(one)

    def _take_offset(self, one: Filter) -> bool:
        bounds = _bounds(one, 1)
        if bounds is None:
            return False
        self.offset_from, self.offset_to = max(self.offset_from, bounds[0]), min(self.offset_to, bounds[1])
        return True

    def _take_time(self, one: Filter) -> bool:
        bounds = _bounds(one, 1000)  # times are stored in milliseconds, and compared in microseconds
        if bounds is None:
            return False
        self.stored_from_ms = max(self.stored_from_ms, bounds[0])
        self.stored_to_ms = min(self.stored_to_ms, bounds[1])
        return True

    def wants(self, queue: MessageQueue) -> bool:
        facts = {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
        return all(fact in self.allowed.get(name, {fact}) for name, fact in facts.items())

    def cut(self, one: Range) -> Range:
        start = max(one.start, self.offset_from)
        return Range(one.queue, start, max(start, min(one.end, self.offset_to)))

    def select(self, selection: Selection) -> Selection:
        return msgspec.structs.replace(
            selection,
            stored_from_ms=max(selection.stored_from_ms, self.stored_from_ms),
            stored_to_ms=min(selection.stored_to_ms, self.stored_to_ms),
        )


def _bounds(one: Filter, unit: int) -> tuple[int, int] | None:
    """The range that a comparison allows, in units; None for other filters and other values."""
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    value = _number(one.value)
    if value is None:
        return None
    below, above = value // unit, -(-value // unit)  # the units around the value
    if isinstance(one, GreaterThanOrEqual):
        return above, EVER
    if isinstance(one, GreaterThan):
        return below + 1, EVER
    if isinstance(one, LessThan):
        return 0, above
    if isinstance(one, LessThanOrEqual):
        return 0, below + 1
    return above, below + 1


def _number(value: Any) -> int | None:
    """An offset, or the microseconds of a time."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None
