"""The two ids of a message, both upper-case hex of 16 bytes, or of 28 with IPv6.

    offset id   where it is stored:   store host 8 or 20 | physical offset 8
    unique id   its producer, and when:  IP 4 or 16 | pid 2 | process hash 4 | ms of the month 4 | counter 2

The broker assigns the offset id, the producer the unique id (in the property UNIQ_KEY). Compare ids as opaque strings:
the Go client writes the end of its unique ids in lower case.
"""

import struct
from typing import Final, NamedTuple

from kourou.protocol.errors import ProtocolError
from kourou.protocol.hosts import decode_host
from kourou.protocol.message import PhysicalOffset

IPV4_ID_LENGTH: Final = 32
IPV6_ID_LENGTH: Final = 56

_UNIQUE_TAIL: Final = struct.Struct(">HIIH")


class OffsetId(NamedTuple):
    """The contents of an offset id: the broker that stored the message, and the position in its commit log."""

    host: str
    offset: PhysicalOffset


class UniqueId(NamedTuple):
    """The contents of a unique id: the producer, and when the id was made."""

    ip: bytes
    pid: int
    process_hash: int
    ms_of_month: int
    counter: int

    def sent_ms(self, now_ms: int, month_ms: int, last_month_ms: int) -> int:
        """When it was made, given the start of this month and of the last one at the producer: never in the future."""
        this_month = month_ms + self.ms_of_month
        return this_month if this_month < now_ms else last_month_ms + self.ms_of_month


class UniqueIds:
    """Makes the unique ids of one process. Java: MessageClientIDSetter.

    The process hash (any 32 bits) distinguishes processes with the same pid and address.
    """

    def __init__(self, ip: bytes, pid: int, process_hash: int) -> None:
        assert len(ip) in (4, 16), "an IP address has 4 or 16 bytes"
        # A pid may be larger than two bytes: its low half is used, as in Java.
        self._prefix = (ip + struct.pack(">HI", pid & 0xFFFF, process_hash & 0xFFFFFFFF)).hex().upper()
        self._counter = 0

    def next(self, now_ms: int, month_ms: int) -> str:
        """A new id, given the time and the start of this month in local time.

        Ids are unique as long as fewer than 65536 are made per millisecond; a clock that is set back before the month
        counts as its first moment.
        """
        ms_of_month = max(now_ms - month_ms, 0) & 0xFFFFFFFF
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{ms_of_month:08X}{counter:04X}"


def encode_offset_id(store_host: bytes, offset: PhysicalOffset) -> str:
    """The offset id of the record at `offset` of the broker at `store_host` (8 or 20 bytes)."""
    return (store_host + offset.to_bytes(8, signed=True)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """Decode an offset id. Raises ProtocolError."""
    raw = _unhex(text, "offset id")
    return OffsetId(decode_host(raw[:-8]), PhysicalOffset(int.from_bytes(raw[-8:], signed=True)))


def decode_unique_id(text: str) -> UniqueId:
    """Decode a unique id. Raises ProtocolError."""
    raw = _unhex(text, "unique id")
    return UniqueId(raw[:-12], *_UNIQUE_TAIL.unpack(raw[-12:]))


def _unhex(text: str, what: str) -> bytes:
    if len(text) in (IPV4_ID_LENGTH, IPV6_ID_LENGTH):
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        if len(raw) * 2 == len(text):  # fromhex ignores blanks
            return raw
    raise ProtocolError(f"{text[:80]!r} is not a valid {what}: 32 or 56 hex digits are expected")
