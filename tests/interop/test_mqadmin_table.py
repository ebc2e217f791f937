"""Every command of mqadmin 5.5.0, as docs/mqadmin.md lists them, against our broker and Apache's.

What a command prints of both must be the same, but for ids, times, addresses and rates. Commands for which that is not
enough have tests of their own in test_broker_mqadmin.py.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.mqadmin_page import PAGE, RUN, read_page
from tests.waiting import GaveUpError, wait_for

from .both import CLIENT, Both, masked, rows
from .mqadmin import MqAdmin
from .scenarios import Scene
from .servers import CLUSTER
from .test_controller import COMMANDS as CONTROLLER_COMMANDS
from .test_mqadmin_access import COMMANDS as ACCESS_COMMANDS
from .wire import Connection

pytestmark = pytest.mark.interop

TOPIC, GROUP, STATIC, ORDERED = "of-the-table", "g-of-the-table", "of-the-table-static", "of-the-table-ordered"
KEY = "key-of-the-table"
ON_TOPIC = ("-t", TOPIC)
ON_BROKER = ("-b", "BROKER")
ON_CLUSTER = ("-c", CLUSTER)
UPDATE_CONSUMER_OFFSET = 15
SEND = ("-t", TOPIC, "-b", "broker-a", "-i", "1", "-p", "body", "-k", KEY, "-c", "tag")


@dataclass(frozen=True)
class Case:
    """One call of a command."""

    arguments: tuple[str, ...]
    numbers: bool = True
    """Are numbers compared?"""
    lines: str = ""
    """Only lines that this pattern matches are compared, in the order of the alphabet."""
    answers: str = ""
    """Text that the output must contain."""
    once: bool = False
    """Are equal lines compared once? How many clients of other commands are still connected is a matter of time."""


def case(*arguments: str, numbers: bool = True, lines: str = "", answers: str = "", once: bool = False) -> Case:
    return Case(arguments, numbers, lines, answers, once)


CASES = [
    # Topics
    case("updateTopic", *ON_TOPIC, *ON_CLUSTER, "-r", "2", "-w", "2", answers="success"),
    case("updateTopicList", *ON_BROKER, "-f", "TOPICS", answers="success"),
    case("deleteTopic", "-t", "of-the-list", *ON_CLUSTER, answers="success"),
    case("updateTopicPerm", *ON_TOPIC, *ON_BROKER, "-p", "6"),
    case("topicRoute", *ON_TOPIC, answers="queueDatas"),
    case("topicStatus", *ON_TOPIC, answers="broker-a"),
    case("topicClusterList", *ON_TOPIC, answers=CLUSTER),
    case("topicList", lines="^of-the-table$", answers=TOPIC),
    case("allocateMQ", *ON_TOPIC, "-i", "10.0.0.1,10.0.0.2", answers="10.0.0.2"),
    case("updateOrderConf", "-t", ORDERED, "-m", "put", "-v", "broker-a:2", answers="success"),
    case("updateOrderConf", "-t", ORDERED, "-m", "get", answers="broker-a:2"),
    # Groups
    case("updateSubGroup", "-g", GROUP, *ON_CLUSTER, answers="success"),
    case("updateSubGroupList", *ON_BROKER, "-f", "GROUPS", answers="success"),
    case("deleteSubGroup", "-g", "g-of-the-list", *ON_CLUSTER, answers="success"),
    case("getConsumerConfig", "-g", GROUP, answers="retryMaxTimes = 16"),
    case("setConsumeMode", *ON_BROKER, *ON_TOPIC, "-g", GROUP, "-m", "POP", "-q", "2", answers="success"),
    case("setConsumeMode", *ON_CLUSTER, *ON_TOPIC, "-g", GROUP, "-m", "PULL", answers="success"),
    case("consumerProgress", "-g", GROUP, answers="Diff Total: 0"),
    case("consumerConnection", "-g", GROUP, answers="CLUSTERING"),
    case("consumerStatus", "-g", GROUP, answers="Rebalance OK"),
    case("consumerStatus", "-g", GROUP, "-i", "CLIENT", lines="^#Consumer", answers="#Consumer Offset#"),
    case("consumerStatus", "-g", GROUP, "-i", "CLIENT", "-s", lines=r"^#Consumer (jstack|Pop Detail)"),
    case("brokerConsumeStats", *ON_BROKER, lines=rf"^{TOPIC}\b"),
    case("cloneGroupOffset", "-s", GROUP, "-d", f"{GROUP}-copy", *ON_TOPIC),
    case("resetOffsetByTime", "-g", GROUP, *ON_TOPIC, "-s", "now", answers="broker-a"),
    case("resetOffsetByTime", "-g", "g-offline", *ON_TOPIC, "-s", "-1", answers="broker-a"),
    case("resetOffsetByTime", "-g", GROUP, *ON_TOPIC, "-s", "0", *ON_BROKER, "-q", "1", "-o", "1"),
    case("skipAccumulatedMessage", "-g", GROUP, *ON_TOPIC, answers="broker-a"),
    # Messages
    case("sendMessage", *SEND, answers="SEND_OK"),
    case("queryMsgById", *ON_TOPIC, "-i", "OFFSET_ID", answers=KEY),
    case("queryMsgById", *ON_TOPIC, "-i", "OFFSET_ID", "-g", GROUP, "-d", "CLIENT", answers="CR_SUCCESS"),
    case("queryMsgByKey", *ON_TOPIC, "-k", KEY, lines=r"\S"),  # in any order
    case("queryMsgByKey", *ON_TOPIC, "-k", "tag", "-p", "T", lines=r"\S"),
    case("queryMsgByUniqueKey", *ON_TOPIC, "-i", "UNIQUE_ID", answers=KEY),
    case("queryMsgByOffset", *ON_TOPIC, "-b", "broker-a", "-i", "1", "-o", "0", answers=KEY),
    case("queryMsgTraceById", "-i", "UNIQUE_ID", "-t", TOPIC),
    case("printMsg", *ON_TOPIC, "-s", "none"),
    case("printMsgByQueue", *ON_TOPIC, "-a", "broker-a", "-i", "0", "-p", "true", "-f", "true"),
    case("consumeMessage", *ON_TOPIC, "-g", "g-reads", "-b", "broker-a", "-i", "1", "-o", "0", "-c", "1", answers="ok"),
    case("queryCq", *ON_TOPIC, "-q", "1", "-i", "0", "-c", "1", *ON_BROKER, numbers=False, answers="physicOffset"),
    case("checkMsgSendRT", "-t", "of-the-list-2", "-a", "3", "-s", "10", numbers=False, answers="broker-a"),
    case("sendMsgStatus", "-b", "broker-a", "-c", "2", numbers=False, answers="SEND_OK"),
    case("clusterRT", "-a", "3", "-s", "10", *ON_CLUSTER, "-i", "60", numbers=False, answers="broker-a"),
    # Brokers and clusters
    case("clusterList", numbers=False, answers="broker-a"),
    case("brokerStatus", *ON_BROKER, lines="^(brokerVersion|brokerActive|msgGetTotalYesterday|EndTransaction)"),
    case("getBrokerConfig", *ON_BROKER, lines="^(brokerName|brokerRole|flushDiskType|fileReservedTime) "),
    case("updateBrokerConfig", *ON_BROKER, "-k", "autoCreateTopicEnable", "-v", "true", answers="success"),
    case("producerConnection", "-g", "CLIENT_INNER_PRODUCER", *ON_TOPIC, numbers=False, once=True, answers="JAVA"),
    case("producer", *ON_BROKER, lines="CLIENT_INNER_PRODUCER", once=True, answers="JAVA"),
    case("statsAll", *ON_TOPIC, numbers=False, answers=TOPIC),
    case("cleanExpiredCQ", *ON_CLUSTER, answers="success"),
    case("cleanUnusedTopic", *ON_CLUSTER, answers="success"),
    case("deleteExpiredCommitLog", *ON_CLUSTER, answers="success"),
    case("wipeWritePerm", "-b", "broker-b", answers="OK"),
    case("addWritePerm", "-b", "broker-b", answers="OK"),
    case("updateKvConfig", "-s", "NAMESPACE", "-k", "k", "-v", "v", answers="success"),
    case("deleteKvConfig", "-s", "NAMESPACE", "-k", "k", answers="success"),
    case("getNamesrvConfig", lines="^(clusterTest|orderMessageEnable|scanNotActiveBrokerInterval) "),
    case("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false", answers="success"),
    case("exportConfigs", *ON_CLUSTER, "-f", "FOLDER", answers="success"),
    case("exportMetadata", *ON_CLUSTER, "-f", "FOLDER", answers="success"),
    case("exportMetadata", *ON_BROKER, "-t", "-f", "FOLDER", answers="success"),
    case("exportMetadata", *ON_BROKER, "-g", "-f", "FOLDER", answers="success"),
    case("exportMetrics", *ON_CLUSTER, "-f", "FOLDER", answers="success"),
    case("exportPopRecord", *ON_BROKER, answers="brokerName=broker-a"),
    case("getColdDataFlowCtrInfo", *ON_BROKER),
    case("updateColdDataFlowCtrGroupConfig", *ON_BROKER, "-g", GROUP, "-v", "1000", answers="success"),
    case("getColdDataFlowCtrInfo", *ON_CLUSTER, answers="1000"),
    case("removeColdDataFlowCtrGroupConfig", *ON_BROKER, "-g", GROUP, answers="success"),
    case("setCommitLogReadAheadMode", *ON_BROKER, "-m", "1", answers="success"),
    case("setCommitLogReadAheadMode", *ON_BROKER, "-m", "0", answers="success"),
    case("switchTimerEngine", *ON_BROKER, "-e", "F"),
    case("rocksDBConfigToJson", *ON_CLUSTER),
    case("checkRocksdbCqWriteProgress", *ON_CLUSTER),
    # Replicas
    case("haStatus", *ON_BROKER, numbers=False, answers="#MasterAddr"),
    case("getBrokerEpoch", "-b", "broker-a"),
    case("resetMasterFlushOffset", *ON_BROKER, "-o", "1"),
    # Light topics
    case("getBrokerLiteInfo", *ON_BROKER, numbers=False),
    case("getParentTopicInfo", "-p", TOPIC),
    case("getLiteTopicInfo", "-p", TOPIC, "-l", "light"),
    case("getLiteClientInfo", "-p", TOPIC, "-g", GROUP, "-c", "nobody"),
    case("getLiteGroupInfo", "-p", TOPIC, "-g", GROUP),
    case("triggerLiteDispatch", "-p", TOPIC, "-g", GROUP),
    # Static topics. While there is one, Apache's broker lists its topics with JSON that mqadmin does not read.
    case("updateStaticTopic", "-t", STATIC, "-qn", "4", "-b", "broker-a", answers="new mapping data"),
    case("remappingStaticTopic", "-t", STATIC, "-b", "broker-a", answers="mapping data"),
    case("updateStaticTopic", "-t", STATIC, "-qn", "6", "-b", "broker-a", answers="new mapping data"),
    case("updateStaticTopic", "-t", STATIC, "-qn", "6", "-b", "broker-a", answers="do nothing"),
    case("updateStaticTopic", "-t", TOPIC, "-qn", "6", "-b", "broker-a", answers="Mapping info should not be null"),
    case("topicRoute", "-t", STATIC, answers="topicQueueMappingByBroker"),
    case("topicStatus", "-t", STATIC, answers="__syslo__global__"),
    case("deleteTopic", "-t", STATIC, *ON_CLUSTER, answers="success"),
    # Its threads go on in the process of mqadmin.
    case("startMonitoring"),
]


READS = (
    "topic",
    "get",
    "consumerProgress",
    "consumerConnection",
    "brokerConsumeStats",
    "query",
    "print",
    "clusterList",
)
"""Commands that change nothing: they may be repeated until both brokers have done what they answered to another one."""

LATER_S = 30


@pytest.fixture(scope="module")
def table(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both brokers with a topic, two messages in it, and a consumer that has received them."""
    folder = tmp_path_factory.mktemp("table")
    topics, groups = folder / "topics.json", folder / "groups.json"
    topics.write_text(json.dumps([{"topicName": "of-the-list"}, {"topicName": "of-the-list-2"}]))
    groups.write_text(json.dumps([{"groupName": "g-of-the-list"}]))
    both.run("updateTopic", *ON_TOPIC, *ON_CLUSTER, "-r", "2", "-w", "2")
    both.run("topicRoute", *ON_TOPIC, ready=lambda text: "queueDatas" in text)
    for group in (GROUP, "g-offline"):
        both.run("updateSubGroup", "-g", group, *ON_CLUSTER)
    both.run("sendMessage", *SEND)
    both.run("sendMessage", *SEND)
    both.wait("queryMsgByKey", *ON_TOPIC, "-k", KEY, ready=lambda text: len(rows(text)) == 2)
    both.each(_commit_offline)
    names = both.each(lambda scene: _consume(scene))
    both.run("consumerProgress", "-g", GROUP, ready=lambda text: "Diff Total: 0" in text and TOPIC in text)
    for number, words in enumerate(both.words):
        text = both.run_one(number, "queryMsgByOffset", *ON_TOPIC, "-b", "broker-a", "-i", "1", "-o", "0")
        words["UNIQUE_ID"] = re.findall(r"UNIQ_KEY=([0-9A-F]+)", text)[0]
        words["OFFSET_ID"] = re.findall(r"OffsetID:\s+([0-9A-F]+)", text)[0]
        words["CLIENT"] = re.findall(CLIENT, both.run_one(number, "consumerConnection", "-g", GROUP))[0]
        words |= {"TOPICS": str(topics), "GROUPS": str(groups), "FOLDER": str(folder)}
    yield both
    for name in names:
        both.driver.ask("close", name=name)
    for words in both.words:
        words.clear()


def _commit_offline(scene: Scene) -> str:
    """Offsets of a group that has never been online. A consumer that has just left may still be listed."""
    with Connection(scene.broker.address) as connection:
        for queue_id in (0, 1):
            fields = {"consumerGroup": "g-offline", "topic": TOPIC, "queueId": queue_id, "commitOffset": 0}
            assert connection.ask(UPDATE_CONSUMER_OFFSET, fields).code == 0
    return ""


def _consume(scene: Scene) -> str:
    name = scene.consume(TOPIC, GROUP)
    assert len(scene.received(name, 2)) == 2
    return name


@pytest.mark.parametrize("wanted", CASES, ids=lambda one: "-".join(one.arguments)[:60])
def test_command_prints_the_same(table: Both, wanted: Case) -> None:
    expected, printed = _both(table, wanted)
    if printed != expected and wanted.arguments[0].startswith(READS):
        with contextlib.suppress(GaveUpError):
            wait_for("what both brokers did after their answers", lambda: len({*_both(table, wanted)}) == 1, LATER_S)
        expected, printed = _both(table, wanted)
    assert printed == expected
    assert wanted.answers in printed
    assert "CODE: 3" not in printed, "the request is not known here"


def _both(table: Both, wanted: Case) -> list[str]:
    return [_comparable(text, wanted) for text in table.texts(*wanted.arguments)]


def _comparable(text: str, wanted: Case) -> str:
    text = masked(text)
    if not wanted.numbers:
        text = re.sub(r"\d+", "N", text)
    if wanted.lines:
        text = "\n".join(sorted(line for line in text.splitlines() if re.search(wanted.lines, line)))
    if wanted.once:
        text = "\n".join(dict.fromkeys(text.splitlines()))
    return text


def test_the_page_has_every_command(mqadmin: MqAdmin, table: Both) -> None:
    listed = {line.split()[0] for line in mqadmin.help().splitlines() if re.match(r" {3}\w", line)}
    assert len(listed) == 96
    assert {row.command for row in read_page()} == listed, f"{PAGE} has other commands than mqadmin"


def test_every_command_that_can_run_is_run() -> None:
    run = {one.arguments[0] for one in CASES} | ACCESS_COMMANDS | CONTROLLER_COMMANDS
    assert run == {row.command for row in read_page() if row.state in RUN}
