"""Batch bodies: many messages of one topic in the body of one send (request code 320).

    size 4 | magic 4 = 0 | CRC 4 = 0 | flag 4 | body size 4 | body | properties size 2 | properties      (repeated)

`size` counts the whole entry. Magic and CRC are ignored: the broker computes its own when it stores the messages. Every
message has its own unique key; none is compressed or delayed.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kourou.protocol import properties as _properties
from kourou.protocol.errors import BodyError, LocalProtocolError
from kourou.protocol.message import BODY_SIZE_MAX, Message

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
ENTRY_SIZE_MIN: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchEntry(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch. Slices of a memoryview stay memoryviews."""

    flag: int
    body: bytes | memoryview
    raw_properties: bytes | memoryview

    @property
    def properties(self) -> dict[str, str]:
        """The properties, parsed at each call."""
        return _properties.decode(self.raw_properties)


def encode_batch(messages: Iterable[Message], limit: int = BODY_SIZE_MAX) -> bytes:
    """Encode these messages as a batch body.

    Raises LocalProtocolError if there are none, if their topics differ, or if they take more than `limit` bytes.
    """
    messages = list(messages)
    if len({message.topic for message in messages}) != 1:
        raise LocalProtocolError("a batch needs at least one message, and all messages must have the same topic")
    body = b"".join(map(_encode_entry, messages))
    if len(body) > limit:
        raise LocalProtocolError(f"a batch of {len(messages)} messages takes {len(body)} bytes, more than {limit}")
    return body


def _encode_entry(message: Message) -> bytes:
    body = message.body
    raw = _properties.encode(message.properties).encode()
    try:
        head = _HEAD.pack(ENTRY_SIZE_MIN + len(body) + len(raw), 0, 0, message.flag, len(body))
    except struct.error as error:
        raise LocalProtocolError(f"can't encode a message with flag {message.flag}: {error}") from None
    return b"".join((head, body, _PROPERTIES_SIZE.pack(len(raw)), raw))


class BatchCountError(BodyError):
    """A batch has too many messages."""


def decode_batch(
    data: bytes | memoryview, limit: int = BODY_SIZE_MAX, count_max: int | None = None
) -> list[BatchEntry]:
    """Decode a batch body; an empty body has no messages. Raises BodyError with the offset of the invalid entry.

    Stricter than Java, which trusts the inner lengths: here they must stay within the entry and add up to its size.
    More than `count_max` messages are also an error.
    """
    return list(iterate_batch(data, limit, count_max))


def iterate_batch(
    data: bytes | memoryview, limit: int = BODY_SIZE_MAX, count_max: int | None = None
) -> Iterator[BatchEntry]:
    """As `decode_batch`, one message at a time: a batch may have tens of thousands."""
    if len(data) > limit:
        raise BodyError(f"a batch of {len(data)} bytes is larger than {limit}")
    at = count = 0
    while at < len(data):
        if count_max is not None and count >= count_max:
            raise BatchCountError(f"a batch has more than {count_max} messages, the limit")
        entry, at = _decode_entry(data, at)
        count += 1
        yield entry


def _decode_entry(data: bytes | memoryview, at: int) -> tuple[BatchEntry, int]:
    left = len(data) - at
    if left < ENTRY_SIZE_MIN:
        raise BodyError(f"batch entry at {at}: {left} bytes are left, but an entry has at least {ENTRY_SIZE_MIN}")
    size, _magic, _crc, flag, body_size = _HEAD.unpack_from(data, at)
    if not ENTRY_SIZE_MIN <= size <= left:
        raise BodyError(f"batch entry at {at}: its size is {size}, but {left} bytes are left")
    if not 0 <= body_size <= size - ENTRY_SIZE_MIN:
        raise BodyError(f"batch entry at {at}: a body of {body_size} bytes does not fit into an entry of {size}")
    body_at = at + _HEAD.size
    properties_at = body_at + body_size + _PROPERTIES_SIZE.size
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_at + body_size)
    end = properties_at + properties_size
    if end != at + size:
        raise BodyError(f"batch entry at {at}: properties of {properties_size} bytes do not end where it ends")
    return BatchEntry(flag, data[body_at : body_at + body_size], data[properties_at:end]), end
