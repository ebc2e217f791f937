"""mqadmin prints the same with Kourou's name server as with Apache's, and its changes have an effect.

Each command runs in both worlds, and what it prints must be alike but for addresses and the like; so what a test then
asserts of the one text holds in both worlds.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from tests.waiting import wait_for

from .servers import CLUSTER
from .worlds import World

pytestmark = pytest.mark.interop

# Settings of a name server that depend on its machine, and not on its behaviour.
OF_THE_MACHINE = {"listenPort", "bindAddress", "kvConfigPath", "configStorePath", "rocketmqHome"}


@dataclass
class Both:
    reference: World
    candidate: World

    def run(self, command: str, *arguments: str) -> str:
        """What both print. BROKER among the arguments stands for the broker's address, in the text too."""
        expected, printed = (_run_plain(world, command, *arguments) for world in (self.reference, self.candidate))
        assert printed == expected
        return expected

    def route(self, topic: str) -> dict[str, Any]:
        """The topic's route, once both name servers know the topic."""
        for world in (self.reference, self.candidate):
            _wait_for_route(world, topic)
        text = self.run("topicRoute", "-t", topic)
        route: dict[str, Any] = json.loads(re.sub(r"(?m)^(\s*)(\d+):", r'\1"\2":', text))
        return route

    def queues(self, topic: str) -> dict[str, Any]:
        """The topic's queues on the only broker, from the route."""
        (queues,) = self.route(topic)["queueDatas"]
        assert isinstance(queues, dict)
        return queues


@pytest.fixture(scope="session")
def both(reference: World, candidate: World) -> Both:
    wait_for("first statistics", lambda: _has_statistics(reference) and _has_statistics(candidate), 60)
    return Both(reference, candidate)


def _has_statistics(world: World) -> bool:
    """A broker that has none yet answers with an exception."""
    return "NoSuchElementException" not in _run_plain(world, "clusterList")


@pytest.fixture
def topic(both: Both, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with four queues."""
    name = request.node.name.removeprefix("test_")
    text = both.run("updateTopic", "-t", name, "-c", CLUSTER, "-r", "4", "-w", "4")
    assert "create topic to BROKER success." in text
    both.route(name)
    return str(name)


def _wait_for_route(world: World, topic: str) -> None:
    wait_for(f"the route of {topic}", lambda: "queueDatas" in world.run("topicRoute", "-t", topic))


def _run_plain(world: World, command: str, *arguments: str) -> str:
    text = world.run(command, *(argument.replace("BROKER", world.broker.address) for argument in arguments))
    text = text.replace(world.broker.address, "BROKER").replace(world.name_server.address, "NAMESRV")
    text = text.replace(str(world.homes), "HOMES")
    if command == "clusterList":
        text = re.sub(r"(?m)BROKER.*$", _without_figures, text)
    if command == "topicList":
        text = "".join(sorted(text.splitlines(keepends=True)))
    return text


def _without_figures(row: re.Match[str]) -> str:
    """The broker's load, times and disk space are its own."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", row[0]))


# Clusters and topic lists.


def test_cluster_list(both: Both) -> None:
    text = both.run("clusterList")
    (row,) = (line.split() for line in text.splitlines() if CLUSTER in line)
    assert row[:4] == [CLUSTER, "broker-a", "0", "BROKER"]


def test_cluster_list_with_message_counts(both: Both) -> None:
    text = both.run("clusterList", "-m")
    assert "broker-a" in text.splitlines()[1].split()


def test_topic_list(both: Both, topic: str) -> None:
    topics = set(both.run("topicList").split())
    assert {"TBW102", "broker-a", CLUSTER, "SELF_TEST_TOPIC", topic} <= topics


def test_topic_list_with_clusters(both: Both, topic: str) -> None:
    rows = [line.split() for line in both.run("topicList", "-c").splitlines()]
    assert [CLUSTER, topic] in rows
    assert [CLUSTER, "TBW102"] in rows


def test_topic_cluster_list(both: Both, topic: str) -> None:
    assert both.run("topicClusterList", "-t", topic).split() == [CLUSTER]


# The life of a topic.


def test_topic_route(both: Both, topic: str) -> None:
    route = both.route(topic)
    (broker,) = route["brokerDatas"]
    assert broker["brokerName"] == "broker-a"
    assert broker["cluster"] == CLUSTER
    assert broker["brokerAddrs"] == {"0": "BROKER"}
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)


def test_topic_route_as_a_list(both: Both, topic: str) -> None:
    text = both.run("topicRoute", "-t", topic, "-l")
    (row,) = (line.split() for line in text.splitlines() if line.startswith(CLUSTER))
    assert row == [CLUSTER, "broker-a", "{0=BROKER}", "4", "4", "6"]


def test_changed_topic_shows_in_its_route(both: Both, topic: str) -> None:
    both.run("updateTopic", "-t", topic, "-b", "BROKER", "-r", "3", "-w", "2", "-p", "4")
    wanted = {"readQueueNums": 3, "writeQueueNums": 2, "perm": 4}
    wait_for("the change", lambda: wanted.items() <= both.queues(topic).items())


def test_deleted_topic_is_gone(both: Both, topic: str) -> None:
    text = both.run("deleteTopic", "-t", topic, "-c", CLUSTER)
    assert text.splitlines() == [
        f"delete topic [{topic}] from cluster [{CLUSTER}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    assert f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}" in both.run(
        "topicRoute", "-t", topic
    )
    assert topic not in both.run("topicList").split()


def test_deleting_an_unknown_topic_succeeds(both: Both) -> None:
    assert "from NameServer success" in both.run("deleteTopic", "-t", "never-made", "-c", CLUSTER)


# Key-value and order settings.


def test_order_conf_is_put_got_and_deleted(both: Both) -> None:
    assert "update orderConf success" in both.run("updateOrderConf", "-t", "ordered", "-m", "put", "-v", "broker-a:4")
    assert "orderConf=[broker-a:4]" in both.run("updateOrderConf", "-t", "ordered", "-m", "get")
    both.run("updateOrderConf", "-t", "ordered", "-m", "put", "-v", "broker-b:8")
    # Putting replaces what stood for a broker and keeps the others: the conf is a list by broker.
    assert "broker-b:8" in both.run("updateOrderConf", "-t", "ordered", "-m", "get")
    assert "delete orderConf success" in both.run("updateOrderConf", "-t", "ordered", "-m", "delete")
    text = both.run("updateOrderConf", "-t", "ordered", "-m", "get")
    assert "CODE: 22  DESC: No config item, Namespace: ORDER_TOPIC_CONFIG Key: ordered" in text


def test_kv_config_is_updated_and_deleted(both: Both) -> None:
    where = ("-s", "ORDER_TOPIC_CONFIG", "-k", "kept")
    assert "success" in both.run("updateKvConfig", *where, "-v", "broker-a:1;备注")
    assert "orderConf=[broker-a:1;备注]" in both.run("updateOrderConf", "-t", "kept", "-m", "get")
    assert "success" in both.run("deleteKvConfig", *where)
    assert "CODE: 22" in both.run("updateOrderConf", "-t", "kept", "-m", "get")


def test_unknown_key_and_namespace_may_be_deleted(both: Both) -> None:
    assert "success" in both.run("deleteKvConfig", "-s", "NO_SUCH_NAMESPACE", "-k", "k")
    assert "success" in both.run("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "never-put")


def test_ordered_topic_gets_its_order_conf(both: Both) -> None:
    text = both.run("updateTopic", "-t", "in-order", "-b", "BROKER", "-o", "true", "-r", "2", "-w", "2")
    assert "set broker orderConf. isOrder=true, orderConf=[broker-a:2]" in text
    assert "orderConf=[broker-a:2]" in both.run("updateOrderConf", "-t", "in-order", "-m", "get")
    assert "orderTopicConf" not in both.route("in-order")
    try:
        both.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
        assert both.route("in-order")["orderTopicConf"] == "broker-a:2"
    finally:
        both.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert "orderTopicConf" not in both.route("in-order")


# Write permission of a broker.


def test_write_perm_is_wiped_and_added(both: Both, topic: str) -> None:
    topics = len(both.run("topicList").split())
    try:
        wiped = both.run("wipeWritePerm", "-b", "broker-a")
        assert wiped.strip() == f"wipe write perm of broker[broker-a] in name server[NAMESRV] OK, {topics}"
        assert both.queues(topic)["perm"] == 4
        both.run("updateTopic", "-t", "made-while-wiped", "-c", CLUSTER, "-r", "1", "-w", "1")
        assert both.queues("made-while-wiped")["perm"] == 6  # told of after the wipe
        assert both.queues(topic)["perm"] == 4
    finally:
        added = both.run("addWritePerm", "-b", "broker-a")
    assert added.strip() == f"add write perm of broker[broker-a] in name server[NAMESRV] OK, {topics + 1}"
    assert both.queues(topic)["perm"] == 6


# Settings of the name server.


def test_settings_are_the_same(both: Both) -> None:
    expected, said = (_settings(world) for world in (both.reference, both.candidate))
    assert said.keys() == expected.keys()
    for key in OF_THE_MACHINE:
        expected.pop(key), said.pop(key)
    assert said == expected
    assert expected["scanNotActiveBrokerInterval"] == "5000"


def test_setting_is_changed(both: Both) -> None:
    try:
        text = both.run("updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "7000")
        assert text.splitlines() == [
            "update name server config success![NAMESRV]",
            "scanNotActiveBrokerInterval : 7000",
        ]
        assert [_settings(world)["scanNotActiveBrokerInterval"] for world in (both.reference, both.candidate)] == [
            "7000",
            "7000",
        ]
    finally:
        both.run("updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "5000")


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList"])
def test_guarded_setting_is_not_changed(both: Both, key: str) -> None:
    before = [_settings(world)[key] for world in (both.reference, both.candidate)]
    assert "CODE: 16  DESC: Can not update config in black list." in both.run(
        "updateNamesrvConfig", "-k", key, "-v", "changed"
    )
    assert [_settings(world)[key] for world in (both.reference, both.candidate)] == before


def test_our_home_is_not_changed_either(candidate: World) -> None:
    """Apache's lets this path change; ours never lets a path change from outside."""
    before = _settings(candidate)["rocketmqHome"]
    candidate.run("updateNamesrvConfig", "-k", "rocketmqHome", "-v", "changed")
    assert _settings(candidate)["rocketmqHome"] == before


def test_wrong_value_changes_nothing(both: Both) -> None:
    for world in (both.reference, both.candidate):
        world.run("updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "soon")
        assert _settings(world)["scanNotActiveBrokerInterval"] == "5000"


def _settings(world: World) -> dict[str, str]:
    title, *lines = world.run("getNamesrvConfig").strip().splitlines()
    assert title.strip("=") == world.name_server.address
    pairs = (line.partition("=") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


# Mistakes.


@pytest.mark.parametrize("command", ["topicRoute", "topicClusterList"])
def test_unknown_topic(both: Both, command: str) -> None:
    text = both.run(command, "-t", "nowhere")
    assert "CODE: 17  DESC: No topic route info in name server for the topic: nowhere" in text


@pytest.mark.parametrize("command", ["wipeWritePerm", "addWritePerm"])
def test_unknown_broker(both: Both, command: str) -> None:
    assert both.run(command, "-b", "nobody").strip().endswith("of broker[nobody] in name server[NAMESRV] OK, 0")


@pytest.mark.parametrize("command", ["updateTopic", "deleteTopic"])
def test_unknown_cluster(both: Both, command: str) -> None:
    text = both.run(command, "-t", "nowhere", "-c", "NoCluster")
    assert "[error] Make sure the specified clusterName exists" in text
