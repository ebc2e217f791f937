"""Handles with which a waiting message can be recalled: base64 of `v1 topic broker time id`.

Java: RecallMessageHandle.
"""

import base64
import binascii
from typing import Final

import msgspec

from kourou.protocol.properties import Property

_VERSION: Final = "v1"


class Handle(msgspec.Struct, frozen=True, gc=False):
    """Identifies a message."""

    topic: str
    broker: str
    time: str  # within the slot of the message, in milliseconds
    unique_key: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker} {self.time} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @property
    def time_ms(self) -> int:
        """The time as a number; -1 if it is not a number in the form that brokers write."""
        return int(self.time) if len(self.time) <= 19 and self.time.isascii() and self.time.isdigit() else -1


def of_stored(properties: dict[str, str], broker: str) -> str:
    """The handle of a message in the timer topic with these properties."""
    time_ms = int(properties[Property.TIMER_OUT_MS]) + 1
    return Handle(properties[Property.REAL_TOPIC], broker, str(time_ms), properties[Property.UNIQUE_KEY]).encode()


def decode(text: str) -> Handle | None:
    """The decoded handle; None if the text is not a handle."""
    try:
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        words = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    if len(words) < 5 or words[0] != _VERSION:
        return None
    return Handle(words[1], words[2], words[3], words[4])
