"""Compressed bodies, against what the Java compressors write."""

import json
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import (
    Compression,
    compress,
    compression_of,
    decompress,
    with_compression,
    without_compression,
)
from kourou.protocol.errors import BodyError

DATA = Path(__file__).parents[2] / "data"
PLAIN = b"Hello, hello, hello, " * 500


def recorded(kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("line", recorded("compressed"))
def test_what_java_compresses(line: dict[str, Any]) -> None:
    fields = line["fields"]
    kind = Compression[fields["type"]]
    assert kind == fields["sys_flag"]
    raw = bytes.fromhex(line["hex"])
    plain = bytes.fromhex(fields["plain"])
    assert decompress(raw, with_compression(0, kind)) == plain
    assert decompress(memoryview(raw), with_compression(0, kind), len(plain)) == plain


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN], ids=len)
def test_there_and_back(kind: Compression, plain: bytes) -> None:
    assert decompress(compress(plain, kind), with_compression(0, kind), len(plain)) == plain


@pytest.mark.parametrize("kind", [Compression.ZLIB, Compression.ZSTD])
def test_the_level_counts(kind: Compression) -> None:
    plain = b"".join(str(n * n).encode() for n in range(20_000))
    assert compress(plain, kind, 9) != compress(plain, kind, 1)


def test_lz4_blocks_are_independent_for_javas_sake() -> None:
    compressed = compress(bytes(200_000), Compression.LZ4)
    assert not lz4.frame.get_frame_info(compressed)["block_linked"]


def test_what_is_not_compressed_stays() -> None:
    assert decompress(b"plain", 0) == b"plain"
    assert decompress(memoryview(b"plain"), SysFlag.COMPRESSION_ZSTD) == b"plain"


def test_old_clients_say_only_that_it_is_compressed() -> None:
    assert compression_of(SysFlag.COMPRESSED) is Compression.ZLIB
    assert decompress(zlib.compress(PLAIN), SysFlag.COMPRESSED) == PLAIN


def test_flags() -> None:
    flags = with_compression(SysFlag.COMPRESSION_ZLIB | SysFlag.MULTI_TAGS, Compression.LZ4)
    assert flags == SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.COMPRESSION_LZ4
    assert compression_of(flags) is Compression.LZ4
    assert compression_of(without_compression(flags)) is None


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(BodyError, match="unknown compression type 4"):
        decompress(b"", SysFlag.COMPRESSED | 0x400)


def zstd_of_unannounced_size(plain: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(plain) + stream.flush()


@pytest.mark.parametrize(
    ("bomb", "kind"),
    [
        (zlib.compress(bytes(10_000_000)), Compression.ZLIB),
        (lz4.frame.compress(bytes(10_000_000)), Compression.LZ4),
        (zstandard.compress(bytes(10_000_000)), Compression.ZSTD),
        (zstd_of_unannounced_size(bytes(10_000_000)), Compression.ZSTD),
    ],
    ids=["zlib", "lz4", "zstd", "zstd of unannounced size"],
)
def test_a_bomb_is_refused_without_being_unpacked(bomb: bytes, kind: Compression) -> None:
    assert len(bomb) < 250_000
    with pytest.raises(BodyError, match="into 1000 bytes"):
        decompress(bomb, with_compression(0, kind), 1000)


@pytest.mark.parametrize("kind", Compression)
def test_one_byte_too_many_is_too_many(kind: Compression) -> None:
    with pytest.raises(BodyError):
        decompress(compress(PLAIN, kind), with_compression(0, kind), len(PLAIN) - 1)


@pytest.mark.parametrize("kind", Compression)
def test_every_truncation_is_noticed(kind: Compression) -> None:
    compressed = compress(PLAIN, kind)
    for size in range(len(compressed)):
        with pytest.raises(BodyError, match="do not decompress"):
            decompress(compressed[:size], with_compression(0, kind))
