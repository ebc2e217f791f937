"""The same requests get the same answers: those that no command of mqadmin sends, and the odd corners of the others.

Requests go to both name servers over connections of their own, written by hand. Answers must be alike in code, remark,
fields and body, where a body is compared as what it says: the order of keys and of names in a list is free.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, wait_for

from .servers import ApacheNameServer, NameServer
from .wire import ONE_WAY, ROUTE, Answer, Connection, crc32
from .worlds import CANDIDATE, needed

pytestmark = pytest.mark.interop

REGISTER, UNREGISTER, CLUSTER_INFO, TOPIC_LIST = 103, 104, 106, 206
PUT_KV, GET_KV, DELETE_KV, KV_LIST = 100, 101, 102, 219
WIPE, ADD_WRITE, DELETE_TOPIC, REGISTER_TOPIC = 205, 327, 216, 217
DATA_VERSION, HEARTBEAT, MEMBER_GROUP = 322, 904, 901
TOPICS_BY_CLUSTER, SYSTEM_TOPICS, UNIT_LISTS = 224, 304, (311, 312, 313)
UPDATE_SETTINGS = 318

STANDARD_JSON_SINCE = 401  # V4_9_4

Pair = tuple[NameServer, NameServer]


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    homes = tmp_path_factory.mktemp("answers")
    with ExitStack() as at_end:
        with needed():
            reference = ApacheNameServer(homes / "reference")
            at_end.callback(reference.kill)
            candidate = CANDIDATE(homes / "candidate")
            at_end.callback(candidate.kill)
        yield reference, candidate


class Twins:
    """A connection to each of the two, over which goes the same."""

    def __init__(self, servers: Pair) -> None:
        self.connections = [Connection(server.address) for server in servers]

    def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", version: int = 513) -> Answer:
        """The answer of both."""
        expected, answer = (connection.ask(code, ext, body, version) for connection in self.connections)
        assert (answer.code, answer.flag, answer.remark) == (expected.code, expected.flag, expected.remark)
        assert answer.ext == expected.ext
        assert _sorted(answer.json()) == _sorted(expected.json())
        return answer

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=json.dumps)
    return value


@pytest.fixture
def client(name_servers: Pair) -> Iterator[Twins]:
    twins = Twins(name_servers)
    yield twins
    twins.close()


class Broker(Twins):
    """A broker made of nothing but its registrations."""

    def __init__(self, servers: Pair, name: str, number: int = 0, host: str = "10.0.0.1") -> None:
        super().__init__(servers)
        self.name = name
        self.counter = 1
        self.who = {"brokerName": name, "brokerAddr": f"{host}:1", "clusterName": "Made", "brokerId": number}
        self.ha_address = f"{host}:2"

    def register(self, *topics: str, version: int = 513, **ext: Any) -> Answer:
        configs = {topic: _topic(topic) for topic in topics}
        wrapper = {"dataVersion": self.data_version(), "topicConfigTable": configs}
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
        fields = {"haServerAddr": self.ha_address, "compressed": "false", "bodyCrc32": crc32(body), **ext}
        return self.ask(REGISTER, {**self.who, **fields}, body, version)

    def data_version(self) -> dict[str, int]:
        return {"counter": self.counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}


def _topic(name: str, perm: int = 6) -> dict[str, Any]:
    kind = {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    return {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": perm, **kind}


@pytest.fixture
def broker(name_servers: Pair, client: Twins) -> Iterator[Broker]:
    """A registered master with the topics One and Two; it is gone for all when the test ends."""
    broker = Broker(name_servers, "made-a")
    assert broker.register("One", "Two").code == 0
    yield broker
    broker.close()
    _wait_gone(client)


def _wait_gone(client: Twins) -> None:
    for connection in client.connections:
        _wait_empty(connection)


def _wait_empty(connection: Connection) -> None:
    wait_for("the brokers to go", lambda: not connection.ask(CLUSTER_INFO).json()["clusterAddrTable"])


# Routes.


@pytest.mark.parametrize("version", [0, 317, 400, 401, 513])
def test_route_has_the_form_that_the_version_reads(client: Twins, broker: Broker, version: int) -> None:
    answer = client.ask(ROUTE, {"topic": "One"}, version=version)
    id_as_text = b'"0"' if version >= STANDARD_JSON_SINCE else b"0"
    assert b"{" + id_as_text + b':"10.0.0.1:1"}' in answer.body


def test_old_client_may_ask_for_standard_json(client: Twins, broker: Broker) -> None:
    answer = client.ask(ROUTE, {"topic": "One", "acceptStandardJsonOnly": "true"}, version=317)
    assert b'{"0":"10.0.0.1:1"}' in answer.body


def test_route_over_two_brokers_and_a_slave(client: Twins, broker: Broker, name_servers: Pair) -> None:
    slave = Broker(name_servers, "made-a", 1, "10.0.0.2")
    other = Broker(name_servers, "made-b", 0, "10.0.0.3")
    try:
        slave.register("One", "Two")
        other.register("One", "Three")
        route = client.ask(ROUTE, {"topic": "One"}).json()
        assert sorted(data["brokerName"] for data in route["queueDatas"]) == ["made-a", "made-b"]
        assert {"0": "10.0.0.1:1", "1": "10.0.0.2:1"} in [data["brokerAddrs"] for data in route["brokerDatas"]]
        assert len(client.ask(ROUTE, {"topic": "Three"}).json()["brokerDatas"]) == 1
        assert sorted(client.ask(CLUSTER_INFO).json()["brokerAddrTable"]) == ["made-a", "made-b"]
    finally:
        slave.close()
        other.close()


def test_slave_without_master_may_act_for_it_if_it_says_so(client: Twins, name_servers: Pair) -> None:
    slave = Broker(name_servers, "made-c", 2)
    try:
        slave.register("One", "Two", enableActingMaster="true")
        (data,) = client.ask(ROUTE, {"topic": "One"}).json()["brokerDatas"]
        assert data["enableActingMaster"] is True
        assert client.ask(ROUTE, {"topic": "One"}).json()["queueDatas"][0]["perm"] == 4  # without a master: read only
    finally:
        slave.close()
        _wait_gone(client)


def test_lists(client: Twins, broker: Broker) -> None:
    assert sorted(client.ask(TOPIC_LIST).json()["topicList"]) == ["One", "Two"]
    assert sorted(client.ask(TOPICS_BY_CLUSTER, {"cluster": "Made"}).json()["topicList"]) == ["One", "Two"]
    assert client.ask(TOPICS_BY_CLUSTER, {"cluster": "none"}).json() == {"topicList": []}
    assert client.ask(SYSTEM_TOPICS).json() == {"brokerAddr": "10.0.0.1:1", "topicList": ["Made", "made-a"]}
    for code in UNIT_LISTS:
        assert client.ask(code).json() == {"topicList": []}


def test_members_of_a_group(client: Twins, broker: Broker) -> None:
    """Apache's forgets to clear a remark here; the rest must be alike."""
    for name, addresses in (("made-a", {"0": "10.0.0.1:1"}), ("nobody", {})):
        for connection in client.connections:
            answer = connection.ask(MEMBER_GROUP, {"clusterName": "Made", "brokerName": name})
            assert answer.code == 0
            members = {"cluster": "Made", "brokerName": name, "brokerAddrs": addresses}
            assert answer.json() == {"brokerMemberGroup": members}


# Registration.


def test_slave_is_told_of_its_master(broker: Broker, name_servers: Pair) -> None:
    slave = Broker(name_servers, "made-a", 1, "10.0.0.2")
    try:
        told = {"haServerAddr": "10.0.0.1:2", "masterAddr": "10.0.0.1:1"}
        assert slave.register("One", "Two").ext == told
        assert slave.register("One", "Two", version=317).ext == told
    finally:
        slave.close()


def test_registration_with_a_wrong_checksum_is_refused(client: Twins, broker: Broker) -> None:
    broker.counter = 2
    assert broker.register("One", "Two", "New", bodyCrc32=5).code == 1
    assert client.ask(ROUTE, {"topic": "New"}).code == 17
    assert broker.register("One", "Two", "New", bodyCrc32=0).code == 0  # nothing to check
    assert client.ask(ROUTE, {"topic": "New"}).code == 0


def test_a_single_topic_of_an_unknown_broker_does_not_register_it(client: Twins, name_servers: Pair) -> None:
    """A broker sends such a body when a topic changes; the broker itself must be known by then."""
    stranger = Broker(name_servers, "made-s")
    try:
        assert stranger.register("Only").code == 1
        assert client.ask(ROUTE, {"topic": "Only"}).code == 17
        assert stranger.register("One", "Two").code == 0
        assert stranger.register("Only").code == 0
        assert client.ask(ROUTE, {"topic": "Only"}).code == 0
        assert client.ask(ROUTE, {"topic": "Two"}).code == 0
    finally:
        stranger.close()
        _wait_gone(client)


def test_known_topics_change_only_with_the_data_version(client: Twins, broker: Broker) -> None:
    assert client.ask(WIPE, {"brokerName": "made-a"}).ext == {"wipeTopicCount": "2"}
    broker.register("One", "Two")
    assert client.ask(ROUTE, {"topic": "One"}).json()["queueDatas"][0]["perm"] == 4
    broker.counter = 2
    broker.register("One", "Two")
    assert client.ask(ROUTE, {"topic": "One"}).json()["queueDatas"][0]["perm"] == 6
    client.ask(WIPE, {"brokerName": "made-a"})
    assert client.ask(ADD_WRITE, {"brokerName": "made-a"}).ext == {"addTopicCount": "2"}
    assert client.ask(ROUTE, {"topic": "One"}).json()["queueDatas"][0]["perm"] == 6


def test_data_version_is_compared(broker: Broker) -> None:
    same = json.dumps(broker.data_version()).encode()
    assert broker.ask(DATA_VERSION, broker.who, same).ext == {"changed": "false"}
    broker.counter = 2
    newer = broker.ask(DATA_VERSION, broker.who, json.dumps(broker.data_version()).encode())
    assert newer.ext == {"changed": "true"}
    assert newer.json()["counter"] == 1  # what the name server has
    stranger = {**broker.who, "brokerAddr": "10.9.9.9:1"}
    assert broker.ask(DATA_VERSION, stranger, same).ext == {"changed": "true"}


def test_broker_is_told_of_ordered_topics(client: Twins, broker: Broker) -> None:
    where = {"namespace": "ORDER_TOPIC_CONFIG", "key": "One"}
    client.ask(PUT_KV, {**where, "value": "made-a:4"})
    try:
        assert broker.register("One", "Two").json() == {"table": {"One": "made-a:4"}}
    finally:
        client.ask(DELETE_KV, where)


def test_heartbeat(broker: Broker) -> None:
    assert broker.ask(HEARTBEAT, broker.who).code == 0
    assert broker.ask(HEARTBEAT, {**broker.who, "brokerAddr": "10.9.9.9:1"}).code == 0


def test_broker_unregisters(client: Twins, broker: Broker) -> None:
    assert broker.ask(UNREGISTER, {**broker.who, "brokerAddr": "10.9.9.9:1"}).code == 0  # not this one
    assert client.ask(ROUTE, {"topic": "One"}).code == 0
    assert broker.ask(UNREGISTER, broker.who).code == 0
    _wait_gone(client)
    assert client.ask(ROUTE, {"topic": "One"}).code == 17
    assert client.ask(TOPIC_LIST).json() == {"topicList": []}


# Topics by hand, and key-value settings.


def test_topic_is_registered_and_deleted_by_hand(client: Twins, broker: Broker) -> None:
    queues = {"brokerName": "made-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}
    client.ask(REGISTER_TOPIC, {"topic": "Hand"}, json.dumps({"queueDatas": [queues], "brokerDatas": []}).encode())
    assert client.ask(ROUTE, {"topic": "Hand"}).json()["queueDatas"] == [queues]
    assert client.ask(DELETE_TOPIC, {"topic": "Hand", "clusterName": "none"}).code == 0
    assert client.ask(ROUTE, {"topic": "Hand"}).code == 0
    assert client.ask(DELETE_TOPIC, {"topic": "Hand", "clusterName": "Made"}).code == 0
    assert client.ask(ROUTE, {"topic": "Hand"}).code == 17
    assert client.ask(DELETE_TOPIC, {"topic": "One"}).code == 0
    assert client.ask(ROUTE, {"topic": "One"}).code == 17
    assert client.ask(DELETE_TOPIC, {"topic": "never"}).code == 0


def test_key_value_settings(client: Twins) -> None:
    where = {"namespace": "NS", "key": "键"}
    assert client.ask(KV_LIST, {"namespace": "NS"}).code == 22
    assert client.ask(GET_KV, where).code == 22
    assert client.ask(PUT_KV, {**where, "value": "值🚀"}).code == 0
    assert client.ask(GET_KV, where).ext == {"value": "值🚀"}
    assert client.ask(KV_LIST, {"namespace": "NS"}).json() == {"table": {"键": "值🚀"}}
    assert client.ask(DELETE_KV, where).code == 0
    assert client.ask(GET_KV, where).code == 22
    assert client.ask(KV_LIST, {"namespace": "NS"}).json() == {"table": {}}


def test_settings_change_all_or_none(client: Twins) -> None:
    assert client.ask(UPDATE_SETTINGS, {}, b"scanNotActiveBrokerInterval=6000\nkvConfigPath=elsewhere\n").code == 16
    assert client.ask(UPDATE_SETTINGS).code == 0


# Nonsense.


@pytest.mark.parametrize("code", [10, 34, 9999, -1])
def test_unknown_request(client: Twins, code: int) -> None:
    assert client.ask(code, {}).code == 3


def test_one_way_request_is_not_answered(client: Twins) -> None:
    for connection in client.connections:
        connection.send(PUT_KV, {"namespace": "ONE_WAY", "key": "k", "value": "v"}, flag=ONE_WAY)
    # The next answer on the connection is that of the next request, or `ask` fails.
    for connection in client.connections:
        _wait_for_value(connection, {"namespace": "ONE_WAY", "key": "k"})


def _wait_for_value(connection: Connection, where: dict[str, str]) -> None:
    wait_for("the value", lambda: connection.ask(GET_KV, where).code == 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -5) + b"x" * 20, id="negative length"),
        pytest.param(struct.pack(">i", 0) + b"x" * 20, id="zero length"),
        pytest.param(struct.pack(">ii", 10, 100) + b"{}    ", id="header longer than its frame"),
        pytest.param(struct.pack(">ii", 12, 8) + b'{"code":', id="broken JSON"),
        pytest.param(struct.pack(">ii", 8, 4) + b"null", id="null header"),
        pytest.param(struct.pack(">ii", 9, (1 << 24) | 5) + b"12345", id="binary header cut short"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="HTTP"),
    ],
)
def test_nonsense_closes_the_connection(client: Twins, data: bytes) -> None:
    for connection in client.connections:
        connection.send_bytes(data)
        assert connection.is_closed_by_peer(PATIENCE_S)
