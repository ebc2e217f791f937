"""Logs in memory, for both ends of replication."""

import struct

from tests.unit.broker.asking import send

from kourou.protocol.record import FILLER_SIZE_MIN, encode_filler
from kourou.testing.broker import SMALL_STORE, SimulatedBroker

SEGMENT = SMALL_STORE.commit_log_file_size


class DiskFull(Exception):
    pass


class MemoryLog:
    """Bytes, from a first offset on."""

    def __init__(self, data: bytes = b"", start: int = 0, segment_size: int = SEGMENT) -> None:
        self.data = bytearray(data)
        self.start = start
        self.segment_size = segment_size
        self.stored_ms = 0
        self.unreported = 0  # bytes at the end that are not flushed
        self.is_full = False

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def is_empty(self) -> bool:
        return not self.data

    @property
    def reported(self) -> int:
        return self.end - self.unreported

    def read(self, offset: int, size: int) -> memoryview:
        if offset < self.start:
            raise KeyError(offset)
        at = offset - self.start
        return memoryview(bytes(self.data[at : at + size]))

    def begin_at(self, offset: int) -> None:
        assert self.is_empty
        self.start = offset

    def append(self, data: memoryview, stored_ms: int) -> None:
        if self.is_full:
            raise DiskFull("no room")
        self.data += data
        self.stored_ms = stored_ms


def real_log(count: int, body_size: int = 700) -> bytes:
    """The log of a broker that was sent some messages: several segments, with fillers between them."""
    world = SimulatedBroker()
    client = world.connect()
    for number in range(count):
        assert client.ask(send(number.to_bytes(4) * (body_size // 4), queue_id=number % 4)).code == 0
    log = world.store.log
    return b"".join(
        bytes(log.read(start, min(SEGMENT, log.end - start))) for start in range(log.start, log.end, SEGMENT)
    )


def filler(size: int) -> bytes:
    return encode_filler(size) + bytes(size - FILLER_SIZE_MIN)


def report(offset: int) -> bytes:
    return struct.pack(">q", offset)


def batch(offset: int, data: bytes = b"") -> bytes:
    return struct.pack(">qi", offset, len(data)) + data
