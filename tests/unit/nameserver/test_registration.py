"""Registrations as Java brokers write them: read correctly, and fast enough that no request waits for them."""

import gc
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.nameserver import registration
from kourou.nameserver.events import Asked, Effect, Reply, Tick, Turn
from kourou.nameserver.machine import NameServer
from kourou.nameserver.registration import Reading, Said
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


def read(command: Command, header: headers.RegisterBroker, before: Said | None = None, merge: bool = True) -> Reading:
    """All turns at once."""
    reader = registration.read(command, header, before, merge=merge)
    while True:
        try:
            next(reader)
        except StopIteration as end:
            reading: Reading = end.value
            return reading


@pytest.mark.parametrize(("data", "fields"), recorded())
def test_what_java_writes_is_read(data: str, fields: dict[str, Any]) -> None:
    body = bytes.fromhex(data)
    ext = HEADER.encode() | {"compressed": str(fields["compressed"]).lower()}
    ext["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
    command = Command(RequestCode.REGISTER_BROKER, version=fields["version"], ext=ext, body=body)
    said = read(command, headers.RegisterBroker.decode(ext))
    expected = fields["value"]["topicConfigSerializeWrapper"]
    topics = said.shell.topic_config_serialize_wrapper
    assert said.shell.filter_server_list == fields["value"]["filterServerList"]
    assert topics.data_version.counter == expected["dataVersion"]["counter"]
    assert topics.data_version.state_version == expected["dataVersion"].get("stateVersion", 0)
    assert said.topics.keys() == expected["topicConfigTable"].keys()
    for name, topic in said.topics.items():
        wanted = expected["topicConfigTable"][name]
        assert topic.topic_name == name
        assert (topic.read_queue_nums, topic.write_queue_nums) == (wanted["readQueueNums"], wanted["writeQueueNums"])
        assert (topic.perm, topic.topic_sys_flag) == (wanted["perm"], wanted["topicSysFlag"])
    assert said.mappings.keys() == expected.get("topicQueueMappingInfoMap", {}).keys()
    if expected.get("topicQueueMappingInfoMap"):
        assert said.mappings["StaticTopic"].curr_id_map == {0: 2, 3: 1}


def test_a_wrong_checksum_is_refused() -> None:
    header = headers.RegisterBroker.decode(HEADER.encode() | {"bodyCrc32": "1"})
    with pytest.raises(BodyError, match="crc32 not match"):
        read(Command(RequestCode.REGISTER_BROKER, body=b"{}"), header)


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


def request(body: bytes, **ext: str) -> Command:
    fields = HEADER.encode() | ext | {"bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    return Command(RequestCode.REGISTER_BROKER, language="JAVA", ext=fields, body=body)


def a_machine() -> NameServer:
    return NameServer(Settings(), {}, 0, clock_ns=time.thread_time_ns)


def register(machine: NameServer, body: bytes, **ext: str) -> list[float]:
    """Milliseconds of processor time that each turn took."""
    took: list[float] = []
    effects: list[Effect] = []
    events: list[Asked | Turn] = [Asked("c", request(body, **ext))]
    while events:
        start = time.thread_time()
        effects += machine.step([*events], 0)
        took.append((time.thread_time() - start) * 1000)
        events = [Turn()] if machine.is_busy else []
    (effect,) = effects
    assert isinstance(effect, Reply) and effect.command.code == ResponseCode.SUCCESS, effect
    return took


def test_a_repetition_is_recognised_though_its_mapping_time_is_new() -> None:
    body = java_body(1, mapping_time=1, topics=3)
    first = read(request(body), HEADER)
    assert not first.is_repeated and not first.is_partial
    again = read(request(java_body(1, mapping_time=2, topics=3)), HEADER, first.said)
    assert again.is_repeated and again.said is first.said
    different = [
        (java_body(2, topics=3), {}),
        (java_body(1, topics=3, changed=1), {}),
        (java_body(1, topics=4), {}),
        (java_body(1, topics=2), {}),
        (body.replace(b'"filterServerList":[]', b'"filterServerList":["f:1"]'), {}),
        (body.replace(b'InfoMap":{}', b'InfoMap":{"t":{}}'), {}),
        (body, {"haServerAddr": "other:1"}),
        (b"", {}),
        (body.replace(b'{"filter', b'{ "filter'), {"brokerName": "b"}),
        (b'{"topicConfigSerializeWrapper":{}}', {}),
    ]
    for other, ext in different:
        assert not read(request(other, **ext), HEADER, first.said).is_repeated, other


def test_a_small_one_is_read_as_a_whole_and_recognised() -> None:
    body = java_body(1, topics=3)
    assert len(body) <= registration.SMALL
    first = read(request(body), HEADER)
    assert len(first.topics) == 3
    again = read(request(java_body(1, topics=3, mapping_time=99)), HEADER, first.said)
    assert again.is_repeated
    assert again.said is first.said
    for other in (java_body(2, topics=3), java_body(1, topics=3, changed=1), java_body(1, topics=2)):
        assert not read(request(other), HEADER, first.said).is_repeated
    assert not read(request(body, zone="x"), HEADER, first.said).is_repeated
    grown = read(request(java_body(2, topics=500)), HEADER, first.said)
    assert (len(grown.topics), grown.is_partial) == (500, False)
    assert len(read(request(body), HEADER, grown.said).topics) == 3


def test_what_does_not_come_apart_is_recognised_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "SMALL", 0)
    odd = (
        java_body(1, topics=3)
        .replace(b'{"filter', b' {"filter')
        .replace(b'"topicConfigTable":{', b'"topicConfigTable": {')
    )
    first = read(request(odd), HEADER)
    assert first.topics.keys() == read(request(java_body(1, topics=3)), HEADER).topics.keys()
    assert read(request(odd), HEADER, first.said).is_repeated
    assert not read(request(odd + b" "), HEADER, first.said).is_repeated
    packed = RegisterBrokerBody.decode(java_body(1, topics=3)).compress()
    header = headers.RegisterBroker.decode(HEADER.encode() | {"compressed": "true"})
    unpacked = read(request(packed, compressed="true"), header)
    assert unpacked.topics.keys() == first.topics.keys()
    assert read(request(packed, compressed="true"), header, unpacked.said).is_repeated


@pytest.mark.parametrize(("broker_id", "remedy"), [("1", "a different brokerId"), ("0", "brokerRole=SLAVE")])
def test_two_brokers_with_the_same_id_are_reported_with_both_addresses(
    broker_id: str, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They replace each other with every registration; the report is made once."""
    machine, body = a_machine(), java_body(0, topics=2)
    for address in ("10.0.0.1:10911", "10.0.0.2:10911") * 3:
        register(machine, body, brokerId=broker_id, brokerAddr=address)
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"same id name=a id={broker_id} address=10.0.0.2:10911 before=10.0.0.1:10911" in error
    assert remedy in error
    leaving = headers.UnregisterBroker(
        broker_name="a", broker_addr="10.0.0.2:10911", cluster_name="C", broker_id=int(broker_id)
    )
    command = Command(RequestCode.UNREGISTER_BROKER, ext=leaving.encode())
    machine.step([Asked("another connection", command, "10.0.0.2:1")], 0)
    while machine.is_busy:
        machine.step([Turn()], 0)
    machine.step([Tick()], 60_000)
    caplog.clear()
    register(machine, body, brokerId=broker_id, brokerAddr="10.0.0.1:10911")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    register(machine, body, brokerId=broker_id, brokerAddr="10.0.0.2:10911")
    assert "same id name=a" in caplog.text


def best_of(times: int, measure: Callable[[int], list[float]]) -> tuple[float, float]:
    """The sum of all turns and the longest of them. The machine may be busy with other things: its best counts."""
    taken = [measure(i) for i in range(times)]
    return min(map(sum, taken)), min(map(max, taken))


def test_ten_thousand_topics_stall_no_request() -> None:
    """Routes are answered by the same loop, and may wait 50 ms at most."""
    bodies = [java_body(counter, changed=counter) for counter in range(6)]
    first = best_of(3, lambda i: register(a_machine(), bodies[i]))
    machine = a_machine()
    register(machine, bodies[0])
    changed = best_of(5, lambda i: register(machine, bodies[1 + i]))
    same = java_body(5, changed=5, mapping_time=9)
    repeated = best_of(5, lambda _: register(machine, bytes(bytearray(same))))
    compressed = RegisterBrokerBody.decode(bodies[0]).compress()
    packed = best_of(
        3,
        lambda _: register(a_machine(), compressed, compressed="true"),
    )
    for name, figures in (("first", first), ("changed", changed), ("repeated", repeated), ("compressed", packed)):
        print(f"{name}: {figures[0]:.1f} ms, longest turn {figures[1]:.1f} ms")
    assert first[1] < 20 and packed[1] < 20
    assert changed[0] < 5
    assert repeated[0] < 3


def test_the_garbage_collector_does_not_track_topics() -> None:
    """A full collection walks all objects that it tracks, and everything waits for it.

    Tables of topics are not among them, so their size does not matter.
    """
    machine = a_machine()
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
