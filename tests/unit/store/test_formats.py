"""The examples in docs/formats are what they say: bytes that our own code reads and writes."""

import re
from pathlib import Path

import pytest

from kourou.protocol.hashes import index_hash, java_hash
from kourou.protocol.record import decode_record
from kourou.store import entry_layout
from kourou.store.checkpoint import FILE_SIZE, Checkpoint
from kourou.store.disk import RealDisk
from kourou.store.index import Index

FORMATS = Path(__file__).parents[3] / "docs" / "formats"
STORED_MS = 1_700_000_000_123


def example(name: str) -> bytes:
    """The bytes of the one example of this kind."""
    blocks = [
        block for path in FORMATS.glob("*.md") for block in re.findall(rf"```{name}\n(.*?)```", path.read_text(), re.S)
    ]
    assert len(blocks) == 1
    return bytes.fromhex(blocks[0])


def test_the_record() -> None:
    message = decode_record(example("record"), crc=True)
    assert (message.topic, bytes(message.body), message.size) == ("orders", b"hello", 120)
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (1, 5, 4096)
    assert message.properties == {"TAGS": "paid", "KEYS": "42"}
    assert message.stored_ms == STORED_MS
    assert message.encode() == example("record")


def test_the_queue_entry() -> None:
    assert entry_layout.entry(example("entry"), 0) == (4096, 120, java_hash("paid"))


def test_the_index(tmp_path: Path) -> None:
    index = Index(RealDisk(tmp_path / "aside"), tmp_path / "index", 4, 16, lambda _: "20231114221320123")
    index.put(b"orders", b"42", 4096, STORED_MS)
    index.close()
    content = (tmp_path / "index" / "20231114221320123").read_bytes()
    assert content.startswith(example("index"))
    assert not content[len(example("index")) :].strip(b"\0")
    assert index_hash("orders#42") == 390725412


def test_the_checkpoint() -> None:
    expected = Checkpoint(physical_ms=STORED_MS, logical_ms=STORED_MS, index_ms=STORED_MS, logical_physical=4096 + 120)
    assert Checkpoint.decode(example("checkpoint").ljust(FILE_SIZE, b"\0")) == expected


@pytest.mark.parametrize("page", sorted(path.name for path in FORMATS.glob("*.md") if path.name != "README.md"))
def test_every_page_is_listed(page: str) -> None:
    assert f"({page})" in (FORMATS / "README.md").read_text()
