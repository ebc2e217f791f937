"""Stored records to test with."""

from collections.abc import Mapping

from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import Compression, compress, with_compression
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import encode_record

BORN_MS = 1_700_000_000_000


def record(
    number: int = 0,
    *,
    topic: str | bytes = "orders",
    body: bytes | None = None,
    properties: Mapping[str, str] | bytes | None = None,
    at: int = 0,
    queue_id: int = 1,
    sys_flag: int = 0,
    host: str = "127.0.0.1:10911",
    stored_ms: int | None = None,
    body_crc: int | None = None,
) -> bytes:
    """One record; all records differ by their number."""
    if properties is None:
        properties = {"TAGS": f"tag{number % 3}", "KEYS": f"k{number}", "UNIQ_KEY": f"U{number:05}", "n": str(number)}
    raw = (
        properties
        if isinstance(properties, bytes)
        else "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    )
    return encode_record(
        topic=topic,
        body=f"body {number}".encode() if body is None else body,
        raw_properties=raw,
        queue_id=queue_id,
        queue_offset=number,
        physical_offset=at,
        born_ms=BORN_MS + number,
        born_host=encode_host(host),
        stored_ms=BORN_MS + number + 1 if stored_ms is None else stored_ms,
        store_host=encode_host(host),
        sys_flag=sys_flag,
        flag=number,
        body_crc=body_crc,
    )


def log(count: int, start: int = 0, **given: object) -> bytes:
    """Records one behind the other, each knowing where it stands."""
    made = bytearray()
    for number in range(count):
        made += record(number, at=start + len(made), **given)  # type: ignore[arg-type]
    return bytes(made)


def compressed(number: int, kind: Compression, plain: bytes) -> bytes:
    return record(number, body=compress(plain, kind), sys_flag=with_compression(0, kind))


def with_batch_inside(number: int, entries: bytes) -> bytes:
    return record(number, body=entries, sys_flag=int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP))
