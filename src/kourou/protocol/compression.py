"""Compressed bodies: zlib, LZ4 frames, Zstandard frames.

Bit 0 of a message's `sysFlag` says whether its body is compressed, bits 8 to 10 say how. Clients before 5.0 set bit 0
only, and compress with zlib.
"""

import zlib
from enum import IntEnum
from typing import Final

import lz4.frame
import zstandard

from kourou.protocol.codes import COMPRESSION_MASK, SysFlag
from kourou.protocol.errors import BodyError

DEFAULT_LEVEL: Final = 5
"""The level that clients use for zlib and Zstandard. LZ4 has no levels here, as in Java."""

DECOMPRESSED_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The limit of a decompressed body: four times the largest body that a broker accepts by default, and the largest
uncompressed body that fits a frame. Callers with their own limit (`max_body`) pass it."""


_COMPRESSED: Final = int(SysFlag.COMPRESSED)  # as an int: the operators of IntFlag cost a microsecond


class Compression(IntEnum):
    """The compression of a body: the value of the type bits in `sysFlag`."""

    LZ4 = SysFlag.COMPRESSION_LZ4
    ZSTD = SysFlag.COMPRESSION_ZSTD
    ZLIB = SysFlag.COMPRESSION_ZLIB


def compression_of(sys_flag: int) -> Compression | None:
    """The compression that these flags state; None without compression. Raises BodyError for an unknown type."""
    if not sys_flag & _COMPRESSED:
        return None
    bits = sys_flag & COMPRESSION_MASK
    if bits == 0:
        return Compression.ZLIB
    try:
        return Compression(bits)
    except ValueError:
        raise BodyError(f"unknown compression type {bits >> 8} in sysFlag {sys_flag:#x}") from None


def with_compression(sys_flag: int, kind: Compression) -> int:
    """The flags of a body with this compression."""
    return (sys_flag & ~COMPRESSION_MASK) | _COMPRESSED | kind


def without_compression(sys_flag: int) -> int:
    """The flags of the same message after its body is decompressed. The type bits stay, as in Java."""
    return sys_flag & ~_COMPRESSED


def compress(body: bytes | memoryview, kind: Compression, level: int = DEFAULT_LEVEL) -> bytes:
    """The compressed body."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
        case Compression.LZ4:
            # Linked blocks compress better, but Java's decoder rejects them.
            compressed: bytes = lz4.frame.compress(body, block_linked=False)
            return compressed


def decompress(body: bytes | memoryview, sys_flag: int, limit: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """The decompressed body. Raises BodyError for invalid data, or if the result would be larger than `limit`."""
    kind = compression_of(sys_flag)
    if kind is None:
        return bytes(body)
    try:
        return _DECOMPRESS[kind](body, limit)
    except (zlib.error, zstandard.ZstdError, RuntimeError, ValueError) as error:
        reason = f"{len(body)} bytes of {kind.name} do not decompress into {limit} bytes (max_body): {error}"
        raise BodyError(reason) from None


def _inflate(body: bytes | memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    return _whole(stream.decompress(body, limit + 1), stream.eof, limit)


def _unlz4(body: bytes | memoryview, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    return _whole(stream.decompress(body, max_length=limit + 1), stream.eof, limit)


def _whole(plain: bytes, ended: bool, limit: int) -> bytes:
    if len(plain) > limit:
        raise ValueError("the result is too large")
    if not ended:
        raise ValueError("the data is truncated")
    return plain


def _unzstd(body: bytes | memoryview, limit: int) -> bytes:
    # A frame may state its decompressed size, and the library allocates that much regardless of the limit. For a frame
    # that states none it allocates the limit; those pages are not touched before they are needed.
    announced = zstandard.frame_content_size(body)
    if announced > limit:
        raise ValueError(f"the frame states {announced} bytes")
    return zstandard.ZstdDecompressor().decompress(body, max_output_size=limit or 1)


_DECOMPRESS: Final = {Compression.ZLIB: _inflate, Compression.LZ4: _unlz4, Compression.ZSTD: _unzstd}
