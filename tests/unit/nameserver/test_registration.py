"""Registrations as Java brokers write them: read right, and fast enough that nobody waits for them."""

import gc
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.nameserver import registration
from kourou.nameserver.machine import Asked, NameServer, Reply
from kourou.nameserver.settings import Settings
from kourou.protocol import headers
from kourou.protocol.bodies import RegisterBrokerBody
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError

DATA = Path(__file__).parents[2] / "data"
HEADER = headers.RegisterBroker(
    cluster_name="C", broker_name="a", broker_id=0, broker_addr="10.0.0.1:10911", ha_server_addr="10.0.0.1:10912"
)
TOPICS = 10_000


def recorded() -> list[Any]:
    """What the real Java classes wrote, and what it means."""
    return [
        pytest.param(line["hex"], line["fields"], id=f"{version} {line['name']}")
        for version in ("5.5.0", "4.9.8")
        for line in map(json.loads, (DATA / f"java-{version}.jsonl").read_text().splitlines())
        if line["kind"] == "register_body"
    ]


@pytest.mark.parametrize(("data", "fields"), recorded())
def test_what_java_writes_is_read(data: str, fields: dict[str, Any]) -> None:
    body = bytes.fromhex(data)
    ext = HEADER.encode() | {"compressed": str(fields["compressed"]).lower()}
    ext["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
    command = Command(RequestCode.REGISTER_BROKER, version=fields["version"], ext=ext, body=body)
    said = registration.read(command, headers.RegisterBroker.decode(ext))
    expected = fields["value"]["topicConfigSerializeWrapper"]
    topics = said.topic_config_serialize_wrapper
    assert said.filter_server_list == fields["value"]["filterServerList"]
    assert topics.data_version.counter == expected["dataVersion"]["counter"]
    assert topics.data_version.state_version == expected["dataVersion"].get("stateVersion", 0)
    assert topics.topic_config_table.keys() == expected["topicConfigTable"].keys()
    for name, topic in topics.topic_config_table.items():
        wanted = expected["topicConfigTable"][name]
        assert topic.topic_name == name
        assert (topic.read_queue_nums, topic.write_queue_nums) == (wanted["readQueueNums"], wanted["writeQueueNums"])
        assert (topic.perm, topic.topic_sys_flag) == (wanted["perm"], wanted["topicSysFlag"])
    assert topics.topic_queue_mapping_info_map.keys() == expected.get("topicQueueMappingInfoMap", {}).keys()
    if expected.get("topicQueueMappingInfoMap"):
        assert topics.topic_queue_mapping_info_map["StaticTopic"].curr_id_map == {0: 2, 3: 1}


def test_a_wrong_checksum_is_refused() -> None:
    header = headers.RegisterBroker.decode(HEADER.encode() | {"bodyCrc32": "1"})
    with pytest.raises(BodyError, match="crc32 not match"):
        registration.read(Command(RequestCode.REGISTER_BROKER, body=b"{}"), header)


def java_body(counter: int, *, changed: int = -1, mapping_time: int = 0, topics: int = TOPICS) -> bytes:
    """The JSON of a broker of 5.x, with the permission of one topic changed."""
    names = [f"a-topic-with-an-ordinary-name-{i:05d}" for i in range(topics)]
    table: dict[str, dict[str, object]] = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 4 if i == changed else 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for i, name in enumerate(names)
    }
    wrapper = {
        "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1700000000000 + counter},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": mapping_time},
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def register(machine: NameServer, body: bytes, **ext: str) -> float:
    """Milliseconds of processor time that it took."""
    ext = HEADER.encode() | ext | {"bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    command = Command(RequestCode.REGISTER_BROKER, language="JAVA", ext=ext, body=body)
    start = time.thread_time()
    (effect,) = machine.step([Asked("c", command)], 0)
    took = time.thread_time() - start
    assert isinstance(effect, Reply) and effect.command.code == ResponseCode.SUCCESS, effect
    return took * 1000


def test_a_repetition_is_recognised_though_its_mapping_time_is_new() -> None:
    command = Command(RequestCode.REGISTER_BROKER, body=java_body(1, mapping_time=1, topics=3))
    ext = HEADER.encode() | {"bodyCrc32": "17"}
    first = registration.fingerprint(command, ext)
    command.body = java_body(1, mapping_time=2, topics=3)
    assert registration.fingerprint(command, ext | {"bodyCrc32": "18"}) == first
    different = [
        (java_body(2, topics=3), ext),
        (java_body(1, topics=3, changed=1), ext),
        (java_body(1, topics=4), ext),
        (java_body(1, topics=3).replace(b'"filterServerList":[]', b'"filterServerList":["f:1"]'), ext),
        (java_body(1, topics=3).replace(b'InfoMap":{}', b'InfoMap":{"t":{}}'), ext),
        (java_body(1, topics=3), ext | {"haServerAddr": "other:1"}),
        (b"", ext),
        (b"\x78\x9c\xff", ext),
        (b"{", ext),
        (b"[" * 100_000, ext),
        (b'{"topicConfigSerializeWrapper":null}', ext),
    ]
    seen = {first}
    for command.body, ext in different:
        seen.add(registration.fingerprint(command, ext))
    assert len(seen) == 1 + len(different)


def best_of(times: int, measure: Callable[[int], float]) -> float:
    """The machine may be busy with other things: its best is what the code costs."""
    return min(measure(i) for i in range(times))


def test_ten_thousand_topics_stall_nobody() -> None:
    """Routes are answered by the same loop, and may wait 50 ms at most. Compressed bodies are not the default."""
    bodies = [java_body(counter, changed=counter) for counter in range(6)]
    first = best_of(3, lambda i: register(NameServer(Settings(), {}, 0), bodies[i]))
    machine = NameServer(Settings(), {}, 0)
    changed = best_of(6, lambda i: register(machine, bodies[i]))
    same = java_body(5, changed=5, mapping_time=9)
    repeated = best_of(5, lambda _: register(machine, bytes(bytearray(same))))
    compressed = RegisterBrokerBody.decode(bodies[0]).compress()
    packed = best_of(3, lambda _: register(NameServer(Settings(), {}, 0), compressed, compressed="true"))
    print(f"ms: first {first:.1f}, changed {changed:.1f}, repeated {repeated:.1f}, compressed {packed:.1f}")
    assert first < 30
    assert changed < 30
    assert repeated < 6
    assert packed < 100


def test_topics_are_no_work_for_the_garbage_collector() -> None:
    """A full collection walks all objects that it tracks, and everything waits for it. Tables of topics are not among
    them, so their size does not matter."""
    machine = NameServer(Settings(), {}, 0)
    body = java_body(1)
    gc.collect()
    before = len(gc.get_objects())
    register(machine, body)
    for i in range(0, TOPICS, 10):
        name = f"a-topic-with-an-ordinary-name-{i:05d}"
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": name})
        machine.step([Asked("c", command)], 0)
    gc.collect()
    assert len(gc.get_objects()) - before < 500
