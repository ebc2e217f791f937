"""A directory of a real DLedger broker is converted, ours serves every message of it, and the same back.

The group has one member. Its directory has an old log before DLedger's, several segments, delayed, timed and
transactional messages.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_equal, wait_for

from kourou.protocol.codes import RequestCode
from kourou.protocol.record import StoredMessage, decode_records

from .paying import COMMIT, Payer
from .processes import free_port
from .servers import BROKER_SETTINGS, START_S, ApacheBroker, ApacheNameServer, KourouRun
from .wire import Connection
from .worlds import needed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PATIENCE_S = 120
SEGMENT = 1 << 20
TOPIC, PAID, TIMED = "orders", "payments", "reminders"
CLOSED, OPEN = "C1".rjust(32, "0"), "A1".rjust(32, "0")
QUEUES = 4
SMALL: dict[str, object] = {
    # Apache's broker opens only files of the sizes that it is told.
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": BROKER_SETTINGS["mappedFileSizeConsumeQueue"],
    "mappedFileSizeTimerLog": BROKER_SETTINGS["mappedFileSizeTimerLog"],
    "maxHashSlotNum": BROKER_SETTINGS["maxHashSlotNum"],
    "maxIndexNum": BROKER_SETTINGS["maxIndexNum"],
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 500,
    "transactionCheckMax": 10_000,
    "timerFlushIntervalMs": 500,
    "recallMessageEnable": "true",
}


def ask(address: str, code: int, ext: dict[str, Any], body: bytes = b"") -> Any:
    with Connection(address) as connection:
        return connection.ask(code, ext, body)


def send(address: str, key: str, topic: str = TOPIC, queue: int = 0, size: int = 20, **properties: object) -> int:
    """The code of the answer."""
    own = {"UNIQ_KEY": key.rjust(32, "0"), "KEYS": key, **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
    header = {"a": "senders", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "h": 7, "i": text, "j": 0}
    header["g"] = int(time.time() * 1000)
    return int(ask(address, RequestCode.SEND_MESSAGE_V2, header, key.ljust(size, ".").encode()).code)


def pull(address: str, topic: str, queue: int, offset: int) -> tuple[list[StoredMessage], int]:
    ext = {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    answer = ask(address, RequestCode.PULL_MESSAGE, ext)
    return decode_records(answer.body, crc=True), int(answer.ext.get("nextBeginOffset", offset))


def read(address: str, topic: str, queue: int) -> list[tuple[int, str]]:
    """All messages of a queue: their offsets and keys."""
    found: list[tuple[int, str]] = []
    offset = 0
    while True:
        records, offset = pull(address, topic, queue, offset)
        if not records:
            return found
        found += [(record.queue_offset, bytes(record.body).decode().rstrip(".")) for record in records]


def read_all(address: str) -> dict[tuple[str, int], list[tuple[int, str]]]:
    return {(topic, queue): read(address, topic, queue) for topic in (TOPIC, PAID, TIMED) for queue in range(QUEUES)}


def has_key(address: str, key: str, topic: str = TOPIC) -> bool:
    ext = {"topic": topic, "key": key, "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 2**62}
    answer = ask(address, RequestCode.QUERY_MESSAGE, ext)
    return answer.code == 0 and any(bytes(one.body).decode().rstrip(".") == key for one in decode_records(answer.body))


def keys_of(found: dict[tuple[str, int], list[tuple[int, str]]], topic: str) -> list[str]:
    return sorted(key for (name, _), messages in found.items() if name == topic for _, key in messages)


class Group:
    """A name server, and DLedger brokers with one member."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name_server = ApacheNameServer(home / "namesrv")
        self.brokers: list[ApacheBroker] = []

    def start(
        self, home: Path, *, dledger: bool, wait: bool = True, self_id: str = "n0", peers: str = ""
    ) -> ApacheBroker:
        """A broker that is registered; with `wait=False`, perhaps not yet."""
        settings = dict(SMALL)
        if dledger:
            settings |= {"enableDLegerCommitLog": "true", "dLegerGroup": "g0", "dLegerSelfId": self_id}
            settings["dLegerPeers"] = peers or f"n0-127.0.0.1:{free_port()}"
        broker = ApacheBroker(home, "broker-a", self.name_server.address, settings)
        self.brokers.append(broker)
        if wait:
            broker.wait_registered(self.name_server.address)
        return broker

    def stop(self, broker: ApacheBroker) -> None:
        broker.terminate()
        broker.process.wait_end(START_S)

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.name_server.kill()


@contextmanager
def group(home: Path) -> Iterator[Group]:
    with needed():
        made = Group(home)
    try:
        yield made
    finally:
        made.kill()


def kourou_store(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "kourou", "store", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def until(what: str, condition: Callable[[], bool]) -> None:
    wait_for(what, condition, PATIENCE_S)


def fill(address: str, first: str, count: int, size: int = 10_000) -> None:
    """Messages over several segments."""
    for number in range(count):
        assert send(address, f"{first}-{number}", queue=number % QUEUES, size=size) == 0


def pay(address: str) -> None:
    """A transaction that is committed, and one that is open."""
    with Payer(address, "payers") as payer:
        assert payer.end(payer.send(PAID, CLOSED), COMMIT)[0] == 0
        payer.send(PAID, OPEN)
    until("the committed message", lambda: len(read(address, PAID, 1)) == 1)


def end_the_open_transaction(address: str) -> None:
    """The broker asks about it, with its new offset."""
    with Payer(address, "payers") as payer:
        payer.reply(payer.questions_about(OPEN)[OPEN][-1], COMMIT)
        until("the end of the open transaction", lambda: len(read(address, PAID, 1)) == 2)


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_ours_serves_what_a_java_dledger_broker_has_stored(how: str, tmp_path: Path) -> None:
    java_home, ours_home = tmp_path / "java", tmp_path / "ours"
    ours_home.mkdir()
    with group(tmp_path) as java:
        # The old log: a broker without DLedger.
        broker = java.start(java_home, dledger=False)
        until("the first send", lambda: send(broker.address, "begin", queue=0) == 0)
        fill(broker.address, "old", 120)
        until("dispatch", lambda: has_key(broker.address, "old-119"))
        java.stop(broker)

        # The same directory with DLedger.
        broker = java.start(java_home, dledger=True)
        address = broker.address
        until("a leader", lambda: send(address, "first", queue=0) == 0)
        fill(address, "new", 220)
        assert send(address, "soon", queue=1, DELAY=1) == 0
        assert send(address, "late", queue=1, DELAY=4) == 0
        assert send(address, "timed", TIMED, 2, TIMER_DELIVER_MS=int(time.time() * 1000) + 40_000) == 0
        pay(address)
        until("the delayed message", lambda: "soon" in [key for _, key in read(address, TOPIC, 1)])
        until("dispatch", lambda: has_key(address, "new-219"))
        before = read_all(address)
        store = java_home / "store"
        assert len(list((store / "dledger-n0" / "data").iterdir())) >= 3
        assert list((store / "commitlog").iterdir())
        if how == "stop":
            java.stop(broker)
        else:
            broker.kill()

    report = kourou_store("convert", store, ours_home / "store")
    assert (report["to"], report["left_out"]) == ("plain", 0)
    assert kourou_store("verify", ours_home / "store")["problems"] == []
    ours = KourouRun(ours_home, *(f"{name}={value}" for name, value in SMALL.items()))
    try:
        now = read_all(ours.address)
        for place, messages in before.items():
            assert now[place][: len(messages)] == messages, place
        for key in ("begin", "old-0", "old-119", "first", "new-0", "new-128", "new-219", "soon"):
            assert has_key(ours.address, key), key
        end_the_open_transaction(ours.address)
        until("the delayed message", lambda: "late" in [key for _, key in read(ours.address, TOPIC, 1)])
        until("the timed message", lambda: read(ours.address, TIMED, 2) == [(0, "timed")])
        fill(ours.address, "ours", 10)
        keys = keys_of(read_all(ours.address), TOPIC)
        if how == "kill":  # Apache's broker writes every 10 s which delayed messages it has delivered
            keys = sorted({*keys})
        assert len(keys) == len({*keys}) == 1 + 120 + 1 + 220 + 2 + 10
    finally:
        ours.kill()


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_a_java_dledger_broker_serves_what_ours_has_stored(how: str, tmp_path: Path) -> None:
    ours_home, java_home = tmp_path / "ours", tmp_path / "java"
    ours_home.mkdir()
    with group(tmp_path) as java:
        ours = KourouRun(ours_home, *(f"{name}={value}" for name, value in SMALL.items()))
        try:
            address = ours.address
            fill(address, "ours", 250)
            assert send(address, "soon", queue=1, DELAY=1) == 0
            assert send(address, "late", queue=1, DELAY=4) == 0
            assert send(address, "timed", TIMED, 2, TIMER_DELIVER_MS=int(time.time() * 1000) + 40_000) == 0
            pay(address)
            until("the delayed message", lambda: "soon" in [key for _, key in read(address, TOPIC, 1)])
            before = read_all(address)
            getattr(ours, how)()
        finally:
            ours.kill()

        report = kourou_store("convert", ours_home / "store", java_home / "store")
        assert (report["to"], report["uncommitted"]) == ("dledger", 0)
        broker = java.start(java_home, dledger=True)
        address = broker.address
        until("a leader", lambda: send(address, "last", queue=3) == 0)
        expected = sorted([*(f"ours-{number}" for number in range(250)), "soon", "late", "last"])
        # After a kill, Apache's broker delivers again what delayOffset.json does not have.
        wait_equal(lambda: sorted({*keys_of(read_all(address), TOPIC)}), expected, PATIENCE_S)
        if how == "stop":
            assert keys_of(read_all(address), TOPIC) == expected
        after = read_all(address)
        for place, messages in before.items():
            assert after[place][: len(messages)] == messages, place
        for key in ("ours-0", "ours-128", "ours-249", "soon", "late", "last"):
            until(f"the key {key}", partial(has_key, address, key))
        end_the_open_transaction(address)
        until("the timed message", lambda: read(address, TIMED, 2) == [(0, "timed")])
        java.stop(broker)

    # What that broker leaves can be converted again.
    report = kourou_store("convert", java_home / "store", tmp_path / "again")
    assert report["uncommitted"] == 0
    assert kourou_store("verify", tmp_path / "again")["problems"] == []


def test_a_java_group_of_three_serves_three_copies(tmp_path: Path) -> None:
    """Also after its leader is killed: the members agree on the converted log."""
    ours_home, names = tmp_path / "ours", ("n0", "n1", "n2")
    ours_home.mkdir()
    with group(tmp_path) as java:
        ours = KourouRun(ours_home, *(f"{name}={value}" for name, value in SMALL.items()))
        try:
            fill(ours.address, "ours", 150)
            ours.stop()
        finally:
            ours.kill()
        for name in names:
            kourou_store("convert", ours_home / "store", tmp_path / name / "store", "--self-id", name)
        peers = ";".join(f"{name}-127.0.0.1:{free_port()}" for name in names)
        brokers = [java.start(tmp_path / name, dledger=True, wait=False, self_id=name, peers=peers) for name in names]
        for broker in brokers:
            broker.wait_ready()
        expected = [f"ours-{number}" for number in range(150)]
        for key in ("one leader", "the next leader"):
            leader = wait_for(key, partial(sent_to, brokers, key), PATIENCE_S)
            expected.append(key)
            wait_equal(partial(keys_at, leader.address), sorted(expected), PATIENCE_S)
            leader.kill()
            brokers.remove(leader)


def keys_at(address: str) -> list[str]:
    return keys_of(read_all(address), TOPIC)


def sent_to(brokers: list[ApacheBroker], key: str) -> ApacheBroker | None:
    """The broker that takes a message: the leader."""
    return next((broker for broker in brokers if send(broker.address, key) == 0), None)


@pytest.mark.parametrize("dledger", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "dledger"])
def test_a_java_broker_refuses_an_unfinished_conversion(dledger: bool, tmp_path: Path) -> None:
    ours_home, java_home = tmp_path / "ours", tmp_path / "java"
    ours_home.mkdir()
    with group(tmp_path) as java:
        ours = KourouRun(ours_home, *(f"{name}={value}" for name, value in SMALL.items()))
        try:
            fill(ours.address, "ours", 3)
            ours.stop()
        finally:
            ours.kill()
        kourou_store("convert", ours_home / "store", java_home / "store")
        # As it was just before the end.
        (java_home / "store" / "commitlog" / "kourou-converting.txt").write_text("not finished")
        broker = java.start(java_home, dledger=dledger, wait=False)
        assert broker.process.wait_end(START_S) != 0
        assert "boot success" not in broker.process.said()
