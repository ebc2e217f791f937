"""How the bytes of a record get into a segment: the one thing of appending that plain and compiled Python do apart.

Here by `struct`; when commit_log.py is compiled, the function of the same name in writer.pxd takes its place. Both
trust their caller that the room is there and that the sizes are right. The layout is drawn in kourou.protocol.layout.
"""

import struct
from typing import Final

_FIXED: Final = {
    (born, store): struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}
_V1_TOPIC_MAX: Final = 127


def write_record(
    view: memoryview,
    at: int,
    size: int,
    magic: int,
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
    """Write a record of `size` bytes at `at`."""
    fixed = _FIXED[len(born_host), len(store_host)]
    fixed.pack_into(
        view,
        at,
        size,
        magic,
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
    view[at + fixed.size : at + size] = b"".join((body, count, topic, len(properties).to_bytes(2), properties))
