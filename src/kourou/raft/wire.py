"""The encoding of messages between members.

    u32 size of all that follows │ u32 size of the message │ message, in msgpack │ bytes of the log

The log bytes of an AppendRequest follow the message: they are sent as a slice of the mapped log, without a copy.
A connection carries messages in one direction. Its first frame is a `Hello`, which names both members and the group.
Numbers are big-endian. A frame that is longer than any member sends, or that is not a message, ends the connection.
"""

import struct
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from kourou.protocol.errors import ProtocolError
from kourou.raft.members import MemberId
from kourou.raft.messages import AppendRequest, Message

HEAD_MAX: Final = 16 * 1024
"""The longest message: the one with the most members, and the longest names and addresses."""

DATA_MAX: Final = 32 * 1024 * 1024
"""The most bytes of the log in a frame: a record that is longer than `batch_bytes` is sent alone."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first frame of a connection."""

    group: Annotated[str, Meta(max_length=255)]
    sender: MemberId
    receiver: MemberId
    protocol: Literal["kourou-raft-1"] = "kourou-raft-1"


_SIZES = struct.Struct(">II")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Hello | Message)


def encode(message: Hello | Message, size: int = 0) -> bytes:
    """A frame without the bytes of the log that follow it; `size` is their number."""
    head = _encoder.encode(message)
    assert len(head) <= HEAD_MAX and size <= DATA_MAX, f"a frame of {len(head)} and {size} bytes"
    return _SIZES.pack(4 + len(head) + size, len(head)) + head


class Decoder:
    """Decodes messages from a stream of bytes. It keeps at most one incomplete frame."""

    def __init__(self, *, knows_sender: bool = True) -> None:
        """If the sender is not known, nothing long is kept before its `Hello`."""
        self._rest = bytearray()
        self._data_max = DATA_MAX if knows_sender else 0

    def feed(self, data: bytes | memoryview) -> list[Hello | Message]:
        """The messages that are now complete. Raises ProtocolError; the stream can't be decoded any further then."""
        self._rest += data
        messages: list[Hello | Message] = []
        at = 0
        while len(self._rest) - at >= _SIZES.size:
            size, head_size = _SIZES.unpack_from(self._rest, at)
            if head_size > HEAD_MAX or not 4 + head_size <= size <= 4 + head_size + self._data_max:
                raise ProtocolError(f"a frame of {size} bytes with a message of {head_size} is not one of a Raft group")
            if len(self._rest) - at < 4 + size:
                break
            body = at + _SIZES.size
            at += 4 + size
            message = _message(self._rest[body : body + head_size], bytes(self._rest[body + head_size : at]))
            messages.append(message)
            if isinstance(message, Hello):
                self._data_max = DATA_MAX
        del self._rest[:at]
        return messages


def _message(head: bytearray, data: bytes) -> Hello | Message:
    try:
        message: Hello | Message = _decoder.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a frame is not a message of a Raft group: {error}") from None
    if not isinstance(message, AppendRequest):
        if data:
            raise ProtocolError(f"{type(message).__name__} has {len(data)} bytes of the log, but must not have any")
        return message
    if message.data:
        raise ProtocolError("bytes of the log are inside of a message, instead of after it")
    return msgspec.structs.replace(message, data=data) if data else message
