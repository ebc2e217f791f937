"""Members of groups, their subscriptions, and notices of changes."""

import logging
from typing import Any

import msgspec
import pytest
from tests.unit.broker.asking import ok, request

from kourou.broker.clients import BROADCASTING, LATE_NOTICE_MS, Client, Clients
from kourou.broker.events import Outbox, Peer, Tell
from kourou.broker.settings import BrokerSettings
from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.testing.broker import SimulatedBroker
from kourou.turns import at_once

GROUP = "billing"


class Door:
    """Clients come and go."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.settings = BrokerSettings()
        self.clients = Clients(self.settings, self.outbox)
        self._port = 0

    def peer(self) -> Peer:
        self._port += 1
        return Peer(f"10.0.0.1:{self._port}", bytes(8))

    def beat(
        self, peer: Peer, name: str, now_ms: int = 0, topics: tuple[str, ...] = ("orders",), **more: Any
    ) -> list[Peer]:
        """A heartbeat of a consumer. Returns the members that are notified."""
        subscriptions = more.pop(
            "subscriptions", [SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics]
        )
        data = ConsumerData(
            group_name=GROUP, subscription_data_set=subscriptions, message_model=more.pop("model", None)
        )
        options = {"notify": True, **more}
        self.clients.register_consumer(data, Client(peer, name, "JAVA", 1, now_ms), now_ms, **options)
        return self.told()

    def produce(self, peer: Peer, name: str, group: str = "producers", now_ms: int = 0) -> None:
        self.clients.register_producer(group, Client(peer, name, "JAVA", 1, now_ms), now_ms)

    def told(self) -> list[Peer]:
        peers = []
        for effect in self.outbox.take():
            assert isinstance(effect, Tell)
            assert effect.command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert effect.command.is_one_way
            assert effect.command.ext == {"consumerGroup": GROUP}
            peers.append(effect.peer)
        return peers


@pytest.fixture
def door() -> Door:
    return Door()


# ── Consumers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_members_hear_of_a_new_one(door: Door) -> None:
    first, second = door.peer(), door.peer()
    assert door.beat(first, "c1") == [first]
    assert door.beat(second, "c2") == [first, second]
    assert door.beat(first, "c1") == [], "nothing new"
    group = door.clients.group(GROUP)
    assert group is not None and group.client_ids() == ["c1", "c2"]


def test_all_members_hear_of_another_topic(door: Door) -> None:
    peer = door.peer()
    door.beat(peer, "c1")
    assert door.beat(peer, "c1", topics=("orders", "refunds")) == [peer]
    assert door.beat(peer, "c1", topics=("refunds",)) == [peer]
    assert door.clients.subscription(GROUP, "orders") is None
    assert door.clients.groups_of("refunds") == [GROUP]


def test_a_newer_subscription_replaces_an_older_one_and_not_the_other_way(door: Door) -> None:
    peer = door.peer()
    for text, version in (("a", 5), ("b", 9), ("c", 7)):
        subscription = SubscriptionData(topic="orders", sub_string=text, sub_version=version)
        door.beat(peer, "c1", subscriptions=[subscription])
    found = door.clients.subscription(GROUP, "orders")
    assert found is not None and found.sub_string == "b"


def test_members_that_disagree_are_both_named(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    first, second = door.peer(), door.peer()
    door.beat(first, "c1", subscriptions=[SubscriptionData(topic="orders", sub_string="a", sub_version=1)])
    door.beat(second, "c2", subscriptions=[SubscriptionData(topic="orders", sub_string="b", sub_version=2)])
    assert "c2 subscribes to 'b', others to 'a'" in caplog.text
    door.beat(second, "c2", topics=("refunds",))
    assert "c2 does not subscribe to orders, unlike others" in caplog.text


def test_a_heartbeat_without_subscriptions_leaves_them(door: Door) -> None:
    peer = door.peer()
    door.beat(peer, "c1")
    assert door.beat(peer, "c1", topics=(), with_subscriptions=False) == []
    assert door.clients.subscription(GROUP, "orders") is not None


def test_groups_that_want_no_notice_get_none(door: Door) -> None:
    assert door.beat(door.peer(), "c1", notify=False) == []


def test_a_broker_that_gives_no_notice_gives_none(door: Door) -> None:
    door.settings.notify_members = False
    assert door.beat(door.peer(), "a") == []
    peer = door.peer()
    assert door.beat(peer, "b") == []
    door.clients.gone(peer)
    assert door.told() == []


def test_notice_may_wait_for_more_changes(door: Door) -> None:
    door.settings.notify_at_once = False
    door.clients.step(100_000)
    peers = [door.peer(), door.peer(), door.peer()]
    for peer, name in zip(peers, "abc", strict=True):
        assert door.beat(peer, name) == []
    door.clients.step(100_000)
    assert door.told() == peers
    door.clients.gone(peers.pop())
    door.clients.step(100_000 + LATE_NOTICE_MS - 1)
    assert door.told() == []
    door.clients.step(100_000 + LATE_NOTICE_MS)
    assert door.told() == peers
    door.clients.step(200_000)
    assert door.told() == []


def test_broadcasting_groups_share_nothing_and_are_told_nothing(door: Door) -> None:
    assert door.beat(door.peer(), "c1", model=BROADCASTING) == []


def test_members_are_notified_when_one_leaves(door: Door) -> None:
    first, second = door.peer(), door.peer()
    door.beat(first, "c1")
    door.beat(second, "c2")
    door.clients.unregister_consumer(GROUP, second, notify=True)
    assert door.told() == [first]
    assert second.groups == set()
    door.clients.unregister_consumer(GROUP, first, notify=True)
    assert door.told() == []
    assert door.clients.group(GROUP) is None
    door.clients.unregister_consumer(GROUP, first, notify=True)  # nobody there any more


def test_a_lost_connection_leaves_all_its_groups(door: Door) -> None:
    first, second = door.peer(), door.peer()
    door.beat(first, "c1")
    door.beat(second, "c2")
    door.produce(second, "c2")
    door.clients.gone(second)
    assert door.told() == [first]
    assert (door.clients.producers, door.clients.by_id, second.groups) == ({}, {}, set())


def test_heartbeats_with_the_same_fingerprint_say_nothing_new(door: Door) -> None:
    clients = door.clients
    assert not clients.heartbeat_changes(GROUP, 7), "the first one has nothing to differ from"
    assert not clients.heartbeat_changes(GROUP, 7)
    assert clients.heartbeat_changes(GROUP, 8)


def test_two_connections_of_one_client(door: Door) -> None:
    first, second = door.peer(), door.peer()
    door.beat(first, "c1")
    door.beat(second, "c1")
    group = door.clients.group(GROUP)
    assert group is not None and group.client_ids() == ["c1", "c1"]
    door.clients.gone(first)
    assert group.client("c1") is not None and group.client("c2") is None


# ── Producers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_producers_are_found_by_their_id(door: Door) -> None:
    peer = door.peer()
    door.produce(peer, "p1")
    assert door.clients.by_id["p1"].peer is peer
    door.clients.unregister_producer("producers", peer)
    assert door.clients.by_id == {}
    door.clients.unregister_producer("producers", peer)  # nobody there any more


def test_a_producer_of_two_groups_is_found_until_it_has_left_both(door: Door) -> None:
    peer = door.peer()
    door.produce(peer, "p1", "one")
    door.produce(peer, "p1", "two")
    door.clients.unregister_producer("two", peer)
    assert door.clients.by_id["p1"].peer is peer
    door.clients.unregister_producer("one", peer)
    assert door.clients.by_id == {}


def test_an_old_connection_that_ends_does_not_take_the_new_one_along(door: Door) -> None:
    old, new = door.peer(), door.peer()
    door.produce(old, "p1")
    door.produce(new, "p1")
    door.clients.gone(old)
    assert door.clients.by_id["p1"].peer is new


# ── Silence ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_silent_members(door: Door) -> None:
    quiet, lively, producer = door.peer(), door.peer(), door.peer()
    door.beat(quiet, "c1", 1_000)
    door.beat(lively, "c2", 1_000)
    door.produce(producer, "p1", now_ms=1_000)
    door.beat(lively, "c2", 5_000)
    assert at_once(door.clients.silent(2_000)) == {quiet, producer}
    door.produce(producer, "p1", now_ms=6_000)
    assert at_once(door.clients.silent(2_000)) == {quiet}


def test_names_that_would_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = SimulatedBroker()
    with caplog.at_level(logging.INFO):
        beat = {"clientID": "me\nERROR forged" + "x" * 900, "producerDataSet": [{"groupName": "g\x1b[31m"}]}
        ok(world.connect(), request(RequestCode.HEART_BEAT, body=msgspec.json.encode(beat)))
    (line,) = [record.getMessage() for record in caplog.records if "producer joined" in record.getMessage()]
    assert line.isprintable()
    assert len(line) < 500
