"""Bounds of what brokers can make a name server hold, and of what it keeps for speed."""

import json
from typing import Any

import pytest

from kourou.nameserver import machine as machine_module, routes as routes_module
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
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 2)
    assert ask(machine, registration("a", "a:1", [])).code == ResponseCode.SUCCESS
    assert ask(machine, registration("b", "b:1", [])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("c", "c:1", []))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "register broker failed: 2 brokers are registered, the limit"
    # Taking another's place is no way around it: the other may still be alive.
    assert ask(machine, registration("a", "x:1", [])).code == ResponseCode.SYSTEM_ERROR
    assert ask(machine, registration("a", "a:1", [], counter=1)).code == ResponseCode.SUCCESS
    assert len(machine.routes.live) == 2
    # Nor is changing one's name.
    assert ask(machine, registration("z", "a:1", [])).code == ResponseCode.SYSTEM_ERROR
    assert len(machine.routes.brokers) == 2
    machine.step([Gone("c")], 0)
    assert ask(machine, registration("c", "c:1", [])).code == ResponseCode.SUCCESS


def test_topics_beyond_the_limit_are_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "TOPICS_MAX", 4)
    assert ask(machine, registration("a", "a:1", ["1", "2", "3"])).code == ResponseCode.SUCCESS
    # Known topics take no room; new ones do, whoever had the old ones.
    assert ask(machine, registration("b", "b:1", ["1", "2", "3", "4"])).code == ResponseCode.SUCCESS
    refused = ask(machine, registration("a", "a:1", ["4", "5"], counter=1))
    assert refused.remark == "register broker failed: more than 4 topics, the limit"
    queues = {"queueDatas": [{"brokerName": "a", "perm": 6}]}
    add = Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, ext={"topic": "5"}, body=json.dumps(queues).encode())
    assert ask(machine, add).code == ResponseCode.SYSTEM_ERROR
    assert sorted(machine.routes.topics) == ["1", "2", "3", "4"]
    ask(machine, Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext={"topic": "4"}))
    assert ask(machine, add).code == ResponseCode.SUCCESS


def test_mappings_beyond_the_limit_are_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "TOPICS_MAX", 3)
    two = {name: {"topic": name, "bname": "a"} for name in "12"}
    assert ask(machine, registration("a", "a:1", ["1", "2"], two)).code == ResponseCode.SUCCESS
    more = {name: {"topic": name, "bname": "b"} for name in "12"}
    refused = ask(machine, registration("b", "b:1", ["1", "2"], more))
    assert refused.remark == "register broker failed: more than 3 mappings of static topics, the limit"
    assert "b" not in machine.routes.brokers


def test_kv_config_beyond_the_limit_is_refused(machine: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "KV_SIZE_MAX", 100)
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
    monkeypatch.setattr(routes_module, "ENCODED_SIZE_MAX", size * 10)
    for name in names * 2:
        for version in (400, 401):
            assert ask(machine, get_route(name, version)).code == ResponseCode.SUCCESS
            assert sum(map(len, machine.routes._encoded.values())) <= size * 10
    assert ask(machine, get_route("t1")).body is ask(machine, get_route("t1")).body  # it is kept, after all
