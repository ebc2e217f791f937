"""Writes the bytes of a record into a segment: the part of appending that differs between plain and compiled Python.

This module uses `struct`; in the compiled commit_log.py, functions with the same names in writer.pxd replace it. Both
trust the caller that the space is there and the sizes are right. kourou.protocol.layout draws the layout.

A process may be killed between any two instructions, and its writes stay. So a record is written from its ninth byte
on, and its size and magic come last, as one write (`publish`): until then there is no record. The CRC covers only the
body, so a record without its properties would look complete, to Kourou and to Java's broker.
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
    """The CRC of a body as a record has it."""
    return crc32(body)


def has_zero(data: bytes) -> bool:
    return 0 in data


def publish(view: memoryview, at: int, size: int, magic: int) -> None:
    """The record is complete: make it valid."""
    view[at : at + _HEAD.size] = _HEAD.pack(size, magic)
