"""The master of real processes is killed under load, its slave is promoted by command, and the old master returns."""

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.servers import KourouBroker, KourouNameServer
from tests.interop.wire import Connection
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SEND, RUNTIME_INFO, HA_STATUS = 10, 28, 907
TOPIC = "orders"
FAIL_OVER_S = 2.0
SETTINGS = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "flushDiskType": "SYNC_FLUSH"}


def send(connection: Connection, body: bytes) -> int:
    fields = {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": "",
    }
    return connection.ask(SEND, fields, body).code


class Load(threading.Thread):
    """A client that sends until its broker is gone."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__()
        self._address = address
        self._number = number
        self.acknowledged: set[bytes] = set()

    def run(self) -> None:
        try:
            with Connection(self._address) as connection:
                for count in range(1_000_000):
                    body = b"<%d-%d>" % (self._number, count)
                    if send(connection, body) == 0:
                        self.acknowledged.add(body)
        except (OSError, EOFError):
            pass  # the broker was killed


def info(address: str, name: str) -> int:
    with Connection(address) as connection:
        return int(connection.ask(RUNTIME_INFO).json()["table"][name])


def slaves_of(address: str) -> int:
    with Connection(address) as connection:
        return len(connection.ask(HA_STATUS).json()["haConnectionInfo"])


def has_slave(address: str) -> bool:
    return slaves_of(address) > 0


def log_of(broker: KourouBroker, end: int) -> bytes:
    files = sorted(path for path in (broker.store / "commitlog").iterdir() if path.name.isdigit())
    return b"".join(path.read_bytes() for path in files)[:end]


def test_the_slave_of_a_killed_master_is_promoted(tmp_path: Path) -> None:
    with ExitStack() as at_end:
        names = KourouNameServer(tmp_path / "namesrv")
        at_end.callback(names.kill)
        sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "minInSyncReplicas": 2}
        master = KourouBroker(tmp_path / "master", "broker-f", names.address, {**SETTINGS, **sync})
        at_end.callback(master.kill)
        follower = {"brokerRole": "SLAVE", "brokerId": 1}
        slave = KourouBroker(tmp_path / "slave", "broker-f", names.address, {**SETTINGS, **follower})
        at_end.callback(slave.kill)
        wait_for("the slave", lambda: has_slave(master.address))

        clients = [Load(master.address, number) for number in range(4)]
        for client in clients:
            client.start()
        wait_for("messages", lambda: all(len(client.acknowledged) > 50 for client in clients))
        begin = time.monotonic()
        subprocess.run([sys.executable, "-m", "kourou", "admin", "--help"], stdout=subprocess.DEVNULL, check=True)
        start_s = time.monotonic() - begin  # of Python itself, which is long on a busy machine
        master.kill()
        begin = time.monotonic()
        words = ["admin", "promote", "-n", names.address, "-b", slave.address]
        wait_for("the promotion", lambda: subprocess.run([sys.executable, "-m", "kourou", *words]).returncode == 0)
        with Connection(slave.address) as connection:
            wait_for("an acknowledged send", lambda: send(connection, b"<after>") == 0)
        took = time.monotonic() - begin
        print(
            f"from the kill to the first acknowledged send: {took:.2f} s; the start of a command takes {start_s:.2f} s"
        )
        assert took < FAIL_OVER_S + start_s
        for client in clients:
            client.join()
        acknowledged = set[bytes]().union(*(client.acknowledged for client in clients))

        master.restart()  # with its old settings, as a master

        def follows() -> bool:
            ends = [info(broker.address, "commitLogMaxOffset") for broker in (slave, master)]
            return has_slave(slave.address) and ends[0] == ends[1]

        wait_for("the old master to follow", follows, 60)
        with Connection(slave.address) as connection:
            assert send(connection, b"<more>") == 0
        wait_for("the old master to follow", follows, 60)
        end = info(slave.address, "commitLogMaxOffset")
        log = log_of(slave, end)
        assert log == log_of(master, end)
        missing = [body for body in acknowledged if body not in log]
        assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged messages are lost: {missing[:3]}"
        with Connection(master.address) as connection:
            assert send(connection, b"<fork>") != 0


def test_one_master_is_left_when_the_old_one_restarts_after_a_crash(tmp_path: Path) -> None:
    """With ASYNC_FLUSH it begins an epoch at its start. The third broker follows the promoted one all the same."""
    with ExitStack() as at_end:
        names = KourouNameServer(tmp_path / "namesrv")
        at_end.callback(names.kill)
        brokers = []
        for number in range(3):
            role = {"brokerRole": "SLAVE", "brokerId": number} if number else {"brokerRole": "ASYNC_MASTER"}
            settings = {**SETTINGS, "flushDiskType": "ASYNC_FLUSH", **role}
            brokers.append(KourouBroker(tmp_path / str(number), "broker-f", names.address, settings))
            at_end.callback(brokers[-1].kill)
        master, promoted, _ = brokers

        def is_equal() -> bool:
            return len({info(broker.address, "commitLogMaxOffset") for broker in brokers}) == 1

        wait_for("the slaves", lambda: slaves_of(master.address) == 2)
        with Connection(master.address) as connection:
            for count in range(20):
                assert send(connection, b"<%d>" % count) == 0
        wait_for("the copies", is_equal)
        master.kill()
        words = ["admin", "promote", "-n", names.address, "-b", promoted.address]
        wait_for("the promotion", lambda: subprocess.run([sys.executable, "-m", "kourou", *words]).returncode == 0)
        for _ in range(2):
            master.restart()
            master.kill()
        master.restart()
        with Connection(promoted.address) as connection:
            wait_for("an acknowledged send", lambda: send(connection, b"<after>") == 0)
        wait_for("both others to follow", lambda: slaves_of(promoted.address) == 2 and is_equal(), 60)
        with Connection(master.address) as connection:
            assert send(connection, b"<fork>") != 0
        end = info(promoted.address, "commitLogMaxOffset")
        assert len({log_of(broker, end) for broker in brokers}) == 1
