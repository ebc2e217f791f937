"""Reads and writes the bytes of queue and index entries. This code differs between plain and compiled Python.

This module uses `struct`; in the compiled consume_queue.py and index.py, functions with the same names in
entry_layout.pxd replace it. Both trust the caller that the bytes are inside the buffer.

    consume queue, an entry      index file, header           index file, an entry
     0  8  physical offset        0  8  first store time       0  4  hash of `topic#key`
     8  4  size of the record     8  8  last store time        4  8  physical offset
    12  8  code of the tags      16  8  first physical offset 12  4  seconds since the first store time
                                 24  8  last physical offset  16  4  number of the entry before it in its slot
                                 32  4  slots in use
                                 36  4  number of the next entry
"""

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from kourou.protocol.hashes import index_hash

ENTRY_SIZE: Final = 20
"""The sizes of a queue entry and of an index entry."""

HEADER_SIZE: Final = 40
"""The size of an index file's header."""

NOT_ASCII: Final = -1
"""The result of `key_hash` for other text: no such hash is negative."""

Bytes: TypeAlias = "bytes | memoryview"

entry: Callable[[Bytes, int], tuple[int, int, int]] = struct.Struct(">qiq").unpack_from
"""Physical offset, size, code of the tags."""

_PLACE: Final = struct.Struct(">qi")
_TAGS: Final = struct.Struct(">q")


def put_entry(view: memoryview, at: int, physical_offset: int, size: int, tags_code: int) -> None:
    """The size is written last: if the process is killed before, there is no entry."""
    _TAGS.pack_into(view, at + _PLACE.size, tags_code)
    _PLACE.pack_into(view, at, physical_offset, size)


index_entry: Callable[[Bytes, int], tuple[int, int, int, int]] = struct.Struct(">iqii").unpack_from
"""Hash, log offset, seconds, number of the previous entry."""

put_index_entry: Callable[[memoryview, int, int, int, int, int], None] = struct.Struct(">iqii").pack_into

header: Callable[[Bytes, int], tuple[int, int, int, int, int, int]] = struct.Struct(">qqqqii").unpack_from
"""First and last store time, first and last log offset, slots in use, number of the next entry."""

put_header: Callable[[memoryview, int, int, int, int, int, int, int], None] = struct.Struct(">qqqqii").pack_into

slot: Callable[[Bytes, int], tuple[int]] = struct.Struct(">i").unpack_from
"""The number of the newest entry of an index slot."""

put_slot: Callable[[memoryview, int, int], None] = struct.Struct(">i").pack_into


def key_hash(topic: bytes, key: bytes) -> int:
    """The hash that the index stores of a key, or NOT_ASCII. Java: IndexFile.indexKeyHashMethod."""
    text = b"%b#%b" % (topic, key)
    return index_hash(text.decode("ascii")) if text.isascii() else NOT_ASCII
