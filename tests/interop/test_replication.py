"""Master and slave, one of them Apache's broker: the same bytes on both sides, whatever ends in between."""

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_for

import kourou.sync
from kourou.protocol.record import decode_record

from .clients import Client, Kind
from .mqadmin import MqAdmin
from .servers import ApacheBroker, KourouBroker, KourouNameServer
from .wire import Connection
from .worlds import needed

pytestmark = pytest.mark.interop

SEGMENT = 1 << 20
SIZES = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20 * 1000}
GROUP = "broker-r"
TOPIC = "replicated"
PATIENCE_S = 120
RUNTIME_INFO, VIEW, QUERY, HA_STATUS, TOPICS, OFFSETS, NEW_GROUP, COMMIT = 28, 33, 12, 907, 21, 43, 200, 15

Broker = ApacheBroker | KourouBroker
Start = Callable[..., Broker]


class Pair:
    """A name server, and the brokers that are started for a group."""

    def __init__(self, home: Path, at_end: ExitStack) -> None:
        self.home = home
        self._at_end = at_end
        with needed():
            self.name_server = KourouNameServer(home / "namesrv")
        at_end.callback(self.name_server.kill)
        self._messages = 0
        self.sent: dict[str, bytes] = {}  # bodies by key

    def ours(self, name: str, **settings: object) -> KourouBroker:
        broker = KourouBroker(self.home / name, GROUP, self.name_server.address, {**SIZES, **settings})
        self._at_end.callback(broker.kill)
        return broker

    def apaches(self, name: str, **settings: object) -> ApacheBroker:
        with needed():
            broker = ApacheBroker(self.home / name, GROUP, self.name_server.address, {**SIZES, **settings})
        self._at_end.callback(broker.kill)
        broker.wait_ready()
        return broker

    def send(self, count: int, size: int = 2_000) -> None:
        """Messages, each with a key; they are acknowledged."""
        with kourou.sync.connect(self.name_server.address) as mq:
            for _ in range(count):
                key = f"key-{self._messages}"
                body = (f"{key} " * size)[:size].encode()
                wait_for("an acknowledged send", partial(_send, mq, key, body), PATIENCE_S)
                self.sent[key] = body
                self._messages += 1

    def wait_sent(self, count: int) -> None:
        """Until another thread has sent so many more."""
        until = len(self.sent) + count
        wait_for(f"{count} messages", lambda: len(self.sent) >= until, PATIENCE_S)


def _send(mq: Any, key: str, body: bytes) -> bool:
    try:
        mq.send(TOPIC, body, keys=[key])
    except Exception:  # the route is not known yet, or the broker is away
        time.sleep(0.2)
        return False
    return True


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as at_end:
        yield Pair(tmp_path, at_end)


def info(broker: Broker) -> dict[str, str]:
    with Connection(broker.address) as connection:
        answer = connection.ask(RUNTIME_INFO)
        assert answer.code == 0, answer.remark
        table: dict[str, str] = answer.json()["table"]
        return table


def span(broker: Broker) -> tuple[int, int]:
    table = info(broker)
    return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])


def log_of(broker: Broker, end: int) -> bytes:
    folder = broker.home / "store" / "commitlog"
    files = sorted(path for path in folder.iterdir() if path.name.isdigit())
    start = int(files[0].name)
    return b"".join(path.read_bytes() for path in files)[: end - start]


def wait_equal_logs(master: Broker, slave: Broker) -> None:
    """Until both have the same bytes, from the same offset on, and both have dispatched them."""

    def are_equal() -> bool:
        try:
            one, other = span(master), span(slave)
            return one == other and info(slave)["dispatchBehindBytes"] == "0"
        except (OSError, AssertionError):  # it is away, or busy
            return False

    wait_for("the slave to have all of its master's log", are_equal, PATIENCE_S)
    end = span(master)[1]
    assert log_of(master, end) == log_of(slave, end)


def check_messages(broker: Broker, sent: dict[str, bytes], count: int = 20) -> None:
    """Each key leads to its message, which has its id, and is at the offset that it names.

    A message whose answer was lost may be there twice.
    """
    with Connection(broker.address) as connection:
        for key in [*sent][:: max(len(sent) // count, 1)]:
            fields = {"topic": TOPIC, "key": key, "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 2**62}
            found = connection.ask(QUERY, fields)
            assert found.code == 0, found.remark
            message = decode_record(found.body)
            assert bytes(message.body) == sent[key]
            view = connection.ask(VIEW, {"offset": message.physical_offset})
            assert found.body.startswith(view.body)


# ── A slave of Apache's ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_slave_of_apaches_follows_our_master(pair: Pair) -> None:
    master = pair.ours("master")
    pair.send(1_500)  # three segments, before there is a slave
    slave = pair.apaches("slave", brokerRole="SLAVE", brokerId=1)
    wait_equal_logs(master, slave)
    pair.send(300)
    wait_equal_logs(master, slave)
    check_messages(slave, pair.sent)
    with Connection(master.address) as connection:
        status = connection.ask(HA_STATUS).json()
    assert status["master"]
    assert [one["slaveAckOffset"] for one in status["haConnectionInfo"]] == [span(master)[1]]

    slave.kill()
    pair.send(800)
    slave.restart()
    slave.wait_ready()
    wait_equal_logs(master, slave)

    master.kill()
    master.restart()
    pair.send(300)
    wait_equal_logs(master, slave)
    check_messages(slave, pair.sent)


def test_our_sync_master_waits_for_a_slave_of_apaches(pair: Pair) -> None:
    master = pair.ours("master", brokerRole="SYNC_MASTER", inSyncReplicas=2, minInSyncReplicas=2)
    slave = pair.apaches("slave", brokerRole="SLAVE", brokerId=1)
    pair.send(200)
    assert span(slave)[1] >= span(master)[1]
    slave.kill()
    with Connection(master.address) as connection:
        wait_for("the loss of the slave", lambda: not connection.ask(HA_STATUS).json()["haConnectionInfo"])
    slave.restart()
    slave.wait_ready()
    pair.send(100)
    wait_equal_logs(master, slave)


def test_a_slave_of_apaches_gets_the_tables_of_our_master(pair: Pair) -> None:
    """Apache's slaves ask for the first time 60 s after their start, on the master's fast port."""
    master = pair.ours("master")
    pair.send(10)
    slave = pair.apaches("slave", brokerRole="SLAVE", brokerId=1)
    with Connection(master.address) as connection:
        assert connection.ask(NEW_GROUP, body=b'{"groupName":"billing"}').code == 0
        fields = {"consumerGroup": "billing", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        assert connection.ask(COMMIT, fields).code == 0

    def has_tables() -> bool:
        with Connection(slave.address) as connection:
            topics = connection.ask(TOPICS).json()["topicConfigTable"]
            offsets = connection.ask(OFFSETS).json()["offsetTable"]
            return TOPIC in topics and offsets.get(f"{TOPIC}@billing") == {"0": 1}

    wait_for("the tables", has_tables, 180)


# ── A slave of ours ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_our_slave_follows_a_master_of_apaches(pair: Pair) -> None:
    master = pair.apaches("master")
    pair.send(1_500)
    slave = pair.ours("slave", brokerRole="SLAVE", brokerId=1)
    wait_equal_logs(master, slave)  # the whole log, not the last segment
    pair.send(300)
    wait_equal_logs(master, slave)
    check_messages(slave, pair.sent)

    slave.kill()
    pair.send(800)
    slave.restart()
    wait_equal_logs(master, slave)

    master.kill()
    master.restart()
    master.wait_ready()
    pair.send(300)
    wait_equal_logs(master, slave)
    check_messages(slave, pair.sent)

    def has_topic() -> bool:
        with Connection(slave.address) as connection:
            return TOPIC in connection.ask(TOPICS).json()["topicConfigTable"]

    wait_for("the topic", has_topic)
    assert json.loads((slave.home / "store" / "config" / "topics.json").read_text())


def test_our_slave_cuts_what_a_master_of_apaches_lost_in_a_power_failure(pair: Pair) -> None:
    """The master has stored other messages of the same size at these offsets before the slave is back."""
    master = pair.apaches("master")
    pair.send(200)
    master.kill()
    store, before = master.home / "store", pair.home / "before"
    shutil.copytree(store, before)
    restart(master)
    slave = pair.ours("slave", brokerRole="SLAVE", brokerId=1)
    lost = set(pair.sent)
    pair.send(50)
    wait_equal_logs(master, slave)
    lost = set(pair.sent) - lost
    slave.kill()
    master.kill()
    shutil.rmtree(store)
    before.rename(store)  # what was on the disk
    restart(master)
    for key in lost:
        del pair.sent[key]
    pair.send(80)
    slave.restart()
    wait_equal_logs(master, slave)
    check_messages(slave, pair.sent, len(pair.sent))
    assert list((slave.home / "store" / "kourou-cut").iterdir())


# ── Both ways ───────────────────────────────────────────────────────────────────────────────────────────────────────


def start_pair(pair: Pair, whose_slave: str, **settings: object) -> tuple[Broker, Broker]:
    """A master and a slave, one of them Apache's."""
    follows = {"brokerRole": "SLAVE", "brokerId": 1, **settings}
    if whose_slave == "apache":
        return pair.ours("master", **settings), pair.apaches("slave", **follows)
    return pair.apaches("master", **settings), pair.ours("slave", **follows)


def restart(broker: Broker) -> None:
    broker.restart()
    if isinstance(broker, ApacheBroker):
        broker.wait_ready()


@pytest.mark.parametrize("whose_slave", ["apache", "kourou"])
def test_kills_of_either_side_at_random_moments(pair: Pair, whose_slave: str) -> None:
    """Under load, over several segments. Acknowledged messages are on both sides in the end, with the same bytes."""
    master, slave = start_pair(pair, whose_slave)
    pair.send(100)
    stopping = threading.Event()

    def keep_sending() -> None:
        while not stopping.is_set():
            pair.send(10)

    sender = threading.Thread(target=keep_sending)
    sender.start()
    try:
        for seed, broker in enumerate((slave, master, slave, master)):
            pair.wait_sent(random.Random(seed).randrange(50, 500))
            broker.kill()
            restart(broker)
        pair.wait_sent(200)
    finally:
        stopping.set()
        sender.join()
    wait_equal_logs(master, slave)
    ours = master if whose_slave == "apache" else slave  # Apache's has no keys of messages before its last kill
    check_messages(ours, pair.sent, len(pair.sent))
    assert span(slave)[1] > 2 * SEGMENT


@pytest.mark.slow
@pytest.mark.parametrize("whose_slave", ["apache", "kourou"])
def test_a_slave_catches_up_with_a_gigabyte(pair: Pair, whose_slave: str) -> None:
    master, slave = start_pair(pair, whose_slave, mappedFileSizeCommitLog=64 << 20)
    pair.send(10)
    wait_equal_logs(master, slave)
    slave.kill()
    body = random.Random(1).randbytes(1 << 20)
    with kourou.sync.connect(pair.name_server.address) as mq:
        for number in range(1024):
            assert _send(mq, f"large-{number}", b"%08d" % number + body[8:])
    restart(slave)
    wait_equal_logs(master, slave)
    assert span(slave)[1] > 1 << 30


def test_our_slave_of_a_master_of_apaches_is_promoted_and_written_to(pair: Pair, tmp_path: Path) -> None:
    master = pair.apaches("master")
    slave = pair.ours("slave", brokerRole="SLAVE", brokerId=1)
    pair.send(300)
    wait_equal_logs(master, slave)

    def has_topic() -> bool:
        with Connection(slave.address) as connection:
            return TOPIC in connection.ask(TOPICS).json()["topicConfigTable"]

    wait_for("the topic", has_topic)
    master.kill()
    promote = [sys.executable, "-m", "kourou", "admin", "promote", "-n", pair.name_server.address, "-b", slave.address]
    wait_for("the promotion", lambda: subprocess.run(promote, capture_output=True).returncode == 0, PATIENCE_S)
    with needed():
        client = Client(Kind.JAVA, pair.name_server.address, tmp_path / "client")
    try:
        client.send(TOPIC, "after", 20)
        client.subscribe(TOPIC, "readers")
        got: set[str] = set()
        while not {f"after-{number}" for number in range(20)} <= got:
            came = client.receive("readers", 1)
            assert came, f"only {len(got)} messages came"
            got.update(came)
    finally:
        client.stop()
    pair.send(50)
    check_messages(slave, pair.sent)


# ── Clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_java_consumer_goes_on_with_our_slave_when_the_master_is_gone(
    pair: Pair, tmp_path: Path, mqadmin: MqAdmin
) -> None:
    master = pair.ours("master")
    slave = pair.ours("slave", brokerRole="SLAVE", brokerId=1)
    with needed():
        client = Client(Kind.JAVA, pair.name_server.address, tmp_path / "client")
    try:
        client.send(TOPIC, "first", 20)
        client.subscribe(TOPIC, "readers")
        assert sorted(client.receive("readers", 20)) == sorted(f"first-{number}" for number in range(20))
        client.send(TOPIC, "second", 20)
        wait_equal_logs(master, slave)
        got = set(client.receive("readers", 5))
        master.kill()
        while len(got) < 20:
            came = client.receive("readers", 1)
            assert came, f"only {sorted(got)} came"
            got.update(came)
        assert got == {f"second-{number}" for number in range(20)}

        late = Client(Kind.JAVA, pair.name_server.address, tmp_path / "late")
        try:
            late.subscribe(TOPIC, "others")
            assert len(late.receive("others", 40)) == 40
        finally:
            late.stop()
    finally:
        client.stop()


def test_a_java_consumer_reads_its_backlog_from_our_slave(pair: Pair, tmp_path: Path) -> None:
    """The master suggests the slave for messages that are not in memory (all but the end); offsets go to the master."""
    reading = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": 0}
    master = pair.ours("master", **reading)
    slave = pair.ours("slave", brokerRole="SLAVE", brokerId=1, **reading)
    with needed():
        client = Client(Kind.JAVA, pair.name_server.address, tmp_path / "client")
    try:
        client.send(TOPIC, "read", 400)
        wait_equal_logs(master, slave)
        client.subscribe(TOPIC, "readers")
        assert set(client.receive("readers", 400)) == {f"read-{number}" for number in range(400)}
        assert int(info(slave)["msgGetTotalTodayNow"]) > 0

        def committed() -> int:
            with Connection(master.address) as connection:
                offsets: dict[str, int] = connection.ask(OFFSETS).json()["offsetTable"].get(f"{TOPIC}@readers", {})
                return sum(offsets.values())

        wait_for("the offsets at the master", lambda: committed() == 400, PATIENCE_S)
    finally:
        client.stop()
