"""The real clients with a group that elects its leader: ours, and Apache's in DLedger mode, which has to look the same.

Three brokers with one log. A leader is killed while clients send and consume; mqadmin looks at the group; and a plain
Java broker opens what a stopped member of ours has stored.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_equal, wait_for

from kourou.protocol.codes import RequestCode

from .clients import Client, Kind
from .mqadmin import MqAdmin
from .processes import free_port
from .servers import CLUSTER, ApacheBroker, ApacheNameServer, KourouBroker
from .test_dledger_stores import SMALL, has_key, keys_of, read_all, send
from .wire import Connection
from .worlds import needed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MEMBERS = 3
NAME = "broker-a"
TOPIC = "orders"
PATIENCE_S = 120

Broker = ApacheBroker | KourouBroker


class Members:
    """A name server of Apache's, and three brokers of one group."""

    def __init__(self, home: Path, owner: str, at_end: ExitStack) -> None:
        self.home = home
        self.owner = owner
        with needed():
            self.name_server = ApacheNameServer(home / "namesrv")
        at_end.callback(self.name_server.kill)
        peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(MEMBERS))
        self.brokers: list[Broker] = []
        for number in range(MEMBERS):
            self.brokers.append(self._start(number, peers))
            at_end.callback(self.brokers[-1].kill)
        for broker in self.brokers:
            if isinstance(broker, ApacheBroker):
                broker.wait_ready()
        wait_equal(lambda: sorted(self.ids()), [0, *self._followers()], PATIENCE_S)

    def _start(self, number: int, peers: str) -> Broker:
        settings: dict[str, object] = {
            **SMALL,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": NAME,
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
        }
        home = self.home / f"n{number}"
        if self.owner == "kourou":
            return KourouBroker(home, NAME, self.name_server.address, settings)
        return ApacheBroker(home, NAME, self.name_server.address, settings)

    def _followers(self) -> list[int]:
        """A follower's id is the number of its name, plus 1."""
        leader = self.leader()
        return [number + 1 for number, broker in enumerate(self.brokers) if broker is not leader]

    def addresses(self) -> dict[int, str]:
        """As the name server has them, by the brokers' ids."""
        with Connection(self.name_server.address) as connection:
            table = connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"]
        found = table.get(NAME, {}).get("brokerAddrs", {})
        return {int(number): address for number, address in found.items()}

    def ids(self) -> list[int]:
        return list(self.addresses())

    def leader(self) -> Broker:
        """As the name server has it."""
        wait_for("a leader in the routes", self._leader, PATIENCE_S)
        leader = self._leader()
        assert leader is not None
        return leader

    def _leader(self) -> Broker | None:
        address = self.addresses().get(0)
        return next((broker for broker in self.brokers if broker.address == address), None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Members]]:
    with ExitStack() as at_end:
        yield lambda owner: Members(tmp_path / owner, owner, at_end)


OWNERS = ["kourou", pytest.param("apache", marks=pytest.mark.slow)]


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize(
    "kind", [Kind.JAVA, Kind.GO, pytest.param(Kind.JAVA_49, marks=pytest.mark.slow)], ids=lambda kind: kind.name
)
def test_clients_go_on_when_the_leader_is_killed(
    kind: Kind, owner: str, start: Callable[[str], Members], tmp_path: Path
) -> None:
    """All that was acknowledged is there, and comes to a consumer that was there before."""
    group = start(owner)
    with needed():
        client = Client(kind, group.name_server.address, tmp_path / "client")
    try:
        sent = set(sent_by(client, "first", 20))
        client.subscribe(TOPIC, "readers")
        got = received(client, set(), sent)
        leader = group.leader()
        leader.kill()
        sent |= set(sent_by(client, "second", 20))
        received(client, got, sent)
        assert group.leader() is not leader
    finally:
        client.stop()


def sent_by(client: Client, prefix: str, count: int) -> list[str]:
    """Bodies that were acknowledged. While there is no leader, a client's own attempts may all fail."""
    for number in range(count):
        wait_for("an acknowledged message", partial(_is_sent, client, f"{prefix}-{number}"), PATIENCE_S)
    return [f"{prefix}-{number}-0" for number in range(count)]


def _is_sent(client: Client, prefix: str) -> bool:
    try:
        client.send(TOPIC, prefix, 1)
    except AssertionError:
        return False
    return True


def received(client: Client, got: set[str], wanted: set[str]) -> set[str]:
    while not wanted <= got:
        came = client.receive("readers", 1)
        assert came, f"never came: {sorted(wanted - got)}"
        got.update(came)
    return got


# ── mqadmin ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_mqadmin_sees_a_group_of_ours_as_one_of_apaches(start: Callable[[str], Members], mqadmin: MqAdmin) -> None:
    seen = {}
    for owner in ("apache", "kourou"):
        group = start(owner)
        send_to(group, "first")
        seen[owner] = facts(group, mqadmin)
        for broker in group.brokers:
            broker.kill()
    assert seen["kourou"] == seen["apache"]


def facts(group: Members, mqadmin: MqAdmin) -> dict[str, Any]:
    """What does not depend on ids, ports and times. The leader is in no certain place."""
    names = group.name_server.address
    leader = group.leader()

    def table(command: str, *words: str) -> list[list[str]]:
        return [line.split() for line in mqadmin.run(names, command, *words).splitlines() if not line.startswith("#")]

    made = mqadmin.run(names, "updateTopic", "-c", CLUSTER, "-t", "made", "-r", "4", "-w", "4")
    wait_for("the topic", lambda: "made" in mqadmin.run(names, "topicList"), PATIENCE_S)
    clusters = table("clusterList")
    return {
        "brokers": sorted((row[0], row[1], row[2] == "0") for row in clusters if row),
        "made": "success" in made,
        "route": "brokerAddrs" in mqadmin.run(names, "topicRoute", "-t", "made"),
        "status": sorted(row[:2] for row in table("topicStatus", "-t", TOPIC) if row),
        "states": sorted({row[0] for row in table("brokerStatus", "-b", leader.address) if row} & STATES),
    }


STATES = {"bootTimestamp", "brokerVersion", "commitLogMaxOffset", "commitLogMinOffset", "dispatchBehindBytes", "putTps"}


def other_than(group: Members, leader: Broker) -> Broker:
    return next(broker for broker in group.brokers if broker is not leader)


# ── The directory ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_java_broker_opens_a_stopped_members_directory(start: Callable[[str], Members], tmp_path: Path) -> None:
    """The log of a member is a plain log: the broker serves all of it, by offset and by key, and goes on."""
    group = start("kourou")
    for number in range(200):
        send_to(group, f"m-{number}", 8_000)
    leader = group.leader()
    follower = other_than(group, leader)
    wait_for("the follower to have all", lambda: ends(follower) == ends(leader), PATIENCE_S)
    for broker in group.brokers:
        assert isinstance(broker, KourouBroker)
        broker.process.terminate()
    for broker in group.brokers:
        broker.process.wait_end(PATIENCE_S)
    with needed():
        java = ApacheBroker(follower.home, NAME, group.name_server.address, SMALL)
    try:
        java.wait_registered(group.name_server.address)
        expected = sorted(f"m-{number}" for number in range(200))
        wait_equal(lambda: keys_of(read_all(java.address), TOPIC), expected, PATIENCE_S)
        for key in ("m-0", "m-100", "m-199"):
            wait_for(f"the key {key}", partial(has_key, java.address, key), PATIENCE_S)
        assert send(java.address, "of-java") == 0
    finally:
        java.kill()


def send_to(group: Members, key: str, size: int = 20) -> None:
    """Send a message to the leader, which may have to be elected first."""
    wait_for("an acknowledged message", lambda: send(group.leader().address, key, size=size) == 0, PATIENCE_S)


def ends(broker: Broker) -> list[str]:
    with Connection(broker.address) as connection:
        table = connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).json()["table"]
    return [table["commitLogMaxOffset"], table["dispatchBehindBytes"]]
