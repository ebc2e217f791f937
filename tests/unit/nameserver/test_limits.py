"""Bounds of what brokers can make a name server hold, and of what it keeps for speed."""

import json
from typing import Any

import pytest

from kourou.nameserver import configuration, limits, route_cache
from kourou.nameserver.events import Asked, Gone, Reply
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command


@pytest.fixture
def machine() -> NameServer:
    return NameServer(Settings(), {}, 0)


def ask(machine: NameServer, command: Command, connection: str = "c") -> Command:
    (effect,) = machine.step([Asked(connection, command)], 0)
    machine.check()
    assert isinstance(effect, Reply)
    return effect.command


def registration(
    group: str, address: str, topics: list[str], mappings: dict[str, Any] | None = None, counter: int = 0
) -> Command:
    ext = {
        "clusterName": "C",
        "brokerName": group,
        "brokerId": "0",
        "brokerAddr": address,
        "haServerAddr": "h:1",
    }
    wrapper = {
        "dataVersion": {"counter": counter},
        "topicConfigTable": {name: {"topicName": name} for name in topics},
        "topicQueueMappingInfoMap": mappings or {},
    }
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
    return Command(RequestCode.REGISTER_BROKER, ext=ext, body=body)


def get_route(topic: str, version: int = 401) -> Command:
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, ext={"topic": topic})


def test_brokers_beyond_the_limit_are_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BROKERS_MAX", 2)
    assert ask(machine, registration("a", "a:1", [])).code == ResponseCode.SUCCESS
    assert ask(machine, registration("b", "b:1", [])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("c", "c:1", []))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "register broker failed: 2 brokers are registered, the limit"
    # Taking another's place is no way around it: the other may still be alive.
    assert ask(machine, registration("a", "x:1", [])).code == ResponseCode.SYSTEM_ERROR
    assert ask(machine, registration("a", "a:1", [], counter=1)).code == ResponseCode.SUCCESS
    assert len(machine.tables.live) == 2
    # Nor is changing one's name.
    assert ask(machine, registration("z", "a:1", [])).code == ResponseCode.SYSTEM_ERROR
    assert len(machine.tables.brokers) == 2
    machine.step([Gone("c")], 0)
    assert ask(machine, registration("c", "c:1", [])).code == ResponseCode.SUCCESS


def test_topics_beyond_the_limit_are_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 4)
    assert ask(machine, registration("a", "a:1", ["1", "2", "3"])).code == ResponseCode.SUCCESS
    # Known topics take no room; new ones do, whichever broker had the old ones.
    assert ask(machine, registration("b", "b:1", ["1", "2", "3", "4"])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("a", "a:1", ["4", "5"], counter=1))
    assert refused.remark == "register broker failed: more than 4 topics, the limit"
    queues = {"queueDatas": [{"brokerName": "a", "perm": 6}]}
    add = Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext={"topic": "5"}, body=json.dumps(queues).encode())
    assert ask(machine, add).code == ResponseCode.SYSTEM_ERROR
    assert sorted(machine.tables.topics) == ["1", "2", "3", "4"]
    ask(machine, Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext={"topic": "4"}))
    assert ask(machine, add).code == ResponseCode.SUCCESS


def test_topics_of_all_brokers_together_are_limited(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLACES_MAX", 4)
    assert ask(machine, registration("a", "a:1", ["1", "2"])).code == ResponseCode.SUCCESS
    assert ask(machine, registration("b", "b:1", ["1", "2"])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("a", "a:1", ["1", "3"], counter=1))
    assert refused.remark == "register broker failed: all brokers together have more than 4 topics, the limit"
    assert ask(machine, registration("a", "a:1", ["2", "1"], counter=2)).code == ResponseCode.SUCCESS
    machine.step([Gone("c")], 0)
    assert machine.tables.places == 0
    assert ask(machine, registration("a", "a:1", ["1", "2", "3", "4"])).code == ResponseCode.SUCCESS


def test_a_broker_may_change_its_name_only_so_often(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_OF_BROKER_MAX", 2)
    assert ask(machine, registration("a", "h:1", [])).code == ResponseCode.SUCCESS
    assert ask(machine, registration("b", "h:1", [])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("c", "h:1", []))
    assert refused.remark == "register broker failed: it is registered under 2 other names, the limit"
    assert ask(machine, registration("a", "h:1", [])).code == ResponseCode.SUCCESS


def test_clusters_are_limited(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may be listed in several clusters, and stays there as long as it lives."""
    monkeypatch.setattr(limits, "BROKERS_MAX", 2)
    ask(machine, registration("a", "stays:1", []))
    codes = []
    for number in range(4):
        command = registration("a", "wanders:1", [])
        assert command.ext is not None
        command.ext |= {"clusterName": f"C{number}", "brokerId": "1"}
        codes.append(ask(machine, command, f"c{number}").code)
        machine.step([Gone(f"c{number}")], 0)
    assert codes == [*[ResponseCode.SUCCESS] * 3, ResponseCode.SYSTEM_ERROR]
    assert len(machine.tables.clusters) == 4


def test_filter_servers_are_limited(machine: NameServer) -> None:
    for servers in (["f:1"] * 65, ["f" * 256]):
        command = registration("a", "h:1", [])
        command.body = json.dumps({"filterServerList": servers}).encode()
        refused = ask(machine, command)
        assert refused.remark == "register broker failed: more than 64 filter servers, or longer than 255"


def test_a_topic_with_a_name_that_is_too_long_is_ignored(machine: NameServer) -> None:
    assert ask(machine, registration("a", "a:1", ["x" * 256, "y" * 255])).code == ResponseCode.SUCCESS
    assert list(machine.tables.topics) == ["y" * 255]


def test_the_mapped_queues_of_a_topic_are_limited(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAPPED_QUEUES_OF_TOPIC_MAX", 4)
    mapping = {"s": {"topic": "s", "bname": "a", "currIdMap": {"0": 0, "1": 1}}}
    assert ask(machine, registration("a", "a:1", ["1", "2"], mapping)).code == ResponseCode.SUCCESS
    mapping["s"]["bname"] = "b"
    refused = ask(machine, registration("b", "b:1", ["1", "2"], mapping))
    assert refused.remark == "register broker failed: a static topic maps more than 4 queues, the limit"


def test_mappings_beyond_the_limit_are_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAPPED_QUEUES_MAX", 3)
    two = {name: {"topic": name, "bname": "a"} for name in "12"}
    assert ask(machine, registration("a", "a:1", ["1", "2"], two)).code == ResponseCode.SUCCESS
    more = {name: {"topic": name, "bname": "b"} for name in "12"}
    refused = ask(machine, registration("b", "b:1", ["1", "2"], more))
    assert refused.remark == "register broker failed: static topics map more than 3 queues, the limit"
    assert "b" not in machine.tables.brokers


def test_kv_config_beyond_the_limit_is_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "KV_SIZE_MAX", 100)
    refused = ask(machine, Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "四" * 30}))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "the KV configuration would exceed 100 bytes, the limit"
    asked = Asked("c", Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "v"}))
    (effect,) = machine.step([asked], 0)
    assert not isinstance(effect, Reply)


def test_encoded_routes_are_kept_up_to_a_size(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{i}" for i in range(100)]
    ask(machine, registration("a", "a:1", names))
    size = len(ask(machine, get_route("t1")).body)
    monkeypatch.setattr(route_cache, "SIZE_MAX", size * 10)
    for name in names * 2:
        for version in (400, 401):
            assert ask(machine, get_route(name, version)).code == ResponseCode.SUCCESS
            assert machine.tables.encoded.size <= size * 10
    assert ask(machine, get_route("t1")).body is ask(machine, get_route("t1")).body  # it is kept, after all
