"""`kourou admin` and `kourou doctor`, against a broker in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.embedded import EmbeddedThread
from kourou.store.store import Store

runner = CliRunner()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        sent = invoke(running, "send", "orders", "hello", "-k", "42", "-t", "paid", "--json")
        assert sent.exit_code == 0, sent.output
        yield running


def invoke(broker: EmbeddedThread, *words: str) -> Result:
    return runner.invoke(app, list(words), env={"NAMESRV_ADDR": broker.namesrv})


def admin(broker: EmbeddedThread, *words: str) -> list[dict[str, object]]:
    result = invoke(broker, "admin", *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_topics_are_listed_routed_and_measured(broker: EmbeddedThread) -> None:
    assert {"topic": "orders"} in admin(broker, "topicList")
    (route,) = admin(broker, "topicRoute", "-t", "orders")
    assert route["brokerName"] == "broker-a"
    assert route["perm"] == "RW"
    assert sum(int(str(row["maxOffset"])) for row in admin(broker, "topicStatus", "-t", "orders")) == 1


def test_a_topic_is_made_changed_and_deleted(broker: EmbeddedThread) -> None:
    admin(broker, "updateTopic", "-c", "DefaultCluster", "-t", "made", "-r", "3", "-w", "2")
    (route,) = admin(broker, "topicRoute", "-t", "made")
    assert (route["readQueues"], route["writeQueues"]) == (3, 2)
    admin(broker, "updateTopicPerm", "-t", "made", "-p", "4")
    admin(broker, "deleteTopic", "-t", "made", "-c", "DefaultCluster")
    assert {"topic": "made"} not in admin(broker, "topicList")


def test_groups_have_settings(broker: EmbeddedThread) -> None:
    admin(broker, "updateSubGroup", "-b", broker.address, "-g", "billing", "-r", "3", "-s", "true")
    (config,) = admin(broker, "getConsumerConfig", "-g", "billing")
    assert config["retryMax"] == 3
    admin(broker, "updateSubGroup", "-b", broker.address, "-g", "billing", "-q", "2")
    (config,) = admin(broker, "getConsumerConfig", "-g", "billing")
    assert (config["retryMax"], config["retryQueues"]) == (3, 2)
    admin(broker, "deleteSubGroup", "-b", broker.address, "-g", "billing")


def test_messages_are_found(broker: EmbeddedThread) -> None:
    (row,) = admin(broker, "queryMsgByKey", "-t", "orders", "-k", "42")
    assert admin(broker, "queryMsgByKey", "-t", "orders", "-k", "paid", "-p", "T") == [row]
    (facts,) = admin(broker, "queryMsgByUniqueKey", "-t", "orders", "-i", str(row["msgId"]))
    assert facts == row
    assert (facts["body"], facts["tags"], facts["keys"]) == ("hello", "paid", ["42"])
    (again,) = admin(broker, "queryMsgById", "-i", str(facts["offsetMsgId"]))
    assert again["keys"] == ["42"]
    place = ("-b", "broker-a", "-i", str(facts["queueId"]), "-o", str(facts["queueOffset"]))
    (same,) = admin(broker, "queryMsgByOffset", "-t", "orders", *place)
    assert same == facts
    assert len(admin(broker, "printMsg", "-t", "orders")) == 1


def test_brokers_are_shown_and_changed(broker: EmbeddedThread) -> None:
    (row,) = admin(broker, "clusterList")
    assert row["addr"] == broker.address
    (runtime,) = admin(broker, "brokerStatus", "-b", broker.address)
    assert runtime["brokerVersionDesc"]
    admin(broker, "updateBrokerConfig", "-b", broker.address, "-k", "longPollingEnable", "-v", "false")
    (config,) = admin(broker, "getBrokerConfig", "-b", broker.address)
    assert config["longPollingEnable"] is False
    assert config["fileReservedTime"] == 72
    assert config["brokerName"] == "broker-a"
    refused = invoke(broker, "admin", "updateBrokerConfig", "-b", broker.address, "-k", "storePathRootDir", "-v", "/x")
    assert refused.exit_code == 1
    assert "storePathRootDir can't change" in refused.stderr


def test_permissions_change_in_a_cluster_or_on_a_broker(broker: EmbeddedThread) -> None:
    admin(broker, "updateTopic", "-c", "DefaultCluster", "-t", "perm", "-u", "true", "-s", "true")
    for where in (("-c", "DefaultCluster"), ("-b", broker.address)):
        for perm, shown in ((4, "R"), (6, "RW")):
            admin(broker, "updateTopicPerm", "-t", "perm", "-p", str(perm), *where)
            (route,) = admin(broker, "topicRoute", "-t", "perm", "-l")
            assert route["perm"] == shown
    nowhere = invoke(broker, "admin", "updateTopicPerm", "-t", "perm", "-p", "6", "-b", "127.0.0.1:1")
    assert nowhere.exit_code == 1


def test_a_cluster_stands_for_its_brokers(broker: EmbeddedThread) -> None:
    (status,) = admin(broker, "brokerStatus", "-c", "DefaultCluster")
    assert (status["brokerName"], status["brokerAddr"]) == ("broker-a", broker.address)
    (config,) = admin(broker, "getBrokerConfig", "-c", "DefaultCluster")
    assert config["brokerAddr"] == broker.address
    admin(broker, "updateBrokerConfig", "-c", "DefaultCluster", "-a", "true", "-k", "longPollingEnable", "-v", "true")
    assert len(admin(broker, "topicStatus", "-t", "orders", "-c", "DefaultCluster")) > 0
    listed = admin(broker, "topicList", "-c")
    assert {"clusterName": "DefaultCluster", "topic": "orders", "consumerGroup": ""} in listed
    (totals,) = admin(broker, "clusterList", "-m")
    assert int(str(totals["inTotalToday"])) > 0


def test_messages_are_sent_to_a_queue_and_sent_again(broker: EmbeddedThread) -> None:
    admin(broker, "updateTopic", "-c", "DefaultCluster", "-t", "placed")
    (sent,) = admin(broker, "sendMessage", "-t", "placed", "-p", "b\u00f6dy", "-b", "broker-a", "-i", "2", "-k", "k")
    assert (sent["brokerName"], sent["qid"]) == ("broker-a", 2)
    message, again = admin(broker, "queryMsgById", "-t", "placed", "-i", str(sent["msgId"]), "-s", "true")
    assert (message["body"], message["queueId"], message["keys"]) == ("b\u00f6dy", 2, ["k"])
    assert str(again["done"]).startswith("sent again as ")
    latin = admin(broker, "queryMsgById", "-t", "placed", "-i", str(sent["msgId"]), "-f", "latin-1")
    assert latin[0]["body"] == "b\u00c3\u00b6dy"
    without = admin(broker, "printMsg", "-t", "placed", "-d", "false")
    assert len(without) == 2
    entries = admin(broker, "queryCq", "-t", "placed", "-q", "2", "-i", "0")
    assert int(str(entries[0]["size"])) > 0
    assert entries[-1] == {"minOffset": 0, "maxOffset": int(str(entries[-1]["maxOffset"]))}


def test_one_queue_of_a_group_is_reset(broker: EmbeddedThread) -> None:
    for _ in range(8):
        invoke(broker, "send", "resetting", "x")
    consumed = invoke(broker, "consume", "resetting", "-g", "resetter", "--from", "first", "--limit", "8")
    assert consumed.exit_code == 0
    one = ("-g", "resetter", "-t", "resetting", "-s", "0", "-b", broker.address, "-q", "1", "-o", "0")
    (queue,) = admin(broker, "resetOffsetByTime", *one)
    assert (queue["qid"], queue["offset"]) == (1, 0)
    *queues, summary = admin(broker, "consumerProgress", "-g", "resetter", "-t", "resetting", "-s", "true")
    behind = {row["qid"]: row["diff"] for row in queues}
    assert set(behind.values()) == {0, behind[1]}
    assert summary["consumeDiffTotal"] == behind[1]
    skipped = admin(broker, "skipAccumulatedMessage", "-g", "resetter", "-t", "resetting", "-f", "true")
    assert {row["qid"] for row in skipped} == {0, 1, 2, 3}


def test_numbers_are_numbers(broker: EmbeddedThread) -> None:
    (status,) = admin(broker, "brokerStatus", "-b", broker.address)
    assert isinstance(status["bootTimestamp"], int)
    assert isinstance(status["brokerVersionDesc"], str)
    for name in ("putTps", "getFoundTps", "getTotalTps"):
        assert all(isinstance(rate, float | None) for rate in status[name]), name  # type: ignore[attr-defined]
    (cluster,) = admin(broker, "clusterList")
    for name in ("bid", "inTPS", "outTPS"):
        assert isinstance(cluster[name], int | float | None), name  # a broker that has just started has no rates
        assert round(float(str(cluster[name] or 0)), 2) == (cluster[name] or 0)
    rates = admin(broker, "statsAll", "-t", "orders", "-a")
    assert all(isinstance(row["inTPS"], float) for row in rates)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("consumerProgress", "-g", "nosuch"), "no broker has offsets of group 'nosuch'"),
        (("consumerConnection", "-g", "nosuch"), "nosuch"),
        (("getConsumerConfig", "-g", "nosuch"), "no broker has settings for group 'nosuch'"),
        (("resetOffsetByTime", "-g", "nosuch", "-t", "orders", "-s", "now"), "Group nosuch does not exist"),
        (("skipAccumulatedMessage", "-g", "nosuch", "-t", "orders"), "Group nosuch does not exist"),
        (("producerConnection", "-g", "nosuch", "-t", "orders"), "nosuch"),
        (("queryMsgByKey", "-t", "orders", "-k", "nosuch"), "no message with key nosuch"),
        (("queryMsgByKey", "-t", "orders", "-k", "42", "-p", "T"), "no message with tag 42"),
        (("queryMsgByUniqueKey", "-t", "orders", "-i", "nosuch"), "no message with unique id nosuch"),
        (("topicList", "--clusterName", "nosuch"), "cluster 'nosuch' does not exist"),
        (("clusterList", "-c", "nosuch"), "cluster 'nosuch' does not exist"),
        (("brokerStatus", "-c", "nosuch"), "cluster 'nosuch' does not exist"),
        (("updateTopic", "-t", "x", "-c", "nosuch"), "cluster 'nosuch' does not exist"),
        (("deleteTopic", "-t", "x", "-c", "nosuch"), "cluster 'nosuch' does not exist"),
        (("updateBrokerConfig", "-c", "nosuch", "-k", "a", "-v", "b"), "cluster 'nosuch' does not exist"),
        (("wipeWritePerm", "-b", "nosuch"), "no topic was changed"),
        (("sendMessage", "-t", "orders", "-p", "x", "-b", "nosuch"), "no broker 'nosuch' serves topic 'orders'"),
        (("topicStatus", "-t", "nosuch"), "no route to topic 'nosuch'"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_what_is_not_there_is_an_error(
    broker: EmbeddedThread, words: tuple[str, ...], told: str, form: tuple[str, ...]
) -> None:
    result = invoke(broker, "admin", *words, *form)
    assert result.exit_code == 1
    assert told in result.stderr
    assert result.stdout == ""


def test_tables_are_for_people(broker: EmbeddedThread) -> None:
    shown = invoke(broker, "admin", "topicRoute", "-t", "orders").stdout
    assert "#Broker Name" in shown
    assert "broker-a" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topicRoute", "-t", "nowhere"), "no route to topic 'nowhere'"),
        (("queryMsgByOffset", "-t", "orders", "-b", "broker-a", "-i", "0", "-o", "99"), "no message with offset 99"),
        (("updateTopic", "-t", "x"), "either a broker (-b) or a cluster (-c)"),
        (("updateSubGroup", "-b", "x:1", "-g", "g", "-s", "yes"), "-s yes: true or false"),
        (("resetOffsetByTime", "-g", "g", "-t", "orders", "-s", "soon"), "soon: now, -1, milliseconds"),
    ],
)
def test_errors_are_one_line(broker: EmbeddedThread, words: tuple[str, ...], told: str) -> None:
    result = invoke(broker, "admin", *words)
    assert result.exit_code != 0
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_doctor_finds_a_healthy_broker_healthy(broker: EmbeddedThread) -> None:
    result = invoke(broker, "doctor", "--store", str(broker.store), "--json")
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    assert not [one for one in findings if one["state"] == "error"], findings
    assert result.exit_code == 0
    assert any(one["check"].startswith("broker broker-a") for one in findings)


def test_doctor_shows_a_broker_whose_flush_is_late(broker: EmbeddedThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "flush_late_ms", lambda _self, _now_ms: 42_000)
    result = invoke(broker, "doctor", "--json")
    (late,) = [one for one in map(json.loads, result.stdout.splitlines()) if "42 s late" in one["text"]]
    assert late["state"] == "error"
    assert "disk" in late["remedy"]
    assert result.exit_code == 1


def test_doctor_says_what_to_change(tmp_path: Path) -> None:
    result = runner.invoke(app, ["doctor", "-n", "127.0.0.1:1;nonsense", "--store", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stdout
    assert "nonsense is not an address" in result.stdout
    assert "→ give the broker's storePathRootDir" in result.stdout
