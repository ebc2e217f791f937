"""Records become rows, the same in plain Python and compiled."""

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kourou._backend import PURE
from kourou.protocol.compression import Compression
from kourou.protocol.record import Found, Scanner
from kourou.spark import rows as rows_module
from kourou.spark.columns import COLUMNS, CORRUPT, arrow_schema, chosen
from kourou.spark.errors import DataLossError, OptionError
from kourou.spark.rows import FULL, REPORT, SKIP, STOPPED, RowBuilder, Rows, make_rows
from kourou.spark.selection import Selection

from .records import BORN_MS, compressed, log, record, with_batch_inside

ALL = (*COLUMNS, CORRUPT)


def _kinds() -> list[type[Any]]:
    kinds: list[type[Any]] = [Rows]
    if not PURE:
        try:
            from kourou.spark._rows import CompiledRows
        except ImportError:  # an installation without a compiler
            return kinds
        kinds.append(CompiledRows)
    return kinds


KINDS = _kinds()


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Any]:
    assert isinstance(request.param, type)
    return request.param


def read(builder: RowBuilder, data: bytes) -> pa.RecordBatch:
    scanner = Scanner(data)
    found = builder.fill(scanner, len(data))
    assert found in (STOPPED, Found.END), scanner.reason
    batch = builder.finish()
    batch.validate(full=True)
    return batch


def test_every_column_has_what_was_stored(kind: type[Any]) -> None:
    data = record(7, at=0x1234)
    [row] = read(kind(ALL, broker="broker-a"), data).to_pylist()
    assert row == {
        "topic": "orders",
        "queue_id": 1,
        "queue_offset": 7,
        "broker": "broker-a",
        "msg_id": "7F00000100002A9F0000000000001234",
        "unique_key": "U00007",
        "tags": "tag1",
        "keys": "k7",
        "properties": [("TAGS", "tag1"), ("KEYS", "k7"), ("UNIQ_KEY", "U00007"), ("n", "7")],
        "body": b"body 7",
        "born_timestamp": datetime.fromtimestamp((BORN_MS + 7) / 1000, UTC),
        "born_host": "127.0.0.1:10911",
        "store_timestamp": datetime.fromtimestamp((BORN_MS + 8) / 1000, UTC),
        "store_host": "127.0.0.1:10911",
        "reconsume_times": 0,
        "flag": 7,
        "sys_flag": 0,
        "body_crc": row["body_crc"],
        "store_size": len(data),
        "commit_log_offset": 0x1234,
        "prepared_tx_offset": 0,
        "corrupt": None,
    }


def test_the_schema_is_what_spark_expects(kind: type[Any]) -> None:
    batch = read(kind(ALL), log(3))
    assert batch.schema.equals(arrow_schema(ALL))


def test_only_the_columns_asked_for(kind: type[Any]) -> None:
    batch = read(kind(("body", "queue_offset")), log(3))
    assert batch.to_pylist() == [{"body": f"body {n}".encode(), "queue_offset": n} for n in range(3)]


def test_an_empty_batch(kind: type[Any]) -> None:
    batch = read(kind(ALL), b"")
    assert batch.num_rows == 0
    assert batch.schema.equals(arrow_schema(ALL))


def test_a_batch_ends_when_it_is_full(kind: type[Any]) -> None:
    data = log(10)
    builder = kind(("queue_offset",), rows_max=4)
    scanner = Scanner(data)
    sizes = []
    while (found := builder.fill(scanner, len(data))) == FULL:
        sizes.append(builder.finish().num_rows)
    assert found == STOPPED
    assert [*sizes, builder.finish().num_rows] == [4, 4, 2]


def test_a_batch_ends_by_size(kind: type[Any]) -> None:
    data = log(10)
    builder = kind(("queue_offset",), size_max=1)
    assert builder.fill(Scanner(data), len(data)) == FULL
    assert builder.finish().num_rows == 1


def test_records_that_begin_behind_the_stop_are_left(kind: type[Any]) -> None:
    data = log(2)
    builder = kind(("queue_offset",))
    scanner = Scanner(data)
    assert builder.fill(scanner, 1) == STOPPED
    assert builder.finish().to_pylist() == [{"queue_offset": 0}]
    assert scanner.next_at == len(data) // 2


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(topics=frozenset({"b"})), [1]),
        (Selection(topics=frozenset({"a", "b"})), [0, 1]),
        (Selection(topic_pattern="[bc]"), [1, 2]),
        (Selection(topic_pattern="b.+"), []),
        (Selection(stored_from_ms=BORN_MS + 2), [1, 2]),
        (Selection(stored_to_ms=BORN_MS + 2), [0]),
        (Selection(offset_from=1, offset_to=2), [1]),
        (Selection(tags=frozenset({"tag0", "tag2"})), [0, 2]),
    ],
)
def test_selection(kind: type[Any], selection: Selection, expected: list[int]) -> None:
    data = b"".join(record(n, topic=topic) for n, topic in enumerate("abc"))
    found = read(kind(("queue_offset",), selection=selection), data)
    assert found.column(0).to_pylist() == expected


@pytest.mark.parametrize("how", list(Compression))
def test_compressed_bodies(kind: type[Any], how: Compression) -> None:
    plain = b"again and again " * 100
    data = compressed(0, how, plain)
    [row] = read(kind(("body", "sys_flag")), data).to_pylist()
    assert row["body"] == plain
    assert row["sys_flag"] & 1 == 0
    [as_stored] = read(kind(("body", "sys_flag"), decompressing=False), data).to_pylist()
    assert len(as_stored["body"]) < len(plain)
    assert as_stored["sys_flag"] & 1 == 1


def batch_entries(*bodies: bytes) -> bytes:
    entries = b""
    for body in bodies:
        raw = b"TAGS\x01in\x02"
        size = 22 + len(body) + len(raw)
        entries += struct.pack(">iiiii", size, 0, 0, 3, len(body)) + body + struct.pack(">h", len(raw)) + raw
    return entries


def test_a_record_with_a_batch_inside(kind: type[Any]) -> None:
    data = with_batch_inside(5, batch_entries(b"one", b"two"))
    wanted = ("queue_offset", "body", "tags", "flag")
    assert [tuple(row.values()) for row in read(kind(wanted), data).to_pylist()] == [
        (5, b"one", "in", 3),
        (6, b"two", "in", 3),
    ]
    part = read(kind(wanted, selection=Selection(offset_from=6)), data)
    assert part.column(1).to_pylist() == [b"two"]


def test_without_verifying_a_body_that_does_not_decompress_stays(kind: type[Any]) -> None:
    data = record(0, body=b"no zlib", sys_flag=1)
    [row] = read(kind(("body", "sys_flag")), data).to_pylist()
    assert row == {"body": b"no zlib", "sys_flag": 1}


@pytest.mark.parametrize(
    ("data", "reason"),
    [(record(3, body_crc=1), "CRC"), (record(3, body=b"no zlib", sys_flag=1), "ZLIB")],
)
def test_damage(kind: type[Any], data: bytes, reason: str) -> None:
    data = record(2) + data + record(4)
    reported = read(kind(("queue_offset", CORRUPT), verify=True, on_damage=REPORT), data).to_pylist()
    assert [row["queue_offset"] for row in reported] == [2, 3, 4]
    assert [reason in (row[CORRUPT] or "") for row in reported] == [False, True, False]
    skipping = kind(("queue_offset",), verify=True, on_damage=SKIP)
    assert read(skipping, data).column(0).to_pylist() == [2, 4]
    assert skipping.skipped == 1
    with pytest.raises(DataLossError, match=reason):
        read(kind(("queue_offset",), verify=True), data)


def test_bytes_that_are_not_a_record_become_a_row(kind: type[Any]) -> None:
    builder = kind(ALL, on_damage=REPORT)
    builder.damage(100, 20, "why")
    [row] = builder.finish().to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "commit_log_offset": 100,
        "store_size": 20,
        "corrupt": "why",
    }


@pytest.mark.parametrize(
    "data",
    [
        record(0, properties={"城市": "北京"}, topic="日志"),
        record(0, properties=b"\xff\xfe\x01bad\x02TAGS\x01\xff\x02"),
        record(0, topic=b"\xff"),
        record(0, properties=b"a\x011\x02b\x012\x02a\x013\x02TAGS\x01x\x02TAGS\x01y\x02"),
        record(0, properties=b"\x01novalue\x02noname\x01\x02plain\x02KEYS\x01k"),
        record(0, host="[2001:db8::1]:10911"),
        record(0, body=b""),
        record(0, properties=b""),
        record(0, stored_ms=2**63 - 1),
        record(0, properties={f"name{n}": "v" for n in range(300)}),
        record(0) + record(1, properties=b"") + record(2) + record(3, properties=b""),
        record(0, properties=b"") + log(20),
    ],
    ids=range(12),
)
@pytest.mark.skipif(len(KINDS) < 2, reason="nothing is compiled here")
def test_both_give_the_same(data: bytes) -> None:
    plain, compiled = (read(kind(ALL, broker="b"), data) for kind in KINDS)
    assert compiled.equals(plain)


_PROPERTIES = st.binary(max_size=60) | st.lists(
    st.tuples(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xe4\xb8\xad"]), st.binary(max_size=6)),
    max_size=6,
).map(lambda pairs: b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs))


@pytest.mark.skipif(len(KINDS) < 2, reason="nothing is compiled here")
@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 9),
            topic=st.binary(max_size=8),
            body=st.binary(max_size=40),
            properties=_PROPERTIES,
            sys_flag=st.sampled_from([0, 0, 0, 1, 0xC0, 0x301]),
            host=st.sampled_from(["10.0.0.255:1", "[::1]:65535"]),
            body_crc=st.sampled_from([None, None, 5]),
        ),
        max_size=12,
    ),
    st.sampled_from([None, "b"]),
    st.booleans(),
    st.sets(st.sampled_from(ALL)).map(sorted),
)
def test_both_give_the_same_for_anything(
    records: list[bytes], broker: str | None, verify: bool, columns: list[str]
) -> None:
    data = b"".join(records)
    plain, compiled = (
        read(kind(columns or ALL, broker=broker, verify=verify, on_damage=REPORT), data) for kind in KINDS
    )
    assert compiled.equals(plain)


def test_the_compiled_one_is_taken_where_there_is_one() -> None:
    assert type(make_rows(("body",))) is KINDS[-1]
    assert rows_module.Rows is KINDS[0]


def test_columns_are_checked() -> None:
    assert chosen(None) == tuple(COLUMNS)
    assert chosen(None, corrupt=True)[-1] == CORRUPT
    assert chosen(["body"]) == ("body",)
    with pytest.raises(OptionError, match="no column nonsense: there are topic, queue_id"):
        chosen(["nonsense"])
    with pytest.raises(OptionError, match="twice"):
        chosen(["body", "body"])


@pytest.mark.parametrize("compression", Compression)
def test_a_bomb_stays_as_it_is_stored(kind: type[Any], compression: Compression) -> None:
    bomb = compressed(0, compression, bytes(4_000_000))
    builder = kind(ALL, max_body=1_000_000)
    [row] = read(builder, bomb).to_pylist()
    assert len(row["body"]) < 100_000
    assert row["sys_flag"] & 1
    with pytest.raises(DataLossError, match=r"do not decompress into 1000000 bytes \(max_body\)"):
        read(kind(ALL, max_body=1_000_000, verify=True), bomb)
    [row] = read(kind(ALL, max_body=4_000_000, size_max=10_000_000), bomb).to_pylist()
    assert len(row["body"]) == 4_000_000


def test_a_batch_is_full_by_what_is_in_it(kind: type[Any]) -> None:
    """Compressed bodies count as large as they become: else 2 MiB of them would be gigabytes in one batch."""
    data = b"".join(compressed(number, Compression.ZLIB, bytes(1_000_000)) for number in range(20))
    builder = kind(ALL, size_max=3_000_000)
    assert builder.fill(Scanner(data), len(data)) == FULL
    assert builder.rows == 3
