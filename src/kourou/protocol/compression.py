"""Compressed bodies: zlib, LZ4 frames, Zstandard frames.

A message's `sysFlag` says whether its body is compressed (bit 0) and how (bits 8 to 10). Clients before 5.0 set bit 0
alone and mean zlib.
"""

import zlib
from enum import IntEnum
from typing import Final

import lz4.frame
import zstandard

from kourou.protocol.codes import COMPRESSION_MASK, SysFlag
from kourou.protocol.errors import BodyError

DEFAULT_LEVEL: Final = 5
"""The level that clients use: zlib's and Zstandard's. LZ4 knows no levels here, as in Java."""

DECOMPRESSED_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Four times the largest body that a broker takes by default, and as large as a body can be that is not compressed: no
frame is larger. Callers with a limit of their own (`max_body`) pass it."""


_COMPRESSED: Final = int(SysFlag.COMPRESSED)  # as an int: the operators of IntFlag take a microsecond


class Compression(IntEnum):
    """How a body is compressed: the value of the type bits in `sysFlag`."""

    LZ4 = SysFlag.COMPRESSION_LZ4
    ZSTD = SysFlag.COMPRESSION_ZSTD
    ZLIB = SysFlag.COMPRESSION_ZLIB


def compression_of(sys_flag: int) -> Compression | None:
    """How the body with these flags is compressed, None when it is not. Raises BodyError for an unknown type."""
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
    """The flags of a body compressed this way."""
    return (sys_flag & ~COMPRESSION_MASK) | _COMPRESSED | kind


def without_compression(sys_flag: int) -> int:
    """The flags of the same message once its body is decompressed. The type bits stay, as in Java."""
    return sys_flag & ~_COMPRESSED


def compress(body: bytes | memoryview, kind: Compression, level: int = DEFAULT_LEVEL) -> bytes:
    """The compressed body."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
        case Compression.LZ4:
            # Linked blocks compress better, but Java's reader refuses them.
            compressed: bytes = lz4.frame.compress(body, block_linked=False)
            return compressed


def decompress(body: bytes | memoryview, sys_flag: int, limit: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """The body as its sender had it. Raises BodyError for broken data, or when it would become larger than `limit`."""
    kind = compression_of(sys_flag)
    if kind is None:
        return bytes(body)
    try:
        return _DECOMPRESS[kind](body, limit)
    except (zlib.error, zstandard.ZstdError, RuntimeError, ValueError) as error:
        reason = f"{len(body)} bytes of {kind.name} do not decompress into at most {limit} bytes (max_body): {error}"
        raise BodyError(reason) from None


def _inflate(body: bytes | memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    return _whole(stream.decompress(body, limit + 1), stream.eof, limit)


def _unlz4(body: bytes | memoryview, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    return _whole(stream.decompress(body, max_length=limit + 1), stream.eof, limit)


def _whole(plain: bytes, ended: bool, limit: int) -> bytes:
    if len(plain) > limit:
        raise ValueError("there is more")
    if not ended:
        raise ValueError("the end is missing")
    return plain


def _unzstd(body: bytes | memoryview, limit: int) -> bytes:
    # A frame may announce its size, and the library then allocates that much whatever the limit says. For one that
    # announces none it allocates the limit, whose pages stay untouched.
    announced = zstandard.frame_content_size(body)
    if announced > limit:
        raise ValueError(f"{announced} are announced")
    return zstandard.ZstdDecompressor().decompress(body, max_output_size=limit or 1)


_DECOMPRESS: Final = {Compression.ZLIB: _inflate, Compression.LZ4: _unlz4, Compression.ZSTD: _unzstd}
