"""A registration that is compared with the one before says the same as one that is read in full."""

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from kourou.nameserver import registration
from kourou.nameserver.registration import Reading, Registration, Said
from kourou.protocol import headers
from kourou.protocol.bodies import RegisterBrokerBody
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError

HEADER = headers.RegisterBroker(cluster_name="C", broker_name="a", broker_id=0, broker_addr="h:1", ha_server_addr="h:2")
Table = dict[str, tuple[int, dict[str, str]]]  # topic -> queues, attributes

NAMES = ["a", "b", "c", "dataVersion", "topicConfigTable", "?", 'q"', "\\", '},"x":{', "四", "$ref", "%RETRY%g", ""]
ATTRIBUTES: list[dict[str, str]] = [
    {},
    {},
    {"+k": "v"},
    {"k": '},"y":{'},
    {'},"topicConfigTable":{': "{}}}"},
    {"{": "}"},
]
FORMS = ["java 5", "java 4.9", "ours"]


def text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def body(table: Table, form: str, *, counter: int = 1, moment: int = 0, mappings: list[str] | None = None) -> bytes:
    """A registration in the order in which its author writes the parts."""
    entries: dict[str, Any] = {
        name: {"attributes": attributes, "perm": 6, "readQueueNums": queues, "topicName": name}
        for name, (queues, attributes) in table.items()
    }
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    infos = {name: {"bname": "a", "epoch": counter, "topic": name} for name in mappings or []}
    about_mappings = {"topicQueueMappingDetailMap": infos, "topicQueueMappingInfoMap": infos}
    times = {"mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": moment}}
    if form == "java 5":
        wrapper = {"dataVersion": version, **times, "topicConfigTable": entries, **about_mappings}
    elif form == "java 4.9":
        wrapper = {"dataVersion": version, "topicConfigTable": entries}
    else:
        wrapper = {"topicConfigTable": entries, "dataVersion": version, **about_mappings, **times}
        return text({"topicConfigSerializeWrapper": wrapper, "filterServerList": []})
    return text({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def read(data: bytes, before: Said | None = None) -> Reading:
    command = Command(RequestCode.REGISTER_BROKER, body=data)
    reader = registration.read(command, HEADER, before, merge=True)
    while True:
        try:
            next(reader)
        except StopIteration as end:
            reading: Reading = end.value
            return reading


def check_pair(first: bytes, second: bytes) -> Reading:
    """Reads the second after the first, and holds it against the readers of whole bodies."""
    before, now = read(first), read(second, read(first).said)
    whole = RegisterBrokerBody.decode(second).topic_config_serialize_wrapper
    expected = Registration.decode(second).topic_config_serialize_wrapper
    if now.is_repeated:
        assert not now.topics
        assert expected.data_version == before.shell.topic_config_serialize_wrapper.data_version
    assert now.shell.topic_config_serialize_wrapper.data_version == whole.data_version
    if not now.is_repeated:
        assert now.mappings == whole.topic_queue_mapping_info_map
    known = {**before.topics, **now.topics} if now.is_partial else now.topics
    assert {name: known[name] for name in expected.topic_config_table} == expected.topic_config_table
    if not now.is_partial:
        assert now.topics.keys() == expected.topic_config_table.keys()
    again = read(second, now.said)  # what is kept of it is all of it
    assert again.is_repeated
    assert b",".join(read(second).said.pieces) == b",".join(now.said.pieces)
    return now


@pytest.fixture(params=[0, 40, 300])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    monkeypatch.setattr(registration, "PIECE", size)
    monkeypatch.setattr(registration, "SMALL", 0)
    monkeypatch.setattr(registration, "SLICE", 100)
    return size


tables = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.integers(1, 3), st.sampled_from(ATTRIBUTES)), max_size=len(NAMES)
)


@pytest.fixture(autouse=True, scope="module")
def _one_entry_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "PIECE", 0)
        patch.setattr(registration, "SMALL", 0)
        patch.setattr(registration, "SLICE", 100)
        yield


@settings(max_examples=examples(600), deadline=None)
@given(first=tables, edits=tables, fresh=st.booleans(), form=st.sampled_from(FORMS), mappings=st.booleans())
def test_what_is_read_by_difference_is_what_is_there(
    first: Table, edits: Table, fresh: bool, form: str, mappings: bool
) -> None:
    second = edits if fresh else {**first, **edits}
    check_pair(
        body(first, form),
        body(second, form, counter=2, moment=9, mappings=["b", "?"] if mappings and form != "java 4.9" else None),
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_life_of_changes_is_read_by_difference(form: str, piece: int) -> None:
    """Topics come, change and go, as with a real broker, and nearly every time little is read."""
    chance = random.Random(17)
    table: Table = {f"topic-{n}": (4, {}) for n in range(40)}
    bodies = []
    for counter in range(300):
        bodies.append(body(table, form, counter=counter, moment=counter))
        match chance.choice(["change", "change", "add", "remove", "none", "move"]):
            case "change":
                table[chance.choice(list(table))] = (chance.randrange(100), chance.choice(ATTRIBUTES))
            case "add":
                table[f"new-{counter}"] = (1, {})
            case "remove":
                del table[chance.choice(list(table))]
            case "move":
                table = {"first": (counter, {}), **table}
    readings = [check_pair(first, second) for first, second in pairwise(bodies)]
    assert sum(reading.is_partial for reading in readings) > 250
    assert sum(len(reading.topics) for reading in readings if reading.is_partial) < 300 * 12


@settings(max_examples=examples(400), deadline=None)
@given(
    table=tables,
    form=st.sampled_from(FORMS),
    at=st.integers(0, 10**6),
    cut=st.integers(0, 3),
    put=st.binary(max_size=4),
)
def test_broken_bodies_are_read_as_without_memory(table: Table, form: str, at: int, cut: int, put: bytes) -> None:
    """A body that was damaged, compared with the sound one: the same topics, or the same refusal, as read in full."""
    table = {"x": (1, {}), **table, "y": (2, {}), "z": (3, {})}
    sound = body(table, form)
    at %= len(sound)
    broken = sound[:at] + put + sound[at + cut :]
    try:
        expected = Registration.decode(broken)
    except BodyError:
        with pytest.raises(BodyError):
            read(broken, read(sound).said)
        return
    now = read(broken, read(sound).said)
    known = {**read(sound).topics, **now.topics} if now.is_partial else now.topics
    topics = expected.topic_config_serialize_wrapper.topic_config_table
    assert {name: known[name] for name in topics} == topics


@pytest.mark.parametrize(
    "odd",
    [
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{},,"b":{}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{},}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{,"a":{}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{}}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{},"b":{}}}',
    ],
)
def test_a_table_with_a_comma_or_brace_too_many_is_refused(odd: bytes) -> None:
    sound = b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{},"b":{}}}}'
    for before in (None, read(sound).said, read(sound.replace(b',"b":{}', b"")).said):
        with pytest.raises(BodyError):
            read(odd, before)


def test_pieces_do_not_become_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that gets one topic after the other."""
    monkeypatch.setattr(registration, "PIECE", 1000)
    monkeypatch.setattr(registration, "SMALL", 0)
    said = None
    for count in range(2, 400):
        data = body({f"topic-{n}": (4, {}) for n in range(count)}, "java 5", counter=count)
        reading = read(data, said)
        assert reading.is_partial == (said is not None)
        said = reading.said
        assert len(said.pieces) <= registration.PIECES_SPARE + 2 * said.size_bytes // registration.PIECE
    assert said is not None and read(data, said).is_repeated
    assert b",".join(said.pieces) in data


def test_another_table_later_counts_alone() -> None:
    """As in Java, the last of equal keys counts, so the parts of such a body can't be decoded alone."""
    sound = b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"a":{},"b":{}}%b}}'
    for later in (b',"topicConfigTable":{"c":{}}', b'},"topicConfigSerializeWrapper":{"topicConfigTable":{"c":{}}'):
        assert read(sound % later, read(sound % b"").said).topics.keys() == {"c"}
