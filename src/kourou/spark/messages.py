"""Rows -> messages ready to be sent.

    column          type                      without it
    body            binary or string          (needed)
    topic           string                    option topic, which wins over the column
    tags            string
    keys            string or array<string>
    ordering_key    string                    any queue
    delay_level     int                       delivered at once
    deliver_at      timestamp                 delivered at once
    properties      map<string,string>
    flag            int                       0
    unique_key      string                       generated: the same for the same row, however often it is sent

Other columns of the row schema, and `date` and `hour` of a lake, are accepted and not sent: rows that were read from a
topic or a lake can be written unchanged. System properties are omitted, since the broker sets its own.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.protocol import properties as _properties
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.message import BODY_SIZE_MAX as BODY_SIZE_MAX
from kourou.protocol.properties import KEY_SEPARATOR, RESERVED, Property
from kourou.spark.columns import COLUMNS
from kourou.spark.errors import OptionError, SparkError

if TYPE_CHECKING:
    import pyarrow as pa

SENT: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "ordering_key": ("string",),
    "delay_level": ("int",),
    "deliver_at": ("timestamp",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "unique_key": ("string",),
}

LEFT_OUT: Final = frozenset(COLUMNS) | {"date", "hour"}
"""Columns that a DataFrame may have; they are sent only if they are listed above."""

KAFKA: Final[Mapping[str, str]] = {
    "value": "body",
    "key": "keys, or ordering_key if it selects the queue",
    "headers": "properties, a map",
    "partition": "ordering_key: messages with the same key go to the same queue",
}
"""Columns of Spark's Kafka sink, and what to use instead."""

_USUAL: Final = ("topic", "body", "tags", "keys", "ordering_key", "flag", "unique_key")
_USUAL_QUICKLY: Final = frozenset(("body", "tags", "keys", "unique_key"))
_PLACE: Final = frozenset(("topic", "broker", "queue_id", "queue_offset"))
"""Columns that identify a row that was read from a topic."""

_USUAL_TEXT_MAX: Final = 4096
_USUAL_BODY_MAX: Final = BODY_SIZE_MAX // 4  # in characters, which may take four bytes each
"""Rows for the fast path; all others take the slow path, which also reports errors."""


def check_columns(given: Mapping[str, str], topic: str | None) -> None:
    """Raises OptionError for a DataFrame that can't become messages."""
    unknown = [name for name in given if name not in SENT and name not in LEFT_OUT]
    if unknown:
        for name in unknown:
            if name.lower() in KAFKA:
                raise OptionError(f"no column {name} in a message: use {KAFKA[name.lower()]}")
        raise OptionError(f"no column {', '.join(unknown)} in a message: there are {', '.join(SENT)}")
    for name, kinds in SENT.items():
        if name in given and given[name] not in kinds:
            raise OptionError(f"column {name} has type {' or '.join(kinds)}, not {given[name]}")
    if "body" not in given:
        raise OptionError("a message needs a column body, binary or string")
    if topic is None and "topic" not in given:
        raise OptionError("no topic to write to: give option topic, or a column topic")


class Draft(msgspec.Struct, gc=False):
    """A message as it is sent."""

    topic: str
    ordering_key: str | None
    is_delayed: bool
    flag: int
    body: bytes
    properties: str

    def entry(self) -> bytes:
        """As part of a batch."""
        raw = self.properties.encode()
        return b"".join(
            (
                (22 + len(self.body) + len(raw)).to_bytes(4),
                b"\0\0\0\0\0\0\0\0",
                self.flag.to_bytes(4, signed=True),
                len(self.body).to_bytes(4),
                self.body,
                len(raw).to_bytes(2),
                raw,
            )
        )


class Drafts:
    """Makes drafts of one task's rows.

    `identity` distinguishes this write from others, and is the same when it is repeated; with the number of a row it
    gives the unique key. Rows that were read from a topic are identified by their position there instead, which does
    not depend on how Spark distributes rows.
    """

    def __init__(self, topic: str | None, identity: str) -> None:
        self._topic = topic
        self._identity = identity
        self._prefix = _digest(identity)
        self._places: dict[tuple[Any, ...], str] = {}
        self._number = 0

    def of(self, batch: "pa.RecordBatch") -> Iterator[Draft]:
        """Raises SparkError for a row that can't be sent."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in SENT}
        places = self._source_places(batch)
        given = [columns.get(name) or repeat(None) for name in _USUAL]
        is_usual = not columns.keys() - set(_USUAL)
        for at, (topic, body, tags, keys, ordering_key, flag, unique_key) in enumerate(
            islice(zip(*given, strict=False), batch.num_rows)
        ):
            key = unique_key or (self._unique_key() if places is None else self._place_key(places, at))
            self._number += 1
            text = usual_properties(tags, keys, ordering_key, key) if is_usual else None
            target = self._topic or topic
            if text is not None and target and body and len(body) <= _USUAL_BODY_MAX:
                raw = body if type(body) is bytes else body.encode()
                yield Draft(target, ordering_key, False, flag or 0, raw, text)
                continue
            row = {name: values[at] for name, values in columns.items()} | {"unique_key": key}
            try:
                yield self._draft(row)
            except (LocalProtocolError, SparkError) as error:
                raise SparkError(f"row {self._number} can't be sent: {error}") from None

    def usual_columns(
        self, batch: "pa.RecordBatch"
    ) -> "tuple[pa.Array, pa.Array | None, pa.Array | None, pa.Array | None] | None":
        """Body, tags, keys and unique key of rows without other columns, all for one topic; None for others."""
        names = set(batch.schema.names)
        others = (names & SENT.keys()) - _USUAL_QUICKLY
        if self._topic is None or others - {"topic"} or names >= _PLACE:
            return None
        found = [batch.column(name) if name in names else None for name in ("body", "tags", "keys", "unique_key")]
        return found[0], found[1], found[2], found[3]

    @property
    def identity(self) -> tuple[str, str, int]:
        """The topic, and the parts of the unique key of the next row: a text and a number."""
        return self._topic or "", self._prefix, self._number

    def count(self, rows: int) -> None:
        """This number of rows became messages elsewhere."""
        self._number += rows

    def _unique_key(self) -> str:
        return f"{self._prefix}{self._number:012X}"

    @staticmethod
    def _source_places(batch: "pa.RecordBatch") -> list[list[Any]] | None:
        if not set(batch.schema.names) >= _PLACE:
            return None
        return [batch.column(name).to_pylist() for name in ("topic", "broker", "queue_id", "queue_offset")]

    def _place_key(self, places: list[list[Any]], at: int) -> str:
        place = tuple(values[at] for values in places)
        if place[3] is None:
            return self._unique_key()
        prefix = self._places.get(place[:3])
        if prefix is None:
            prefix = self._places[place[:3]] = _digest(f"{self._topic}|{place[:3]}")
        return f"{prefix}{place[3]:012X}"

    def _draft(self, row: dict[str, Any]) -> Draft:
        topic = self._topic or row.get("topic")
        if not topic:
            raise SparkError("its topic is null")
        body = row["body"]
        if body is None:
            raise SparkError("its body is null")
        if isinstance(body, str):
            body = body.encode()
        if not 0 < len(body) <= BODY_SIZE_MAX:
            raise SparkError(f"its body has {len(body)} bytes: 1 to {BODY_SIZE_MAX} are allowed")
        named = {
            name: value for name, value in row.get("properties") or () if name not in RESERVED and value is not None
        }
        delay = _delay(row)
        named.update(delay)
        named.update(_lifted(row))
        named[Property.WAIT_STORED] = "true"
        return Draft(topic, row.get("ordering_key"), bool(delay), row.get("flag") or 0, body, _properties.encode(named))


def usual_properties(tags: str | None, keys: object, ordering_key: str | None, unique_key: str) -> str | None:
    """The properties of a message that has no others; None if the slow path has to make them."""
    if keys is not None and type(keys) is not str:
        return None
    text, count = f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02", 2
    if tags:
        text, count = f"{text}TAGS\x01{tags}\x02", count + 1
    if keys:
        text, count = f"{text}KEYS\x01{keys}\x02", count + 1
    if ordering_key:
        text, count = f"{text}__SHARDINGKEY\x01{ordering_key}\x02", count + 1
    if len(text) > _USUAL_TEXT_MAX or text.count("\x01") != count or text.count("\x02") != count:
        return None
    return text


def _lifted(row: dict[str, Any]) -> dict[str, str]:
    """The columns that are sent as properties. Missing ones may be among the properties that were read."""
    read = dict(row.get("properties") or ())
    keys = row["keys"] if "keys" in row else read.get(Property.KEYS)
    if isinstance(keys, list):
        keys = KEY_SEPARATOR.join(key for key in keys if key)
    found = {
        Property.TAGS: row["tags"] if "tags" in row else read.get(Property.TAGS),
        Property.KEYS: keys,
        Property.UNIQUE_KEY: row["unique_key"],
        Property.SHARDING_KEY: row.get("ordering_key"),
    }
    return {name: value for name, value in found.items() if value}


def _delay(row: dict[str, Any]) -> dict[str, str]:
    level, moment = row.get("delay_level"), row.get("deliver_at")
    if level and moment is not None:
        raise SparkError("give either delay_level or deliver_at, not both")
    if level:
        return {Property.DELAY_LEVEL: str(level)}
    if moment is None:
        return {}
    assert isinstance(moment, datetime)
    return {Property.TIMER_DELIVER_MS: str(round(moment.astimezone(UTC).timestamp() * 1000))}


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=10).hexdigest().upper()
