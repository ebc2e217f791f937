"""Commands of `kourou admin` about groups in files, static topics, probes, exports and parts of Apache's store."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.client.naming import is_system_group
from kourou.embedded import EmbeddedThread

runner = CliRunner()

CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        for tag in ("paid", "paid", "open"):
            sent = invoke(running, "send", "orders", "hello", "-t", tag)
            assert sent.exit_code == 0, sent.output
        yield running


def invoke(broker: EmbeddedThread, *words: str) -> Result:
    return runner.invoke(app, list(words), env={"NAMESRV_ADDR": broker.namesrv})


def admin(broker: EmbeddedThread, *words: str) -> list[dict[str, object]]:
    result = invoke(broker, "admin", *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(broker: EmbeddedThread, *words: str) -> str:
    result = invoke(broker, "admin", *words)
    assert result.exit_code != 0
    return result.output


# ── Topics and groups ───────────────────────────────────────────────────────────────────────────────────────────────


def test_topics_and_groups_of_files(broker: EmbeddedThread, tmp_path: Path) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": "one", "readQueueNums": 3}, {"topicName": "two"}]))
    groups.write_text(json.dumps([{"groupName": "first", "retryMaxTimes": 3}]))
    admin(broker, "updateTopicList", "-b", broker.address, "-f", str(topics))
    admin(broker, "updateSubGroupList", *CLUSTER, "-f", str(groups))
    (route,) = admin(broker, "topicRoute", "-t", "one")
    assert route["readQueues"] == 3
    (config,) = admin(broker, "getConsumerConfig", "-g", "first")
    assert config["retryMax"] == 3


@pytest.mark.parametrize("command", ["updateTopicList", "updateSubGroupList"])
def test_files_that_make_no_sense(broker: EmbeddedThread, tmp_path: Path, command: str) -> None:
    assert "can't be read" in refused(broker, command, *CLUSTER, "-f", str(tmp_path / "none"))
    (tmp_path / "wrong").write_text('{"no": "list"}')
    assert "a JSON list is expected" in refused(broker, command, *CLUSTER, "-f", str(tmp_path / "wrong"))


def test_attributes_of_a_group(broker: EmbeddedThread) -> None:
    where = ("updateSubGroup", "-b", broker.address, "-g", "with-attributes")
    admin(broker, *where, "--attributes", "+priority.factor=9")
    admin(broker, *where, "-r", "4")  # attributes stay
    admin(broker, *where, "--attributes", "-priority.factor")
    assert "nonexistent key" in refused(broker, *where, "--attributes", "-priority.factor")


def test_request_modes(broker: EmbeddedThread) -> None:
    where = ("setConsumeMode", *CLUSTER, "-t", "orders", "-g", "popping", "-m")
    assert "POP" in str(admin(broker, *where, "pop", "-q", "2"))
    assert "PULL or POP is expected" in refused(broker, *where, "push")


def test_queues_are_shared_out(broker: EmbeddedThread) -> None:
    rows = admin(broker, "allocateMQ", "-t", "orders", "-i", "10.0.0.2,10.0.0.1")
    assert {row["member"] for row in rows} == {"10.0.0.1", "10.0.0.2"}


def test_members_of_a_group_that_is_not_online(broker: EmbeddedThread) -> None:
    assert "not online" in refused(broker, "consumerStatus", "-g", "nobody")


def test_static_topics(broker: EmbeddedThread) -> None:
    where = ("-t", "fixed", "-b", "broker-a")
    rows = admin(broker, "updateStaticTopic", *where, "-qn", "3")
    assert [(row["qid"], row["brokerName"]) for row in rows] == [
        (0, "broker-a"),
        (1, "broker-a"),
        (2, "broker-a"),
    ]
    assert len(admin(broker, "updateStaticTopic", *where, "-qn", "5")) == 5
    assert len(admin(broker, "remappingStaticTopic", "-t", "fixed", *CLUSTER)) == 5
    assert "more than that are expected" in refused(broker, "updateStaticTopic", *where, "-qn", "5")
    assert "not a static topic" in refused(broker, "updateStaticTopic", "-t", "orders", "-b", "broker-a", "-qn", "9")
    assert "not a static topic" in refused(broker, "remappingStaticTopic", "-t", "orders", "-b", "broker-a")
    assert "does not exist" in refused(broker, "updateStaticTopic", "-t", "new", "-c", "nowhere", "-qn", "1")
    assert "no master" in refused(broker, "updateStaticTopic", "-t", "new", "-b", "broker-z", "-qn", "1")
    assert "use mqadmin" in refused(broker, "remappingStaticTopic", *where, "-mf", "file")


# ── Messages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def queue_with_messages(broker: EmbeddedThread) -> int:
    rows = admin(broker, "topicStatus", "-t", "orders")
    return next(int(str(row["qid"])) for row in rows if row["maxOffset"])


def test_messages_of_a_queue(broker: EmbeddedThread) -> None:
    queue = str(queue_with_messages(broker))
    where = ("-t", "orders", "-a", "broker-a", "-i", queue)
    (counted,) = admin(broker, "printMsgByQueue", *where)
    assert "messages" in str(counted["done"])
    printed = admin(broker, "printMsgByQueue", *where, "-p", "true", "-d", "true")
    assert {row["body"] for row in printed} == {"hello"}
    tags = admin(broker, "printMsgByQueue", *where, "-f", "true")
    assert {row["tag"] for row in tags} <= {"paid", "open"}
    consumed = admin(broker, "consumeMessage", "-t", "orders", "-b", "broker-a", "-i", queue, "-o", "0", "-c", "1")
    assert len(consumed) == 1
    assert len(admin(broker, "consumeMessage", "-t", "orders")) == 3
    assert "together" in refused(broker, "consumeMessage", "-t", "orders", "-i", queue)


def test_probes(broker: EmbeddedThread) -> None:
    admin(broker, "updateTopic", *CLUSTER, "-t", "one-probed")
    *rows, average = admin(broker, "checkMsgSendRT", "-t", "one-probed", "-a", "3", "-s", "10")
    assert [row["sendResult"] for row in rows] == [True] * 3
    assert set(average) == {"avgRT"}
    sent = admin(broker, "sendMsgStatus", "-b", "broker-a", "-c", "2")
    assert [row["status"] for row in sent] == ["OK"] * 2


# ── Brokers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_exports(broker: EmbeddedThread, tmp_path: Path) -> None:
    for words, name, keys in (
        (("exportMetadata", *CLUSTER), "metadata", {"exportTime", "topicConfigTable", "subscriptionGroupTable"}),
        (("exportMetadata", "-b", broker.address, "-t"), "topic", {"exportTime", "topicConfigTable"}),
        (("exportMetadata", *CLUSTER, "-g"), "subscriptionGroup", {"exportTime", "subscriptionGroupTable"}),
        (("exportConfigs", *CLUSTER), "configs", {"brokerConfigs", "clusterScale"}),
        (("exportMetrics", *CLUSTER), "metrics", {"evaluateReport", "totalData"}),
    ):
        admin(broker, *words, "-f", str(tmp_path))
        assert json.loads((tmp_path / f"{name}.json").read_text()).keys() == keys
    topics = json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]
    assert "orders" in topics
    assert "TBW102" not in topics


def test_groups_that_mqadmin_leaves_out_are_not_exported(broker: EmbeddedThread, tmp_path: Path) -> None:
    for group in ("a-users", "CLIENT_INNER_PRODUCER", "CID_RMQ_SYS_ours"):
        admin(broker, "updateSubGroup", *CLUSTER, "-g", group)
    admin(broker, "exportMetadata", *CLUSTER, "-g", "-f", str(tmp_path))
    groups = json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert "a-users" in groups
    assert not [name for name in groups if is_system_group(name)]


def test_parts_of_apaches_store(broker: EmbeddedThread) -> None:
    where = ("-b", broker.address)
    admin(broker, "updateColdDataFlowCtrGroupConfig", *where, "-g", "cold", "-v", "1000")
    row, *_ = admin(broker, "getColdDataFlowCtrInfo", *where)
    assert (row["group"], row["limit"]) == ("cold", 1000)
    admin(broker, "removeColdDataFlowCtrGroupConfig", *CLUSTER, "-g", "cold")
    assert len(admin(broker, "getColdDataFlowCtrInfo", *where)) == 1
    admin(broker, "setCommitLogReadAheadMode", *where, "-m", "1")
    admin(broker, "switchTimerEngine", *where, "-e", "F")
    assert "timerRocksDBEnable" in refused(broker, "switchTimerEngine", *where, "-e", "R")
    admin(broker, "rocksDBConfigToJson", *where, "-t", "topics;consumerOffsets")
    assert "-t others" in refused(broker, "rocksDBConfigToJson", *where, "-t", "others")
    assert "use mqadmin" in refused(broker, "rocksDBConfigToJson", "-p", "/folder")
    (row,) = admin(broker, "checkRocksdbCqWriteProgress", *CLUSTER)
    assert row["status"] == 2
    (row,) = admin(broker, "exportPopRecord", *where)
    assert row["dryRun"] is False
    assert "use mqadmin" in refused(broker, "exportMetadataInRocksDB", "-p", "/folder", "-t", "topics")
    assert "use mqadmin" in refused(broker, "dumpCompactionLog", "-f", "/file")


def test_replicas(broker: EmbeddedThread) -> None:
    *_, summary = admin(broker, "haStatus", "-b", broker.address)
    assert summary["slaveNum"] == 0
    admin(broker, "resetMasterFlushOffset", "-b", broker.address, "-o", "1")
    assert "controllerMode" in refused(broker, "getBrokerEpoch", "-b", "broker-a")
    assert "there is no broker" in refused(broker, "getBrokerEpoch", "-b", "broker-z")
    admin(broker, "promote", "-b", broker.address)  # it is the master already
    assert "no slave follows this broker" in refused(broker, "demote", "-b", broker.address)
    assert "give a broker" in refused(broker, "promote")


@pytest.mark.parametrize(
    "words",
    [
        ("getSyncStateSet", "-a", "BROKER", "-b", "broker-a"),
        ("getControllerMetaData", "-a", "BROKER"),
        ("getControllerConfig", "-a", "BROKER"),
        ("updateControllerConfig", "-a", "BROKER", "-k", "k", "-v", "v"),
        ("electMaster", "-a", "BROKER", "-b", "1", "-bn", "broker-a", *CLUSTER),
        ("cleanBrokerMetadata", "-a", "BROKER", "-bn", "broker-a", "-b", "1;2", "-l"),
        ("addBroker", "-c", "BROKER", "-b", "/path"),
        ("removeBroker", "-c", "BROKER", "-b", "DefaultCluster:broker-a:0"),
    ],
    ids=lambda words: words[0],
)
def test_parts_that_our_broker_does_not_have(broker: EmbeddedThread, words: tuple[str, ...]) -> None:
    """The request gets there, and the refusal says why."""
    text = refused(broker, *(broker.address if word == "BROKER" else word for word in words))
    assert "not supported" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "words",
    [
        ("createUser", "-b", "BROKER", "-u", "u", "-p", "p"),
        ("updateUser", "-b", "BROKER", "-u", "u", "-s", "disable"),
        ("deleteUser", "-b", "BROKER", "-u", "u"),
        ("getUser", "-b", "BROKER", "-u", "u"),
        ("listUser", "-b", "BROKER"),
        ("copyUser", "-f", "BROKER", "-t", "BROKER"),
        ("createAcl", "-b", "BROKER", "-s", "User:u", "-r", "Topic:t", "-a", "Pub", "-d", "Allow"),
        ("updateAcl", "-b", "BROKER", "-s", "User:u", "-r", "Topic:t", "-a", "Pub", "-d", "Allow"),
        ("deleteAcl", "-b", "BROKER", "-s", "User:u"),
        ("getAcl", "-b", "BROKER", "-s", "User:u"),
        ("listAcl", "-b", "BROKER"),
        ("copyAcl", "-f", "BROKER", "-t", "BROKER"),
    ],
    ids=lambda words: words[0],
)
def test_users_where_access_control_is_off(broker: EmbeddedThread, words: tuple[str, ...]) -> None:
    text = refused(broker, *(broker.address if word == "BROKER" else word for word in words))
    assert "set authenticationEnabled=true" in text
    assert "Traceback" not in text


def test_light_topics(broker: EmbeddedThread) -> None:
    (row,) = admin(broker, "getBrokerLiteInfo", "-b", broker.address, "-d")
    assert row["CurrentLmqNum"] == 0
    for words in (
        ("getParentTopicInfo",),
        ("getLiteTopicInfo", "-l", "x"),
        ("getLiteClientInfo", "-g", "g", "-c", "x"),
    ):
        assert "type not match" in refused(broker, words[0], "-p", "orders", *words[1:])
    for command in ("getLiteGroupInfo", "triggerLiteDispatch"):
        assert "not a LITE group" in refused(broker, command, "-p", "orders", "-g", "g")
