"""Stored records, against what the Java classes write."""

import json
import mmap
import struct
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol import hosts, properties, record
from kourou.protocol.errors import LocalProtocolError
from kourou.protocol.hashes import crc32, java_hash
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    CorruptRecordError,
    Found,
    Scanner,
    check_record,
    check_record_crc,
    decode_record,
    decode_records,
    encode_filler,
    encode_record,
)

DATA = Path(__file__).parents[2] / "data"
IPV4 = hosts.encode_host("127.0.0.1:10911")
IPV6 = hosts.encode_host("[2001:db8::1]:10911")
# The example of the format's description, 109 bytes.
HELLO = bytes.fromhex(
    "0000006d daa320a7 3610a686 00000001 00000000 0000000000000005 0000000000000400 00000000 0000018bcfe56800 7f000001"
    "0000c350 0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f 09 546f70696354657374"
    "0004 6b017602"
)


def recorded(kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


def make(**fields: Any) -> bytes:
    """A record; what a test does not care about has a value that is not zero."""
    defaults: dict[str, Any] = {
        "topic": "TopicTest",
        "body": b"hello",
        "queue_id": 1,
        "queue_offset": 5,
        "physical_offset": 1024,
        "born_ms": 1_700_000_000_000,
        "born_host": IPV4,
        "stored_ms": 1_700_000_000_123,
        "store_host": IPV4,
        "raw_properties": b"TAGS\x01TagA\x02",
    }
    return encode_record(**(defaults | fields))


@pytest.mark.parametrize("line", recorded("record"))
def test_what_java_stores_is_read_and_written_alike(line: dict[str, Any]) -> None:
    raw = bytes.fromhex(line["hex"])
    fields = line["fields"]
    message = decode_record(raw, crc=True)
    assert message.topic == fields["topic"]
    assert message.properties == (fields["properties"] or {})
    assert message.born_host == hosts.encode_host(fields["born_host"])
    assert message.store_host == hosts.encode_host(fields["store_host"])
    for name, java_name in {
        "magic": "magic",
        "queue_id": "queue_id",
        "queue_offset": "queue_offset",
        "physical_offset": "physical_offset",
        "flag": "flag",
        "sys_flag": "sys_flag",
        "born_ms": "born_timestamp",
        "stored_ms": "store_timestamp",
        "reconsume_times": "reconsume_times",
        "prepared_offset": "prepared_transaction_offset",
    }.items():
        assert getattr(message, name) == fields[java_name], name
    assert message.size == check_record(raw) == len(raw)
    assert message.body_crc == crc32(message.body)
    assert message.encode() == raw


def test_the_example_of_the_description() -> None:
    message = decode_record(HELLO)
    assert message.encode() == HELLO
    assert (message.topic, message.body, message.properties) == ("TopicTest", b"hello", {"k": "v"})
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (1, 5, 1024)
    assert message.born_address == "127.0.0.1:50000"
    assert message.store_address == "127.0.0.1:10911"


@pytest.mark.parametrize("born_host", [IPV4, IPV6], ids=len)
@pytest.mark.parametrize("store_host", [IPV4, IPV6], ids=len)
@pytest.mark.parametrize("topic", ["", "T", "T" * 127, "T" * 128, "中" * 100])
def test_every_shape_comes_back(born_host: bytes, store_host: bytes, topic: str) -> None:
    raw = make(topic=topic, born_host=born_host, store_host=store_host, flag=-1, reconsume_times=3, prepared_offset=77)
    assert check_record(raw) == len(raw)
    message = decode_record(raw, crc=True)
    assert (message.topic, message.born_host, message.store_host) == (topic, born_host, store_host)
    assert (message.flag, message.reconsume_times, message.prepared_offset) == (-1, 3, 77)
    assert message.magic == (MAGIC_V1 if len(topic.encode()) <= 127 else MAGIC_V2)
    assert message.encode() == raw


def test_the_smallest_record() -> None:
    assert len(make(topic="", body=b"", raw_properties=b"")) == record.RECORD_SIZE_MIN


def test_the_offsets_are_where_a_broker_fills_them_in() -> None:
    raw = bytearray(make())
    struct.pack_into(">q", raw, record.QUEUE_OFFSET_AT, 2**40)
    struct.pack_into(">q", raw, record.PHYSICAL_OFFSET_AT, 2**41)
    message = decode_record(bytes(raw))
    assert (message.queue_offset, message.physical_offset) == (2**40, 2**41)


def test_the_hosts_decide_the_bits_of_ipv6() -> None:
    assert decode_record(make(sys_flag=0x35, store_host=IPV6)).sys_flag == 0x25
    assert decode_record(make(sys_flag=0x5, born_host=IPV6)).sys_flag == 0x15


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "T" * 32768},
        {"topic": "T" * 128, "magic": MAGIC_V1},
        {"topic": "\ud800"},
        {"magic": 7},
        {"raw_properties": bytes(32768)},
        {"raw_properties": bytes(32767), "record_crc": True},
        {"born_host": b"\x7f\0\0\x01"},
        {"store_host": bytes(21)},
        {"queue_id": 2**31},
        {"flag": -(2**31) - 1},
        {"queue_offset": 2**63},
        {"stored_ms": -(2**63) - 1},
        {"body_crc": 2**31},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        make(**fields)


def test_a_topic_that_is_not_utf8_is_shown_as_java_shows_it_and_is_kept() -> None:
    raw = make(topic=b"T\xffT")
    message = decode_record(raw)
    assert message.topic == "T\ufffdT"
    assert message.encode() == raw


def test_slices_of_a_memoryview_are_not_copied() -> None:
    data = bytearray(HELLO)
    message = decode_record(memoryview(data))
    data[88:93] = b"HELLO"
    assert message.body == b"HELLO"
    assert isinstance(message.raw_properties, memoryview)
    assert isinstance(decode_record(HELLO).body, bytes)


def test_a_mapped_file_can_be_read_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(HELLO + make(body=b"second") + bytes(100))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert decode_record(mapped, len(HELLO)).body == b"second"
        scanner = Scanner(mapped)
        assert scanner.skip_records() == Found.END
        del scanner


def test_a_pull_answer() -> None:
    records = [make(body=b"%d" % n, queue_offset=n) for n in range(32)]
    answer = b"".join(records)
    for buffer in (answer, memoryview(answer)):
        messages = decode_records(buffer, crc=True)
        assert [message.encode() for message in messages] == records
    assert decode_records(b"") == []


@pytest.mark.parametrize("rest", [HELLO[:-1], b"\0", bytes(200), encode_filler(8)], ids=len)
def test_a_pull_answer_is_made_of_whole_records(rest: bytes) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        decode_records(HELLO + rest)
    assert caught.value.offset == len(HELLO)
    assert caught.value.reason in str(caught.value)


def corrupt(at: int, replacement: bytes, raw: bytes = HELLO) -> bytes:
    return raw[:at] + replacement + raw[at + len(replacement) :]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (corrupt(0, struct.pack(">i", 110)), "110, but 109 bytes are left"),
        (corrupt(0, struct.pack(">i", 108)), "properties of 4 bytes, but 3 bytes are left"),
        (corrupt(0, struct.pack(">i", 90)), "size is 90"),
        (corrupt(0, struct.pack(">i", 0)), "size is 0"),
        (corrupt(0, struct.pack(">i", -1)), "size is -1"),
        (corrupt(0, struct.pack(">i", -(2**31))), "size is -2147483648"),
        (corrupt(0, struct.pack(">i", 2**31 - 1)), "2147483647, but 109"),
        (corrupt(4, b"\0"), "magic is 0x00a320a7"),
        (corrupt(8, b"\x77"), "CRC"),
        (corrupt(88, b"j"), "CRC"),
        (corrupt(84, struct.pack(">i", -1)), "body of -1"),
        (corrupt(84, struct.pack(">i", 2**31 - 1)), "body of 2147483647"),
        (corrupt(84, struct.pack(">i", -(2**31))), "body of -2147483648"),
        (corrupt(84, struct.pack(">i", 4)), "topic of 111"),
        (corrupt(93, b"\x0a"), "properties of"),
        (corrupt(93, b"\x80"), "topic of 128"),
        (corrupt(93, b"\xff"), "topic of 255"),
        (corrupt(103, b"\xff\xff"), "properties of -1"),
        (corrupt(103, b"\x00\x05"), "properties of 5 bytes, but 4 bytes are left"),
        (corrupt(39, b"\x30"), "body of|topic of|properties of|too small"),
        (corrupt(0, struct.pack(">i", 91) + HELLO[4:39] + b"\x30", HELLO), "too small"),
        (corrupt(0, struct.pack(">ii", 91, MAGIC_V2), HELLO), "too small"),
        (HELLO[:-1], "109, but 108 bytes are left"),
        (HELLO[:7], "7 bytes are left"),
        (b"", "range ends"),
        (bytes(109), "never written"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, reason: str) -> None:
    padding = make()
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        check_record(padding + raw, len(padding))
    assert caught.value.offset == len(padding)


def test_an_ill_topic_size_of_the_second_kind() -> None:
    raw = make(topic="T" * 128)
    with pytest.raises(CorruptRecordError, match="topic of -1 bytes"):
        check_record(corrupt(93, b"\xff\xff", raw))
    with pytest.raises(CorruptRecordError, match="topic of 32767 bytes"):
        check_record(corrupt(93, b"\x7f\xff", raw))


def test_the_crc_of_an_empty_body_is_not_looked_at() -> None:
    raw = make(body=b"", body_crc=7)
    assert check_record(raw) == len(raw)


def test_a_record_that_stands_elsewhere() -> None:
    raw = bytes(24) + make(physical_offset=1024)
    assert check_record(raw, 24, base=1000) == len(raw) - 24
    with pytest.raises(CorruptRecordError, match="offset field says 1024"):
        check_record(raw, 24, base=1001)
    assert check_record(make(physical_offset=0), base=0)
    with pytest.raises(CorruptRecordError):
        check_record(make(physical_offset=1), base=0)


def test_a_range_outside_the_buffer_is_a_mistake() -> None:
    for start, end in ((-1, 5), (5, 4), (0, 110), (110, None)):
        with pytest.raises(ValueError, match="not inside a buffer"):
            Scanner(HELLO, start, end)


# ------------------------------------------------------------------------------------------- the CRC of a whole record


def test_the_record_crc_of_java() -> None:
    line = next(p.values[0] for p in recorded("record") if p.id == "v1, checksum in the properties")
    raw = bytes.fromhex(line["hex"])
    check_record_crc(raw)
    message = decode_record(raw)
    sealed = make(
        **{
            name: getattr(message, name)
            for name in message.__struct_fields__
            if name not in ("size", "raw_topic", "raw_properties", "body_crc", "magic")
        },
        topic=message.topic,
        raw_properties=bytes(message.raw_properties[:-20]),
        record_crc=True,
    )
    assert sealed == raw


@pytest.mark.parametrize("raw_properties", [b"", b"a\x01b\x02", b"a\x01b"])
def test_a_record_with_its_crc(raw_properties: bytes) -> None:
    raw = make(raw_properties=raw_properties, record_crc=True)
    check_record_crc(b"before" + raw + b"behind", 6)
    found = decode_record(raw, crc=True).properties
    assert len(found.pop("__CRC32#")) == 10
    assert found == properties.decode(raw_properties)


def test_every_changed_bit_is_noticed_by_the_record_crc() -> None:
    raw = make(record_crc=True)
    for at in range(len(raw)):
        with pytest.raises(CorruptRecordError):
            check_record_crc(corrupt(at, bytes([raw[at] ^ 0x04]), raw))


def test_a_record_without_its_crc() -> None:
    for raw_properties in (b"", b"a\x01b\x02", b"long\x01" + b"x" * 50 + b"\x02"):
        with pytest.raises(CorruptRecordError, match="__CRC32#"):
            check_record_crc(make(raw_properties=raw_properties))


# ------------------------------------------------------------------------------------------------------------ scanning


def test_a_segment_is_scanned_to_its_end() -> None:
    first, second = make(physical_offset=4000), make(physical_offset=4000 + len(HELLO) + 6, body=b"other body")
    used = first + second
    segment = used + encode_filler(1000 - len(used)) + b"\xee" * (1000 - len(used) - 8)
    scanner = Scanner(segment, crc=True)
    assert scanner.step() == Found.RECORD
    assert (scanner.at, scanner.size, scanner.physical_offset) == (0, len(first), 4000)
    assert scanner.step() == Found.RECORD
    assert (scanner.at, scanner.next_at) == (len(first), len(used))
    assert scanner.step() == Found.FILLER
    assert (scanner.at, scanner.next_at) == (len(used), 1000)
    assert scanner.step() == scanner.step() == Found.END
    assert scanner.at == 1000


def test_the_unwritten_rest_of_a_segment_is_the_end() -> None:
    scanner = Scanner(HELLO + HELLO + bytes(500))
    assert scanner.skip_records() == Found.END
    assert scanner.at == 2 * len(HELLO)
    assert scanner.reason == "never written"
    assert scanner.skip_records() == Found.END


def test_some_records_are_skipped_at_a_time() -> None:
    scanner = Scanner(HELLO * 5 + bytes(500))
    assert (scanner.skip_some(0), scanner.last_at) == (Found.RECORD, -1)
    assert (scanner.skip_some(3), scanner.last_at) == (Found.RECORD, 2 * len(HELLO))
    assert (scanner.skip_some(2), scanner.last_at) == (Found.RECORD, 4 * len(HELLO))
    assert (scanner.skip_some(9), scanner.last_at, scanner.at) == (Found.END, 4 * len(HELLO), 5 * len(HELLO))


def test_nothing_beyond_the_range_is_seen() -> None:
    two = HELLO + HELLO
    assert Scanner(two, 0, len(HELLO)).skip_records() == Found.END
    scanner = Scanner(two, 0, len(two) - 1)
    assert scanner.skip_records() == Found.CUT
    assert scanner.at == len(HELLO)
    for left in range(1, 8):
        assert Scanner(two, 0, len(HELLO) + left).skip_records() == Found.CUT


def test_a_bad_record_stops_the_scan() -> None:
    scanner = Scanner(HELLO + corrupt(88, b"j") + HELLO, crc=True)
    assert scanner.skip_records() == scanner.step() == Found.BAD
    assert scanner.at == len(HELLO)
    assert "CRC" in scanner.reason
    assert Scanner(HELLO + corrupt(88, b"j") + HELLO).skip_records() == Found.END


@pytest.mark.parametrize(
    ("filler", "found"),
    [
        (encode_filler(8), Found.FILLER),
        (encode_filler(20), Found.FILLER),
        (encode_filler(21), Found.CUT),
        (struct.pack(">iI", 7, 0xCBD43194), Found.BAD),
        (struct.pack(">iI", -1, 0xCBD43194), Found.BAD),
    ],
)
def test_fillers(filler: bytes, found: Found) -> None:
    assert Scanner(filler + bytes(12)).step() == found


def test_a_filler_has_room_for_itself() -> None:
    with pytest.raises(LocalProtocolError):
        encode_filler(7)


def scanned(raw_properties: bytes) -> Scanner:
    scanner = Scanner(make(raw_properties=raw_properties))
    assert scanner.step() == Found.RECORD
    scanner.find_keys()
    return scanner


def test_what_dispatch_needs() -> None:
    scanner = scanned(b"KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02TAGS\x01TagA\x02CLUSTER\x01c\x02")
    assert (scanner.topic, scanner.keys, scanner.unique_key) == (b"TopicTest", b"k1 k2", b"ID")
    assert scanner.tags_hash == 2598919
    assert (scanner.queue_id, scanner.queue_offset, scanner.stored_ms) == (1, 5, 1_700_000_000_123)


def test_what_dispatch_does_not_find() -> None:
    for raw_properties in (
        b"",
        b"a\x01b\x02",
        b"TAGS",
        b"TAGS\x01",
        b"TAGS\x01\x02",
        b"xTAGS\x01v\x02",
        b"a\x01TAGS\x01v\x02",
    ):
        scanner = scanned(raw_properties)
        assert (scanner.tags_hash, scanner.keys, scanner.unique_key) == (0, b"", b"")


def test_the_keys_of_the_record_before_are_forgotten() -> None:
    scanner = Scanner(
        make(raw_properties=b"KEYS\x01k\x02TAGS\x01TagA\x02UNIQ_KEY\x01ID\x02") + make(raw_properties=b"")
    )
    for keys in (b"k", b""):
        scanner.step()
        scanner.find_keys()
        assert scanner.keys == keys
    assert (scanner.unique_key, scanner.tags_hash) == (b"", 0)


@pytest.mark.parametrize(
    ("raw_properties", "tags"),
    [
        (b"TAGS\x01last separator missing", "last separator missing"),
        (b"TAGS\x01first\x02TAGS\x01second\x02", "second"),
        (b"TAGS\x01first\x02TAGS\x01\x02", "first"),
        (b"TAGS\x01with\x01another\x02", "with\x01another"),
        ("TAGS\x01标签😀\x02".encode(), "标签😀"),
        (b"TAGS\x01\xff\x02", "\ufffd"),
        (b"\x02\x02TAGS\x01v\x02", "v"),
        (b"TAGS\x01polygenelubricants\x02", "polygenelubricants"),
    ],
)
def test_the_hash_of_tags(raw_properties: bytes, tags: str) -> None:
    assert properties.decode(raw_properties)["TAGS"] == tags
    assert scanned(raw_properties).tags_hash == java_hash(tags)


def test_offsets_are_typed() -> None:
    offset: PhysicalOffset = decode_record(HELLO).physical_offset
    assert offset == 1024
