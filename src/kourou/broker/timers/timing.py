"""When a message of the timer topic is due, as its record says it.

TIMER_OUT_MS      the slot that Apache's broker chose: delivery is due after it, and before the next one ends
TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC      what the sender asked for
"""

from functools import cache
from typing import Final

from kourou.broker.names import TIMER_TOPIC
from kourou.protocol.properties import Property
from kourou.protocol.record import StoredMessage

RAW_TOPIC: Final = TIMER_TOPIC.encode()

PRECISION_MAX_MS: Final = 1_000
"""The longest slots that any broker has."""

_FIELD, _END = b"\x01", b"\x02"
_OUT: Final = Property.TIMER_OUT_MS.encode()
_SECONDS: Final = Property.TIMER_DELAY_SEC.encode()
_DELAY: Final = Property.TIMER_DELAY_MS.encode()
_DELIVER: Final = Property.TIMER_DELIVER_MS.encode()
_ROLLS: Final = Property.TIMER_ROLL_TIMES.encode()
_REAL_TOPIC: Final = Property.REAL_TOPIC.encode()
DELETE_KEY: Final = Property.TIMER_DEL_UNIQUE_KEY.encode()


@cache
def _begins(name: bytes) -> tuple[bytes, bytes]:
    """How a property begins that is the first one, and how any other one."""
    return name + _FIELD, _END + name + _FIELD


def value(properties: bytes, name: bytes) -> bytes | None:
    """A property, without decoding all of them. `name` is one of a few."""
    first, other = _begins(name)
    if properties.startswith(first):
        begin = len(first)
    else:
        at = properties.find(other)
        if at < 0:
            return None
        begin = at + len(other)
    end = properties.find(_END, begin)
    return properties[begin:] if end < 0 else properties[begin:end]


def number(properties: bytes, name: bytes) -> int | None:
    text = value(properties, name)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def recalled_by(properties: bytes) -> bytes | None:
    """The message that this one recalls, as one of `names_of`; None: it is not a recall.

    A recall is of its own topic, whatever key it has: its sender may have no right on others.
    """
    key = value(properties, DELETE_KEY)
    return None if key is None else (value(properties, _REAL_TOPIC) or b"") + b"+" + key


def names_of(topic: bytes, key: bytes) -> tuple[bytes, bytes]:
    """How recalls name a message: by its unique key, or by topic and key (appendTopicForTimerDeleteKey)."""
    return topic + b"+" + key, topic + b"+" + topic + b"+" + key


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The slot that a time belongs to: the one that begins before it, not at it."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def out_ms(properties: bytes) -> int | None:
    """The slot that a message of the timer topic belongs to."""
    return number(properties, _OUT)


def exact_ms(message: StoredMessage, properties: bytes, slot_ms: int, precision_ms: int) -> int:
    """When a message is due that belongs to this slot: as the sender asked for it, if that can be known.

    The slots of the broker that stored the message may have been longer. A delay counts from the time when the broker
    stored the message. A message that has rolled was stored again since, and has TIMER_DELIVER_MS for that.
    """
    if value(properties, _ROLLS) is not None:
        due_ms = number(properties, _DELIVER) or 0
    elif (seconds := number(properties, _SECONDS)) is not None:
        due_ms = message.stored_ms + seconds * 1000
    elif (delay := number(properties, _DELAY)) is not None:
        due_ms = message.stored_ms + delay
    else:
        due_ms = number(properties, _DELIVER) or 0
    if slot_ms < due_ms <= slot_ms + PRECISION_MAX_MS:
        return due_ms
    due_ms = number(properties, _DELIVER) or 0
    return due_ms if slot_ms < due_ms <= slot_ms + PRECISION_MAX_MS else slot_ms + precision_ms
