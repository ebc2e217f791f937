"""The choice of messages: by store time, by key, by SQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kourou.protocol.properties import KEY_SEPARATOR
from kourou.spans import Span, seconds_of
from kourou.spark.errors import OptionError
from kourou.spark.options import Options
from kourou.spark.pipelines.running import explain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that all conditions allow; without conditions, all messages."""

    from_ms: int | None = None
    to_ms: int | None = None
    """Store time; the end is exclusive."""
    keys: tuple[str, ...] = ()
    """Messages with one of these keys, or with one of these as their unique key."""
    where: str | None = None
    """Spark's SQL, over the columns of the row schema."""

    @property
    def is_all(self) -> bool:
        return self == Choice()

    def apply(self, frame: "DataFrame") -> "DataFrame":
        """The chosen rows. Raises OptionError for SQL that Spark refuses."""
        from pyspark.sql import functions as F  # noqa: N812

        for bound, is_start in ((self.from_ms, True), (self.to_ms, False)):
            if bound is not None:
                moment = F.timestamp_millis(F.lit(bound))
                frame = frame.where(
                    frame["store_timestamp"] >= moment if is_start else frame["store_timestamp"] < moment
                )
        if self.keys:
            frame = frame.where(_has_key(frame, self.keys))
        if self.where is not None:
            from pyspark.errors import PySparkException

            try:
                frame = frame.where(self.where)
                frame.schema  # noqa: B018  # Spark looks at the SQL here
            except PySparkException as error:
                raise OptionError(f"where {self.where!r}: {explain(error)}") from None
        return frame


def _has_key(frame: "DataFrame", keys: Sequence[str]) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    wanted = F.array(*(F.lit(key) for key in keys))
    among = F.arrays_overlap(F.split(frame["keys"], KEY_SEPARATOR), wanted)
    return F.coalesce(among, F.lit(False)) | F.coalesce(frame["unique_key"].isin(*keys), F.lit(False))


Moment = str | datetime
"""A time: ms since 1970 or ISO 8601, in UTC unless a zone is given; or a datetime."""

Keys = str | Sequence[str]
"""A key, or several."""


def choice(
    *, since: Moment | None = None, until: Moment | None = None, key: Keys = (), where: str | None = None
) -> Choice:
    """The choice from the options of that name, of a pipeline and of its function. Raises OptionError."""
    given = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in (("since", since), ("until", until))
        if value is not None
    }
    options = Options(given, ("since", "until"))
    keys = (key,) if isinstance(key, str) else tuple(key)
    chosen = Choice(from_ms=options.time_ms("since"), to_ms=options.time_ms("until"), keys=keys, where=where)
    if chosen.from_ms is not None and chosen.to_ms is not None and chosen.from_ms > chosen.to_ms:
        raise OptionError("since is later than until")
    return chosen


def span_s(span: Span, name: str) -> float:
    """The seconds of an option such as `every`. Raises OptionError."""
    try:
        return seconds_of(span, name)
    except ValueError as error:
        raise OptionError(str(error)) from None


def size_bytes(size: int | str, name: str) -> int:
    """The bytes of an option such as `target_size`: a text with a unit, or a number of bytes. Raises OptionError."""
    if isinstance(size, str) and size.strip().isdigit():
        raise OptionError(f"{name} {size}: the unit is missing; a size such as 64m or 1g is expected")
    found = size if isinstance(size, int) else Options({name: size}, (name,)).size(name)
    if found is None:
        raise OptionError(f"{name} is empty: a size such as 64m or 1g is expected")
    return found


def text_of(body: Any, length: int = 60) -> str:
    """The beginning of a body, for a table."""
    text = bytes(body or b"")[: length * 4].decode("utf-8", "replace")
    return text if len(text) <= length else text[: length - 1] + "…"


def stored_ms() -> "Column":
    """Store time as a number: Spark gives timestamps in the zone of this machine, whichever that is."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.unix_millis("store_timestamp")
