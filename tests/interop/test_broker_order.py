"""Order when consumers die, and order topics that the name server fixes: the real Java client, both brokers."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import wait_for

from .clients import Kind
from .conftest import StartDriver
from .mqadmin import MqAdmin
from .scenarios import PATIENCE_S, Driver, Found, Scene
from .servers import ApacheStage, KourouRun
from .test_replication import GROUP, TOPIC, Broker, Pair, Start, wait_equal_logs
from .wire import Connection
from .worlds import needed

pytestmark = pytest.mark.interop

QUEUES = range(4)
LOCK, UNLOCK = 41, 42
LOCK_S = 60
"""How long a broker keeps the locks of a consumer that is gone."""


@pytest.fixture
def java_scene(scene: Scene) -> Scene:
    if scene.kind is not Kind.JAVA:
        pytest.skip("order under failure is decided by the broker: the tests take a minute, and run with one client")
    return scene


def held(name: str, topic: str, *, by: Driver) -> set[str]:
    """The queues of a topic that a consumer has."""
    return {one["queue"] for one in by.ask("held", name=name, topic=topic)}


def send_round(scene: Scene, topic: str, word: str) -> None:
    for queue in QUEUES:
        scene.send(topic, f"{word}.{queue}", how="queue", queue=queue)


def check_order(deliveries: list[Found], count: int) -> None:
    """All messages of a queue, none before its predecessor."""
    offsets = [int(one["offset"]) for one in sorted(deliveries, key=lambda one: int(one["arrived"]))]
    assert max((later - earlier for earlier, later in pairwise(offsets)), default=0) <= 1, offsets
    assert sorted(set(offsets)) == list(range(count)), offsets


def test_another_consumer_takes_over_in_order(java_scene: Scene) -> None:
    """A consumer is killed while it consumes. The other one goes on with its queues: in order, nothing is left out, and
    not before the lock of the dead one has expired."""
    scene = java_scene
    topic, group = scene.new_topic("takeover", queues=()), scene.new_group()
    dying, living = scene.start_driver(), scene.driver
    first = scene.consume(topic, group, by=dying, order=1)
    second = scene.consume(topic, group, order=1)
    shared = [(first, dying), (second, living)]
    wait_for("two queues each", lambda: all(len(held(name, topic, by=by)) == 2 for name, by in shared), PATIENCE_S)
    for number in range(5):
        send_round(scene, topic, f"before-{number}")
    wait_for("the messages", lambda: sum(scene.end_of(topic, queue) for queue in QUEUES) == 21, PATIENCE_S)
    lost = held(first, topic, by=dying)
    of_first = scene.received(first, sum(scene.end_of(topic, int(queue)) for queue in lost), by=dying)
    assert {one["queue"] for one in of_first} == lost
    dying.kill()
    killed_s = time.time()
    for number in range(5):
        send_round(scene, topic, f"after-{number}")
    wait_for("the messages", lambda: sum(scene.end_of(topic, queue) for queue in QUEUES) == 41, PATIENCE_S)
    of_second: list[Found] = []
    counts = {str(queue): scene.end_of(topic, queue) for queue in QUEUES}
    by_queue: dict[str, list[Found]] = defaultdict(list)

    def is_done() -> bool:
        got = scene.received(second, 100, 1)
        of_second.extend(got)
        for one in got:
            by_queue[one["queue"]].append(one)
        return all(any(int(one["offset"]) == counts[queue] - 1 for one in by_queue[queue]) for queue in counts)

    wait_for("all messages", is_done, LOCK_S + PATIENCE_S)
    for queue in counts:
        check_order([one for one in [*of_first, *of_second] if one["queue"] == queue], counts[queue])
    for queue in lost:
        taken_s = min(int(one["arrived"]) for one in by_queue[queue]) / 1000
        assert taken_s > killed_s, "consumed by both at the same time"
    scene.close(second)


@pytest.fixture(params=["kourou", "apache"])
def strict_scene(
    request: pytest.FixtureRequest, driver_of: StartDriver, start_driver: StartDriver, tmp_path: Path
) -> Iterator[Scene]:
    """A broker of its own with lockInStrictMode."""
    kind = KourouRun if request.param == "kourou" else ApacheStage
    with needed():
        broker = kind(tmp_path / request.param, "lockInStrictMode=true")
    driver = driver_of(Kind.JAVA)
    yield Scene(broker, driver, lambda: start_driver(Kind.JAVA), lambda: start_driver(Kind.GO))
    broker.kill() if isinstance(broker, KourouRun) else broker.kill_all()


def test_locks_in_strict_mode(strict_scene: Scene) -> None:
    """With a single replica a majority is the broker itself: messages are consumed in order as before."""
    scene = strict_scene
    topic, group = scene.new_topic("strict", queues=()), scene.new_group()
    name = scene.consume(topic, group, order=1, fail=1, suspend=20)
    for number in range(3):
        send_round(scene, topic, f"m-{number}")
    wait_for("the messages", lambda: sum(scene.end_of(topic, queue) for queue in QUEUES) == 13, PATIENCE_S)
    found = scene.received(name, 26)
    for queue in QUEUES:
        check_order([one for one in found if one["queue"] == str(queue)], scene.end_of(topic, queue))
    scene.close(name)


def lock(broker: Broker, code: int, client_id: str, *, only_this_broker: bool = False) -> int:
    """How many queues a client has now, of one."""
    queue = {"topic": TOPIC, "brokerName": GROUP, "queueId": 0}
    body = {"consumerGroup": "g-strict", "clientId": client_id, "mqSet": [queue], "onlyThisBroker": only_this_broker}
    with Connection(broker.address) as connection:
        answer = connection.ask(code, body=json.dumps(body).encode())
    assert answer.code == 0, answer.remark
    return 0 if code == UNLOCK else len(answer.json()["lockOKMQSet"])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as at_end:
        yield Pair(tmp_path, at_end)


KINDS = {
    "ours": (Pair.ours, Pair.ours),
    "apaches-slave": (Pair.ours, Pair.apaches),
    "our-slave": (Pair.apaches, Pair.ours),
}


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_a_lock_that_the_group_has_granted_outlives_its_master(pair: Pair, kinds: tuple[Start, Start]) -> None:
    """In strict mode the slave has the locks of its master, whichever of them is an Apache broker."""
    # An Apache broker looks for its group if a slave may act as the master.
    settings = {"lockInStrictMode": "true", "totalReplicas": 2, "enableSlaveActingMaster": "true"}
    master = kinds[0](pair, "master", **settings)
    pair.send(5)
    slave = kinds[1](pair, "slave", brokerRole="SLAVE", brokerId=1, **settings)
    wait_equal_logs(master, slave)
    wait_for("a lock of both brokers", lambda: lock(master, LOCK, "c1") == 1, PATIENCE_S)
    assert lock(master, LOCK, "c2") == 0
    assert lock(slave, LOCK, "c2", only_this_broker=True) == 0, "the slave knows who has the queue"
    lock(master, UNLOCK, "c1")
    wait_for("the end of the lock", lambda: lock(slave, LOCK, "c2", only_this_broker=True) == 1, PATIENCE_S)
    lock(slave, UNLOCK, "c2", only_this_broker=True)
    slave.kill()
    wait_for("locks to need the slave", lambda: lock(master, LOCK, "c1") == 0, PATIENCE_S)


def test_queues_of_an_order_topic(java_scene: Scene, mqadmin: MqAdmin) -> None:
    """The name server fixes the number of queues of an order topic, and producers use no others."""
    scene, servers = java_scene, java_scene.broker.name_server_address
    topic, group = scene.new_topic("fixed", queues=()), scene.new_group()
    mqadmin.run(servers, "updateOrderConf", "-t", topic, "-m", "put", "-v", "broker-a:2")
    mqadmin.run(servers, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    try:
        wait_for("the route", lambda: "broker-a:2" in mqadmin.run(servers, "topicRoute", "-t", topic), PATIENCE_S)
        sender, consumer = scene.start_driver(), scene.start_driver()
        name = scene.consume(topic, group, by=consumer, order=1)
        sent = scene.send(topic, "ordered", 8, by=sender)
        assert {one["queue"] for one in sent} == {"0", "1"}
        got = [one for one in scene.received(name, 9, by=consumer) if one["body"].startswith("ordered")]
        assert {one["queue"] for one in got} == {"0", "1"}
        assert len(got) == 8
    finally:
        mqadmin.run(servers, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
        mqadmin.run(servers, "updateOrderConf", "-t", topic, "-m", "delete")
