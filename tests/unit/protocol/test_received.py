"""What a consumer sees of a record."""

import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol import hosts
from kourou.protocol.batch import encode_batch
from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import Compression, compress, with_compression
from kourou.protocol.errors import BodyError
from kourou.protocol.message import Message
from kourou.protocol.received import ReceivedMessage, received_messages
from kourou.protocol.record import encode_record

DATA = Path(__file__).parents[2] / "data"


def recorded(kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


def make(body: bytes, sys_flag: int = 0, raw_properties: bytes = b"") -> bytes:
    return encode_record(
        topic="T",
        body=body,
        queue_id=1,
        queue_offset=10,
        physical_offset=1024,
        sys_flag=sys_flag,
        born_ms=1_700_000_000_000,
        born_host=hosts.encode_host("127.0.0.1:50000"),
        stored_ms=1_700_000_000_123,
        store_host=hosts.encode_host("127.0.0.1:10911"),
        reconsume_times=2,
        raw_properties=raw_properties,
    )


@pytest.mark.parametrize("line", recorded("record"))
def test_what_java_stores(line: dict[str, Any]) -> None:
    fields = line["fields"]
    (message,) = received_messages(bytes.fromhex(line["hex"]))
    assert message.topic == fields["topic"]
    assert message.body == bytes.fromhex(fields["plain_body"])
    assert message.properties == (fields["properties"] or {})
    assert message.offset_id == message.message_id == fields["offset_id"]
    assert hosts.encode_host(message.born_host) == hosts.encode_host(fields["born_host"])
    assert hosts.encode_host(message.store_host) == hosts.encode_host(fields["store_host"])
    assert (message.born_ms, message.stored_ms) == (fields["born_timestamp"], fields["store_timestamp"])
    assert (message.queue_id, message.queue_offset) == (fields["queue_id"], fields["queue_offset"])
    assert message.reconsume_times == fields["reconsume_times"]
    assert not message.sys_flag & SysFlag.COMPRESSED


def test_a_received_message_is_a_message() -> None:
    (message,) = received_messages(make(b"body", raw_properties=b"UNIQ_KEY\x01ID\x02TAGS\x01a\x02KEYS\x01k l\x02"))
    assert isinstance(message, Message)
    assert (message.message_id, message.tags, message.keys) == ("ID", "a", ["k", "l"])
    assert message.offset_id == "7F00000100002A9F0000000000000400"
    assert (message.born_host, message.store_host) == ("127.0.0.1:50000", "127.0.0.1:10911")


def test_the_body_is_the_consumers_own() -> None:
    buffer = bytearray(make(b"body"))
    (message,) = received_messages(memoryview(buffer))
    buffer[88:92] = b"XXXX"
    assert message.body == b"body"


@pytest.mark.parametrize("kind", Compression)
def test_a_compressed_body(kind: Compression) -> None:
    (message,) = received_messages(make(compress(b"body" * 100, kind), with_compression(0, kind)))
    assert message.body == b"body" * 100


def test_a_body_that_becomes_too_large() -> None:
    bomb = make(compress(bytes(10_000), Compression.ZLIB), with_compression(0, Compression.ZLIB))
    assert len(received_messages(bomb, limit=10_000)) == 1
    with pytest.raises(BodyError, match="9999"):
        received_messages(bomb, limit=9_999)


def test_a_body_that_does_not_decompress() -> None:
    with pytest.raises(BodyError, match="LZ4"):
        received_messages(make(b"plain after all", with_compression(0, Compression.LZ4)))


BATCH = encode_batch([Message("T", b"a", 1, {"UNIQ_KEY": "A"}), Message("T", b"b", 2), Message("T", b"c")])


@pytest.mark.parametrize("kind", [None, *Compression])
def test_a_batch_in_one_record_comes_apart(kind: Compression | None) -> None:
    flags = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    inner = make(BATCH, flags) if kind is None else make(compress(BATCH, kind), with_compression(flags, kind))
    before, *batch, after = received_messages(make(b"before") + inner + make(b"after"))
    assert (before.body, after.body) == (b"before", b"after")
    assert [(message.body, message.flag, message.queue_offset) for message in batch] == [
        (b"a", 1, 10),
        (b"b", 2, 11),
        (b"c", 0, 12),
    ]
    assert all(isinstance(message, ReceivedMessage) for message in batch)
    assert batch[0].message_id == "A"
    assert batch[1].message_id == batch[1].offset_id


def test_a_batch_that_need_not_come_apart_stays() -> None:
    (message,) = received_messages(make(BATCH, SysFlag.INNER_BATCH))
    assert message.body == BATCH


def test_a_broken_batch_in_a_record() -> None:
    with pytest.raises(BodyError, match="batch entry at 0"):
        received_messages(make(b"no batch", SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP))
