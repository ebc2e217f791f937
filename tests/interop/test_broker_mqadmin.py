"""mqadmin prints the same with Kourou's broker as with Apache's, and its changes have an effect.

Each command runs against both, and what it prints must be alike but for ids, times, addresses and rates; so what a test
then asserts of the one text holds for both brokers.
"""

import json
import re
from functools import partial
from pathlib import Path

import pytest
from tests.waiting import wait_for

from kourou.broker.properties import ACTED_ON, is_apaches

from .both import CLIENT, PATIENCE_S, Both, masked, rows
from .scenarios import Scene
from .servers import CLUSTER

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(both: Both, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two queues."""
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))
    assert "success" in both.run("updateTopic", "-t", name, "-c", CLUSTER, "-r", "2", "-w", "2")
    both.run("topicRoute", "-t", name, ready=lambda text: "queueDatas" in text)
    return name


@pytest.fixture
def group(both: Both, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", f"g-{request.node.name.removeprefix('test_')}")
    assert "success" in both.run("updateSubGroup", "-g", name, "-c", CLUSTER)
    return name


def send(both: Both, topic: str, *bodies: str) -> None:
    """Messages in queue 1 with the key and tag of their body; when this ends, consumers and queries find them."""
    for body in bodies:
        where = ("-t", topic, "-b", "broker-a", "-i", "1")
        assert "SEND_OK" in both.run("sendMessage", *where, "-p", body, "-k", f"key-{body}", "-c", f"tag-{body}")
    # Apache's broker answers before it enters messages in its queues, and keys in its index after that.
    last = ("-t", topic, "-k", f"key-{bodies[-1]}")
    both.run("queryMsgByKey", *last, ready=lambda text: len(rows(text)) == 1)


# Clusters and topics.


def test_cluster_list(both: Both) -> None:
    for number in (0, 1):  # a broker of Apache's that has no statistics yet answers with an exception
        wait_for("statistics", partial(_has_statistics, both, number), PATIENCE_S)
    expected, printed = (re.sub(r"\d+", "N", masked(text)) for text in both.texts("clusterList"))
    assert printed == expected
    (row,) = rows(masked(both.texts("clusterList")[1]))
    assert row[:5] == [CLUSTER, "broker-a", "0", "BROKER", "V5_5_0"]


def _has_statistics(both: Both, number: int) -> bool:
    return "NoSuchElementException" not in both.run_one(number, "clusterList")


def test_the_brokers_own_topics(both: Both) -> None:
    expected, printed = (
        {name for name in text.split() if re.match(r"rmq_|RMQ_|[A-Z_]+$|TBW102|Bench|broker-a|Interop", name)}
        for text in both.texts("topicList")
    )
    assert printed == expected
    assert {"TBW102", "broker-a", CLUSTER, "SCHEDULE_TOPIC_XXXX"} <= printed


def test_topic_is_made_changed_and_deleted(both: Both) -> None:
    name = "made-changed-deleted"
    where = ("-t", name, "-b", "BROKER")
    text = both.run("updateTopic", *where, "-r", "3", "-w", "2", "-p", "4", "-a", "+message.type=FIFO")
    assert "readQueueNums=3, writeQueueNums=2, perm=R--" in text
    both.run("updateTopic", *where, "-r", "3", "-w", "3")
    both.run("topicStatus", "-t", name, ready=lambda text: len(rows(text)) == 4)
    assert "success" in both.run("updateTopicPerm", *where, "-p", "2")
    both.run("topicRoute", "-t", name, ready=lambda text: '"perm":2' in text)
    both.run("deleteTopic", "-t", name, "-c", CLUSTER)
    both.run("topicStatus", "-t", name, ready=lambda text: "No topic route info" in text)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-t", "bad!"), "contains illegal characters"),
        (("-t", "TBW102"), "CODE: 29  DESC: The topic[TBW102] is conflict with system topic."),
        (("-t", "x" * 128), "longer than topic max length"),
        (("-t", "fine", "-a", "+nonsense=1"), "CODE: 1  DESC: unsupported key: nonsense"),
        (("-t", "fine", "-a", "-message.type"), "only add attribute is supported while creating topic"),
        (("-t", "fine", "-a", "+message.type=MIXED"), "MIXED message type is not supported."),
        (("-t", "fine", "-a", "+queue.type=Other"), "value is not in set: [SimpleCQ, BatchCQ]"),
    ],
    ids=lambda word: word[-1] if isinstance(word, tuple) else "",
)
def test_topic_is_refused(both: Both, arguments: tuple[str, ...], reason: str) -> None:
    text = both.run("updateTopic", "-b", "BROKER", *arguments)
    assert re.sub(r"\s+", " ", reason) in text


@pytest.mark.parametrize("order", [False, True], ids=["concurrent", "in-order"])
def test_static_topic_is_used(both: Both, order: bool) -> None:
    """The Java client sends to the queues by their global numbers, and consumes them."""
    name, group = f"static-{order}", f"g-static-{order}"
    both.run("updateSubGroup", "-g", group, "-c", CLUSTER)
    both.run("updateStaticTopic", "-t", name, "-qn", "3", "-b", "broker-a")
    both.run("topicRoute", "-t", name, ready=lambda text: "topicQueueMappingByBroker" in text)
    try:
        found = both.each(lambda scene: _use(scene, name, group, order))
        assert found[0] == found[1] == "0 1 2"
        text = both.run("topicStatus", "-t", name, ready=lambda text: text.count("__syslo__global__") == 3)
        assert sum(int(row[3]) for row in rows(text) if row[0] == "broker-a") == 6
    finally:
        both.run("deleteTopic", "-t", name, "-c", CLUSTER)


def _use(scene: Scene, topic: str, group: str, order: bool) -> str:
    name = scene.consume(topic, group, order=1) if order else scene.consume(topic, group)
    sent = scene.send(topic, "fixed", 6)
    got = scene.received(name, 6)
    assert sorted(one["body"] for one in got) == [f"fixed-{number}" for number in range(6)]
    scene.close(name)
    return " ".join(sorted({one["queue"] for one in sent}))


def test_topics_and_groups_from_files(both: Both, tmp_path: Path) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": "of-file-1", "perm": 4}, {"topicName": "of-file-2"}]))
    groups.write_text(json.dumps([{"groupName": "g-of-file-1", "retryMaxTimes": 3}, {"groupName": "g-of-file-2"}]))
    both.run("updateTopicList", "-b", "BROKER", "-f", str(topics))
    both.run("updateSubGroupList", "-b", "BROKER", "-f", str(groups))
    assert '"perm":4' in both.run("topicRoute", "-t", "of-file-1", ready=lambda text: "queueDatas" in text)
    assert "retryMaxTimes = 3" in both.run("getConsumerConfig", "-g", "g-of-file-1")


# Messages.


def test_messages_are_found(both: Both, topic: str) -> None:
    send(both, topic, "one", "two")
    status = both.run("topicStatus", "-t", topic)
    assert ["broker-a", "1", "0", "2", "TIME"] in rows(status)
    text = both.run("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "1", "-o", "1")
    assert "Keys: [key-two]" in text
    assert "WARN: No Consumer" in text
    unique_ids, offset_ids = _ids(both, topic)
    assert "Tags: [tag-two]" in both.each_run("queryMsgByUniqueKey", "-t", topic, "-i", "WORD", words=unique_ids)
    assert "Tags: [tag-two]" in both.each_run("queryMsgById", "-t", topic, "-i", "WORD", words=offset_ids)
    assert "query message by key finished, but no message." in both.run("queryMsgByKey", "-t", topic, "-k", "none")
    text = both.each_run(
        "queryMsgById", "-t", topic, "-i", "WORD", words=[f"{one[:16]}{2**40:016X}" for one in offset_ids]
    )
    assert "finished, but no message." in text


def _ids(both: Both, topic: str, offset: int = 1) -> tuple[list[str], list[str]]:
    """Unique ids and offset ids of the message at an offset of queue 1."""
    texts = both.texts("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "1", "-o", str(offset))
    unique = [re.findall(r"UNIQ_KEY=([0-9A-F]+)", text)[0] for text in texts]
    return unique, [re.findall(r"OffsetID:\s+([0-9A-F]+)", text)[0] for text in texts]


def test_messages_are_printed_and_consumed(both: Both, topic: str, group: str) -> None:
    send(both, topic, "one", "two", "three")
    assert both.run("printMsg", "-t", topic).count("MSGID: ID") == 3
    assert both.run("printMsg", "-t", topic, "-s", "tag-two").count("MSGID: ID") == 1
    where = ("-t", topic, "-a", "broker-a", "-i", "1")
    assert "tag-two" in both.run("printMsgByQueue", *where, "-p", "true", "-f", "true")
    text = both.run("consumeMessage", "-t", topic, "-g", group)
    assert text.count("MSGID: ID") == 3
    assert "offset=3" in text
    entries = both.run("queryCq", "-t", topic, "-q", "1", "-i", "1", "-c", "5", "-b", "BROKER", "-g", "nobody")
    assert f"nobody@{topic} is not online!" in entries
    assert entries.count("physicOffset") == 2


def test_round_trips_of_sends(both: Both, topic: str) -> None:
    for text in both.texts("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "10"):
        assert [row[2] for row in rows(text) if row[0] == "broker-a"] == ["true"] * 3


def test_queues_are_shared_out(both: Both, topic: str) -> None:
    assert "10.0.0.2" in both.run("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2")


# Groups.


def test_group_is_made_and_deleted(both: Both) -> None:
    name = "g-made-deleted"
    where = ("-g", name, "-b", "BROKER")
    text = both.run(
        "updateSubGroup", *where, "-s", "false", "-r", "7", "-o", "true", "--attributes", "+priority.factor=9"
    )
    assert "success" in text
    shown = both.run("getConsumerConfig", "-g", name)
    assert "retryMaxTimes = 7" in shown
    assert "consumeEnable = false" in shown
    assert "success" in both.run("deleteSubGroup", "-g", name, "-c", CLUSTER, "-r", "true")
    assert "CODE: 29" in both.run("updateSubGroup", "-g", "bad!", "-b", "BROKER")


def test_consumers_are_shown(both: Both, topic: str, group: str) -> None:
    names = both.each(lambda scene: _consume(scene, topic, group))
    both.run("consumerProgress", "-g", group, ready=_is_done)
    connections = both.run("consumerConnection", "-g", group)
    assert ["CLIENT", "PEER", "JAVA", "V5_5_0"] in rows(connections)
    assert [topic, "*"] in rows(connections)
    assert "Rebalance OK" in both.run("consumerStatus", "-g", group)
    clients = [re.findall(CLIENT, text)[0] for text in both.texts("consumerConnection", "-g", group)]
    for text in both.texts("consumerProgress"):
        (row,) = (row for row in rows(text) if row[0] == group)
        assert row[1:5] == ["1", "V5_5_0", "PUSH", "CLUSTERING"]
    for text, client in zip(both.texts("consumerStatus", "-g", group), clients, strict=True):
        assert client in text
    for text in both.texts("brokerConsumeStats", "-b", "BROKER"):
        assert [row[6] for row in rows(text) if row[:2] == [topic, group]] == ["0", "0"]
    for name in names:
        both.driver.ask("close", name=name)
    assert "not online" in both.run("consumerConnection", "-g", group, ready=lambda text: "not online" in text)


def _is_done(progress: str) -> bool:
    """Has a group committed all of its two queues?"""
    return "Diff Total: 0" in progress and len(rows(progress)) == 2 + 3


def _consume(scene: Scene, topic: str, group: str) -> str:
    name = scene.consume(topic, group)
    scene.send(topic, "consumed", 4)
    assert len(scene.received(name, 4)) == 4
    return name


def test_consumer_is_set_back_and_handed_a_message(both: Both, topic: str, group: str) -> None:
    names = both.each(lambda scene: _consume(scene, topic, group))
    both.run("consumerProgress", "-g", group, ready=_is_done)
    assert "broker-a 1 0" in both.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    for name in names:
        assert len(both.driver.ask("received", name=name, count=4, seconds=PATIENCE_S)) == 4
    clients = [re.findall(CLIENT, text)[0] for text in both.texts("consumerConnection", "-g", group)]
    send(both, topic, "one", "two")
    _, offset_ids = _ids(both, topic, 0)
    where = ("-t", topic, "-i", "WORD", "-g", group, "-d")
    texts = [
        masked(both.run_one(number, "queryMsgById", *where, client, word=word))
        for number, (client, word) in enumerate(zip(clients, offset_ids, strict=True))
    ]
    assert texts[0] == texts[1]
    assert "CR_SUCCESS" in texts[0]
    for name in names:
        assert len(both.driver.ask("received", name=name, count=3, seconds=PATIENCE_S)) == 3
        both.driver.ask("close", name=name)


def test_offsets_are_set_and_copied(both: Both, topic: str, group: str) -> None:
    send(both, topic, "one", "two")
    both.run("consumeMessage", "-t", topic, "-g", group)
    assert "broker-a 1 0" in both.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert "Diff Total: 2" in both.run("consumerProgress", "-g", group)
    assert "broker-a 1 2" in both.run("skipAccumulatedMessage", "-g", group, "-t", topic)
    assert "Diff Total: 0" in both.run("consumerProgress", "-g", group)
    both.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-b", "BROKER", "-q", "1", "-o", "1")
    assert "Diff Total: 1" in both.run("consumerProgress", "-g", group)
    copy = f"{group}-copy"
    both.run("updateSubGroup", "-g", copy, "-b", "BROKER")
    both.run("cloneGroupOffset", "-s", group, "-d", copy, "-t", topic)
    for text in both.texts("brokerConsumeStats", "-b", "BROKER"):
        assert [row[3:7] for row in rows(text) if row[:2] == [topic, copy]] == [["1", "2", "1", "1"]]


@pytest.mark.parametrize(
    "command",
    [
        ("consumerProgress", "-g", "nobody"),
        ("consumerConnection", "-g", "nobody"),
        ("consumerStatus", "-g", "nobody"),
        ("producerConnection", "-g", "nobody", "-t", "TBW102"),
        ("topicStatus", "-t", "nowhere"),
        ("resetOffsetByTime", "-g", "nobody", "-t", "TBW102", "-s", "now"),
        ("deleteSubGroup", "-g", "nobody", "-b", "BROKER"),
        ("queryCq", "-t", "nowhere", "-q", "0", "-i", "0", "-c", "1", "-b", "BROKER"),
    ],
    ids=lambda command: command[0],
)
def test_unknown_names(both: Both, command: tuple[str, ...]) -> None:
    assert both.run(*command)


def test_producers_are_shown(both: Both, topic: str) -> None:
    both.each(lambda scene: str(scene.send(topic, "produced", 1)))
    shown = re.compile(r"producer group \(\S+\) instance : clientId=\S+,remoteIP=/127.0.0.1:\d+, language=JAVA")
    for number in (0, 1):  # a producer may tell a broker of itself by a heartbeat half a minute later
        wait_for("the producer", partial(_prints, both, number, shown, "producer", "-b", "BROKER"), PATIENCE_S)


def _prints(both: Both, number: int, wanted: re.Pattern[str], command: str, *arguments: str) -> bool:
    return wanted.search(both.run_one(number, command, *arguments)) is not None


# The broker.


def test_status_has_the_same_keys(both: Both) -> None:
    expected, printed = (
        {re.sub(r"_HOME.*", "_HOME", line.partition(":")[0].strip()) for line in text.splitlines() if ":" in line}
        for text in both.texts("brokerStatus", "-b", "BROKER")
    )
    # A level of which nothing was delivered has no offset.
    differing = {key for key in printed ^ expected if not key.startswith("scheduleMessageOffset_")}
    assert differing == {"kourouFlushLateMillis", "kourouInternalErrors"}, "ours alone, for `kourou doctor`"
    assert {"putTps", "msgPutTotalTodayNow", "commitLogMaxOffset", "brokerVersionDesc"} <= printed


def test_counters(both: Both, topic: str, group: str) -> None:
    send(both, topic, "one", "two")
    both.run("consumeMessage", "-t", topic, "-g", group)
    both.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "-1")
    text = both.run("statsAll", "-t", topic, ready=lambda text: [row[-2:] for row in rows(text)] == [["2", "2"]])
    ((name, who, behind, *_),) = rows(text)
    assert (name, who, behind) == (topic, group, "0")


def test_settings_are_the_same(both: Both) -> None:
    expected, said = (_settings(text) for text in both.texts("getBrokerConfig", "-b", "BROKER"))
    assert said.keys() - expected.keys() == {key for key in ACTED_ON if not is_apaches(key)}
    assert expected.keys() - said.keys() == set()
    for key in (
        "brokerClusterName",
        "brokerName",
        "brokerRole",
        "flushDiskType",
        "messageDelayLevel",
        "fileReservedTime",
    ):
        assert said[key] == expected[key]


def _settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("=="))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def test_setting_is_changed(both: Both) -> None:
    try:
        text = both.run("updateBrokerConfig", "-b", "BROKER", "-k", "autoCreateTopicEnable", "-v", "false")
        assert "update broker config success, BROKER" in text
        for text in both.texts("getBrokerConfig", "-b", "BROKER"):
            assert _settings(text)["autoCreateTopicEnable"] == "false"
    finally:
        both.run("updateBrokerConfig", "-b", "BROKER", "-k", "autoCreateTopicEnable", "-v", "true")


@pytest.mark.parametrize("key", ["brokerConfigPath", "configBlackList"])
def test_guarded_setting_is_not_changed(both: Both, key: str) -> None:
    text = both.run("updateBrokerConfig", "-b", "BROKER", "-k", key, "-v", "changed")
    assert "CODE: 16 DESC: Can not update config in black list." in text


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog", "namesrvAddr", "brokerIP1", "rocketmqHome"])
def test_our_paths_and_addresses_never_change(both: Both, key: str) -> None:
    """Apache's broker lets these change; ours never lets a path or an address change from outside."""
    before = _settings(both.run_ours("getBrokerConfig", "-b", "BROKER"))
    assert "CODE: 16" in both.run_ours("updateBrokerConfig", "-b", "BROKER", "-k", key, "-v", "changed")
    assert _settings(both.run_ours("getBrokerConfig", "-b", "BROKER")) == before


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog", "haStatus"])
def test_housekeeping(both: Both, command: str) -> None:
    expected, printed = (re.sub(r"\d+", "N", masked(text)) for text in both.texts(command, "-b", "BROKER"))
    assert printed == expected


def test_exports(both: Both, tmp_path: Path) -> None:
    for command, name in (("exportMetadata", "metadata"), ("exportConfigs", "configs"), ("exportMetrics", "metrics")):
        found = []
        for text in both.texts(command, "-c", CLUSTER, "-f", str(tmp_path)):
            assert "success" in text
            found.append(json.loads((tmp_path / f"{name}.json").read_text()))
        expected, printed = found
        assert printed.keys() == expected.keys()
