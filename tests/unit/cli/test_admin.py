"""`kourou admin` and `kourou doctor`, against a broker in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.embedded import EmbeddedThread

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


def test_doctor_says_what_to_change(tmp_path: Path) -> None:
    result = runner.invoke(app, ["doctor", "-n", "127.0.0.1:1;nonsense", "--store", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stdout
    assert "nonsense is no address" in result.stdout
    assert "→ give the broker's storePathRootDir" in result.stdout
