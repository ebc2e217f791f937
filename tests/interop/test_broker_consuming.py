"""Real clients consume: filtered, shared, broadcast, in order, again after a failure, later, and by asking."""

import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from tests.waiting import wait_equal, wait_for

from .clients import Kind
from .conftest import ON_KOUROU, scene_id
from .mqadmin import MqAdmin
from .scenarios import PATIENCE_S, ClientError, Driver, Found, Scene, bodies, properties

pytestmark = pytest.mark.interop

QUEUES = range(4)

TRIES = 5


# ── Which messages ────────────────────────────────────────────────────────────────────────────────────────────────


def test_tags(scene: Scene) -> None:
    topic = scene.new_topic("tags", queues=())
    for n, tag in enumerate(["a", "b", "c", "a", "b", "c", "c", "last"]):
        scene.send(topic, f"{n}{tag}", how="queue", queue=1, tag=tag)
    name = scene.consume(topic, scene.name("group"), tags="a || b||last")
    assert sorted(bodies(scene.received(name, 5))) == ["0a-0", "1b-0", "3a-0", "4b-0", "7last-0"]
    # Tags with the same hash: the broker can't tell them apart, the consumer does.
    name = scene.consume(topic, scene.name("group"), tags="AaAa || end")
    scene.send(topic, "same-hash", how="queue", queue=1, tag="BBBB")
    scene.send(topic, "wanted", how="queue", queue=1, tag="AaAa")
    scene.send(topic, "end", how="queue", queue=1, tag="end")
    assert sorted(bodies(scene.received(name, 2))) == ["end-0", "wanted-0"]


@pytest.mark.parametrize("where", ["first", "last", "timestamp"])
def test_where_a_new_group_begins(scene: Scene, where: str) -> None:
    """On a topic of which nothing was removed yet, that is the first message: the broker answers 0, whatever is set."""
    topic = scene.new_topic("where")
    name = scene.consume(topic, scene.name("group"), where=where)
    assert sorted(bodies(scene.received(name, 5))) == ["first-0"] * 4 + ["made-0"]


def test_a_topic_that_must_not_be_read_any_more(scene: Scene, mqadmin: MqAdmin) -> None:
    """A pull that waits at the broker meanwhile gets nothing either."""
    topic = scene.new_topic("forbidden", queues=())
    name = scene.consume(topic, scene.name("group"))
    scene.send(topic, "before", how="queue", queue=1)
    assert sorted(bodies(scene.received(name, 2))) == ["before-0", "made-0"]
    set_permission(scene, mqadmin, topic, "2")
    scene.send(topic, "meanwhile", how="queue", queue=1)
    assert scene.received(name, 1, 3) == []
    set_permission(scene, mqadmin, topic, "6")
    assert bodies(scene.received(name, 1)) == ["meanwhile-0"]


def set_permission(scene: Scene, mqadmin: MqAdmin, topic: str, permission: str) -> None:
    broker = scene.broker
    printed = mqadmin.run(
        broker.name_server_address, "updateTopicPerm", "-t", topic, "-b", broker.address, "-p", permission
    )
    assert "success" in printed


# ── Assignment ────────────────────────────────────────────────────────────────────────────────────────────────────


class Rounds:
    """Messages in rounds, one to each queue, until the consumers of a group share them as they should."""

    def __init__(self, scene: Scene, topic: str, consumers: dict[str, Driver]) -> None:
        self._scene = scene
        self._topic = topic
        self.consumers = consumers
        self.sent: set[str] = set()
        self.got: list[str] = []

    def send(self, prefix: str) -> list[str]:
        for queue in QUEUES:
            self._scene.send(self._topic, f"{prefix}.{queue}", how="queue", queue=queue)
        sent = [f"{prefix}.{queue}-0" for queue in QUEUES]
        self.sent.update(sent)
        return sent

    def shares(self, prefix: str) -> list[int]:
        """How many messages of one round each consumer got; what came late from earlier rounds is noted, too."""
        missing = set(self.send(prefix))
        shares: dict[str, int] = dict.fromkeys(self.consumers, 0)
        deadline = time.monotonic() + 60
        while missing:
            assert time.monotonic() < deadline, f"never came: {missing}"
            for name, driver in self.consumers.items():
                for one in self._scene.received(name, 100, 0, by=driver):
                    self.got.append(one["body"])
                    if one["body"].startswith(f"{prefix}."):
                        shares[name] += 1
                    missing.discard(one["body"])
        return sorted(shares.values())

    def until_shared(self, prefix: str, shares: list[int]) -> None:
        """Rounds until three in a row are shared so."""
        good = 0
        for number in range(1000):
            good = good + 1 if self.shares(f"{prefix}{number}") == shares else 0
            if good == 3:
                return
        raise AssertionError(f"never shared as {shares}")


def test_sharing_through_a_join_and_an_abrupt_death(scene: Scene) -> None:
    topic, group = scene.new_topic("shared", queues=()), scene.name("group")
    other = scene.start_driver()
    first = scene.consume(topic, group)
    rounds = Rounds(scene, topic, {first: scene.driver})
    rounds.until_shared("alone", [4])
    second = scene.consume(topic, group, by=other)
    rounds.consumers[second] = other
    rounds.until_shared("both", [2, 2])
    rounds.got.clear()
    settled = {body for n in range(10) for body in rounds.send(f"settled{n}")}
    got = [one["body"] for one in scene.received(first, 20)]
    got += [one["body"] for one in scene.received(second, 20, by=other)]
    assert sorted(got) == sorted(settled), "each exactly once"
    other.kill()
    del rounds.consumers[second]
    rounds.until_shared("after", [4])
    scene.close(first)


def test_the_broker_shares_the_queues(scene: Scene) -> None:
    """Clients with setClientRebalance(false) ask it for theirs, and for those of the retry topic."""
    if scene.kind not in (Kind.JAVA, Kind.JAVA_BINARY):
        pytest.skip("only Java's client of RocketMQ 5 asks")
    topic, group = scene.new_topic("asked", queues=()), scene.new_group()
    names = [scene.consume(topic, group, ask=1) for _ in range(2)]
    rounds = Rounds(scene, topic, dict.fromkeys(names, scene.driver))
    rounds.until_shared("both", [2, 2])
    scene.close(names[0])
    del rounds.consumers[names[0]]
    rounds.until_shared("after", [4])
    scene.close(names[1])
    again = scene.consume(topic, group, ask=1, fail=1)
    scene.send(topic, "again")
    assert [one["body"] for one in scene.received(again, 2)] == ["again-0"] * 2
    scene.close(again)


def test_java_and_go_in_one_group(scene: Scene) -> None:
    """They sort queues and each other alike, so that no queue has two consumers or none."""
    if scene.kind is Kind.GO:
        pytest.skip("the others of the group are Go's already")
    topic, group = scene.new_topic("mixed", queues=()), scene.name("group")
    go = scene.start_go()
    first = scene.consume(topic, group)
    second = scene.consume(topic, group, by=go)
    rounds = Rounds(scene, topic, {first: scene.driver, second: go})
    rounds.until_shared("mixed", [2, 2])
    scene.close(first)


def test_broadcasting(scene: Scene) -> None:
    topic, group = scene.new_topic("broadcast"), scene.name("group")
    everything = ["first-0"] * 4 + ["made-0"]
    names = [scene.consume(topic, group, model="BROADCASTING", instance=f"{group}-{n}") for n in range(2)]
    for name in names:
        assert sorted(bodies(scene.received(name, 5))) == everything
    # Where each of them is, it keeps itself.
    scene.close(names[0])
    scene.send(topic, "meanwhile")
    again = scene.consume(topic, group, model="BROADCASTING", instance=f"{group}-0")
    assert bodies(scene.received(names[1], 1)) == ["meanwhile-0"]
    assert bodies(scene.received(again, 1)) == ["meanwhile-0"]
    scene.close(names[1])
    scene.close(again)


# ── In order, again, later ────────────────────────────────────────────────────────────────────────────────────────


def test_order_with_two_consumers_and_failures(scene: Scene) -> None:
    """Each message fails once: it comes again, and nothing of its queue overtakes it."""
    topic, group = scene.new_topic("order", queues=()), scene.name("group")
    names = [scene.consume(topic, group, order=1, fail=1, suspend=20) for _ in range(2)]
    for n in range(6):
        for queue in QUEUES:
            scene.send(topic, f"{queue}.{n}", how="queue", queue=queue)
    by_queue: dict[str, list[Found]] = defaultdict(list)
    succeeded: dict[str, int] = defaultdict(int)
    deadline = time.monotonic() + 240  # the Go client tries to get a lock three times a minute
    while len(succeeded) < 25 or min(succeeded.values()) < 2:
        assert time.monotonic() < deadline, f"still missing, of 25: {dict(succeeded)}"
        for name in names:
            for one in scene.received(name, 100, 0):
                by_queue[one["queue"]].append(one)
                succeeded[one["body"]] += 1
    for which, deliveries in by_queue.items():
        order = [int(one["offset"]) for one in sorted(deliveries, key=lambda one: int(one["arrived"]))]
        # A consumer that takes over a queue may begin a little before where the other was, never after.
        steps = [later - earlier for earlier, later in pairwise(order)]
        assert max(steps) <= 1, f"queue {which}: {order}"
        assert sorted(set(order)) == list(range(len(set(order))))
    for name in names:
        scene.close(name)


def test_retry_then_success(scene: Scene) -> None:
    topic, group = scene.new_topic("retry", queues=()), scene.new_group()
    name = scene.consume(topic, group, fail=2)
    (sent,) = scene.send(topic, "stubborn", tag="t", keys="k", **properties(mine="kept"))
    deliveries = [one for one in scene.received(name, 6) if one["body"] == "stubborn-0"]
    assert [int(one["tries"]) for one in deliveries] == [0, 1, 2]
    for one in deliveries:
        assert (one["topic"], one["tag"], one["keys"].strip(), one["property.mine"]) == (topic, "t", "k", "kept")
        assert one["id"] == sent["id"]
    scene.close(name)


def test_dead_letters(scene: Scene) -> None:
    topic, group = scene.new_topic("dead", queues=()), scene.new_group()
    name = scene.consume(topic, group, fail=-1, max=1)
    scene.send(topic, "hopeless", keys="k")
    deliveries = [one for one in scene.received(name, 4) if one["body"] == "hopeless-0"]
    assert [int(one["tries"]) for one in deliveries] == [0, 1]
    letters = f"%DLQ%{group}"

    def read() -> str | None:
        try:
            return scene.consume(letters, scene.name("undertakers"))
        except ClientError:  # nobody knows the topic yet
            return None

    scene.wait_for_route(letters)
    dead = scene.received(wait_for("a reader of dead letters", read, PATIENCE_S), 2)
    assert sorted(bodies(dead)) == ["hopeless-0", "made-0"]
    (hopeless,) = [one for one in dead if one["body"] == "hopeless-0"]
    assert (hopeless["keys"].strip(), hopeless["property.RETRY_TOPIC"]) == ("k", topic)
    scene.close(name)


def test_delay_levels(scene: Scene) -> None:
    """Never early, and soon. A machine that is busy with other things may need more than one try."""
    topic = scene.new_topic("delayed", queues=())
    name = scene.consume(topic, scene.name("group"))
    assert bodies(scene.received(name, 1)) == ["made-0"]
    for _ in range(TRIES):
        scene.send(topic, "two", delay=2)
        scene.send(topic, "one", delay=1)
        scene.send(topic, "now")
        received = scene.received(name, 3)
        by_body = {one["body"]: one for one in received}
        assert by_body.keys() == {"now-0", "one-0", "two-0"}
        assert {one["topic"] for one in received} == {topic}
        late = [
            int(by_body[body]["arrived"]) - int(by_body[body]["born"]) - level
            for body, level in (("one-0", 1000), ("two-0", 2000))
        ]
        assert min(late) >= -5, f"{late} ms late"
        if bodies(received) == ["now-0", "one-0", "two-0"] and max(late) < 1500:
            return
    raise AssertionError(f"{late} ms late, as {bodies(received)}")


def test_timers(scene: Scene) -> None:
    """The same with an exact delay. Apache's broker delivers up to a second later, and then some."""
    topic = scene.new_topic("timed", queues=())
    name = scene.consume(topic, scene.name("group"))
    assert bodies(scene.received(name, 1)) == ["made-0"]
    for _ in range(TRIES):
        scene.send(topic, "two", timer=2_345)
        scene.send(topic, "one", timer=1_050)
        scene.send(topic, "now")
        by_body = {one["body"]: one for one in scene.received(name, 3)}
        assert by_body.keys() == {"now-0", "one-0", "two-0"}
        late = [
            int(by_body[body]["arrived"]) - int(by_body[body]["born"]) - delay_ms
            for body, delay_ms in (("one-0", 1_050), ("two-0", 2_345))
        ]
        assert min(late) >= -5, f"{late} ms late"
        if max(late) < 2_500:
            return
    raise AssertionError(f"{late} ms late")


# ── By asking ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pull_consumer(scene: Scene) -> None:
    topic, group = scene.new_topic("pulled", queues=()), scene.name("pullers")
    for n, tag in enumerate("aabab"):
        scene.send(topic, str(n), how="queue", queue=2, tag=tag)
    (made,) = scene.send(topic, "5", how="queue", queue=2, tag="a")
    queue: dict[str, Any] = {"topic": topic, "group": group, "queue": 2, "broker": made["broker"]}
    begin = int(made["offset"]) - 5
    scene.wait_for_end(topic, 2, begin + 6)
    head, *found = scene.ask("pull", **queue, offset=begin, count=4)
    assert (head["status"], head["next"], head["max"]) == ("FOUND", str(begin + 4), str(begin + 6))
    assert bodies(found) == ["0-0", "1-0", "2-0", "3-0"]
    head, *found = scene.ask("pull", **queue, offset=begin + 100)
    assert (head["status"], head["next"], found) == ("OFFSET_ILLEGAL", str(begin + 6), [])
    if scene.kind is Kind.GO:  # asks for all tags, and always waits
        return
    head, *found = scene.ask("pull", **queue, offset=begin, tags="b")
    assert (head["status"], bodies(found)) == ("FOUND", ["2-0", "4-0"])
    head, *found = scene.ask("pull", **queue, offset=begin, tags="nothing")
    assert (head["status"], head["next"], found) == ("NO_MATCHED_MSG", str(begin + 6), [])
    head, *found = scene.ask("pull", **queue, offset=begin + 6)
    assert (head["status"], head["next"], found) == ("NO_NEW_MSG", str(begin + 6), [])
    (places,) = scene.ask("places", **queue, time=0)
    assert places == {"min": "0", "max": str(begin + 6), "at": "0"}
    (kept,) = scene.ask("kept", **queue)
    assert kept == {"offset": "0"}
    scene.ask("keep", **queue, offset=begin + 3)  # without an answer: it may be overtaken by what is asked next
    wait_equal(lambda: scene.ask("kept", **queue), [{"offset": str(begin + 3)}], PATIENCE_S)


def test_lite_pull_consumer(scene: Scene) -> None:
    topic, group = scene.new_topic("lite"), scene.name("lite")
    everything = ["first-0"] * 4 + ["made-0"]
    name = scene.name("lite")
    scene.ask("lite", name=name, topic=topic, group=group)
    assert sorted(bodies(scene.driver.ask("poll", name=name, count=5))) == everything
    if scene.kind is Kind.GO:  # has neither seek nor assign
        scene.close(name)
        return
    (committed,) = scene.driver.ask("commit", name=name, topic=topic, queue=1)
    scene.close(name)
    kept = committed
    assert int(kept["offset"]) >= 1
    wait_equal(lambda: scene.ask("kept", topic=topic, group=group, queue=1), [kept], PATIENCE_S)

    # A consumer that returns continues; it may get other queues.
    scene.send(topic, "later", how="queue", queue=1)
    scene.ask("lite", name=name, topic=topic, group=group, assign=1)
    assert bodies(scene.driver.ask("poll", name=name, count=1)) == ["later-0"]
    scene.driver.ask("seek", name=name, topic=topic, queue=1, offset="begin")
    again = scene.driver.ask("poll", name=name, count=int(kept["offset"]) + 1)
    assert bodies(again)[-2:] == ["first-0", "later-0"]
    scene.driver.ask("seek", name=name, topic=topic, queue=1, offset=int(kept["offset"]))
    assert bodies(scene.driver.ask("poll", name=name, count=1)) == ["later-0"]
    scene.driver.ask("seek", name=name, topic=topic, queue=1, offset="end")
    scene.send(topic, "last", how="queue", queue=1)
    assert bodies(scene.driver.ask("poll", name=name, count=1)) == ["last-0"]
    scene.close(name)


def test_request_and_reply(scene: Scene) -> None:
    topic = scene.new_topic("asked", queues=())
    name = scene.consume(topic, scene.name("group"), reply=1, tags="question")
    (reply,) = scene.ask("request", topic=topic, prefix="wie-gehts", seconds=30, tag="question")
    assert reply["body"] == "WIE-GEHTS-0"
    scene.close(name)


# ── Soon ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scene", ON_KOUROU, indirect=True, ids=scene_id)
def test_an_idle_consumer_gets_messages_at_once(scene: Scene) -> None:
    """Within 20 ms, 99 of 100. A machine that is busy with other things may need more than one try."""
    topic = scene.new_topic("soon", queues=())
    name = scene.consume(topic, scene.name("group"))
    assert bodies(scene.received(name, 1)) == ["made-0"]
    scene.ask("delays", name=name, topic=topic, prefix="warm", count=300)
    best = 1_000_000
    for _ in range(TRIES):
        took = sorted(int(one["us"]) for one in scene.ask("delays", name=name, topic=topic, prefix="soon", count=200))
        best = min(best, took[len(took) * 99 // 100])
        if best <= 20_000:
            break
    assert best <= 20_000, f"{best} µs at the 99th percentile"
    scene.close(name)
