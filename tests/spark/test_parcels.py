"""The compiled encoder of batches and the plain way make the same requests of the same rows."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip(
    "kourou.spark._parcels", reason="the compiled encoder is not built, or KOUROU_PURE=1", exc_type=ImportError
)

from kourou.protocol.batch import decode_batch
from kourou.spark.messages import Drafts
from kourou.spark.sending import BATCH_ROWS, BATCH_SIZE, Parcel, _batches, quick_parcels

Row = dict[str, Any]


def batch_of(rows: list[Row], names: list[str], body: pa.DataType | None = None) -> pa.RecordBatch:
    types = {name: pa.string() for name in names} | {"body": body or pa.binary()}
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, types[name]) for name in names]))


def plainly(batch: pa.RecordBatch, drafts: Drafts) -> list[Parcel]:
    return list(_batches("t", None, list(drafts.of(batch))))


def quickly(batch: pa.RecordBatch, drafts: Drafts) -> list[Parcel] | None:
    parcels = quick_parcels(drafts, batch)
    return None if parcels is None else list(parcels)


text = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12))
row = st.fixed_dictionaries(
    {"body": st.binary(min_size=1, max_size=40), "tags": text, "keys": text, "unique_key": text}
)


@settings(max_examples=200)
@given(
    st.lists(row, max_size=12),
    st.sets(st.sampled_from(["tags", "keys", "unique_key"])),
    st.integers(0, 3),
    st.integers(0, 2**40),
)
def test_both_make_the_same(rows: list[Row], more: set[str], cut: int, number: int) -> None:
    """Also of a part of a batch, whose columns begin somewhere in their memory."""
    batch = batch_of(rows, ["body", *sorted(more)]).slice(cut)
    quick, plain = Drafts("t", "job/0"), Drafts("t", "job/0")
    quick.count(number)
    plain.count(number)
    assert quickly(batch, quick) == plainly(batch, plain)
    assert quick.identity == plain.identity


def test_large_batches_are_cut_alike() -> None:
    sizes = [1, BATCH_SIZE - 100, 300, BATCH_SIZE + 1, 5, 5, *[10] * (2 * BATCH_ROWS + 1)]
    batch = batch_of([{"body": bytes([1]) * size, "keys": "k"} for size in sizes], ["body", "keys"])
    found = quickly(batch, Drafts("t", "job/0"))
    assert found == plainly(batch, Drafts("t", "job/0"))
    assert found is not None
    assert sum(parcel.count for parcel in found) == len(sizes)


def test_text_as_a_body() -> None:
    batch = batch_of([{"body": "größer"}], ["body"], pa.string())
    found = quickly(batch, Drafts("t", "job/0"))
    assert found is not None
    [entry] = decode_batch(found[0].body, 1000)
    assert bytes(entry.body) == "größer".encode()


@pytest.mark.parametrize(
    "rows",
    [
        [{"body": None}],
        [{"body": b""}],
        [{"body": bytes(2**20 + 1)}],
        [{"body": b"x", "tags": "a\x01b"}],
        [{"body": b"x", "keys": "a\x02b"}],
        [{"body": b"x", "unique_key": "\x02"}],
        [{"body": b"x", "keys": "k" * 5000}],
        [{"body": b"x"}, {"body": b"y", "tags": "\x01"}],
    ],
)
def test_unusual_rows_are_left_alone(rows: list[Row]) -> None:
    drafts = Drafts("t", "job/0")
    assert quick_parcels(drafts, batch_of(rows, ["body", "tags", "keys", "unique_key"])) is None
    assert drafts.identity[2] == 0


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        (None, ["body", "topic"]),
        ("t", ["body", "ordering_key"]),
        ("t", ["body", "topic", "broker", "queue_id", "queue_offset"]),
    ],
)
def test_columns_that_only_the_plain_way_knows(topic: str | None, names: list[str]) -> None:
    rows = [{name: b"1" if name == "body" else "1" for name in names}]
    assert quick_parcels(Drafts(topic, "job/0"), batch_of(rows, names)) is None


def test_keys_as_a_list_are_left_alone() -> None:
    schema = pa.schema([("body", pa.binary()), ("keys", pa.list_(pa.string()))])
    batch = pa.RecordBatch.from_pylist([{"body": b"x", "keys": ["a", "b"]}], schema=schema)
    assert quick_parcels(Drafts("t", "job/0"), batch) is None
