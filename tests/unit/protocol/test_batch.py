"""Batch bodies, against what the Java classes write."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.batch import ENTRY_SIZE_MIN, decode_batch, encode_batch
from kourou.protocol.errors import BodyError, LocalProtocolError
from kourou.protocol.message import Message

DATA = Path(__file__).parents[2] / "data"
TWO = bytes.fromhex(
    "0000001d00000000000000000000000000000003616263000478013102" + "0000001700000000000000000000000000000001090000"
)


def recorded(kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("line", recorded("batch"))
def test_what_java_writes(line: dict[str, Any]) -> None:
    raw = bytes.fromhex(line["hex"])
    expected = [
        (message["flag"], bytes.fromhex(message["body"]), message["properties"])
        for message in line["fields"]["messages"]
    ]
    for data in (raw, memoryview(raw)):
        assert [(entry.flag, entry.body, entry.properties or None) for entry in decode_batch(data)] == [
            (flag, body, properties or None) for flag, body, properties in expected
        ]
    assert encode_batch(Message("T", body, flag, properties or {}) for flag, body, properties in expected) == raw


def test_two_messages() -> None:
    assert encode_batch([Message("T", b"abc", 0, {"x": "1"}), Message("T", b"\x09")]) == TWO
    assert [entry.body for entry in decode_batch(TWO)] == [b"abc", b"\x09"]


def test_slices_of_a_memoryview_are_not_copied() -> None:
    data = bytearray(TWO)
    first = decode_batch(memoryview(data))[0]
    data[20:23] = b"xyz"
    assert first.body == b"xyz"


def test_an_empty_body_has_no_messages() -> None:
    assert decode_batch(b"") == []


def test_a_batch_has_messages_of_one_topic() -> None:
    with pytest.raises(LocalProtocolError, match="at least one message"):
        encode_batch([])
    with pytest.raises(LocalProtocolError, match="same topic"):
        encode_batch([Message("A", b""), Message("B", b"")])


def test_limits() -> None:
    body = encode_batch([Message("T", b"abc"), Message("T", b"def")], limit=50)
    assert len(body) == 50
    assert len(decode_batch(body, limit=50)) == 2
    with pytest.raises(LocalProtocolError, match="more than 49"):
        encode_batch([Message("T", b"abc"), Message("T", b"def")], limit=49)
    with pytest.raises(BodyError, match="larger than 49"):
        decode_batch(body, limit=49)


def test_a_flag_that_is_not_an_int_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="flag"):
        encode_batch([Message("T", b"", 2**31)])


def entry(size: int, body_size: int, properties_size: int, rest: bytes = b"") -> bytes:
    return struct.pack(">iiiii", size, 0, 0, 0, body_size) + struct.pack(">h", properties_size) + rest


@pytest.mark.parametrize(
    "second",
    [
        b"\0",
        entry(22, 0, 0)[:-1],
        entry(0, 0, 0),
        entry(-1, 0, 0),
        entry(21, 0, 0),
        entry(23, 0, 0),
        entry(2**31 - 1, 0, 0),
        entry(22, -1, 0),
        entry(22, 1, 0),
        entry(22, 2**31 - 1, 0),
        entry(22, -(2**31), 0),
        entry(22, 0, 1),
        entry(22, 0, -1),
        entry(24, 0, 1, b"xx"),
        entry(23, 0, -32768, b"x"),
        entry(24, 0, 32767, b"xx"),
    ],
)
def test_a_wrong_length_is_named_with_its_place(second: bytes) -> None:
    with pytest.raises(BodyError, match="batch entry at 29"):
        decode_batch(TWO[:29] + second)


def test_every_truncation_is_noticed() -> None:
    for size in set(range(1, len(TWO))) - {29}:
        with pytest.raises(BodyError):
            decode_batch(TWO[:size])


def test_the_smallest_entry() -> None:
    assert len(encode_batch([Message("T", b"")])) == ENTRY_SIZE_MIN == 22
