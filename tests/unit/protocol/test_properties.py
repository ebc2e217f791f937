"""The string form of properties, against what the Java classes write and read."""

import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol import properties
from kourou.protocol.errors import BodyError, LocalProtocolError
from kourou.protocol.properties import PROPERTIES_SIZE_MAX, RESERVED, Property

DATA = Path(__file__).parents[2] / "data"


def recorded(version: str, kind: str) -> list[Any]:
    lines = (json.loads(line) for line in (DATA / f"java-{version}.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("line", recorded("5.5.0", "properties") + recorded("4.9.8", "properties"))
def test_what_java_writes_is_read_alike(line: dict[str, Any]) -> None:
    raw = bytes.fromhex(line["hex"])
    assert properties.decode(raw) == line["fields"]["properties"]
    assert properties.decode(memoryview(raw)) == line["fields"]["properties"]
    assert properties.decode(raw.decode()) == line["fields"]["properties"]


@pytest.mark.parametrize("line", recorded("5.5.0", "properties"))
def test_what_java_writes_is_written_alike(line: dict[str, Any]) -> None:
    if line["fields"]["parse_only"]:
        return
    written_from = line["fields"]["written_from"]
    if all(written_from.values()):
        assert properties.encode(written_from).encode() == bytes.fromhex(line["hex"])
    else:
        with pytest.raises(LocalProtocolError, match="readers would ignore it"):
            properties.encode(written_from)


def test_every_name_of_java_is_known() -> None:
    constants: dict[str, Any] = next(p.values[0] for p in recorded("5.5.0", "constants") if p.id == "MessageConst")
    names = {value for name, value in constants["fields"].items() if name.startswith(("PROPERTY_", "DUP_"))}
    ours = {value for name, value in vars(Property).items() if not name.startswith("__")}
    assert len(names) > 60
    assert names <= ours
    assert ours > RESERVED


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert properties.decode(b"a\x01\xff\x02") == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("name", "value"), [("", "v"), ("n", ""), ("a\x01b", "v"), ("a\x02b", "v"), ("n", "a\x02b"), ("n", "\ud800")]
)
def test_a_pair_that_would_not_come_back_is_refused(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError):
        properties.encode({name: value})


def test_a_value_keeps_a_second_name_separator() -> None:
    assert properties.decode(properties.encode({"n": "a\x01b"})) == {"n": "a\x01b"}


@pytest.mark.parametrize("character", ["x", "é", "中", "😀"])
def test_the_size_limit_counts_bytes(character: str) -> None:
    room = PROPERTIES_SIZE_MAX - 3
    fits = character * (room // len(character.encode()))
    assert len(properties.encode({"n": fits}).encode()) <= PROPERTIES_SIZE_MAX
    with pytest.raises(LocalProtocolError, match="the limit is 32767"):
        properties.encode({"n": fits + character})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEYS", "k"),
        ("__CRC32#", "1"),
        ("__RMQ.TRANSIENT.x", "1"),
        (" ", "v"),
        ("n", " "),
        ("n", "a\x01b"),
        ("a\x02", "b"),
    ],
)
def test_users_may_not_set_it(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError):
        properties.check_user_property(name, value)


def test_users_may_set_their_own() -> None:
    properties.check_user_property("amount", "12")
    properties.check_user_property("TRACE_CONTEXT", "Java does not reserve it")


def test_numbers() -> None:
    assert properties.number({}, "DELAY") is None
    assert properties.number({"DELAY": "3"}, "DELAY") == 3
    assert properties.number({"DELAY": "-3"}, "DELAY") == -3


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1_0", "٣", "--1", "-", "9" * 5000])
def test_values_that_are_not_numbers(text: str) -> None:
    with pytest.raises(BodyError, match="DELAY"):
        properties.number({"DELAY": text}, "DELAY")
