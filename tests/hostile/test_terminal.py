"""Nothing but printable text reaches the terminal, whatever brokers answer: every command, as text and as JSON."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from tests.hostile.hostile_servers import ESCAPES, HostileServers, hostile_servers
from typer.testing import CliRunner, Result

from kourou.cli.admin import app as admin_app
from kourou.cli.lazy_commands import LazyGroup
from kourou.cli.main import app
from kourou.client import connect
from kourou.embedded import EmbeddedThread
from kourou.protocol.hosts import encode_host
from kourou.protocol.ids import decode_offset_id, encode_offset_id
from kourou.protocol.traces import encode_trace

CLUSTER = "DefaultCluster"
BODY = f"body{ESCAPES}"
TRACED = "C0000202000000000000000000000001"  # the id of a message whose trace is stored


@pytest.fixture(scope="module")
def real() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        yield running


@pytest.fixture(scope="module")
def servers(real: EmbeddedThread) -> Iterator[HostileServers]:
    with hostile_servers(real.namesrv, real.address) as hostile, _client(real.namesrv):
        yield hostile


@contextmanager
def _client(namesrv: str) -> Iterator[None]:
    """A producer and a consumer that are connected all the time."""
    ready: Future[None] = Future()
    stop = threading.Event()

    def live() -> None:
        try:
            asyncio.run(_produce_and_consume(namesrv, ready, stop))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        ready.result(60)
        yield
    finally:
        stop.set()
        thread.join(60)


async def _produce_and_consume(namesrv: str, ready: "Future[None]", stop: threading.Event) -> None:
    """Messages with escapes in all that their producer may choose, and a group that consumed one."""
    async with connect(namesrv) as mq:
        for _ in range(4):
            await mq.send(
                "orders", BODY.encode(), tag=f"tag{ESCAPES}", keys=["42", f"key{ESCAPES}"], properties={"p": ESCAPES}
            )
        trace = encode_trace(
            "Pub", 1, "region", f"group{ESCAPES}", "orders", TRACED, "tag", "key", "host", 1, 1, 0, "offset", "true"
        )
        await mq.send("orders", trace.encode(), keys=[TRACED])
        consumer = mq.consume("orders", group="billing", start="first")
        message = await consumer.next(30)
        assert message is not None
        async with message.process():
            pass
        await consumer.commit()
        await mq.session.heartbeat()
        ready.set_result(None)
        await asyncio.to_thread(stop.wait)
        await consumer.close()


def admin_words(servers: HostileServers, ids: dict[str, str]) -> dict[str, list[str]]:
    """The options of every admin command."""
    broker = ["-b", servers.broker]
    topic, group = ["-t", "orders"], ["-g", "billing"]
    return {
        "topicList": ["-c"],
        "topicClusterList": topic,
        "topicRoute": topic,
        "topicStatus": topic,
        "updateTopic": ["-t", "made", *broker],
        "updateTopicPerm": [*topic, "-p", "6"],
        "deleteTopic": ["-t", "made", "-c", CLUSTER + ESCAPES],
        "updateOrderConf": [*topic, "-m", "get"],
        "queryConsumerGroups": topic,
        "updateSubGroup": ["-g", "new", *broker],
        "deleteSubGroup": ["-g", "new", *broker],
        "getConsumerConfig": ["-g", "billing" + ESCAPES],
        "consumerProgress": [*group, "-s", "true"],
        "consumerConnection": group,
        "resetOffsetByTime": [*group, *topic, "-s", "now"],
        "skipAccumulatedMessage": [*group, *topic],
        "cloneGroupOffset": ["-s", "billing", "-d", "other", *topic],
        "queryMsgById": ["-i", ids["offsetMsgId"]],
        "queryMsgByUniqueKey": [*topic, "-i", ids["msgId"]],
        "queryMsgTraceById": ["-i", TRACED, "-t", "orders"],
        "queryMsgByKey": [*topic, "-k", "42"],
        "queryMsgByOffset": [*topic, "-b", "broker-a" + ESCAPES, "-i", ids["queueId"], "-o", ids["queueOffset"]],
        "printMsg": topic,
        "sendMessage": [*topic, "-p", "x"],
        "queryCq": [*topic, "-q", ids["queueId"], "-i", "0", *broker],
        "clusterList": [],
        "brokerStatus": broker,
        "brokerConsumeStats": broker,
        "producerConnection": ["-g", "KOUROU_PRODUCER", *topic],
        "producer": broker,
        "getBrokerConfig": broker,
        "updateBrokerConfig": [*broker, "-k", "longPollingEnable", "-v", "true"],
        "statsAll": [],
        "cleanExpiredCQ": broker,
        "cleanUnusedTopic": broker,
        "deleteExpiredCommitLog": broker,
        "wipeWritePerm": ["-b", "broker-a"],
        "addWritePerm": ["-b", "broker-a"],
        "getNamesrvConfig": [],
        "updateNamesrvConfig": ["-k", "orderMessageEnable", "-v", "true"],
        "updateKvConfig": ["-s", "space", "-k", "key", "-v", "value"],
        "deleteKvConfig": ["-s", "space", "-k", "key"],
    }


def more_words(servers: HostileServers, ids: dict[str, str], folder: Path) -> dict[str, list[str]]:
    """The same of commands that are refused here, or that show nothing of what the broker stores."""
    broker, named = ["-b", servers.broker], ["-b", "broker-a" + ESCAPES]
    topic, group = ["-t", "orders"], ["-g", "billing"]
    controller = ["-a", servers.broker]
    user, rule = ["-u", "u"], ["-s", "User:u", "-r", "Topic:t", "-a", "Pub", "-d", "Allow"]
    light = ["-p", "orders", "-g", "billing"]
    (folder / "topics.json").write_text('[{"topicName": "of-the-list"}]')
    (folder / "groups.json").write_text('[{"groupName": "of-the-list"}]')
    return {
        "addBroker": ["-c", servers.broker, "-b", "/path"],
        "removeBroker": ["-c", servers.broker, "-b", f"{CLUSTER}:broker-a:0"],
        "allocateMQ": [*topic, "-i", "10.0.0.1"],
        "checkMsgSendRT": [*topic, "-a", "2", "-s", "10"],
        "sendMsgStatus": [*named, "-c", "1"],
        "consumeMessage": topic,
        "printMsgByQueue": [*topic, "-a", *named[1:], "-i", ids["queueId"], "-p", "true"],
        "consumerStatus": group,
        "setConsumeMode": [*broker, *topic, *group, "-m", "PULL", "-q", "0"],
        "updateTopicList": [*broker, "-f", str(folder / "topics.json")],
        "updateSubGroupList": [*broker, "-f", str(folder / "groups.json")],
        "updateStaticTopic": ["-t", "fixed", *named, "-qn", "2"],
        "remappingStaticTopic": ["-t", "fixed", *named],
        "exportConfigs": ["-c", CLUSTER + ESCAPES, "-f", str(folder)],
        "exportMetadata": ["-c", CLUSTER + ESCAPES, "-f", str(folder)],
        "exportMetrics": ["-c", CLUSTER + ESCAPES, "-f", str(folder)],
        "exportMetadataInRocksDB": ["-p", "/folder", "-t", "topics"],
        "exportPopRecord": broker,
        "dumpCompactionLog": ["-f", "/file"],
        "rocksDBConfigToJson": [*broker, "-t", "topics"],
        "checkRocksdbCqWriteProgress": ["-c", CLUSTER + ESCAPES],
        "updateColdDataFlowCtrGroupConfig": [*broker, *group, "-v", "1000"],
        "getColdDataFlowCtrInfo": broker,
        "removeColdDataFlowCtrGroupConfig": [*broker, *group],
        "setCommitLogReadAheadMode": [*broker, "-m", "1"],
        "switchTimerEngine": [*broker, "-e", "F"],
        "haStatus": broker,
        "resetMasterFlushOffset": [*broker, "-o", "1"],
        "getBrokerEpoch": named,
        "promote": broker,
        "demote": broker,
        "raft": ["status", *broker],
        "getSyncStateSet": [*controller, "-b", "broker-a"],
        "getControllerMetaData": controller,
        "getControllerConfig": controller,
        "updateControllerConfig": [*controller, "-k", "k", "-v", "v"],
        "electMaster": [*controller, "-b", "1", "-bn", "broker-a", "-c", CLUSTER],
        "cleanBrokerMetadata": [*controller, "-bn", "broker-a", "-b", "1", "-l"],
        "getBrokerLiteInfo": [*broker, "-d"],
        "getParentTopicInfo": ["-p", "orders"],
        "getLiteTopicInfo": ["-p", "orders", "-l", "light"],
        "getLiteClientInfo": [*light, "-c", "nobody"],
        "getLiteGroupInfo": light,
        "triggerLiteDispatch": light,
        "createUser": [*broker, *user, "-p", "p"],
        "updateUser": [*broker, *user, "-s", "disable"],
        "deleteUser": [*broker, *user],
        "getUser": [*broker, *user],
        "listUser": broker,
        "copyUser": ["-f", servers.broker, "-t", servers.broker],
        "createAcl": [*broker, *rule],
        "updateAcl": [*broker, *rule],
        "deleteAcl": [*broker, "-s", "User:u"],
        "getAcl": [*broker, "-s", "User:u"],
        "listAcl": broker,
        "copyAcl": ["-f", servers.broker, "-t", servers.broker],
    }


ENDLESS = {"clusterRT", "startMonitoring"}
"""Commands that go on until they are interrupted."""

TELLS_NOTHING = {
    "updateTopic", "updateTopicPerm", "updateSubGroup", "deleteSubGroup", "cloneGroupOffset", "queryCq",
    "updateBrokerConfig", "cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog", "wipeWritePerm",
    "addWritePerm", "updateNamesrvConfig", "updateKvConfig", "deleteKvConfig", "updateOrderConf",
}  # fmt: skip
"""Commands whose answers have no strings to show when all goes well."""

OTHERS = {
    "send": ["orders", "x"],
    "tail": ["orders", "--from", "first", "--no-follow"],
    "consume": ["orders", "-g", "reading", "--from", "first", "--limit", "2", "--idle", "20s"],
    "doctor": [],
    "bench": ["orders", "--work", "send", "--time", "200ms", "--warmup", "0s", "--concurrency", "2"],
}
GROUPS = {"admin", "store", "pipeline", "profile"}
"""Groups of commands; `profile` shows what its user wrote."""

PAGES = {"console", "top"}
"""Commands that show what brokers answered on pages, which tests of their own check."""


def invoke(servers: HostileServers, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"NAMESRV_ADDR": servers.namesrv, "COLUMNS": "200"})


def check(result: Result, words: list[str]) -> str:
    """What reached the terminal, of which every character is printable or the end of a line."""
    shown = result.stdout + result.stderr
    strange = sorted({c for c in shown if not c.isprintable() and c not in "\n\t"})
    assert not strange, f"{words}: {strange!r} in {shown!r}"
    unexpected = result.exception
    assert unexpected is None or isinstance(unexpected, SystemExit), (words, repr(unexpected))
    if "--json" in words:
        for line in result.stdout.splitlines():
            assert isinstance(json.loads(line), dict), line
    return shown


@pytest.fixture(scope="module")
def ids(servers: HostileServers) -> dict[str, str]:
    result = invoke(servers, "tail", "orders", "--from", "first", "--no-follow", "--limit", "1", "--json")
    found = {name: str(value) for name, value in json.loads(result.stdout).items()}
    host = encode_host(servers.broker)  # as far as the cluster knows, there is no other broker
    return found | {"offsetMsgId": encode_offset_id(host, decode_offset_id(found["offsetMsgId"]).offset)}


def test_every_command_is_rendered(servers: HostileServers, ids: dict[str, str], tmp_path: Path) -> None:
    """A new command has to be added here."""
    commands = typer.main.get_group(admin_app)
    rendered = {*admin_words(servers, ids), *more_words(servers, ids, tmp_path)}
    assert set(commands.commands) == rendered | ENDLESS
    assert set(LazyGroup.promised) == set(OTHERS) | GROUPS | PAGES


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_more_admin_commands_show_printable_text_alone(
    servers: HostileServers, ids: dict[str, str], form: list[str], tmp_path: Path
) -> None:
    for name, options in more_words(servers, ids, tmp_path).items():
        words = ["admin", name, *options, *form]
        shown = check(invoke(servers, *words), words)
        assert "Usage:" not in shown and "Traceback" not in shown, (words, shown)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_admin_commands_show_printable_text_alone(
    servers: HostileServers, ids: dict[str, str], form: list[str]
) -> None:
    for name, options in admin_words(servers, ids).items():
        words = ["admin", name, *options, *form]
        shown = check(invoke(servers, *words), words)
        assert "owned" in shown or name in TELLS_NOTHING, f"{words} shows nothing of what was answered: {shown!r}"


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_commands_show_printable_text_alone(servers: HostileServers, name: str, form: list[str]) -> None:
    group = ["-g", f"reading{len(form)}"] if name == "consume" else []
    words = [name, *OTHERS[name], *group, *form]
    shown = check(invoke(servers, *words), words)
    assert "owned" in shown or name == "bench"


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_refusals_show_printable_text_alone(servers: HostileServers, ids: dict[str, str], form: list[str]) -> None:
    """The remark of a broker is part of the error."""
    calls = [["admin", name, *options] for name, options in admin_words(servers, ids).items()]
    calls += [[name, *options] for name, options in OTHERS.items() if name != "consume"]
    servers.refusing = True
    try:
        told = 0
        for call in calls:
            words = [*call, *form]
            told += "owned" in check(invoke(servers, *words), words)
    finally:
        servers.refusing = False
    assert told > len(calls) / 2


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.usefixtures("servers")
def test_stores_show_printable_text_alone(real: EmbeddedThread, form: list[str]) -> None:
    """Records have what producers wrote."""
    runner = CliRunner()
    told = 0
    for part in ("overview", "records", "queues", "index", "checkpoint"):
        words = ["store", "inspect", str(real.store), part, *form]
        told += "owned" in check(runner.invoke(app, words), words)
    words = ["store", "verify", str(real.store), "--live", *form]
    check(runner.invoke(app, words), words)
    assert told == 1


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_pipelines_show_printable_text_alone(servers: HostileServers, form: list[str]) -> None:
    """The one that needs no Spark; all show their reports in the same way."""
    lag = ["pipeline", "stats", "lag", "billing", "orders", "--option", "retryTimeout=1s", *form]
    assert "owned" in check(invoke(servers, *lag), lag), "the name of the broker"
    servers.refusing = True
    try:
        assert "owned" in check(invoke(servers, *lag), lag), "the remark"
    finally:
        servers.refusing = False


def test_one_place_writes_logs() -> None:
    """So all that others chose passes its formatter, which escapes it: tests/unit/cli/test_output.py tries that.

    The hostile suites look for raw characters in the logs of their servers when these stop (target.py).
    """
    source = Path(__file__).parents[2] / "src" / "kourou"
    makers = re.compile(r"\b(basicConfig|StreamHandler|FileHandler|addHandler|dictConfig)\b")
    found = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if makers.search(path.read_text())}
    assert found == {"cli/running.py"}
