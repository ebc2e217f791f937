"""Whatever is written is read back, and no bytes do anything but decode or raise BodyError."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st

from kourou.protocol import bodies, fastjson
from kourou.protocol.errors import BodyError
from kourou.protocol.fastjson import ObjectKey, loads
from kourou.protocol.message import MessageQueue

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT
OBJECT_KEYS = st.dictionaries(TEXT, st.integers(-(2**63), 2**63 - 1) | TEXT, max_size=3).map(ObjectKey)
NAMES = TEXT.filter(lambda name: name != "$ref")


def nested(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=20,
    )


@given(nested(NAMES | INT64 | OBJECT_KEYS))
def test_written_values_are_read_back(value: Any) -> None:
    assert loads(fastjson.encode(value)) == value


@given(nested(NAMES), st.sampled_from([None, 1, "\t"]))
def test_ordinary_json_is_read_as_everyone_reads_it(value: Any, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    assert loads(text) == json.loads(text)
    # A number as key keeps msgspec out, and shows that our own reader agrees with it.
    assert loads("{0:" + text + "}") == {0: json.loads(text)}


@given(st.lists(nested(NAMES), min_size=1, max_size=3), st.data())
def test_a_reference_is_what_it_refers_to(values: list[Any], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(values) - 1))
    text = fastjson.encode([*values, {"x": {"$ref": f"$[{index}]"}}])
    assert loads(text) == [*values, {"x": values[index]}]


BODIES = [
    bytes.fromhex(line["hex"])
    for path in sorted((Path(__file__).parents[1] / "data").glob("java-*.jsonl"))
    for line in map(json.loads, path.read_text().splitlines())
    if line["kind"] == "body"
]

TYPES = (bodies.TopicRouteData, bodies.ClusterInfo, bodies.TopicStatsTable, bodies.ConsumerRunningInfo)


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """The same bytes with a piece replaced, repeated or left out."""
    where = st.integers(0, len(data))
    piece = st.binary(max_size=4) | st.sampled_from(
        [b"{", b"}", b"[", b"]", b'"', b":", b",", b"0", b'{"$ref":"$"}', b"null"]
    )
    return st.builds(lambda a, b, new: data[: min(a, b)] + new + data[max(a, b) :], where, where, piece)


@given(st.sampled_from(BODIES).flatmap(mutated) | st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_raise(data: bytes) -> None:
    for read in (loads, *(cls.decode for cls in TYPES)):
        try:
            value = read(data)
        except BodyError:
            continue
        assert not isinstance(value, bodies.Body) or type(value).decode(value.encode()) == value


OFFSETS = st.builds(bodies.TopicOffset, min_offset=INT64, max_offset=INT64, last_update_timestamp=INT64)
QUEUES = st.builds(MessageQueue, topic=TEXT, broker_name=TEXT, queue_id=st.integers(-(2**31), 2**31 - 1))


@given(st.dictionaries(QUEUES, OFFSETS, max_size=5), st.floats(0, 1e9))
def test_tables_with_objects_as_keys_round_trip(table: dict[MessageQueue, bodies.TopicOffset], tps: float) -> None:
    body = bodies.TopicStatsTable(offset_table=table, topic_put_tps=tps)
    assert bodies.TopicStatsTable.decode(body.encode()) == body


@given(st.dictionaries(TEXT, st.dictionaries(st.integers(0, 2**31 - 1), INT64, max_size=5), max_size=5))
def test_tables_with_numbers_as_keys_round_trip(table: dict[str, dict[int, int]]) -> None:
    body = bodies.ConsumerOffsetSerializeWrapper(offset_table=table)
    assert bodies.ConsumerOffsetSerializeWrapper.decode(body.encode()) == body
    assert bodies.ConsumerOffsetSerializeWrapper.decode(body.encode(standard=True)) == body


@given(st.lists(st.sampled_from(['"', "\\", "{", ",", " ", "7", ":", "x"]), max_size=12).map("".join))
def test_quoting_number_keys_leaves_json_as_it_is(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        return
    assert json.loads(fastjson._quote_number_keys(text.encode(), None)) == expected
