"""Java's string hash and RocketMQ's 31-bit CRC. Both are stored in files and compared by peers."""

import struct
import zlib


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, so a character beyond the BMP counts as two surrogates.

    Tag filters compare it, and consume queues store it.
    """
    hash_ = 0
    units = _utf16_units(text)
    # Reduced to 32 bits from time to time: at every step it would be twice as slow, and never would be quadratic.
    for at in range(0, len(units), 64):
        for unit in units[at : at + 64]:
            hash_ = 31 * hash_ + unit
        hash_ &= 0xFFFFFFFF
    return hash_ - 0x1_0000_0000 if hash_ & 0x8000_0000 else hash_


def _utf16_units(text: str) -> bytes | tuple[int, ...]:
    if text.isascii():
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(units) // 2}H", units)


def index_hash(text: str) -> int:
    """The hash that the index stores of `topic#key`: never negative. Java: IndexFile.indexKeyHashMethod."""
    hash_ = abs(java_hash(text))
    return 0 if hash_ == 0x8000_0000 else hash_


def crc32(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 without its highest bit, as RocketMQ writes it everywhere."""
    return zlib.crc32(data) & 0x7FFFFFFF
