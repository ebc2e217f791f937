"""Reads the bytes of a stored record: the only code that differs between plain and compiled Python.

This module uses `struct` and the methods of `bytes`. In the compiled record.py, functions with the same names in
layout.pxd replace it, which use shifts and memchr. Both trust the caller that the bytes are inside the buffer. Property
tests check that the two agree.

    offset  size                           with IPv4 hosts; an IPv6 host takes 20 bytes instead of 8
         0     4  size of the record       head
         4     4  magic: kind of record
         8     4  CRC of the body as stored
        12     4  queue id
        16     4  flag, the user's
        20     8  queue offset
        28     8  physical offset
        36     4  system flags
        40     8  born, ms
        48     8  born host
        56     8  stored, ms
        64     8  store host
        72     4  reconsume times          tail
        76     8  prepared transaction offset
        84     4  size of the body
        88        body
                  size of the topic (1 byte; 2 with the second magic), topic
                  size of the properties (2 bytes), properties
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from kourou.protocol.hashes import crc32, java_hash
from kourou.protocol.message import PhysicalOffset, QueueOffset

if TYPE_CHECKING:
    from mmap import mmap

Buffer: TypeAlias = "bytes | memoryview | mmap"
"""Where records are: a pull answer, a slice of a log, or a mapped segment."""

HEAD_SIZE: Final = 48
TAIL_SIZE: Final = 16
NOT_ASCII: Final = 1 << 40
"""The result of `ascii_hash` for other text: no hash is that large."""

_Head: TypeAlias = tuple[int, int, int, int, int, QueueOffset, PhysicalOffset, int, int]
_Spans: TypeAlias = tuple[int, int, int, int, int, int]

head: Callable[[memoryview, int], _Head] = struct.Struct(">iiiiiqqiq").unpack_from
"""Size, magic, body CRC, queue id, flag, queue offset, physical offset, system flags, born ms."""

start: Callable[[memoryview, int], tuple[int, int]] = struct.Struct(">ii").unpack_from
"""Size and magic only, for bytes that may not be a record."""

tail: Callable[[memoryview, int], tuple[int, PhysicalOffset, int]] = struct.Struct(">iqi").unpack_from
"""Reconsume times, prepared transaction offset, size of the body."""

uint8: Callable[[memoryview, int], tuple[int]] = struct.Struct(">B").unpack_from
int16: Callable[[memoryview, int], tuple[int]] = struct.Struct(">h").unpack_from
int64: Callable[[memoryview, int], tuple[int]] = struct.Struct(">q").unpack_from


def copy(view: memoryview, at: int, size: int) -> bytes:
    """A copy of the bytes."""
    return view[at : at + size].tobytes()


def crc(view: memoryview, at: int, size: int) -> int:
    """The CRC of the bytes."""
    return crc32(view[at : at + size])


def find_names(view: memoryview, at: int, end: int) -> _Spans:
    """Start and size of the values of TAGS, KEYS and UNIQ_KEY in the properties from `at` to `end`.

    A size of 0 means that there is none. If a name occurs twice, the last value counts.
    """
    raw = b"\x02" + view[at:end].tobytes()
    return (
        *_find_value(raw, b"\x02TAGS\x01", at - 1),
        *_find_value(raw, b"\x02KEYS\x01", at - 1),
        *_find_value(raw, b"\x02UNIQ_KEY\x01", at - 1),
    )


def _find_value(raw: bytes, name: bytes, base: int) -> tuple[int, int]:
    found = raw.rfind(name)
    while found >= 0:
        at = found + len(name)
        end = raw.find(b"\x02", at)
        size = (end if end >= 0 else len(raw)) - at
        if size:
            return base + at, size
        found = raw.rfind(name, 0, found)
    return 0, 0


def ascii_hash(view: memoryview, at: int, size: int) -> int:
    """Java's hash of an ASCII text, or NOT_ASCII."""
    return _ascii_hash(copy(view, at, size))


@lru_cache(maxsize=1024)
def _ascii_hash(raw: bytes) -> int:
    return java_hash(raw.decode("ascii")) if raw.isascii() else NOT_ASCII
