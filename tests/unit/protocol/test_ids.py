"""Ids, hosts, hashes and CRCs, against what the Java classes give."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.errors import LocalProtocolError, ProtocolError
from kourou.protocol.hashes import crc32, index_hash, java_hash
from kourou.protocol.hosts import decode_host, encode_host
from kourou.protocol.ids import UniqueIds, decode_offset_id, decode_unique_id, encode_offset_id
from kourou.protocol.message import PhysicalOffset

DATA = Path(__file__).parents[2] / "data"


def recorded(kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("line", recorded("offset_id"))
def test_offset_ids_of_java(line: dict[str, Any]) -> None:
    fields = line["fields"]
    host = encode_host(fields["host"])
    assert encode_offset_id(host, fields["offset"]) == fields["id"]
    assert decode_offset_id(fields["id"]) == (decode_host(host), fields["offset"])
    assert decode_offset_id(fields["id"].lower()) == decode_offset_id(fields["id"])


@pytest.mark.parametrize("line", recorded("unique_id"))
def test_unique_ids_of_java(line: dict[str, Any]) -> None:
    fields = line["fields"]
    unique = decode_unique_id(fields["id"])
    assert unique.ip == ipaddress.ip_address(fields["ip"]).packed
    assert unique[1:] == (fields["pid"], fields["loader_hash"], fields["ms_in_month"], fields["counter"])
    ids = UniqueIds(unique.ip, unique.pid, unique.process_hash)
    month_ms = 1_698_796_800_000
    made = [ids.next(month_ms + unique.ms_of_month, month_ms) for _ in range(unique.counter + 1)]
    assert made[-1] == fields["id"]


def test_unique_ids_count_and_wrap() -> None:
    ids = UniqueIds(bytes([10, 0, 0, 1]), 0x12345, -2)
    made = [ids.next(5_000, 1_000) for _ in range(65537)]
    assert len(set(made)) == 65536
    assert made[0] == made[65536] == "0A0000012345FFFFFFFE00000FA00000"
    assert made[65535].endswith("FFFF")


def test_a_clock_before_the_month_counts_as_its_start() -> None:
    assert decode_unique_id(UniqueIds(bytes(4), 1, 2).next(999, 1_000)).ms_of_month == 0


def test_the_last_day_of_a_month_does_not_fit_an_int_but_comes_back() -> None:
    span = 31 * 24 * 3600 * 1000 - 1
    assert span > 2**31
    assert decode_unique_id(UniqueIds(bytes(16), 1, 2).next(span, 0)).ms_of_month == span


def test_a_unique_id_tells_when_it_was_made() -> None:
    last_month, month, now = 1_000_000, 5_000_000, 6_000_000
    ids = UniqueIds(bytes(4), 1, 2)
    assert decode_unique_id(ids.next(5_500_000, month)).sent_ms(now, month, last_month) == 5_500_000
    # What would lie ahead was made a month ago.
    assert decode_unique_id(ids.next(4_900_000, last_month)).sent_ms(now, month, last_month) == 4_900_000


@pytest.mark.parametrize("text", ["", "00" * 15, "00" * 17, "0G" * 16, "00 " * 10 + "00", "0" * 33, "é" * 32])
def test_invalid_ids(text: str) -> None:
    for decode in (decode_offset_id, decode_unique_id):
        with pytest.raises(ProtocolError, match="32 or 56 hex digits"):
            decode(text)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("127.0.0.1:10911", "7f00000100002a9f"),
        ("0.0.0.0:0", "0000000000000000"),
        ("[2001:db8::1]:65535", "20010db80000000000000000000000010000ffff"),
    ],
)
def test_hosts(text: str, raw: str) -> None:
    assert encode_host(text) == bytes.fromhex(raw)
    assert decode_host(bytes.fromhex(raw)) == text


def test_an_ipv6_host_may_come_without_brackets() -> None:
    assert encode_host("2001:db8::1:10911") == encode_host("[2001:db8::1]:10911")


@pytest.mark.parametrize(
    "text",
    ["", "localhost:1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1_0", "::1", "[::1]"],
)
def test_invalid_hosts(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_host(text)


@pytest.mark.parametrize("line", recorded("string_hash"))
def test_string_hashes_of_java(line: dict[str, Any]) -> None:
    assert java_hash(line["fields"]["text"]) == line["fields"]["hash"]


def test_a_long_text_is_hashed_as_by_the_definition() -> None:
    text = "key-😀-" * 100
    expected = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        expected = (31 * expected + int.from_bytes(units[at : at + 2])) % 2**32
    assert java_hash(text) % 2**32 == expected


def test_the_index_has_no_negative_hashes() -> None:
    assert index_hash("TopicTest#key1") == 1655984460
    assert index_hash("TagA") == 2598919
    # The one whose absolute value is not an int in Java.
    assert java_hash("polygenelubricants") == -(2**31)
    assert index_hash("polygenelubricants") == 0


@pytest.mark.parametrize("line", recorded("crc"))
def test_crcs_of_java(line: dict[str, Any]) -> None:
    raw = bytes.fromhex(line["hex"])
    assert crc32(raw) == crc32(memoryview(raw)) == line["fields"]["crc"]


def test_offsets_of_ids_are_signed() -> None:
    id_ = encode_offset_id(encode_host("127.0.0.1:1"), PhysicalOffset(-1))
    assert id_.endswith("F" * 16)
    assert decode_offset_id(id_).offset == -1
