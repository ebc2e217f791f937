"""Nothing but printable text reaches the terminal, whatever brokers answer: every command, as text and as JSON."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
import typer
from tests.hostile.hostile_servers import ESCAPES, HostileServers, hostile_servers
from typer.testing import CliRunner, Result

from kourou.cli.admin import app as admin_app
from kourou.cli.lazy_commands import LazyGroup
from kourou.cli.main import app
from kourou.client import connect
from kourou.embedded import EmbeddedThread
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
    return {name: str(value) for name, value in json.loads(result.stdout).items()}


def test_every_command_is_rendered(servers: HostileServers, ids: dict[str, str]) -> None:
    """A new command has to be added here."""
    commands = typer.main.get_group(admin_app)
    assert set(commands.commands) == set(admin_words(servers, ids))
    assert set(LazyGroup.promised) == set(OTHERS) | GROUPS


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
