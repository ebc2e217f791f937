"""The requests of the name server's benchmark equal those of a real broker."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import requests

from kourou.protocol.bodies import RegisterBrokerBody
from kourou.protocol.command import Command
from kourou.protocol.frame import FRAME_SIZE_MAX, split

RECORDED = Path(__file__).parents[2] / "data" / "java-5.5.0.jsonl"
NAMES = requests.topic_names(10)


def _command(frame: bytes) -> Command:
    commands, used, _, error = split(frame, FRAME_SIZE_MAX)
    assert used == len(frame) and error is None
    (command,) = commands
    return command


def _wrapper(frame: bytes) -> dict[str, Any]:
    wrapper: dict[str, Any] = json.loads(_command(frame).body)["topicConfigSerializeWrapper"]
    return wrapper


def _recorded_registration() -> bytes:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    (line,) = (line for line in lines if line["name"] == "registration")
    return bytes.fromhex(line["hex"])


def test_a_topic_looks_as_java_writes_it() -> None:
    theirs = b'"TopicTest":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    assert theirs in _recorded_registration()
    ours = _command(requests.repeated_registration(["TopicTest"])).body
    assert theirs in ours
    assert RegisterBrokerBody.decode(ours).topic_config_serialize_wrapper.topic_config_table["TopicTest"].perm == 6


def test_the_keys_stand_in_javas_order() -> None:
    body = _command(requests.unchanged_registrations(NAMES, 1)[0]).body
    recorded = _recorded_registration()
    keys = [b"filterServerList", b"topicConfigSerializeWrapper", b"dataVersion", b"mappingDataVersion"]
    keys += [b"topicConfigTable", b"topicQueueMappingDetailMap", b"topicQueueMappingInfoMap"]
    for text in (body, recorded):
        places = [text.index(b'"%b":' % key) for key in keys]
        assert places == sorted(places)


def test_unchanged_registrations_differ_in_the_version_of_mappings_alone() -> None:
    frames = requests.unchanged_registrations(NAMES, 3)
    assert len(set(frames)) == 3
    rests = []
    for frame in frames:
        wrapper = _wrapper(frame)
        del wrapper["mappingDataVersion"]
        rests.append(wrapper)
    assert rests[0] == rests[1] == rests[2]
    assert list(rests[0]["topicConfigTable"]) == NAMES


@pytest.mark.parametrize("topics", [1, 2, 7, 100])
def test_changed_registrations_differ_in_one_topic_from_each_to_the_next_and_round(topics: int) -> None:
    wrappers = [_wrapper(frame) for frame in requests.changed_registrations(requests.topic_names(topics), 12)]
    assert len(wrappers) == 2 * min(6, topics)
    for before, after in zip(wrappers, [*wrappers[1:], wrappers[0]], strict=True):
        assert before["dataVersion"] != after["dataVersion"]
        tables = before["topicConfigTable"], after["topicConfigTable"]
        assert len(tables[0]) == topics
        assert sum(tables[0][name] != tables[1][name] for name in tables[0]) == 1
