"""The bytes of units, slots and the checkpoint of timers."""

import struct
from typing import Final, NamedTuple
from zlib import crc32

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size
"""52."""

SLOT: Final = struct.Struct(">qqqii")
SLOT_SIZE: Final = SLOT.size
"""32."""

SLOTS: Final = 2 * 7 * 86_400
"""How many slots a wheel has, whatever its precision."""

BLANK: Final = struct.Struct(">iqi")
BLANK_MAGIC: Final = 0xCBD43194 - 2**32
"""The rest of a file of units is unused."""

NONE: Final = -1
"""No unit."""

DEFAULT, ROLL, DELETE = 1, 2, 4
"""Bits of the magic of a unit. ROLL: the message is put into the wheel again when the unit is due. DELETE: the message
recalls another message.
"""

CHECKPOINT_SIZE: Final = 4096
CHECKPOINT_HEAD: Final = struct.Struct(">7q")
_EXTENSION: Final = struct.Struct(">8sqqqI")
_EXTENSION_AT: Final = 64
_EXTENSION_MAGIC: Final = b"kourou 1"


class Unit(NamedTuple):
    """A waiting message, as stored in the timer log."""

    size: int
    previous: int  # the previous unit of its slot, or NONE
    magic: int
    written_ms: int  # when it was put into the wheel, in whole slots
    delay_ms: int  # from then until the beginning of its slot
    physical_offset: int  # of the message in the commit log
    record_size: int
    topic_hash: int
    exact_ms: int  # when it is due; 0: the message has the time

    @property
    def slot_ms(self) -> int:
        """The beginning of its slot."""
        return self.written_ms + self.delay_ms

    @property
    def is_valid(self) -> bool:
        """Are the values of the unit consistent?"""
        return self.size == UNIT_SIZE and 0 <= self.magic <= 0xF and self.record_size > 0


class Slot(NamedTuple):
    """One slot of the wheel."""

    first: int
    last: int
    messages: int


EMPTY: Final = Slot(NONE, NONE, 0)


class TimerCheckpoint(NamedTuple):
    """The progress of the timers."""

    read_ms: int = 0  # slots before this time are delivered
    flush_end: int = 0  # units of the timer log before this position are durable and in the wheel
    queue_offset: int = 0  # messages of the timer topic before this offset are in the wheel or delivered
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    delivered_from: int | None = None
    """Copies of messages of slots from `read_ms` on, and of messages from `queue_offset` on, are at this log offset or
    after it. None: a Java broker wrote the checkpoint, and does not mark its copies.
    """
    pending: int = 0  # units of slots from `read_ms` on
    precision_ms: int = 0  # of the wheel; 0: not known

    @property
    def head(self) -> bytes:
        """The answer to GET_TIMER_CHECK_POINT."""
        return CHECKPOINT_HEAD.pack(*self[:7])

    def encode(self) -> bytes:
        data = bytearray(CHECKPOINT_SIZE)
        head = self.head
        data[: len(head)] = head
        if self.delivered_from is not None:
            rest = self.delivered_from, self.pending, self.precision_ms
            _EXTENSION.pack_into(data, _EXTENSION_AT, _EXTENSION_MAGIC, *rest, _crc(head, *rest))
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheckpoint | None":
        """The checkpoint in these bytes; None if they are not a checkpoint."""
        if len(data) < CHECKPOINT_HEAD.size:
            return None
        found = cls(*CHECKPOINT_HEAD.unpack_from(data))
        if min(found[:4]) < 0:
            return None
        if len(data) >= _EXTENSION_AT + _EXTENSION.size:
            magic, *rest, crc = _EXTENSION.unpack_from(data, _EXTENSION_AT)
            if magic == _EXTENSION_MAGIC and crc == _crc(found.head, *rest):
                return cls(*found[:7], *rest)
        return found


def _crc(head: bytes, delivered_from: int, pending: int, precision_ms: int) -> int:
    """The CRC of head and extension: if a Java broker changes only the head, the extension becomes invalid."""
    return crc32(struct.pack(">qqq", delivered_from, pending, precision_ms), crc32(head))
