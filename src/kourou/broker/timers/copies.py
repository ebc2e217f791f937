"""Copies of timed messages: those that are delivered, and those that are put into the wheel again."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from kourou.broker.names import TIMER_TOPIC
from kourou.protocol import properties as _properties
from kourou.protocol.properties import Property
from kourou.protocol.record import RECORD_CRC_SIZE, StoredMessage
from kourou.store.commit_log import NewMessage

_CRC_BEGIN: Final = f"{Property.RECORD_CRC}\x01".encode()
_ENQUEUED: Final = f"{Property.TIMER_ENQUEUE_MS}\x01".encode()


class Offsets:
    """Offsets of the commit log, 8 bytes each."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._offsets = array("q", sorted(offsets))

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self._offsets, offset)
        return at < len(self._offsets) and self._offsets[at] == offset

    def __len__(self) -> int:
        return len(self._offsets)


def properties_of(original: StoredMessage) -> bytes:
    """The properties of a record, without its CRC."""
    properties = bytes(original.raw_properties)
    if properties[-RECORD_CRC_SIZE:].startswith(_CRC_BEGIN):
        return properties[:-RECORD_CRC_SIZE]
    return properties


def with_times(properties: bytes, entered_ms: int, delivered_ms: int) -> bytes:
    """The properties, with the times when the message was put into the wheel and taken out."""
    added = f"{Property.TIMER_ENQUEUE_MS}\x01{entered_ms}\x02{Property.TIMER_DEQUEUE_MS}\x01{delivered_ms}\x02"
    if _ENQUEUED not in properties:
        joint = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
        return properties + joint + added.encode()
    table = _properties.decode(properties)  # it has rolled
    table[Property.TIMER_ENQUEUE_MS] = str(entered_ms)
    table[Property.TIMER_DEQUEUE_MS] = str(delivered_ms)
    return _properties.encode(table).encode()


def rolled(properties: bytes, exact_ms: int) -> bytes:
    """The properties of a message that is put into the wheel again."""
    table = _properties.decode(properties)
    times = table.get(Property.TIMER_ROLL_TIMES, "0")
    table[Property.TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isdigit() else 1)
    table[Property.TIMER_DELIVER_MS] = str(exact_ms)  # a delay would be counted from now
    return _properties.encode(table).encode()


def copy(original: StoredMessage, topic: str, queue_id: int, properties: bytes) -> NewMessage:
    """A copy, which refers to its original."""
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=bytes(original.body),
        properties=properties,
        born_ms=original.born_ms,
        born_host=original.born_host,
        flag=original.flag,
        sys_flag=original.sys_flag,
        reconsume_times=original.reconsume_times,
        prepared_offset=~original.physical_offset,
    )


def may_be_delivered_to(topic: str | None, queue_id: str | None) -> bool:
    """Does a message have a valid topic and queue for its delivery?"""
    return bool(topic) and topic != TIMER_TOPIC and queue_id is not None and queue_id.isdigit()
