"""How the bytes of queue and index entries are read and written: what plain and compiled Python do differently.

Here by `struct`; where consume_queue.py and index.py are compiled, functions of the same names in entry_layout.pxd take
their place. Both trust their caller that what they touch lies inside the buffer.

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
"""Of a queue entry, and of an index entry."""

HEADER_SIZE: Final = 40
"""Of an index file's header."""

NOT_ASCII: Final = -1
"""What `key_hash` returns when it can't say: no such hash is negative."""

Bytes: TypeAlias = "bytes | memoryview"

entry: Callable[[Bytes, int], tuple[int, int, int]] = struct.Struct(">qiq").unpack_from
"""Physical offset, size, code of the tags."""

_PLACE: Final = struct.Struct(">qi")
_TAGS: Final = struct.Struct(">q")


def put_entry(view: memoryview, at: int, physical_offset: int, size: int, tags_code: int) -> None:
    """The size comes last: until it is there, the process may be killed and there is no entry."""
    _TAGS.pack_into(view, at + _PLACE.size, tags_code)
    _PLACE.pack_into(view, at, physical_offset, size)


index_entry: Callable[[Bytes, int], tuple[int, int, int, int]] = struct.Struct(">iqii").unpack_from
"""Hash, physical offset, seconds, number of the entry before."""

put_index_entry: Callable[[memoryview, int, int, int, int, int], None] = struct.Struct(">iqii").pack_into

header: Callable[[Bytes, int], tuple[int, int, int, int, int, int]] = struct.Struct(">qqqqii").unpack_from
"""First and last store time, first and last physical offset, slots in use, number of the next entry."""

put_header: Callable[[memoryview, int, int, int, int, int, int, int], None] = struct.Struct(">qqqqii").pack_into

slot: Callable[[Bytes, int], tuple[int]] = struct.Struct(">i").unpack_from
"""The number of the newest entry of an index slot."""

put_slot: Callable[[memoryview, int, int], None] = struct.Struct(">i").pack_into


def key_hash(topic: bytes, key: bytes) -> int:
    """The hash that the index stores of a key, or NOT_ASCII. Java: IndexFile.indexKeyHashMethod."""
    text = b"%b#%b" % (topic, key)
    return index_hash(text.decode("ascii")) if text.isascii() else NOT_ASCII
