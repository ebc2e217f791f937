"""Finds the waiting messages in the commit log if timer files are lost or damaged.

    the log, from the first message of the timer topic on:
        a message in the timer topic            waits
        the same message again, rolled          the older one no longer waits
        a recall                                its message no longer waits, nor do later rolled copies of it
        a copy, delivered by this broker        names its original, which no longer waits
        a copy, delivered by a Java broker      has the unique key and the slot of its original

The offsets of messages that no longer wait are collected; all other messages of the timer topic are put into a new
wheel. An Apache broker delivers every message again that is still in the log.
"""

from collections.abc import Iterator
from typing import Final

from kourou.broker.names import TIMER_TOPIC
from kourou.broker.timers.timing import DELETE_KEY, RAW_TOPIC, names_of, recalled_by, value
from kourou.protocol.properties import Property
from kourou.store.store import Store

RECORDS_IN_SLICE: Final = 200

_REAL_TOPIC: Final = Property.REAL_TOPIC.encode()
_OUT: Final = Property.TIMER_OUT_MS.encode()
_UNIQUE: Final = Property.UNIQUE_KEY.encode()
_ROLLED: Final = Property.TIMER_ROLL_TIMES.encode()

_Key = tuple[bytes, bytes, bool]
"""Unique key, slot, and whether it is a recall."""


class Waiting:
    """The waiting messages in the part of the log that was read."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[int]] = {}
        self._topics: dict[int, bytes] = {}  # the real topics of waiting messages
        self._recalled: set[tuple[bytes, bytes]] = set()  # recalled messages by name, and their slots
        self._done: list[int] = []

    def entered(self, offset: int, properties: bytes) -> None:
        """Process a record of the timer topic."""
        key = _key(properties)
        same = self._waiting.setdefault(key, [])
        if same and value(properties, _ROLLED) is not None:
            self._is_done(same.pop())
        same.append(offset)
        self._topics[offset] = value(properties, _REAL_TOPIC) or b""
        recalled = recalled_by(properties)
        if recalled is not None:
            self._recalled.add((recalled, key[1]))

    def _is_done(self, offset: int) -> None:
        self._done.append(offset)
        self._topics.pop(offset, None)

    def delivered(self, original: int, properties: bytes) -> None:
        """Process a copy. `original`: the offset of its original; negative if the copy does not have it."""
        key = _key(properties)
        same = self._waiting.get(key)
        if same:
            one = original if original in same else same[0]
            same.remove(one)
            self._is_done(one)
            if not same:
                del self._waiting[key]

    def done(self) -> list[int]:
        """The whole log was read: the offsets of messages of the timer topic that no longer wait."""
        for (unique, slot, is_recall), offsets in self._waiting.items():
            if is_recall or not self._recalled:
                continue
            for offset in offsets:
                if any((name, slot) in self._recalled for name in names_of(self._topics[offset], unique)):
                    self._done.append(offset)
        return self._done


def _key(properties: bytes) -> _Key:
    is_recall = value(properties, DELETE_KEY) is not None
    return value(properties, _UNIQUE) or b"", value(properties, _OUT) or b"", is_recall


def search(store: Store, waiting: Waiting) -> Iterator[None]:
    """Read the log into `waiting`, in slices. Raises OSError, StoreError."""
    queue = store.queues.get(TIMER_TOPIC, 0)
    if queue is None or queue.start >= queue.end:
        return
    number = 0
    for number, record in enumerate(store.log.records(queue.entry(queue.start)[0]), 1):
        message = record.message()
        properties = bytes(message.raw_properties)
        if value(properties, _OUT) is not None:
            if message.raw_topic == RAW_TOPIC:
                waiting.entered(message.physical_offset, properties)
            else:
                waiting.delivered(~message.prepared_offset, properties)
        if number % RECORDS_IN_SLICE == 0:
            yield
