"""How the bytes of a record get into a segment: the one thing of appending that plain and compiled Python do apart.

Here by `struct`; when commit_log.py is compiled, functions of the same names in writer.pxd take their place. Both
trust their caller that the room is there and that the sizes are right. The layout is drawn in kourou.protocol.layout.

A process may be killed between any two instructions, and what it wrote by then stays. So a record is written from its
ninth byte on, and its size and its magic come last, in one piece (`publish`): until then there is none. A CRC covers
the body alone, and a record whose properties are still missing would pass for whole, with us and with Java's broker.
"""

import struct
from typing import Final

from kourou.protocol.hashes import crc32

_FIXED: Final = {(born, store): struct.Struct(f">iiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
_HEAD: Final = struct.Struct(">ii")
_V1_TOPIC_MAX: Final = 127


def write_record(
    view: memoryview,
    at: int,
    size: int,
    body_crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    body: bytes,
    topic: bytes,
    properties: bytes,
) -> None:
    """Write a record of `size` bytes at `at`, all but its size and its magic."""
    fixed = _FIXED[len(born_host), len(store_host)]
    fixed.pack_into(
        view,
        at + _HEAD.size,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        stored_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        len(body),
    )
    topic_size = len(topic)
    count = topic_size.to_bytes(1 if topic_size <= _V1_TOPIC_MAX else 2)
    view[at + _HEAD.size + fixed.size : at + size] = b"".join(
        (body, count, topic, len(properties).to_bytes(2), properties)
    )


def body_crc(body: bytes) -> int:
    """What a record has for the CRC of its body."""
    return crc32(body)


def has_zero(data: bytes) -> bool:
    return 0 in data


def publish(view: memoryview, at: int, size: int, magic: int) -> None:
    """All of it is there: now it is a record."""
    view[at : at + _HEAD.size] = _HEAD.pack(size, magic)
