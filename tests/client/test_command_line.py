"""The command line, with our broker and Apache's."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.waiting import wait_for

from .conftest import World

TIMEOUT_S = 120.0


def kourou(world: World, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "NAMESRV_ADDR": world.namesrv, "COLUMNS": "200"}
    command = [sys.executable, "-m", "kourou", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def rows(world: World, *words: str) -> list[dict[str, Any]]:
    done = kourou(world, *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def cluster(world: World) -> str:
    return str(rows(world, "admin", "clusterList")[0]["clusterName"])


def make_topic(world: World, cluster: str, name: str, *words: str) -> None:
    """Known to the name server when this ends."""
    rows(world, "admin", "updateTopic", "-t", name, "-c", cluster, *words)
    wait_for("the route", lambda: kourou(world, "admin", "topicRoute", "-t", name).returncode == 0, 60)


def test_messages_are_consumed_found_and_counted(world: World, cluster: str, name: str) -> None:
    make_topic(world, cluster, name, "-r", "4", "-w", "4", "-u", "true")
    (sent,) = rows(
        world, "admin", "sendMessage", "-t", name, "-p", "x", "-b", "broker-a", "-i", "1", "-k", "42", "-c", "a"
    )
    assert sent["qid"] == 1
    (message,) = rows(world, "consume", name, "-g", name, "--from", "first", "--limit", "1", "--idle", "60s")
    assert (message["tags"], message["keys"], message["body"], message["queueId"]) == ("a", ["42"], "x", 1)
    wait_for(
        "the index of the broker",
        lambda: kourou(world, "admin", "queryMsgByKey", "-t", name, "-k", "42").returncode == 0,
        60,
    )
    (found,) = rows(world, "admin", "queryMsgByKey", "-t", name, "-k", "42", "-c", cluster)
    assert found == message
    *queues, summary = rows(world, "admin", "consumerProgress", "-g", name, "-t", name, "-s", "true", "-c", cluster)
    assert {queue["qid"]: queue["consumerOffset"] for queue in queues}[1] == 1
    assert summary["consumeDiffTotal"] == 0
    one = ("-b", world.broker, "-q", "1", "-o", "0")
    (reset,) = rows(world, "admin", "resetOffsetByTime", "-g", name, "-t", name, "-s", "0", *one)
    assert (reset["qid"], reset["offset"]) == (1, 0)
    entries = rows(world, "admin", "queryCq", "-t", name, "-q", "1", "-i", "0")
    assert entries[0]["size"] > 0
    assert kourou(world, "admin", "queryCq", "-t", name, "-q", "0", "-i", "5").returncode == 1


def test_the_trace_of_a_message(world: World, cluster: str, name: str) -> None:
    make_topic(world, cluster, name)
    (sent,) = rows(world, "admin", "sendMessage", "-t", name, "-p", "x", "-m", "true")
    command = ("admin", "queryMsgTraceById", "-i", sent["msgId"])
    wait_for("the trace", lambda: kourou(world, *command).returncode == 0, 60)
    (trace,) = rows(world, *command)
    assert (trace["type"], trace["group"], trace["status"]) == ("Pub", "KOUROU_ADMIN", "success")
    missing = kourou(world, "admin", "queryMsgTraceById", "-i", "0" * 32)
    assert missing.returncode == 1 and "no trace of" in missing.stderr


def test_permissions_and_groups_change_in_a_cluster(world: World, cluster: str, name: str) -> None:
    make_topic(world, cluster, name)
    for perm, shown in (("4", "R"), ("6", "RW")):
        rows(world, "admin", "updateTopicPerm", "-t", name, "-p", perm, "-c", cluster)
        wait_for(
            "the route",
            lambda shown=shown: rows(world, "admin", "topicRoute", "-t", name)[0]["perm"] == shown,  # type: ignore[misc]
            60,
        )
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
    more = ("-o", "true", "-p", policy, "-i", "0", "-w", "1", "-a", "true", "-r", "3")
    rows(world, "admin", "updateSubGroup", "-g", name, "-c", cluster, *more)
    (config,) = rows(world, "admin", "getConsumerConfig", "-g", name)
    assert config["retryMax"] == 3
    (status,) = rows(world, "admin", "brokerStatus", "-c", cluster)
    assert isinstance(status["bootTimestamp"], int)
    (settings,) = rows(world, "admin", "getBrokerConfig", "-c", cluster)
    assert isinstance(settings["listenPort"], int)
    assert isinstance(settings["autoCreateTopicEnable"], bool)


@pytest.mark.parametrize(
    "words",
    [
        ("consumerProgress", "-g", "nosuch"),
        ("consumerConnection", "-g", "nosuch"),
        ("getConsumerConfig", "-g", "nosuch"),
        ("topicStatus", "-t", "nosuch"),
        ("wipeWritePerm", "-b", "nosuch"),
    ],
)
def test_what_is_not_there_is_an_error(world: World, words: tuple[str, ...]) -> None:
    done = kourou(world, "admin", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("kourou: ")
    assert done.stdout == ""


def test_delay_levels_are_those_of_the_broker(world: World, cluster: str, name: str) -> None:
    make_topic(world, cluster, name)
    assert kourou(world, "send", name, "x", "--delay-level", "18").returncode == 0
    done = kourou(world, "send", name, "x", "--delay-level", "99")
    assert done.returncode == 1
    assert "has levels 1 to 18" in done.stderr


def test_a_broker_is_measured(world: World) -> None:
    pid = () if world.kind == "apache" else ("--pid", str(os.getpid()))  # ours runs in this process
    (found,) = rows(world, "bench", "--time", "2s", "--warmup", "1s", "--rate", "200", *pid)
    assert found["sent"] > 100
    assert found["failed"] == 0
    assert 0 < found["sendP50Ms"] <= found["sendP99Ms"] <= found["sendMaxMs"]
    assert found["endToEndP50Ms"] > 0
    assert found["brokerCpuUsPerMessage"] > 0
    wait_for(
        "the topics of the measurement to go", lambda: "KOUROU_BENCH" not in str(rows(world, "admin", "topicList"))
    )
