"""Messages, batches and records: round trips, and invalid bytes.

The compiled form of record.py, where it is built, and its plain form are held equal.
"""

import importlib.util
import struct
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.examples import examples

import kourou.protocol
from kourou.protocol import hosts, properties, record
from kourou.protocol.batch import decode_batch, encode_batch
from kourou.protocol.compression import Compression, compress, decompress, with_compression
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.protocol.hashes import index_hash, java_hash
from kourou.protocol.ids import UniqueIds, decode_offset_id, decode_unique_id, encode_offset_id
from kourou.protocol.message import Message, PhysicalOffset
from kourou.protocol.received import received_messages
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

thorough = settings(deadline=None, max_examples=examples(300))

SOURCE = Path(kourou.protocol.__path__[0]) / "record.py"
COMPILED = record.__file__ != str(SOURCE)


def load_plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_record", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------------- strategies

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=30)
property_maps = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"]) | names, values, max_size=6)
# Bytes that look like properties, and may be none.
loose_properties = st.lists(
    st.sampled_from(
        [b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGS\x01", b"\x02KEYS\x01", b"a", "é😀".encode(), b"\xff"]
    ),
    max_size=14,
).map(b"".join)
raw_property_bytes = property_maps.map(lambda named: properties.encode(named).encode()) | loose_properties
host_bytes = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
messages = st.builds(Message, st.just("T"), st.binary(max_size=60), int32, property_maps)

record_fields = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("L" * 200),
        "body": st.binary(max_size=80),
        "queue_id": int32,
        "queue_offset": int64,
        "physical_offset": int64,
        "born_ms": int64,
        "born_host": host_bytes,
        "stored_ms": int64,
        "store_host": host_bytes,
        "raw_properties": raw_property_bytes,
        "flag": int32,
        "sys_flag": int32,
        "reconsume_times": int32,
        "prepared_offset": int64,
    },
    optional={"magic": st.just(MAGIC_V2), "record_crc": st.booleans()},
)


def make(fields: dict[str, Any]) -> bytes:
    return encode_record(**fields)


records = record_fields.map(make)

# What an attacker or a torn write may leave: single bytes, and sizes and magics in any place.
interesting = st.sampled_from(
    [0, 1, -1, 8, 90, 91, 92, 127, 128, 32767, 2**31 - 1, -(2**31), MAGIC_V1, MAGIC_V2, -875286124]
)
patches = st.tuples(
    st.integers(0, 400),
    st.binary(min_size=1, max_size=3) | (interesting | int32).map(lambda number: struct.pack(">i", number)),
)


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(source))
    for at, patch in draw(st.lists(patches, max_size=3)):
        if data:
            at %= len(data)
            data[at : at + len(patch)] = patch
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data)


fillers = st.integers(8, 200).map(lambda size: encode_filler(size) + bytes(size - 8))
logs = st.lists(records | fillers | st.integers(0, 40).map(bytes), max_size=3).map(b"".join)
broken_logs = mutated(logs) | st.binary(max_size=200)


# ------------------------------------------------------------------------------------------------------ there and back


@thorough
@given(property_maps)
def test_properties_come_back(named: dict[str, str]) -> None:
    text = properties.encode(named)
    assert properties.decode(text) == properties.decode(text.encode()) == named
    if named:
        assert properties.decode(text[:-1]) == named


@thorough
@given(st.text() | st.binary())
def test_any_text_is_some_properties(text: str | bytes) -> None:
    named = properties.decode(text)
    if all(ord(character) < 0xD800 or ord(character) > 0xDFFF for pair in named.items() for character in "".join(pair)):
        assert properties.decode(properties.encode(named)) == named


@thorough
@given(host_bytes, int64)
def test_hosts_and_offset_ids_come_back(host: bytes, offset: int) -> None:
    decoded = decode_offset_id(encode_offset_id(host, PhysicalOffset(offset)))
    assert decoded == (hosts.decode_host(host), offset)
    if int.from_bytes(host[-4:]) <= 65535:
        assert hosts.encode_host(decoded.host) == host


@thorough
@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), int64, int32, int64, int64)
def test_unique_ids_come_back(ip: bytes, pid: int, process_hash: int, now_ms: int, month_ms: int) -> None:
    decoded = decode_unique_id(UniqueIds(ip, pid, process_hash).next(now_ms, month_ms))
    assert decoded == (ip, pid % 2**16, process_hash % 2**32, max(now_ms - month_ms, 0) % 2**32, 0)


@thorough
@given(st.text(max_size=80))
def test_any_text_is_an_id_or_is_refused(text: str) -> None:
    for decode in (decode_offset_id, decode_unique_id):
        with suppress(ProtocolError):
            decode(text)


@thorough
@given(st.text())
@example("😀" * 100)
def test_javas_hash_is_what_java_says_it_is(text: str) -> None:
    expected = 0
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            expected = (31 * expected + int.from_bytes(units[at : at + 2])) % 2**32
    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31
    assert index_hash(text) in (abs(java_hash(text)), 0)


@thorough
@given(st.sampled_from(Compression), st.binary(max_size=300))
def test_compressed_bodies_come_back(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), with_compression(0, kind), len(body)) == body


@thorough
@given(st.sampled_from(Compression), st.data())
def test_any_bytes_decompress_or_are_refused(kind: Compression, data: st.DataObject) -> None:
    body = data.draw(mutated(st.binary(max_size=300).map(lambda plain: compress(plain, kind))))
    with suppress(BodyError):
        assert len(decompress(body, with_compression(0, kind), 200)) <= 200


@thorough
@given(st.lists(messages, min_size=1, max_size=5))
def test_batches_come_back(batch: list[Message]) -> None:
    entries = decode_batch(encode_batch(batch))
    assert [Message("T", bytes(entry.body), entry.flag, entry.properties) for entry in entries] == batch


@thorough
@given(mutated(st.lists(messages, min_size=1, max_size=3).map(encode_batch)) | st.binary(max_size=100))
def test_any_bytes_are_a_batch_or_are_refused(data: bytes) -> None:
    with suppress(BodyError):
        entries = decode_batch(data)
        assert sum(22 + len(entry.body) + len(entry.raw_properties) for entry in entries) == len(data)


@thorough
@given(record_fields)
def test_records_come_back(fields: dict[str, Any]) -> None:
    raw = encode_record(**fields)
    message = decode_record(raw, crc=True)
    assert message.encode() == raw
    assert check_record(raw) == message.size == len(raw)
    sealed = fields.pop("record_crc", False)
    if sealed:
        check_record_crc(raw)
    fields.pop("magic", None)
    host_bits = 0x10 * (len(fields["born_host"]) == 20) + 0x20 * (len(fields["store_host"]) == 20)
    assert message.sys_flag == fields.pop("sys_flag") & ~0x30 | host_bits
    raw_properties = fields.pop("raw_properties")
    assert message.raw_properties[: len(raw_properties)] == raw_properties
    for name, value in fields.items():
        assert getattr(message, name) == value


@thorough
@given(st.lists(records, max_size=4))
def test_answers_come_back(raws: list[bytes]) -> None:
    answer = b"".join(raws)
    assert [message.encode() for message in decode_records(answer)] == raws
    assert [message.encode() for message in decode_records(memoryview(answer))] == raws


# --------------------------------------------------------------------------------------------------------- broken bytes


@thorough
@given(broken_logs)
def test_any_bytes_are_records_or_are_refused(data: bytes) -> None:
    with suppress(CorruptRecordError):
        found = decode_records(data, crc=True)
        assert b"".join(message.encode() for message in found) == data


@thorough
@given(broken_logs)
def test_a_consumer_gets_messages_or_a_body_error(data: bytes) -> None:
    with suppress(BodyError):
        received_messages(data, limit=10_000)


@thorough
@given(broken_logs, st.integers(0, 300))
def test_any_bytes_fit_their_record_crc_or_are_refused(data: bytes, at: int) -> None:
    with suppress(CorruptRecordError):
        check_record_crc(data, min(at, len(data)))


def trace(scanner: Any, limit: int = 50) -> list[tuple[Any, ...]]:
    """Everything that a scanner says until it stops."""
    steps: list[tuple[Any, ...]] = []
    while len(steps) < limit:
        found = scanner.step()
        if found != Found.RECORD:
            steps.append((found, scanner.at, scanner.next_at, scanner.reason))
            if found != Found.FILLER:
                break
            continue
        scanner.find_keys()
        steps.append(
            (
                found,
                scanner.at,
                scanner.next_at,
                *msgspec.structs.astuple(scanner.message()),
                (scanner.topic, scanner.keys, scanner.unique_key, scanner.tags_hash),
                (scanner.body_at, scanner.body_size, scanner.topic_at, scanner.topic_size),
                (scanner.properties_at, scanner.properties_size, scanner.keys_size, scanner.unique_key_size),
            )
        )
    return steps


@thorough
@given(broken_logs, st.booleans(), st.binary(max_size=120), st.binary(max_size=120))
def test_a_scanner_sees_nothing_outside_of_its_range(data: bytes, crc: bool, before: bytes, behind: bytes) -> None:
    """The same bytes give the same trace, whatever stands around them."""
    alone = trace(Scanner(bytes(len(before)) + data, len(before), crc=crc))
    buffer = before + data + behind
    assert trace(Scanner(buffer, len(before), len(before) + len(data), crc=crc)) == alone


@thorough
@given(raw_property_bytes)
def test_keys_are_found_where_the_properties_have_them(raw_properties: bytes) -> None:
    host = bytes(8)
    scanner = Scanner(
        encode_record(
            topic="T",
            body=b"TAGS\x01no\x02KEYS\x01no\x02",
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            born_ms=0,
            born_host=host,
            stored_ms=0,
            store_host=host,
            raw_properties=raw_properties,
        )
        + b"\x02TAGS\x01no\x02"
    )
    assert scanner.step() == Found.RECORD
    scanner.find_keys()
    named = properties.decode(raw_properties)
    assert scanner.tags_hash == java_hash(named.get("TAGS", ""))
    assert scanner.keys.decode("utf-8", "replace") == named.get("KEYS", "")
    assert scanner.unique_key.decode("utf-8", "replace") == named.get("UNIQ_KEY", "")


@pytest.mark.skipif(not COMPILED, reason="the compiled form is not built, or KOUROU_PURE=1")
class TestCompiledAndPlain:
    plain = load_plain()

    @thorough
    @given(broken_logs, st.booleans(), st.none() | st.integers(0, 2**40), st.integers(0, 30))
    def test_scanners_say_the_same(self, data: bytes, crc: bool, base: int | None, start: int) -> None:
        start = min(start, len(data)) if crc else 0
        plain = self.plain.Scanner(data, start, crc=crc, base=base)
        assert trace(Scanner(data, start, crc=crc, base=base)) == trace(plain)

    @thorough
    @given(record_fields)
    def test_records_are_written_the_same(self, fields: dict[str, Any]) -> None:
        assert encode_record(**fields) == self.plain.encode_record(**fields)

    @thorough
    @given(broken_logs)
    def test_decoders_say_the_same(self, data: bytes) -> None:
        assert self.outcome(record, data) == self.outcome(self.plain, data)

    @staticmethod
    def outcome(module: ModuleType, data: bytes) -> object:
        try:
            return [msgspec.structs.astuple(message) for message in module.decode_records(data, crc=True)]
        except module.CorruptRecordError as error:
            return error.offset, error.reason, str(error)
